"""unified(query, viewer) -> UnifiedResult: memories and the rows of the vocabulary in one order.

Ten concurrent legs (`legs`) find candidates, which are fused, reranked and deduplicated there; then a page of them
is loaded (`rows`). Facets and totals are those of the match set of memories.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from django.conf import settings
from django.db import connection

from access.viewer import Viewer
from categories.paths import fold_name
from categories.searched_terms import RELATIONSHIPS
from categories.texts import as_array, as_projects
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineQuery, Filter
from search.facet_counts import value_terms
from search.facets import FACET, HIDDEN_STATES
from search.plan import ResolvedQuery, not_ready_warning, resolve_query
from search.query import Mode, SearchQuery
from search.ranking import Boosts, Ranked, RankWeights, below_successors, boosts_of, successors_of
from search.result import HitDetail, SearchResult, SearchWarning, page_warnings, pages_of
from search.run import run
from search.unified.legs import (
    TABLES,
    TERM_KINDS,
    WINDOW,
    Candidate,
    FoldedGroup,
    Key,
    LegAnswer,
    LegState,
    Origin,
    ResultKind,
    RunningLegs,
    Terms,
    Way,
    fold,
    fuse,
    rerank,
)
from search.unified.questions import Fit, is_question
from search.unified.rows import PageContext, UnifiedHit, read_page
from search.unified.vocabulary import (
    LegHit,
    every_word,
    named_ids,
    rows_by_meaning,
    rows_by_words,
    rows_found,
    rows_read,
)
from text.formatting import listed
from web.timing import Stopwatch, took_ms

# The least similarity of what is offered beside memories.
_KNOWN_SIMILARITY = 0.6
# The factor for relationships that are no longer valid.
_PAST = 0.8
# The ids of the terms of a memory by kind; a category is also that of the memories of its descendants.
_COLUMNS = {
    ResultKind.ENTITY: "entity_ids",
    ResultKind.CONCEPT: "concept_ids",
    ResultKind.CATEGORY: "category_path_ids",
}
# All terms of a row, and those of its description, without its name.
_TERMS = """
SELECT m.id, array_to_string(tsvector_to_array(m.terms), E'\\x01'),
       array_to_string(tsvector_to_array(ts_filter(m.terms, '{{b,d}}')), E'\\x01')
FROM {rows} WHERE m.id = ANY(%(ids)s)"""
# Terms of the title and content of a memory, without tags and references.
_MEMORY_TERMS = """
SELECT id, array_to_string(tsvector_to_array(ts_filter(terms, '{a,d}')), E'\\x01'), ''
FROM memories_memory WHERE id = ANY(%(ids)s)"""
_CARRYING = "SELECT id, {column} FROM memories_memory WHERE id = ANY(%s) AND {column} && %s::int[]"


@dataclass(frozen=True, slots=True)
class KindTotal:
    """The number of results of a kind; a lower bound with `at_least`."""

    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class UnifiedResult:
    """The result of a unified search.

    `memories` is the match set of memories without hits: total, facets, histogram, warnings. `found` is the number of
    results over all pages, `found_by_kind` the same by kind; a group of duplicates counts once, and `grouped` is the
    number of its other members.
    """

    query: SearchQuery
    memories: SearchResult
    hits: tuple[UnifiedHit, ...]
    found: int
    found_by_kind: dict[ResultKind, int]
    grouped: int
    totals: dict[ResultKind, KindTotal]
    legs: tuple[LegAnswer, ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def answer(self) -> SearchResult:
        """The result of a plain search, with the memories among the results as hits."""
        hits = tuple(hit.memory for hit in self.hits if hit.memory)
        # Nothing has to be relaxed where terms or facts are found.
        relaxations = () if self.found else self.memories.relaxations
        plain = replace(self.memories, query=self.query, hits=hits, relaxations=relaxations)
        return replace(plain, warnings=self.warnings, timings=self.timings)

    @property
    def pages(self) -> int:
        return pages_of(self.query, self.found)

    @property
    def has_more(self) -> bool:
        return self.query.begin + self.query.page_size < self.found

    @property
    def took_ms(self) -> float:
        return took_ms(self.timings)


def unified(
    query: SearchQuery,
    viewer: Viewer,
    *,
    include_facets: bool | None = None,
    facet_limit: int | None = None,
    with_corpus: bool = False,
    lenient: bool = False,
) -> UnifiedResult:
    """Search memories and the vocabulary. See docs/unified.md."""
    # Without hits: the legs find and rank them.
    count_memories = partial(
        run,
        query.replace(page=1, offset=0),
        viewer,
        include_facets=include_facets,
        facet_limit=facet_limit,
        detail=HitDetail.NONE,
        with_corpus=with_corpus,
        lenient=lenient,
    )
    return with_engine(lambda engine: _unified(engine, query, viewer, count_memories, lenient=lenient), viewer)


def _unified(
    engine: Engine, query: SearchQuery, viewer: Viewer, count_memories: Callable[[], SearchResult], *, lenient: bool
) -> UnifiedResult:
    watch = Stopwatch(engine.waited_ms)
    now = datetime.now(UTC)
    with watch.stage("plan"), snapshot():
        resolved = resolve_query(engine, query, viewer, now, lenient=lenient)
    legs = RunningLegs(resolved, viewer)
    # The legs run in threads meanwhile.
    memories = count_memories()
    with watch.stage("legs"):
        answers = legs.answers()
    with watch.stage("hits"), snapshot():
        memories = replace(memories, hidden=memories.hidden + _count_hidden(engine, query, resolved, answers))
        candidates = fuse(answers, settings.UNIFIED_WEIGHTS)
        origins = _origins(candidates, answers)
        candidates = rerank(candidates, _boosts(candidates, origins, now), RankWeights(**settings.SEARCH_WEIGHTS))
        candidates = _below_successors(candidates, resolved.plan)
        fit = _fits(answers)
        candidates = _answering_first(candidates, fit)
        terms = _terms(candidates[:WINDOW], resolved.plan)
        named = _named_ranks(resolved, _hits_by_key(answers))
        named |= {key: (False, 0) for key, own in fit.items() if own.is_whole}
        groups = fold(candidates, terms, origins, settings.UNIFIED_DEDUP_SIMILARITY, named)
        begin = query.begin
        page = groups[begin : begin + query.page_size]
        context = PageContext(engine, resolved, viewer, _hits_by_key(answers), candidates, origins)
        hits = read_page(page, context, {group.lead.id: ranked for group, ranked in _ranked_memories(page, answers)})
    return UnifiedResult(
        query=query,
        memories=memories,
        hits=hits,
        found=len(groups),
        found_by_kind=dict(Counter(group.lead.kind for group in groups)),
        grouped=sum(len(group.folded) for group in groups),
        totals=_totals(memories, answers),
        legs=tuple(answers),
        # The search for memories gives the same warning, unless the model has been loaded in the meantime.
        warnings=tuple(
            dict.fromkeys(
                (
                    *([not_ready_warning(resolved.without_meaning)] if resolved.without_meaning else ()),
                    *memories.warnings,
                    *_left_out(answers, resolved.without_meaning),
                    *_coverage_warnings(answers),
                    *page_warnings(query, len(groups)),
                )
            )
        ),
        timings={
            **memories.timings,
            **{stage: ms + memories.timings.get(stage, 0) for stage, ms in watch.timings.items()},
        },
    )


def _named_ranks(resolved: ResolvedQuery, hits: Mapping[Key, LegHit]) -> dict[Key, tuple[bool, int]]:
    """The terms that the text names with their ranks: those of this name before those with this alias, the terms of
    more memories first.
    """
    ranks: dict[Key, tuple[bool, int]] = {}
    for kind in TERM_KINDS:
        for pk, term in value_terms(FACET[kind.value], named_ids(resolved.plan, kind), resolved).items():
            is_alias = fold_name(term.label.rpartition(" / ")[2]) != fold_name(resolved.plain_text)
            ranks[kind, int(pk)] = (is_alias, -hits[kind, int(pk)].memories if (kind, int(pk)) in hits else 0)
    return ranks


def best_known(result: SearchResult, viewer: Viewer) -> UnifiedHit | None:
    """The fact, entity, concept or category that fits the text of a search for memories best, on its first page.

    A fact answers the text as a question, or has all of its words; a term has all of them, and these are two at least.
    To a question that no fact has the words of, one may be close in meaning.
    """
    query, resolved = result.query, result.resolved
    words = query.text.split()
    # Some scripts write many words without spaces.
    is_short = not words or (len(words) == 1 and words[0].isascii() and "_" not in words[0])
    if resolved is None or resolved.plan.is_refused:
        return None
    if query.mode not in {Mode.HYBRID, Mode.FACETED} or is_short or query.begin:
        return None
    # Without a snapshot: most texts find nothing, and what is found is read again.
    found = every_word(resolved)
    asks = is_question(query.text) and resolved.plan.meaning is not None
    if not found and not asks:
        return None
    return with_engine(lambda engine: _best_known(engine, resolved, found, viewer), viewer)


def _best_known(
    engine: Engine, resolved: ResolvedQuery, found: Mapping[str, Mapping[int, bool]], viewer: Viewer
) -> UnifiedHit | None:
    with snapshot():
        for kind, way, hit in _known_hits(engine, resolved, found):
            candidate, key = Candidate(kind, hit.id, 1.0, {way: 1}), (kind, hit.id)
            context = PageContext(engine, resolved, viewer, {key: hit}, [candidate], {key: Origin()})
            return next(iter(read_page([FoldedGroup(candidate)], context, {})), None)
    return None


def _known_hits(
    engine: Engine, resolved: ResolvedQuery, found: Mapping[str, Mapping[int, bool]]
) -> Iterator[tuple[ResultKind, Way, LegHit]]:
    """The facts and terms that fit the text, best first. Facts come first: a question is about one."""
    for kind in (ResultKind.RELATIONSHIP, *TERM_KINDS):
        has_all = found.get(kind, {})
        scores = {pk: -float(place) for place, pk in enumerate(has_all)}
        for hit in rows_found(TABLES[kind], engine, resolved, scores) if scores else ():
            fit = hit.fit
            if fit.is_whole or fit.names_both or (has_all[hit.id] and not fit.is_contrary):
                yield kind, Way.WORDS, hit
    if is_question(resolved.plain_text):
        nearest = rows_by_meaning(RELATIONSHIPS, engine, resolved, settings.UNIFIED_LEG_LIMIT)
        for hit in nearest:
            if hit.score >= _KNOWN_SIMILARITY and not hit.fit.is_contrary:
                yield ResultKind.RELATIONSHIP, Way.MEANING, hit


def _count_hidden(engine: Engine, query: SearchQuery, resolved: ResolvedQuery, answers: Iterable[LegAnswer]) -> int:
    """The facts and terms that have the words, and whose memories are all archived or superseded."""
    if query.selection("state").restricts or query.as_of:
        return 0
    states = Filter("state", include=tuple((state,) for state in HIDDEN_STATES))
    other = replace(resolved, plan=resolved.plan.with_filter(states))
    shown = set(_hits_by_key(answers))
    found = {
        (kind, hit.id)
        for kind, table in TABLES.items()
        for hit in rows_by_words(table, engine, other, settings.UNIFIED_LEG_LIMIT)
    }
    return len(found - shown)


def _hits_by_key(answers: Iterable[LegAnswer]) -> dict[Key, LegHit]:
    return {(answer.kind, hit.id): hit for answer in answers for hit in answer.found}


def _origins(candidates: Sequence[Candidate], answers: Sequence[LegAnswer]) -> dict[Key, Origin]:
    """For each term and relationship, the found memories that carry it or are evidence for it, best first."""
    hit = _hits_by_key(answers)
    memories = [one.id for one in candidates if one.kind == ResultKind.MEMORY]
    place = {pk: n for n, pk in enumerate(memories)}
    origins: dict[Key, Origin] = {}
    for kind in TERM_KINDS:
        carrying: dict[int, list[int]] = {one.id: [] for one in candidates if one.kind == kind}
        for memory_id, term_ids in sorted(_carrying(kind, memories, carrying), key=lambda row: place[row[0]]):
            for pk in set(term_ids) & carrying.keys():
                carrying[pk].append(memory_id)
        origins |= {(kind, pk): Origin(tuple(own), hit[kind, pk].memories) for pk, own in carrying.items()}
    for one in candidates:
        if one.kind == ResultKind.RELATIONSHIP:
            evidence = hit[one.key].evidence
            own = sorted((pk for pk in evidence if pk in place), key=lambda pk: place[pk])
            origins[one.key] = Origin(tuple(own), len(evidence))
    return origins


def _carrying(kind: ResultKind, memories: Collection[int], ids: Collection[int]) -> list[tuple[int, list[int]]]:
    """The memories that carry some terms of a kind, with all of their terms."""
    if not memories or not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_CARRYING.format(column=_COLUMNS[kind]), [list(memories), list(ids)])
        return list(cursor.fetchall())


def _below_successors(candidates: Sequence[Candidate], plan: EngineQuery) -> list[Candidate]:
    """The candidates, with superseded memories below those that superseded them."""
    successors = successors_of(plan, [one.id for one in candidates if one.kind == ResultKind.MEMORY])
    by_key = {one.key: one for one in candidates}
    keys = {(ResultKind.MEMORY, pk): (ResultKind.MEMORY, after) for pk, after in successors.items()}
    return [by_key[key] for key in below_successors(list(by_key), keys)]


def _fits(answers: Iterable[LegAnswer]) -> dict[Key, Fit]:
    """How well each relationship answers the text."""
    hits = _hits_by_key(answers).items()
    return {key: hit.fit for key, hit in hits if key[0] == ResultKind.RELATIONSHIP}


def _answering_first(candidates: Sequence[Candidate], fit: Mapping[Key, Fit]) -> list[Candidate]:
    """The candidates, with the relationships among them in the order in which they answer the text."""
    facts = iter(sorted((one for one in candidates if one.key in fit), key=lambda one: -fit[one.key].score))
    return [next(facts) if one.key in fit else one for one in candidates]


def _boosts(candidates: Sequence[Candidate], origins: dict[Key, Origin], now: datetime) -> dict[Key, Boosts]:
    """Boosts of all candidates. Rows of the vocabulary are as recent as their newest found memory."""
    of_memories = boosts_of([one.id for one in candidates if one.kind == ResultKind.MEMORY], now)
    boosts: dict[Key, Boosts] = {(ResultKind.MEMORY, pk): own for pk, own in of_memories.items()}
    confidence = _confidence([one.id for one in candidates if one.kind == ResultKind.RELATIONSHIP], now)
    for key, origin in origins.items():
        recency = max((of_memories[pk].recency for pk in origin.memories if pk in of_memories), default=0.0)
        support = origin.count / (origin.count + 1)
        quality = (confidence[key[1]] + support) / 2 if key[0] == ResultKind.RELATIONSHIP else support
        boosts[key] = Boosts(quality, recency)
    return boosts


def _confidence(ids: Collection[int], now: datetime) -> dict[int, float]:
    """The confidence of each relationship; 0.5 if unknown, less if it is no longer valid."""
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, confidence, valid_to FROM categories_relationship WHERE id = ANY(%s)", [list(ids)])
        rows = cursor.fetchall()
    found = {
        pk: (0.5 if confidence is None else confidence) * (_PAST if until and until < now else 1.0)
        for pk, confidence, until in rows
    }
    return {pk: found.get(pk, 0.0) for pk in ids}


def _terms(window: Sequence[Candidate], plan: EngineQuery) -> dict[Key, Terms]:
    """The terms of the best candidates."""
    terms: dict[Key, Terms] = {}
    for kind in ResultKind:
        ids = [one.id for one in window if one.kind == kind]
        if not ids:
            continue
        is_memory = kind == ResultKind.MEMORY
        statement = _MEMORY_TERMS if is_memory else _TERMS.format(rows=rows_read(TABLES[kind], plan))
        with connection.cursor() as cursor:
            cursor.execute(statement, {"ids": ids, "projects": as_array(as_projects(plan.project_ids))})
            rows = cursor.fetchall()
        terms |= {(kind, pk): Terms(_split(words), _split(own)) for pk, words, own in rows}
    return terms


def _split(packed: str | None) -> frozenset[str]:
    return frozenset(packed.split("\x01")) if packed else frozenset()


def _ranked_memories(page: Sequence[FoldedGroup], answers: Iterable[LegAnswer]) -> list[tuple[FoldedGroup, Ranked]]:
    """The memories of a page, with their ranks by leg and similarities."""
    similarities = {
        hit.id: hit.score
        for answer in answers
        if answer.kind == ResultKind.MEMORY and answer.way == Way.MEANING
        for hit in answer.found
    }
    found = []
    for group in page:
        lead = group.lead
        if lead.kind == ResultKind.MEMORY:
            ranked = Ranked(
                lead.id,
                lead.score,
                keyword_rank=lead.places.get(Way.WORDS),
                semantic_rank=lead.places.get(Way.MEANING),
                similarity=similarities.get(lead.id),
                relevance=lead.relevance,
                boosts=lead.boosts,
                score_parts=lead.score_parts,
            )
            found.append((group, ranked))
    return found


def _totals(memories: SearchResult, answers: Sequence[LegAnswer]) -> dict[ResultKind, KindTotal]:
    """Totals by kind: memories of the match set, and hits of the legs for the others."""
    totals = {ResultKind.MEMORY: KindTotal(memories.total, memories.at_least)}
    for kind in TABLES:
        own = [answer for answer in answers if answer.kind == kind]
        count = len({hit.id for answer in own for hit in answer.found})
        totals[kind] = KindTotal(count, any(answer.is_full or answer.state != LegState.OK for answer in own))
    return totals


def _left_out(answers: Iterable[LegAnswer], without_meaning: str) -> list[SearchWarning]:
    """A warning for each reason why legs were left out, but the one that the memories have already."""
    by_reason: dict[str, list[str]] = {}
    for answer in answers:
        if answer.state in {LegState.LATE, LegState.FAILED} and answer.reason != without_meaning:
            by_reason.setdefault(answer.reason, []).append(f"{answer.kind.plural} by {answer.way}")
    return [
        SearchWarning(f"Not included: {', '.join(names)} ({reason}).", "mode") for reason, names in by_reason.items()
    ]


def _coverage_warnings(answers: Iterable[LegAnswer]) -> list[SearchWarning]:
    """A warning if rows of the vocabulary have no vector; the warning about memories is that of their own search."""
    parts = [
        f"{answer.share.text if answer.share else 'a part'} of the {answer.kind.plural}"
        for answer in answers
        if answer.state in {LegState.PARTLY, LegState.NO_VECTORS} and answer.kind != ResultKind.MEMORY
    ]
    if not parts:
        return []
    return [SearchWarning(f"Search by meaning covers {listed(parts)} so far; more may appear.", "mode")]

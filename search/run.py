"""run(query, viewer) -> SearchResult: the only entry to search. Pages, API and tools render its result.

The number of statements does not depend on the numbers of hits, values and facets.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.conf import settings

from access.viewer import Viewer
from search.baseline_counts import corpus_counts
from search.did_you_mean import count_alternatives, match_warnings
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineQuery, EngineTimeoutError, FacetValues, Place, Spans
from search.engines.index.outbox import backlog
from search.facet_counts import Counted, count_facets, named_label, value_terms
from search.facets import FACET, FACETS, Facet
from search.histogram import Histogram, bar_edges
from search.hits import load_hits
from search.plan import ResolvedQuery, resolve_query
from search.query import SearchQuery, Sort
from search.ranking import Ranked, ranked_page
from search.result import (
    COUNTS,
    NONE_CONTAINS,
    HistogramSplit,
    HitDetail,
    NamedTerm,
    SearchResult,
    SearchWarning,
    older_warnings,
)
from text.analysis import fold
from text.formatting import listed
from text.query_syntax import TextQuery
from web.timing import Stopwatch

# Seconds. Changes normally reach the index within a second; a longer delay gets a notice.
_PATIENCE = 3.0
_COUNTED_BEHIND = 10_000
_TERMS_NAMED = 3
# A text of one word or one phrase, which can be quoted.
_ONE_PATTERN = re.compile(r'"([^"]+)"|([^\s"]+)')


def run(
    query: SearchQuery,
    viewer: Viewer,
    *,
    include_facets: bool | None = None,
    facet_limit: int | None = None,
    detail: HitDetail = HitDetail.FULL,
    with_corpus: bool = False,
    after: Place | None = None,
    split: str = "",
    drops_early: bool = False,
    lenient: bool = False,
) -> SearchResult:
    """Answer one query for one viewer. See docs/facets.md for the match set and the counting rules.

    `include_facets` overrides that of the query. `facet_limit` is the number of values per facet, largest first,
    instead of those of the sidebar. `with_corpus` adds the counts of all visible memories. In an order by date or
    title, the hits begin `after` a place, if one is given, wherever the page of the query begins. `split` is the facet
    by whose values the bars of the histogram are counted too. `drops_early` leaves early times that hold
    hardly anything out of the histogram, which says how much they hold. `lenient` is that of `resolve_query`.
    """

    def answer(engine: Engine) -> SearchResult:
        counts_facets = query.include_facets if include_facets is None else include_facets
        result = _run(engine, query, viewer, counts_facets, facet_limit, detail, after, split, drops_early, lenient)
        if not with_corpus:
            return result
        corpus = corpus_counts(engine, viewer)
        # One warning is enough: the other counts are of the same time.
        is_known = any(warning.parameter == COUNTS for warning in result.warnings)
        older = () if is_known else older_warnings(corpus.as_of, viewer.timezone)
        return replace(result, corpus=corpus, warnings=(*result.warnings, *older))

    return with_engine(answer, viewer)


def _run(
    engine: Engine,
    query: SearchQuery,
    viewer: Viewer,
    include_facets: bool,
    facet_limit: int | None,
    detail: HitDetail,
    after: Place | None,
    split: str,
    drops_early: bool,
    lenient: bool,
) -> SearchResult:
    watch = Stopwatch(engine.waited_ms)
    counted: Counted | None = None
    parts: HistogramSplit | None = None
    with snapshot():
        with watch.stage("search"):
            resolved = resolve_query(engine, query, viewer, datetime.now(UTC), lenient=lenient)
        if include_facets:
            with watch.stage("facets"):
                counted = count_facets(engine, query, resolved, facet_limit, drops_early=drops_early)
                parts = _split(engine, resolved, counted, split) if split else None
        with watch.stage("search"):
            summary = counted.summary if counted else engine.match([resolved.plan], reuse=True)[0]
            total = summary.total
            ranked = RankedHits() if detail == HitDetail.NONE else _ranked_hits(engine, resolved, query, total, after)
            named = count_named(engine, resolved)
            matched_by = describe_match_set(engine, resolved, query.text, total, named)
            hidden, hidden_at_least, relaxations = count_alternatives(
                engine, query, resolved, total, counted.states if counted else None
            )
            warnings = (
                *resolved.warnings,
                *ranked.warnings,
                # A page after a place is never past the end.
                *match_warnings(engine, query.starting_at(0) if after else query, resolved, total, viewer),
                *older_warnings(counted.as_of if counted else None, resolved.zone),
                *engine_notices(engine, viewer),
            )
        with watch.stage("hits"):
            hits = load_hits(ranked.hits, resolved, viewer, detail, named)
    return SearchResult(
        query=query,
        total=total,
        at_least=summary.truncated,
        hits=hits,
        matched_by=matched_by,
        named=named,
        hidden=hidden,
        hidden_at_least=hidden_at_least,
        facets=counted.facets if counted else None,
        histogram=counted.histogram if counted else None,
        date_buckets=counted.date_buckets if counted else None,
        quick_ranges=counted.quick_ranges if counted else None,
        split=parts,
        warnings=warnings,
        relaxations=relaxations,
        labels=resolved.labels,
        min_similarity=resolved.plan.meaning.min_similarity if resolved.plan.meaning else None,
        last=ranked.last,
        goes_on=ranked.goes_on,
        engine=engine.name,
        timings=watch.timings,
        resolved=resolved,
    )


def _split(engine: Engine, resolved: ResolvedQuery, counted: Counted, key: str) -> HistogramSplit | None:
    facet = next(facet for facet in counted.facets if facet.key == key)
    if facet.unavailable or not counted.histogram.bars:
        return None
    try:
        return split_histogram(engine, resolved, counted.histogram, facet)
    except EngineTimeoutError:
        return None


def engine_notices(engine: Engine, viewer: Viewer) -> list[SearchWarning]:
    """Warnings about a fallback engine, or an index that is behind."""
    if engine.name != settings.SEARCH_ENGINE:
        text = "The search index is not ready yet. These results come from the database: exact, but slower."
        return [SearchWarning(text, "engine")]
    if engine.seconds_behind > _PATIENCE and (behind := backlog(_COUNTED_BEHIND)).changes:
        more = "or more " if behind.changes == _COUNTED_BEHIND else ""
        changes = f"{behind.changes:,} {more}changes are" if behind.changes > 1 else "One change is"
        if viewer.project_ids is not None:
            # The exact number would reveal activity in other projects.
            changes = "Some changes are"
        return [SearchWarning(f"{changes} not indexed yet.", "engine")]
    return []


@dataclass(frozen=True, slots=True)
class RankedHits:
    """Ranked hits of a page, and warnings about their order. `last` and `goes_on` as in a SearchResult."""

    hits: tuple[Ranked, ...] = ()
    warnings: tuple[SearchWarning, ...] = ()
    last: Place | None = None
    goes_on: bool | None = None


def _ranked_hits(
    engine: Engine, resolved: ResolvedQuery, query: SearchQuery, total: int, after: Place | None
) -> RankedHits:
    plan = resolved.plan
    offset = query.begin
    if offset >= total and not after:
        return RankedHits()
    if query.order != Sort.RELEVANCE:
        return _ordered_hits(engine, plan, query, after)
    found = ranked_page(engine, plan, resolved.plain_text, limit=query.page_size, offset=offset, now=resolved.now)
    warnings = []
    if found.rerank_failure:
        reason = f"The results are not reranked by the cross-encoder: {found.rerank_failure}."
        warnings.append(SearchWarning(reason, "rerank"))
    # Scores reveal how rare a word is among all memories, so only viewers of all projects get them.
    hits = found.hits if plan.project_ids is None else [hit.without_scores() for hit in found.hits]
    return RankedHits(tuple(hits), tuple(warnings))


def _ordered_hits(engine: Engine, plan: EngineQuery, query: SearchQuery, after: Place | None) -> RankedHits:
    """A page in an order by date or title."""
    if after is None:
        places, goes_on = engine.places(plan, query.order, limit=query.page_size, offset=query.begin), None
    else:
        places = engine.places(plan, query.order, limit=query.page_size + 1, after=after)
        places, goes_on = places[: query.page_size], len(places) > query.page_size
    ids = [place.id for place in places]
    near = engine.similarities(plan.meaning, ids) if plan.meaning else {}
    hits = tuple(Ranked(pk, similarity=near.get(pk)) for pk in ids)
    return RankedHits(hits, last=places[-1] if places else None, goes_on=goes_on)


def count_named(engine: Engine, resolved: ResolvedQuery) -> tuple[NamedTerm, ...]:
    """The terms that the text names and a match carries, those of most matches first."""
    terms = [
        (key, term, ref)
        for key, values in resolved.plan.named
        for ref, term in value_terms(FACET[key], values, resolved).items()
    ]
    counts = engine.match([replace(resolved.plan.by_name, named=((key, (ref,)),)) for key, _, ref in terms])
    found = []
    for (key, term, ref), counted in zip(terms, counts, strict=True):
        value = resolved.url_values.get((key, ref), term.value)
        selected = (key, value) in resolved.selected
        found.append(NamedTerm(key, value, named_label(key, term), counted.total, ref, selected))
    return tuple(sorted((term for term in found if term.count), key=lambda term: (-term.count, term.facet, term.value)))


def describe_match_set(
    engine: Engine, resolved: ResolvedQuery, typed: str, total: int, named: Sequence[NamedTerm] = ()
) -> str:
    """How memories matched a typed text, in words. The numbers are of different memories, and add up to the total."""
    plan = resolved.plan
    if not plan.texts:
        return ""
    words, meaning = plan.texts[0].words, plan.meaning
    if meaning is not None and meaning.semantic_only:
        return f"{total:,} close in meaning" + _ceiling(engine, plan)
    by_words, with_names = total, total
    if meaning is not None or plan.named:
        plans = [plan.by_words, *([replace(plan, meaning=None)] if meaning is not None else [])]
        by_words, *without_meaning = (found.total for found in engine.match(plans))
        with_names = without_meaning[0] if without_meaning else total
    parts = []
    if not words.is_empty:
        parts.append(_contained(words, typed, by_words, is_one_way=meaning is not None or bool(plan.named)))
    if by_name := with_names - by_words:
        carry = "carries" if by_name == 1 else "carry"
        parts.append(f"{by_name:,}{' more' * bool(by_words)} {carry} {_terms(named)}")
    if meaning is not None:
        if (near := total - with_names) or not parts:
            parts.append(f"{near:,}{' more' * bool(with_names)} close in meaning")
        elif not with_names:
            parts[-1] += " or is close in meaning"
    ignored = f"; ignored: {', '.join(words.ignored)}" if words.ignored and not words.is_empty else ""
    return ", ".join(parts or ["no word to search for"]) + ignored + _ceiling(engine, plan)


def _contained(words: TextQuery, typed: str, count: int, *, is_one_way: bool) -> str:
    """How many memories match by their words; `is_one_way` tells that others may match otherwise."""
    if not words.positive:
        # Only excluded words, which the conditions hold by their stems.
        excluded = re.findall(r'-(?:"([^"]+)"|(\S+))', typed)
        quoted = listed([f"“{phrase or word}”" for phrase, word in excluded], "or")
        return f"{count:,} {'does' if count == 1 else 'do'} not contain {quoted}"
    one = _ONE_PATTERN.fullmatch(typed.strip()) if len(words.positive) == 1 else None
    contained = f"“{one[1] or one[2]}”" if one else words.describe()
    if count == 0 and is_one_way:
        return f"{NONE_CONTAINS} {contained}"
    return f"{count:,} {'contains' if count == 1 else 'contain'} {contained}"


def _terms(named: Sequence[NamedTerm]) -> str:
    """The terms that a text names, in words: all of a few, else the first ones."""
    texts = [term.text for term in named]
    if len(texts) > _TERMS_NAMED:
        texts = [*texts[: _TERMS_NAMED - 1], f"{len(texts) - _TERMS_NAMED + 1} others of that name"]
    return listed(texts, "or")


def _ceiling(engine: Engine, plan: EngineQuery) -> str:
    if plan.meaning is None or not engine.knn(plan).truncated:
        return ""
    return f"; only the nearest {plan.meaning.limit:,} are considered, so there may be more"


# Facets with at most one value per memory: only their parts add up to the bar.
SPLIT_KEYS = tuple(spec.key for spec in FACETS if spec.exclusive)
_MOST = 5


def split_histogram(engine: Engine, resolved: ResolvedQuery, histogram: Histogram, facet: Facet) -> HistogramSplit:
    """Count the bars by the largest values of a facet in the results. Raises EngineTimeoutError."""
    chosen = FACET[facet.key]
    candidates = [value for value in facet.values if value.ref is not None and not value.excluded]
    edges = bar_edges(histogram.bars, resolved.zone)
    refs = tuple(value.ref for value in candidates if value.ref is not None)
    table = engine.cross(resolved.plan, FacetValues(chosen.key, refs), Spans(edges)).tolist()
    counted = [(value, tuple(row)) for value, row in zip(candidates, table, strict=True) if any(row)]
    counted.sort(key=lambda one: (-sum(one[1]), fold(one[0].label)))
    shown = counted[:_MOST]
    rest = (bar.count - sum(row[n] for _, row in shown) for n, bar in enumerate(histogram.bars))
    return HistogramSplit(
        facet.key, tuple(value for value, _ in shown), tuple(row for _, row in shown), tuple(max(0, n) for n in rest)
    )

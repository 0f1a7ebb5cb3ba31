"""Alternatives to a query: counts without its filters or the default states, similar words, filters by name."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from math import comb
from typing import Any

from access.viewer import Viewer
from memories.queries import visible_to
from search.engines.base import Engine, EngineQuery, EngineTimeoutError, Filter, LanguageText, Value, VectorQuery
from search.facet_counts import value_terms
from search.facets import DATE_KEY, DEFAULT_STATES, FACET, HIDDEN_STATES, STATES_THEN, FacetKind
from search.plan import ResolvedQuery, build_vector_query, explain_unknown, named_candidates
from search.query import SearchQuery, Selection, Sort
from search.result import FilterRelaxation, SearchWarning, page_warnings
from text.analysis import Pattern, analyse_token, fold, phrase_pattern, tokens
from text.formatting import listed, memories
from text.query_syntax import TextQuery

# Sets of filters that are counted at once, and that are offered.
_MAX_SETS = 60
_MAX_RELAXATIONS = 3
_MIN_LETTERS = 4
_MAX_WORDS = 5
_SUGGESTIONS = 2
_MIN_MIN_LIKENESS = 0.72
_SCOPE = 20_000
_MEMORIES_READ = 5
# A longer text is a sentence, not a name.
_MAX_NAME_WORDS = 6
_MAX_NAME_WARNINGS = 3


def count_alternatives(
    engine: Engine,
    query: SearchQuery,
    resolved: ResolvedQuery,
    total: int,
    states: Mapping[Value, int] | None = None,
) -> tuple[int, bool, tuple[FilterRelaxation, ...]]:
    """(memories hidden by the default states, whether that is a lower bound, relaxations if nothing matched).

    `states` are the matches in each state, if these were counted.
    """
    plan = resolved.plan
    asks_state = query.selection("state").restricts or bool(query.as_of)
    hidden_states = replace(plan.filter("state") or Filter("state"), include=tuple((one,) for one in HIDDEN_STATES))
    plans = [] if asks_state or states is not None else [plan.with_filter(hidden_states)]
    removals = list(_removals(query, resolved)) if total == 0 and not plan.is_refused else []
    sizes = engine.match([*plans, *(one.of_plan(plan) for one in removals)])
    hidden = sizes.pop(0).total if plans else 0
    if states is not None and not asks_state:
        hidden = sum(states.get(state, 0) for state in HIDDEN_STATES)
    counts = [found.total for found in sizes]
    relaxations = tuple(
        _relaxation(engine, query, plan, [one], count) for one, count in zip(removals, counts, strict=True)
    )
    if removals and not any(counts):
        relaxations = tuple(_smallest_set(engine, query, plan, removals)) or relaxations
    return hidden, bool(hidden and plans) and engine.knn(plans[0]).truncated, relaxations


@dataclass(frozen=True, slots=True)
class _Removal:
    """A filter that a query may go without. Removals of one query can be made one after the other."""

    key: str
    value: str
    label: str
    of_query: Callable[[SearchQuery], SearchQuery]
    of_plan: Callable[[EngineQuery], EngineQuery]


def _relaxation(
    engine: Engine, query: SearchQuery, plan: EngineQuery, removals: Sequence[_Removal], count: int
) -> FilterRelaxation:
    for one in removals:
        query, plan = one.of_query(query), one.of_plan(plan)
    first, *others = removals
    label = listed([one.label for one in removals])
    also = tuple((one.key, one.value) for one in others)
    return FilterRelaxation(first.key, first.value, label, count, query, engine.knn(plan).truncated, also)


def _smallest_set(
    engine: Engine, query: SearchQuery, plan: EngineQuery, removals: Sequence[_Removal]
) -> Iterator[FilterRelaxation]:
    """The smallest sets of filters without which something is found; of very many filters all, if any are enough."""

    def without(chosen: Iterable[_Removal]) -> EngineQuery:
        return reduce(lambda changed, one: one.of_plan(changed), chosen, plan)

    for size in range(2, len(removals) + 1):
        is_last = size == len(removals) or comb(len(removals), size) > _MAX_SETS
        sets = [tuple(removals)] if is_last else list(combinations(removals, size))
        found = zip(sets, engine.match([without(chosen) for chosen in sets]), strict=True)
        best = sorted(((chosen, size.total) for chosen, size in found if size.total), key=lambda pair: -pair[1])
        yield from (_relaxation(engine, query, plan, chosen, count) for chosen, count in best[:_MAX_RELAXATIONS])
        if best or is_last:
            return


def _removals(query: SearchQuery, resolved: ResolvedQuery) -> Iterator[_Removal]:
    if query.text:
        label = f"the words “{query.text}”"
        yield _Removal("q", query.text, label, lambda q: q.with_(text=""), lambda p: p.without_text)
    if query.has_dates:
        undated = partial(replace, start=None, end=None)
        yield _Removal(DATE_KEY, "", "the dates", lambda q: q.without(DATE_KEY), undated)
    for key, name, column, label in _BOUNDS:
        if value := getattr(query, name):
            yield _Removal(key, value, label, partial(_clear_field, name=name), partial(replace, **{column: None}))
    if query.as_of:
        now = partial(_as_of_now, asks_state=query.selection("state").restricts)
        yield _Removal("as_of", query.as_of, "the date of validity", partial(_clear_field, name="as_of"), now)
    if query.min_similarity is not None and resolved.plan.meaning is not None:
        meaning = build_vector_query(query.with_(min_similarity=None), resolved.plain_text)[0]
        value, label = f"{query.min_similarity:g}", "the least similarity"
        yield _Removal("min_similarity", value, label, _with_usual_similarity, partial(_with_meaning, meaning=meaning))
    for key, chosen in query.selections().items():
        yield from _removals_of(key, chosen, resolved)


# (key, field of the query, column of the plan, label) of what is not a facet.
_BOUNDS = (
    ("updated_since", "updated_since", "updated_from", "the date of change"),
    ("recalled_since", "recalled_since", "recalled_from", "the date of recall"),
    ("-recalled_since", "not_recalled_since", "not_recalled_from", "the date without a recall"),
    ("area", "area", "area", "the area of the map"),
)


def _removals_of(key: str, chosen: Selection, resolved: ResolvedQuery) -> Iterator[_Removal]:
    """Each value that is chosen in a facet."""
    filter_ = resolved.plan.filter(key) or Filter(key)
    name = FACET[key].label.lower()

    def value_label(value: str) -> str:
        return f"{name} {resolved.labels.get((key, value), value)}"

    def less(**changes: Any) -> Callable[[EngineQuery], EngineQuery]:
        return lambda plan: _narrowed(plan, _less(plan.filter(key) or Filter(key), **changes))

    for value, group in zip(chosen.include, filter_.include, strict=False):
        toggled = partial(SearchQuery.toggle, key=key, value=value)
        yield _Removal(key, value, value_label(value), toggled, less(include=group))
    excluded = [value for value in chosen.exclude if (key, value) not in resolved.unknown]
    for value, group in zip(excluded, filter_.exclude, strict=False):
        toggled = partial(SearchQuery.toggle_exclusion, key=key, value=value)
        yield _Removal(key, value, f"not {value_label(value)}", toggled, less(exclude=group))
    for parameter, is_chosen in (("no", chosen.no_value), ("has", chosen.any_value)):
        if is_chosen:
            toggled = partial(SearchQuery.toggle_presence, parameter=parameter, key=key)
            presence = less(**{"no_value" if parameter == "no" else "any_value": False})
            yield _Removal(key, "", f"{parameter} {name}", toggled, presence)


def _less(filter_: Filter, **changes: Any) -> Filter:
    """A filter without one group of its values, or without a condition on presence."""
    for name in {"include", "exclude"} & changes.keys():
        groups = list(getattr(filter_, name))
        groups.remove(changes[name])
        changes[name] = tuple(groups)
    return replace(filter_, **changes)


def _with_usual_similarity(query: SearchQuery) -> SearchQuery:
    return query.with_(min_similarity=None)


def _with_meaning(plan: EngineQuery, meaning: VectorQuery | None) -> EngineQuery:
    """The plan with another meaning, if it still has a text."""
    return plan if plan.meaning is None else replace(plan, meaning=meaning)


def _clear_field(query: SearchQuery, name: str) -> SearchQuery:
    return query.with_(**{name: ""})


def _as_of_now(plan: EngineQuery, asks_state: bool) -> EngineQuery:
    changed = replace(plan, as_of=None)
    return changed if asks_state else changed.with_filter(_of_default_states(changed))


def _narrowed(plan: EngineQuery, changed: Filter) -> EngineQuery:
    """The plan with one filter changed; without a selected state the default states apply."""
    if changed.key == "state" and not (changed.includes or changed.exclude or changed.any_value):
        changed = replace(changed, include=_of_default_states(plan).include)
    return plan.with_filter(changed)


def _of_default_states(plan: EngineQuery) -> Filter:
    states = DEFAULT_STATES if plan.as_of is None else STATES_THEN
    return Filter("state", include=tuple((state,) for state in states))


def match_warnings(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, total: int, viewer: Viewer
) -> list[SearchWarning]:
    """Warnings about unknown names and words, and about a page past the end."""
    suspects = [*resolved.unknown, *_unknown_values(engine, query, resolved, total)]
    warnings = explain_unknown(resolved, engine, suspects)
    # Meaning finds something for nearly every text, also for one whose words are misspelled.
    if query.text and has_no_words(engine, resolved, total):
        named = name_warnings(engine, query, resolved)
        by_name = total and resolved.plan.named
        warnings += named if named or by_name else spelling_warnings(engine, query, resolved, viewer)
    return [*warnings, *page_warnings(query, total)]


def _unknown_values(engine: Engine, query: SearchQuery, resolved: ResolvedQuery, total: int) -> list[tuple[str, str]]:
    """The chosen plain values that no visible memory has. A value that alone gives results is known without a check."""
    plain: list[tuple[str, str, Filter]] = []
    for key, chosen in query.selections().items():
        filter_ = resolved.plan.filter(key)
        if filter_ and FACET[key].kind in {FacetKind.SCALAR, FacetKind.TEXTS} and key != "state":
            included = () if total and _is_single(chosen) else zip(chosen.include, filter_.include, strict=True)
            for name, values in (*included, *zip(chosen.exclude, filter_.exclude, strict=True)):
                plain.append((key, name, Filter(key, include=(values,))))
    visible = EngineQuery(project_ids=resolved.plan.project_ids)
    known = engine.any_match([visible.with_filter(alone) for _, _, alone in plain])
    return [(key, name) for (key, name, _), is_known in zip(plain, known, strict=True) if not is_known]


def _is_single(chosen: Selection) -> bool:
    return chosen.require_all or len(chosen.include) + chosen.no_value == 1


# --- similar words -----------------------------------------------------------------------------------------------


def spelling_warnings(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, viewer: Viewer
) -> list[SearchWarning]:
    """A warning about words that no visible memory has, ignoring the filters, with corrected queries."""
    try:
        unknown = list(_unknown(engine, query, resolved, viewer))
    except EngineTimeoutError:
        return []
    if not unknown:
        return []
    named = " or ".join(f"“{query.text[start:end]}”" for start, end, _ in unknown)
    candidates = [_corrected(query.text, unknown, choice) for choice in range(_SUGGESTIONS)]
    texts = tuple(text for text in dict.fromkeys(candidates) if text != query.text)
    return [SearchWarning(f"No memory contains the word {named}.", "q", texts)]


def _corrected(text: str, unknown: Sequence[tuple[int, int, Sequence[str]]], choice: int) -> str:
    """The text with unknown words replaced by their best suggestion; the first one by its `choice`-th suggestion."""
    for place, (start, end, spelled) in reversed(list(enumerate(unknown))):
        if spelled:
            text = text[:start] + spelled[min(choice if place == 0 else 0, len(spelled) - 1)] + text[end:]
    return text


def _unknown(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, viewer: Viewer
) -> Iterator[tuple[int, int, Sequence[str]]]:
    """(start, end, suggestions best first) of each word that no visible memory has."""
    if not resolved.plan.texts:
        return
    visible = EngineQuery(project_ids=resolved.plan.project_ids)
    language = resolved.plan.texts[0].language
    looked_for = {pattern for text in resolved.plan.texts for pattern in text.words.positive}
    for start, end in _word_places(query.text, language):
        typed = query.text[start:end]
        texts = tuple(_having(typed, text) for text in resolved.plan.texts)
        if looked_for.isdisjoint(pattern for text in texts for pattern in text.words.required):
            continue
        if engine.any_match([replace(visible, texts=texts)])[0]:
            continue
        term = _pattern(typed, language).terms[0]
        close = difflib.get_close_matches(term, engine.similar_terms(visible, term), _SUGGESTIONS, _MIN_MIN_LIKENESS)
        spelled = [_spelling(engine, visible, other, language, viewer) for other in close]
        yield start, end, list(dict.fromkeys(word for word in spelled if word))


def _word_places(text: str, language: str) -> list[tuple[int, int]]:
    """(start, end) of the words of a query that may be misspelled."""
    places = [(token.start, token.end) for token in tokens(text, language)]
    plain = [(start, end) for start, end in places if len(_pattern(text[start:end], language).terms) == 1]
    return [(start, end) for start, end in plain if end - start >= _MIN_LETTERS][:_MAX_WORDS]


def _pattern(word: str, language: str) -> Pattern:
    return phrase_pattern([analyse_token(word, language)])


def _having(word: str, text: LanguageText) -> LanguageText:
    """The search for one word in the projects of a language."""
    return replace(text, words=TextQuery(required=(_pattern(word, text.language),)))


def _spelling(engine: Engine, visible: EngineQuery, term: str, language: str, viewer: Viewer) -> str:
    """The spelling of a term in the newest of the memories that contain it; empty if there is none."""
    having = LanguageText(language, None, TextQuery(required=(Pattern((term,)),)))
    found = engine.hits(replace(visible, texts=(having,)), Sort.NEWEST, limit=_MEMORIES_READ, offset=0)
    within = False
    read = visible_to(viewer).only("title", "content").in_bulk([memory_id for memory_id, _ in found])
    for memory in (read[memory_id] for memory_id, _ in found if memory_id in read):
        for text in (memory.title, memory.content[:_SCOPE]):
            for token in tokens(text, language):
                if any(term == other for other, _ in token.terms):
                    if len(token.terms) == 1:
                        return fold(text[token.start : token.end])
                    within = True
    # Only found inside of longer names, so the term itself is the best spelling.
    return term if within else ""


# --- names -------------------------------------------------------------------------------------------------------


def name_warnings(engine: Engine, query: SearchQuery, resolved: ResolvedQuery) -> list[SearchWarning]:
    """Suggest filters whose value has the query text as its name.

    Only values with visible memories under the other filters are suggested.
    """
    name_text = query.text.strip().strip('"').strip()
    if not name_text or len(name_text.split()) > _MAX_NAME_WORDS:
        return []
    without_text = resolved.plan.without_text
    candidates = [one for one in _named(name_text, resolved) if not query.selection(one[0]).restricts]
    counts = engine.match([without_text.with_filter(Filter(key, include=(values,))) for key, _, values in candidates])
    found = sorted((n.total, key, name) for (key, name, _), n in zip(candidates, counts, strict=True) if n.total)
    return [
        SearchWarning(
            f"No memory contains “{name_text}”, but {memories(count)} {'has' if count == 1 else 'have'} the "
            f"{FACET[key].label.lower()} with that name.",
            key,
            (name,),
        )
        for count, key, name in reversed(found[-_MAX_NAME_WARNINGS:])
    ]


def has_no_words(engine: Engine, resolved: ResolvedQuery, total: int) -> bool:
    """Whether no memory of the match set contains the words. `total` counts all matches."""
    plan = resolved.plan
    if not plan.texts or plan.texts[0].words.is_empty:
        return False
    if plan.meaning is not None or plan.named:
        return not engine.any_match([plan.by_words])[0]
    return total == 0


def _named(name_text: str, resolved: ResolvedQuery) -> Iterator[tuple[str, str, tuple[Value, ...]]]:
    """(facet key, value in a query, values for the engine) of everything with this name."""
    for project in resolved.projects.values():
        if name_text.lower() in (project.slug, project.name.lower()):
            yield "project", project.slug, (project.id,)
    if not resolved.plan.named:
        # In the other modes, and for a name in quotes; else the memories that carry it are among the matches.
        for key, terms in named_candidates(resolved.names, name_text, resolved.plan.project_ids).items():
            if key != "tag":
                for term in value_terms(FACET[key], terms, resolved).values():
                    yield key, term.value, (term.id,)
    # People often write names in lower case.
    for name in dict.fromkeys((name_text, name_text.title())):
        yield "author", name, (name,)
        yield "agent", name, (name,)

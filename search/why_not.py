"""Explains why a memory is or is not among the results: every condition of a query, and whether the memory meets it.

The engine checks filters and dates one by one, words are checked against the memory's terms, and the verdict is the
engine's for the whole query.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

from django.db import connection
from django.db.models import QuerySet
from pydantic import Field

from access.viewer import Viewer
from memories.models import Memory, Recall
from memories.queries import visible_to
from memories.records import MemoryId
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineQuery, Filter, LanguageText, VectorQuery
from search.facet_counts import named_label, value_terms
from search.facets import FACET, FacetKind
from search.plan import ResolvedQuery, resolve_query
from search.query import ExtraParams, SearchQuery, Sort, dates_label, recalled_label
from search.ranking import ranked_page
from search.result import term_text
from text.analysis import Pattern
from text.formatting import date_text, listed, moment_label, start_label, with_article
from text.query_syntax import Alternative, Index, TextQuery, pattern_occurs, plain_text_of, spellings
from web.params import Required

# The lowest rank that is determined.
MAX_PLACES = 10_000

_TERMS = "SELECT lexeme, positions, weights FROM memories_memory, unnest(terms) WHERE id = %s"


class WhyNotRequest(ExtraParams):
    """The memory that is looked for among the results of a query."""

    id: Annotated[MemoryId, Required("write the number of one memory, such as id=123")] = Field(
        0, description="The number of the memory."
    )


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a query, and what the memory has. Both are in words.

    Of the checks with `either`, passing one is enough: a memory may match by words, by name or by meaning.
    """

    name: str
    label: str
    asked: str
    has: str
    passed: bool
    either: bool = False


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Whether a memory matches a query, and why. `place` and `page` are None without a match, and beyond MAX_PLACES."""

    query: SearchQuery
    id: int
    title: str
    matches: bool
    checks: tuple[Check, ...]
    total: int = 0
    at_least: bool = False
    place: int | None = None
    notes: tuple[str, ...] = ()
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def page(self) -> int | None:
        return None if self.place is None else (self.place - 1) // self.query.page_size + 1

    @property
    def missing(self) -> tuple[Check, ...]:
        """The checks that exclude the memory."""
        either = [check for check in self.checks if check.either]
        none_of_them = not any(check.passed for check in either)
        return tuple(c for c in self.checks if not c.passed and (not c.either or none_of_them))

    @property
    def verdict(self) -> str:
        """The conclusion in a sentence."""
        if self.matches and self.place is None:
            return f"It matches, after the first {MAX_PLACES:,} results."
        if self.matches:
            more = " or more" if self.at_least else ""
            return f"It matches: result {self.place:,} of {self.total:,}{more}, on page {self.page:,}."
        if not self.missing:
            return "It does not match: it has just changed, or is about to. Try again."
        return f"It does not match these conditions: {listed([check.label.lower() for check in self.missing])}."


def why_not(query: SearchQuery, memory_id: int, viewer: Viewer) -> WhyNot | None:
    """Check a memory against a query; None if the memory is not visible."""
    return with_engine(lambda engine: _why_not(engine, query, memory_id, viewer), viewer)


def _why_not(engine: Engine, query: SearchQuery, memory_id: int, viewer: Viewer) -> WhyNot | None:
    now = datetime.now(UTC)
    with snapshot():
        memory = _memories(viewer).filter(pk=memory_id).first()
        if memory is None:
            return None
        resolved = resolve_query(engine, query, viewer, now, lenient=True)
        plan = resolved.plan
        title = memory.title or f"Memory {memory.pk}"
        notes = [warning.message for warning in resolved.warnings]
        everything = EngineQuery(project_ids=plan.project_ids, subcategories=plan.subcategories)
        if not engine.filter_ids(everything, [memory_id]):
            late = Check("index", "Search index", "indexed", "not indexed yet (just added)", False)
            return WhyNot(query, memory_id, title, False, (late,), notes=tuple(notes), labels=resolved.labels)
        checks = list(_filter_checks(engine, query, resolved, everything, memory))
        checks += _date_checks(engine, query, resolved, everything, memory)
        checks += _text_checks(query, resolved, memory)
        if plan.named:
            checks.append(_name_check(engine, resolved, everything, memory))
        if plan.meaning is not None:
            apart = all(check.passed for check in checks if not check.either)
            by_words = not plan.meaning.semantic_only
            checks.append(_meaning_check(engine, plan, plan.meaning, memory_id, passes=apart, either=by_words))
        matches = bool(engine.filter_ids(plan, [memory_id]))
        summary = engine.match([plan])[0]
        place = _place(engine, plan, query, summary.total, memory_id, now) if matches else None
    return WhyNot(
        query,
        memory_id,
        title,
        matches,
        tuple(checks),
        summary.total,
        summary.truncated,
        place,
        tuple(notes),
        resolved.labels,
    )


def _memories(viewer: Viewer) -> QuerySet[Memory]:
    return visible_to(viewer).defer("terms", "raw", "content")


def _place(
    engine: Engine, plan: EngineQuery, query: SearchQuery, total: int, memory_id: int, now: datetime
) -> int | None:
    most = min(total, MAX_PLACES)
    if query.order == Sort.RELEVANCE:
        ids = [
            one.id for one in ranked_page(engine, plan, plain_text_of(query.text), limit=most, offset=0, now=now).hits
        ]
    else:
        ids = [pk for pk, _ in engine.hits(plan, query.order, limit=most, offset=0)]
    return ids.index(memory_id) + 1 if memory_id in ids else None


# --- filters and dates ---------------------------------------------------------------------------------------------


def _filter_checks(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, everything: EngineQuery, memory: Memory
) -> Iterator[Check]:
    def passes(condition: Filter) -> bool:
        return bool(engine.filter_ids(everything.with_filter(condition), [memory.pk]))

    if resolved.plan.is_refused:
        yield Check("refused", "Everything asked", "understood", "not understood", False)
    for filter_ in resolved.plan.filters:
        key, spec, chosen = filter_.key, FACET[filter_.key], query.selection(filter_.key)
        name = spec.label.lower()
        has = listed(_values(resolved, key, memory)) or "none"

        def label_of(value: str, key: str = key) -> str:
            return resolved.labels.get((key, value), value)

        if filter_.includes:
            names = [*map(label_of, chosen.include), *(["none"] if chosen.no_value else [])]
            wanted = listed(names, "and" if chosen.require_all else "or")
            if key == "state" and not chosen.restricts:
                wanted = f"{listed(query.default_states, 'or')}, the default"
            elif key == "category" and not query.subcategories:
                wanted += ", without subcategories"
            included = Filter(key, filter_.include, no_value=filter_.no_value, require_all=filter_.require_all)
            yield Check(key, spec.label, wanted, has, passes(included))
        if filter_.any_value:
            yield Check(key, f"Has {with_article(name)}", "any", has, passes(Filter(key, any_value=True)))
        if filter_.exclude:
            wanted = f"not {listed([label_of(value) for value in chosen.exclude], 'or')}"
            yield Check(key, f"Not {name}", wanted, has, passes(Filter(key, exclude=filter_.exclude)))


def _values(resolved: ResolvedQuery, key: str, memory: Memory) -> list[str]:
    """Labels of the values of a memory in a facet."""
    names = resolved.names
    match key:
        case "project":
            return [resolved.projects[memory.project_id].slug]
        case "category":
            return sorted(" / ".join(node.names) for node in names.category_nodes(memory.category_ids).values())
        case "concept":
            return sorted(term.label for term in names.concept_terms(memory.concept_ids).values())
        case "entity":
            return sorted(term.label for term in names.entity_terms(memory.entity_ids).values())
        case "import":
            return list(resolved.import_labels([memory.batch_id] if memory.batch_id else []).values())
    found = getattr(memory, FACET[key].column)
    return list(found) if FACET[key].kind == FacetKind.TEXTS else [found] if found else []


def _date_checks(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, everything: EngineQuery, memory: Memory
) -> Iterator[Check]:
    if resolved.plan.updated_from is not None:
        changed = replace(everything, updated_from=resolved.plan.updated_from)
        last = f"changed {moment_label(memory.updated_at, resolved.zone)}"
        passed = bool(engine.filter_ids(changed, [memory.pk]))
        yield Check("updated_since", "Changed", start_label(query.updated_since), last, passed)
    recalls = Recall.objects.filter(pk=memory.pk).first() if query.depends_on_recalls else None
    recalled = f"recalled {moment_label(recalls.last_at, resolved.zone)}" if recalls else "never recalled"
    if resolved.plan.recalled_from is not None:
        asked = replace(everything, recalled_from=resolved.plan.recalled_from, recalls=resolved.plan.recalls)
        passed = bool(engine.filter_ids(asked, [memory.pk]))
        yield Check("recalled_since", "Recalled", recalled_label(query.recalled_since), recalled, passed)
    if resolved.plan.not_recalled_from is not None:
        asked = replace(everything, not_recalled_from=resolved.plan.not_recalled_from, recalls=resolved.plan.recalls)
        passed = bool(engine.filter_ids(asked, [memory.pk]))
        yield Check("-recalled_since", "Not recalled", recalled_label(query.not_recalled_since), recalled, passed)
    if resolved.plan.as_of is not None:
        passed = bool(engine.filter_ids(replace(everything, as_of=resolved.plan.as_of), [memory.pk]))
        has = "valid then" if passed else "not valid then"
        yield Check("as_of", "Valid", f"on {date_text(query.as_of)}", has, passed)
    if (area := resolved.plan.area) is not None:
        passed = bool(engine.filter_ids(replace(everything, area=area), [memory.pk]))
        has = "inside" if passed else "outside, or without a place"
        yield Check("area", "Area of the map", "inside", has, passed)
    start, end = resolved.plan.start, resolved.plan.end
    if start is None and end is None:
        return
    dated = EngineQuery(project_ids=everything.project_ids, start=start, end=end)
    created = f"created {moment_label(memory.created_at, resolved.zone)}"
    yield Check("date", "Date", dates_label(query), created, bool(engine.filter_ids(dated, [memory.pk])))


# --- words and meaning ---------------------------------------------------------------------------------------------


def _text_checks(query: SearchQuery, resolved: ResolvedQuery, memory: Memory) -> Iterator[Check]:
    meaning = resolved.plan.meaning
    text = next((text for text in resolved.plan.texts if _is_for(text, memory.project_id)), None)
    if text is None:
        return
    words = text.words
    is_one_of_several = meaning is not None or bool(resolved.plan.named)
    if words.is_empty:
        if meaning is None:
            yield Check("words", "Words", "a word to search for", "the text has none", False, is_one_of_several)
        return
    index = _index(memory.pk)
    spelled = spellings(query.text, text.language)

    def name(pattern: Pattern) -> str:
        return f"“{spelled.get(pattern, ' '.join(pattern.terms)).strip(chr(34))}”"

    for pattern in words.required:
        has = pattern_occurs(pattern, index)
        yield Check("required", f"+{name(pattern)}", f"must contain {name(pattern)}", _has(has), has)
    for pattern in words.excluded:
        has = pattern_occurs(pattern, index)
        yield Check("excluded", f"-{name(pattern)}", f"must not contain {name(pattern)}", _has(has), not has)
    if len(words.groups) == 1:
        for pattern in words.groups[0].phrases:
            has = pattern_occurs(pattern, index)
            yield Check("phrase", f"The phrase {name(pattern)}", "the words next to each other", _has(has), has)
    elif meaning is not None and words.always.groups:
        has = TextQuery(groups=words.always.groups).matches(index)
        yield Check("phrase", "The phrases", "all phrases of one alternative", _has(has), has)
    if meaning is None or not meaning.semantic_only:
        yield _words_check(words, index, name, either=is_one_of_several)


def _is_for(text: LanguageText, project_id: int) -> bool:
    return text.project_ids is None or project_id in text.project_ids


def _has(has: bool) -> str:
    return "contains it" if has else "does not contain it"


def _index(memory_id: int) -> Index:
    """The indexed terms of a memory, with positions and weights."""
    with connection.cursor() as cursor:
        cursor.execute(_TERMS, [memory_id])
        return {term: list(zip(places, weights, strict=True)) for term, places, weights in cursor.fetchall()}


def _words_check(words: TextQuery, index: Index, name: Callable[[Pattern], str], *, either: bool) -> Check:
    """Whether the memory has enough of the words of any side of an `or`."""
    wanted = [_wanted_words(group, name) for group in words.groups]
    has = [_word_matches(group, index, name) for group in words.groups]
    passed = not words.groups or TextQuery(groups=words.groups).matches(index)
    if not wanted:
        return Check("words", "Words", "no other words", "nothing else required", passed, either)
    return Check("words", "Words", "; or ".join(wanted), "; or ".join(has), passed, either)


def _wanted_words(group: Alternative, name: Callable[[Pattern], str]) -> str:
    count, need = len(group.words), group.need
    listed_words = listed([name(word) for word in group.words])
    enough = listed_words if need == count else f"{need} of the {count} words {listed_words}"
    phrases = listed([f"the phrase {name(phrase)}" for phrase in group.phrases])
    return " and ".join(part for part in (enough, phrases) if part)


def _word_matches(group: Alternative, index: Index, name: Callable[[Pattern], str]) -> str:
    """The words and phrases of a group that a memory has and lacks, in words."""
    patterns = (*group.words, *group.phrases)
    held = [name(pattern) for pattern in patterns if pattern_occurs(pattern, index)]
    lacks = [name(pattern) for pattern in patterns if not pattern_occurs(pattern, index)]
    parts = [
        f"contains {listed(held)}" if held else "contains none of them",
        f"lacks {listed(lacks)}" if lacks and held else "",
    ]
    return ", ".join(part for part in parts if part)


def _name_check(engine: Engine, resolved: ResolvedQuery, everything: EngineQuery, memory: Memory) -> Check:
    """Whether the memory carries a term that the text names."""
    named = [
        term_text(key, named_label(key, term))
        for key, values in resolved.plan.named
        for term in value_terms(FACET[key], values, resolved).values()
    ]
    passed = bool(engine.filter_ids(replace(everything, named=resolved.plan.named), [memory.pk]))
    return Check(
        "name", "Name", f"carries {listed(sorted(named), 'or')}", "carries it" if passed else "does not", passed, True
    )


def _meaning_check(
    engine: Engine, plan: EngineQuery, meaning: VectorQuery, memory_id: int, *, passes: bool, either: bool
) -> Check:
    """The similarity of the memory. Its rank among the nearest only exists if it passes the other checks."""
    wanted = f"a similarity of at least {meaning.min_similarity:.2f}"
    similarity = engine.similarities(meaning, [memory_id]).get(memory_id)
    if similarity is None:
        return Check("meaning", "Meaning", wanted, "not embedded yet", False, either)
    has = f"{similarity:.2f}"
    if similarity < meaning.min_similarity:
        return Check("meaning", "Meaning", wanted, has, False, either)
    near = engine.knn(plan)
    if passes and memory_id not in near.ids:
        ceiling = f"{has}, but only the {meaning.limit:,} nearest are considered"
        if len(near.similarities):
            ceiling += f", and the last of them has {float(near.similarities[-1]):.2f}"
        return Check("meaning", "Meaning", wanted, ceiling, False, either)
    return Check("meaning", "Meaning", wanted, has, True, either)

"""Loads a page of unified search: common fields and the record of each result, with related records.

The number of statements is fixed, except for the newest memories of a few entities.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db import connection

from access.viewer import Viewer
from categories.paths import fold_name
from categories.texts import READABLE_ALIASES, READABLE_DESCRIPTION, as_array
from memories.queries import visible_to
from search.engines.base import Engine, Filter
from search.hits import load_hits
from search.plan import ResolvedQuery
from search.query import Sort
from search.ranking import Ranked
from search.result import Hit
from search.unified.legs import TERM_KINDS, Candidate, FoldedGroup, Key, Origin, ResultKind, Way
from search.unified.vocabulary import LegHit, evidence_of, filtered
from text.analysis import Pattern
from text.formatting import ordinal, plural
from text.highlight import MarkedText, matched_spans, segments, snippet

MAX_RELATED = 2
_CARRIED = {
    ResultKind.ENTITY: "mentioned in",
    ResultKind.CONCEPT: "concept of",
    ResultKind.CATEGORY: "category of",
}
# Relationships to read for the entities and memories of a page, by confidence.
_MAX_RELATIONSHIPS = 500
# Terms without a memory among the results for which to read the newest one.
_MAX_NEWEST = 5
_EVIDENCE_SHOWN = 10
_LENGTH = 260

_TERM = (
    f"SELECT id, name, {{type}}, {READABLE_ALIASES.format(row='own')}, {READABLE_DESCRIPTION.format(row='own')},"
    " {value} FROM {table} own WHERE id = ANY(%(ids)s)"
)
_TERMS = {
    ResultKind.ENTITY: _TERM.format(table="categories_entity", type="entity_type", value="entity_type || ':' || name"),
    ResultKind.CONCEPT: _TERM.format(table="categories_concept", type="concept_type", value="name"),
    ResultKind.CATEGORY: _TERM.format(table="categories_category", type="''", value="path"),
}
# Links of some memories to others, in both directions; by the primary key and memorylink_target_idx.
_LINKS = """
SELECT memory_id, target_memory_id, rel FROM memories_memorylink
WHERE target_memory_id IS NOT NULL AND (memory_id = ANY(%(ids)s) OR target_memory_id = ANY(%(ids)s))
ORDER BY memory_id, ordinal LIMIT %(most)s"""
_MAX_LINKS = 200
_RELATIONSHIPS = """
SELECT own.id, own.relationship_type, own.fact, own.confidence, own.valid_from, own.valid_to, own.evidence_ids,
       source.id, source.name, source.entity_type, target.id, target.name, target.entity_type
FROM categories_relationship own
JOIN categories_entity source ON source.id = own.source_id JOIN categories_entity target ON target.id = own.target_id
WHERE {which} ORDER BY own.confidence DESC NULLS LAST, cardinality(own.evidence_ids) DESC, own.id LIMIT %(most)s"""


@dataclass(frozen=True, slots=True)
class EntityRef:
    """An end of a relationship."""

    id: int
    name: str
    type: str

    @property
    def value(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True)
class StoredTerm:
    """A stored entity, concept or category, and the number of memories that pass the filters and carry it."""

    id: int
    name: str
    type: str
    aliases: tuple[str, ...]
    description: str
    value: str
    """The value for filters."""
    memories: int


@dataclass(frozen=True, slots=True)
class StoredRelationship:
    """A stored relationship with its visible evidence, as ids of memories."""

    id: int
    source: EntityRef
    type: str
    target: EntityRef
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    evidence: tuple[int, ...]

    @property
    def title(self) -> str:
        return f"{self.source.name} {self.type.replace('_', ' ')} {self.target.name}"

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(sorted({self.source.value, self.target.value}))


@dataclass(frozen=True, slots=True)
class Linked:
    """A record shown with a result because it is related to it or folded into it."""

    kind: ResultKind
    id: int
    title: str
    reason: str
    values: tuple[str, ...] = ()
    """The filter value of a term, or of both ends of a relationship."""

    @property
    def facet(self) -> str:
        return "entity" if self.kind == ResultKind.RELATIONSHIP else self.kind.value


@dataclass(frozen=True, slots=True)
class UnifiedHit:
    """A result of any kind: common fields, and the record of its kind."""

    kind: ResultKind
    id: int
    title: tuple[MarkedText, ...]
    content: tuple[MarkedText, ...]
    score: float
    places: Mapping[Way, int]
    source: str
    memory: Hit | None = None
    term: StoredTerm | None = None
    relationship: StoredRelationship | None = None
    evidence: tuple[Linked, ...] = ()
    related: tuple[Linked, ...] = ()
    folded: tuple[Linked, ...] = ()

    @property
    def title_text(self) -> str:
        return "".join(segment.text for segment in self.title)

    @property
    def content_text(self) -> str:
        return "".join(segment.text for segment in self.content)

    @property
    def linked(self) -> Linked:
        """The result as a linked record."""
        values = self.relationship.values if self.relationship else (self.term.value,) if self.term else ()
        return Linked(self.kind, self.id, self.title_text, "", values)

    @property
    def why(self) -> str:
        """The legs that found it, in words."""
        return " and ".join(f"{ordinal(place)} by {way}" for way, place in sorted(self.places.items(), reverse=True))


@dataclass(slots=True)
class PageContext:
    """Everything needed to load a page."""

    engine: Engine
    resolved: ResolvedQuery
    viewer: Viewer
    hits: Mapping[Key, LegHit]
    candidates: Sequence[Candidate]
    origins: Mapping[Key, Origin]
    titles: dict[int, str] = field(default_factory=dict)

    def places(self) -> dict[Key, int]:
        return {one.key: n for n, one in enumerate(self.candidates)}


def read_page(
    page: Sequence[FoldedGroup], context: PageContext, ranked: Mapping[int, Ranked]
) -> tuple[UnifiedHit, ...]:
    """The results of a page in order, without records deleted in the meantime."""
    return _Page(page, context, ranked).hits()


# The fields of a hit that depend on its kind, and candidates for its related records.
_Found = tuple[dict[str, Any], Iterable[Linked | None]]


class _Page:
    """Reads the records of a page, all of a kind at once."""

    def __init__(self, page: Sequence[FoldedGroup], context: PageContext, ranked: Mapping[int, Ranked]) -> None:
        self._groups = page
        self._context = context
        self._memories = {hit.id: hit for hit in load_hits(list(ranked.values()), context.resolved, context.viewer)}
        shown = [group.lead for group in page] + [one.candidate for group in page for one in group.folded]
        self._shown = {kind: [one.id for one in shown if one.kind == kind] for kind in ResultKind}
        self._place = context.places()

    def hits(self) -> tuple[UnifiedHit, ...]:
        hits = [self._hit(group) for group in self._groups]
        return tuple(hit for hit in hits if hit is not None)

    def _hit(self, group: FoldedGroup) -> UnifiedHit | None:
        lead = group.lead
        if lead.kind in TERM_KINDS:
            found = self._term(lead.key)
        else:
            found = self._memory(lead.id) if lead.kind == ResultKind.MEMORY else self._relationship(lead.id)
        if found is None:
            return None
        fields, related = found
        linked = (self._linked(one.candidate.kind, one.candidate.id, one.reason) for one in group.folded)
        folded = tuple(one for one in linked if one is not None)
        excluded = {lead.key, *((one.kind, one.id) for one in folded)}
        return UnifiedHit(
            kind=lead.kind,
            id=lead.id,
            score=group.score,
            places=lead.places,
            related=self._first(related, excluded),
            folded=folded,
            **fields,
        )

    def _memory(self, pk: int) -> _Found | None:
        hit = self._memories.get(pk)
        if hit is None:
            return None
        fields = {"title": hit.title, "content": hit.snippet, "source": hit.source, "memory": hit}
        return fields, self._related_to_memory(pk)

    def _term(self, key: Key) -> _Found | None:
        row = self._terms.get(key)
        if row is None:
            return None
        asked = fold_name(self._context.resolved.plain_text)
        also = [alias for alias in row.aliases if fold_name(alias) == asked != fold_name(row.name)]
        shown = also or ([] if row.description else row.aliases)
        called = f"Also called {', '.join(shown)}." if shown else ""
        description = f"{called} {row.description}".strip()
        source = f"{_CARRIED[key[0]]} {plural(row.memories, 'memory', 'memories')}"
        return self._fields(row.name, description, source, term=row), self._related_to_term(key)

    def _relationship(self, pk: int) -> _Found | None:
        row = self._relationships.get(pk)
        if row is None:
            return None
        linked = (self._linked(ResultKind.MEMORY, memory, "supports it") for memory in row.evidence[:_EVIDENCE_SHOWN])
        evidence = tuple(one for one in linked if one is not None)
        source = f"supported by {plural(len(row.evidence), 'memory', 'memories')}"
        return self._fields(row.title, row.fact, source, relationship=row, evidence=evidence), evidence

    def _fields(self, title: str, content: str, source: str, **record: Any) -> dict[str, Any]:
        return {"title": self._marked(title), "content": self._snippet(content), "source": source, **record}

    # --- related records ---------------------------------------------------------------------------------------------

    def _related_to_memory(self, memory_id: int) -> Iterable[Linked | None]:
        """Relationships that the memory is evidence for, found terms that it carries, then memories linked to it."""
        for row in self._neighbours.values():
            if memory_id in row.evidence:
                yield self._linked(ResultKind.RELATIONSHIP, row.id, "supported by it")
        carried = [
            key
            for key, origin in self._context.origins.items()
            if key[0] in TERM_KINDS and memory_id in origin.memories
        ]
        for key in sorted(carried, key=lambda key: self._place.get(key, len(self._place))):
            yield self._linked(*key, "mentioned in it, and also found")
        for source, target, rel in self._links:
            if source == memory_id:
                yield self._linked(ResultKind.MEMORY, target, f"linked from it: {rel}")
            elif target == memory_id:
                yield self._linked(ResultKind.MEMORY, source, f"links to it: {rel}")

    def _related_to_term(self, key: Key) -> Iterable[Linked | None]:
        """The best memory that carries the term, else the newest; then relationships of an entity by confidence."""
        found = self._context.origins[key].memories
        if found:
            yield self._linked(ResultKind.MEMORY, found[0], "mentions it, best match")
        elif key in self._newest:
            yield self._linked(ResultKind.MEMORY, self._newest[key], "newest memory that mentions it")
        kind, entity_id = key
        for row in self._neighbours.values() if kind == ResultKind.ENTITY else ():
            if entity_id in (row.source.id, row.target.id):
                reason = "starts at it" if entity_id == row.source.id else "leads to it"
                yield self._linked(ResultKind.RELATIONSHIP, row.id, reason)

    @staticmethod
    def _first(items: Iterable[Linked | None], excluded: set[Key]) -> tuple[Linked, ...]:
        """The first two distinct items, of different kinds if possible."""
        distinct: dict[Key, Linked] = {}
        for item in items:
            if item is not None and (item.kind, item.id) not in excluded:
                distinct.setdefault((item.kind, item.id), item)
        kinds: dict[ResultKind, Linked] = {}
        for item in distinct.values():
            kinds.setdefault(item.kind, item)
        chosen = list(kinds.values())[:MAX_RELATED]
        chosen += [item for item in distinct.values() if item not in chosen][: MAX_RELATED - len(chosen)]
        return tuple(chosen)

    def _linked(self, kind: ResultKind, pk: int, reason: str) -> Linked | None:
        if kind == ResultKind.MEMORY:
            title = self._titles.get(pk)
            return None if title is None else Linked(kind, pk, title, reason)
        if kind in TERM_KINDS:
            term = self._terms.get((kind, pk))
            return None if term is None else Linked(kind, pk, term.name, reason, (term.value,))
        row = self._relationships.get(pk) or self._neighbours.get(pk)
        return None if row is None else Linked(kind, pk, row.title, reason, row.values)

    # --- rows --------------------------------------------------------------------------------------------------------

    @cached_property
    def _terms(self) -> dict[Key, StoredTerm]:
        """The terms among the hits; others may be invisible."""
        found: dict[Key, StoredTerm] = {}
        for kind, statement in _TERMS.items():
            hits = {key[1]: one for key, one in self._context.hits.items() if key[0] == kind}
            if not hits:
                continue
            with connection.cursor() as cursor:
                projects = as_array(self._context.viewer.project_ids)
                cursor.execute(statement, {"ids": list(hits), "projects": projects})
                rows = cursor.fetchall()
            for pk, name, its_type, aliases, description, value in rows:
                memories = hits[pk].memories
                found[kind, pk] = StoredTerm(pk, name, its_type, tuple(aliases), description, value, memories)
        return found

    @cached_property
    def _relationships(self) -> dict[int, StoredRelationship]:
        wanted = self._shown[ResultKind.RELATIONSHIP]
        evidence = {pk: self._context.hits[ResultKind.RELATIONSHIP, pk].evidence for pk in wanted}
        place = self._place
        best = {
            pk: tuple(sorted(own, key=lambda one: (place.get((ResultKind.MEMORY, one), len(place)), -one)))
            for pk, own in evidence.items()
        }
        return relationship_rows("own.id = ANY(%(ids)s)", {"ids": wanted}, best) if wanted else {}

    @cached_property
    def _neighbours(self) -> dict[int, StoredRelationship]:
        """Visible relationships of the entities and memories of the page, by confidence."""
        memories, entities = list(self._memories), self._shown[ResultKind.ENTITY]
        if not memories and not entities:
            return {}
        which = (
            "(own.evidence_ids && %(memories)s::bigint[]"
            " OR own.source_id = ANY(%(entities)s) OR own.target_id = ANY(%(entities)s))"
        )
        rows = relationship_rows(which, {"memories": memories, "entities": entities}, None)
        evidence = evidence_of(self._context.engine, self._context.resolved, list(rows))
        return {pk: row for pk, row in rows.items() if pk in evidence}

    @cached_property
    def _newest(self) -> dict[Key, int]:
        plan = filtered(self._context.resolved.plan)
        # A filter by the same facet would be replaced, not narrowed.
        kinds = [kind for kind in TERM_KINDS if plan.filter(kind.value) is None]
        shown: list[Key] = [(kind, pk) for kind in kinds for pk in self._shown[kind]]
        alone = [key for key in shown if not self._context.origins[key].memories]
        found: dict[Key, int] = {}
        for kind, pk in alone[:_MAX_NEWEST]:
            carrying = plan.with_filter(Filter(kind.value, include=((pk,),)))
            for memory_id, _ in self._context.engine.hits(carrying, Sort.NEWEST, limit=1, offset=0):
                found[kind, pk] = memory_id
        return found

    @cached_property
    def _links(self) -> list[tuple[int, int, str]]:
        """Links between the memories of the page and others that pass the filters, as (from, to, relation)."""
        if not self._memories:
            return []
        with connection.cursor() as cursor:
            cursor.execute(_LINKS, {"ids": list(self._memories), "most": _MAX_LINKS})
            links: list[tuple[int, int, str]] = cursor.fetchall()
        ends = sorted({pk for source, target, _ in links for pk in (source, target)})
        passing = self._context.engine.filter_ids(filtered(self._context.resolved.plan), ends) if ends else set()
        return [link for link in links if link[0] in passing and link[1] in passing]

    @cached_property
    def _titles(self) -> dict[int, str]:
        """Titles of the visible memories that the page mentions."""
        wanted = set(self._shown[ResultKind.MEMORY]) | set(self._newest.values())
        wanted |= {pk for source, target, _ in self._links for pk in (source, target)}
        for kind in TERM_KINDS:
            for pk in self._shown[kind]:
                wanted |= set(self._context.origins[kind, pk].memories[:1])
        for row in self._relationships.values():
            wanted |= set(row.evidence[:_EVIDENCE_SHOWN])
        rows = visible_to(self._context.viewer).filter(pk__in=wanted).values_list("pk", "title")
        return {pk: title.strip() or f"Memory {pk}" for pk, title in rows}

    # --- highlights --------------------------------------------------------------------------------------------------

    @cached_property
    def _patterns(self) -> tuple[tuple[Pattern, ...], str]:
        """The patterns to highlight, in the language of most of the viewer's projects."""
        texts = self._context.resolved.plan.texts
        return (texts[0].words.positive, texts[0].language) if texts else ((), "english")

    def _marked(self, text: str) -> tuple[MarkedText, ...]:
        return segments(text, matched_spans(text, *self._patterns))

    def _snippet(self, text: str) -> tuple[MarkedText, ...]:
        return snippet(text, matched_spans(text, *self._patterns), _LENGTH) if text else ()


def relationship_rows(
    which: str,
    parameters: Mapping[str, Collection[int]],
    evidence: Mapping[int, tuple[int, ...]] | None,
    most: int = _MAX_RELATIONSHIPS,
) -> dict[int, StoredRelationship]:
    """Relationships by confidence, with the given evidence, or with all of it."""
    with connection.cursor() as cursor:
        cursor.execute(
            _RELATIONSHIPS.format(which=which), {**{k: list(v) for k, v in parameters.items()}, "most": most}
        )
        rows = cursor.fetchall()
    found = {}
    for pk, kind, fact, confidence, begin, end, stated, *ends in rows:
        own = tuple(stated) if evidence is None else evidence[pk]
        source, target = EntityRef(*ends[:3]), EntityRef(*ends[3:])
        found[pk] = StoredRelationship(pk, source, kind, target, fact, confidence, begin, end, own)
    return found

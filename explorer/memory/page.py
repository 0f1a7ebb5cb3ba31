"""The pages of a memory, and of those similar to it. No request; the database only for texts that are shown in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
from functools import cached_property
from itertools import groupby, islice
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.urls import reverse
from django.utils.safestring import SafeString

from access.viewer import Viewer
from categories.models import Entity
from categories.queries import CategoryNode, Term
from explorer.links import (
    category_url,
    duplicates_url,
    explore_url,
    filter_url,
    import_url,
    memory_url,
    node_url,
    session_url,
    similar_url,
    why_not_url,
)
from explorer.markdown import EmbeddedNote, embedded_names, render_markdown
from memories.import_names import import_label
from memories.invented_team import is_sample
from memories.models import Memory
from memories.queries import (
    MOST_EMBEDDED_TEXT,
    MemoryDetail,
    NoteText,
    ResolvedLink,
    embedded_texts,
    memory_version,
)
from memories.trust import TRUST_NOTE, trust_of
from search.query import SearchQuery
from search.similar import SharedTerms, SimilarMemory, SimilarResult
from text.formatting import day_label, local_time, moment_label, verb_text
from text.highlight import title_or_number
from text.steering import marks_text
from text.wiki_links import name_key, names_of_file

_DAYS_AROUND = 3


def is_web(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


@dataclass(frozen=True, slots=True)
class FactValue:
    """A value of a fact, with a link if `url` is set."""

    label: str
    url: str = ""
    note: str = ""
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class MemoryFact:
    """A fact, with the field of a form that edits it, if the viewer may."""

    label: str
    values: tuple[FactValue, ...]
    is_tags: bool = False
    name: str = ""
    control: Any = None


@dataclass(frozen=True)
class MemoryPage:
    """The page of a memory, or the panel: the template reads `detail` itself, and here what has to be put together."""

    detail: MemoryDetail
    query: SearchQuery | None
    """The search that led here, if any."""
    zone: tzinfo
    controls: Mapping[str, Any] = field(default_factory=dict)
    """The fields that edit facts, if the viewer may."""
    import_name: str = ""
    """The import that brought it, as the viewer may see its name."""
    embedded: Mapping[int, NoteText] = field(default_factory=dict)
    """The memories that the text shows in place, with their texts."""

    @classmethod
    def read(
        cls, detail: MemoryDetail, query: SearchQuery | None, viewer: Viewer, controls: Mapping[str, Any]
    ) -> "MemoryPage":
        page = cls(detail, query, viewer.timezone, controls, import_label(detail.memory.batch, viewer))
        return replace(page, embedded=embedded_texts(viewer, ids)) if (ids := page.embedded_ids) else page

    @cached_property
    def title(self) -> str:
        return title_or_number(self.detail.memory.title, self.detail.memory.pk)

    @property
    def body(self) -> SafeString:
        notes = {name: self.url(memory_id) for name, memory_id in self._note_ids.items()}
        embedded = {
            name: self._embedded_note(self.embedded[memory_id])
            for name, memory_id in self._note_ids.items()
            if memory_id in self.embedded
        }
        return render_markdown(self.detail.memory.content, self.title, notes=notes, embedded=embedded)

    def _embedded_note(self, found: NoteText) -> EmbeddedNote:
        title = found.title
        return EmbeddedNote(
            self.url(title.id),
            title_or_number(title.title, title.id),
            found.text[:MOST_EMBEDDED_TEXT],
            "" if title.state == Memory.State.ACTIVE else f"({title.state})",
            is_cut=len(found.text) > MOST_EMBEDDED_TEXT,
            notes={
                name_key(name): self.url(target_id)
                for target, target_id in found.links.items()
                for name in names_of_file(target)
            },
        )

    @property
    def embedded_ids(self) -> set[int]:
        """The other memories that the text shows in place."""
        content = self.detail.memory.content
        names = embedded_names(content) if "![[" in content else ()
        return {self._note_ids[name] for name in names if name in self._note_ids} - {self.detail.memory.pk}

    @cached_property
    def _note_ids(self) -> dict[str, int]:
        """The memories that this one links to, by the names that its text may have for them."""
        ids: dict[str, int] = {}
        for link in self.detail.links:
            if link.memory:
                for name in (*names_of_file(link.target), link.memory.title, *link.aliases):
                    ids.setdefault(name_key(name), link.memory.id)
        for title in (*self.detail.supersedes, self.detail.superseded_by):
            if title:
                ids.setdefault(name_key(title.title), title.id)
        # A note that is shown in this one may link back.
        memory = self.detail.memory
        file_name = memory.external_id.rsplit("/", 1)[-1].removesuffix(".md")
        for name in filter(None, (memory.title, memory.external_id, file_name)):
            ids.setdefault(name_key(name), memory.pk)
        return ids

    def url(self, memory_id: int) -> str:
        """The page of another memory, with the way back to the search that led here."""
        return memory_url(memory_id, self.query)

    @property
    def back_url(self) -> str:
        return explore_url(self.query or SearchQuery())

    @property
    def why_url(self) -> str:
        """Explains the memory's place in the search that led here."""
        return why_not_url(self.query, self.detail.memory.pk) if self.query else ""

    @property
    def type_url(self) -> str:
        return filter_url("type", self.detail.memory.memory_type)

    @property
    def similar_url(self) -> str:
        return similar_url(self.detail.memory.pk, self.query)

    @property
    def is_of_sample(self) -> bool:
        batch = self.detail.memory.project.batch
        return batch is not None and is_sample(batch.origin)

    @property
    def version(self) -> str:
        return memory_version(self.detail.memory)

    @property
    def is_there(self) -> bool:
        """Whether it can be archived or superseded, else restored."""
        return self.detail.memory.state in (Memory.State.ACTIVE, Memory.State.PROPOSED)

    @property
    def facts(self) -> list[MemoryFact]:
        every = (replace(fact, control=self.controls.get(fact.name)) for fact in _facts(self.detail, self.zone))
        return [fact for fact in every if fact.values or fact.control]

    @property
    def provenance(self) -> list[MemoryFact]:
        return [fact for fact in _provenance(self.detail, self.import_name) if fact.values]

    @property
    def mark(self) -> str:
        """Why the text may steer a model that reads it; empty if nothing is wrong, or somebody judged so."""
        return marks_text(self.detail.marks)

    @property
    def mark_url(self) -> str:
        """Where marked texts of its project are decided."""
        query = {"kind": "marked", "project": self.detail.memory.project.slug}
        return f"{reverse('suggestions:review')}?{urlencode(query)}"

    @property
    def properties(self) -> list[MemoryFact]:
        """The properties of its record besides these facts, as texts."""
        named = self.detail.properties.items()
        return [MemoryFact(name, tuple(FactValue(value) for value in values)) for name, values in named]

    @property
    def links(self) -> list[tuple[str, list[ResolvedLink]]]:
        """Links of the record by relation."""
        # A text may name a memory in several ways.
        once: dict[tuple[str, int | str], ResolvedLink] = {}
        for link in sorted(self.detail.links, key=lambda link: link.rel):
            once.setdefault((link.rel, link.memory.id if link.memory else link.target), link)
        return [(_relation_label(rel), list(links)) for rel, links in groupby(once.values(), key=lambda link: link.rel)]

    @property
    def backlinks(self) -> list[tuple[str, list[ResolvedLink]]]:
        """Links of other memories to this one, in words that say which of the two is meant: "Caused by this"."""
        links = (ResolvedLink(rel, "", "", memory) for rel, memory in self.detail.backlinks)
        return [(f"{_relation_label(rel)} this", list(some)) for rel, some in groupby(links, key=lambda link: link.rel)]

    @property
    def around_url(self) -> str:
        """The project around the memory, wide enough to include the neighbours shown."""
        memory = self.detail.memory
        shown = [near.created_at for near in self.detail.around]
        query = SearchQuery().only("project", memory.project.slug)
        return explore_url(_days_around(query, memory.created_at, self.zone, _DAYS_AROUND, shown))

    def term_url(self, entity: Entity) -> str:
        return node_url("entity", entity.pk, str(entity))

    def is_web(self, uri: str) -> bool:
        return is_web(uri)


def _filter(key: str, value: str, label: str = "", note: str = "") -> FactValue:
    return FactValue(label or value, filter_url(key, value), note)


def _filters(key: str, values: Iterable[str]) -> tuple[FactValue, ...]:
    return tuple(_filter(key, value) for value in values if value)


def _day(instant: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    """A date with a link to all memories of that day."""
    if instant is None:
        return ()
    address = explore_url(_days_around(SearchQuery(), instant, zone, 0))
    return (FactValue(day_label(instant, zone), address, moment_label(instant, zone)),)


def _days_around(
    query: SearchQuery, instant: datetime, zone: tzinfo, days: int, shown: Iterable[datetime] = ()
) -> SearchQuery:
    """The query with dates that span `days` on both sides of an instant, and all instants in `shown`."""
    day = local_time(instant, zone).date().toordinal()
    others = [local_time(other, zone).date().toordinal() for other in shown]
    first = max(min(day - days, *others, day), date.min.toordinal())
    last = min(max(day + days, *others, day), date.max.toordinal())
    # At either end of the calendar the span is open: the first day of a zone may begin after the instant.
    return query.between(
        date.fromordinal(first).isoformat() if first > date.min.toordinal() else "",
        date.fromordinal(last).isoformat() if last < date.max.toordinal() else "",
    )


def _instant(instant: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    return (FactValue(moment_label(instant, zone)),) if instant else ()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _facts(detail: MemoryDetail, zone: tzinfo) -> Iterable[MemoryFact]:
    memory = detail.memory
    yield MemoryFact("Project", (_filter("project", memory.project.slug, memory.project.name or memory.project.slug),))
    yield MemoryFact("Type", (_filter("type", memory.memory_type),), name="type")
    yield MemoryFact("State", (_filter("state", memory.state),))
    yield MemoryFact("Created", _day(memory.created_at, zone))
    yield MemoryFact("Category", tuple(_category(node) for node in detail.categories), name="categories")
    yield MemoryFact("Tags", _filters("tag", memory.tags), is_tags=True, name="tags")
    yield MemoryFact("Concepts", tuple(_node("concept", term) for term in detail.concepts), name="concepts")
    yield MemoryFact("Entities", tuple(_node("entity", term) for term in detail.entities), name="entities")
    yield MemoryFact("Happened", _instant(memory.happened_at, zone))
    yield MemoryFact("Updated", _instant(_changed_at(memory), zone))
    yield MemoryFact("Valid from", _instant(memory.valid_from, zone))
    yield MemoryFact("Valid to", _instant(memory.valid_to, zone))


def _changed_at(memory: Memory) -> datetime | None:
    """When it was changed last; None if never since it was created or imported."""
    batch = memory.batch
    if batch and batch.finished_at and batch.started_at <= memory.updated_at <= batch.finished_at:
        return None
    return memory.updated_at if memory.updated_at != memory.created_at else None


def _provenance(detail: MemoryDetail, import_name: str) -> Iterable[MemoryFact]:
    memory = detail.memory
    yield MemoryFact("Author", _filters("author", memory.authors))
    yield MemoryFact("Agent", _filters("agent", [memory.agent]))
    session = memory.session
    yield MemoryFact(
        "Session",
        (FactValue(session.title or session.external_id, session_url(session.pk), session.external_id),)
        if session
        else (),
    )
    yield MemoryFact("Trust", (FactValue(f"words {trust_of(memory).label}", note=TRUST_NOTE),))
    yield MemoryFact("Source", _filters("source", [memory.source]))
    yield MemoryFact("Original", (_address(memory.source_uri),) if memory.source_uri else ())
    yield MemoryFact("Original id", (FactValue(memory.external_id),) if memory.external_id else ())
    yield MemoryFact("Import", (FactValue(import_name, import_url(str(memory.batch_id))),) if import_name else ())
    yield MemoryFact("Confidence", (FactValue(_percent(memory.confidence)),) if memory.confidence is not None else ())
    yield MemoryFact("Importance", (FactValue(_percent(memory.importance)),) if memory.importance is not None else ())
    yield MemoryFact("Pinned", (FactValue(_pin_text(detail)),) if memory.pinned else ())


def _pin_text(detail: MemoryDetail) -> str:
    return f"for {detail.pinned_for}" if detail.pinned_for else "yes"


def _address(uri: str) -> FactValue:
    """A link if the scheme is http or https, else plain text: records may contain any scheme."""
    if not is_web(uri):
        return FactValue(uri)
    parts = urlsplit(uri)
    return FactValue(f"{parts.netloc}{parts.path}".rstrip("/"), uri, uri, is_external=True)


def _category(node: CategoryNode) -> FactValue:
    return FactValue(" / ".join(node.names), category_url(node.path))


def _node(kind: str, term: Term) -> FactValue:
    """A link to the page of an entity or a concept."""
    return FactValue(term.label, node_url(kind, term.id, term.value), term.type)


def _relation_label(rel: str) -> str:
    words = verb_text(rel).strip()
    return f"{words[:1].upper()}{words[1:]}" or "Linked"


_SHARED_SHOWN = 3
# Memories with less than this share of the similarity of the closest stand under a heading of their own.
_LESS = 0.6
_OTHER_PROJECT = "Only memories of one project can be merged, and these are of another one."
# Duplicates that are merged with a memory at once: the operation takes twenty.
_MERGED = 19


@dataclass(frozen=True, slots=True)
class SimilarGroup:
    """Similar memories; the label is empty if there is only one group."""

    label: str
    rows: list[SimilarMemory]
    merge_url: str = ""
    """Where the memory and those of its project are merged."""
    note: str = ""


def similar_groups(memory_id: int, found: SimilarResult, writes_to: str) -> list[SimilarGroup]:
    """Similar memories, possible duplicates first. `writes_to` is their project if the viewer may change it."""
    duplicates = [one for one in found.memories if one.is_duplicate]
    to_merge = [one.hit.id for one in duplicates if one.hit.project == writes_to]
    others = [one for one in found.memories if not one.is_duplicate]
    least = _LESS * max([0.0, *(one.similarity for one in others)])
    merge = duplicates_url([memory_id, *to_merge[:_MERGED]]) if to_merge else ""
    groups = (
        SimilarGroup("Possible duplicates", duplicates, merge, "" if merge or not writes_to else _OTHER_PROJECT),
        SimilarGroup("Only similar" if duplicates else "", [one for one in others if one.similarity >= least]),
        SimilarGroup("Less similar", [one for one in others if one.similarity < least]),
    )
    return [group for group in groups if group.rows]


def shared_values(shared: SharedTerms) -> tuple[list[FactValue], int]:
    """The first values that two memories share, and the number of further ones."""
    # An entity, a tag and a category of the same name appear once.
    by_name: dict[str, FactValue] = {}
    for value in _shared(shared):
        by_name.setdefault(value.label.casefold(), value)
    return list(islice(by_name.values(), _SHARED_SHOWN)), max(0, len(by_name) - _SHARED_SHOWN) + shared.more


def _shared(shared: SharedTerms) -> Iterable[FactValue]:
    """Shared values, the most specific first: entities, tags, categories."""
    for term in shared.entities:
        yield FactValue(term.label, filter_url("entity", term.value), term.type)
    for tag in shared.tags:
        yield FactValue(tag, filter_url("tag", tag), "tag")
    for category in shared.categories:
        yield FactValue(category.names[-1], filter_url("category", category.path), " / ".join(category.names))

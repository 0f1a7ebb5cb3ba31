"""Memories and their vocabulary as JSON lines, from which `import_memories` makes them again.

A first line names the form. Then come the vocabulary, the memories by id, and the relationships, whose evidence they
are. Next to the fields of a record, `stored` has what only a copy needs: the number of the memory, its original record,
and who made its links. An export of everything has rows of tables besides, from which an empty instance becomes an
equal one; see `transfer.tables`.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction
from django.db.models import Max, Model, Q, QuerySet

from access.viewer import Viewer
from categories.models import Category, Concept, Entity, FormerPath, LocalText, MadeBy, Relationship, TagAlias
from categories.texts import readable_aliases, readable_description, row_holds
from memories.models import ImportBatch, Memory, MemoryLink, MemoryRead, Project, Session
from memories.queries import name_in_text, visible_to
from memories.reads import MOST_IDS
from memories.recalls import record_passing
from memories.snapshot import MemorySnapshot, Ref
from memories.storage import snapshots_read
from transfer.formats.export import Line
from transfer.formats.jsonl import EXPORT_VERSION
from transfer.formats.note_files import NOTE_FILE, note_file_in
from transfer.tables import AFTER_MEMORIES, BEFORE_MEMORIES, row_lines

_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Selection:
    """The memories to export: all that the viewer may see, those of some projects, states, or with some ids."""

    viewer: Viewer
    projects: Sequence[str] = ()
    memory_ids: Sequence[int] | None = None
    states: Sequence[str] = ()
    with_rows: bool = True
    with_files: bool = False
    """Whether files of notes that became no memories belong to it."""

    @property
    def is_whole(self) -> bool:
        return self.viewer.project_ids is None and not self.projects and self.memory_ids is None

    @property
    def has_rows(self) -> bool:
        """Whether the history of the instance belongs to it, with the names of people and their saved views."""
        return self.with_rows and self.is_whole and not self.states and "admin" in self.viewer.scopes

    def memories(self) -> QuerySet[Memory]:
        visible = visible_to(self.viewer)
        if self.states:
            visible = visible.filter(state__in=self.states)
        return visible.filter(project__slug__in=self.projects) if self.projects else visible

    def blocks(self) -> Iterator[list[int]]:
        """The ids of the memories in ascending order, a block at a time."""
        if self.memory_ids is not None:
            chosen = sorted(set(self.memory_ids))
            for start in range(0, len(chosen), _BLOCK):
                ids = chosen[start : start + _BLOCK]
                yield list(self.memories().filter(pk__in=ids).order_by("pk").values_list("pk", flat=True))
            return
        last = 0
        while ids := list(self.memories().filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:_BLOCK]):
            yield ids
            last = ids[-1]


@dataclass(slots=True)
class _Used:
    """The ids of the vocabulary that the exported memories use."""

    projects: set[int]
    sessions: set[int]
    categories: set[int]
    concepts: set[int]
    entities: set[int]


@contextmanager
def one_state() -> Iterator[None]:
    """A transaction that sees the database as it is at its beginning."""
    with transaction.atomic():
        if len(connection.savepoint_ids) == 0:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def export_lines(selection: Selection) -> Iterator[Line]:
    """The lines of an export. Call it in a transaction that sees one state of the database (REPEATABLE READ).

    A selection has the vocabulary that its memories use, with their ancestors, and the relationships that they support.
    """
    used = None if selection.is_whole else _used(selection)
    yield {"record": "export", "version": EXPORT_VERSION}
    if selection.has_rows:
        yield from row_lines(BEFORE_MEMORIES)
    names = _Names(used)
    yield from names.lines()
    if selection.with_files:
        yield from _file_lines({project.slug for project in names.projects.values()})
    for ids in selection.blocks():
        snapshots = _with_shown_links(snapshots_read(ids), selection.viewer)
        yield from (names.memory_line(snapshots[pk]) for pk in ids if pk in snapshots)
    yield from _relationship_lines(selection, used)
    yield from names.local_lines(selection)
    if selection.has_rows:
        yield from row_lines(AFTER_MEMORIES)


def record_export(selection: Selection, query: str) -> None:
    """Record that the memories of a selection are given away: the ids of the first, and the number of all."""
    if selection.memory_ids is not None:
        ids = sorted(set(selection.memory_ids))
        number = len(ids)
    else:
        ids = list(selection.memories().order_by("pk").values_list("pk", flat=True)[:MOST_IDS])
        number = len(ids) if len(ids) < MOST_IDS else selection.memories().count()
    record_passing(selection.viewer, ids, MemoryRead.Kind.EXPORT, query, number)


def _file_lines(projects: Collection[str]) -> Iterator[Line]:
    """The notes that became no memories, since they are empty or cannot be read; of each source the last import's."""
    done = ImportBatch.objects.filter(state=ImportBatch.State.DONE, report__files__isnull=False)
    last = ImportBatch.objects.filter(state=ImportBatch.State.DONE, followed=None).values("origin").annotate(Max("pk"))
    latest = set(last.values_list("pk__max", flat=True))
    found: dict[tuple[str, str], Line] = {}
    for pk, followed, files in done.order_by("-pk").values_list("pk", "followed_id", "report__files"):
        if followed is None and pk not in latest:
            continue
        for stored in files.values() if isinstance(files, dict) else ():
            if stored.get("project") in projects:
                found.setdefault((stored.get("vault", ""), stored["path"]), stored)
    yield from ({"record": "file", "project": one["project"], NOTE_FILE: one} for one in found.values())


def _used(selection: Selection) -> _Used:
    used = _Used(set(), set(), set(), set(), set())
    for ids in selection.blocks():
        rows = Memory.objects.filter(pk__in=ids).values_list(
            "project_id", "session_id", "category_path_ids", "concept_ids", "entity_ids"
        )
        for project_id, session_id, category_ids, concept_ids, entity_ids in rows:
            used.projects.add(project_id)
            if session_id is not None:
                used.sessions.add(session_id)
            used.categories.update(category_ids)
            used.concepts.update(concept_ids)
            used.entities.update(entity_ids)
    return used


def _chosen(model: type[Model], ids: set[int] | None) -> QuerySet[Any]:
    rows: QuerySet[Any] = model._default_manager.order_by("pk")
    return rows if ids is None else rows.filter(pk__in=ids)


def _with_shown_links(memories: dict[int, MemorySnapshot], viewer: Viewer) -> dict[int, MemorySnapshot]:
    """Memories without the paths of notes that the viewer may not see, in their links and their records."""
    if viewer.project_ids is None:
        return memories
    links = MemoryLink.objects.filter(memory_id__in=memories, target_memory__isnull=False)
    hidden: dict[int, dict[str, str]] = {}
    for memory_id, target in links.exclude(target_memory__in=visible_to(viewer)).values_list("memory_id", "target"):
        hidden.setdefault(memory_id, {})[target] = name_in_text(target, memories[memory_id].content)
    return memories | {pk: _with_link_names(memories[pk], names) for pk, names in hidden.items()}


def _with_link_names(memory: MemorySnapshot, names: Mapping[str, str]) -> MemorySnapshot:
    """A memory with other names of links, without those that have none."""
    renamed = [replace(link, target=names.get(link.target, link.target)) for link in memory.links]
    raw = json.loads(memory.raw) if memory.raw else None
    if isinstance(raw, dict) and isinstance(raw.get("links"), list):
        raw["links"] = [_with_link_name(link, names) for link in raw["links"]]
    links = tuple(dict.fromkeys(link for link in renamed if link.target))
    return replace(memory, links=links, raw=memory.raw and json.dumps(raw, ensure_ascii=False))


def _with_link_name(link: Any, names: Mapping[str, str]) -> Any:
    """A link of a record, where anything may stand."""
    if isinstance(link, dict) and isinstance(link.get("target"), str):
        return link | {"target": names.get(link["target"], link["target"])}
    return names.get(link, link) if isinstance(link, str) else link


class _Names:
    """The vocabulary by id, and its lines."""

    def __init__(self, used: _Used | None) -> None:
        self._used = used
        self._readers = None if used is None else frozenset(used.projects)
        self.projects: dict[int, Project] = {row.pk: row for row in _chosen(Project, used.projects if used else None)}
        self.sessions: dict[int, tuple[int, str]] = {}
        self.categories: dict[int, Category] = {
            row.pk: row for row in _chosen(Category, used.categories if used else None).order_by("depth", "path")
        }
        self.concepts: dict[int, Concept] = {row.pk: row for row in _chosen(Concept, used.concepts if used else None)}
        self.entities: dict[int, tuple[str, str]] = {}

    def lines(self) -> Iterator[Line]:
        used = self._used
        for project in self.projects.values():
            yield _line("project", project, "slug", "name", "description", "language")
        for session in _chosen(Session, used.sessions if used else None).iterator(_BLOCK):
            self.sessions[session.pk] = (session.project_id, session.external_id)
            about = {"project": self.projects[session.project_id].slug, "id": session.external_id}
            yield _line("session", session, "agent", "title", "started_at", "ended_at") | about
        yield from self._category_lines()
        for concept in self.concepts.values():
            about = {"type": concept.concept_type} if concept.concept_type else {}
            relations = {
                name: [self.concepts[pk].name for pk in ids if pk in self.concepts]
                for name, ids in (
                    ("broader", concept.broader_ids),
                    ("narrower", concept.narrower_ids),
                    ("related", concept.related_ids),
                )
                if ids
            }
            yield _line("concept", concept, "name", "weight") | self._texts(concept) | about | relations
        for entity in _chosen(Entity, used.entities if used else None).iterator(_BLOCK):
            self.entities[entity.pk] = (entity.entity_type, entity.name)
            yield _line("entity", entity, "name") | self._texts(entity) | {"type": entity.entity_type}
        if used is None:
            for alias in TagAlias.objects.order_by("alias"):
                held = self._slugs({alias.alias: alias.project_ids})
                yield {"record": "tag", "name": alias.tag, "aliases": [alias.alias], **held}

    def _category_lines(self) -> Iterator[Line]:
        former: dict[int, dict[str, list[int] | None]] = {}
        paths = FormerPath.objects.filter(row_holds(self._readers), category_id__in=self.categories).order_by("path")
        for path, category_id, held in paths.values_list("path", "category_id", "project_ids"):
            former.setdefault(category_id, {})[path] = held
        for category in self.categories.values():
            related = [self.categories[pk].path for pk in category.related_ids if pk in self.categories]
            own = former.get(category.pk, {})
            yield (
                _line("category", category, "path", "name")
                | self._texts(category, own)
                | ({"related": related} if related else {})
                | ({"former_paths": list(own)} if own else {})
            )

    def _texts(self, term: Category | Concept | Entity, more: Mapping[str, list[int] | None] | None = None) -> Line:
        """The texts of a term that hold in the exported projects; all of them if everything is exported."""
        aliases, description = readable_aliases(term, self._readers), readable_description(term, self._readers)
        stored = term.alias_projects or {}
        held = {alias: [int(pk) for pk in stored[alias]] for alias in aliases if alias in stored}
        described = {"": term.description_projects} if description else {}
        return _filled({"aliases": aliases, "description": description}) | self._slugs(
            {**held, **described, **(more or {})}
        )

    def _slugs(self, held: Mapping[str, Sequence[int] | None]) -> Line:
        """The field with the projects of the texts that are not public, by the text."""
        found = {
            text: sorted(self.projects[pk].slug for pk in projects if pk in self.projects)
            for text, projects in held.items()
            if projects is not None
        }
        return {"text_projects": found} if found else {}

    def local_lines(self, selection: Selection) -> Iterator[Line]:
        """The texts that hold in some projects only, for the exported projects and terms that the viewer may see."""
        chosen = self.projects.keys() if selection.viewer.project_ids is None else selection.viewer.project_ids
        for row in LocalText.objects.filter(project_ids__overlap=list(chosen & self.projects.keys())).order_by("pk"):
            about = self._term(row)
            if not about:
                continue
            field = {"alias": "aliases", "path": "former_paths"}.get(row.role)
            projects = sorted(self.projects[pk].slug for pk in {*row.project_ids} & chosen & self.projects.keys())
            yield {"record": row.kind, **about, field or "description": [row.text] if field else row.text} | {
                "projects": projects
            }

    def _term(self, row: LocalText) -> Line:
        """The fields that name the term of a local text; none if the export does not have it."""
        match row.kind:
            case "tag":
                return {"name": row.tag}
            case "category" if row.term_id in self.categories:
                return {"path": self.categories[row.term_id].path}
            case "concept" if row.term_id in self.concepts:
                return {"name": self.concepts[row.term_id].name}
            case "entity" if row.term_id in self.entities:
                return dict(zip(("type", "name"), self.entities[row.term_id], strict=True))
        return {}

    def memory_line(self, memory: MemorySnapshot) -> Line:
        line: Line = {
            "id": memory.external_id,
            "project": self.projects[memory.project_id].slug,
            "type": memory.memory_type,
            "title": memory.title,
            "summary": memory.summary,
            "content": memory.content,
            "tags": list(memory.tags),
            "categories": [self.categories[ref.id].path for ref in memory.categories],
            "concepts": [{"name": self.concepts[ref.id].name} | _weight(ref) for ref in memory.concepts],
            "entities": [dict(zip(("type", "name"), self.entities[ref.id], strict=True)) for ref in memory.entities],
            "links": [
                {"rel": link.rel, "target": link.target} | ({"url": link.url} if link.url else {})
                for link in memory.links
            ],
            "state": memory.state,
            "importance": memory.importance,
            "confidence": memory.confidence,
            "pinned": memory.pinned,
            "authors": list(memory.authors),
            "agent": memory.agent,
            "session": self.sessions[memory.session_id][1] if memory.session_id is not None else "",
            "source": memory.source,
            "source_url": memory.source_uri,
            "trust": "" if memory.trust is None else Memory.Trust(memory.trust).name.lower(),
        }
        for name in ("created_at", "happened_at", "updated_at", "valid_from", "valid_to"):
            moment = getattr(memory, name)
            line[name] = moment and moment.isoformat()
        makers = {
            "categories": [[line["categories"][at], *_maker(ref)] for at, ref in enumerate(memory.categories)],
            "concepts": [[line["concepts"][at]["name"], *_maker(ref)] for at, ref in enumerate(memory.concepts)],
            "entities": [[list(self.entities[ref.id]), *_maker(ref)] for ref in memory.entities],
        }
        raw = memory.raw and json.loads(memory.raw)
        stored = {
            "number": memory.id,
            "state_reason": memory.state_reason,
            "superseded_by": memory.superseded_by_id,
            "record_hash": memory.record_hash,
            "edited": note.edited_fields(memory) if (note := note_file_in(raw)) else [],
            "made_by": {
                kind: [one for one in found if one[1:] != [MadeBy.IMPORT.value, 1.0]] for kind, found in makers.items()
            },
        }
        line = {name: value for name, value in line.items() if value not in ("", None, [], False)}
        return line | {"stored": _filled(stored) | {"raw": raw}}


def _weight(ref: Ref) -> Line:
    return {} if ref.weight == 1.0 else {"weight": ref.weight}


def _maker(ref: Ref) -> list[Any]:
    return [ref.made_by, ref.weight]


def _filled(values: Line) -> Line:
    return {name: value for name, value in values.items() if value not in ("", None, [], {})}


def _line(kind: str, row: Any, *names: str) -> Line:
    values = {name: getattr(row, name) for name in names}
    return {"record": kind} | {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in values.items()
        if value not in ("", None, [])
    }


def _relationship_lines(selection: Selection, used: _Used | None) -> Iterator[Line]:
    rows = Relationship.objects.select_related("source", "target").order_by("pk")
    if used is not None:
        rows = rows.filter(Q(source_id__in=used.entities) & Q(target_id__in=used.entities))
    for row in rows.iterator(_BLOCK):
        evidence = dict(
            selection.memories().filter(pk__in=row.evidence_ids).order_by("pk").values_list("pk", "project__slug")
        )
        # A fact is seen by those who see a memory that supports it.
        if used is not None and not evidence:
            continue
        yield _line("relationship", row, "fact", "confidence", "valid_from", "valid_to") | {
            "source": {"type": row.source.entity_type, "name": row.source.name},
            "type": row.relationship_type,
            "target": {"type": row.target.entity_type, "name": row.target.name},
            **({"evidence": [f"#{pk}" for pk in evidence]} if evidence else {}),
        }

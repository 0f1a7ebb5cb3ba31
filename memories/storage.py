"""A memory as its tables hold it: read, inserted and updated whole, with its links and facet columns in step.

Decides nothing: who may write, and what, is the business of the services and the importers, which both end here.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.db import DatabaseError, connection

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import CategoryLink, ConceptLink, EntityLink, MadeBy
from categories.paths import clean_name
from categories.services import category_lineages
from memories.models import Corpus, Memory, MemoryLink, Project
from memories.records import SUPERSEDED_BY_REL
from memories.terms import MemoryText, memories_terms


@dataclass(frozen=True, slots=True)
class Ref:
    """A link to a category, concept or entity."""

    id: int
    made_by: str = MadeBy.IMPORT.value
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link by name, as the record has it."""

    rel: str
    target: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class MemoryImage:
    """All that is stored of a memory, apart from what is derived from it. `raw` is JSON text."""

    id: int
    project_id: int
    memory_type: str
    title: str
    summary: str
    content: str
    tags: tuple[str, ...]
    state: str
    state_reason: str
    importance: float | None
    confidence: float | None
    pinned: bool
    authors: tuple[str, ...]
    agent: str
    session_id: int | None
    source: str
    external_id: str
    source_uri: str
    created_at: datetime
    happened_at: datetime | None
    updated_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by_id: int | None
    record_hash: str
    raw: str | None
    batch_id: int | None
    categories: tuple[Ref, ...]
    concepts: tuple[Ref, ...]
    entities: tuple[Ref, ...]
    links: tuple[NamedLink, ...]


_LINKED = ("categories", "concepts", "entities", "links")
_SCALARS = tuple(field.name for field in fields(MemoryImage) if field.name not in _LINKED)
_SCALAR_VALUES = attrgetter(*_SCALARS)
_MOMENTS = ("created_at", "happened_at", "updated_at", "valid_from", "valid_to")
_LINK_TABLES = {
    "categories": ("categories_categorylink", "category_id", "category_ids"),
    "concepts": ("categories_conceptlink", "concept_id", "concept_ids"),
    "entities": ("categories_entitylink", "entity_id", "entity_ids"),
}
# From so many new memories on, their references are proven together.
_MANY = 100
# A change to one of these changes the terms.
_SEARCHED = frozenset({"title", "tags", "summary", "external_id", "links", "content"})

_DERIVED = ("content_hash", "terms", "category_ids", "category_path_ids", "concept_ids", "entity_ids")
_COPY_MEMORIES = f"COPY memories_memory ({', '.join((*_SCALARS, *_DERIVED))}) FROM STDIN"
_COPY_LINKS = "COPY memories_memorylink (memory_id, ordinal, rel, target, url, target_memory_id) FROM STDIN"


def memory_ids_draw(count: int) -> list[int]:
    """The next ids, in one block."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('memory_id_seq') FROM generate_series(1, %s)", [count])
        return [int(row[0]) for row in cursor.fetchall()]


def content_hash_of(title: str, content: str) -> str:
    """What a repeat is known by."""
    return hashlib.sha256(f"{title}\0{content}".encode()).hexdigest()[:32]


def images_read(memory_ids: Iterable[int]) -> dict[int, MemoryImage]:
    """The memories as they are stored, by id, in five statements."""
    wanted = list(memory_ids)
    if not wanted:
        return {}
    refs: dict[str, dict[int, list[Ref]]] = {}
    for kind, model, column in (
        ("categories", CategoryLink, "category_id"),
        ("concepts", ConceptLink, "concept_id"),
        ("entities", EntityLink, "entity_id"),
    ):
        found = refs.setdefault(kind, {})
        rows = model.objects.filter(memory_id__in=wanted).order_by("memory_id", column)
        for memory_id, target_id, made_by, weight in rows.values_list("memory_id", column, "made_by", "weight"):
            found.setdefault(memory_id, []).append(Ref(target_id, made_by, weight))
    links: dict[int, list[NamedLink]] = {}
    for memory_id, rel, target, url in (
        MemoryLink.objects.filter(memory_id__in=wanted)
        .order_by("memory_id", "ordinal")
        .values_list("memory_id", "rel", "target", "url")
    ):
        links.setdefault(memory_id, []).append(NamedLink(rel, target, url))
    images: dict[int, MemoryImage] = {}
    for stored in Memory.objects.filter(pk__in=wanted).values(*_SCALARS):
        row: dict[str, Any] = dict(stored)
        memory_id = row["id"]
        row["tags"] = tuple(row["tags"])
        row["authors"] = tuple(row["authors"])
        row["raw"] = None if row["raw"] is None else json.dumps(row["raw"], ensure_ascii=False, sort_keys=True)
        row.update({kind: tuple(refs[kind].get(memory_id, ())) for kind in _LINK_TABLES})
        images[memory_id] = MemoryImage(**row, links=tuple(links.get(memory_id, ())))
    return images


def memory_text(image: MemoryImage, language: str) -> MemoryText:
    """What of it is searched for words."""
    targets = tuple(link.target for link in image.links)
    return MemoryText(image.title, image.tags, image.summary, image.external_id, targets, image.content, language)


def languages_of(project_ids: Iterable[int]) -> dict[int, str]:
    return dict(Project.objects.filter(pk__in=set(project_ids)).values_list("id", "language"))


def _link_columns(image: MemoryImage, lineages: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    """The facet columns: sorted, each id once."""
    return {
        "category_ids": sorted({ref.id for ref in image.categories}),
        "category_path_ids": sorted({step for ref in image.categories for step in lineages[ref.id]}),
        "concept_ids": sorted({ref.id for ref in image.concepts}),
        "entity_ids": sorted({ref.id for ref in image.entities}),
    }


@dataclass(frozen=True, slots=True)
class InsertBlock:
    """New memories as lines of COPY, one each, with what the lines were made of."""

    images: list[MemoryImage]
    terms: Sequence[str]
    columns: list[dict[str, list[int]]]
    """The facet columns."""
    lines: list[str]
    refs: dict[str, str]
    """Lines of COPY for each link table."""


def insert_block(
    images: Sequence[MemoryImage], terms: Sequence[str], lineages: Mapping[int, tuple[int, ...]]
) -> InsertBlock:
    """What can be made ready without the database, so that an import makes one block ready while it stores another."""
    columns = [_link_columns(image, lineages) for image in images]
    return InsertBlock(
        list(images),
        terms,
        columns,
        [_copy_line(*one) for one in zip(images, terms, columns, strict=True)],
        {
            kind: _ref_lines((image.id, ref) for image in images for ref in getattr(image, kind))
            for kind in _LINK_TABLES
        },
    )


def images_insert(block: InsertBlock, viewer: Viewer, *, of_batch: bool = False) -> None:
    """Store new memories, their links, and the links that others had to them before they came.

    `of_batch`: they are not written down for the derived index one by one; whoever calls this does that at the end,
    by `batch_write_down`.
    """
    images, lines = block.images, block.lines
    targets = _targets_of(images)
    for at, image in enumerate(images):
        if (linked := _superseded_by_link(image, targets)) is not image:
            images[at] = linked
            lines[at] = _copy_line(linked, block.terms[at], block.columns[at])
    with connection.cursor() as cursor, _references_proven(cursor, images):
        if of_batch:
            cursor.execute("SET LOCAL mnemoscope.batch = 'on'")
        with cursor.copy(_COPY_MEMORIES) as copy:
            copy.write("".join(lines))
        if of_batch:
            cursor.execute("SET LOCAL mnemoscope.batch = 'off'")
        for kind, rows in block.refs.items():
            _refs_copy(cursor, kind, rows)
        _links_copy(cursor, images, targets)
    dangling_links_resolve(
        {(image.project_id, image.external_id): image.id for image in images if image.external_id}, viewer
    )


@contextmanager
def _references_proven(cursor: Any, images: Sequence[MemoryImage]) -> Iterator[None]:
    """Prove the references of many new memories at once, so that Postgres need not look each of them up again.

    Row by row its checks take a third of the time that the rows themselves take. What they would lock is locked here
    all the same, in one statement a table. Only a superuser may leave them out; for any other role, and where an id
    is not there, they do their work and say what is wrong. Triggers that must see every row are `ENABLE ALWAYS`.
    """
    if len(images) < _MANY or not _may_skip_checks(cursor) or not _references_locked(cursor, images):
        yield
        return
    cursor.execute("SET LOCAL session_replication_role = replica")
    try:
        yield
    except BaseException:
        # In a transaction that is broken by now it goes with that.
        with suppress(DatabaseError):
            cursor.execute("SET LOCAL session_replication_role = origin")
        raise
    cursor.execute("SET LOCAL session_replication_role = origin")


def _may_skip_checks(cursor: Any) -> bool:
    """Whether this role may, and the triggers that write the outbox see what is written so."""
    cursor.execute(
        "SELECT current_setting('is_superuser'), current_setting('session_replication_role'),"
        " (SELECT count(*) FROM pg_trigger WHERE tgrelid = 'memories_memory'::regclass"
        " AND tgname LIKE 'memory_outbox_%%' AND tgenabled <> 'A')"
    )
    return bool(cursor.fetchone() == ("on", "origin", 0))


def _references_locked(cursor: Any, images: Sequence[MemoryImage]) -> bool:
    """Whether every row that the images refer to is there, each now locked against deletion."""
    named: dict[str, set[int | None]] = {
        "memories_project": {image.project_id for image in images},
        "memories_session": {image.session_id for image in images},
        "memories_importbatch": {image.batch_id for image in images},
        "categories_category": {ref.id for image in images for ref in image.categories},
        "categories_concept": {ref.id for image in images for ref in image.concepts},
        "categories_entity": {ref.id for image in images for ref in image.entities},
    }
    for table, ids in named.items():
        wanted = sorted(found for found in ids if found is not None)
        if wanted:
            cursor.execute(f"SELECT id FROM {table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE", [wanted])
            if len(cursor.fetchall()) != len(wanted):
                return False
    return True


def _copy_line(image: MemoryImage, vector: str, columns: Mapping[str, list[int]]) -> str:
    """A memory as a line of COPY. Written here: adapting thirty values one by one costs as much as storing them."""
    values = [_copy_value(value) for value in _SCALAR_VALUES(image)]
    values.append(content_hash_of(image.title, image.content))
    values.append(_escaped(vector))
    values.extend("{" + ",".join(map(str, ids)) + "}" for ids in columns.values())
    return "\t".join(values) + "\n"


def _copy_value(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, tuple):
        return _escaped("{" + ",".join(map(_array_item, value)) + "}") if value else "{}"
    return str(value)


def _escaped(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\t" in text:
        text = text.replace("\t", "\\t")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    return text


def _array_item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _column(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _ref_lines(rows: Iterable[tuple[int, Ref]]) -> str:
    return "".join([f"{memory_id}\t{ref.id}\t{ref.made_by}\t{ref.weight!r}\tnow\n" for memory_id, ref in rows])


def _refs_copy(cursor: Any, kind: str, lines: str) -> None:
    if not lines:
        return
    table, column, _ = _LINK_TABLES[kind]
    with cursor.copy(f"COPY {table} (memory_id, {column}, made_by, weight, created_at) FROM STDIN") as copy:
        copy.write(lines)


def _links_copy(cursor: Any, images: Sequence[MemoryImage], targets: Mapping[tuple[int, str], int]) -> None:
    rows = [
        (image.id, ordinal, link.rel, link.target, link.url, targets.get((image.project_id, link.target)))
        for image in images
        for ordinal, link in enumerate(image.links)
    ]
    if rows:
        with cursor.copy(_COPY_LINKS) as copy:
            copy.write("".join("\t".join(map(_copy_value, row)) + "\n" for row in rows))


def _targets_of(images: Sequence[MemoryImage]) -> dict[tuple[int, str], int]:
    """(project, target) -> the memory that links of these memories name, among themselves or stored before."""
    names = {(image.project_id, link.target) for image in images for link in image.links}
    found = targets_resolve(names)
    for image in images:
        if image.external_id:
            found.setdefault((image.project_id, image.external_id), image.id)
    return found


def targets_resolve(names: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """(project, external id or `#id`) -> the memory of that project; the oldest where several have the id."""
    wanted = list(names)
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        # Through memory_external_idx.
        cursor.execute(
            "SELECT memory.project_id, memory.external_id, min(memory.id) FROM memories_memory memory"
            " JOIN unnest(%s::bigint[], %s::text[]) AS named (project_id, external_id)"
            " ON memory.project_id = named.project_id AND memory.external_id = named.external_id"
            " WHERE memory.external_id <> '' GROUP BY 1, 2",
            [[project_id for project_id, _ in wanted], [name for _, name in wanted]],
        )
        found = {(project_id, external_id): memory_id for project_id, external_id, memory_id in cursor.fetchall()}
    numbers = {
        int(name[1:])
        for _, name in wanted
        if name[:1] == "#" and name[1:].isascii() and name[1:].isdigit() and len(name) < 19
    }
    if numbers:
        for memory_id, project_id in Memory.objects.filter(pk__in=numbers).values_list("id", "project_id"):
            found.setdefault((project_id, f"#{memory_id}"), memory_id)
    return found


def _superseded_by_link(image: MemoryImage, targets: Mapping[tuple[int, str], int]) -> MemoryImage:
    """The successor that a memory's record names, once it is known; a state that the record gives is kept."""
    if image.superseded_by_id is not None or image.raw is None:
        return image
    if not any(link.rel == SUPERSEDED_BY_REL for link in image.links):
        return image
    record = json.loads(image.raw)
    successor = clean_name(str(record.get("superseded_by") or ""))
    target = targets.get((image.project_id, successor))
    if target is None or target == image.id:
        return image
    return replace(
        image,
        superseded_by_id=target,
        state=image.state if record.get("state") else Memory.State.SUPERSEDED.value,
    )


def dangling_links_resolve(arrived: Mapping[tuple[int, str], int], viewer: Viewer) -> None:
    """Point the links that named these (project, external id) before they existed to them."""
    if not arrived:
        return
    with connection.cursor() as cursor:
        # Through memorylink_dangling_idx.
        cursor.execute(
            "SELECT link.memory_id, link.ordinal, link.rel, link.target, memory.project_id"
            " FROM memories_memorylink link JOIN memories_memory memory ON memory.id = link.memory_id"
            " WHERE link.target_memory_id IS NULL AND link.target = ANY(%s)",
            [list({name for _, name in arrived})],
        )
        found = [
            (memory_id, ordinal, rel, arrived[project_id, target])
            for memory_id, ordinal, rel, target, project_id in cursor.fetchall()
            if (project_id, target) in arrived
        ]
        if not found:
            return
        cursor.execute(
            "UPDATE memories_memorylink link SET target_memory_id = named.target_id"
            " FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[]) AS named (memory_id, ordinal, target_id)"
            " WHERE link.memory_id = named.memory_id AND link.ordinal = named.ordinal",
            [[row[0] for row in found], [row[1] for row in found], [row[3] for row in found]],
        )
    older = images_read({row[0] for row in found if row[2] == SUPERSEDED_BY_REL})
    if older:
        changes = [(image, _superseded_by_link(image, arrived)) for image in older.values()]
        with connection.cursor() as cursor:
            cursor.execute("SELECT DISTINCT batch_id FROM memories_memory WHERE id = ANY(%s)", [list(arrived.values())])
            batch_ids = {batch_id for (batch_id,) in cursor.fetchall()}
        batch_id = batch_ids.pop() if len(batch_ids) == 1 else None
        images_update([(before, after) for before, after in changes if before != after])
        for before, after in changes:
            if before != after and (batch_id is None or before.batch_id != batch_id):
                memory_audit(viewer, "supersede", before, after, batch_id=batch_id, note="Its successor arrived.")


def images_update(changes: Sequence[tuple[MemoryImage, MemoryImage]]) -> list[tuple[MemoryImage, MemoryImage]]:
    """Store what differs between each memory's image before and after; gives back what was stored."""
    targets = _targets_of([after for before, after in changes if before.links != after.links])
    changes = [(before, _superseded_by_link(after, targets)) for before, after in changes]
    changes = [(before, after) for before, after in changes if before != after]
    if not changes:
        return []
    lineages = category_lineages({ref.id for _, after in changes for ref in after.categories})
    languages = languages_of(after.project_id for _, after in changes)
    searched = [
        after for before, after in changes if any(getattr(before, name) != getattr(after, name) for name in _SEARCHED)
    ]
    texts = [memory_text(image, languages[image.project_id]) for image in searched]
    vectors = dict(zip((image.id for image in searched), memories_terms(texts), strict=True))
    with connection.cursor() as cursor:
        for before, after in changes:
            columns: dict[str, Any] = {
                name: _column(getattr(after, name))
                for name in _SCALARS
                if getattr(before, name) != getattr(after, name)
            }
            if before.title != after.title or before.content != after.content:
                columns["content_hash"] = content_hash_of(after.title, after.content)
            if after.id in vectors:
                columns["terms"] = vectors[after.id]
            if any(getattr(before, kind) != getattr(after, kind) for kind in _LINK_TABLES):
                columns.update(_link_columns(after, lineages))
            if columns:
                assignments = ", ".join(f"{name} = %s{_CASTS.get(name, '')}" for name in columns)
                cursor.execute(f"UPDATE memories_memory SET {assignments} WHERE id = %s", [*columns.values(), after.id])
        for kind, (table, column, _) in _LINK_TABLES.items():
            gone = [
                (old.id, ref) for old, new in changes for ref in getattr(old, kind) if ref not in getattr(new, kind)
            ]
            come = [
                (new.id, ref) for old, new in changes for ref in getattr(new, kind) if ref not in getattr(old, kind)
            ]
            if gone:
                cursor.execute(
                    f"DELETE FROM {table} WHERE (memory_id, {column}) IN"
                    " (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))",
                    [[memory_id for memory_id, _ in gone], [ref.id for _, ref in gone]],
                )
            _refs_copy(cursor, kind, _ref_lines(come))
        relinked = [after for before, after in changes if before.links != after.links]
        if relinked:
            cursor.execute("DELETE FROM memories_memorylink WHERE memory_id = ANY(%s)", [[i.id for i in relinked]])
            _links_copy(cursor, relinked, targets)
    return changes


_CASTS = {
    "terms": "::tsvector",
    "raw": "::jsonb",
    "tags": "::text[]",
    "authors": "::text[]",
    **dict.fromkeys(("category_ids", "category_path_ids", "concept_ids", "entity_ids"), "::integer[]"),
}


def image_as_json(image: MemoryImage, names: Iterable[str]) -> dict[str, object]:
    """Some fields of an image as an event keeps them."""
    shown: dict[str, object] = {}
    for name in names:
        value = getattr(image, name)
        if isinstance(value, datetime):
            value = value.isoformat()
        elif name in _LINK_TABLES:
            value = [[ref.id, ref.made_by, ref.weight] for ref in value]
        elif name == "links":
            value = [[link.rel, link.target, link.url] for link in value]
        elif isinstance(value, tuple):
            value = list(value)
        shown[name] = value
    return shown


def image_restored(image: MemoryImage, before: Mapping[str, Any]) -> MemoryImage:
    """The image with the fields that an event kept put back."""
    values: dict[str, Any] = {}
    for name, value in before.items():
        if name in _MOMENTS and value is not None:
            values[name] = datetime.fromisoformat(value)
        elif name in _LINK_TABLES:
            values[name] = tuple(Ref(*ref) for ref in value)
        elif name == "links":
            values[name] = tuple(NamedLink(*link) for link in value)
        elif name in _SCALARS:
            values[name] = tuple(value) if isinstance(value, list) else value
    return replace(image, **values)


def image_changes(before: MemoryImage, after: MemoryImage) -> list[str]:
    """The names of the fields that differ."""
    return [name for name in (*_SCALARS, *_LINKED) if getattr(before, name) != getattr(after, name)]


def memory_audit(
    viewer: Viewer,
    verb: str,
    before: MemoryImage | None,
    after: MemoryImage,
    *,
    batch_id: int | None = None,
    note: str = "",
) -> None:
    """Keep an event of a change to a memory: only what changed, before and after."""
    names = image_changes(before, after) if before else ["project_id", "title", "state"]
    AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb=verb,
        subject_type="memory",
        subject_id=after.id,
        before=image_as_json(before, names) if before else None,
        after=image_as_json(after, names),
        batch_id=batch_id,
        note=note,
    )


def batch_write_down(batch_id: int) -> None:
    """Write down for the derived index all memories that a batch has brought, as one entry: its number, below zero."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memories_outbox (memory_id, at) SELECT -%s, clock_timestamp() FROM memories_corpus"
            " WHERE id = 1 AND indexed",
            [batch_id],
        )


def outbox_stamp() -> None:
    """Say of all that this transaction has written down that it happened now: what took long is not late by that."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_outbox SET at = clock_timestamp() WHERE xmin = pg_current_xact_id()::xid")


def corpus_bump() -> None:
    """Say that something changed. It serialises writers, so it is the last statement of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_corpus SET revision = revision + 1 WHERE id = 1")
        if not cursor.rowcount:
            Corpus.objects.create(id=1, revision=1)

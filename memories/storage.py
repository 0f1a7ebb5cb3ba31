"""A memory as its tables hold it: read, inserted and updated whole, with its links and facet columns in step.

Decides nothing: who may write, and what, is the business of the services and the importers, which both end here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import connection

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import CategoryLink, ConceptLink, EntityLink
from categories.paths import clean_name
from categories.services import category_lineages
from memories.bulk_copy import (
    COPY_MEMORIES,
    LINK_TABLES,
    LINKED,
    SCALARS,
    InsertBlock,
    array_literal,
    copy_lines,
    link_columns,
    links_copy,
    ref_lines,
    refs_copy,
)
from memories.foreign_keys import lock_references
from memories.models import Corpus, Memory, MemoryLink, Project
from memories.records import SUPERSEDED_BY_REL
from memories.snapshot import MemorySnapshot, NamedLink, Ref, content_hash_of
from memories.terms import MemoryText, memories_terms

_MOMENTS = ("created_at", "happened_at", "updated_at", "valid_from", "valid_to")
# A change to one of these changes the terms.
_SEARCHED = frozenset({"title", "tags", "summary", "external_id", "links", "content"})


def memory_ids_draw(count: int) -> list[int]:
    """The next ids, in one block."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('memory_id_seq') FROM generate_series(1, %s)", [count])
        return [int(row[0]) for row in cursor.fetchall()]


def images_read(memory_ids: Iterable[int]) -> dict[int, MemorySnapshot]:
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
    images: dict[int, MemorySnapshot] = {}
    for stored in Memory.objects.filter(pk__in=wanted).values(*SCALARS):
        row: dict[str, Any] = dict(stored)
        memory_id = row["id"]
        row["tags"] = tuple(row["tags"])
        row["authors"] = tuple(row["authors"])
        row["raw"] = None if row["raw"] is None else json.dumps(row["raw"], ensure_ascii=False, sort_keys=True)
        row.update({kind: tuple(refs[kind].get(memory_id, ())) for kind in LINK_TABLES})
        images[memory_id] = MemorySnapshot(**row, links=tuple(links.get(memory_id, ())))
    return images


def memory_text(image: MemorySnapshot, language: str) -> MemoryText:
    """What of it is searched for words."""
    targets = tuple(link.target for link in image.links)
    return MemoryText(image.title, image.tags, image.summary, image.external_id, targets, image.content, language)


def languages_of(project_ids: Iterable[int]) -> dict[int, str]:
    return dict(Project.objects.filter(pk__in=set(project_ids)).values_list("id", "language"))


def images_insert(
    block: InsertBlock, viewer: Viewer, *, of_batch: bool = False, proven: dict[str, set[int]] | None = None
) -> None:
    """Store new memories, their links, and the links that others had to them before they came.

    `of_batch`: they are not written down for the derived index one by one; whoever calls this does that at the end,
    by `batch_write_down`. `proven` is for `lock_references`.
    """
    images, lines = block.images, block.lines
    targets = _targets_of(images)
    for at, image in enumerate(images):
        if image.links and (linked := _superseded_by_link(image, targets)) is not image:
            images[at] = linked
            lines[at : at + 1] = copy_lines([linked], [block.terms[at]], [block.hashes[at]], [block.columns[at]])
    with connection.cursor() as cursor, lock_references(cursor, block, proven):
        if of_batch:
            cursor.execute("SET LOCAL mnemoscope.batch = 'on'")
        with cursor.copy(COPY_MEMORIES) as copy:
            copy.write("".join(lines))
        if of_batch:
            cursor.execute("SET LOCAL mnemoscope.batch = 'off'")
        for kind, rows in block.refs.items():
            refs_copy(cursor, kind, rows)
        links_copy(cursor, images, targets)
    dangling_links_resolve(
        {(image.project_id, image.external_id): image.id for image in images if image.external_id}, viewer
    )


def _column(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _targets_of(images: Sequence[MemorySnapshot]) -> dict[tuple[int, str], int]:
    """(project, target) -> the memory that links of these memories name, among themselves or stored before."""
    names = {(image.project_id, link.target) for image in images if image.links for link in image.links}
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


def _superseded_by_link(image: MemorySnapshot, targets: Mapping[tuple[int, str], int]) -> MemorySnapshot:
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
            " WHERE link.target_memory_id IS NULL AND link.target = ANY(%s::text[])",
            [array_literal(list({name for _, name in arrived}))],
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
                memory_audit(
                    viewer, "supersede", before, after, batch_id=batch_id, note="Superseded by an imported memory."
                )


def images_update(
    changes: Sequence[tuple[MemorySnapshot, MemorySnapshot]],
) -> list[tuple[MemorySnapshot, MemorySnapshot]]:
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
                name: _column(getattr(after, name)) for name in SCALARS if getattr(before, name) != getattr(after, name)
            }
            if before.title != after.title or before.content != after.content:
                columns["content_hash"] = content_hash_of(after.title, after.content)
            if after.id in vectors:
                columns["terms"] = vectors[after.id]
            if any(getattr(before, kind) != getattr(after, kind) for kind in LINK_TABLES):
                columns.update(link_columns(after, lineages))
            if columns:
                assignments = ", ".join(f"{name} = %s{_CASTS.get(name, '')}" for name in columns)
                cursor.execute(f"UPDATE memories_memory SET {assignments} WHERE id = %s", [*columns.values(), after.id])
        for kind, (table, column, _) in LINK_TABLES.items():
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
            refs_copy(cursor, kind, ref_lines(come))
        relinked = [after for before, after in changes if before.links != after.links]
        if relinked:
            cursor.execute("DELETE FROM memories_memorylink WHERE memory_id = ANY(%s)", [[i.id for i in relinked]])
            links_copy(cursor, relinked, targets)
    return changes


_CASTS = {
    "terms": "::tsvector",
    "raw": "::jsonb",
    "tags": "::text[]",
    "authors": "::text[]",
    **dict.fromkeys(("category_ids", "category_path_ids", "concept_ids", "entity_ids"), "::integer[]"),
}


def image_as_json(image: MemorySnapshot, names: Iterable[str]) -> dict[str, object]:
    """Some fields of an image as an event keeps them."""
    shown: dict[str, object] = {}
    for name in names:
        value = getattr(image, name)
        if isinstance(value, datetime):
            value = value.isoformat()
        elif name in LINK_TABLES:
            value = [[ref.id, ref.made_by, ref.weight] for ref in value]
        elif name == "links":
            value = [[link.rel, link.target, link.url] for link in value]
        elif isinstance(value, tuple):
            value = list(value)
        shown[name] = value
    return shown


def image_restored(image: MemorySnapshot, before: Mapping[str, Any]) -> MemorySnapshot:
    """The image with the fields that an event kept put back."""
    values: dict[str, Any] = {}
    for name, value in before.items():
        if name in _MOMENTS and value is not None:
            values[name] = datetime.fromisoformat(value)
        elif name in LINK_TABLES:
            values[name] = tuple(Ref(*ref) for ref in value)
        elif name == "links":
            values[name] = tuple(NamedLink(*link) for link in value)
        elif name in SCALARS:
            values[name] = tuple(value) if isinstance(value, list) else value
    return replace(image, **values)


def image_changes(before: MemorySnapshot, after: MemorySnapshot) -> list[str]:
    """The names of the fields that differ."""
    return [name for name in (*SCALARS, *LINKED) if getattr(before, name) != getattr(after, name)]


def memory_audit(
    viewer: Viewer,
    verb: str,
    before: MemorySnapshot | None,
    after: MemorySnapshot,
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

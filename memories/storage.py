"""Read, insert and update whole memories, with their links and facet columns.

Permissions and validation are the task of the services and the importers, which both use this module.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import F, Min

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import CategoryLink, ConceptLink, EntityLink
from categories.paths import clean_name
from categories.services import category_lineages
from memories.changes import Kind, changes_record, kind_of_change
from memories.link_targets import (
    DanglingLink,
    dangling_links,
    names_of_snapshot,
    set_targets,
    targets_resolve,
)
from memories.marks import MARKED_FIELDS, mark_memories, memories_moved
from memories.models import Corpus, Memory, MemoryLink, Project, Session
from memories.properties import property_words
from memories.records import SUPERSEDED_BY_REL
from memories.snapshot import (
    COPY_MEMORIES,
    LINK_TABLES,
    LINKED,
    SCALARS,
    InsertBlock,
    MemorySnapshot,
    NamedLink,
    Ref,
    content_hash_of,
    copy_lines,
    link_columns,
    links_copy,
    ref_lines,
    refs_copy,
)
from memories.terms import MemoryText, memories_terms
from web.sql import execute, fetch

_MOMENTS = ("created_at", "happened_at", "updated_at", "valid_from", "valid_to")
# Fields whose change affects the terms.
_SEARCHED = frozenset({"project_id", "title", "tags", "summary", "external_id", "links", "content", "raw"})
# The number of new memories from which their references are checked together, and of sessions that are dated at once.
_MANY = 100


def memory_ids_draw(count: int) -> list[int]:
    """Draw new ids in one block."""
    return [int(row[0]) for row in fetch("SELECT nextval('memory_id_seq') FROM generate_series(1, %s)", [count])]


def snapshots_read(memory_ids: Iterable[int]) -> dict[int, MemorySnapshot]:
    """Memories as stored, by id, in five statements."""
    wanted = list(memory_ids)
    if not wanted:
        return {}
    refs: dict[tuple[str, int], list[Ref]] = defaultdict(list)
    for kind, model in (("categories", CategoryLink), ("concepts", ConceptLink), ("entities", EntityLink)):
        column = LINK_TABLES[kind][1]
        rows = model.objects.filter(memory_id__in=wanted).order_by("memory_id", column)
        for memory_id, target_id, made_by, weight in rows.values_list("memory_id", column, "made_by", "weight"):
            refs[kind, memory_id].append(Ref(target_id, made_by, weight))
    links: dict[int, list[NamedLink]] = defaultdict(list)
    named = MemoryLink.objects.filter(memory_id__in=wanted).order_by("memory_id", "ordinal")
    for memory_id, rel, target, url in named.values_list("memory_id", "rel", "target", "url"):
        links[memory_id].append(NamedLink(rel, target, url))
    snapshots: dict[int, MemorySnapshot] = {}
    for stored in Memory.objects.filter(pk__in=wanted).values(*SCALARS):
        row: dict[str, Any] = dict(stored)
        row |= {name: tuple(row[name]) for name in ("tags", "authors")}
        row["raw"] = None if row["raw"] is None else json.dumps(row["raw"], ensure_ascii=False, sort_keys=True)
        row |= {kind: tuple(refs[kind, row["id"]]) for kind in LINK_TABLES}
        snapshots[row["id"]] = MemorySnapshot(**row, links=tuple(links[row["id"]]))
    return snapshots


def memory_text(snapshot: MemorySnapshot, language: str) -> MemoryText:
    """The text of a memory to analyse."""
    return MemoryText(
        snapshot.title,
        snapshot.tags,
        snapshot.summary,
        snapshot.external_id,
        tuple(link.target for link in snapshot.links),
        snapshot.content,
        language,
        property_words(snapshot.raw),
    )


def languages_of(project_ids: Iterable[int]) -> dict[int, str]:
    return dict(Project.objects.filter(pk__in=set(project_ids)).values_list("id", "language"))


def snapshots_insert(block: InsertBlock, *, of_batch: bool = False, proven: dict[str, set[int]] | None = None) -> None:
    """Store new memories and their links. The caller finds the targets of those that name others, or them.

    `of_batch`: the outbox gets no entry for each memory; the caller adds one for the batch by `outbox_add_batch`.
    `proven` is for `lock_references`.
    """
    snapshots, lines = block.snapshots, block.lines
    targets = _targets_of(snapshots)
    for at, snapshot in enumerate(snapshots):
        if snapshot.links and (linked := _superseded_by_link(snapshot, targets)) is not snapshot:
            snapshots[at] = linked
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
        links_copy(cursor, snapshots, targets, {})
    mark_memories(snapshots, new=True)


@contextmanager
def lock_references(cursor: Any, block: InsertBlock, proven: dict[str, set[int]] | None = None) -> Iterator[None]:
    """Lock all referenced rows in one statement a table, so that Postgres need not check each reference.

    Checks row by row take a third of the time of the rows themselves. Only a superuser may skip them; for any other
    role, and if a referenced row is missing, Postgres checks as usual and reports the error. Triggers that must see
    every row are `ENABLE ALWAYS`. `proven` are rows that this transaction has locked already, by table; new ones are
    added.
    """
    if len(block.snapshots) < _MANY or not _may_skip_checks(cursor) or not _references_locked(cursor, block, proven):
        yield
        return
    cursor.execute("SET LOCAL session_replication_role = replica")
    try:
        yield
    except BaseException:
        # A failed transaction resets the setting itself.
        with suppress(DatabaseError):
            cursor.execute("SET LOCAL session_replication_role = origin")
        raise
    cursor.execute("SET LOCAL session_replication_role = origin")


def _may_skip_checks(cursor: Any) -> bool:
    """Whether this role may skip the checks, and the triggers of the outbox fire without them."""
    cursor.execute(
        "SELECT current_setting('is_superuser'), current_setting('session_replication_role'),"
        " (SELECT bool_and(tgenabled = 'A') FROM pg_trigger WHERE tgrelid = 'memories_memory'::regclass"
        " AND tgname LIKE 'memory_outbox_%%')"
    )
    # A cluster has no such triggers, and its shards check references themselves.
    return bool(cursor.fetchone() == ("on", "origin", True))


def _references_locked(cursor: Any, block: InsertBlock, proven: dict[str, set[int]] | None) -> bool:
    """Lock every referenced row against deletion. Returns False if a row is missing."""
    named: dict[str, set[int | None]] = {
        "memories_project": {snapshot.project_id for snapshot in block.snapshots},
        "memories_session": {snapshot.session_id for snapshot in block.snapshots},
        "memories_importbatch": {snapshot.batch_id for snapshot in block.snapshots},
        "categories_category": set().union(*[columns["category_ids"] for columns in block.columns]),
        "categories_concept": set().union(*[columns["concept_ids"] for columns in block.columns]),
        "categories_entity": set().union(*[columns["entity_ids"] for columns in block.columns]),
    }
    for table, ids in named.items():
        known = proven.setdefault(table, set()) if proven is not None else set()
        wanted = sorted(found for found in ids - known if found is not None)
        if wanted:
            cursor.execute(f"SELECT id FROM {table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE", [wanted])
            if len(cursor.fetchall()) != len(wanted):
                return False
            known.update(wanted)
    return True


def _column(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _targets_of(snapshots: Sequence[MemorySnapshot]) -> dict[tuple[int, str], int]:
    """(project, target) -> the memory that links of these memories point to, among themselves or stored before."""
    names = {(snapshot.project_id, link.target) for snapshot in snapshots if snapshot.links for link in snapshot.links}
    found = targets_resolve(names)
    for snapshot in snapshots:
        if snapshot.external_id:
            found.setdefault((snapshot.project_id, snapshot.external_id), snapshot.id)
    return found


def _superseded_by_link(snapshot: MemorySnapshot, targets: Mapping[tuple[int, str], int]) -> MemorySnapshot:
    """Apply the successor that a memory's record names, once it is stored. A state given by the record stays."""
    if snapshot.superseded_by_id is not None or snapshot.raw is None:
        return snapshot
    if not any(link.rel == SUPERSEDED_BY_REL for link in snapshot.links):
        return snapshot
    record = json.loads(snapshot.raw)
    successor = clean_name(str(record.get("superseded_by") or ""))
    target = targets.get((snapshot.project_id, successor))
    if target is None or target == snapshot.id:
        return snapshot
    return replace(
        snapshot,
        superseded_by_id=target,
        state=snapshot.state if record.get("state") else Memory.State.SUPERSEDED.value,
    )


def links_settle(memories: Sequence[MemorySnapshot], viewer: Viewer) -> None:
    """Find the targets of the links of memories, and of those that name these memories."""
    names = [name for memory in memories for name in names_of_snapshot(memory)]
    dangling_settle(dangling_links([memory.id for memory in memories if memory.links], names), viewer)


def dangling_settle(links: Sequence[DanglingLink], viewer: Viewer) -> None:
    """Find the targets of links. A memory whose successor is one of them is superseded."""
    found = set_targets(links, viewer)
    older = snapshots_read({link.memory_id for link in found if link.rel == SUPERSEDED_BY_REL})
    if not older:
        return
    arrived = {
        (older[link.memory_id].project_id, link.target): link.target_id for link in found if link.memory_id in older
    }
    changes = [(snapshot, _superseded_by_link(snapshot, arrived)) for snapshot in older.values()]
    batch_ids = set(Memory.objects.filter(pk__in=arrived.values()).values_list("batch_id", flat=True))
    batch_id = batch_ids.pop() if len(batch_ids) == 1 else None
    snapshots_update([(before, after) for before, after in changes if before != after])
    for before, after in changes:
        if before != after and (batch_id is None or before.batch_id != batch_id):
            memory_audit(
                viewer, "supersede", before, after, batch_id=batch_id, note="Superseded by an imported memory."
            )


Change = tuple[MemorySnapshot, MemorySnapshot]
"""A memory before and after a change."""


def snapshots_update(changes: Sequence[Change]) -> list[Change]:
    """Store the differences between the snapshots of each memory. Returns the changes as they are stored."""
    targets = _targets_of([after for before, after in changes if before.links != after.links])
    changes = [(before, _superseded_by_link(after, targets)) for before, after in changes]
    changes = [(before, after) for before, after in changes if before != after]
    if not changes:
        return []
    with connection.cursor() as cursor:
        _memories_update(cursor, changes)
        sessions_date(
            one.session_id
            for before, after in changes
            if (before.session_id, before.created_at) != (after.session_id, after.created_at)
            for one in (before, after)
        )
        if moved := [after.id for before, after in changes if before.created_at != after.created_at]:
            # The index holds when each memory ceased to be valid: when its successor was created.
            cursor.execute(
                "UPDATE memories_memory SET superseded_by_id = superseded_by_id WHERE superseded_by_id = ANY(%s)",
                [moved],
            )
        for kind in LINK_TABLES:
            _refs_update(cursor, kind, changes)
        if relinked := [after for before, after in changes if before.links != after.links]:
            # A name that a link has found stays found, such as the title of a note.
            found = _found_targets(relinked)
            cursor.execute("DELETE FROM memories_memorylink WHERE memory_id = ANY(%s)", [[one.id for one in relinked]])
            links_copy(cursor, relinked, targets, found)
    if looked_at := [after for before, after in changes if not MARKED_FIELDS.isdisjoint(changed_fields(before, after))]:
        mark_memories(looked_at)
    if moved := [after.id for before, after in changes if before.project_id != after.project_id]:
        memories_moved.send(Memory, memory_ids=moved)
    return changes


def _found_targets(snapshots: Sequence[MemorySnapshot]) -> dict[tuple[int, str], int]:
    """(memory, target) -> the memory that the links of memories point to, as they are stored."""
    ids = [snapshot.id for snapshot in snapshots]
    links = MemoryLink.objects.filter(memory_id__in=ids, target_memory__isnull=False)
    rows = links.values_list("memory_id", "target", "target_memory_id")
    return {(memory_id, target): found for memory_id, target, found in rows}


def sessions_date(session_ids: Iterable[int | None]) -> None:
    """Set when sessions began by the earliest of their memories, some of which were changed or removed.

    Reads first: an update joined with memories is refused where those are on several nodes.
    """
    wanted = sorted({pk for pk in session_ids if pk is not None})
    for start in range(0, len(wanted), _MANY):
        sessions = Session.objects.in_bulk(wanted[start : start + _MANY])
        # Uses memory_session_idx.
        dates = Memory.objects.filter(session_id__in=sessions).order_by().values_list("session_id")
        firsts = dict(dates.annotate(Min("created_at")))
        moved = [pk for pk, session in sessions.items() if session.first_at != firsts.get(pk)]
        for pk in moved:
            sessions[pk].first_at = firsts.get(pk)
        Session.objects.bulk_update([sessions[pk] for pk in moved], ["first_at"])


def _memories_update(cursor: Any, changes: Sequence[Change]) -> None:
    lineages = category_lineages({ref.id for _, after in changes for ref in after.categories})
    languages = languages_of(after.project_id for _, after in changes)
    searched = [after for before, after in changes if not _SEARCHED.isdisjoint(changed_fields(before, after))]
    texts = [memory_text(snapshot, languages[snapshot.project_id]) for snapshot in searched]
    terms = dict(zip((snapshot.id for snapshot in searched), memories_terms(texts), strict=True))
    for before, after in changes:
        changed = changed_fields(before, after)
        columns: dict[str, Any] = {name: _column(getattr(after, name)) for name in changed if name in SCALARS}
        if "title" in changed or "content" in changed:
            columns["content_hash"] = content_hash_of(after.title, after.content)
        if after.id in terms:
            columns["terms"] = terms[after.id]
        if not LINK_TABLES.keys().isdisjoint(changed):
            columns.update(link_columns(after, lineages))
        if columns:
            assignments = ", ".join(f"{name} = %s{_CASTS.get(name, '')}" for name in columns)
            cursor.execute(f"UPDATE memories_memory SET {assignments} WHERE id = %s", [*columns.values(), after.id])


def _refs_update(cursor: Any, kind: str, changes: Sequence[Change]) -> None:
    """Remove and add the rows of one link table."""
    table, column, _ = LINK_TABLES[kind]
    removed = [(old.id, ref) for old, new in changes for ref in getattr(old, kind) if ref not in getattr(new, kind)]
    added = [(new.id, ref) for old, new in changes for ref in getattr(new, kind) if ref not in getattr(old, kind)]
    if removed:
        cursor.execute(
            f"DELETE FROM {table} WHERE (memory_id, {column}) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))",
            [[memory_id for memory_id, _ in removed], [ref.id for _, ref in removed]],
        )
    refs_copy(cursor, kind, ref_lines(added))


_CASTS = {
    "terms": "::tsvector",
    "raw": "::jsonb",
    "tags": "::text[]",
    "authors": "::text[]",
    **dict.fromkeys(("category_ids", "category_path_ids", "concept_ids", "entity_ids"), "::integer[]"),
}


def snapshot_as_json(snapshot: MemorySnapshot, names: Iterable[str]) -> dict[str, object]:
    """Fields of a snapshot for an audit event."""
    shown: dict[str, object] = {}
    for name in names:
        value = getattr(snapshot, name)
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


def snapshot_restored(snapshot: MemorySnapshot, before: Mapping[str, Any]) -> MemorySnapshot:
    """The snapshot with the fields of an audit event restored."""
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
    return replace(snapshot, **values)


def changed_fields(before: MemorySnapshot, after: MemorySnapshot) -> list[str]:
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
    """Record a change to a memory: the changed fields, before and after."""
    event = memory_event(viewer, verb, before, after, batch_id=batch_id, note=note)
    event.save()
    entries = [(event, after.project_id, kind_of_change(before, after, event.after or ()))]
    if before and before.project_id != after.project_id:
        # Readers of the project that it left see it no longer.
        entries.insert(0, (event, before.project_id, Kind.DELETED))
    changes_record(entries)


def memories_audit(viewer: Viewer, verb: str, changes: Sequence[Change], *, batch_id: int) -> None:
    """Record the changes of many memories by a batch."""
    events = [memory_event(viewer, verb, before, after, batch_id=batch_id) for before, after in changes]
    AuditEvent.objects.bulk_create(events, batch_size=500)
    entries: list[tuple[AuditEvent, int, Kind]] = []
    for event, (before, after) in zip(events, changes, strict=True):
        if before.project_id != after.project_id:
            # Readers of the project that it left see it no longer.
            entries.append((event, before.project_id, Kind.DELETED))
        entries.append((event, after.project_id, kind_of_change(before, after, event.after or ())))
    changes_record(entries)


def memory_event(
    viewer: Viewer,
    verb: str,
    before: MemorySnapshot | None,
    after: MemorySnapshot,
    *,
    batch_id: int | None = None,
    note: str = "",
) -> AuditEvent:
    """An unsaved event of a change to a memory."""
    of_new = ["project_id", "title", "state", *(["pinned"] if after.pinned else [])]
    names = changed_fields(before, after) if before else of_new
    return AuditEvent(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb=verb,
        subject_type="memory",
        subject_id=after.id,
        before=snapshot_as_json(before, names) if before else None,
        after=snapshot_as_json(after, names),
        batch_id=batch_id,
        note=note,
    )


def outbox_add_batch(batch_id: int) -> None:
    """Add one outbox entry for all memories of a batch: its id, negated."""
    execute(
        "INSERT INTO memories_outbox (memory_id, at) SELECT -%s, clock_timestamp() FROM memories_corpus"
        " WHERE id = 1 AND indexed",
        [batch_id],
    )


# Rows that are visible while their transaction is in progress are this transaction's own, also those of its savepoints,
# whose ids are higher than its own. The age of a row's id is relative to that.
_STAMP = """
UPDATE memories_outbox SET at = clock_timestamp() FROM (SELECT pg_current_xact_id()::text::bigint AS id) own
WHERE CASE WHEN age(memories_outbox.xmin) <= 0
  THEN pg_xact_status((own.id - age(memories_outbox.xmin))::text::xid8) = 'in progress' END"""


def outbox_stamp() -> None:
    """Set the time of this transaction's outbox entries to now, so that a long transaction is no delay."""
    execute(_STAMP)


# Within `one_revision`: whether a service has asked for a new revision.
_asked: ContextVar[list[bool] | None] = ContextVar("asked", default=None)


@contextmanager
def one_revision() -> Iterator[None]:
    """A transaction whose services together raise the revision once, at its end.

    A writer that has raised it must wait for no other row: other writers may hold that row and wait for the revision.
    """
    if _asked.get() is not None:
        with transaction.atomic():
            yield
        return
    with transaction.atomic():
        asked: list[bool] = []
        token = _asked.set(asked)
        try:
            yield
        finally:
            _asked.reset(token)
        if asked:
            corpus_bump()


def corpus_bump() -> None:
    """Raise the revision of the corpus. This serialises writers, so it is the last statement of a transaction."""
    if (asked := _asked.get()) is not None:
        asked.append(True)
        return
    if not Corpus.objects.filter(pk=1).update(revision=F("revision") + 1):
        Corpus.objects.create(id=1, revision=1)
    # memorychange_open_idx: the entries of this transaction. Others are not visible before they have a revision.
    execute(
        "UPDATE access_memorychange SET revision = corpus.revision, at = statement_timestamp()"
        " FROM memories_corpus corpus WHERE corpus.id = 1 AND access_memorychange.revision IS NULL"
    )

"""Write records in blocks: validated, matched with stored ones, analysed and copied.

Everything runs within a single transaction opened by the caller: after any error nothing is written.
"""

import gc
import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db import connection
from django.utils import timezone
from pydantic import ValidationError

from access.viewer import Viewer
from categories.models import LocalText, MadeBy
from categories.services import VOCABULARY_LOCK, Vocabulary
from memories.bulk_copy import InsertBlock, array_literal, insert_block
from memories.importers.analysers import Analysers, analysers
from memories.importers.base import Reading, RefusedRecord, SourceRecord
from memories.importers.copies import copied, numbers_settle
from memories.importers.run import ANALYZE_FROM, ImportCounts, ImportRun, IndexSink, WriteOptions, projects_ensure
from memories.importers.vocabulary import deferred_write, vocabulary_record_write
from memories.models import Memory
from memories.records import STORABLE, SUPERSEDED_BY_REL, MemoryRecord, derived_title, unstorable
from memories.resolve import RecordNames, names_ensure, names_of, record_snapshot, sessions_ensure
from memories.services import DEFAULT_PROJECT
from memories.snapshot import MemorySnapshot, NamedLink, content_hash_of
from memories.storage import (
    changed_fields,
    memories_audit,
    memory_text,
    outbox_add_batch,
    snapshots_insert,
    snapshots_read,
    snapshots_update,
    targets_resolve,
)
from memories.vocabulary_records import is_vocabulary
from web.validation import reasons

BLOCK = 4_000
# Blocks of long texts end after this many characters: several blocks are in memory at a time.
BLOCK_SIZE = 16_000_000
# Blocks that are analysed while the next are read and the previous are written.
AHEAD = 3
# Imports wait for each other, so that none misses the rows of another.
IMPORT_LOCK = 0x6D6E656D6F
# The columns that statements select by; analysing the long texts would cost as much as all of these.
_LOOKED_UP = (
    "memories_memory (id, project_id, external_id, content_hash),"
    " memories_memorylink (memory_id, target, target_memory_id),"
    " categories_category, categories_entity (id, name, entity_type), categories_concept (id, name)"
)
_SEARCHED = (
    "memories_memory (id, project_id, memory_type, tags, state, authors, agent, session_id, source, external_id,"
    " created_at, content_hash, batch_id, superseded_by_id, terms, category_ids, category_path_ids, concept_ids,"
    " entity_ids), memories_memorylink, memories_session, categories_category, categories_categorylink,"
    " categories_concept, categories_conceptlink, categories_entity, categories_entitylink"
)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode


class Incoming(NamedTuple):
    """A valid record with what it is known by. `raw` is its canonical JSON text."""

    location: str
    record: MemoryRecord
    raw: str
    record_hash: str
    title: str
    content_hash: str
    volatile: frozenset[str]
    notes: tuple[str, ...]
    stored: Mapping[str, Any] | None


# The project id, whether the record has an id, and the id or the hash of its text.
Key = tuple[int, bool, str]

# The items of a block: memories, vocabulary records, and unreadable records.
Item = Incoming | SourceRecord | RefusedRecord


class Block(NamedTuple):
    """A part of the source in order, and all names in its records."""

    items: list[Item]
    names: RecordNames
    fraction: float | None
    """The share of the source read so far; None if unknown."""


def records_write(
    *,
    reading: Reading,
    viewer: Viewer,
    batch_id: int,
    options: WriteOptions,
    refuse: Callable[[str, str], None],
    progress: Callable[[ImportCounts, float | None], None],
    sink: IndexSink | None = None,
) -> ImportCounts:
    """Import all records of a source. Call it in a transaction, and bump the corpus afterwards."""
    run = ImportRun(viewer, batch_id, options, refuse, timezone.now(), Vocabulary(viewer, batch_id), sink=sink)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [VOCABULARY_LOCK])
        # Pending entries of GIN indexes are merged using this much memory.
        cursor.execute("SET LOCAL work_mem = '64MB'")
        # Check foreign keys with each block, not at the end: parents always come first.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    waiting: deque[tuple[Future[InsertBlock], bool]] = deque()
    with ExitStack() as stack:
        stack.enter_context(_tuned_interpreter())
        if sink:
            stack.callback(sink.close)
        pool = stack.enter_context(analysers())
        builder, writer = (stack.enter_context(_thread(f"import-{name}")) for name in ("builder", "writer"))
        for block in stack.enter_context(_blocks(reading)):
            run.met += len(block.items)
            built: Future[_Built] | None = None
            unknown, changed = _block_match(run, block)
            # Before looking up names: the process of the sink takes a second to start.
            staged = bool(unknown) and _goes_into_index(run, len(unknown) / len(block.items), block.fraction)
            if new := _names_settle(run, block, unknown, changed):
                built = builder.submit(_built, run, new, sink if staged and sink else pool)
                waiting.append((writer.submit(_ready, built, run.vocabulary.lineages), staged))
            # One in, one out: the analysers always have another block waiting.
            if len(waiting) >= AHEAD:
                _block_insert(run, *waiting.popleft())
            # Names must be resolved with the vocabulary of their own block: the next block may change it.
            if built:
                built.result()
            progress(run.tally, block.fraction)
        while waiting:
            _block_insert(run, *waiting.popleft())
            progress(run.tally, 1.0)
        if sink:
            sink.end()
        deferred_write(run)
        _supersede_named(run)
        if run.tally.created:
            outbox_add_batch(batch_id)
        # Also for the foreign key checks at commit, which are planned once: for empty tables they would use any index.
        if run.tally.created + run.tally.updated >= ANALYZE_FROM // 10:
            _analyze(_SEARCHED)
        if sink:
            sink.finish()
    run.tally.made = dict(run.vocabulary.made)
    return run.tally


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    """Tune the interpreter for many records and threads that wait for the database, and restore it."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    # Collections scan all objects after this many new ones: there are many records, and none has cycles.
    gc.set_threshold(200_000, *thresholds[1:])
    # Continue at once after an answer of the database, not after five milliseconds of another thread.
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@contextmanager
def _blocks(reading: Reading) -> Iterator[Iterator[Block]]:
    """The source in blocks, read and validated by another thread while this one waits for the database."""

    def following() -> Block | None:
        items: list[Item] = []
        size = 0
        for found in reading.records:
            items.append(_read(found))
            size += _size(items[-1])
            if len(items) == BLOCK or size > BLOCK_SIZE:
                break
        if not items:
            return None
        names = names_of([item.record for item in items if isinstance(item, Incoming)])
        return Block(items, names, reading.fraction())

    def blocks(thread: ThreadPoolExecutor) -> Iterator[Block]:
        coming = deque(thread.submit(following) for _ in range(AHEAD))
        while block := coming.popleft().result():
            coming.append(thread.submit(following))
            yield block

    with _thread("import-reader") as thread:
        yield blocks(thread)


@contextmanager
def _thread(name: str) -> Iterator[ThreadPoolExecutor]:
    """A thread that works while this one waits for the database. Its queue is cancelled at the end."""
    thread = ThreadPoolExecutor(1, name)
    try:
        yield thread
    finally:
        thread.shutdown(wait=True, cancel_futures=True)


def _size(item: Item) -> int:
    return len(item.record.content) + len(item.raw) if isinstance(item, Incoming) else 0


def _read(item: SourceRecord | RefusedRecord) -> Item:
    return item if isinstance(item, RefusedRecord) or is_vocabulary(item.data) else _validated(item)


def _goes_into_index(run: ImportRun, share: float, fraction: float | None) -> bool:
    """Whether the sink takes this block and the following ones, by an estimate of new memories still to come.

    The estimate assumes the share of new memories of this block, and as much again as was read if the size is unknown.
    """
    expected = run.met / fraction if fraction else 2 * run.met
    return run.sink is not None and run.sink.is_open(share * (expected - run.met + BLOCK))


@dataclass(frozen=True, slots=True)
class _Built:
    """New memories of a block, and their terms, made by another process."""

    snapshots: list[MemorySnapshot]
    hashes: list[str]
    terms: "Future[list[str]]"


def _built(run: ImportRun, new: list[tuple[Incoming, int]], analyser: Analysers | IndexSink) -> _Built:
    language = {project.id: project.language for project in run.projects.values()}
    snapshots = [_image(run, one, memory_id) for one, memory_id in new]
    texts = [memory_text(snapshot, language[snapshot.project_id]) for snapshot in snapshots]
    terms = analyser.submit([snapshot.id for snapshot in snapshots], texts)
    return _Built(snapshots, [one.content_hash for one, _ in new], terms)


def _ready(built: "Future[_Built]", lineages: Mapping[int, tuple[int, ...]]) -> InsertBlock:
    block = built.result()
    return insert_block(block.snapshots, block.terms.result(), block.hashes, lineages)


def _block_insert(run: ImportRun, ready: "Future[InsertBlock]", staged: bool) -> None:
    block = ready.result()
    snapshots_insert(block, run.viewer, of_batch=True, proven=run.proven)
    if staged and run.sink:
        run.sink.confirm(block)
    run.tally.created += len(block.snapshots)
    if run.tally.created >= run.analyze_at:
        run.analyze_at *= 16
        _analyze(_LOOKED_UP)


def _analyze(tables: str) -> None:
    """Update the planner's statistics, including this transaction's rows, until autovacuum does."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL default_statistics_target = 25")
        cursor.execute(f"ANALYZE {tables}")


def _block_match(run: ImportRun, block: Block) -> tuple[list[Incoming], list[tuple[Incoming, int]]]:
    """The new memories of a block, and the changed ones with the ids of their memories. Others are only counted."""
    incoming: list[Incoming] = []
    for item in block.items:
        match item:
            case Incoming():
                incoming.append(item)
            case RefusedRecord():
                run.refused(item.location, item.reason)
            case SourceRecord():
                vocabulary_record_write(run, item)
    run.tally.valid += len(incoming)
    projects_ensure(run, {_project_of(run, one.record) for one in incoming})
    keyed = [(_key_of(run, one), one) for one in incoming if _may_write(run, one)]
    return _compared(run, [(key, one) for key, one in keyed if _is_first(run, key, one)])


def _names_settle(
    run: ImportRun, block: Block, new: list[Incoming], changed: list[tuple[Incoming, int]]
) -> list[tuple[Incoming, int]]:
    """Make or match all names and update changed memories. Returns the new ones with their ids."""
    written = [*new, *(one for one, _ in changed)]
    for one in written:
        for note in one.notes:
            run.note(one.location, note)
    names = block.names
    if len(written) < len(block.items):
        # Make no names for records that are refused or unchanged.
        kept = set(map(id, written))
        names = names_of([one.record for one in block.items if isinstance(one, Incoming) and id(one) in kept])
    if LocalText.objects.exists():
        # A name may mean another term in some projects.
        by_project: dict[int, list[MemoryRecord]] = {}
        for one in written:
            by_project.setdefault(run.projects[_project_of(run, one.record)].id, []).append(one.record)
        for project_id, records in by_project.items():
            run.vocabulary.project_id = project_id
            names_ensure(names_of(records), run.vocabulary)
        run.vocabulary.project_id = None
    else:
        names_ensure(names, run.vocabulary)
    _sessions_ensure(run, written)
    _changed_update(run, changed)
    return list(zip(new, numbers_settle(run, [one.stored for one in new]), strict=True)) if new else []


def _validated(found: SourceRecord) -> Incoming | RefusedRecord:
    # The text is most of a record: store it once, in its own column.
    text_key = next((name for name in ("content", "text", "body") if isinstance(found.data.get(name), str)), "")
    text = found.data.get(text_key, "")
    try:
        raw = _CANONICAL({name: value for name, value in found.data.items() if name != text_key})
        raw_bytes, text_bytes = raw.encode(), text.encode()
    except (ValueError, RecursionError):
        return RefusedRecord(found.location, _unstorable(found.data) or "cannot be stored as JSON")
    if ("\0" in text or "\\u0000" in raw) and (reason := _unstorable(found.data)):
        return RefusedRecord(found.location, reason)
    try:
        record = MemoryRecord.model_validate(found.data, context=STORABLE)
    except ValidationError as error:
        return RefusedRecord(found.location, "; ".join(reasons(error, MemoryRecord)))
    title = record.title or derived_title(record.content)
    known_by = _lasting(found.data, found.volatile | {text_key}) if found.volatile else raw_bytes
    if found.raw is not None:
        try:
            raw = _CANONICAL(found.raw)
            raw.encode()
            known_by += b"\0" + _lasting(found.raw, found.volatile_raw)
        except (ValueError, RecursionError):
            return RefusedRecord(found.location, _unstorable(found.raw) or "cannot be stored as JSON")
        if "\\u0000" in raw and (reason := _unstorable(found.raw)):
            return RefusedRecord(found.location, reason)
    return Incoming(
        found.location,
        record,
        raw,
        hashlib.sha256(known_by + b"\0" + text_bytes).hexdigest()[:32],
        title,
        content_hash_of(title, record.content),
        found.volatile,
        found.notes,
        found.stored,
    )


def _lasting(data: Mapping[str, Any], volatile: Collection[str]) -> bytes:
    """The fields by which a record is known again, as canonical JSON. Raises ValueError for what is no UTF-8."""
    return _CANONICAL({name: value for name, value in data.items() if name not in volatile}).encode()


def _unstorable(data: Mapping[str, Any]) -> str:
    try:
        return unstorable(data)
    except RecursionError:
        return "is nested too deeply"


def _project_of(run: ImportRun, record: MemoryRecord) -> str:
    return record.project or run.options.project or DEFAULT_PROJECT


def _may_write(run: ImportRun, one: Incoming) -> bool:
    slug = _project_of(run, one.record)
    project = run.projects.get(slug)
    if project is not None and run.viewer.may_write(project.id):
        return True
    run.refused(one.location, f"project: you cannot write to {slug!r}")
    return False


def _key_of(run: ImportRun, one: Incoming) -> Key:
    """The identity of a memory: its id within its project, else its text."""
    project_id = run.projects[_project_of(run, one.record)].id
    return (project_id, bool(one.record.id), one.record.id or one.content_hash)


def _is_first(run: ImportRun, key: Key, one: Incoming) -> bool:
    key_hash, record_hash = hash(key), hash(one.record_hash)
    if (earlier := run.record_hashes.get(key_hash)) is None:
        run.record_hashes[key_hash] = record_hash
        run.used.add(key[0])
        return True
    if earlier == record_hash:
        run.tally.unchanged += 1
    elif one.record.id:
        run.refused(one.location, f"id: {one.record.id!r} is earlier in this import with other content")
    else:
        run.refused(one.location, "is earlier in this import with the same text; give each an id to keep both")
    return False


def _compared(
    run: ImportRun, incoming: list[tuple[Key, Incoming]]
) -> tuple[list[Incoming], list[tuple[Incoming, int]]]:
    """The new memories, and the changed ones with the ids of the memories that they change."""
    stored = _stored([key for key, _ in incoming])
    new: list[Incoming] = []
    changed: list[tuple[Incoming, int]] = []
    for key, one in incoming:
        known = stored.get(key)
        if known is None:
            new.append(one)
        elif one.stored is None and known[1] == one.record_hash:
            run.tally.unchanged += 1
        else:
            changed.append((one, known[0]))
    if changed and not run.options.overwrite:
        # A copy from an export has no hash to compare; whether it differs from its memory shows when that is read.
        edited = _edited_since_import([memory_id for one, memory_id in changed if one.stored is None])
        for one, memory_id in changed:
            if memory_id in edited:
                _refuse_edited(run, one, memory_id, edited[memory_id])
        changed = [(one, memory_id) for one, memory_id in changed if memory_id not in edited]
    return new, changed


def _refuse_edited(run: ImportRun, one: Incoming, memory_id: int, edit: str) -> None:
    run.refused(
        one.location,
        f"#{memory_id} was edited since it was imported, {edit}; --overwrite takes the record of the file instead",
    )


def _stored(wanted: Sequence[Key]) -> dict[Key, tuple[int, str]]:
    """The id and record hash stored under each key; the oldest if there are several."""
    stored: dict[Key, tuple[int, str]] = {}
    for column, named in (("external_id", True), ("content_hash", False)):
        keys = [key for key in wanted if key[1] is named]
        if not keys:
            continue
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT project_id, {column}, id, record_hash FROM memories_memory"
                f" WHERE project_id = ANY(%s) AND {column} = ANY(%s::text[]) ORDER BY id DESC",
                [list({key[0] for key in keys}), array_literal([key[2] for key in keys])],
            )
            for project_id, name, memory_id, record_hash in cursor.fetchall():
                stored[project_id, named, name] = (memory_id, record_hash)
    return stored


def _edited_since_import(memory_ids: Sequence[int]) -> dict[int, str]:
    """Memories edited after their last import, and a description of the edit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (subject_id) subject_id, door, at FROM access_auditevent edit"
            " WHERE subject_type = 'memory' AND subject_id = ANY(%s) AND batch_id IS NULL AND id > coalesce(("
            "SELECT max(id) FROM access_auditevent import WHERE import.subject_type = 'memory'"
            " AND import.subject_id = edit.subject_id AND import.batch_id IS NOT NULL), 0)"
            " ORDER BY subject_id, id DESC",
            [list(memory_ids)],
        )
        return {
            memory_id: f"by {_DOORS.get(door, door)} on {at:%Y-%m-%d %H:%M} UTC"
            for memory_id, door, at in cursor.fetchall()
        }


_DOORS = {"page": "the page", "api": "the API", "mcp": "an agent", "admin": "the admin", "command": "a command"}


def _sessions_ensure(run: ImportRun, incoming: list[Incoming]) -> None:
    sessions: dict[tuple[int, str], str] = {}
    for one in incoming:
        if one.record.session:
            key = (run.projects[_project_of(run, one.record)].id, one.record.session)
            if key not in run.sessions:
                sessions.setdefault(key, one.record.agent)
    if sessions:
        run.sessions.update(sessions_ensure(sessions, run.vocabulary))


def _image(run: ImportRun, one: Incoming, memory_id: int) -> MemorySnapshot:
    record = one.record
    project_id = run.projects[_project_of(run, record)].id
    if record.supersedes:
        run.superseding.append((one.location, memory_id, project_id, record.supersedes))
    snapshot = record_snapshot(
        record=record,
        memory_id=memory_id,
        project_id=project_id,
        session_id=run.sessions[project_id, record.session] if record.session else None,
        vocabulary=run.vocabulary,
        made_by=MadeBy.IMPORT,
        now=run.now,
        raw=one.raw,
        record_hash=one.record_hash,
        title=one.title,
    )
    return snapshot if one.stored is None else copied(snapshot, one.stored, run.vocabulary)


def _successors(snapshot: MemorySnapshot) -> set[NamedLink]:
    return {link for link in snapshot.links if link.rel == SUPERSEDED_BY_REL}


def _supersede_named(run: ImportRun) -> None:
    """Mark the memories that records supersede, now that all are stored. Others keep their states and successors."""
    found = targets_resolve((project_id, name) for _, _, project_id, names in run.superseding for name in names)
    successors: dict[int, int] = {}
    for location, memory_id, project_id, names in run.superseding:
        for name in names:
            older = found.get((project_id, name))
            if older is None or older == memory_id:
                note = f"supersedes: {name!r} is not another memory of its project; left out"
                run.tally.notes.append((location, note))
            else:
                successors[older] = memory_id
    changes = [
        (old, replace(old, state="superseded", superseded_by_id=successors[old.id], updated_at=run.now))
        for old in snapshots_read(successors).values()
        if old.state in (Memory.State.ACTIVE, Memory.State.PROPOSED) and old.superseded_by_id is None
    ]
    memories_audit(run.viewer, "supersede", snapshots_update(changes), batch_id=run.batch_id)


def _changed_update(run: ImportRun, changed: list[tuple[Incoming, int]]) -> None:
    before = snapshots_read(memory_id for _, memory_id in changed)
    copies = [] if run.options.overwrite else [memory_id for one, memory_id in changed if one.stored is not None]
    edited = _edited_since_import(copies) if copies else {}
    changes: list[tuple[MemorySnapshot, MemorySnapshot]] = []
    for one, memory_id in changed:
        old = before[memory_id]
        new = _image(run, one, memory_id)
        names_same_successor = _successors(old) == _successors(new)
        given = one.record.created_at or one.record.happened_at
        new = replace(
            new,
            batch_id=old.batch_id,
            state=one.record.state or (old.state if names_same_successor else Memory.State.ACTIVE.value),
            state_reason=old.state_reason if one.stored is None else new.state_reason,
            superseded_by_id=new.superseded_by_id or (old.superseded_by_id if names_same_successor else None),
            created_at=old.created_at if "created_at" in one.volatile else given or old.created_at,
            updated_at=one.record.updated_at or run.now,
            external_id=old.external_id or new.external_id,
        )
        if memory_id in edited and changed_fields(old, new):
            _refuse_edited(run, one, memory_id, edited[memory_id])
        else:
            changes.append((old, new))
    compared = len(changes)
    changes = snapshots_update(changes)
    # A copy from an export is compared with the memory itself, not by its hash.
    run.tally.unchanged += compared - len(changes)
    memories_audit(run.viewer, "import", changes, batch_id=run.batch_id)
    run.tally.updated += len(changes)

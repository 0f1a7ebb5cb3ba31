"""Write records in blocks: validated, matched with stored ones, analysed and copied.

Everything runs within a single transaction opened by the caller: after any error nothing is written.
"""

import gc
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from django.db import connection
from django.utils import timezone

from access.viewer import Viewer
from categories.models import LocalText, MadeBy
from categories.services import Vocabulary, vocabulary_lock_shared
from memories.analysers import Analysers, analysers
from memories.bulk_copy import InsertBlock, insert_block
from memories.models import Memory
from memories.records import SUPERSEDED_BY_REL, MemoryRecord
from memories.resolve import SessionUse, names_ensure, names_of, record_snapshot, sessions_ensure
from memories.snapshot import MemorySnapshot, NamedLink
from memories.storage import (
    changed_fields,
    memories_audit,
    memory_text,
    outbox_add_batch,
    sessions_date,
    snapshots_insert,
    snapshots_read,
    snapshots_update,
    targets_resolve,
)
from transfer import blocks
from transfer.blocks import AHEAD, Block, Incoming, blocks_read, one_thread
from transfer.copies import copied, number_remember, numbers_settle
from transfer.formats.base import Reading
from transfer.match import block_match, edited_since_import, project_of, refuse_edited, settled
from transfer.rows import Row, rows_finish, rows_write
from transfer.state import (
    ANALYZE_FROM,
    ImportCounts,
    ImportObserver,
    ImportRun,
    IndexSink,
    WriteOptions,
)
from transfer.vocabulary import deferred_write
from web.distribution import is_distributed

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


def records_write(
    *,
    reading: Reading,
    viewer: Viewer,
    batch_id: int,
    options: WriteOptions,
    refuse: Callable[[str, str], None],
    progress: Callable[[ImportCounts, float | None], None],
    sink: IndexSink | None = None,
    observer: ImportObserver | None = None,
) -> ImportCounts:
    """Import all records of a source. Call it in a transaction, and bump the corpus afterwards."""
    run = ImportRun(
        viewer, batch_id, options, refuse, timezone.now(), Vocabulary(viewer, batch_id), observer=observer, sink=sink
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        vocabulary_lock_shared(seconds=math.inf)
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
        builder, writer = (stack.enter_context(one_thread(f"import-{name}")) for name in ("builder", "writer"))
        for block in stack.enter_context(blocks_read(reading)):
            run.met += len(block.items)
            if rows := [item for item in block.items if isinstance(item, Row)]:
                # They refer to memories before them.
                while waiting:
                    _block_insert(run, *waiting.popleft())
                rows_write(run, rows)
                progress(run.tally, block.fraction)
                continue
            built: Future[_Built] | None = None
            unknown, changed = block_match(run, block)
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
        rows_finish(run)
        _supersede_named(run)
        sessions_date(run.changed_sessions)
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


def _goes_into_index(run: ImportRun, share: float, fraction: float | None) -> bool:
    """Whether the sink takes this block and the following ones, by an estimate of new memories still to come.

    The estimate assumes the share of new memories of this block, and as much again as was read if the size is unknown.
    """
    expected = run.met / fraction if fraction else 2 * run.met
    return run.sink is not None and run.sink.is_open(share * (expected - run.met + blocks.BLOCK))


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
    if is_distributed():
        # Refused in a transaction that has read something. The nodes analyse their shards by themselves.
        return
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL default_statistics_target = 25")
        cursor.execute(f"ANALYZE {tables}")


def _names_settle(
    run: ImportRun, block: Block, new: list[Incoming], changed: list[tuple[Incoming, int]]
) -> list[tuple[Incoming, int]]:
    """Make or match all names and update changed memories. Returns the new ones with their ids."""
    written = [*new, *(one for one, _ in changed)]
    for one in written:
        for note in one.found.notes:
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
            by_project.setdefault(run.projects[project_of(run, one.record)].id, []).append(one.record)
        for project_id, records in by_project.items():
            run.vocabulary.project_id = project_id
            names_ensure(names_of(records), run.vocabulary)
        run.vocabulary.project_id = None
    else:
        names_ensure(names, run.vocabulary)
    _sessions_ensure(run, written)
    _changed_update(run, changed)
    if not new:
        return []
    numbered = list(zip(new, numbers_settle(run, [one.stored for one in new]), strict=True))
    for one, memory_id in numbered:
        number_remember(run, one.stored, memory_id)
    settled(run, numbered)
    return numbered


def _sessions_ensure(run: ImportRun, incoming: list[Incoming]) -> None:
    sessions: dict[tuple[int, str], SessionUse] = {}
    for one in incoming:
        record = one.record
        if record.session:
            key, at = (run.projects[project_of(run, record)].id, record.session), record.dated or run.now
            if key not in run.session_dates or at < run.session_dates[key]:
                run.session_dates[key] = at
                sessions[key] = SessionUse(sessions[key].agent if key in sessions else record.agent, at)
    if sessions:
        run.sessions.update(sessions_ensure(sessions, run.vocabulary))


def _image(run: ImportRun, one: Incoming, memory_id: int) -> MemorySnapshot:
    record = one.record
    project_id = run.projects[project_of(run, record)].id
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
                run.note(location, f"supersedes: {name!r} is not another memory of its project; left out")
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
    edited = edited_since_import(copies) if copies else {}
    changes: list[tuple[MemorySnapshot, MemorySnapshot]] = []
    for one, memory_id in changed:
        old = before[memory_id]
        new = _image(run, one, memory_id)
        run.changed_sessions |= {old.session_id, new.session_id}
        names_same_successor = _successors(old) == _successors(new)
        given = one.record.created_at or one.record.happened_at
        new = replace(
            new,
            batch_id=old.batch_id,
            state=one.record.state or (old.state if names_same_successor else Memory.State.ACTIVE.value),
            state_reason=old.state_reason if one.stored is None else new.state_reason,
            superseded_by_id=new.superseded_by_id or (old.superseded_by_id if names_same_successor else None),
            created_at=old.created_at if "created_at" in one.found.volatile else given or old.created_at,
            updated_at=one.record.updated_at or run.now,
            external_id=(memory_id not in run.renamed and old.external_id) or new.external_id,
        )
        if memory_id in edited and changed_fields(old, new):
            refuse_edited(run, one, memory_id, edited[memory_id])
        else:
            changes.append((old, new))
            settled(run, [(one, memory_id)])
    compared = len(changes)
    changes = snapshots_update(changes)
    # A copy from an export is compared with the memory itself, not by its hash.
    run.tally.unchanged += compared - len(changes)
    memories_audit(run.viewer, "import", changes, batch_id=run.batch_id)
    run.tally.updated += len(changes)

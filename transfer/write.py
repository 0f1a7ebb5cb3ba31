"""Write records in blocks: read and validated, matched with stored ones, then analysed and copied.

Everything runs within a single transaction opened by the caller: after any error nothing is written.
"""

import json
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from access.viewer import Viewer
from categories.models import LocalText, MadeBy
from categories.services import Vocabulary, vocabulary_lock_shared
from cluster import update_statistics
from memories.link_targets import DanglingLink, dangling_links, names_of_snapshot, targets_resolve
from memories.models import Memory
from memories.records import SUPERSEDED_BY_REL, MemoryRecord, slug_name
from memories.resolve import SessionUse, names_ensure, names_of, record_snapshot, sessions_ensure
from memories.secrets import read_policies
from memories.snapshot import InsertBlock, MemorySnapshot, NamedLink, insert_block
from memories.storage import (
    changed_fields,
    dangling_settle,
    memories_audit,
    memory_text,
    outbox_add_batch,
    sessions_date,
    snapshots_insert,
    snapshots_read,
    snapshots_update,
)
from memories.trust import is_same_text, trust_of_record
from search.engines import segment_files
from transfer.analysers import Analysers, analysers
from transfer.blocks import AHEAD, Block, Incoming, blocks_read, one_thread
from transfer.copies import copied
from transfer.formats.base import Reading
from transfer.formats.note_files import with_note_file
from transfer.formats.states import read_status
from transfer.match import Matched, Matcher, edited_since_import, project_of, refuse_edited, settled
from transfer.note_states import note_states_store
from transfer.renames import listed_gone, restore_returned
from transfer.rows import Row, rows_finish, rows_write
from transfer.state import ImportCounts, ImportObserver, ImportRun, WriteOptions
from transfer.vocabulary import deferred_write
from web.processes import rare_collections
from web.secrets import OFF

# Imports wait for each other, so that none misses the rows of another.
IMPORT_LOCK = 0x6D6E656D6F
# The tables are analysed after this many new rows, and each time there are sixteen times as many.
_ANALYZE_FROM = 5_000
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
    observer: ImportObserver | None = None,
    gone: Callable[[], Iterable[int]] | None = None,
) -> ImportCounts:
    """Import all records of a source. Call it in a transaction, and bump the corpus afterwards.

    `gone` gives the memories of notes that the source had before and does not have any more.
    """
    run = ImportRun(viewer, batch_id, options, refuse, timezone.now(), Vocabulary(viewer, batch_id), observer, gone)
    with _tune_import(), ExitStack() as stack:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        vocabulary_lock_shared(seconds=math.inf)
        matcher, writer = Matcher(run), _BlockWriter(run, stack)
        for block in stack.enter_context(blocks_read(reading, policy_of(options))):
            if rows := [item for item in block.items if isinstance(item, Row)]:
                # They refer to memories before them.
                writer.store_all()
                rows_write(run, rows)
            else:
                writer.write(block, matcher.match(block))
            progress(run.tally, block.fraction)
        writer.store_all()
        progress(run.tally, 1.0)
        deferred_write(run)
        rows_finish(run)
        writer.finish()
        segment_files.reached("records written")
        # Also for the foreign key checks at commit, which are planned once: for empty tables they would use any index.
        if run.tally.created + run.tally.updated >= _ANALYZE_FROM // 10:
            update_statistics(_SEARCHED)
    run.tally.made = dict(run.vocabulary.made)
    if gone:
        tally = run.tally
        same_texts = len(run.returned) + run.renames.renamed
        counts = {"same": tally.unchanged + same_texts, "changed": max(0, tally.updated - same_texts)}
        tally.gone_notes = listed_gone(run.renames, run.origin, run.used, **counts)
    return run.tally


def policy_of(options: WriteOptions) -> Callable[[Mapping[str, Any]], str]:
    """How secrets in a record are treated, by the project that it goes into."""
    policies = read_policies()
    if options.is_own:
        # It waits for no rules to be compiled.
        return lambda data: OFF

    def policy(data: Mapping[str, Any]) -> str:
        named = data.get("project")
        return policies.get(options.project_of(slug_name(named) if isinstance(named, str) else ""), settings.SECRETS)

    return policy


@contextmanager
def _tune_import() -> Iterator[None]:
    """Tune the transaction for many rows, and the interpreter for many records and threads that wait for it."""
    interval = sys.getswitchinterval()
    # Continue at once after an answer of the database, not after five milliseconds of another thread.
    sys.setswitchinterval(0.0005)
    try:
        with connection.cursor() as cursor:
            # Pending entries of GIN indexes are merged using this much memory.
            cursor.execute("SET LOCAL work_mem = '64MB'")
            # Check foreign keys with each block, not at the end: parents always come first.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with rare_collections():
            yield
    finally:
        sys.setswitchinterval(interval)


class _BlockWriter:
    """Stores matched blocks. While one is stored, threads and processes build the next ones."""

    def __init__(self, run: ImportRun, stack: ExitStack) -> None:
        self._run = run
        self._pool: Analysers = stack.enter_context(analysers())
        self._builder = stack.enter_context(one_thread("import-builder"))
        self._liner = stack.enter_context(one_thread("import-lines"))
        self._waiting: deque[Future[InsertBlock]] = deque()
        self._analyze_at = _ANALYZE_FROM
        # Locked rows that memories of this import refer to, by table.
        self._proven: dict[str, set[int]] = {}
        self._sessions: dict[tuple[int, str], int] = {}
        # The earliest date of a memory in each session so far.
        self._session_dates: dict[tuple[int, str], datetime] = {}
        # The sessions of changed memories, dated again when all are stored.
        self._changed_sessions: set[int | None] = set()
        # Links of others that name memories of this import, and the memories that have links themselves.
        self._naming: dict[DanglingLink, None] = {}
        self._linked: list[int] = []
        self._superseding: list[Superseding] = []

    def write(self, block: Block, matched: Matched) -> None:
        """Update changed memories, and begin to build the new ones. Stores the oldest block that waits for it."""
        written = [*matched.new, *(one for one, _ in matched.changed)]
        for one in written:
            for note in one.found.notes:
                self._run.note(one.location, note)
        self._names_ensure(block, written)
        self._sessions_ensure(written)
        self._update(matched)
        built: Future[_Built] | None = None
        if matched.new:
            numbered = self._numbered(matched.new)
            built = self._builder.submit(self._build, numbered)
            self._waiting.append(self._liner.submit(_lines, built, self._run.vocabulary.lineages))
        # One in, one out: the analysers always have another block waiting.
        if len(self._waiting) >= AHEAD:
            self._store()
        # Names must be resolved with the vocabulary of their own block: the next block may change it.
        if built:
            built.result()

    def store_all(self) -> None:
        while self._waiting:
            self._store()

    def finish(self) -> None:
        """Write what relates memories, now that all are stored."""
        naming = self._naming | dict.fromkeys(dangling_links(self._linked))
        dangling_settle(list(naming), self._run.viewer)
        supersede_named(self._run, self._superseding)
        note_states_store(self._run.batch_id)
        restore_returned(self._run.returned, self._run.viewer, self._run.batch_id)
        sessions_date(self._changed_sessions)
        if self._run.tally.created:
            outbox_add_batch(self._run.batch_id)

    def _store(self) -> None:
        block = self._waiting.popleft().result()
        snapshots_insert(block, of_batch=True, proven=self._proven)
        self._remember_names(block.snapshots)
        self._run.tally.count_new((one.project_id, one.created_at) for one in block.snapshots)
        segment_files.reached("block stored")
        if self._run.tally.created >= self._analyze_at:
            self._analyze_at *= 16
            update_statistics(_LOOKED_UP)

    def _remember_names(self, memories: Sequence[MemorySnapshot]) -> None:
        """Remember the links that these memories may be meant by, and that they have: names may come later."""
        self._linked += [memory.id for memory in memories if memory.links]
        names = [name for memory in memories for name in names_of_snapshot(memory)]
        self._naming |= dict.fromkeys(dangling_links(names=names))

    def _names_ensure(self, block: Block, written: Sequence[Incoming]) -> None:
        """Make or match all names of the records that are written."""
        run, names = self._run, block.names
        if len(written) < len(block.items):
            # Make no names for records that are refused or unchanged.
            kept = set(map(id, written))
            names = names_of([one.record for one in block.items if isinstance(one, Incoming) and id(one) in kept])
        by_project: dict[int, list[MemoryRecord]] = {}
        for one in written:
            by_project.setdefault(run.projects[project_of(run, one.record)].id, []).append(one.record)
        if not LocalText.objects.filter(project_ids__overlap=list(by_project)).exists():
            names_ensure(names, run.vocabulary)
            return
        # A name may mean another term in some projects.
        for project_id, records in by_project.items():
            run.vocabulary.project_id = project_id
            names_ensure(names_of(records), run.vocabulary)
        run.vocabulary.project_id = None

    def _sessions_ensure(self, incoming: Sequence[Incoming]) -> None:
        run = self._run
        sessions: dict[tuple[int, str], SessionUse] = {}
        for one in incoming:
            record = one.record
            if record.session:
                key, at = (run.projects[project_of(run, record)].id, record.session), record.dated or run.now
                if key not in self._session_dates or at < self._session_dates[key]:
                    self._session_dates[key] = at
                    sessions[key] = SessionUse(sessions[key].agent if key in sessions else record.agent, at)
        if sessions:
            self._sessions.update(sessions_ensure(sessions, run.vocabulary))

    def _numbered(self, new: Sequence[Incoming]) -> list[tuple[Incoming, int]]:
        run = self._run
        numbered = list(zip(new, run.numbers.settle([one.stored for one in new]), strict=True))
        for one, memory_id in numbered:
            run.numbers.remember(one.stored, memory_id)
        settled(run, numbered)
        return numbered

    def _build(self, new: Sequence[tuple[Incoming, int]]) -> "_Built":
        language = {project.id: project.language for project in self._run.projects.values()}
        snapshots = [self._image(one, memory_id) for one, memory_id in new]
        texts = [memory_text(snapshot, language[snapshot.project_id]) for snapshot in snapshots]
        return snapshots, [one.content_hash for one, _ in new], self._pool.submit(texts)

    def _image(self, one: Incoming, memory_id: int) -> MemorySnapshot:
        run, record = self._run, one.record
        project_id = run.projects[project_of(run, record)].id
        if record.supersedes:
            self._superseding.append((one.location, memory_id, project_id, record.supersedes))
        snapshot = record_snapshot(
            record=record,
            memory_id=memory_id,
            project_id=project_id,
            session_id=self._sessions[project_id, record.session] if record.session else None,
            vocabulary=run.vocabulary,
            made_by=MadeBy.IMPORT,
            now=run.now,
            raw=one.raw,
            record_hash=one.record_hash,
            title=one.title,
            trust=trust_of_record(record, run.viewer),
        )
        if one.found.file:
            return with_note_file(snapshot, one.found.file)
        return snapshot if one.stored is None else copied(snapshot, one.stored, run.vocabulary)

    def _update(self, matched: Matched) -> None:
        run = self._run
        before = snapshots_read(memory_id for _, memory_id in matched.changed)
        copies = [] if run.options.overwrite else [pk for one, pk in matched.changed if one.stored is not None]
        edited = edited_since_import(copies) if copies else {}
        changes: list[tuple[MemorySnapshot, MemorySnapshot]] = []
        for one, memory_id in matched.changed:
            old = before[memory_id]
            new = self._changed_image(one, old, has_new_id=memory_id in matched.renamed)
            self._changed_sessions |= {old.session_id, new.session_id}
            if memory_id in edited and changed_fields(old, new):
                refuse_edited(run, one, memory_id, edited[memory_id])
            else:
                changes.append((old, new))
                settled(run, [(one, memory_id)])
        compared = len(changes)
        changes = snapshots_update(changes)
        # A copy from an export is compared with the memory itself, not by its hash.
        run.tally.unchanged += compared - len(changes)
        self._remember_names([after for _, after in changes])
        memories_audit(run.viewer, "import", changes, batch_id=run.batch_id)
        run.tally.updated += len(changes)

    def _changed_image(self, one: Incoming, old: MemorySnapshot, *, has_new_id: bool) -> MemorySnapshot:
        record, new = one.record, self._image(one, old.id)
        names_same_successor = _successors(old) == _successors(new)
        given = record.created_at or record.happened_at
        changed = replace(
            new,
            project_id=old.project_id if old.id in self._run.stays_there else new.project_id,
            batch_id=old.batch_id,
            state=_changed_state(record, old, names_same_successor=names_same_successor),
            state_reason=old.state_reason if one.stored is None else new.state_reason,
            superseded_by_id=new.superseded_by_id or (old.superseded_by_id if names_same_successor else None),
            created_at=old.created_at if "created_at" in one.found.volatile else given or old.created_at,
            updated_at=record.updated_at or self._run.now,
            external_id=(not has_new_id and old.external_id) or new.external_id,
            trust=old.trust if is_same_text(old, new) else new.trust,
        )
        return with_note_file(changed, one.found.file) if one.found.file else changed


Superseding = tuple[str, int, int, tuple[str, ...]]
"""The location of a record, its memory, its project, and the names of the memories that it supersedes."""


def supersede_named(run: ImportRun, superseding: Sequence[Superseding]) -> None:
    """Mark the memories that records supersede. Others keep their states and successors."""
    found = targets_resolve((project_id, name) for _, _, project_id, names in superseding for name in names)
    successors: dict[int, int] = {}
    for location, memory_id, project_id, names in superseding:
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


_Built = tuple[list[MemorySnapshot], list[str], "Future[list[str]]"]
"""New memories of a block, the hashes of their contents, and their terms, which another process makes."""


def _lines(built: "Future[_Built]", lineages: Mapping[int, tuple[int, ...]]) -> InsertBlock:
    snapshots, hashes, terms = built.result()
    return insert_block(snapshots, terms.result(), hashes, lineages)


def _changed_state(record: MemoryRecord, old: MemorySnapshot, *, names_same_successor: bool) -> str:
    """The state of a changed record: a state that it gave before does not bring back a memory that is superseded."""
    gave = read_status(str(json.loads(old.raw or "{}").get("state", ""))).state
    is_news = record.state is not None and (old.superseded_by_id is None or record.state != gave)
    if is_news and record.state:
        return record.state
    return old.state if names_same_successor else Memory.State.ACTIVE.value


def _successors(snapshot: MemorySnapshot) -> set[NamedLink]:
    return {link for link in snapshot.links if link.rel == SUPERSEDED_BY_REL}

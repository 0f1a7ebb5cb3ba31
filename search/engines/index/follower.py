"""The only writer of the derived index, open for writing: it follows the outbox, and builds new generations.

A batch of changes is applied in these steps, in this order. If the process is killed between two of them, the next
start finishes or repeats them:

1. the words: documents of the new docs, the old docs deleted, and a tantivy commit
2. a segment with the columns of the new docs, and the bits of the deleted docs
3. the manifest that names them: from here on readers see the batch
4. the rows of the outbox deleted

After step 1 alone, the next start deletes the docs that the manifest does not have, and restores the old ones by
applying the batch again: its rows are still in the outbox.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import tantivy

from memories.models import Memory
from search.engines import segment_files
from search.engines.index import outbox, store, words
from search.engines.index.segments import (
    Dictionary,
    FoundRows,
    IndexRow,
    Segment,
    SegmentBuilder,
    load_rows,
    merge_segments,
    stream_rows,
)
from search.engines.index.store import Manifest, follower_lock, listening, read_snapshot, wait_for_notification
from search.engines.polling import POLL_SECONDS, RETRY_SECONDS, Healthy, Stop, StoppedError, never, repeat, wait
from search.engines.segment_files import (
    DamagedError,
    Mask,
    NotReadableError,
    SegmentWriter,
    merge_tail,
    open_segments,
    remove_unreferenced,
    replace_file,
)
from search.engines.vectors import writer as replica
from web.processes import SupervisedProcess, rare_collections, release_memory

SEGMENT_ROWS = 100_000


class Writer(SegmentWriter[Segment, Manifest]):
    """The index, open for writing."""

    MAX_DELETED_SHARE = 0.5

    def __init__(self, generation: Path, manifest: Manifest, segments: list[Segment], live: Mask) -> None:
        super().__init__(generation, manifest, segments, live)
        self.dictionary = Dictionary()
        for segment in segments:
            self.dictionary.extend(segment.values, segment.values_first)
        self._index = words.open_index(generation / "words")
        self._writer: tantivy.IndexWriter | None = words.index_writer(self._index)
        self._sorted: dict[str, Any] = {}

    @staticmethod
    def open(generation: Path) -> "Writer":
        """Open a generation and undo what a killed writer left unfinished. Raise NotReadableError or DamagedError."""
        manifest = store.read_manifest(generation)
        segments, live = open_segments(generation, manifest, Segment.read)
        try:
            writer = Writer(generation, manifest, segments, live)
            if store.words_commit(generation) != manifest.commit:
                writer.roll_back()
        except (ValueError, OSError) as error:
            raise DamagedError(f"the words: {error}") from error
        remove_unreferenced(generation, [writer.manifest])
        return writer

    @staticmethod
    def create(generation: Path) -> "Writer":
        words.make_index(generation / "words")
        return Writer(generation, Manifest(), [], np.ones(0, np.bool_))

    @words.panics_as_errors()
    def roll_back(self) -> None:
        """Return the words to the state in the manifest, after a commit that no manifest followed."""
        documents = self.documents
        words.delete_from(documents, self.manifest.size)
        documents.commit()
        self._index.reload()
        searcher = self._index.searcher()
        every = words.docs_of(searcher, tantivy.Query.all_query(), 0, self.manifest.size + 1)
        missing = np.setdiff1d(np.flatnonzero(self.live), every)
        # These were to be replaced or removed. They stay deleted and are not found until their changes, which are still
        # in the outbox, are applied.
        self.live[missing] = False
        self._publish(self.segments, commit=store.words_commit(self.folder))

    def close(self) -> None:
        """Release tantivy's lock when its merges are done."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()

    @property
    def documents(self) -> tantivy.IndexWriter:
        """The tantivy writer, opened at first use."""
        if self._writer is None:
            self._writer = words.index_writer(self._index)
        return self._writer

    @words.panics_as_errors()
    def write(self, ids: list[int], found: FoundRows, revision: int) -> None:
        """Replace all that the index has under these ids by the memories in `found`."""
        documents = self.documents
        deleted = self.docs_of(ids)
        builder = SegmentBuilder(self.manifest.size, self.dictionary)
        for row, terms in found.rows:
            documents.add_document(words.document(builder.add(row), terms))
        words.delete_docs(documents, deleted)
        segment_files.reached("documents added")
        commit = documents.commit()
        segment_files.reached("words committed")
        segments = [self.write_segment(builder.build())] if len(builder) else []
        segment_files.reached("segment written")
        unindexable = sorted({*self.manifest.unindexable} - {*ids} | {*found.unindexable})
        self.append(segments, deleted, commit=commit, revision=revision, unindexable=tuple(unindexable))

    def write_segment(self, segment: Segment) -> Segment:
        """Write a segment, and map it from disk, which frees its memory."""
        path = self.folder / self.new_name(".segment")
        segment.write(path)
        return Segment.read(path)

    def append(
        self, segments: Sequence[Segment], deleted: Sequence[int] = (), *, merged: bool = False, **changes: Any
    ) -> None:
        """Show new segments, whose documents are committed, to readers, and hide the deleted docs.

        With `merged`, merge all segments. `changes` are fields of the manifest.
        """
        self.live[list(deleted)] = False
        fresh = sum(segment.size for segment in segments)
        if fresh:
            self.live = np.concatenate([self.live, np.ones(fresh, np.bool_)])
        every = [*self.segments, *segments]
        if merged and len(every) > 1:
            every = [self._merge(every)]
        merge_tail(every, 4 * SEGMENT_ROWS, self._merge)
        self._publish(every, **changes)

    def _merge(self, segments: Sequence[Segment]) -> Segment:
        return self.write_segment(merge_segments(segments, self.live))

    def _publish(self, segments: list[Segment], **changes: Any) -> None:
        self.publish(segments, self.live, memories=int(np.count_nonzero(self.live)), **changes)
        self._sorted = {name: known for name, known in self._sorted.items() if name in self.manifest.segments}

    def merge_all(self) -> None:
        """Merge all segments: one is the fastest to read."""
        if len(self.segments) > 1:
            self.append([], merged=True)

    def docs_of(self, ids: list[int]) -> list[int]:
        """The live docs of these memories."""
        wanted = np.array(ids, np.int64)
        docs: list[int] = []
        for segment in self.segments:
            name = segment.name
            if name not in self._sorted:
                # Memories mostly come ordered by id.
                ascending = bool(np.all(segment.ids[1:] > segment.ids[:-1])) if segment.size else True
                order = None if ascending else np.argsort(segment.ids, kind="stable")
                self._sorted[name] = (segment.ids if order is None else segment.ids[order], order)
            known, order = self._sorted[name]
            left = np.searchsorted(known, wanted, "left")
            right = np.searchsorted(known, wanted, "right")
            for low, high in zip(left[right > left], right[right > left], strict=True):
                rows = np.arange(low, high) if order is None else order[low:high]
                docs.extend(int(doc) for doc in rows + segment.first if self.live[doc])
        return docs

    def unchanged(self, found: FoundRows) -> set[int]:
        """The memories that the index already has in exactly this state."""
        digests = {row.id: row.digest for row, _ in found.rows}
        docs = np.array(self.docs_of(list(digests)), np.int64)
        same: set[int] = set()
        for segment in self.segments:
            rows = docs[(docs >= segment.first) & (docs < segment.first + segment.size)] - segment.first
            pairs = zip(segment.ids[rows].tolist(), segment.arrays["digest"][rows].tolist(), strict=True)
            same.update(memory_id for memory_id, digest in pairs if digests[memory_id] == digest)
        return same


logger = logging.getLogger(__name__)

BATCH = 10_000
# While this many changes are pending, batches are larger.
_BEHIND = 50_000
_LARGE_BATCH = 50_000
_SEGMENT_CHARACTERS = 120_000_000
_VERIFY_SECONDS = 3_600

Progress = Callable[[int, int], None]
"""Called with the number of memories indexed and their total."""


def _ignore(done: int, total: int) -> None: ...


def _blocks(found: Iterable[tuple[IndexRow, str]]) -> Iterator[list[tuple[IndexRow, str]]]:
    """Divide rows into blocks that fit into memory, however long their texts are."""
    block: list[tuple[IndexRow, str]] = []
    size = 0
    for row, terms in found:
        block.append((row, terms))
        size += len(terms)
        if len(block) == SEGMENT_ROWS or size > _SEGMENT_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


class TruncatedError(Exception):
    """All memories were deleted at once, so the index is rebuilt."""


class BatchPendingError(Exception):
    """Next in the outbox is a single row for all memories of an import."""

    def __init__(self, entry: int, batch_id: int) -> None:
        super().__init__(entry, batch_id)
        self.entry = entry
        self.batch_id = batch_id


def apply_changes(writer: Writer, limit: int = BATCH) -> int:
    """Apply the oldest changes, and return the number of outbox rows."""
    with read_snapshot():
        entries, ids = outbox.oldest(limit)
        if not entries:
            return 0
        if outbox.EVERYTHING in ids:
            raise TruncatedError
        if ids[0] < 0:
            raise BatchPendingError(entries[0], -ids[0])
        revision = outbox.follow_state().revision
        found = load_rows(ids, store.SCHEMA)
    _write(writer, ids, found, revision)
    outbox.delete_applied(entries)
    segment_files.reached("changes deleted")
    return len(entries)


def _write(writer: Writer, ids: list[int], found: FoundRows, revision: int) -> None:
    _log_unindexable(found.unindexable)
    gone, unindexable = ids, found.unindexable
    for block in list(_blocks(found.rows)) or [[]]:
        writer.write(gone, FoundRows(block, unindexable), revision)
        # The first block deletes all old docs; the others only add.
        gone, unindexable = [], []


def _log_unindexable(ids: Sequence[int]) -> None:
    for memory_id in ids:
        logger.error("#%s is not indexed: one of its dates is infinite. Set a finite date.", memory_id)


def _apply_batch(writer: Writer, found: BatchPendingError, stop: Stop) -> int:
    """Index the memories of an import, and return their number."""
    taken = last = 0
    while not stop():
        with read_snapshot():
            ids = outbox.batch_memories(found.batch_id, last, _LARGE_BATCH)
            revision = outbox.follow_state().revision
            these = load_rows(ids, store.SCHEMA)
        if not ids:
            outbox.delete_applied([found.entry])
            segment_files.reached("changes deleted")
            break
        # An interrupted run may have applied some of them.
        same = writer.unchanged(these)
        these = FoundRows([(row, terms) for row, terms in these.rows if row.id not in same], these.unindexable)
        _write(writer, [memory_id for memory_id in ids if memory_id not in same], these, revision)
        taken, last = taken + len(ids), ids[-1]
    return max(1, taken)


@rare_collections()
def build(root: Path, progress: Progress = _ignore, stop: Stop = never) -> Path:
    """Build a new generation of all memories next to the current one, and activate it. Raise StoppedError."""
    with suppress(NotReadableError, DamagedError):
        # Left over from a killed process.
        store.remove_others(root, store.current_generation())
    outbox.start_following()
    generation = store.next_generation(root)
    writer = Writer.create(generation)
    unindexable: list[int] = []
    try:
        with read_snapshot():
            total = Memory.objects.count()
            seen = outbox.all_ids()
            revision = outbox.follow_state().revision
            writer.write([], FoundRows([], []), revision)
            for block in _blocks(_stoppable(stop, stream_rows(store.SCHEMA, unindexable))):
                writer.write([], FoundRows(block, unindexable), revision)
                progress(writer.manifest.memories, total)
            if unindexable:
                writer.write([], FoundRows([], unindexable), revision)
                _log_unindexable(unindexable)
        segment_files.reached("generation filled")
        writer.merge_all()
        writer.close()
    except BaseException:
        # Remove the incomplete generation: a full disk needs the space.
        writer.close()
        shutil.rmtree(generation, ignore_errors=True)
        raise
    release_memory()
    segment_files.reached("generation made")
    # The generation was built with these changes.
    _activate(root, generation, seen)
    return generation


def _stoppable(stop: Stop, found: Iterable[tuple[IndexRow, str]]) -> Iterator[tuple[IndexRow, str]]:
    for at, one in enumerate(found):
        if at % 1_000 == 0 and stop():
            raise StoppedError
        yield one


def _activate(root: Path, generation: Path, has: Sequence[int]) -> None:
    """Record changes for a complete generation, and let readers use it. `has` are the outbox rows that it includes."""
    outbox.activate(generation.name, has)
    segment_files.reached("generation followed")
    replace_file(root / "current", generation.name)
    (root / "damaged").unlink(missing_ok=True)
    segment_files.reached("generation in place")
    store.remove_others(root, generation)


def _finish_activation(root: Path) -> None:
    """Finish an activation that was killed between its two steps."""
    generation = root / outbox.follow_state().generation
    with suppress(NotReadableError, DamagedError):
        if store.rebuild_reason() or generation in (root, store.current_generation()):
            return
        store.read_manifest(generation)
        _activate(root, generation, [])


def open_writer(root: Path, progress: Progress = _ignore, stop: Stop = never) -> Writer:
    """Open the current index or, if it cannot be used, a new one. Raise StoppedError."""
    _finish_activation(root)
    reason = store.rebuild_reason()
    if not (root / "current").exists():
        return Writer.open(build(root, progress, stop))
    if not reason:
        try:
            generation = store.current_generation()
            if store.belongs_to_database(generation, store.read_manifest(generation)):
                writer = Writer.open(generation)
                # Left over from a killed process.
                store.remove_others(root, generation)
                return writer
            reason = "it belongs to another database, or changes were not recorded for it"
        except (NotReadableError, DamagedError) as error:
            reason = str(error)
    logger.warning("Rebuilding the search index: %s.", reason)
    return Writer.open(build(root, progress, stop))


@rare_collections()
def _apply_next(root: Path, writer: Writer, progress: Progress = _ignore, stop: Stop = never) -> tuple[Writer, int]:
    """Apply what is next. Return the writer, of a new generation if one was built, and the number of changes."""
    try:
        return writer, apply_changes(writer, _batch_size())
    except BatchPendingError as found:
        return writer, _apply_batch(writer, found, stop)
    except TruncatedError:
        writer.close()
        # Ids may start again, and no change records that the vectors went.
        replica.discard()
        return Writer.open(build(root, progress, stop)), 1


def catch_up() -> int:
    """Apply all pending changes, and return their number. Raise WriterElsewhereError."""
    with follower_lock() as root:
        writer = open_writer(root)
        try:
            done = 0
            while True:
                writer, taken = _apply_next(root, writer)
                if not taken:
                    break
                done += taken
        finally:
            writer.close()
        while replica.sync():
            pass
        return done


def rebuild(progress: Progress = _ignore) -> int:
    """Build a new index, and return its number of memories. Raise WriterElsewhereError."""
    with follower_lock() as root:
        generation = build(root, progress)
        replica.discard()
        replica.sync()
        return store.read_manifest(generation).memories


def _batch_size() -> int:
    return _LARGE_BATCH if outbox.backlog(_BEHIND).changes >= _BEHIND else BATCH


def follow(stop: Stop, progress: Progress = _ignore) -> None:
    """Follow the outbox until `stop`. While another process does, wait to take its place."""

    def step(healthy: Healthy) -> None:
        try:
            with follower_lock() as root:
                _follow(root, stop, progress, healthy)
        except store.WriterElsewhereError:
            wait(1.0, stop)
        except DamagedError as error:
            store.report_damage(str(error))
            wait(RETRY_SECONDS, stop)

    repeat(step, "The search index could not be brought up to date", stop)


@contextmanager
def _verify_in_background() -> Iterator[None]:
    """Read all files of the index now and each hour, in a thread, and have it built again if one is damaged: readers
    notice some kinds of damage only by wrong answers.
    """
    ending = Event()

    def verify() -> None:
        while True:
            try:
                # Again if there is something wrong: the writer may have replaced files meanwhile.
                reason = store.verify(store.read_view(), again=True) and store.verify(store.read_view(), again=True)
            except DamagedError as error:
                reason = str(error)
            except NotReadableError:
                reason = ""
            if reason:
                logger.error("The search index is damaged, and will be built again: %s.", reason)
                store.report_damage(reason)
            if ending.wait(_VERIFY_SECONDS):
                return

    thread = Thread(target=verify, name="verify-index", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _follow(root: Path, stop: Stop, progress: Progress, healthy: Healthy) -> None:
    writer = open_writer(root, progress, stop)
    try:
        # Listen before the first look, so that no notification is lost.
        with listening(), replica.sync_in_background(stop), _verify_in_background():
            while not stop():
                if store.rebuild_reason() or writer.is_wasteful:
                    writer.close()
                    # Both hold what deleted memories have left behind.
                    replica.discard()
                    writer = Writer.open(build(root, progress, stop))
                writer, taken = _apply_next(root, writer, progress, stop)
                healthy()
                if not taken:
                    if not _is_current(root, writer):
                        return
                    wait_for_notification(POLL_SECONDS)
    finally:
        writer.close()


def _is_current(root: Path, writer: Writer) -> bool:
    """Whether changes are still recorded for this generation, and it is still the current one."""
    try:
        return store.current_generation() == writer.folder and store.belongs_to_database(writer.folder, writer.manifest)
    except (NotReadableError, DamagedError):
        return False


def drop() -> None:
    """Remove the index, and stop recording changes. Raise WriterElsewhereError."""
    with follower_lock() as root:
        # First, so that no process reads what is no longer updated.
        (root / "current").unlink(missing_ok=True)
        outbox.stop_following()
        replica.drop()
        (root / "damaged").unlink(missing_ok=True)
        store.remove_others(root, root / "none")


def follower_process() -> SupervisedProcess:
    # The server has run the checks, which load all pages of the site.
    return SupervisedProcess(["index", "--follow", "--skip-checks"], "The search index is not kept")


def wait_until_readable(seconds: float) -> None:
    """Wait until the index can be read, or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _is_readable():
        time.sleep(0.05)


def _is_readable() -> bool:
    try:
        view = store.read_view()
    except (NotReadableError, DamagedError):
        return False
    return store.belongs_to_database(view.generation, view.manifest)

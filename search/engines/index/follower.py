"""The only writer of the derived index: it follows the outbox, and builds new generations.

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

from memories.models import Memory
from search.engines import segment_files
from search.engines.index import outbox, store
from search.engines.index.segments import FoundRows, IndexRow, load_rows, stream_rows
from search.engines.index.store import follower_lock, listening, read_snapshot, wait_for_notification
from search.engines.index.writer import SEGMENT_ROWS, Writer
from search.engines.polling import POLL_SECONDS, RETRY_SECONDS, Healthy, Stop, StoppedError, never, repeat, wait
from search.engines.segment_files import DamagedError, NotReadableError, replace_file
from search.engines.vectors import writer as replica
from web.processes import SupervisedProcess, rare_collections, release_memory

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

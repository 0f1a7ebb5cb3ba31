"""The one writer of the derived index: it follows the outbox, and makes new generations.

A batch is taken in by these steps, in this order; killed between any two of them, the next start finishes or repeats:

1. the words: documents of the new slots, the old slots deleted, and a commit of tantivy
2. a part with the columns of the new slots, and the bits of the dead ones
3. the manifest that names them: from here on readers see the batch
4. the rows of the outbox deleted

After 1 alone, what stands in slots past the manifest is deleted at the next start, and the old slots are put back by
taking the batch in again: its rows are still in the outbox.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from django.db import connection

from search.engines.array_files import DamagedError, step
from search.engines.index import import_stage, outbox, segments, store
from search.engines.index.freshness import listening, wait_until_called
from search.engines.index.retry import POLL_SECONDS, retry_seconds, wait, wait_to_retry
from search.engines.index.segments import Row
from search.engines.index.store import NoIndexError
from search.engines.index.transactions import consistent, writing
from search.engines.index.writer import PART_ROWS, Writer
from search.engines.vectors import writer as replica
from web.processes import SupervisedProcess

logger = logging.getLogger(__name__)

BATCH = 10_000
# While this many changes wait, they are taken in by larger batches.
_BEHIND = 50_000
_LARGE_BATCH = 50_000
_PART_CHARACTERS = 120_000_000


def _blocks(found: Iterable[tuple[Row, str]]) -> Iterator[list[tuple[Row, str]]]:
    """Rows in lots that fit into memory, however long their texts are."""
    block: list[tuple[Row, str]] = []
    size = 0
    for row, terms in found:
        block.append((row, terms))
        size += len(terms)
        if len(block) == PART_ROWS or size > _PART_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


class TruncatedError(Exception):
    """All memories went at once; the index is made anew."""


class StoppedError(Exception):
    """It was told to stop before an index was made."""


class BatchFirstError(Exception):
    """What an import has brought comes next, which is one row of the outbox for all of it."""

    def __init__(self, entry: int, batch_id: int) -> None:
        super().__init__(entry, batch_id)
        self.entry = entry
        self.batch_id = batch_id


def apply_changes(writer: Writer, limit: int = BATCH) -> int:
    """Take in the oldest changes; gives back how many rows of the outbox that were."""
    with consistent():
        entries, ids = outbox.oldest(limit)
        if not entries:
            return 0
        if outbox.EVERYTHING in ids:
            raise TruncatedError
        if ids[0] < 0:
            raise BatchFirstError(entries[0], -ids[0])
        revision = outbox.following().revision
        found = segments.rows_of(ids, store.SCHEMA)
    _write(writer, ids, found, revision)
    outbox.delete_applied(entries)
    step("outbox emptied")
    return len(entries)


def _write(writer: Writer, ids: list[int], found: segments.Found, revision: int) -> None:
    _tell_unfit(found.unfit)
    gone, unfit = ids, found.unfit
    for block in list(_blocks(found.rows)) or [[]]:
        writer.write(gone, segments.Found(block, unfit), revision)
        # The old slots of all of them go with the first; what comes after only adds.
        gone, unfit = [], []


def _tell_unfit(ids: Sequence[int]) -> None:
    for memory_id in ids:
        logger.error("#%s is not indexed: one of its dates is infinite. Set a finite date.", memory_id)


def _take_batch(root: Path, writer: Writer, found: BatchFirstError, stop: Callable[[], bool]) -> tuple[Writer, int]:
    """Take in what an import has brought: the index that it has written while it ran or, where that is not there or
    of no use by now, its memories from the database.
    """
    if generation := import_stage.adopted(root, writer, found.batch_id):
        writer.close()
        memories = writer.manifest.memories
        _put_in_place(root, generation, [found.entry])
        writer = Writer.open(generation)
        return writer, max(1, writer.manifest.memories - memories)
    taken = last = 0
    while not stop():
        with consistent():
            ids = outbox.memories_of(found.batch_id, last, _LARGE_BATCH)
            revision = outbox.following().revision
            these = segments.rows_of(ids, store.SCHEMA)
        if not ids:
            outbox.delete_applied([found.entry])
            step("outbox emptied")
            break
        # Where it was cut off before, some of them are there.
        same = writer.unchanged(these)
        these = segments.Found([(row, terms) for row, terms in these.rows if row.id not in same], these.unfit)
        _write(writer, [memory_id for memory_id in ids if memory_id not in same], these, revision)
        taken, last = taken + len(ids), ids[-1]
    return writer, max(1, taken)


def build(
    root: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Make a new generation of all memories beside the one that is read, and put it in its place. Raises StoppedError
    where it is told to stop before that.
    """
    with suppress(NoIndexError, DamagedError):
        # What was left by one that was killed.
        store.remove_others(root, store.current_generation())
    outbox.start_following()
    generation = store.next_generation(root)
    writer = Writer.create(generation)
    unfit: list[int] = []
    try:
        with consistent():
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM memories_memory")
                total = cursor.fetchone()[0]
            seen = outbox.every_id()
            revision = outbox.following().revision
            writer.write([], segments.Found([], []), revision)
            for block in _blocks(_until(stop, segments.all_rows(store.SCHEMA, unfit))):
                writer.write([], segments.Found(block, unfit), revision)
                progress(writer.manifest.memories, total)
            if unfit:
                writer.write([], segments.Found([], unfit), revision)
                _tell_unfit(unfit)
        step("generation filled")
        writer.merge_all()
        writer.close()
    except BaseException:
        # Half a generation is of no use to anybody, and a full disk needs the space.
        writer.close()
        shutil.rmtree(generation, ignore_errors=True)
        raise
    step("generation made")
    # What it was made from has these changes already.
    _put_in_place(root, generation, seen)
    return generation


def _until(stop: Callable[[], bool], found: Iterable[tuple[Row, str]]) -> Iterator[tuple[Row, str]]:
    for at, one in enumerate(found):
        if at % 1_000 == 0 and stop():
            raise StoppedError
        yield one


def _put_in_place(root: Path, generation: Path, has: Sequence[int]) -> None:
    """Let a whole generation be the one that is followed for and read; it has the changes of these rows already."""
    outbox.activate(generation.name, has)
    step("generation followed")
    store.replace_file(root / "current", generation.name)
    (root / "damaged").unlink(missing_ok=True)
    step("generation in place")
    store.remove_others(root, generation)


def _finish_putting(root: Path) -> None:
    """One that was killed between the two left a whole generation that is followed for, and not yet read."""
    generation = root / outbox.following().generation
    with suppress(NoIndexError, DamagedError):
        if store.damage_reported() or generation in (root, store.current_generation()):
            return
        store.read_manifest(generation)
        _put_in_place(root, generation, [])


def opened(
    root: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Writer:
    """The index open for writing: the one that is there or, where it cannot be used, a new one. Raises StoppedError."""
    import_stage.remove_abandoned(root)
    _finish_putting(root)
    reason = store.damage_reported()
    if not (root / "current").exists():
        return Writer.open(build(root, progress, stop))
    if not reason:
        try:
            generation = store.current_generation()
            if store.belongs_to_database(generation, store.read_manifest(generation)):
                writer = Writer.open(generation)
                # What was left by one that was killed.
                store.remove_others(root, generation)
                return writer
            reason = "it belongs to another database, or changes were not recorded for it"
        except (NoIndexError, DamagedError) as error:
            reason = str(error)
    logger.warning("Rebuilding the search index: %s.", reason)
    return Writer.open(build(root, progress, stop))


def _advanced(
    root: Path,
    writer: Writer,
    progress: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Writer, int]:
    """Take in what comes next: the writer, of a new generation where one was made, and how much that was."""
    try:
        return writer, apply_changes(writer, _batch_size())
    except BatchFirstError as found:
        return _take_batch(root, writer, found, stop)
    except TruncatedError:
        writer.close()
        # Ids may begin anew, and no change says that the vectors went.
        replica.discard()
        return Writer.open(build(root, progress, stop)), 1


def catch_up() -> int:
    """Take in all that waits, and leave; gives back how many changes that was. Raises WriterElsewhereError."""
    with writing() as root:
        writer = opened(root)
        try:
            done = 0
            while True:
                writer, taken = _advanced(root, writer)
                if not taken:
                    break
                done += taken
        finally:
            writer.close()
        while replica.sync():
            pass
        return done


def rebuild(progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Make the index anew; gives back how many memories are in it. Raises WriterElsewhereError."""
    with writing() as root:
        generation = build(root, progress)
        replica.discard()
        replica.sync()
        return store.read_manifest(generation).memories


def _batch_size() -> int:
    return _LARGE_BATCH if outbox.backlog(_BEHIND).changes >= _BEHIND else BATCH


def follow(stop: Callable[[], bool], progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Follow the outbox until told to stop. Where another process does, wait to take its place."""
    failures = 0
    while not stop():
        try:
            with writing() as root:
                _follow(root, stop, progress)
            failures = 0
        except store.WriterElsewhereError:
            wait(1.0, stop)
        except StoppedError:
            return
        except DamagedError as error:
            store.report_damage(str(error))
            wait(retry_seconds(0), stop)
        except Exception:  # whatever it is - a full disk, a database that restarts - it is tried again
            wait_to_retry("The search index could not be brought up to date", failures, stop)
            failures += 1


def _follow(root: Path, stop: Callable[[], bool], progress: Callable[[int, int], None]) -> None:
    writer = opened(root, progress, stop)
    try:
        # Before the first look, so that no call is lost.
        with listening(), replica.kept_meanwhile(stop):
            while not stop():
                if store.damage_reported() or writer.is_wasteful:
                    writer.close()
                    # What memories that went have left is in both.
                    replica.discard()
                    writer = Writer.open(build(root, progress, stop))
                writer, taken = _advanced(root, writer, progress, stop)
                if not taken:
                    if not _is_kept(root, writer):
                        return
                    wait_until_called(POLL_SECONDS)
    finally:
        writer.close()


def _is_kept(root: Path, writer: Writer) -> bool:
    """Whether changes are still written down for this index, and it is still the one that is read."""
    try:
        return store.current_generation() == writer.generation and store.belongs_to_database(
            writer.generation, writer.manifest
        )
    except (NoIndexError, DamagedError):
        return False


def drop() -> None:
    """Remove the index, and follow no changes any more. Raises WriterElsewhereError."""
    with writing() as root:
        # First, so that nobody reads what is not followed.
        (root / "current").unlink(missing_ok=True)
        outbox.stop_following()
        replica.drop()
        (root / "damaged").unlink(missing_ok=True)
        store.remove_others(root, root / "none")
        import_stage.remove_abandoned(root)


def follower() -> SupervisedProcess:
    return SupervisedProcess(["index", "--follow"], "The search index is not kept")


def wait_until_readable(seconds: float) -> None:
    """Until the index can be read, but no longer than said."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _is_readable():
        time.sleep(0.05)


def _is_readable() -> bool:
    try:
        view = store.read_view()
    except (NoIndexError, DamagedError):
        return False
    return store.belongs_to_database(view.generation, view.manifest)

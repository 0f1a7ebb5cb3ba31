"""The one writer of the derived index: it follows the outbox, makes new generations, and compares.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tantivy
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections, transaction

from search.engines.tantivy import outbox, rows, store, words
from search.engines.tantivy.parts import DamagedError, Dictionary, Mask, Part, PartBuilder, Row, merged
from search.engines.tantivy.store import Manifest, NoIndexError

logger = logging.getLogger(__name__)

BATCH = 10_000
# The key of the advisory lock: an outbox has one reader.
FOLLOW_LOCK = 0x6D6E656D78
_EVERY_CHANGE = 1_000_000_000
# While this many changes wait, they are taken in by larger batches.
_BEHIND = 50_000
_LARGE_BATCH = 50_000
_PART_ROWS = 100_000
_PART_CHARACTERS = 120_000_000
_POLL_SECONDS = 0.25
_RETRY_SECONDS = (1, 2, 5, 15, 30)
# Once so much of the slots is dead, a new generation is smaller and faster.
_MOST_DEAD = 0.5
_LEAST_SLOTS = 10_000


def step(name: str) -> None:
    """Where a batch can be cut off. Tests stop it here."""


class Writer:
    """The index open for writing. Whatever goes wrong, open it anew: the files say how far it came."""

    def __init__(self, generation: Path, manifest: Manifest, parts: list[Part], live: Mask) -> None:
        self.generation = generation
        self.manifest = manifest
        self.parts = parts
        self.live = live
        self.dictionary = Dictionary()
        for part in parts:
            self.dictionary.extend(part.values, part.values_first)
        self._index = words.open_index(generation / "words")
        self._writer: tantivy.IndexWriter | None = words.index_writer(self._index)
        self._sorted: dict[str, Any] = {}

    @staticmethod
    def open(generation: Path) -> "Writer":
        """Raises NoIndexError or DamagedError. What a killed writer left half done is undone."""
        manifest = store.read_manifest(generation)
        parts = [Part.read(generation / name) for name in manifest.parts]
        if sum(part.size for part in parts) != manifest.slots:
            raise DamagedError("the parts do not add up to the manifest")
        live = store.read_live(generation, manifest)
        try:
            writer = Writer(generation, manifest, parts, live)
            if store.words_commit(generation) != manifest.commit:
                writer.roll_back()
        except (ValueError, OSError) as error:
            raise DamagedError(f"the words: {error}") from error
        store.remove_unnamed(generation, writer.manifest)
        return writer

    @staticmethod
    def create(generation: Path) -> "Writer":
        """A new, empty generation."""
        words.make_index(generation / "words")
        return Writer(generation, Manifest(), [], np.ones(0, np.bool_))

    @words.panics_as_errors()
    def roll_back(self) -> None:
        """Bring the words back to what the manifest says: a commit came, and no manifest after it."""
        writer = self._open_writer()
        words.delete_from(writer, self.manifest.slots)
        writer.commit()
        self._index.reload()
        searcher = self._index.searcher()
        every = words.slots_of(searcher, tantivy.Query.all_query(), 0, self.manifest.slots + 1)
        missing = np.setdiff1d(np.flatnonzero(self.live), every)
        # These were to be replaced or removed. They stay dead: the outbox still has the rows that say what became
        # of them, and until those are taken in they are not found.
        self.live[missing] = False
        self._write_manifest(self.parts, commit=store.words_commit(self.generation))

    def close(self) -> None:
        """Let go of tantivy's lock, once its merges are done."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = words.index_writer(self._index)
        return self._writer

    @words.panics_as_errors()
    def write(self, ids: list[int], found: list[tuple[Row, str]], revision: int) -> None:
        """Put the memories as they were found in the place of what the index has under these ids."""
        writer = self._open_writer()
        dead = self._slots_of(ids)
        builder = PartBuilder(self.manifest.slots, self.dictionary)
        for row, terms in found:
            writer.add_document(words.document(builder.add(row), terms))
        words.delete_slots(writer, dead)
        step("documents added")
        commit = writer.commit()
        step("words committed")
        self.live[dead] = False
        parts = list(self.parts)
        if len(builder):
            part = builder.part()
            part.write(self.generation / store.part_name(part))
            # Mapped like the others from here on, instead of held.
            parts.append(Part.read(self.generation / store.part_name(part)))
            self.live = np.concatenate([self.live, np.ones(part.size, np.bool_)])
        step("part written")
        self._write_manifest(self._merged_tail(parts), commit=commit, revision=revision)
        step("manifest written")

    def _slots_of(self, ids: list[int]) -> list[int]:
        """The live slots of these memories."""
        wanted = np.array(ids, np.int64)
        slots: list[int] = []
        for part in self.parts:
            name = store.part_name(part)
            if name not in self._sorted:
                # Memories mostly come in the order of their ids.
                ascending = bool(np.all(part.ids[1:] > part.ids[:-1])) if part.size else True
                order = None if ascending else np.argsort(part.ids, kind="stable")
                self._sorted[name] = (part.ids if order is None else part.ids[order], order)
            known, order = self._sorted[name]
            left = np.searchsorted(known, wanted, "left")
            right = np.searchsorted(known, wanted, "right")
            for low, high in zip(left[right > left], right[right > left], strict=True):
                places = np.arange(low, high) if order is None else order[low:high]
                slots.extend(int(slot) for slot in places + part.first if self.live[slot])
        return slots

    def _merged_tail(self, parts: list[Part]) -> list[Part]:
        """Neighbours of like size become one, so that there are ever only a few, and each row is rarely copied."""
        while len(parts) > 1 and parts[-2].size < 4 * parts[-1].size and parts[-2].size < 4 * _PART_ROWS:
            part = merged(parts[-2:], self.live)
            part.write(self.generation / store.part_name(part))
            parts[-2:] = [Part.read(self.generation / store.part_name(part))]
        return parts

    def _write_manifest(self, parts: list[Part], *, commit: int, revision: int | None = None) -> None:
        before = self.manifest
        dead = ""
        if not self.live.all():
            dead = f"{before.number + 1:010d}.dead"
            store.write_dead(self.generation, dead, ~self.live)
        store.sync_folder(self.generation)
        self.manifest = Manifest(
            number=before.number + 1,
            commit=commit,
            slots=len(self.live),
            memories=int(np.count_nonzero(self.live)),
            parts=tuple(store.part_name(part) for part in parts),
            dead=dead,
            revision=before.revision if revision is None else revision,
        )
        store.write_manifest(self.generation, self.manifest)
        self.parts = parts
        names = set(self.manifest.parts)
        self._sorted = {name: known for name, known in self._sorted.items() if name in names}
        # A reader may have read the manifest before this one, and be about to open what it names.
        store.remove_unnamed(self.generation, self.manifest, (*before.parts, before.dead))

    def merge_all(self) -> None:
        """All parts as one: the fastest to read."""
        if len(self.parts) > 1:
            part = merged(self.parts, self.live)
            part.write(self.generation / store.part_name(part))
            self._write_manifest([Part.read(self.generation / store.part_name(part))], commit=self.manifest.commit)

    @property
    def is_wasteful(self) -> bool:
        slots = self.manifest.slots
        return slots > _LEAST_SLOTS and slots - self.manifest.memories > _MOST_DEAD * slots


@contextmanager
def _consistent() -> Iterator[None]:
    """One moment of the database for all that is read. Within a transaction of somebody else it is that one's."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def _writing() -> Iterator[Path]:
    """Be the one process that writes the index, and the one that follows this database, on whatever machine.

    The lock belongs to a transaction on a connection of its own, so that it also holds behind a transaction pooler.
    Raises WriterElsewhereError.
    """
    with store.writing() as root:
        gate = connections.create_connection(DEFAULT_DB_ALIAS)
        try:
            gate.set_autocommit(False)
            with gate.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [FOLLOW_LOCK])
                if not cursor.fetchone()[0]:
                    raise FollowedElsewhereError("another process follows this database")
            yield root
        finally:
            with suppress(DatabaseError, InterfaceError):
                gate.rollback()
            gate.close()


class FollowedElsewhereError(store.WriterElsewhereError):
    """Another process takes in the changes of this database, for an index elsewhere."""


def _blocks(found: Iterable[tuple[Row, str]]) -> Iterator[list[tuple[Row, str]]]:
    """Rows in lots that fit into memory, however long their texts are."""
    block: list[tuple[Row, str]] = []
    size = 0
    for row, terms in found:
        block.append((row, terms))
        size += len(terms)
        if len(block) == _PART_ROWS or size > _PART_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


class TruncatedError(Exception):
    """All memories went at once; the index is made anew."""


def take_in(writer: Writer, limit: int = BATCH) -> int:
    """Take in the oldest changes; gives back how many rows of the outbox that were."""
    with _consistent():
        entries, ids = outbox.oldest(limit)
        if not entries:
            return 0
        if outbox.EVERYTHING in ids:
            raise TruncatedError
        revision = outbox.following().revision
        blocks = list(_blocks(rows.rows_of(ids, store.SCHEMA)))
    gone = ids
    for block in blocks or [[]]:
        writer.write(gone, block, revision)
        # The old slots of all of them go with the first; what comes after only adds.
        gone = []
    outbox.taken_in(entries)
    step("outbox emptied")
    return len(entries)


def build(root: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Make a new generation of all memories beside the one that is read, and put it in its place."""
    with suppress(NoIndexError, DamagedError):
        # What was left by one that was killed.
        store.remove_others(root, store.current_generation())
    outbox.start_following()
    generation = store.next_generation(root)
    writer = Writer.create(generation)
    try:
        with _consistent():
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM memories_memory")
                total = cursor.fetchone()[0]
            seen = outbox.every_id()
            revision = outbox.following().revision
            writer.write([], [], revision)
            for block in _blocks(rows.all_rows(store.SCHEMA)):
                writer.write([], block, revision)
                progress(writer.manifest.memories, total)
        step("generation filled")
        writer.merge_all()
        writer.close()
    except BaseException:
        # Half a generation is of no use to anybody, and a full disk needs the space.
        writer.close()
        shutil.rmtree(generation, ignore_errors=True)
        raise
    step("generation made")
    store.replace_file(root / "current", generation.name)
    (root / "damaged").unlink(missing_ok=True)
    outbox.follow_for(generation.name)
    step("generation in place")
    # What it was made from has these changes already.
    outbox.taken_in(seen)
    store.remove_others(root, generation)
    return generation


def opened(root: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Writer:
    """The index open for writing: the one that is there or, where it cannot be used, a new one."""
    reason = store.damage_reported()
    if not (root / "current").exists():
        return Writer.open(build(root, progress))
    if not reason:
        try:
            generation = store.current_generation()
            if store.is_of_this_database(generation, store.read_manifest(generation)):
                return Writer.open(generation)
            reason = "it is of another database, or changes were not written down for it"
        except (NoIndexError, DamagedError) as error:
            reason = str(error)
    logger.warning("The search index is made anew: %s.", reason)
    return Writer.open(build(root, progress))


def catch_up() -> int:
    """Take in all that waits, and leave; gives back how many changes that was. Raises WriterElsewhereError."""
    with _writing() as root:
        writer = opened(root)
        try:
            done = 0
            while True:
                try:
                    taken = take_in(writer, _batch_size())
                except TruncatedError:
                    writer.close()
                    writer = Writer.open(build(root))
                    continue
                if not taken:
                    return done
                done += taken
        finally:
            writer.close()


def rebuild(progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Make the index anew; gives back how many memories are in it. Raises WriterElsewhereError."""
    with _writing() as root:
        generation = build(root, progress)
        return store.read_manifest(generation).memories


def _batch_size() -> int:
    return _LARGE_BATCH if outbox.backlog(_BEHIND).changes >= _BEHIND else BATCH


def follow(stop: Callable[[], bool], progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Follow the outbox until told to stop. Where another process does, wait to take its place."""
    failures = 0
    while not stop():
        try:
            with _writing() as root:
                _follow(root, stop, progress)
            failures = 0
        except store.WriterElsewhereError:
            _wait(1.0, stop)
        except DamagedError as error:
            store.report_damage(str(error))
            _wait(_RETRY_SECONDS[0], stop)
        except Exception:  # whatever it is - a full disk, a database that restarts - it is tried again
            pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
            failures += 1
            logger.exception("The search index could not be brought up to date; trying again in %s s.", pause)
            connection.close()
            _wait(pause, stop)


def _follow(root: Path, stop: Callable[[], bool], progress: Callable[[int, int], None]) -> None:
    writer = opened(root, progress)
    try:
        while not stop():
            if store.damage_reported() or writer.is_wasteful:
                writer.close()
                writer = Writer.open(build(root, progress))
            try:
                taken = take_in(writer, _batch_size())
            except TruncatedError:
                writer.close()
                writer = Writer.open(build(root, progress))
                continue
            if not taken:
                if not _is_kept(root, writer):
                    return
                _wait(_POLL_SECONDS, stop)
    finally:
        writer.close()


def _is_kept(root: Path, writer: Writer) -> bool:
    """Whether changes are still written down for this index, and it is still the one that is read."""
    try:
        return store.current_generation() == writer.generation and store.is_of_this_database(
            writer.generation, writer.manifest
        )
    except (NoIndexError, DamagedError):
        return False


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(0.25, left))


@dataclass(slots=True)
class Comparison:
    """What the index has, compared with the database."""

    memories: int = 0
    indexed: int = 0
    missing: list[int] = field(default_factory=list)
    left_over: list[int] = field(default_factory=list)
    different: list[int] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    waiting: int = 0

    @property
    def agrees(self) -> bool:
        return not (self.missing or self.left_over or self.different or self.damage)


def compare() -> Comparison:
    """Compare every memory with the index, and every file of the index with what was written. Changes that wait are
    not taken for differences. Raises NoIndexError.
    """
    while True:
        before = _read_now()
        try:
            with _consistent():
                _, waiting = outbox.oldest(_EVERY_CHANGE)
                # Nothing was taken in between: what the index lacks of this moment waits in the outbox.
                if _read_now() != before:
                    continue
                found = _compared(*before, waiting)
        except FileNotFoundError:
            if _read_now() == before:
                raise
            continue
        # What changed while it was read may look like damage.
        if found.agrees or _read_now() == before:
            return found


def _read_now() -> tuple[Path, Manifest]:
    generation = store.current_generation()
    return generation, store.read_manifest(generation)


def _compared(generation: Path, manifest: Manifest, waiting: list[int]) -> Comparison:
    found = Comparison(waiting=len(waiting))
    expected = set(waiting)
    indexed = _indexed_digests(generation, manifest, found)
    for memory_id, digest in rows.all_digests(store.SCHEMA):
        found.memories += 1
        known = indexed.pop(memory_id, None)
        if memory_id not in expected and known != digest:
            (found.missing if known is None else found.different).append(memory_id)
    found.left_over = sorted(set(indexed) - expected)
    return found


def _indexed_digests(generation: Path, manifest: Manifest, found: Comparison) -> dict[int, int]:
    digests: dict[int, int] = {}
    live = store.read_live(generation, manifest)
    found.indexed = int(np.count_nonzero(live))
    for name in manifest.parts:
        try:
            Part.verify(generation / name)
            part = Part.read(generation / name)
        except DamagedError as error:
            found.damage.append(str(error))
            continue
        kept = live[part.slots]
        pairs = zip(part.ids[kept].tolist(), part.arrays["digest"][kept].tolist(), strict=True)
        for memory_id, digest in pairs:
            if memory_id in digests:
                found.damage.append(f"#{memory_id} is there twice")
            digests[memory_id] = digest
    found.damage += words.damaged_files(generation / "words")
    try:
        searcher = words.open_index(generation / "words").searcher()
        slots = words.slots_of(searcher, tantivy.Query.all_query(), 0, manifest.slots + 1_000)
        if not np.array_equal(slots, np.flatnonzero(live)):
            found.damage.append(f"the words are of {len(slots):,} memories, the columns of {found.indexed:,}")
    except (ValueError, OSError) as error:
        found.damage.append(f"the words: {error}")
    return digests


def drop() -> None:
    """Remove the index, and follow no changes any more. Raises WriterElsewhereError."""
    with _writing() as root:
        # First, so that nobody reads what is not followed.
        (root / "current").unlink(missing_ok=True)
        outbox.stop_following()
        (root / "damaged").unlink(missing_ok=True)
        store.remove_others(root, root / "none")

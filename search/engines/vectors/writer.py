"""The one writer of the replica: it takes in what has changed, and makes a new one where that is not enough.

Changes are taken in by these steps, in this order; killed between any two of them, the next start repeats them:

1. a segment with the vectors that the changed memories have by now, and the bits of the rows that are dead
2. the manifest that names them: from here on readers see them
3. what was written down of them deleted
"""

import logging
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from memories.embedding.vectors import serving_id
from search.engines.array_files import DamagedError, Mask, bits_write, step
from search.engines.base import Ids
from search.engines.index.retry import POLL_SECONDS, wait, wait_to_retry
from search.engines.index.transactions import consistent
from search.engines.vectors import change_log, files
from search.engines.vectors.files import Manifest, Rows, Segment

logger = logging.getLogger(__name__)

# Of vectors; so much is in memory at once, two or three times over, however wide they are.
_SEGMENT_BYTES = 64 << 20
# Once so many of the rows are dead, a new replica is smaller and faster.
_MOST_DEAD = 0.3
_LEAST_ROWS = 10_000
# So many memories at the most are taken in at once, of so many changes; where more wait, a new replica is made sooner.
_MOST_TAKEN = 100_000
MOST_WAITING = 2_000

_ROWS = """
COPY (SELECT memory_id, embedding FROM memories_chunk WHERE model_id = {model} {which} ORDER BY memory_id, ordinal)
TO STDOUT (FORMAT BINARY)"""
# Before the first row of a binary COPY: a mark, flags and the length of what else there is.
_HEAD = 19

_Lots = Generator[tuple[Ids, Rows], None, None]

# A new one is wanted. The thread that keeps it may be writing what there is at that moment.
_anew = threading.Event()


class StoppedError(Exception):
    """It was told to stop before a replica was made."""


class _Keeping:
    """The replica open for writing."""

    def __init__(self, manifest: Manifest, segments: list[Segment], live: Mask) -> None:
        self.manifest = manifest
        self.segments = segments
        self.live = live

    @staticmethod
    def open(manifest: Manifest) -> "_Keeping":
        """Raises DamagedError."""
        segments, live = files.map_segments(manifest)
        files.remove_others([manifest])
        return _Keeping(manifest, segments, live)

    @property
    def is_wasteful(self) -> bool:
        dead = self.manifest.rows - int(np.count_nonzero(self.live))
        return self.manifest.rows > _LEAST_ROWS and dead > _MOST_DEAD * self.manifest.rows

    def replace(self, changed: Ids, found: Iterable[tuple[Ids, Rows]], revision: int) -> None:
        """Put vectors, in lots of whole memories, in the place of those that the changed memories had."""
        live = self.live.copy()
        first = 0
        for segment in self.segments:
            live[first + segment.places_of(changed)] = False
            first += segment.size
        names, segments = list(self.manifest.segments), list(self.segments)
        made = self.manifest.made

        def written(segment: Segment) -> None:
            nonlocal made
            made += 1
            names.append(f"{self.manifest.name}-{made:06d}.rows")
            files.write_segment(names[-1], segment)
            segments.append(files.map_segment(names[-1], self.manifest.dimensions))

        for ids, vectors in found:
            written(files.segment_of(ids, vectors))
            live = np.concatenate([live, np.ones(len(ids), np.bool_)])
        # Neighbours of like size become one, so that there are ever only a few, and each row is rarely copied.
        most = _segment_rows(self.manifest.dimensions)
        while len(segments) > 1 and segments[-2].size < min(4 * segments[-1].size, most):
            last = segments[-2].size + segments[-1].size
            one = _merged(segments[-2:], live[-last:])
            live = np.concatenate([live[:-last], np.ones(one.size, np.bool_)])
            del names[-2:], segments[-2:]
            written(one)
        step("segment written")
        dead = ""
        if not live.all():
            made += 1
            dead = f"{self.manifest.name}-{made:06d}.dead"
            bits_write(files.folder() / dead, ~live)
        before = self.manifest
        self.manifest = Manifest(
            name=before.name,
            model_id=before.model_id,
            dimensions=before.dimensions,
            revision=revision,
            made=made,
            rows=len(live),
            segments=tuple(names),
            dead=dead,
        )
        self.segments, self.live = segments, live
        files.write_manifest(self.manifest)
        step("replica's manifest written")
        # A reader may have read the manifest before this one, and be about to open what it names.
        files.remove_others([self.manifest, before])


def _merged(segments: Sequence[Segment], live: Mask) -> Segment:
    """Neighbours as one, without what is dead."""
    ids = np.concatenate([segment.ids for segment in segments])[live]
    return files.segment_of(ids, np.concatenate([segment.vectors for segment in segments])[live])


def sync(stop: Callable[[], bool] = lambda: False) -> bool:
    """Bring the replica up to date with the vectors; says whether there was anything to do. Raises StoppedError."""
    model_id = serving_id()
    manifest = files.read_manifest()
    now = change_log.standing(manifest.revision if manifest else 0, model_id, MOST_WAITING)
    if not model_id:
        if manifest is None and not now.replica:
            return False
        drop()
        return True
    if (
        manifest is None
        or _anew.is_set()
        or manifest.model_id != model_id
        or not now.follows(manifest.name, manifest.revision)
    ):
        build(stop)
        return True
    if now.revision == manifest.revision:
        return False
    try:
        keeping = _Keeping.open(manifest)
    except DamagedError as error:
        logger.warning("Rebuilding the replica of the vectors: %s.", error)
        build(stop)
        return True
    if keeping.is_wasteful or len(now.memory_ids) > _MOST_TAKEN:
        build(stop)
        return True
    _take_in(keeping)
    return True


def _take_in(keeping: _Keeping) -> None:
    manifest = keeping.manifest
    with consistent():
        now = change_log.standing(manifest.revision, manifest.model_id, MOST_WAITING)
        if not now.follows(manifest.name, manifest.revision):
            return  # since it was looked at; the next look makes a new one
        changed = now.changed()
        with closing(stored_rows(manifest.model_id, manifest.dimensions, changed)) as found:
            keeping.replace(changed, found, now.revision)
    change_log.delete_applied(now.revision)
    step("changes of vectors forgotten")


def build(stop: Callable[[], bool] = lambda: False) -> Manifest:
    """Make a new replica of all vectors of the model that serves. Raises StoppedError."""
    _anew.clear()
    files.folder().mkdir(parents=True, exist_ok=True)
    name = files.new_name()
    with transaction.atomic():
        change_log.track_changes_for(name)
    # From here on nobody can follow the one that was there, and a full disk needs the space.
    files.discard()
    files.remove_others([])
    made: list[tuple[str, int]] = []
    try:
        with consistent():
            model_id = serving_id()
            now = change_log.standing()
            dimensions = _dimensions(model_id)
            for ids, vectors in stored_rows(model_id, dimensions):
                if stop():
                    raise StoppedError
                made.append((f"{name}-{len(made) + 1:06d}.rows", len(ids)))
                files.write_segment(made[-1][0], files.segment_of(ids, vectors))
    except BaseException:
        # Half a replica is of no use to anybody either.
        files.remove_others([])
        raise
    step("replica filled")
    manifest = Manifest(
        name=name,
        model_id=model_id,
        dimensions=dimensions,
        revision=now.revision,
        made=len(made),
        rows=sum(size for _, size in made),
        segments=tuple(segment for segment, _ in made),
    )
    files.write_manifest(manifest)
    step("replica in place")
    files.remove_others([manifest])
    change_log.delete_applied(manifest.revision)
    return manifest


def discard() -> None:
    """Have the replica that there is read no more: the next `sync` in this process makes a new one."""
    _anew.set()
    files.discard()


def drop() -> None:
    """Remove the replica, and have no changes written down any more."""
    # First, so that nobody reads what is not followed.
    files.discard()
    with transaction.atomic():
        change_log.track_changes_for("")
    shutil.rmtree(files.folder(), ignore_errors=True)


@contextmanager
def kept_meanwhile(stop: Callable[[], bool]) -> Iterator[None]:
    """Keep the replica up to date beside what is done meanwhile, in a thread that ends with it."""
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(lambda: over.is_set() or stop(),), name="replica", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _follow(stop: Callable[[], bool]) -> None:
    failures = 0
    try:
        while not stop():
            try:
                done = sync(stop=stop)
                failures = 0
            except StoppedError:
                return
            except Exception:  # whatever it is - a full disk, a database that restarts - it is tried again
                wait_to_retry("The replica of the vectors could not be brought up to date", failures, stop)
                failures += 1
                continue
            if not done:
                wait(POLL_SECONDS, stop)
    finally:
        connection.close()


def _dimensions(model_id: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT dimensions FROM memories_embeddingmodel WHERE id = %s", [model_id])
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def stored_rows(model_id: int, dimensions: int, memory_ids: Ids | None = None) -> _Lots:
    """The vectors of some memories, or of all, in the order of their ids, in lots of whole memories."""
    layout = np.dtype(
        [
            ("fields", ">i2"),
            ("id length", ">i4"),
            ("id", ">i8"),
            ("length", ">i4"),
            ("dimensions", ">i2"),
            ("unused", ">i2"),
            ("vector", ">f2", (dimensions,)),
        ]
    )
    most = _segment_rows(dimensions) * layout.itemsize
    which = "" if memory_ids is None else f"AND memory_id = ANY('{{{','.join(map(str, memory_ids.tolist()))}}}')"
    with connection.cursor() as cursor, cursor.copy(_ROWS.format(model=int(model_id), which=which)) as copy:
        lot = bytearray()
        full, skipped = most, 0
        for data in copy:
            lot += data[_HEAD - skipped :] if skipped < _HEAD else data
            skipped = min(_HEAD, skipped + len(data))
            if len(lot) >= full:
                # More may come of the last memory.
                ids, vectors = _columns(lot, layout, without_last=True)
                del lot[: len(ids) * layout.itemsize]
                full = len(lot) + most
                if len(ids):
                    yield ids, vectors
    if len(lot) >= layout.itemsize:
        yield _columns(lot, layout)


def _segment_rows(dimensions: int) -> int:
    return max(1, _SEGMENT_BYTES // max(1, dimensions * np.dtype(np.float16).itemsize))


def _columns(lot: bytearray, layout: "np.dtype[np.void]", *, without_last: bool = False) -> tuple[Ids, Rows]:
    """The whole rows of a lot; on demand but for those of the last memory."""
    found: npt.NDArray[np.void] = np.frombuffer(lot, layout, len(lot) // layout.itemsize)
    if without_last:
        found = found[: np.searchsorted(found["id"], found["id"][-1], "left")]
    return found["id"].astype(np.int64), found["vector"].astype(np.float16)

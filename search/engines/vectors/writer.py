"""The only writer of the replica: it applies changes, and builds a new replica where that is not enough.

Changes are applied in these steps, in this order. If the process is killed between two of them, the next run repeats
them:

1. a segment with the current vectors of the changed memories, and the bits of the deleted rows
2. the manifest that names them: from here on readers see them
3. the recorded changes deleted
"""

import logging
import shutil
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from memories.embedding.vectors import serving_id
from memories.models import EmbeddingModel
from search.engines import segment_files
from search.engines.base import Ids
from search.engines.index.store import read_snapshot
from search.engines.polling import POLL_SECONDS, Healthy, Stop, StoppedError, never, repeat, wait
from search.engines.segment_files import DamagedError, Mask, SegmentWriter, merge_tail, remove_unreferenced
from search.engines.vectors import pgvector, replica
from search.engines.vectors.replica import HalfVectors, ReplicaManifest, VectorSegment

logger = logging.getLogger(__name__)

# The number of bytes of vectors in a block. Two or three times this much is in memory at once.
_SEGMENT_BYTES = 64 << 20
# Memories to apply at once at most, and pending changes to read; beyond either, rebuilding is faster.
_MAX_MEMORIES = 100_000
MAX_PENDING = 2_000

_ROWS = """
COPY (SELECT memory_id, embedding FROM memories_chunk WHERE model_id = {model} {which} ORDER BY memory_id, ordinal)
TO STDOUT (FORMAT BINARY)"""
# Bytes before the first row of a binary COPY.
_HEAD = 19

_Batches = Generator[tuple[Ids, HalfVectors], None, None]

# Set when a new replica is wanted, even while the writing thread applies changes to the old one.
_rebuild_requested = threading.Event()


class _ReplicaWriter(SegmentWriter[VectorSegment, ReplicaManifest]):
    """The replica, open for writing."""

    MAX_DELETED_SHARE = 0.3

    def __init__(self, manifest: ReplicaManifest, segments: list[VectorSegment], live: Mask) -> None:
        super().__init__(replica.folder(), manifest, segments, live, prefix=f"{manifest.name}-")

    @staticmethod
    def open(manifest: ReplicaManifest) -> "_ReplicaWriter":
        """Raise DamagedError."""
        segments, live = replica.open_segments(manifest)
        remove_unreferenced(replica.folder(), [manifest])
        return _ReplicaWriter(manifest, segments, live)

    def write_segment(self, segment: VectorSegment) -> VectorSegment:
        """Write a segment, and map it from disk, which frees its memory."""
        name = self.new_name(".segment")
        replica.write_segment(name, segment)
        return replica.map_segment(name, self.manifest.dimensions)

    def replace(self, changed: Ids, found: Iterable[tuple[Ids, HalfVectors]], revision: int) -> None:
        """Replace all vectors of the changed memories by those in `found`, batches of whole memories."""
        live = self.live.copy()
        first = 0
        for segment in self.segments:
            live[first + segment.rows_of(changed)] = False
            first += segment.size
        segments = list(self.segments)
        for ids, vectors in found:
            segments.append(self.write_segment(replica.segment_of(ids, vectors)))
            live = np.concatenate([live, np.ones(len(ids), np.bool_)])

        def merge(tail: Sequence[VectorSegment]) -> VectorSegment:
            nonlocal live
            rows = sum(segment.size for segment in tail)
            merged = self.write_segment(_merged(tail, live[-rows:]))
            live = np.concatenate([live[:-rows], np.ones(merged.size, np.bool_)])
            return merged

        merge_tail(segments, _segment_rows(self.manifest.dimensions), merge)
        segment_files.reached("segment written")
        self.publish(segments, live, revision=revision)


def _merged(segments: Sequence[VectorSegment], live: Mask) -> VectorSegment:
    """Merge neighbours, without the deleted rows."""
    ids = np.concatenate([segment.ids for segment in segments])[live]
    return replica.segment_of(ids, np.concatenate([segment.vectors for segment in segments])[live])


def sync(stop: Stop = never) -> bool:
    """Bring the replica up to date, and return whether there was anything to do. Raise StoppedError."""
    model_id = serving_id()
    manifest = replica.read_manifest()
    now = pgvector.change_state(manifest.revision if manifest else 0, model_id, MAX_PENDING)
    if not model_id:
        if manifest is None and not now.replica:
            return False
        drop()
        return True
    if (
        manifest is None
        or _rebuild_requested.is_set()
        or manifest.model_id != model_id
        or not now.follows(manifest.name, manifest.revision)
    ):
        build(stop)
        return True
    if now.revision == manifest.revision:
        return False
    try:
        writer = _ReplicaWriter.open(manifest)
    except DamagedError as error:
        logger.warning("Rebuilding the replica of the vectors: %s.", error)
        build(stop)
        return True
    if writer.is_wasteful or len(now.memory_ids) > _MAX_MEMORIES:
        build(stop)
        return True
    _apply_changes(writer)
    return True


def _apply_changes(writer: _ReplicaWriter) -> None:
    manifest = writer.manifest
    with read_snapshot():
        now = pgvector.change_state(manifest.revision, manifest.model_id, MAX_PENDING)
        if not now.follows(manifest.name, manifest.revision):
            return  # since it was looked at; the next look makes a new one
        changed = now.changed()
        with closing(stored_rows(manifest.model_id, manifest.dimensions, changed)) as found:
            writer.replace(changed, found, now.revision)
    pgvector.delete_applied(now.revision)
    segment_files.reached("changes deleted")


def build(stop: Stop = never) -> None:
    """Build a new replica of all vectors of the serving model. Raise StoppedError."""
    _rebuild_requested.clear()
    replica.folder().mkdir(parents=True, exist_ok=True)
    name = replica.new_name()
    with transaction.atomic():
        pgvector.track_changes_for(name)
    # Nothing records changes for the old replica any more, and a full disk needs its space.
    replica.discard()
    remove_unreferenced(replica.folder())
    segments: list[VectorSegment] = []
    try:
        with read_snapshot():
            model_id = serving_id()
            now = pgvector.change_state()
            dimensions = EmbeddingModel.objects.filter(pk=model_id).values_list("dimensions", flat=True).first()
            manifest = ReplicaManifest(name=name, model_id=model_id, dimensions=dimensions or 0)
            writer = _ReplicaWriter(manifest, [], np.empty(0, np.bool_))
            for ids, vectors in stored_rows(model_id, manifest.dimensions):
                if stop():
                    raise StoppedError
                segments.append(writer.write_segment(replica.segment_of(ids, vectors)))
    except BaseException:
        # Remove the incomplete replica.
        remove_unreferenced(replica.folder())
        raise
    segment_files.reached("replica filled")
    writer.publish(segments, np.ones(sum(segment.size for segment in segments), np.bool_), revision=now.revision)
    pgvector.delete_applied(now.revision)


def discard() -> None:
    """Stop reading the current replica; the next `sync` in this process builds a new one."""
    _rebuild_requested.set()
    replica.discard()


def drop() -> None:
    """Remove the replica, and stop recording changes."""
    # First, so that no process reads what is no longer updated.
    replica.discard()
    with transaction.atomic():
        pgvector.track_changes_for("")
    shutil.rmtree(replica.folder(), ignore_errors=True)


@contextmanager
def sync_in_background(stop: Stop) -> Iterator[None]:
    """Keep the replica up to date in a thread that ends with the block."""
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(lambda: over.is_set() or stop(),), name="replica", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _follow(stop: Stop) -> None:
    def step(_: Healthy) -> None:
        if not sync(stop=stop):
            wait(POLL_SECONDS, stop)

    try:
        repeat(step, "The replica of the vectors could not be brought up to date", stop)
    finally:
        connection.close()


def stored_rows(model_id: int, dimensions: int, memory_ids: Ids | None = None) -> _Batches:
    """Vectors of some memories, or of all, ordered by id, in batches of whole memories."""
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
        batch = bytearray()
        full, skipped = most, 0
        for data in copy:
            batch += data[_HEAD - skipped :] if skipped < _HEAD else data
            skipped = min(_HEAD, skipped + len(data))
            if len(batch) >= full:
                # The last memory of the batch may have more rows.
                ids, vectors = _columns(batch, layout, without_last=True)
                del batch[: len(ids) * layout.itemsize]
                full = len(batch) + most
                if len(ids):
                    yield ids, vectors
    if len(batch) >= layout.itemsize:
        yield _columns(batch, layout)


def _segment_rows(dimensions: int) -> int:
    return max(1, _SEGMENT_BYTES // max(1, dimensions * np.dtype(np.float16).itemsize))


def _columns(batch: bytearray, layout: "np.dtype[np.void]", *, without_last: bool = False) -> tuple[Ids, HalfVectors]:
    """Parse the complete rows of a batch, optionally without those of its last memory."""
    found: npt.NDArray[np.void] = np.frombuffer(batch, layout, len(batch) // layout.itemsize)
    if without_last:
        found = found[: np.searchsorted(found["id"], found["id"][-1], "left")]
    return found["id"].astype(np.int64), found["vector"].astype(np.float16)

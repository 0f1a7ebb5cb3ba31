"""The replica of the vectors as one process reads it: the similarity of all memories, or of some, in milliseconds.

Its files are segments of whole memories' vectors, ordered by id (see `search.engines.segment_files`). A dot product of
halves is summed in single precision or better, as in pgvector, and divided by both lengths: similarities agree to six
digits.
"""

import contextlib
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numkong
import numpy as np
import numpy.typing as npt

from search.engines import segment_files
from search.engines.base import Ids, Similarities
from search.engines.index import store
from search.engines.segment_files import (
    Array,
    DamagedError,
    Mask,
    NotReadableError,
    SnapshotReader,
    arrays_map,
    arrays_write,
    is_out_of_resources,
)
from search.engines.vectors import pgvector
from search.engines.vectors.pgvector import ChangeState, by_memory

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManifest(segment_files.Manifest):
    """The segments of one replica; its `name` begins the names of their files."""

    # Increased whenever files of an older version cannot be read, or would mean something else.
    VERSION: ClassVar[int] = 2

    name: str
    model_id: int
    dimensions: int


@dataclass(frozen=True, slots=True, eq=False)
class VectorSegment:
    """Rows of vectors, with the memory of each, ascending, and the length of each vector."""

    ids: Ids
    lengths: npt.NDArray[np.float32]
    vectors: HalfVectors
    name: str = ""

    @property
    def size(self) -> int:
        return len(self.ids)

    def rows_of(self, ids: Ids) -> npt.NDArray[np.int64]:
        """The rows of memories, given by sorted ids."""
        low = np.searchsorted(self.ids, ids, "left")
        counts = np.searchsorted(self.ids, ids, "right") - low
        starts = np.cumsum(counts) - counts
        rows: npt.NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(low - starts, counts)
        return rows


def folder() -> Path:
    return store.index_dir() / "vectors"


def new_name() -> str:
    return secrets.token_hex(4)


def read_manifest() -> ReplicaManifest | None:
    """Return the manifest, or None if there is none that can be read."""
    with suppress(NotReadableError, DamagedError):
        return segment_files.read_manifest(folder(), ReplicaManifest)
    return None


def discard() -> None:
    """Stop reading the current replica; the writer builds a new one."""
    (folder() / "manifest").unlink(missing_ok=True)


def segment_of(ids: Ids, vectors: HalfVectors) -> VectorSegment:
    """Sort rows into a segment."""
    if not bool(np.all(ids[1:] >= ids[:-1])):
        order = np.argsort(ids, kind="stable")
        ids, vectors = ids[order], vectors[order]
    vectors = np.ascontiguousarray(vectors)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32))
    # A zero vector is near to nothing, even for a negative minimum similarity.
    return VectorSegment(ids, np.where(lengths > 0, lengths, np.nan).astype(np.float32), vectors)


def write_segment(name: str, segment: VectorSegment) -> None:
    arrays: dict[str, Array] = {"ids": segment.ids, "lengths": segment.lengths, "vectors": segment.vectors.reshape(-1)}
    arrays_write(folder() / name, {}, arrays)


def map_segment(name: str, dimensions: int) -> VectorSegment:
    """Raise DamagedError."""
    _, arrays = arrays_map(folder() / name)
    try:
        return VectorSegment(
            arrays["ids"], arrays["lengths"], arrays["vectors"].reshape(len(arrays["ids"]), dimensions), name
        )
    except (KeyError, ValueError) as error:
        raise DamagedError(f"{name}: {error}") from error


def open_segments(manifest: ReplicaManifest, opened: Iterable[VectorSegment] = ()) -> tuple[list[VectorSegment], Mask]:
    """Map the segments that are not in `opened`, and read the mask of live rows. Raise DamagedError."""
    return segment_files.open_segments(
        folder(), manifest, lambda path: map_segment(path.name, manifest.dimensions), opened
    )


logger = logging.getLogger(__name__)

# Rows to copy at once when they are not adjacent.
_GATHERED = 4_096
_TRIES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """The immutable files of one manifest."""

    manifest: ReplicaManifest
    segments: tuple[VectorSegment, ...]
    live: tuple[Mask | None, ...]
    """The live rows of each segment; None for all of them."""

    def scan(self, vector: npt.NDArray[np.float32], min_similarity: float) -> tuple[Ids, Similarities]:
        """The memories at or above the minimum similarity by their nearest row, each once, in any order."""
        query = _halves(vector)
        found = []
        for segment, live in zip(self.segments, self.live, strict=True):
            similarities = _similarities(query, segment.vectors, segment.lengths)
            near = similarities >= min_similarity
            if live is not None:
                near &= live
            rows = np.flatnonzero(near)
            found.append(by_memory(segment.ids[rows], similarities[rows]))
        return _joined(found)

    def by_ids(self, vector: npt.NDArray[np.float32], min_similarity: float, ids: Ids) -> tuple[Ids, Similarities]:
        """The same for some memories, given by sorted ids."""
        query = _halves(vector)
        found = []
        for segment, live in zip(self.segments, self.live, strict=True):
            rows = segment.rows_of(ids)
            if live is not None:
                rows = rows[live[rows]]
            for begin in range(0, len(rows), _GATHERED):
                batch = rows[begin : begin + _GATHERED]
                similarities = _similarities(query, segment.vectors[batch], segment.lengths[batch])
                near = similarities >= min_similarity
                found.append((segment.ids[batch[near]], similarities[near]))
        # A memory may be split over two batches.
        return by_memory(*_joined(found))


def _halves(vector: npt.NDArray[np.float32]) -> HalfVectors:
    """A query vector in half precision, as pgvector compares it."""
    return vector.astype(np.float16).reshape(1, -1)


def _similarities(query: HalfVectors, vectors: HalfVectors, lengths: npt.NDArray[np.float32]) -> Similarities:
    if not len(vectors):
        return np.empty(0, np.float32)
    dots = np.asarray(numkong.cdist(query, vectors, "dot")).reshape(-1)
    length = float(np.linalg.norm(query.astype(np.float32)))
    similarities: Similarities = (dots / lengths / (length or np.nan)).astype(np.float32)
    # Rounding must not put identical vectors above 1.
    return np.minimum(similarities, 1, out=similarities)


def _joined(found: list[tuple[Ids, Similarities]]) -> tuple[Ids, Similarities]:
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    return np.concatenate([ids for ids, _ in found]), np.concatenate([similar for _, similar in found])


@dataclass(frozen=True, slots=True)
class _Opened:
    """The current replica, and the version before it: for transactions with an older snapshot."""

    replica: Replica | None
    before: Replica | None


def open_replicas() -> tuple[Replica, ...]:
    """The current replica and the version before it; empty if none can be read."""
    stamp = _stamp()
    try:
        opened = _reader.read()
    except NotReadableError:
        return ()
    except DamagedError as error:
        if not is_out_of_resources(error):
            logger.error("The replica of the vectors needs to be rebuilt: %s.", error)
            # A process that may only read the files does not try them again.
            with contextlib.suppress(OSError):
                discard()
            _reader.settle_for(_Opened(None, None), stamp)
        return ()
    return tuple(found for found in (opened.replica, opened.before) if found is not None)


def _open_newer(known: _Opened | None) -> _Opened:
    before = known.replica if known else None
    found = _open(before)
    # Open files of another replica would occupy space after their removal.
    same = found is not None and before is not None and before.manifest.name == found.manifest.name
    return _Opened(found, before if same else None)


def serving_replica(model_id: int) -> tuple[Replica | None, ChangeState]:
    """Return the replica to answer from, if it and the changes since are usable, and the state of the changes."""
    tried: list[Replica] = []
    now = None
    # The replica may have been updated since this transaction began, or between two attempts.
    while left := [replica for replica in open_replicas() if replica not in tried]:
        manifest = left[0].manifest
        now = pgvector.change_state(manifest.revision, model_id)
        if now.follows(manifest.name, manifest.revision) and now.changes <= pgvector.MAX_CHANGES:
            return (left[0] if manifest.model_id == model_id else None), now
        tried.append(left[0])
        if len(tried) == _TRIES:
            break
    return None, now or pgvector.change_state()


def clear_cache() -> None:
    """Close the open replicas."""
    _reader.clear()


def _stamp() -> object:
    """Changes whenever there is something new to read."""
    try:
        found = (folder() / "manifest").stat()
    except OSError:
        return ()
    return (str(folder()), found.st_ino, found.st_mtime_ns)


def _open(before: Replica | None) -> Replica | None:
    manifest = read_manifest()
    if manifest is None:
        return None
    segments, live = open_segments(manifest, before.segments if before else ())
    cuts = np.cumsum([segment.size for segment in segments])[:-1]
    masks = tuple(None if mask.all() else mask for mask in np.split(live, cuts)) if segments else ()
    return Replica(manifest, tuple(segments), masks)


_reader = SnapshotReader(_stamp, _open_newer)

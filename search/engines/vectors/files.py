"""The files of the replica: segments of whole memories' vectors, ordered by id (see `search.engines.segment_store`)."""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from search.engines import segment_store
from search.engines.array_files import Array, DamagedError, Mask, arrays_map, arrays_write
from search.engines.base import Ids
from search.engines.index import store
from search.engines.segment_store import NotReadableError

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManifest(segment_store.Manifest):
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
        return segment_store.read_manifest(folder(), ReplicaManifest)
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
    return segment_store.open_segments(
        folder(), manifest, lambda path: map_segment(path.name, manifest.dimensions), opened
    )

"""The files of the replica.

    manifest                 the files that belong together, and the revision of the vectors that they are true to
    <name>-000001.rows       a segment: vectors of whole memories, ordered by id, with their lengths
    <name>-000002.deleted    a bit for each row that is deleted

Files are written completely, under new names, and flushed to disk before the manifest names them; the manifest is
replaced atomically.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from search.engines.array_files import Array, DamagedError, Mask, arrays_map, arrays_write, bits_read
from search.engines.base import Ids
from search.engines.index import store

# Raised whenever files of an older version cannot be read any more, or would mean something else.
SCHEMA = 2

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that belong together. `file_count` is the number of files ever written under this name."""

    name: str
    model_id: int
    dimensions: int
    revision: int = 0
    file_count: int = 0
    rows: int = 0
    segments: tuple[str, ...] = ()
    deleted: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True, eq=False)
class VectorSegment:
    """Rows of vectors, with the memory of each, ascending, and the length of each vector."""

    ids: Ids
    lengths: npt.NDArray[np.float32]
    vectors: HalfVectors

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


def read_manifest() -> Manifest | None:
    """Return the manifest, or None if there is none that can be read."""
    try:
        stored = json.loads((folder() / "manifest").read_text())
        if stored["schema"] != SCHEMA:
            return None
        return Manifest(**{**stored, "segments": tuple(stored["segments"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_manifest(manifest: Manifest) -> None:
    store.sync_folder(folder())
    store.replace_file(folder() / "manifest", json.dumps(asdict(manifest)))


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
            arrays["ids"], arrays["lengths"], arrays["vectors"].reshape(len(arrays["ids"]), dimensions)
        )
    except (KeyError, ValueError) as error:
        raise DamagedError(f"{name}: {error}") from error


def map_segments(
    manifest: Manifest, have: Mapping[str, VectorSegment] | None = None
) -> tuple[list[VectorSegment], Mask]:
    """Map the segments that are not in `have`, and read the mask of live rows. Raise DamagedError."""
    have = have or {}
    segments = [have.get(name) or map_segment(name, manifest.dimensions) for name in manifest.segments]
    if sum(segment.size for segment in segments) != manifest.rows:
        raise DamagedError("the segments do not add up to the manifest")
    return segments, read_live(manifest)


def read_live(manifest: Manifest) -> Mask:
    """A mask of the rows that are not deleted. Raises DamagedError."""
    if not manifest.deleted:
        return np.ones(manifest.rows, np.bool_)
    return ~bits_read(folder() / manifest.deleted, manifest.rows)


def remove_others(kept: Sequence[Manifest]) -> None:
    """Remove the files that none of these manifests names. Readers keep the files that they have open."""
    named = {"manifest", *(name for manifest in kept for name in (*manifest.segments, manifest.deleted))}
    if folder().is_dir():
        for path in folder().iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

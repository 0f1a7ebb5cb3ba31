"""Compares the replica with the database: every vector, and the checksum of every file."""

import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memories.embedding.vectors import serving_id
from memories.models import Memory
from search.engines.base import Ids
from search.engines.index.store import read_snapshot
from search.engines.segment_files import DamagedError, arrays_verify, read_live
from search.engines.vectors import pgvector, replica, writer
from search.engines.vectors.replica import HalfVectors, ReplicaManifest


@dataclass(slots=True)
class VectorComparison:
    """The differences between the replica and the database."""

    vectors: int = 0
    replicated: int = 0
    different: list[int] = field(default_factory=list)
    """Memories whose vectors differ, are missing, or are too many."""
    damage: list[str] = field(default_factory=list)
    waiting: int = 0

    @property
    def agrees(self) -> bool:
        return not self.different and not self.damage


def compare_vectors() -> VectorComparison | None:
    """Compare every vector. Pending changes are no differences. Return None if there is no replica to read."""
    while True:
        manifest = replica.read_manifest()
        if manifest is None:
            return None
        with read_snapshot():
            now = pgvector.change_state(manifest.revision, manifest.model_id, writer.MAX_PENDING)
            if manifest.model_id != serving_id() or not now.follows(manifest.name, manifest.revision):
                found = VectorComparison(damage=["the replica has other vectors and will be rebuilt"])
            else:
                found = _compared(manifest, now.changed())
        # A change during the comparison may look like damage.
        if found.agrees or replica.read_manifest() == manifest:
            return found


def _compared(manifest: ReplicaManifest, waiting: Ids) -> VectorComparison:
    found = VectorComparison(waiting=len(waiting))
    digests: dict[int, int] = {}
    try:
        live = read_live(replica.folder(), manifest)
        first = 0
        for name in manifest.segments:
            arrays_verify(replica.folder() / name)
            segment = replica.map_segment(name, manifest.dimensions)
            kept = live[first : first + segment.size]
            first += segment.size
            found.replicated += int(np.count_nonzero(kept))
            _add(digests, segment.ids[kept], segment.vectors[kept])
    except DamagedError as error:
        found.damage.append(str(error))
        return found
    expected: dict[int, int] = {}
    for ids, vectors in writer.stored_rows(manifest.model_id, manifest.dimensions):
        found.vectors += len(ids)
        _add(expected, ids, vectors)
    wrong = {memory_id for memory_id, digest in expected.items() if digests.get(memory_id) != digest}
    # The rows of deleted memories stay, but no query asks for them.
    wrong |= set(Memory.objects.filter(pk__in=list(digests.keys() - expected.keys())).values_list("pk", flat=True))
    found.different = sorted(wrong - set(waiting.tolist()))
    return found


def _add(digests: dict[int, int], ids: Ids, vectors: HalfVectors) -> None:
    """Add the checksums of rows to those of their memories; the order of rows does not matter."""
    rows: npt.NDArray[np.float16] = np.ascontiguousarray(vectors)
    for memory_id, row in zip(ids.tolist(), rows, strict=True):
        digests[memory_id] = digests.get(memory_id, 0) + zlib.crc32(row.data) + (1 << 40)

"""Compares the index and the replica with the database: every digest and vector, and the checksum of every file."""

import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tantivy

from memories.embedding.vectors import serving_id
from memories.models import Memory
from search.engines.base import Ids
from search.engines.index import outbox, store, words
from search.engines.index.segments import Segment, stream_digests
from search.engines.index.store import Manifest, read_snapshot
from search.engines.segment_files import DamagedError, arrays_verify, read_live
from search.engines.vectors import pgvector, replica, writer
from search.engines.vectors.replica import HalfVectors, ReplicaManifest

# How long to wait for the manifest of words that are committed.
_COMMIT_SECONDS = 10.0


@dataclass(slots=True)
class Comparison:
    """The differences between the index and the database."""

    memories: int = 0
    indexed: int = 0
    missing: list[int] = field(default_factory=list)
    left_over: list[int] = field(default_factory=list)
    different: list[int] = field(default_factory=list)
    unindexable: list[int] = field(default_factory=list)
    """In the database, but not indexable."""
    damage: list[str] = field(default_factory=list)
    waiting: int = 0

    @property
    def differs(self) -> bool:
        """Whether a new index would be different."""
        return bool(self.missing or self.left_over or self.different or self.damage)

    @property
    def agrees(self) -> bool:
        return not self.differs and not self.unindexable


def compare() -> Comparison:
    """Compare every memory and verify every file. Pending changes are no differences. Raise NotReadableError."""
    while True:
        before = _read_now()
        try:
            with read_snapshot():
                waiting = outbox.pending_memories()
                # No change was applied in between, so what the index lacks is pending in this snapshot.
                if _read_now() != before:
                    continue
                found = _compare_index(*before, waiting)
        except FileNotFoundError:
            if _read_now() == before:
                raise
            continue
        # A change during the comparison may look like damage.
        if found.agrees or (_read_now() == before and _is_settled(*before)):
            return found


def _is_settled(generation: Path, manifest: Manifest) -> bool:
    """Whether the words are those of the manifest. A writer commits the words first; one that was killed then leaves
    them so, until the next one starts.
    """
    until = time.monotonic() + _COMMIT_SECONDS
    while store.words_commit(generation) != manifest.commit:
        if time.monotonic() > until:
            return True
        time.sleep(0.1)
        if _read_now() != (generation, manifest):
            return False
    return True


def _read_now() -> tuple[Path, Manifest]:
    generation = store.current_generation()
    return generation, store.read_manifest(generation)


def _compare_index(generation: Path, manifest: Manifest, expected: set[int]) -> Comparison:
    found = Comparison(waiting=len(expected))
    indexed = _indexed_digests(generation, manifest, found)
    for memory_id, digest, unindexable in stream_digests(store.SCHEMA):
        found.memories += 1
        known = indexed.pop(memory_id, None)
        if unindexable:
            found.unindexable.append(memory_id)
        elif memory_id not in expected and known != digest:
            (found.missing if known is None else found.different).append(memory_id)
    found.left_over = sorted(set(indexed) - expected)
    return found


def _indexed_digests(generation: Path, manifest: Manifest, found: Comparison) -> dict[int, int]:
    digests: dict[int, int] = {}
    live = read_live(generation, manifest)
    found.indexed = int(np.count_nonzero(live))
    for name in manifest.segments:
        try:
            arrays_verify(generation / name)
            segment = Segment.read(generation / name)
        except DamagedError as error:
            found.damage.append(str(error))
            continue
        kept = live[segment.span]
        pairs = zip(segment.ids[kept].tolist(), segment.arrays["digest"][kept].tolist(), strict=True)
        for memory_id, digest in pairs:
            if memory_id in digests:
                found.damage.append(f"#{memory_id} is there twice")
            digests[memory_id] = digest
    found.damage += words.damaged_files(generation / "words")
    try:
        searcher = words.open_index(generation / "words").searcher()
        docs = words.docs_of(searcher, tantivy.Query.all_query(), 0, manifest.size + 1_000)
        if not np.array_equal(docs, np.flatnonzero(live)):
            found.damage.append(f"the words are of {len(docs):,} memories, the columns of {found.indexed:,}")
    except (ValueError, OSError) as error:
        found.damage.append(f"the words: {error}")
    return digests


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
                found = _compare_replica(manifest, now.changed())
        # A change during the comparison may look like damage.
        if found.agrees or replica.read_manifest() == manifest:
            return found


def _compare_replica(manifest: ReplicaManifest, waiting: Ids) -> VectorComparison:
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
            _add_digests(digests, segment.ids[kept], segment.vectors[kept])
    except DamagedError as error:
        found.damage.append(str(error))
        return found
    expected: dict[int, int] = {}
    for ids, vectors in writer.stored_rows(manifest.model_id, manifest.dimensions):
        found.vectors += len(ids)
        _add_digests(expected, ids, vectors)
    wrong = {memory_id for memory_id, digest in expected.items() if digests.get(memory_id) != digest}
    # The rows of deleted memories stay, but no query asks for them.
    wrong |= set(Memory.objects.filter(pk__in=list(digests.keys() - expected.keys())).values_list("pk", flat=True))
    found.different = sorted(wrong - set(waiting.tolist()))
    return found


def _add_digests(digests: dict[int, int], ids: Ids, vectors: HalfVectors) -> None:
    """Add the checksums of rows to those of their memories; the order of rows does not matter."""
    rows: npt.NDArray[np.float16] = np.ascontiguousarray(vectors)
    for memory_id, row in zip(ids.tolist(), rows, strict=True):
        digests[memory_id] = digests.get(memory_id, 0) + zlib.crc32(row.data) + (1 << 40)

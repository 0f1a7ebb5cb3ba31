"""Compares the index with the database: every memory's digest, and the checksum of every file."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tantivy

from search.engines.index import outbox, store, words
from search.engines.index.segments import Segment, stream_digests
from search.engines.index.store import Manifest, read_snapshot
from search.engines.segment_files import DamagedError, arrays_verify, read_live

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
                found = _compared(*before, waiting)
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


def _compared(generation: Path, manifest: Manifest, expected: set[int]) -> Comparison:
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

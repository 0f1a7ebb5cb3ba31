"""Random vectors, written as the worker does, and queries of their replica."""

import threading

import numpy as np
import pytest
from django.db import connection

from memories.embedding import vectors as tables
from memories.embedding.chunking import Window
from memories.embedding.vectors import EmbeddedText, PendingText
from memories.models import Chunk, Memory
from search.engines import check, knn
from search.engines.base import VectorQuery
from search.engines.vectors import pgvector, replica, writer
from web.cache import clear_caches

DIMENSIONS = 384


class Everyone:
    """All memories pass."""

    def contains(self, ids):
        return np.ones(len(ids), bool)

    def count(self, most=None):
        return Memory.objects.count()

    def ids(self):
        return np.array(sorted(Memory.objects.values_list("pk", flat=True)), np.int64)


def write(ids, *, seed, model_id=1):
    """Write vectors as the worker does."""
    chance = np.random.default_rng(seed)
    found = []
    for memory_id in ids:
        vectors = chance.standard_normal((int(chance.integers(1, 4)), DIMENSIONS)).astype(np.float32)
        windows = [Window(n, n + 1) for n in range(len(vectors))]
        found.append(EmbeddedText(PendingText(memory_id, "", "text", f"{seed}"), windows, vectors))
    tables.vectors_write(model_id, found)


def sync():
    """Return how often something was done."""
    done = 0
    while writer.sync():
        done += 1
    return done


def closing_connection(done):
    """Wrap a function for another thread, whose connection is closed after it."""

    def run():
        try:
            done()
        finally:
            connection.close()

    return run


def elsewhere(done):
    thread = threading.Thread(target=closing_connection(done))
    thread.start()
    thread.join()


def question(seed=7, least=0.02, limit=1_000):
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return VectorQuery(1, vector.tobytes(), least, limit)


def assert_true_to_the_database():
    """Compare the similarities with those of pgvector, of all memories and of some."""
    clear_caches()
    for seed in range(5):
        asked = question(seed)
        expected = dict(zip(*map(np.ndarray.tolist, pgvector.scan(asked)), strict=True))
        near = knn.nearest_candidates(asked, Everyone(), knn.vectors_now(asked, replicated=True))
        assert dict(zip(near.ids.tolist(), near.similarities.tolist(), strict=True)) == pytest.approx(
            expected, abs=1e-6
        )
        assert near.similarities.tolist() == sorted(near.similarities.tolist(), reverse=True)


def is_used():
    """Whether an answer would now be read from the replica."""
    replica.clear_cache()
    return knn.vectors_now(question(), replicated=True).replica is not None


def same_as_the_database():
    found = check.compare_vectors()
    return found is not None and found.agrees and found.vectors == Chunk.objects.count()

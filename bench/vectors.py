"""The nearest by meaning among what filters keep: how many of the exact answer are found, and how long it takes.

Generated vectors in a database of their own, read by `search.engines.nearest` as the engines have it read: from the
replica beside the derived index, and from pgvector alone. The memories themselves are not there: who passes is known
from a mask, as the derived index knows it.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings

from bench.database import bench_database, mark_loaded, tidy_database
from bench.figures import FilterFigures, VectorFigures, spread
from bench.likeness import Block, Likeness, Numbers, Vectors
from bench.machine import machine_load
from bench.peers.base import folder_bytes
from bench.telling import Teller
from memories.embedding.chunking import Window
from memories.embedding.vectors import EmbeddedText, WaitingText, binary_rows, column_dimensions
from memories.models import Corpus, EmbeddingModel
from search.engines import knn
from search.engines.base import Ids, VectorQuery
from search.engines.vectors import files, writer

# By name, how many of the memories a filter keeps: of all, or as a number.
SHARES: dict[str, float] = {"all": 1.0, "50 %": 0.5, "5 %": 0.05, "0.5 %": 0.005, "ten": 10}
REPLICA, TABLE = "replica", "pgvector"
_TOP = 10
_QUERIES = 100
_MODEL = 1
# What a search asks for at the least, of the packaged model.
_LEAST = 0.3
# In bytes, what making the index takes for each chunk, with some room.
_INDEX_MEMORY = 2_000

Mask = npt.NDArray[np.bool_]


class _Passing:
    """See `search.engines.nearest.Passing`. The place of a memory in the mask is its id."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask

    def contains(self, ids: Ids) -> Mask:
        found: Mask = self._mask[ids]
        return found

    def count(self, most: int | None = None) -> int:
        return int(np.count_nonzero(self._mask))

    def ids(self) -> Ids:
        return np.flatnonzero(self._mask).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Filter:
    share: str
    spread_out: bool
    mask: Mask


def measure_vectors(chunks: int, seed: int, teller: Teller, *, keep: bool) -> VectorFigures:
    """Generate, load, measure, and leave nothing behind unless asked to."""
    name, contents = f"bench_vectors_{chunks}", f"seed {seed}"
    with bench_database(name, keep=keep, contents=contents, reuse=keep) as is_there:
        dimensions = column_dimensions() or 0
        space = Likeness(chunks, dimensions, seed)
        queries = space.queries(_QUERIES)
        index_seconds = None if is_there else _load(space, teller)
        mark_loaded(name, contents)
        subjects, similarities = _answers(space, queries, teller)
        filters = list(_filters(subjects, seed))
        limits = (_TOP, settings.SEARCH_SEMANTIC_LIMIT)
        with tempfile.TemporaryDirectory() as folder, override_settings(SEARCH_INDEX=Path(folder)):
            begin = time.perf_counter()
            writer.build()
            replica_seconds = time.perf_counter() - begin
            replica_bytes = folder_bytes(files.folder())
            busy = [machine_load()]
            number = len(filters) * len(limits)
            with teller.bar(f"{len(queries)} queries, {len(filters)} filters, twice", number) as advance:
                found = []
                for limit in limits:
                    for one in filters:
                        # The same filter one way after the other, so that both meet the same machine.
                        found += [_measure(read, one, limit, queries, similarities) for read in (REPLICA, TABLE)]
                        advance()
            busy.append(machine_load())
            writer.drop()
        index_bytes = _index_bytes()
    return VectorFigures(
        chunks=chunks,
        memories=len(subjects) - 1,
        dimensions=dimensions,
        index_seconds=index_seconds,
        index_bytes=index_bytes,
        replica_seconds=round(replica_seconds, 1),
        replica_bytes=replica_bytes,
        load_before=busy[0],
        load_after=busy[1],
        figures=_named(found),
        filters=sorted(found, key=lambda one: one.read != REPLICA),
    )


def _load(space: Likeness, teller: Teller) -> float:
    """Write all vectors and then make their index; says how long that took."""
    EmbeddingModel.objects.create(
        id=_MODEL,
        name="bench",
        source="bench",
        dimensions=space.dimensions,
        min_similarity=_LEAST,
        state=EmbeddingModel.State.SERVING,
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef('chunk_embedding_hnsw'::regclass)")
        (definition,) = cursor.fetchone()
        cursor.execute("ALTER TABLE memories_chunk DROP CONSTRAINT chunk_memory_fk; DROP INDEX chunk_embedding_hnsw")
    with teller.bar("generating vectors", space.chunks) as advance:
        for block in space.blocks():
            write_block(block)
            advance(len(block.vectors))
    teller.say("making their index")
    begin = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        memory = max(64, space.chunks * _INDEX_MEMORY // 1_000_000)
        cursor.execute("SELECT set_config('maintenance_work_mem', %s, true)", [f"{memory}MB"])
        cursor.execute(definition)
    seconds = time.perf_counter() - begin
    Corpus.objects.update(vectors=1)
    tidy_database()
    return round(seconds, 1)


def _index_bytes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('chunk_embedding_hnsw')")
        return int(cursor.fetchone()[0])


def _answers(space: Likeness, queries: Vectors, teller: Teller) -> tuple[Numbers, Vectors]:
    """The subject of each memory by its id, and how near each is to each query. There is no memory 0."""
    subjects, similarities = [np.zeros(1, np.int64)], [np.full((len(queries), 1), -2, np.float32)]
    with teller.bar("working out the exact answers", space.chunks) as advance:
        for block in space.blocks():
            subjects.append(block.subjects)
            similarities.append(_similarities(block, queries))
            advance(len(block.vectors))
    return np.concatenate(subjects), np.concatenate(similarities, axis=1)


def write_block(block: Block) -> None:
    """Copy the chunks of a block into the database."""
    starts = np.flatnonzero(block.ordinals == 0)
    texts = [
        EmbeddedText(WaitingText(int(memory_id), "", "", ""), [Window(n, n + 1) for n in range(len(vectors))], vectors)
        for memory_id, vectors in zip(block.memory_ids[starts], np.split(block.vectors, starts[1:]), strict=True)
    ]
    statement = 'COPY memories_chunk (memory_id, model_id, ordinal, start, "end", embedding) FROM STDIN (FORMAT BINARY)'
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(binary_rows(_MODEL, texts))


def _similarities(block: Block, queries: Vectors) -> Vectors:
    """Of each query to each memory of a block, by its nearest chunk."""
    units = block.vectors / np.linalg.norm(block.vectors, axis=1, keepdims=True)
    nearest_chunk: Vectors = np.maximum.reduceat(queries @ units.T, np.flatnonzero(block.ordinals == 0), axis=1)
    return nearest_chunk


def _filters(subjects: Numbers, seed: int) -> Iterator[_Filter]:
    """Of each share one that keeps memories of all subjects, and one that keeps whole subjects."""
    rng = np.random.default_rng((seed, 3))
    there = len(subjects) - 1
    for name, share in SHARES.items():
        kept = min(there, round(share if share > 1 else share * there))
        scattered = 1 + rng.permutation(there)
        turn = rng.permutation(int(subjects.max()) + 1)
        by_subject = 1 + np.argsort(turn[subjects[1:]], kind="stable")
        for spread_out, order in ((True, scattered), (False, by_subject)):
            if spread_out or kept < there:
                mask = np.zeros(there + 1, np.bool_)
                mask[order[:kept]] = True
                yield _Filter(name, spread_out, mask)


def _measure(read: str, one: _Filter, limit: int, queries: Vectors, similarities: Vectors) -> FilterFigures:
    passing = _Passing(one.mask)
    recalls, seconds, too_few = [], [], 0
    for query, similar in zip(queries, similarities, strict=True):
        meaning = VectorQuery(_MODEL, query.tobytes(), _LEAST if limit > _TOP else -1.0, limit)
        # Once to warm, as everything is measured; no reading is kept from one time to the next.
        for _ in range(2):
            knn.readings.clear()
            begin = time.perf_counter()
            with transaction.atomic():
                near = knn.nearest_candidates(meaning, passing, replicated=read == REPLICA)
            spent = time.perf_counter() - begin
        seconds.append(spent)
        there = np.flatnonzero(one.mask & (similar >= meaning.min_similarity))
        too_few += len(near.ids) < min(limit, len(there)) - _at_the_edge(similar[there], meaning.min_similarity)
        best = there[np.argsort(-similar[there], kind="stable")][:_TOP]
        if len(best):
            # A tie is as good as what it ties with.
            last = similar[best[-1]] - 1e-4
            hits = sum(1 for pk in near.ids[:_TOP].tolist() if similar[pk] >= last)
            recalls.append(min(1.0, hits / len(best)))
    return FilterFigures(
        read=read,
        share=one.share,
        spread_out=one.spread_out,
        passing=passing.count(),
        limit=limit,
        queries=len(queries),
        recall=round(float(np.mean(recalls)), 4) if recalls else 1.0,
        least_recall=round(min(recalls, default=1.0), 4),
        too_few=too_few,
        latency=spread(seconds),
    )


def _at_the_edge(similarities: Vectors, least: float) -> int:
    """How many are so near the least that which side they are on is a matter of rounding."""
    return int(np.count_nonzero(np.abs(similarities - least) < 1e-4))


def _named(filters: Sequence[FilterFigures]) -> dict[str, float]:
    """The worst of all filters by what is asked for: the figures that the rest is there for."""
    named: dict[str, float] = {}
    for what, chosen in (
        ("ten", [one for one in filters if one.limit == _TOP and one.read == REPLICA]),
        ("search", [one for one in filters if one.limit > _TOP and one.read == REPLICA]),
        ("ten_pgvector", [one for one in filters if one.limit == _TOP and one.read == TABLE]),
        ("search_pgvector", [one for one in filters if one.limit > _TOP and one.read == TABLE]),
    ):
        named[f"meaning_{what}_recall"] = min(one.recall for one in chosen)
        named[f"meaning_{what}_too_few"] = sum(one.too_few for one in chosen)
        for at in ("p50_ms", "p95_ms"):
            named[f"meaning_{what}_{at}"] = max(getattr(one.latency, at) for one in chosen)
    return named

"""Recall and latency of the nearest vectors under filters, read from the replica and from pgvector.

The vectors are generated, and read by `search.engines.nearest` as the engines read them: from the replica beside the
derived index, and from pgvector alone. There are no memories: a mask stands for the filter, as in the derived index.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection, transaction

from lab.bench.peers.base import folder_bytes
from lab.bench.runner import Benchmark, Job
from lab.bench.synthetic_vectors import Block, Numbers, SyntheticVectors, Vectors
from lab.progress import Progress
from lab.report import Row, cells, machine_load, number, percentiles, table, timed
from lab.sandbox import vacuum
from memories.embedding.chunking import Window
from memories.embedding.vectors import EmbeddedText, PendingText, binary_rows, column_dimensions
from memories.models import Corpus, EmbeddingModel
from search.engines import knn
from search.engines.base import Ids, VectorQuery
from search.engines.vectors import replica, writer

# The memories that a filter keeps: a share of all, or a number.
SHARES: dict[str, float] = {"all": 1.0, "50 %": 0.5, "5 %": 0.05, "0.5 %": 0.005, "ten": 10}
REPLICA, TABLE = "replica", "pgvector"
MODEL_ID, MODEL_NAME = 1, "bench"
# The lowest similarity that a search asks for with the packaged model.
MIN_SIMILARITY = 0.3
_TOP = 10
_QUERIES = 100
# Bytes of memory that building the index needs for each chunk, with some room.
_INDEX_MEMORY = 2_000
# Similarities closer than this are equal but for rounding.
_ROUNDING = 1e-4

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Filter:
    """The set of memories that pass, as `search.engines.nearest.Passing`. Positions in the mask are ids."""

    share: str
    spread_out: bool
    mask: Mask

    def contains(self, ids: Ids) -> Mask:
        found: Mask = self.mask[ids]
        return found

    def count(self, most: int | None = None) -> int:
        return int(np.count_nonzero(self.mask))

    def ids(self) -> Ids:
        return np.flatnonzero(self.mask).astype(np.int64)


def run(job: Job, chunks: int) -> Row:
    progress = job.progress
    space = SyntheticVectors(chunks, column_dimensions() or 0, job.options.seed)
    queries = space.queries(_QUERIES)
    index_seconds = None
    if not job.sandbox.loaded:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE memories_chunk DROP CONSTRAINT chunk_memory_fk")
        index_seconds = round(write_chunks(space.blocks(), chunks, progress), 1)
        Corpus.objects.update(vectors=1)
        vacuum()
        job.sandbox.mark_loaded()
    blocks = _tracked("computing the exact answers", space.blocks(), chunks, progress)
    subjects, similarities = _exact_answers(blocks, queries)
    filters = list(_filters(subjects, job.options.seed))
    cases = list(product((_TOP, settings.SEARCH_SEMANTIC_LIMIT), filters))
    _, replica_seconds = timed(writer.build)
    replica_bytes = folder_bytes(replica.folder())
    load_before = machine_load()
    rows: list[Row] = []
    for limit, which in progress.track(f"{_QUERIES} queries, {len(filters)} filters, twice", cases, len(cases)):
        # The same filter from both in turn, so that other work on the machine affects both.
        rows += [_measure(read, which, limit, queries, similarities) for read in (REPLICA, TABLE)]
    load_after = machine_load()
    writer.drop()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('chunk_embedding_hnsw')")
        (index_bytes,) = cursor.fetchone()
    return {
        "chunks": chunks,
        "memories": len(subjects) - 1,
        "dimensions": space.dimensions,
        "index_seconds": index_seconds,
        "index_bytes": int(index_bytes),
        "replica_seconds": round(replica_seconds, 1),
        "replica_bytes": replica_bytes,
        "load_before": load_before,
        "load_after": load_after,
        "figures": _named(rows),
        "filters": sorted(rows, key=lambda row: row["read"] != REPLICA),
    }


def _tracked(text: str, blocks: Iterable[Block], chunks: int, progress: Progress) -> Iterator[Block]:
    return progress.track(text, blocks, chunks, lambda block: len(block.vectors))


def create_model() -> None:
    """The model that all generated vectors belong to, as the one that serves searches."""
    EmbeddingModel.objects.create(
        id=MODEL_ID,
        name=MODEL_NAME,
        source=MODEL_NAME,
        dimensions=column_dimensions() or 0,
        min_similarity=MIN_SIMILARITY,
        state=EmbeddingModel.State.SERVING,
    )


def write_chunks(blocks: Iterable[Block], chunks: int, progress: Progress) -> float:
    """Write all vectors, then build their index; return the seconds that the index took."""
    create_model()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef('chunk_embedding_hnsw'::regclass)")
        (definition,) = cursor.fetchone()
        cursor.execute("DROP INDEX chunk_embedding_hnsw")
    for block in _tracked("writing vectors", blocks, chunks, progress):
        _copy(block)
    progress.log("building their index")
    with transaction.atomic(), connection.cursor() as cursor:
        megabytes = max(64, chunks * _INDEX_MEMORY // 1_000_000)
        cursor.execute("SELECT set_config('maintenance_work_mem', %s, true)", [f"{megabytes}MB"])
        return timed(cursor.execute, definition)[1]


def _copy(block: Block) -> None:
    starts = np.flatnonzero(block.ordinals == 0)
    texts = [
        EmbeddedText(PendingText(int(memory_id), "", "", ""), [Window(n, n + 1) for n in range(len(vectors))], vectors)
        for memory_id, vectors in zip(block.memory_ids[starts], np.split(block.vectors, starts[1:]), strict=True)
    ]
    statement = 'COPY memories_chunk (memory_id, model_id, ordinal, start, "end", embedding) FROM STDIN (FORMAT BINARY)'
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(binary_rows(MODEL_ID, texts))


def _exact_answers(blocks: Iterable[Block], queries: Vectors) -> tuple[Numbers, Vectors]:
    """The subject of each memory by id, and its similarity to each query by its nearest chunk. Ids start at 1."""
    subjects, similarities = [np.zeros(1, np.int64)], [np.full((len(queries), 1), -2, np.float32)]
    for block in blocks:
        subjects.append(block.subjects)
        units = block.vectors / np.linalg.norm(block.vectors, axis=1, keepdims=True)
        similarities.append(np.maximum.reduceat(queries @ units.T, np.flatnonzero(block.ordinals == 0), axis=1))
    return np.concatenate(subjects), np.concatenate(similarities, axis=1)


def _filters(subjects: Numbers, seed: int) -> Iterator[_Filter]:
    """For each share one filter that keeps memories of all subjects, and one that keeps whole subjects."""
    rng = np.random.default_rng((seed, 3))
    memories = len(subjects) - 1
    for name, share in SHARES.items():
        passing = min(memories, round(share if share > 1 else share * memories))
        scattered = 1 + rng.permutation(memories)
        turn = rng.permutation(int(subjects.max()) + 1)
        by_subject = 1 + np.argsort(turn[subjects[1:]], kind="stable")
        for spread_out, order in ((True, scattered), (False, by_subject)):
            if spread_out or passing < memories:
                mask = np.zeros(memories + 1, np.bool_)
                mask[order[:passing]] = True
                yield _Filter(name, spread_out, mask)


def _measure(read: str, which: _Filter, limit: int, queries: Vectors, similarities: Vectors) -> Row:
    """Recall of the exact ten, answers with fewer memories than there are, and latency over all queries."""
    recalls, seconds, too_few = [], [], 0
    minimum = MIN_SIMILARITY if limit > _TOP else -1.0
    for query, similar in zip(queries, similarities, strict=True):
        meaning = VectorQuery(MODEL_ID, query.tobytes(), minimum, limit)
        # The first time warms up. No reading is cached for the second.
        for _ in range(2):
            knn.readings.clear()
            near, spent = timed(_nearest, meaning, which, read)
        seconds.append(spent)
        exact = np.flatnonzero(which.mask & (similar >= minimum))
        at_the_minimum = int(np.count_nonzero(np.abs(similar[exact] - minimum) < _ROUNDING))
        too_few += len(near) < min(limit, len(exact)) - at_the_minimum
        best = exact[np.argsort(-similar[exact], kind="stable")][:_TOP]
        if len(best):
            # A memory that ties with the tenth is as good as the tenth.
            hits = np.count_nonzero(similar[near[:_TOP]] >= similar[best[-1]] - _ROUNDING)
            recalls.append(min(1.0, int(hits) / len(best)))
    return {
        "read": read,
        "share": which.share,
        "spread_out": which.spread_out,
        "passing": which.count(),
        "limit": limit,
        "queries": len(queries),
        "recall": round(float(np.mean(recalls)), 4) if recalls else 1.0,
        "least_recall": round(min(recalls, default=1.0), 4),
        "too_few": too_few,
        "latency": percentiles(seconds),
    }


def _nearest(meaning: VectorQuery, which: _Filter, read: str) -> Ids:
    with transaction.atomic():
        return knn.nearest_candidates(meaning, which, knn.vectors_now(meaning, replicated=read == REPLICA)).ids


def _named(rows: Sequence[Row]) -> dict[str, float]:
    """The named metrics: the worst of all filters."""
    named: dict[str, float] = {}
    for read, suffix in ((REPLICA, ""), (TABLE, "_pgvector")):
        for limits, is_top in (("ten", True), ("search", False)):
            prefix = f"meaning_{limits}{suffix}"
            chosen = [row for row in rows if row["read"] == read and (row["limit"] == _TOP) == is_top]
            named[f"{prefix}_recall"] = min(row["recall"] for row in chosen)
            named[f"{prefix}_too_few"] = sum(row["too_few"] for row in chosen)
            named |= {f"{prefix}_{at}": max(row["latency"][at] for row in chosen) for at in ("p50_ms", "p95_ms")}
    return named


def lines(name: str, found: Row) -> list[str]:
    rows = []
    for row in found["filters"]:
        which = "" if row["share"] == "all" else ", spread out" if row["spread_out"] else ", by subject"
        recall = [f"{row['recall']:.3f}", f"{row['least_recall']:.2f}", row["too_few"]]
        rows.append([row["read"], row["share"] + which, row["passing"], row["limit"], *recall, *cells(row["latency"])])
    built = "" if found["index_seconds"] is None else f", built in {number(found['index_seconds'])} s"
    headings = ["read", "passing", "memories", "limit", "recall of ten", "worst", "too few", "p50", "p95", "p99", "max"]
    return [
        f"### The nearest of {found['chunks']:,} vectors",
        "",
        f"{found['memories']:,} memories, {found['dimensions']} dimensions, an index of"
        f" {number(found['index_bytes'] / 1e6)} MB{built}, and a replica of {number(found['replica_bytes'] / 1e6)} MB,"
        f" built in {number(found['replica_seconds'])} s; load of the machine {found['load_before']} before the"
        f" queries, {found['load_after']} after them. Milliseconds, of {found['filters'][0]['queries']} queries a row.",
        "",
        *table(headings, rows),
    ]


BENCHMARK = Benchmark(
    "vectors", run, lines, "CHUNKS", "vector search under filters among this many chunks", limits=(1_000, 10_000_000)
)

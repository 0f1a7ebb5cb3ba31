"""Latency of keyword, hybrid and unified search over a corpus with memories, entities, relationships and their vectors,
and of the three tools that agents call one after the other: an index, a timeline, whole memories.

The texts are generated and mean nothing, so the vectors are generated too (`synthetic_vectors`), those of queries
included; the time that the packaged model needs for the queries is measured separately. Each query runs once, without
anything cached.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection

from access.viewer import Viewer, command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from agent_tools.rendering import MAX_TOKENS
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, RELATIONSHIPS, SearchableTable, terms_refresh_all
from lab.bench.corpus import read_records
from lab.bench.peers.engines import TantivyPeer, load_engines
from lab.bench.query_log import KEYWORDS, SAMPLED_RECORDS, build_query_log
from lab.bench.runner import Benchmark, Job
from lab.bench.synthetic_vectors import Block, SyntheticVectors, Vectors
from lab.bench.vectors import MODEL_ID, MODEL_NAME, write_chunks
from lab.progress import Progress
from lab.report import Cell, Row, cells, machine_load, percentiles, table, timed
from lab.sandbox import vacuum
from memories.embedding import query as embeddings
from memories.embedding.models import EmbedderUnavailableError, HashedWords, load_embedder
from memories.embedding.vectors import column_dimensions
from memories.embedding.vocabulary import PendingRow, vectors_write
from memories.models import Corpus as Revision
from search.engines import knn
from search.engines.vectors import writer
from search.query import Mode, SearchQuery
from search.run import run as run_search
from search.unified.legs import LegState
from search.unified.service import unified
from web.cache import clear_caches
from web.serving import steady_memory

# The average of the generator of vectors.
_CHUNKS_PER_MEMORY = 1.35
_WARM_UP = 20
_BLOCK = 5_000

# A memory in three states a fact about the first two entities that it names.
_RELATIONSHIPS = """
INSERT INTO categories_relationship
  (source_id, relationship_type, target_id, fact, confidence, evidence_ids, created_at, terms_hash)
SELECT entity_ids[1], (ARRAY['uses', 'owns', 'calls', 'fixed by', 'part of', 'replaces'])[1 + id % 6], entity_ids[2],
       min(title), 0.5 + (min(id) % 50) / 100.0, array_agg(id ORDER BY id), min(created_at), ''
FROM memories_memory WHERE cardinality(entity_ids) > 1 AND id % 3 = 0 AND entity_ids[1] <> entity_ids[2]
GROUP BY 1, 2, 3"""
_EMBEDDED = """
INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)
SELECT memory.id, %s, memory.content_hash, count(*) FROM memories_memory memory
JOIN memories_chunk chunk ON chunk.memory_id = memory.id GROUP BY memory.id, memory.content_hash"""


class _GeneratedVectors(HashedWords):
    """A model that gives each query one of the generated vectors, always the same."""

    name = MODEL_NAME

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors.shape[1])
        self._vectors = vectors

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._vectors[sum(text.encode()) % len(self._vectors)].copy()
        return found


def run(job: Job, size: int) -> Row:
    options, progress = job.options, job.progress
    corpus, path = job.generate_corpus(size)
    sample = list(islice(read_records(path), 0, None, max(1, size // SAMPLED_RECORDS)))
    peer = load_engines(path)
    peer.open()
    progress.log("relationships, and the terms of names and facts")
    with connection.cursor() as cursor:
        cursor.execute(_RELATIONSHIPS)
    terms_refresh_all()
    space = SyntheticVectors(round(size * _CHUNKS_PER_MEMORY), column_dimensions() or 0, options.seed)
    _write_vectors(space, progress)
    embeddings.use_embedder(_GeneratedVectors(space.queries(1_009)))
    clear_caches()
    log = build_query_log(corpus, sample, options.queries, options.seed)
    queries = [entry.query for entry in log.entries if entry.kind in KEYWORDS or entry.kind == "word_and_filter"]
    progress.log(f"{len(queries)} queries, in each mode once")
    load_before = machine_load()
    steady_memory()
    with peer.turn():
        latency, legs_left_out = _measure(queries)
        tools = _measure_tools(queries)
    load_after = machine_load()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM memories_chunk), (SELECT count(*) FROM categories_entity),"
            " (SELECT count(*) FROM categories_relationship)"
        )
        counts = cursor.fetchone()
    return {
        "memories": size,
        **dict(zip(("chunks", "entities", "relationships"), counts, strict=True)),
        "queries": len(queries),
        "load_before": load_before,
        "load_after": load_after,
        "legs_left_out": legs_left_out,
        "latency": latency,
        "tools": tools,
        "embedding": _measure_embedding([query.text for query in queries]),
    }


def _write_vectors(space: SyntheticVectors, progress: Progress) -> None:
    """Vectors for each memory, term and relationship, and the replica of those of memories."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(id ORDER BY id) FROM memories_memory")
        ids = np.array(cursor.fetchone()[0], dtype=np.int64)
        write_chunks(_assigned(space.blocks(), ids), space.chunks, progress)
        cursor.execute(_EMBEDDED, [MODEL_ID])
    for searched in (ENTITIES, CONCEPTS, CATEGORIES, RELATIONSHIPS):
        _write_vocabulary(searched, space)
    Revision.objects.update(vectors=1)
    vacuum()
    writer.sync()


def _assigned(blocks: Iterator[Block], ids: npt.NDArray[np.int64]) -> Iterator[Block]:
    """The blocks with the ids of memories, without the vectors that are left over."""
    for block in blocks:
        used = block.memory_ids <= len(ids)
        if used.any():
            memory_ids = ids[block.memory_ids[used] - 1]
            yield replace(block, memory_ids=memory_ids, ordinals=block.ordinals[used], vectors=block.vectors[used])


def _write_vocabulary(searched: SearchableTable, space: SyntheticVectors) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT own.id, md5({searched.text}) FROM {searched.rows} ORDER BY own.id")
        rows = [PendingRow(pk, "", text_hash) for pk, text_hash in cursor.fetchall()]
    vectors = space.queries(len(rows))
    for start in range(0, len(rows), _BLOCK):
        vectors_write(searched, MODEL_ID, rows[start : start + _BLOCK], vectors[start : start + _BLOCK])


def _measure(queries: Sequence[SearchQuery]) -> tuple[Row, int]:
    """The latency of whole answers by mode, and how many legs of unified search were late or failed."""
    viewer = command_viewer()
    seconds: dict[str, list[float]] = {}
    left_out = 0
    for number, query in enumerate([*queries[:_WARM_UP], *queries], -len(queries[:_WARM_UP])):
        for mode in (Mode.KEYWORD, Mode.HYBRID, Mode.UNIFIED):
            asked = query.model_copy(update={"mode": mode, "include_facets": True})
            # No mode profits from what another has read of the vectors.
            knn.readings.clear()
            (engine, late), spent = timed(_answer, asked, viewer)
            if engine != TantivyPeer.name:
                raise RuntimeError(f"The {engine} engine answered: {asked.querystring()}")
            if number >= 0:
                left_out += late
                seconds.setdefault(mode.value, []).append(spent)
    return {mode: percentiles(spent) for mode, spent in seconds.items()}, left_out


def _answer(query: SearchQuery, viewer: Viewer) -> tuple[str, int]:
    """Run a search; return the engine that answered, and the number of legs that were left out."""
    if query.mode != Mode.UNIFIED:
        return run_search(query, viewer).engine, 0
    answer = unified(query, viewer)
    return answer.memories.engine, sum(leg.state != LegState.OK for leg in answer.legs)


def _measure_tools(queries: Sequence[SearchQuery]) -> Row:
    """The latency of the tools of agents, from arguments to rendered text, for the queries that find something."""
    viewer = command_viewer()
    seconds: dict[str, list[float]] = {}

    def ask(tool: str, **arguments: Any) -> Any:
        text, spent = timed(call, TOOL[tool], {**arguments, "format": "json", "max_tokens": MAX_TOKENS}, viewer)
        seconds.setdefault(tool, []).append(spent)
        return json.loads(text)

    for query in queries:
        knn.readings.clear()
        ids = [memory["id"] for memory in ask("search", query=query.text)["memories"]]
        if ids:
            ask("timeline", anchor=ids[0])
            ask("get_observations", ids=ids)
    return {tool: percentiles(spent) for tool, spent in seconds.items()}


def _measure_embedding(texts: Sequence[str]) -> dict[str, float] | None:
    """The time that the packaged model needs for each query; None if it is not installed."""
    try:
        model = load_embedder(settings.EMBEDDING_MODEL, threads=1)
    except EmbedderUnavailableError:
        return None
    for text in texts[:_WARM_UP]:
        model.encode_query(text)
    return percentiles([timed(model.encode_query, text)[1] for text in texts])


def lines(name: str, found: Row) -> list[str]:
    keyword = found["latency"]["keyword"]
    rows: list[list[Cell]] = []
    for mode, of in found["latency"].items():
        times: list[Cell] = [of[at] / keyword[at] for at in ("p50_ms", "p95_ms")] if of is not keyword else ["", ""]
        rows.append([f"mode={mode}", *cells(of), *times])
    rows += [[f"the tool {tool}", *cells(of), "", ""] for tool, of in found["tools"].items()]
    if found["embedding"]:
        rows.append(["the vector of a query", *cells(found["embedding"]), "", ""])
    return [
        f"### Keyword, hybrid and unified search, {found['memories']:,} memories",
        "",
        f"{found['chunks']:,} chunks, {found['entities']:,} entities, {found['relationships']:,} relationships; load of"
        f" the machine {found['load_before']} before the queries, {found['load_after']} after them. Milliseconds of"
        f" whole answers with every facet, of {found['queries']} queries asked once in each mode; × keyword at p50 and"
        f" p95. {found['legs_left_out']} legs of unified search were left out. The tools answer the same texts: an"
        " index of 20 by words and meaning, a timeline of 7, and the 20 whole memories.",
        "",
        *table(["", "p50", "p95", "p99", "max", "× p50", "× p95"], rows),
    ]


BENCHMARK = Benchmark(
    "meaning",
    run,
    lines,
    "MEMORIES",
    "hybrid and unified search over a corpus of this size",
    limits=(1_000, 10_000_000),
    can_keep=False,
)

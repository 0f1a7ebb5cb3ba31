"""Hybrid and unified search over a whole corpus: memories, entities, relationships, and vectors of them all.

The texts are generated and mean nothing, so the vectors are too (`bench.likeness`), that of a query with them; what the
packaged model takes for it is measured beside. Each query is asked once: nothing of it is kept from before.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection
from django.test import override_settings

from access.viewer import command_viewer
from bench.at_size import Choices
from bench.corpus import Corpus, Record, write_records
from bench.database import bench_database, tidy_database
from bench.figures import MeaningFigures, Spread, spread
from bench.likeness import Likeness, Vectors
from bench.machine import machine_load
from bench.peers.engines import PostgresPeer, TantivyPeer, forget_index
from bench.query_log import KEYWORDS, SAMPLED_RECORDS, build_query_log
from bench.telling import Teller
from bench.vectors import write_block
from categories.searched_terms import ENTITIES, RELATIONSHIPS, SearchableTable, terms_catch_up
from memories.embedding import query as embeddings
from memories.embedding.models import EmbedderUnavailableError, HashedWords, load_embedder
from memories.embedding.vectors import column_dimensions
from memories.embedding.vocabulary import WaitingRow, vectors_write
from memories.models import Corpus as Revision
from memories.models import EmbeddingModel
from search.engines import knn
from search.engines.vectors import writer
from search.query import Mode, SearchQuery
from search.run import run
from search.unified.legs import LegState
from search.unified.service import unified
from web.cache import clear_caches
from web.serving import steady_memory

_MODEL = 1
_LEAST = 0.3
# Chunks for each memory, as the generator of vectors makes them.
_CHUNKS = 1.35
_WARM_UP = 20
_BLOCK = 5_000

# Between the first two entities that a memory names, one memory in three states a fact.
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


class _GivenVectors(HashedWords):
    """A model that knows nothing of a query and gives it one of the generated vectors, always the same."""

    name = "bench"

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors.shape[1])
        self._vectors = vectors

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._vectors[sum(text.encode()) % len(self._vectors)].copy()
        return found


def measure_meaning(size: int, choices: Choices, teller: Teller) -> MeaningFigures:
    """Generate, load, measure, and leave nothing behind."""
    work = Path(settings.HOME) / "bench" / f"meaning-{size}-{choices.seed}"
    rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    name = f"bench_meaning_{size}"
    try:
        with (
            override_settings(SEARCH_INDEX=work / "index"),
            bench_database(name, keep=False, contents=f"seed {choices.seed}", reuse=False),
        ):
            return _measure(size, choices, teller, work)
    finally:
        embeddings.forget()
        clear_caches()
        forget_index()
        rmtree(work, ignore_errors=True)


def _measure(size: int, choices: Choices, teller: Teller, work: Path) -> MeaningFigures:
    corpus, sample = Corpus(size, choices.seed), list[Record]()
    path = work / "corpus.jsonl.gz"
    teller.say(f"{size:,} memories: generating and loading")
    write_records(_watched(corpus.records(), sample, max(1, size // SAMPLED_RECORDS)), path)
    PostgresPeer(work).load(path)
    peer = TantivyPeer(work)
    peer.load(path)
    peer.open()
    teller.say("relationships, and the terms of names and facts")
    with connection.cursor() as cursor:
        cursor.execute(_RELATIONSHIPS)
    terms_catch_up()
    space = Likeness(round(size * _CHUNKS), column_dimensions() or 0, choices.seed)
    teller.say("vectors")
    chunks = _write_vectors(space)
    for searched in (ENTITIES, RELATIONSHIPS):
        _write_vocabulary(searched, space)
    Revision.objects.update(vectors=1)
    tidy_database()
    writer.sync()
    embeddings.answer_with(_GivenVectors(space.queries(1_009)))
    clear_caches()
    log = build_query_log(corpus, sample, choices.queries, choices.seed)
    queries = [entry.query for entry in log.entries if entry.kind in KEYWORDS or entry.kind == "word_and_filter"]
    teller.say(f"{len(queries)} queries, in each mode once")
    busy = [machine_load()]
    steady_memory()
    with peer.turn():
        found, left_out = _latencies(queries)
    busy.append(machine_load())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM categories_entity), (SELECT count(*) FROM categories_relationship)"
        )
        entities, relationships = cursor.fetchone()
    return MeaningFigures(
        memories=size,
        chunks=chunks,
        entities=entities,
        relationships=relationships,
        queries=len(queries),
        load_before=busy[0],
        load_after=busy[1],
        legs_left_out=left_out,
        latency=found,
        embedding=_embedding([query.text for query in queries]),
    )


def _watched(records: Iterator[Record], sample: list[Record], every: int) -> Iterator[Record]:
    for number, record in enumerate(records):
        if number % every == 0:
            sample.append(record)
        yield record


def _write_vectors(space: Likeness) -> int:
    """A vector or more for each memory, in the order of their ids; those that are too many are left out."""
    model = EmbeddingModel.objects.create(
        id=_MODEL,
        name=_GivenVectors.name,
        source=_GivenVectors.name,
        dimensions=space.dimensions,
        min_similarity=_LEAST,
        state=EmbeddingModel.State.SERVING,
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(id ORDER BY id) FROM memories_memory")
        ids = np.array(cursor.fetchone()[0], dtype=np.int64)
        cursor.execute("SELECT pg_get_indexdef('chunk_embedding_hnsw'::regclass)")
        (definition,) = cursor.fetchone()
        cursor.execute("DROP INDEX chunk_embedding_hnsw")
        for block in space.blocks():
            kept = block.memory_ids <= len(ids)
            if kept.any():
                write_block(
                    replace(
                        block,
                        memory_ids=ids[block.memory_ids[kept] - 1],
                        ordinals=block.ordinals[kept],
                        vectors=block.vectors[kept],
                    )
                )
        cursor.execute("SET maintenance_work_mem = '1GB'")
        cursor.execute(definition)
        cursor.execute("RESET maintenance_work_mem")
        cursor.execute(_EMBEDDED, [model.pk])
        cursor.execute("SELECT count(*) FROM memories_chunk")
        return int(cursor.fetchone()[0])


def _write_vocabulary(searched: SearchableTable, space: Likeness) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT own.id, md5({searched.text}) FROM {searched.rows} ORDER BY own.id")
        rows = [WaitingRow(pk, "", text_hash) for pk, text_hash in cursor.fetchall()]
    vectors = space.queries(len(rows))
    for begin in range(0, len(rows), _BLOCK):
        vectors_write(searched, _MODEL, rows[begin : begin + _BLOCK], vectors[begin : begin + _BLOCK])


def _latencies(queries: Sequence[SearchQuery]) -> tuple[dict[str, Spread], int]:
    """By mode, what a whole answer takes; and how many legs of unified search came too late or failed."""
    viewer = command_viewer()
    seconds: dict[str, list[float]] = {}
    left_out = 0
    warm_up = queries[:_WARM_UP]
    for number, query in enumerate([*warm_up, *queries], -len(warm_up)):
        for mode in (Mode.KEYWORD, Mode.HYBRID, Mode.UNIFIED):
            asked = query.model_copy(update={"mode": mode, "include_facets": True})
            # What another mode has read of the vectors is not to be had for nothing.
            knn.readings.clear()
            begin = time.perf_counter()
            if mode == Mode.UNIFIED:
                answer = unified(asked, viewer)
                left_out += sum(leg.state != LegState.OK for leg in answer.legs) if number >= 0 else 0
                engine = answer.memories.engine
            else:
                engine = run(asked, viewer).engine
            spent = time.perf_counter() - begin
            if engine != TantivyPeer.name:
                raise RuntimeError(f"The {engine} engine answered: {asked.querystring()}")
            if number >= 0:
                seconds.setdefault(mode.value, []).append(spent)
    return {mode: found for mode, took in seconds.items() if (found := spread(took))}, left_out


def _embedding(texts: Sequence[str]) -> Spread | None:
    """What the packaged model takes for each of the queries; None where it is not installed."""
    try:
        model = load_embedder(settings.EMBEDDING_MODEL, threads=1)
    except EmbedderUnavailableError:
        return None
    seconds = []
    warm_up = texts[:_WARM_UP]
    for number, text in enumerate([*warm_up, *texts], -len(warm_up)):
        begin = time.perf_counter()
        model.encode_query(text)
        if number >= 0:
            seconds.append(time.perf_counter() - begin)
    return spread(seconds)

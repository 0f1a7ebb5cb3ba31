"""The speed of the embedding worker on an imported file, compared with the model called directly on the same texts.

Rounds of both alternate, so that other work on the machine affects them alike. The worker finds, claims, splits, embeds
and stores memories, and updates the index of vectors, with a thread for each core; the model gets the texts of the same
chunks in one list, and uses its own batches and all cores.
"""

import os
import sys
from pathlib import Path
from statistics import median

import psutil
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from lab.bench.runner import Benchmark, Job
from lab.report import Cell, Row, machine_load, table, timed
from lab.sandbox import BenchmarkError, vacuum
from memories.embedding.chunking import embedded_text
from memories.embedding.models import Embedder, load_embedder
from memories.embedding.worker import Worker, thread_count
from memories.models import Chunk, EmbeddedMemory, EmbeddingModel, Memory

_ROUNDS = 5
# More memories in a round would not change the result.
_MAX_MEMORIES = 600

_MARK_EMBEDDED = """
INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)
SELECT id, %s, content_hash, 0 FROM memories_memory"""


def run(job: Job, path: Path) -> Row:
    """Import a file and embed some of it. Raises EmbedderUnavailableError, and BenchmarkError for too few memories."""
    with override_settings(SEARCH_ENGINE="postgres"):
        job.progress.log(f"loading {path.name}")
        call_command("import_memories", str(path), stdout=sys.stderr)
        return _measure(job)


def _measure(job: Job) -> Row:
    embedder = load_embedder(settings.EMBEDDING_MODEL, threads=1)
    # Worker and model share the weights, so the memory of this process is that of a worker.
    worker = Worker(settings.EMBEDDING_MODEL, load=lambda source: embedder)
    model = worker.begin()
    # Rounds share no memory, and each is spread over the whole file.
    ids = list(Memory.objects.order_by("id").values_list("pk", flat=True))
    each = min(_MAX_MEMORIES, len(ids) // (_ROUNDS + 1))
    if not each:
        raise BenchmarkError(f"{len(ids)} memories are too few: give {_ROUNDS + 1} or more")
    step = len(ids) // (each * (_ROUNDS + 1))
    with connection.cursor() as cursor:
        cursor.execute(_MARK_EMBEDDED, [model.pk])
    vacuum()
    load_before = machine_load()
    process = psutil.Process()
    resident_before = resident_max = process.memory_info().rss
    rounds: list[Row] = []
    for number in range(_ROUNDS + 1):
        round_ids = ids[number * step :: step * (_ROUNDS + 1)][:each]
        worker_seconds = _embed(worker, round_ids)
        resident_max = max(resident_max, process.memory_info().rss)
        texts = _texts(model, round_ids)
        model_seconds = _encode(embedder, texts)
        # The first round warms up both.
        if number:
            rounds.append(
                {
                    "memories": len(round_ids),
                    "chunks": len(texts),
                    "worker_seconds": worker_seconds,
                    "alone_seconds": model_seconds,
                }
            )
            rates = [len(texts) / seconds for seconds in (worker_seconds, model_seconds)]
            job.progress.log(f"{len(texts)} chunks: {rates[0]:.1f} a second, model alone {rates[1]:.1f}")
    return {
        "model": model.name,
        "memories": len(ids),
        "lanes": thread_count(embedder),
        "load_before": load_before,
        "load_after": machine_load(),
        "resident_before_mb": round(resident_before / 1e6),
        "resident_most_mb": round(resident_max / 1e6),
        "rounds": rounds,
    }


def _embed(worker: Worker, ids: list[int]) -> float:
    """Seconds until the worker has embedded these memories, the only ones that wait."""
    EmbeddedMemory.objects.filter(memory_id__in=ids).delete()
    _, seconds = timed(worker.once)
    if EmbeddedMemory.objects.filter(memory_id__in=ids).count() != len(ids):
        raise RuntimeError("The worker has left memories without vectors.")
    return seconds


def _texts(model: EmbeddingModel, ids: list[int]) -> list[str]:
    """The texts that the worker passed to the model."""
    chunks = Chunk.objects.filter(memory_id__in=ids, model_id=model.pk)
    return [embedded_text(*row) for row in chunks.values_list("memory__title", "memory__content", "start", "end")]


def _encode(embedder: Embedder, texts: list[str]) -> float:
    """Seconds that the model needs for all texts, with all cores."""
    _set_threads(os.cpu_count() or 1)
    _, seconds = timed(embedder.encode, texts)
    _set_threads(1)
    return seconds


def _set_threads(count: int) -> None:
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)


def lines(name: str, found: Row) -> list[str]:
    rows: list[list[Cell]] = []
    for of in found["rounds"]:
        rates = [of["chunks"] / of["worker_seconds"], of["chunks"] / of["alone_seconds"]]
        rows.append([of["memories"], of["chunks"], *rates, rates[0] / rates[1]])
    share = median(of["alone_seconds"] / of["worker_seconds"] for of in found["rounds"])
    return [
        f"### Embedding {name}",
        "",
        f"{found['model']}, {found['lanes']} threads; load of the machine {found['load_before']} before,"
        f" {found['load_after']} after. Chunks a second. At the median the worker embeds {share:.0%} of what the model"
        f" does alone; its process held {found['resident_before_mb']} MB before, at most"
        f" {found['resident_most_mb']} MB.",
        "",
        *table(["memories", "chunks", "the worker", "the model alone", "×"], rows),
    ]


BENCHMARK = Benchmark(
    "embedding",
    run,
    lines,
    "FILE",
    "the worker and the model alone, on the memories of a file",
    can_keep=False,
)

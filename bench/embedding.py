"""How fast the worker embeds what was imported, beside the model called directly on the same texts.

Rounds of both in turn, so that whatever else the machine is doing meets them alike. The worker finds, claims, cuts,
embeds and stores memories, its index of vectors included, with a thread for each core; the model is handed the
finished texts of the same chunks in one list, with its own batches and all cores.
"""

import os
import sys
import time
from pathlib import Path

import psutil
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from bench.database import bench_database, tidy_database
from bench.figures import EmbeddingFigures, EmbeddingRound
from bench.machine import machine_load
from bench.telling import Teller
from memories.embedding.chunking import embedded_text
from memories.embedding.models import Embedder, load_embedder
from memories.embedding.worker import Worker, thread_count
from memories.models import Chunk, EmbeddedMemory, EmbeddingModel, Memory

_ROUNDS = 5
# Of each round: more say no more.
_MOST_MEMORIES = 600
_NAME = "bench_embedding"

_WAITING_NO_MORE = """
INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)
SELECT id, %s, content_hash, 0 FROM memories_memory"""


class TooFewMemoriesError(Exception):
    """A file with too few memories to say anything."""


def measure_embedding(path: Path, seed: int, teller: Teller) -> EmbeddingFigures:
    """Import a file, measure, and leave nothing behind. Raises EmbedderUnavailableError and TooFewMemoriesError."""
    work = Path(settings.HOME) / "bench" / "embedding"
    with (
        override_settings(SEARCH_ENGINE="postgres", SEARCH_INDEX=work / "index"),
        bench_database(_NAME, keep=False, contents=f"seed {seed}", reuse=False),
    ):
        teller.say(f"loading {path.name}")
        call_command("import_memories", str(path), stdout=sys.stderr)
        return _measured(teller)


def _measured(teller: Teller) -> EmbeddingFigures:
    alone = load_embedder(settings.EMBEDDING_MODEL, threads=1)
    # The same weights for both: what the process holds is what a worker's does.
    worker = Worker(settings.EMBEDDING_MODEL, load=lambda source: alone)
    model = worker.begin()
    # Every memory is in one round at most, and they are spread over the whole file.
    ids = list(Memory.objects.order_by("id").values_list("pk", flat=True))
    each = min(_MOST_MEMORIES, len(ids) // (_ROUNDS + 1))
    if not each:
        raise TooFewMemoriesError(f"{len(ids)} memories are too few: give {_ROUNDS + 1} or more")
    step = len(ids) // (each * (_ROUNDS + 1))
    rounds = [ids[number * step :: step * (_ROUNDS + 1)][:each] for number in range(_ROUNDS + 1)]
    with connection.cursor() as cursor:
        cursor.execute(_WAITING_NO_MORE, [model.pk])
    tidy_database()
    busy = [machine_load()]
    process = psutil.Process()
    before, most = process.memory_info().rss, 0
    done = []
    for number, round_ids in enumerate(rounds):
        seconds = _embedded(worker, round_ids)
        most = max(most, process.memory_info().rss)
        texts = _texts(model, round_ids)
        taken = _encoded(alone, texts)
        if number == 0:
            # The first is to warm both.
            continue
        done.append(EmbeddingRound(len(round_ids), len(texts), seconds, taken))
        teller.say(f"{len(texts)} chunks: {len(texts) / seconds:.1f} a second, alone {len(texts) / taken:.1f}")
    busy.append(machine_load())
    return EmbeddingFigures(
        model=model.name,
        memories=len(ids),
        lanes=thread_count(alone),
        load_before=busy[0],
        load_after=busy[1],
        resident_before_mb=round(before / 1e6),
        resident_most_mb=round(most / 1e6),
        rounds=done,
    )


def _embedded(worker: Worker, ids: list[int]) -> float:
    """Seconds until the worker has embedded these again, which are all that wait."""
    EmbeddedMemory.objects.filter(memory_id__in=ids).delete()
    begin = time.perf_counter()
    worker.once()
    seconds = time.perf_counter() - begin
    if EmbeddedMemory.objects.filter(memory_id__in=ids).count() != len(ids):
        raise RuntimeError("the worker has not embedded all that waited")
    return seconds


def _texts(model: EmbeddingModel, ids: list[int]) -> list[str]:
    """What the worker gave to the model."""
    rows = Chunk.objects.filter(memory_id__in=ids, model_id=model.pk).values_list(
        "memory__title", "memory__content", "start", "end"
    )
    return [embedded_text(*row) for row in rows]


def _encoded(model: Embedder, texts: list[str]) -> float:
    """Seconds that the model takes for all texts by itself, with all cores."""
    _use_threads(os.cpu_count() or 1)
    begin = time.perf_counter()
    model.encode(texts)
    seconds = time.perf_counter() - begin
    _use_threads(1)
    return seconds


def _use_threads(count: int) -> None:
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)

"""Vectors of the small deterministic model for what a test has written, and what the naive counter makes of them."""

import numpy as np

from memories.embedding.chunking import embedded_text, windows
from memories.embedding.models import HASHED, HashedWords, min_similarity
from memories.models import Chunk, Corpus, EmbeddedMemory, EmbeddingModel, Memory

MODEL = HashedWords()


def embed_everything():
    """Give every memory its chunks under a model that serves. Returns each memory's vectors, as Postgres keeps them."""
    model, _ = EmbeddingModel.objects.get_or_create(
        id=1,
        defaults={
            "name": HASHED,
            "source": HASHED,
            "dimensions": MODEL.dimensions,
            "min_similarity": min_similarity(HASHED),
            "state": EmbeddingModel.State.SERVING,
        },
    )
    kept = {}
    chunks: list[Chunk] = []
    embedded = []
    for memory in Memory.objects.order_by("id"):
        found = windows(memory.content, MODEL.offsets([memory.content])[0], MODEL.window)
        vectors = MODEL.encode([embedded_text(memory.title, memory.content, w.start, w.end) for w in found])
        kept[memory.pk] = vectors.astype(np.float16).astype(np.float32)
        chunks += [
            Chunk(memory_id=memory.pk, model_id=model.pk, ordinal=n, start=w.start, end=w.end, embedding=vectors[n])
            for n, w in enumerate(found)
        ]
        embedded.append(
            EmbeddedMemory(memory_id=memory.pk, model_id=model.pk, content_hash=memory.content_hash, chunks=len(found))
        )
    Chunk.objects.all().delete()
    Chunk.objects.bulk_create(chunks)
    EmbeddedMemory.objects.all().delete()
    EmbeddedMemory.objects.bulk_create(embedded)
    Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
    return kept


def similarity(vectors, text):
    """How near a memory is to a text, by its nearest chunk."""
    query = MODEL.encode_query(text)
    return max(float(v @ query / np.linalg.norm(v)) for v in vectors)

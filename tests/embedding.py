"""Memories made findable by meaning, in a test's own transaction."""

from memories.embedding.worker import Worker


def embed_all(source="hashed-words", **options):
    """Embed what waits, as a worker does in one thread; gives back the worker."""
    worker = Worker(source, threads=1, **options)
    worker.once()
    return worker

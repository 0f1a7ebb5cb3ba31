"""Query vectors by the serving model: how a process finds it, and a model of its own, loaded in the background."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from django.conf import settings

from memories.embedding.models import Embedder, EmbedderUnavailableError, load_embedder
from memories.models import Chunk, EmbeddingModel
from web.cache import RevisionCache

logger = logging.getLogger(__name__)

# Seconds for which the serving model is cached.
_LOOK_SECONDS = 1.0
# Seconds for which a replaced model still answers while its successor loads: its vectors are not yet removed.
REPLACED_SECONDS = 60.0
_RETRY_SECONDS = 60.0
_KEPT_QUERIES = 2_000
# A query is short: more threads would only slow down concurrent requests.
_THREADS = 1


class EmbedderNotReadyError(Exception):
    """A query cannot be compared by meaning now. `reason` is fit to be shown."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class EmbedderLoadingError(EmbedderNotReadyError):
    """The model is being loaded: it may be there in a few seconds."""

    def __init__(self) -> None:
        super().__init__("the model is still loading")


class QueryModel(Protocol):
    """The part of an Embedder that queries need."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]: ...

    def encode_query(self, text: str) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True, eq=False)
class QueryVector:
    """A query's vector, comparable with the chunks of `model_id`."""

    model_id: int
    model: str
    vector: npt.NDArray[np.float32]
    min_similarity: float


@dataclass(frozen=True, slots=True)
class ServingModel:
    """The model whose vectors searches use."""

    id: int
    name: str
    source: str
    min_similarity: float


@dataclass(frozen=True, slots=True)
class QueryCache:
    """Statistics of the cache of query vectors."""

    hits: int
    misses: int
    size: int
    limit: int


def query_vector(text: str) -> QueryVector:
    """The vector of a query. Raises EmbedderNotReadyError, and never waits for a model to be loaded."""
    return _queries.vector(text)


def passage_vector(text: str) -> QueryVector:
    """The vector of a passage, as the worker computes it. Raises EmbedderNotReadyError, like `query_vector`."""
    return _queries.passage_vector(text)


def load_in_background(then: Callable[[], None] = lambda: None) -> None:
    """Start loading the model that queries need, and call `then` once it is loaded."""
    _queries.load_soon(then)


def query_cache() -> QueryCache:
    return _queries.cache()


def not_ready_reason() -> str:
    """The reason why queries cannot be embedded now; empty if they can."""
    try:
        _queries.check()
    except EmbedderNotReadyError as error:
        return error.reason
    return ""


def serving_model() -> ServingModel | None:
    """The serving model; None if there is none yet."""
    row = (
        EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING)
        .values_list("id", "name", "source", "min_similarity")
        .first()
    )
    return ServingModel(*row) if row else None


class QueryEmbedder:
    """The model of this process, and a cache of query vectors. Thread-safe."""

    def __init__(
        self,
        load: Callable[[str], Embedder] | None = None,
        clock: Callable[[], float] = time.monotonic,
        embedder: Embedder | None = None,
    ) -> None:
        self._load = load or (lambda source: load_embedder(source, threads=_THREADS))
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = RevisionCache[tuple[int, str], npt.NDArray[np.float32]](_KEPT_QUERIES)
        self._hits = self._misses = 0
        self._serving: ServingModel | None = None
        self._looked = -_LOOK_SECONDS
        self._has_vectors: set[int] = set()
        self._embedder = embedder
        self._answered_for: ServingModel | None = None
        self._replaced_at = 0.0
        self._loading: str | None = None
        self._failed: tuple[str, str, float] | None = None
        self._is_idle = threading.Event()

    def vector(self, text: str) -> QueryVector:
        serving, embedder = self.ready()
        key = (serving.id, text)
        vector = self._kept.get(key)
        with self._lock:
            self._hits += vector is not None
            self._misses += vector is None
        if vector is None:
            vector = embedder.encode_query(text)
            vector.setflags(write=False)
            self._kept.put(key, vector)
        return QueryVector(serving.id, serving.name, vector, serving.min_similarity)

    def passage_vector(self, text: str) -> QueryVector:
        serving, embedder = self.ready()
        return QueryVector(serving.id, serving.name, embedder.encode([text])[0], serving.min_similarity)

    def cache(self) -> QueryCache:
        with self._lock:
            return QueryCache(self._hits, self._misses, len(self._kept), _KEPT_QUERIES)

    def check(self) -> None:
        """Raises EmbedderNotReadyError if queries cannot be embedded now."""
        self.ready()

    def ready(self) -> tuple[ServingModel, QueryModel]:
        """The model that vectors belong to, and its embedder. Raises EmbedderNotReadyError."""
        serving = self._look()
        if serving is None or not self._some_vectors(serving):
            self.load_soon()
            raise EmbedderNotReadyError("no memory has been embedded yet")
        with self._lock:
            if self._embedder is not None and self._embedder.name == serving.name:
                self._answered_for = serving
                return serving, self._embedder
            before = self._answered_for
            if before is not None and before.name != serving.name and not self._replaced_at:
                self._replaced_at = self._clock()
        self._begin(serving.source, serving.name)
        with self._lock:
            is_kept = self._clock() - self._replaced_at < REPLACED_SECONDS
            if before is not None and self._embedder is not None and self._embedder.name == before.name and is_kept:
                return before, self._embedder
            if self._failed is not None and self._failed[0] == serving.source:
                raise EmbedderNotReadyError(self._failed[1])
        raise EmbedderLoadingError

    def load_soon(self, then: Callable[[], None] = lambda: None) -> None:
        """Start loading the serving model, or the configured one if none serves yet."""
        with self._lock:
            serving = self._serving
            there = self._embedder is not None
        if there:
            then()
        else:
            source, name = (serving.source, serving.name) if serving else (settings.EMBEDDING_MODEL, "")
            self._begin(source, name, then)

    def wait(self, seconds: float) -> None:
        """Wait until the model that is being loaded is there, at most this long."""
        self._is_idle.wait(seconds)

    def _look(self) -> ServingModel | None:
        with self._lock:
            if self._clock() - self._looked < _LOOK_SECONDS:
                return self._serving
        serving = serving_model()
        with self._lock:
            self._serving, self._looked = serving, self._clock()
        return serving

    def _some_vectors(self, serving: ServingModel) -> bool:
        if serving.id not in self._has_vectors and Chunk.objects.filter(model_id=serving.id).exists():
            self._has_vectors.add(serving.id)
        return serving.id in self._has_vectors

    def _begin(self, source: str, name: str, then: Callable[[], None] = lambda: None) -> None:
        """Load a model in a thread, unless one is loading or this one failed recently."""
        with self._lock:
            if self._loading is not None:
                return
            if self._failed and self._failed[0] == source and self._clock() - self._failed[2] < _RETRY_SECONDS:
                return
            self._loading = source
            self._is_idle.clear()
        threading.Thread(target=self._load_now, args=(source, name, then), name="embedder", daemon=True).start()

    def _load_now(self, source: str, name: str, then: Callable[[], None]) -> None:
        try:
            embedder = self._load(source)
            if name and embedder.name != name:
                raise EmbedderUnavailableError(f"memories are embedded by {name}, but {source} is now another model")
            embedder.encode_query("the first one takes longer")
        except EmbedderUnavailableError as error:
            logger.warning("Searching by words only: %s", error)
            self._loaded(source, None, str(error))
        except Exception as error:
            logger.exception("Searching by words only: the model could not be loaded.")
            self._loaded(source, None, f"the model could not be loaded: {error}")
        else:
            self._loaded(source, embedder, "")
            then()

    def _loaded(self, source: str, embedder: Embedder | None, reason: str) -> None:
        with self._lock:
            self._loading = None
            if embedder is None:
                self._failed = (source, reason, self._clock())
            else:
                self._embedder, self._failed, self._replaced_at = embedder, None, 0.0
            self._is_idle.set()


_queries = QueryEmbedder()


def use(queries: QueryEmbedder) -> None:
    """Take query vectors from another source than a model of this process alone."""
    global _queries
    _queries = queries


def use_embedder(embedder: Embedder) -> None:
    """Use this model from now on, without loading. For benchmarks and tests."""
    global _queries
    _queries = QueryEmbedder(embedder=embedder)


def forget() -> None:
    """Reset to the state of a new process. For tests, whose transactions are rolled back."""
    global _queries
    _queries = QueryEmbedder()

"""Reranks the best candidates with an optional cross-encoder, with time limits and outside of request threads.

The model scores pairs of query text and passage. It is loaded in the background. Scores are cached, so that all pages
of a result have the same order.
"""

import hashlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings

from web.cache import RevisionCache

logger = logging.getLogger(__name__)

# Pairs scored between two checks of the deadline.
_BATCH = 8
_MAX_SCORES = 100_000
# A failed query is not retried for this long, so that all its pages have the same order.
_FAILURE_SECONDS = 600.0
_MAX_FAILURES = 2_000
_RETRY_LOADING_SECONDS = 60.0
# The last digits of a score depend on the padding of its batch.
_DIGITS = 4


class RerankUnavailableError(Exception):
    """The cross-encoder cannot score now. `reason` is for users."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Reader(Protocol):
    """Relevance scores of passages, of any scale."""

    def scores(self, text: str, passages: Sequence[str]) -> list[float]: ...


class CrossEncoderReader:
    """A CrossEncoder of sentence-transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def scores(self, text: str, passages: Sequence[str]) -> list[float]:
        pairs = [(text, passage) for passage in passages]
        found = self._model.predict(pairs, batch_size=_BATCH, show_progress_bar=False)
        return [float(score) for score in found]


def load_reader(source: str) -> Reader:
    """Load a model, from a folder or by a name that sentence-transformers knows. It takes seconds.

    Raises RerankUnavailableError.
    """
    for package in ("torch", "sentence_transformers"):
        if find_spec(package) is None:
            raise RerankUnavailableError(f"{package.replace('_', '-')} is not installed")
    folder = Path(source).expanduser()
    if source.startswith((".", "/", "~")) and not folder.is_dir():
        raise RerankUnavailableError(f"RERANK_MODEL={source} is not a folder on this machine")
    is_local = folder.is_dir()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if is_local:
        # The library reads it on import; without it, loading from a folder may access the network.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    # Raw scores: an activation to 0…1 would make the best passages indistinguishable.
    as_it_is = Identity()
    model = CrossEncoder(str(folder) if is_local else source, local_files_only=is_local, activation_fn=as_it_is)
    if model.num_labels != 1:
        raise RerankUnavailableError(
            f"RERANK_MODEL={source} gives {model.num_labels} scores for a passage; it must give 1"
        )
    return CrossEncoderReader(model)


class CrossEncoder:
    """A model with a cache of scores. Thread-safe; batches are scored one at a time."""

    def __init__(
        self, load: Callable[[str], Reader] = load_reader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="cross-encoder")
        self._scores = RevisionCache[bytes, float](_MAX_SCORES)
        self._failures = RevisionCache[bytes, str](_MAX_FAILURES, seconds=_FAILURE_SECONDS, clock=clock)
        self._reader: tuple[str, Reader] | None = None
        self._loading = False
        self._failed: tuple[str, str, float] | None = None

    def scores(self, text: str, passages: Mapping[int, str]) -> dict[int, float]:
        """The score of each passage. Raises RerankUnavailableError if the model fails or runs out of time."""
        source, reader = self._ready()
        digests = {pk: _digest(source, text, passage) for pk, passage in passages.items()}
        question = _digest(*sorted(digest.hex() for digest in digests.values()))
        if reason := self._failures.get(question):
            raise RerankUnavailableError(reason)
        stored = {digest: self._scores.get(digest) for digest in digests.values()}
        known = {digest: score for digest, score in stored.items() if score is not None}
        unread = {digest: passages[pk] for pk, digest in digests.items() if digest not in known}
        if unread:
            known |= self._read_in_time(reader, text, unread, question)
        return {pk: known[digest] for pk, digest in digests.items()}

    def load_soon(self) -> None:
        """Load the configured model in a thread, unless it is loading or failed recently."""
        source = settings.RERANK_MODEL
        with self._lock:
            is_loaded = self._reader is not None and self._reader[0] == source
            failed = self._failed is not None and self._failed[0] == source
            if not source or is_loaded or self._loading:
                return
            if failed and self._failed and self._clock() - self._failed[2] < _RETRY_LOADING_SECONDS:
                return
            self._loading = True
        threading.Thread(target=self._load_now, args=(source,), name="cross-encoder-loading", daemon=True).start()

    def _ready(self) -> tuple[str, Reader]:
        source = settings.RERANK_MODEL
        self.load_soon()
        with self._lock:
            if self._reader is not None and self._reader[0] == source:
                return self._reader
            if self._failed is not None and self._failed[0] == source and not self._loading:
                raise RerankUnavailableError(self._failed[1])
        raise RerankUnavailableError("the model is still loading")

    def _load_now(self, source: str) -> None:
        reason = ""
        try:
            reader = self._load(source)
            reader.scores("the first one takes longer", ["than those after it"])
        except RerankUnavailableError as error:
            logger.warning("Results are not reranked: %s", error)
            reason = error.reason
        except Exception as error:  # model files, downloads and the library raise anything
            logger.exception("Results are not reranked: the cross-encoder could not be loaded.")
            reason = f"it could not be loaded: {error}"
        with self._lock:
            self._loading = False
            if reason:
                self._failed = (source, reason, self._clock())
            else:
                self._reader, self._failed = (source, reader), None

    def _read_in_time(
        self, reader: Reader, text: str, unread: Mapping[bytes, str], question: bytes
    ) -> dict[bytes, float]:
        """Score passages that are not cached. Scores finished before a timeout are cached for the next attempt."""
        stop = threading.Event()
        future = self._reading.submit(self._read, reader, text, unread, stop)
        try:
            return future.result(timeout=settings.RERANK_TIMEOUT_MS / 1_000)
        except TimeoutError:
            reason = f"it took longer than {settings.RERANK_TIMEOUT_MS:,} ms"
        except Exception as error:  # models raise anything
            logger.exception("The cross-encoder failed.")
            reason = f"it failed: {error}"
        finally:
            stop.set()
        raise RerankUnavailableError(self._failures.put(question, reason))

    def _read(
        self, reader: Reader, text: str, unread: Mapping[bytes, str], stop: threading.Event
    ) -> dict[bytes, float]:
        found: dict[bytes, float] = {}
        # Batches of similar length need little padding.
        waiting = sorted(unread.items(), key=lambda pair: len(pair[1]))
        for begin in range(0, len(waiting), _BATCH):
            if stop.is_set():
                break
            batch = waiting[begin : begin + _BATCH]
            scores = [round(score, _DIGITS) for score in reader.scores(text, [passage for _, passage in batch])]
            if not all(map(math.isfinite, scores)):
                raise ValueError("it gave no number for a passage")
            for (digest, _), score in zip(batch, scores, strict=True):
                found[digest] = self._scores.put(digest, score)
        return found


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()


_cross_encoder = CrossEncoder()


def cross_encode(text: str, passages: Mapping[int, str]) -> dict[int, float]:
    """How well each passage fits the text, by the model that is set. Raises RerankUnavailableError."""
    return _cross_encoder.scores(text, passages)


def load_in_background() -> None:
    """Start loading the configured model, if any."""
    _cross_encoder.load_soon()


def reset(load: Callable[[str], Reader] = load_reader) -> CrossEncoder:
    """Replace the cross-encoder of this process. For tests."""
    global _cross_encoder
    _cross_encoder = CrossEncoder(load)
    return _cross_encoder

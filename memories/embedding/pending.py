"""One thread of the worker: claims memories that wait, cuts, embeds and stores them, batch by batch.

A batch is one transaction: its claims end with it, and it writes whole memories at its end. However it ends, what it
had not stored waits as before.
"""

import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt
import psycopg
from django.db import DatabaseError, transaction

from memories.embedding import vectors
from memories.embedding.chunking import Window, embedded_text, title_that_fits, windows
from memories.embedding.models import Embedder, Vectors
from memories.embedding.vectors import EmbeddedText, WaitingText

logger = logging.getLogger(__name__)

# Texts of like length are encoded together, out of so many: few tokens then go to padding.
CHUNKS = 512
# So many at a time, and of long ones fewer: what a core works on should fit its cache.
_TEXTS = 32
_CHARACTERS = 8_000
_LOOK = 1_024
# While much waits, what has come meanwhile is looked for so often.
_AGAIN_SECONDS = 30.0
_TRIES = 20
_TRY_SECONDS = 0.25
# What passes: a memory that is being edited, or was removed just now, and two that wait for each other.
_PASSING = {"55P03", "23503", "40P01"}

# The vector of a text, what stands against it, or nothing where it was not come to.
Row = npt.NDArray[np.float32] | Exception | None


class BrokenVectorError(ValueError):
    """The model gave something that is no vector."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A model to embed by, once for each thread. `only_since`: it is kept up with what changes, not completed."""

    model_id: int
    embedders: Sequence[Embedder]
    only_since: bool = False


class Waiting:
    """What waits for models, handed out to threads in runs of ids, the newest first.

    `above`: only memories with greater ids. Of a model that is kept up, first what has come or was changed.
    """

    def __init__(self, targets: Sequence[Target], above: int = 0) -> None:
        self._kept_up = [target for target in targets if target.only_since]
        self._target = next(target for target in targets if not target.only_since)
        self._above = above
        self._below: int | None = None
        self._begun: float | None = None
        self._runs: deque[tuple[Target, int, list[int]]] = deque()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        with self._lock:
            return self._look()

    def take(self, target: Target | None = None) -> tuple[Target, int, list[int]] | None:
        """A model, a run, and the ids in it that wait; of the model that is named, if any. None where nothing does."""
        with self._lock:
            if not self._look() or target not in (None, self._runs[0][0]):
                return None
            return self._runs.popleft()

    def _look(self) -> bool:
        if self._runs:
            return True
        if self._begun is None or time.monotonic() - self._begun > _AGAIN_SECONDS:
            self._begun, self._below = time.monotonic(), None
            for target in self._kept_up:
                self._add(target, vectors.waiting_since(target.model_id, limit=_LOOK))
        if not self._runs:
            ids = vectors.waiting_ids(self._target.model_id, above=self._above, below=self._below, limit=_LOOK)
            self._below = ids[-1] if ids else self._below
            self._add(self._target, ids)
        return bool(self._runs)

    def _add(self, target: Target, ids: Sequence[int]) -> None:
        runs = groupby(ids, lambda memory_id: memory_id // vectors.RUN)
        self._runs.extend((target, run, list(group)) for run, group in runs)


@dataclass(slots=True)
class Tally:
    """What the threads of a worker have done, and what none of them can do."""

    memories: int = 0
    chunks: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    """Memories that cannot be embedded, with the hash of the text that cannot."""
    changed: Callable[["Tally"], None] = lambda tally: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, memories: int, chunks: int) -> None:
        with self._lock:
            self.memories += memories
            self.chunks += chunks
            self.changed(self)


@dataclass(frozen=True, slots=True)
class CutText:
    """A memory's text in windows, and the title that goes before each."""

    text: WaitingText
    title: str
    windows: list[Window]

    def passages(self) -> list[str]:
        return [embedded_text(self.title, self.text.content, one.start, one.end) for one in self.windows]


@transaction.atomic
def batch(waiting: Waiting, lane: int, tally: Tally, stop: Callable[[], bool]) -> bool:
    """Claim, cut, embed and store some memories; says whether there was anything to claim."""
    target, texts = _claimed(waiting, lane, tally)
    if target is None:
        return False
    rows = encoded(target.embedders[lane], [passage for one in texts for passage in one.passages()], stop)
    done: list[EmbeddedText] = []
    at = 0
    for one in texts:
        own = rows[at : at + len(one.windows)]
        at += len(own)
        vectors_found = [row for row in own if isinstance(row, np.ndarray)]
        if len(vectors_found) == len(own):
            done.append(EmbeddedText(one.text, one.windows, np.stack(vectors_found)))
        elif errors := [row for row in own if isinstance(row, Exception)]:
            logger.warning("Memory #%s cannot be embedded: %s", one.text.memory_id, errors[0])
            tally.refused[one.text.memory_id] = one.text.content_hash
    if done:
        _written(target.model_id, done)
        _give_memory_back()
        tally.add(len(done), sum(len(one.windows) for one in done))
    return True


def _claimed(waiting: Waiting, lane: int, tally: Tally) -> tuple[Target | None, list[CutText]]:
    """Memories of one model that this transaction has to itself, as many as give a batch of chunks."""
    target: Target | None = None
    texts: list[CutText] = []
    own: set[int] = set()
    while sum(len(one.windows) for one in texts) < CHUNKS and (taken := waiting.take(target)):
        target, run, ids = taken
        # Another one may have been faster, and may be done by now. To a transaction its own claim is no obstacle.
        if run not in own and vectors.claim(run):
            own.add(run)
            found = vectors.waiting_texts(target.model_id, ids)
            wanted = [text for text in found if tally.refused.get(text.memory_id) != text.content_hash]
            texts += cut_texts(target.embedders[lane], wanted)
    return target, texts


def cut_texts(embedder: Embedder, texts: Sequence[WaitingText]) -> list[CutText]:
    """Texts cut at the window of a model."""
    offsets = iter(embedder.offsets([part for text in texts for part in (text.title, text.content)]))
    cut: list[CutText] = []
    for text in texts:
        title, tokens = title_that_fits(text.title, next(offsets), embedder.window)
        # The line end between the two may be a token too.
        cut.append(CutText(text, title, windows(text.content, next(offsets), embedder.window - tokens - 1)))
    return cut


def encoded(embedder: Embedder, passages: Sequence[str], stop: Callable[[], bool]) -> list[Row]:
    """A row for each passage, in their order."""
    rows: list[Row] = [None] * len(passages)
    for places in slices([len(passage) for passage in passages]):
        if stop():
            break
        found: Sequence[Row]
        try:
            found = list(_checked(embedder, [passages[at] for at in places]))
        except Exception:
            # One text that cannot be embedded holds up no other.
            found = [_alone(embedder, passages[at]) for at in places]
        for at, row in zip(places, found, strict=True):
            rows[at] = row
    return rows


def _give_memory_back() -> None:
    """What a batch took and the C library keeps for the next one: in hours that becomes more than a gigabyte."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def slices(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of texts to encode together, the longest first: what takes the most memory is asked for at once."""
    order = sorted(range(len(lengths)), key=lambda at: lengths[at], reverse=True)
    while order:
        count = min(_TEXTS, max(1, _CHARACTERS // max(1, lengths[order[0]])))
        yield order[:count]
        order = order[count:]


def _alone(embedder: Embedder, passage: str) -> Row:
    try:
        return np.asarray(_checked(embedder, [passage])[0], dtype=np.float32)
    except Exception as error:
        return error


def _checked(embedder: Embedder, passages: Sequence[str]) -> Vectors:
    found = embedder.encode(passages)
    if found.shape != (len(passages), embedder.dimensions) or not np.isfinite(found).all():
        raise BrokenVectorError(f"{embedder.name} gave what is no vector")
    return found


def _written(model_id: int, done: Sequence[EmbeddedText]) -> None:
    """Store a batch. What stands in the way for a moment (a memory being edited, or just removed) is waited for."""
    for left in reversed(range(_TRIES)):
        try:
            vectors.vectors_write(model_id, done)
        except (DatabaseError, psycopg.Error) as error:  # those of a COPY come as they are
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not left or getattr(cause, "sqlstate", None) not in _PASSING:
                raise
            time.sleep(_TRY_SECONDS)
        else:
            break

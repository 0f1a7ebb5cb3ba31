"""One thread of the worker: claims pending memories, and splits, embeds and stores them batch by batch.

A batch is one transaction: its claims end with it, and it writes whole memories at its end. Memories that a batch does
not store, for whatever reason, stay pending.
"""

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
from memories.embedding.vectors import EmbeddedText, PendingText
from web.processes import release_memory

logger = logging.getLogger(__name__)

# The chunks of a batch. Texts of similar length are encoded together, so that few tokens are padding.
CHUNKS = 512
# The texts of one call of the model, fewer if they are long: the working set should fit a core's cache.
_TEXTS = 32
_CHARACTERS = 8_000
# The ids read from the database at a time.
_PAGE = 1_024
# How often the queue starts again at the newest memory, to find those that came in the meantime.
_RESTART_SECONDS = 30.0
_TRIES = 20
_TRY_SECONDS = 0.25
# Temporary errors: a memory that is being edited, a memory deleted in the meantime, a deadlock.
_TEMPORARY = {"55P03", "23503", "40P01"}

# The vector of a text, the error that prevented it, or None if the worker stopped before.
PassageVector = npt.NDArray[np.float32] | Exception | None


class BrokenVectorError(ValueError):
    """The model returned something other than finite vectors of its dimensions."""


@dataclass(frozen=True, slots=True)
class TextRefusal:
    """The hash of a text that a model cannot embed, and the reason."""

    text_hash: str
    reason: str


@dataclass(slots=True)
class Refused:
    """The texts that a model cannot embed, by kind and id. They are tried again when they change."""

    kinds: dict[str, dict[int, TextRefusal]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[int, TextRefusal]:
        return self.kinds.setdefault(kind, {})

    @property
    def memories(self) -> dict[int, TextRefusal]:
        return self.of("memory")


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A model to embed with, loaded once for each thread.

    With `only_since`, only memories that are newer than its last one, or changed since it embedded them.
    """

    model_id: int
    embedders: Sequence[Embedder]
    refused: Refused = field(default_factory=Refused)
    only_since: bool = False


class PendingQueue:
    """The memories that models have yet to embed, given to threads in runs of ids, the newest first.

    A run belongs to one thread at a time, since the database lets one transaction claim it. Other ids of the run, which
    the next page or a restart finds, stay in the queue until that thread releases the run.

    `above`: only memories with greater ids. Models with `only_since` come first.
    """

    def __init__(self, targets: Sequence[Target], above: int = 0) -> None:
        self._replaced = [target for target in targets if target.only_since]
        self._target = next(target for target in targets if not target.only_since)
        self._above = above
        self._below: int | None = None
        self._started: float | None = None
        self._runs: deque[tuple[Target, int, list[int]]] = deque()
        self._held: set[int] = set()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        with self._lock:
            return bool(self._runs) or self._read_page()

    def take(self, target: Target | None = None) -> tuple[Target, int, list[int]] | None:
        """The next target, run and ids in it, to be released afterwards. None if threads hold every run that is left.

        With `target`, also None if the next run is for another target.
        """
        with self._lock:
            place = self._first_free()
            while place is None and self._read_page():
                place = self._first_free()
            if place is None or target not in (None, self._runs[place][0]):
                return None
            taken = self._runs[place]
            del self._runs[place]
            self._held.add(taken[1])
            return taken

    def release(self, runs: Sequence[int]) -> None:
        """Give runs back, after the transaction that claimed them."""
        with self._lock:
            self._held.difference_update(runs)

    def _first_free(self) -> int | None:
        return next((place for place, (_, run, _) in enumerate(self._runs) if run not in self._held), None)

    def _read_page(self) -> bool:
        """Add the next page of ids, or the first one again after a while. False if there are none."""
        before = len(self._runs)
        if self._started is None or time.monotonic() - self._started > _RESTART_SECONDS:
            self._started, self._below = time.monotonic(), None
            for target in self._replaced:
                self._add(target, vectors.pending_since(target.model_id, limit=_PAGE))
        if len(self._runs) == before:
            ids = vectors.pending_ids(self._target.model_id, above=self._above, below=self._below, limit=_PAGE)
            self._below = ids[-1] if ids else self._below
            self._add(self._target, ids)
        return len(self._runs) > before

    def _add(self, target: Target, ids: Sequence[int]) -> None:
        runs = groupby(ids, lambda memory_id: memory_id // vectors.RUN)
        self._runs.extend((target, run, list(group)) for run, group in runs)


@dataclass(slots=True)
class Progress:
    """The memories and chunks that the threads of a worker have embedded. Calls `changed` after every batch."""

    memories: int = 0
    chunks: int = 0
    changed: Callable[["Progress"], None] = lambda progress: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, memories: int, chunks: int) -> None:
        with self._lock:
            self.memories += memories
            self.chunks += chunks
            self.changed(self)


@dataclass(frozen=True, slots=True)
class CutText:
    """A memory's text split into windows, and the title that is put before each of them."""

    text: PendingText
    title: str
    windows: list[Window]

    def passages(self) -> list[str]:
        return [embedded_text(self.title, self.text.content, window.start, window.end) for window in self.windows]


def batch(queue: PendingQueue, thread: int, progress: Progress, stop: Callable[[], bool]) -> bool:
    """Claim, split, embed and store some memories. False if the queue had none for this thread."""
    runs: list[int] = []
    try:
        with transaction.atomic():
            return _embed_batch(queue, thread, progress, stop, runs)
    finally:
        queue.release(runs)


def _embed_batch(
    queue: PendingQueue, thread: int, progress: Progress, stop: Callable[[], bool], runs: list[int]
) -> bool:
    target, texts = _claim_batch(queue, thread, runs)
    if target is None:
        return False
    rows = encoded(target.embedders[thread], [passage for text in texts for passage in text.passages()], stop)
    done: list[EmbeddedText] = []
    at = 0
    for cut in texts:
        own = rows[at : at + len(cut.windows)]
        at += len(own)
        vectors_found = [row for row in own if isinstance(row, np.ndarray)]
        if len(vectors_found) == len(own):
            done.append(EmbeddedText(cut.text, cut.windows, np.stack(vectors_found)))
            target.refused.memories.pop(cut.text.memory_id, None)
        elif errors := [row for row in own if isinstance(row, Exception)]:
            logger.warning("Memory #%s cannot be embedded: %s", cut.text.memory_id, errors[0])
            target.refused.memories[cut.text.memory_id] = TextRefusal(cut.text.content_hash, str(errors[0]))
    if done:
        _write(target.model_id, done)
        release_memory()
        progress.add(len(done), sum(len(text.windows) for text in done))
    return True


def _claim_batch(queue: PendingQueue, thread: int, runs: list[int]) -> tuple[Target | None, list[CutText]]:
    """Enough memories of one target for a batch, claimed by this transaction. Adds the runs taken to `runs`."""
    target: Target | None = None
    texts: list[CutText] = []
    while sum(len(text.windows) for text in texts) < CHUNKS and (taken := queue.take(target)):
        target, run, ids = taken
        runs.append(run)
        # A run that another process holds is left to it.
        if vectors.claim(run):
            refused = target.refused.memories
            pending = [
                text
                for text in vectors.pending_texts(target.model_id, ids)
                if text.memory_id not in refused or refused[text.memory_id].text_hash != text.content_hash
            ]
            texts += cut_texts(target.embedders[thread], pending)
    return target, texts


def cut_texts(embedder: Embedder, texts: Sequence[PendingText]) -> list[CutText]:
    """Split texts into windows that fit the model."""
    offsets = iter(embedder.offsets([part for text in texts for part in (text.title, text.content)]))
    cut: list[CutText] = []
    for text in texts:
        title, tokens = title_that_fits(text.title, next(offsets), embedder.window)
        # The line break after the title may be a token too.
        cut.append(CutText(text, title, windows(text.content, next(offsets), embedder.window - tokens - 1)))
    return cut


def encoded(embedder: Embedder, passages: Sequence[str], stop: Callable[[], bool]) -> list[PassageVector]:
    """A row for each passage, in the same order."""
    rows: list[PassageVector] = [None] * len(passages)
    for places in slices([len(passage) for passage in passages]):
        if stop():
            break
        found: Sequence[PassageVector]
        try:
            found = list(_encode(embedder, [passages[at] for at in places]))
        except Exception:
            # A text that cannot be embedded must not prevent the others.
            found = [_encode_alone(embedder, passages[at]) for at in places]
        for at, row in zip(places, found, strict=True):
            rows[at] = row
    return rows


def slices(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The positions of texts to encode together, the longest first: the most memory is then allocated at the start."""
    order = sorted(range(len(lengths)), key=lambda at: lengths[at], reverse=True)
    while order:
        count = min(_TEXTS, max(1, _CHARACTERS // max(1, lengths[order[0]])))
        yield order[:count]
        order = order[count:]


def _encode_alone(embedder: Embedder, passage: str) -> PassageVector:
    try:
        return np.asarray(_encode(embedder, [passage])[0], dtype=np.float32)
    except Exception as error:
        return error


def _encode(embedder: Embedder, passages: Sequence[str]) -> Vectors:
    found = embedder.encode(passages)
    if found.shape != (len(passages), embedder.dimensions) or not np.isfinite(found).all():
        raise BrokenVectorError(f"{embedder.name} did not return a finite vector for every text")
    return found


def _write(model_id: int, done: Sequence[EmbeddedText]) -> None:
    """Store a batch. Try again after a temporary error, such as a memory that is being edited."""
    for left in reversed(range(_TRIES)):
        try:
            vectors.vectors_write(model_id, done)
        except (DatabaseError, psycopg.Error) as error:  # COPY raises errors of psycopg itself
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not left or getattr(cause, "sqlstate", None) not in _TEMPORARY:
                raise
            time.sleep(_TRY_SECONDS)
        else:
            break

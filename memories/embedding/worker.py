"""The worker that makes memories searchable by meaning: it embeds pending texts and lets models replace each other.

Memories come first, then the vocabulary.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection, transaction

from categories.searched_terms import SEARCHED, SearchableTable, terms_refresh_all
from memories.embedding import vectors
from memories.embedding.models import Embedder, EmbedderUnavailableError, load_embedder, min_similarity
from memories.embedding.pending import PendingQueue, Progress, Refused, Target, TextRefusal, batch, encoded
from memories.embedding.query import REPLACED_SECONDS
from memories.embedding.vocabulary import claim, pending_rows, vectors_write
from memories.models import Corpus, EmbeddingModel, Memory
from web.processes import release_memory

logger = logging.getLogger(__name__)

_MAX_THREADS = 8
_POLL_SECONDS = 0.5
# Full rounds that find nothing take at most this share of the time, but one is due at least every minute.
_FULL_ROUND_SHARE = 1 / 20
_FULL_ROUND_SECONDS = 60.0
_RETRY_SECONDS = (1.0, 5.0, 30.0)
_REMOVED = 1_000

State = EmbeddingModel.State


def thread_count(embedder: Embedder) -> int:
    """The number of threads that embed: one for each core, each with a single thread of the model's own.

    Threads that share the work on one text wait for each other, longer the busier the machine is.
    """
    if not embedder.on_processor:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_THREADS)


@dataclass(frozen=True, slots=True)
class Pending:
    """The numbers of memories, and of rows of the vocabulary, that a model has yet to embed."""

    memories: int
    vocabulary: int


class Worker:
    """Embeds with the model that `source` names, and keeps the serving model up to date until the new one is complete.

    Calls `show` with the number of embedded memories and the number of all memories.
    """

    def __init__(
        self,
        source: str,
        *,
        stop: Callable[[], bool] = lambda: False,
        show: Callable[[int, int], None] = lambda done, total: None,
        threads: int | None = None,
        load: Callable[[str], Embedder] = lambda source: load_embedder(source, threads=1),
    ) -> None:
        self.progress = Progress()
        self.vocabulary = 0
        self._source = source
        self._stop = stop
        self._show = show
        self._threads = threads
        self._load = load
        self._embedders: dict[str, list[Embedder]] = {}
        self._unloadable: set[str] = set()
        self._refused: dict[str, Refused] = {}
        self._retired: dict[int, float] = {}
        self._full_round_at = self._full_round_seconds = 0.0
        self._seen = (-1, -1)

    def begin(self) -> EmbeddingModel:
        """Load the model to embed with. Raises EmbedderUnavailableError and WrongDimensionsError."""
        embedder = self._embedders_of(self._source)[0]
        return vectors.model_begin(
            name=embedder.name,
            source=self._source,
            dimensions=embedder.dimensions,
            min_similarity=min_similarity(self._source),
        )

    def once(self) -> EmbeddingModel:
        """Embed until nothing is pending but texts that other processes hold or the model cannot embed.

        Returns the model in its final state.
        """
        model = self.begin()
        # Servers have had the time to load the successors of models that were retired before.
        self._remove(list(EmbeddingModel.objects.filter(state=State.RETIRED).values_list("id", flat=True)))
        while True:
            before = self._embedded()
            self._round(model)
            # Texts may have changed or arrived during a round that embedded something.
            if self._stop() or self._embedded() == before:
                return model

    def follow(self) -> None:
        """Embed pending and new texts until `stop` returns True. Tries again after errors."""
        model: EmbeddingModel | None = None
        failures = 0
        while not self._stop():
            try:
                model = model or self.begin()
                self._follow_changes(model)
                self._remove_in_time()
                failures = 0
                self._wait(_POLL_SECONDS)
            except (EmbedderUnavailableError, vectors.WrongDimensionsError):
                raise
            except Exception:  # any other error may pass, such as a restart of the database or a lack of memory
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                logger.exception("Memories could not be embedded; trying again in %s s.", pause)
                connection.close()
                self._wait(pause)

    @property
    def refused(self) -> Refused:
        """The texts that the model cannot embed."""
        return self._refused.setdefault(self._source, Refused())

    def pending(self, model: EmbeddingModel) -> Pending:
        """Count the texts that are still pending, without those that the model cannot embed."""
        refused = self.refused.memories
        still_refused = [
            text
            for text in vectors.pending_texts(model.pk, list(refused))
            if text.content_hash == refused[text.memory_id].text_hash
        ]
        return Pending(vectors.pending_count(model.pk) - len(still_refused), vocabulary_left(model.pk, self.refused))

    # --- rounds --------------------------------------------------------------------------------------------------

    def _embedded(self) -> int:
        return self.progress.memories + self.vocabulary

    def _follow_changes(self, model: EmbeddingModel) -> None:
        """Start a round if something may be pending: a full one, or one over the new memories alone."""
        now = (Corpus.objects.filter(pk=1).values_list("revision", flat=True).first() or 0, _last_id())
        elapsed = time.monotonic() - self._full_round_at
        changed_and_due = now != self._seen and elapsed > self._full_round_seconds / _FULL_ROUND_SHARE
        if elapsed > _FULL_ROUND_SECONDS or changed_and_due:
            started, before = time.monotonic(), self._embedded()
            self._round(model)
            self._full_round_at = time.monotonic()
            found_nothing = self._embedded() == before
            self._full_round_seconds = self._full_round_at - started if found_nothing else 0.0
            self._seen = now
        elif now[1] > self._seen[1]:
            self._round(model, above=self._seen[1])
            self._seen = (self._seen[0], now[1])

    def _round(self, model: EmbeddingModel, above: int = 0) -> None:
        """Embed until the queue is empty. A model that has embedded everything then becomes the serving one."""
        model.refresh_from_db()
        if model.state == State.RETIRED:
            logger.warning("Another worker uses another model: set the same EMBEDDING_MODEL for all workers.")
            return
        last, before = _last_id(), self._embedded()
        targets = [self._target(model.pk, self._source)]
        if model.state == State.BUILDING and (old := self._replaced_target()):
            targets.insert(0, old)
        self._embed(PendingQueue(targets, above), model.pk, len(targets[-1].embedders))
        if not above:
            self._embed_vocabulary(targets)
        if self._embedded() != before:
            # The last batch gives back too little: the threads still hold their texts and vectors then.
            release_memory()
        if model.state == State.BUILDING and not above and not self._stop():
            if vectors.model_serve(model.pk, up_to=last, leaving=self.refused.memories):
                logger.warning("Searches now use %s.", model.name)
            model.refresh_from_db()

    def _replaced_target(self) -> Target | None:
        """The model that serves until the new one is complete; None if it can no longer be loaded."""
        serving = EmbeddingModel.objects.filter(state=State.SERVING).first()
        if serving is None or serving.source in self._unloadable:
            return None
        try:
            target = self._target(serving.pk, serving.source, only_since=True)
            if target.embedders[0].name != serving.name:
                raise EmbedderUnavailableError(f"{serving.source} is now another model")
        except EmbedderUnavailableError as error:
            self._unloadable.add(serving.source)
            logger.warning("New memories are not found by meaning until all memories are embedded again: %s", error)
            return None
        return target

    def _embed(self, queue: PendingQueue, model_id: int, threads: int) -> None:
        """Embed the memories of a queue in several threads. Raises the first error of a thread."""
        if not queue:
            return
        self._show_progress(model_id)
        if threads == 1:
            while not self._stop() and batch(queue, 0, self.progress, self._stop):
                pass
            return
        failures: list[Exception] = []

        def embed_batches(thread: int) -> None:
            try:
                while not self._stop() and not failures and batch(queue, thread, self.progress, self._stop):
                    pass
            except Exception as error:
                failures.append(error)
            finally:
                connection.close()

        started = [
            threading.Thread(target=embed_batches, args=(number,), name=f"embed-{number}") for number in range(threads)
        ]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        if failures:
            raise failures[0]

    def _embed_vocabulary(self, targets: Sequence[Target]) -> None:
        """Embed the vocabulary, after its search terms include changes made without the services."""
        terms_refresh_all()
        for target in targets:
            self.vocabulary += vocabulary_embed(
                target.model_id, target.embedders[0], stop=self._stop, refused=target.refused
            )

    def _show_progress(self, model_id: int) -> None:
        embedded = next((model.embedded for model in vectors.models_progress() if model.id == model_id), 0)
        before = embedded - self.progress.memories
        total = Memory.objects.count()
        self.progress.changed = lambda progress: self._show(min(before + progress.memories, total), total)
        self.progress.changed(self.progress)

    # --- models --------------------------------------------------------------------------------------------------

    def _target(self, model_id: int, source: str, *, only_since: bool = False) -> Target:
        embedders = self._embedders_of(source)
        threads = self._threads or thread_count(embedders[0])
        while len(embedders) < threads:
            embedders.append(embedders[0].clone())
        return Target(model_id, embedders[:threads], self._refused.setdefault(source, Refused()), only_since)

    def _embedders_of(self, source: str) -> list[Embedder]:
        if source not in self._embedders:
            self._embedders[source] = [self._load(source)]
        return self._embedders[source]

    def _remove_in_time(self) -> None:
        """Remove the vectors of models that were replaced long enough ago for every server to have noticed."""
        now = time.monotonic()
        retired = EmbeddingModel.objects.filter(state=State.RETIRED).values_list("id", flat=True)
        self._retired = {model_id: self._retired.get(model_id, now) for model_id in retired}
        self._remove([model_id for model_id, since in self._retired.items() if now - since > REPLACED_SECONDS])

    def _remove(self, model_ids: Collection[int]) -> None:
        while model_ids and not self._stop() and vectors.retired_remove(model_ids, _REMOVED):
            pass

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(0.1, left))


def _last_id() -> int:
    return Memory.objects.order_by("-id").values_list("id", flat=True).first() or 0


_BATCH = 256


def vocabulary_embed(model_id: int, embedder: Embedder, *, stop: Callable[[], bool], refused: Refused) -> int:
    """Embed the pending rows of a model, except in tables that another worker has claimed. Returns their number.

    A row has a single vector, of as much of its text as the model reads: names come first.
    """
    done = 0
    for searched in SEARCHED:
        while not stop():
            embedded = _batch(searched, model_id, embedder, stop, refused.of(searched.kind))
            if embedded is None:
                break
            done += embedded
    return done


def vocabulary_left(model_id: int, refused: Refused) -> int:
    """Count the pending rows of a model, without those that it cannot embed."""
    return sum(
        len(pending_rows(searched, model_id, besides=_hashes(refused.of(searched.kind)))) for searched in SEARCHED
    )


@transaction.atomic
def _batch(
    searched: SearchableTable,
    model_id: int,
    embedder: Embedder,
    stop: Callable[[], bool],
    refused: dict[int, TextRefusal],
) -> int | None:
    """Embed some rows in a transaction that claims their table; None if there is nothing to do now: nothing is pending,
    another worker has the table, or others are deleting the rows.

    Rows that are not stored stay pending.
    """
    if not claim(searched, model_id):
        return None
    rows = pending_rows(searched, model_id, limit=_BATCH, besides=_hashes(refused))
    if not rows:
        return None
    found = encoded(embedder, [row.text for row in rows], stop)
    made = [(row, vector) for row, vector in zip(rows, found, strict=True) if isinstance(vector, np.ndarray)]
    for row, error in zip(rows, found, strict=True):
        if isinstance(error, Exception):
            logger.warning("The %s #%s cannot be embedded: %s", searched.kind, row.id, error)
            refused[row.id] = TextRefusal(row.text_hash, str(error))
        else:
            refused.pop(row.id, None)
    if not made:
        return 0
    stored = vectors_write(searched, model_id, [row for row, _ in made], np.stack([vector for _, vector in made]))
    return stored or None


def _hashes(refused: dict[int, TextRefusal]) -> dict[int, str]:
    return {row_id: refusal.text_hash for row_id, refusal in refused.items()}

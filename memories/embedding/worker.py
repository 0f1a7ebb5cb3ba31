"""The work behind search by meaning: embeds what waits, by the model that is set, and lets models take turns.

Memories come first, then what is searched of the vocabulary.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from django.db import connection, transaction

from categories.searched_terms import SEARCHED, SearchableTable, terms_catch_up
from memories.embedding import vectors
from memories.embedding.models import Embedder, EmbedderUnavailable, load_embedder, min_similarity
from memories.embedding.pending import Tally, Target, Waiting, batch, encoded
from memories.embedding.query import REPLACED_SECONDS
from memories.embedding.vocabulary import claim, vectors_write, waiting_rows
from memories.models import Corpus, EmbeddingModel, Memory

logger = logging.getLogger(__name__)

_MOST_LANES = 8
_POLL_SECONDS = 0.5
# A look at all that might wait takes at most this part of the time; and it is due however little seems to happen.
_LOOK_SHARE = 1 / 20
_LONGEST_QUIET = 60.0
_RETRY_SECONDS = (1.0, 5.0, 30.0)
_REMOVED = 1_000

State = EmbeddingModel.State


def lanes_for(embedder: Embedder) -> int:
    """How many threads embed: one for each core, with one of the model's own threads each.

    Threads that share the work on one text wait for each other, and the longer the more else the machine has to do.
    """
    if not embedder.on_processor:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_LANES)


class Worker:
    """Embeds by the model that `source` names, and keeps the one up to date that serves until it is complete.

    `progress` is told how many memories are embedded, and of how many.
    """

    def __init__(
        self,
        source: str,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
        lanes: int | None = None,
        load: Callable[[str], Embedder] = lambda source: load_embedder(source, threads=1),
    ) -> None:
        self.tally = Tally()
        self.vocabulary = 0
        self._source = source
        self._stop = stop
        self._progress = progress
        self._lanes = lanes
        self._load = load
        self._embedders: dict[str, list[Embedder]] = {}
        self._unloadable: set[str] = set()
        self._refused: dict[int, Refused] = {}
        self._retired: dict[int, float] = {}
        self._looked_at = self._looked_for = 0.0
        self._seen = (-1, -1)

    def begin(self) -> EmbeddingModel:
        """Load the model and make it the one to embed by. Raises EmbedderUnavailable and WrongDimensionsError."""
        embedder = self._embedders_of(self._source)[0]
        return vectors.model_begin(
            name=embedder.name,
            source=self._source,
            dimensions=embedder.dimensions,
            min_similarity=min_similarity(self._source),
        )

    def once(self) -> EmbeddingModel:
        """Embed all that waits now; gives back the model, as it is afterwards."""
        model = self.begin()
        # Servers have had the time to take up the successor of what was replaced before.
        self._remove(list(EmbeddingModel.objects.filter(state=State.RETIRED).values_list("id", flat=True)))
        self._round(model)
        return model

    def follow(self) -> None:
        """Embed what waits and what comes, until told to stop. What fails is tried again."""
        model: EmbeddingModel | None = None
        failures = 0
        while not self._stop():
            try:
                model = model or self.begin()
                self._keep_up(model)
                self._remove_in_time()
                failures = 0
                self._wait(_POLL_SECONDS)
            except (EmbedderUnavailable, vectors.WrongDimensionsError):
                raise
            except Exception:  # whatever it is - a database that restarts, no memory left - it is tried again
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                logger.exception("Memories could not be embedded; trying again in %s s.", pause)
                connection.close()
                self._wait(pause)

    # --- rounds --------------------------------------------------------------------------------------------------

    def _keep_up(self, model: EmbeddingModel) -> None:
        """A round where there may be something to do: over all memories, or over those that are new."""
        now = (Corpus.objects.filter(pk=1).values_list("revision", flat=True).first() or 0, _last_id())
        quiet = time.monotonic() - self._looked_at
        if quiet > _LONGEST_QUIET or (now != self._seen and quiet > self._looked_for / _LOOK_SHARE):
            begun, before = time.monotonic(), self.tally.memories + self.vocabulary
            self._round(model)
            self._looked_at = time.monotonic()
            did_nothing = self.tally.memories + self.vocabulary == before
            self._looked_for = self._looked_at - begun if did_nothing else 0.0
            self._seen = now
        elif now[1] > self._seen[1]:
            self._round(model, above=self._seen[1])
            self._seen = (self._seen[0], now[1])

    def _round(self, model: EmbeddingModel, above: int = 0) -> None:
        """Embed until nothing waits but what another worker has taken. A model that is complete then serves."""
        model.refresh_from_db()
        if model.state == State.RETIRED:
            logger.warning("Another worker embeds by another model now: set EMBEDDING_MODEL alike for all of them.")
            return
        last = _last_id()
        targets = [self._target(model.pk, self._source)]
        if model.state == State.BUILDING and (old := self._replaced_target()):
            targets.insert(0, old)
        self._embed(Waiting(targets, above), model.pk, len(targets[-1].embedders))
        if not above:
            self._embed_vocabulary(targets)
        if model.state == State.BUILDING and not above and not self._stop():
            if vectors.model_serve(model.pk, up_to=last, leaving=self.tally.refused):
                logger.warning("Memories are found by %s from now on.", model.name)
            model.refresh_from_db()

    def _replaced_target(self) -> Target | None:
        """The model that serves until the other one is complete; None where it cannot be loaded any more."""
        serving = EmbeddingModel.objects.filter(state=State.SERVING).first()
        if serving is None or serving.source in self._unloadable:
            return None
        try:
            target = self._target(serving.pk, serving.source, only_since=True)
            if target.embedders[0].name != serving.name:
                raise EmbedderUnavailable(f"what is at {serving.source} now is another model")
        except EmbedderUnavailable as error:
            self._unloadable.add(serving.source)
            logger.warning("What is new is found by meaning once all is embedded anew, not before: %s", error)
            return None
        return target

    def _embed(self, waiting: Waiting, model_id: int, lanes: int) -> None:
        """All that is handed out, by several threads. Raises what one of them failed with."""
        if not waiting:
            return
        self._show_progress(model_id)
        if lanes == 1:
            while not self._stop() and batch(waiting, 0, self.tally, self._stop):
                pass
            return
        failures: list[Exception] = []

        def lane(number: int) -> None:
            try:
                while not self._stop() and not failures and batch(waiting, number, self.tally, self._stop):
                    pass
            except Exception as error:
                failures.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=lane, args=(number,), name=f"lane-{number}") for number in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _embed_vocabulary(self, targets: Sequence[Target]) -> None:
        """Entities and relationships: the terms of what was written past the services, then all vectors."""
        terms_catch_up()
        for target in targets:
            refused = self._refused.setdefault(target.model_id, Refused())
            self.vocabulary += vocabulary_embed(target.model_id, target.embedders[0], stop=self._stop, refused=refused)

    def _show_progress(self, model_id: int) -> None:
        done = next((one.embedded for one in vectors.models_progress() if one.id == model_id), 0) - self.tally.memories
        total = Memory.objects.count()
        self.tally.changed = lambda tally: self._progress(min(done + tally.memories, total), total)
        self.tally.changed(self.tally)

    # --- models --------------------------------------------------------------------------------------------------

    def _target(self, model_id: int, source: str, *, only_since: bool = False) -> Target:
        embedders = self._embedders_of(source)
        lanes = self._lanes or lanes_for(embedders[0])
        while len(embedders) < lanes:
            embedders.append(embedders[0].twin())
        return Target(model_id, embedders[:lanes], only_since)

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


@dataclass(slots=True)
class Refused:
    """Rows that cannot be embedded, with the hash of the text that cannot, by kind."""

    hashes: dict[str, dict[int, str]] = field(default_factory=dict)

    def of(self, searched: SearchableTable) -> dict[int, str]:
        return self.hashes.setdefault(searched.kind, {})


def vocabulary_embed(model_id: int, embedder: Embedder, *, stop: Callable[[], bool], refused: Refused) -> int:
    """Embed all that waits for a model, unless another worker is at it; tells how many were embedded.

    A row is one vector, of as much of its text as the model reads: names come first.
    """
    done = 0
    for searched in SEARCHED:
        while not stop() and (embedded := _batch(searched, model_id, embedder, stop, refused.of(searched))):
            done += embedded
    return done


@transaction.atomic
def _batch(
    searched: SearchableTable, model_id: int, embedder: Embedder, stop: Callable[[], bool], refused: dict[int, str]
) -> int:
    """A batch is one transaction, and its claim ends with it; what it had not stored waits as before."""
    if not claim(searched, model_id):
        return 0
    rows = waiting_rows(searched, model_id, limit=_BATCH, besides=refused)
    if not rows:
        return 0
    found = encoded(embedder, [row.text for row in rows], stop)
    made = [(row, vector) for row, vector in zip(rows, found, strict=True) if isinstance(vector, np.ndarray)]
    for row, error in zip(rows, found, strict=True):
        if isinstance(error, Exception):
            logger.warning("The %s #%s cannot be embedded: %s", searched.kind, row.id, error)
            refused[row.id] = row.text_hash
    if made:
        vectors_write(searched, model_id, [row for row, _ in made], np.stack([vector for _, vector in made]))
    # Of a batch that could not be embedded at all, what comes after it still waits.
    return len(rows)

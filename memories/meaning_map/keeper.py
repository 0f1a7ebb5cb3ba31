"""Keeps the map up: draws it when the embedding is done, places new memories, draws it again when it has outgrown.

There is no queue: a memory waits for a place as long as its embedded text is not the one that was placed.
"""

import logging
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from django.db import connection

from memories.embedding import vectors
from memories.meaning_map import places
from memories.meaning_map.layout import MIN_ANCHORS, Coordinates, LayoutStoppedError, draw, place
from memories.meaning_map.places import Anchors, Embedded
from memories.models import Corpus, MapLayout
from web.processes import release_memory

logger = logging.getLogger(__name__)

# A layout is drawn again when there are this many times the memories that it was drawn with.
_OUTGROWN = 2
# An arrangement is kept if it has at least this share of the memories to draw.
_KNOWN_SHARE = 0.4
_PLACED_AT_ONCE = 4_000
_POLL_SECONDS = 2.0
_RETRY_SECONDS = 60.0


NOT_INSTALLED = "There is no map of meaning without openTSNE: install mnemoscope[embeddings]."


def can_draw() -> bool:
    """Whether the library that draws maps is installed."""
    return find_spec("openTSNE") is not None


class MapKeeper:
    """Draws and places for the model that serves. `stop` is asked again and again, and ends the work early."""

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = stop
        self._anchors: Anchors | None = None
        self._seen = -1

    def follow(self) -> None:
        """Keep the map up until `stop` returns True. Tries again after errors."""
        if not can_draw():
            logger.warning(NOT_INSTALLED)
            return
        pause = 0.0
        while not self._stop():
            try:
                now = Corpus.objects.filter(pk=1).values_list("vectors", flat=True).first() or 0
                if now != self._seen and self.once():
                    self._seen = now
                pause = _POLL_SECONDS
            except LayoutStoppedError:
                return
            except Exception:  # any error may pass, such as a restart of the database or a lack of memory
                logger.exception("The map could not be kept up; trying again in %s s.", _RETRY_SECONDS)
                connection.close()
                pause = _RETRY_SECONDS
            until = time.monotonic() + pause
            while not self._stop() and (left := until - time.monotonic()) > 0:
                time.sleep(min(0.1, left))
        connection.close()

    def once(self, *, redraw: bool = False) -> bool:
        """Draw the map if that is due, and place what waits. Returns False if more is to be done once the embedding has
        gone on. Raises LayoutStoppedError.
        """
        model_id = vectors.serving_id()
        if not model_id:
            return True
        layout = places.current_layout()
        if redraw or self._is_due(layout, model_id):
            if vectors.pending_count(model_id) and not redraw:
                # Drawing takes the time that embedding needs; a map of a part would be drawn again soon.
                self._place_waiting(layout, model_id)
                return False
            layout = self._draw(layout, model_id)
            release_memory()
        self._place_waiting(layout, model_id)
        return True

    @staticmethod
    def _is_due(layout: MapLayout | None, model_id: int) -> bool:
        embedded = places.embedded_count(model_id)
        if embedded < MIN_ANCHORS:
            return False
        return layout is None or layout.model_id != model_id or embedded >= _OUTGROWN * layout.memories

    def _draw(self, before: MapLayout | None, model_id: int) -> MapLayout | None:
        started = time.monotonic()
        memories, texts = places.embedded_count(model_id), places.sample_embedded(model_id)
        ids, found = places.read_vectors(model_id, texts.ids)
        if len(ids) < MIN_ANCHORS:
            return before
        texts = texts.take(np.searchsorted(texts.ids, ids))
        arrangement = _arrangement(before, texts) if before else None
        points = draw(found, arrangement, self._stop)
        layout = places.layout_store(model_id=model_id, memories=memories, anchors=texts, points=points)
        places.old_layouts_remove()
        self._anchors = None
        logger.info("Drew the map of %s memories in %.0f s.", f"{len(ids):,}", time.monotonic() - started)
        return layout

    def _place_waiting(self, layout: MapLayout | None, model_id: int) -> None:
        """Place the memories that wait. Anchors stay in memory for the next."""
        if layout is None or layout.model_id != model_id:
            return
        placed = 0
        while not self._stop() and len(texts := places.waiting(layout, _PLACED_AT_ONCE)):
            if self._anchors is None or self._anchors.layout_id != layout.pk:
                self._anchors = places.read_anchors(layout)
            ids, found = places.read_vectors(model_id, texts.ids)
            if not len(ids) or not len(self._anchors.ids):
                return
            texts = texts.take(np.searchsorted(texts.ids, ids))
            # A memory whose text changed does not stay where it was because it resembles itself.
            others = ~np.isin(self._anchors.ids, ids)
            if not others.all():
                self._anchors = Anchors(
                    layout.pk, self._anchors.ids[others], self._anchors.vectors[others], self._anchors.places[others]
                )
                if not others.any():
                    return
            points = place(found, self._anchors.vectors, self._anchors.places, ids)
            places.places_write(layout, texts, points)
            placed += len(texts)
        if placed > _PLACED_AT_ONCE:
            # Reading them again takes less time than such a number of memories; a few follow each other often.
            self._anchors = None
            release_memory()


def _arrangement(before: MapLayout, texts: Embedded) -> Coordinates | None:
    """Where memories were on the map before, to begin with; None if it knew too few of them."""
    known = places.places_of(before, texts.ids)
    if len(known) < _KNOWN_SHARE * len(texts):
        return None
    middle = np.mean(list(known.values()), axis=0)
    return np.array([known.get(memory_id, middle) for memory_id in texts.ids.tolist()], np.float64)

"""Entities and relationships embedded: the worker's part that comes after the memories."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from django.db import transaction

from categories.terms import SEARCHED, Searched
from categories.vectors import claim, vectors_write, waiting_rows
from memories.embedders import Embedder
from memories.lanes import encoded

logger = logging.getLogger(__name__)

_BATCH = 256


@dataclass(slots=True)
class Refused:
    """Rows that cannot be embedded, with the hash of the text that cannot, by kind."""

    hashes: dict[str, dict[int, str]] = field(default_factory=dict)

    def of(self, searched: Searched) -> dict[int, str]:
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
    searched: Searched, model_id: int, embedder: Embedder, stop: Callable[[], bool], refused: dict[int, str]
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

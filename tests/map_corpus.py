"""Places on a map of meaning for the memories that a test has stored, without vectors."""

import numpy as np

from memories.meaning_map import Embedded, layout_store, places_write
from memories.models import MapLayout, Memory

# Memories without a place, counted in the order of their ids.
WITHOUT = 7


def put_on_map():
    """Give the memories places in rows of six, 10,000 apart, from 5,000 on; every seventh gets none."""
    found = list(Memory.objects.order_by("id").values_list("id", "content_hash"))
    rows = [(n, *row) for n, row in enumerate(found) if n % WITHOUT != WITHOUT - 1]
    points = np.array([(5_000 + 10_000 * (n % 6), 5_000 + 10_000 * (n // 6)) for n, *_ in rows], np.int64)
    texts = Embedded(np.array([pk for _, pk, _ in rows], np.int64), tuple(text_hash for *_, text_hash in rows))
    return layout_store(model_id=1, memories=len(found), anchors=texts, points=points.reshape(-1, 2))


def move(places):
    """Put memories elsewhere on the map in use: a mapping of their ids to coordinates."""
    hashes = dict(Memory.objects.filter(pk__in=places).values_list("id", "content_hash"))
    texts = Embedded(np.array(sorted(hashes), np.int64), tuple(hashes[pk] for pk in sorted(hashes)))
    places_write(MapLayout.objects.get(), texts, np.array([places[pk] for pk in sorted(hashes)], np.int64))

"""The tables of the map: which memories need a place, their vectors, and the only writer of places."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction
from django.db.models import F

from categories.services import writers_turn
from memories.meaning_map.layout import MAX_ANCHORS, Points, Vectors, cells_of
from memories.models import MapLayout, MapPlace

Ids = npt.NDArray[np.int64]

_TURNS = 4_711_007  # the first key of the advisory lock
# Old places are removed in portions, so that no transaction is long.
_REMOVED = 20_000
_READ = 5_000

# embeddedmemory_hash_idx and mapplace_hash_idx
_WAITING = """
FROM memories_embeddedmemory embedded LEFT JOIN memories_mapplace place
ON place.memory_id = embedded.memory_id AND place.layout_id = %(layout)s
WHERE embedded.model_id = %(model)s AND place.content_hash IS DISTINCT FROM embedded.content_hash"""
# Two columns of all rows as bytes, which are read in a fraction of the time. A header of four bytes, then halves. The
# primary key begins with the memory.
_VECTORS = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(substr(halfvec_send(embedding), 5), ''::bytea)
FROM memories_chunk WHERE model_id = %(model)s AND memory_id = ANY(%(ids)s::bigint[])"""


@dataclass(frozen=True, slots=True)
class Embedded:
    """Memories that have vectors, and the hashes of their embedded texts."""

    ids: Ids
    hashes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: npt.NDArray[np.int64]) -> "Embedded":
        return Embedded(self.ids[rows], tuple(self.hashes[row] for row in rows.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """The anchors of a layout: unit vectors, and their places."""

    layout_id: int
    ids: Ids
    vectors: Vectors
    places: Points


def current_layout() -> MapLayout | None:
    """The layout in use; None before the first is drawn."""
    return MapLayout.objects.order_by("-id").first()


def embedded_count(model_id: int) -> int:
    """The number of memories that a model has embedded."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM memories_embeddedmemory WHERE model_id = %s", [model_id])
        return int(cursor.fetchone()[0])


def sample_embedded(model_id: int) -> Embedded:
    """The memories to lay out: all that the model has embedded, or as many of them as a layout can hold, chosen by a
    hash of their ids.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT memory_id, content_hash FROM memories_embeddedmemory WHERE model_id = %s"
            " ORDER BY hashint8(memory_id), memory_id LIMIT %s",
            [model_id, MAX_ANCHORS],
        )
        return _embedded(sorted(cursor.fetchall()))


def waiting(layout: MapLayout, limit: int) -> Embedded:
    """Memories that are embedded and have no place yet, or that of an earlier text."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT embedded.memory_id, embedded.content_hash {_WAITING} ORDER BY embedded.memory_id LIMIT %(limit)s",
            {"layout": layout.id, "model": layout.model_id, "limit": limit},
        )
        return _embedded(cursor.fetchall())


def _embedded(rows: Sequence[tuple[int, str]]) -> Embedded:
    return Embedded(np.array([pk for pk, _ in rows], np.int64), tuple(text_hash for _, text_hash in rows))


def read_vectors(model_id: int, ids: Ids) -> tuple[Ids, Vectors]:
    """The vectors of memories: of each the mean of its chunks, in unit length. Memories without any are left out."""
    found_ids, found = [np.empty(0, np.int64)], []
    for begin in range(0, len(ids), _READ):
        with connection.cursor() as cursor:
            cursor.execute(_VECTORS, {"model": model_id, "ids": ids[begin : begin + _READ].tolist()})
            packed_ids, packed = cursor.fetchone()
        if not packed_ids:
            continue
        owners = np.frombuffer(packed_ids, ">i8").astype(np.int64)
        halves = np.frombuffer(packed, ">f2").reshape(len(owners), -1).astype(np.float32)
        order = np.argsort(owners, kind="stable")
        owners, halves = owners[order], halves[order]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        found_ids.append(owners[starts])
        found.append(np.add.reduceat(halves, starts, axis=0))
    if not found:
        return found_ids[0], np.empty((0, 1), np.float32)
    vectors = np.concatenate(found)
    # A vector of zeros, which no text has, stays one.
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.concatenate(found_ids), (vectors / lengths).astype(np.float32)


def read_anchors(layout: MapLayout) -> Anchors:
    """The anchors of a layout whose text has not changed since."""
    # mapplace_anchor_idx
    rows = MapPlace.objects.filter(layout=layout, is_anchor=True).values_list("memory_id", "x", "y")
    ids, xs, ys = np.array(rows.order_by("memory_id"), np.int64).reshape(-1, 3).T
    found, vectors = read_vectors(layout.model_id, ids)
    at = np.searchsorted(ids, found)
    return Anchors(layout.id, found, vectors, np.stack([xs[at], ys[at]], axis=1))


def places_of(layout: MapLayout, ids: Ids) -> dict[int, tuple[int, int]]:
    """The places of memories that have one."""
    rows = MapPlace.objects.filter(layout=layout, memory__in=ids.tolist()).values_list("memory_id", "x", "y")
    return {memory_id: (x, y) for memory_id, x, y in rows}


@transaction.atomic
def layout_store(*, model_id: int, memories: int, anchors: Embedded, points: Points) -> MapLayout:
    """Make a drawn layout the one in use, with its anchors."""
    with connection.cursor() as cursor:
        # Two workers may have drawn at the same time: each gets a number of its own.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [_TURNS])
    writers_turn()
    last = MapLayout.objects.order_by("-id").values_list("id", flat=True).first() or 0
    layout = MapLayout.objects.create(id=last + 1, model_id=model_id, memories=memories)
    places_write(layout, anchors, points, are_anchors=True)
    return layout


@transaction.atomic
def places_write(layout: MapLayout, texts: Embedded, points: Points, *, are_anchors: bool = False) -> None:
    """Store the places of memories; deleted memories are skipped."""
    writers_turn()
    # Locks the row, so that revisions are committed in order.
    MapLayout.objects.filter(pk=layout.pk).update(revision=F("revision") + 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memories_mapplace"
            " (memory_id, layout_id, x, y, cell, revision, is_anchor, content_hash)"
            " SELECT written.id, layout.id, written.x, written.y, written.cell, layout.revision, %s, written.hash"
            " FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::int[], %s::text[])"
            " AS written (id, x, y, cell, hash) JOIN memories_maplayout layout ON layout.id = %s"
            " JOIN memories_memory memory ON memory.id = written.id"
            " ON CONFLICT (memory_id, layout_id) DO UPDATE SET x = EXCLUDED.x, y = EXCLUDED.y, cell = EXCLUDED.cell,"
            " revision = EXCLUDED.revision, is_anchor = EXCLUDED.is_anchor, content_hash = EXCLUDED.content_hash",
            [
                are_anchors,
                texts.ids.tolist(),
                points[:, 0].tolist(),
                points[:, 1].tolist(),
                cells_of(points).tolist(),
                list(texts.hashes),
                layout.pk,
            ],
        )


def old_layouts_remove() -> None:
    """Remove the layouts that are no longer in use, with their places."""
    current = current_layout()
    if current is None:
        return
    for layout in MapLayout.objects.exclude(pk=current.pk):
        while True:
            # mapplace_hash_idx
            some = MapPlace.objects.filter(layout=layout).order_by("memory_id").values_list("memory_id", flat=True)
            ids = list(some[:_REMOVED])
            if not ids:
                break
            with transaction.atomic():
                writers_turn()
                MapPlace.objects.filter(layout=layout, memory__in=ids).delete()
        with transaction.atomic():
            writers_turn()
            layout.delete()

"""The map of meaning: a place on a plane for each memory, near those that mean similar things.

A layout is drawn with t-SNE when the embedding is done. Later memories are placed between the anchors that they
resemble, so that nothing moves, until the map has outgrown it. There is no queue: a memory waits for a place as long
as its embedded text is not the one that was placed. Places are whole numbers: whether one is inside an area is then the
same in numpy and in SQL.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction
from django.db.models import F

from categories.services import writers_turn
from memories.embedding import vectors
from memories.models import Corpus, MapLayout, MapPlace
from web.processes import release_memory

Vectors = npt.NDArray[np.float32]
Points = npt.NDArray[np.int64]
Coordinates = npt.NDArray[np.float64]

# The largest coordinate of a place.
MOST = 65_535
# The most memories that are laid out together; time and memory grow with them: 50,000 take two minutes and 0.5 GB.
MAX_ANCHORS = 50_000
# Below this, neighbourhoods mean nothing.
MIN_ANCHORS = 12

_PERPLEXITY = 30
_COMPONENTS = 50
_SAMPLED = 5_000
# The two phases of t-SNE. A little exaggeration in the second keeps clusters apart, so that they can be named.
_EARLY, _LATE = (250, 12.0, 0.5), (500, 1.5, 0.8)
_ROUNDS_AT_ONCE = 50
# The empty border, as a share of the plane.
_MARGIN = 0.02
_NEIGHBOURS = 10
# The similarity by which a neighbour counts for a third of one that is nearer.
_SOFTNESS = 0.03
# Neighbours further apart than this belong to different clusters: between them is nothing.
_REACH = 2_500
# How far apart memories are put that resemble the same anchors.
_SPREAD = 90
# Memories that are placed at once: each takes 16 bytes for every anchor, which is 200 MB.
_COMPARED = 250


class LayoutStoppedError(Exception):
    """The layout was given up, because its process ends."""


def draw(vectors: Vectors, before: Coordinates | None = None, stop: Callable[[], bool] = lambda: False) -> Points:
    """Lay out unit vectors. `before` are coordinates to start from, in any scale, to keep an earlier arrangement.

    The same vectors give the same layout. Raises LayoutStoppedError.
    """
    # Loaded here, because it takes a second and most processes draw nothing.
    from openTSNE import TSNEEmbedding, initialization
    from openTSNE.affinity import PerplexityBasedNN

    components = _principal_components(vectors)
    perplexity = min(_PERPLEXITY, max(2, (len(vectors) - 1) // 3))
    affinities = PerplexityBasedNN(components, perplexity=perplexity, method="annoy", n_jobs=1, random_state=0)
    begin = components[:, :2] if before is None else before
    embedding = TSNEEmbedding(
        initialization.rescale(begin.astype(np.float64), inplace=False),
        affinities,
        negative_gradient_method="fft" if len(vectors) > 2_000 else "bh",
        n_jobs=1,
        random_state=0,
    )
    for rounds, exaggeration, momentum in (_EARLY, _LATE):
        for _ in range(0, rounds, _ROUNDS_AT_ONCE):
            if stop():
                raise LayoutStoppedError
            embedding.optimize(_ROUNDS_AT_ONCE, exaggeration=exaggeration, momentum=momentum, inplace=True)
    drawn = np.asarray(embedding, np.float64)
    return _on_plane(drawn if before is not None else _widest_first(drawn))


def place(vectors: Vectors, anchors: Vectors, places: Points, seeds: npt.NDArray[np.int64]) -> Points:
    """Places for unit vectors between the anchors that they resemble most. `seeds` decide where among equals, so that
    the same memory gets the same place.
    """
    blocks = (vectors[begin : begin + _COMPARED] for begin in range(0, len(vectors), _COMPARED))
    near = np.concatenate([np.empty((0, 2), np.int64), *(_place(block, anchors, places) for block in blocks)])
    points: Points = np.clip(near + _scatter(seeds), 0, MOST)
    return points


def _place(vectors: Vectors, anchors: Vectors, places: Points) -> Points:
    similarities = vectors @ anchors.T
    count = min(_NEIGHBOURS, len(anchors))
    near = np.argpartition(-similarities, count - 1, axis=1)[:, :count]
    similar = np.take_along_axis(similarities, near, axis=1)
    weights = np.exp((similar - similar.max(axis=1, keepdims=True)) / _SOFTNESS)
    around = places[near].astype(np.float64)
    # The neighbour that the others surround most closely, and those within its reach.
    apart = np.linalg.norm(around[:, :, None, :] - around[:, None, :, :], axis=3)
    middle = np.argmax((weights[:, None, :] * (apart < _REACH)).sum(axis=2) * weights, axis=1)
    reached = np.take_along_axis(apart, middle[:, None, None], axis=1)[:, 0, :] < _REACH
    weights = weights * reached
    mean = (around * weights[:, :, None]).sum(axis=1) / weights.sum(axis=1)[:, None]
    points: Points = np.rint(mean).astype(np.int64)
    return points


def _scatter(seeds: npt.NDArray[np.int64]) -> Points:
    """Small offsets within a disc, each from its seed alone, by the golden angle."""
    turn = (seeds * 0.6180339887498949) % 1.0
    distance = np.sqrt((seeds * 0.7548776662466927) % 1.0) * _SPREAD
    angle = 2 * np.pi * turn
    offsets = np.stack([np.cos(angle) * distance, np.sin(angle) * distance], axis=1)
    points: Points = np.rint(offsets).astype(np.int64)
    return points


def cells_of(points: Points) -> npt.NDArray[np.int64]:
    """The squares of 256 by 256 that points are in."""
    cells: npt.NDArray[np.int64] = (points[:, 0] >> 8) << 8 | points[:, 1] >> 8
    return cells


def _principal_components(vectors: Vectors) -> Vectors:
    """The first components, whose neighbourhoods are almost those of the vectors, and found in a fraction of the time.
    They are estimated from a sample.
    """
    sample = vectors[:: max(1, len(vectors) // _SAMPLED)]
    centre = vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(sample - centre, full_matrices=False)
    # Signs are arbitrary: fix them, so that the same vectors give the same picture.
    axes = axes * np.where(axes.sum(axis=1, keepdims=True) < 0, -1, 1)
    found: Vectors = ((vectors - centre) @ axes[:_COMPONENTS].T).astype(np.float32)
    if found.shape[1] < 2:
        found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    return found


def _widest_first(drawn: Coordinates) -> Coordinates:
    """Turned so that the layout is wider than high."""
    centred = drawn - drawn.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(centred.T))
    axes = axes[:, ::-1]
    turned: Coordinates = centred @ (axes * np.where(axes.sum(axis=0) < 0, -1, 1))
    return turned


def _on_plane(drawn: Coordinates) -> Points:
    """Scaled to the plane, with the same scale in both directions."""
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    extent = max(float((high - low).max()), 1e-9)
    scaled = (drawn - (low + high) / 2) / extent * (1 - 2 * _MARGIN) + 0.5
    points: Points = np.clip(np.rint(scaled * MOST), 0, MOST).astype(np.int64)
    return points


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
        layout = current_layout()
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
        embedded = embedded_count(model_id)
        if embedded < MIN_ANCHORS:
            return False
        return layout is None or layout.model_id != model_id or embedded >= _OUTGROWN * layout.memories

    def _draw(self, before: MapLayout | None, model_id: int) -> MapLayout | None:
        started = time.monotonic()
        memories, texts = embedded_count(model_id), sample_embedded(model_id)
        ids, found = read_vectors(model_id, texts.ids)
        if len(ids) < MIN_ANCHORS:
            return before
        texts = texts.take(np.searchsorted(texts.ids, ids))
        arrangement = _arrangement(before, texts) if before else None
        points = draw(found, arrangement, self._stop)
        layout = layout_store(model_id=model_id, memories=memories, anchors=texts, points=points)
        old_layouts_remove()
        self._anchors = None
        logger.info("Drew the map of %s memories in %.0f s.", f"{len(ids):,}", time.monotonic() - started)
        return layout

    def _place_waiting(self, layout: MapLayout | None, model_id: int) -> None:
        """Place the memories that wait. Anchors stay in memory for the next."""
        if layout is None or layout.model_id != model_id:
            return
        placed = 0
        while not self._stop() and len(texts := waiting(layout, _PLACED_AT_ONCE)):
            if self._anchors is None or self._anchors.layout_id != layout.pk:
                self._anchors = read_anchors(layout)
            ids, found = read_vectors(model_id, texts.ids)
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
            places_write(layout, texts, points)
            placed += len(texts)
        if placed > _PLACED_AT_ONCE:
            # Reading them again takes less time than such a number of memories; a few follow each other often.
            self._anchors = None
            release_memory()


def _arrangement(before: MapLayout, texts: Embedded) -> Coordinates | None:
    """Where memories were on the map before, to begin with; None if it knew too few of them."""
    known = places_of(before, texts.ids)
    if len(known) < _KNOWN_SHARE * len(texts):
        return None
    middle = np.mean(list(known.values()), axis=0)
    return np.array([known.get(memory_id, middle) for memory_id in texts.ids.tolist()], np.float64)

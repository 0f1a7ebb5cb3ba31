"""The layout of a map, without the database: vectors to places on a plane.

A layout is drawn with t-SNE. Later memories are placed between the anchors that they resemble, so that nothing moves.
Places are whole numbers: whether one is inside an area is then the same in numpy and in SQL.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

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

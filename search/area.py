"""Areas of the map of meaning: polygons on the plane of places, written in a URL.

Whether a place is inside is decided with whole numbers, so that numpy and SQL agree. Most places are decided by their
cell alone: it lies within the polygon, outside of it, or on its outline.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from web.validation import Problem

Numbers = npt.NDArray[np.int64]

# The largest coordinate of a place, and the corners that an area may have.
MOST = 65_535
MAX_CORNERS = 100
# The deepest tiles are as large as a cell.
MAX_ZOOM = 8
# The plane is divided into this many rows and columns of cells, each 256 wide.
CELLS = 256
_AREA = re.compile(r"(\d{1,9})((?:_\d{1,5}\.\d{1,5}){3,})")

OUTSIDE, INSIDE, OUTLINE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Area:
    """A polygon on a map; its corners in order. Where its lines cross, what they surround twice is outside.

    `revision` is that of the places it is asked of, so that answers can be cached. An area on a map that is no longer
    there has no corners, and nothing is inside.
    """

    layout_id: int
    corners: tuple[tuple[int, int], ...]
    revision: int = 0

    def edges(self) -> Numbers:
        """The edges as rows of ax, ay, bx, by, from the lower to the higher end."""
        corners = np.array(self.corners, np.int64).reshape(-1, 2)
        edges = np.hstack([corners, np.roll(corners, -1, axis=0)])
        found: Numbers = np.where(edges[:, 1:2] <= edges[:, 3:4], edges, edges[:, [2, 3, 0, 1]])
        return found

    def cells(self) -> npt.NDArray[np.uint8]:
        """For each cell, whether it is INSIDE, OUTSIDE, or on the OUTLINE, where each place has to be looked at."""
        return _cells(self.corners)

    def contains(self, xs: Numbers, ys: Numbers) -> npt.NDArray[np.bool_]:
        """Which points are inside: an odd number of edges is on their right. The Postgres engine does the same."""
        inside = np.zeros(len(xs), np.bool_)
        for ax, ay, bx, by in self.edges().tolist():
            inside ^= (ay <= ys) & (ys < by) & ((xs - ax) * (by - ay) < (bx - ax) * (ys - ay))
        return inside


@dataclass(frozen=True, slots=True)
class Tile:
    """A square of the map: with each zoom a tile is divided into four."""

    zoom: int = 0
    column: int = 0
    row: int = 0

    def problems(self) -> Iterator[Problem]:
        """Why there is no such tile, by the parameters `x` and `y`."""
        last = (1 << self.zoom) - 1
        for name, place in (("x", self.column), ("y", self.row)):
            if place > last:
                yield Problem(name, f"there is no tile {place} at zoom {self.zoom}", f"use 0 to {last}, or a larger z")

    @property
    def bits(self) -> int:
        """The side of the tile, as a power of two."""
        return 16 - self.zoom


def parse_area(text: str) -> Area:
    """Read an area, whose form `check_area` has checked."""
    layout_id, *corners = text.split("_")
    pairs = (corner.partition(".") for corner in corners)
    return Area(int(layout_id), tuple((int(x), int(y)) for x, _, y in pairs))


def check_area(value: str) -> str:
    """The canonical form of an area: the number of its map, then its corners as x.y, joined by underscores."""
    if not value:
        return value
    if not _AREA.fullmatch(value):
        raise ValueError("is not an area: write MAP_X.Y_X.Y_X.Y with three corners or more, as the map does")
    area = parse_area(value)
    if len(area.corners) > MAX_CORNERS:
        raise ValueError(f"has {len(area.corners)} corners: give at most {MAX_CORNERS}")
    if any(n > MOST for corner in area.corners for n in corner):
        raise ValueError(f"has a corner outside of the map: coordinates go from 0 to {MOST}")
    return area_text(area)


def area_text(area: Area) -> str:
    return "_".join([str(area.layout_id), *(f"{x}.{y}" for x, y in area.corners)])


def cells_of(xs: Numbers, ys: Numbers) -> Numbers:
    """The numbers of the cells that points are in."""
    found: Numbers = (xs >> 8) << 8 | ys >> 8
    return found


@lru_cache(maxsize=64)
def _cells(corners: tuple[tuple[int, int], ...]) -> npt.NDArray[np.uint8]:
    found = np.full((CELLS, CELLS), OUTSIDE, np.uint8)
    area = Area(0, corners)
    if not corners:
        return found.reshape(-1)
    low, high = np.min(corners, axis=0) >> 8, np.max(corners, axis=0) >> 8
    # Cells without an edge are inside if their middle is.
    columns, rows = np.meshgrid(np.arange(low[0], high[0] + 1), np.arange(low[1], high[1] + 1), indexing="ij")
    middles = area.contains((columns.ravel() << 8) + 128, (rows.ravel() << 8) + 128)
    found[low[0] : high[0] + 1, low[1] : high[1] + 1] = middles.reshape(columns.shape)
    for edge in area.edges().tolist():
        for row, first, last in _crossed(*edge):
            found[first : last + 1, row] = OUTLINE
    flat: npt.NDArray[np.uint8] = found.reshape(-1)
    return flat


def _crossed(ax: int, ay: int, bx: int, by: int) -> list[tuple[int, int, int]]:
    """The cells that an edge may touch, as rows with their first and last column."""
    crossed = []
    for row in range(ay >> 8, (by >> 8) + 1):
        ends = (max(ay, row << 8), min(by, (row + 1) << 8))
        xs = [ax + (bx - ax) * (y - ay) / (by - ay) for y in ends] if by > ay else [ax, bx]
        # One more on both sides, for the rounding.
        first, last = int(min(xs) - 1) >> 8, int(max(xs) + 1) >> 8
        crossed.append((row, max(first, 0), min(last, CELLS - 1)))
    return crossed

"""Where the nodes of a neighbourhood stand: around the middle like the hours of a clock, the strongest first. Pure.

Across in percent of a drawing that may have any width, down in pixels: nothing in it is stretched, and as the nodes of
either side stand at equal heights apart, their names never run into each other.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

# Between two names of a side, and above the first and below the last.
ROW = 21
MARGIN = 26
LEAST_HEIGHT = 340
# How far from the middle, in percent of the width, and of half the height.
_ONLY = (27.0, 1.0)
_INNER = (13.0, 0.62)
_OUTER = (30.0, 1.0)


@dataclass(frozen=True, slots=True)
class Spot:
    """`x` in percent, `y` in pixels. The name stands on the side that faces out."""

    x: float
    y: float
    is_left: bool


@dataclass(frozen=True, slots=True)
class Layout(Generic[Key]):
    height: int
    middle: Spot
    spots: dict[Key, Spot]


def place(first: Sequence[Key], second: Sequence[tuple[Key, Key]] = ()) -> Layout[Key]:
    """`first` stand next to the middle in their order, `second` outside, each near the one of them that it hangs on."""
    if second:
        # Next to what they hang on: lines then seldom cross.
        turn = {key: n for n, key in enumerate(first)}
        outside = [key for key, _ in sorted(second, key=lambda pair: turn[pair[1]])]
        rings = [(list(first), _INNER), (outside, _OUTER)]
    else:
        rings = [(list(first), _ONLY)]
    rows = max((math.ceil(len(keys) / 2) / share for keys, (_, share) in rings), default=0)
    height = max(LEAST_HEIGHT, math.ceil(rows * ROW) + 2 * MARGIN)
    spots: dict[Key, Spot] = {}
    for keys, (across, share) in rings:
        spots |= _ring(keys, across, share * (height - 2 * MARGIN), height / 2)
    return Layout(height, Spot(50.0, height / 2, is_left=False), spots)


def _ring(keys: list[Key], across: float, height: float, center: float) -> dict[Key, Spot]:
    """Down the right side, then up the left one: an ellipse, its points at equal heights apart."""
    right = math.ceil(len(keys) / 2)
    sides = [(keys[:right], False), (keys[right:][::-1], True)]
    spots = {}
    for side, is_left in sides:
        step = height / max(len(side), 1)
        for n, key in enumerate(side):
            down = (n + 0.5) * step - height / 2
            out = across * math.sqrt(max(0.0, 1 - (2 * down / height) ** 2))
            spots[key] = Spot(round(50 - out if is_left else 50 + out, 2), round(center + down, 1), is_left)
    return spots

"""Lays out a neighbourhood as an SVG drawing. Pure."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from explorer.graph.neighbourhood import Neighbourhood, NodeNeighbour

Key = TypeVar("Key", bound=Hashable)

# Pixels between two names of a side, and above the first and below the last.
ROW = 21
MARGIN = 26
LEAST_HEIGHT = 440
# More are a thicket: their names are in the list.
NODES_DRAWN = 20
# Radii of a ring: percent of the width, and share of half the height.
_RING = (27.0, 1.0)
_INNER_RING = (13.0, 0.62)
_OUTER_RING = (30.0, 1.0)
# Pixels above and below the center that lines between others leave free.
_CLEAR = 56


@dataclass(frozen=True, slots=True)
class Spot:
    """A position: `x` in percent, `y` in pixels. `is_left`: whether the name is to the left of it."""

    x: float
    y: float
    is_left: bool


@dataclass(frozen=True, slots=True)
class Layout(Generic[Key]):
    height: int
    middle: Spot
    spots: dict[Key, Spot]


def lay_out(first: Sequence[Key], second: Sequence[tuple[Key, Key]] = ()) -> Layout[Key]:
    """Positions of `first` around the center in their order, and of `second`, (key, parent) pairs, outside of them."""
    if second:
        # Next to their parents, so that lines seldom cross.
        turn = {key: n for n, key in enumerate(first)}
        outside = [key for key, _ in sorted(second, key=lambda pair: turn[pair[1]])]
        rings = [(list(first), _INNER_RING), (outside, _OUTER_RING)]
    else:
        rings = [(list(first), _RING)]
    rows = max((math.ceil(len(keys) / 2) / share for keys, (_, share) in rings), default=0)
    height = max(LEAST_HEIGHT, math.ceil(rows * ROW) + 2 * MARGIN)
    spots: dict[Key, Spot] = {}
    for keys, (across, share) in rings:
        spots |= _ring(keys, across, share * (height - 2 * MARGIN), height / 2)
    return Layout(height, Spot(50.0, height / 2, is_left=False), spots)


def _ring(keys: list[Key], across: float, height: float, center: float) -> dict[Key, Spot]:
    """Points of an ellipse at equal vertical distances: down the right side, then up the left side."""
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


def line_path(one: Spot, other: Spot, middle: Spot) -> str:
    """A straight line, or one that is bent up or down around `middle` when it would cross the drawing close to it."""
    ends = f"M{one.x:g} {one.y:g}", f"{other.x:g} {other.y:g}"
    if middle in (one, other) or (one.x - middle.x) * (other.x - middle.x) >= 0:
        return "L".join(ends)
    left, right = abs(one.x - middle.x), abs(other.x - middle.x)
    off = (one.y * right + other.y * left) / (left + right) - middle.y
    # Lines keep their order, squeezed into what is left above or below the name in the middle.
    clear = math.copysign(_CLEAR + abs(off) * (1 - _CLEAR / middle.y), off)
    # The point of a quadratic curve through (middle.x, middle.y + clear), which it passes at `share` of its way.
    share = math.sqrt(left) / (math.sqrt(left) + math.sqrt(right))
    bend = (middle.y + clear - (1 - share) ** 2 * one.y - share**2 * other.y) / (2 * share * (1 - share))
    return f"{ends[0]}Q{middle.x:g} {bend:.1f} {ends[1]}"


# Maximum length of a name in a wide, a medium and a narrow drawing, with one ring or two.
_ONLY = (27, 18, 11)
_MIDDLE = (40, 32, 20)
_OUTER = (22, 16, 8)
_INNER = (18, 13, 5)
_COLOURS = 5


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node. `labels` are for a wide, a medium and a narrow drawing; `colour` numbers the type, 0 for others."""

    url: str
    name: str
    labels: tuple[str, str, str]
    x: str
    y: str
    radius: str
    colour: int
    anchor: str
    shift: str
    is_middle: bool = False


@dataclass(frozen=True, slots=True)
class DrawnLine:
    path: str
    """The `d` of a path: x in percent, y in pixels."""
    width: int
    """1 to 4."""
    is_stated: bool
    is_spoke: bool


@dataclass(frozen=True, slots=True)
class LegendItem:
    label: str
    colour: int


@dataclass(frozen=True, slots=True)
class Drawing:
    height: int
    nodes: tuple[DrawnNode, ...]
    lines: tuple[DrawnLine, ...]
    legend: tuple[LegendItem, ...]
    has_stated: bool
    has_together: bool
    """Whether any line stands for shared memories alone."""


def strongest(around: Neighbourhood) -> Neighbourhood:
    """The part of a neighbourhood that stays readable when drawn: few nodes, those of a type side by side.

    With two steps, the strongest neighbours and some of what hangs on them.
    """
    near = [one for one in around.drawn if one.level == 1]
    far = [one for one in around.drawn if one.level == 2]
    near = _by_type(near[: NODES_DRAWN // 2 if far else NODES_DRAWN])
    kept = {one.term.id for one in near}
    far = [one for one in far if one.parent in kept][: NODES_DRAWN - len(near)]
    shown = {around.center.id, *kept, *(one.term.id for one in far)}
    lines = tuple(line for line in around.lines if line.source in shown and line.target in shown)
    return replace(around, drawn=(*near, *far), lines=lines)


def _by_type(near: Sequence[NodeNeighbour]) -> list[NodeNeighbour]:
    """Types in the order of their strongest nodes, nodes of a type by strength."""
    turn: dict[str, int] = {}
    for one in near:
        turn.setdefault(one.term.type, len(turn))
    return sorted(near, key=lambda one: turn[one.term.type])


def build_drawing(around: Neighbourhood, links: Mapping[int, tuple[str, str]]) -> Drawing:
    """Draw the strongest part of a neighbourhood. `links` maps each node to (URL, accessible name)."""
    around = strongest(around)
    first = [one.term.id for one in around.drawn if one.level == 1]
    second = [(one.term.id, one.parent) for one in around.drawn if one.level == 2]
    layout = lay_out(first, second)
    spots = {around.center.id: layout.middle, **layout.spots}
    colours = _colours(around)
    most = max((one.edge.evidence for one in around.drawn), default=1) or 1
    nodes = [
        DrawnNode(
            url=links[one.term.id][0],
            name=links[one.term.id][1],
            labels=_labels(one.term.label, _ONLY if not second else _INNER if one.level == 1 else _OUTER),
            x=f"{spots[one.term.id].x:g}%",
            y=f"{spots[one.term.id].y:g}",
            radius=f"{3.5 + 4 * math.sqrt(one.edge.evidence / most):.1f}",
            colour=colours.get(one.term.type, 0),
            anchor="end" if spots[one.term.id].is_left else "start",
            shift="-12" if spots[one.term.id].is_left else "12",
        )
        for one in around.drawn
    ]
    lines = [
        DrawnLine(
            path=line_path(spots[line.source], spots[line.target], layout.middle),
            width=1 + min(3, int(4 * math.sqrt(line.edge.evidence / most))),
            is_stated=bool(line.edge.ties),
            is_spoke=around.center.id in (line.source, line.target),
        )
        for line in around.lines
    ]
    return Drawing(
        height=layout.height,
        nodes=(_center_node(around.center.label, layout.middle, colours.get(around.center.type, 0)), *nodes),
        # Later lines are drawn on top: spokes, then stated edges.
        lines=tuple(sorted(lines, key=lambda line: (line.is_spoke, line.is_stated, line.width))),
        legend=_legend(around, colours),
        has_stated=any(line.is_stated for line in lines),
        has_together=not all(line.is_stated for line in lines),
    )


@dataclass(frozen=True, slots=True)
class StarNode(Generic[Key]):
    """A node beside the center. `is_stated`: whether its line stands for a link that somebody stated."""

    key: Key
    label: str
    url: str
    name: str
    kind: str
    is_stated: bool


def draw_star(
    center: str, nodes: Sequence[StarNode[Key]], ties: Collection[tuple[Key, Key]], kinds: Sequence[str]
) -> Drawing:
    """Draw nodes of some kinds around a center, of the first of them, and the links that they have among each other."""
    layout = lay_out([node.key for node in nodes])
    spots, colours = layout.spots, {kind: n for n, kind in enumerate(kinds, 1)}
    drawn = [
        DrawnNode(
            url=node.url,
            name=node.name,
            labels=_labels(node.label, _ONLY),
            x=f"{spots[node.key].x:g}%",
            y=f"{spots[node.key].y:g}",
            radius="6",
            colour=colours[node.kind],
            anchor="end" if spots[node.key].is_left else "start",
            shift="-12" if spots[node.key].is_left else "12",
        )
        for node in nodes
    ]
    between = [
        DrawnLine(line_path(spots[one], spots[other], layout.middle), 1, is_stated=False, is_spoke=False)
        for one, other in ties
    ]
    spokes = [
        DrawnLine(line_path(layout.middle, spots[node.key], layout.middle), 1, node.is_stated, is_spoke=True)
        for node in nodes
    ]
    found = {kinds[0], *(node.kind for node in nodes)}
    return Drawing(
        height=layout.height,
        nodes=(_center_node(center, layout.middle, colours[kinds[0]]), *drawn),
        lines=(*between, *spokes),
        legend=tuple(LegendItem(kind, colour) for kind, colour in colours.items() if kind in found),
        has_stated=any(node.is_stated for node in nodes),
        has_together=bool(between) or not all(node.is_stated for node in nodes),
    )


def _center_node(label: str, spot: Spot, colour: int) -> DrawnNode:
    return DrawnNode(
        url="",
        name="",
        labels=_labels(label, _MIDDLE),
        x=f"{spot.x:g}%",
        y=f"{spot.y:g}",
        radius="10",
        colour=colour,
        anchor="middle",
        shift="0",
        is_middle=True,
    )


def _colours(around: Neighbourhood) -> dict[str, int]:
    """Colour numbers of the most frequent types."""
    counts: dict[str, int] = {}
    for term in (around.center, *(one.term for one in around.drawn)):
        counts[term.type] = counts.get(term.type, 0) + 1
    common = sorted(counts, key=lambda name: (-counts[name], name))[:_COLOURS]
    return {name: n for n, name in enumerate(common, 1)}


def _legend(around: Neighbourhood, colours: Mapping[str, int]) -> tuple[LegendItem, ...]:
    types = {term.type for term in (around.center, *(one.term for one in around.drawn))}
    items = [LegendItem(name or "no type", n) for name, n in colours.items()]
    return (*items, *([LegendItem("others", 0)] if types - colours.keys() else []))


def _labels(label: str, lengths: tuple[int, int, int]) -> tuple[str, str, str]:
    wide, middling, narrow = (label if len(label) <= most else f"{label[: most - 1].rstrip()}…" for most in lengths)
    return wide, middling, narrow

"""The chart of a comparison: the steps of both slices over each other, with a table. No database and no request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from explorer.links import Link, explore_url
from search.compare import Comparison, Side
from search.query import Interval
from search.slices import Step
from text.formatting import MONTHS, day_text, memories, number

_TICKS = 7
# In percent: a label that began further right would leave the chart.
_LAST_PLACE = 88
# The height of the chart in its own units, and the space above the highest step.
_HEIGHT, _HEADROOM = 164.0, 10.0


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of one slice as the paths of an area and of its upper edge."""

    side: str
    area: str
    edge: str


@dataclass(frozen=True, slots=True)
class Rule:
    y: str
    label: str


@dataclass(frozen=True, slots=True)
class StepTick:
    x: str
    label: str
    is_odd: bool
    is_end: bool
    """Whether its label would leave the chart, and ends with its step instead of beginning with it."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of the table of the chart, and the two places of the chart that lead to the same slices."""

    a: Link | None
    b: Link | None
    x_a: str
    x_b: str


@dataclass(frozen=True, slots=True)
class Chart:
    note: str
    caption: str
    width: int
    half_step: str
    outlines: tuple[Outline, ...]
    rules: tuple[Rule, ...]
    ticks: tuple[StepTick, ...]
    rows: tuple[StepRow, ...]


def build_chart(found: Comparison, a: Side, b: Side) -> Chart | None:
    steps = max(len(a.steps), len(b.steps))
    peak = max((step.count for side in (a, b) for step in side.steps), default=0)
    if steps < 2 or not peak:
        return None
    scale = (_HEIGHT - _HEADROOM) / peak
    unit = found.interval.value
    note = f"{unit} by {unit}, one period laid over the other" if found.aligned else f"by {unit}"
    sides = ((a, "A", "slice-a"), (b, "B", "slice-b"))
    tops = [
        f"{letter}: at most {max((step.count for step in side.steps), default=0):,} a {unit}"
        for side, letter, _ in sides
    ]
    return Chart(
        note=note,
        caption=f"Memories {note}. {'. '.join(tops)}.",
        width=10 * steps,
        half_step=f"{50 / steps:.4f}%",
        outlines=tuple(_outline(name, side.steps, scale) for side, _, name in sides),
        rules=tuple(_rules(peak, scale)),
        ticks=tuple(_ticks(found, a.steps, b.steps)),
        rows=tuple(
            StepRow(
                _step_link(a, place),
                _step_link(b, place),
                f"{100 * place / steps:.4f}%",
                f"{100 * (place + 0.5) / steps:.4f}%",
            )
            for place in range(steps)
        ),
    )


def _outline(name: str, steps: Sequence[Step], scale: float) -> Outline:
    if not steps:
        return Outline(name, "", "")
    edge = f"M0 {_HEIGHT - steps[0].count * scale:.1f}"
    for place, step in enumerate(steps):
        edge += f"V{_HEIGHT - step.count * scale:.1f}H{10 * (place + 1)}"
    return Outline(name, f"{edge}V{_HEIGHT:.0f}H0z", edge)


def _rules(peak: int, scale: float) -> Iterator[Rule]:
    """One or two round numbers below the highest step."""
    size = 10 ** (len(str(peak)) - 1)
    step = next((one for one in (5 * size, 2 * size, size, size // 2) if one and peak >= 1.2 * one), 0)
    for count in (step, 2 * step):
        if count and count <= peak:
            yield Rule(f"{100 * (_HEIGHT - count * scale) / _HEIGHT:.2f}%", number(count))


def _ticks(found: Comparison, a: Sequence[Step], b: Sequence[Step]) -> Iterator[StepTick]:
    steps = max(len(a), len(b))
    every = -(-steps // _TICKS)
    for order, place in enumerate(range(0, steps, every)):
        ends = [_short(steps[place].first, found.interval) for steps in (a, b) if place < len(steps)]
        label = " · ".join(dict.fromkeys(ends))
        is_end = 100 * place / steps > _LAST_PLACE
        yield StepTick(f"{100 * (place + is_end) / steps:.2f}%", label, bool(order % 2), is_end)


def _short(day: date, interval: Interval) -> str:
    if interval in {Interval.DAY, Interval.WEEK}:
        return f"{day.day} {MONTHS[day.month - 1]}"
    return str(day.year) if interval == Interval.YEAR else f"{MONTHS[day.month - 1]} {day.year % 100:02d}"


def _step_link(side: Side, place: int) -> Link | None:
    if place >= len(side.steps):
        return None
    step = side.steps[place]
    label = day_text(step.first) if step.first == step.last else f"{day_text(step.first)} – {day_text(step.last)}"
    first, last = step.first.isoformat(), step.last.isoformat()
    query = side.query
    if query.since or "T" in query.date_from + query.date_to:
        # The slice begins and ends within a day, which no days can select.
        is_exact = 0 < place < len(side.steps) - 1
    else:
        first, last = max(first, query.date_from), min(last, query.date_to or last)
        is_exact = first <= last
    url = explore_url(query.between(first, last)) if is_exact else ""
    return Link(label, url, f"{label}: {memories(step.count)}", number(step.count))

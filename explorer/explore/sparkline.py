"""Small charts in the rows of tables. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from explorer.links import explore_url
from search.engines.base import Value
from search.listings import Trends
from search.query import SearchQuery
from text.formatting import memories, number

_BAR_SHARE = 0.8
_LEAST = 6.0


@dataclass(frozen=True, slots=True)
class Sparkline:
    """The memories of one value over time, as a link to those that it shows."""

    url: str
    name: str
    slots: int
    path: str


def build_sparklines(
    found: Trends, query: SearchQuery, narrowed: Callable[[Value], SearchQuery | None]
) -> dict[Value, Sparkline]:
    """The chart of each value. `narrowed` returns the query of a value, from which the link is made."""
    if not found.periods:
        return {}
    first, last = found.periods[0], found.periods[-1]
    charts = {}
    for value, counts in found.counts:
        target, peak = narrowed(value), max(counts)
        if target is None or not peak:
            continue
        url = explore_url(target if query.has_dates else target.between(first.first, last.last))
        at = found.periods[counts.index(peak)]
        name = f"{memories(sum(counts))} from {first.label} to {last.label}, most in {at.label}: {number(peak)}"
        charts[value] = Sparkline(url, name, len(counts), bar_path(counts, peak))
    return charts


def bar_path(counts: Sequence[int], peak: int) -> str:
    """The bars of a chart that is 100 high and as wide as there are counts."""
    return "".join(
        f"M{n + (1 - _BAR_SHARE) / 2:.1f} 100V{100 - max(_LEAST, 100 * count / peak):.0f}h{_BAR_SHARE}V100z"
        for n, count in enumerate(counts)
        if count
    )

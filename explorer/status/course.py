"""The trends and the incidents of the status page. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo

from django.template.defaultfilters import filesizeformat

from explorer.links import Link
from explorer.status.measures import Measure, MeasureGroup
from explorer.status.site_history import SPANS, Incident, Period, SiteHistory, SiteHistoryRequest
from text.formatting import number, plural

_HIGH = 28.0
_INCIDENTS = 12
# A trend of a smaller share of its time is not shown unless it is asked for.
_FEW = 8
_STATES = {
    "errors": "Errors",
    "restarts": "Restarts",
    "slow": "Slow",
    "index": "Behind",
    "vectors": "Behind",
    "disk": "Full",
    "off": "Off",
}


@dataclass(frozen=True, slots=True)
class Trend:
    """A chart that is 100 wide and 28 high: bars, or lines with the area below. `name` says what it shows."""

    name: str
    bars: str = ""
    line: str = ""
    area: str = ""


@dataclass(frozen=True, slots=True)
class MeasureRow:
    measure: Measure
    trend: Trend | None


@dataclass(frozen=True, slots=True)
class RowGroup:
    title: str
    rows: tuple[MeasureRow, ...]


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident: `when` in the time zone of the reader, `took` how long, empty while it lasts."""

    state: str
    when: str
    begin: str
    took: str
    text: str


@dataclass(frozen=True, slots=True)
class StatusCourse:
    """The past on the status page. `header` and `table` have the same numbers as the charts."""

    spans: tuple[Link, ...]
    has_trends: bool
    """Whether there is enough of them to show; a site that has just begun has dots."""
    groups: tuple[RowGroup, ...]
    header: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    incidents: tuple[IncidentRow, ...]
    more_incidents: str
    lasting: str
    """The state of an incident that has not ended, and since when; empty without any."""


def _seconds(value: float) -> str:
    return f"{value:,.1f} s"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms"


def _percent(value: float) -> str:
    # Rounded down: 100 only if all are.
    return f"{int(value * 10) / 10:g} %"


def _count(value: float) -> str:
    return number(int(value))


# The course of each measure by its key: what it is called in the table, and how a value is written.
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "answers": ("Answers", _count),
    "errors": ("Errors", _count),
    "p50_ms": ("Typical (p50)", _milliseconds),
    "p95_ms": ("Slow (p95)", _milliseconds),
    "index_lag_seconds": ("Index lag", _seconds),
    "memories": ("Memories", _count),
    "covered": ("With a vector", _percent),
    "database_bytes": ("Database", filesizeformat),
    "free_bytes": ("Free disk", filesizeformat),
}
_BARS = {"answers", "errors"}


def build_course(
    found: SiteHistory, groups: Sequence[MeasureGroup], zone: tzinfo, url: Callable[[str], str]
) -> StatusCourse:
    """The course of all measures. `url` is the address of the page for a span."""
    label = SPANS[found.span][0]
    known = sum(one.answers is not None for one in found.periods)
    rows = [
        tuple(MeasureRow(one, _trend(one.key, found.periods, label) if one.key else None) for one in group.measures)
        for group in groups
    ]
    written = "%H:%M" if found.step < timedelta(hours=1) else "%-d %b, %H:%M"
    return StatusCourse(
        spans=tuple(Link(name, url(key), current=key == found.span) for key, (name, _, _) in SPANS.items()),
        has_trends=found.span != SiteHistoryRequest().span or known > len(found.periods) / _FEW,
        groups=tuple(RowGroup(group.title, made) for group, made in zip(groups, rows, strict=True)),
        header=("From", *(name for name, _ in _SHOWN.values())),
        table=tuple(
            (one.begin.astimezone(zone).strftime(written), *(_cell(one, key) for key in _SHOWN))
            for one in reversed(found.periods)
            if one.answers is not None
        ),
        incidents=tuple(_incident_row(one, zone) for one in found.incidents[:_INCIDENTS]),
        more_incidents=_more(len(found.incidents) - _INCIDENTS),
        lasting=next((_since(one, zone) for one in found.incidents if one.end is None), ""),
    )


def _since(one: Incident, zone: tzinfo) -> str:
    return f"{_STATES[one.kind]} since {one.begin.astimezone(zone):%-d %b, %H:%M}"


def _more(count: int) -> str:
    return f"{plural(count, 'older incident')} in the last 31 days, as JSON" * (count > 0)


def _cell(one: Period, key: str) -> str:
    value = getattr(one, key)
    return "–" if value is None else _SHOWN[key][1](value)


def _trend(key: str, periods: Sequence[Period], span: str) -> Trend | None:
    """The chart of a measure; None before there are two values."""
    values: list[float | None] = [getattr(one, key) for one in periods]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    title, written = _SHOWN[key]
    least, most, last = written(min(known)), written(max(known)), written(known[-1])
    name = f"{title}, {span}: from {least} to {most}, last {last}"
    step, top = 100 / len(values), max(known) or 1.0
    heights = [None if value is None else _HIGH - (_HIGH - 2) * value / top for value in values]
    if key in _BARS:
        bars = "".join(
            f"M{n * step:.1f} {_HIGH:g}V{height:.1f}h{0.75 * step:.1f}V{_HIGH:g}z"
            for n, (value, height) in enumerate(zip(values, heights, strict=True))
            if value and height is not None
        )
        return Trend(name, bars=bars)
    lines, areas = [], []
    for run in _runs(heights):
        points = " ".join(f"{(n + 0.5) * step:.1f} {height:.1f}" for n, height in run)
        # A single value is a short line.
        points += f" {(run[-1][0] + 0.9) * step:.1f} {run[-1][1]:.1f}" if len(run) == 1 else ""
        lines.append(f"M{points}")
        first, end = (run[0][0] + 0.5) * step, (run[-1][0] + (0.9 if len(run) == 1 else 0.5)) * step
        areas.append(f"M{first:.1f} {_HIGH:g}L{points} {end:.1f} {_HIGH:g}z")
    return Trend(name, line="".join(lines), area="".join(areas))


def _runs(heights: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The known values with their places, in groups without a gap."""
    runs: list[list[tuple[int, float]]] = []
    for place, height in enumerate(heights):
        if height is None:
            continue
        if runs and runs[-1][-1][0] == place - 1:
            runs[-1].append((place, height))
        else:
            runs.append([(place, height)])
    return runs


def _incident_row(one: Incident, zone: tzinfo) -> IncidentRow:
    begin = one.begin.astimezone(zone)
    when = f"{begin:%-d %b, %H:%M} – "
    if one.end is None:
        return IncidentRow(_STATES[one.kind], f"{when}now", one.begin.isoformat(), "", one.text)
    end = one.end.astimezone(zone)
    when += f"{end:%H:%M}" if end.date() == begin.date() else f"{end:%-d %b, %H:%M}"
    return IncidentRow(_STATES[one.kind], when, one.begin.isoformat(), _took(one.end - one.begin), one.text)


def _took(length: timedelta) -> str:
    minutes = int(length.total_seconds() // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{plural(minutes // (24 * 60), 'day')} {minutes // 60 % 24} h"


def without_trends(groups: Sequence[MeasureGroup]) -> tuple[RowGroup, ...]:
    """The measures without trends, for who is shown no history."""
    return tuple(RowGroup(group.title, tuple(MeasureRow(one, None) for one in group.measures)) for group in groups)

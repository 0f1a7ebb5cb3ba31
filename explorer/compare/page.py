"""CompareContext: all data for the template of the page that compares two slices. No database and no request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo

from django.urls import reverse

from explorer.compare.chart import Chart, build_chart
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, HiddenField, build_chips
from explorer.explore.take_out import Call, TakeOut
from explorer.links import Link, explore_url, memory_url
from search.compare import Comparison, Difference, Side, cut_notice
from search.facets import DATE_KEY, FACET, FACETS
from search.query import SearchQuery
from search.result import Hit, SearchWarning
from search.slices import SEARCHES, Asked, with_value
from text.formatting import day_label, listed, memories, number, plural, type_family
from text.highlight import plain_title

_WAYS = ((DATE_KEY, "Periods"), ("agent", "Agents"), ("project", "Projects"), (SEARCHES, "Searches"))
_MORE = 100
_ONLY_SHOWN = 7
_SHORT = 5
_NO_BREAK = "\u202f"

# With fewer memories in a slice, the reader is warned.
_FEW_MEMORIES = 30

# A lift from here on is shown without decimals.
_ROUNDED = 100


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    selected: bool


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two slices, with the form that changes it: by `dates`, by the `options` of a facet, or by any text."""

    letter: str
    side: str
    """The class of its colour."""
    heading: str
    beside: str
    total: str
    noun: str
    url: str
    hidden: tuple[HiddenField, ...]
    """The fields of the form that it does not change."""
    field: str
    """The name of the form's field, or the prefix of both dates."""
    dates: tuple[str, str] | None
    options: tuple[Option, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the totals: a number of each slice, and its change."""

    label: str
    a: Link
    b: Link
    change: str

    @property
    def sides(self) -> tuple[tuple[str, Link], ...]:
        return ("slice-a", self.a), ("slice-b", self.b)


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A value with both its counts, and its bar: on the left of the axis if it is more frequent in A."""

    facet: str
    label: str
    a: Link
    b: Link
    share_a: str
    share_b: str
    side: str
    bar_x: str
    bar_width: str
    points: str
    lift: str
    evidence: str


@dataclass(frozen=True, slots=True)
class OnlyRow:
    facet: str
    label: str
    count: str
    url: str
    width: str


@dataclass(frozen=True, slots=True)
class OnlyIn:
    letter: str
    side: str
    note: str
    rows: tuple[OnlyRow, ...]
    more: Link | None


@dataclass(frozen=True, slots=True)
class Sample:
    title: str
    url: str
    type: str
    family: str
    project: str
    date: str
    date_iso: str
    id: int


@dataclass(frozen=True, slots=True)
class Typical:
    letter: str
    side: str
    all: Link
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class CompareContext:
    """Everything that the page shows. Without `halves` there is nothing to compare yet."""

    title: str
    heading: str
    beside: str
    text: str
    how: str
    ways: tuple[Link, ...]
    chips: tuple[Chip, ...]
    shared_url: str
    swap_url: str
    hidden: tuple[HiddenField, ...]
    """The fields of the search box: everything but the text."""
    halves: tuple[Half, ...]
    is_compared: bool
    figures: tuple[Figure, ...]
    chart: Chart | None
    tabs: tuple[Link, ...]
    rows: tuple[DifferenceRow, ...]
    rows_more: Link | None
    rows_note: str
    cut: str
    """Which values are compared, if not all."""
    only: tuple[OnlyIn, ...]
    typical: tuple[Typical, ...]
    notices: tuple[Notice, ...]
    take_out: TakeOut

    @property
    def is_short(self) -> bool:
        """Whether so few values differ that lists beside them would be longer."""
        return len(self.rows) <= _SHORT


def comparison_url(asked: Asked) -> str:
    """The canonical address of a comparison."""
    query = asked.querystring()
    return f"{reverse('explorer:compare')}{f'?{query}' if query else ''}"


def build_comparison(found: Comparison, zone: tzinfo, site: str, notices: Iterable[Notice] = ()) -> CompareContext:
    """The context of the page. `site` is the address of the server."""
    asked = _as_compared(found)
    shared = asked.shared
    heading = f"What differs in “{shared.text}”" if shared.text else "What differs"
    a, b = found.a, found.b
    rows = [row for row in found.differs if asked.request.facet in ("", row.key)]
    only = tuple(
        _only(asked, side, letter, name, differences)
        for side, letter, name, differences in (
            (a, "A", "slice-a", found.only_a),
            (b, "B", "slice-b", found.only_b),
        )
        if side
    )
    return CompareContext(
        title=f"Compare · {shared.text}" if shared.text else "Compare",
        heading=heading,
        beside=_beside(asked, a, b),
        text=shared.text,
        how=_how(found),
        ways=tuple(_ways(asked)),
        chips=build_chips(shared, found.labels, lambda other: comparison_url(_with(asked, shared=other))),
        shared_url=explore_url(shared),
        swap_url=comparison_url(_with(asked, a=asked.b, b=asked.a)),
        hidden=tuple(HiddenField(key, value) for key, value in asked.parameters() if key != "q"),
        halves=(_half(found, asked, "A"), _half(found, asked, "B")),
        is_compared=bool(a and b),
        figures=tuple(_figures(a, b)) if a and b else (),
        chart=build_chart(found, a, b) if a and b else None,
        tabs=tuple(_tabs(asked, found)),
        rows=tuple(_row(row, a, b, rows) for row in rows[: asked.request.values]) if a and b else (),
        rows_more=_more(asked, len(rows)),
        rows_note=_rows_note(found, rows) if a and b else "",
        only=only,
        typical=tuple(_typical(side, letter, name, zone) for side, letter, name in _letters(a, b)),
        cut=cut_notice(found) if a and b else "",
        notices=(*notices, *_notices(found)),
        take_out=_take_out(asked, site),
    )


def _letters(a: Side | None, b: Side | None) -> Iterator[tuple[Side, str, str]]:
    for side, letter, name in ((a, "A", "slice-a"), (b, "B", "slice-b")):
        if side:
            yield side, letter, name


def _as_compared(found: Comparison) -> Asked:
    """The request with the slices that were compared, so that every link of the page names them."""
    asked = found.asked
    return Asked(
        asked.request.replace(a="", b=""),
        asked.shared,
        found.a.own if found.a else asked.a,
        found.b.own if found.b else asked.b,
    )


def _with(asked: Asked, **changes: SearchQuery | None) -> Asked:
    parts = {"shared": asked.shared, "a": asked.a, "b": asked.b, **changes}
    return Asked(asked.request, parts["shared"] or SearchQuery(), parts["a"], parts["b"])


def _requested(asked: Asked, **changes: object) -> Asked:
    return Asked(asked.request.replace(**changes), asked.shared, asked.a, asked.b)


def _ways(asked: Asked) -> Iterator[Link]:
    """The ways to compare, each of which begins with slices of its own."""
    by = asked.by
    ways = dict(_WAYS)
    if by not in ways:
        ways[by] = f"{FACET[by].label}s" if by != "category" else "Categories"
    for key, label in ways.items():
        way = Asked(asked.request.replace(by=key, facet=""), asked.shared)
        yield Link(label, comparison_url(way), current=key == by)


def _beside(asked: Asked, a: Side | None, b: Side | None) -> str:
    """The memories of both slices, if none can be in both."""
    by = asked.by
    if a is None or b is None or by == SEARCHES:
        return ""
    ends = sorted((side.own.date_from, side.own.date_to) for side in (a, b))
    # By whole days; a slice without an end is never apart from a later one.
    is_apart = "" < ends[0][1][:10] < ends[1][0][:10] if by == DATE_KEY else FACET[by].exclusive
    return memories(a.total + b.total, at_least=a.at_least or b.at_least) if is_apart else ""


def _how(found: Comparison) -> str:
    if not (found.a and found.b):
        return ""
    text = "Both slices share the search and these filters." if found.asked.shared.parameters() else ""
    if found.left_out:
        names = listed([FACET[key].label.lower() for key in found.left_out])
        text += f" The slices differ by {names} anyway: that is left out of what is compared."
    if 0 < min(found.a.total, found.b.total) < _FEW_MEMORIES:
        text += " With so few memories in a slice, much of what differs may be chance."
    return text.strip()


def _notices(found: Comparison) -> Iterator[Notice]:
    if found.unavailable:
        yield Notice(found.unavailable, is_error=True)
    for warning in found.warnings:
        yield _warning(warning)
    if found.a and found.b and (found.a.at_least or found.b.at_least):
        yield Notice(
            "Only the memories nearest in meaning are counted, so the numbers of a slice with “+” are lower bounds,"
            " and its shares those of the nearest memories.",
            suggestion="Narrow the search, or match by words only, for exact ones.",
        )


def _warning(warning: SearchWarning) -> Notice:
    return Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean))


# --- the two slices ----------------------------------------------------------------------------------------------


def _half(found: Comparison, asked: Asked, letter: str) -> Half:
    is_a = letter == "A"
    prefix = letter.lower()
    side, own = (found.a, asked.a) if is_a else (found.b, asked.b)
    by = asked.by
    labels = side.labels if side else {}
    chosen = {key for key, _ in own.parameters()} if own else set()
    is_dates = by == DATE_KEY and chosen <= {"from", "to"} and not (own and "T" in own.date_from + own.date_to)
    values = getattr(own, by) if own and by in FACET else ()
    is_facet = by in FACET and chosen <= {by} and len(values) <= 1
    changed = {f"{prefix}.from", f"{prefix}.to"} if is_dates else {f"{prefix}.{key}" for key in chosen}
    pairs = (HiddenField(key, value) for key, value in asked.parameters() if key not in changed)
    options = [Option(value, f"{label} ({number(count)})", value in values) for value, label, count in found.choices]
    if values and not any(option.selected for option in options):
        options.insert(0, Option(values[0], labels.get((by, values[0]), values[0]), selected=True))
    return Half(
        letter=letter,
        side=f"slice-{prefix}",
        heading=_slice_heading(own, labels) if own is not None else "Nothing chosen",
        beside=_slice_note(own) if own is not None else "",
        total=number(side.total, at_least=side.at_least) if side else "",
        noun="memory" if side and side.total == 1 else "memories",
        url=explore_url(side.query) if side else "",
        hidden=tuple(pairs),
        field=f"{prefix}.{by}" if is_facet else prefix,
        dates=(own.date_from if own else "", own.date_to if own else "") if is_dates else None,
        options=tuple(options) if is_facet else (),
        text="" if own is None or is_dates or is_facet else own.querystring(),
    )


def _slice_heading(own: SearchQuery, labels: dict[tuple[str, str], str]) -> str:
    """The parameters of a slice in words; of a single facet the values alone."""
    chips = build_chips(own, labels)
    is_named = own.has_dates or own.selections()
    if not own.text and len(chips) == 1 and is_named and not chips[0].negative:
        return "".join(f" {part.joint} {part.label}" if part.joint else part.label for part in chips[0].parts)
    parts = [f"“{own.text}”"] if own.text else []
    parts += [chip.text for chip in chips]
    return ", ".join(parts) or own.querystring() or "Everything"


def _slice_note(own: SearchQuery) -> str:
    if not own.parameters():
        return "all that the two share"
    keys = list(own.selections())
    if not own.text and len(keys) == 1 and not own.has_dates:
        return FACET[keys[0]].label.lower()
    days = _days_of(own)
    return "" if days is None else plural(days, "day") if days > 0 else "no day"


def _days_of(own: SearchQuery) -> int | None:
    """The number of days of a slice of whole days; None of another."""
    if not (own.date_from and own.date_to) or "T" in own.date_from + own.date_to:
        return None
    return (date.fromisoformat(own.date_to) - date.fromisoformat(own.date_from)).days + 1


def _figures(a: Side, b: Side) -> Iterator[Figure]:
    yield Figure(
        "Memories",
        Link(number(a.total, at_least=a.at_least), explore_url(a.query)),
        Link(number(b.total, at_least=b.at_least), explore_url(b.query)),
        _growth(a, b),
    )
    if a.without_text is not None and b.without_text is not None:
        share_a, share_b = (side.total / side.without_text if side.without_text else 0.0 for side in (a, b))
        link_a, link_b = (
            Link(_percent(share), explore_url(side.query.with_(text="", min_similarity=None)))
            for side, share in ((a, share_a), (b, share_b))
        )
        yield Figure("Share of the memories that pass the filters", link_a, link_b, _points(share_a, share_b))
    yield _share_figure("Written by agents", "agent", (a, a.by_agents), (b, b.by_agents))
    yield _share_figure("In a category", "category", (a, a.categorised), (b, b.categorised))
    if a.superseded is not None and b.superseded is not None:
        link_a, link_b = (
            Link(number(side.superseded or 0), explore_url(side.query.with_(state=("superseded",)))) for side in (a, b)
        )
        yield Figure("Superseded since", link_a, link_b, _signed(b.superseded - a.superseded))


def _share_figure(label: str, key: str, a: tuple[Side, int], b: tuple[Side, int]) -> Figure:
    """The memories of each slice with any value of a facet."""
    link_a, link_b = (
        Link(number(count), explore_url(_having(side.query, key)), count=_percent(side.share(count)))
        for side, count in (a, b)
    )
    return Figure(label, link_a, link_b, _points(a[0].share(a[1]), b[0].share(b[1])))


def _having(query: SearchQuery, key: str) -> SearchQuery:
    """With any value in a facet; one that is selected already requires it."""
    has_one = query.selection(key).include and key not in query.no
    return query if has_one or key in query.has else query.toggle_presence("has", key)


def _growth(a: Side, b: Side) -> str:
    if not a.total or not b.total:
        return ""
    days_a, days_b = _days_of(a.own), _days_of(b.own)
    differ, factor = False, b.total / a.total
    if days_a and days_b and days_a != days_b:
        # Periods of different lengths are compared by what a day of each has.
        differ, factor = True, factor * days_a / days_b
    text = f"× {factor:.1f}" if factor >= 3 else f"{_signed(round(100 * (factor - 1)))}{_NO_BREAK}%"
    return f"{text} a day" if differ else text


def _signed(count: float) -> str:
    return "0" if not count else f"{'+' if count > 0 else '−'}{abs(count):,}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}{_NO_BREAK}%"


def _points(share_a: float, share_b: float) -> str:
    return f"{_signed_points(100 * (share_b - share_a))} points"


def _signed_points(points: float) -> str:
    rounded = round(points, 1)
    return "0.0" if not rounded else f"{'+' if rounded > 0 else '−'}{abs(rounded):.1f}"


# --- the values --------------------------------------------------------------------------------------------------


def _tabs(asked: Asked, found: Comparison) -> Iterator[Link]:
    if len({row.key for row in found.differs}) < 2:
        return
    chosen = asked.request.facet
    yield Link("All", comparison_url(_requested(asked, facet="")), count=number(len(found.differs)), current=not chosen)
    for spec in FACETS:
        count = sum(row.key == spec.key for row in found.differs)
        if count or spec.key == chosen:
            url = comparison_url(_requested(asked, facet=spec.key))
            yield Link(spec.label, url, count=number(count), current=spec.key == chosen)


def _rows_note(found: Comparison, rows: Sequence[Difference]) -> str:
    if rows:
        return ""
    return (
        "No value is clearly more frequent in one of the slices."
        if found.a and found.b and found.a.total and found.b.total
        else "A slice without memories has no shares."
    )


def _row(row: Difference, a: Side, b: Side, rows: Sequence[Difference]) -> DifferenceRow:
    widest = max(abs(other.points) for other in rows)
    width = max(0.5, 44 * abs(row.points) / widest)
    more_in_a = row.share_a > row.share_b
    return DifferenceRow(
        facet=FACET[row.key].label.lower(),
        label=row.label,
        a=_count_link(row, a, row.a, "A"),
        b=_count_link(row, b, row.b, "B"),
        share_a=_percent(row.share_a),
        share_b=_percent(row.share_b),
        side="slice-a" if more_in_a else "slice-b",
        bar_x=f"{50 - width if more_in_a else 50:.2f}%",
        bar_width=f"{width:.2f}%",
        points=_signed_points(row.points),
        lift="" if row.lift is None else f"× {row.lift:,.0f}" if row.lift >= _ROUNDED else f"× {row.lift:.2f}",
        evidence=f"{row.evidence:,.1f}",
    )


def _count_link(row: Difference, side: Side, count: int, letter: str) -> Link:
    query = with_value(side.query, row.key, row.value)
    return Link(number(count), explore_url(query) if query else "", f"{memories(count)} of {letter} with {row.label}")


def _more(asked: Asked, count: int) -> Link | None:
    left = count - asked.request.values
    if left <= 0 or asked.request.values >= 200:
        return None
    url = comparison_url(_requested(asked, values=min(200, asked.request.values + _MORE)))
    return Link(plural(left, "more value"), url)


def _only(asked: Asked, side: Side, letter: str, name: str, rows: Sequence[Difference]) -> OnlyIn:
    rows = [row for row in rows if asked.request.facet in ("", row.key)]
    default = type(asked.request).model_fields["values"].default
    most = _ONLY_SHOWN if asked.request.values == default else asked.request.values
    peak = max((row.a or row.b for row in rows), default=1)
    shown = []
    for row in rows[:most]:
        query = with_value(side.query, row.key, row.value)
        count = row.a or row.b
        shown.append(
            OnlyRow(
                facet=FACET[row.key].label.lower(),
                label=row.label,
                count=number(count),
                url=explore_url(query) if query else "",
                width=f"{max(1.0, 100 * count / peak):.1f}%",
            )
        )
    note = plural(len(rows), "value") if rows else "no value"
    if rows and asked.by == DATE_KEY:
        note += ", no longer used" if letter == "A" else ", first used then"
    more = None
    if len(rows) > most and asked.request.values < 200:
        wanted = 200 if len(rows) > _MORE else _MORE
        url = comparison_url(_requested(asked, values=wanted))
        more = Link(f"All {number(len(rows))}" if len(rows) <= wanted else f"The first {wanted}", url)
    return OnlyIn(letter, name, note, tuple(shown), more)


def _typical(side: Side, letter: str, name: str, zone: tzinfo) -> Typical:
    everything = Link(f"All {number(side.total, at_least=side.at_least)}", explore_url(side.query))
    return Typical(letter, name, everything, tuple(_sample(hit, side.query, zone) for hit in side.typical))


def _sample(hit: Hit, query: SearchQuery, zone: tzinfo) -> Sample:
    created: datetime = hit.created_at
    return Sample(
        title=plain_title(hit.title_text) or f"Memory {hit.id}",
        url=memory_url(hit.id, query),
        type=hit.memory_type,
        family=type_family(hit.memory_type),
        project=hit.project_name or hit.project,
        date=day_label(created, zone),
        date_iso=created.isoformat(),
        id=hit.id,
    )


def _take_out(asked: Asked, site: str) -> TakeOut:
    parameters = asked.querystring()
    address = f"{site}{reverse('api:api-root')}compare{f'?{parameters}' if parameters else ''}"
    return TakeOut("Use elsewhere…", (), (Call("With the API", f'curl -H "Authorization: Bearer $KEY" "{address}"'),))

"""The page that compares two slices. No database and no request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from django.urls import reverse

from explorer.compare.chart import Chart, build_chart
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, build_chips
from explorer.links import Call, Link, TakeOut, explore_url
from search.compare import Comparison, Difference, Side, cut_notice
from search.facets import DATE_KEY, FACET, FACETS
from search.query import SearchQuery
from search.slices import SEARCHES, Asked, with_value
from text.formatting import listed, memories, number, plural

_WAYS = ((DATE_KEY, "Periods"), ("agent", "Agents"), ("project", "Projects"), (SEARCHES, "Searches"))
_MORE, _MOST = 100, 200
# All but deleted ones.
_KEPT_STATES = ("active", "archived", "proposed", "superseded")
_ONLY_SHOWN = 7
_SHORT = 5
_NO_BREAK = "\u202f"

# With fewer memories in a slice, the reader is warned.
_FEW_MEMORIES = 30

# A lift from here on is shown without decimals.
_ROUNDED = 100


@dataclass(frozen=True, slots=True)
class Half:
    """One of the two slices, with the form that changes it: by `dates`, by the `options` of a facet, or by any text."""

    letter: str
    heading: str
    note: str
    side: Side | None
    hidden: tuple[tuple[str, str], ...]
    """The fields of the form that it does not change."""
    field: str
    """The name of the form's field, or the prefix of both dates."""
    dates: tuple[str, str] | None
    options: tuple[tuple[str, str, bool], ...]
    """Values with their labels, and whether they are selected."""
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the totals: a number of each slice, and its change."""

    label: str
    a: Link
    b: Link
    change: str


@dataclass(frozen=True)
class ComparePage:
    """The page: the template reads `found` itself, and here what has to be put together."""

    found: Comparison
    site: str
    """The address of the server."""
    problems: Sequence[Notice] = ()

    @cached_property
    def asked(self) -> Asked:
        """The request with the slices that were compared, so that every link of the page names them."""
        found, asked = self.found, self.found.asked
        return Asked(
            asked.request.replace(a="", b=""),
            asked.shared,
            found.a.own if found.a else asked.a,
            found.b.own if found.b else asked.b,
        )

    @property
    def sides(self) -> tuple[tuple[str, Side, Sequence[Difference]], ...]:
        """The slices that there are, by letter, with the values that only they have."""
        found, facet = self.found, self.asked.request.facet
        both = (("A", found.a, found.only_a), ("B", found.b, found.only_b))
        return tuple(
            (letter, side, [row for row in only if facet in ("", row.key)]) for letter, side, only in both if side
        )

    @property
    def is_compared(self) -> bool:
        return bool(self.found.a and self.found.b)

    @property
    def beside(self) -> str:
        return _memories_of_both(self.asked, self.found)

    @property
    def how(self) -> str:
        return _how(self.found) if self.is_compared else ""

    def at(self, **changes: object) -> str:
        """The page with other parameters."""
        asked = self.asked
        return comparison_url(Asked(asked.request.replace(**changes), asked.shared, asked.a, asked.b))

    def ways(self) -> Iterator[Link]:
        """The ways to compare, each of which begins with slices of its own."""
        by = self.asked.by
        ways = dict(_WAYS)
        if by not in ways:
            ways[by] = f"{FACET[by].label}s" if by != "category" else "Categories"
        for key, label in ways.items():
            way = Asked(self.asked.request.replace(by=key, facet=""), self.asked.shared)
            yield Link(label, comparison_url(way), current=key == by)

    @property
    def chips(self) -> tuple[Chip, ...]:
        a, b = self.asked.a, self.asked.b
        return build_chips(
            self.asked.shared,
            self.found.labels,
            lambda other: comparison_url(Asked(self.asked.request, other, a, b)),
        )

    @property
    def wider_url(self) -> str:
        """The same with archived and superseded memories; empty where states are chosen."""
        asked = self.asked
        if any(query.state for query in (asked.shared, asked.a, asked.b) if query):
            return ""
        return comparison_url(Asked(asked.request, asked.shared.with_(state=_KEPT_STATES), asked.a, asked.b))

    @property
    def swap_url(self) -> str:
        return comparison_url(Asked(self.asked.request, self.asked.shared, self.asked.b, self.asked.a))

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """The fields of the search box: everything but the text."""
        return [pair for pair in self.asked.parameters() if pair[0] != "q"]

    @property
    def halves(self) -> tuple[Half, Half]:
        return _half(self.found, self.asked, "A"), _half(self.found, self.asked, "B")

    def figures(self) -> Iterator[Figure]:
        return _figures(self.found.a, self.found.b) if self.found.a and self.found.b else iter(())

    @property
    def chart(self) -> Chart | None:
        return build_chart(self.found, self.found.a, self.found.b) if self.found.a and self.found.b else None

    @property
    def cut(self) -> str:
        """Which values are compared, if not all."""
        return cut_notice(self.found)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return (*self.problems, *_notices(self.found))

    @property
    def take_out(self) -> TakeOut:
        parameters = self.asked.querystring()
        address = f"{self.site}{reverse('api:api-root')}compare{f'?{parameters}' if parameters else ''}"
        return TakeOut(
            "Use elsewhere…", (), (Call("With the API", f'curl -H "Authorization: Bearer $KEY" "{address}"'),)
        )

    # --- the values ---------------------------------------------------------------------------------------------------

    def tabs(self) -> Iterator[Link]:
        keys = [row.key for row in self.found.differs]
        if len(set(keys)) < 2:
            return
        chosen = self.asked.request.facet
        yield Link("All", self.at(facet=""), count=number(len(keys)), current=not chosen)
        for spec in FACETS:
            if spec.key in keys or spec.key == chosen:
                count = number(keys.count(spec.key))
                yield Link(spec.label, self.at(facet=spec.key), count=count, current=spec.key == chosen)

    @cached_property
    def differs(self) -> list[Difference]:
        """All values that differ, of the chosen facet."""
        facet = self.asked.request.facet
        return [row for row in self.found.differs if facet in ("", row.key)]

    @property
    def rows(self) -> list[Difference]:
        return self.differs[: self.asked.request.values] if self.is_compared else []

    @property
    def is_short(self) -> bool:
        """Whether so few values differ that lists beside them would be longer."""
        return len(self.rows) <= _SHORT

    @property
    def rows_note(self) -> str:
        a, b = self.found.a, self.found.b
        if self.differs:
            return ""
        return (
            "No value is clearly more frequent in one of the slices."
            if a and b and a.total and b.total
            else "A slice without memories has no shares."
        )

    @property
    def more(self) -> Link | None:
        shown = self.asked.request.values
        if len(self.differs) <= shown or shown >= _MOST:
            return None
        return Link(plural(len(self.differs) - shown, "more value"), self.at(values=min(_MOST, shown + _MORE)))

    def facet_name(self, row: Difference) -> str:
        return FACET[row.key].label.lower()

    def value_url(self, row: Difference, side: Side) -> str:
        """The memories of a slice that have a value; empty if no query finds these alone."""
        query = with_value(side.query, row.key, row.value)
        return explore_url(query) if query else ""

    def width(self, row: Difference) -> float:
        """The length of the bar of a value, in percent."""
        return max(0.5, 44 * abs(row.points) / max(abs(other.points) for other in self.differs))

    def lift(self, row: Difference) -> str:
        return "" if row.lift is None else f"× {row.lift:,.0f}" if row.lift >= _ROUNDED else f"× {row.lift:.2f}"

    def only_note(self, rows: Sequence[Difference]) -> str:
        note = plural(len(rows), "value") if rows else "no value"
        # Replaced memories may have had the same value at another time.
        return f"{note}, superseded memories left out" if rows and self.wider_url else note

    def only_shown(self, rows: Sequence[Difference]) -> list[tuple[Difference, int, float]]:
        """The values with their counts, and the lengths of their bars in percent."""
        peak = max((row.a or row.b for row in rows), default=1)
        return [(row, row.a or row.b, max(1.0, 100 * (row.a or row.b) / peak)) for row in rows[: self._most_only]]

    def only_more(self, rows: Sequence[Difference]) -> Link | None:
        if len(rows) <= self._most_only or self.asked.request.values >= _MOST:
            return None
        wanted = _MOST if len(rows) > _MORE else _MORE
        label = f"All {number(len(rows))}" if len(rows) <= wanted else f"The first {wanted}"
        return Link(label, self.at(values=wanted))

    @property
    def _most_only(self) -> int:
        request = self.asked.request
        return _ONLY_SHOWN if request.values == type(request).model_fields["values"].default else request.values


def comparison_url(asked: Asked) -> str:
    """The canonical address of a comparison."""
    query = asked.querystring()
    return f"{reverse('explorer:compare')}{f'?{query}' if query else ''}"


def _memories_of_both(asked: Asked, found: Comparison) -> str:
    """The memories of both slices, if none can be in both."""
    by, a, b = asked.by, found.a, found.b
    if a is None or b is None or by == SEARCHES:
        return ""
    ends = sorted((side.own.date_from, side.own.date_to) for side in (a, b))
    # By whole days; a slice without an end is never apart from a later one.
    is_apart = "" < ends[0][1][:10] < ends[1][0][:10] if by == DATE_KEY else FACET[by].exclusive
    return memories(a.total + b.total, at_least=a.at_least or b.at_least) if is_apart else ""


def _how(found: Comparison) -> str:
    text = "Both slices share the search and these filters." if found.asked.shared.parameters() else ""
    if found.left_out:
        names = listed([FACET[key].label.lower() for key in found.left_out])
        text += f" The slices differ by {names} anyway: that is left out of what is compared."
    if not any(query.state for query in (found.asked.shared, found.asked.a, found.asked.b) if query):
        text += " Archived and superseded memories are left out."
    if found.a and found.b and 0 < min(found.a.total, found.b.total) < _FEW_MEMORIES:
        text += " With so few memories in a slice, much of what differs may be chance."
    return text.strip()


def _notices(found: Comparison) -> Iterator[Notice]:
    if found.unavailable:
        yield Notice(found.unavailable, is_error=True)
    for warning in found.warnings:
        yield Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean))
    if found.a and found.b and (found.a.at_least or found.b.at_least):
        yield Notice(
            "Only the memories nearest in meaning are counted, so the numbers of a slice with “+” are lower bounds,"
            " and its shares those of the nearest memories.",
            suggestion="Narrow the search, or match by words only, for exact ones.",
        )


# --- the two slices ----------------------------------------------------------------------------------------------


def _half(found: Comparison, asked: Asked, letter: str) -> Half:
    is_a = letter == "A"
    prefix = letter.lower()
    side, own = (found.a, asked.a) if is_a else (found.b, asked.b)
    by = asked.by
    labels = side.labels if side else {}
    chosen = {key for key, _ in own.parameters()} if own else set()
    is_dates = by == DATE_KEY and chosen <= {"from", "to"} and not (own and "T" in own.date_from + own.date_to)
    values = own.selection(by).include if own and by in FACET else ()
    is_facet = by in FACET and chosen <= {by} and len(values) <= 1
    changed = {f"{prefix}.from", f"{prefix}.to"} if is_dates else {f"{prefix}.{key}" for key in chosen}
    options = [(value, f"{label} ({number(count)})", value in values) for value, label, count in found.choices]
    if values and not any(is_selected for *_, is_selected in options):
        options.insert(0, (values[0], labels.get((by, values[0]), values[0]), True))
    return Half(
        letter=letter,
        heading=_slice_heading(own, labels) if own is not None else "Nothing chosen",
        note=_slice_note(own) if own is not None else "",
        side=side,
        hidden=tuple(pair for pair in asked.parameters() if pair[0] not in changed),
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
            Link(percent(share), explore_url(side.query.with_(text="", min_similarity=None)))
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
        Link(number(count), explore_url(_having(side.query, key)), count=percent(side.share(count)))
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


def percent(share: float) -> str:
    return f"{100 * share:.1f}{_NO_BREAK}%"


def _points(share_a: float, share_b: float) -> str:
    return f"{signed_points(100 * (share_b - share_a))} points"


def signed_points(points: float) -> str:
    rounded = round(points, 1)
    return "0.0" if not rounded else f"{'+' if rounded > 0 else '−'}{abs(rounded):.1f}"

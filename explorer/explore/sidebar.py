"""The facets of the sidebar as rows and trees, and the active filters as chips. Pure."""

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from explorer.links import curate_url, explore_url, values_url
from explorer.page_query import USUAL, Arrangement, Place
from search.facets import DATE_KEY, DEFAULT_STATES, FACET, Facet, FacetKind, FacetValue
from search.query import SearchQuery, Selection, dates_label, recalled_label
from text.formatting import date_text, legible, number, plural, spoken_number, start_label, with_article

# The number of memories with a value in the whole corpus; None if unknown.
CorpusCount = Callable[[str, FacetValue], int | None]

_SUBTREE_PAGE = 50


@dataclass(frozen=True, slots=True)
class HiddenField:
    """A hidden field of a form, for a part of the query that has no visible control."""

    name: str
    value: str


class FacetRow(NamedTuple):
    """A value of a facet. Its checkbox sends `name` and `value`: the selection, or the exclusion if it is excluded."""

    id: str
    name: str
    value: str
    label: str
    title: str
    count: str  # type: ignore[assignment]  # not the method of tuples
    corpus: str = ""
    """The number of memories with the value in the whole corpus, if it differs from the count."""
    share: int = 0
    """The length of the bar, in percent."""
    checked: bool = False
    excluded: bool = False
    implied: bool = False
    """Ticked through its parent, and not sent by itself."""
    zero: bool = False
    quiet: bool = False
    accessible_name: str = ""
    exclude_url: str = ""
    exclude_name: str = ""
    only_url: str = ""
    children: tuple["FacetRow", ...] = ()
    is_branch: bool = False
    is_open: bool = False
    children_url: str = ""
    """Loads the level below when the row is unfolded; `more_url` is the page that lists all of it."""
    more_url: str = ""

    @property
    def classes(self) -> str:
        names = {
            "on": (self.checked and not self.excluded) or self.implied,
            "out": self.excluded,
            "zero": self.zero,
            "implied": self.implied,
            "none": self.quiet,
        }
        return " ".join(("value", *(name for name, holds in names.items() if holds)))


@dataclass(frozen=True, slots=True)
class AllSwitch:
    """The switch between any and all of the ticked values."""

    name: str
    require_all: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One facet of the sidebar."""

    key: str
    id: str
    label: str
    help_text: str
    summary: str
    is_open: bool
    is_tree: bool
    is_missing: bool = False
    """Whether the rows are left out until the reader opens the panel."""
    rows: tuple[FacetRow, ...] = ()
    no_value: FacetRow | None = None
    any_value: FacetRow | None = None
    all_switch: AllSwitch | None = None
    more_url: str = ""
    more_label: str = ""
    exclude_url: str = ""
    """The page of all values, where each row has links that work without scripts."""
    note: str = ""
    unavailable: str = ""

    def controls(self) -> Iterable[FacetRow]:
        """All rows with a checkbox, at every level."""
        yield from _flat(self.rows)
        yield from (row for row in (self.no_value, self.any_value) if row)


def build_panels(
    query: SearchQuery,
    facets: Iterable[Facet],
    corpus: CorpusCount,
    opened: Container[str] = (),
    arrangement: Arrangement = USUAL,
) -> tuple[Panel, ...]:
    """Build the panels of facets as the reader arranges them; those with chosen values are never hidden.

    `opened` are the ids of panels and branches that the reader has open.
    """
    known = {facet.key: facet for facet in facets}
    return tuple(
        _panel(query, known[key], corpus, opened, starts_open=place is Place.OPEN)
        for key, place in arrangement.places.items()
        if key in known and (place is not Place.HIDDEN or _is_chosen(known[key]))
    )


def _is_chosen(facet: Facet) -> bool:
    return facet.no_value_selected or facet.any_value_selected or any(v.selected or v.excluded for v in facet.values)


def _panel(
    query: SearchQuery,
    facet: Facet,
    corpus: CorpusCount,
    opened: Container[str],
    *,
    starts_open: bool,
) -> Panel:
    spec, panel_id = facet.spec, f"facet-{facet.key}"
    is_tree = spec.kind is FacetKind.TREE
    is_open = _is_chosen(facet) or (starts_open and bool(facet.values))
    if not (is_open or facet.unavailable or panel_id in opened):
        all_values = f"All {plural(facet.distinct, 'value', at_least=facet.at_least)}"
        return Panel(
            facet.key,
            panel_id,
            spec.label,
            spec.help_text,
            _summary(query, facet),
            False,
            is_tree,
            is_missing=True,
            more_url=values_url(facet.key, query),
            more_label=all_values,
        )
    rows = _tree(query, facet, corpus, opened) if is_tree else _shown(query, facet, corpus)
    listed = sum(1 for row in rows if not row.zero)
    hidden = 0 if is_tree else max(0, facet.distinct - listed)
    return Panel(
        key=facet.key,
        id=panel_id,
        label=spec.label,
        help_text=spec.help_text,
        summary=_summary(query, facet),
        is_open=is_open,
        is_tree=is_tree,
        rows=rows,
        no_value=_no_value(query, facet),
        any_value=_any_value(query, facet),
        all_switch=_all_switch(query, facet),
        more_url=values_url(facet.key, query) if hidden or (is_tree and facet.distinct > listed) else "",
        more_label=_more_label(facet, hidden),
        exclude_url=values_url(facet.key, query) if rows else "",
        note=_note(query, facet),
        unavailable=facet.unavailable,
    )


def _more_label(facet: Facet, hidden: int) -> str:
    if facet.spec.kind is FacetKind.TREE:
        return f"All {plural(facet.distinct, 'category', 'categories', at_least=facet.at_least)}"
    return f"Show {number(hidden, at_least=facet.at_least)} more"


def value_rows(
    query: SearchQuery, facet: Facet, corpus: CorpusCount, *, last_name_only: bool = False
) -> tuple[FacetRow, ...]:
    """Rows for the page of a facet, or for one level of the tree."""
    peak = max((v.count for v in facet.values), default=0)
    rows = []
    for value in facet.values:
        if last_name_only:
            value = value._replace(label=value.label.rpartition(" / ")[2])
        row = _row(query, facet, value, corpus, peak)
        if last_name_only and value.has_children:
            row = row._replace(is_branch=True, **_subtree(query, value, is_listed=False))
        rows.append(row._replace(**_own_links(query, facet.key, row)))
    return tuple(rows)


def hidden_fields(query: SearchQuery, rows: Iterable[FacetRow], own_fields: Iterable[str]) -> tuple[HiddenField, ...]:
    """The part of the query that neither a checked row nor one of `own_fields` sends."""
    sent = {(row.name, row.value) for row in rows if row.checked and not row.implied}
    own = {*own_fields, "page", "include_facets"}
    return tuple(HiddenField(k, v) for k, v in query.parameters() if k not in own and (k, v) not in sent)


def form_fields(query: SearchQuery) -> tuple[HiddenField, ...]:
    """The whole query as hidden fields."""
    return tuple(HiddenField(key, value) for key, value in query.with_().parameters())


def row_id(key: str, value: str) -> str:
    """An HTML id for any value. It is the same on every page, so that htmx keeps the row and its focus."""
    return f"{key}-{hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()[:12]}"


def _flat(rows: Iterable[FacetRow]) -> Iterable[FacetRow]:
    for row in rows:
        yield row
        yield from _flat(row.children)


def _summary(query: SearchQuery, facet: Facet) -> str:
    selection = query.selection(facet.key)
    if facet.key == "state" and not selection.restricts:
        return "all but deleted" if query.as_of else " and ".join(DEFAULT_STATES)
    # The values counted are those that another choice would give: beside a selection their number would confuse.
    parts = [f"{len(selection.include)} selected"] if selection.include else []
    if selection.exclude:
        parts.append(f"{len(selection.exclude)} not")
    if not parts and not facet.unavailable:
        return plural(facet.distinct, "value", at_least=facet.at_least) if facet.distinct else "none"
    return " · ".join(parts)


def _note(query: SearchQuery, facet: Facet) -> str:
    if facet.key == "state" and not query.selection("state").restricts:
        if query.as_of:
            return "Archived and superseded ones are shown if they were valid then, unless a state is selected."
        return "Active and proposed are shown unless a state is selected."
    return ""


def _shown(query: SearchQuery, facet: Facet, corpus: CorpusCount) -> tuple[FacetRow, ...]:
    """The first values, and all selected or excluded ones."""
    limit = facet.spec.limit
    peak = max((v.count for v in facet.values if not v.excluded), default=0)
    return tuple(
        _row(query, facet, value, corpus, peak)
        for place, value in enumerate(facet.values)
        if place < limit or value.selected or value.excluded
    )


def _row(query: SearchQuery, facet: Facet, value: FacetValue, corpus: CorpusCount, peak: int) -> FacetRow:
    key = facet.key
    total = corpus(key, value)
    if total is not None and total < value.count:
        # The corpus counts the default states only; under other states a count may exceed it.
        total = None
    return FacetRow(
        id=row_id(key, value.value),
        name=f"-{key}" if value.excluded else key,
        value=value.value,
        label=value.label,
        title=_title(value, facet),
        count=_count(value, facet),
        corpus="" if total is None or total == value.count else f"{total:,}",
        share=min(100, round(100 * value.count / peak)) if peak else 0,
        checked=value.selected or value.excluded,
        excluded=value.excluded,
        zero=not value.count,
        accessible_name=_accessible_name(value, facet, total),
    )


def _own_links(query: SearchQuery, key: str, row: FacetRow) -> dict[str, Any]:
    """The links of a row for pages where no script makes them."""
    return {
        "exclude_url": explore_url(query.toggle_exclusion(key, row.value)),
        "exclude_name": f"Exclude {FACET[key].label.lower()} {row.label}",
        "only_url": explore_url(query.only(key, row.value)),
    }


def _count(value: FacetValue, facet: Facet) -> str:
    """The number of a row. The count of an exclusion is a difference, which is meaningless between lower bounds."""
    return "" if value.excluded and facet.at_least else number(value.count, at_least=facet.at_least)


def _title(value: FacetValue, facet: Facet) -> str:
    title = f"{value.label} ({value.type})" if value.type else value.label
    if value.own_count is not None and value.own_count != value.count and not value.excluded:
        own, rolled_up = (number(count, at_least=facet.at_least) for count in (value.own_count, value.count))
        title += f": {own} directly in it, {rolled_up} with subcategories"
    return title


def _accessible_name(value: FacetValue, facet: Facet, total: int | None) -> str:
    if value.excluded:
        hides = "" if facet.at_least else f", hides {value.count:,}"
        return f"Excluded: {value.label}{hides}. Untick to allow it again"
    name = f"{value.label}, {spoken_number(value.count, at_least=facet.at_least)}"
    if total is not None:
        name += f" of {total:,}"
    if value.own_count is not None and value.own_count != value.count:
        name += f", {spoken_number(value.own_count, at_least=facet.at_least)} directly in it"
    return name


def _no_value(query: SearchQuery, facet: Facet) -> FacetRow | None:
    if not (facet.no_value or facet.no_value_selected):
        return None
    name = facet.spec.label.lower()
    return FacetRow(
        id=f"no-{facet.key}",
        name="no",
        value=facet.key,
        label=f"No {name}",
        title=f"Memories without {with_article(name)}",
        count=number(facet.no_value, at_least=facet.at_least),
        checked=facet.no_value_selected,
        zero=not facet.no_value,
        quiet=True,
        accessible_name=f"No {name}, {spoken_number(facet.no_value, at_least=facet.at_least)}",
    )


def _any_value(query: SearchQuery, facet: Facet) -> FacetRow | None:
    if not facet.any_value_selected:
        return None
    name = facet.spec.label.lower()
    return FacetRow(
        id=f"has-{facet.key}",
        name="has",
        value=facet.key,
        label=f"Any {name}",
        title=f"Only memories with a value in {name}",
        count="",
        checked=True,
        accessible_name=f"Any {name}",
    )


def _all_switch(query: SearchQuery, facet: Facet) -> AllSwitch | None:
    selection = query.selection(facet.key)
    if not facet.spec.may_require_all or len(selection.include) < 2:
        return None
    return AllSwitch(f"{facet.key}.all", selection.require_all)


# --- the tree ----------------------------------------------------------------------------------------------------


def _tree(query: SearchQuery, facet: Facet, corpus: CorpusCount, opened: Container[str]) -> tuple[FacetRow, ...]:
    """The rows as a tree. A value without its parent among them is a root; closed branches have no rows."""
    by_path = {_path_of(value): value for value in facet.values}
    children: dict[str | None, list[FacetValue]] = {}
    for value in facet.values:
        children.setdefault(value.parent if value.parent in by_path else None, []).append(value)
    peak = max((v.count for v in facet.values if not v.excluded), default=0)
    unfolded = _above_chosen(by_path)

    def branch(value: FacetValue, *, implied: bool = False, is_first: bool = False) -> FacetRow:
        row = _row(query, facet, value, corpus, peak)
        path = _path_of(value)
        is_branch = value.has_children or path in children
        is_open = path in unfolded or (is_first and is_branch)
        is_listed = is_open or f"branch-{row.id}" in opened
        inside = implied or (value.selected and query.subcategories)
        below = tuple(branch(child, implied=inside) for child in children.get(path, ())) if is_listed else ()
        if is_branch or implied:
            is_implied = implied and not row.checked
            row = row._replace(
                children=below,
                is_open=is_open,
                implied=is_implied,
                accessible_name=f"{row.accessible_name}, included by its parent" if is_implied else row.accessible_name,
                is_branch=is_branch,
                **_subtree(query, value, is_listed=bool(below)) if is_branch else {},
            )
        return row

    limit = facet.spec.limit
    shown = [
        value
        for place, value in enumerate(children.get(None, []))
        if place < limit or value.selected or value.excluded or _path_of(value) in unfolded
    ]
    starts_folded = not any(_path_of(value) in unfolded for value in shown)
    return tuple(branch(value, is_first=starts_folded and not place) for place, value in enumerate(shown))


def _path_of(value: FacetValue) -> str:
    return value.canonical or value.value


def _above_chosen(by_path: Mapping[str, FacetValue]) -> set[str]:
    """The paths of the values with a selected or excluded one below them."""
    above: set[str] = set()
    for value in by_path.values():
        parent = value.parent if value.selected or value.excluded else None
        while parent is not None and parent in by_path and parent not in above:
            above.add(parent)
            parent = by_path[parent].parent
    return above


def _subtree(query: SearchQuery, value: FacetValue, *, is_listed: bool) -> dict[str, Any]:
    """The URLs of the level below: to load it if it is not listed, and to list all of it."""
    return {
        "more_url": values_url("category", query, {"parent": value.value}) if value.has_children else "",
        "children_url": "" if is_listed else _level_url(query, value.value),
    }


def _level_url(query: SearchQuery, path: str) -> str:
    return values_url("category", query, {"parent": path, "page_size": str(_SUBTREE_PAGE)})


# --- chips -------------------------------------------------------------------------------------------------------


# Labels of selected values, by (facet, value), if they differ from the value.
ValueLabels = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class ChipPart:
    """A value of a chip. `joint` precedes it: "or", "and", or nothing."""

    label: str
    remove_url: str
    remove_name: str
    joint: str = ""
    curate_url: str = ""
    """The page that curates the term, for facets of the vocabulary."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The values selected in a facet, or those excluded (`negative`)."""

    id: str
    label: str
    parts: tuple[ChipPart, ...]
    negative: bool = False

    @property
    def text(self) -> str:
        values = "".join(f" {part.joint} {part.label}" if part.joint else part.label for part in self.parts)
        return f"{self.label} {values}"


def criteria(query: SearchQuery, labels: ValueLabels) -> str:
    """The text and the filters of a query in words; empty without any."""
    words = [f"the words “{query.text}”"] if query.text else []
    return ", ".join([*words, *(chip.text for chip in build_chips(query, labels))])


def build_chips(
    query: SearchQuery, labels: ValueLabels, address: Callable[[SearchQuery], str] = explore_url
) -> tuple[Chip, ...]:
    """Chips in the order of the sidebar, dates last. `address` makes the URL of a query."""
    chips: list[Chip] = []
    for key, selection in query.selections().items():
        chips += _facet_chips(query, key, selection, labels, address)
    if query.has_dates:
        label = dates_label(query)
        removed = ChipPart(label, address(query.without(DATE_KEY)), f"Remove filter: date {label}")
        chips.append(Chip("chip-date", "date", (removed,)))
    if query.updated_since:
        label = start_label(query.updated_since)
        removed = ChipPart(label, address(query.with_(updated_since="")), f"Remove filter: changed {label}")
        chips.append(Chip("chip-updated", "changed", (removed,)))
    if query.recalled_since:
        label = recalled_label(query.recalled_since)
        removed = ChipPart(label, address(query.with_(recalled_since="")), f"Remove filter: recalled {label}")
        chips.append(Chip("chip-recalled", "recalled", (removed,)))
    if query.not_recalled_since:
        label = recalled_label(query.not_recalled_since)
        removed = ChipPart(label, address(query.with_(not_recalled_since="")), f"Remove filter: not recalled {label}")
        chips.append(Chip("chip-not-recalled", "not recalled", (removed,), negative=True))
    if query.as_of:
        label = date_text(query.as_of)
        removed = ChipPart(label, address(query.with_(as_of="")), f"Remove filter: valid on {label}")
        chips.append(Chip("chip-as-of", "valid on", (removed,)))
    if query.area:
        removed = ChipPart("an area", address(query.with_(area="")), "Remove filter: area of the map")
        chips.append(Chip("chip-area", "map", (removed,)))
    for key, value in query.refused:
        label = legible(value)
        without = query.replace(refused=tuple(pair for pair in query.refused if pair != (key, value)))
        removed = ChipPart(label, address(without), f"Remove what is not understood: {key} {label}")
        chips.append(Chip(row_id("chip", f"{key}={value}"), legible(key), (removed,), negative=True))
    return tuple(chips)


def _facet_chips(
    query: SearchQuery, key: str, selection: Selection, labels: ValueLabels, address: Callable[[SearchQuery], str]
) -> list[Chip]:
    name = FACET[key].label.lower()
    chips = []
    included = [
        ChipPart(
            label := labels.get((key, value), value),
            address(query.toggle(key, value)),
            f"{name} {label}",
            curate_url=curate_url(key, value),
        )
        for value in selection.include
    ]
    if selection.no_value:
        included.append(ChipPart("none", address(query.toggle_presence("no", key)), f"no {name}"))
    if included:
        heading = f"{name} itself" if key == "category" and not query.subcategories else name
        chips.append(Chip(f"chip-{key}", heading, _joined(included, "and" if selection.require_all else "or")))
    if selection.any_value:
        anything = ChipPart("any", address(query.toggle_presence("has", key)), f"any {name}")
        chips.append(Chip(f"chip-has-{key}", name, _joined([anything], "")))
    if selection.exclude:
        left_out = [
            ChipPart(
                label := labels.get((key, value), value),
                address(query.toggle_exclusion(key, value)),
                f"not {name} {label}",
            )
            for value in selection.exclude
        ]
        chips.append(Chip(f"chip-not-{key}", f"not {name}", _joined(left_out, "or"), negative=True))
    return chips


def _joined(parts: list[ChipPart], word: str) -> tuple[ChipPart, ...]:
    return tuple(
        replace(part, remove_name=f"Remove filter: {part.remove_name}", joint=word if place else "")
        for place, part in enumerate(parts)
    )

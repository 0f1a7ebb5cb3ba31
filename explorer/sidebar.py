"""The facets as a sidebar shows them: rows with their numbers, ticks and links, and the category tree. Pure."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from explorer.links import explore_url, values_url
from search.facets import DEFAULT_STATES, FACET, Facet, FacetValue, Kind
from search.query import SearchQuery
from text.formatting import number, plural, spoken_number, with_article

# How many memories have a value with nothing asked; None where that is not known.
CorpusCount = Callable[[str, FacetValue], int | None]

# Facets below these start folded, so that the ones most asked for are seen together.
_OPEN_FACETS = frozenset({"project", "type", "category", "tag", "concept", "entity"})
_SUBTREE_PAGE = 50


@dataclass(frozen=True, slots=True)
class Pair:
    """A hidden field of the form: what is asked for and has no control of its own on the page."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a facet. `name` and `value` are what its checkbox sends; an excluded one sends its exclusion."""

    id: str
    name: str
    value: str
    label: str
    title: str
    count: str
    corpus: str
    share: int
    checked: bool = False
    excluded: bool = False
    # Taken in by a ticked parent: shown as ticked, sent by the parent alone.
    implied: bool = False
    zero: bool = False
    accessible_name: str = ""
    exclude_url: str = ""
    exclude_name: str = ""
    only_url: str = ""
    children: tuple["Row", ...] = ()
    is_branch: bool = False
    is_open: bool = False
    # Where the level below is fetched from when it is unfolded, and where all of it is listed.
    children_url: str = ""
    more_url: str = ""


@dataclass(frozen=True, slots=True)
class AllSwitch:
    """Any of the ticked values, or all of them."""

    name: str
    require_all: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One facet of the sidebar."""

    key: str
    id: str
    label: str
    summary: str
    is_open: bool
    is_tree: bool
    rows: tuple[Row, ...] = ()
    no_value: Row | None = None
    any_value: Row | None = None
    all_switch: AllSwitch | None = None
    more_url: str = ""
    more_label: str = ""
    note: str = ""
    unavailable: str = ""

    def controls(self) -> Iterable[Row]:
        """Every row with a checkbox, those of the tree included."""
        yield from _flat(self.rows)
        yield from (row for row in (self.no_value, self.any_value) if row)


def build_panel(query: SearchQuery, facet: Facet, corpus: CorpusCount) -> Panel:
    """One facet under a query."""
    spec = facet.spec
    chosen = [v for v in facet.values if v.selected or v.excluded]
    is_tree = spec.kind is Kind.TREE
    rows = _tree(query, facet, corpus) if is_tree else _shown(query, facet, corpus)
    listed = sum(1 for row in rows if not row.zero)
    hidden = 0 if is_tree else max(0, facet.distinct - listed)
    return Panel(
        key=facet.key,
        id=f"facet-{facet.key}",
        label=spec.label,
        summary=_summary(query, facet),
        is_open=bool(chosen) or facet.no_value_selected or facet.any_value_selected or _starts_open(facet),
        is_tree=is_tree,
        rows=rows,
        no_value=_no_value(query, facet),
        any_value=_any_value(query, facet),
        all_switch=_all_switch(query, facet),
        more_url=values_url(facet.key, query) if hidden or (is_tree and facet.distinct > listed) else "",
        more_label=_more_label(facet, hidden),
        note=_note(query, facet),
        unavailable=facet.unavailable,
    )


def _more_label(facet: Facet, hidden: int) -> str:
    if facet.spec.kind is Kind.TREE:
        return f"All {plural(facet.distinct, 'category', 'categories', at_least=facet.at_least)}"
    return f"Show {number(hidden, at_least=facet.at_least)} more"


def value_rows(
    query: SearchQuery, facet: Facet, corpus: CorpusCount, *, last_name_only: bool = False
) -> tuple[Row, ...]:
    """All the rows of a facet as a page of its own lists them, or as one level of the tree."""
    peak = max((v.count for v in facet.values), default=0)
    rows = []
    for value in facet.values:
        if last_name_only:
            value = replace(value, label=value.label.rpartition(" / ")[2])
        row = _row(query, facet, value, corpus, peak)
        if last_name_only:
            row = _with_subtree(query, row, value)
        rows.append(row)
    return tuple(rows)


def hidden_pairs(query: SearchQuery, rows: Iterable[Row], own_fields: Iterable[str]) -> tuple[Pair, ...]:
    """What the form must send beside its visible controls, so that no part of the query is lost."""
    sent = {(row.name, row.value) for row in rows if row.checked and not row.implied}
    own = {*own_fields, "page", "include_facets"}
    return tuple(Pair(k, v) for k, v in query.parameters() if k not in own and (k, v) not in sent)


def form_pairs(query: SearchQuery) -> tuple[Pair, ...]:
    """The hidden fields of a form that asks about a query."""
    return tuple(Pair(key, value) for key, value in query.with_().parameters())


def row_id(key: str, value: str) -> str:
    """An HTML id for any value at all, the same on every page, so that a swap keeps the row and its focus."""
    return f"{key}-{hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()[:12]}"


def _flat(rows: Iterable[Row]) -> Iterable[Row]:
    for row in rows:
        yield row
        yield from _flat(row.children)


def _starts_open(facet: Facet) -> bool:
    return facet.key in _OPEN_FACETS and bool(facet.values)


def _summary(query: SearchQuery, facet: Facet) -> str:
    chosen = query.selection(facet.key)
    if facet.key == "state" and not chosen.restricts:
        return " and ".join(DEFAULT_STATES)
    listed = plural(facet.distinct, "value", at_least=facet.at_least) if facet.distinct else "none"
    parts = ["" if facet.unavailable else listed]
    if chosen.include:
        parts.append(f"{len(chosen.include)} selected")
    if chosen.exclude:
        parts.append(f"{len(chosen.exclude)} not")
    return " · ".join(part for part in parts if part)


def _note(query: SearchQuery, facet: Facet) -> str:
    if facet.key == "state" and not query.selection("state").restricts:
        return "Active and proposed are shown unless a state is selected."
    return ""


def _shown(query: SearchQuery, facet: Facet, corpus: CorpusCount) -> tuple[Row, ...]:
    """The first values in their order, and every chosen one wherever it stands."""
    limit = facet.spec.limit
    peak = max((v.count for v in facet.values if not v.excluded), default=0)
    return tuple(
        _row(query, facet, value, corpus, peak)
        for place, value in enumerate(facet.values)
        if place < limit or value.selected or value.excluded
    )


def _row(query: SearchQuery, facet: Facet, value: FacetValue, corpus: CorpusCount, peak: int) -> Row:
    key = facet.key
    of = corpus(key, value)
    if of is not None and of < value.count:
        # The corpus is counted in the default states: where others are asked for, it is no whole of this part.
        of = None
    label = FACET[key].label.lower()
    return Row(
        id=row_id(key, value.value),
        name=f"-{key}" if value.excluded else key,
        value=value.value,
        label=value.label,
        title=_title(value, facet),
        count=_count(value, facet),
        corpus="" if of is None else f"{of:,}",
        share=min(100, round(100 * value.count / peak)) if peak else 0,
        checked=value.selected or value.excluded,
        excluded=value.excluded,
        zero=not value.count,
        accessible_name=_accessible_name(value, facet, of),
        exclude_url=explore_url(query.toggle_exclusion(key, value.value)),
        exclude_name=f"Exclude {label} {value.label}",
        only_url=explore_url(query.only(key, value.value)),
    )


def _count(value: FacetValue, facet: Facet) -> str:
    """The number of a row. What an exclusion hides is a difference: of two lower bounds it says nothing."""
    return "" if value.excluded and facet.at_least else number(value.count, at_least=facet.at_least)


def _title(value: FacetValue, facet: Facet) -> str:
    title = f"{value.label} ({value.type})" if value.type else value.label
    if value.own_count is not None and value.own_count != value.count and not value.excluded:
        own, rolled_up = (number(count, at_least=facet.at_least) for count in (value.own_count, value.count))
        title += f": {own} directly in it, {rolled_up} with subcategories"
    return title


def _accessible_name(value: FacetValue, facet: Facet, of: int | None) -> str:
    if value.excluded:
        hides = "" if facet.at_least else f", hides {value.count:,}"
        return f"Excluded: {value.label}{hides}. Untick to allow it again"
    name = f"{value.label}, {spoken_number(value.count, at_least=facet.at_least)}"
    if of is not None:
        name += f" of {of:,}"
    if value.own_count is not None and value.own_count != value.count:
        name += f", {spoken_number(value.own_count, at_least=facet.at_least)} directly in it"
    return name


def _no_value(query: SearchQuery, facet: Facet) -> Row | None:
    if not (facet.no_value or facet.no_value_selected):
        return None
    name = facet.spec.label.lower()
    return Row(
        id=f"no-{facet.key}",
        name="no",
        value=facet.key,
        label=f"No {name}",
        title=f"Memories without {with_article(name)}",
        count=number(facet.no_value, at_least=facet.at_least),
        corpus="",
        share=0,
        checked=facet.no_value_selected,
        zero=not facet.no_value,
        accessible_name=f"No {name}, {spoken_number(facet.no_value, at_least=facet.at_least)}",
        exclude_url=explore_url(_with_a_value(query, facet.key)),
        exclude_name=f"Only with {with_article(name)}",
    )


def _with_a_value(query: SearchQuery, key: str) -> SearchQuery:
    query = query.toggle_presence("no", key) if key in query.no else query
    return query if key in query.has else query.toggle_presence("has", key)


def _any_value(query: SearchQuery, facet: Facet) -> Row | None:
    if not facet.any_value_selected:
        return None
    name = facet.spec.label.lower()
    return Row(
        id=f"has-{facet.key}",
        name="has",
        value=facet.key,
        label=f"Any {name}",
        title=f"Only memories with a value in {name}",
        count="",
        corpus="",
        share=0,
        checked=True,
        accessible_name=f"Any {name}",
    )


def _all_switch(query: SearchQuery, facet: Facet) -> AllSwitch | None:
    chosen = query.selection(facet.key)
    if not facet.spec.may_require_all or len(chosen.include) < 2:
        return None
    return AllSwitch(f"{facet.key}.all", chosen.require_all)


# --- the tree ----------------------------------------------------------------------------------------------------


def _tree(query: SearchQuery, facet: Facet, corpus: CorpusCount) -> tuple[Row, ...]:
    """The rows as a tree. A value whose parent is not among them stands at the root."""
    known = {value.canonical or value.value for value in facet.values}
    children: dict[str | None, list[FacetValue]] = {}
    for value in facet.values:
        children.setdefault(value.parent if value.parent in known else None, []).append(value)
    peak = max((v.count for v in facet.values if not v.excluded), default=0)

    def level(parent: str | None, implied: bool) -> Sequence[Row]:
        rows = []
        for value in children.get(parent, []):
            row = _row(query, facet, value, corpus, peak)
            below = tuple(level(value.canonical or value.value, implied or (value.selected and query.subcategories)))
            rows.append(_branch(query, row, value, below, implied))
        return rows

    roots = level(None, False)
    limit = facet.spec.limit
    shown = [row for place, row in enumerate(roots) if place < limit or row.checked or row.is_open]
    if shown and not any(row.is_open for row in shown):
        shown[0] = replace(shown[0], is_open=shown[0].is_branch)
    return tuple(shown)


def _branch(query: SearchQuery, row: Row, value: FacetValue, below: tuple[Row, ...], implied: bool) -> Row:
    row = replace(row, children=below, is_branch=value.has_children or bool(below))
    if implied and not row.checked:
        row = replace(row, implied=True, accessible_name=f"{row.accessible_name}, included by its parent")
    if any(child.checked or child.is_open for child in below):
        row = replace(row, is_open=True)
    return _with_subtree(query, row, value)


def _with_subtree(query: SearchQuery, row: Row, value: FacetValue) -> Row:
    """A branch whose next level is not at hand fetches it; one that has it links to all of it."""
    if not value.has_children:
        return row
    listing = {"parent": value.value}
    row = replace(row, is_branch=True, more_url=values_url("category", query, listing))
    if row.children:
        return row
    return replace(row, children_url=values_url("category", query, {**listing, "page_size": str(_SUBTREE_PAGE)}))

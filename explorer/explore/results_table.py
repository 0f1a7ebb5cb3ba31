"""The results as a table with chosen columns, sorted by its headings. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from explorer.explore.cards import HitCard
from explorer.links import Link, explore_url, narrowed_url
from explorer.page_query import Column, PageQuery
from search.query import SearchQuery, Sort
from search.result import Hit, SearchResult
from text.formatting import day_label, moment_label, number, type_family

_VALUES_SHOWN = 2

COLUMN_LABELS = {
    Column.TYPE: "Type",
    Column.PROJECT: "Project",
    Column.CATEGORY: "Category",
    Column.TAG: "Tags",
    Column.AUTHOR: "Authors",
    Column.AGENT: "Agent",
    Column.SOURCE: "Source",
    Column.STATE: "State",
    Column.IMPORTANCE: "Importance",
    Column.CREATED: "Created",
    Column.UPDATED: "Updated",
    Column.RECALLED: "Recalled",
    Column.NUMBER: "Number",
}
# The orders of a column: the first one that a click on its heading gives, then the other, if there is one.
_ORDERS: dict[str, tuple[Sort, ...]] = {
    "title": (Sort.TITLE,),
    Column.CREATED: (Sort.NEWEST, Sort.OLDEST),
    Column.UPDATED: (Sort.UPDATED,),
    Column.RECALLED: (Sort.RECALLED,),
}
_ASCENDING = frozenset({Sort.TITLE, Sort.OLDEST})


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a column. `sort_url` is empty if it cannot order the results; `sorted` is for `aria-sort`."""

    key: str
    label: str
    sort_url: str = ""
    sorted: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: values that filter by themselves, or a text. `more` values are not shown."""

    key: str
    text: str = ""
    links: tuple[Link, ...] = ()
    more: int = 0
    family: str = ""
    """The family of a type, for its colour."""
    date_iso: str = ""
    date_title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A result. `alike` results are near-duplicates of the one before them."""

    card: HitCard
    cells: tuple[Cell, ...]
    alike: bool = False


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    value: str
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ResultsTable:
    title: Heading
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    choices: tuple[ColumnChoice, ...]
    is_chosen: bool
    """Whether somebody chose the columns; the usual ones may give way where there is little room."""


def build_table(query: PageQuery, result: SearchResult, cards: Iterable[HitCard], zone: tzinfo) -> ResultsTable:
    """The table of a page of results. Near-duplicates follow the result that they are grouped under."""
    hits = {hit.id: hit for hit in result.hits}
    shown = [(card, alike) for first in cards for card, alike in ((first, False), *((c, True) for c in first.similar))]
    return ResultsTable(
        title=_heading(query, "title", "Title"),
        headings=tuple(_heading(query, column, COLUMN_LABELS[column]) for column in query.columns),
        rows=tuple(
            Row(card, tuple(_cell(column, query, hits[card.id], card, zone) for column in query.columns), alike)
            for card, alike in shown
        ),
        choices=tuple(ColumnChoice(c.value, COLUMN_LABELS[c], c in query.columns) for c in Column),
        is_chosen=bool(query.column),
    )


def _heading(query: SearchQuery, key: str, label: str) -> Heading:
    orders = _ORDERS.get(key, ())
    if not orders:
        return Heading(key, label)
    current = query.order if query.order in orders else None
    following = orders[(orders.index(current) + 1) % len(orders)] if current else orders[0]
    # A second click on a heading of one order returns to the order that suits the query.
    target = None if following is current else following
    if not query.text and target is Sort.NEWEST:
        target = None
    is_sorted = "" if current is None else "ascending" if current in _ASCENDING else "descending"
    return Heading(key, label, explore_url(query.with_(sort=target)), is_sorted)


def _cell(column: Column, query: SearchQuery, hit: Hit, card: HitCard, zone: tzinfo) -> Cell:
    match column:
        case Column.TYPE:
            link = Link(hit.memory_type, card.type_url, f"Filter by type {hit.memory_type}")
            return Cell(column, links=(link,), family=type_family(hit.memory_type))
        case Column.PROJECT:
            return Cell(column, links=(card.project,))
        case Column.CATEGORY:
            # The last name, since a path is long; the name of the link has all of it.
            return _values(column, query, [(c.path, c.names[-1], " / ".join(c.names)) for c in hit.categories], most=1)
        case Column.TAG:
            return Cell(column, links=card.tags[:_VALUES_SHOWN], more=max(0, len(hit.tags) - _VALUES_SHOWN))
        case Column.AUTHOR:
            return _values(column, query, [(name, name, name) for name in hit.authors])
        case Column.AGENT | Column.SOURCE | Column.STATE:
            value: str = getattr(hit, column.value)
            return _values(column, query, [(value, value, value)] if value else [])
        case Column.IMPORTANCE:
            return Cell(column, "" if hit.importance is None else f"{hit.importance:.2f}")
        case Column.CREATED | Column.UPDATED:
            return _date(column, hit.created_at if column is Column.CREATED else hit.updated_at, zone)
        case Column.RECALLED:
            return Cell(column, number(hit.recalls) if hit.recalls else "never")
        case Column.NUMBER:
            return Cell(column, f"#{hit.id}")


def _values(
    column: Column, query: SearchQuery, values: list[tuple[str, str, str]], *, most: int = _VALUES_SHOWN
) -> Cell:
    """A cell of values, each with its label and its whole name."""
    shown = tuple(
        Link(label, narrowed_url(query, column.value, value), f"Filter by {column.value} {name}")
        for value, label, name in values[:most]
    )
    return Cell(column, links=shown, more=max(0, len(values) - most))


def _date(column: Column, moment: datetime, zone: tzinfo) -> Cell:
    return Cell(column, day_label(moment, zone), date_iso=moment.isoformat(), date_title=moment_label(moment, zone))

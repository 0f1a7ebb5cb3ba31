"""TableContext: all that a table of entities or of concepts may read. No database and no request."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt

from access.viewer import Viewer
from categories.queries import Term
from explorer.graph.adjacency import Ints
from explorer.graph.cache import VocabularyGraph, ids_named_like, whole_of
from explorer.graph.labels import graph_tabs, table_url, term_url, toggled, warning_notices
from explorer.graph.params import TableRequest, TableSort
from explorer.graph.queries import ENTITY, GraphContext, Kind, open_graph
from explorer.http import Pager, build_pager
from explorer.links import Link, filter_url
from explorer.page import Notice
from search.engines import with_engine
from search.engines.base import Engine
from search.result import SearchWarning
from search.snapshots import snapshot
from text.formatting import day_label, plural
from web.timing import Stopwatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TableRow:
    """An entity or a concept: how many others it is linked with, and the memories that name it."""

    term: Term
    links: int
    memories: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Table:
    """A page of a table. `types` counts what the search leaves, whatever types are asked for."""

    kind: Kind
    asked: TableRequest
    rows: tuple[TableRow, ...]
    total: int
    # With nothing asked for.
    every: int
    types: tuple[tuple[str, int], ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.asked.page_size))


def table_of(kind: Kind, asked: TableRequest, viewer: Viewer) -> Table:
    """Two statements where all of it is kept, besides one for a search; four more where it is not."""
    return with_engine(lambda engine: _table(kind, asked, viewer, engine), viewer)


def _table(kind: Kind, asked: TableRequest, viewer: Viewer, engine: Engine) -> Table:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("graph"):
        look = open_graph(kind, engine, viewer)
        whole = whole_of(look)
        left = np.ones(len(whole.nodes), bool)
        if asked.search:
            left = np.isin(whole.nodes, ids_named_like(kind, asked.search))
        types = _types(whole, left)
        if asked.type:
            left &= np.isin(whole.type_places, [n for n, name in enumerate(whole.types) if name in asked.type])
        ordered = _ordered(whole, np.flatnonzero(left), asked)
        begin = (asked.page - 1) * asked.page_size
        shown = ordered[begin : begin + asked.page_size]
        rows = _rows(look, whole, shown)
    return Table(
        kind=kind,
        asked=asked,
        rows=rows,
        total=len(ordered),
        every=len(whole.nodes),
        types=types,
        warnings=tuple(_warnings(asked, types, len(ordered))),
        timings=watch.timings,
    )


def _types(whole: VocabularyGraph, left: npt.NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    """The types that are left with how many of each, the most first."""
    counts = np.bincount(whole.type_places[left], minlength=len(whole.types)).tolist()
    found = [(name, count) for name, count in zip(whole.types, counts, strict=True) if count]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _ordered(whole: VocabularyGraph, left: Ints, asked: TableRequest) -> Ints:
    """By the column asked for; what is the same there by name, and what has nothing there last."""
    column = {
        "name": whole.places,
        "type": whole.type_places,
        "links": whole.linked.degrees,
        "memories": whole.memories,
        "first": whole.first,
        "last": whole.last,
    }[asked.sort.column][left].astype(np.float64)
    order = np.lexsort((whole.places[left], -column if asked.sort.is_down else column))
    return left[order]


def _rows(look: GraphContext, whole: VocabularyGraph, shown: Ints) -> tuple[TableRow, ...]:
    ids = whole.nodes[shown].tolist()
    terms = look.terms(ids)
    degrees = whole.linked.degrees
    return tuple(
        TableRow(
            terms[pk],
            int(degrees[at]),
            int(whole.memories[at]),
            _moment(float(whole.first[at])),
            _moment(float(whole.last[at])),
        )
        for pk, at in zip(ids, shown.tolist(), strict=True)
        if pk in terms
    )


def _moment(seconds: float) -> datetime | None:
    """None where there is none, and for a date that only SQL by hand can make."""
    try:
        return None if np.isnan(seconds) else _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _warnings(asked: TableRequest, types: tuple[tuple[str, int], ...], total: int) -> list[SearchWarning]:
    known = {name for name, _ in types}
    found = []
    for name in asked.type:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 3)
            found.append(SearchWarning(f"Nothing here has the type “{name}”.", "type", tuple(near)))
    pages = max(1, -(-total // asked.page_size))
    if asked.page > pages:
        found.append(SearchWarning(f"Page {asked.page:,} is past the last page, {pages:,}.", "page"))
    return found


_TYPES_SHOWN = 14
_COLUMNS = (
    ("name", "Name", ""),
    ("type", "Type", ""),
    (
        "links",
        "Links",
        "Number of others it is linked with, by a stated relationship or because a memory mentions both",
    ),
    ("memories", "Memories", "Number of memories that mention it"),
    ("first", "First seen", "Day of the first memory that mentions it"),
    ("last", "Last seen", "Day of the last memory that mentions it"),
)
_UP_FIRST = {"name", "type", "first"}


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    label: str
    title: str
    url: str
    # What aria-sort says; empty where the table is not sorted by it.
    order: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    name: str
    url: str
    type: str
    links: str
    memories: str
    memories_url: str
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class TableContext:
    title: str
    kind: str
    many: str
    summary: str
    tabs: tuple[Link, ...]
    search: str
    # What the search form sends beside its text.
    hidden: tuple[tuple[str, str], ...]
    types: tuple[Link, ...]
    more_types: tuple[Link, ...]
    all_types: Link
    columns: tuple[Column, ...]
    rows: tuple[ShownRow, ...]
    pager: Pager | None
    notices: tuple[Notice, ...]
    empty: str
    # Where there is something, if nothing is here.
    elsewhere: Link | None


def build_table(table: Table, notices: Iterable[Notice], zone: tzinfo = UTC) -> TableContext:
    kind, asked = table.kind, table.asked

    def at(**changes: object) -> str:
        return table_url(kind, asked.with_(**changes))

    types = tuple(
        Link(name or "no type", at(type=toggled(asked.type, name)), count=f"{count:,}", current=name in asked.type)
        for name, count in table.types
    )
    is_narrowed = bool(asked.search or asked.type)
    found = plural(table.total, kind.key, kind.many)
    return TableContext(
        title=kind.many.capitalize(),
        kind=kind.key,
        many=kind.many,
        summary=f"{found} of {table.every:,}" if is_narrowed else found,
        tabs=graph_tabs(kind),
        search=asked.search,
        hidden=tuple(pair for pair in asked.parameters() if pair[0] not in {"search", "page"}),
        types=types[:_TYPES_SHOWN],
        more_types=types[_TYPES_SHOWN:],
        all_types=Link("All types", at(type=()), current=not asked.type),
        columns=tuple(_column(asked, at, *column) for column in _COLUMNS),
        rows=tuple(_row(kind, row, zone) for row in table.rows),
        pager=build_pager(asked.page, table.pages, asked.page_size, table.total, lambda page: at(page=page))
        if table.pages > 1
        else None,
        notices=(*notices, *warning_notices(table.warnings)),
        empty=_empty(table, is_narrowed=is_narrowed),
        elsewhere=_elsewhere(table, at(), is_narrowed=is_narrowed),
    )


def _column(asked: TableRequest, at: Callable[..., str], key: str, label: str, title: str) -> Column:
    is_current = asked.sort.column == key
    down = not asked.sort.is_down if is_current else key not in _UP_FIRST
    order = ("descending" if asked.sort.is_down else "ascending") if is_current else ""
    return Column(key, label, title, at(sort=TableSort(f"-{key}" if down else key)), order)


def _row(kind: Kind, row: TableRow, zone: tzinfo) -> ShownRow:
    return ShownRow(
        name=row.term.label,
        url=term_url(kind, row.term),
        type=row.term.type,
        links=f"{row.links:,}",
        memories=f"{row.memories:,}",
        memories_url=filter_url(kind.key, row.term.value) if row.memories else "",
        first=day_label(row.first, zone) if row.first else "",
        last=day_label(row.last, zone) if row.last else "",
    )


def _empty(table: Table, *, is_narrowed: bool) -> str:
    if table.rows:
        return ""
    if table.total:
        return "This page is empty."
    if is_narrowed:
        return f"No {table.kind.key} matches this name and type."
    return f"No memory that you can see mentions {_article(table.kind)} yet."


def _elsewhere(table: Table, first_page: str, *, is_narrowed: bool) -> Link | None:
    if table.total:
        return Link("Go to the first page", first_page)
    return Link(f"Show all {table.kind.many}", table_url(table.kind)) if is_narrowed else None


def _article(kind: Kind) -> str:
    return "an entity" if kind is ENTITY else "a concept"

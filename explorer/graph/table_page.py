"""Reads a page of the table of entities or concepts, and builds TableContext, the data of its page."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt

from access.viewer import Viewer
from categories.queries import Term
from explorer.explore.page import Notice
from explorer.explore.sparkline import Sparkline, build_sparklines
from explorer.graph.adjacency import Ints
from explorer.graph.cache import VocabularyGraph, ids_named_like, load_graph
from explorer.graph.labels import graph_tabs, table_url, term_url, toggled, warning_notices
from explorer.graph.params import TableRequest, TableSort
from explorer.graph.queries import ENTITY, GraphContext, NodeKind, open_graph
from explorer.http import Pager, build_pager
from explorer.links import Link, filter_url, matrix_url, merge_url
from search.engines import with_engine
from search.engines.base import Engine
from search.facets import DATE_KEY
from search.query import SearchQuery
from search.result import SearchWarning
from search.snapshots import snapshot
from search.trends import NO_TRENDS, Trends, trends
from text.formatting import day_label, plural
from web.timing import Stopwatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NodeTableRow:
    """An entity or a concept. `links` is its number of neighbours; `first` and `last` are dates of its memories."""

    term: Term
    links: int
    memories: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A page of a table. `types` are counted under the search but not under the filter by type."""

    kind: NodeKind
    params: TableRequest
    rows: tuple[NodeTableRow, ...]
    total: int
    all: int
    """The number of all visible nodes."""
    types: tuple[tuple[str, int], ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]
    trends: Trends = NO_TRENDS
    """How the memories of each row are spread over time, if requested."""

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.params.page_size))


def node_table(kind: NodeKind, params: TableRequest, viewer: Viewer, *, with_trends: bool = False) -> NodeTable:
    """A page of the table: two statements if the graph is cached, plus one for a search; else four more.

    `with_trends` adds how the memories of each row are spread over time.
    """
    return with_engine(lambda engine: _table(kind, params, viewer, engine, with_trends), viewer)


def _table(kind: NodeKind, params: TableRequest, viewer: Viewer, engine: Engine, with_trends: bool) -> NodeTable:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("graph"):
        context = open_graph(kind, engine, viewer)
        graph = load_graph(context)
        left = np.ones(len(graph.nodes), bool)
        if params.search:
            left = np.isin(graph.nodes, ids_named_like(kind, params.search, viewer.project_ids))
        types = _types(graph, left)
        if params.type:
            left &= np.isin(graph.type_places, [n for n, name in enumerate(graph.types) if name in params.type])
        ordered = _ordered(graph, np.flatnonzero(left), params)
        begin = (params.page - 1) * params.page_size
        shown = ordered[begin : begin + params.page_size]
        rows = _rows(context, graph, shown)
        ids = [row.term.id for row in rows] if with_trends else []
        spread = trends(engine, SearchQuery(), kind.key, ids, viewer)
    return NodeTable(
        kind=kind,
        params=params,
        rows=rows,
        total=len(ordered),
        all=len(graph.nodes),
        types=types,
        warnings=tuple(_warnings(params, types, len(ordered))),
        timings=watch.timings,
        trends=spread,
    )


def _types(graph: VocabularyGraph, left: npt.NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    """Types with their numbers of nodes, largest first."""
    counts = np.bincount(graph.type_places[left], minlength=len(graph.types)).tolist()
    found = [(name, count) for name, count in zip(graph.types, counts, strict=True) if count]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _ordered(graph: VocabularyGraph, left: Ints, params: TableRequest) -> Ints:
    """Sort by the requested column, then by name; nodes without a value come last."""
    column = {
        "name": graph.places,
        "type": graph.type_places,
        "links": graph.linked.degrees,
        "memories": graph.memories,
        "first": graph.first,
        "last": graph.last,
    }[params.sort.column][left].astype(np.float64)
    order = np.lexsort((graph.places[left], -column if params.sort.is_down else column))
    return left[order]


def _rows(context: GraphContext, graph: VocabularyGraph, shown: Ints) -> tuple[NodeTableRow, ...]:
    ids = graph.nodes[shown].tolist()
    terms = context.terms(ids)
    degrees = graph.linked.degrees
    return tuple(
        NodeTableRow(
            terms[pk],
            int(degrees[at]),
            int(graph.memories[at]),
            _instant(float(graph.first[at])),
            _instant(float(graph.last[at])),
        )
        for pk, at in zip(ids, shown.tolist(), strict=True)
        if pk in terms
    )


def _instant(seconds: float) -> datetime | None:
    """None for NaN, and for a date that Python cannot represent."""
    try:
        return None if np.isnan(seconds) else _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _warnings(params: TableRequest, types: tuple[tuple[str, int], ...], total: int) -> list[SearchWarning]:
    known = {name for name, _ in types}
    found = []
    for name in params.type:
        if name not in known:
            similar = difflib.get_close_matches(name, sorted(known), 3)
            found.append(SearchWarning(f"Nothing here has the type “{name}”.", "type", tuple(similar)))
    pages = max(1, -(-total // params.page_size))
    if params.page > pages:
        found.append(SearchWarning(f"Page {params.page:,} is past the last page, {pages:,}.", "page"))
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
    order: str
    """The value of `aria-sort`; empty if the table is not sorted by this column."""


@dataclass(frozen=True, slots=True)
class ShownTableRow:
    value: str
    """Names it in the form that merges several."""
    name: str
    url: str
    type: str
    links: str
    memories: str
    memories_url: str
    first: str
    last: str
    spark: Sparkline | None


@dataclass(frozen=True, slots=True)
class TableContext:
    title: str
    kind: str
    many: str
    summary: str
    tabs: tuple[Link, ...]
    search: str
    hidden: tuple[tuple[str, str], ...]
    """Hidden fields of the search form."""
    types: tuple[Link, ...]
    more_types: tuple[Link, ...]
    all_types: Link
    columns: tuple[Column, ...]
    rows: tuple[ShownTableRow, ...]
    pager: Pager | None
    notices: tuple[Notice, ...]
    empty: str
    elsewhere: Link | None
    """A page with rows, if this one is empty."""
    over_time: Link | None
    """The numbers of the small charts; None without charts."""
    merge_url: str
    """The page that merges the ticked rows, for curators."""
    here: str


def build_table(table: NodeTable, notices: Iterable[Notice], zone: tzinfo = UTC) -> TableContext:
    kind, params = table.kind, table.params

    def at(**changes: object) -> str:
        return table_url(kind, params.with_(**changes))

    types = tuple(
        Link(name or "no type", at(type=toggled(params.type, name)), count=f"{count:,}", current=name in params.type)
        for name, count in table.types
    )
    is_narrowed = bool(params.search or params.type)
    values = {row.term.id: row.term.value for row in table.rows}
    sparks = build_sparklines(table.trends, SearchQuery(), lambda pk: SearchQuery().only(kind.key, values[int(pk)]))
    found = plural(table.total, kind.key, kind.plural)
    return TableContext(
        title=kind.plural.capitalize(),
        kind=kind.key,
        many=kind.plural,
        summary=f"{found} of {table.all:,}" if is_narrowed else found,
        tabs=graph_tabs(kind),
        search=params.search,
        hidden=tuple(pair for pair in params.parameters() if pair[0] not in {"search", "page"}),
        types=types[:_TYPES_SHOWN],
        more_types=types[_TYPES_SHOWN:],
        all_types=Link("All types", at(type=()), current=not params.type),
        columns=tuple(_column(params, at, *column) for column in _COLUMNS),
        rows=tuple(_row(kind, row, zone, sparks.get(row.term.id)) for row in table.rows),
        pager=build_pager(params.page, table.pages, params.page_size, table.total, lambda page: at(page=page))
        if table.pages > 1
        else None,
        notices=(*notices, *warning_notices(table.warnings)),
        empty=_empty(table, is_narrowed=is_narrowed),
        elsewhere=_elsewhere(table, at(), is_narrowed=is_narrowed),
        over_time=Link(
            f"{kind.plural.capitalize()} by time, in numbers",
            matrix_url(SearchQuery(), {"rows": kind.key, "columns": DATE_KEY}),
        )
        if sparks
        else None,
        merge_url=merge_url(kind.key),
        here=at(page=params.page),
    )


def _column(params: TableRequest, at: Callable[..., str], key: str, label: str, title: str) -> Column:
    is_current = params.sort.column == key
    down = not params.sort.is_down if is_current else key not in _UP_FIRST
    order = ("descending" if params.sort.is_down else "ascending") if is_current else ""
    return Column(key, label, title, at(sort=TableSort(f"-{key}" if down else key)), order)


def _row(kind: NodeKind, row: NodeTableRow, zone: tzinfo, spark: Sparkline | None) -> ShownTableRow:
    return ShownTableRow(
        value=f"#{row.term.id}",
        name=row.term.label,
        url=term_url(kind, row.term),
        type=row.term.type,
        links=f"{row.links:,}",
        memories=f"{row.memories:,}",
        memories_url=filter_url(kind.key, row.term.value) if row.memories else "",
        first=day_label(row.first, zone) if row.first else "",
        last=day_label(row.last, zone) if row.last else "",
        spark=spark,
    )


def _empty(table: NodeTable, *, is_narrowed: bool) -> str:
    if table.rows:
        return ""
    if table.total:
        return "This page is empty."
    if is_narrowed:
        return f"No {table.kind.key} matches this name and type."
    return f"No memory that you can see mentions {_article(table.kind)} yet."


def _elsewhere(table: NodeTable, first_page: str, *, is_narrowed: bool) -> Link | None:
    if table.total:
        return Link("Go to the first page", first_page)
    return Link(f"Show all {table.kind.plural}", table_url(table.kind)) if is_narrowed else None


def _article(kind: NodeKind) -> str:
    return "an entity" if kind is ENTITY else "a concept"

"""Reads a page of the table of entities or concepts, and builds its page."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from access.viewer import Viewer
from categories.queries import Term
from explorer.explore.page import Notice
from explorer.explore.sparkline import Sparkline, build_sparklines
from explorer.graph.adjacency import Ints
from explorer.graph.cache import VocabularyGraph, ids_named_like, load_graph
from explorer.graph.labels import TableRequest, TableSort, table_url, toggled, warning_notices
from explorer.graph.queries import GraphContext, NodeKind, open_graph
from explorer.http import Pager, build_pager
from explorer.links import Link, matrix_url
from search.engines import snapshot, with_engine
from search.engines.base import Engine
from search.facets import DATE_KEY
from search.listings import NO_TRENDS, Trends, trends
from search.query import SearchQuery
from search.result import SearchWarning
from text.formatting import day_label, number, plural
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


@dataclass(frozen=True)
class TablePage:
    """The page of a table: the template reads `table` itself, and here what has to be put together."""

    table: NodeTable
    notices: Sequence[Notice]
    zone: tzinfo = UTC
    columns: ClassVar = _COLUMNS
    types_shown: ClassVar = _TYPES_SHOWN

    def at(self, **changes: object) -> str:
        """The page with other parameters."""
        return table_url(self.table.kind, self.table.params.with_(**changes))

    @property
    def is_narrowed(self) -> bool:
        return bool(self.table.params.search or self.table.params.type)

    @property
    def summary(self) -> str:
        found = plural(self.table.total, self.table.kind.key, self.table.kind.plural)
        return f"{found} of {self.table.all:,}" if self.is_narrowed else found

    @cached_property
    def types(self) -> tuple[Link, ...]:
        """The types with their numbers, each a switch."""
        chosen = self.table.params.type
        return tuple(
            Link(name or "no type", self.at(type=toggled(chosen, name)), count=number(count), current=name in chosen)
            for name, count in self.table.types
        )

    def sort_url(self, key: str) -> str:
        """The table sorted by a column: the other way round if it is already."""
        sort = self.table.params.sort
        down = not sort.is_down if sort.column == key else key not in _UP_FIRST
        return self.at(sort=TableSort(f"-{key}" if down else key))

    @cached_property
    def sparks(self) -> Mapping[int | str, Sparkline]:
        kind, values = self.table.kind, {row.term.id: row.term.value for row in self.table.rows}
        return build_sparklines(
            self.table.trends, SearchQuery(), lambda pk: SearchQuery().only(kind.key, values[int(pk)])
        )

    @property
    def over_time_url(self) -> str:
        """The numbers of the small charts."""
        return matrix_url(SearchQuery(), {"rows": self.table.kind.key, "columns": DATE_KEY})

    @property
    def pager(self) -> Pager | None:
        table, params = self.table, self.table.params
        if table.pages < 2:
            return None
        return build_pager(params.page, table.pages, params.page_size, table.total, lambda page: self.at(page=page))

    def day(self, moment: datetime | None) -> str:
        return day_label(moment, self.zone) if moment else ""


def build_table(table: NodeTable, notices: Iterable[Notice], zone: tzinfo = UTC) -> TablePage:
    return TablePage(table, (*notices, *warning_notices(table.warnings)), zone)

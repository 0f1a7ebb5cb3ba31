"""A table of counts: the values of a facet against those of another facet, or against time.

The counting rule of facets holds for both: what the query selects in the facet of the rows, in that of the columns, or
by date is left out, so that each count is what choosing its row and its column would give.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from access.viewer import Viewer
from search.engines import snapshot, with_engine
from search.engines.base import Counts, Engine, EngineTimeoutError, FacetRequest, FacetValues, Spans, Value
from search.facet_counts import counted_rows, flat_request, ordered_by_name
from search.facets import DATE_KEY, FACET, FACETS, FacetKind, FacetSpec
from search.histogram import Histogram, bar_edges, build_histogram
from search.plan import ResolvedQuery, children_of, resolve_query
from search.query import ExtraParams, Interval, SearchQuery
from search.result import SearchWarning
from text.formatting import local_time
from web.params import Required, Text
from web.timing import Stopwatch
from web.validation import Problem

Axis = Literal[
    "project", "type", "category", "tag", "concept", "entity", "author", "agent", "source", "import", "state"
]
# States that are offered as rows or columns; deleted memories only if the query selects them.
_STATES = ("active", "archived", "proposed", "superseded")


class MatrixRequest(ExtraParams):
    """The rows and columns of a table of counts."""

    ineffective = frozenset({"sort", "page", "page_size", "offset", "include_facets", "facet_scope"})
    ineffective_message: ClassVar[str] = "has no effect on a table of counts"
    ineffective_suggestion: ClassVar[str] = "leave it out"

    rows: Annotated[Axis | Literal[""], Required("write a facet, such as rows=tag")] = Field(
        "", description="Facet of the rows."
    )
    columns: Axis | Literal["date"] = Field(
        "type", description="Facet of the columns, or `date` for periods, whose width `bucket` chooses."
    )
    parent: Text = Field("", description="For categories: the children of this one instead of the top level.")
    row_limit: int = Field(20, ge=1, le=100, description="Rows, those of most memories.")
    column_limit: int = Field(
        24, ge=1, le=400, description="Columns, those of most memories; periods are made wider until they are as few."
    )

    def conflicts(self) -> Iterator[Problem]:
        if self.rows and self.rows == self.columns and not FACET[self.rows].may_require_all:
            both = ", ".join(spec.key for spec in FACETS if spec.may_require_all)
            yield Problem(
                "columns", f"{self.rows} against itself says nothing", f"choose another facet; {both} may be both"
            )
        if self.parent and "category" not in {self.rows, self.columns}:
            yield Problem("parent", "is for categories, and neither rows nor columns are", "leave it out")

    def conflicts_with(self, query: SearchQuery) -> Iterator[Problem]:
        if query.bucket != Interval.AUTO and self.columns != DATE_KEY:
            yield Problem("bucket", "is for periods, and the columns are none", "leave it out, or use columns=date")


@dataclass(frozen=True, slots=True)
class Line:
    """A row or a column, and the number of its memories. The value of a period is its first day, `last` its last."""

    key: str
    value: str
    label: str
    count: int
    last: str = ""
    ref: Value = ""

    def choose(self, query: SearchQuery) -> SearchQuery:
        """The query with this row or column chosen, in place of what else it selects there."""
        if self.key == DATE_KEY:
            return query.between(self.value, self.last)
        chosen = query.selection(self.key)
        if chosen.require_all:
            return query.with_all(self.key, (*chosen.include, self.value))
        return query.with_(
            **{FACET[self.key].field: (self.value,), "no": tuple(key for key in query.no if key != self.key)}
        )


@dataclass(frozen=True, slots=True)
class Matrix:
    """Counts by row and column. `base` is the query that is counted, without what it selects in either."""

    query: SearchQuery
    base: SearchQuery
    request: MatrixRequest
    total: int
    rows: tuple[Line, ...] = ()
    columns: tuple[Line, ...] = ()
    cells: tuple[tuple[int, ...], ...] = ()
    distinct_rows: int = 0
    distinct_columns: int = 0
    periods: Histogram | None = None
    """The columns, if they are periods."""
    at_least: bool = False
    unavailable: str = ""
    warnings: tuple[SearchWarning, ...] = ()
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    def cell_query(self, row: Line, column: Line) -> SearchQuery:
        """The query that has exactly the memories of a cell."""
        if row.key == column.key:
            chosen = self.base.selection(row.key)
            kept = chosen.include if chosen.require_all else ()
            return self.base.with_all(row.key, (*kept, row.value, column.value))
        return column.choose(row.choose(self.base))


def matrix(query: SearchQuery, request: MatrixRequest, viewer: Viewer) -> Matrix:
    """Count the largest values of two facets against each other, or those of one over time."""
    return with_engine(lambda engine: _matrix(engine, query, request, viewer), viewer)


def base_query(query: SearchQuery, *keys: str) -> SearchQuery:
    """The query without its selections in some facets, or by date. What it excludes or requires together stays."""
    for key in keys:
        if key == DATE_KEY:
            query = query.without(DATE_KEY)
        elif key == "state":
            query = query.with_(state=query.state or _STATES, no=tuple(k for k in query.no if k != key))
        elif not query.selection(key).require_all:
            query = query.with_(**{FACET[key].field: (), "no": tuple(k for k in query.no if k != key)})
    return query


def _matrix(engine: Engine, query: SearchQuery, request: MatrixRequest, viewer: Viewer) -> Matrix:
    watch = Stopwatch(engine.waited_ms)
    base = base_query(query, request.rows, request.columns)
    with snapshot(), watch.stage("facets"):
        asked = resolve_query(engine, query, viewer, datetime.now(UTC))
        resolved = resolve_query(engine, base, viewer, asked.now)
        warnings = list(asked.warnings)
        found = Matrix(query, base, request, 0)
        try:
            if request.columns == DATE_KEY:
                found, resolved = _with_periods(engine, found, asked, resolved)
            found = _counted(engine, found, resolved, warnings)
        except EngineTimeoutError:
            found = replace(found, unavailable="Counting took too long. A narrower search is faster.")
    return replace(
        found,
        at_least=engine.knn(resolved.plan).truncated,
        warnings=tuple(warnings),
        labels=dict(asked.labels),
        timings=watch.timings,
    )


def _with_periods(
    engine: Engine, found: Matrix, asked: ResolvedQuery, resolved: ResolvedQuery
) -> tuple[Matrix, ResolvedQuery]:
    """With the periods as columns. Dates of the query are extended to whole periods, so that each can be chosen."""
    plan, zone = resolved.plan, resolved.zone
    counts = engine.counts(plan, [], zone=zone, now=resolved.now)
    histogram = _periods(counts, asked, found.request.column_limit, found.query.bucket)
    bars, edges = histogram.bars, bar_edges(histogram.bars, zone)
    lines = tuple(Line(DATE_KEY, bar.first, bar.label, bar.all, bar.last) for bar in bars)
    found = replace(found, columns=lines, distinct_columns=len(lines), periods=histogram)
    if bars and found.query.has_dates:
        found = replace(found, base=found.base.between(bars[0].first, bars[-1].last))
        resolved = replace(resolved, plan=replace(plan, start=edges[0], end=edges[-1]))
    return found, resolved


def _counted(engine: Engine, found: Matrix, resolved: ResolvedQuery, warnings: list[SearchWarning]) -> Matrix:
    request, plan, zone = found.request, resolved.plan, resolved.zone
    limits: dict[str, int] = {request.rows: request.row_limit}
    if found.periods is None:
        limits[request.columns] = max(request.column_limit, limits.get(request.columns, 0))
    requests = [
        _request(engine, FACET[key], resolved, limit, request.parent, warnings) for key, limit in limits.items()
    ]
    total = engine.match([plan], reuse=True)[0].total
    counts = engine.counts(plan, requests, zone=zone, now=resolved.now, days=False)
    rows, distinct = _lines(FACET[request.rows], counts, resolved, request.row_limit)
    found = replace(found, total=total, rows=rows, distinct_rows=distinct)
    columns: FacetValues | Spans
    if found.periods is not None:
        columns = Spans(bar_edges(found.periods.bars, zone))
    else:
        lines, others = _lines(FACET[request.columns], counts, resolved, request.column_limit)
        columns = FacetValues(request.columns, tuple(line.ref for line in lines))
        found = replace(found, columns=lines, distinct_columns=others)
    cells = engine.cross(plan, FacetValues(request.rows, tuple(row.ref for row in rows)), columns)
    return replace(found, cells=tuple(tuple(row) for row in cells.tolist()))


def _request(
    engine: Engine, spec: FacetSpec, resolved: ResolvedQuery, limit: int, parent: str, warnings: list[SearchWarning]
) -> FacetRequest:
    """The largest values of a facet; of categories those of one level, since a category contains the ones below it."""
    if spec.kind != FacetKind.TREE:
        return flat_request(spec, resolved.plan, limit)
    if not parent:
        roots = (node.id for node in resolved.names.tree(()) if node.parent_id is None)
        return flat_request(spec, resolved.plan, limit, tuple(roots))
    return flat_request(spec, resolved.plan, limit, children_of(engine, resolved, parent, warnings))


def _lines(spec: FacetSpec, counts: Counts, resolved: ResolvedQuery, limit: int) -> tuple[tuple[Line, ...], int]:
    """The rows or columns of a facet, and the number of values that it has."""
    counted = counts.facets[spec.key]
    if resolved.plan.project_ids is not None:
        counted = ordered_by_name(spec, counted, limit, resolved)
    shown = [value for value in counted.values if value.count][:limit]
    lines = tuple(
        Line(spec.key, value.value, value.label.rpartition(" / ")[2], value.count, ref=value.ref)
        for value in counted_rows(spec, shown, resolved, {})
        if value.ref is not None and not value.excluded
    )
    distinct = sum(1 for value in counted.values if value.count) if spec.kind == FacetKind.TREE else counted.distinct
    return lines, distinct


def _periods(counts: Counts, asked: ResolvedQuery, most: int, requested: Interval) -> Histogram:
    """Periods over the dates of the query, or over all of its memories."""
    if not len(counts.days.days):
        return Histogram()
    first, last = (date.fromordinal(int(counts.days.days[at])) for at in (0, -1))
    if asked.plan.start is not None:
        first = max(first, local_time(asked.plan.start, asked.zone).date())
    if asked.plan.end is not None:
        last = min(last, local_time(asked.plan.end - timedelta(microseconds=1), asked.zone).date())
    return build_histogram(counts.days, (first, last), requested, most) if first <= last else Histogram()

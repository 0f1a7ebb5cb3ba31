"""The comparison of two slices, and a table of counts, as JSON: the same numbers as the pages."""

from typing import Any

from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.explore.timeline_api import IndexRow, QueryWarning, index_row, query_warning
from explorer.operations import read_operation
from search.compare import Comparison, Difference, Side, compare
from search.matrix import Line, Matrix, MatrixRequest, matrix
from search.result import SearchWarning
from search.slices import CompareRequest, read_comparison
from web.errors import ApiError
from web.params import pairs_of
from web.timing import Timings, timed, took_ms

router = Router()


class ComparedStep(BaseModel):
    """A stretch of time; both days are included."""

    first: str
    last: str
    count: int


class ComparedSlice(BaseModel):
    """One of the two slices."""

    parameters: dict[str, Any] = Field(description="The parameters of its own.")
    query: str = Field(description="The query string of the search that finds exactly its memories.")
    total: int
    without_text: int | None = Field(description="The memories that pass its filters alone; null without a text.")
    by_agents: int
    categorised: int
    superseded: int | None = Field(description="Those superseded since, which it leaves out; null if it has states.")
    steps: list[ComparedStep]
    typical: list[IndexRow] = Field(description="Memories with the most of the values that are typical of it.")


class ValueDifference(BaseModel):
    """A value in both slices. `g2` is the log-likelihood ratio: how little chance explains the difference."""

    facet: str
    value: str
    label: str
    a: int
    b: int
    share_a: float
    share_b: float
    lift: float | None = Field(description="share_b divided by share_a; null if no memory of A has the value.")
    g2: float


class CompareReply(BaseModel):
    """Two slices, null if there is nothing to choose, and the values that are more frequent in one of them."""

    a: ComparedSlice | None
    b: ComparedSlice | None
    differs: list[ValueDifference] = Field(description="Values of both slices, the strongest evidence first.")
    differing: int = Field(description="How many values differ; `values` limits how many are listed.")
    only_a: list[ValueDifference] = Field(description="Values of A alone, the most frequent first.")
    only_in_a: int
    only_b: list[ValueDifference] = Field(description="Values of B alone, the most frequent first.")
    only_in_b: int
    not_compared: list[str] = Field(description="Facets that the slices are chosen by.")
    cut: list[str] = Field(description="Facets with more values than are compared, the most frequent ones.")
    interval: str
    aligned: bool = Field(description="Whether the steps of each slice begin with its own first day.")
    lower_bounds: list[str] = Field(description="`a` and `b`, if the numbers of the slice are lower bounds.")
    filters: dict[str, Any] = Field(description="The parameters that the slices share.")
    warnings: list[QueryWarning]
    took_ms: float


@read_operation(router, "/compare", "compare", CompareReply, parameters=CompareRequest.openapi_with_query())
@timed
def compare_slices(request: ApiRequest) -> tuple[Timings, CompareReply]:
    """Which values are more frequent in one of two slices, such as periods, agents or projects, than in the other."""
    viewer = allowed(request, "read")
    found = compare(read_comparison(pairs_of(request.GET)), viewer)
    return found.timings, compare_reply(found)


def compare_reply(found: Comparison) -> CompareReply:
    asked = found.asked.request
    differs, only_a, only_b = (
        [row for row in rows if asked.facet in ("", row.key)] for rows in (found.differs, found.only_a, found.only_b)
    )
    unavailable = (SearchWarning(found.unavailable),) if found.unavailable else ()
    return CompareReply(
        a=_slice(found.a),
        b=_slice(found.b),
        differs=[_difference(row) for row in differs[: asked.values]],
        differing=len(differs),
        only_a=[_difference(row) for row in only_a[: asked.values]],
        only_in_a=len(only_a),
        only_b=[_difference(row) for row in only_b[: asked.values]],
        only_in_b=len(only_b),
        not_compared=list(found.left_out),
        cut=list(found.cut),
        interval=found.interval.value,
        aligned=found.aligned,
        lower_bounds=[name for name, side in (("a", found.a), ("b", found.b)) if side and side.at_least],
        filters=found.asked.shared.applied(),
        warnings=[query_warning(warning) for warning in (*found.warnings, *unavailable)],
        took_ms=took_ms(found.timings),
    )


def _slice(side: Side | None) -> ComparedSlice | None:
    if side is None:
        return None
    return ComparedSlice(
        parameters=side.own.applied(),
        query=side.query.querystring(),
        total=side.total,
        without_text=side.without_text,
        by_agents=side.by_agents,
        categorised=side.categorised,
        superseded=side.superseded,
        steps=[ComparedStep(first=s.first.isoformat(), last=s.last.isoformat(), count=s.count) for s in side.steps],
        typical=[index_row(hit) for hit in side.typical],
    )


def _difference(row: Difference) -> ValueDifference:
    return ValueDifference(
        facet=row.key,
        value=row.value,
        label=row.label,
        a=row.a,
        b=row.b,
        share_a=round(row.share_a, 6),
        share_b=round(row.share_b, 6),
        lift=None if row.lift is None else round(row.lift, 4),
        g2=round(row.evidence, 4),
    )


class MatrixLine(BaseModel):
    """A row or a column. Of a period, `value` is the first day and `last` the last."""

    value: str
    label: str
    count: int = Field(description="Its memories in all columns or rows, those that are not listed included.")
    last: str = ""


class MatrixReply(BaseModel):
    """`cells[n][m]` counts the memories that belong to row n and column m."""

    rows_of: str
    columns_of: str
    interval: str = Field(description="The width of periods: day, week, month, quarter or year; else empty.")
    step: int = Field(description="Number of years per period, if the interval is a year.")
    rows: list[MatrixLine]
    columns: list[MatrixLine]
    cells: list[list[int]]
    distinct_rows: int = Field(description="Values of the facet, listed or not.")
    distinct_columns: int
    total: int = Field(description="Memories of the query without its selections in rows and columns.")
    lower_bounds: bool = Field(description="Whether all counts are lower bounds, because of the semantic ceiling.")
    filters: dict[str, Any] = Field(description="The parsed query, by canonical name.")
    warnings: list[QueryWarning]
    took_ms: float


@read_operation(router, "/matrix", "matrix", MatrixReply, 503, parameters=MatrixRequest.openapi_with_query())
@timed
def matrix_of(request: ApiRequest) -> tuple[Timings, MatrixReply]:
    """Counts of two facets against each other, or of one over time, under a query."""
    viewer = allowed(request, "read")
    extra, query = MatrixRequest.with_query(pairs_of(request.GET))
    found = matrix(query, extra, viewer)
    if found.unavailable:
        raise ApiError(503, "too_slow", found.unavailable, "Add a filter, or ask for fewer rows and columns.")
    return found.timings, _reply(found)


def _reply(found: Matrix) -> MatrixReply:
    return MatrixReply(
        rows_of=found.request.rows,
        columns_of=found.request.columns,
        interval=found.periods.interval.value if found.periods else "",
        step=found.periods.step if found.periods else 1,
        rows=[_line(line) for line in found.rows],
        columns=[_line(line) for line in found.columns],
        cells=[list(row) for row in found.cells],
        distinct_rows=found.distinct_rows,
        distinct_columns=found.distinct_columns,
        total=found.total,
        lower_bounds=found.at_least,
        filters=found.query.applied(),
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=took_ms(found.timings),
    )


def _line(line: Line) -> MatrixLine:
    return MatrixLine(value=line.value, label=line.label, count=line.count, last=line.last)

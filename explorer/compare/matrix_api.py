"""Tables of counts as JSON."""

from typing import Any

from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.explore.timeline_api import QueryWarning, query_warning
from explorer.operations import read_operation
from search.matrix import Line, Matrix, MatrixRequest, matrix
from web.errors import ApiError
from web.params import pairs_of
from web.timing import Timings, timed, took_ms

router = Router()


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

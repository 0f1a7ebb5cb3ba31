"""The page of a table of counts: each cell a link to its memories, shaded by its number or by what is expected."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from explorer.explore.histogram_plot import INTERVAL_LABELS, Option
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, HiddenField, build_chips, form_fields
from explorer.links import Link, explore_url, matrix_url
from explorer.page_query import PageQuery
from search.facets import DATE_KEY, FACET, FACETS
from search.matrix import Axis, Line, Matrix, MatrixRequest
from search.query import Interval, SearchQuery
from text.formatting import memories, number, plural

# The number of shades of a count, and the deviations at which the shades of a deviation begin.
_SHADES = 7
_NOTABLE = (2.0, 4.0, 8.0)
_MORE_ROWS = (20, 50, 100)


class Shade(StrEnum):
    """The meaning of the colour of a cell."""

    COUNT = "count"
    TYPICAL = "typical"


class MatrixPageRequest(MatrixRequest):
    """The parameters of the page."""

    rows: Axis = Field("tag", description="Facet of the rows.")
    shade: Shade = Field(Shade.COUNT, description="Colour cells by count, or by more and less than expected.")


@dataclass(frozen=True, slots=True)
class MatrixCell:
    url: str
    text: str
    name: str
    shade: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    label: str
    url: str
    count: str
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True, slots=True)
class MatrixContext:
    title: str
    summary: str
    heading: str
    total: str
    results_url: str
    chips: tuple[Chip, ...]
    notices: tuple[Notice, ...]
    note: str
    row_choices: tuple[Option, ...]
    column_choices: tuple[Option, ...]
    intervals: tuple[Option, ...]
    """The widths of periods, if the columns are some."""
    shades: tuple[Option, ...]
    hidden: tuple[HiddenField, ...]
    columns: tuple[Link, ...]
    column_counts: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    more: tuple[Link, ...]
    turned: Link | None
    """The same table with rows and columns exchanged, if time is neither."""
    unavailable: str


def build_matrix(
    query: PageQuery, request: MatrixPageRequest, found: Matrix, problems: Sequence[Notice] = ()
) -> MatrixContext:
    """The context of the page."""
    by = "time" if request.columns == DATE_KEY else FACET[request.columns].label.lower()
    title = f"{plural_label(request.rows)} by {by}"
    here = dict(request.parameters())
    warnings = (Notice(w.message, suggestion=did_you_mean_text(w.did_you_mean)) for w in found.warnings)
    return MatrixContext(
        title=f"{title} · {memories(found.total, at_least=found.at_least)}",
        summary=_summary(found),
        heading=title,
        total=memories(found.total, at_least=found.at_least),
        results_url=explore_url(query),
        chips=build_chips(query, found.labels),
        notices=(*problems, *warnings),
        note=_note(found),
        row_choices=_axes(request.rows, [spec.key for spec in FACETS]),
        column_choices=_axes(request.columns, [DATE_KEY, *(spec.key for spec in FACETS)]),
        intervals=tuple(
            Option("" if interval == Interval.AUTO else interval.value, label, query.bucket == interval)
            for interval, label in INTERVAL_LABELS.items()
            if interval != Interval.HOUR and request.columns == DATE_KEY
        ),
        shades=(
            Option("", "by number", request.shade is Shade.COUNT),
            Option(Shade.TYPICAL.value, "by more or less than expected", request.shade is Shade.TYPICAL),
        ),
        hidden=tuple(field for field in form_fields(query) if field.name != "bucket"),
        columns=tuple(_line_link(found, column) for column in found.columns),
        column_counts=tuple(number(column.count, at_least=found.at_least) for column in found.columns),
        rows=_rows(found, request.shade),
        more=_more(query, request, found),
        turned=_turned(query, request, here),
        unavailable=found.unavailable,
    )


def plural_label(key: str) -> str:
    plural_names = {"category": "Categories", "entity": "Entities"}
    return plural_names.get(key, f"{FACET[key].label}s")


def _axes(chosen: str, keys: Sequence[str]) -> tuple[Option, ...]:
    return tuple(Option(key, "time" if key == DATE_KEY else FACET[key].label.lower(), key == chosen) for key in keys)


def _summary(found: Matrix) -> str:
    rows = _shown(len(found.rows), found.distinct_rows, found.request.rows)
    rows = rows[:1].upper() + rows[1:]
    if found.periods is not None:
        return f"{rows}, by {found.periods.interval.value}"
    return f"{rows}, {_shown(len(found.columns), found.distinct_columns, found.request.columns)}"


def _shown(shown: int, distinct: int, key: str) -> str:
    one = FACET[key].label.lower()
    many = plural_label(key).lower()
    if shown < distinct:
        return f"the {shown:,} most frequent of {plural(distinct, one, many)}"
    return plural(distinct, one, many)


def _note(found: Matrix) -> str:
    """Names the part of the query that the counts leave out, and periods that are wider than wanted."""
    parts = []
    left_out = [
        FACET[key].label.lower()
        for key in dict.fromkeys((found.request.rows, found.request.columns))
        if key != DATE_KEY and found.query.selection(key).include and not found.query.selection(key).require_all
    ]
    if left_out:
        parts.append(f"The selected {' and '.join(left_out)} is left out here, so that others can be compared with it.")
    if found.periods is not None and found.periods.coarsened_from is not None:
        parts.append(f"Too many columns by {found.periods.coarsened_from.value}; choose dates to see fewer.")
    return " ".join(parts)


def _line_link(found: Matrix, line: Line) -> Link:
    return Link(line.label, explore_url(line.choose(found.base)), count=number(line.count, at_least=found.at_least))


def _rows(found: Matrix, shade: Shade) -> tuple[MatrixRow, ...]:
    peak = max((count for row in found.cells for count in row), default=0)
    rows = []
    for line, counts in zip(found.rows, found.cells, strict=True):
        link = _line_link(found, line)
        cells = tuple(
            _cell(found, line, column, count, shade, peak) for column, count in zip(found.columns, counts, strict=True)
        )
        rows.append(MatrixRow(link.label, link.url, link.count, cells))
    return tuple(rows)


def _cell(found: Matrix, row: Line, column: Line, count: int, shade: Shade, peak: int) -> MatrixCell:
    expected = row.count * column.count / found.total if found.total else 0.0
    name = f"{row.label}, {column.label}: {number(count, at_least=found.at_least)}"
    shown = f"{count:,}"
    if shade is Shade.TYPICAL:
        name += f", {expected:,.1f} expected"
        colour = _deviation(count, expected)
    else:
        colour = count_shade(count, peak)
    url = explore_url(found.cell_query(row, column)) if count else ""
    return MatrixCell(url, shown if count or colour else "", name, colour)


def count_shade(count: int, peak: int) -> str:
    """The class of a cell by its count."""
    return f"l{math.ceil(_SHADES * math.sqrt(count / peak))}" if count else ""


def _deviation(count: int, expected: float) -> str:
    """The class of a cell that has notably more or fewer memories than its row and column let expect.

    The deviation is in units of the standard deviation of a count of this size (a Pearson residual).
    """
    if not expected:
        return ""
    residual = (count - expected) / math.sqrt(expected)
    size = sum(1 for bound in _NOTABLE if abs(residual) >= bound)
    return f"{'more' if residual > 0 else 'fewer'}{size}" if size else ""


def _more(query: SearchQuery, request: MatrixPageRequest, found: Matrix) -> tuple[Link, ...]:
    """Links to more rows."""
    return tuple(
        Link(
            f"{limit}",
            matrix_url(query, dict(request.replace(row_limit=limit).parameters())),
            current=limit == request.row_limit,
        )
        for limit in _MORE_ROWS
        if found.distinct_rows > _MORE_ROWS[0]
    )


def _turned(query: SearchQuery, request: MatrixPageRequest, here: dict[str, str]) -> Link | None:
    if request.columns == DATE_KEY or request.rows == request.columns:
        return None
    turned = request.replace(rows=request.columns, columns=request.rows)
    return Link("Swap rows and columns", matrix_url(query, dict(turned.parameters())))

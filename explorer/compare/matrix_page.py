"""The page of a table of counts: each cell a link to its memories, shaded by its number or by what is expected."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from pydantic import Field

from explorer.explore.histogram_plot import INTERVAL_LABELS
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, HiddenField, build_chips, form_fields
from explorer.links import explore_url, matrix_url
from explorer.page_query import PageQuery
from search.facets import DATE_KEY, FACET, FACETS
from search.matrix import Axis, Line, Matrix, MatrixRequest
from search.query import Interval
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


@dataclass(frozen=True)
class MatrixPage:
    """The page: the template reads `found` itself, and here what has to be put together."""

    query: PageQuery
    asked: MatrixPageRequest
    found: Matrix
    problems: Sequence[Notice] = ()

    @property
    def title(self) -> str:
        by = "time" if self.is_by_time else FACET[self.asked.columns].label.lower()
        return f"{plural_label(self.asked.rows)} by {by}"

    @property
    def is_by_time(self) -> bool:
        return self.asked.columns == DATE_KEY

    @property
    def total(self) -> str:
        return memories(self.found.total, at_least=self.found.at_least)

    @property
    def summary(self) -> str:
        return _summary(self.found)

    @property
    def note(self) -> str:
        return _note(self.found)

    @property
    def chips(self) -> tuple[Chip, ...]:
        return build_chips(self.query, self.found.labels)

    @property
    def notices(self) -> tuple[Notice, ...]:
        warnings = self.found.warnings
        shown = (Notice(one.message, suggestion=did_you_mean_text(one.did_you_mean)) for one in warnings)
        return (*self.problems, *shown)

    @property
    def hidden(self) -> tuple[HiddenField, ...]:
        return tuple(field for field in form_fields(self.query) if field.name != "bucket")

    @property
    def axes(self) -> dict[str, str]:
        """The facets that rows and columns can be, with their names in the form."""
        return {spec.key: spec.label.lower() for spec in FACETS}

    @property
    def intervals(self) -> dict[Interval, str]:
        """The widths of periods."""
        return {interval: label for interval, label in INTERVAL_LABELS.items() if interval != Interval.HOUR}

    def at(self, **changes: object) -> str:
        """The page with other parameters."""
        return matrix_url(self.query, dict(self.asked.replace(**changes).parameters()))

    @property
    def row_limits(self) -> tuple[int, ...]:
        """The numbers of rows to choose from, if there is a choice."""
        return _MORE_ROWS if self.found.distinct_rows > _MORE_ROWS[0] else ()

    @property
    def rows(self) -> list[tuple[Line, tuple[int, ...]]]:
        return list(zip(self.found.rows, self.found.cells, strict=True))

    def line_url(self, line: Line) -> str:
        return explore_url(line.choose(self.found.base))

    def cell_url(self, row: Line, column: Line) -> str:
        return explore_url(self.found.cell_query(row, column))

    def cell_name(self, row: Line, column: Line, count: int) -> str:
        name = f"{row.label}, {column.label}: {number(count, at_least=self.found.at_least)}"
        if self.asked.shade is not Shade.TYPICAL:
            return name
        return f"{name}, {self._expected_count(row, column):,.1f} expected"

    def cell_shade(self, row: Line, column: Line, count: int) -> str:
        """The class of a cell by its count, or by how far it is from what is expected."""
        if self.asked.shade is Shade.TYPICAL:
            return _deviation(count, self._expected_count(row, column))
        return f"l{math.ceil(_SHADES * math.sqrt(count / self._peak))}" if count else ""

    def _expected_count(self, row: Line, column: Line) -> float:
        return row.count * column.count / self.found.total if self.found.total else 0.0

    @cached_property
    def _peak(self) -> int:
        return max((count for row in self.found.cells for count in row), default=0)


def plural_label(key: str) -> str:
    plural_names = {"category": "Categories", "entity": "Entities"}
    return plural_names.get(key, f"{FACET[key].label}s")


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


def _deviation(count: int, expected: float) -> str:
    """The class of a cell that has notably more or fewer memories than its row and column let expect.

    The deviation is in units of the standard deviation of a count of this size (a Pearson residual).
    """
    if not expected:
        return ""
    residual = (count - expected) / math.sqrt(expected)
    size = sum(1 for bound in _NOTABLE if abs(residual) >= bound)
    return f"{'more' if residual > 0 else 'fewer'}{size}" if size else ""

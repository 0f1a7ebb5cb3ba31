"""The Postgres engine: SQL only, no second index. The reference that other engines are tested against.

Statements are composed from the constants below and the conditions and counts of `search.engines.sql`. Where memories
are spread over shards, `search.engines.shards` has other forms of some.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from memories.models import Corpus
from search.area import Tile
from search.engines.base import (
    COARSE_BITS,
    NO_NEIGHBOURS,
    TILE_BITS,
    Counts,
    EngineQuery,
    EngineTimeoutError,
    FacetRequest,
    FacetValues,
    Filter,
    Ids,
    MapTile,
    MatchSet,
    Neighbours,
    Place,
    Spans,
    Value,
    VectorQuery,
)
from search.engines.knn import nearest_candidates, similarities_of
from search.engines.sql import Sql, count_matches, read_summary, summary_selects
from search.facets import FACET, OWN_CATEGORIES, FacetKind
from search.histogram import Numbers
from search.query import Sort

# The key of each order, its direction, and the comparison that holds after a place. Ties are broken by the id.
_ORDERS = {
    # memory_created_idx serves newest and oldest where nothing filters.
    Sort.NEWEST: ("m.created_at", "DESC", "<"),
    Sort.OLDEST: ("m.created_at", "ASC", ">"),
    # memory_updated_idx
    Sort.UPDATED: ("m.updated_at", "DESC", "<"),
    Sort.TITLE: ('lower(m.title) COLLATE "C"', "ASC", ">"),
    # The primary key of the recalls.
    Sort.RECALLED: ("coalesce(recall.total, 0)", "DESC", "<"),
}
_KEY_TYPES = {Sort.TITLE: "text", Sort.RECALLED: "integer"}


def _ordered_rows(order: Sort) -> str:
    """The tables that an order reads."""
    rows = "memories_memory m"
    return f"{rows} LEFT JOIN memories_recall recall ON recall.memory_id = m.id" if order == Sort.RECALLED else rows


def _order_by(order: Sort) -> str:
    key, direction, _ = _ORDERS[order]
    return f"{key} {direction}, m.id {direction}"


_SPANS = """
SELECT width_bucket(m.created_at, {edges}::timestamptz[]), count(*), count(*) FILTER (WHERE {inside})
FROM memories_memory m WHERE {where} AND m.created_at >= {first} AND m.created_at < {last} GROUP BY 1"""
# The counts of a table. A span is numbered from 1; 0 is before the first edge.
_CROSS = """
SELECT u.r::text, u.c::text, count(*) FROM (
  SELECT p.r, {column} AS c FROM (
    SELECT {row} AS r, {source} AS c FROM memories_memory m WHERE {where}
  ) p WHERE p.r = ANY({rows})
) u WHERE u.c = ANY({columns}) GROUP BY 1, 2"""
# The matches that have a place on a map. The primary key of places begins with the memory.
_ON_MAP = """FROM memories_memory m JOIN memories_mapplace p ON p.memory_id = m.id AND p.layout_id = {layout}
WHERE {where}"""
_WORK_MEM = "64MB"
_SIMILAR_TERM_ROWS = 2_000
# Rows to look for where one is enough: for one alone the planner reads the table until it finds one, all of it if there
# is none, instead of the index.
SOME = 1_000


class _RowCandidates:
    """The memories that pass all filters of a query; see `search.engines.knn.Candidates`."""

    def __init__(
        self,
        rows: Callable[[str, Sql], list[Any]],
        plan: EngineQuery,
        without_includes: str,
        without_dates: bool,
    ) -> None:
        self._rows = rows
        self._sql = Sql()
        conditions = self._sql.filters(plan, without_includes=without_includes, without_dates=without_dates)
        self._where = " AND ".join([*conditions, *self._sql.always(plan)]) or "true"

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        bound = self._sql.bind(ids.tolist())
        statement = f"SELECT m.id FROM memories_memory m WHERE m.id = ANY({bound}::bigint[]) AND {self._where}"
        return np.isin(ids, self._ids_of(statement))

    def count(self, most: int | None = None) -> int | None:
        some = "" if most is None else f" LIMIT {self._sql.bind(most + 1)}"
        rows = f"SELECT 1 FROM memories_memory m WHERE {self._where}{some}"
        ((count,),) = self._rows(f"SELECT count(*) FROM ({rows}) AS passing", self._sql)
        return None if most is not None and count > most else int(count)

    def ids(self) -> Ids:
        return self._ids_of(f"SELECT m.id FROM memories_memory m WHERE {self._where}")

    def _ids_of(self, statement: str) -> Ids:
        return np.array([memory_id for (memory_id,) in self._rows(statement, self._sql)], np.int64)


@contextmanager
def _time_limit() -> Iterator[None]:
    """Set a time limit for the statements inside. Raise EngineTimeoutError, and leave the outer transaction usable."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config('statement_timeout', %s, true), set_config('work_mem', %s, true)",
                    [str(settings.SEARCH_FACET_TIMEOUT_MS), _WORK_MEM],
                )
            yield
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', '0', true)")
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise EngineTimeoutError(str(error)) from error
        raise


class PostgresEngine:
    """Implements `search.engines.base.Engine` in SQL."""

    name = "postgres"
    seconds_behind = 0.0
    _count = staticmethod(count_matches)
    waited_ms = 0.0

    @property
    def revision(self) -> str:
        return str(Corpus.objects.values_list("revision", flat=True).get(pk=1))

    def __init__(self) -> None:
        self._neighbours: dict[tuple[EngineQuery, str, bool], Neighbours] = {}

    def knn(self, plan: EngineQuery) -> Neighbours:
        return self._knn(plan, "", False)

    def similarities(self, meaning: VectorQuery, ids: Sequence[int]) -> dict[int, float]:
        return similarities_of(meaning, ids)

    def filter_ids(self, plan: EngineQuery, ids: Sequence[int]) -> set[int]:
        sql = self._sql()
        where = sql.where(plan)
        statement = f"SELECT m.id FROM memories_memory m WHERE m.id = ANY({sql.bind(list(ids))}::bigint[]) AND {where}"
        return {memory_id for (memory_id,) in self._rows(statement, sql)}

    def word_scores(self, plan: EngineQuery, ids: Sequence[int]) -> dict[int, float]:
        sql = self._sql()
        score = sql.word_rank(plan)
        bound = sql.bind(list(ids))
        rows = self._rows(f"SELECT m.id, {score} FROM memories_memory m WHERE m.id = ANY({bound}::bigint[])", sql)
        return {memory_id: float(score) for memory_id, score in rows if score}

    def match(self, plans: Sequence[EngineQuery], *, no_values: bool = False, reuse: bool = False) -> list[MatchSet]:
        if no_values:
            return [self._match_set_with_no_values(plan) for plan in plans]
        if not plans:
            return []
        totals = self._totals(plans)
        return [MatchSet(totals[k], truncated=self.knn(plan).truncated) for k, plan in enumerate(plans)]

    def _totals(self, plans: Sequence[EngineQuery]) -> dict[int, int]:
        """The number of matches of each query, by its place."""
        sql = self._sql()
        selects = [
            f"SELECT {k} AS k, count(*) FROM memories_memory m WHERE {sql.where(plan)}" for k, plan in enumerate(plans)
        ]
        return dict(self._rows_of_all(selects, sql))

    def _match_set_with_no_values(self, plan: EngineQuery) -> MatchSet:
        sql = self._sql()
        rows = self._rows_of_all(summary_selects(sql, plan, "memories_memory"), sql)
        return replace(read_summary(rows, plan), truncated=self.knn(plan).truncated)

    def any_match(self, plans: Sequence[EngineQuery]) -> list[bool]:
        if not plans:
            return []
        sql = self._sql()
        some = [f"SELECT 1 FROM memories_memory m WHERE {sql.where(plan)} LIMIT {SOME}" for plan in plans]
        (row,) = self._rows(f"SELECT {', '.join(f'(SELECT count(*) > 0 FROM ({one}) s)' for one in some)}", sql)
        return list(row)

    def values_present(self, plan: EngineQuery, key: str, values: Sequence[Value]) -> set[Value]:
        found = self.any_match([plan.with_filter(Filter(key, include=((value,),))) for value in values])
        return {value for value, is_present in zip(values, found, strict=True) if is_present}

    def hits(self, plan: EngineQuery, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        sql = self._sql()
        if order == Sort.RELEVANCE:
            score, by = sql.rank(plan), f"2 DESC, {_order_by(Sort.NEWEST)}"
        else:
            score, by = "NULL::real", _order_by(order)
        where = sql.where(plan)
        statement = (
            f"SELECT m.id, {score} FROM {_ordered_rows(order)} WHERE {where} ORDER BY {by}"
            f" LIMIT {sql.bind(limit)} OFFSET {sql.bind(offset)}"
        )
        return list(self._rows(statement, sql))

    def places(
        self, plan: EngineQuery, order: Sort, *, limit: int, offset: int = 0, after: Place | None = None
    ) -> list[Place]:
        sql = self._sql()
        key, _, beyond = _ORDERS[order]
        where = sql.where(plan)
        if after is not None:
            kind = _KEY_TYPES.get(order, "timestamptz")
            where += f" AND ({key}, m.id) {beyond} ({sql.bind(after.key)}::{kind}, {sql.bind(after.id)}::bigint)"
        statement = (
            f"SELECT {key}, m.id FROM {_ordered_rows(order)} WHERE {where} ORDER BY {_order_by(order)}"
            f" LIMIT {sql.bind(limit)} OFFSET {sql.bind(offset)}"
        )
        return [Place(*row) for row in self._rows(statement, sql)]

    def counts(
        self, plan: EngineQuery, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        counts = self._count(plan, requests, zone=zone, now=now, days=days, new_sql=self._sql, fetch=self._rows_in_time)
        return self._mark_truncated(counts, plan)

    def span_counts(self, plan: EngineQuery, spans: Spans) -> tuple[Numbers, Numbers]:
        sql, counts = self._sql(), np.zeros((2, len(spans)), np.int64)
        statement = _SPANS.format(
            edges=sql.bind(list(spans.edges)),
            inside=" AND ".join(sql.inside(plan)) or "true",
            where=sql.where(plan, without_dates=True),
            first=sql.bind(spans.edges[0]),
            last=sql.bind(spans.edges[-1]),
        )
        for span, *both in self._rows(statement, sql):
            counts[:, span - 1] = both
        return counts[0], counts[1]

    def cross(self, plan: EngineQuery, rows: FacetValues, columns: FacetValues | Spans) -> Numbers:
        found = np.zeros((len(rows), len(columns)), np.int64)
        if not found.size:
            return found
        sql = self._sql()
        row = _ValueColumn.of(rows.key, plan)
        if isinstance(columns, Spans):
            edges = f"{sql.bind(list(columns.edges))}::timestamptz[]"
            column = _ValueColumn(f"width_bucket(m.created_at, {edges})", is_array=False, cast="int")
            names: Sequence[Value] = range(1, len(columns) + 1)
        else:
            column, names = _ValueColumn.of(columns.key, plan), columns.values
        statement = _CROSS.format(
            row=f"unnest({row.source})" if row.is_array else row.source,
            source=column.source,
            column="unnest(p.c)" if column.is_array else "p.c",
            rows=row.bound(sql, rows.values),
            columns=column.bound(sql, names),
            where=f"{sql.where(plan)} AND {row.having(sql, rows.values)}",
        )
        counted = self._rows_in_time(statement, sql)
        places = {str(value): n for n, value in enumerate(rows.values)}
        across = {str(value): n for n, value in enumerate(names)}
        for value, other, count in counted:
            found[places[value], across[other]] = count
        return found

    def map_tile(
        self, plan: EngineQuery, layout: tuple[int, int], tile: Tile, groups: Sequence[EngineQuery], *, limit: int
    ) -> MapTile:
        sql = self._sql()
        low = (tile.column << tile.bits, tile.row << tile.bits)
        side = 1 << tile.bits
        within = " AND ".join(
            f"p.{axis} >= {sql.bind(start)} AND p.{axis} < {sql.bind(start + side)}"
            for axis, start in zip("xy", low, strict=True)
        )
        number = "".join(f" WHEN {sql.where(group)} THEN {n}" for n, group in enumerate(groups, 1))
        group_of = f"CASE{number} ELSE 0 END" if groups else "0"
        rows = _ON_MAP.format(layout=sql.bind(layout[0]), where=f"{sql.where(plan)} AND {within}")
        with _time_limit():
            points = self._rows(f"SELECT p.x, p.y, {group_of}, 1 {rows} LIMIT {sql.bind(limit + 1)}", sql)
            is_grid = len(points) > limit
            if is_grid:
                shift, last = sql.bind(tile.bits - TILE_BITS), (1 << TILE_BITS) - 1
                square = f"p.x >> {shift} & {last}, p.y >> {shift} & {last}"
                points = self._rows(f"SELECT {square}, {group_of}, count(*) {rows} GROUP BY 1, 2, 3", sql)
        xs, ys, numbers, counts = np.array(points, np.int64).reshape(-1, 4).T
        return MapTile(
            int(counts.sum()),
            xs.astype(np.uint16),
            ys.astype(np.uint16),
            numbers.astype(np.uint8),
            counts,
            is_grid=is_grid,
        )

    def map_cells(
        self, plan: EngineQuery, layout: tuple[int, int], key: str, values: Sequence[Value]
    ) -> dict[Value, npt.NDArray[np.int64]]:
        sql = self._sql()
        column, shift = _ValueColumn.of(key, plan), sql.bind(16 - COARSE_BITS)
        value = f"unnest({column.source})" if column.is_array else column.source
        rows = _ON_MAP.format(layout=sql.bind(layout[0]), where=sql.where(plan))
        square = f"((p.x >> {shift}) << {COARSE_BITS}) | (p.y >> {shift})"
        statement = (
            f"SELECT value, square, count(*) FROM (SELECT {value} AS value, {square} AS square {rows}) AS placed"
            f" WHERE value = ANY({column.bound(sql, values)}) GROUP BY 1, 2"
        )
        counted = self._rows_in_time(statement, sql)
        found: dict[Value, npt.NDArray[np.int64]] = {}
        for one, square_number, count in counted:
            found.setdefault(one, np.zeros(1 << 2 * COARSE_BITS, np.int64))[square_number] = count
        return found

    def similar_terms(self, plan: EngineQuery, term: str) -> list[str]:
        # There is no list of all terms, so collect those of the newest memories.
        sql = self._sql()
        where = sql.where(plan)
        newest = f"SELECT m.terms FROM memories_memory m WHERE {where} ORDER BY m.id DESC LIMIT {_SIMILAR_TERM_ROWS}"
        with connection.cursor() as cursor, _time_limit():
            inner = psycopg.ClientCursor(connection.connection).mogrify(newest, sql.parameters)
            cursor.execute(
                "SELECT word FROM ts_stat(%s) WHERE abs(length(word) - length(%s)) <= 2"
                " ORDER BY similarity(word, %s) DESC, ndoc DESC, word LIMIT 20",
                [inner, term, term],
            )
            return [word for (word,) in cursor.fetchall()]

    def _sql(self) -> Sql:
        return Sql(self._knn_ids)

    def _knn_ids(self, plan: EngineQuery, without_includes: str, without_dates: bool) -> Ids:
        """The ids that match a query by vector.

        Without a filter other memories are the nearest; those of the whole query still match.
        """
        near, whole = self._knn(plan, without_includes, without_dates), self.knn(plan)
        return np.union1d(near.ids, whole.ids) if near.truncated else near.ids

    def _knn(self, plan: EngineQuery, without_includes: str, without_dates: bool) -> Neighbours:
        if plan.meaning is None:
            return NO_NEIGHBOURS
        if not plan.drops_selection(without_includes):
            without_includes = ""
        key = (plan, without_includes, without_dates and (plan.start is not None or plan.end is not None))
        if key not in self._neighbours:
            self._neighbours[key] = nearest_candidates(plan.meaning, _RowCandidates(self._rows, *key))
        return self._neighbours[key]

    def _mark_truncated(self, counts: Counts, plan: EngineQuery) -> Counts:
        """Mark the counts that are lower bounds."""
        if plan.meaning is None:
            return counts
        return replace(
            counts,
            summary=replace(counts.summary, truncated=self.knn(plan).truncated),
            facets={
                key: replace(counted, truncated=self._knn(plan, key, False).truncated)
                for key, counted in counts.facets.items()
            },
            days_truncated=self._knn(plan, "", True).truncated,
        )

    def _rows_of_all(self, selects: Sequence[str], sql: Sql) -> list[Any]:
        return self._rows(" UNION ALL ".join(selects), sql)

    def _rows_in_time(self, statement: str, sql: Sql) -> list[Any]:
        with _time_limit():
            return self._rows(statement, sql)

    @staticmethod
    def _rows(statement: str, sql: Sql) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement, sql.parameters)
            rows: list[Any] = cursor.fetchall()
            return rows


@dataclass(frozen=True, slots=True)
class _ValueColumn:
    """The column of memories that a table of counts reads: one value or an array of them, of an SQL type."""

    source: str
    is_array: bool
    cast: str

    @classmethod
    def of(cls, key: str, plan: EngineQuery) -> "_ValueColumn":
        spec = FACET[key]
        match spec.kind:
            case FacetKind.SCALAR:
                return cls(f"m.{spec.column}", is_array=False, cast="text")
            case FacetKind.PROJECT | FacetKind.IMPORT:
                return cls(f"m.{spec.column}", is_array=False, cast="bigint")
            case FacetKind.TEXTS:
                return cls(f"m.{spec.column}", is_array=True, cast="text")
            case FacetKind.TREE if not plan.subcategories:
                return cls(f"m.{OWN_CATEGORIES}", is_array=True, cast="int")
        return cls(f"m.{spec.column}", is_array=True, cast="int")

    def having(self, sql: Sql, values: Sequence[Value]) -> str:
        """The condition that a memory has one of the values, which an index may serve."""
        bound = self.bound(sql, values)
        return f"{self.source} && {bound}" if self.is_array else f"{self.source} = ANY({bound})"

    def bound(self, sql: Sql, values: Sequence[Value]) -> str:
        cast = str if self.cast == "text" else int
        return f"{sql.bind([cast(value) for value in values])}::{self.cast}[]"

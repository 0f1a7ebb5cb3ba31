"""The `postgres` engine: SQL only, no second index. The reference that other engines are tested against.

The match set is gathered once into a narrow CTE, and each facet is a flat SELECT over it; a facet with ticked values of
its own is a flat SELECT over memory with the filter it needs. The same SQL runs on a distributed Postgres. Statements
are composed from the constants below and the conditions of `search.engines.conditions`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from memories.models import Corpus
from search.engines.base import (
    BUCKET_DAYS,
    NO_NEIGHBOURS,
    Counts,
    EngineQuery,
    EngineTimeoutError,
    FacetCounts,
    FacetRequest,
    Filter,
    Ids,
    Neighbours,
    Summary,
    Value,
    ValueCount,
    VectorQuery,
)
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.knn import nearest_passing, similarities_of
from search.engines.postgres_columns import packed_filing
from search.engines.sql import Sql, no_value_sql
from search.facets import FACET, FACETS, FacetKind, FacetSpec
from search.histogram import NO_DAYS, DayCounts, HourCount
from search.query import Sort

_ORDERS = {
    # memory_created_idx serves newest and oldest where nothing filters.
    Sort.NEWEST: "m.created_at DESC, m.id DESC",
    Sort.OLDEST: "m.created_at ASC, m.id ASC",
    Sort.UPDATED: "m.updated_at DESC, m.id DESC",
    Sort.TITLE: 'lower(m.title) COLLATE "C" ASC, m.id ASC',
}

# One facet's counts. The window counts the groups before the cut to the largest. An array is unnested in the target
# list, which is a third quicker than a lateral join.
_SCALAR_FACET = """
SELECT {k} AS k, g.value, g.n AS a, 0::bigint AS b, g.d AS c FROM (
  SELECT m.{column}::text AS value, count(*) AS n, count(*) OVER () AS d,
         row_number() OVER (ORDER BY count(*) DESC, m.{column}) AS r
  FROM {rows} m WHERE {where} AND {present} GROUP BY m.{column}
) g WHERE {chosen}"""
_ARRAY_FACET = """
SELECT {k} AS k, g.value::text, g.n AS a, g.own AS b, g.d AS c FROM (
  SELECT u.value, count(*) AS n, {own} AS own, count(*) OVER () AS d,
         row_number() OVER (ORDER BY count(*) DESC, u.value) AS r
  FROM (SELECT unnest(m.{column}) AS value{beside} FROM {rows} m WHERE {where}) u GROUP BY u.value
) g WHERE {chosen}"""

# A moment at either end of the calendar has no day in every time zone: it is counted a week further in.
_MOMENT = "least(greatest(m.created_at, '0001-01-08Z'), '9999-12-24Z')"
_DAYS = """
SELECT {k} AS k, ({moment} AT TIME ZONE {zone})::date::text AS value, count(*) AS a,
       count(*) FILTER (WHERE {inside}) AS b, 0::bigint AS c
FROM {rows} m WHERE {where} GROUP BY 2"""
_HOURS = """
SELECT date_trunc('hour', {moment}, {zone}), count(*), count(*) FILTER (WHERE {inside})
FROM memories_memory m WHERE {where} GROUP BY 1"""
_BUCKETS = """
SELECT {k} AS k, ARRAY[{buckets}]::text AS value, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c
FROM {rows} m WHERE {where}"""
_SUMMARY = """
SELECT {k} AS k, ARRAY[count(*){columns}]::text AS value, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c
FROM {rows} m WHERE {where}"""
# What facets read of a match: gathered once, so that words are looked up and long rows read once. It takes in every
# state, for the counts of that facet: almost every query chooses states, and few memories are in the others.
_MATCH_SET = """
WITH match_set AS MATERIALIZED (
  SELECT m.project_id, m.memory_type, m.tags, m.authors, m.agent, m.source, m.state, m.created_at,
         m.category_ids, m.category_path_ids, m.concept_ids, m.entity_ids, {shown} AS shown
  FROM memories_memory m WHERE {where}
)"""
_WORK_MEM = "64MB"
_NEAR_ROWS = 2_000

_DAYS_KEY = -1
_BUCKETS_KEY = -2
_SUMMARY_KEY = -100


class _PassingRows:
    """The memories that pass everything but the meaning; see `search.engines.nearest.Passing`."""

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

    def among(self, ids: Ids) -> npt.NDArray[np.bool_]:
        bound = self._sql.bind(ids.tolist())
        statement = f"SELECT m.id FROM memories_memory m WHERE m.id = ANY({bound}::bigint[]) AND {self._where}"
        return np.isin(ids, self._ids_of(statement))

    def count(self, most: int | None = None) -> int | None:
        some = "" if most is None else f" LIMIT {self._sql.bind(most + 1)}"
        rows = f"SELECT FROM memories_memory m WHERE {self._where}{some}"
        ((count,),) = self._rows(f"SELECT count(*) FROM ({rows}) AS passing", self._sql)
        return None if most is not None and count > most else int(count)

    def ids(self) -> Ids:
        return self._ids_of(f"SELECT m.id FROM memories_memory m WHERE {self._where}")

    def _ids_of(self, statement: str) -> Ids:
        return np.array([memory_id for (memory_id,) in self._rows(statement, self._sql)], np.int64)


@contextmanager
def _time_limit() -> Iterator[None]:
    """A statement that takes too long is cut off, and only what it was for is missing."""
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
    """The protocol of `search.engines.base`, in SQL."""

    name = "postgres"
    seconds_behind = 0.0
    waited_ms = 0.0

    @property
    def revision(self) -> str:
        return str(Corpus.objects.values_list("revision", flat=True).get(pk=1))

    def __init__(self) -> None:
        self._known_near: dict[tuple[EngineQuery, str, bool], Neighbours] = {}

    def warm_up(self) -> None:
        """Postgres keeps by itself what it has read."""

    def filing(self) -> ColumnSnapshot:
        return packed_filing()

    def near(self, plan: EngineQuery) -> Neighbours:
        return self._near_of(plan, "", False)

    def similarities(self, meaning: VectorQuery, ids: Sequence[int]) -> dict[int, float]:
        return similarities_of(meaning, ids)

    def among(self, plan: EngineQuery, ids: Sequence[int]) -> set[int]:
        sql = self._sql()
        where = sql.where(plan)
        statement = f"SELECT m.id FROM memories_memory m WHERE m.id = ANY({sql.bind(list(ids))}::bigint[]) AND {where}"
        return {memory_id for (memory_id,) in self._rows(statement, sql)}

    def word_scores(self, plan: EngineQuery, ids: Sequence[int]) -> dict[int, float]:
        sql = self._sql()
        score = sql.rank(plan)
        bound = sql.bind(list(ids))
        rows = self._rows(f"SELECT m.id, {score} FROM memories_memory m WHERE m.id = ANY({bound}::bigint[])", sql)
        return {memory_id: float(score) for memory_id, score in rows if score}

    def summary(self, plan: EngineQuery, *, no_values: bool) -> Summary:
        sql = self._sql()
        rows = self._rows(" UNION ALL ".join(self._summary(sql, plan, no_values, "memories_memory")), sql)
        return replace(_read_summary(rows, plan, no_values), capped=self.near(plan).capped)

    def totals(self, plans: Sequence[EngineQuery]) -> list[int]:
        if not plans:
            return []
        sql = self._sql()
        selects = [
            f"SELECT {k} AS k, count(*) FROM memories_memory m WHERE {sql.where(plan)}" for k, plan in enumerate(plans)
        ]
        rows: dict[int, int] = dict(self._rows(" UNION ALL ".join(selects), sql))
        return [rows[k] for k in range(len(plans))]

    def present(self, plan: EngineQuery, key: str, values: Sequence[Value]) -> set[Value]:
        totals = self.totals([plan.with_filter(Filter(key, include=((value,),))) for value in values])
        return {value for value, total in zip(values, totals, strict=True) if total}

    def hits(self, plan: EngineQuery, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        sql = self._sql()
        if order == Sort.RELEVANCE:
            score, by = sql.rank(plan), f"2 DESC, {_ORDERS[Sort.NEWEST]}"
        else:
            score, by = "NULL::real", _ORDERS[order]
        where = sql.where(plan)
        statement = (
            f"SELECT m.id, {score} FROM memories_memory m WHERE {where} ORDER BY {by}"
            f" LIMIT {sql.bind(limit)} OFFSET {sql.bind(offset)}"
        )
        return list(self._rows(statement, sql))

    def counts(
        self, plan: EngineQuery, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        sql = self._sql()
        gathered = self._match_set(sql, plan)
        selects = self._summary(sql, plan, True, "match_set") if days else []
        selects += [self._facet(sql, plan, request, k) for k, request in enumerate(requests)]
        if days:
            apart = plan.start is not None or plan.end is not None
            rows = "memories_memory" if apart else "match_set"
            where = sql.where(plan, without_dates=True) if apart else "m.shown"
            inside = " AND ".join(sql.inside(plan)) or "true"
            selects.append(
                _DAYS.format(
                    moment=_MOMENT, k=_DAYS_KEY, zone=sql.bind(str(zone)), inside=inside, where=where, rows=rows
                )
            )
            buckets = ", ".join(
                f"count(*) FILTER (WHERE {span} AND {within})"
                for within in (inside, "true")
                for span in self._spans(sql, now)
            )
            selects.append(_BUCKETS.format(k=_BUCKETS_KEY, buckets=buckets, where=where, rows=rows))
        if not selects:
            return Counts(Summary(0), {}, NO_DAYS, (), ())
        with _time_limit():
            found = self._rows(gathered + " UNION ALL ".join(selects), sql)
        return self._told(self._gather(found, plan, requests), plan)

    def hours(self, plan: EngineQuery, *, zone: tzinfo) -> tuple[HourCount, ...]:
        sql = self._sql()
        inside = " AND ".join(sql.inside(plan)) or "true"
        where = sql.where(plan, without_dates=True)
        # Hours are asked for within a few days only: what lies outside of the dates is not drawn.
        if plan.start is not None:
            where += f" AND m.created_at >= {sql.bind(plan.start)}::timestamptz - interval '3 days'"
        if plan.end is not None:
            where += f" AND m.created_at < {sql.bind(plan.end)}::timestamptz + interval '3 days'"
        rows = self._rows(_HOURS.format(moment=_MOMENT, zone=sql.bind(str(zone)), inside=inside, where=where), sql)
        return tuple(HourCount(hour.astimezone(zone), n, inside) for hour, n, inside in rows)

    def similar_terms(self, plan: EngineQuery, term: str) -> list[str]:
        # There is no list of all terms; those of the newest memories are gathered from their rows.
        sql = self._sql()
        newest = f"SELECT m.terms FROM memories_memory m WHERE {sql.where(plan)} ORDER BY m.id DESC LIMIT {_NEAR_ROWS}"
        with connection.cursor() as cursor, _time_limit():
            inner = psycopg.ClientCursor(connection.connection).mogrify(newest, sql.parameters)
            cursor.execute(
                "SELECT word FROM ts_stat(%s) WHERE abs(length(word) - length(%s)) <= 2"
                " ORDER BY similarity(word, %s) DESC, ndoc DESC LIMIT 20",
                [inner, term, term],
            )
            return [word for (word,) in cursor.fetchall()]

    def _facet(self, sql: Sql, plan: EngineQuery, request: FacetRequest, k: int) -> str:
        spec = FACET[request.key]
        apart = _drops_includes(plan, request.key)
        rows = "memories_memory" if apart else "match_set"
        where = sql.where(plan, without_includes=request.key) if apart else "m.shown"
        if request.key == "state":
            where = "true"
        cast = "text" if spec.kind in {FacetKind.SCALAR, FacetKind.PROJECT, FacetKind.TEXTS} else "int"
        chosen = "true" if request.limit is None else f"(g.r <= {sql.bind(request.limit)}"
        if request.limit is not None:
            chosen += f" OR g.value = ANY({sql.bind([_cast(v, cast) for v in request.always])}::{cast}[]))"
        if request.only is not None:
            chosen += f" AND g.value = ANY({sql.bind([_cast(v, cast) for v in request.only])}::{cast}[])"
        if spec.kind in {FacetKind.SCALAR, FacetKind.PROJECT}:
            present = "true" if spec.kind == FacetKind.PROJECT else f"m.{spec.column} <> ''"
            return _SCALAR_FACET.format(k=k, column=spec.column, rows=rows, where=where, present=present, chosen=chosen)
        column, own, beside = spec.column, "0::bigint", ""
        if spec.kind == FacetKind.TREE:
            # Without subcategories a tick means the node alone, and so must its number.
            column = spec.column if plan.subcategories else "category_ids"
            own, beside = "count(*) FILTER (WHERE u.value = ANY(u.category_ids))", ", m.category_ids"
        return _ARRAY_FACET.format(k=k, column=column, rows=rows, where=where, own=own, beside=beside, chosen=chosen)

    @staticmethod
    def _summary(sql: Sql, plan: EngineQuery, no_values: bool, rows: str) -> list[str]:
        """The total and the counts of "no value", shared ones in one SELECT, the others over what they need."""
        shared, apart = _split(plan) if no_values else ([], [])
        columns = "".join(f", count(*) FILTER (WHERE {no_value_sql(spec)})" for spec in shared)
        where = "m.shown" if rows == "match_set" else sql.where(plan)
        selects = [_SUMMARY.format(k=_SUMMARY_KEY, columns=columns, rows=rows, where=where)]
        for n, spec in enumerate(apart, 1):
            where = f"{sql.where(plan, without_includes=spec.key)} AND {no_value_sql(spec)}"
            selects.append(_SUMMARY.format(k=_SUMMARY_KEY - n, columns="", rows="memories_memory", where=where))
        return selects

    @staticmethod
    def _spans(sql: Sql, now: datetime) -> list[str]:
        spans = [f"m.created_at >= {sql.bind(now - timedelta(days=days))}" for days in BUCKET_DAYS]
        return [*spans, f"m.created_at < {sql.bind(now - timedelta(days=BUCKET_DAYS[-1]))}"]

    @staticmethod
    def _gather(rows: list[Any], plan: EngineQuery, requests: Sequence[FacetRequest]) -> Counts:
        values: dict[int, list[ValueCount]] = {k: [] for k in range(len(requests))}
        distinct: dict[int, int] = {}
        days: list[tuple[date, int, int]] = []
        buckets = [0] * 10
        for k, value, a, b, c in rows:
            if k == _DAYS_KEY:
                days.append((date.fromisoformat(value), a, b))
            elif k == _BUCKETS_KEY:
                buckets = _numbers(value)
            elif k >= 0:
                ids = FACET[requests[k].key].kind in {FacetKind.IDS, FacetKind.TREE, FacetKind.PROJECT}
                values[k].append(ValueCount(int(value) if ids else value, a, b))
                distinct[k] = c
        facets = {
            request.key: FacetCounts(tuple(sorted(values[k], key=lambda v: (-v.count, v.value))), distinct.get(k, 0))
            for k, request in enumerate(requests)
        }
        summed = any(row[0] == _SUMMARY_KEY for row in rows)
        summary = _read_summary(rows, plan, no_values=True) if summed else Summary(0)
        return Counts(summary, facets, DayCounts.of(days), tuple(buckets[:5]), tuple(buckets[5:]))

    def _sql(self) -> Sql:
        return Sql(self._near)

    @staticmethod
    def _match_set(sql: Sql, plan: EngineQuery) -> str:
        """What is gathered, and what of it is shown."""
        states = plan.filter("state")
        shown = [sql.included(states, plan)] if states and states.includes else []
        if plan.meaning is not None and sql.near is not None:
            # In other states others may be the nearest: what matches with the states has to be looked for again.
            shown.append(sql.matching(plan, sql.near(plan, "", False)))
        where = sql.where(plan, without_includes="state")
        return _MATCH_SET.format(where=where, shown=" AND ".join(shown) or "true")

    def _near(self, plan: EngineQuery, without_includes: str, without_dates: bool) -> Ids:
        """The memories that a set has by meaning.

        With fewer filters others are the nearest; those of the whole plan match there too.
        """
        near, whole = self._near_of(plan, without_includes, without_dates), self.near(plan)
        return np.union1d(near.ids, whole.ids) if near.capped else near.ids

    def _near_of(self, plan: EngineQuery, without_includes: str, without_dates: bool) -> Neighbours:
        if plan.meaning is None:
            return NO_NEIGHBOURS
        chosen = plan.filter(without_includes)
        if chosen is None or not chosen.includes or chosen.narrows_own_counts:
            without_includes = ""
        key = (plan, without_includes, without_dates and (plan.start is not None or plan.end is not None))
        if key not in self._known_near:
            self._known_near[key] = nearest_passing(plan.meaning, _PassingRows(self._rows, *key))
        return self._known_near[key]

    def _told(self, counts: Counts, plan: EngineQuery) -> Counts:
        """Counts, with what of them is capped."""
        if plan.meaning is None:
            return counts
        return replace(
            counts,
            summary=replace(counts.summary, capped=self.near(plan).capped),
            facets={
                key: replace(counted, capped=self._near_of(plan, key, False).capped)
                for key, counted in counts.facets.items()
            },
            days_capped=self._near_of(plan, "", True).capped,
        )

    @staticmethod
    def _rows(statement: str, sql: Sql) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement, sql.parameters)
            rows: list[Any] = cursor.fetchall()
            return rows


def _numbers(array: str) -> list[int]:
    return [int(n) for n in array.strip("{}").split(",")]


def _split(plan: EngineQuery) -> tuple[list[FacetSpec], list[FacetSpec]]:
    """The facets counted over the match set, and those counted over another set."""
    shared = [spec for spec in FACETS if not _drops_includes(plan, spec.key)]
    return shared, [spec for spec in FACETS if spec not in shared]


def _read_summary(rows: list[Any], plan: EngineQuery, no_values: bool) -> Summary:
    numbers = {row[0]: _numbers(row[1]) for row in rows if row[0] <= _SUMMARY_KEY}
    total, *shared_counts = numbers[_SUMMARY_KEY]
    if not no_values:
        return Summary(total)
    shared, apart = _split(plan)
    found = {spec.key: n for spec, n in zip(shared, shared_counts, strict=True)}
    found |= {spec.key: numbers[_SUMMARY_KEY - n][0] for n, spec in enumerate(apart, 1)}
    return Summary(total, found)


def _drops_includes(plan: EngineQuery, key: str) -> bool:
    """Whether a facet is counted over another set than the match set: that without its own inclusions.

    The states are not: the match set is gathered with all of them.
    """
    chosen = plan.filter(key)
    if key == "state":
        return False
    return chosen is not None and chosen.includes and not chosen.narrows_own_counts


def _cast(value: Value, cast: str) -> Value:
    return int(value) if cast == "int" else str(value)

"""All counts of a query on one server, in one statement.

The match set is gathered once into a narrow CTE, and each facet is a flat SELECT over it; a facet with selected values
of its own is a flat SELECT over memories with the filter it needs.
"""

from collections.abc import Callable, Sequence, Set
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

from search.engines.base import (
    BUCKET_DAYS,
    Counts,
    EngineQuery,
    FacetCounts,
    FacetRequest,
    MatchSet,
    ValueCount,
)
from search.engines.sql import Sql, chosen_values, drops_includes, local_day, no_value_sql
from search.facets import FACET, FACET_COLUMNS, FACETS, OWN_CATEGORIES, FacetKind, FacetSpec
from search.histogram import NO_DAYS, DayCounts

# The counts of one facet. The window counts the groups before the cut to the largest. The largest brings their number,
# and has no count where it was not asked for. Arrays are unnested in the target list, which is a third faster than a
# lateral join.
_SCALAR_FACET = """
SELECT {k} AS k, g.value, CASE WHEN {chosen} THEN g.n END AS a, 0::bigint AS b, g.d AS c FROM (
  SELECT m.{column}::text AS value, count(*) AS n, count(*) OVER () AS d,
         row_number() OVER (ORDER BY count(*) DESC, m.{column}) AS r
  FROM {rows} m WHERE {where} AND {present} GROUP BY m.{column}
) g WHERE g.r = 1 OR ({chosen})"""
_ARRAY_FACET = """
SELECT {k} AS k, g.value::text, CASE WHEN {chosen} THEN g.n END AS a, g.own AS b, g.d AS c FROM (
  SELECT u.value, count(*) AS n, {own} AS own, count(*) OVER () AS d,
         row_number() OVER (ORDER BY count(*) DESC, u.value) AS r
  FROM (SELECT unnest(m.{column}) AS value{beside} FROM {rows} m WHERE {where}) u GROUP BY u.value
) g WHERE g.r = 1 OR ({chosen})"""
_DAYS = """
SELECT {k} AS k, ({day})::text AS value, count(*) AS a,
       count(*) FILTER (WHERE {inside}) AS b, 0::bigint AS c
FROM {rows} m WHERE {where} GROUP BY 2"""
_BUCKETS = """
SELECT {k} AS k, ARRAY[{buckets}]::text AS value, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c
FROM {rows} m WHERE {where}"""
_SUMMARY = """
SELECT {k} AS k, ARRAY[count(*){columns}]::text AS value, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c
FROM {rows} m WHERE {where}"""
# The columns that facets read, gathered once, so that words are looked up and long rows are read once. The set includes
# every state, for the counts of that facet: almost every query selects states, and few memories have other ones.
_MATCH_SET = f"""
WITH match_set AS MATERIALIZED (
  SELECT {", ".join(f"m.{column}" for column in FACET_COLUMNS)}, m.created_at, {{shown}} AS shown
  FROM memories_memory m WHERE {{where}}
)"""

_DAYS_KEY = -1
_BUCKETS_KEY = -2
_SUMMARY_KEY = -100


def count_matches(
    plan: EngineQuery,
    requests: Sequence[FacetRequest],
    *,
    zone: tzinfo,
    now: datetime,
    days: bool,
    new_sql: Callable[[], Sql],
    fetch: Callable[[str, Sql], list[Any]],
) -> Counts:
    """The counts of a query; see `search.engines.base.Engine.counts`. `fetch` executes the statement."""
    sql = new_sql()
    asked = {one.key for one in requests}
    selects = summary_selects(sql, plan, "match_set", asked) if days else []
    selects += [_facet(sql, plan, one, k) for k, one in enumerate(requests)]
    if days:
        apart = plan.start is not None or plan.end is not None
        rows = "memories_memory" if apart else "match_set"
        where = "m.shown" if rows == "match_set" else sql.where(plan, without_dates=True)
        inside = " AND ".join(sql.inside(plan)) or "true"
        selects.append(_DAYS.format(day=local_day(sql, zone), k=_DAYS_KEY, inside=inside, where=where, rows=rows))
        buckets = ", ".join(
            f"count(*) FILTER (WHERE {span} AND {within})" for within in (inside, "true") for span in _spans(sql, now)
        )
        selects.append(_BUCKETS.format(k=_BUCKETS_KEY, buckets=buckets, where=where, rows=rows))
    if not selects:
        return Counts(MatchSet(0), {}, NO_DAYS, (), ())
    gathered = _match_set(sql, plan)
    return _gather(fetch(gathered + " UNION ALL ".join(selects), sql), plan, requests)


def _match_set(sql: Sql, plan: EngineQuery) -> str:
    """The match set as a CTE, with a column that says whether a row is in the selected states."""
    where, shown = sql.matches_of_all_states(plan)
    return _MATCH_SET.format(where=where, shown=shown)


def _facet(sql: Sql, plan: EngineQuery, request: FacetRequest, k: int) -> str:
    spec = FACET[request.key]
    apart = drops_includes(plan, request.key)
    rows = "memories_memory" if apart else "match_set"
    where = sql.where(plan, without_includes=request.key) if apart else "m.shown"
    if request.key == "state" and plan.drops_selection("state"):
        where = "true"
    cast = "text" if spec.kind in {FacetKind.SCALAR, FacetKind.PROJECT, FacetKind.TEXTS} else "int"
    chosen = chosen_values(sql, request, cast)
    if spec.kind in {FacetKind.SCALAR, FacetKind.PROJECT}:
        present = "true" if spec.kind == FacetKind.PROJECT else f"m.{spec.column} <> ''"
        return _SCALAR_FACET.format(k=k, column=spec.column, rows=rows, where=where, present=present, chosen=chosen)
    column, own, beside = spec.column, "0::bigint", ""
    if spec.kind == FacetKind.TREE:
        # Without subcategories a selected category means itself alone, and so must its count.
        column = spec.column if plan.subcategories else OWN_CATEGORIES
        own, beside = "count(*) FILTER (WHERE u.value = ANY(u.category_ids))", ", m.category_ids"
    return _ARRAY_FACET.format(k=k, column=column, rows=rows, where=where, own=own, beside=beside, chosen=chosen)


def summary_selects(sql: Sql, plan: EngineQuery, rows: str, asked: Set[str] = frozenset(FACET)) -> list[str]:
    """The total and the counts without a value: those over the match set in one SELECT, the others, if they are
    asked for, in one each.
    """
    shared, separate = _split(plan)
    columns = "".join(f", count(*) FILTER (WHERE {no_value_sql(spec)})" for spec in shared)
    where = "m.shown" if rows == "match_set" else sql.where(plan)
    selects = [_SUMMARY.format(k=_SUMMARY_KEY, columns=columns, rows=rows, where=where)]
    for n, spec in enumerate(separate, 1):
        if spec.key not in asked:
            continue
        where = f"{sql.where(plan, without_includes=spec.key)} AND {no_value_sql(spec)}"
        selects.append(_SUMMARY.format(k=_SUMMARY_KEY - n, columns="", rows="memories_memory", where=where))
    return selects


def _spans(sql: Sql, now: datetime) -> list[str]:
    later = f"m.created_at >= {sql.bind(now)}"
    starts = [f"m.created_at >= {sql.bind(now - timedelta(days=days))}" for days in BUCKET_DAYS]
    return [*(f"({start} AND NOT {later})" for start in starts), f"NOT {starts[-1]}", later]


def _gather(rows: list[Any], plan: EngineQuery, requests: Sequence[FacetRequest]) -> Counts:
    values: dict[int, list[ValueCount]] = {k: [] for k in range(len(requests))}
    distinct: dict[int, int] = {}
    days: list[tuple[date, int, int]] = []
    buckets = [0] * 2 * (len(BUCKET_DAYS) + 2)
    for k, value, a, b, c in rows:
        if k == _DAYS_KEY:
            days.append((date.fromisoformat(value), a, b))
        elif k == _BUCKETS_KEY:
            buckets = _numbers(value)
        elif k >= 0:
            ids = FACET[requests[k].key].kind in {FacetKind.IDS, FacetKind.TREE, FacetKind.PROJECT}
            if a is not None:
                values[k].append(ValueCount(int(value) if ids else value, a, b))
            distinct[k] = c
    facets = {
        request.key: FacetCounts(tuple(sorted(values[k], key=lambda v: (-v.count, v.value))), distinct.get(k, 0))
        for k, request in enumerate(requests)
    }
    half = len(buckets) // 2
    summed = any(row[0] == _SUMMARY_KEY for row in rows)
    summary = read_summary(rows, plan) if summed else MatchSet(0)
    return Counts(summary, facets, DayCounts.of(days), tuple(buckets[:half]), tuple(buckets[half:]))


def _numbers(array: str) -> list[int]:
    return [int(n) for n in array.strip("{}").split(",")]


def _split(plan: EngineQuery) -> tuple[list[FacetSpec], list[FacetSpec]]:
    """Divide the facets into those counted over the match set and those counted over a set of their own."""
    shared = [spec for spec in FACETS if not drops_includes(plan, spec.key)]
    return shared, [spec for spec in FACETS if spec not in shared]


def read_summary(rows: list[Any], plan: EngineQuery) -> MatchSet:
    """The total and the counts without a value, from the rows of `summary_selects`."""
    numbers = {row[0]: _numbers(row[1]) for row in rows if row[0] <= _SUMMARY_KEY}
    total, *shared_counts = numbers[_SUMMARY_KEY]
    shared, separate = _split(plan)
    found = {spec.key: n for spec, n in zip(shared, shared_counts, strict=True)}
    found |= {
        spec.key: numbers[_SUMMARY_KEY - n][0] for n, spec in enumerate(separate, 1) if _SUMMARY_KEY - n in numbers
    }
    return MatchSet(total, found)

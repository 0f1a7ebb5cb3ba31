"""The Postgres engine where memories are spread over shards: the statements that need another form there.

All counts of a query are made by the shards, each of its own matches in one scan. A memory gives a list of texts, one
for everything that it counts in: the value of a facet, its day, the total. Each begins with two digits, the number of
what it counts, and a colon. Shards count equal texts, and only texts with their counts travel, never rows. There is one
scan for all facets that share the match set, and one for each that does not.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from search.engines.postgres import SOME, PostgresEngine
from search.engines.sql import Sql, drops_includes, local_day, no_value_sql
from search.facets import FACET, FACETS, KEY_KINDS, OWN_CATEGORIES, FacetKind
from search.histogram import NO_DAYS, DayCounts

# The facets of a request have the numbers from 0, and those from _OWN on are the values that a memory has itself,
# without ancestors. These are of the counts besides facets.
_OWN, _TOTAL, _WITHOUT, _DAY = 50, 90, 91, 92
# The values are cut to the largest here: for Citus that would be a second statement, which reads the counts of the
# first from a file, and takes longer than to send them all.
_COUNTED = """
SELECT u.v, count(*) FROM (SELECT unnest({values}) AS v FROM memories_memory m WHERE {where}) u GROUP BY 1"""
_NUMBERS = {FacetKind.IDS, FacetKind.TREE, *KEY_KINDS}


@dataclass
class _Values:
    """SQL of the texts that a memory counts in: single ones, of which some are null, and arrays of them."""

    texts: list[str] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        texts = [f"ARRAY[{', '.join(self.texts)}]::text[]"] if self.texts else []
        return " || ".join([*texts, *self.arrays]) or "'{}'::text[]"

    def add(self, number: int, kind: FacetKind, column: str) -> None:
        begin = f"{number:02d}:"
        match kind:
            case FacetKind.SCALAR | FacetKind.PROJECT | FacetKind.IMPORT:
                self.texts.append(f"'{begin}' || m.{column}")
            case FacetKind.TEXTS:
                self.arrays.append(f"ARRAY(SELECT '{begin}' || value FROM unnest(m.{column}) AS value)")
            case _:
                # Half the time of the form for texts, which may contain commas. Without a value there is the number
                # alone.
                self.arrays.append(f"('{{{begin}' || array_to_string(m.{column}, ',{begin}') || '}}')::text[]")


@dataclass
class _Scan:
    """One scan of the memories in `where`, of which some values count only where `shown` holds."""

    sql: Sql
    where: str
    shown: str = "true"
    always: _Values = field(default_factory=_Values)
    values: _Values = field(default_factory=_Values)

    @property
    def is_empty(self) -> bool:
        return not any((*self.always.texts, *self.always.arrays, *self.values.texts, *self.values.arrays))

    def count(self, number: int, request: FacetRequest, plan: EngineQuery) -> None:
        spec = FACET[request.key]
        # The counts of the states ignore their selection.
        values = self.always if request.key == "state" and plan.drops_selection("state") else self.values
        # Without subcategories a selected category means itself alone, and so must its count.
        own = spec.kind == FacetKind.TREE and not plan.subcategories
        values.add(number, spec.kind, OWN_CATEGORIES if own else spec.column)
        if spec.kind == FacetKind.TREE:
            values.add(number + _OWN, spec.kind, OWN_CATEGORIES)

    def count_without(self, keys: Iterable[str]) -> None:
        """Count the memories without a value of some facets."""
        order = list(FACET)
        self.values.texts += [
            f"CASE WHEN {no_value_sql(FACET[key])} THEN '{_WITHOUT}:{order.index(key)}' END" for key in keys
        ]

    def count_days(self, plan: EngineQuery, zone: tzinfo, now: datetime) -> None:
        """Count the memories of each day, by how long ago they were made and whether they are inside the dates."""
        day = f"({local_day(self.sql, zone)})"
        edges = self.sql.bind([*(now - timedelta(days=days) for days in reversed(BUCKET_DAYS)), now])
        inside = " AND ".join(self.sql.inside(plan))
        mark = f"CASE WHEN {inside} THEN '+' ELSE '-' END" if inside else "'+'"
        self.values.texts.append(f"'{_DAY}:' || {day} || width_bucket(m.created_at, {edges}::timestamptz[]) || {mark}")

    def statement(self) -> str:
        values = str(self.values)
        if self.shown != "true":
            values = f"{self.always} || CASE WHEN {self.shown} THEN {values} END"
        elif self.always.texts or self.always.arrays:
            values = f"{self.always} || {values}"
        return _COUNTED.format(values=values, where=self.where)


def count_on_shards(
    plan: EngineQuery,
    requests: Sequence[FacetRequest],
    *,
    zone: tzinfo,
    now: datetime,
    days: bool,
    new_sql: Callable[[], Sql],
    fetch: Callable[[str, Sql], list[Any]],
) -> Counts:
    """The counts of a query; see `search.engines.base.Engine.counts`. `fetch` executes a statement."""
    scans = _scans(plan, requests, zone, now, days, new_sql)
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for scan in scans:
        for text, count in fetch(scan.statement(), scan.sql):
            if text is not None:
                counts[int(text[:2])][text[3:]] = count
    facets = {one.key: _facet(one, counts[number], counts[number + _OWN]) for number, one in enumerate(requests)}
    if not days:
        return Counts(MatchSet(0), facets, NO_DAYS, (), ())
    without = {key: counts[_WITHOUT].get(str(n), 0) for n, key in enumerate(FACET)}
    summary = MatchSet(counts[_TOTAL].get("", 0), without)
    return Counts(summary, facets, *_by_days(counts[_DAY]))


def _scans(
    plan: EngineQuery,
    requests: Sequence[FacetRequest],
    zone: tzinfo,
    now: datetime,
    days: bool,
    new_sql: Callable[[], Sql],
) -> list[_Scan]:
    apart = {spec.key for spec in FACETS if drops_includes(plan, spec.key)}
    sql = new_sql()
    shared = _Scan(sql, *sql.matches_of_all_states(plan))
    scans = {
        one.key: _Scan(own := new_sql(), own.where(plan, without_includes=one.key))
        for one in requests
        if one.key in apart
    }
    for number, request in enumerate(requests):
        scans.get(request.key, shared).count(number, request, plan)
    if days:
        shared.values.texts.append(f"'{_TOTAL}:'")
        shared.count_without(key for key in FACET if key not in apart)
        for key in scans:
            scans[key].count_without([key])
        in_dates = shared
        if plan.start is not None or plan.end is not None:
            own = new_sql()
            in_dates = scans[""] = _Scan(own, own.where(plan, without_dates=True))
        in_dates.count_days(plan, zone, now)
    return [scan for scan in (shared, *scans.values()) if not scan.is_empty]


def _facet(request: FacetRequest, counts: Mapping[str, int], own: Mapping[str, int]) -> FacetCounts:
    """The requested values of a facet. An empty text counts the memories without a value."""
    is_number = FACET[request.key].kind in _NUMBERS
    found = [
        ValueCount(int(value) if is_number else value, count, own.get(value, 0))
        for value, count in counts.items()
        if value
    ]
    found.sort(key=lambda one: (-one.count, one.value))
    always, only = set(request.always), None if request.only is None else set(request.only)
    most = len(found) if request.limit is None else request.limit
    values = [
        one
        for place, one in enumerate(found)
        if (place < most or one.value in always) and (only is None or one.value in only)
    ]
    return FacetCounts(tuple(values), len(found))


def _by_days(counts: Mapping[str, int]) -> tuple[DayCounts, tuple[int, ...], tuple[int, ...]]:
    """The counts of days, and those of the buckets with and without the dates."""
    days: dict[date, list[int]] = {}
    spans = {"+": [0] * (len(BUCKET_DAYS) + 2), "-": [0] * (len(BUCKET_DAYS) + 2)}
    for value, count in counts.items():
        written, span, mark = value[:-2], int(value[-2]), value[-1]
        day = days.setdefault(date.fromisoformat(written), [0, 0])
        day[0] += count
        day[1] += count if mark == "+" else 0
        spans[mark][span] += count
    everything = [inside + outside for inside, outside in zip(spans["+"], spans["-"], strict=True)]
    listed = DayCounts.of((day, count, inside) for day, (count, inside) in days.items())
    return listed, _cumulated(spans["+"]), _cumulated(everything)


def _cumulated(spans: Sequence[int]) -> tuple[int, ...]:
    """Counts of the spans between the edges of the buckets, as those of the buckets."""
    older, *recent, later = spans
    return (*(sum(recent[-n:]) for n in range(1, len(recent) + 1)), older, later)


class ShardsEngine(PostgresEngine):
    """The same engine, which asks all shards at once."""

    _count = staticmethod(count_on_shards)

    def _totals(self, plans: Sequence[EngineQuery]) -> dict[int, int]:
        """One scan counts all queries whose conditions read short columns of the row alone."""
        wordless = [k for k, plan in enumerate(plans) if _reads_short_columns(plan)]
        if len(wordless) < 2:
            return super()._totals(plans)
        sql = self._sql()
        conditions = [sql.where(plans[k]) for k in wordless]
        counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in conditions)
        either = " OR ".join(f"({condition})" for condition in conditions)
        (row,) = self._rows(f"SELECT {counts} FROM memories_memory m WHERE {either}", sql)
        others = [k for k in range(len(plans)) if k not in wordless]
        counted = super()._totals([plans[k] for k in others]) if others else {}
        return dict(zip(wordless, row, strict=True)) | {k: counted[n] for n, k in enumerate(others)}

    def any_match(self, plans: Sequence[EngineQuery]) -> list[bool]:
        sql = self._sql()
        # Each row has a column: Citus refuses rows without any.
        some = [f"SELECT 1 FROM memories_memory m WHERE {sql.where(plan)} LIMIT {SOME}" for plan in plans]
        return [bool(self._rows(one, sql)) for one in some]

    def _rows_of_all(self, selects: Sequence[str], sql: Sql) -> list[Any]:
        """One after the other: a cluster would write the rows of each part of a UNION to a file."""
        return [row for select in selects for row in self._rows(select, sql)]


def _reads_short_columns(plan: EngineQuery) -> bool:
    """Whether the conditions of a query read no words and no other rows. Citus counts no subqueries in a FILTER."""
    others = (plan.meaning, plan.as_of, plan.area, plan.recalled_from, plan.not_recalled_from)
    return not plan.texts and all(one is None for one in others)

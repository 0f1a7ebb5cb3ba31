"""An EngineQuery, and the words of a text for lists that are no searches, as SQL conditions over the table `m`; and all
counts of a query on one server, in one statement.

Every value is a named parameter. For the counts, the match set is gathered once into a narrow CTE, and each facet is a
flat SELECT over it; a facet with selected values of its own is a flat SELECT over memories with the filter it needs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
from django.db.models import BooleanField, F, Func, Q
from django.db.models import Value as Bound

from cluster import is_distributed
from memories.models import Project
from search.area import INSIDE, OUTLINE, Area
from search.engines.base import (
    BUCKET_DAYS,
    Counts,
    EngineQuery,
    FacetCounts,
    FacetRequest,
    Filter,
    Ids,
    MatchSet,
    Value,
    ValueCount,
)
from search.facets import FACET, FACET_COLUMNS, FACETS, KEY_KINDS, OWN_CATEGORIES, FacetKind, FacetSpec
from search.histogram import NO_DAYS, DayCounts
from text.analysis import FIELD_WEIGHTS, Pattern, quote_term
from text.formatting import repeated_evenings
from text.query_syntax import Alternative, TextQuery, parse_text

# Above this many combinations, "k of n words" becomes a sum over the words instead of one tsquery.
_MAX_COMBINATIONS = 120

# Weights of content, summary and references, tags, title (D, C, B, A).
RANK = "ts_rank('{0.15, 0.3, 0.6, 1.0}', m.terms, %s::tsquery, 1)"

# Conditions for facets without a value. The arrays are never null.
_NO_VALUE = {
    FacetKind.SCALAR: "m.{column} = ''",
    FacetKind.TEXTS: "m.{column} = '{{}}'",
    FacetKind.IDS: "m.{column} = '{{}}'",
    FacetKind.TREE: "m.{column} = '{{}}'",
    FacetKind.PROJECT: "false",
    FacetKind.IMPORT: "m.{column} IS NULL",
}

# The first or last day of the calendar holds what is beyond its ends.
_LOCAL_DAY = "least(greatest((m.created_at AT TIME ZONE {zone})::date, '0001-01-01'), '9999-12-31')"

# Memories with a place in an area; `search.area.Area.contains` is the same comparison.
_IN_AREA = """m.id IN (
  SELECT place.memory_id FROM memories_mapplace place WHERE place.layout_id = {layout}
  AND (place.cell = ANY({inside}::int[]) OR (place.cell = ANY({outline}::int[]) AND (
    SELECT count(*) %% 2 = 1 FROM {edges} AS edge (ax, ay, bx, by)
    WHERE edge.ay <= place.y AND place.y < edge.by
    AND (place.x - edge.ax) * (edge.by - edge.ay) < (edge.bx - edge.ax) * (place.y - edge.ay)
  ))))"""

# Memories that were recalled since; by recall_last_idx or the primary key.
_RECALLED = """EXISTS (
  SELECT FROM memories_recall recall WHERE recall.memory_id = m.id AND recall.last_at >= {since})"""


def local_day(sql: "Sql", zone: tzinfo) -> str:
    """The day in which a memory was created, as `text.formatting.local_day` has it."""
    apart = "".join(
        f" WHEN m.created_at >= {sql.bind(first)} AND m.created_at < {sql.bind(second)} THEN {sql.bind(day)}::date"
        for day, first, second in repeated_evenings(zone)
    )
    day = _LOCAL_DAY.format(zone=sql.bind(str(zone)))
    return f"CASE{apart} ELSE {day} END" if apart else day


class Sql:
    """Builds conditions and collects their named parameters while a statement is composed."""

    def __init__(self, knn: Callable[[EngineQuery, str, bool], Ids] | None = None) -> None:
        self.parameters: dict[str, Any] = {}
        self.knn = knn

    def bind(self, value: Any) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s"

    def where(self, plan: EngineQuery, *, without_includes: str = "", without_dates: bool = False) -> str:
        """The whole filter of a query, optionally without the inclusions of one facet, or without the dates."""
        conditions = self.filters(plan, without_includes=without_includes, without_dates=without_dates)
        if plan.meaning is not None and self.knn is not None:
            near = self.knn(plan, without_includes, without_dates)
            conditions.append(self.matching(plan, near))
        elif plan.has_text:
            conditions.append(self._text_or_name(plan))
        return " AND ".join(conditions) or "true"

    def matching(self, plan: EngineQuery, near: Ids) -> str:
        """Match by words, by name or by vector, given the ids of the nearest memories."""
        by_meaning = f"m.id = ANY({self.bind(near.tolist())}::bigint[])"
        if plan.meaning and plan.meaning.semantic_only:
            return by_meaning
        return f"({self._text_or_name(plan)} OR {by_meaning})"

    def matches_of_all_states(self, plan: EngineQuery) -> tuple[str, str]:
        """The condition for the match set in every state, and the one for the selected states."""
        states = plan.filter("state")
        shown = [self.included(states, plan)] if states and states.includes else []
        if plan.meaning is not None and self.knn is not None:
            # With the states selected, other memories may be the nearest, so search again.
            shown.append(self.matching(plan, self.knn(plan, "", False)))
        return self.where(plan, without_includes="state"), " AND ".join(shown) or "true"

    def filters(self, plan: EngineQuery, *, without_includes: str = "", without_dates: bool = False) -> list[str]:
        """The filters of a query, without its words and vector."""
        conditions = ["false"] if plan.is_refused else []
        if plan.project_ids is not None:
            conditions.append(f"m.project_id = ANY({self.bind(list(plan.project_ids))}::bigint[])")
        for chosen in plan.filters:
            conditions.extend(self._excluded(chosen, plan))
            if chosen.includes and (chosen.key != without_includes or chosen.require_all):
                conditions.append(self.included(chosen, plan))
        if plan.updated_from is not None:
            # memory_updated_idx
            conditions.append(f"m.updated_at >= {self.bind(plan.updated_from)}")
        if plan.as_of is not None:
            conditions.append(valid_at(self.bind(plan.as_of)))
        if plan.area is not None:
            conditions.append(self._in_area(plan.area))
        if plan.recalled_from is not None:
            conditions.append(_RECALLED.format(since=self.bind(plan.recalled_from)))
        if plan.not_recalled_from is not None:
            conditions.append(f"NOT {_RECALLED.format(since=self.bind(plan.not_recalled_from))}")
        if not without_dates:
            conditions.extend(self.inside(plan))
        return conditions

    def _in_area(self, area: Area) -> str:
        """Membership in an area of the map: mapplace_cell_idx finds the cells, and the outline is compared."""
        if not area.corners:
            return "false"
        cells = area.cells()
        ax, ay, bx, by = (self.bind(column) for column in area.edges().T.tolist())
        return _IN_AREA.format(
            layout=self.bind(area.layout_id),
            inside=self.bind(np.flatnonzero(cells == INSIDE).tolist()),
            outline=self.bind(np.flatnonzero(cells == OUTLINE).tolist()),
            edges=f"unnest({ax}::bigint[], {ay}::bigint[], {bx}::bigint[], {by}::bigint[])",
        )

    def inside(self, plan: EngineQuery) -> list[str]:
        """The date filter."""
        conditions = []
        if plan.start is not None:
            conditions.append(f"m.created_at >= {self.bind(plan.start)}")
        if plan.end is not None:
            conditions.append(f"m.created_at < {self.bind(plan.end)}")
        return conditions

    def included(self, chosen: Filter, plan: EngineQuery) -> str:
        """The inclusions of a facet."""
        spec = FACET[chosen.key]
        if chosen.require_all and not chosen.no_value:
            return " AND ".join(self._any_of(spec, group, plan) for group in chosen.include)
        choices = [self._any_of(spec, tuple(itertools.chain(*chosen.include)), plan)] if chosen.include else []
        if chosen.no_value:
            choices.append(no_value_sql(spec))
        # In AND mode a value and "no value" together can never both hold.
        return "(" + (" AND " if chosen.require_all else " OR ").join(choices) + ")"

    def _excluded(self, chosen: Filter, plan: EngineQuery) -> Iterator[str]:
        spec = FACET[chosen.key]
        values = tuple(itertools.chain(*chosen.exclude))
        if values:
            # Where a column has no value, neither the condition nor its opposite is true.
            yield f"({self._any_of(spec, values, plan)}) IS NOT TRUE"
        if chosen.any_value:
            yield f"NOT ({no_value_sql(spec)})"

    def _any_of(self, spec: FacetSpec, values: tuple[Value, ...], plan: EngineQuery) -> str:
        if not values:
            return "false"
        bound = self.bind(list(values))
        match spec.kind:
            case FacetKind.SCALAR:
                return f"m.{spec.column} = ANY({bound}::text[])"
            case FacetKind.PROJECT | FacetKind.IMPORT:
                return f"m.{spec.column} = ANY({bound}::bigint[])"
            case FacetKind.TEXTS:
                return f"m.{spec.column} && {bound}::text[]"
            case FacetKind.TREE if not plan.subcategories:
                return f"m.category_ids && {bound}::int[]"
        return f"m.{spec.column} && {bound}::int[]"

    def _text_or_name(self, plan: EngineQuery) -> str:
        """Match by words or by name."""
        choices = [self._texts(plan)] if plan.texts else []
        choices += [self._any_of(FACET[key], values, plan) for key, values in plan.named]
        return f"({' OR '.join(choices)})"

    def _texts(self, plan: EngineQuery, *, always: bool = False) -> str:
        """Match by words; with `always`, only what semantic matches must contain too."""
        choices = []
        for text in plan.texts:
            condition = self.words(text.words.always if always else text.words, anything=always)
            if text.project_ids is not None:
                bound = self.bind(list(text.project_ids))
                condition = f"(m.project_id = ANY({bound}::bigint[]) AND {condition})"
            choices.append(condition)
        return "(" + " OR ".join(choices) + ")"

    def always(self, plan: EngineQuery) -> list[str]:
        """The phrases and signed words of a query, if it has any."""
        return [self._texts(plan, always=True)] if any(not text.words.always.is_empty for text in plan.texts) else []

    def words(self, words: TextQuery, *, anything: bool = False) -> str:
        if words.is_empty:
            return "true" if anything else "false"
        conditions = []
        always = [*map(tsquery, words.required), *(f"!({tsquery(pattern)})" for pattern in words.excluded)]
        if always:
            conditions.append(self._matches(" & ".join(f"({part})" for part in always)))
        if words.groups:
            conditions.append("(" + " OR ".join(self._group(group) for group in words.groups) + ")")
        return "(" + " AND ".join(conditions) + ")"

    def _group(self, group: Alternative) -> str:
        parts = [f"({tsquery(pattern)})" for pattern in group.phrases]
        words = [f"({tsquery(pattern)})" for pattern in group.words]
        need = group.need
        if not words or math.comb(len(words), need) <= _MAX_COMBINATIONS:
            if words:
                enough = (" & ".join(some) for some in itertools.combinations(words, need))
                parts.append("(" + " | ".join(f"({some})" for some in enough) + ")")
            return self._matches(" & ".join(parts))
        # Any `need` of the words include one of the first n - need + 1: the index narrows by those, the sum decides.
        narrowing = self._matches(" & ".join([*parts, "(" + " | ".join(words[: len(words) - need + 1]) + ")"]))
        score = " + ".join(f"({self._matches(word)})::int" for word in words)
        return f"({narrowing} AND ({score}) >= {need})"

    def _matches(self, text: str) -> str:
        # memory_terms_gin
        return f"m.terms @@ {self.bind(text)}::tsquery"

    def rank(self, plan: EngineQuery) -> str:
        """The rank of a match: by its words, and 0 if it matches by name alone."""
        if not plan.named or not plan.texts:
            return self.word_rank(plan)
        return f"CASE WHEN {self._texts(plan)} THEN {self.word_rank(plan)} ELSE 0 END"

    def word_rank(self, plan: EngineQuery) -> str:
        """The rank of a row by the positive words, their frequency and field weights."""
        ranks = []
        for text in plan.texts:
            if not text.words.positive:
                continue
            rank = self.words_rank(text.words)
            if text.project_ids is not None:
                bound = self.bind(list(text.project_ids))
                rank = f"CASE WHEN m.project_id = ANY({bound}::bigint[]) THEN {rank} ELSE 0 END"
            ranks.append(rank)
        return f"greatest({', '.join(ranks)})" if ranks else "0::real"

    def words_rank(self, words: TextQuery) -> str:
        """The rank of a row by the words of one language. Words that the query repeats count twice."""
        repeated = [pattern for pattern, _ in words.repeated]
        ranks = (
            RANK % self.bind(" | ".join(f"({tsquery(pattern)})" for pattern in patterns))
            for patterns in (words.positive, repeated)
            if patterns
        )
        return " + ".join(ranks)


def tsquery(pattern: Pattern) -> str:
    """A pattern as the text of a Postgres tsquery, its terms quoted: `'event':A <1> 'lo':*A`."""
    weight = FIELD_WEIGHTS.get(pattern.field, "")
    terms = [quote_term(term) + (f":{weight}" if weight else "") for term in pattern.terms]
    if pattern.prefix:
        terms[-1] = f"{quote_term(pattern.terms[-1])}:*{weight}"
    text = terms[0]
    for term, gap in zip(terms[1:], pattern.gaps, strict=True):
        text += f" <{gap}> {term}"
    return text


def words_sql(
    texts: Sequence[TextQuery], *, always: bool, beside: Mapping[str, Any] | None = None
) -> tuple[str, str, dict[str, Any]]:
    """Build a condition, a rank and their parameters for a table `m` with a column `terms` that holds no memories.

    The condition holds if any of the texts matches; with `always`, only the parts that semantic matches must contain.
    The parameters include those in `beside`.
    """
    sql = Sql()
    sql.parameters.update(beside or {})
    conditions = [sql.words(words.always if always else words, anything=always) for words in texts]
    ranks = [sql.words_rank(words) for words in texts if words.positive]
    rank = f"greatest({', '.join(ranks)})" if ranks else "0::real"
    return f"({' OR '.join(conditions) or 'false'})", rank, sql.parameters


def no_value_sql(spec: FacetSpec) -> str:
    return _NO_VALUE[spec.kind].format(column=spec.column)


def chosen_values(sql: Sql, request: FacetRequest, cast: str) -> str:
    """The condition for the values `g` of a facet that were requested."""
    chosen = "true"
    if request.limit is not None:
        always = sql.bind([_cast(v, cast) for v in request.always])
        chosen = f"(g.r <= {sql.bind(request.limit)} OR g.value = ANY({always}::{cast}[]))"
    if request.only is not None:
        chosen += f" AND g.value = ANY({sql.bind([_cast(v, cast) for v in request.only])}::{cast}[])"
    return chosen


def drops_includes(plan: EngineQuery, key: str) -> bool:
    """Whether a facet is counted over the match set without its own inclusions.

    States are not, because the match set includes all of them.
    """
    return key != "state" and plan.drops_selection(key)


def _cast(value: Value, cast: str) -> Value:
    return int(value) if cast == "int" else str(value)


# When a memory was valid: from `SINCE` to before `UNTIL`, which is null while it still is. One that is neither active
# nor proposed was valid until the one that superseded it was created or, without one, until its own last change.
SINCE = "coalesce(m.valid_from, m.created_at)"
# The successor is found by its primary key.
_SUCCEEDED = "(SELECT s.created_at FROM memories_memory s WHERE s.id = m.superseded_by_id)"
_RETIRED = f"CASE WHEN m.state NOT IN ('active', 'proposed') THEN coalesce({_SUCCEEDED}, m.updated_at) END"
UNTIL = f"least(m.valid_to, {_RETIRED})"

# Shards do not see each other's memories: there the successors are read first, those that were created by then and
# those that were not.
_SUCCESSORS = """(SELECT s.id FROM memories_memory s WHERE s.created_at {comparison} {then} AND s.id IN (
  SELECT superseded.superseded_by_id FROM memories_memory superseded WHERE superseded.superseded_by_id IS NOT NULL))"""


def valid_at(then: str) -> str:
    """The condition that a memory was valid at a moment, given as a bound parameter."""
    if not is_distributed():
        return f"{SINCE} < {then} AND ({UNTIL} >= {then}) IS NOT FALSE"
    later = _SUCCESSORS.format(comparison=">=", then=then)
    earlier = _SUCCESSORS.format(comparison="<", then=then)
    return (
        f"{SINCE} < {then} AND (m.valid_to >= {then}) IS NOT FALSE AND (m.state IN ('active', 'proposed')"
        f" OR (m.superseded_by_id IN {later}) IS TRUE"
        f" OR (m.updated_at >= {then} AND (m.superseded_by_id IN {earlier}) IS NOT TRUE))"
    )


class TermsMatch(Func):
    """Whether terms match a tsquery. Uses memory_terms_gin."""

    template = "(%(expressions)s::tsquery)"
    arg_joiner = " @@ "
    output_field = BooleanField()


def has_words(text: str) -> Q:
    """A condition for memories with all words of a text, or of one of its alternatives, and with none that it excludes.

    In the language of any project; empty without words to look for.
    """
    found = Q()
    for language in Project.objects.order_by().values_list("language", flat=True).distinct():
        words = parse_text(text, language)
        if words.positive:
            found |= Q(TermsMatch(F("terms"), Bound(_all_of(words))))
    # A word is excluded in the spelling of every language.
    return found & ~excluded if found and (excluded := has_excluded_words(text)) else found


def has_excluded_words(text: str) -> Q:
    """A condition for memories with any word that a text excludes, in the language of any project; empty without."""
    found = Q()
    for language in Project.objects.order_by().values_list("language", flat=True).distinct():
        if excluded := parse_text(text, language).excluded:
            found |= Q(TermsMatch(F("terms"), Bound(" | ".join(f"({tsquery(one)})" for one in excluded))))
    return found


def _all_of(words: TextQuery) -> str:
    parts = [tsquery(pattern) for pattern in words.required]
    if words.groups:
        groups = (" & ".join(f"({tsquery(one)})" for one in (*group.phrases, *group.words)) for group in words.groups)
        parts.append(" | ".join(f"({group})" for group in groups))
    return " & ".join(f"({part})" for part in parts)


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
    selects += [facet_select(sql, plan, one, k) for k, one in enumerate(requests)]
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


def facet_select(sql: Sql, plan: EngineQuery, request: FacetRequest, k: int) -> str:
    spec = FACET[request.key]
    apart = drops_includes(plan, request.key)
    rows = "memories_memory" if apart else "match_set"
    where = sql.where(plan, without_includes=request.key) if apart else "m.shown"
    if request.key == "state" and plan.drops_selection("state"):
        where = "true"
    is_single = spec.kind == FacetKind.SCALAR or spec.kind in KEY_KINDS
    cast = "text" if is_single or spec.kind == FacetKind.TEXTS else "int"
    chosen = chosen_values(sql, request, cast)
    if is_single:
        present = f"NOT ({no_value_sql(spec)})"
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
            ids = FACET[requests[k].key].kind in {FacetKind.IDS, FacetKind.TREE, *KEY_KINDS}
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

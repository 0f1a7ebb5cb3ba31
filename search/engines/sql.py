"""An EngineQuery, and the words of a text for lists that are no searches, as SQL conditions over the table `m`.

Every value is a named parameter.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import numpy as np
from django.db.models import BooleanField, F, Func, Q
from django.db.models import Value as Bound

from memories.models import Project
from search.area import INSIDE, OUTLINE, Area
from search.engines.base import EngineQuery, FacetRequest, Filter, Ids, Value
from search.facets import FACET, FacetKind, FacetSpec
from text.analysis import FIELD_WEIGHTS, Pattern, quote_term
from text.formatting import repeated_evenings
from text.query_syntax import Alternative, TextQuery, parse_text
from web.distribution import is_distributed

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
            conditions.append(valid_at(self.bind(plan.as_of), distributed=is_distributed()))
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
            yield f"NOT {self._any_of(spec, values, plan)}"
        if chosen.any_value:
            yield f"NOT ({no_value_sql(spec)})"

    def _any_of(self, spec: FacetSpec, values: tuple[Value, ...], plan: EngineQuery) -> str:
        if not values:
            return "false"
        bound = self.bind(list(values))
        match spec.kind:
            case FacetKind.SCALAR:
                return f"m.{spec.column} = ANY({bound}::text[])"
            case FacetKind.PROJECT:
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
    """The condition that a facet has no value."""
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


def valid_at(then: str, *, distributed: bool) -> str:
    """The condition that a memory was valid at a moment, given as a bound parameter."""
    if not distributed:
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

"""Counts the facets and the histogram of a plan by the counting rules, and labels the values."""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from math import log

import numpy as np
from django.db import DatabaseError, InterfaceError, OperationalError

from categories.queries import Term, TreeNode
from search.baseline_counts import corpus_answer, corpus_plan, corpus_view
from search.engines.base import (
    Counts,
    Engine,
    EngineQuery,
    EngineTimeoutError,
    FacetCounts,
    FacetRequest,
    Filter,
    MatchSet,
    Spans,
    Value,
    ValueCount,
)
from search.facets import FACET, FACETS, DateBuckets, Facet, FacetKind, FacetSpec, FacetValue
from search.histogram import (
    Histogram,
    build_histogram,
    build_hours,
    count_before,
    effective_interval,
    histogram_domain,
    hour_edges,
    without_early_days,
)
from search.plan import ResolvedQuery, visible_ids
from search.query import Interval, SearchQuery
from search.result import CorpusCounts
from text.analysis import fold
from text.formatting import local_time

logger = logging.getLogger(__name__)

# Roots, and children of each open node, in the tree of the sidebar.
_TREE_ROOTS = 12
_TREE_CHILDREN = 8
# Values to request of which those with the least count are ordered by name.
TIED = 2_000
# Memories that a value needs before it can be called typical of others.
MIN_SUPPORT = 5


@dataclass(frozen=True, slots=True)
class Counted:
    """All counts of one result."""

    summary: MatchSet
    facets: tuple[Facet, ...]
    histogram: Histogram
    date_buckets: DateBuckets | None = None
    quick_ranges: DateBuckets | None = None
    as_of: datetime | None = None
    """The time of counts that are older than the corpus."""
    states: dict[Value, int] | None = None
    """The matches in each state, unless they were counted for selected states only, or by meaning, which finds others
    in each state.
    """


def count_facets(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, facet_limit: int | None, *, drops_early: bool = False
) -> Counted:
    """Count every facet; on an error or timeout only the total, with the reason."""
    plan = resolved.plan
    tree = _tree_candidates(resolved) if facet_limit is None else []
    always = _always_in_tree(tree, resolved)
    requests = [_request(spec, plan, tree, always, facet_limit) for spec in FACETS]
    try:
        counts = _counts(engine, resolved, requests)
        drawn = histogram_of(engine, query, resolved, counts, drops_early=drops_early)
        histogram = replace(drawn, at_least=counts.days_truncated)
    except EngineTimeoutError:
        return _unavailable(engine, plan, "Counting took too long.")
    except (OperationalError, InterfaceError):
        # Without the database there are no results to degrade to.
        raise
    except DatabaseError:
        logger.exception("The facets could not be counted.")
        return _unavailable(engine, plan, "Counting failed.")
    summary = counts.summary
    hides = hidden_by_exclusions(engine, resolved, summary.total)
    zeros = _known_values(engine, resolved) if facet_limit is None else {}
    facets = []
    for spec in FACETS:
        counted = counts.facets[spec.key]
        if plan.project_ids is not None and not (spec.kind == FacetKind.TREE and facet_limit is None):
            counted = ordered_by_name(spec, counted, _limit(spec, facet_limit), resolved)
        if facet_limit is not None:
            values = value_rows(spec, counted.values, resolved, hides)
        elif spec.kind == FacetKind.TREE:
            values = _tree_values(engine, counted, tree, always, resolved, hides)
        else:
            values = value_rows(spec, _sidebar_values(spec, counted, resolved, zeros), resolved, hides)
        distinct = counted.distinct - _hidden_by_names(spec, counted.values, resolved)
        facets.append(build_facet(spec, values, distinct, summary, resolved, at_least=counted.truncated))
    buckets, ranges = DateBuckets(*counts.buckets), DateBuckets(*counts.buckets_without_dates)
    return Counted(summary, tuple(facets), histogram, buckets, ranges, counts.as_of, _states(plan, counts))


def _states(plan: EngineQuery, counts: Counts) -> dict[Value, int] | None:
    counted = counts.facets["state"]
    if plan.meaning is not None or not plan.drops_selection("state") or len(counted.values) < counted.distinct:
        return None
    return {value.value: value.count for value in counted.values}


def _counts(engine: Engine, resolved: ResolvedQuery, requests: list[FacetRequest]) -> Counts:
    """Use the cached corpus counts for an empty query.

    They also serve the only facet with selected values, since its counts ignore its own selection.
    """
    plan = resolved.plan
    nothing = corpus_plan(plan.project_ids)
    if plan == nothing:
        return corpus_answer(engine, plan, requests, resolved.zone, resolved.now)
    alone = {key for key in FACET if plan_counted(plan, key) == nothing}
    view = corpus_view(engine, plan.project_ids, resolved.zone) if alone else None
    live = [request for request in requests if request.key not in alone]
    counts = engine.counts(plan, live, zone=resolved.zone, now=resolved.now)
    if view is None:
        return counts
    known = [request for request in requests if request.key in alone]
    without = {request.key: view.counted.summary.no_value[request.key] for request in known}
    return replace(
        counts,
        facets=counts.facets | {request.key: view.answer(request) for request in known},
        summary=replace(counts.summary, no_value=counts.summary.no_value | without),
        as_of=view.older_than(engine),
    )


def plan_counted(plan: EngineQuery, key: str) -> EngineQuery:
    """The plan whose match set a facet is counted over."""
    chosen = plan.filter(key)
    if chosen is None or not plan.drops_selection(key) or key == "state":
        return plan
    bare = replace(chosen, include=(), no_value=False)
    return plan.without_filter(key) if bare == Filter(key) else plan.with_filter(bare)


def _unavailable(engine: Engine, plan: EngineQuery, reason: str) -> Counted:
    facets = tuple(Facet(spec.key, unavailable=reason) for spec in FACETS)
    return Counted(engine.match([plan])[0], facets, Histogram(unavailable=reason))


def _chosen_values(plan: EngineQuery, key: str) -> tuple[Value, ...]:
    chosen = plan.filter(key)
    return tuple(value for group in (*chosen.include, *chosen.exclude) for value in group) if chosen else ()


def _request(
    spec: FacetSpec, plan: EngineQuery, tree: list[TreeNode], always: set[int], facet_limit: int | None
) -> FacetRequest:
    if spec.kind == FacetKind.TREE and facet_limit is None:
        return _tree_request(spec, tree, always)
    return flat_request(spec, plan, _limit(spec, facet_limit))


def flat_request(spec: FacetSpec, plan: EngineQuery, limit: int, only: tuple[Value, ...] | None = None) -> FacetRequest:
    """Request the largest values of a facet, and the chosen ones."""
    if plan.project_ids is not None and spec.kind in (FacetKind.IDS, FacetKind.TREE):
        # More, since `ordered_by_name` chooses among equal counts.
        limit = max(limit, TIED)
    return FacetRequest(spec.key, limit=limit, always=_chosen_values(plan, spec.key), only=only)


def _limit(spec: FacetSpec, facet_limit: int | None) -> int:
    # One more than the sidebar shows: a single further value replaces the link to more.
    return spec.limit + 1 if facet_limit is None else facet_limit


def ordered_by_name(spec: FacetSpec, counted: FacetCounts, limit: int, resolved: ResolvedQuery) -> FacetCounts:
    """The largest values and the chosen ones, equal counts by name.

    Engines order them by id, which shows a viewer of some projects which names others used first.
    """
    if spec.kind not in (FacetKind.IDS, FacetKind.TREE) or not counted.values:
        return counted
    least = counted.values[min(limit, len(counted.values)) - 1].count if limit else 0
    chosen = set(_chosen_values(resolved.plan, spec.key))
    values = by_count_and_name(spec, [v for v in counted.values if v.count >= least or v.value in chosen], resolved)
    kept = [v for place, v in enumerate(values) if place < limit or v.value in chosen]
    return replace(counted, values=tuple(kept))


def by_count_and_name(spec: FacetSpec, values: Sequence[ValueCount], resolved: ResolvedQuery) -> list[ValueCount]:
    """Values by their counts, equal ones by name."""
    terms = value_terms(spec, [v.value for v in values], resolved)
    # Several entities may have one name, and several categories one label: their types and paths decide, not their ids.
    names = {value: (fold(term.label), term.value) for value, term in terms.items()}
    return sorted(values, key=lambda v: (-v.count, *names.get(v.value, ("", "")), str(v.value)))


def by_evidence(spec: FacetSpec, values: Sequence[ValueCount], total: int, corpus: CorpusCounts) -> list[ValueCount]:
    """First the values that are more frequent among the `total` memories counted than among all others, those with the
    strongest evidence (G²) first; then the rest in their order.
    """
    evidence: dict[Value, float] = {}
    for one in values:
        elsewhere = max(0, corpus.counts.get((spec.key, one.value), 0) - one.count)
        others = max(elsewhere, corpus.total - total)
        if one.count >= MIN_SUPPORT and one.count * others > elsewhere * total:
            evidence[one.value] = log_likelihood(one.count, total, elsewhere, others)
    return sorted(values, key=lambda one: -evidence.get(one.value, 0.0))


def log_likelihood(count_a: int, total_a: int, count_b: int, total_b: int) -> float:
    """The log-likelihood ratio G² of a value being as frequent among the memories of one slice as of the other."""
    both = count_a + count_b
    total = total_a + total_b
    cells = (
        (count_a, total_a, both),
        (count_b, total_b, both),
        (total_a - count_a, total_a, total - both),
        (total_b - count_b, total_b, total - both),
    )
    return max(0.0, 2 * sum(found * log(found * total / (row * column)) for found, row, column in cells if found > 0))


def _tree_request(spec: FacetSpec, tree: list[TreeNode], always: set[int]) -> FacetRequest:
    """Request the largest categories of each level, and those in `always`."""
    siblings: dict[int | None, list[int]] = {}
    for node in tree:
        siblings.setdefault(node.parent_id, []).append(node.id)
    groups = tuple((_TREE_ROOTS if parent is None else _TREE_CHILDREN, tuple(ids)) for parent, ids in siblings.items())
    return FacetRequest(spec.key, only=tuple(node.id for node in tree), always=tuple(always), groups=groups)


def _known_values(engine: Engine, resolved: ResolvedQuery) -> dict[str, tuple[ValueCount, ...]]:
    """Values of the corpus for facets that show zeros; empty if counting the corpus times out."""
    try:
        view = corpus_view(engine, resolved.plan.project_ids, resolved.zone)
    except EngineTimeoutError:
        return {}
    requests = [FacetRequest(spec.key, limit=spec.limit + 1) for spec in FACETS if spec.shows_zeros]
    return {request.key: view.answer(request).values for request in requests}


def _sidebar_values(
    spec: FacetSpec, counted: FacetCounts, resolved: ResolvedQuery, zeros: dict[str, tuple[ValueCount, ...]]
) -> tuple[ValueCount, ...]:
    """Values for the sidebar: the largest, the selected ones, and zeros of facets that show them."""
    chosen = set(_chosen_values(resolved.plan, spec.key))
    most = spec.limit if counted.distinct > spec.limit + 1 else spec.limit + 1
    values = [v for place, v in enumerate(counted.values) if place < most or v.value in chosen]
    here = {v.value for v in counted.values} | chosen
    absent = [ValueCount(v.value, 0) for v in zeros.get(spec.key, ()) if v.value not in here]
    return (*values, *absent[: max(0, most - len(values))])


def hidden_by_exclusions(engine: Engine, resolved: ResolvedQuery, total: int) -> dict[tuple[str, str], int]:
    """The number of memories that each excluded value hides."""
    variants = [
        (chosen.key, chosen.exclude[n], replace(chosen, exclude=chosen.exclude[:n] + chosen.exclude[n + 1 :]))
        for chosen in resolved.plan.filters
        for n in range(len(chosen.exclude))
    ]
    shown = engine.match([resolved.plan.with_filter(changed) for _, _, changed in variants])
    hides: dict[tuple[str, str], int] = {}
    for (key, values, _), without in zip(variants, shown, strict=True):
        for value in values:
            # With truncated k-NN results both are lower bounds, and the difference may be negative.
            hides[key, resolved.url_values[key, value]] = max(0, without.total - total)
    return hides


def build_facet(
    spec: FacetSpec,
    values: tuple[FacetValue, ...],
    distinct: int,
    summary: MatchSet,
    resolved: ResolvedQuery,
    *,
    at_least: bool,
) -> Facet:
    chosen = resolved.plan.filter(spec.key) or Filter(spec.key)
    return Facet(
        key=spec.key,
        values=values,
        distinct=distinct,
        no_value=summary.no_value.get(spec.key, 0),
        no_value_selected=chosen.no_value,
        any_value_selected=chosen.any_value,
        requires_all=chosen.require_all,
        at_least=at_least,
    )


def value_terms(spec: FacetSpec, values: Sequence[Value], resolved: ResolvedQuery) -> dict[Value, Term]:
    """Terms (URL value, label) of the values of an engine."""
    match spec.kind:
        case FacetKind.PROJECT:
            rows = ((value, resolved.projects.get(int(value))) for value in values)
            return {value: Term(row.id, row.slug, row.name or row.slug) for value, row in rows if row}
        case FacetKind.IMPORT:
            labels = resolved.import_labels([int(value) for value in values])
            return {pk: Term(pk, str(pk), label) for pk, label in labels.items()}
        case FacetKind.TREE:
            nodes = resolved.names.category_nodes([int(value) for value in values])
            return {node.id: Term(node.id, node.path, " / ".join(node.names)) for node in nodes.values()}
        case FacetKind.IDS:
            terms = resolved.names.concept_terms if spec.key == "concept" else resolved.names.entity_terms
            return dict(terms([int(value) for value in values]).items())
    return {value: Term(0, str(value), str(value)) for value in values}


def named_label(key: str, term: Term) -> str:
    """The label of a term among others of its name: several entities may have one."""
    return term.value if key == "entity" else term.label


def value_rows(
    spec: FacetSpec, counted: Sequence[ValueCount], resolved: ResolvedQuery, hides: dict[tuple[str, str], int]
) -> tuple[FacetValue, ...]:
    """Values of a flat facet: the counted ones, then selected ones without memories."""
    rows = counted_rows(spec, counted, resolved, hides)
    uncounted = _uncounted_selected(spec, {v.value for v in counted}, resolved, hides)
    return _join_sources(spec, (*rows, *uncounted), resolved)


def counted_rows(
    spec: FacetSpec, counted: Sequence[ValueCount], resolved: ResolvedQuery, hides: dict[tuple[str, str], int]
) -> tuple[FacetValue, ...]:
    """Values in the order of their counts."""
    terms = value_terms(spec, [v.value for v in counted], resolved)
    rows = tuple(_values(spec, [(terms[v.value], v) for v in counted if v.value in terms], resolved, hides))
    return _join_sources(spec, rows, resolved)


def _join_sources(spec: FacetSpec, rows: tuple[FacetValue, ...], resolved: ResolvedQuery) -> tuple[FacetValue, ...]:
    """The rows with one for all imports of a followed source that was chosen."""
    if spec.kind != FacetKind.IMPORT:
        return rows
    joined: dict[str, FacetValue] = {}
    for row in rows:
        if before := joined.get(row.value):
            row = before if row.excluded else before._replace(count=before.count + row.count)
        elif label := resolved.labels.get((spec.key, row.value)):
            row = row._replace(label=label)
        joined[row.value] = row
    return tuple(joined.values())


def _hidden_by_names(spec: FacetSpec, counted: Sequence[ValueCount], resolved: ResolvedQuery) -> int:
    """The number of values that are counted in the row of another one; see `_join_sources`."""
    if spec.kind != FacetKind.IMPORT:
        return 0
    names = [resolved.url_values.get((spec.key, one.value), one.value) for one in counted if one.count]
    return len(names) - len(set(names))


def _values(
    spec: FacetSpec,
    counted: Iterable[tuple[Term, ValueCount]],
    resolved: ResolvedQuery,
    hides: dict[tuple[str, str], int],
    parents: Container[int] = (),
) -> Iterator[FacetValue]:
    """Counted values with their names. `parents` are the categories that have children."""
    key, is_tree, url_values = spec.key, spec.kind == FacetKind.TREE, resolved.url_values
    chosen = resolved.plan.filter(key)
    left_out = {value for group in chosen.exclude for value in group} if chosen else set[Value]()
    for term, (ref, count, own) in counted:
        value = url_values.get((key, ref), term.value)
        excluded = ref in left_out
        yield FacetValue(
            value=value,
            label=term.label,
            count=hides.get((key, value), 0) if excluded else count,
            selected=not excluded and (key, value) in resolved.selected,
            excluded=excluded,
            own_count=own if is_tree else None,
            parent=(term.value.rpartition("/")[0] or None) if is_tree else None,
            depth=term.value.count("/") + 1 if is_tree else 1,
            has_children=term.id in parents,
            type=term.type,
            canonical=term.value,
            ref=ref,
        )


def _uncounted_selected(
    spec: FacetSpec, counted: set[Value], resolved: ResolvedQuery, hides: dict[tuple[str, str], int]
) -> list[FacetValue]:
    """Selected and excluded values that were not counted, including unknown names."""
    missing = [v for v in _chosen_values(resolved.plan, spec.key) if v not in counted]
    terms = value_terms(spec, missing, resolved)
    rows = list(_values(spec, [(terms[v], ValueCount(v, 0)) for v in missing if v in terms], resolved, hides))
    for key, name in resolved.unknown:
        if key == spec.key:
            rows.append(FacetValue(name, name, 0, selected=True))
    return rows


def _tree_candidates(resolved: ResolvedQuery) -> list[TreeNode]:
    """Two levels of the tree, and all levels on the paths to selected categories."""
    chosen = resolved.chosen_categories
    return resolved.names.tree(resolved.names.ancestor_ids(chosen) | {node.id for node in chosen})


def _always_in_tree(tree: list[TreeNode], resolved: ResolvedQuery) -> set[int]:
    """Nodes always shown: the selected categories and their ancestors."""
    chosen = resolved.chosen_categories
    steps = [node.path.split("/") for node in chosen]
    above = {"/".join(names[:n]) for names in steps for n in range(1, len(names))}
    return {node.id for node in tree if node.path in above} | {node.id for node in chosen}


def _tree_values(
    engine: Engine,
    counted: FacetCounts,
    tree: list[TreeNode],
    always: set[int],
    resolved: ResolvedQuery,
    hides: dict[tuple[str, str], int],
) -> tuple[FacetValue, ...]:
    """The tree of the sidebar: parents before children, siblings by count."""
    spec = FACET["category"]
    counts = {v.value: v for v in counted.values}
    children: dict[int | None, list[TreeNode]] = {}
    for node in tree:
        if node.id in counts or node.id in always:
            children.setdefault(node.parent_id, []).append(node)

    shown = list(_shown_below(None, children, counts, always))
    # Children of open nodes are among the rows; for the others, check if any exist.
    parents = _parents(engine, resolved, [node.id for node in shown])
    rows = _values(
        spec,
        [(Term(node.id, node.path, node.name), counts.get(node.id) or ValueCount(node.id, 0)) for node in shown],
        resolved,
        hides,
        parents,
    )
    unknown = [name for key, name in resolved.unknown if key == spec.key]
    return (*rows, *(FacetValue(name, name, 0, selected=True) for name in unknown))


def _shown_below(
    parent: int | None,
    children: Mapping[int | None, list[TreeNode]],
    counts: Mapping[Value, ValueCount],
    always: Container[int],
) -> Iterator[TreeNode]:
    """The nodes of the sidebar below a node, the largest first, each followed by those below it."""

    def size(node: TreeNode) -> tuple[int, str]:
        return (-counts[node.id].count if node.id in counts else 0, node.path)

    most = _TREE_ROOTS if parent is None else _TREE_CHILDREN
    for place, node in enumerate(sorted(children.get(parent, []), key=size)):
        if place < most or node.id in always:
            yield node
            yield from _shown_below(node.id, children, counts, always)


def mark_parents(engine: Engine, resolved: ResolvedQuery, rows: Iterable[FacetValue]) -> list[FacetValue]:
    """Values of categories, marked if they have visible children."""
    listed = list(rows)
    parents = _parents(engine, resolved, [row.ref for row in listed if isinstance(row.ref, int)])
    return [row._replace(has_children=True) if row.ref in parents else row for row in listed]


def _parents(engine: Engine, resolved: ResolvedQuery, ids: Sequence[int]) -> set[int]:
    """The categories with visible memories in their descendants."""
    nodes = resolved.names.children(ids)
    if resolved.plan.project_ids is None:
        return set(nodes)
    children = {parent: {node.id for node in these} for parent, these in nodes.items()}
    below = {child for these in children.values() for child in these}
    with_memories = visible_ids(engine, resolved.plan.project_ids, "category", below)
    return {parent for parent, these in children.items() if not with_memories.isdisjoint(these)}


def histogram_of(
    engine: Engine,
    query: SearchQuery,
    resolved: ResolvedQuery,
    counts: Counts,
    *,
    margin: bool = True,
    drops_early: bool = False,
) -> Histogram:
    """The histogram of a query from its counts; with a margin, also of the time around its dates.

    `drops_early` leaves out early times that hold hardly anything, unless the query has dates or an interval.
    """
    plan, zone = resolved.plan, resolved.zone
    first = local_time(plan.start, zone).date() if plan.start else None
    last = local_time(plan.end - timedelta(microseconds=1), zone).date() if plan.end else None
    domain = histogram_domain(counts.days, first, last, margin=margin)
    if domain is None:
        return Histogram()
    if drops_early and first is None and last is None and query.bucket == Interval.AUTO:
        shorter = without_early_days(counts.days, domain)
        if shorter != domain:
            drawn = build_histogram(counts.days, shorter)
            begin = date.fromisoformat(drawn.bars[0].first)
            return replace(drawn, earlier=count_before(counts.days, begin))
    interval, _ = effective_interval(query.bucket, *domain)
    if interval == Interval.HOUR and domain[0] > date.min and domain[1] < date.max:
        edges = hour_edges(domain, zone)
        every, inside = engine.span_counts(plan, Spans(edges))
        # Memories with a date but no time are all at midnight, so bars of hours are useless.
        if query.bucket != Interval.AUTO or np.count_nonzero(every) > 1:
            return build_hours(edges, every, inside, zone)
        return build_histogram(counts.days, domain, Interval.DAY)
    return build_histogram(counts.days, domain, query.bucket)

"""Numbers of a query for lists: pages of facet values, totals, histograms, ids, and values over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import numpy as np
from django.utils import timezone

from access.viewer import Viewer
from memories.queries import visible_to
from search.baseline_counts import corpus_counts
from search.engines import snapshot, with_engine
from search.engines.base import (
    Engine,
    EngineTimeoutError,
    FacetCounts,
    FacetRequest,
    FacetValues,
    MatchSet,
    Spans,
    Value,
    ValueCount,
)
from search.facet_counts import (
    build_facet,
    by_count_and_name,
    by_evidence,
    counted_rows,
    hidden_by_exclusions,
    histogram_of,
    mark_parents,
    plan_counted,
    value_rows,
    value_terms,
)
from search.facets import FACET, Facet, FacetKind, FacetSpec
from search.histogram import Bar, DayCounts, Histogram, bar_edges, build_histogram
from search.plan import ResolvedQuery, children_of, resolve_query
from search.query import SearchQuery
from search.result import CorpusCounts, FacetListing, FacetPage, Initial, SearchWarning, older_warnings
from search.run import engine_notices
from text.analysis import fold
from web.cache import RevisionCache
from web.timing import Stopwatch


def facet_page(
    query: SearchQuery, key: str, listing: FacetListing, viewer: Viewer, *, with_corpus: bool = False
) -> FacetPage:
    """A page of the values of a facet under a query; `with_corpus` also with counts of the corpus, and initials."""

    def answer(engine: Engine) -> FacetPage:
        corpus = corpus_counts(engine, viewer) if with_corpus or listing.sort == "typical" else None
        page = _facet_page(engine, query, FACET[key], listing, viewer, corpus, with_initials=with_corpus)
        if corpus is None:
            return page
        older = older_warnings(corpus.as_of, viewer.timezone)
        return replace(page, corpus=corpus, warnings=(*page.warnings, *older))

    return with_engine(answer, viewer)


def totals(queries: Sequence[SearchQuery], viewer: Viewer) -> list[MatchSet]:
    """The sizes of the match sets of several queries, by one engine and from one snapshot; none of what is refused."""

    def answer(engine: Engine) -> list[MatchSet]:
        now = datetime.now(UTC)
        with snapshot():
            resolved = [resolve_query(engine, query, viewer, now, lenient=True) for query in queries]
            found = engine.match([one.plan for one in resolved])
        # By words alone there are fewer than there will be by meaning too.
        return [
            replace(size, truncated=True) if one.without_meaning else size
            for size, one in zip(found, resolved, strict=True)
        ]

    return with_engine(answer, viewer)


def date_histograms(queries: Sequence[SearchQuery], viewer: Viewer) -> list[Histogram]:
    """The histograms of several queries, without their facets, and without the time around their dates."""

    def answer(engine: Engine) -> list[Histogram]:
        now = datetime.now(UTC)
        with snapshot():
            return [_alone(engine, query, resolve_query(engine, query, viewer, now, lenient=True)) for query in queries]

    return with_engine(answer, viewer)


def _alone(engine: Engine, query: SearchQuery, resolved: ResolvedQuery) -> Histogram:
    try:
        counts = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now)
    except EngineTimeoutError:
        return Histogram(unavailable="Counting took too long.")
    return replace(histogram_of(engine, query, resolved, counts, margin=False), at_least=counts.days_truncated)


def _facet_page(
    engine: Engine,
    query: SearchQuery,
    spec: FacetSpec,
    listing: FacetListing,
    viewer: Viewer,
    corpus: CorpusCounts | None,
    *,
    with_initials: bool,
) -> FacetPage:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("facets"):
        resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
        summary = engine.match([resolved.plan], no_values=True, reuse=True)[0]
        warnings = [*resolved.warnings, *engine_notices(engine, viewer)]
        only: tuple[Value, ...] | None = None
        if listing.parent and spec.kind == FacetKind.TREE:
            only = children_of(engine, resolved, listing.parent, warnings)
        request = FacetRequest(spec.key, only=only)
        initials: tuple[Initial, ...] = ()
        try:
            counts = engine.counts(resolved.plan, [request], zone=resolved.zone, now=resolved.now, days=False)
        except EngineTimeoutError:
            facet = Facet(spec.key, unavailable="Counting took too long.")
        else:
            listed = _listed_values(spec, resolved, listing, counts.facets[spec.key])
            if listing.sort == "typical" and corpus is not None:
                if not corpus.known:
                    warnings.append(SearchWarning("Counting all memories took too long: largest first.", "sort"))
                # The facet is counted without its own selection, and so are the memories that have its values.
                (over,) = engine.match([plan_counted(resolved.plan, spec.key)], reuse=True)
                listed = by_evidence(spec, listed, over.total, corpus)
            facet = _listed_facet(engine, spec, resolved, listing, summary, counts.facets[spec.key], listed)
            if with_initials and len(listed) > listing.page_size:
                initials = _initials(spec, listed, resolved)
            if (listing.page - 1) * listing.page_size >= max(1, facet.distinct):
                warnings.append(SearchWarning(f"Page {listing.page} is past the last page.", "page"))
    return FacetPage(
        facet=facet,
        listing=listing,
        total=summary.total,
        at_least=summary.truncated,
        warnings=tuple(warnings),
        labels=resolved.labels,
        timings=watch.timings,
        initials=initials,
    )


def _listed_values(
    spec: FacetSpec, resolved: ResolvedQuery, listing: FacetListing, counts: FacetCounts
) -> list[ValueCount]:
    """The values of all pages of a listing, in its order."""
    listed = list(counts.values)
    if resolved.plan.project_ids is not None and spec.kind in {FacetKind.IDS, FacetKind.TREE}:
        listed = by_count_and_name(spec, listed, resolved)
    if listing.search or listing.sort == "name":
        terms = value_terms(spec, [v.value for v in listed], resolved)
        wanted = fold(listing.search)
        listed = [v for v in listed if v.value in terms and wanted in fold(terms[v.value].label)]
        if listing.sort == "name":
            listed.sort(key=lambda v: (fold(terms[v.value].label), str(v.value)))
    return listed


def _initials(spec: FacetSpec, listed: Sequence[ValueCount], resolved: ResolvedQuery) -> tuple[Initial, ...]:
    """The letters with which the names of values begin, each with its first value in the order of names."""
    terms = value_terms(spec, [v.value for v in listed], resolved)
    names = sorted((fold(terms[v.value].label), str(v.value), v.value) for v in listed if v.value in terms)
    first: dict[str, Initial] = {}
    for place, (name, _, value) in enumerate(names):
        letter = name[0].upper() if name[:1].isalpha() else "#"
        first.setdefault(letter, Initial(letter, place, terms[value].value))
    return tuple(first.values())


def _listed_facet(
    engine: Engine,
    spec: FacetSpec,
    resolved: ResolvedQuery,
    listing: FacetListing,
    summary: MatchSet,
    counts: FacetCounts,
    listed: Sequence[ValueCount],
) -> Facet:
    """The values of a page of a listing. `distinct` is the number of values on all pages."""
    begin = (listing.page - 1) * listing.page_size
    shown = listed[begin : begin + listing.page_size]
    hides = hidden_by_exclusions(engine, resolved, summary.total)
    # The first page of an unrestricted listing always includes the selected values.
    if listing.page == 1 and not listing.search and not listing.parent:
        # There may be thousands of values, of which few are selected.
        selected = [v for v in counts.values if (spec.key, v.value) in resolved.url_values]
        absent = [v for v in selected if v not in shown]
        values = value_rows(spec, [*shown, *absent], resolved, hides)
    else:
        values = counted_rows(spec, shown, resolved, hides)
    if spec.kind == FacetKind.TREE:
        values = tuple(mark_parents(engine, resolved, values))
    return build_facet(spec, values, len(listed), summary, resolved, at_least=counts.truncated)


_PERIODS = 24
# Share of the oldest memories that precede the first period, so that a few of them do not make all others narrow.
_LEFT_OUT = 0.02
_KEPT, _KEPT_SECONDS = 64, 300


@dataclass(frozen=True, slots=True)
class Trends:
    """The number of memories of each value in each period. There are no periods if nothing could be counted."""

    key: str = ""
    periods: tuple[Bar, ...] = ()
    counts: tuple[tuple[Value, tuple[int, ...]], ...] = ()

    def by_value(self) -> dict[Value, tuple[int, ...]]:
        return dict(self.counts)


NO_TRENDS = Trends()
_cache = RevisionCache[tuple[object, ...], Trends](_KEPT, seconds=_KEPT_SECONDS)


def trends(engine: Engine, query: SearchQuery, key: str, values: Sequence[Value], viewer: Viewer) -> Trends:
    """Count values of a facet under a query over its time. The caller holds a snapshot."""
    if not values:
        return NO_TRENDS
    resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
    # Without a text, a query is its plan: one with a span up to now differs each time, and is counted each time.
    known, revision = (engine.name, resolved.plan, str(resolved.zone), key, tuple(values)), engine.revision
    if (found := _cache.get(known, revision)) is not None:
        return found
    try:
        days = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now).days
        domain = _domain(days)
        if domain is None:
            return NO_TRENDS
        bars = build_histogram(days, domain, most=_PERIODS).bars
        spans = Spans(bar_edges(bars, resolved.zone))
        table = engine.cross(resolved.plan, FacetValues(key, tuple(values)), spans).tolist()
    except EngineTimeoutError:
        return NO_TRENDS
    counts = tuple((value, tuple(row)) for value, row in zip(values, table, strict=True))
    return _cache.put(known, Trends(key, bars, counts), revision)


def _domain(days: DayCounts) -> tuple[date, date] | None:
    """The first and last day of the periods."""
    total = np.cumsum(days.inside)
    if not len(total) or not total[-1]:
        return None
    first = int(np.searchsorted(total, total[-1] * _LEFT_OUT, "right"))
    last = int(np.flatnonzero(days.inside)[-1])
    return date.fromordinal(int(days.days[min(first, last)])), date.fromordinal(int(days.days[last]))


_BLOCK = 5_000


def found_ids(query: SearchQuery, viewer: Viewer) -> list[int]:
    """The ids of all memories that match, in ascending order. As many as the total of the search says."""

    def ask(engine: Engine) -> list[int]:
        plan = resolve_query(engine, query, viewer, timezone.now()).plan
        visible = visible_to(viewer).order_by("pk").values_list("pk", flat=True)
        found: list[int] = []
        last = 0
        # Blocks by id, since a page far into an order costs more than one at its beginning.
        while ids := list(visible.filter(pk__gt=last)[:_BLOCK]):
            found += sorted(engine.filter_ids(plan, ids))
            last = ids[-1]
        return found

    return with_engine(ask, viewer)


def days_since(query: SearchQuery, first: date, viewer: Viewer) -> dict[date, int]:
    """The days from one on that have memories, with their numbers; none if counting takes too long."""

    def answer(engine: Engine) -> dict[date, int]:
        with snapshot():
            since = query.with_(date_from=first.isoformat())
            resolved = resolve_query(engine, since, viewer, datetime.now(UTC))
            try:
                counted = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now)
            except EngineTimeoutError:
                return {}
        return {day: inside for day, _, inside in counted.days.listed() if inside}

    return with_engine(answer, viewer)

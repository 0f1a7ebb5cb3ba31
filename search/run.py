"""run(query, viewer) -> SearchResult: the only entry to search. Page, API and tools render what it returns.

A fixed number of statements, whatever the number of hits, values and facets.
"""

from dataclasses import replace
from datetime import UTC, datetime

from django.conf import settings

from access.viewer import Viewer
from categories.queries import resolve_categories
from search.engines import with_engine
from search.engines.base import Engine, EngineQuery, EngineTimeoutError, FacetRequest, Value
from search.engines.index.outbox import backlog
from search.facet_counts import (
    Counted,
    build_facet,
    count_facets,
    counted_rows,
    hidden_by_exclusions,
    mark_parents,
    value_rows,
    value_terms,
)
from search.facets import FACET, Facet, Kind
from search.hits import load_hits
from search.plan import ResolvedQuery, resolve_query, visible_ids
from search.query import SearchQuery, Sort
from search.ranking import Ranked
from search.relevance import ranked_page
from search.result import CategoryRef, FacetListing, FacetPage, Hit, Rows, SearchResult, SearchWarning, WithoutFilter
from search.snapshots import snapshot
from search.zero_results import collect_warnings, count_alternatives
from text.analysis import fold
from text.formatting import memories
from text.query_syntax import plain_text_of
from web.timing import Stopwatch

__all__ = [
    "CategoryRef",
    "FacetListing",
    "FacetPage",
    "Hit",
    "Rows",
    "SearchResult",
    "SearchWarning",
    "WithoutFilter",
    "facet_page",
    "run",
]


# Changes are in the index within a second, as a rule; those that wait longer than this, in seconds, are told.
_PATIENCE = 3.0
_COUNTED_BEHIND = 10_000


def run(query: SearchQuery, viewer: Viewer, *, facet_limit: int | None = None, rows: Rows = Rows.FULL) -> SearchResult:
    """Answer one query for one viewer. See docs/facets.md for the match set and the counting rules.

    `facet_limit` asks for that many values a facet, the largest first, instead of what a sidebar shows. Without rows,
    it is all that an answer says of the match set.
    """
    return with_engine(lambda engine: _run(engine, query, viewer, facet_limit, rows), viewer)


def _run(engine: Engine, query: SearchQuery, viewer: Viewer, facet_limit: int | None, rows: Rows) -> SearchResult:
    watch = Stopwatch(engine.waited_ms)
    now = datetime.now(UTC)
    counted: Counted | None = None
    with snapshot():
        with watch.stage("search"):
            planned = resolve_query(engine, query, viewer, now)
        if query.include_facets:
            with watch.stage("facets"):
                counted = count_facets(engine, query, planned, facet_limit)
        with watch.stage("search"):
            summary = counted.summary if counted else engine.match([planned.plan])[0]
            total = summary.total
            found = _find(engine, planned, query, total) if rows != Rows.NONE else []
            matched_by = describe_match_set(engine, planned, total)
            hidden, hidden_at_least, without = count_alternatives(engine, query, planned, total)
            warnings = [*collect_warnings(engine, query, planned, total, viewer), *engine_notices(engine, viewer)]
        with watch.stage("hits"):
            hits = load_hits(found, planned, viewer, rows)
    return SearchResult(
        query=query,
        total=total,
        at_least=summary.truncated,
        hits=hits,
        matched_by=matched_by,
        hidden=hidden,
        hidden_at_least=hidden_at_least,
        facets=counted.facets if counted else None,
        histogram=counted.histogram if counted else None,
        date_buckets=counted.date_buckets if counted else None,
        quick_ranges=counted.quick_ranges if counted else None,
        warnings=tuple(warnings),
        without=without,
        labels=planned.labels,
        min_similarity=planned.plan.meaning.min_similarity if planned.plan.meaning else None,
        engine=engine.name,
        timings=watch.timings,
    )


def facet_page(query: SearchQuery, key: str, listing: FacetListing, viewer: Viewer) -> FacetPage:
    """The values of one facet under a query: all of them, searched, sorted and cut to a page."""
    return with_engine(lambda engine: _facet_page(engine, query, key, listing, viewer), viewer)


def _facet_page(engine: Engine, query: SearchQuery, key: str, listing: FacetListing, viewer: Viewer) -> FacetPage:
    watch = Stopwatch(engine.waited_ms)
    spec = FACET[key]
    now = datetime.now(UTC)
    with snapshot(), watch.stage("facets"):
        planned = resolve_query(engine, query, viewer, now)
        summary = engine.match([planned.plan], no_values=True)[0]
        warnings = [*planned.warnings, *engine_notices(engine, viewer)]
        only: tuple[Value, ...] | None = None
        if listing.parent and spec.kind == Kind.TREE:
            only = _children_of(engine, planned, listing.parent, warnings)
        request = FacetRequest(key, only=only)
        try:
            counts = engine.counts(planned.plan, [request], zone=planned.zone, now=now, days=False).facets[key]
        except EngineTimeoutError:
            facet = Facet(key, unavailable="Counting took too long.")
            return FacetPage(
                facet, listing, summary.total, summary.truncated, tuple(warnings), planned.labels, watch.timings
            )
        listed = list(counts.values)
        if listing.search or listing.sort == "name":
            terms = value_terms(spec, [v.value for v in listed], planned)
            wanted = fold(listing.search)
            listed = [v for v in listed if v.value in terms and wanted in fold(terms[v.value].label)]
            if listing.sort == "name":
                listed.sort(key=lambda v: (fold(terms[v.value].label), str(v.value)))
        begin = (listing.page - 1) * listing.page_size
        shown = listed[begin : begin + listing.page_size]
        if begin and not shown:
            warnings.append(SearchWarning(f"Page {listing.page} is past the last page.", "page"))
        hides = hidden_by_exclusions(engine, planned, summary.total)
        # What is chosen is always listed, once: on the first page, where nothing narrows the listing itself.
        if listing.page == 1 and not listing.search and not listing.parent:
            absent = [v for v in counts.values if v not in shown and (key, v.value) in planned.spelled]
            values = value_rows(spec, [*shown, *absent], planned, hides)
        else:
            values = counted_rows(spec, shown, planned, hides)
        if spec.kind == Kind.TREE:
            values = tuple(mark_parents(engine, planned, values))
        facet = replace(build_facet(spec, values, len(listed), summary, planned), at_least=counts.truncated)
    return FacetPage(facet, listing, summary.total, summary.truncated, tuple(warnings), planned.labels, watch.timings)


def engine_notices(engine: Engine, viewer: Viewer) -> list[SearchWarning]:
    """What a visitor should know of how the answer came about: another engine than usual, or one that is behind."""
    if engine.name != settings.SEARCH_ENGINE:
        text = "The search index is not ready yet. These numbers come from the database: as exact, but slower."
        return [SearchWarning(text, "engine")]
    if engine.seconds_behind > _PATIENCE and (behind := backlog(_COUNTED_BEHIND)).changes:
        more = "or more " if behind.changes == _COUNTED_BEHIND else ""
        changes = f"{behind.changes:,} {more}changes are" if behind.changes > 1 else "One change is"
        if viewer.project_ids is not None:
            # How much goes on in other projects is nobody's business.
            changes = "Some changes are"
        return [SearchWarning(f"{changes} still on the way into the search index.", "engine")]
    return []


def _children_of(
    engine: Engine, planned: ResolvedQuery, parent: str, warnings: list[SearchWarning]
) -> tuple[Value, ...]:
    nodes = resolve_categories([parent]).get(parent, ())
    seen = visible_ids(engine, planned.plan.project_ids, "category", [node.id for node in nodes])
    if not seen:
        warnings.append(SearchWarning(f"No category is called “{parent}”.", "parent"))
    return tuple(child.id for below in planned.names.children(seen).values() for child in below)


def _find(engine: Engine, planned: ResolvedQuery, query: SearchQuery, total: int) -> list[Ranked]:
    plan = planned.plan
    offset = (query.page - 1) * query.page_size
    if offset >= total:
        return []
    if query.order != Sort.RELEVANCE:
        page = [pk for pk, _ in engine.hits(plan, query.order, limit=query.page_size, offset=offset)]
        near = engine.similarities(plan.meaning, page) if plan.meaning else {}
        return [Ranked(pk, similarity=near.get(pk)) for pk in page]
    said = plain_text_of(query.text)
    found = ranked_page(engine, plan, said, limit=query.page_size, offset=offset, now=planned.now)
    if found.not_reread:
        reason = f"The results are in the order of words and meaning, without the cross-encoder: {found.not_reread}."
        planned.warnings.append(SearchWarning(reason, "rerank"))
    if found.without_vector:
        some = memories(found.without_vector, at_least=found.at_least)
        waiting = f"Found by words, and without a vector to rank by: {some}. More may match once they are embedded."
        planned.warnings.append(SearchWarning(waiting, "mode"))
    # How rare a word is among all memories shows in a score: it is for who may see them all.
    return found.hits if plan.project_ids is None else [one.without_scores() for one in found.hits]


def describe_match_set(engine: Engine, planned: ResolvedQuery, total: int) -> str:
    """How the match set was made, in words."""
    plan = planned.plan
    if not plan.texts:
        return ""
    words, meaning = plan.texts[0].words, plan.meaning
    if words.is_empty and meaning is None:
        return "no word to look for"
    if meaning is not None and (meaning.semantic_only or words.is_empty):
        return f"{total:,} by meaning ≥ {meaning.min_similarity:.2f}" + _ceiling(engine, plan)
    by_words = total if meaning is None else engine.match([replace(plan, meaning=None)])[0].total
    text = f"{by_words:,} {'contains' if by_words == 1 else 'contain'} {words.describe()}"
    if by_words == 0 and meaning is not None:
        text = f"none contains {words.describe()}"
    if words.ignored:
        text += f"; not counted: {', '.join(words.ignored)}"
    if meaning is not None:
        more = " more" if by_words else ""
        text += f"; {total - by_words:,}{more} by meaning ≥ {meaning.min_similarity:.2f}" + _ceiling(engine, plan)
    elif planned.without_meaning:
        text += f"; by words alone: {planned.without_meaning}"
    return text


def _ceiling(engine: Engine, plan: EngineQuery) -> str:
    if plan.meaning is None or not engine.knn(plan).truncated:
        return ""
    return f"; only the nearest {plan.meaning.limit:,} are looked at, so there may be more"

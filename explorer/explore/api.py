"""Search and facets as JSON: the same results as the pages."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router

from access.keys import ApiRequest, allowed
from explorer.explore.schemas import (
    CheckReply,
    DateBucketCounts,
    FacetCounts,
    FacetNote,
    FacetPageReply,
    FacetReply,
    FacetsReply,
    FacetValueReply,
    HistogramBar,
    HistogramReply,
    HitWhy,
    MemoryHit,
    NamedReply,
    RankBoosts,
    RankScoreParts,
    RelaxationReply,
    SearchReply,
    UnderstoodReply,
    UnifiedReply,
    WhyNotReply,
    WhyReason,
    known_reply,
    unified_parts,
)
from explorer.explore.timeline_api import ViewRequest, index_row, query_warning
from explorer.memory.api import router as memories_router
from memories.invented_team import sample_projects
from memories.models import Project
from memories.recalls import record_list
from search.cursors import Continued, continued, cursor_after
from search.facets import DATE_KEY, FACETS, Facet, FacetKind, FacetSpec
from search.histogram import Histogram
from search.hits import explain
from search.listings import facet_page
from search.plain_words import WordOffer, offer_filters
from search.query import SearchQuery
from search.result import FACET_LIMIT, FacetListing, FacetPage, Hit, HitDetail, SearchResult
from search.run import run
from search.unified.rows import UnifiedHit
from search.unified.service import UnifiedResult, best_known, unified
from search.why_not import WhyNot, WhyNotRequest, why_not
from web.errors import GUARDED, ApiError, close_to, errors
from web.params import QueryError, pairs_of
from web.timing import Timings, timed, took_ms
from web.validation import Problem

router = Router()


# --- operations --------------------------------------------------------------------------------------------------


_SEARCH: dict[str, Any] = {
    "response": {200: SearchReply | UnifiedReply, **errors(*GUARDED, 409, 422)},
    "exclude_unset": True,
    "openapi_extra": {"parameters": [*SearchQuery.openapi_parameters(), *ViewRequest.openapi_parameters()]},
}


@memories_router.get("/memories", operation_id="memories", summary="Memories", **_SEARCH)
@router.get("/search", operation_id="search", **_SEARCH)
@timed
def search(request: ApiRequest) -> tuple[Timings, SearchReply | UnifiedReply]:
    """Memories by words, filters or both; with `include_facets`, counts over the whole match set.

    With `mode=unified` also entities and relationships: see `results` and `legs`.
    """
    viewer = allowed(request, "read")
    extra, query = ViewRequest.with_query(pairs_of(request.GET))
    if query.is_unified:
        found = unified(query, viewer, facet_limit=FACET_LIMIT)
        record_list(viewer, [hit.id for hit in found.answer.hits], query.querystring())
        return found.timings, _unified_reply(found, request, extra.view, offer_filters(query, viewer))
    here = continued(query, extra.cursor, viewer) if extra.cursor else Continued(query)
    detail = HitDetail.FULL if extra.view == "full" else HitDetail.INDEX
    result = run(here.query, viewer, facet_limit=FACET_LIMIT, detail=detail, after=here.after)
    record_list(viewer, [hit.id for hit in result.hits], here.query.querystring())
    result = replace(result, warnings=(*here.warnings, *result.warnings))
    known = None if extra.cursor else best_known(result, viewer)
    offers = () if extra.cursor else offer_filters(here.query, viewer)
    return result.timings, _search_reply(result, request, extra.view, known, offers)


@router.get(
    "/search/why-not",
    response={200: WhyNotReply, **errors(*GUARDED, 404, 422)},
    operation_id="why_not",
    openapi_extra={"parameters": WhyNotRequest.openapi_with_query()},
)
def search_why_not(request: ApiRequest) -> WhyNotReply:
    """Explain why a memory is not among the results of a query, or its place."""
    viewer = allowed(request, "read")
    extra, query = WhyNotRequest.with_query(pairs_of(request.GET))
    found = why_not(query, extra.id, viewer)
    if found is None:
        raise ApiError(404, "not_found", f"There is no memory {extra.id} that you can see.")
    return _why_not_reply(found, request)


@router.get(
    "/facets",
    response={200: FacetsReply, **errors(*GUARDED, 422)},
    operation_id="facets",
    openapi_extra={"parameters": SearchQuery.openapi_parameters()},
)
@timed
def facets(request: ApiRequest) -> tuple[Timings, FacetsReply]:
    """Every facet of a query: its number of values, and the largest of them."""
    viewer = allowed(request, "read")
    query = SearchQuery.from_pairs(pairs_of(request.GET)).with_(include_facets=True, page_size=1)
    result = run(query, viewer, detail=HitDetail.NONE)
    return result.timings, FacetsReply(
        total=result.total,
        lower_bounds=[name for name in result.lower_bounds if name in {"total", *(spec.api_name for spec in FACETS)}],
        filters=query.applied(),
        facets=[_facet_reply(facet) for facet in result.facets or ()],
        warnings=[query_warning(w) for w in result.warnings],
        took_ms=took_ms(result.timings),
    )


@router.get(
    "/facets/{facet}",
    response={200: FacetPageReply, **errors(*GUARDED, 404, 422)},
    operation_id="facet",
    openapi_extra={"parameters": FacetListing.openapi_with_query()},
)
@timed
def facet(request: ApiRequest, facet: str) -> tuple[Timings, FacetPageReply]:
    """The values of one facet under a query: a page of them, searched and sorted."""
    viewer = allowed(request, "read")
    spec = _facet_named(facet)
    listing, query = facet_listing(request, spec)
    page = facet_page(query, spec.key, listing, viewer)
    return page.timings, _facet_page_reply(page, query)


def facet_listing(request: ApiRequest, spec: FacetSpec) -> tuple[FacetListing, SearchQuery]:
    """The parameters of a request for the values of a facet. Raises QueryError."""
    listing, query = FacetListing.with_query(pairs_of(request.GET))
    if listing.parent and spec.kind != FacetKind.TREE:
        raise QueryError([Problem("parent", f"has no effect on the facet {spec.key}", "leave it out")])
    if listing.without_sample:
        sample = Project.objects.filter(pk__in=sample_projects()).values_list("pk", "slug")
        visible = [slug for pk, slug in sample if request.viewer.may_see(pk)]
        query = query.with_(not_project=tuple(sorted({*query.not_project, *visible})))
    return listing, query


def _facet_named(name: str) -> FacetSpec:
    """The facet with this key or API name. Raises ApiError."""
    named = {name: spec for spec in FACETS for name in (spec.key, spec.api_name)}
    if spec := named.get(name):
        return spec
    if name == DATE_KEY:
        advice = "Counts by date are facets.histogram and facets.date_buckets of GET /api/search?include_facets=1."
        raise ApiError(404, "not_found", "Dates have no list of values.", advice)
    raise ApiError(
        404,
        "not_found",
        f"“{name[:100]}” is not a facet.",
        f"The facets are {', '.join(spec.key for spec in FACETS)}.",
        close_to(name, named),
    )


# --- from result to reply ----------------------------------------------------------------------------------------


Offers = Sequence[WordOffer[SearchQuery]]


def _unified_reply(found: UnifiedResult, request: HttpRequest, view: str, offers: Offers) -> UnifiedReply:
    """The fields of a plain search, plus the results of all kinds."""
    site = request.build_absolute_uri("/").rstrip("/")
    result = found.answer
    parts = unified_parts(found, site, lambda hit: _memory_hit(hit, result, site), in_full=view == "full")
    return UnifiedReply(**{**_reply_fields(result, site, view, offers), **parts})


def _search_reply(
    result: SearchResult, request: HttpRequest, view: str, known: UnifiedHit | None, offers: Offers
) -> SearchReply:
    site = request.build_absolute_uri("/").rstrip("/")
    beside = known and known_reply(known, result.query, site)
    return SearchReply(**_reply_fields(result, site, view, offers), known=beside)


def _reply_fields(result: SearchResult, site: str, view: str, offers: Offers) -> dict[str, Any]:
    in_full = view == "full"
    return dict(
        memories=[_memory_hit(hit, result, site) for hit in result.hits]
        if in_full
        else [index_row(h) for h in result.hits],
        **{name: getattr(result, name) for name in _RESULT_FIELDS},
        named=[NamedReply.model_validate(term, from_attributes=True) for term in result.named],
        understood=[_understood_reply(one) for one in offers],
        next_cursor=cursor_after(result),
        lower_bounds=list(result.lower_bounds),
        filters=result.query.applied(),
        warnings=[query_warning(w) for w in result.warnings],
        relaxations=[
            RelaxationReply(parameter=w.key, value=w.value, label=w.label, count=w.count, also=list(w.also))
            for w in result.relaxations
        ],
        took_ms=took_ms(result.timings),
        **_counted(result),
    )


def _understood_reply(offer: WordOffer[SearchQuery]) -> UnderstoodReply:
    return UnderstoodReply(
        label=offer.label,
        words=offer.words,
        filters=dict(offer.pairs),
        text=offer.query.text,
        query=offer.query.querystring(),
        count=offer.count,
    )


# Fields that a reply has in common with its source; the others are converted.
_HIT_FIELDS = (
    *("id", "project", "memory_type", "tags", "created_at", "updated_at", "state", "authors", "agent", "source"),
    *("source_uri", "external_id", "pinned", "importance", "superseded_by", "recalls", "score"),
)
_RANK_FIELDS = (
    *("keyword_rank", "word_score", "semantic_rank", "similarity", "cross_encoder_rank", "cross_encoder_score"),
    *("moved_below", "relevance", "fused_rank", "neighbour_rank"),
)
_RESULT_FIELDS = ("page", "page_size", "total", "pages", "has_more", "matched_by", "hidden", "engine")


def _memory_hit(hit: Hit, result: SearchResult, site: str) -> MemoryHit:
    return MemoryHit(
        **{name: getattr(hit, name) for name in _HIT_FIELDS},
        title=hit.title_text,
        snippet=hit.snippet_text,
        categories=[category.path for category in hit.categories],
        trust=hit.trust.name.lower(),
        marks=list(hit.marks),
        similar_to=hit.why.similar_to,
        why=_why(hit, result) if result.query.text else None,
        url=site + reverse("explorer:memory", args=[hit.id]),
    )


def _why(hit: Hit, result: SearchResult) -> HitWhy:
    why = hit.why
    return HitWhy(
        **{name: getattr(why, name) for name in _RANK_FIELDS},
        boosts=RankBoosts.model_validate(why.boosts, from_attributes=True) if why.boosts else None,
        score_parts=RankScoreParts.model_validate(why.score_parts, from_attributes=True) if why.score_parts else None,
        found={found.field: list(found.words) for found in hit.found},
        reasons=[WhyReason(label=r.label, text=r.text) for r in explain(hit, result.query, result.min_similarity)],
    )


def _why_not_reply(found: WhyNot, request: HttpRequest) -> WhyNotReply:
    return WhyNotReply(
        id=found.id,
        title=found.title,
        matches=found.matches,
        verdict=found.verdict,
        place=found.place,
        page=found.page,
        total=found.total,
        lower_bounds=["total"] if found.at_least else [],
        checks=[CheckReply.model_validate(check, from_attributes=True) for check in found.checks],
        notes=list(found.notes),
        filters=found.query.applied(),
        url=request.build_absolute_uri(reverse("explorer:memory", args=[found.id])),
    )


def _counted(result: SearchResult) -> dict[str, Any]:
    """The fields of a reply that exist only with facets."""
    if result.facets is None:
        return {}
    counted = [facet for facet in result.facets if not facet.unavailable]
    counts: dict[str, Any] = {facet.spec.api_name: _value_counts(facet) for facet in counted}
    if result.date_buckets:
        counts["date_buckets"] = DateBucketCounts(**result.date_buckets.by_name())
    if result.histogram and not result.histogram.unavailable:
        counts["histogram"] = _histogram_reply(result.histogram)
    return {
        "facets": FacetCounts(**counts),
        "no_value": {facet.spec.api_name: facet.no_value for facet in counted},
        "facet_notes": {facet.spec.api_name: _note(facet) for facet in counted if facet.has_more},
        "unavailable": dict(_missing(result)),
    }


def _value_counts(facet: Facet) -> dict[str, int]:
    """Counts by value, without values that count nothing unless they are selected or excluded."""
    shown = (v for v in facet.values if v.count or v.selected or v.excluded)
    counts: dict[str, int] = {}
    for value in sorted(shown, key=lambda v: (-v.count, v.label)):
        # Two categories may have the same value: the larger one wins.
        counts.setdefault(value.value, value.count)
    return counts


def _note(facet: Facet) -> FacetNote:
    shown = sum(1 for value in facet.values if value.count)
    more = f"GET /api/facets/{facet.key} pages through all of them"
    return FacetNote(shown=shown, distinct=facet.distinct, note=f"the {shown:,} largest of {facet.distinct:,}; {more}")


def _missing(result: SearchResult) -> Iterable[tuple[str, str]]:
    yield from ((facet.spec.api_name, facet.unavailable) for facet in result.facets or () if facet.unavailable)
    if result.histogram is None or result.histogram.unavailable:
        yield "histogram", result.histogram.unavailable if result.histogram else "not counted"
    if result.date_buckets is None:
        yield "date_buckets", "not counted"


def _histogram_reply(histogram: Histogram) -> HistogramReply:
    return HistogramReply(
        interval=histogram.interval.value,
        step=histogram.step,
        bars=[HistogramBar.model_validate(bar, from_attributes=True) for bar in histogram.bars],
    )


def _facet_reply(facet: Facet) -> FacetReply:
    return FacetReply(**_facet_fields(facet))


def _facet_fields(facet: Facet) -> dict[str, Any]:
    return {
        "facet": facet.key,
        "api_name": facet.spec.api_name,
        "label": facet.spec.label,
        "kind": facet.spec.kind.value,
        "distinct": facet.distinct,
        "no_value": facet.no_value,
        "values": [FacetValueReply.model_validate(value, from_attributes=True) for value in facet.values],
        "unavailable": facet.unavailable,
    }


def _facet_page_reply(page: FacetPage, query: SearchQuery) -> FacetPageReply:
    return FacetPageReply(
        **_facet_fields(page.facet),
        filters=query.applied(),
        total=page.total,
        lower_bounds=list(page.lower_bounds),
        page=page.listing.page,
        page_size=page.listing.page_size,
        pages=page.pages,
        has_more=page.has_more,
        warnings=[query_warning(w) for w in page.warnings],
    )

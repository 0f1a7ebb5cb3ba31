"""The pages around a query: as a text, the values of its facets and their arrangement, why a memory is missing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from explorer.compare.matrix_page import plural_label
from explorer.explore.page import Notice, build_verdict, did_you_mean_text, problem_notices
from explorer.explore.sidebar import Chip, FacetRow, HiddenField, build_chips, hidden_fields, row_id, value_rows
from explorer.http import (
    Pager,
    PageRequest,
    build_pager,
    keep_arrangement,
    page_response,
    page_viewer,
    pairs_by_age,
    private,
    read_arrangement,
    read_query,
    read_with_query,
    request_pairs,
    return_url,
    wants_fragment,
)
from explorer.links import Link, curate_url, explore_url, merge_url, removal_url, values_url
from explorer.page_query import USUAL, ArrangementForm
from search.facets import FACET, FACETS
from search.listings import facet_page
from search.query import SearchQuery
from search.result import FacetListing, FacetPage, Initial
from search.typed import as_text
from search.why_not import WhyNotRequest, why_not
from text.formatting import memories, number, plural
from web.params import QueryError


@dataclass(frozen=True, slots=True)
class ValuesContext:
    """The page of all the values of one facet."""

    key: str
    label: str
    help_text: str
    title: str
    status: str
    heading: str
    summary: str
    rows: tuple[FacetRow, ...]
    hidden: tuple[HiddenField, ...]
    search: str
    search_hidden: tuple[HiddenField, ...]
    here: str
    listing_url: str
    """The URL of this listing without the selection, which the form adds."""
    sorts: tuple[Link, ...]
    letters: tuple[Link, ...]
    """If there are several pages: the letters with which names begin, each a link to the first of them."""
    pager: Pager | None
    notices: tuple[Notice, ...]
    crumbs: tuple[Link, ...]
    results_url: str
    results_label: str
    unavailable: str
    chips: tuple[Chip, ...]
    ticked: tuple[Chip, ...]
    """The selected values. The page shows them below the list, so that selecting one does not move it."""
    more_url: str
    """The rest of a level of the tree that is longer than the page."""
    curate_base: str
    """The page that curates a value, without its name; empty for facets that are no vocabulary."""
    merge: Link | None
    """For curators, the page that merges the ticked values; `name` is where a merge returns to."""
    remove: Link | None
    """The same for the removal of ticked tags."""


def build_values_context(query: SearchQuery, page: FacetPage, notices: Iterable[Notice] = ()) -> ValuesContext:
    """The context of the page that lists the values of a facet."""
    listing, spec = page.listing, page.facet.spec
    rows = value_rows(query, page.facet, page.corpus.count, last_name_only=bool(listing.parent))
    listing_parameters = dict(listing.parameters())

    def at(**changes: str) -> str:
        return values_url(page.facet.key, query, {**listing_parameters, "page": "", **changes})

    def at_page(number: int) -> str:
        return at(page="" if number == 1 else str(number))

    warnings = (
        Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean)) for warning in page.warnings
    )
    crumbs, is_typical = _crumbs(query, page), listing.sort == "typical"
    heading = crumbs[-1].label if crumbs else plural_label(spec.key)
    chips = build_chips(query, page.labels)
    values = plural(page.facet.distinct, "value", at_least=page.facet.at_least)
    return ValuesContext(
        key=page.facet.key,
        label=spec.label,
        help_text=spec.help_text,
        title=f"{heading}: {values}",
        status=values,
        heading=heading,
        summary=f"{values} below" if crumbs else f"{values} of {memories(page.total, at_least=page.at_least)}",
        rows=rows,
        hidden=hidden_fields(query, rows, ()),
        search=listing.search,
        search_hidden=(
            *(HiddenField(k, v) for k, v in query.with_(sort=None, page_size=25).parameters()),
            *(HiddenField(k, v) for k, v in listing_parameters.items() if k not in {"search", "page"}),
        ),
        here=at(page=listing_parameters.get("page", "")),
        listing_url=values_url(page.facet.key, SearchQuery(), listing_parameters),
        sorts=(
            Link("Most first", at(sort=""), current=listing.sort == "count"),
            Link("A–Z", at(sort="name"), current=listing.sort == "name"),
            *([Link("Typical first", at(sort="typical"), current=is_typical)] if page.is_part or is_typical else []),
        ),
        letters=tuple(_letter_link(page, initial, at) for initial in page.initials),
        pager=_values_pager(page, at_page),
        notices=(*notices, *warnings),
        crumbs=crumbs,
        results_url=explore_url(query),
        results_label=f"Show {memories(page.total, at_least=page.at_least)}",
        unavailable=page.facet.unavailable or ("" if rows else f"No {spec.label.lower()} matches this name."),
        chips=tuple(chip for chip in chips if chip.id != f"chip-{spec.key}"),
        ticked=tuple(chip for chip in chips if chip.id == f"chip-{spec.key}"),
        more_url=at(page_size="", page="") if listing.parent and page.has_more else "",
        curate_base=curate_url(page.facet.key, ""),
        merge=_change_link(_MERGE.get(spec.key, "Merge"), merge_url(spec.key), query, page, listing_parameters),
        remove=_change_link("Remove", removal_url(page.facet.key), query, page, listing_parameters),
    )


def _letter_link(page: FacetPage, initial: Initial, at: Callable[..., str]) -> Link:
    """The page of a listing by name, at the first value with this letter."""
    place = 1 + initial.place // page.listing.page_size
    url = f"{at(sort='name', page='' if place == 1 else str(place))}#{row_id(page.facet.key, initial.value)}"
    name = "Names that begin with no letter" if initial.letter == "#" else f"Names from {initial.letter}"
    return Link(initial.letter, url, name)


_MERGE = {"author": "Rename or merge"}


def _change_link(verb: str, url: str, query: SearchQuery, page: FacetPage, listing: dict[str, str]) -> Link | None:
    """A change of the ticked values."""
    key, ticked = page.facet.key, len(query.selection(page.facet.key).include)
    if not url:
        return None
    label = f"{verb} {number(ticked)} {page.facet.spec.api_name}…" if ticked > 1 else f"{verb}…"
    # Not the search: those names are gone then.
    left = {name: value for name, value in listing.items() if name != "search"}
    return Link(label, url, name=values_url(key, query.without(key), left))


def _crumbs(query: SearchQuery, page: FacetPage) -> tuple[Link, ...]:
    """The ancestors of a level of the tree, from its slug path."""
    if not page.listing.parent:
        return ()
    parts = page.listing.parent.split("/")
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    # The values carry the names along their path; without values there are only slugs.
    names = page.facet.values[0].label.split(" / ")[:-1] if page.facet.values else parts
    names = names if len(names) == len(parts) else parts
    levels = [Link(n, values_url("category", query, {"parent": p})) for n, p in zip(names, paths, strict=True)]
    return (Link("All", values_url("category", query)), *levels[:-1], Link(names[-1], "", current=True))


def _values_pager(page: FacetPage, at: Callable[[int], str]) -> Pager | None:
    if page.pages == 1:
        return None
    return build_pager(
        page.listing.page, page.pages, page.listing.page_size, page.facet.distinct, at, at_least=page.facet.at_least
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def arrange_facets(request: HttpRequest) -> HttpResponse:
    """Choose the order of the facets, and which are open, closed or hidden."""
    back, usual = return_url(request) or reverse("explorer:explore"), "usual" in request.POST
    form = ArrangementForm(None if usual else request.POST or None, read_arrangement(request))
    if request.method != "POST" or not (usual or form.is_valid()):
        context = {"form": form, "back_url": back}
        return private(render(request, "explorer/arrange.html", context, status=422 if form.errors else 200))
    arrangement = USUAL if usual else form.arrangement()
    key, _, direction = request.POST.get("move", "").partition(" ")
    if moves := key in FACET:
        arrangement = arrangement.moved(key, -1 if direction == "up" else 1)
    here = f"{reverse('explorer:arrange')}?{urlencode({'next': back})}"
    # The focus stays at the facet that moves, so that it can be moved on.
    response = HttpResponseRedirect(f"{here}#{key}-{direction}" if moves else here if usual else back)
    keep_arrangement(request, response, arrangement)
    return response


@require_safe
@login_required
def edit_text(request: PageRequest) -> HttpResponse:
    """A query as a text with typed filters, in a form that explains them."""
    query, problems = read_query(request_pairs(request))
    shown = [pair for pair in query.parameters() if pair[0] not in SearchQuery.names()]
    context = {
        "text": as_text(query.search),
        "hidden": [HiddenField(key, value) for key, value in shown],
        "back_url": explore_url(query),
        "notices": problem_notices(problems),
        "facets": [spec for spec in FACETS if spec.key != "state"],
    }
    return private(render(request, "explorer/text.html", context))


@require_safe
@login_required
def explain_names(request: PageRequest) -> HttpResponse:
    """The page that tells tags, categories, concepts and entities apart."""
    return private(render(request, "explorer/names.html"))


@require_safe
@login_required
def explain_absence(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    own, rest = WhyNotRequest.split(request_pairs(request))
    query, problems = read_query(rest)
    found = None
    try:
        memory_id = WhyNotRequest.from_pairs(own).id
    except QueryError as error:
        problems = (*error.problems, *problems)
    else:
        found = why_not(query, memory_id, viewer)
        if found is None:
            raise Http404(f"There is no memory {memory_id} that you can see.")
    notices = problem_notices(problems)
    context = build_verdict(query, found, notices)
    page = render(request, "explorer/why_not.html", {"verdict": context}, status=422 if notices else 200)
    return private(page)


@require_safe
@login_required
def facet_values(request: PageRequest, key: str) -> HttpResponse:
    if key not in FACET:
        raise Http404(f"{key} is not a facet")
    listing, query, problems = read_with_query(FacetListing, pairs_by_age(request))
    viewer = page_viewer(request)
    page = facet_page(query, key, listing, viewer, with_corpus=True)
    values = build_values_context(query, page, problem_notices(problems))
    # Unfolding a branch of the tree loads the rows below it; other fragments replace `main`.
    is_level = (request.htmx.target or "").startswith("below-")
    return page_response(
        request,
        "explorer/facet_values.html",
        {"values": values},
        partial="level" if is_level else "values",
        timings=page.timings,
        status=422 if problems and wants_fragment(request) else 200,
        address="" if is_level else values.here,
    )

"""The pages of the review queue."""

from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.viewer import may_write_everything
from curation.suggestions.background import MayNotSearchError, is_searching, search_fault, search_start
from curation.suggestions.evidence import evidence_of
from curation.suggestions.models import Suggestion
from curation.suggestions.pages import (
    GroupsPage,
    ManyPage,
    ReviewPage,
    SearchState,
    groups_url,
    review_url,
    undo_many_url,
)
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import NAME_KINDS
from curation.suggestions.queries import (
    GROUPED_KINDS,
    PAGE,
    contradicted,
    last_together,
    projects_of,
    proposals_of,
    queue_of,
    suggestions_matching,
    visible_suggestion,
    with_names,
)
from curation.suggestions.services import (
    MAX_AT_ONCE,
    REFUSALS,
    CountChangedError,
    SuggestionNotFoundError,
    may_decide,
    suggestion_accept,
    suggestion_reject,
    suggestion_undo,
    suggestions_decide,
    suggestions_undo,
)
from explorer.http import page_viewer, private, request_pairs, return_url
from web.validation import Problem

# Up to this number all are listed; of more the least sure and the surest, or all on request.
_LISTED, _SAMPLE, _SAMPLE_OF_SUREST = 100, 12, 4
_LISTING = ("list", "all")
_OWN = ("item", "done")


@require_safe
@login_required
def review(request: HttpRequest) -> HttpResponse:
    viewer = page_viewer(request)
    pairs = [(name, value) for name, value in request_pairs(request) if name not in _OWN]
    query, problems = ReviewQuery.read(pairs)
    item, done = _number(request, "item"), _number(request, "done")
    queue = queue_of(viewer, query, item)
    page = ReviewPage(
        queue,
        evidence_of(viewer, queue.current) if queue.current else None,
        projects_of(viewer),
        viewer,
        may_decide=bool(queue.current and may_decide(queue.current.row, viewer)),
        notices=_notices(problems),
        done=visible_suggestion(viewer, done) if done else None,
        is_stepping=item is not None or done is not None,
        search=SearchState(may_write_everything(viewer), is_searching(), search_fault()),
        together=last_together(viewer, queue.query),
    )
    context = {"review": page, "queue": queue, "query": queue.query}
    return private(render(request, "review/queue.html", context))


@require_POST
@login_required
def search(request: HttpRequest) -> HttpResponse:
    """Start to look for suggestions."""
    try:
        search_start(viewer=page_viewer(request))
    except MayNotSearchError as error:
        raise PermissionDenied(str(error)) from error
    return HttpResponseRedirect(return_url(request) or reverse("suggestions:review"))


@require_POST
@login_required
def accept(request: HttpRequest, suggestion_id: int) -> HttpResponse:
    turned = {"1": True, "0": False}.get(request.POST.get("turned", ""))
    return _decide(request, suggestion_id, suggestion_accept, swap=request.POST.get("swap") == "1", turned=turned)


@require_POST
@login_required
def reject(request: HttpRequest, suggestion_id: int) -> HttpResponse:
    return _decide(request, suggestion_id, suggestion_reject)


@require_POST
@login_required
def undo(request: HttpRequest, suggestion_id: int) -> HttpResponse:
    return _decide(request, suggestion_id, suggestion_undo)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def accept_many(request: HttpRequest) -> HttpResponse:
    viewer = page_viewer(request)
    given = parse_qsl(request.POST.get("query", "")) if request.method == "POST" else request_pairs(request)
    lists_all = _LISTING in given
    query, problems = ReviewQuery.read([pair for pair in given if pair != _LISTING])
    # Only what was listed can have lost its tick.
    left_out = _numbers(request, "listed") - _numbers(request, "take")
    query, notices = query.with_(state="open"), _notices(problems)
    if not query.kind:
        raise BadRequest("Name a kind: open this page from the queue.")
    if request.method == "POST":
        try:
            shown = _number(request, "shown") or 0
            reject = request.POST.get("decision") == "reject"
            done = suggestions_decide(query=query, shown=shown, viewer=viewer, without=left_out, reject=reject)
        except (CountChangedError, *REFUSALS) as error:
            notices = [str(error)]
        else:
            messages.success(request, done.message, extra_tags=undo_many_url(done.together) if done.decided else "")
            return HttpResponseRedirect(groups_url(query) if query.proposal else review_url(query))
    rows = suggestions_matching(viewer, query)
    count = rows.count()
    if rest := max(0, count - MAX_AT_ONCE):
        # The surest, which are decided first.
        rows, count = rows.filter(pk__in=list(rows.values_list("pk", flat=True)[:MAX_AT_ONCE])), MAX_AT_ONCE
    listed = MAX_AT_ONCE if lists_all or count <= _LISTED else _SAMPLE
    doubtful = with_names(rows.order_by("confidence", "-id")[:listed], viewer)
    surest = with_names(rows[: min(_SAMPLE_OF_SUREST, max(0, count - listed))], viewer)
    surer = contradicted(list(rows[:count]), viewer) if query.kind in NAME_KINDS else {}
    # Those listed for the first time have no tick if they contradict a surer one.
    left_out |= surer.keys() - _numbers(request, "listed")
    firsts = {one.row.pk: one for one in with_names({one.pk: one for one in surer.values()}.values(), viewer)}
    instead = {pk: firsts[first.pk] for pk, first in surer.items()}
    page = ManyPage(query, count, rest, doubtful, surest, notices, left_out, instead)
    context = {"many": page, "may_look": may_write_everything(viewer) and not is_searching()}
    return private(render(request, "review/accept_many.html", context))


@require_POST
@login_required
def undo_many(request: HttpRequest) -> HttpResponse:
    """Undo suggestions that were decided together."""
    try:
        together = parse_datetime(request.GET.get("together", ""))
    except ValueError:
        together = None
    if together is None or together.tzinfo is None:
        raise BadRequest("The address does not say which suggestions to undo.")
    try:
        done = suggestions_undo(together=together, viewer=page_viewer(request))
        messages.success(request, done.message)
    except REFUSALS as error:
        messages.error(request, str(error))
    return HttpResponseRedirect(return_url(request) or reverse("suggestions:review"))


@require_safe
@login_required
def proposals(request: HttpRequest) -> HttpResponse:
    """The open suggestions of a kind, grouped by the term that they propose."""
    viewer = page_viewer(request)
    query, problems = ReviewQuery.read(request_pairs(request))
    kind = query.kind if query.kind in GROUPED_KINDS else GROUPED_KINDS[0].value
    query = query.model_copy(update={"kind": kind, "proposal": "", "state": "open"})
    groups, total = proposals_of(viewer, query, PAGE, (query.page - 1) * PAGE)
    page = GroupsPage(query, groups, total, "curate" in viewer.scopes, _notices(problems))
    context = {"groups": page, "may_look": may_write_everything(viewer) and not is_searching()}
    return private(render(request, "review/proposals.html", context))


def _decide(
    request: HttpRequest, suggestion_id: int, decide: Callable[..., Suggestion], **options: bool | None
) -> HttpResponse:
    """Decide, and redirect to the next suggestion. Only valid parameters of the queue end up in the URL."""
    query, _ = ReviewQuery.read(parse_qsl(request.POST.get("query", "")))
    try:
        decide(suggestion_id=suggestion_id, viewer=page_viewer(request), **options)
    except SuggestionNotFoundError as error:
        raise Http404(str(error)) from error
    except REFUSALS as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(review_url(query, item=suggestion_id))
    return HttpResponseRedirect(review_url(query, item=_number(request, "next"), done=suggestion_id))


def _notices(problems: Iterable[Problem]) -> list[str]:
    return [f"{problem}. It was left out." for problem in problems]


def _number(request: HttpRequest, name: str) -> int | None:
    """A number that our pages wrote, else None."""
    text = (request.POST if request.method == "POST" else request.GET).get(name, "")
    return int(text) if _is_number(text) else None


def _numbers(request: HttpRequest, name: str) -> set[int]:
    """The numbers that a form of our pages sends in one field or in several."""
    return {int(text) for value in request.POST.getlist(name) for text in value.split() if _is_number(text)}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19

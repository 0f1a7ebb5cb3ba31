"""The pages of curation: the log, a term with its forms, and the preview of an operation."""

from collections.abc import Callable
from functools import wraps
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from access.viewer import Viewer
from categories.kinds import TERM_KINDS
from curation.forms import (
    CHOICE,
    MergeSeveralForm,
    NewCategoryForm,
    OperationForm,
    RetagForm,
    fits,
    forms_of,
    submit_form,
)
from curation.merge_page import found_terms, merge_page, merge_url
from curation.overview import build_overview
from curation.pages import TICKED_AGAIN, find_ref, results_url, retag_page, term_page, term_url
from curation.queries import TermNotFoundError, find_term, not_found_message, read_log, without_undo
from curation.services import Applied, CurationBusyError, curation_undo
from curation.undo import UndoRefusedError
from curation.working_copy import CurationRefusedError
from explorer.explore.page import Notice, problem_notices
from explorer.http import page_viewer, private, read_query, return_url
from explorer.links import explore_url, values_url
from memories.models import Memory
from memories.records import normalise_tag
from search.query import SearchQuery
from web.params import pairs_of

View = Callable[..., HttpResponse]
Render = Callable[[], HttpResponse]


def _only(scope: str, refusal: str) -> Callable[[View], View]:
    """Require a signed-in user with a scope, and pass the viewer to the view."""

    def guard(view: View) -> View:
        @wraps(view)
        @login_required
        def guarded(request: HttpRequest, *args: str, **kwargs: str) -> HttpResponse:
            viewer = page_viewer(request)
            if scope not in viewer.scopes:
                raise PermissionDenied(refusal)
            try:
                return private(view(request, viewer, *args, **kwargs))
            except TermNotFoundError as error:
                raise Http404(str(error)) from error
            except CurationRefusedError as error:
                raise BadRequest(str(error)) from error

        return guarded

    return guard


curators_only = _only("curate", "Only curators can change the vocabulary.")
writers_only = _only("write", "You may read, but not change memories.")


# Changes on a page of the log, and the last ones beside the tasks of curation.
_PAGE_SIZE, _BESIDE_TASKS = 50, 8


@require_safe
@curators_only
def log(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    kind, name = request.GET.get("kind", ""), request.GET.get("name", "").strip()
    before, search = request.GET.get("before", ""), request.GET.get("search", "").replace("\0", "").strip()[:200]
    error = ""
    if kind in TERM_KINDS and name:
        try:
            return HttpResponseRedirect(term_url(kind, find_term(kind, name, viewer), return_url(request)))
        except TermNotFoundError as missing:
            error = not_found_message(missing, viewer)
        except CurationRefusedError as refused:
            error = str(refused)
    number = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else None
    has_tasks = number is None and not search
    rows, has_more = read_log(viewer, _BESIDE_TASKS if has_tasks else _PAGE_SIZE, number, search)
    log = {
        "rows": rows,
        "removed": without_undo(rows),
        "has_more": has_more,
        "is_newest": number is None,
        "search": search,
        "kinds": TERM_KINDS,
        "kind": kind if kind in TERM_KINDS else "tag",
        "name": name,
        "error": error,
        "overview": build_overview(viewer) if has_tasks else None,
    }
    return render(request, "curation/log.html", {"log": log})


@require_safe
@curators_only
def term(request: HttpRequest, viewer: Viewer, kind: str, ref: str) -> HttpResponse:
    page = term_page(kind, find_ref(kind, ref, viewer), viewer, next_url=return_url(request))
    return render(request, "curation/term.html", {"term": page})


@curators_only
def verb(request: HttpRequest, viewer: Viewer, verb: str, kind: str, ref: str) -> HttpResponse:
    if not fits(verb, kind):
        raise Http404(f"A {kind} has no operation {verb}.")
    found = find_ref(kind, ref, viewer)
    data = _data(request)
    forms = forms_of(kind, ref, data, verb)
    form = next(form for form in forms if form.verb == verb)
    here = reverse("curation:verb", args=[verb, kind, ref])
    next_url = return_url(request)

    def render_form() -> HttpResponse:
        page = term_page(kind, found, viewer, forms, next_url)
        return render(request, "curation/term.html", {"term": page}, status=422)

    return _respond(request, viewer, form, here, (term_url(kind, found, next_url), "Back"), render_form)


@curators_only
def new_category(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    data = _data(request)
    form = NewCategoryForm(data if "name" in data else None)
    back_url = return_url(request) or reverse("explorer:categories")

    def render_form() -> HttpResponse:
        context = {"form": form, "back_url": back_url, "term": {"next_url": back_url}}
        return render(request, "curation/new.html", context, status=422 if form.is_bound else 200)

    here = reverse("curation:new_category")
    return _respond(request, viewer, form, here, (back_url, "Back"), render_form) if form.is_bound else render_form()


@curators_only
def merge(request: HttpRequest, viewer: Viewer, kind: str) -> HttpResponse:
    """Merge several terms: those of the parameter `term`, or those that a query of the facet selects."""
    data, next_url = _data(request), return_url(request)
    if not data.keys() & _MERGING:
        query, problems = read_query([(key, value) for key, value in pairs_of(data) if key != "next"])
        ticked, notices = found_terms(kind, query.selection(kind).include, viewer)
        notices += problem_notices(problems)
        if ticked and not notices:
            return HttpResponseRedirect(merge_url(kind, ticked.values(), next_url))
    else:
        typed = "\n".join(data.getlist("more")).splitlines()
        ticked, notices = found_terms(kind, [*data.getlist("term"), *typed], viewer)
    other = data.get("other", "").strip()
    instead, not_there = found_terms(kind, [other], viewer)
    notices += not_there
    kept = next(iter(instead.values()), data.get("target", ""))
    form = MergeSeveralForm(kind, list(ticked.values()), kept)

    def render_form() -> HttpResponse:
        asked = bool(form.errors) and kept and data.get("do") != "add"
        refused = (
            [Notice(str(error), is_error=True) for errors in form.errors.values() for error in errors] if asked else []
        )
        page = merge_page(kind, ticked, viewer, kept=kept, other=other, notices=[*notices, *refused], next_url=next_url)
        status = 422 if refused or notices else 200
        return render(request, "curation/merge.html", {"merge": page}, status=status)

    if notices or not kept or data.get("do") == "add":
        return render_form()
    back = (merge_url(kind, ticked.values(), next_url), "Back")
    return _respond(request, viewer, form, merge_url(kind), back, render_form)


# The parameters that the page that merges terms sends.
_MERGING = {"term", "more", "target", "other", "do"}


@require_safe
@curators_only
def split(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Lead from memories chosen in Explore to the split of a term that they have."""
    pairs = pairs_of(request.GET)
    query, problems = read_query([(key, value) for key, value in pairs if key not in {"of", "name", *CHOICE}])
    memories = _chosen(request.GET)
    kind, _, name = request.GET.get("of", "").partition(":")
    if problems or memories == [] or kind not in TERM_KINDS:
        # That page names what is wrong, or lists the terms to choose from.
        asked = [("do", "split"), *((key, value) for key, value in pairs if key not in {"of", "name", "do"})]
        return HttpResponseRedirect(f"{reverse('curation:retag')}?{urlencode(asked)}")
    here = reverse("curation:verb", args=["split", kind, str(find_term(kind, name, viewer))])
    # All results without a filter are those of the states that a search finds by default.
    all_of_them = query.querystring() or query.with_(state=query.default_states).querystring()
    chosen = {"query": all_of_them} if memories is None else {"memories": " ".join(map(str, memories))}
    new = request.GET.get("name", "")
    # Those that match have the new name afterwards, not the old one.
    after = (
        query.with_(**{kind: ()}) if kind != "tag" else query.with_(tag=(normalise_tag(new),) if new.strip() else ())
    )
    asked = [("name", new), *chosen.items(), ("next", explore_url(after))]
    return HttpResponseRedirect(f"{here}?{urlencode(asked)}")


@require_safe
@writers_only
def remove_tags(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Lead from tags to the preview of their removal from every memory that has one of them, whatever its state."""
    tags, next_url = request.GET.getlist("tag"), return_url(request)
    if not tags:
        messages.info(request, "Tick the tags to remove first.")
        return HttpResponseRedirect(next_url or reverse("curation:log"))
    states = [("state", state) for state in Memory.State.values]
    named = [(field, tag) for field in ("tag", "remove_tags") for tag in tags]
    asked = [*named, *states, *([("next", next_url)] if next_url else [])]
    return HttpResponseRedirect(f"{reverse('curation:retag')}?{urlencode(asked)}")


@require_safe
@writers_only
def authors(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Ask for one name for some authors, and lead to the preview of all their memories with it, in every state."""
    named, next_url = list(dict.fromkeys(request.GET.getlist("author"))), return_url(request)
    if not named:
        messages.info(request, "Tick the authors first.")
        return HttpResponseRedirect(next_url or values_url("author", SearchQuery()))
    name = " ".join(request.GET.get("name", "").split())
    if not name:
        context = {"authors": named, "next_url": next_url, "asked": "name" in request.GET}
        return render(request, "curation/authors.html", context, status=422 if context["asked"] else 200)
    chosen = [("author", one) for one in named] + [("state", state) for state in Memory.State.values]
    changes = [("add_authors", name), *(("remove_authors", one) for one in named if one != name)]
    asked = [*chosen, *changes, *([("next", next_url)] if next_url else [])]
    return HttpResponseRedirect(f"{reverse('curation:retag')}?{urlencode(asked)}")


@writers_only
def retag(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Edit memories by number, or all that match the query."""
    data = _data(request).copy()
    own = {*RetagForm.base_fields, *CHOICE, "next", "token", "csrfmiddlewaretoken"}
    query, problems = read_query([(key, value) for key, value in pairs_of(data) if key not in own])
    memories = _chosen(data)
    for key in data.keys() - own:
        del data[key]
    is_bound = bool(data.keys() - {*CHOICE, "next"})
    form = RetagForm(data if is_bound else None, query.querystring(), memories or (), viewer.timezone)
    here = reverse("curation:retag")

    def render_form() -> HttpResponse:
        page = retag_page(query, memories, form, viewer, data.get("do", ""))
        return render(request, "curation/retag.html", {"retag": page}, status=422 if form.is_bound else 200)

    notices = list(problem_notices(problems))
    if memories == []:
        notices.append(Notice("No memory is chosen: tick some, or take all that match.", is_error=True))
    if notices:
        # Without a parameter that could not be read, too many memories would match.
        context = {"retag": None, "notices": notices, "back_url": explore_url(query)}
        return render(request, "curation/retag.html", context, status=422)
    next_url = return_url(request)
    back = (next_url, "Back") if next_url else (results_url(query, memories), "Back to results")
    return _respond(request, viewer, form, here, back, render_form) if is_bound else render_form()


def _chosen(data: QueryDict) -> list[int] | None:
    """The numbers of the chosen memories; None to take all that match."""
    take, numbers = data.getlist("take"), data.getlist("memory")
    if "all" in take or not (take or numbers):
        return None
    return sorted({int(text) for text in numbers if text.isascii() and text.isdecimal() and len(text) < 19})


def _data(request: HttpRequest) -> QueryDict:
    return request.POST if request.method == "POST" else request.GET


def _respond(
    request: HttpRequest, viewer: Viewer, form: OperationForm, here: str, back: tuple[str, str], render_form: Render
) -> HttpResponse:
    """Answer a submitted form with its preview, and a confirmed preview by applying it."""
    outcome = submit_form(form, viewer, request.POST.get("token", "") if request.method == "POST" else None)
    if outcome is None:
        form.focus(next(iter(form.errors), ""))
        return render_form()
    if isinstance(outcome, Applied):
        undo_url = reverse("curation:undo", args=[outcome.curation.pk])
        next_url = return_url(request)
        if outcome.curation.kind == "memory":
            next_url = back[0].removesuffix(TICKED_AGAIN)
        elif next_url:
            # The page may have another address now, such as that of a renamed category, which an undo ends. The results
            # that a split leads to are empty then.
            is_found = form.verb == "split" and next_url.startswith(reverse("explorer:explore"))
            after_undo = back[0] if is_found else next_url
            undo_url = f"{undo_url}?{urlencode({'next': after_undo})}"
        messages.success(request, f"{outcome.curation.title}.", extra_tags=undo_url)
        # The term is still there after these.
        usual = back[0] if form.verb in {"alias", "relate"} else reverse("curation:log")
        return HttpResponseRedirect(next_url or usual)
    own = {"csrfmiddlewaretoken", "token"}
    pairs = [(key, value) for key, values in _data(request).lists() for value in values if key not in own]
    context = {"plan": outcome.plan, "changed": outcome.changed, "pairs": [*pairs, ("token", outcome.plan.token)]}
    return render(request, "curation/preview.html", {**context, "url_here": here, "back": back})


@require_POST
@writers_only
def undo(request: HttpRequest, viewer: Viewer, curation_id: int) -> HttpResponse:
    next_url = return_url(request)
    try:
        curation = curation_undo(curation_id=curation_id, viewer=viewer)
        messages.success(request, f"Undone: {curation.title}.")
        if next_url and curation.kind == "memory" and curation.arguments.get("memories"):
            next_url += TICKED_AGAIN
    except (UndoRefusedError, CurationBusyError) as error:
        messages.error(request, f"#{curation_id} cannot be undone. {error}")
    return HttpResponseRedirect(next_url or reverse("curation:log"))

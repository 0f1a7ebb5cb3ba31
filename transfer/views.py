"""The pages of imports: stores found on this machine, uploads, and what became of each import."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial, wraps
from itertools import accumulate
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from access.viewer import Viewer, may_write_everything
from explorer.http import PageRequest, page_response, page_viewer, private, wants_fragment
from explorer.links import import_url
from memories.invented_team import SAMPLE, is_sample
from text.formatting import memories as memories_text
from text.formatting import when_text
from transfer.discover import discoveries
from transfer.follow.page import build_followed
from transfer.follow.process import is_followed_now
from transfer.follow.sources import followable, sources_follow, sources_of
from transfer.formats.csv_table import FIELDS, LIST_FIELDS
from transfer.jobs import (
    State,
    batch_undo_queue,
    check_may_import,
    check_may_import_all,
    importable,
    job_cancel,
    job_import,
    job_named,
    job_remove,
    job_undo,
    jobs_import,
    may_import,
)
from transfer.models import ImportJob
from transfer.page import FIELD_LABELS, build_found, facts_of, failure_text, label_of, outcome_of
from transfer.previews import Preview, earlier_preview, job_read_as, preview_of
from transfer.queries import changed_by, imported_paths, imports_open, imports_past, is_empty, sample_batch
from transfer.read_again import can_read_again, job_read_again
from transfer.renames import archive_gone, gone_notes
from transfer.source_cards import CARDS, GROUPS, unexpected_format
from transfer.uploads import MAX_PART, MAX_UPLOAD, FileToSend, upload_append, upload_begin
from web.errors import Refusal

# The parts in which pages send uploads.
PART = 4 * 1024**2

Arguments = ParamSpec("Arguments")


View = Callable[Concatenate[Any, Arguments], HttpResponse]


def refusing(view: "View[Arguments]") -> "View[Arguments]":
    """A view that shows what it refuses: a page of its own for the lack of rights or of the import, else a message."""

    @wraps(view)
    def answered(request: HttpRequest, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Refusal as error:
            if error.status == 403:
                raise PermissionDenied(error.explanation) from error
            if error.status == 404:
                raise Http404(str(error)) from error
            messages.error(request, error.explanation)
            return redirect("imports:imports")

    return answered


def _upload_limits() -> dict[str, object]:
    return {"max_upload": MAX_UPLOAD, "part_size": PART}


def import_context(request: HttpRequest, viewer: Viewer) -> dict[str, object]:
    """The content of the page of imports, which is also the home page of an empty corpus."""
    allowed, everything = may_import(viewer), may_write_everything(viewer)
    batches, jobs = imports_past(viewer) if allowed else ([], {})
    sample = sample_batch() if everything else None
    followed = sources_of(viewer) if everything else []
    now, follows = datetime.now(UTC), bool(followed) and is_followed_now()
    lines = build_followed(followed, now, is_followed_now=follows)
    is_reading = any(line.is_reading for line in lines)
    return {
        "found": None,
        "followed": lines,
        "is_reading": is_reading,
        "is_followed_now": follows or is_reading,
        "may_import": allowed,
        "may_import_all": everything,
        "open": imports_open(viewer) if allowed else (),
        "past": batches,
        "jobs": jobs,
        **past_functions(now, viewer.timezone),
        "sample": sample,
        "sample_url": import_url(str(sample.pk)) if sample else "",
        "is_empty": is_empty(viewer),
        "groups": GROUPS,
        **_upload_limits(),
    }


@require_safe
@login_required
def imports(request: PageRequest) -> HttpResponse:
    context = import_context(request, page_viewer(request))
    return page_response(request, "home/imports.html", context, partial="followed", timings={})


@require_safe
@login_required
@refusing
def product(request: HttpRequest, key: str) -> HttpResponse:
    """The page of a product that memories come from: how to get the file, and where to send it."""
    if key not in CARDS:
        raise Http404(f"No product is called {key!r} here.")
    viewer = page_viewer(request)
    check_may_import(viewer)
    context = {"card": CARDS[key], "may_import_all": may_write_everything(viewer), **_upload_limits()}
    return private(render(request, "home/import_source.html", context))


@require_safe
@login_required
@refusing
def found(request: PageRequest) -> HttpResponse:
    """The stores of other systems on this machine. They are only looked for when somebody asks."""
    viewer = page_viewer(request)
    check_may_import_all(viewer)
    followed = {source.path for source in sources_of(viewer)}
    context = {} if wants_fragment(request) else import_context(request, viewer)
    card = CARDS.get(request.GET.get("from", ""))
    context["found"] = build_found(discoveries(), imported_paths(), followed, Path.home(), card)
    return page_response(request, "home/imports.html", context, partial="found", timings={})


@require_POST
@login_required
@refusing
def start(request: HttpRequest) -> HttpResponse:
    """Import stores of this machine, or the sample; or follow those stores whose format is followed."""
    named = dict.fromkeys(request.POST.getlist("path"))
    paths = [SAMPLE] if "sample" in request.POST else [Path(path) for path in named]
    if not paths:
        messages.error(request, "Nothing was chosen to import.")
        return redirect("imports:found")
    viewer, project = page_viewer(request), request.POST.get("project", "")
    check_may_import_all(viewer)
    if "follow" in request.POST:
        to_follow = followable(paths)
        sources = sources_follow(paths=to_follow, project=project, viewer=viewer)
        paths = [path for path in paths if path not in to_follow]
        if sources and not paths:
            return redirect("imports:follow", sources[0].pk) if len(sources) == 1 else redirect("imports:imports")
        if sources:
            jobs_import(paths=paths, project=project, viewer=viewer)
            return redirect("imports:imports")
    jobs = jobs_import(paths=paths, project=project, viewer=viewer)
    return redirect("imports:job", jobs[0].pk) if len(jobs) == 1 else redirect("imports:imports")


@require_POST
@login_required
@refusing
def upload(request: HttpRequest) -> HttpResponse:
    """An upload as one form, for browsers without scripts: those send it in parts to the API."""
    files = [file for file in request.FILES.getlist("file") if file.size]
    if not files:
        messages.error(request, "No file was chosen, or it is empty.")
        return redirect("imports:imports")
    listed = [FileToSend(file.name or "", file.size or 0) for file in files]
    # All of it is here: it goes on with no other upload, whose bytes may be those of other files.
    job = upload_begin(files=listed, viewer=page_viewer(request), fingerprint=secrets.token_hex())
    for start, file in zip(accumulate((one.size for one in listed), initial=0), files, strict=False):
        file.seek(max(0, job.received - start))
        while job.received < start + (file.size or 0) and (part := file.read(MAX_PART)):
            job = upload_append(job=job, offset=job.received, part=part)
    return redirect(_job_address(job.pk, request.POST.get("from", "")))


def _job_address(job_id: int, chosen: str) -> str:
    """The page of an import, which knows the product that its files were chosen as."""
    address = reverse("imports:job", args=[job_id])
    return f"{address}?from={chosen}" if chosen in CARDS else address


@require_safe
@login_required
@refusing
def job(request: PageRequest, job_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    one = job_named(viewer, job_id)
    everything = may_write_everything(viewer)
    batch = one.own_batch
    context: dict[str, object] = {
        "job": one,
        "can_read_again": can_read_again(one),
        "label": label_of(one),
        "facts": facts_of(one, sees_vocabulary=everything),
        "report": (batch.report if batch else None) or {},
        "may_write_everything": everything,
        "part_size": PART,
        "gone_notes": gone_notes(one.batch, viewer) if one.state == State.DONE else (),
        "changed": changed_by(one.batch, viewer) if one.state == State.DONE else (),
        "brought_url": import_url(str(batch.pk)) if batch and batch.created else "",
        "complaints": (),
        "is_being_read": False,
        "address": _job_address(job_id, request.GET.get("from", "")),
        "unexpected": None,
        "preview": None,
    }
    if wants_fragment(request):
        # The messages of an action, which a whole page shows elsewhere.
        context["complaints"] = [str(one) for one in messages.get_messages(request)]
    if one.state in (State.READY, State.FAILED) and one.is_upload:
        preview = preview_of(one)
        context["is_being_read"] = preview is None
        preview = preview or earlier_preview(one)
        context |= _preview_context(one, preview, viewer) if preview else {}
        if preview:
            formats = (preview.format, *(file.format for file in preview.files))
            context["unexpected"] = unexpected_format(request.GET.get("from", ""), formats)
    return page_response(request, "home/import_job.html", context, partial="job", timings={})


def _preview_context(job: ImportJob, preview: Preview, viewer: Viewer) -> dict[str, object]:
    """The first rows of an upload, and the projects that it may go into."""
    projects, may_make = importable(viewer), viewer.may_write(None) and viewer.project_ids is None
    found = preview.found
    named = dict.fromkeys(row.project for row in preview.rows if row.project)
    return {
        "preview": preview,
        "fields": FIELDS,
        "has_question": any(column.question for column in preview.columns),
        "field_labels": FIELD_LABELS,
        # Into another project, memories that are here already would come twice.
        "project_shown": job.project or (found.known_in if found and found.without_project else ""),
        "all_named": bool(preview.found and preview.found.is_all and not preview.found.without_project),
        "projects": projects,
        "may_make_project": may_make,
        "closed_projects": [] if may_make else [name for name in named if name not in projects],
    }


def _form_choices(form: QueryDict, preview: Preview | None) -> dict[str, Any]:
    """How an upload is read, as its page asks. A column that is given the field of another one takes it."""
    columns = dict(zip(form.getlist("column"), form.getlist("field"), strict=False))
    before = {column.name: column.field for column in preview.columns} if preview and not preview.files else {}
    taken = {field for name, field in columns.items() if field != before.get(name) and field not in LIST_FIELDS}
    columns |= {name: "" for name, field in columns.items() if field in taken and before.get(name) == field}
    types = dict(zip(form.getlist("rule"), form.getlist("type"), strict=False))
    values = {name.removeprefix("all_"): value for name, value in form.items() if name.startswith("all_")}
    return {
        **({"columns": columns} if columns else {}),
        **({"types": types} if types else {}),
        **({"values": values} if values else {}),
        **({"dates": form["dates"]} if "dates" in form else {}),
    }


def past_functions(now: datetime, zone: tzinfo) -> dict[str, object]:
    """The functions by which the list of past imports is written."""
    return {
        "when": partial(when_text, now=now, zone=zone),
        "outcome_of": outcome_of,
        "failure_text": failure_text,
        "label_of": label_of,
        "is_sample": is_sample,
    }


@require_POST
@login_required
@refusing
def job_action(request: HttpRequest, job_id: int, action: str) -> HttpResponse:
    """Import an upload, choose the fields of its columns, cancel or undo an import, or remove an upload."""
    viewer = page_viewer(request)
    one = job_named(viewer, job_id)
    try:
        if action == "import":
            project, is_only = request.POST.get("project", ""), "only_project" in request.POST
            job_import(job=one, project=project, viewer=viewer, is_only_project=is_only)
        elif action == "again":
            return redirect("imports:job", job_read_again(job=one, viewer=viewer).pk)
        elif action == "columns":
            job_read_as(job=one, **_form_choices(request.POST, preview_of(one) or earlier_preview(one)))
        elif action == "cancel":
            job_cancel(job=one)
        elif action == "archive" and one.batch:
            count = archive_gone(one.batch, viewer)
            messages.info(request, f"{memories_text(count)} archived. The undo of the import restores them.")
        elif action == "undo":
            job_undo(job=one, viewer=viewer, force="force" in request.POST)
        else:
            job_remove(job=one)
            messages.info(request, f"{one.name} is removed.")
            return redirect("imports:imports")
    except Refusal as error:
        messages.error(request, error.explanation)
    return redirect("imports:job", job_id)


@require_POST
@login_required
@refusing
def undo_batch(request: HttpRequest, batch_id: int) -> HttpResponse:
    return redirect("imports:job", batch_undo_queue(batch_id=batch_id, viewer=page_viewer(request)).pk)

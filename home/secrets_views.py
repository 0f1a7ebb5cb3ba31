"""The page of secrets that are stored: for those who administer every project. No secret is on it."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from access.models import AuditEvent
from access.viewer import Viewer
from explorer.http import page_viewer, private
from home.found_secrets import (
    SecretsForbiddenError,
    check_may_administer,
    is_looking,
    look_start,
    read_look,
    read_progress,
    secrets_allow,
)
from home.purge import DONE, open_purges, purge_ask, purges
from home.purged_files import backup_files
from text.formatting import number, plural
from text.secrets import is_available

# The rest is listed by the command.
_SHOWN = 200
_MARKS = 8
CONFIRMATION = "purge"
_REFRESH_SECONDS = "3"


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def secrets(request: HttpRequest) -> HttpResponse:
    """The secrets that the last look has found, and what can be done about them."""
    viewer = page_viewer(request)
    try:
        check_may_administer(viewer)
    except SecretsForbiddenError as error:
        raise PermissionDenied(str(error)) from None
    problem = _act(request, viewer) if request.method == "POST" else ""
    if request.method == "POST" and not problem:
        return redirect("secrets")
    return _page(request, problem)


def _act(request: HttpRequest, viewer: Viewer) -> str:
    """Do what was asked for. Returns why it cannot be done."""
    asked = request.POST.get("do", "")
    if is_looking():
        return "Wait until the look, or the purge, has ended."
    if asked == "look":
        look_start()
        return ""
    listed = {one["id"] for one in (read_look() or {"secrets": []})["secrets"]}
    chosen = listed if request.POST.get("all") else listed.intersection(request.POST.getlist("id"))
    if not chosen:
        return "Choose at least one of the secrets."
    if asked == "allow":
        secrets_allow(hashes=chosen, viewer=viewer)
        messages.info(request, f"{plural(len(chosen), 'mark')} will not be listed again.")
        return ""
    if request.POST.get("confirmation", "").strip().lower() != CONFIRMATION:
        return f"Nothing was purged: write {CONFIRMATION} into the field, since it cannot be undone."
    purge_ask(hashes=chosen, viewer=viewer)
    look_start()
    messages.info(request, f"{plural(len(chosen), 'secret')} will be purged now. Revoke each of them where it is used.")
    return ""


def _purge_entry(event: AuditEvent) -> dict[str, Any]:
    """A purge for the page: when, by whom, and what it did, if it is done."""
    after = event.after or {}
    rows = ", ".join(f"{word} {number(count)}" for word, count in after.get("rows", {}).items())
    return {
        "at": event.at,
        "by": event.user or "a command",
        "done": rows or "nothing was found" if after.get("state") == DONE else "",
        "marks": after.get("marks", [])[:_MARKS],
        "left": after.get("left", []),
    }


def _page(request: HttpRequest, problem: str) -> HttpResponse:
    look = read_look()
    found: list[dict[str, Any]] = look["secrets"] if look else []
    is_busy = is_looking() or bool(open_purges())
    context = {
        "look": look,
        "found": found[:_SHOWN],
        "total": len(found) + (look["more"] if look else 0),
        "is_busy": is_busy,
        "progress": read_progress() if is_busy else {},
        "purges": [_purge_entry(event) for event in purges()],
        "backups": [path.name for path in backup_files()],
        "problem": problem,
        "chosen": request.POST.getlist("id"),
        "confirmation": CONFIRMATION,
        "is_available": is_available(),
        "policy": settings.SECRETS,
    }
    response = private(render(request, "home/secrets.html", context, status=422 if problem else 200))
    if is_busy:
        response["Refresh"] = _REFRESH_SECONDS
    return response

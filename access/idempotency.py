"""`Idempotency-Key`: a POST that is sent again is answered with the reply of the first, and done once.

The reply is stored in the transaction of what it did, so that neither exists without the other. Requests with the same
key and credential wait for each other.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from access.keys import known_viewer
from access.models import IdempotentReply
from access.viewer import Viewer
from web.errors import ApiError, UnauthorizedError
from web.secrets import mask_json, mask_note
from web.sql import execute

HEADER = "Idempotency-Key"
KEPT = timedelta(hours=24)
_LONGEST = 255
PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": _LONGEST},
    "description": "A word such as a UUID: for 24 hours, the same request is answered with the same reply, done once.",
}
# Rows that one request removes: more than one, so that the table shrinks.
_SWEPT = 20


class _NotDoneError(Exception):
    """The view refused the request, so that nothing of it is to be stored."""

    def __init__(self, response: HttpResponse) -> None:
        self.response = response
        super().__init__()


def idempotent(
    request: HttpRequest, view: Callable[[], HttpResponse], within: Callable[[], AbstractContextManager[None]]
) -> HttpResponse:
    """The response of a view, or the stored one if this key was sent before. Refusals are not stored.

    `within` is a transaction of writers, which raises the revision at its end: what follows a write, such as the search
    for similar memories, must not make other writers wait. Raises ApiError for a key that is too long, and for one that
    was sent with another request.
    """
    key = request.headers.get(HEADER, "").strip()
    if request.method != "POST" or not key:
        return view()
    if len(key) > _LONGEST:
        raise ApiError(
            422, "invalid_request", f"{HEADER}: has {len(key):,} characters", f"write up to {_LONGEST}, such as a UUID"
        )
    if mask_note(key) != key:
        # As a hash, since two secrets may have the same mark.
        key = _digest(key.encode())
    owner, asked = _owner(request), _digest(request.get_full_path().encode(), request.body)
    try:
        with within():
            return _done_once(request, view, owner, key, asked)
    except _NotDoneError as refused:
        return refused.response


def _done_once(
    request: HttpRequest, view: Callable[[], HttpResponse], owner: str, key: str, asked: str
) -> HttpResponse:
    execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"idempotency:{owner}:{key}"])
    known = IdempotentReply.objects.filter(owner=owner, key=key, at__gt=timezone.now() - KEPT).first()
    if known is not None:
        return _repeated(request, known, asked)
    response = view()
    if not 200 <= response.status_code < 300:
        raise _NotDoneError(response)
    _sweep()
    IdempotentReply.objects.update_or_create(
        owner=owner,
        key=key,
        defaults={
            "request_hash": asked,
            "rights": _rights(getattr(request, "viewer", None) or Viewer()),
            "status": response.status_code,
            "headers": {name: response[name] for name in ("Location", "ETag") if name in response},
            "body": _without_secrets(response.content.decode()),
            "at": timezone.now(),
        },
    )
    return response


def _without_secrets(body: str) -> str:
    """A reply as it is stored: it may name what was sent. One without secrets stays as it is, byte by byte."""
    reply = json.loads(body) if body else None
    masked = mask_json(reply) if isinstance(reply, dict) else reply
    return body if masked == reply else json.dumps(masked, ensure_ascii=False)


def _repeated(request: HttpRequest, known: IdempotentReply, asked: str) -> HttpResponse:
    """The stored reply, for who may still do and see all that they could at that time."""
    viewer = known_viewer(request)
    if viewer is None:
        raise UnauthorizedError
    if known.request_hash != asked:
        raise ApiError(
            422,
            "idempotency_key_reused",
            f"{HEADER}: was sent with another request within {KEPT.total_seconds() / 3600:.0f} hours",
            "Send a new key with each request, and the same one only to repeat a request unchanged.",
        )
    now = _rights(viewer)
    if not all(_includes(now[name], then) for name, then in known.rights.items()):
        raise ApiError(
            403,
            "forbidden",
            "This was done once, and the credential has lost rights since: its reply is not repeated.",
            "Read what you may still see.",
        )
    headers = {**known.headers, "Idempotency-Replayed": "true"}
    return HttpResponse(known.body, "application/json; charset=utf-8", known.status, headers=headers)


_Right = list[str] | list[int] | None


def _includes(now: _Right, then: _Right) -> bool:
    return now is None or (then is not None and set(then) <= set(now))


def _rights(viewer: Viewer) -> dict[str, _Right]:
    """The scopes and projects of a viewer; None for every project."""
    projects = {
        "projects": viewer.project_ids,
        "writable": viewer.writable_project_ids,
        "curated": viewer.curated_project_ids,
    }
    return {"scopes": sorted(viewer.scopes), **{k: None if ids is None else sorted(ids) for k, ids in projects.items()}}


def _owner(request: HttpRequest) -> str:
    """A hash of the credential, which the view checks."""
    names = ("Authorization", "X-API-Key")
    sent = [request.headers.get(name, "") for name in names] + [request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")]
    return _digest("\0".join(sent).encode(errors="replace"))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _sweep() -> None:
    """Remove some replies that are too old, through idempotentreply_at_idx."""
    old = IdempotentReply.objects.filter(at__lt=timezone.now() - KEPT).order_by("at").values_list("pk", flat=True)
    IdempotentReply.objects.filter(pk__in=list(old[:_SWEPT])).delete()

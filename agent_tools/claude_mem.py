"""claude-mem's worker protocol, so that its clients can use this site: read-only, without keys, on this machine only.

`manage.py up --claude-mem-port 37777` enables it. Search and timeline answer with MCP content, as that worker does.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from pydantic import ValidationError

from access.models import AuditEvent
from access.viewer import Viewer
from explorer.batch_api import Batch, batch_of
from explorer.timeline_api import index_row
from memories.queries import MemoryDetail
from search.query import SearchQuery
from search.result import Hit, HitDetail
from search.run import run
from search.timeline import TimelineRequest, timeline
from web.errors import ApiError
from web.responses import error_of, error_of_input
from web.serving import is_loopback

MAX_BYTES = 1_000_000
# Processes on this machine can read its database anyway.
VIEWER = Viewer(None, frozenset({"read"}), frozenset(), door=AuditEvent.Door.MCP)
# Kinds of records that its worker distinguishes; here all are memories.
_KINDS = {"observations", "sessions", "prompts"}

Pairs = list[tuple[str, str]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def worker(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """An ASGI application with the endpoints that claude-mem's MCP server calls."""
    body = b""
    more = True
    while more and len(body) <= MAX_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    status, reply = await sync_to_async(answer, thread_sensitive=False)(scope, body)
    content = json.dumps(reply, ensure_ascii=False).encode(errors="replace")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


def answer(scope: MutableMapping[str, Any], body: bytes) -> tuple[int, Any]:
    """The status and the JSON reply."""
    try:
        _check_caller(scope)
        route = ROUTES.get((scope["method"].replace("HEAD", "GET"), scope["path"]))
        if route is None:
            raise ApiError(404, "not_found", f"Not found: {scope['method']} {scope['path'][:100]}.")
        if len(body) > MAX_BYTES:
            raise ApiError(413, "too_large", "The body is too large.")
        return 200, route(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True), body)
    except Exception as error:
        failure = error_of(error)
        return failure.status, {"error": f"{failure.detail} {failure.suggestion}".strip()}
    finally:
        close_old_connections()


def _check_caller(scope: MutableMapping[str, Any]) -> None:
    """Reject pages in browsers, whatever host name they use for this machine."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if not is_loopback(name.strip("[]")):
        raise ApiError(403, "forbidden", "This is served only under the local names of this machine.", "Use 127.0.0.1.")
    if "origin" in headers:
        raise ApiError(403, "forbidden", "Web pages cannot use this.", "Call it without an Origin header.")


def _health(pairs: Pairs, body: bytes) -> dict[str, Any]:
    return {"status": "ok"}


def _search(pairs: Pairs, body: bytes) -> dict[str, Any]:
    values = _translate(pairs)
    if not {"limit", "page_size"} & {key for key, _ in values}:
        values.append(("limit", "20"))
    result = run(SearchQuery.from_pairs(values), VIEWER, detail=HitDetail.INDEX)
    lines = [f"Found {result.total} result(s)", *(w.message for w in result.warnings), "", *_table(result.hits)]
    if result.has_more:
        lines.append(f"\n{result.total - len(result.hits)} more: use offset={result.page * result.page_size}")
    return _content("\n".join(lines) if result.hits else "\n".join(lines[:-3]))


def _timeline(pairs: Pairs, body: bytes) -> dict[str, Any]:
    found = timeline(*TimelineRequest.with_query(_translate(pairs)), VIEWER)
    if found.anchor is None:
        return _content("\n".join(warning.message for warning in found.warnings))
    hits = (*found.before, found.anchor, *found.after)
    notices = (warning.message for warning in found.warnings)
    return _content("\n".join([f"Timeline around #{found.anchor.id}", *notices, "", *_table(hits, found.anchor)]))


def _observations(pairs: Pairs, body: bytes) -> list[dict[str, Any]]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "malformed_body", "The body is not JSON.", 'Send {"ids": [1, 2]}.') from None
    try:
        batch = Batch.model_validate(values)
    except ValidationError as error:
        raise error_of_input(error, Batch, below=0) from error
    return [_observation(detail) for detail in batch_of(batch, VIEWER)[0]]


ROUTES: dict[tuple[str, str], Callable[[Pairs, bytes], Any]] = {
    ("GET", "/api/health"): _health,
    ("GET", "/api/readiness"): _health,
    ("GET", "/api/search"): _search,
    ("GET", "/api/timeline"): _timeline,
    ("POST", "/api/observations/batch"): _observations,
}


def _translate(pairs: Pairs) -> Pairs:
    """The parameters of our search: `type` may name a kind of record there, which is dropped."""
    return [(key, value) for key, value in pairs if not (key == "type" and value in _KINDS) and key != "format"]


def _table(hits: Iterable[Hit], anchor: Hit | None = None) -> list[str]:
    rows = ["| ID | Date | Title | Type | Project |", "|---|---|---|---|---|"]
    for hit in hits:
        row = index_row(hit)
        title = row.title.replace("|", "\\|")
        mark = " ←" if anchor and hit.id == anchor.id else ""
        rows.append(
            f"| #{row.id} | {row.created_at:%Y-%m-%d %H:%M} | {title}{mark} | {row.memory_type} | {row.project} |"
        )
    return rows


def _content(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _observation(detail: MemoryDetail) -> dict[str, Any]:
    """A memory with the field names of claude-mem's observations."""
    memory = detail.memory
    return {
        "id": memory.pk,
        "project": memory.project.slug,
        "type": memory.memory_type,
        "title": memory.title,
        "subtitle": memory.summary,
        "narrative": memory.content,
        "facts": [],
        "concepts": [term.label for term in detail.concepts],
        "tags": memory.tags,
        "files_read": [],
        "files_modified": [],
        "created_at": memory.created_at.isoformat(),
        "created_at_epoch": int(memory.created_at.timestamp() * 1000),
    }

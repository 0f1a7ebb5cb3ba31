"""The endpoints that claude-mem's MCP server calls: without keys, on this machine only, all of them reading but one.

`manage.py up --claude-mem-port 37777` enables them. Search and timeline answer with MCP content, as that worker does.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from access.models import AuditEvent
from access.viewer import Viewer
from agent_tools.cautions import caution_of
from agent_tools.claude_mem import corpora
from agent_tools.claude_mem.arguments import read_arguments, whole_number
from explorer.explore.timeline_api import index_row
from explorer.memory.bulk_api import Batch, batch_of
from explorer.sessions.context import ContextRequest, session_context
from memories.models import Project
from memories.queries import MemoryDetail, visible_to
from memories.recalls import record_list
from search.query import SORT_ALIASES
from search.result import Hit, HitDetail
from search.run import run
from search.timeline import TimelineRequest, timeline
from web.admission import BusyError, requests
from web.bodies import BODY
from web.errors import ApiError
from web.exchange import Receive, Scope, Send, set_route
from web.responses import error_of
from web.serving import is_loopback

MAX_BYTES = 1_000_000
# The slugs of the projects that it answers about; empty for every project, since processes on this machine can read the
# database anyway.
projects: tuple[str, ...] = ()
_MOST_IDS = 500
_FULL_CONTEXT = 6_000
_SESSION = re.compile(r"#?S([0-9]{1,18})")
_MEMORY = re.compile(r"#?([0-9]{1,18})")
_NO_TOOL_USES = (
    "Mnemoscope keeps no raw tool calls, only memories. get_observations returns everything that is known of a memory."
)

Pairs = list[tuple[str, str]]
Body = Mapping[str, Any]


# --- requests and replies ----------------------------------------------------------------------------------------


async def worker(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application with the endpoints of claude-mem's worker."""
    try:
        async with requests.turn():
            status, reply = await sync_to_async(answer, thread_sensitive=False)(scope, scope[BODY].read())
    except BusyError as busy:
        status, reply = busy.status, {"error": busy.explanation}
    is_text = isinstance(reply, str)
    content = (reply if is_text else json.dumps(reply, ensure_ascii=False)).encode(errors="replace")
    kind = b"text/plain; charset=utf-8" if is_text else b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
    if status == BusyError.status:
        headers.append((b"retry-after", BusyError.headers["Retry-After"].encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


def answer(scope: Scope, body: bytes) -> tuple[int, Any]:
    """The status and the reply: a text, or a value for JSON."""
    try:
        _check_caller(scope)
        method, path = scope["method"].replace("HEAD", "GET"), scope["path"]
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if route := ROUTES.get((method, path)):
            set_route(f"claude-mem {path}")
            return 200, route(pairs, body)
        if (named := _NAMED_CORPUS.fullmatch(path)) and method == "POST":
            set_route(f"claude-mem /api/corpus/{named['action']}")
            return 200, _of_corpus(unquote(named["name"]), named["action"], _read_body(body))
        raise ApiError(404, "not_found", f"Not found: {method} {path[:100]}.")
    except Exception as error:
        failure = error_of(error)
        return failure.status, {"error": failure.explanation}
    finally:
        close_old_connections()


def _check_caller(scope: Scope) -> None:
    """Reject pages in browsers, whatever host name they use for this machine."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if not is_loopback(name.strip("[]")):
        raise ApiError(403, "forbidden", "This is served only under the local names of this machine.", "Use 127.0.0.1.")
    # Programs do not send the second one, and browsers send it also with requests for images.
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise ApiError(403, "forbidden", "Web pages cannot use this.", "Call it from a program.")


def _viewer() -> Viewer:
    # By name at every request: a project may be created or imported later.
    ids = frozenset(Project.objects.filter(slug__in=projects).values_list("pk", flat=True)) if projects else None
    return Viewer(ids, frozenset({"read"}), frozenset(), door=AuditEvent.Door.MCP)


def _read_body(body: bytes) -> Body:
    try:
        values = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ApiError(400, "malformed_body", "The body is not a JSON object.", 'Send one, such as {"ids": [1, 2]}.')
    return values


def _content(text: str, *, is_error: bool = False, of: Iterable[Hit] = ()) -> dict[str, Any]:
    if caution := caution_of(text, {hit.id for hit in of}):
        text = f"{caution}\n{text}"
    content = {"content": [{"type": "text", "text": text}]}
    return {**content, "isError": True} if is_error else content


# --- endpoints ---------------------------------------------------------------------------------------------------


def _health(pairs: Pairs, body: bytes) -> dict[str, Any]:
    return {"status": "ok"}


def _search(pairs: Pairs, body: bytes) -> dict[str, Any]:
    viewer = _viewer()
    asked = read_arguments(pairs, viewer)
    result = run(asked.query, viewer, include_facets=False, detail=HitDetail.INDEX)
    record_list(viewer, [hit.id for hit in result.hits], asked.query.querystring())
    lines = [f"Found {result.total} result(s)", *asked.notes, *(warning.message for warning in result.warnings)]
    if result.hits:
        lines += ["", *_table(result.hits)]
    shown = asked.query.begin + len(result.hits)
    if result.total > shown:
        lines += ["", f"{result.total - shown} more: use offset={shown}"]
    return _content("\n".join(lines), of=result.hits)


def _timeline(pairs: Pairs, body: bytes) -> dict[str, Any]:
    viewer = _viewer()
    asked = read_arguments(pairs, viewer)
    given = asked.values.get("anchor", "")
    if bool(given) == bool(asked.query.text):
        wrong = "not both" if given else "one of them"
        return _content(f"Error: give anchor or query, {wrong}.", is_error=True)
    anchor = _anchor(given, viewer)
    if anchor is None:
        return _content(f"Session {given[:30]} has no memory here.", is_error=True)
    depths = {
        "depth_before": str(whole_number(asked.values.get("depth_before"), 3, 0, 100)),
        "depth_after": str(whole_number(asked.values.get("depth_after"), 3, 0, 100)),
    }
    request = TimelineRequest.from_pairs([*depths.items(), ("anchor", anchor)])
    found = timeline(request, asked.query, viewer)
    notes = [*asked.notes, *(warning.message for warning in found.warnings)]
    if found.anchor is None:
        return _content("\n".join(notes))
    hits = (*found.before, found.anchor, *found.after)
    lines = [f"Timeline around #{found.anchor.id}", *notes, "", *_table(hits, found.anchor)]
    return _content("\n".join(lines), of=hits)


def _anchor(given: str, viewer: Viewer) -> str | None:
    """The anchor of a timeline; for a session, such as `S12`, its last memory, None if there is none."""
    if (found := _SESSION.fullmatch(given)) is None:
        return given
    # The index is memory_session_idx.
    of_session = visible_to(viewer).filter(session_id=int(found[1])).order_by("-created_at", "-id")
    last = of_session.values_list("id", flat=True).first()
    return None if last is None else str(last)


def _observations(pairs: Pairs, body: bytes) -> list[dict[str, Any]]:
    values = _read_body(body)
    given = values.get("ids")
    if not isinstance(given, list):
        raise ApiError(400, "invalid_request", "ids: is missing.", 'Send {"ids": [1, 2]}.')
    ids = [int(found[1]) for item in given if (found := _MEMORY.fullmatch(str(item).strip()))]
    order = SORT_ALIASES.get(str(values.get("orderBy")), "given")
    project = str(values.get("project") or "").strip()
    # Without the checks of the API, which refuses what this reader corrects.
    batch = Batch.model_construct(
        ids=ids[:_MOST_IDS],
        order=order,
        limit=whole_number(values.get("limit"), _MOST_IDS, 1, _MOST_IDS),
        project=[project] if project else [],
    )
    return [_observation(detail) for detail in batch_of(batch, _viewer())[0]]


def _tool_uses(pairs: Pairs, body: bytes) -> dict[str, Any]:
    return _content(_NO_TOOL_USES)


def _context(pairs: Pairs, body: bytes) -> str:
    viewer = _viewer()
    asked = read_arguments(pairs, viewer)
    if not asked.query.project:
        raise ApiError(400, "invalid_request", "projects: is missing.", "Name one, or several with commas.")
    request = ContextRequest(project=asked.query.project)
    if asked.values.get("full") == "true":
        request = request.replace(budget=_FULL_CONTEXT)
    return session_context(request, viewer).text


def _corpus_build(pairs: Pairs, body: bytes) -> dict[str, Any]:
    return corpora.build(_read_body(body), _viewer())


def _corpus_list(pairs: Pairs, body: bytes) -> dict[str, Any]:
    return _content(json.dumps(corpora.listed(_viewer()), ensure_ascii=False, indent=2))


def _of_corpus(name: str, action: str, body: Body) -> dict[str, Any]:
    viewer = _viewer()
    view = corpora.corpus(name, viewer)
    if action == "query":
        return corpora.answered(view, str(body.get("question") or ""), viewer)
    return corpora.described(view, viewer) if action == "rebuild" else corpora.primed(view)


_NAMED_CORPUS = re.compile(r"/api/corpus/(?P<name>[^/]+)/(?P<action>prime|query|rebuild|reprime)")
ROUTES: dict[tuple[str, str], Callable[[Pairs, bytes], Any]] = {
    ("GET", "/api/health"): _health,
    ("GET", "/api/readiness"): _health,
    ("GET", "/api/search"): _search,
    ("GET", "/api/timeline"): _timeline,
    ("GET", "/api/context/inject"): _context,
    ("POST", "/api/observations/batch"): _observations,
    ("POST", "/api/tool-uses/batch"): _tool_uses,
    ("POST", "/api/corpus"): _corpus_build,
    ("GET", "/api/corpus"): _corpus_list,
}


# --- from memories to rows ---------------------------------------------------------------------------------------


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


def _observation(detail: MemoryDetail) -> dict[str, Any]:
    """A memory with the field names of claude-mem's observations."""
    memory = detail.memory
    return {
        "id": memory.pk,
        "project": memory.project.slug,
        "type": memory.memory_type,
        "title": memory.title,
        "subtitle": memory.summary,
        "narrative": f"[{caution}]\n{memory.content}" if (caution := caution_of("", {memory.pk})) else memory.content,
        "facts": [],
        "concepts": [term.label for term in detail.concepts],
        "tags": memory.tags,
        "files_read": [term.label for term in detail.entities if term.type == "file"],
        "files_modified": [],
        "session": f"S{memory.session_id}" if memory.session_id else "",
        "created_at": memory.created_at.isoformat(),
        "created_at_epoch": int(memory.created_at.timestamp() * 1000),
    }

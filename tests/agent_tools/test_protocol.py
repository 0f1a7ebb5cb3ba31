"""The protocol beside the tools: replies as data, titles, completion, cursors, batches, and pages of other sites."""

import asyncio
import json

import httpx2
import pytest
from mcp import MCPError

from access.models import ApiKey
from access.viewer import command_viewer
from agent_tools.answers import PROMPTS, RESOURCES, TEMPLATES, _result, offered
from agent_tools.calls import call
from agent_tools.catalogue import PROFILES, TOOL, schema_of
from agent_tools.rendering import Reply
from tests.agent_tools.conftest import key_for
from tests.agent_tools.test_catalogue import faults_of
from tests.agent_tools.test_clients import over_http

TAG = {"query": "tea", "tag": ["tea"]}


# --- replies as data ---------------------------------------------------------------------------------------------


def calls(ids):
    """A call of every tool, and further ones whose replies have other fields."""
    yield "__IMPORTANT", {}
    yield "search", {"query": "tea", "include_facets": True}
    yield "search", {"query": "crane", "mode": "unified"}
    yield "search", {"query": "zzqqxx", "mode": "keyword", "type": "decision"}
    yield "search", {"max_tokens": 200, "limit": 50}
    yield "timeline", {"anchor": ids["b1"]}
    yield "search", {"query": "tea", "orderBy": "updated"}
    yield "get_observations", {"ids": [ids["b1"], 1, ids["t1"]], "limit": 1}
    yield "get_observations", {"ids": [ids["b1"]], "max_tokens": 200}
    yield "retrieve_memory", TAG | {"include_facets": True}
    yield "list_categories", {"include_hierarchy": True}
    yield "category_search", {"category": "Yard", "include_children": True, "include_chunks": True}
    yield "list_concepts_in_category", {"category": "Yard"}
    yield "list_values", {"facet": "tag"}
    yield "about", {"concept": "safety"}
    yield "about", {"concept": "safety", "to": "temperature"}
    yield "similar", {"id": ids["b1"]}
    yield "similar", {}
    yield "changes", {"since": "7d"}
    yield "views", {}
    yield "session_context", {}
    yield "store_memory", {"content": "New.", "project": "boat", "supersedes": [f"#{ids['b1']}"]}
    yield "update_memory", {"id": ids["b3"], "add_tags": ["new"], "supersedes": [f"#{ids['b1']}"]}
    yield "relate", {"id": ids["b3"], "target": ids["b5"]}
    yield "history", {"id": ids["b3"]}
    yield "restore", {"id": ids["b1"], "despite_successor": True}
    yield "forget", {"tag": ["crane"]}
    yield "curate", {"operation": "create", "kind": "concept", "name": "rigging"}


# The ids of unified results are numbers, or texts that begin with a kind; concepts share memories, or have relations.
OF_TWO_TYPES = {"search.results[].id", "about.linked_to_both[].to_first", "about.linked_to_both[].to_second"}


def undeclared(data, schema, path=""):
    """The fields of a reply that its schema does not list, or lists as another type."""
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    kind = schema["type"]
    if not isinstance(data, kinds[kind]) or (isinstance(data, bool) and kind != "boolean"):
        yield f"{path}: {data!r} is no {kind}"
    elif kind == "array":
        for item in data:
            yield from undeclared(item, schema["items"], f"{path}[]")
    elif kind == "object" and "properties" in schema:
        for name, value in data.items():
            below = schema["properties"].get(name)
            if below is None and f"{path}.{name}" not in OF_TWO_TYPES:
                yield f"{path}.{name}: is not listed"
            elif below is not None:
                yield from undeclared(value, below, f"{path}.{name}")


def test_every_reply_is_data_as_its_schema_says(ids):
    seen = set()
    for name, arguments in calls(ids):
        reply = call(TOOL[name], arguments, command_viewer())
        sent = _result(reply, reply.data if isinstance(reply, Reply) else {"text": reply}).structured_content
        assert list(undeclared(sent, schema_of(TOOL[name].output), name)) == []
        seen.add(name)
    assert seen == TOOL.keys()


@pytest.mark.parametrize("profile", PROFILES)
def test_everything_that_is_offered_has_a_title_and_one_type(profile):
    titles = [offered(tool).title for tool in PROFILES[profile]]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    for tool in PROFILES[profile]:
        wrong = [fault for fault in faults_of(offered(tool).output_schema) if "lists all its properties" not in fault]
        assert wrong == []
    prompts = PROMPTS.prompts
    offers = [
        *RESOURCES.resources,
        *TEMPLATES.resource_templates,
        *prompts,
        *(a for p in prompts for a in p.arguments or ()),
    ]
    assert all(one.title for one in offers)


# --- cursors and completion --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["list_tools", "list_resources", "list_resource_templates", "list_prompts"])
def test_cursor_that_nobody_gave_out_is_refused(shared_ids, site, name):
    async def listed(client):
        assert await getattr(client, name)()
        assert await getattr(client, name)(cursor="")
        with pytest.raises(MCPError) as error:
            await getattr(client, name)(cursor="garbage")
        return error.value.error

    error = asyncio.run(over_http(site, key_for(), listed))
    assert error.code == -32602
    assert error.message == "The cursor 'garbage' is not of this server. Leave it out: lists are whole."


@pytest.mark.parametrize(
    ("reference", "argument", "values"),
    [
        pytest.param({"type": "ref/prompt", "name": "session_context"}, ("project", ""), ["tea", "boat"], id="all"),
        pytest.param({"type": "ref/prompt", "name": "session_context"}, ("project", "bo"), ["boat"], id="begun"),
        pytest.param({"type": "ref/prompt", "name": "session_context"}, ("project", "OA"), ["boat"], id="within"),
        pytest.param({"type": "ref/prompt", "name": "session_context"}, ("project", "zz"), [], id="unknown"),
        pytest.param({"type": "ref/prompt", "name": "session_context"}, ("budget", "1"), [], id="a number"),
        pytest.param(
            {"type": "ref/resource", "uri": "mnemoscope://context/{project}"},
            ("project", "t"),
            ["tea", "boat"],
            id="uri",
        ),
        pytest.param({"type": "ref/resource", "uri": "memory://{id}"}, ("id", "1"), [], id="an id"),
    ],
)
def test_arguments_are_completed_with_what_there_is(shared_ids, site, reference, argument, values):
    completion = completed(site, key_for(), reference, argument)["result"]["completion"]
    assert (completion["values"], completion["total"], completion["hasMore"]) == (values, len(values), False)


def test_paths_are_completed_and_nothing_of_other_projects(shared_ids, site):
    paths = {"type": "ref/resource", "uri": "mnemoscope://categories/{path}"}
    assert completed(site, key_for(), paths, ("path", "yard"))["result"]["completion"]["values"]
    context = {"type": "ref/prompt", "name": "session_context"}
    assert completed(site, key_for("tea"), context, ("project", "b"))["result"]["completion"]["values"] == []


@pytest.mark.parametrize(
    ("reference", "argument"),
    [
        ({"type": "ref/prompt", "name": "nothing"}, ("project", "")),
        ({"type": "ref/prompt", "name": "session_context"}, ("colour", "")),
        ({"type": "ref/prompt", "name": "three_layer_workflow"}, ("project", "")),
        ({"type": "ref/resource", "uri": "mnemoscope://nothing/{path}"}, ("path", "")),
    ],
)
def test_completion_of_what_there_is_not_is_refused(shared_ids, site, reference, argument):
    error = completed(site, key_for(), reference, argument)["error"]
    assert error["code"] == -32602
    assert "session_context: project, budget" in error["message"]


def completed(site, raw, reference, argument):
    params = {"ref": reference, "argument": {"name": argument[0], "value": argument[1]}}
    return post(site, raw, message(1, "completion/complete", params)).json()


def message(number, method, params=None):
    return {"jsonrpc": "2.0", "method": method, "params": params or {}} | ({"id": number} if number else {})


def post(site, raw, body, version="2025-06-18", **headers):
    named = {"Authorization": f"Bearer {raw}", "Accept": "application/json, text/event-stream"} | headers
    if version:
        named["MCP-Protocol-Version"] = version
    with httpx2.Client(base_url=site, headers=named, timeout=120) as http:
        content = body if isinstance(body, str) else json.dumps(body)
        return http.post("/mcp", content=content, headers={"Content-Type": "application/json"})


# --- batches -----------------------------------------------------------------------------------------------------

SEARCH = message(2, "tools/call", {"name": "search", "arguments": {"query": "tea", "format": "json"}})


@pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05", ""], ids=lambda version: version or "no header")
def test_batch_is_answered_together_where_the_protocol_has_batches(shared_ids, site, version):
    batch = [message(1, "ping"), message(0, "notifications/initialized"), SEARCH, message("x", "nothing")]
    response = post(site, key_for(), batch, version)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    pong, found, unknown = response.json()
    assert (pong["id"], found["id"], unknown["id"]) == (1, 2, "x")
    assert pong["result"] == {}
    assert json.loads(found["result"]["content"][0]["text"])["total"] == 6
    assert unknown["error"]["code"] == -32601


def test_messages_of_a_batch_count_for_the_limit_of_the_key(shared_ids, site):
    raw = key_for()
    ApiKey.objects.update(requests_per_minute=3)
    replies = post(site, raw, [message(number, "ping") for number in range(1, 6)], "2025-03-26").json()
    assert ["error" in reply for reply in replies] == [False, False, False, True, True]
    assert replies[3]["error"]["data"]["error"] == "too_many_requests"


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        pytest.param("{", -32700, "The body is not JSON.", id="no JSON"),
        pytest.param("", -32700, "The body is not JSON.", id="nothing"),
        pytest.param("7", -32600, "A message must be a JSON object.", id="a number"),
        pytest.param({"id": 1}, -32600, "jsonrpc must be", id="no version"),
        pytest.param({"jsonrpc": "2.0", "id": 1}, -32600, "method must be a text", id="no method"),
        pytest.param({"jsonrpc": "2.0", "id": None, "method": "ping"}, -32600, "id must be", id="an empty id"),
        pytest.param(
            {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, -32600, "params must be", id="a list"
        ),
    ],
)
def test_body_that_is_no_message_is_refused_in_plain_words(shared_ids, site, version, body, code, said):
    response = post(site, key_for(), body, version)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert error["message"].startswith(said)
    assert "pydantic" not in response.text


# --- pages of other sites ----------------------------------------------------------------------------------------

TRUSTED = ["https://app.example.com", "https://*.example.org", "http://localhost:5173"]


@pytest.mark.parametrize(
    "origin", ["https://app.example.com", "https://a.example.org", "https://b.a.example.org", "http://localhost:5173"]
)
def test_trusted_page_may_ask_call_and_read(shared_ids, site, settings, origin):
    settings.CSRF_TRUSTED_ORIGINS = TRUSTED
    asked = "authorization, content-type, mcp-protocol-version, mcp-method"
    named = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    with httpx2.Client(base_url=site, timeout=120) as http:
        preflight = http.options("/mcp", headers=named)
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["Access-Control-Allow-Origin"] == origin
        assert preflight.headers["Access-Control-Allow-Headers"] == asked
        assert preflight.headers["Access-Control-Allow-Methods"] == "POST"
        stranger = http.post("/mcp", json=SEARCH, headers={"Origin": origin})
        assert (stranger.status_code, stranger.headers["Access-Control-Allow-Origin"]) == (401, origin)
        assert "WWW-Authenticate" in stranger.headers["Access-Control-Expose-Headers"]
    called = post(site, key_for(), SEARCH, Origin=origin)
    assert (called.status_code, called.headers["Access-Control-Allow-Origin"]) == (200, origin)
    assert (called.headers["Vary"], "Access-Control-Allow-Credentials" in called.headers) == ("Origin", False)


@pytest.mark.parametrize(
    "origin",
    [
        pytest.param("https://evil.example.com", id="another host"),
        pytest.param("http://app.example.com", id="another scheme"),
        pytest.param("https://app.example.com:8443", id="another port"),
        pytest.param("https://evilexample.org", id="a name that ends alike"),
        pytest.param("null", id="a file"),
    ],
)
def test_other_pages_are_refused_without_headers_for_them(shared_ids, site, settings, origin):
    settings.CSRF_TRUSTED_ORIGINS = TRUSTED
    with httpx2.Client(base_url=site, timeout=120) as http:
        preflight = http.options("/mcp", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
        assert preflight.status_code == 403
        assert "Access-Control-Allow-Origin" not in preflight.headers
    refused = post(site, key_for(), SEARCH, Origin=origin)
    assert (refused.status_code, "Access-Control-Allow-Origin" in refused.headers) == (403, False)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_batch_is_refused_by_later_revisions(shared_ids, site, version):
    response = post(site, key_for(), [message(1, "ping")], version)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == -32600
    assert error["message"] == f"The protocol of {version} has no batches. Send each message in a request of its own."


def test_data_that_cannot_be_sent_are_replaced_and_what_is_empty_is_left_out():
    sent = _result("x\ud800", {"a": "x\ud800", "b": None, "c": [{"d": None, "e": ("f",)}], "g": ""})
    assert sent.structured_content == {"a": "x?", "c": [{"e": ["f"]}], "g": ""}
    assert sent.content[0].text == "x?"


def test_wrong_messages_of_a_batch_are_refused_one_by_one(shared_ids, site):
    first = message(5, "initialize", {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {}})
    batch = [7, [], {"id": 3}, first, message(4, "ping")]
    replies = post(site, key_for(), batch, "2025-03-26").json()
    assert [reply["id"] for reply in replies] == [None, None, 3, 5, 4]
    assert [reply.get("error", {}).get("code") for reply in replies] == [*[-32600] * 4, None]
    assert "cannot initialize" in replies[3]["error"]["message"]

"""The SDK's own client against the server, over HTTP and over standard input and output: the whole way of an agent."""

import asyncio
import json
import os
import sys

import httpx2
import pytest
import toon_format
from django.conf import settings
from django.db import connections
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from access.keys import revoke_key
from access.models import ApiKey, AuditEvent
from access.viewer import command_viewer
from tests.agent_tools.conftest import key_for

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}


def stdio(database_url, **environment):
    """The command as an agent's settings name it."""
    variables = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": database_url}
    return StdioServerParameters(
        command=sys.executable,
        args=[str(settings.BASE_DIR / "manage.py"), "mcp"],
        env={**variables, **environment},
        cwd=settings.BASE_DIR,
    )


async def over_http(site, raw, talk, path="/mcp"):
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {raw}"}, timeout=120) as http,
        Client(streamable_http_client(f"{site}{path}", http_client=http)) as client,
    ):
        return await talk(client)


async def over_stdio(parameters, talk):
    async with Client(parameters) as client:
        return await talk(client)


async def ask(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content[0].text
    assert result.structured_content
    return result.content[0].text


async def whole_way(client):
    """Search, look around, fetch, store, and find what was stored."""
    found = toon_format.decode(await ask(client, "search", query="crane brake"))
    anchor = found["memories"][0]["id"]
    around = toon_format.decode(await ask(client, "timeline", anchor=anchor, depth_before=1, depth_after=1))
    wanted = [row["id"] for row in around["memories"] if row["at"] >= 0]
    whole = json.loads(await ask(client, "get_observations", ids=wanted, format="json"))
    stored = toon_format.decode(
        await ask(
            client,
            "store_memory",
            content="The crane brake was relined in May.",
            project="boat",
            tags=["crane"],
            type="fix",
        )
    )
    again = toon_format.decode(await ask(client, "search", query="brake relined", tag=["crane"]))
    return found, around, whole, stored, again


def check_way(ids, way):
    found, around, whole, stored, again = way
    assert found["memories"][0] == {
        "id": ids["b1"],
        "title": "Crane brake slips",
        "date": "2024-02-01T07:00",
        "type": "bugfix",
        "project": "boat",
    }
    assert [(row["at"], row["id"]) for row in around["memories"] if row["at"]][1:] == [(1, ids["t3"])]
    assert [memory["id"] for memory in whole["memories"]] == [ids["b1"], ids["t3"]]
    assert whole["memories"][0]["content"].startswith("The crane brake slips when wet")
    assert stored["done"] == "stored"
    assert [row["id"] for row in again["memories"]] == [stored["id"]]
    event = AuditEvent.objects.get(subject_type="memory", subject_id=stored["id"])
    assert (event.door, event.api_key_id) == ("mcp", ApiKey.objects.get().pk)


def test_agent_goes_the_whole_way_over_http(shared_ids, site):
    check_way(shared_ids, asyncio.run(over_http(site, key_for(), whole_way)))


def test_agent_goes_the_whole_way_over_standard_input_and_output(shared_ids, database_url):
    parameters = stdio(database_url, MNEMOSCOPE_KEY=key_for())
    check_way(shared_ids, asyncio.run(over_stdio(parameters, whole_way)))


def test_tools_are_listed_with_their_hints(shared_ids, site):
    async def listed(client):
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(over_http(site, key_for(), listed))}
    assert list(tools) == [
        "__IMPORTANT",
        "search",
        "timeline",
        "get_observations",
        "retrieve_memory",
        "list_categories",
        "category_search",
        "list_concepts_in_category",
        "store_memory",
        "update_memory",
        "relate",
        "list_values",
        "about",
        "similar",
        "changes",
        "history",
        "restore",
        "forget",
        "views",
        "session_context",
        "curate",
    ]
    writing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert writing == {"store_memory", "update_memory", "relate", "restore", "forget", "curate"}
    assert [name for name, tool in tools.items() if tool.annotations.destructive_hint] == [
        "update_memory",
        "forget",
        "curate",
    ]
    assert tools["store_memory"].annotations.destructive_hint is False


def test_error_reaches_the_model_with_what_to_do(shared_ids, site):
    async def mistake(client):
        return await client.call_tool("search", {"query": "tea", "taggs": ["tea"]})

    result = asyncio.run(over_http(site, key_for(), mistake))
    assert result.is_error
    assert "taggs: is not a parameter" in result.content[0].text
    assert "Did you mean tags" in result.content[0].text


def test_agent_reads_how_long_to_wait_after_too_many_requests(shared_ids, site):
    raw = key_for()
    ApiKey.objects.update(requests_per_minute=3)

    async def many(client):
        for _ in range(5):
            await client.call_tool("search", {"query": "tea"})

    async def refused(client):
        with pytest.raises(MCPError) as error:
            await many(client)
        return str(error.value), error.value.error.data

    message, data = asyncio.run(over_http(site, raw, refused))
    assert "has made the 3 requests per minute that it may make. Wait " in message
    assert " seconds" in message
    assert data["error"] == "too_many_requests"


def test_client_of_an_older_protocol_is_answered(shared_ids, site):
    headers = {"Authorization": f"Bearer {key_for()}", "Accept": "application/json, text/event-stream"}
    with httpx2.Client(base_url=site, headers=headers, timeout=120) as http:
        assert http.post("/mcp", json=INITIALIZE).json()["result"]["protocolVersion"] == "2025-06-18"
        old = {"MCP-Protocol-Version": "2025-06-18"}
        call = {"name": "search", "arguments": {"query": "tea", "format": "json"}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        reply = http.post("/mcp", json=body, headers=old).json()["result"]
        assert json.loads(reply["content"][0]["text"])["total"] == 6
        assert http.post("/mcp/", json=body, headers=old).status_code == 200


def test_id_of_a_request_is_in_its_reply_and_in_the_text_of_an_internal_error(shared_ids, site, monkeypatch):
    monkeypatch.setattr("agent_tools.tools.run", lambda *a, **k: 1 / 0)
    headers = {"Authorization": f"Bearer {key_for()}", "Accept": "application/json, text/event-stream"}
    call = {"name": "search", "arguments": {"query": "tea"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    with httpx2.Client(base_url=site, headers=headers, timeout=120) as http:
        response = http.post(
            "/mcp", json=body, headers={"MCP-Protocol-Version": "2025-06-18", "X-Request-ID": "agent-7"}
        )
        assert response.headers["X-Request-ID"] == "agent-7"
        assert "with the id of the request, agent-7" in response.json()["result"]["content"][0]["text"]
        refused = http.post("/mcp", json=body, headers={"Authorization": "Bearer mnk_wrong", "X-Request-ID": "agent-8"})
        assert (refused.status_code, refused.headers["X-Request-ID"]) == (401, "agent-8")
        monkeypatch.setattr("explorer.explore.api.run", lambda *a, **k: 1 / 0)
        failed = http.get("/api/search", headers={"X-Request-ID": "program-9"})
        assert (failed.status_code, failed.headers["X-Request-ID"]) == (500, "program-9")
        assert "with the id of the request, program-9" in failed.json()["suggestion"]


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        pytest.param({}, 401, "unauthorized", id="no key"),
        pytest.param({"Authorization": "Bearer mnk_wrong"}, 401, "unauthorized", id="wrong key"),
        pytest.param({"Host": "evil.example"}, 400, "malformed_request", id="another name"),
        pytest.param({"Host": "localhost.:8000"}, 400, "malformed_request", id="a name with a dot at its end"),
        pytest.param({"Origin": "https://evil.example"}, 403, "forbidden", id="a page elsewhere"),
    ],
)
def test_stranger_is_refused_at_the_door(shared_ids, site, headers, status, error):
    good = {"Authorization": f"Bearer {key_for()}"} if "Authorization" not in headers and headers else {}
    with httpx2.Client(base_url=site, timeout=120) as http:
        response = http.post("/mcp", json=INITIALIZE, headers={**good, **headers})
        reply = response.json()["error"]
        assert (response.status_code, reply["data"]["error"]) == (status, error)
        assert reply["data"]["suggestion"] in reply["message"]
        assert reply["data"]["suggestion"] or error == "malformed_request"
        assert ("Bearer" in response.headers.get("WWW-Authenticate", "")) == (status == 401)
        own = http.post("/mcp", json=INITIALIZE, headers={"X-API-Key": key_for(), "Origin": site})
        assert own.status_code in {200, 406}


def test_guessing_keys_is_slowed_down_here_too(shared_ids, site, monkeypatch):
    monkeypatch.setattr("access.keys.WRONG_PER_ADDRESS", 2)
    with httpx2.Client(base_url=site, timeout=120) as http:
        guesses = [{"X-API-Key": f"mnk_{number:040}"} for number in range(3)]
        codes = [http.post("/mcp", json=INITIALIZE, headers=guess).status_code for guess in guesses]
    assert codes == [401, 401, 429]


def test_revoked_key_opens_nothing_from_then_on(shared_ids, site, database_url):
    raw = key_for()

    def revoke():
        revoke_key(key=ApiKey.objects.get(), viewer=command_viewer())
        connections.close_all()

    async def before_and_after(client):
        before = await client.call_tool("search", {"query": "tea"})
        await asyncio.to_thread(revoke)
        return before, await client.call_tool("search", {"query": "tea"})

    before, after = asyncio.run(over_stdio(stdio(database_url, MNEMOSCOPE_KEY=raw), before_and_after))
    assert not before.is_error
    assert after.is_error
    assert "was revoked" in after.content[0].text
    with httpx2.Client(base_url=site) as http:
        refused = http.post("/mcp", json=INITIALIZE, headers={"Authorization": f"Bearer {raw}"})
        assert refused.status_code == 401

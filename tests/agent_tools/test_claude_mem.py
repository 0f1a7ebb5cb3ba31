"""claude-mem's readers pointed here: by hand, and by its own MCP server where `CLAUDE_MEM_SERVER` says where it is.

That is `plugin/scripts/mcp-server.cjs` of the npm package claude-mem.
"""

import asyncio
import json
import os
import shutil

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from memories.models import Memory

SERVER = os.environ.get("CLAUDE_MEM_SERVER", "")


def text_of(response):
    assert response.status_code == 200, response.text
    (content,) = response.json()["content"]
    assert content["type"] == "text"
    return content["text"]


def test_worker_answers_as_that_of_claude_mem(shared_ids, worker):
    with httpx2.Client(base_url=worker) as http:
        assert http.get("/api/health").json() == http.get("/api/readiness").json() == {"status": "ok"}
        found = text_of(http.get("/api/search?query=crane&type=bugfix&limit=5&orderBy=date_desc&dateStart=2024-01-01"))
        assert found.startswith("Found 1 result(s)")
        assert f"| #{shared_ids['b1']} | 2024-02-01 07:00 | Crane brake slips | bugfix | boat |" in found
        assert "Found 6 result(s)" in text_of(http.get("/api/search?query=tea&type=observations&limit=2"))
        assert "4 more: use offset=2" in text_of(http.get("/api/search?query=tea&limit=2"))
        assert text_of(http.get("/api/search?query=zeppelin")).startswith("Found 0 result(s)")
        around = text_of(http.get(f"/api/timeline?anchor={shared_ids['b1']}&depth_before=1&depth_after=1"))
        assert "Crane brake slips ← |" in around
        assert around.count("| #") == 3
        body = {"ids": [shared_ids["b5"], shared_ids["t1"]], "orderBy": "date_asc", "project": "tea"}
        (only,) = http.post("/api/observations/batch", json=body).json()
        assert (only["id"], only["type"], only["project"]) == (shared_ids["t1"], "decision", "tea")
        assert only["narrative"].startswith("Boiling water")
        assert only["created_at_epoch"] == 1_704_448_800_000


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", "/api/search?query=tea", {"Host": "evil.example"}, 403, id="another name"),
        pytest.param("GET", "/api/search?query=tea", {"Origin": "http://127.0.0.1"}, 403, id="a page"),
        pytest.param("GET", "/api/search?query=tea&what=1", {}, 422, id="unknown parameter"),
        pytest.param("POST", "/api/memories", {}, 404, id="a write"),
        pytest.param("GET", "/explore/", {}, 404, id="a page of the site"),
        pytest.param("GET", "/mcp", {}, 404, id="the other door"),
        pytest.param("POST", "/api/observations/batch", {}, 400, id="no body"),
        pytest.param("GET", "/api/timeline?anchor=999999", {}, 404, id="no such memory"),
    ],
)
def test_worker_refuses_all_else(shared_ids, worker, method, path, headers, status):
    with httpx2.Client(base_url=worker) as http:
        response = http.request(method, path, headers=headers)
        assert (response.status_code, list(response.json())) == (status, ["error"])
    assert Memory.objects.count() == 16


def test_site_is_not_opened_by_it(shared_ids, site, worker):
    with httpx2.Client(base_url=site) as http:
        assert http.get("/api/search?query=tea").status_code == 401


@pytest.mark.skipif(not (SERVER and shutil.which("node")), reason="CLAUDE_MEM_SERVER does not say where its server is")
def test_its_own_server_searches_looks_around_and_fetches(shared_ids, worker, tmp_path):
    port = worker.rpartition(":")[2]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CLAUDE_MEM_DATA_DIR": str(tmp_path),
        "CLAUDE_MEM_WORKER_HOST": "127.0.0.1",
        "CLAUDE_MEM_WORKER_PORT": port,
    }

    async def talk():
        async with Client(
            StdioServerParameters(command="node", args=[SERVER], env=environment, cwd=tmp_path)
        ) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("search", {"query": "crane brake", "limit": 5})
            around = await client.call_tool(
                "timeline", {"anchor": shared_ids["b1"], "depth_before": 1, "depth_after": 1}
            )
            whole = await client.call_tool("get_observations", {"ids": [shared_ids["b1"]]})
            return names, *(result.content[0].text for result in (found, around, whole))

    names, found, around, whole = asyncio.run(talk())
    assert {"search", "timeline", "get_observations"} <= names
    assert "Crane brake slips" in found
    assert "Crane brake slips ←" in around
    assert json.loads(whole)[0]["narrative"].startswith("The crane brake slips when wet")

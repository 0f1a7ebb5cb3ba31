"""Clients that nobody here wrote: claude-mem's own MCP server, and the MCP Inspector.

They are npm packages in the folder that `NPM_CLIENTS` names, by default `var/npm`; docs/contributing.md says how they
get there. Nothing is downloaded by the tests.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from access.sign_in import owner_ensure
from tests.agent_tools.conftest import key_for
from tests.agent_tools.test_clients import stdio

pytestmark = pytest.mark.release

FOLDER = Path(os.environ.get("NPM_CLIENTS") or settings.BASE_DIR / "var" / "npm")
CLAUDE_MEM = FOLDER / "claude-mem" / "plugin" / "scripts" / "mcp-server.cjs"
INSPECTOR = FOLDER / "node_modules" / "@modelcontextprotocol" / "inspector-cli" / "build" / "index.js"
# The tools of claude-mem 13.25.3 that read files of the client, which concern no server.
OF_FILES = {"smart_search", "smart_unfold", "smart_outline"}


def needs(path):
    return pytest.mark.skipif(
        not (shutil.which("node") and path.exists()), reason=f"node or {path} is absent (see docs/contributing.md)"
    )


@needs(CLAUDE_MEM)
def test_every_tool_of_claude_mem_is_answered(shared_ids, worker, tmp_path):
    owner_ensure()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CLAUDE_MEM_DATA_DIR": str(tmp_path),
        "CLAUDE_MEM_WORKER_HOST": "127.0.0.1",
        "CLAUDE_MEM_WORKER_PORT": worker.rpartition(":")[2],
    }
    b1 = shared_ids["b1"]
    calls = {
        "important_workflow": ({}, "Memory Search Workflow"),
        "search": (
            {"query": "crane", "obs_type": "bugfix,howto", "platformSource": "", "offset": 1, "limit": 2},
            "Found 2 result(s)",
        ),
        "timeline": ({"anchor": b1, "depth_before": 1, "depth_after": 1}, "Crane brake slips ←"),
        "get_observations": ({"ids": [b1]}, "The crane brake slips when wet"),
        "get_tool_uses": ({"ids": [1]}, "keeps no raw tool calls"),
        "session_start_context": ({"project": "boat"}, "# boat: 6 memories"),
        "build_corpus": ({"name": "yard", "project": "boat", "types": "bugfix,decision"}, '"observation_count": 2'),
        "list_corpora": ({}, '"name": "yard"'),
        "prime_corpus": ({"name": "yard"}, "Nothing has to be loaded"),
        "query_corpus": ({"name": "yard", "question": "why does the brake slip"}, "Crane brake slips"),
        "rebuild_corpus": ({"name": "yard"}, '"observation_count": 2'),
        "reprime_corpus": ({"name": "yard"}, "Nothing has to be loaded"),
    }

    async def talk():
        server = StdioServerParameters(command="node", args=[str(CLAUDE_MEM)], env=environment, cwd=tmp_path)
        async with Client(server) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            return names, {name: await client.call_tool(name, values) for name, (values, _) in calls.items()}

    names, replies = asyncio.run(talk())
    assert names == {*calls, *OF_FILES}
    for name, (_, expected) in calls.items():
        text = replies[name].content[0].text
        assert not replies[name].is_error, f"{name}: {text}"
        assert expected in text, f"{name}: {text}"


@needs(INSPECTOR)
def test_inspector_lists_and_calls_tools(shared_ids, database_url):
    server = stdio(database_url, MNEMOSCOPE_KEY=key_for())

    def inspect(*arguments):
        command = ["node", str(INSPECTOR), server.command, *server.args, "--method", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=server.env, cwd=server.cwd)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert {"search", "timeline", "get_observations"} <= {tool["name"] for tool in inspect("tools/list")["tools"]}
    arguments = [
        "--tool-name",
        "search",
        "--tool-arg",
        "query=tea",
        "--tool-arg",
        "limit=2",
        "--tool-arg",
        "format=json",
    ]
    found = json.loads(inspect("tools/call", *arguments)["content"][0]["text"])
    assert (found["total"], len(found["memories"])) == (6, 2)

"""The text to paste into each client, so that its agent reads and writes memories. Pure: no database, no request.

Each has the form that its client reads: they differ in the names of fields, and ignore what they do not know.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SERVER = "mnemoscope"
# In place of the key, as long as there is none.
PLACEHOLDER = "YOUR_KEY"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text for one client: where it goes, and `language`, the form that it has: shell, json, toml or text."""

    key: str
    client: str
    place: str
    language: str
    text: str
    note: str = ""


def snippets(site: str, raw_key: str = "") -> tuple[Snippet, ...]:
    """The texts for all clients, given the address of the site and a key."""
    key = raw_key or PLACEHOLDER
    url, bearer = f"{site}/mcp", f"Bearer {key}"
    headers = {"Authorization": bearer}
    return (
        Snippet(
            "claude-code",
            "Claude Code",
            "in a terminal",
            "shell",
            f'claude mcp add --transport http --scope user {SERVER} {url} --header "Authorization: {bearer}"',
            "For one repository alone, leave out --scope user. In a session, /mcp shows whether it is connected.",
        ),
        Snippet(
            "codex",
            "Codex",
            "in ~/.codex/config.toml",
            "toml",
            f'[mcp_servers.{SERVER}]\nurl = "{url}"\nhttp_headers = {{ Authorization = "{bearer}" }}',
            "For the command line, the editor's extension and the app alike.",
        ),
        Snippet(
            "gemini-cli",
            "Gemini CLI",
            "in ~/.gemini/settings.json",
            "json",
            _json({"mcpServers": {SERVER: {"httpUrl": url, "headers": headers}}}),
            "In a session, /mcp shows whether it is connected.",
        ),
        Snippet(
            "cursor",
            "Cursor",
            "in ~/.cursor/mcp.json, or .cursor/mcp.json of a repository",
            "json",
            _json({"mcpServers": {SERVER: {"url": url, "headers": headers}}}),
        ),
        Snippet(
            "vscode",
            "VS Code, Copilot",
            "in mcp.json: the command MCP: Open User Configuration opens it",
            "json",
            _json({"servers": {SERVER: {"type": "http", "url": url, "headers": headers}}}),
            "Copilot's chat uses it as an agent. For one repository, the file is .vscode/mcp.json.",
        ),
        Snippet(
            "windsurf",
            "Windsurf",
            "in ~/.codeium/windsurf/mcp_config.json",
            "json",
            _json({"mcpServers": {SERVER: {"serverUrl": url, "headers": headers}}}),
        ),
        Snippet(
            "opencode",
            "OpenCode",
            "in ~/.config/opencode/opencode.json",
            "json",
            _json(
                {
                    "$schema": "https://opencode.ai/config.json",
                    "mcp": {"servers": {SERVER: {"type": "remote", "url": url, "headers": headers, "oauth": False}}},
                }
            ),
            'For OpenCode 2. Version 1 has no "servers": there the part named mnemoscope is directly in "mcp".',
        ),
        Snippet(
            "claude-desktop",
            "Claude Desktop",
            "in claude_desktop_config.json: Settings, Developer, Edit Config",
            "json",
            _json({"mcpServers": {SERVER: _remote_command(url, bearer)}}),
            "It needs Node.js, whose npx starts the connection. Quit Claude Desktop and open it again afterwards.",
        ),
        Snippet(
            "other",
            "Another MCP client",
            "in its list of MCP servers",
            "json",
            _json({"mcpServers": {SERVER: {"type": "http", "url": url, "headers": headers}}}),
            "The transport is streamable HTTP. A client that cannot send Authorization may send the key as X-API-Key.",
        ),
        Snippet(
            "http",
            "HTTP",
            "for programs, and to try it in a terminal",
            "shell",
            f'curl -H "Authorization: {bearer}" "{site}/api/search?q=hello"',
        ),
    )


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2)


def _remote_command(url: str, bearer: str) -> dict[str, Any]:
    """A command that speaks to the site for a client that only starts commands."""
    arguments = ["-y", "mcp-remote", url, "--transport", "http-only", "--header", "Authorization:${AUTHORIZATION}"]
    # It refuses plain HTTP to other machines otherwise.
    arguments += ["--allow-http"] if url.startswith("http://") else []
    # Without a space in the argument, which Windows would split.
    return {"command": "npx", "args": arguments, "env": {"AUTHORIZATION": bearer}}


_READING = (
    "## Memory\n\n"
    "The MCP server `mnemoscope` has what this team knows: decisions, fixes, observations, with dates and reasons.\n\n"
    "- Before you begin a task, call `session_context`{of_project} once, and `search` for what the task is about.\n"
    "- Before you choose a library, a format or a name, search for a decision about it; follow one that is active.\n"
    "- Read an index first (`search`), then the few memories that matter (`get_observations`). Name their ids when you"
    " rely on them.\n"
)
_WRITING = (
    "- When you have decided, fixed or learnt something that is worth knowing in another session, call `store_memory`:"
    " one thing each, with a title, a type (decision, fix, note …), tags, and the reason{in_project}.\n"
    "- If a memory is no longer true, do not store a second one beside it: use `update_memory`, or `store_memory` with"
    " its id in `supersedes`.\n"
    "- Store no secrets, and nothing that the code or its history says by itself.\n"
)


def instructions(projects: Sequence[str] = (), *, may_write: bool = True) -> str:
    """A text for CLAUDE.md or AGENTS.md by which an agent uses the memory."""
    one = projects[0] if len(projects) == 1 else ""
    text = _READING.format(of_project=f' (`project="{one}"`)' if one else "")
    return text + (_WRITING.format(in_project=f", in the project `{one}`" if one else "") if may_write else "")

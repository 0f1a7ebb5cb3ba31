"""The MCP server: registration of tools, and the threads that they run in.

It uses the SDK's low-level server, since the other one silently drops unknown arguments.
"""

import logging
from collections.abc import Callable
from typing import Any

import anyio.to_thread
from django.db import close_old_connections
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool

from access.viewer import Viewer
from agent_tools.catalogue import TOOL, TOOLS
from agent_tools.tools import WORKFLOW, Arguments, Tool, ToolRefusedError, call
from web.errors import close_to
from web.version import VERSION

logger = logging.getLogger("mnemoscope.mcp")

Context = ServerRequestContext[Any, Any]
# The viewer of a call; it may query the database. Raises ToolRefusedError if the caller is no longer allowed.
ViewerOf = Callable[[Context], Viewer]


def build_server(viewer_of: ViewerOf) -> Server[Any]:
    """The server with all tools, for callers that `viewer_of` accepts."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[offered(tool) for tool in TOOLS])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        # In a thread: Django forbids the database in the event loop.
        return await anyio.to_thread.run_sync(answer, context, params.name, params.arguments or {}, viewer_of)

    return Server(
        "mnemoscope",
        version=VERSION,
        instructions=WORKFLOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def answer(context: Context, name: str, arguments: Arguments, viewer_of: ViewerOf) -> CallToolResult:
    """The result of a call. Errors are results too, and tell the model what to do next."""
    close_old_connections()
    try:
        tool = TOOL.get(name)
        if tool is None:
            near = "".join(f" Did you mean {other}?" for other in close_to(name, TOOL, 1))
            raise ToolRefusedError(f"There is no tool {name[:60]!a}.{near} The tools are {', '.join(TOOL)}.")
        return _text(call(tool, arguments, viewer_of(context)))
    except ToolRefusedError as error:
        logger.info("%s: %s", name[:60], error)
        return _text(str(error), is_error=True)
    finally:
        close_old_connections()


def offered(tool: Tool) -> OfferedTool:
    """A tool in the terms of the protocol. Hints with default values are left out."""
    hints = (
        ToolAnnotations(read_only_hint=True)
        if tool.reads_only
        else ToolAnnotations(destructive_hint=tool.destructive, idempotent_hint=tool.idempotent or None)
    )
    return OfferedTool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


async def serve_stdio(viewer_of: ViewerOf) -> None:
    """Serve a client over standard input and output until it disconnects."""
    server = build_server(viewer_of)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    # A lone surrogate cannot be sent; it is replaced.
    return CallToolResult(content=[TextContent(text=text.encode(errors="replace").decode())], is_error=is_error)

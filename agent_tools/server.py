"""The MCP server: registration, and the thread that a tool runs in. What a tool does is in `tools.py`.

The SDK's low-level server, because the other one drops arguments that it does not know without a word.
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
# Who a call speaks for. It may ask the database; raises ToolRefusedError where nobody may be spoken for any more.
ViewerOf = Callable[[Context], Viewer]


def build_server(viewer_of: ViewerOf) -> Server[Any]:
    """The server with every tool, for callers that `viewer_of` knows."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[offered(tool) for tool in TOOLS])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        # In a thread: Django refuses the database to the event loop.
        return await anyio.to_thread.run_sync(answer, context, params.name, params.arguments or {}, viewer_of)

    return Server(
        "mnemoscope",
        version=VERSION,
        instructions=WORKFLOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def answer(context: Context, name: str, arguments: Arguments, viewer_of: ViewerOf) -> CallToolResult:
    """What a call comes to, as the model reads it: an error too is an answer, and says what to do next."""
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
    """A tool as the protocol describes it. A hint that is the protocol's default is left out."""
    hints = (
        ToolAnnotations(read_only_hint=True)
        if tool.reads_only
        else ToolAnnotations(destructive_hint=tool.destructive, idempotent_hint=tool.idempotent or None)
    )
    return OfferedTool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)


async def serve_stdio(viewer_of: ViewerOf) -> None:
    """Serve one client over standard input and output, until it goes."""
    server = build_server(viewer_of)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    # A lone half of a character cannot be sent; whoever sent it gets a mark back.
    return CallToolResult(content=[TextContent(text=text.encode(errors="replace").decode())], is_error=is_error)

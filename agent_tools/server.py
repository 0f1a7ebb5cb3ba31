"""The MCP server: registration of the requests that it answers, and the threads that they run in.

It uses the SDK's low-level server, since the other one silently drops unknown arguments. The tools, and with them most
of the project, are imported after the handshake: a client waits for that before it shows anything.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, NotificationParams, PaginatedRequestParams

from agent_tools.workflow import WORKFLOW
from web.version import VERSION

if TYPE_CHECKING:
    from agent_tools.answers import Context, ViewerOf


def build_server(viewer_of: "ViewerOf") -> Server[Any]:
    """The server with all tools, for callers that `viewer_of` accepts."""

    # In threads: Django forbids the database in the event loop, and imports would stop it.
    async def list_tools(context: "Context", params: PaginatedRequestParams | None) -> ListToolsResult:
        return await anyio.to_thread.run_sync(lambda: _answers().offered_tools())

    async def call_tool(context: "Context", params: CallToolRequestParams) -> CallToolResult:
        return await anyio.to_thread.run_sync(
            lambda: _answers().answer(context, params.name, params.arguments or {}, viewer_of)
        )

    return Server(
        "mnemoscope",
        version=VERSION,
        instructions=WORKFLOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _answers() -> Any:
    from agent_tools import answers

    return answers


async def serve_stdio(viewer_of: "ViewerOf", once_connected: Callable[[], None]) -> None:
    """Serve a client over standard input and output until it disconnects.

    `once_connected` is called in a thread, after the handshake.
    """
    server = build_server(viewer_of)

    async def initialized(context: "Context", params: NotificationParams) -> None:
        await anyio.to_thread.run_sync(once_connected)

    server.add_notification_handler("notifications/initialized", NotificationParams, initialized)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

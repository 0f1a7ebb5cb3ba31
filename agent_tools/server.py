"""The MCP server: registration of the requests that it answers, and the threads that they run in.

It uses the SDK's low-level server, since the other one silently drops unknown arguments. The tools, and with them most
of the project, are imported after the handshake: a client waits for that before it shows anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from agent_tools.workflow import DEFAULT_PROFILE, WORKFLOW
from web.version import VERSION

if TYPE_CHECKING:
    from agent_tools.answers import Context, ViewerOf


@dataclass(frozen=True, slots=True)
class Caller:
    """The tools that a client lists, whether it takes replies as data too, and the address by which it reaches the
    site, empty if it is unknown.
    """

    profile: str = DEFAULT_PROFILE
    structured: bool = True
    site: str = ""


def build_server(viewer_of: "ViewerOf", caller_of: Callable[["Context"], Caller]) -> Server[Any]:
    """The server with all tools, for callers that `viewer_of` accepts."""

    # In threads: Django forbids the database in the event loop, and imports would stop it.
    async def list_tools(context: "Context", params: PaginatedRequestParams | None) -> ListToolsResult:
        return await anyio.to_thread.run_sync(lambda: _answers().offered_tools(caller_of(context), _cursor(params)))

    async def call_tool(context: "Context", params: CallToolRequestParams) -> CallToolResult:
        caller = caller_of(context)
        arguments = params.arguments or {}
        return await anyio.to_thread.run_sync(
            lambda: _answers().answer(context, params.name, arguments, viewer_of, caller)
        )

    async def list_resources(context: "Context", params: PaginatedRequestParams | None) -> ListResourcesResult:
        return await anyio.to_thread.run_sync(lambda: _answers().whole_list("RESOURCES", _cursor(params)))

    async def list_templates(context: "Context", params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return await anyio.to_thread.run_sync(lambda: _answers().whole_list("TEMPLATES", _cursor(params)))

    async def read_resource(context: "Context", params: ReadResourceRequestParams) -> ReadResourceResult:
        return await anyio.to_thread.run_sync(lambda: _answers().resource(context, params.uri, viewer_of))

    async def list_prompts(context: "Context", params: PaginatedRequestParams | None) -> ListPromptsResult:
        return await anyio.to_thread.run_sync(lambda: _answers().whole_list("PROMPTS", _cursor(params)))

    async def get_prompt(context: "Context", params: GetPromptRequestParams) -> GetPromptResult:
        return await anyio.to_thread.run_sync(
            lambda: _answers().prompt(context, params.name, params.arguments or {}, viewer_of)
        )

    async def complete(context: "Context", params: CompleteRequestParams) -> CompleteResult:
        return await anyio.to_thread.run_sync(lambda: _answers().completed(context, params, viewer_of))

    return Server(
        "mnemoscope",
        title="Mnemoscope",
        version=VERSION,
        instructions=WORKFLOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )


def _cursor(params: PaginatedRequestParams | None) -> str:
    return (params and params.cursor) or ""


def _answers() -> Any:
    from agent_tools import answers

    return answers


async def serve_stdio(viewer_of: "ViewerOf", once_connected: Callable[[], None], caller: Caller) -> None:
    """Serve a client over standard input and output until it disconnects.

    `once_connected` is called in a thread, after the handshake.
    """
    server = build_server(viewer_of, lambda context: caller)

    async def initialized(context: "Context", params: NotificationParams) -> None:
        await anyio.to_thread.run_sync(once_connected)

    server.add_notification_handler("notifications/initialized", NotificationParams, initialized)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

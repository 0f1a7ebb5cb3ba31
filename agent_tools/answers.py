"""The answers to requests of the protocol: the list of tools, and the results of their calls."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from django.db import close_old_connections
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import (
    INVALID_REQUEST,
    CallToolResult,
    GetPromptResult,
    ListToolsResult,
    ReadResourceResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool

from access.viewer import Viewer
from agent_tools.catalogue import PROFILES, TOOL
from agent_tools.chatgpt import site_address
from agent_tools.resources import PROMPTS as PROMPTS
from agent_tools.resources import RESOURCES as RESOURCES
from agent_tools.resources import TEMPLATES as TEMPLATES
from agent_tools.resources import get_prompt, read_resource
from agent_tools.tools import Arguments, Tool, ToolRefusedError, call
from web.errors import close_to
from web.exchange import begin, current, set_route, set_tool_refused

logger = logging.getLogger("mnemoscope.mcp")

Context = ServerRequestContext[Any, Any]
# The viewer of a call; it may query the database. Raises ToolRefusedError if the caller is no longer allowed.
ViewerOf = Callable[[Context], Viewer]
Result = TypeVar("Result")


def offered_tools(profile: str) -> ListToolsResult:
    return ListToolsResult(tools=[offered(tool) for tool in PROFILES[profile]])


def answer(
    context: Context, name: str, arguments: Arguments, viewer_of: ViewerOf, profile: str, site: str
) -> CallToolResult:
    """The result of a call. Errors are results too, and tell the model what to do next."""
    close_old_connections()
    site_address.set(site)
    # Over standard input and output a call is a request of its own.
    if current() is None:
        begin()
    tools = TOOL | {tool.name: tool for tool in PROFILES[profile]}
    try:
        tool = tools.get(name)
        if tool is None:
            near = "".join(f" Did you mean {other}?" for other in close_to(name, tools, 1))
            raise ToolRefusedError(f"There is no tool {name[:60]!a}.{near} The tools are {', '.join(tools)}.")
        set_route(f"/mcp {tool.name}")
        return _text(call(tool, arguments, viewer_of(context)))
    except ToolRefusedError as error:
        set_tool_refused()
        logger.info("%s refused: %s", name[:60], type(error.__cause__ or error).__name__)
        return _text(str(error), is_error=True)
    finally:
        close_old_connections()


def resource(context: Context, uri: str, viewer_of: ViewerOf) -> ReadResourceResult:
    return _with_viewer(context, viewer_of, partial(read_resource, uri))


def prompt(context: Context, name: str, arguments: Mapping[str, str], viewer_of: ViewerOf) -> GetPromptResult:
    return _with_viewer(context, viewer_of, partial(get_prompt, name, arguments))


def _with_viewer(context: Context, viewer_of: ViewerOf, read: Callable[[Viewer], Result]) -> Result:
    """The result of a read. Raises MCPError, since the protocol has no error results for anything but tools."""
    close_old_connections()
    try:
        return read(viewer_of(context))
    except ToolRefusedError as error:
        raise MCPError(INVALID_REQUEST, str(error)) from error
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


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    # A lone surrogate cannot be sent; it is replaced.
    return CallToolResult(content=[TextContent(text=text.encode(errors="replace").decode())], is_error=is_error)

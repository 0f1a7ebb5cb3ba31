"""The answers to requests of the protocol: the list of tools, and the results of their calls."""

import logging
from collections.abc import Callable
from typing import Any

from django.db import close_old_connections
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as OfferedTool

from access.viewer import Viewer
from agent_tools.catalogue import TOOL, TOOLS
from agent_tools.tools import Arguments, Tool, ToolRefusedError, call
from web.errors import close_to

logger = logging.getLogger("mnemoscope.mcp")

Context = ServerRequestContext[Any, Any]
# The viewer of a call; it may query the database. Raises ToolRefusedError if the caller is no longer allowed.
ViewerOf = Callable[[Context], Viewer]


def offered_tools() -> ListToolsResult:
    return ListToolsResult(tools=[offered(tool) for tool in TOOLS])


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


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    # A lone surrogate cannot be sent; it is replaced.
    return CallToolResult(content=[TextContent(text=text.encode(errors="replace").decode())], is_error=is_error)

"""The answers to requests of the protocol: the list of tools, and the results of their calls."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from django.db import close_old_connections
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    GetPromptResult,
    ListToolsResult,
    PromptReference,
    ReadResourceResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool

from access.viewer import Viewer
from agent_tools.calls import Arguments, Tool, ToolRefusedError, call
from agent_tools.catalogue import PROFILES, TOOL
from agent_tools.chatgpt import site_address
from agent_tools.outputs import schema_of
from agent_tools.rendering import Reply
from agent_tools.resources import PROMPTS, RESOURCES, TEMPLATES, complete, get_prompt, read_resource
from agent_tools.server import Caller
from web.errors import close_to
from web.exchange import begin, current, set_route, set_tool_refused

logger = logging.getLogger("mnemoscope.mcp")

Context = ServerRequestContext[Any, Any]
# The viewer of a call; it may query the database. Raises ToolRefusedError if the caller is no longer allowed.
ViewerOf = Callable[[Context], Viewer]
Result = TypeVar("Result")


def offered_tools(caller: Caller, cursor: str) -> ListToolsResult:
    _refuse_cursor(cursor)
    return ListToolsResult(tools=[offered(tool, structured=caller.structured) for tool in PROFILES[caller.profile]])


_LISTS: dict[str, Any] = {"RESOURCES": RESOURCES, "TEMPLATES": TEMPLATES, "PROMPTS": PROMPTS}


def whole_list(name: str, cursor: str) -> Any:
    """A list that never changes. Raises MCPError for a cursor."""
    _refuse_cursor(cursor)
    return _LISTS[name]


def _refuse_cursor(cursor: str) -> None:
    """Raise MCPError for a cursor: every list is sent whole, so none was given out."""
    if cursor:
        raise MCPError(
            INVALID_PARAMS, f"The cursor {cursor[:60]!a} is not of this server. Leave it out: lists are whole."
        )


def answer(context: Context, name: str, arguments: Arguments, viewer_of: ViewerOf, caller: Caller) -> CallToolResult:
    """The result of a call. Errors are results too, and tell the model what to do next."""
    close_old_connections()
    site_address.set(caller.site)
    # Over standard input and output a call is a request of its own.
    if current() is None:
        begin()
    tools = TOOL | {tool.name: tool for tool in PROFILES[caller.profile]}
    try:
        tool = tools.get(name)
        if tool is None:
            near = "".join(f" Did you mean {other}?" for other in close_to(name, tools, 1))
            raise ToolRefusedError(f"There is no tool {name[:60]!a}.{near} The tools are {', '.join(tools)}.")
        set_route(f"/mcp {tool.name}")
        reply = call(tool, arguments, viewer_of(context))
        data = reply.data if isinstance(reply, Reply) else {"text": reply}
        return _result(reply, data if caller.structured else None)
    except ToolRefusedError as error:
        set_tool_refused()
        logger.info("%s refused: %s", name[:60], type(error.__cause__ or error).__name__)
        return _result(str(error), is_error=True)
    finally:
        close_old_connections()


def resource(context: Context, uri: str, viewer_of: ViewerOf) -> ReadResourceResult:
    return _with_viewer(context, viewer_of, partial(read_resource, uri))


def prompt(context: Context, name: str, arguments: Mapping[str, str], viewer_of: ViewerOf) -> GetPromptResult:
    return _with_viewer(context, viewer_of, partial(get_prompt, name, arguments))


def completed(context: Context, params: CompleteRequestParams, viewer_of: ViewerOf) -> CompleteResult:
    reference = params.ref.name if isinstance(params.ref, PromptReference) else params.ref.uri
    of = partial(complete, reference, params.argument.name, params.argument.value)
    return _with_viewer(context, viewer_of, of)


def _with_viewer(context: Context, viewer_of: ViewerOf, read: Callable[[Viewer], Result]) -> Result:
    """The result of a read. Raises MCPError, since the protocol has no error results for anything but tools."""
    close_old_connections()
    try:
        return read(viewer_of(context))
    except ToolRefusedError as error:
        raise MCPError(INVALID_REQUEST, str(error)) from error
    finally:
        close_old_connections()


def offered(tool: Tool, *, structured: bool = True) -> OfferedTool:
    """A tool in the terms of the protocol. Hints with default values are left out."""
    hints = (
        ToolAnnotations(read_only_hint=True)
        if tool.reads_only
        else ToolAnnotations(destructive_hint=tool.destructive, idempotent_hint=tool.idempotent or None)
    )
    return OfferedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        output_schema=schema_of(tool.output) if structured else None,
        annotations=hints,
    )


def _result(text: str, data: Mapping[str, Any] | None = None, *, is_error: bool = False) -> CallToolResult:
    # A lone surrogate cannot be sent; it is replaced.
    content = [TextContent(text=text.encode(errors="replace").decode())]
    if data is None:
        return CallToolResult(content=content, is_error=is_error)
    sent = json.loads(json.dumps(_without_nothing(data), ensure_ascii=False).encode(errors="replace"))
    return CallToolResult(content=content, structured_content=sent)


def _without_nothing(value: Any) -> Any:
    """Data without the fields that have no value, which an output schema does not allow."""
    if isinstance(value, Mapping):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list | tuple) else value

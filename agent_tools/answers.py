"""The answers to requests of the protocol: the list of tools, the results of their calls, resources and prompts."""

import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from django.db import close_old_connections
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool

from access.viewer import Viewer
from agent_tools.calls import Arguments, Tool, ToolRefusedError, call
from agent_tools.catalogue import PROFILES, TOOL, schema_of
from agent_tools.chatgpt import site_address
from agent_tools.rendering import MAX_TOKENS, Reply, encode
from agent_tools.server import Caller
from agent_tools.workflow import WORKFLOW
from web.errors import close_to
from web.exchange import begin, current, set_route, set_tool_refused

_TEXT, _MARKDOWN = "text/plain", "text/markdown"
_CATEGORY_PATHS = "mnemoscope://categories/{path}"
_PROJECT_CONTEXT = "mnemoscope://context/{project}"
# The most values that a completion may have.
_COMPLETED = 100

RESOURCES = ListResourcesResult(
    resources=[
        Resource(
            name="categories",
            title="Categories",
            uri="mnemoscope://categories",
            description="All categories with counts.",
            mime_type=_TEXT,
        ),
        Resource(
            name="context",
            title="Context of a session",
            uri="mnemoscope://context",
            description="The memories that matter at the start of a session.",
            mime_type=_MARKDOWN,
        ),
    ]
)
TEMPLATES = ListResourceTemplatesResult(
    resource_templates=[
        ResourceTemplate(
            name="memory",
            title="Memory",
            uri_template="memory://{id}",
            description="A whole memory.",
            mime_type=_TEXT,
        ),
        ResourceTemplate(
            name="category",
            title="Category",
            uri_template=_CATEGORY_PATHS,
            description="The content of a category.",
            mime_type=_TEXT,
        ),
        ResourceTemplate(
            name="project context",
            title="Context of a project",
            uri_template=_PROJECT_CONTEXT,
            description="The context of a project.",
            mime_type=_MARKDOWN,
        ),
    ]
)
PROMPTS = ListPromptsResult(
    prompts=[
        Prompt(
            name="session_context",
            title="Context of a session",
            description="What to know when a session starts: pinned, decided, proposed and changed memories.",
            arguments=[
                PromptArgument(name="project", title="Project", description="Slug of a project; without it, all."),
                PromptArgument(name="budget", title="Budget", description="The most tokens, 1500 by default."),
            ],
        ),
        Prompt(
            name="three_layer_workflow",
            title="Three-layer workflow",
            description="How to find much while reading little.",
        ),
    ]
)

_MEMORY = re.compile(r"memory://(?P<value>[0-9]+)/?")
_CATEGORY = re.compile(r"mnemoscope://categories/(?P<value>.+)")
_CONTEXT = re.compile(r"mnemoscope://context(?:/(?P<value>.+))?")


def read_resource(uri: str, viewer: Viewer) -> ReadResourceResult:
    """The text at an address. Raises MCPError."""
    kind = _MARKDOWN if _CONTEXT.fullmatch(uri) else _TEXT
    if uri == "mnemoscope://categories":
        text = _called("list_categories", {"limit": 200}, viewer)
    elif found := _MEMORY.fullmatch(uri):
        reply = json.loads(_called("get_observations", {"ids": [found["value"]], "format": "json"}, viewer))
        if not reply["memories"]:
            raise MCPError(INVALID_PARAMS, f"There is no memory at {uri[:100]} that you can see.")
        memory = {key: value for key, value in reply["memories"][0].items() if value}
        text = encode(memory, "toon")
    elif found := _CATEGORY.fullmatch(uri):
        text = _called("category_search", {"category": unquote(found["value"]), "include_children": True}, viewer)
    elif found := _CONTEXT.fullmatch(uri):
        text = _called("session_context", {"project": found["value"] and unquote(found["value"])}, viewer)
    else:
        known = [*(one.uri for one in RESOURCES.resources), *(one.uri_template for one in TEMPLATES.resource_templates)]
        raise MCPError(INVALID_PARAMS, f"There is no resource {uri[:100]!a}. There are: {', '.join(known)}.")
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])


def get_prompt(name: str, arguments: Mapping[str, str], viewer: Viewer) -> GetPromptResult:
    """A prompt with its text. Raises MCPError."""
    if name == "session_context":
        text = _called("session_context", dict(arguments), viewer)
    elif name == "three_layer_workflow":
        text = WORKFLOW
    else:
        known = ", ".join(prompt.name for prompt in PROMPTS.prompts)
        raise MCPError(INVALID_PARAMS, f"There is no prompt {name[:60]!a}. There are: {known}.")
    return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])


def complete(reference: str, argument: str, begun: str, viewer: Viewer) -> CompleteResult:
    """The values of an argument of a prompt or a template that contain what is written. Raises MCPError."""
    known = {prompt.name: [one.name for one in prompt.arguments or ()] for prompt in PROMPTS.prompts}
    templates = [one.uri_template for one in TEMPLATES.resource_templates]
    known |= {template: re.findall(r"{(\w+)}", template) for template in templates}
    if argument not in known.get(reference, ()):
        places = "; ".join(f"{name}: {', '.join(names)}" for name, names in known.items() if names)
        raise MCPError(INVALID_PARAMS, f"{reference[:100]!a} has no argument {argument[:60]!a}. There are: {places}.")
    facet = {"project": "project", "path": "category"}.get(argument)
    if facet is None:
        return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
    asked = {"facet": facet, "search": begun, "limit": _COMPLETED, "format": "json", "max_tokens": MAX_TOKENS}
    reply = json.loads(_called("list_values", asked, viewer))
    values = [row["value"] for row in reply["values"]]
    # First those that begin with it, as it is typed.
    values.sort(key=lambda value: not value.lower().startswith(begun.lower()))
    return CompleteResult(completion=Completion(values=values, total=reply["distinct"], has_more=reply["has_more"]))


def _called(name: str, arguments: Arguments, viewer: Viewer) -> str:
    set_route(f"/mcp {name}")
    try:
        return call(TOOL[name], arguments, viewer)
    except ToolRefusedError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error


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
    _begin_call()
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


# Over standard input and output, the process is the session of the agent.
_own_session = secrets.token_hex(16).encode()


def _begin_call() -> None:
    """Make a call over standard input and output a request of its own."""
    if current() is None:
        begin(session=_own_session)


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
    _begin_call()
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

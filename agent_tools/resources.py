"""Resources and prompts of MCP: memories, categories and the context of a session, read through the tools."""

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from access.viewer import Viewer
from agent_tools.calls import Arguments, ToolRefusedError, call
from agent_tools.catalogue import TOOL
from agent_tools.rendering import MAX_TOKENS, encode
from agent_tools.workflow import WORKFLOW

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
    try:
        return call(TOOL[name], arguments, viewer)
    except ToolRefusedError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error

"""The catalogue that agents read at every start is short and true."""

import json
import re

import pytest

from agent_tools.answers import offered
from agent_tools.calls import FACETS_ARGUMENT, names_of
from agent_tools.catalogue import PROFILES, TOOL, TOOLS
from agent_tools.rendering import OutputOptions
from agent_tools.tools import SimilarTo
from agent_tools.vocabulary_tools import AboutRequest
from agent_tools.workflow import WORKFLOW
from agent_tools.writing_tools import MemoryLinkRequest, MemoryRef, RestoreRequest
from search.facets import FACETS
from search.query import ALIASES, SearchQuery
from tests.agent_tools.tokens import tokens

OF_A_SEARCH = {*(p["name"] for p in SearchQuery.openapi_parameters()), *ALIASES}


def sent(tool):
    """The definition as a client gives it to a model: without the title and the schema of replies."""
    definition = offered(tool).model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(
        {key: value for key, value in definition.items() if key not in {"title", "outputSchema"}}, separators=(",", ":")
    )


@pytest.mark.parametrize(("profile", "most"), [("core", 1_850), ("all", 2_750), ("chatgpt", 150)])
def test_definitions_of_a_profile_cost_few_tokens(profile, most):
    assert sum(tokens(sent(tool)) for tool in PROFILES[profile]) <= most


def test_workflow_costs_little_more_than_nothing():
    assert tokens(WORKFLOW) <= 250


def test_every_argument_that_is_offered_is_taken():
    """Those of the schema that no input reads are read by the tool itself."""
    of_tools = {
        "search": {FACETS_ARGUMENT, *OutputOptions.model_fields},
        "timeline": set(OutputOptions.model_fields),
        "get_observations": set(OutputOptions.model_fields),
        "retrieve_memory": {FACETS_ARGUMENT, *OutputOptions.model_fields},
        "list_categories": set(OutputOptions.model_fields),
        "category_search": set(OutputOptions.model_fields),
        "list_concepts_in_category": set(OutputOptions.model_fields),
        "store_memory": {"if_match"},
        "update_memory": set(MemoryRef.model_fields),
        "relate": set(MemoryLinkRequest.model_fields),
        "list_values": {"facet"},
        "about": set(AboutRequest.model_fields),
        "similar": set(SimilarTo.model_fields),
        "restore": set(RestoreRequest.model_fields),
        "curate": {"operation"},
    }
    for tool in TOOLS:
        known = {name for model in tool.inputs for name in names_of(model)} | of_tools.get(tool.name, set())
        assert set(tool.properties) <= known, tool.name


def test_search_offers_every_filter_in_its_schema():
    filters = {spec.key for spec in FACETS} | {"from", "to", "since", "has", "no", "match_all"}
    assert filters <= set(TOOL["search"].properties) <= OF_A_SEARCH | {FACETS_ARGUMENT, *OutputOptions.model_fields}


def test_schema_is_closed_only_if_it_lists_all_that_the_tool_takes():
    """A client that checks calls sends nothing that a closed schema lacks."""
    closed = [tool.name for tool in TOOLS if tool.schema.get("additionalProperties") is False]
    assert closed == [
        "__IMPORTANT",
        "get_observations",
        "category_search",
        "list_concepts_in_category",
        "relate",
        "restore",
    ]
    stored = {"concepts", "importance", "external_id", "authors", "links", "supersedes", "source_url"}
    assert stored <= set(TOOL["store_memory"].usage.rpartition(": ")[2].rstrip(".").split(", "))
    assert {"from", "to", "state"} <= set(TOOL["forget"].usage.rpartition(": ")[2].rstrip(".").split(", "))
    assert "page_size" not in TOOL["list_values"].usage


# The words that the schemas of Gemini's function declarations know, and the unions that OpenAI's strict mode forbids.
GEMINI = {
    *("type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "minItems"),
    *("maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf", "propertyOrdering"),
    "additionalProperties",
}
TYPES = {"string", "integer", "number", "boolean", "array", "object"}
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def faults_of(schema, path="", depth=1):
    """The rules that a schema breaks: those of Gemini as it stands, and those of OpenAI's strict mode once its clients
    have closed every object and made its properties required, as they do themselves.
    """
    kind = schema.get("type")
    if not (isinstance(kind, str) and kind in TYPES):
        yield f"{path}: the type {kind!r} is not one of the types"
    yield from (f"{path}: {word} is unknown" for word in schema.keys() - GEMINI)
    if "enum" in schema and not (kind == "string" and all(isinstance(x, str) and x for x in schema["enum"])):
        yield f"{path}: a choice must be between texts"
    if (kind == "array") != ("items" in schema):
        yield f"{path}: a list needs the type of its items, and nothing else has any"
    if (kind == "object") != ("properties" in schema) or schema.get("additionalProperties", False) is not False:
        yield f"{path}: an object lists all its properties"
    if depth > 5:
        yield f"{path}: is nested too deeply"
    inner = schema.get("properties", {})
    yield from (f"{path}: {name} is required and unknown" for name in set(schema.get("required", ())) - inner.keys())
    for name, below in inner.items():
        if not NAME.fullmatch(name):
            yield f"{path}: {name} cannot name a property"
        yield from faults_of(below, f"{path}.{name}", depth + 1)
    if "items" in schema:
        yield from faults_of(schema["items"], f"{path}[]", depth + 1)


@pytest.mark.parametrize("profile", PROFILES)
def test_schemas_follow_the_rules_of_gemini_and_of_openai(profile):
    for tool in PROFILES[profile]:
        assert NAME.fullmatch(tool.name)
        assert tool.schema["type"] == "object"
        assert list(faults_of(tool.schema, tool.name)) == []
        assert all(isinstance(text, str) and text for text in descriptions(tool.schema))


def descriptions(schema):
    """Every description in a schema."""
    below = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
    return [*filter(None, [schema.get("description")]), *(text for one in below for text in descriptions(one))]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"enum": ["a"]}, id="no type"),
        pytest.param({"type": ["integer", "string"]}, id="two types"),
        pytest.param({"type": "array"}, id="a list of anything"),
        pytest.param({"type": "array", "items": {"enum": ["a"]}}, id="no type in a list"),
        pytest.param({"type": "integer", "enum": [1, 2]}, id="a choice of numbers"),
        pytest.param({"type": "string", "enum": ["", "a"]}, id="an empty choice"),
        pytest.param({"type": "object", "properties": {"a": {}}}, id="no type in an object"),
        pytest.param({"type": "object", "properties": {"a-*": {"type": "string"}}}, id="a name with a star"),
        pytest.param({"type": "object", "additionalProperties": True, "properties": {}}, id="open"),
        pytest.param({"type": "string", "oneOf": [{"type": "string"}]}, id="a union"),
        pytest.param({"$ref": "#/$defs/A"}, id="a reference"),
        pytest.param({"type": "object", "properties": {}, "required": ["a"]}, id="required and unknown"),
    ],
)
def test_rules_find_what_such_a_client_would_refuse(schema):
    assert list(faults_of(schema))

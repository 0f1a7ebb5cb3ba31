"""The catalogue that agents read at every start is short and true."""

import json

import pytest

from agent_tools.answers import offered
from agent_tools.catalogue import PROFILES, TOOL, TOOLS
from agent_tools.memory_tools import RestoreRequest, SimilarTo
from agent_tools.rendering import OutputOptions
from agent_tools.tools import MemoryLinkRequest, names_of
from agent_tools.vocabulary_tools import AboutRequest
from agent_tools.workflow import DEFAULT_PROFILE, PROFILE_NAMES, WORKFLOW
from search.facets import FACETS
from search.query import ALIASES, SearchQuery
from tests.agent_tools.tokens import tokens

OF_A_SEARCH = {*(p["name"] for p in SearchQuery.openapi_parameters()), *ALIASES}


def sent(tool):
    return json.dumps(offered(tool).model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":"))


@pytest.mark.parametrize(("profile", "most"), [("core", 1_700), ("all", 2_500), ("chatgpt", 150)])
def test_definitions_of_a_profile_cost_few_tokens(profile, most):
    assert sum(tokens(sent(tool)) for tool in PROFILES[profile]) <= most


def test_profiles_are_those_that_can_be_chosen():
    assert tuple(PROFILES) == PROFILE_NAMES
    assert DEFAULT_PROFILE in PROFILES


def test_workflow_costs_little_more_than_nothing():
    assert tokens(WORKFLOW) <= 250


def test_every_argument_that_is_offered_is_taken():
    """Those of the schema that no input reads are read by the tool itself."""
    of_tools = {
        "search": set(OutputOptions.model_fields),
        "timeline": set(OutputOptions.model_fields),
        "get_observations": set(OutputOptions.model_fields),
        "retrieve_memory": set(OutputOptions.model_fields),
        "list_categories": set(OutputOptions.model_fields),
        "category_search": set(OutputOptions.model_fields),
        "list_concepts_in_category": set(OutputOptions.model_fields),
        "update_memory": {"id", "reason"},
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
    assert filters <= set(TOOL["search"].properties) <= OF_A_SEARCH | set(OutputOptions.model_fields)


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


def test_anchor_of_a_timeline_may_be_an_id_or_a_time():
    assert TOOL["timeline"].schema["properties"]["anchor"]["type"] == ["integer", "string"]

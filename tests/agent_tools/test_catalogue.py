"""The catalogue that agents read at every start is short and true."""

import json

from agent_tools.answers import offered
from agent_tools.catalogue import TOOL, TOOLS
from agent_tools.rendering import OutputOptions
from agent_tools.tools import WORKFLOW
from explorer.batch_api import Batch
from memories.records import MemoryChanges, StrictMemoryRecord
from search.query import ALIASES, SearchQuery
from tests.agent_tools.tokens import tokens
from web.validation import field_names

TIMELINE = {"anchor", "depth_before", "depth_after"}
OF_A_SEARCH = {*(p["name"] for p in SearchQuery.openapi_parameters()), *ALIASES}


def sent(tool):
    return json.dumps(offered(tool).model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":"))


def test_definitions_cost_less_than_1500_tokens():
    assert sum(tokens(sent(tool)) for tool in TOOLS) <= 1_500


def test_workflow_costs_little_more_than_nothing():
    assert tokens(WORKFLOW) <= 250


def test_every_argument_that_is_offered_is_taken():
    known = {
        "__IMPORTANT": set(),
        "search": OF_A_SEARCH | set(OutputOptions.model_fields),
        "timeline": OF_A_SEARCH | set(OutputOptions.model_fields) | TIMELINE,
        "get_observations": {*Batch.model_fields, "orderBy", *OutputOptions.model_fields},
        "retrieve_memory": OF_A_SEARCH | set(OutputOptions.model_fields),
        "list_categories": {"sort_by", "page", "limit", "include_hierarchy", "filter", *OutputOptions.model_fields},
        "category_search": {"category", "include_children", "include_chunks", "limit", *OutputOptions.model_fields},
        "list_concepts_in_category": {"category", "sort_by", "limit", "include_children", *OutputOptions.model_fields},
        "store_memory": set(field_names(StrictMemoryRecord)),
        "update_memory": {*field_names(MemoryChanges), "reason"},
        "relate": {"id", "target", "rel"},
    }
    assert [name for tool in TOOLS for name in tool.properties if name not in known[tool.name]] == []


def test_filters_that_are_named_in_words_exist():
    words = {"match_all", "concept", "entity", "author", "agent", "source", "state", "since", "has", "no", "-tag"}
    assert words <= OF_A_SEARCH
    assert all(word in TOOL["search"].description for word in words)


def test_tools_that_take_no_filters_say_so():
    closed = [tool.name for tool in TOOLS if tool.schema.get("additionalProperties") is False]
    assert closed == [
        "__IMPORTANT",
        "get_observations",
        "list_categories",
        "category_search",
        "list_concepts_in_category",
        "store_memory",
        "update_memory",
        "relate",
    ]

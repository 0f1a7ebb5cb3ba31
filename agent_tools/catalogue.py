"""The catalogue of tools. Every agent reads each word of it at every start."""

from typing import Any

from agent_tools import category_tools, tools
from agent_tools.rendering import DEFAULT_TOKENS
from agent_tools.tools import Tool
from explorer.batch_api import Batch
from explorer.category_requests import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from memories.records import MemoryChanges, StrictMemoryRecord
from search.query import Mode, SearchQuery
from search.timeline import TimelineRequest

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_SWITCH: dict[str, Any] = {"type": "boolean"}
_LIST: dict[str, Any] = {"type": "array", "items": _TEXT}
_IDS: dict[str, Any] = {"type": "array", "items": _NUMBER}
_DATE: dict[str, Any] = {"type": "string", "description": "YYYY-MM-DD"}
_OUTPUT: dict[str, Any] = {
    "format": {"enum": ["toon", "json"]},
    "max_tokens": {"type": "integer", "description": f"budget, {DEFAULT_TOKENS:,}"},
}
# The same without descriptions, which search has given.
_OUTPUT_SHORT: dict[str, Any] = {"format": _TEXT, "max_tokens": _NUMBER}
_FILTERS: dict[str, Any] = {
    "project": _LIST,
    "type": _LIST,
    "tag": _LIST,
    "category": _LIST,
    "from": _DATE,
    "to": _DATE,
}
_PAGE: dict[str, Any] = {"page": _NUMBER, "limit": _NUMBER}
_RECORD: dict[str, Any] = {
    "title": _TEXT,
    "type": _TEXT,
    "tags": _LIST,
    "categories": {"type": "array", "items": _TEXT, "description": "paths, A/B"},
    "entities": {"type": "array", "items": _TEXT, "description": "type:name"},
}

TOOLS = (
    Tool(
        "__IMPORTANT",
        "3-LAYER WORKFLOW (ALWAYS FOLLOW): 1. search(query) -> index with ids, 50-100 tokens a hit. 2."
        " timeline(anchor=ID) -> context. 3. get_observations(ids) -> whole memories, ONLY of ids you chose. NEVER"
        " fetch whole memories first. 10x token savings. Call for details.",
        tools.important,
        {},
    ),
    Tool(
        "search",
        "Step 1: index of memories (id, title, date, type, project). Further filters: match_all (of tags), concept,"
        " entity, author, agent, source, state, since=30d, updated_since, has, no; a leading - leaves out (-tag). mode"
        " faceted: query optional.",
        tools.search,
        {
            "query": {"type": "string", "description": 'words, "phrase", prefix*, -not, or'},
            "mode": {"enum": [mode.value for mode in Mode]},
            **_FILTERS,
            "include_facets": {"type": "boolean", "description": "counts over all matches"},
            "orderBy": {"enum": ["relevance", "newest", "oldest", "updated", "title"]},
            **_PAGE,
            **_OUTPUT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "timeline",
        "Step 2: what was remembered before and after a memory (anchor, an id; or the best hit of query). Takes"
        " search's filters.",
        tools.timeline_of,
        {
            "anchor": _NUMBER,
            "query": _TEXT,
            "depth_before": _NUMBER,
            "depth_after": _NUMBER,
            "project": _LIST,
            **_OUTPUT_SHORT,
        },
        inputs=(SearchQuery, TimelineRequest),
    ),
    Tool(
        "get_observations",
        "Step 3: whole memories, for ids chosen from search.",
        tools.get_observations,
        {
            "ids": _IDS,
            "orderBy": {"enum": ["given", "newest", "oldest"]},
            "limit": _NUMBER,
            "project": _LIST,
            **_OUTPUT_SHORT,
        },
        inputs=(Batch,),
        required=("ids",),
    ),
    Tool(
        "retrieve_memory",
        "Search and whole memories in one: dear, for narrow questions. include_facets: tags, memory_types, date_buckets"
        " counted over all matches. Takes search's filters.",
        tools.retrieve_memory,
        {"query": _TEXT, **_FILTERS, "include_facets": _SWITCH, **_PAGE, **_OUTPUT_SHORT},
        inputs=(SearchQuery,),
    ),
    Tool(
        "list_categories",
        "Categories with counts; filter is a part of a name.",
        category_tools.list_categories,
        {
            "sort_by": {"enum": list(CATEGORY_SORTS)},
            "filter": _TEXT,
            "include_hierarchy": _SWITCH,
            **_PAGE,
            **_OUTPUT_SHORT,
        },
        inputs=(CategoryListRequest,),
    ),
    Tool(
        "category_search",
        "What is in a category: name, path, alias or id.",
        category_tools.category_search,
        {
            "category": _TEXT,
            "include_children": _SWITCH,
            "include_chunks": _SWITCH,
            "limit": _NUMBER,
            **_OUTPUT_SHORT,
        },
        inputs=(CategoryRequest,),
        required=("category",),
    ),
    Tool(
        "list_concepts_in_category",
        "The concepts of a category's memories.",
        category_tools.list_concepts_in_category,
        {
            "category": _TEXT,
            "sort_by": {"enum": list(CONCEPT_SORTS)},
            "include_children": _SWITCH,
            "limit": _NUMBER,
            **_OUTPUT_SHORT,
        },
        inputs=(ConceptListRequest,),
        required=("category",),
    ),
    Tool(
        "store_memory",
        "Remember something lasting. Search first: what is there is better updated.",
        tools.store_memory,
        {"content": {"type": "string", "description": "Markdown"}, "project": _TEXT, **_RECORD},
        inputs=(StrictMemoryRecord,),
        required=("content",),
        scope="write",
        idempotent=False,
    ),
    Tool(
        "update_memory",
        "Change fields; a list given replaces the old one. state=deleted takes it out of sight.",
        tools.update_memory,
        {
            "id": _NUMBER,
            "content": _TEXT,
            **_RECORD,
            "state": {"enum": ["active", "proposed", "archived", "deleted"]},
            "superseded_by": {"type": "string", "description": "#id"},
            "reason": _TEXT,
        },
        inputs=(MemoryChanges,),
        required=("id",),
        scope="write",
        destructive=True,
    ),
    Tool(
        "relate",
        "Link a memory to another of its project.",
        tools.relate,
        {
            "id": _NUMBER,
            "target": _NUMBER,
            "rel": {"type": "string", "description": "such as relates-to, fixes, supersedes"},
        },
        required=("id", "target"),
        scope="write",
    ),
)
TOOL = {tool.name: tool for tool in TOOLS}

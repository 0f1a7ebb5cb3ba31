"""The catalogue of tools. Every agent reads each word of its profile at every start."""

from typing import Any

from agent_tools import category_tools, chatgpt, memory_tools, tools, vocabulary_tools
from agent_tools.rendering import DEFAULT_TOKENS, OutputOptions
from agent_tools.tools import Tool
from explorer.batch_api import Batch
from explorer.category_requests import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from explorer.history_api import ChangesRequest
from explorer.session_context import ContextRequest
from memories.records import MemoryChanges, StrictMemoryRecord
from search.facets import FACET
from search.query import FacetScope, Mode, SearchQuery
from search.result import FacetListing
from search.similar import SimilarRequest
from search.timeline import TimelineRequest

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_SWITCH: dict[str, Any] = {"type": "boolean"}
_LIST: dict[str, Any] = {"type": "array", "items": _TEXT}
_IDS: dict[str, Any] = {"type": "array", "items": _NUMBER}
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
    "from": _TEXT,
    "to": _TEXT,
}
# Hosts that send only arguments of the schema can filter by all of them in a search.
_FURTHER_FILTERS: dict[str, Any] = {
    **dict.fromkeys(("concept", "entity", "author", "agent", "source", "state", "has", "no"), _LIST),
    "match_all": _SWITCH,
    "since": {"type": "string", "description": "30d, 6m"},
    "updated_since": _TEXT,
    "as_of": _TEXT,
}
_SCOPE: dict[str, Any] = {"enum": [scope.value for scope in FacetScope]}
_PAGE: dict[str, Any] = {"page": _NUMBER, "limit": _NUMBER}
_RECORD: dict[str, Any] = {
    "title": _TEXT,
    "type": _TEXT,
    "tags": _LIST,
    "categories": {"type": "array", "items": _TEXT, "description": "paths, A/B"},
    "concepts": _LIST,
    "entities": {"type": "array", "items": _TEXT, "description": "type:name"},
}

CORE = (
    Tool(
        "__IMPORTANT",
        "3-LAYER WORKFLOW (ALWAYS FOLLOW): 1. search(query) -> index with ids, 25-50 tokens a hit. 2."
        " timeline(anchor=ID) -> context. 3. get_observations(ids) -> whole memories, ONLY of ids you chose. NEVER"
        " fetch whole memories first. 10x token savings. Call for details.",
        tools.important,
        {},
    ),
    Tool(
        "search",
        "Step 1: index of memories (id, title, date, type, project); without query all, newest first. A leading - on a"
        " filter excludes (-tag); match_all: all the tags; has, no: a facet with or without value.",
        tools.search,
        {
            "query": {"type": "string", "description": 'words, "phrase", prefix*, -not, or'},
            "mode": {"enum": [mode.value for mode in Mode]},
            **_FILTERS,
            "from": {"type": "string", "description": "YYYY-MM-DD"},
            **_FURTHER_FILTERS,
            "include_facets": {**_LIST, "type": ["boolean", "array"], "description": "counts; [tag, date]: of these"},
            "facet_scope": _SCOPE,
            "orderBy": {"enum": ["relevance", "newest", "oldest", "updated", "title"]},
            **_PAGE,
            **_OUTPUT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "timeline",
        "Step 2: what was remembered around a memory (anchor: id or time; or the best hit of query). Takes"
        " search's filters.",
        tools.timeline_of,
        {
            "anchor": {"type": ["integer", "string"]},
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
        "Search with whole memories: dear, for narrow questions. include_facets: tags, memory_types, date_buckets."
        " Takes search's filters.",
        tools.retrieve_memory,
        {"query": _TEXT, **_FILTERS, "include_facets": _SWITCH, "facet_scope": _TEXT, **_PAGE, **_OUTPUT_SHORT},
        inputs=(SearchQuery,),
    ),
    Tool(
        "list_categories",
        "Categories with counts.",
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
            **_PAGE,
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
        "Remember something lasting. Search first: better update. Also takes importance, authors,"
        " links, external_id, source_url.",
        tools.store_memory,
        {
            "content": {"type": "string", "description": "Markdown"},
            "project": _TEXT,
            **_RECORD,
            "supersedes": {"type": "array", "items": _TEXT, "description": "#id"},
        },
        inputs=(StrictMemoryRecord,),
        required=("content",),
        scope="write",
        idempotent=False,
    ),
    Tool(
        "update_memory",
        "Change fields; a list given replaces the old one. state=deleted takes it out of sight. Also takes what"
        " store_memory takes.",
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
FURTHER = (
    Tool(
        "list_values",
        "A facet's values with counts. Takes search's filters.",
        vocabulary_tools.list_values,
        {
            "facet": {"enum": list(FACET)},
            "search": {"type": "string", "description": "in names"},
            "sort": {"enum": ["count", "name", "typical"]},
            "facet_scope": _TEXT,
            **_PAGE,
        },
        inputs=(SearchQuery, FacetListing, OutputOptions),
        required=("facet",),
    ),
    Tool(
        "about",
        "A concept or entity: definition, links, newest memories; to: what links two.",
        vocabulary_tools.about,
        {"concept": _TEXT, "entity": _TEXT, "to": _TEXT},
        inputs=(OutputOptions,),
    ),
    Tool(
        "similar",
        "Memories similar to an id or a text, duplicates marked; without both: proposed duplicates.",
        memory_tools.similar,
        {"id": _NUMBER, "text": _TEXT, "limit": _NUMBER},
        inputs=(SearchQuery, SimilarRequest, OutputOptions),
    ),
    Tool(
        "changes",
        "What was created, edited … since 7d or a date, oldest first; after: its cursor.",
        memory_tools.changes,
        {"since": _TEXT, "after": _TEXT, "project": _LIST, "kind": _LIST, "limit": _NUMBER},
        inputs=(ChangesRequest, OutputOptions),
    ),
    Tool(
        "history",
        "Changes of a memory, newest first, with values before and after.",
        memory_tools.history,
        {"id": _NUMBER, "limit": _NUMBER},
        inputs=(memory_tools.HistoryOf, OutputOptions),
        required=("id",),
    ),
    Tool(
        "restore",
        "Undelete a memory, take it back to after an event of its history, or undo a forget.",
        memory_tools.restore,
        {"id": _NUMBER, "event": _TEXT, "forgotten": _NUMBER, "reason": _TEXT},
        scope="write",
    ),
    Tool(
        "forget",
        "Delete all memories that search's filters find: first a preview, then with its token.",
        memory_tools.forget,
        {"query": _TEXT, "tag": _LIST, "reason": _TEXT, "token": _TEXT},
        inputs=(SearchQuery, memory_tools.ForgetRequest),
        scope="write",
        destructive=True,
        idempotent=False,
    ),
    Tool(
        "views",
        "Saved searches, with counts.",
        memory_tools.views,
        {},
        inputs=(OutputOptions,),
    ),
    Tool(
        "session_context",
        "What to know when work on a project starts.",
        memory_tools.session_context,
        {"project": _LIST, "budget": {"type": "integer", "description": "tokens"}},
        inputs=(ContextRequest,),
    ),
    Tool(
        "curate",
        "Edit the vocabulary. create, edit: term or name, description, type, aliases, weight, memories. relate: term,"
        " how, other; of entities with fact, evidence (ids); remove ends it. rename: term, name. alias: add, remove."
        " move: category, parent. merge: sources, target.",
        vocabulary_tools.curate,
        {
            "operation": {"enum": list(vocabulary_tools.OPERATIONS)},
            "kind": {"enum": ["category", "concept", "entity", "tag"]},
            "term": _TEXT,
            "name": _TEXT,
            "how": _TEXT,
            "other": _TEXT,
            "dry_run": _SWITCH,
        },
        inputs=tuple(vocabulary_tools.OPERATIONS.values()),
        required=("operation",),
        scope="curate",
        destructive=True,
        idempotent=False,
    ),
)
# ChatGPT offers a server for research only if it has these two, with these arguments.
CHATGPT = (
    Tool(
        "search",
        "Search memories by words and meaning.",
        chatgpt.search,
        {"query": {"type": "string", "description": 'words, "phrase", -not'}},
        required=("query",),
    ),
    Tool("fetch", "A whole memory by its id from search.", chatgpt.fetch, {"id": _TEXT}, required=("id",)),
)
TOOLS = (*CORE, *FURTHER)
TOOL = {tool.name: tool for tool in TOOLS}

# The tools that are listed. A tool that is not listed can still be called, unless another of the name is.
PROFILES: dict[str, tuple[Tool, ...]] = {"core": CORE, "all": TOOLS, "chatgpt": CHATGPT}

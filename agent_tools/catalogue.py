"""The catalogue of tools. Every agent reads each word of its profile at every start."""

from collections.abc import Iterable
from typing import Any

from agent_tools import category_tools, chatgpt, history_tools, memory_tools, outputs, tools, vocabulary_tools
from agent_tools.calls import Tool
from agent_tools.outputs import LIST, NUMBER, SWITCH, TEXT
from agent_tools.rendering import DEFAULT_TOKENS, OutputOptions
from agent_tools.workflow import WORKFLOW
from explorer.categories.schemas import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from explorer.history.api import ChangesRequest
from explorer.memory.bulk_api import Batch
from explorer.sessions.context import ContextRequest
from memories.records import MemoryChanges, StrictMemoryRecord
from search.facets import FACET
from search.query import FacetScope, Mode, SearchQuery
from search.result import FacetListing
from search.similar import SimilarRequest
from search.timeline import TimelineRequest

_IDS: dict[str, Any] = {"type": "array", "items": NUMBER}


def _choice(names: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


_OUTPUT: dict[str, Any] = {
    "format": _choice(["toon", "json"]),
    "max_tokens": {"type": "integer", "description": f"budget, {DEFAULT_TOKENS:,}"},
}
# The same without descriptions, which search has given.
_OUTPUT_SHORT: dict[str, Any] = {"format": TEXT, "max_tokens": NUMBER}
_FILTERS: dict[str, Any] = {
    "project": LIST,
    "type": LIST,
    "tag": LIST,
    "category": LIST,
    "from": TEXT,
    "to": TEXT,
}
# Hosts that send only arguments of the schema can filter by all of them in a search.
_FURTHER_FILTERS: dict[str, Any] = {
    **dict.fromkeys(("concept", "entity", "author", "agent", "source", "state", "has", "no"), LIST),
    "match_all": SWITCH,
    "since": {"type": "string", "description": "30d, 6m"},
    "updated_since": TEXT,
    "as_of": TEXT,
}
_SCOPE: dict[str, Any] = _choice(FacetScope)
_PAGE: dict[str, Any] = {"page": NUMBER, "limit": NUMBER}
_RECORD: dict[str, Any] = {
    "title": TEXT,
    "type": TEXT,
    "tags": LIST,
    "categories": {"type": "array", "items": TEXT, "description": "paths, A/B"},
    "concepts": LIST,
    "entities": {"type": "array", "items": TEXT, "description": "type:name"},
}

CORE = (
    Tool(
        "__IMPORTANT",
        "3-LAYER WORKFLOW (ALWAYS FOLLOW): 1. search(query) -> index with ids, 25-50 tokens a hit. 2."
        " timeline(anchor=ID) -> context. 3. get_observations(ids) -> whole memories, ONLY of ids you chose. NEVER"
        " fetch whole memories first. 10x token savings. Call for details.",
        lambda arguments, viewer: WORKFLOW,
        outputs.MESSAGE,
        {},
        scope="",
    ),
    Tool(
        "search",
        "Step 1: index of memories (id, title, date, type, project); without query all, newest first. A leading - on a"
        " filter excludes (-tag); match_all: all the tags; has, no: a facet with or without value.",
        tools.search,
        outputs.SEARCH,
        {
            "query": {"type": "string", "description": 'words, "phrase", prefix*, -not, or'},
            "mode": _choice(Mode),
            **_FILTERS,
            "from": {"type": "string", "description": "YYYY-MM-DD"},
            **_FURTHER_FILTERS,
            "include_facets": {"type": "boolean", "description": "counts"},
            "facets": {**LIST, "description": "counts of these, such as tag, date"},
            "facet_scope": _SCOPE,
            "orderBy": _choice(["relevance", "newest", "oldest", "updated", "title"]),
            **_PAGE,
            **_OUTPUT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "timeline",
        "Step 2: what was remembered around a memory (anchor, or the best hit of query). Takes search's filters.",
        tools.timeline_of,
        outputs.TIMELINE,
        {
            "anchor": {"type": "string", "description": "id or time"},
            "query": TEXT,
            "depth_before": NUMBER,
            "depth_after": NUMBER,
            "project": LIST,
            **_OUTPUT_SHORT,
        },
        inputs=(SearchQuery, TimelineRequest),
    ),
    Tool(
        "get_observations",
        "Step 3: whole memories, for ids chosen from search.",
        tools.get_observations,
        outputs.OBSERVATIONS,
        {
            "ids": _IDS,
            "orderBy": _choice(["given", "newest", "oldest"]),
            "limit": NUMBER,
            "project": LIST,
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
        outputs.RETRIEVED,
        {
            "query": TEXT,
            **_FILTERS,
            "include_facets": SWITCH,
            "facets": LIST,
            "facet_scope": _SCOPE,
            **_PAGE,
            **_OUTPUT_SHORT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "list_categories",
        "Categories with counts.",
        category_tools.list_categories,
        outputs.CATEGORIES,
        {
            "sort_by": _choice(CATEGORY_SORTS),
            "filter": TEXT,
            "include_hierarchy": SWITCH,
            **_PAGE,
            **_OUTPUT_SHORT,
        },
        inputs=(CategoryListRequest,),
    ),
    Tool(
        "category_search",
        "What is in a category: name, path, alias or id.",
        category_tools.category_search,
        outputs.CATEGORY,
        {
            "category": TEXT,
            "include_children": SWITCH,
            "include_chunks": SWITCH,
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
        outputs.CONCEPTS,
        {
            "category": TEXT,
            "sort_by": _choice(CONCEPT_SORTS),
            "include_children": SWITCH,
            "limit": NUMBER,
            **_OUTPUT_SHORT,
        },
        inputs=(ConceptListRequest,),
        required=("category",),
    ),
    Tool(
        "store_memory",
        "Remember something lasting. Search first: better update. The same external_id replaces. Also takes"
        " importance, authors, links, source_url.",
        tools.store_memory,
        outputs.WRITTEN,
        {
            "content": {"type": "string", "description": "Markdown"},
            "project": TEXT,
            **_RECORD,
            "external_id": TEXT,
            "supersedes": {"type": "array", "items": TEXT, "description": "#id"},
            "if_match": TEXT,
        },
        inputs=(StrictMemoryRecord,),
        clears=True,
        required=("content",),
        scope="write",
        idempotent=False,
    ),
    Tool(
        "update_memory",
        "Change fields; a list given replaces the old one. state=deleted takes it out of sight. if_match: only that"
        " version. Also takes what store_memory takes.",
        tools.update_memory,
        outputs.WRITTEN,
        {
            "id": NUMBER,
            "if_match": TEXT,
            "content": TEXT,
            **_RECORD,
            "add_tags": LIST,
            "remove_tags": LIST,
            "state": _choice(["active", "proposed", "archived", "deleted"]),
            "superseded_by": {"type": "string", "description": "#id"},
            "reason": TEXT,
        },
        inputs=(MemoryChanges,),
        clears=True,
        required=("id",),
        scope="write",
        destructive=True,
    ),
    Tool(
        "relate",
        "Link a memory to another of its project.",
        tools.relate,
        outputs.WRITTEN,
        {
            "id": NUMBER,
            "target": NUMBER,
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
        outputs.VALUES,
        {
            "facet": _choice(FACET),
            "search": {"type": "string", "description": "in names"},
            "sort": _choice(["count", "name", "typical"]),
            "facet_scope": _SCOPE,
            **_PAGE,
        },
        inputs=(SearchQuery, FacetListing, OutputOptions),
        required=("facet",),
    ),
    Tool(
        "about",
        "A concept or entity: definition, links, newest memories; to: what links two.",
        vocabulary_tools.about,
        outputs.ABOUT,
        {"concept": TEXT, "entity": TEXT, "to": TEXT},
        inputs=(OutputOptions,),
    ),
    Tool(
        "similar",
        "Memories similar to an id or a text, duplicates marked; without both: proposed duplicates.",
        memory_tools.similar,
        outputs.SIMILAR,
        {"id": NUMBER, "text": TEXT, "limit": NUMBER},
        inputs=(SearchQuery, SimilarRequest, OutputOptions),
    ),
    Tool(
        "changes",
        "What was created, edited … since 7d or a date, oldest first; after: its cursor.",
        history_tools.changes,
        outputs.CHANGES,
        {"since": TEXT, "after": TEXT, "project": LIST, "kind": LIST, "limit": NUMBER},
        inputs=(ChangesRequest, OutputOptions),
    ),
    Tool(
        "history",
        "Changes of a memory, newest first, with values before and after.",
        history_tools.history,
        outputs.HISTORY,
        {"id": NUMBER, "limit": NUMBER},
        inputs=(history_tools.HistoryOf, OutputOptions),
        required=("id",),
    ),
    Tool(
        "restore",
        "Undelete a memory, take it back to after an event of its history, or undo a forget. despite_successor: also"
        " what was superseded.",
        history_tools.restore,
        outputs.RESTORED,
        {
            "id": NUMBER,
            "event": TEXT,
            "despite_successor": SWITCH,
            "forgotten": NUMBER,
            "reason": TEXT,
            "if_match": TEXT,
        },
        scope="write",
    ),
    Tool(
        "forget",
        "Delete all memories that search's filters find: first a preview, then with its token.",
        history_tools.forget,
        outputs.FORGOTTEN,
        {"query": TEXT, "tag": LIST, "reason": TEXT, "token": TEXT},
        inputs=(SearchQuery, history_tools.ForgetRequest),
        scope="write",
        destructive=True,
        idempotent=False,
    ),
    Tool(
        "views",
        "Saved searches, with counts.",
        memory_tools.views,
        outputs.VIEWS,
        {},
        inputs=(OutputOptions,),
    ),
    Tool(
        "session_context",
        "What to know when work on a project starts.",
        memory_tools.session_context,
        outputs.MESSAGE,
        {"project": LIST, "budget": {"type": "integer", "description": "tokens"}},
        inputs=(ContextRequest,),
    ),
    Tool(
        "curate",
        "Edit the vocabulary. create, edit: term or name, description, type, aliases, weight, memories. relate: term,"
        " how, other; of entities with fact, evidence (ids); remove ends it. rename: term, name. alias: add, remove."
        " move: category, parent. merge: sources, target.",
        vocabulary_tools.curate,
        outputs.CURATED,
        {
            "operation": _choice(vocabulary_tools.OPERATIONS),
            "kind": _choice(["category", "concept", "entity", "tag"]),
            "term": TEXT,
            "name": TEXT,
            "how": TEXT,
            "other": TEXT,
            "dry_run": SWITCH,
        },
        inputs=tuple(vocabulary_tools.OPERATIONS.values()),
        clears=True,
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
        outputs.RESULTS,
        {"query": {"type": "string", "description": 'words, "phrase", -not'}},
        required=("query",),
    ),
    Tool(
        "fetch",
        "A whole memory by its id from search.",
        chatgpt.fetch,
        outputs.DOCUMENT,
        {"id": TEXT},
        required=("id",),
    ),
)
TOOLS = (*CORE, *FURTHER)
TOOL = {tool.name: tool for tool in TOOLS}

# The tools that are listed. A tool that is not listed can still be called, unless another of the name is.
PROFILES: dict[str, tuple[Tool, ...]] = {"core": CORE, "all": TOOLS, "chatgpt": CHATGPT}

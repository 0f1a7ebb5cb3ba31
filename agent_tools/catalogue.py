"""The catalogue of tools, and the shapes of their replies as data. Every agent reads each word of its profile at every
start."""

from collections.abc import Iterable
from typing import Any

from agent_tools import category_tools, chatgpt, tools, vocabulary_tools, writing_tools
from agent_tools.calls import Shape, Tool
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

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
SWITCH: dict[str, Any] = {"type": "boolean"}
LIST: dict[str, Any] = {"type": "array", "items": TEXT}
_KINDS: dict[str, dict[str, Any]] = {
    "texts": TEXT,
    "numbers": NUMBER,
    "fractions": {"type": "number"},
    "switches": SWITCH,
    "lists": LIST,
    "maps": {"type": "object"},
}


def _fields(**names: str) -> dict[str, dict[str, Any]]:
    """Fields by their kinds, each kind with the names that are of it."""
    return {name: _KINDS[kind] for kind, of_kind in names.items() for name in of_kind.split()}


def _rows(row: Shape) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": dict(row)}}


def schema_of(shape: Shape) -> dict[str, Any]:
    """The schema of an answer. Nothing is required, since a field without a value is left out."""
    return {"type": "object", "properties": dict(shape)}


_INDEX = _fields(numbers="id", texts="title date updated type project state trust")
_WHOLE = _INDEX | _fields(
    numbers="superseded_by",
    texts="version agent source summary content",
    lists="marked tags categories concepts entities authors links properties",
)
# Without the id, which is a number for a memory, and has its kind before it for anything else.
_UNIFIED = _fields(texts="kind title text date type project see", fractions="score", lists="related same")
_NOTES = _fields(texts="left_out", lists="warnings")
_PAGE = _NOTES | _fields(
    numbers="page page_size total",
    switches="has_more",
    texts="known hidden facet_scope",
    lists="named understood facet_notes lower_bounds",
    maps="filters relaxations facets totals",
)
_CATEGORY = _fields(numbers="id", texts="name path description", lists="hierarchy aliases related_categories")
_CONCEPT = _fields(
    numbers="id document_count chunk_count total_document_count",
    texts="name type",
    fractions="weight",
    lists="related_concepts",
)
_LISTED = _CATEGORY | _fields(
    numbers="depth document_count own_document_count chunk_count concept_count", texts="parent", lists="children"
)
_CATEGORY_NOTES = _NOTES | _fields(texts="message", maps="statistics")
_LINKS = _fields(numbers="shared_memories", lists="how")

MESSAGE: Shape = _fields(texts="text")
SEARCH: Shape = _PAGE | {"memories": _rows(_INDEX), "results": _rows(_UNIFIED)}
RETRIEVED: Shape = _PAGE | {"memories": _rows(_WHOLE)}
OBSERVATIONS: Shape = _NOTES | _fields(numbers="total", texts="missing past_limit") | {"memories": _rows(_WHOLE)}
TIMELINE: Shape = _NOTES | _fields(numbers="earlier later") | {"memories": _rows(_INDEX | _fields(numbers="at"))}
CATEGORIES: Shape = (
    _NOTES
    | _fields(
        numbers="total_categories returned_categories", switches="has_more", texts="message", maps="aggregate_stats"
    )
    | {"categories": _rows(_LISTED)}
)
CATEGORY: Shape = _CATEGORY_NOTES | {
    "category": schema_of(_CATEGORY),
    "has_more": SWITCH,
    "documents": _rows(_INDEX),
    "concepts": _rows(_CONCEPT),
    "child_categories": _rows(_fields(texts="path", numbers="document_count chunk_count")),
    "chunks": _rows(_fields(texts="id text source", lists="concepts", fractions="concept_density")),
}
CONCEPTS: Shape = _CATEGORY_NOTES | {"category": schema_of(_CATEGORY), "concepts": _rows(_CONCEPT)}
WRITTEN: Shape = _fields(
    numbers="id",
    texts="done title project state version changed project_note near_duplicates_note",
    lists="supersedes also_active near_duplicates",
)
# One memory, or all those of a deletion.
RESTORED: Shape = WRITTEN | _fields(numbers="memories")
VALUES: Shape = (
    _NOTES
    | _fields(texts="facet unavailable facet_scope", numbers="distinct memories_without page", switches="has_more")
    | {"values": _rows(_fields(texts="value label", numbers="count"))}
)
ABOUT: Shape = (
    _NOTES
    | _LINKS
    | _fields(
        numbers="id memories neighbours_total memories_about_both",
        texts="name type description first last unavailable from to reason",
        lists="aliases",
        maps="categories tags entities concepts",
    )
    | {
        "neighbours": _rows(_LINKS | _fields(texts="name")),
        "memories_newest": _rows(_INDEX),
        "steps": _rows(_LINKS | _fields(texts="from to fact", lists="evidence")),
        # How each is linked is a number of memories, or a list of relations.
        "linked_to_both": _rows(_fields(texts="name")),
    }
)
SIMILAR: Shape = (
    _NOTES
    | _fields(texts="reason pairs")
    | {
        "memories": _rows(
            _INDEX
            | _fields(
                fractions="similarity confidence", switches="duplicate", numbers="duplicate_of", texts="its_title"
            )
        )
    }
)
CHANGES: Shape = (
    _NOTES
    | _fields(texts="cursor", switches="has_more")
    | {"changes": _rows(_fields(texts="at kind title project by through reason", numbers="id"))}
)
HISTORY: Shape = (
    _NOTES
    | _fields(numbers="id", texts="next")
    | {"events": _rows(_fields(texts="event at kind by through reason changes"))}
)
FORGOTTEN: Shape = _fields(
    texts="done undo refused hidden next", numbers="memories would_delete", lists="examples", maps="filters"
)
VIEWS: Shape = _NOTES | _fields(numbers="total") | {"views": _rows(_fields(texts="name description memories search"))}
CURATED: Shape = _fields(texts="done effect made refused", numbers="memories", lists="changes")
RESULTS: Shape = _fields(texts="hidden", lists="warnings") | {"results": _rows(_fields(texts="id title url"))}
DOCUMENT: Shape = _fields(texts="id title text url", maps="metadata")


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
    **dict.fromkeys(("concept", "entity", "author", "agent", "source", "import", "state", "has", "no"), LIST),
    "match_all": SWITCH,
    "since": {"type": "string", "description": "30d, 6m"},
    "updated_since": TEXT,
    "as_of": TEXT,
}
_SCOPE: dict[str, Any] = _choice(FacetScope)
_PAGING: dict[str, Any] = {"page": NUMBER, "limit": NUMBER}
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
        MESSAGE,
        {},
        scope="",
    ),
    Tool(
        "search",
        "Step 1: index of memories (id, title, date, type, project); without query all, newest first. A leading - on a"
        " filter excludes (-tag); match_all: all the tags; has, no: a facet with or without value.",
        tools.search,
        SEARCH,
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
            **_PAGING,
            **_OUTPUT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "timeline",
        "Step 2: what was remembered around a memory (anchor, or the best hit of query). Takes search's filters.",
        tools.timeline_of,
        TIMELINE,
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
        OBSERVATIONS,
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
        RETRIEVED,
        {
            "query": TEXT,
            **_FILTERS,
            "include_facets": SWITCH,
            "facets": LIST,
            "facet_scope": _SCOPE,
            **_PAGING,
            **_OUTPUT_SHORT,
        },
        inputs=(SearchQuery,),
    ),
    Tool(
        "list_categories",
        "Categories with counts.",
        category_tools.list_categories,
        CATEGORIES,
        {
            "sort_by": _choice(CATEGORY_SORTS),
            "filter": TEXT,
            "include_hierarchy": SWITCH,
            **_PAGING,
            **_OUTPUT_SHORT,
        },
        inputs=(CategoryListRequest,),
    ),
    Tool(
        "category_search",
        "What is in a category: name, path, alias or id.",
        category_tools.category_search,
        CATEGORY,
        {
            "category": TEXT,
            "include_children": SWITCH,
            "include_chunks": SWITCH,
            **_PAGING,
            **_OUTPUT_SHORT,
        },
        inputs=(CategoryRequest,),
        required=("category",),
    ),
    Tool(
        "list_concepts_in_category",
        "The concepts of a category's memories.",
        category_tools.list_concepts_in_category,
        CONCEPTS,
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
        writing_tools.store_memory,
        WRITTEN,
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
        writing_tools.update_memory,
        WRITTEN,
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
        writing_tools.relate,
        WRITTEN,
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
        VALUES,
        {
            "facet": _choice(FACET),
            "search": {"type": "string", "description": "in names"},
            "sort": _choice(["count", "name", "typical"]),
            "facet_scope": _SCOPE,
            **_PAGING,
        },
        inputs=(SearchQuery, FacetListing, OutputOptions),
        required=("facet",),
    ),
    Tool(
        "about",
        "A concept or entity: definition, links, newest memories; to: what links two.",
        vocabulary_tools.about,
        ABOUT,
        {"concept": TEXT, "entity": TEXT, "to": TEXT},
        inputs=(OutputOptions,),
    ),
    Tool(
        "similar",
        "Memories similar to an id or a text, duplicates marked; without both: proposed duplicates.",
        tools.similar,
        SIMILAR,
        {"id": NUMBER, "text": TEXT, "limit": NUMBER},
        inputs=(SearchQuery, SimilarRequest, OutputOptions),
    ),
    Tool(
        "changes",
        "What was created, edited … since 7d or a date, oldest first; after: its cursor.",
        writing_tools.changes,
        CHANGES,
        {"since": TEXT, "after": TEXT, "project": LIST, "kind": LIST, "limit": NUMBER},
        inputs=(ChangesRequest, OutputOptions),
    ),
    Tool(
        "history",
        "Changes of a memory, newest first, with values before and after.",
        writing_tools.history,
        HISTORY,
        {"id": NUMBER, "limit": NUMBER},
        inputs=(writing_tools.HistoryOf, OutputOptions),
        required=("id",),
    ),
    Tool(
        "restore",
        "Undelete a memory, take it back to after an event of its history, or undo a forget. despite_successor: also"
        " what was superseded.",
        writing_tools.restore,
        RESTORED,
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
        writing_tools.forget,
        FORGOTTEN,
        {"query": TEXT, "tag": LIST, "reason": TEXT, "token": TEXT},
        inputs=(SearchQuery, writing_tools.ForgetRequest),
        scope="write",
        destructive=True,
        idempotent=False,
    ),
    Tool(
        "views",
        "Saved searches, with counts.",
        tools.views,
        VIEWS,
        {},
        inputs=(OutputOptions,),
    ),
    Tool(
        "session_context",
        "What to know when work on a project starts.",
        tools.session_context,
        MESSAGE,
        {"project": LIST, "budget": {"type": "integer", "description": "tokens"}},
        inputs=(ContextRequest,),
    ),
    Tool(
        "curate",
        "Edit the vocabulary. create, edit: term or name, description, type, aliases, weight, memories. relate: term,"
        " how, other; of entities with fact, evidence (ids); remove ends it. rename: term, name. alias: add, remove."
        " move: category, parent. merge: sources, target. retag: memories by query or ids, first with dry_run, then"
        " with its token.",
        vocabulary_tools.curate,
        CURATED,
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
        RESULTS,
        {"query": {"type": "string", "description": 'words, "phrase", -not'}},
        required=("query",),
    ),
    Tool(
        "fetch",
        "A whole memory by its id from search.",
        chatgpt.fetch,
        DOCUMENT,
        {"id": TEXT},
        required=("id",),
    ),
)
TOOLS = (*CORE, *FURTHER)
TOOL = {tool.name: tool for tool in TOOLS}

# The tools that are listed. A tool that is not listed can still be called, unless another of the name is.
PROFILES: dict[str, tuple[Tool, ...]] = {"core": CORE, "all": TOOLS, "chatgpt": CHATGPT}

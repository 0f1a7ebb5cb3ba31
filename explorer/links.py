"""URLs of pages, and the results of a page for elsewhere. Queries in URLs are in canonical form."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse

from categories.kinds import TERM_KINDS
from explorer.page_query import PageQuery
from search.query import SearchQuery, import_query, plain
from search.result import SearchResult
from text.formatting import number


class Link(NamedTuple):
    """A tuple is cheap to make: a page has hundreds of links."""

    label: str
    url: str
    name: str = ""
    count: str = ""  # type: ignore[assignment]  # not the method of tuples
    current: bool = False


@lru_cache(maxsize=4_096)
def path_of(name: str, argument: str | int = "") -> str:
    """The path of a view. Cached, since a page has hundreds of links to few paths."""
    return reverse(name, args=[argument] if argument else [])


def _with_query(path: str, *querystrings: str) -> str:
    query = "&".join(part for part in querystrings if part)
    return f"{path}?{query}" if query else path


def explore_url(query: SearchQuery) -> str:
    return _with_query(path_of("explorer:explore"), query.querystring())


def values_url(key: str, query: SearchQuery, listing: dict[str, str] | None = None) -> str:
    """The page of all values of a facet under a query. `listing` are its parameters; empty ones are left out."""
    own = urlencode({k: v for k, v in (listing or {}).items() if v})
    return _with_query(path_of("explorer:facet_values", key), _values_query(query), own)


@lru_cache(maxsize=256)
def _values_query(query: SearchQuery) -> str:
    # The values do not depend on the order and page of the results.
    return query.with_(sort=None, page_size=25).querystring()


def compare_url(query: SearchQuery) -> str:
    """The page that compares two slices of what matches a query."""
    return _with_query(path_of("explorer:compare"), plain(query).querystring())


def arrange_url(query: SearchQuery) -> str:
    """The page on which the reader arranges the facets, which leads back to the results."""
    return _with_query(path_of("explorer:arrange"), urlencode({"next": explore_url(query)}))


def matrix_url(query: SearchQuery, request: dict[str, str] | None = None) -> str:
    """The table of counts under a query. `request` are its own parameters."""
    query = query.with_(sort=None, page_size=25)
    return _with_query(path_of("explorer:matrix"), query.querystring(), urlencode(request or {}))


def why_not_url(query: SearchQuery, memory_id: int | None = None) -> str:
    """The page that explains why a memory is or is not among the results; without an id, its form."""
    parameters = urlencode({"id": memory_id}) if memory_id is not None else ""
    return _with_query(path_of("explorer:why_not"), parameters, query.with_().querystring())


def text_url(query: SearchQuery) -> str:
    """The form that edits a query as a text."""
    return _with_query(path_of("explorer:text"), query.with_().querystring())


def retag_url(query: SearchQuery) -> str:
    """The page to retag all memories that match a query."""
    return _with_query(path_of("curation:retag"), query.with_(sort=None, page_size=25).querystring())


def duplicates_url(memory_ids: Iterable[int]) -> str:
    """The page that merges duplicates."""
    chosen = urlencode([("take", "chosen"), ("do", "merge"), *(("memory", memory_id) for memory_id in memory_ids)])
    return _with_query(path_of("curation:retag"), chosen)


def curate_url(kind: str, value: str) -> str:
    """The page that curates a term, for curators; empty for facets that are no vocabulary."""
    return _with_query(path_of("curation:log"), urlencode({"kind": kind, "name": value})) if kind in TERM_KINDS else ""


def removal_url(kind: str) -> str:
    """The page that removes several tags from all memories; empty for other facets."""
    return path_of("curation:remove_tags") if kind == "tag" else ""


def merge_url(kind: str) -> str:
    """The page that merges several terms or authors, for curators; empty for other facets."""
    if kind == "author":
        return path_of("curation:authors")
    return path_of("curation:merge", kind) if kind in TERM_KINDS else ""


def new_url(project: str = "") -> str:
    """The form for a new memory."""
    return _with_query(path_of("explorer:new"), urlencode({"project": project}) if project else "")


def memory_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The page of a memory. The query is for its link back to the results."""
    return _memory_path("explorer:memory", memory_id, query)


def similar_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The page of memories similar to one. The query is for its link back to the results."""
    return _memory_path("explorer:similar", memory_id, query)


def _memory_path(name: str, memory_id: int, query: SearchQuery | None) -> str:
    return _with_query(path_of(name, memory_id), _context(query) if query else "")


@lru_cache(maxsize=256)
def _context(query: SearchQuery) -> str:
    """The parameter of the way back. Cached, since a page of results has one for each hit."""
    context = query.querystring()
    return urlencode({"ctx": context}) if context else ""


def node_url(kind: str, node_id: int, value: str) -> str:
    """The page of an entity or a concept: by its filter value if a URL path can contain it, else by its id."""
    steps = value.split("/")
    # Browsers normalize empty and dot segments, and digits are read as an id.
    is_plain = len(value) <= 200 and value.isprintable() and value == value.strip() and not value.isdecimal()
    return path_of(f"graph:{kind}", value if is_plain and not {"", ".", ".."} & set(steps) else str(node_id))


def category_url(path: str) -> str:
    """The page of a category."""
    return path_of("explorer:category", path)


def relationship_url(relationship_id: int) -> str:
    """The page of a relationship and its evidence."""
    return path_of("graph:relationship", relationship_id)


def filter_url(key: str, value: str) -> str:
    """The explore page filtered by one value."""
    return explore_url(SearchQuery().only(key, value))


def import_url(name: str) -> str:
    """The explore page of all memories that an import brought, or a followed source, but for deleted ones."""
    return explore_url(import_query(name))


def session_url(session_id: int) -> str:
    """The page of what a session did."""
    return path_of("explorer:session", session_id)


# Cached, since the hits of a page repeat their types, projects, categories and tags.
@lru_cache(maxsize=4_096)
def narrowed_url(query: SearchQuery, key: str, value: str) -> str:
    """The results with one more selected value."""
    return explore_url(narrowed(query, key, value))


@lru_cache(maxsize=4_096)
def toggle_url(query: SearchQuery, key: str, value: str) -> str:
    """The results with a value ticked, or unticked where it was."""
    return explore_url(query.toggle(key, value))


def narrowed(query: SearchQuery, key: str, value: str) -> SearchQuery:
    """The query with one more selected value."""
    return query.with_() if value in query.selection(key).include else query.toggle(key, value)


# Labels of the formats of `transfer.formats.export_registry`.
FILES = {"jsonl": "JSON lines", "csv": "CSV", "markdown": "Markdown notes"}
# The states of memories that are not deleted.
_EXPORTED = ("active", "proposed", "superseded", "archived")
FILES_FOR_SYSTEMS = {
    "claude-mem": "claude-mem",
    "mcp-memory-service": "mcp-memory-service",
    "mcp-memory": "MCP memory server",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A search as it is called elsewhere."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class TakeOut:
    """The menu to take results elsewhere. There are no files of a total that is a lower bound."""

    label: str
    files: tuple[Link, ...]
    calls: tuple[Call, ...]
    for_systems: tuple[Link, ...] = ()
    """The files that other memory systems import."""


def build_take_out(query: PageQuery, result: SearchResult, site: str) -> TakeOut:
    """The menu of a page. `site` is the address of the server."""
    plain = query.search.with_(sort=None, page_size=25)
    # An export without any filter has every state; the page has these.
    matching = plain if plain.state or plain.not_state else plain.with_(state=plain.default_states)
    matching = matching.with_(facet_scope=SearchQuery().facet_scope, bucket=SearchQuery().bucket)
    exact = not (query.is_unified or result.at_least) and result.total
    address = f"{path_of('api:export')}?{matching.querystring()}"

    def links(labels: dict[str, str]) -> tuple[Link, ...]:
        return tuple(Link(label, f"{address}&format={name}") for name, label in labels.items() if exact)

    parameters = plain.querystring()
    search = f"{site}{path_of('api:api-root')}search{f'?{parameters}' if parameters else ''}"
    files = links(FILES)
    if exact and not (plain.state or plain.not_state):
        hidden = f"{path_of('api:export')}?{plain.with_(state=_EXPORTED).querystring()}&format=markdown"
        files = (*files, Link("Markdown notes with superseded and archived", hidden))
    return TakeOut(
        label=f"Export {number(result.total)}…" if exact else "Use elsewhere…",
        files=files,
        calls=(
            Call("With the API", f'curl -H "Authorization: Bearer $KEY" "{search}"'),
            Call("With an agent (MCP)", f"search {json.dumps(search_arguments(plain), ensure_ascii=False)}"),
        ),
        for_systems=links(FILES_FOR_SYSTEMS),
    )


def search_arguments(query: SearchQuery) -> dict[str, object]:
    """The arguments of the tool `search`."""
    applied = query.applied()
    return {"query": applied.pop("q"), **applied} if "q" in applied else applied

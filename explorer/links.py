"""URLs of pages. Queries in them are in canonical form."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from django.urls import reverse

from categories.kinds import TERM_KINDS
from search.query import SearchQuery


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    url: str
    name: str = ""
    count: str = ""
    current: bool = False


@lru_cache(maxsize=4_096)
def _path(name: str, argument: str | int = "") -> str:
    """Cached, since a page has hundreds of links to few paths."""
    return reverse(name, args=[argument] if argument else [])


def _with_query(path: str, *querystrings: str) -> str:
    query = "&".join(part for part in querystrings if part)
    return f"{path}?{query}" if query else path


def explore_url(query: SearchQuery) -> str:
    return _with_query(_path("explorer:explore"), query.querystring())


def values_url(key: str, query: SearchQuery, listing: dict[str, str] | None = None) -> str:
    """The page of all values of a facet under a query. `listing` are its parameters; empty ones are left out."""
    path = _path("explorer:facet_values", key)
    # The values do not depend on the order and page of the results.
    query = query.with_(sort=None, page_size=25)
    return _with_query(path, query.querystring(), urlencode({k: v for k, v in (listing or {}).items() if v}))


def why_not_url(query: SearchQuery, memory_id: int | None = None) -> str:
    """The page that explains why a memory is or is not among the results; without an id, its form."""
    parameters = urlencode({"id": memory_id}) if memory_id is not None else ""
    return _with_query(_path("explorer:why_not"), parameters, query.with_().querystring())


def retag_url(query: SearchQuery) -> str:
    """The page to retag all memories that match a query."""
    return _with_query(_path("curation:retag"), query.with_(sort=None, page_size=25).querystring())


def curate_url(kind: str, value: str) -> str:
    """The page that curates a term, for curators; empty for facets that are no vocabulary."""
    return _with_query(_path("curation:log"), urlencode({"kind": kind, "name": value})) if kind in TERM_KINDS else ""


def new_url(project: str = "") -> str:
    """The form for a new memory."""
    return _with_query(_path("explorer:new"), urlencode({"project": project}) if project else "")


def memory_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The page of a memory. The query is for its link back to the results."""
    return _memory_path("explorer:memory", memory_id, query)


def similar_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The page of memories similar to one. The query is for its link back to the results."""
    return _memory_path("explorer:similar", memory_id, query)


def _memory_path(name: str, memory_id: int, query: SearchQuery | None) -> str:
    context = query.querystring() if query else ""
    return _with_query(_path(name, memory_id), urlencode({"ctx": context}) if context else "")


def node_url(kind: str, node_id: int, value: str) -> str:
    """The page of an entity or a concept: by its filter value if a URL path can contain it, else by its id."""
    steps = value.split("/")
    # Browsers normalize empty and dot segments, and digits are read as an id.
    is_plain = len(value) <= 200 and value.isprintable() and value == value.strip() and not value.isdecimal()
    return _path(f"graph:{kind}", value if is_plain and not {"", ".", ".."} & set(steps) else str(node_id))


def category_url(path: str) -> str:
    """The page of a category."""
    return _path("explorer:category", path)


def relationship_url(relationship_id: int) -> str:
    """The page of a relationship and its evidence."""
    return _path("graph:relationship", relationship_id)


def filter_url(key: str, value: str) -> str:
    """The explore page filtered by one value."""
    return explore_url(SearchQuery().only(key, value))

"""Where the links of the pages lead. Every one of them is written from a SearchQuery, in its canonical form."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from django.urls import reverse

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
    """A page writes hundreds of links to the same few places."""
    return reverse(name, args=[argument] if argument else [])


def _address(path: str, *querystrings: str) -> str:
    query = "&".join(part for part in querystrings if part)
    return f"{path}?{query}" if query else path


def explore_url(query: SearchQuery) -> str:
    return _address(_path("explorer:explore"), query.querystring())


def values_url(key: str, query: SearchQuery, listing: dict[str, str] | None = None) -> str:
    """The page of all the values of a facet, counted under a query. What is not the default of the listing is named."""
    path = _path("explorer:facet_values", key)
    # The values are those of the whole answer, whatever page of it is shown and in which order.
    query = query.with_(sort=None, page_size=25)
    return _address(path, query.querystring(), urlencode({k: v for k, v in (listing or {}).items() if v}))


def why_not_url(query: SearchQuery, memory_id: int | None = None) -> str:
    """Why a memory is among the results of a query, or is not; without one, where that can be asked."""
    asked = urlencode({"id": memory_id}) if memory_id is not None else ""
    return _address(_path("explorer:why_not"), asked, query.with_().querystring())


def retag_url(query: SearchQuery) -> str:
    """Where all memories that match a query are retagged."""
    asked = query.with_(sort=None, page_size=25).querystring()
    return _address(_path("curation:retag"), urlencode({"query": asked}))


def memory_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The page of a memory. It is told the query, so that it can lead back to the results."""
    return _told("explorer:memory", memory_id, query)


def similar_url(memory_id: int, query: SearchQuery | None = None) -> str:
    """The memories like one, told the query as its own page is."""
    return _told("explorer:similar", memory_id, query)


def _told(name: str, memory_id: int, query: SearchQuery | None) -> str:
    context = query.querystring() if query else ""
    return _address(_path(name, memory_id), urlencode({"ctx": context}) if context else "")


def node_url(kind: str, node_id: int, value: str) -> str:
    """The page of an entity or a concept: by what filters call it, where an address can say that, else by its id."""
    steps = value.split("/")
    # Browsers take some steps out of an address, and a number is an id.
    is_plain = len(value) <= 200 and value.isprintable() and value == value.strip() and not value.isdecimal()
    return _path(f"graph:{kind}", value if is_plain and not {"", ".", ".."} & set(steps) else str(node_id))


def relationship_url(relationship_id: int) -> str:
    """The page of a relationship, with what bears it out."""
    return _path("graph:relationship", relationship_id)


def filter_url(key: str, value: str) -> str:
    """Everything that has one value."""
    return explore_url(SearchQuery().only(key, value))

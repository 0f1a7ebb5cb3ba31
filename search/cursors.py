"""Cursors: the place after a page of results, which a client sends back to continue from there.

In an order by date, title or recalls a cursor holds the place of the last result, which no change moves. By relevance
it names the last results of the page and their number, and they are looked for there. A cursor belongs to one query.
Whoever sends it sees only what their own search finds.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from access.viewer import Viewer
from search.engines.base import Place
from search.query import SearchQuery, Sort
from search.result import HitDetail, SearchResult, SearchWarning
from search.run import run
from web.errors import Refusal
from web.params import QueryError
from web.validation import Problem

# The last results of a page by relevance that a cursor names: if the last one is gone, the one before it is looked for.
_NAMED = 3
# How far from its place a result is looked for, in both directions.
_WINDOW = 500


class CursorExpiredError(Refusal):
    """None of the results that a cursor names is near its place any more."""

    status = 409
    code = "cursor_expired"
    message = "The results that this cursor continues have changed too much."
    suggestion = "Start again without the cursor, or with sort=newest, whose cursors last."


@dataclass(frozen=True, slots=True)
class Continued:
    """The query of the next page and, in an order by date, title or recalls, the place that it begins after.

    Its page is the number of pages read. A warning says if results by relevance moved since the cursor was made.
    """

    query: SearchQuery
    after: Place | None = None
    warnings: tuple[SearchWarning, ...] = ()


def cursor_after(result: SearchResult) -> str | None:
    """The cursor of the page after this one; None after the last."""
    if not result.has_more:
        return None
    if place := result.last:
        key = place.key.isoformat() if isinstance(place.key, datetime) else str(place.key)
        return _written(result.query, result.query.begin + result.page_size, (place.id, key))
    last = [hit.id for hit in result.hits[-_NAMED:]]
    return _written(result.query, result.query.begin + len(result.hits), last) if last else None


def continued(query: SearchQuery, cursor: str, viewer: Viewer) -> Continued:
    """The page that a cursor leads to. Raises QueryError for a cursor of another query, CursorExpiredError."""
    fingerprint, begin, last = _read(cursor)
    if query.begin:
        raise QueryError([Problem("cursor", "is given together with page or offset", "give one of them")])
    if fingerprint != _fingerprint(query):
        raise QueryError([Problem("cursor", "is of another query", "send the parameters that it was returned for")])
    if isinstance(last, tuple) == (query.order == Sort.RELEVANCE):
        raise _no_cursor()
    if isinstance(last, tuple):
        return Continued(query.starting_at(begin), _place(query.order, *last))
    if _ids(query, begin - 1, 1, viewer) == last[-1:]:
        return Continued(query.starting_at(begin))
    first = max(0, begin - _WINDOW)
    ids = _ids(query, first, 2 * _WINDOW, viewer)
    place = next((ids.index(one) for one in reversed(last) if one in ids), None)
    if place is None:
        raise CursorExpiredError
    moved = SearchWarning("Results have changed since the page before: one may be repeated or missing.", "cursor")
    return Continued(query.starting_at(first + place + 1), warnings=(moved,))


def _ids(query: SearchQuery, begin: int, count: int, viewer: Viewer) -> list[int]:
    page = query.replace(page=1, offset=begin, page_size=count)
    return [hit.id for hit in run(page, viewer, include_facets=False, detail=HitDetail.INDEX).hits]


def _fingerprint(query: SearchQuery) -> str:
    """A hash of everything that determines the results and their order."""
    asked = query.replace(page=1, offset=0, page_size=25, include_facets=False, sort=query.order)
    return hashlib.sha256(asked.querystring().encode()).hexdigest()[:12]


# --- the text of a cursor: the query, the number of results read, and the last of them -------------------------------

_Last = tuple[int, str] | list[int]
_CONTENT: TypeAdapter[tuple[str, int, _Last]] = TypeAdapter(tuple[str, int, _Last])
_ID = range(1, 2**63)
_RECALLS: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, lt=2**31)])


def _written(query: SearchQuery, begin: int, last: _Last) -> str:
    content = json.dumps([_fingerprint(query), begin, last], ensure_ascii=False)
    return urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[str, int, _Last]:
    try:
        content = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        fingerprint, begin, last = _CONTENT.validate_json(content, strict=True)
    except (ValueError, ValidationError):
        raise _no_cursor() from None
    if not (last and 0 < begin < 2**31 and len(last) <= _NAMED and last[0] in _ID):
        raise _no_cursor()
    return fingerprint, begin, last


def _place(order: Sort, memory_id: int, key: str) -> Place:
    """The place that a cursor holds."""
    try:
        if order == Sort.RECALLED:
            return Place(_RECALLS.validate_strings(key), memory_id)
        date = None if order == Sort.TITLE else datetime.fromisoformat(key)
    except ValueError:
        raise _no_cursor() from None
    if "\0" in key or (date and date.tzinfo is None):
        raise _no_cursor()
    return Place(date or key, memory_id)


def _no_cursor() -> QueryError:
    return QueryError([Problem("cursor", "is not a cursor", "send next_cursor of a reply as it is, or leave it out")])

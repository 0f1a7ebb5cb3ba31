"""Cursors: the place after a page of results, which a client sends back to continue from there.

A cursor names the last results of the page, so that results that are stored or deleted meanwhile neither repeat nor
skip others. It belongs to one query. Whoever sends it sees only what their own search finds.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from access.viewer import Viewer
from search.query import SearchQuery, Sort
from search.result import HitDetail, SearchResult, SearchWarning
from search.run import run
from web.errors import Refusal
from web.params import QueryError
from web.validation import Problem

# The last results of a page that a cursor names: if the last one is gone, the one before it shows the place.
_NAMED = 3
# How far from its place a result is looked for, in both directions.
_WINDOW = 500


class CursorExpiredError(Refusal):
    """None of the results that a cursor names is near its place any more."""

    status = 409
    code = "cursor_expired"
    message = "The results that this cursor continues have changed too much."
    suggestion = "Start again without the cursor."


@dataclass(frozen=True, slots=True)
class Continued:
    """The query of the next page, and whether results moved since the cursor was made."""

    query: SearchQuery
    warnings: tuple[SearchWarning, ...] = ()


def cursor_after(result: SearchResult) -> str | None:
    """The cursor of the page after this one; None after the last."""
    if not result.has_more or not result.hits:
        return None
    last = [hit.id for hit in result.hits[-_NAMED:]]
    content = json.dumps([_fingerprint(result.query), result.query.begin + len(result.hits), last])
    return urlsafe_b64encode(content.encode()).decode().rstrip("=")


def continued(query: SearchQuery, cursor: str, viewer: Viewer) -> Continued:
    """The page that a cursor leads to. Raises QueryError for a cursor of another query, CursorExpiredError."""
    fingerprint, begin, last = _read(cursor)
    if query.begin:
        raise QueryError([Problem("cursor", "is given together with page or offset", "give one of them")])
    if fingerprint != _fingerprint(query):
        raise QueryError([Problem("cursor", "is of another query", "send the parameters that it was returned for")])
    if _ids(query, begin - 1, 1, viewer) == last[-1:]:
        return Continued(query.starting_at(begin))
    first = max(0, begin - _WINDOW)
    ids = _ids(query, first, 2 * _WINDOW, viewer)
    place = next((ids.index(one) for one in reversed(last) if one in ids), None)
    if place is None:
        raise CursorExpiredError
    moved = SearchWarning("Results have changed since the page before: one may be repeated or missing.", "cursor")
    # In the other orders what is before a result stays before it.
    return Continued(query.starting_at(first + place + 1), (moved,) if query.order == Sort.RELEVANCE else ())


def _ids(query: SearchQuery, begin: int, count: int, viewer: Viewer) -> list[int]:
    page = query.replace(page=1, offset=begin, page_size=count)
    return [hit.id for hit in run(page, viewer, include_facets=False, detail=HitDetail.INDEX).hits]


def _fingerprint(query: SearchQuery) -> str:
    """A hash of everything that determines the results and their order."""
    asked = query.replace(page=1, offset=0, page_size=25, include_facets=False, sort=query.order)
    return hashlib.sha256(asked.querystring().encode()).hexdigest()[:12]


_CONTENT = TypeAdapter(tuple[str, int, list[int]])


def _read(cursor: str) -> tuple[str, int, list[int]]:
    try:
        content = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        fingerprint, begin, last = _CONTENT.validate_json(content, strict=True)
    except (ValueError, ValidationError):
        begin, last = 0, []
    if not (last and 0 < begin < 2**31 and len(last) <= _NAMED):
        raise QueryError(
            [Problem("cursor", "is not a cursor", "send next_cursor of a reply as it is, or leave it out")]
        )
    return fingerprint, begin, last

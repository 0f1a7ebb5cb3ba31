"""claude-mem's corpora as saved views: a corpus is a search with a name, so it is always current.

claude-mem loads a corpus into a session of a model that answers questions. There is no such model here: a question is
answered with the memories of the corpus that fit it best, which the asking model reads itself.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User

from access.models import AuditEvent
from access.sign_in import owner_to_sign_in
from access.viewer import Viewer, viewer_of_user
from agent_tools.cautions import caution_of
from agent_tools.claude_mem.arguments import read_arguments
from explorer.explore.timeline_api import index_row
from memories.recalls import record_list
from search.engines import snapshot, with_engine
from search.engines.base import Engine
from search.models import SavedView
from search.plan import resolve_query
from search.query import MAX_TEXT_LENGTH, FacetScope, Mode, SearchQuery, Sort
from search.result import Hit, HitDetail
from search.run import run
from search.saved_views import openable_views, query_of, saved_view_save
from web.errors import ApiError
from web.params import MAX_VALUE_LENGTH

# Views that were made through this port, so that it never changes those of people.
_PREFIX = "corpus-"
_NAME = re.compile(r"[\w.-]{1,90}")
_MOST = 100
_ANSWERS = 5
_PAGE, _LARGEST = 100, 500
_FILTERS = ("project", "types", "concepts", "files", "query", "dateStart", "dateEnd", "date_start", "date_end")


class CorpusNotFoundError(ApiError):
    """No corpus has this name. The message names those that exist."""

    def __init__(self, name: str, viewer: Viewer) -> None:
        known = ", ".join(_key_of(view) for view in _views(viewer)) or "none yet"
        super().__init__(404, "not_found", f"Corpus {name[:100]!a} not found.", f"There are: {known}.")


def build(values: Mapping[str, Any], viewer: Viewer) -> dict[str, Any]:
    """Save a corpus, or replace one of the same name that was built before."""
    name = str(values.get("name") or "").strip()
    if not _NAME.fullmatch(name):
        raise ApiError(400, "invalid_name", "name: needs letters, digits, dots and dashes only, at most 90.")
    pairs = [(key, _text(values[key])) for key in _FILTERS if values.get(key)]
    query = read_arguments(pairs, viewer).query
    owner = _owner()
    slug = _PREFIX + name.lower()
    stored = SavedView.objects.filter(owner=owner, slug=slug).first()
    if stored is None and len(_views(viewer)) >= _MOST:
        raise ApiError(409, "too_many", f"There are {_MOST} corpora already.", "Delete some of the saved views first.")
    view = stored or SavedView(owner=owner, slug=slug)
    view.name, view.description = name, _text(values.get("description") or "")[:MAX_VALUE_LENGTH]
    view.query = query.replace(page_size=SearchQuery().page_size).querystring()
    saved_view_save(view=view, viewer=viewer_of_user(owner, door=AuditEvent.Door.MCP))
    return described(view, viewer)


def listed(viewer: Viewer) -> list[dict[str, Any]]:
    """Every corpus: those that were built, and the saved views of the pages."""
    return [described(view, viewer) for view in _views(viewer)]


def described(view: SavedView, viewer: Viewer) -> dict[str, Any]:
    """A corpus with the numbers that it has now."""
    query = query_of(view)
    over_results = query.replace(facet_scope=FacetScope.RESULTS)
    result = run(over_results, viewer, include_facets=True, facet_limit=20, detail=HitDetail.NONE)
    types = next((facet.values for facet in result.facets or () if facet.spec.key == "type"), ())
    return {
        "name": _key_of(view),
        "description": view.description,
        "filter": query.applied(),
        "stats": {
            "observation_count": result.total,
            "date_range": {
                "earliest": _created(query, Sort.OLDEST, viewer),
                "latest": _created(query, Sort.NEWEST, viewer),
            },
            "type_breakdown": {value.value: value.count for value in types if value.count},
        },
        "session_id": None,
        "updated_at": view.updated_at.isoformat(),
        "note": "A saved search: always current, without a limit, and ready for query_corpus.",
    }


def primed(view: SavedView) -> dict[str, Any]:
    """The reply for a corpus that needs no preparation."""
    return {"session_id": None, "name": _key_of(view), "note": "Nothing has to be loaded: call query_corpus at once."}


def answered(view: SavedView, question: str, viewer: Viewer) -> dict[str, Any]:
    """The memories of a corpus that fit a question best, in place of a written answer."""
    if not question.strip():
        raise ApiError(400, "invalid_request", "question: is missing.")
    query = query_of(view)
    asked = query.with_(text=question.strip()[:MAX_TEXT_LENGTH], mode=Mode.HYBRID, sort=None, page_size=_PAGE)
    hits: list[Hit] = []
    for page in range(1, _LARGEST // _PAGE + 1):
        result = run(asked.replace(page=page), viewer, include_facets=False)
        # The question replaces the words of the corpus, so that only memories which these find are answers.
        members = _members(query, result.hits, viewer) if query.text else {hit.id for hit in result.hits}
        hits += [hit for hit in result.hits if hit.id in members]
        if len(hits) >= _ANSWERS or not result.has_more:
            break
    hits = hits[:_ANSWERS]
    record_list(viewer, [hit.id for hit in hits], asked.querystring())
    nothing = f"None of the {_LARGEST} memories that fit the question best is" if result.has_more else "No memory is"
    lines = [
        "No model answers here; read these memories of the corpus, best first, and answer yourself."
        " get_observations has them whole."
        if hits
        else f"{nothing} in the corpus and fits the question. Try other words.",
        *(warning.message for warning in result.warnings),
    ]
    for hit in hits:
        row = index_row(hit)
        lines.append(f"\n#{row.id} {row.created_at:%Y-%m-%d} {row.memory_type}: {row.title}\n{hit.snippet_text}")
    ids = [hit.id for hit in hits]
    lines = [*filter(None, [caution_of("\n".join(lines), set(ids))]), *lines]
    return {"answer": "\n".join(lines), "ids": ids, "session_id": None}


def corpus(name: str, viewer: Viewer) -> SavedView:
    """The corpus with a name. Raises CorpusNotFoundError."""
    wanted = name.strip().lower()
    found = {view.slug: view for view in _views(viewer)}
    view = found.get(_PREFIX + wanted) or found.get(wanted)
    if view is None:
        raise CorpusNotFoundError(name, viewer)
    return view


def _views(viewer: Viewer) -> list[SavedView]:
    """The views that the viewer may open, and the corpora of this port, which its projects narrow anyway."""
    found = {one.id: one.view for one in openable_views(viewer)}
    built = SavedView.objects.filter(owner=owner_to_sign_in(), slug__startswith=_PREFIX)
    found |= {view.pk: view for view in built[:_MOST]}
    return sorted(found.values(), key=lambda view: (view.name, view.pk))[:_MOST]


def _owner() -> User:
    owner = owner_to_sign_in()
    if owner is None:
        raise ApiError(409, "no_owner", "This database has no owner yet, who would own the corpus.")
    return owner


def _members(query: SearchQuery, hits: Sequence[Hit], viewer: Viewer) -> set[int]:
    """The ids of the hits that are in a corpus."""
    ids = [hit.id for hit in hits]

    def among(engine: Engine) -> set[int]:
        with snapshot():
            return engine.filter_ids(resolve_query(engine, query, viewer, datetime.now(UTC)).plan, ids)

    return with_engine(among, viewer)


def _created(query: SearchQuery, order: Sort, viewer: Viewer) -> str | None:
    one = query.with_(sort=order, page_size=1)
    hits = run(one, viewer, include_facets=False, detail=HitDetail.INDEX).hits
    return hits[0].created_at.isoformat() if hits else None


def _key_of(view: SavedView) -> str:
    return view.slug.removeprefix(_PREFIX)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

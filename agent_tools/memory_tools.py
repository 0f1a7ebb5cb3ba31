"""The tools beyond the three layers: similar memories, saved views, the context of a session."""

import json
from typing import Annotated, Any

from pydantic import Field

from access.viewer import Viewer
from agent_tools.calls import Arguments, pairs_of_arguments, read_model, split_output_options
from agent_tools.rendering import CellValue, OutputOptions, render_rows
from agent_tools.rows import index_cells, warning_lines
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import suggestions_matching
from explorer.explore.timeline_api import cut_title
from explorer.links import search_arguments
from explorer.sessions.context import ContextRequest
from explorer.sessions.context import session_context as context_of
from memories.queries import visible_to
from memories.records import MemoryId
from search.query import SearchQuery
from search.saved_views import count_views, openable_views
from search.similar import MAX_SIMILAR_TEXT, SimilarRequest, similar_memories, similar_to_text
from text.formatting import number
from web.params import Params, QueryError, Text
from web.validation import Problem

_VIEWS = 100


class SimilarTo(Params):
    """The memory or the text to compare with; without either, the pairs that are proposed as duplicates."""

    id: MemoryId | None = None
    text: Annotated[Text, Field(max_length=MAX_SIMILAR_TEXT)] = ""


def similar(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    own, others = SimilarTo.split(pairs_of_arguments(rest))
    asked = SimilarTo.from_pairs(own)
    if asked.id is not None and asked.text:
        raise QueryError([Problem("text", "is given together with id", "give one of the two")])
    request, query = SimilarRequest.with_query(others)
    if request.same_project and asked.id is None:
        raise QueryError([Problem("same_project", "goes with the id of a memory", "give project=… instead")])
    head: dict[str, Any] = {}
    if asked.id is not None or asked.text.strip():
        if asked.id is not None:
            found = similar_memories(asked.id, request, query, viewer)
        else:
            found = similar_to_text(asked.text, request, query, viewer)
        head |= {"reason": found.reason} if found.reason else {}
        head |= warning_lines(found.warnings)
        rows: list[dict[str, CellValue]] = [
            {**index_cells(one.hit), "similarity": round(one.similarity, 3), "duplicate": one.is_duplicate}
            for one in found.memories
        ]
    else:
        rows = _proposed(query, request.limit, viewer)
        head["pairs"] = "proposed as duplicates and not decided yet"
    return render_rows(head, "memories", rows, options, lambda n: "raise it, or lower limit")


def _proposed(query: SearchQuery, limit: int, viewer: Viewer) -> list[dict[str, CellValue]]:
    """The pairs of memories that are proposed as duplicates. Raises QueryError for other filters than a project."""
    others = dict.fromkeys(key for key, _ in query.parameters() if key != "project")
    if others or len(query.project) > 1:
        wrong = next(iter(others), "project")
        raise QueryError(
            [Problem(wrong, "does not apply to proposed pairs", "give one project at most, or id or text")]
        )
    review = ReviewQuery(kind=Kind.MEMORY_DUPLICATE.value, project=next(iter(query.project), ""))
    pairs = list(suggestions_matching(viewer, review)[:limit])
    ids = {pk for pair in pairs for pk in (pair.subject_id, pair.target_id) if pk}
    titles = dict(visible_to(viewer).filter(pk__in=ids).values_list("id", "title"))
    return [
        {
            "id": pair.subject_id,
            "title": cut_title(titles[pair.subject_id]),
            "duplicate_of": pair.target_id,
            "its_title": cut_title(titles[pair.target_id]),
            "confidence": round(pair.confidence, 2),
        }
        for pair in pairs
        if pair.subject_id in titles and pair.target_id in titles
    ]


def views(arguments: Arguments, viewer: Viewer) -> str:
    """The saved views, each with what it counts and the arguments with which `search` finds the same."""
    options = read_model(OutputOptions, arguments)
    everything = openable_views(viewer)
    found = everything[:_VIEWS]
    counts = count_views(found, viewer)
    rows: list[dict[str, CellValue]] = []
    for one in found:
        count = counts.get(one.id)
        rows.append(
            {
                "name": one.view.name,
                "description": one.view.description,
                "memories": number(count.total, at_least=count.at_least) if count else "not counted in time",
                "search": json.dumps(search_arguments(one.query), ensure_ascii=False),
            }
        )
    return render_rows({"total": len(everything)}, "views", rows, options, lambda n: "raise it")


def session_context(arguments: Arguments, viewer: Viewer) -> str:
    asked = ContextRequest.from_pairs(pairs_of_arguments(arguments))
    return context_of(asked, viewer).text

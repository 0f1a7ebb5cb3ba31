"""The tools for memories: each builds a query, runs it, and renders flat rows. Independent of transports."""

import json
from typing import Annotated, Any

from pydantic import Field

from access.viewer import Viewer
from agent_tools.calls import (
    Arguments,
    items_of,
    pairs_of_arguments,
    query_of,
    read_model,
    split_facets,
    split_output_options,
    wrong_argument,
)
from agent_tools.rendering import (
    DATES,
    CellValue,
    OutputOptions,
    ids_text,
    index_cells,
    index_rows,
    known_line,
    next_page,
    page_head,
    render_rows,
    understood_lines,
    unified_head,
    unified_row,
    warning_lines,
    whole_memory,
)
from curation.suggestions.queries import duplicate_pairs
from explorer.links import search_arguments
from explorer.memory.bulk_api import Batch, batch_of
from explorer.sessions.context import ContextRequest
from explorer.sessions.context import session_context as context_of
from memories.recalls import record_list
from memories.records import MemoryId
from search.facets import FACET
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from search.saved_views import count_views, openable_views
from search.similar import MAX_SIMILAR_TEXT, SimilarRequest, similar_memories, similar_to_text
from search.timeline import TimelineRequest, timeline
from search.unified.service import unified
from text.formatting import number
from text.highlight import cut_title
from web.params import Params, Text

INDEX_SIZE = 20
# The number of values listed for a facet; a note tells if there are more.
FACET_VALUES = 10
COUNTED_VALUES = 50
# The facets of `retrieve_memory`, as its specification names them.
_COUNTED_FACETS = ("type", "tag", DATES)


def search(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    facets, rest = split_facets(rest, (*FACET, DATES))
    query = query_of(rest, INDEX_SIZE)
    if query.is_unified:
        found = unified(query, viewer, facet_limit=FACET_VALUES)
        record_list(viewer, [hit.id for hit in found.answer.hits], query.querystring())
        head = page_head(found.answer, facets) | unified_head(found) | understood_lines(query, viewer)
        return render_rows(head, "results", [unified_row(hit) for hit in found.hits], options, next_page(query))
    result = run(query, viewer, facet_limit=FACET_VALUES, detail=HitDetail.INDEX)
    record_list(viewer, [hit.id for hit in result.hits], query.querystring())
    head = known_line(result, viewer) | page_head(result, facets) | understood_lines(query, viewer)
    return render_rows(head, "memories", index_rows(result.hits, query.order), options, next_page(query))


def timeline_of(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    request, query = TimelineRequest.with_query(pairs_of_arguments(rest))
    found = timeline(request, query, viewer)
    head: dict[str, Any] = {"earlier": found.earlier, "later": found.later}
    head |= warning_lines(found.warnings)
    hits = (*found.before, *filter(None, (found.anchor,)), *found.after)
    rows: list[dict[str, Any]] = [{"at": at, **row} for at, row in enumerate(index_rows(hits), -len(found.before))]
    # The nearest first, so that truncation drops the furthest.
    rows.sort(key=lambda row: (abs(row["at"]), row["at"]))
    return render_rows(
        head, "memories", rows, options, lambda n: "raise it, or ask for less depth", lambda row: row["at"]
    )


def get_observations(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    if "ids" in rest:
        rest["ids"] = list(items_of(rest["ids"]))
    batch = read_model(Batch, rest)
    found, missing, left_out = batch_of(batch, viewer)
    head: dict[str, Any] = {"total": len(found)}
    if missing:
        head["missing"] = (
            f"{ids_text(missing)}: no such memory that you can see{' in the project' * bool(batch.project)}"
        )
    if left_out:
        head["past_limit"] = ids_text(left_out)
    rows = [whole_memory(detail) for detail in found]
    ids = [detail.memory.pk for detail in found]
    return render_rows(head, "memories", rows, options, lambda n: f"then ask for ids={ids[n:]}")


def retrieve_memory(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    facets, rest = split_facets(rest, _COUNTED_FACETS)
    query = query_of(rest, 10)
    if query.is_unified:
        wrong = "unified finds more than memories, and retrieve_memory returns memories alone"
        raise wrong_argument("mode", wrong, 'call search(mode="unified", …), or leave mode out here')
    result = run(query, viewer, facet_limit=COUNTED_VALUES, detail=HitDetail.INDEX)
    found, _, _ = batch_of(Batch(ids=[hit.id for hit in result.hits]), viewer) if result.hits else ([], [], [])
    rows = [whole_memory(detail) for detail in found]
    head = known_line(result, viewer) | page_head(result, facets)
    return render_rows(head, "memories", rows, options, next_page(query))


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
        raise wrong_argument("text", "is given together with id", "give one of the two")
    request, query = SimilarRequest.with_query(others)
    if request.same_project and asked.id is None:
        raise wrong_argument("same_project", "goes with the id of a memory", "give project=… instead")
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
        raise wrong_argument(wrong, "does not apply to proposed pairs", "give one project at most, or id or text")
    return [
        {
            "id": pair.subject_id,
            "title": cut_title(title),
            "duplicate_of": pair.target_id,
            "its_title": cut_title(other),
            "confidence": round(pair.confidence, 2),
        }
        for pair, title, other in duplicate_pairs(viewer, next(iter(query.project), ""), limit)
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

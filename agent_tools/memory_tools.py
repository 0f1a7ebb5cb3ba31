"""The tools beyond the three layers: similar memories, saved views, changes and histories, the context of a session."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from access.viewer import Viewer
from agent_tools.rendering import CellValue, OutputOptions, encode, render_rows
from agent_tools.tools import (
    Arguments,
    VersionRef,
    changes_text,
    filters_line,
    hidden_line,
    index_cells,
    pairs_of_arguments,
    read_model,
    split_output_options,
    warning_lines,
    written,
)
from curation.schemas import Forget
from curation.services import PlanChangedError, curation_apply, curation_plan, curation_undo
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import suggestions_matching
from explorer.explore.take_out import search_arguments
from explorer.explore.timeline_api import cut_title
from explorer.history.api import ChangesRequest, HistoryRequest
from explorer.listings import visible_project_ids
from explorer.sessions.context import ContextRequest
from explorer.sessions.context import session_context as context_of
from memories.changes import changes as feed
from memories.history import maker_of, memory_history
from memories.queries import visible_to
from memories.records import MemoryId
from memories.refusals import MemoryNotFoundError
from memories.services import memory_restore, memory_version_restore
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
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


class ForgetRequest(Params):
    """The reason of a deletion, and the token of its preview; without a token it is a preview."""

    reason: Annotated[Text, Field(max_length=1_000)] = ""
    token: Annotated[Text, Field(max_length=100)] = ""


class PreviewOutdatedError(PlanChangedError):
    """The token is not that of what the filters find now."""

    message = "The filters now find other memories than in the preview of this token; nothing was deleted."
    suggestion = "Call forget again with the same filters and without token, and show the user the new preview."


def forget(arguments: Arguments, viewer: Viewer) -> str:
    own, others = ForgetRequest.split(pairs_of_arguments(arguments))
    asked = ForgetRequest.from_pairs(own)
    query = SearchQuery.from_pairs(others)
    operation = read_model(
        Forget, {"query": query.querystring(), "reason": asked.reason, "token": asked.token, "dry_run": not asked.token}
    )
    if asked.token:
        try:
            applied = curation_apply(operation=operation, viewer=viewer)
        except PlanChangedError as error:
            raise PreviewOutdatedError(error.plan) from error
        done = {"done": applied.plan.title, "memories": applied.plan.memories}
        return encode({**done, "undo": f"restore(forgotten={applied.curation.pk})"}, "toon")
    plan = curation_plan(operation=operation, viewer=viewer)
    reply: dict[str, Any] = {"done": "nothing yet", "would_delete": plan.memories, **filters_line(query)}
    if "read" in viewer.scopes:
        reply |= hidden_line(run(query, viewer, include_facets=False, detail=HitDetail.NONE))
    if plan.refusals:
        return encode({**reply, "refused": "; ".join(plan.refusals)}, "toon")
    reply["examples"] = [f"#{one.id} {cut_title(one.title)}" for one in plan.examples]
    reply["next"] = f"show this to the user; to delete, call again with token={plan.token}"
    return encode(reply, "toon")


def session_context(arguments: Arguments, viewer: Viewer) -> str:
    asked = ContextRequest.from_pairs(pairs_of_arguments(arguments))
    return context_of(asked, viewer).text


# --- changes -----------------------------------------------------------------------------------------------------


def changes(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    asked = ChangesRequest.from_pairs(pairs_of_arguments(rest))
    found = feed(
        viewer,
        after=asked.after,
        since=asked.begin(datetime.now(UTC)),
        project_ids=visible_project_ids(asked.project, viewer) if asked.project else None,
        kinds=asked.kind,
        limit=asked.limit,
    )
    rows: list[dict[str, CellValue]] = [
        {
            "at": f"{change.at:%Y-%m-%d %H:%M}",
            "kind": change.kind,
            "id": change.memory_id,
            "title": cut_title(change.title or ""),
            "project": change.project,
            "by": maker_of(change.event),
            "through": change.event.door,
            "reason": change.event.note,
        }
        for change in found.changes
    ]
    head = {"cursor": found.cursor, "has_more": found.has_more}
    return render_rows(head, "changes", rows, options, lambda n: f"then ask with limit={max(n, 1)}")


class HistoryOf(HistoryRequest):
    """The memory whose history is wanted, and which part of it."""

    id: MemoryId | None = None
    limit: int = Field(10, ge=1, le=200)

    def missing(self) -> Iterator[Problem]:
        if self.id is None:
            yield Problem("id", "is missing", "write the id of a memory")


def history(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    asked = HistoryOf.from_pairs(pairs_of_arguments(rest))
    memory_id = asked.id or 0
    found = memory_history(viewer, memory_id, before=asked.before, limit=asked.limit)
    if found is None:
        raise MemoryNotFoundError(memory_id)
    rows: list[dict[str, CellValue]] = [
        {
            "event": event.id,
            "at": f"{event.at:%Y-%m-%d %H:%M}",
            "kind": event.kind,
            "by": event.by,
            "through": event.door,
            "reason": event.reason,
            "changes": changes_text(event),
        }
        for event in found.events
    ]
    head = {"id": memory_id} | ({"next": f"before={found.next}"} if found.next else {})
    return render_rows(head, "events", rows, options, lambda n: f"then ask with limit={max(n, 1)}")


class RestoreRequest(VersionRef):
    """A memory, and the event of its history after which it was as it should be again; none to undo a deletion.

    Or a deletion of many memories, by its id.
    """

    id: MemoryId | None = None
    event: Annotated[str, Field(max_length=100)] = ""
    despite_successor: bool = False
    forgotten: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    reason: Annotated[str, Field(max_length=1_000)] = ""


def restore(arguments: Arguments, viewer: Viewer) -> str:
    named_event = {"event": str(arguments["event"])} if "event" in arguments else {}
    asked = read_model(RestoreRequest, arguments | named_event)
    if asked.forgotten and (asked.id or asked.event):
        raise QueryError([Problem("forgotten", "is given together with a memory", "give one of the two")])
    if asked.forgotten:
        undone = curation_undo(curation_id=asked.forgotten, viewer=viewer)
        return encode({"done": f"undone: {undone.title}", "memories": undone.memories}, "toon")
    if asked.id is None:
        raise QueryError([Problem("id", "is missing", "write the id of a memory, or forgotten=ID of a deletion")])
    named: dict[str, Any] = {
        "memory_id": asked.id,
        "viewer": viewer,
        "reason": asked.reason,
        "if_version": asked.if_match,
        "despite_successor": asked.despite_successor,
    }
    if asked.event:
        memory = memory_version_restore(event_id=asked.event, **named)
        return written(memory, f"restored as after event {asked.event}")
    return written(memory_restore(**named), "restored")

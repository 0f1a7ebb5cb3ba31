"""The tools that go back and forth in time: changes, histories, restoring, and deleting with a preview."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from access.viewer import Viewer
from agent_tools.calls import Arguments, pairs_of_arguments, read_model, split_output_options
from agent_tools.rendering import CellValue, encode, render_rows
from agent_tools.rows import changes_text, filters_line, hidden_line, written
from agent_tools.tools import VersionRef
from curation.schemas import Forget
from curation.services import PlanChangedError, curation_apply, curation_plan, curation_undo
from explorer.explore.timeline_api import cut_title
from explorer.history.api import ChangesRequest, HistoryRequest
from explorer.listings import visible_project_ids
from memories.changes import changes as feed
from memories.history import maker_of, memory_history
from memories.records import MemoryId
from memories.refusals import MemoryNotFoundError
from memories.services import memory_restore, memory_version_restore
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from web.params import Params, QueryError, Text
from web.validation import Problem


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

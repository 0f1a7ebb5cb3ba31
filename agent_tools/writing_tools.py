"""The tools that change memories, and those for what was changed: the feed, histories, restoring, and forgetting."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from access.viewer import Viewer
from agent_tools.calls import Arguments, pairs_of_arguments, read_model, split_output_options, wrong_argument
from agent_tools.rendering import (
    CellValue,
    call_text,
    changes_text,
    encode,
    filters_line,
    hidden_line,
    last_event,
    render_rows,
    written,
)
from curation.schemas import Forget
from curation.services import PlanChangedError, curation_apply, curation_plan, curation_undo
from explorer.history.api import ChangesRequest, HistoryRequest, record_changes
from explorer.listings import visible_project_ids
from memories.changes import changes as feed
from memories.history import maker_of, memory_history, rivals_of, superseded_by
from memories.models import Memory, Project
from memories.recalls import record_opening
from memories.records import SUPERSEDES_REL, MemoryChanges, MemoryId, Slug100, StrictMemoryRecord
from memories.refusals import MemoryNotFoundError
from memories.services import (
    memory_create,
    memory_link,
    memory_restore,
    memory_update,
    memory_upsert,
    memory_version_restore,
)
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from search.similar import near_duplicates
from text.highlight import cut_title
from web.errors import close_to
from web.params import Params, Text

_NAMED_SHOWN = 5


def store_memory(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    version = read_model(VersionRef, {"if_match": given.pop("if_match", "")}).if_match
    record = read_model(StrictMemoryRecord, given)
    if record.id:
        memory, is_new = memory_upsert(record=record, viewer=viewer, if_version=version)
    elif version:
        raise wrong_argument("if_match", "goes with external_id", "or call update_memory(id=…, if_match=…)")
    else:
        memory, is_new = memory_create(record=record, viewer=viewer), True
    near = near_duplicates(memory, viewer)
    alike = [
        f"#{one.id} {cut_title(one.title)} ({one.project}, {one.state}): {one.similarity:.2f} by {one.by}"
        for one in near.memories
    ]
    more: dict[str, Any] = {"near_duplicates": alike} if alike else {}
    if near.reason:
        more["near_duplicates_note"] = f"not looked for by meaning: {near.reason}"
    done = "stored" if is_new else "replaced the memory with this external_id"
    return written(memory, done, **_first_of_project(memory, viewer), **_supersedes(memory, viewer), **more)


def _first_of_project(memory: Memory, viewer: Viewer) -> dict[str, str]:
    """A note if the project has no other memory: its name may be a mistake, since storing makes the project."""
    if Memory.objects.filter(project_id=memory.project_id).exclude(pk=memory.pk).exists():
        return {}
    others = Project.objects.exclude(pk=memory.project_id)
    if viewer.project_ids is not None:
        others = others.filter(pk__in=viewer.project_ids)
    slug = memory.project.slug
    near = close_to(slug, others.values_list("slug", flat=True)) if "read" in viewer.scopes else ()
    meant = f"; if you meant {' or '.join(near)}, store it there and delete this one" if near else ""
    return {"project_note": f"this is the first memory of {slug}{meant}"}


def _supersedes(memory: Memory, viewer: Viewer) -> dict[str, list[str]]:
    """The memories that it replaces, with what replaced them before."""
    replaced = superseded_by(memory.pk, viewer)
    lines = [
        f"#{one.memory.id} {cut_title(one.memory.title)}"
        + (f" (until now superseded by #{one.instead_of})" if one.instead_of else "")
        for one in replaced[:_NAMED_SHOWN]
    ]
    if len(replaced) > _NAMED_SHOWN:
        lines.append(f"and {len(replaced) - _NAMED_SHOWN} more")
    rivals = [
        f"#{one.id} {cut_title(one.title)} superseded the same memory and is still {one.state}; if this replaces it"
        f" too: {call_text('relate', id=memory.pk, target=one.id, rel=SUPERSEDES_REL)}"
        for one in rivals_of(replaced, viewer)
    ]
    return ({"supersedes": lines} if lines else {}) | ({"also_active": rivals} if rivals else {})


def update_memory(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    named = read_model(MemoryRef, {key: given.pop(key) for key in MemoryRef.model_fields if key in given})
    if not given:
        raise wrong_argument("", "nothing to change is given", "name the fields to change, such as tags or content")
    changes = read_model(MemoryChanges, given)
    before = last_event(named.id, viewer)
    memory = memory_update(
        memory_id=named.id, changes=changes, viewer=viewer, reason=named.reason, if_version=named.if_match
    )
    last = last_event(named.id, viewer)
    older = _supersedes(memory, viewer) if changes.supersedes or changes.links else {}
    if last is None or before is None:
        return written(memory, "updated")
    return written(memory, "updated", changed=changes_text(last) if last.id != before.id else "nothing", **older)


def relate(arguments: Arguments, viewer: Viewer) -> str:
    link = read_model(MemoryLinkRequest, arguments)
    memory = memory_link(memory_id=link.id, target_id=link.target, rel=link.rel, viewer=viewer)
    return written(
        memory, f"{link.rel} #{link.target}", **_supersedes(memory, viewer) if link.rel == SUPERSEDES_REL else {}
    )


class VersionRef(BaseModel):
    """The version that a memory must have to be changed; any if it is empty."""

    if_match: Annotated[str, Field(max_length=100)] = ""


class MemoryRef(VersionRef):
    """The memory to change, and the reason."""

    id: MemoryId
    reason: Annotated[str, Field(max_length=1_000)] = ""


class MemoryLinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: MemoryId
    target: MemoryId
    rel: Slug100 = "relates-to"


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
    record_changes(viewer, asked, found)
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


def history(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    asked = HistoryOf.from_pairs(pairs_of_arguments(rest))
    if asked.id is None:
        raise wrong_argument("id", "is missing", "write the id of a memory")
    memory_id = asked.id
    found = memory_history(viewer, memory_id, before=asked.before, limit=asked.limit)
    if found is None:
        raise MemoryNotFoundError(memory_id)
    record_opening(viewer, [memory_id], recalls=False)
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
        raise wrong_argument("forgotten", "is given together with a memory", "give one of the two")
    if asked.forgotten:
        undone = curation_undo(curation_id=asked.forgotten, viewer=viewer)
        return encode({"done": f"undone: {undone.title}", "memories": undone.memories}, "toon")
    if asked.id is None:
        raise wrong_argument("id", "is missing", "write the id of a memory, or forgotten=ID of a deletion")
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

"""The tools of agents: each builds a query, runs it, and renders flat rows. Independent of transports."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from access.viewer import Viewer
from agent_tools.calls import (
    DATES,
    Arguments,
    items_of,
    pairs_of_arguments,
    query_of,
    read_model,
    split_facets,
    split_output_options,
)
from agent_tools.rendering import render_rows, unified_head, unified_row
from agent_tools.rows import (
    call_text,
    changes_text,
    ids_text,
    index_rows,
    known_line,
    last_event,
    next_page,
    page_head,
    warning_lines,
    whole_memory,
    written,
)
from explorer.explore.timeline_api import cut_title
from explorer.memory.batch_api import Batch, batch_of
from memories.history import rivals_of, superseded_by
from memories.models import Memory, Project
from memories.recalls import recalled
from memories.records import SUPERSEDES_REL, MemoryChanges, MemoryId, Slug100, StrictMemoryRecord
from memories.services import memory_create, memory_link, memory_update, memory_upsert
from search.facets import FACET
from search.result import HitDetail
from search.run import run
from search.similar import near_duplicates
from search.timeline import TimelineRequest, timeline
from search.unified.service import unified
from web.errors import close_to
from web.params import QueryError
from web.validation import Problem

INDEX_SIZE = 20
# The number of values listed for a facet; a note tells if there are more.
FACET_VALUES = 10
COUNTED_VALUES = 50
_NAMED_SHOWN = 5
# The facets of `retrieve_memory`, as its specification names them.
_COUNTED_FACETS = ("type", "tag", DATES)


# --- tools -------------------------------------------------------------------------------------------------------


def search(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    facets, rest = split_facets(rest, (*FACET, DATES))
    query = query_of(rest, INDEX_SIZE)
    if query.is_unified:
        found = unified(query, viewer, facet_limit=FACET_VALUES)
        recalled(viewer, [hit.id for hit in found.answer.hits])
        head = page_head(found.answer, facets) | unified_head(found)
        return render_rows(head, "results", [unified_row(hit) for hit in found.hits], options, next_page(query))
    result = run(query, viewer, facet_limit=FACET_VALUES, detail=HitDetail.INDEX)
    recalled(viewer, [hit.id for hit in result.hits])
    head = known_line(result, viewer) | page_head(result, facets)
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
        raise QueryError([Problem("mode", wrong, 'call search(mode="unified", …), or leave mode out here')])
    result = run(query, viewer, facet_limit=COUNTED_VALUES, detail=HitDetail.INDEX)
    found, _, _ = batch_of(Batch(ids=[hit.id for hit in result.hits]), viewer) if result.hits else ([], [], [])
    rows = [whole_memory(detail) for detail in found]
    head = known_line(result, viewer) | page_head(result, facets)
    return render_rows(head, "memories", rows, options, next_page(query))


def store_memory(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    version = read_model(VersionRef, {"if_match": given.pop("if_match", "")}).if_match
    record = read_model(StrictMemoryRecord, given)
    if record.id:
        memory, is_new = memory_upsert(record=record, viewer=viewer, if_version=version)
    elif version:
        raise QueryError([Problem("if_match", "goes with external_id", "or call update_memory(id=…, if_match=…)")])
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
        raise QueryError(
            [Problem("", "nothing to change is given", "name the fields to change, such as tags or content")]
        )
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


# --- requests that change one memory --------------------------------------------------------------------------------


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

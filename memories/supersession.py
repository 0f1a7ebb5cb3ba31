"""Supersession: which memory replaced which. It is stored as the successor; the state follows unless it is given.

A memory that is changed is locked as it is stored, and stored again with an event.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone

from access.viewer import Viewer
from categories.services import vocabulary_lock_shared
from memories.link_targets import targets_resolve
from memories.models import Memory, Project
from memories.queries import memory_version, visible_to
from memories.records import SUPERSEDED_BY_REL, SUPERSEDES_REL, MemoryChanges, MemoryRecord
from memories.refusals import (
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    SuccessorError,
    VersionConflictError,
)
from memories.snapshot import MemorySnapshot
from memories.storage import (
    changed_fields,
    corpus_bump,
    links_settle,
    memory_audit,
    snapshots_read,
    snapshots_update,
)
from web.secrets import mask_note
from web.sql import fetch, fetch_column

# As the version of a change: any, as long as there is one.
ANY_VERSION = "*"
# Names of a memory in links, and its own links.
_NAMING = frozenset({"title", "external_id", "source_uri", "project_id", "links", "raw"})


def lock_writable(memory_id: int, viewer: Viewer, if_version: str = "") -> MemorySnapshot:
    """The memory as stored, locked until the end of the transaction.

    Raises VersionConflictError unless it is the version `if_version`, if one is given.
    """
    vocabulary_lock_shared()
    if not visible_to(viewer).filter(pk=memory_id).exists():
        raise MemoryNotFoundError(memory_id)
    # A lock by id: the only form that works on a distributed table.
    locked = Memory.objects.select_for_update().only("project_id").filter(pk=memory_id).first()
    if locked is None:
        raise MemoryNotFoundError(memory_id)
    if not viewer.may_write(locked.project_id):
        raise NotAllowedError(f"You can read #{memory_id} but not change it.")
    if if_version not in {"", ANY_VERSION}:
        version = memory_version(Memory.objects.defer("content", "terms", "raw").get(pk=memory_id))
        if version != if_version:
            raise VersionConflictError(memory_id, version)
    return snapshots_read([memory_id])[memory_id]


def store_change(before: MemorySnapshot, after: MemorySnapshot, verb: str, viewer: Viewer, note: str) -> Memory:
    """Store a change and its event; without a difference there is no event."""
    reason, note = note, mask_note(note)
    if after.state_reason == reason:
        after = replace(after, state_reason=note)
    if stored := snapshots_update([(before, after)]):
        after = stored[0][1]
        if not _NAMING.isdisjoint(changed_fields(before, after)) or before.state == Memory.State.DELETED:
            links_settle([after], viewer)
        memory_audit(viewer, verb, before, after, note=note)
        corpus_bump()
    return Memory.objects.get(pk=before.id)


_Record = TypeVar("_Record", bound=MemoryRecord)


def take_supersession(record: _Record, project_id: int, viewer: Viewer) -> tuple[_Record, list[int]]:
    """The record without the memories that it supersedes, and their ids.

    Links `supersedes` and `superseded-by` to memories of the project mean the same as the fields of these names.
    """
    stated = [link for link in record.links if link.rel in (SUPERSEDES_REL, SUPERSEDED_BY_REL)]
    if not (stated or record.supersedes or record.superseded_by):
        return record, []
    known = _named_memories([*record.supersedes, record.superseded_by, *(link.target for link in stated)], project_id)
    if viewer.project_ids is not None and project_id not in viewer.project_ids:
        known = {}
    if missing := [name for name in record.supersedes if name not in known]:
        raise _not_of_project("supersedes", missing[0])
    meant = [link for link in stated if link.target in known]
    older = [known[name] for name in record.supersedes]
    older += [known[link.target] for link in meant if link.rel == SUPERSEDES_REL]
    values: dict[str, Any] = {}
    if meant:
        values["links"] = tuple(link for link in record.links if link not in meant)
    successors = [link.target for link in meant if link.rel == SUPERSEDED_BY_REL]
    if successor := record.superseded_by or next(iter(successors), ""):
        # A record that is imported may name its successor before that is stored.
        values["superseded_by"] = f"#{known[successor]}" if successor in known else successor
    return record.model_copy(update={**values, "supersedes": ()}), list(dict.fromkeys(older))


def _named_memories(names: Sequence[str], project_id: int) -> dict[str, int]:
    """Memories of a project by `external_id`, else by id, with or without `#`."""
    spelled = {name: [name, *([f"#{name}"] if name.isascii() and name.isdecimal() else [])] for name in names if name}
    found = targets_resolve((project_id, spelling) for spellings in spelled.values() for spelling in spellings)
    ids = {name: [found[project_id, one] for one in of if (project_id, one) in found] for name, of in spelled.items()}
    return {name: known[0] for name, known in ids.items() if known}


def _not_of_project(field: str, name: str) -> ChangeRefusedError:
    return ChangeRefusedError(field, f"{name!r} is not a memory of this project: write its id, or #123")


def supersede_all(memory_ids: Sequence[int], by_id: int, viewer: Viewer, reason: str = "") -> None:
    for memory_id in memory_ids:
        memory_supersede(memory_id=memory_id, by_id=by_id, viewer=viewer, reason=reason)


@transaction.atomic
def memory_supersede(*, memory_id: int, by_id: int, viewer: Viewer, reason: str = "") -> Memory:
    """Mark a memory as superseded by another memory of its project."""
    before = lock_writable(memory_id, viewer)
    successor = visible_to(viewer).filter(pk=by_id).only("project_id").first()
    if successor is None:
        raise MemoryNotFoundError(by_id)
    if successor.project_id != before.project_id:
        raise ChangeRefusedError("superseded_by", f"#{by_id} is in another project than #{memory_id}")
    if before.superseded_by_id == by_id and before.state == Memory.State.SUPERSEDED:
        return Memory.objects.get(pk=memory_id)
    refuse_cycle(memory_id, by_id)
    after = replace(
        before,
        state=Memory.State.SUPERSEDED.value,
        state_reason=reason,
        updated_at=timezone.now(),
        **{**without_successor(before, {}), "superseded_by_id": by_id},
    )
    return store_change(before, after, "supersede", viewer, reason)


def changed_successor(before: MemorySnapshot, changes: MemoryChanges, values: dict[str, Any]) -> dict[str, Any]:
    """The fields that give a memory the successor that the changes name, or none. `values` are the other changes."""
    cleared = without_successor(before, values)
    if not changes.superseded_by:
        if before.state == Memory.State.SUPERSEDED and "state" not in values:
            cleared["state"] = Memory.State.ACTIVE.value
        return cleared
    successor_id = _named_memories([changes.superseded_by], before.project_id).get(changes.superseded_by)
    if successor_id is None:
        raise _not_of_project("superseded_by", changes.superseded_by)
    # A deleted memory stays deleted.
    hidden = Memory.State.DELETED if before.state == Memory.State.DELETED else Memory.State.SUPERSEDED
    state = {"state": values.get("state", hidden.value)}
    if successor_id == before.superseded_by_id:
        return state
    refuse_cycle(before.id, successor_id)
    return {**cleared, **state, "superseded_by_id": successor_id}


def without_successor(before: MemorySnapshot, values: dict[str, Any]) -> dict[str, Any]:
    """The fields that remove the successor, and the link that would restore it."""
    links = values.get("links", before.links)
    return {
        "superseded_by_id": None,
        "links": tuple(link for link in links if link.rel != SUPERSEDED_BY_REL),
    }


def refuse_cycle(memory_id: int, successor_id: int) -> None:
    """Raise ChangeRefusedError if the memory would supersede itself, directly or not."""
    if memory_id == successor_id:
        raise ChangeRefusedError("superseded_by", f"#{memory_id} cannot supersede itself")
    if any(one.pk == memory_id for one in _successors(successor_id)):
        raise ChangeRefusedError(
            "superseded_by", f"#{successor_id} is itself superseded by #{memory_id}, directly or not"
        )


def refuse_apart(successors: Mapping[int, int | None], project: Project) -> None:
    """Refuse to move memories to a project without those that replaced them, or that they replaced.

    The memories are given with their successors after the move.
    """
    # memory_superseded_idx; thousands of parameters, as those of a queryset, take seconds to write.
    older = fetch(
        "SELECT id, superseded_by_id FROM memories_memory"
        " WHERE superseded_by_id = ANY(%s) AND project_id <> %s ORDER BY id",
        [list(successors), project.pk],
    )
    pairs = [(pk, by) for pk, by in older if pk not in successors]
    outside = {pk: by for pk, by in successors.items() if by is not None and by not in successors}
    statement = "SELECT id FROM memories_memory WHERE id = ANY(%s) AND project_id = %s"
    there = fetch_column(statement, [list(outside.values()), project.pk])
    apart = set(outside.values()) - set(there)
    pairs += [(pk, by) for pk, by in outside.items() if by in apart]
    if pairs:
        old, new = pairs[0]
        reason = f"#{old} is replaced by #{new}, and both are in one project: move them to {project.slug} together"
        reason += "; superseded memories are found with all states chosen"
        raise ChangeRefusedError("project", reason)


def refuse_beside_successor(before: MemorySnapshot) -> None:
    """Raise SuccessorError if a superseded memory has a successor, naming the last that is not deleted."""
    last: Memory | None = None
    for one in _successors(before.superseded_by_id):
        if one.pk == before.id or one.state == Memory.State.DELETED:
            break
        last = one
    if last is not None:
        raise SuccessorError(before.id, last)


def _successors(memory_id: int | None) -> Iterator[Memory]:
    """A memory, the one that replaced it, the one that replaced that, and so on, each once."""
    seen: set[int] = set()
    while memory_id is not None and memory_id not in seen:
        seen.add(memory_id)
        found = Memory.objects.only("title", "state", "superseded_by_id").filter(pk=memory_id).first()
        if found is None:
            return
        yield found
        memory_id = found.superseded_by_id

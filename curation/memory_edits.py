"""Changes of the state of many memories, and merging duplicates, on a working copy."""

from collections.abc import Collection, Iterable

from curation.working_copy import CurationRefusedError, Relink, StateChange, TermRef, WorkingCopy
from memories.models import Memory

State = Memory.State

# Each term that the remaining memory gets takes a few statements.
MOST_MERGED = 20
# The columns of a memory with its own terms, by kind.
_COLUMNS = {"tag": "tags", "category": "category_ids", "concept": "concept_ids", "entity": "entity_ids"}


def memories_set_state(copy: WorkingCopy, memory_ids: Collection[int], state: str, reason: str) -> None:
    """Archive memories that are there, or restore archived and deleted ones. Others stay as they are.

    A deleted memory that had been superseded is superseded again.
    """
    among = Memory.objects.filter(pk__in=memory_ids).order_by("pk")
    if state == State.ARCHIVED:
        changes = [(state, among.filter(state__in=(State.ACTIVE, State.PROPOSED)))]
    else:
        gone = among.filter(state__in=(State.ARCHIVED, State.DELETED))
        kept = {"state": State.DELETED, "superseded_by__isnull": False}
        changes = [(State.ACTIVE.value, gone.exclude(**kept)), (State.SUPERSEDED.value, gone.filter(**kept))]
    for to, memories in changes:
        if ids := tuple(sorted(memories.values_list("pk", flat=True))):
            copy.state_changes.append(StateChange(ids, to, reason))
    if not copy.state_changes and not copy.relinks:
        raise CurationRefusedError(
            "None of these memories can be archived: they are archived, superseded or deleted already."
            if state == State.ARCHIVED
            else "None of these memories is archived or deleted.",
            "set_state",
        )


def memories_merge(copy: WorkingCopy, memory_ids: Collection[int], target_id: int, reason: str) -> None:
    """Let one memory supersede the others, and give it what they are linked to."""
    if target_id not in memory_ids:
        raise CurationRefusedError(f"#{target_id} is not one of the chosen memories that you can change.", "merge_into")
    if len(memory_ids) > MOST_MERGED:
        raise CurationRefusedError(
            f"At most {MOST_MERGED} memories can be merged at once; {len(memory_ids):,} are chosen.", "memories"
        )
    memories = Memory.objects.only("project_id", "state", "superseded_by_id", *_COLUMNS.values()).in_bulk(memory_ids)
    target = memories.pop(target_id)
    if target.state not in (State.ACTIVE, State.PROPOSED):
        raise CurationRefusedError(f"#{target_id} is {target.state}: keep another one, or restore it.", "merge_into")
    if any(memory.project_id != target.project_id for memory in memories.values()):
        raise CurationRefusedError("Only memories of the same project can be merged.", "memories")
    there = [memories[pk] for pk in sorted(memories) if memories[pk].state in (State.ACTIVE, State.PROPOSED)]
    if not there:
        raise CurationRefusedError("Choose at least two memories that are active or proposed.", "memories")
    ids = tuple(memory.pk for memory in there)
    copy.state_changes.append(StateChange(ids, State.SUPERSEDED.value, reason, target_id))
    for kind, column in _COLUMNS.items():
        for ref in _gained(getattr(target, column), (getattr(memory, column) for memory in there)):
            copy.relinks.append(Relink(kind, (), ref, (target_id,)))
    copy.title = f"Merged {', '.join(f'#{pk}' for pk in ids)} into #{target_id}"


def _gained(own: Collection[TermRef], others: Iterable[Collection[TermRef]]) -> list[TermRef]:
    """The terms of others that a memory lacks, in their order."""
    return list(dict.fromkeys(ref for refs in others for ref in refs if ref not in own))

"""Suggestions about marked memories, whose texts may steer a model: in the queue as soon as they are stored."""

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Any

from django.db.models import Q

from curation.suggestions.models import Suggestion
from curation.suggestions.proposals import MEMORY_KINDS, STATES, Kind, Proposal, write_proposals
from memories.models import Memory, MemoryMark
from text.steering import marks_text

_BLOCK = 500
# A person decides these first: the rules are sure that somebody should look.
_CONFIDENCE = 0.99


def marked_proposals(*, project_id: int | None = None, memory_ids: Collection[int] | None = None) -> Iterator[Proposal]:
    """The marked memories that nobody has judged harmless: all, those of a project, or some."""
    marks = MemoryMark.objects.filter(harmless_at=None)
    if memory_ids is not None:
        marks = marks.filter(memory_id__in=memory_ids)
    after = 0
    while rows := list(marks.filter(memory_id__gt=after).order_by("memory_id")[:_BLOCK]):
        after = rows[-1].memory_id
        # Looked up by ids: a cluster does not compare these rows with memories in one statement.
        there = Memory.objects.filter(pk__in=[row.memory_id for row in rows], state__in=STATES)
        projects = dict(there.values_list("pk", "project_id"))
        for row in rows:
            own = projects.get(row.memory_id)
            if own is not None and project_id in (None, own):
                yield _proposal(row, own)


def _proposal(row: MemoryMark, project_id: int) -> Proposal:
    said = marks_text(row.marks)
    return Proposal(
        kind=Kind.MARKED,
        key=(row.memory_id, row.text_hash),
        confidence=_CONFIDENCE,
        reason=f"Its text {said}. Agents see it with a caution until somebody has decided.",
        proposal={"into": said},
        project_id=project_id,
        subject_id=row.memory_id,
    )


def follow_moved(sender: Any, memory_ids: Collection[int], **options: Any) -> None:
    """Let the suggestions about memories that are in another project now be seen there alone; for `memories_moved`."""
    about = Suggestion.objects.filter(kind__in=MEMORY_KINDS)
    about.filter(Q(subject_id__in=memory_ids) | Q(target_id__in=memory_ids), state=Suggestion.State.OPEN).delete()
    projects = Memory.objects.filter(pk__in=memory_ids).values_list("project_id", "pk")
    for project_id, ids in groupby(sorted(projects), key=lambda row: row[0]):
        about.filter(subject_id__in=[pk for _, pk in ids]).update(project_id=project_id)
    write_proposals(list(marked_proposals(memory_ids=memory_ids)))


def queue_marked(sender: Any, memory_ids: Collection[int], **options: Any) -> None:
    """Put memories that are marked into the queue, and take those out that are not; for `memories_marked`."""
    found = list(marked_proposals(memory_ids=memory_ids))
    still = [one.fingerprint for one in found]
    opened = Suggestion.objects.filter(kind=Kind.MARKED, subject_id__in=memory_ids, state=Suggestion.State.OPEN)
    opened.exclude(fingerprint__in=still).delete()
    write_proposals(found)

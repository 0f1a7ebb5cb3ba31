"""Notes that are no longer where an earlier import found them: renamed ones are known by their texts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from access.viewer import Viewer
from memories.models import ImportBatch, Memory
from memories.queries import visible_to
from memories.services import memory_archive

# A note of fewer characters is like others by chance.
_SHORTEST = 20
_MOST_GONE = 5_000
_SUFFIXES = (".md", ".markdown", ".mdc")
_PRESENT = (Memory.State.ACTIVE, Memory.State.PROPOSED, Memory.State.SUPERSEDED)


class GoneNote(NamedTuple):
    """A memory whose note is not at its place any more."""

    id: int
    project_id: int
    external_id: str
    title: str
    content: str
    record_hash: str
    state: str


class Renames:
    """The memories of notes that are gone, until one of them is found under another name."""

    def __init__(self, gone: Callable[[], Iterable[int]]) -> None:
        self._ids = gone
        self._gone: dict[int, GoneNote] | None = None
        self._by_content: dict[tuple[int, str], list[int]] = defaultdict(list)

    @property
    def gone(self) -> dict[int, GoneNote]:
        """Those that no note was found for yet, by their ids."""
        if self._gone is None:
            rows = Memory.objects.filter(pk__in=list(self._ids())[:_MOST_GONE], state__in=_PRESENT).order_by("pk")
            found = (GoneNote(*row) for row in rows.values_list(*GoneNote._fields))
            # A note with an id of its own is known by that wherever it is: it is neither renamed nor gone.
            self._gone = {one.id: one for one in found if one.external_id.lower().endswith(_SUFFIXES)}
            for one in self._gone.values():
                self._by_content[one.project_id, one.content].append(one.id)
        return self._gone

    def find(self, project_id: int, content: str) -> GoneNote | None:
        """The note that had this text under another name. It is taken for one note alone."""
        if not self.gone or len(content) < _SHORTEST:
            return None
        found = next((one for one in self._by_content[project_id, content] if one in self.gone), None)
        return self.gone.pop(found) if found else None


def earlier_notes(origin: str, places: Collection[str], viewer: Viewer) -> list[int]:
    """The memories of earlier imports of a source whose notes are not at these places."""
    notes = Memory.objects.filter(batch__origin=origin, batch__state=ImportBatch.State.DONE, source="markdown")
    present = notes.filter(pk__in=visible_to(viewer).values("pk"), state__in=_PRESENT)
    rows = present.values_list("pk", "source_uri", "external_id")
    known = set(places)
    found = [(pk, {place, name}) for pk, place, name in rows if name.lower().endswith(_SUFFIXES)]
    gone = [pk for pk, names in found if not names & known]
    # Another source of the same name has few of these notes, or none.
    return gone if len(gone) <= 0.75 * len(found) else []


def gone_notes(batch: ImportBatch | None, viewer: Viewer) -> list[dict[str, Any]]:
    """The notes that an import did not find any more and whose memories are still there, as far as the viewer sees."""
    listed = (batch.report or {}).get("gone_notes", []) if batch else []
    present = visible_to(viewer).filter(pk__in=[one["id"] for one in listed], state__in=["active", "proposed"])
    ids = set(present.values_list("pk", flat=True)) if listed else set()
    return [one for one in listed if one["id"] in ids]


def archive_gone(batch: ImportBatch, viewer: Viewer) -> int:
    """Archive the memories of notes that an import did not find any more. Returns their number.

    Each by itself: nobody waits for the lock of thousands, and what is left after an error is archived the next time.
    """
    gone = gone_notes(batch, viewer)
    for one in gone:
        memory_archive(memory_id=one["id"], viewer=viewer, reason=f"Its note is no longer in {batch.origin}.")
    return len(gone)

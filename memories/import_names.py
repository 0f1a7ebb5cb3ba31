"""The names of imports for readers: of what was imported to those who may see that, else by number and day."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import PurePosixPath

from access.models import AuditEvent
from access.viewer import Viewer, may_write_everything
from categories.names import DataRevision
from memories.invented_team import is_sample
from memories.models import FollowedSource, ImportBatch
from text.formatting import day_label
from web.cache import RevisionCache

# With more imports than these the names are read again.
_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class _Import:
    origin: str
    format: str
    started_at: datetime
    makers: frozenset[tuple[int | None, int | None]]
    """The people and keys that did it."""

    def name(self, pk: int, viewer: Viewer, zone: tzinfo) -> str:
        day = day_label(self.started_at, zone)
        if is_sample(self.origin):
            return f"The sample, {day}"
        is_own = (viewer.user_id, viewer.api_key_id) in self.makers and (viewer.user_id or viewer.api_key_id)
        if is_own or may_write_everything(viewer):
            return f"{last_part(self.origin)}, {self.format}, {day}"
        return f"Import {pk}, {day}"


_imports = RevisionCache[tuple[object, ...], dict[int, _Import]](1)


def last_part(origin: str) -> str:
    """The name of a file or folder without those that it is in."""
    return PurePosixPath(origin).name or origin


def import_labels(ids: Iterable[int], viewer: Viewer, zone: tzinfo, revision: DataRevision) -> dict[int, str]:
    """The names of imports by number, without those that do not exist."""
    key = revision.cache_key
    known = {} if key is None else _imports.get_or_make(revision.database, dict, key)
    wanted = set(ids)
    if missing := wanted - known.keys():
        if len(known) > _KEPT:
            known.clear()
        known.update(_imports_by_id(missing))
    return {pk: one.name(pk, viewer, zone) for pk in wanted if (one := known.get(pk))}


def import_label(batch: ImportBatch | None, viewer: Viewer) -> str:
    """The name of an import; empty for a memory that was written here."""
    if batch is None:
        return ""
    # Those who may write everything read every name, and those who may not write made no import.
    has_own = "write" in viewer.scopes and not may_write_everything(viewer)
    return _import_of(batch, _makers([batch.pk]) if has_own else {}).name(batch.pk, viewer, viewer.timezone)


def _imports_by_id(ids: Iterable[int]) -> dict[int, _Import]:
    wanted = sorted(ids)
    makers = _makers(wanted)
    found = ImportBatch.objects.filter(pk__in=wanted).only("origin", "format", "started_at")
    return {batch.pk: _import_of(batch, makers) for batch in found}


def _import_of(batch: ImportBatch, makers: Mapping[int, set[tuple[int | None, int | None]]]) -> _Import:
    return _Import(batch.origin, batch.format, batch.started_at, frozenset(makers.get(batch.pk, ())))


def _makers(ids: Collection[int]) -> dict[int, set[tuple[int | None, int | None]]]:
    events = AuditEvent.objects.filter(subject_type="importbatch", subject_id__in=ids, verb="import")
    makers: dict[int, set[tuple[int | None, int | None]]] = {}
    for pk, user_id, api_key_id in events.values_list("subject_id", "user_id", "api_key_id"):
        makers.setdefault(pk, set()).add((user_id, api_key_id))
    return makers


def batches_followed(source_id: int) -> tuple[int, ...]:
    """The imports that a followed source made."""
    return tuple(ImportBatch.objects.filter(followed=source_id).order_by("pk").values_list("pk", flat=True))


def followed_label(source_id: int, viewer: Viewer) -> str:
    """The name of a followed source, by number for those who may not see what is followed."""
    path = FollowedSource.objects.filter(pk=source_id).values_list("path", flat=True).first()
    if path and may_write_everything(viewer):
        return f"{last_part(path)}, followed"
    return f"Followed source {source_id}"

"""Reads of imports: all of them, for those who may write everything, and their own for others."""

from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer, may_write_everything
from memories.invented_team import SAMPLE_STORED
from memories.models import ImportBatch, Memory
from memories.queries import visible_to
from search.facets import DEFAULT_STATES
from transfer.jobs import jobs_of, jobs_recover
from transfer.models import ImportJob

State = ImportJob.State
# The verb of events of memories whose rows were read again.
READ_AGAIN = "read_again"
_LISTED, _CHANGED = 20, 50
_LATELY = timedelta(days=7)
_OPEN = (
    *(State.UPLOADING, State.READY, State.WAITING, State.RUNNING, State.CANCELLING, State.FAILED),
    *(State.UNDO_WAITING, State.UNDOING),
)


def imports_past(viewer: Viewer) -> tuple[list[ImportBatch], dict[int | None, ImportJob]]:
    """The last imports, and the jobs that did them, by batch. Readings of followed sources have pages of their own."""
    jobs = jobs_of(viewer)
    found = ImportBatch.objects.defer("report").exclude(state=ImportBatch.State.RUNNING).filter(followed=None)
    if not may_write_everything(viewer):
        found = found.filter(pk__in=list(jobs.exclude(batch=None).values_list("batch_id", flat=True)[:_LISTED]))
    batches: list[ImportBatch] = list(found.annotate(failure=KeyTextTransform("error", "report"))[:_LISTED])
    jobs = jobs.filter(batch__in=batches)
    return batches, {job.batch_id: job for job in jobs}


def imports_open(viewer: Viewer) -> list[ImportJob]:
    """The imports that are not finished, and those that failed lately."""
    jobs_recover()
    long_ago = timezone.now() - _LATELY
    jobs = jobs_of(viewer).filter(state__in=_OPEN).exclude(state=State.FAILED, beat_at__lt=long_ago)
    return list(jobs[:_LISTED])


def imported_paths() -> frozenset[str]:
    """The paths that were imported, and not undone."""
    done = ImportBatch.objects.filter(state=ImportBatch.State.DONE)
    return frozenset(done.values_list("origin", flat=True))


def sample_batch() -> ImportBatch | None:
    """The import of the sample, if it was not undone."""
    return _filled().filter(origin__endswith=SAMPLE_STORED).defer("report").order_by("pk").first()


def changed_by(batch: ImportBatch | None, viewer: Viewer) -> list[Memory]:
    """The first memories that an import changed, of those that the viewer may open."""
    return list(_changed(batch, viewer).only("title")[:_CHANGED]) if batch and batch.updated else []


def ids_changed_by(batch: ImportBatch | None, viewer: Viewer, most: int) -> list[int]:
    """The numbers of the first memories that an import changed, of those that the viewer may open."""
    return list(_changed(batch, viewer).values_list("pk", flat=True)[:most]) if batch and batch.updated else []


def _changed(batch: ImportBatch, viewer: Viewer) -> QuerySet[Memory]:
    verbs = ("import", READ_AGAIN)
    events = AuditEvent.objects.filter(batch_id=batch.pk, subject_type="memory", verb__in=verbs, before__isnull=False)
    return visible_to(viewer).filter(pk__in=events.values("subject_id")).order_by("pk")


def is_empty(viewer: Viewer) -> bool:
    """Whether there is no memory that a search of the viewer shows."""
    return not visible_to(viewer).filter(state__in=DEFAULT_STATES).exists()


def _filled() -> QuerySet[ImportBatch]:
    """The imports that brought memories, and were not undone."""
    return ImportBatch.objects.filter(state=ImportBatch.State.DONE, created__gt=0)

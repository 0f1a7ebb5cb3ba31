"""The imports that people start from pages and by the API."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from memories.models import ImportBatch


class ImportJob(models.Model):
    """An import, or the undo of one, that a process does in the background: its source, its progress and its end.

    `beat_at` is renewed while somebody takes care of it; a job that is not renewed was interrupted.
    """

    class State(models.TextChoices):
        UPLOADING = "uploading"
        READY = "ready"
        WAITING = "waiting"
        RUNNING = "running"
        CANCELLING = "cancelling", "being cancelled"
        DONE = "done"
        FAILED = "failed"
        UNDO_WAITING = "undo_waiting", "waiting to be undone"
        UNDOING = "undoing"
        UNDONE = "undone"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_constraint=False, db_index=False
    )
    api_key = models.ForeignKey(
        "access.ApiKey", models.SET_NULL, null=True, related_name="+", db_constraint=False, db_index=False
    )
    name = models.TextField(help_text="The name of the file, or the path on this machine.")
    path = models.TextField(blank=True, help_text="Where it is read from.")
    is_upload = models.BooleanField(default=False)
    files = models.JSONField(
        default=list, help_text="The files of an upload in order: name, size, and when it was changed, in seconds."
    )
    fingerprint = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="By which the same files are known again."
    )
    size = models.BigIntegerField(default=0)
    received = models.BigIntegerField(default=0)
    state = models.CharField(max_length=20, choices=State)
    project = models.CharField(max_length=100, blank=True, help_text="For memories that name none.")
    is_only_project = models.BooleanField(
        default=False, db_default=False, help_text="Whether memories that name another project are put there too."
    )
    columns = models.JSONField(default=dict, help_text="The fields that columns of tables are read as, by their names.")
    read_as = models.JSONField(
        default=dict,
        db_default={},
        help_text="Chosen for its records: values of all, types of notes, and the order of dates.",
    )
    is_forced = models.BooleanField(
        default=False, db_default=False, help_text="Whether an undo loses what was changed since."
    )
    is_changed_since = models.BooleanField(
        default=False, db_default=False, help_text="Whether an undo was refused, since memories were changed after it."
    )
    read = models.IntegerField(default=0)
    share = models.FloatField(null=True, help_text="The share of the source that is read, 0 to 1.")
    error = models.TextField(blank=True)
    batch = models.ForeignKey(
        "memories.ImportBatch", models.SET_NULL, null=True, related_name="+", db_constraint=False, db_index=False
    )
    created_at = models.DateTimeField(default=timezone.now)
    beat_at = models.DateTimeField(default=timezone.now)

    class Meta:
        app_label = "home"  # whose migrations made the table
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"

    @property
    def is_busy(self) -> bool:
        return self.state in ("waiting", "running", "cancelling", "undo_waiting", "undoing")

    @property
    def own_batch(self) -> ImportBatch | None:
        """The import that it made, once it is done."""
        has_ended = self.state in (self.State.DONE, self.State.UNDO_WAITING, self.State.UNDOING, self.State.UNDONE)
        return self.batch if has_ended else None

    @property
    def reads_again(self) -> bool:
        """Whether it reads the rows of an import again, that of its batch, instead of new ones."""
        return self.batch_id is not None and self.own_batch is None

    @property
    def can_import(self) -> bool:
        return self.state == self.State.READY or (self.state == self.State.FAILED and bool(self.path))

    @property
    def can_cancel(self) -> bool:
        return self.state in (self.State.WAITING, self.State.RUNNING, self.State.UNDO_WAITING)

    @property
    def can_remove(self) -> bool:
        return self.state in (self.State.UPLOADING, self.State.READY, self.State.FAILED)

    @property
    def can_undo(self) -> bool:
        return self.state == self.State.DONE and self.batch is not None and self.batch.state == "done"

    @property
    def shown_share(self) -> float | None:
        """The share of an upload that is received, or of its source that is read; None if unknown."""
        return self.received / self.size if self.state == self.State.UPLOADING and self.size else self.share

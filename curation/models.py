"""The log of curations and their changes; suggestions."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.utils import timezone

# Django looks for an app's models in this module.
from curation.suggestions.models import Suggestion, SuggestionPolicy

__all__ = ["Curation", "CurationChange", "Suggestion", "SuggestionPolicy"]


class Curation(models.Model):
    """An applied operation. Its changes are what an undo reverts."""

    id = models.BigAutoField(primary_key=True)
    verb = models.CharField(max_length=20)
    kind = models.CharField(max_length=20)
    title = models.TextField(help_text="What was done, in a sentence.")
    arguments = models.JSONField(default=dict)
    terms = ArrayField(models.TextField(), default=list, help_text="What it changed, as kind:id.")
    merged = models.JSONField(default=dict, help_text="Of the kind: the id that went, and the one that took its place.")
    project_ids = ArrayField(models.BigIntegerField(), default=list, help_text="Of the memories that it changed.")
    memories = models.IntegerField(default=0, help_text="How many it changed.")
    door = models.CharField(max_length=10)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    api_key = models.ForeignKey("access.ApiKey", models.SET_NULL, null=True, blank=True, related_name="+")
    at = models.DateTimeField(default=timezone.now)
    undone_at = models.DateTimeField(null=True, blank=True)
    undone_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"curation {self.pk}: {self.title}"

    @property
    def by(self) -> str:
        """The person, key or command that made it."""
        if self.user is not None:
            return str(self.user)
        if self.api_key is not None:
            return f"key {self.api_key.name}"
        return "a command" if self.door == "command" else "a deleted user"

    @property
    def remaining_term(self) -> str:
        """The term that it left, as the page of curation finds it; empty for a change of memories alone."""
        if self.undone_at:
            return ""
        if self.kind == "tag":
            given = self.arguments
            return str(given.get("target") or given.get("name") or given.get("term") or "")
        pairs = (term.split(":", 1) for term in self.terms)
        ids = (ref for kind, ref in pairs if kind == self.kind and ref not in self.merged)
        return next((f"#{ref}" for ref in ids), "")


class CurationChange(models.Model):
    """Rows of one table that one statement of a curation changed, with their values before and after.

    For links that only moved to another term, the ids of their memories are enough. The history of a memory is found by
    `memory_ids`, which every change of links and tags has.
    """

    class Action(models.TextChoices):
        INSERT = "insert"
        UPDATE = "update"
        DELETE = "delete"
        RELINK = "relink"
        LINK = "link"
        UNLINK = "unlink"
        WEIGH = "weigh"
        TAG = "tag"
        STATE = "state"
        COLUMNS = "columns"

    id = models.BigAutoField(primary_key=True)
    curation = models.ForeignKey(Curation, models.CASCADE, related_name="changes")
    table = models.CharField(max_length=30)
    action = models.CharField(max_length=10, choices=Action)
    source_id = models.BigIntegerField(null=True)
    target_id = models.BigIntegerField(null=True)
    memory_ids = ArrayField(models.BigIntegerField(), null=True)
    before = models.JSONField(default=list)
    after = models.JSONField(default=list)

    class Meta:
        ordering = ["id"]
        indexes = [GinIndex(fields=["memory_ids"], name="curationchange_memory_gin")]

    def __str__(self) -> str:
        return f"{self.action} {self.table} of {self.curation_id}"

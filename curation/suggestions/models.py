"""Suggestions with their decisions, and the policies of projects that accept suggestions automatically.

Projects and users are referenced without a database constraint, as in `access.models`.
"""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Suggestion(models.Model):
    """A proposed change with its evidence and its decision.

    `fingerprint` identifies the proposal and is unique, so a decided suggestion is never proposed again.
    `subject_id` and `target_id` refer to rows of the kind's tables; tags are in `proposal` by name.
    """

    class Kind(models.TextChoices):
        MARKED = "marked", "Marked texts"
        CATEGORY = "category", "Categories"
        CONCEPT = "concept", "Concepts"
        ENTITY_DUPLICATE = "entity_duplicate", "Same entity"
        CONCEPT_DUPLICATE = "concept_duplicate", "Same concept"
        TAG_DUPLICATE = "tag_duplicate", "Same tag"
        MEMORY_DUPLICATE = "memory_duplicate", "Near-duplicates"
        SUPERSEDED = "superseded", "Possibly outdated"

    class State(models.TextChoices):
        OPEN = "open"
        ACCEPTED = "accepted"
        REJECTED = "rejected"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20, choices=Kind)
    # The project of the memory; null for suggestions about the vocabulary.
    project = models.ForeignKey(
        "memories.Project", models.CASCADE, null=True, blank=True, related_name="+", db_constraint=False
    )
    fingerprint = models.CharField(max_length=32)
    subject_id = models.BigIntegerField(null=True, blank=True)
    target_id = models.BigIntegerField(null=True, blank=True)
    proposal = models.JSONField(default=dict)
    confidence = models.FloatField()
    reason = models.TextField(blank=True)
    evidence = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    made_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    decided_together = models.DateTimeField(
        null=True, blank=True, help_text="When deciding began of all that were decided at once with it."
    )
    is_automatic = models.BooleanField(default=False, help_text="Accepted automatically by the policy of its project.")
    applied = models.JSONField(null=True, blank=True, help_text="The changes made when it was accepted, for undo.")

    class Meta:
        ordering = ["-confidence", "id"]
        constraints = [
            models.UniqueConstraint(fields=["fingerprint"], name="suggestion_unique"),
            models.CheckConstraint(
                condition=models.Q(state__in=["open", "accepted", "rejected"]), name="suggestion_state_known"
            ),
            models.CheckConstraint(condition=models.Q(confidence__range=(0, 1)), name="suggestion_confidence_range"),
        ]
        indexes = [
            # The queue: open suggestions of a kind by confidence.
            models.Index(fields=["kind", "state", "-confidence", "id"], name="suggestion_queue_idx"),
            models.Index(fields=["subject_id", "kind"], name="suggestion_subject_idx"),
        ]

    def __str__(self) -> str:
        return f"suggestion {self.pk}: {self.kind}"


class SuggestionPolicy(models.Model):
    """The confidences from which a project accepts suggestions automatically. Without a policy, it accepts none."""

    id = models.BigAutoField(primary_key=True)
    project = models.OneToOneField(
        "memories.Project", models.CASCADE, related_name="suggestion_policy", db_constraint=False
    )
    category_from = models.FloatField(
        null=True,
        blank=True,
        help_text="Categories with at least this confidence are accepted automatically. Empty: never.",
    )
    concept_from = models.FloatField(
        null=True,
        blank=True,
        help_text="Concepts with at least this confidence are accepted automatically. Empty: never.",
    )

    class Meta:
        verbose_name_plural = "suggestion policies"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(category_from__isnull=True) | models.Q(category_from__range=(0.5, 1)),
                name="suggestionpolicy_category_range",
            ),
            models.CheckConstraint(
                condition=models.Q(concept_from__isnull=True) | models.Q(concept_from__range=(0.5, 1)),
                name="suggestionpolicy_concept_range",
            ),
        ]

    def __str__(self) -> str:
        return f"policy of {self.project}"

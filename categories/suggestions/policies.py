"""What a project lets be applied without a person: written by its owners, audited, off unless somebody says so."""

from django.db import transaction

from access.audit import audit
from access.viewer import Viewer
from categories.suggestions.models import SuggestionPolicy
from memories.models import Project
from memories.services import ChangeRefused, NotAllowed

LEAST = 0.5


@transaction.atomic
def policy_set(
    *, project: Project, category_from: float | None, concept_from: float | None, viewer: Viewer
) -> SuggestionPolicy:
    """Say from which confidence on suggestions are accepted at once; None says never."""
    if "curate" not in viewer.scopes or not viewer.may_write(project.pk):
        raise NotAllowed(f"You may not say what {project.slug!r} lets be applied: that takes a curator of it.")
    for field, least in (("category_from", category_from), ("concept_from", concept_from)):
        if least is not None and not LEAST <= least <= 1:
            raise ChangeRefused(field, f"is a confidence from {LEAST} to 1, or empty for never")
    policy, made = SuggestionPolicy.objects.get_or_create(project=project)
    # By its id alone, which is the only way a distributed Postgres locks a row.
    policy = SuggestionPolicy.objects.select_for_update().get(pk=policy.pk)
    before = _told(policy)
    policy.category_from, policy.concept_from = category_from, concept_from
    if made or _told(policy) != before:
        policy.save(update_fields=["category_from", "concept_from"])
        audit(viewer, "suggestion_policy_set", policy, before=None if made else before, after=_told(policy))
    return policy


def _told(policy: SuggestionPolicy) -> dict[str, object]:
    """What the audit trail keeps of a policy."""
    return {
        "project": policy.project_id,
        "category_from": policy.category_from,
        "concept_from": policy.concept_from,
    }

"""The admin of suggestions, which is read-only, and of the policies of projects."""

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.queries import visible_suggestions
from curation.suggestions.services import policy_set
from memories.refusals import ChangeRefusedError, NotAllowedError
from web.admin import ShownOnlyAdmin


@admin.register(Suggestion)
class SuggestionAdmin(ShownOnlyAdmin):
    """Suggestions and their decisions, which are made at /review/."""

    list_display = (
        "id",
        "kind",
        "project",
        "reason",
        "confidence",
        "state",
        "decided_at",
        "decided_by",
        "is_automatic",
    )
    list_select_related = ("project", "decided_by")
    list_filter = ("kind", "state", "is_automatic")
    search_fields = ("reason", "=subject_id", "=target_id")
    readonly_fields = ("shown_page",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return visible_suggestions(admin_viewer(request), super().get_queryset(request))

    @admin.display(description="review")
    def shown_page(self, row: Suggestion) -> SafeString:
        address = f"{reverse('suggestions:review')}?kind={row.kind}&item={row.pk}"
        return format_html('<a href="{}">Open it in the review queue</a>', address)


class PolicyForm(ServiceForm):
    class Meta:
        model = SuggestionPolicy
        fields = ("project", "category_from", "concept_from")

    def write(self) -> Refused:
        row = self.instance
        try:
            self.instance = policy_set(
                project=row.project,
                category_from=row.category_from,
                concept_from=row.concept_from,
                viewer=self.viewer,
            )
        except ChangeRefusedError as error:
            yield error.field, str(error).removeprefix(f"{error.field}: ")
        except NotAllowedError as error:
            yield None, str(error)


@admin.register(SuggestionPolicy)
class SuggestionPolicyAdmin(ServiceAdmin):
    form = PolicyForm
    list_display = ("project", "category_from", "concept_from")
    list_select_related = ("project",)
    search_fields = ("project__slug", "project__name")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        visible = admin_viewer(request).project_ids
        policies = super().get_queryset(request)
        return policies if visible is None else policies.filter(project_id__in=visible)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("project",) if obj else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        visible = admin_viewer(request).project_ids
        if db_field.name == "project" and visible is not None:
            kwargs["queryset"] = db_field.related_model.objects.filter(pk__in=visible)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # An empty policy takes the place of deletion, so that the change is audited.
        return False

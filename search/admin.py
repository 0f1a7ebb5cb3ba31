"""The admin of saved views, and of what people do with them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from access.admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from search.models import SavedView, ViewFeed, ViewMark
from search.saved_views import saved_view_delete, saved_view_save
from web.admin import ShownOnlyAdmin
from web.params import QueryError


class SavedViewForm(ServiceForm):
    class Meta:
        model = SavedView
        fields = ("name", "slug", "description", "query", "owner", "visibility")

    def write(self) -> Refused:
        try:
            saved_view_save(view=self.instance, viewer=self.viewer)
        except QueryError as error:
            yield from (("query", str(problem)) for problem in error.problems)


@admin.register(SavedView)
class SavedViewAdmin(ServiceAdmin):
    form = SavedViewForm
    list_display = ("name", "owner", "visibility", "query", "updated_at")
    list_select_related = ("owner",)
    list_filter = ("visibility",)
    search_fields = ("name", "slug", "description", "query", "owner__username")
    autocomplete_fields = ("owner",)
    readonly_fields = ("created_at", "updated_at")
    prepopulated_fields = {"slug": ("name",)}

    def delete_model(self, request: HttpRequest, obj: SavedView) -> None:
        saved_view_delete(view=obj, viewer=admin_viewer(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[SavedView]) -> None:
        for view in queryset:
            self.delete_model(request, view)


@admin.register(ViewMark)
class ViewMarkAdmin(ShownOnlyAdmin):
    list_display = ("view", "user", "pinned", "is_default", "opened_at")
    list_select_related = ("view", "user")
    list_filter = ("pinned", "is_default")
    search_fields = ("view__name", "user__username")


@admin.register(ViewFeed)
class ViewFeedAdmin(ShownOnlyAdmin):
    list_display = ("view", "user", "created_at", "read_at")
    list_select_related = ("view", "user")
    search_fields = ("view__name", "user__username")
    exclude = ("token_hash",)

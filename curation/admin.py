"""What curation keeps, shown to who sees every project: the log, the rows behind it, and names of before."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from categories.models import FormerPath, TagAlias
from curation import vocabulary_admin  # noqa: F401 - Django looks for an app's admin in this module
from curation.models import Curation, CurationChange
from curation.suggestions import admin as suggestions_admin  # noqa: F401
from web.admin import OwnersOnly, ShownOnlyAdmin


@admin.register(Curation)
class CurationLogAdmin(OwnersOnly, ShownOnlyAdmin):
    """Undone on /curate/."""

    list_display = ("at", "title", "memories", "user", "api_key", "undone_at")
    list_display_links = ("title",)
    list_select_related = ("user", "api_key")
    list_filter = ("verb", "kind", ("undone_at", admin.EmptyFieldListFilter))
    search_fields = ("title", "user__username", "api_key__name")
    fields = (
        ("verb", "kind"),
        "title",
        "arguments",
        "memories",
        ("user", "api_key", "door"),
        "at",
        ("undone_at", "undone_by"),
    )


@admin.register(CurationChange)
class CurationChangeAdmin(OwnersOnly, ShownOnlyAdmin):
    """Without the rows themselves, which may be of a hundred thousand memories."""

    list_display = ("id", "curation", "action", "table", "source_id", "target_id")
    list_select_related = ("curation",)
    list_filter = ("action", "table")
    search_fields = ("=curation__id", "curation__title")
    fields = ("curation", "action", "table", ("source_id", "target_id"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("memory_ids", "before", "after")


@admin.register(FormerPath)
class FormerPathAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("path", "category")
    list_select_related = ("category",)
    search_fields = ("path", "category__path")


@admin.register(TagAlias)
class TagAliasAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("alias", "tag")
    search_fields = ("alias", "tag")

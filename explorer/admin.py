"""The admin of projects, sessions, imports and models. Projects are never deleted."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from access.admin import Refused, ServiceAdmin, ServiceForm, admin_viewer

# Django looks for an app's admin in this module.
from explorer.memory import admin as memory_admin  # noqa: F401
from memories.models import (
    Corpus,
    EmbeddingModel,
    FollowedSource,
    ImportBatch,
    MapLayout,
    Project,
    Session,
    SourceConflict,
)
from memories.projects import LANGUAGE_IS_KEPT, project_create, project_update
from memories.refusals import AlreadyExistsError, ChangeRefusedError, NotAllowedError
from text.analysis import languages
from web.admin import OwnersOnly, ShownOnlyAdmin


class ProjectForm(ServiceForm):
    class Meta:
        model = Project
        fields = ("slug", "name", "description", "language", "secrets")
        widgets = {"description": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "language" in self.fields:
            choices = [(language, language) for language in languages()]
            help_text = f"How its texts are stemmed. {LANGUAGE_IS_KEPT}"
            self.fields["language"] = forms.ChoiceField(choices=choices, help_text=help_text)

    def write(self) -> Refused:
        row = self.instance
        names = ("name", "description", "language", "secrets")
        fields = {name: getattr(row, name) for name in names} | {"viewer": self.viewer}
        try:
            self.instance = project_update(project=row, **fields) if row.pk else project_create(slug=row.slug, **fields)
        except ChangeRefusedError as error:
            yield error.field if error.field in self.fields else None, str(error).removeprefix(f"{error.field}: ")
        except (NotAllowedError, AlreadyExistsError) as error:
            yield None, str(error)


@admin.register(Project)
class ProjectAdmin(ServiceAdmin):
    form = ProjectForm
    list_display = ("slug", "name", "language", "created_at")
    search_fields = ("slug", "name")
    list_filter = ("language",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        visible = admin_viewer(request).project_ids
        projects = super().get_queryset(request)
        return projects if visible is None else projects.filter(pk__in=visible)

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        # Links and keys contain the slug; every term depends on the language.
        return ("slug", "language", "created_at") if obj.memories.exists() else ("slug", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and admin_viewer(request).may_write(None)

    def has_change_permission(self, request: HttpRequest, obj: Project | None = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (obj is None or admin_viewer(request).may_write(obj.pk))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Keys, links and the audit trail refer to it, and its memories are never deleted.
        return False


class ProjectRowAdmin(ShownOnlyAdmin):
    """Rows that belong to a project, for users who may see the project."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        visible = admin_viewer(request).project_ids
        rows = super().get_queryset(request)
        return rows if visible is None else rows.filter(project_id__in=visible)


@admin.register(Session)
class SessionAdmin(ProjectRowAdmin):
    list_display = ("external_id", "project", "agent", "title", "started_at", "ended_at")
    list_select_related = ("project",)
    list_filter = ("project", "agent")
    search_fields = ("external_id", "title", "agent")


@admin.register(ImportBatch)
class ImportBatchAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("id", "origin", "format", "state", "started_at", "finished_at", "created", "updated", "unchanged")
    list_filter = ("state", "format")
    search_fields = ("origin",)
    date_hierarchy = "started_at"


@admin.register(FollowedSource)
class FollowedSourceAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("path", "format", "project", "memories", "refused", "looked_at", "read_at", "changed_at", "error")
    list_filter = ("format",)
    search_fields = ("path", "project")


@admin.register(SourceConflict)
class SourceConflictAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("memory_id", "source", "edit", "noticed_at")
    list_select_related = ("source",)
    list_filter = ("source",)
    search_fields = ("=memory_id", "edit")


@admin.register(Corpus)
class CorpusAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("id", "revision", "vectors")
    list_filter = ()
    search_fields = ()


@admin.register(MapLayout)
class MapLayoutAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("id", "model_id", "memories", "revision", "drawn_at")
    list_filter = ("model_id",)
    search_fields = ("=id",)


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("name", "state", "dimensions", "min_similarity", "source", "created_at")
    list_filter = ("state",)
    search_fields = ("name",)

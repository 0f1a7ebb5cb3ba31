"""The admin of curation: lists and raw texts of the vocabulary, and read-only pages for the log.

Terms are renamed, moved and merged at /curate/, which shows what hangs on them.
"""

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.postgres.fields import ArrayField
from django.db.models import BigIntegerField, F, Func, Model, QuerySet, TextField, Value
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from categories.kinds import VOCABULARIES
from categories.models import Category, Concept, Entity, FormerPath, LocalText, Relationship, TagAlias
from categories.texts import TermTexts, as_array, readable_aliases, readable_description, texts_of
from curation.models import Curation, CurationChange
from curation.queries import visible_relationships
from curation.suggestions import admin as suggestions_admin  # noqa: F401 - Django looks for admins in this module
from curation.text_edits import EditRefusedError, relationship_describe, term_describe
from memories.queries import visible_to
from web.admin import Lines, OwnersOnly, ShownOnlyAdmin


class TermForm(ServiceForm):
    aliases = Lines(required=False, help_text="Other names, one per line.")

    def write(self) -> Refused:
        try:
            term_describe(term=self.instance, viewer=self.viewer, **self.cleaned_data)
        except EditRefusedError as error:
            yield error.field or None, str(error)


class RelationshipForm(ServiceForm):
    def write(self) -> Refused:
        try:
            relationship_describe(relationship=self.instance, viewer=self.viewer, **self.cleaned_data)
        except EditRefusedError as error:
            yield error.field or None, str(error)


class VocabularyAdmin(ServiceAdmin):
    """Rows that imports create. Only the fields in `editable` are edited here."""

    editable: tuple[str, ...]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return tuple(str(name) for name in self.fields or () if name not in self.editable)


class TermAdmin(VocabularyAdmin):
    """A category, concept or entity."""

    form = TermForm
    editable = ("description", "aliases")
    list_select_related = ("batch",)
    actions = ("merge_chosen",)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row; for curators of some projects with the texts that hold in these alone, which they edit here."""
        row = super().get_object(request, object_id, from_field)
        viewer = admin_viewer(request)
        if row is not None and viewer.curated_project_ids is not None:
            projects = viewer.project_ids
            local = texts_of(str(self.model._meta.model_name), [row.pk], projects).get(row.pk, TermTexts())
            row.description = local.described(readable_description(row, projects), projects)
            row.aliases = list(local.named(row.name, readable_aliases(row, projects)))
        return row

    @admin.action(description="Merge the selected one into another, or the first of two into the second")
    def merge_chosen(self, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponseRedirect | None:
        """Redirect to the preview of the merge."""
        chosen = list(rows.order_by("pk").values_list("pk", flat=True)[:3])
        if len(chosen) > 2:
            self.message_user(request, "Select one or two.", messages.ERROR)
            return None
        kind = str(self.model._meta.model_name)
        if len(chosen) == 1:
            return HttpResponseRedirect(reverse("curation:term", args=[kind, chosen[0]]))
        address = reverse("curation:verb", args=["merge", kind, chosen[0]])
        return HttpResponseRedirect(f"{address}?{urlencode({'target': f'#{chosen[1]}'})}")

    @admin.display(description="curation")
    def shown_curation(self, row: Any) -> SafeString:
        address = reverse("curation:term", args=[row._meta.model_name, row.pk])
        return format_html('<a href="{}">Its memories; rename, move, merge, split, relate</a>', address)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        vocabulary = VOCABULARIES[str(self.model._meta.model_name)]
        viewer, rows = admin_viewer(request), super().get_queryset(request)
        if viewer.project_ids is not None:
            # Refers to no row of the terms: the shards of a cluster do not have them.
            used = Func(F(vocabulary.memory_path_column), function="unnest", output_field=BigIntegerField())
            rows = rows.filter(pk__in=visible_to(viewer).order_by().annotate(term=used).values("term"))
        projects = Value(as_array(viewer.project_ids), output_field=ArrayField(BigIntegerField()))
        annotated: QuerySet[Any] = rows.annotate(
            readable_aliases=Func(
                *(F("aliases"), F("alias_projects"), projects),
                function="categories_readable",
                output_field=ArrayField(TextField()),
            ),
        )
        return annotated

    @admin.display(description="aliases")
    def shown_aliases(self, row: Any) -> str:
        return ", ".join(row.readable_aliases)


@admin.register(Category)
class CategoryAdmin(TermAdmin):
    list_display = ("path", "name", "depth", "shown_aliases", "batch")
    list_filter = ("depth",)
    search_fields = ("path", "name")
    fields = ("path", "name", "parent", "depth", "shown_curation", "description", "aliases", "batch")


@admin.register(Concept)
class ConceptAdmin(TermAdmin):
    list_display = ("name", "concept_type", "shown_aliases", "weight", "batch")
    list_filter = ("concept_type",)
    search_fields = ("name", "concept_type")
    fields = ("name", "concept_type", "shown_curation", "description", "aliases", "weight", "batch")


@admin.register(Entity)
class EntityAdmin(TermAdmin):
    list_display = ("name", "entity_type", "shown_aliases", "batch")
    list_filter = ("entity_type",)
    search_fields = ("name",)
    fields = ("name", "entity_type", "shown_curation", "description", "aliases", "batch")


@admin.register(Relationship)
class RelationshipAdmin(VocabularyAdmin):
    form = RelationshipForm
    editable = ("fact", "confidence")
    list_display = ("source", "relationship_type", "target", "fact", "confidence", "valid_from", "valid_to")
    list_display_links = ("relationship_type",)
    list_select_related = ("source", "target")
    list_filter = ("relationship_type",)
    search_fields = ("source__name", "target__name", "relationship_type", "fact")
    fields = (
        *("source", "relationship_type", "target", "fact", "confidence"),
        *("valid_from", "valid_to", "batch", "created_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return visible_relationships(admin_viewer(request)).order_by(*self.get_ordering(request))


@admin.register(Curation)
class CurationLogAdmin(OwnersOnly, ShownOnlyAdmin):
    """Curations. They are undone at /curate/."""

    list_display = ("at", "title", "memories", "user", "api_key", "undone_at")
    list_display_links = ("title",)
    list_select_related = ("user", "api_key")
    list_filter = ("verb", "kind", ("undone_at", admin.EmptyFieldListFilter))
    search_fields = ("title", "user__username", "api_key__name")


@admin.register(CurationChange)
class CurationChangeAdmin(OwnersOnly, ShownOnlyAdmin):
    """Changes without their rows, which may be those of a hundred thousand memories."""

    list_display = ("id", "curation", "action", "table", "source_id", "target_id")
    list_select_related = ("curation",)
    list_filter = ("action", "table")
    search_fields = ("=curation__id", "curation__title")
    exclude = ("memory_ids", "before", "after")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.exclude)


@admin.register(FormerPath)
class FormerPathAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("path", "category")
    list_select_related = ("category",)
    search_fields = ("path", "category__path")


@admin.register(LocalText)
class LocalTextAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("kind", "term_id", "tag", "role", "text", "project_ids")
    list_filter = ("kind", "role")
    search_fields = ("text", "tag")


@admin.register(TagAlias)
class TagAliasAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("alias", "tag")
    search_fields = ("alias", "tag")

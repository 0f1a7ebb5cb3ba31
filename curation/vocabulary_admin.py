"""Curation of the vocabulary: its texts and aliases are edited here, through the services; its shape on /curate/.

The link tables have composite primary keys, which the admin cannot register: the links show as panels on these pages.
"""

from abc import abstractmethod
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.db.models import Count, Exists, Func, IntegerField, Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.service_admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, Relationship
from curation.queries import relationships_seen, terms_seen
from curation.tables import LINKS
from curation.text_edits import (
    EditRefusedError,
    category_describe,
    concept_describe,
    entity_describe,
    relationship_describe,
)
from memories.models import Memory
from memories.queries import visible_to
from web.admin import Lines, panel

# As many rows as a panel shows.
PANEL = 20


class VocabularyForm(ServiceForm):
    """The texts of a row of the vocabulary."""

    @abstractmethod
    def describe(self) -> None:
        """Say it, through the service."""

    def write(self) -> Refused:
        try:
            self.describe()
        except EditRefusedError as error:
            yield error.field or None, str(error)


class CategoryForm(VocabularyForm):
    aliases = Lines(required=False, help_text="Other names, one per line.")

    class Meta:
        model = Category
        fields = ("description", "aliases")

    def describe(self) -> None:
        category_describe(category=self.instance, viewer=self.viewer, **self.cleaned_data)


class ConceptForm(VocabularyForm):
    aliases = Lines(required=False, help_text="Other names, one per line.")

    class Meta:
        model = Concept
        fields = ("description", "aliases")

    def describe(self) -> None:
        concept_describe(concept=self.instance, viewer=self.viewer, **self.cleaned_data)


class EntityForm(VocabularyForm):
    aliases = Lines(required=False, help_text="Other names, one per line.")

    class Meta:
        model = Entity
        fields = ("description", "aliases")

    def describe(self) -> None:
        entity_describe(entity=self.instance, viewer=self.viewer, **self.cleaned_data)


class RelationshipForm(VocabularyForm):
    class Meta:
        model = Relationship
        fields = ("fact", "confidence")

    def describe(self) -> None:
        relationship_describe(relationship=self.instance, viewer=self.viewer, **self.cleaned_data)


class VocabularyAdmin(ServiceAdmin):
    """Rows that records bring in. What they are called, and where they hang, is not edited in a form."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class LinkedAdmin(VocabularyAdmin):
    """A category, concept or entity, with the memories that are linked to it."""

    link: type[CategoryLink | ConceptLink | EntityLink]
    # The columns that name the row: in the link table, and the array on the memory.
    link_column: str
    memory_column: str
    actions = ("merge_chosen",)

    @admin.action(description="Merge the selected one into another, or the first of two into the second")
    def merge_chosen(self, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponseRedirect | None:
        """Leads to the page that shows what would happen; nothing is done here."""
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
        return format_html('<a href="{}">Rename, move, merge, split, relate</a>', address)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # A subquery among the columns: counted for the rows of the page, not for those that are left out.
        links = self.link._default_manager.filter(**{self.link_column: OuterRef("pk")}).order_by()
        viewer, rows = admin_viewer(request), super().get_queryset(request)
        if viewer.project_ids is not None:
            links = links.filter(memory__project_id__in=viewer.project_ids)
            column = LINKS[str(self.model._meta.model_name)].facet_below
            own = Func(OuterRef("pk"), template="ARRAY[%(expressions)s]::integer[]")
            rows = rows.filter(Exists(visible_to(viewer).filter(**{f"{column}__contains": own})))
        counted = links.values(self.link_column).annotate(n=Count("memory_id")).values("n")
        rows = rows.annotate(links_count=Subquery(counted, output_field=IntegerField()))
        return cast("QuerySet[Any]", rows)

    @admin.display(description="memories")
    def shown_links(self, row: Any) -> int:
        return row.links_count or 0

    @admin.display(description="aliases")
    def shown_aliases(self, row: Any) -> str:
        return ", ".join(row.aliases)

    @admin.display(description="newest memories")
    def shown_memories(self, row: Any) -> SafeString:
        return memory_panel(visible_to(row.viewer).filter(**{f"{self.memory_column}__contains": [row.pk]}))


def memory_panel(memories: QuerySet[Memory]) -> SafeString:
    """The newest of some memories, with links to their pages in the admin."""
    newest = memories.order_by("-created_at", "-pk").only("title", "created_at", "state")[:PANEL]
    rows = (
        (
            format_html('<a href="{}">#{}</a>', reverse("admin:memories_memory_change", args=[memory.pk]), memory.pk),
            memory.title,
            f"{memory.created_at:%Y-%m-%d}",
            memory.state,
        )
        for memory in newest
    )
    return panel(("", "title", "created", "state"), rows)


@admin.register(Category)
class CategoryAdmin(LinkedAdmin):
    form = CategoryForm
    link, link_column, memory_column = CategoryLink, "category_id", "category_ids"
    list_display = ("path", "name", "depth", "shown_links", "shown_aliases", "batch")
    list_select_related = ("batch",)
    list_filter = ("depth",)
    search_fields = ("path", "name")
    fields = (
        ("path", "name"),
        ("parent", "depth"),
        "shown_curation",
        "description",
        "aliases",
        "shown_children",
        "shown_memories",
        "batch",
    )
    readonly_fields = ("path", "name", "parent", "depth", "batch", "shown_curation", "shown_children", "shown_memories")

    @admin.display(description="children")
    def shown_children(self, category: Any) -> SafeString:
        seen = terms_seen("category", list(category.children.values_list("pk", flat=True)), category.viewer)
        rows = (
            (format_html('<a href="{}">{}</a>', reverse("admin:categories_category_change", args=[child.pk]), child),)
            for child in category.children.filter(pk__in=seen)[:PANEL]
        )
        return panel(("path",), rows)


@admin.register(Concept)
class ConceptAdmin(LinkedAdmin):
    form = ConceptForm
    link, link_column, memory_column = ConceptLink, "concept_id", "concept_ids"
    list_display = ("name", "concept_type", "shown_links", "shown_aliases", "weight", "batch")
    list_select_related = ("batch",)
    list_filter = ("concept_type",)
    search_fields = ("name", "concept_type")
    fields = (
        ("name", "concept_type"),
        "shown_curation",
        "description",
        "aliases",
        "shown_relations",
        "weight",
        "shown_memories",
        "batch",
    )
    readonly_fields = (
        "name",
        "concept_type",
        "weight",
        "batch",
        "shown_curation",
        "shown_relations",
        "shown_memories",
    )

    @admin.display(description="related concepts")
    def shown_relations(self, concept: Any) -> SafeString:
        related = {"broader": concept.broader_ids, "narrower": concept.narrower_ids, "related": concept.related_ids}
        seen = terms_seen("concept", {pk for pks in related.values() for pk in pks}, concept.viewer)
        names = dict(Concept.objects.filter(pk__in=seen).values_list("pk", "name"))
        return panel(
            ("how", "concept"), ((how, names[pk]) for how, pks in related.items() for pk in pks if pk in names)
        )


@admin.register(Entity)
class EntityAdmin(LinkedAdmin):
    form = EntityForm
    link, link_column, memory_column = EntityLink, "entity_id", "entity_ids"
    list_display = ("name", "entity_type", "shown_links", "shown_aliases", "batch")
    list_select_related = ("batch",)
    list_filter = ("entity_type",)
    search_fields = ("name",)
    fields = (
        ("name", "entity_type"),
        "shown_curation",
        "description",
        "aliases",
        "shown_relations",
        "shown_memories",
        "batch",
    )
    readonly_fields = ("name", "entity_type", "batch", "shown_curation", "shown_relations", "shown_memories")

    @admin.display(description="relationships")
    def shown_relations(self, entity: Any) -> SafeString:
        facts = relationships_seen(entity.viewer).select_related("source", "target")
        out, into = facts.filter(source=entity)[:PANEL], facts.filter(target=entity)[:PANEL]
        return panel(("source", "relationship", "target", "fact"), (_relation(r) for r in (*out, *into)))


def _relation(relationship: Relationship) -> tuple[object, ...]:
    address = reverse("admin:categories_relationship_change", args=[relationship.pk])
    kind = format_html('<a href="{}">{}</a>', address, relationship.relationship_type)
    return (relationship.source, kind, relationship.target, relationship.fact)


@admin.register(Relationship)
class RelationshipAdmin(VocabularyAdmin):
    form = RelationshipForm
    list_display = ("source", "relationship_type", "target", "fact", "confidence", "valid_from", "valid_to")
    list_display_links = ("relationship_type",)
    list_select_related = ("source", "target")
    list_filter = ("relationship_type",)
    search_fields = ("source__name", "target__name", "relationship_type", "fact")
    fields = (
        ("source", "relationship_type", "target"),
        "fact",
        "confidence",
        ("valid_from", "valid_to"),
        "shown_memories",
        ("batch", "created_at"),
    )
    readonly_fields = (
        "source",
        "relationship_type",
        "target",
        "valid_from",
        "valid_to",
        "shown_memories",
        "batch",
        "created_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return relationships_seen(admin_viewer(request)).order_by(*self.get_ordering(request))

    @admin.display(description="evidence")
    def shown_memories(self, relationship: Any) -> SafeString:
        return memory_panel(visible_to(relationship.viewer).filter(pk__in=relationship.evidence_ids))

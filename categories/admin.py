"""Curation of the vocabulary: its texts and aliases are edited here, through the services; its shape only shows.

The link tables have composite primary keys, which the admin cannot register: the links show as panels on these pages.
"""

from typing import Any

from django.contrib import admin
from django.db.models import Count, F, IntegerField, Model, OuterRef, QuerySet, Subquery
from django.forms import BaseForm
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.viewer import visible_to
from categories.editing import (
    EditRefused,
    category_describe,
    concept_describe,
    entity_describe,
    relationship_describe,
)
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, Relationship
from config.admin import CurationAdmin, Lines, ModelForm, admin_viewer, panel
from memories.models import Memory

# As many memories as the panel of a page names.
PANEL = 20


class ServiceForm(ModelForm):
    """A form whose last check is the service itself: what it refuses is an error of the form, and nothing is saved."""

    request: HttpRequest

    def full_clean(self) -> None:
        super().full_clean()
        if self.is_bound and not self.errors:
            try:
                self.write()
            except EditRefused as error:
                self.add_error(error.field or None, str(error))

    def write(self) -> None:
        raise NotImplementedError


class DescribedForm(ServiceForm):
    aliases = Lines(required=False, help_text="One a line.")


class CategoryForm(DescribedForm):
    class Meta:
        model = Category
        fields = ("description", "aliases")

    def write(self) -> None:
        category_describe(category=self.instance, viewer=admin_viewer(self.request), **self.cleaned_data)


class ConceptForm(DescribedForm):
    class Meta:
        model = Concept
        fields = ("description", "aliases")

    def write(self) -> None:
        concept_describe(concept=self.instance, viewer=admin_viewer(self.request), **self.cleaned_data)


class EntityForm(DescribedForm):
    class Meta:
        model = Entity
        fields = ("description", "aliases")

    def write(self) -> None:
        entity_describe(entity=self.instance, viewer=admin_viewer(self.request), **self.cleaned_data)


class RelationshipForm(ServiceForm):
    class Meta:
        model = Relationship
        fields = ("fact", "confidence")

    def write(self) -> None:
        relationship_describe(relationship=self.instance, viewer=admin_viewer(self.request), **self.cleaned_data)


class VocabularyAdmin(CurationAdmin):
    """Rows that records bring in. What they are called and where they hang is not edited in a form."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"request": request})

    def save_model(self, request: HttpRequest, obj: Model, form: BaseForm, change: bool) -> None:
        """Nothing: the form has gone through the service."""


class LinkedAdmin(VocabularyAdmin):
    """A category, concept or entity, with the memories it is linked to."""

    link: type[CategoryLink] | type[ConceptLink] | type[EntityLink]
    link_column = ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # A subquery of the columns shown: the database counts for the rows of the page, not for those left out.
        links = self.link._default_manager.filter(**{self.link_column: OuterRef("pk")}).order_by()
        counted = links.values(self.link_column).annotate(n=Count("memory_id")).values("n")
        return super().get_queryset(request).annotate(links_count=Subquery(counted, output_field=IntegerField()))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        self.request_shown = request
        return tuple(super().get_readonly_fields(request, obj))

    @admin.display(description="links")
    def shown_links(self, row: Any) -> int:
        return row.links_count or 0

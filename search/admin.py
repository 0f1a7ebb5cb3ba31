"""Curation of saved views."""

from urllib.parse import parse_qsl

from django import forms
from django.contrib import admin

from config.admin import CurationAdmin, ModelForm
from search.models import SavedView
from search.query import SearchQuery


class SavedViewForm(ModelForm):
    """A saved view keeps a query in its one canonical form, so that two views can be compared."""

    class Meta:
        model = SavedView
        fields = ("name", "slug", "description", "query", "owner", "visibility", "pinned", "is_default", "watched")

    def clean_query(self) -> str:
        pairs = parse_qsl(self.cleaned_data["query"].lstrip("?"), keep_blank_values=True)
        query, problems = SearchQuery.read(pairs)
        if problems:
            raise forms.ValidationError([str(problem) for problem in problems])
        return query.querystring()


@admin.register(SavedView)
class SavedViewAdmin(CurationAdmin):
    form = SavedViewForm
    list_display = ("name", "owner", "visibility", "query", "pinned", "is_default", "watched", "updated_at")
    list_select_related = ("owner",)
    list_filter = ("visibility", "pinned", "is_default", "watched")
    search_fields = ("name", "slug", "description", "query", "owner__username")
    autocomplete_fields = ("owner",)
    readonly_fields = ("created_at", "updated_at")
    prepopulated_fields = {"slug": ("name",)}

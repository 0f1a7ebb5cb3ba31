"""The admin of memories: a list, and a form over the fields of a row that goes through the services.

New memories, their terms, states and links are written on the pages of the site, which can undo it.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from pydantic import ValidationError

from access.admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from memories.models import Memory
from memories.queries import visible_to
from memories.records import MemoryChanges, MemoryRecord
from memories.refusals import AlreadyExistsError, ChangeRefusedError, MemoryNotFoundError, NotAllowedError
from memories.services import memory_archive, memory_delete, memory_restore, memory_update
from search.engines.sql import has_words
from web.admin import Lines, Prose
from web.validation import reasons

# An action writes each memory and its audit event; larger changes are work for a command.
MAX_IN_ACTION = 1_000

# Fields of the form with another name in the record.
RECORD_NAMES = {"memory_type": "type", "source_uri": "source_url", "external_id": "id"}
FORM_NAMES = {record: form for form, record in RECORD_NAMES.items()}


class MemoryForm(ServiceForm):
    summary = Prose(required=False)
    content = Prose(strip=False, widget=forms.Textarea(attrs={"rows": 24, "class": "vLargeTextField"}))
    tags = Lines(required=False, help_text="One per line.")
    authors = Lines(required=False, help_text="One per line.")
    importance = forms.FloatField(required=False, min_value=0, max_value=1, help_text="0 to 1.")
    confidence = forms.FloatField(required=False, min_value=0, max_value=1, help_text="0 to 1.")
    reason = forms.CharField(required=False, help_text="Why you change it: kept in the history of the memory.")

    class Meta:
        model = Memory
        fields = (
            *("title", "summary", "content", "memory_type", "tags", "importance", "confidence", "pinned"),
            *("created_at", "happened_at", "valid_from", "valid_to"),
            *("authors", "agent", "source", "source_uri", "external_id"),
        )

    def write(self) -> Refused:
        changed = {name: self.cleaned_data[name] for name in self.changed_data if name != "reason"}
        if not changed:
            return
        fields = {RECORD_NAMES.get(name, name): value for name, value in changed.items()}
        named = {"memory_id": self.instance.pk, "viewer": self.viewer, "reason": self.cleaned_data["reason"]}
        try:
            # A form with errors must change nothing.
            with transaction.atomic():
                memory_update(changes=MemoryChanges.model_validate(fields), **named)
        except ValidationError as error:
            places = [str(detail["loc"][0]) if detail["loc"] else "" for detail in error.errors()]
            for place, reason in zip(places, reasons(error, MemoryRecord), strict=True):
                yield self._error(place, reason)
        except ChangeRefusedError as error:
            yield self._error(error.field, str(error))
        except (NotAllowedError, AlreadyExistsError, MemoryNotFoundError) as error:
            yield None, str(error)

    def _error(self, place: str, reason: str) -> tuple[str | None, str]:
        field = FORM_NAMES.get(place, place)
        return field if field in self.fields else None, reason.removeprefix(f"{place}: ")


class ReasonForm(ActionForm):
    """The action form with a reason."""

    reason = forms.CharField(required=False, max_length=1_000, widget=forms.TextInput(attrs={"placeholder": "reason"}))


class MemoryList(ChangeList):
    """The change list without long columns."""

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        rows = super().get_queryset(*args, **kwargs).annotate(head=Left("content", 80))
        return cast("QuerySet[Any]", rows.defer("content", "summary", "raw", "terms"))

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for memory in rows:
            # Without a title, str(memory) would load the content of each row.
            memory.title = memory.title or memory.head
        self.result_list = rows


class NamedValues(admin.AllValuesFieldListFilter):
    """The values of a text, with a word for the empty one, whose link would have no text."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": choice["display"] or "none"}


@admin.register(Memory)
class MemoryAdmin(ServiceAdmin):
    form = MemoryForm
    list_display = ("shown_id", "title", "project", "memory_type", "state", "source", "created_at", "pinned")
    list_display_links = ("shown_id", "title")
    list_select_related = ("project",)
    list_filter = ("state", "project", "memory_type", ("source", NamedValues), "pinned")
    date_hierarchy = "created_at"
    ordering = ("-created_at",)
    search_fields = ("title",)
    search_help_text = "Words, as in a search, or the number of a memory."
    actions = ("archive", "restore", "delete")
    action_form = ReasonForm
    fields = ("project", "shown_page", *MemoryForm.Meta.fields, "reason", "state", "state_reason", "updated_at", "raw")
    readonly_fields = ("project", "shown_page", "state", "state_reason", "updated_at", "raw")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Memory]:
        allowed = visible_to(admin_viewer(request)).defer("terms")
        return allowed.order_by(*self.get_ordering(request))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (not isinstance(obj, Memory) or admin_viewer(request).may_write(obj.project_id))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_removal_permission(self, request: HttpRequest) -> bool:
        """For the action that deletes: the memory stays stored, so Django's own deletion is not offered."""
        return request.user.has_perm("memories.delete_memory")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return MemoryList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.replace("\x00", "").strip()
        number = text.removeprefix("#")
        if number.isascii() and number.isdecimal() and len(number) < 19:
            return queryset.filter(Q(pk=int(number)) | Q(external_id=number)), False
        return (queryset.filter(Q(title__icontains=text) | has_words(text)) if text else queryset), False

    @admin.display(description="#", ordering="pk")
    def shown_id(self, memory: Memory) -> str:
        return f"#{memory.pk}"

    def view_on_site(self, memory: Memory) -> str:
        return reverse("explorer:memory", args=[memory.pk])

    @admin.display(description="terms, state, links and history")
    def shown_page(self, memory: Memory) -> SafeString:
        return format_html('<a href="{}">On its page</a>', self.view_on_site(memory))

    @admin.action(description="Archive the selected memories", permissions=["change"])
    def archive(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change_each(request, queryset, memory_archive, "Archived")

    @admin.action(description="Restore the selected memories", permissions=["change"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change_each(request, queryset, memory_restore, "Restored")

    @admin.action(description="Delete the chosen memories (they can be restored)", permissions=["removal"])
    def delete(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._change_each(request, queryset, memory_delete, "Deleted")

    def _change_each(
        self, request: HttpRequest, queryset: QuerySet[Memory], verb: Callable[..., Any], done: str
    ) -> None:
        """Apply a service to every selected memory, and report successes and refusals."""
        chosen = list(queryset.order_by().values_list("pk", flat=True)[: MAX_IN_ACTION + 1])
        if len(chosen) > MAX_IN_ACTION:
            messages.error(request, f"Select at most {MAX_IN_ACTION:,} memories at a time; nothing was changed.")
            return
        viewer = admin_viewer(request)
        reason = request.POST.get("reason", "").replace("\x00", "").strip()[:1_000] or f"{done} in the admin."
        refused = []
        for pk in chosen:
            try:
                verb(memory_id=pk, viewer=viewer, reason=reason)
            except (NotAllowedError, MemoryNotFoundError) as error:
                refused.append(str(error))
        messages.success(request, f"{done} {len(chosen) - len(refused):,} of {len(chosen):,} memories.")
        for refusal in dict.fromkeys(refused[:5]):
            messages.warning(request, refusal)

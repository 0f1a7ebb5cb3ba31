"""The admin of memories. Every change goes through the services; nothing is deleted.

Chunks and links have composite primary keys, which the admin cannot register: they show as panels on a memory's page.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
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

from access.models import AuditEvent
from access.service_admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from access.viewer import Viewer
from memories.embedding.chunking import chunk_text
from memories.models import Memory, Project
from memories.queries import visible_to
from memories.records import MemoryChanges, MemoryRecord, StrictMemoryRecord
from memories.services import (
    AlreadyExistsError,
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    memory_archive,
    memory_create,
    memory_delete,
    memory_restore,
    memory_supersede,
    memory_update,
)
from search.word_condition import has_words
from web.admin import Lines, Prose, panel
from web.validation import reasons

# Rows of a panel.
PANEL = 20
# An action writes each memory and its audit event; larger changes are work for a command.
MAX_IN_ACTION = 1_000

# Fields of the form with another name in the record.
RECORD_NAMES = {"memory_type": "type", "source_uri": "source_url", "external_id": "id"}
FORM_NAMES = {record: form for form, record in RECORD_NAMES.items()} | {"superseded_by": "successor"}

Verb = Callable[..., Any]


class MemoryForm(ServiceForm):
    """A memory as a record, validated like records of imports and the API."""

    title = forms.CharField(required=False, widget=forms.TextInput(attrs={"class": "vLargeTextField"}))
    summary = Prose(required=False)
    content = Prose(strip=False, widget=forms.Textarea(attrs={"rows": 24, "class": "vLargeTextField"}))
    tags = Lines(required=False, help_text="One per line.")
    categories = Lines(required=False, help_text="Paths such as Backend/Database, one per line. New ones are created.")
    concepts = Lines(required=False, help_text="One per line. New ones are created.")
    entities = Lines(required=False, help_text="As type:name, one per line. New ones are created.")
    authors = Lines(required=False, help_text="One per line.")
    importance = forms.FloatField(required=False, min_value=0, max_value=1, help_text="0 to 1.")
    confidence = forms.FloatField(required=False, min_value=0, max_value=1, help_text="0 to 1.")
    state = forms.ChoiceField(choices=Memory.State)
    successor = forms.IntegerField(
        required=False, label="superseded by", help_text="The number of the memory that replaces it."
    )
    reason = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"class": "vLargeTextField"}),
        help_text="Why you change it: kept in the history of the memory.",
    )

    class Meta:
        model = Memory
        fields = (
            "memory_type",
            "importance",
            "confidence",
            "pinned",
            "created_at",
            "happened_at",
            "valid_from",
            "valid_to",
            "agent",
            "source",
            "source_uri",
            "external_id",
        )
        widgets = {"source_uri": forms.URLInput(attrs={"class": "vLargeTextField"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known_entities: dict[str, dict[str, str]] = {}
        if self.instance.pk is not None:
            entities = self.instance.entity_links.order_by("entity").values("entity__entity_type", "entity__name")
            for entity in entities:
                kind, name = entity["entity__entity_type"], entity["entity__name"]
                self.known_entities[f"{kind}:{name}"] = {"type": kind, "name": name}
            self.initial = {**self.initial, **_record_of(self.instance), "entities": list(self.known_entities)}

    def write(self) -> Refused:
        try:
            # A form with errors must change nothing.
            with transaction.atomic():
                self.store()
        except ValidationError as error:
            places = [str(detail["loc"][0]) if detail["loc"] else "" for detail in error.errors()]
            for place, reason in zip(places, reasons(error, MemoryRecord), strict=True):
                field = FORM_NAMES.get(place, place)
                yield field if field in self.fields else None, reason.removeprefix(f"{place}: ")
        except ChangeRefusedError as error:
            field = FORM_NAMES.get(error.field, error.field)
            yield field if field in self.fields else None, str(error).removeprefix(f"{error.field}: ")
        except (NotAllowedError, AlreadyExistsError, MemoryNotFoundError) as error:
            yield None, str(error)

    def store(self) -> None:
        """Pass the changed fields to the services."""
        changed = self.record_fields(self.changed_data)
        named = {"memory_id": self.instance.pk, "viewer": self.viewer, "reason": self.cleaned_data["reason"]}
        verb = self.state_verb()
        if verb is None:
            changed |= self.state_fields()
        if changed:
            memory_update(changes=MemoryChanges.model_validate(changed), **named)
        if verb is not None:
            verb(**named)

    def record_fields(self, names: Iterable[str]) -> dict[str, Any]:
        """Fields of the form as fields of a record, without the state."""
        wanted = (name for name in names if name not in {"reason", "state", "successor"})
        fields = {RECORD_NAMES.get(name, name): self.cleaned_data[name] for name in wanted}
        if "entities" in fields:
            # Existing entities are matched by line, since not every `type:name` parses back to the same parts.
            fields["entities"] = [self.known_entities.get(line, line) for line in fields["entities"]]
        return fields

    def state_verb(self) -> Verb | None:
        """The service that sets the selected state, if there is one."""
        if not {"state", "successor"} & set(self.changed_data):
            return None
        state, successor = self.cleaned_data["state"], self.cleaned_data["successor"]
        if state != Memory.State.SUPERSEDED:
            return STATE_VERBS.get(state) if "state" in self.changed_data else None
        if successor is None:
            raise ChangeRefusedError("superseded_by", "enter the memory that replaces it")
        return partial(memory_supersede, by_id=successor)

    def state_fields(self) -> dict[str, Any]:
        """The selected state as fields of a record."""
        fields = {}
        if "state" in self.changed_data:
            fields["state"] = self.cleaned_data["state"]
        if "successor" in self.changed_data:
            successor = self.cleaned_data["successor"]
            fields["superseded_by"] = "" if successor is None else f"#{successor}"
        return fields


class NewMemoryForm(MemoryForm):
    """The form of a new memory, with a project."""

    project = forms.ModelChoiceField(Project.objects.all())
    state = forms.ChoiceField(choices=[(Memory.State.ACTIVE, "active"), (Memory.State.PROPOSED, "proposed")])

    def store(self) -> None:
        given = self.record_fields(name for name, value in self.cleaned_data.items() if value not in (None, "", []))
        given |= {"project": self.cleaned_data["project"].slug, "state": self.cleaned_data["state"]}
        memory = memory_create(record=StrictMemoryRecord.model_validate(given), viewer=self.viewer)
        self.instance.pk = memory.pk


STATE_VERBS: dict[str, Verb] = {Memory.State.ARCHIVED: memory_archive, Memory.State.DELETED: memory_delete}


def _record_of(memory: Memory) -> dict[str, Any]:
    """Initial values of the fields that are not model fields."""
    shown = {name: getattr(memory, name) for name in ("title", "summary", "content", "state", "tags", "authors")}
    return shown | {
        "successor": memory.superseded_by_id,
        "categories": list(memory.category_links.order_by("category").values_list("category__path", flat=True)),
        "concepts": list(memory.concept_links.order_by("concept").values_list("concept__name", flat=True)),
    }


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
    panels = ("shown_links", "shown_backlinks", "shown_chunks", "shown_events")
    derived = ("content_hash", "record_hash", "category_ids", "category_path_ids", "concept_ids", "entity_ids")

    # --- permissions ----------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Memory]:
        allowed = visible_to(admin_viewer(request)).defer("terms")
        return allowed.order_by(*self.get_ordering(request))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and _may_write(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_write(request, obj)

    # --- the list ---------------------------------------------------------------------------------------------

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

    # --- the page ---------------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            kwargs["form"] = NewMemoryForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        content = ("title", "memory_type", "summary", "content", "tags", "categories", "concepts", "entities")
        state = ("state", ("importance", "confidence"), "pinned")
        dates = ("created_at", "happened_at", ("valid_from", "valid_to"))
        provenance = ("authors", "agent", "source", "source_uri", "external_id")
        if obj is None:
            return (
                (None, {"fields": ("project", *content)}),
                ("State and weight", {"fields": state}),
                ("Dates", {"fields": dates}),
                ("Provenance", {"fields": provenance}),
            )
        return (
            (None, {"fields": ("project", *content)}),
            ("State and weight", {"fields": ("state", "successor", "shown_reason", *state[1:])}),
            ("Dates", {"fields": (*dates, "updated_at")}),
            ("Provenance", {"fields": (*provenance, "session", "batch", "shown_raw")}),
            ("This change", {"fields": ("reason",)}),
            ("Related data", {"fields": self.panels}),
            ("Derived", {"fields": (*self.derived, "shown_terms"), "classes": ("collapse",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        fixed = ("project", "shown_reason", "updated_at", "session", "batch", "shown_raw")
        return (*fixed, *self.panels, *self.derived, "shown_terms")

    def view_on_site(self, memory: Memory) -> str:
        return reverse("explorer:memory", args=[memory.pk])

    @admin.display(description="why it is in this state")
    def shown_reason(self, memory: Any) -> str:
        return memory.state_reason or "no reason given"

    @admin.display(description="links")
    def shown_links(self, memory: Any) -> SafeString:
        links = memory.links.order_by("ordinal")[:PANEL]
        rows = ((link.rel, _linked(link.target_memory_id, link.target), link.url) for link in links)
        return panel(("how", "to", "address"), rows)

    @admin.display(description="linked from")
    def shown_backlinks(self, memory: Any) -> SafeString:
        links = memory.backlinks.filter(memory__in=visible_to(memory.viewer)).order_by("memory_id", "ordinal")[:PANEL]
        return panel(("from", "how"), ((_linked(link.memory_id), link.rel) for link in links))

    @admin.display(description="chunks")
    def shown_chunks(self, memory: Memory) -> SafeString:
        chunks = memory.chunks.select_related("model").defer("embedding").order_by("model_id", "ordinal")
        rows = ((c.ordinal, chunk_text(memory.content, c.start, c.end)[:80], c.model) for c in chunks[:PANEL])
        return panel(("", "text", "model"), rows)

    @admin.display(description="history")
    def shown_events(self, memory: Memory) -> SafeString:
        events = AuditEvent.objects.filter(subject_type="memory", subject_id=memory.pk)
        rows = (
            (f"{event.at:%Y-%m-%d %H:%M}", event.verb, event.user or event.api_key or "–", event.door, event.note)
            for event in events.select_related("user", "api_key")[:PANEL]
        )
        return panel(("at", "what", "who", "door", "why"), rows)

    @admin.display(description="as imported")
    def shown_raw(self, memory: Memory) -> SafeString:
        text = json.dumps(memory.raw, ensure_ascii=False, indent=2) if memory.raw is not None else "–"
        return format_html("<pre>{}</pre>", text[:20_000])

    @admin.display(description="terms")
    def shown_terms(self, memory: Memory) -> str:
        return str(memory.terms or "–")[:2_000]

    # --- deleting, which is a state ------------------------------------------------------------------------------

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The memories only: related rows are not deleted."""
        return [str(memory) for memory in objs], {"memories": len(objs)}, set(), []

    def delete_model(self, request: HttpRequest, obj: Memory) -> None:
        memory_delete(memory_id=obj.pk, viewer=admin_viewer(request), reason=_reason(request, "Deleted in the admin."))

    def get_actions(self, request: HttpRequest) -> Any:
        actions = super().get_actions(request)
        # Django's own action deletes rows.
        actions.pop("delete_selected", None)
        return actions

    @admin.action(description="Archive the selected memories", permissions=["change"])
    def archive(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._each(request, queryset, memory_archive, "Archived")

    @admin.action(description="Restore the selected memories", permissions=["change"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._each(request, queryset, memory_restore, "Restored")

    @admin.action(description="Delete the chosen memories (they can be restored)", permissions=["delete"])
    def delete(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        self._each(request, queryset, memory_delete, "Deleted")

    def _each(self, request: HttpRequest, queryset: QuerySet[Memory], verb: Verb, done: str) -> None:
        """Apply a service to every selected memory, and report successes and refusals."""
        chosen = list(queryset.order_by().values_list("pk", flat=True)[: MAX_IN_ACTION + 1])
        if len(chosen) > MAX_IN_ACTION:
            messages.error(request, f"Select at most {MAX_IN_ACTION:,} memories at a time; nothing was changed.")
            return
        viewer, reason = admin_viewer(request), _reason(request, f"{done} in the admin.")
        refused = [refusal for pk in chosen if (refusal := _refusal(verb, pk, viewer, reason))]
        messages.success(request, f"{done} {len(chosen) - len(refused):,} of {len(chosen):,} memories.")
        for refusal in dict.fromkeys(refused[:5]):
            messages.warning(request, refusal)


def _refusal(verb: Verb, memory_id: int, viewer: Viewer, reason: str) -> str:
    try:
        verb(memory_id=memory_id, viewer=viewer, reason=reason)
    except (NotAllowedError, MemoryNotFoundError) as error:
        return str(error)
    return ""


def _reason(request: HttpRequest, default: str) -> str:
    return request.POST.get("reason", "").replace("\x00", "").strip()[:1_000] or default


def _may_write(request: HttpRequest, memory: Any) -> bool:
    return not isinstance(memory, Memory) or admin_viewer(request).may_write(memory.project_id)


def _linked(memory_id: int | None, name: str = "") -> SafeString | str:
    """A link to a memory in the admin; the name if there is no memory."""
    if memory_id is None:
        return name
    address = reverse("admin:memories_memory_change", args=[memory_id])
    return format_html('<a href="{}">#{}</a> {}', address, memory_id, name)

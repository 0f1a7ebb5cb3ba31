"""The form that edits a memory, or some of its fields, and the one that writes a new memory.

Both go through the services. A refused form keeps what was typed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from django import forms
from django.forms import BoundField
from pydantic import ValidationError

from access.viewer import Viewer
from explorer.history.page import ShownChange, compare
from memories.history import memory_history
from memories.models import Memory, Project
from memories.queries import MemoryDetail, memory_version
from memories.records import MemoryChanges, StrictMemoryRecord
from memories.refusals import ChangeRefusedError, VersionConflictError
from memories.services import memory_archive, memory_create, memory_delete, memory_restore, memory_update
from web.admin import Lines, Prose
from web.errors import Refusal
from web.validation import reasons

TEXTS = ("title", "summary", "content")
TERMS = ("type", "tags", "categories", "concepts", "entities")
REPLACES, REPLACED_BY = "supersedes", "superseded_by"
# Fields that add to what is stored instead of showing it.
_ADDED = {REPLACES, REPLACED_BY}


def completed(kind: str, **more: Any) -> dict[str, Any]:
    """The attributes of a field for names of a kind, which a script completes."""
    return {"data-complete": kind, "autocomplete": "off", "spellcheck": "false", **more}


def _names_field(kind: str, help_text: str = "", label: str | None = None) -> Lines:
    attributes = {**completed(kind), "rows": 2, "data-many": "", "placeholder": "One per line"}
    return Lines(required=False, label=label, help_text=help_text, widget=forms.Textarea(attrs=attributes))


class EditForm(forms.Form):
    """The fields of a memory. `only` restricts it to some of them."""

    title = forms.CharField(required=False, help_text="Left empty, it is the beginning of the text.")
    summary = Prose(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    content = Prose(
        strip=False, label="Text", help_text="May have Markdown.", widget=forms.Textarea(attrs={"rows": 16})
    )
    project = forms.ChoiceField(required=False)
    type = forms.CharField(required=False, widget=forms.TextInput(attrs=completed("type")))
    tags = _names_field("tag")
    categories = _names_field("category", "Paths such as Backend/Database. New ones are created.")
    concepts = _names_field("concept", "New ones are created.")
    entities = _names_field("entity", "As type:name. New ones are created.")
    supersedes = _names_field(
        "memory",
        "The numbers of older memories, such as #12. They become superseded, and searches leave them out.",
        "This replaces",
    )
    superseded_by = forms.CharField(
        label="Replaced by",
        help_text="The number of the newer memory.",
        widget=forms.TextInput(attrs=completed("memory")),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None,
        viewer: Viewer,
        detail: MemoryDetail | None = None,
        *,
        only: Collection[str] = (*TEXTS, *TERMS, REPLACES),
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        self.viewer = viewer
        self.memory = detail.memory if detail else None
        self.is_conflict = False
        """Whether the memory has changed since it was read for the form."""
        values = _values_of(detail) if detail else {}
        # Not every `type:name` is read as the type and the name that it is made of.
        self.known_entities = dict(_entities_of(detail)) if detail else {}
        super().__init__(data, initial={**values, **(initial or {})}, auto_id="edit-%s")
        if "project" in only:
            project = cast("forms.ChoiceField", self.fields["project"])
            project.choices = [(slug, name or slug) for slug, name in _writable_projects(viewer)]
        for name in set(self.fields) - set(only):
            del self.fields[name]
        for name in {REPLACES, REPLACED_BY} & set(self.fields):
            attributes = self.fields[name].widget.attrs
            if self.memory is not None:
                attributes |= {"data-not": str(self.memory.pk), "data-project": self.memory.project.slug}

    @property
    def version(self) -> str:
        """The version of the memory that the form was filled with, or is to be sent with next."""
        return memory_version(self.memory) if self.memory else ""

    def record(self, names: Iterable[str]) -> dict[str, Any]:
        """Fields of the form as fields of a record."""
        values = {name: self.cleaned_data[name] for name in names}
        if "entities" in values:
            values["entities"] = [self.known_entities.get(line, line) for line in values["entities"]]
        return values

    def refuse(self, error: ValidationError | Refusal) -> None:
        """Add an error to the fields that it concerns, or to the form."""
        if isinstance(error, ValidationError):
            places = [str(detail["loc"][0]) if detail["loc"] else "" for detail in error.errors()]
            for place, reason in zip(places, reasons(error, StrictMemoryRecord), strict=True):
                self._add(place, reason)
            return
        self.is_conflict = isinstance(error, VersionConflictError)
        self._add(error.field if isinstance(error, ChangeRefusedError) else "", str(error))

    def _add(self, place: str, reason: str) -> None:
        text = reason.removeprefix(f"{place}: ")
        self.add_error(place if place in self.fields else None, text[:1].upper() + text[1:])

    def differences(self) -> tuple[ShownChange, ...]:
        """The values of the stored memory, compared with those that were typed."""
        stored = self.initial
        named = [(name, self.cleaned_data.get(name)) for name in self.fields if name not in _ADDED]
        return tuple(compare(name, stored.get(name), typed) for name, typed in named if typed != stored.get(name))


def _writable_projects(viewer: Viewer) -> Iterable[tuple[str, str]]:
    projects = Project.objects.order_by("slug")
    if viewer.writable_project_ids is not None:
        projects = projects.filter(pk__in=viewer.writable_project_ids)
    return projects.values_list("slug", "name")


def _entities_of(detail: MemoryDetail) -> Iterable[tuple[str, dict[str, str]]]:
    for term in detail.entities:
        name = term.value.removeprefix(f"{term.type}:")
        yield term.value, {"type": term.type, "name": name}


def _values_of(detail: MemoryDetail) -> dict[str, Any]:
    memory = detail.memory
    return {
        "title": memory.title,
        "summary": memory.summary,
        "content": memory.content,
        "project": memory.project.slug,
        "type": memory.memory_type,
        "tags": list(memory.tags),
        "categories": [node.path for node in detail.categories],
        "concepts": [term.value for term in detail.concepts],
        "entities": [term.value for term in detail.entities],
    }


def fact_controls(detail: MemoryDetail, viewer: Viewer) -> Mapping[str, BoundField]:
    """The fields that edit facts of a memory in place, by name; none if the viewer may not write it."""
    if not viewer.may_write(detail.memory.project_id):
        return {}
    return {field.name: field for field in EditForm(None, viewer, detail, only=(*TERMS, REPLACES, REPLACED_BY))}


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Undoing:
    """The memory and the event of its history that a change is taken back to."""

    memory_id: int
    event: str
    version: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A written memory, the changed fields, and what takes the change back, if one step can."""

    memory: Memory
    fields: tuple[str, ...]
    undo: Undoing | None


def memory_write(form: EditForm, version: str) -> Edited | None:
    """Store the changed fields of a valid form. None, with errors on the form, if they are refused."""
    memory = form.memory
    if memory is None:
        raise ValueError("the form has no memory")
    names = form.changed_data
    # Replacing older memories changes those, not this one.
    older = _only_number(form.cleaned_data.get(REPLACES, ())) if names == [REPLACES] else memory.pk
    event = _last_event(older, form.viewer) if older else ""
    try:
        changes = MemoryChanges.model_validate(form.record(names))
        stored = memory_update(memory_id=memory.pk, changes=changes, viewer=form.viewer, if_version=version)
    except (ValidationError, Refusal) as error:
        form.refuse(error)
        return None
    undo = _undoing(older, event) if older and event and (REPLACES not in names or older != memory.pk) else None
    return Edited(stored, tuple(names), undo)


def memory_write_new(form: EditForm) -> Edited | None:
    """Store a new memory from a valid form. None, with errors on the form, if it is refused."""
    given = [name for name, value in form.cleaned_data.items() if value not in (None, "", [])]
    try:
        record = StrictMemoryRecord.model_validate(form.record(given))
        memory = memory_create(record=record, viewer=form.viewer)
    except (ValidationError, Refusal) as error:
        form.refuse(error)
        return None
    return Edited(memory, tuple(given), None)


_STATE_VERBS: dict[str, Callable[..., Memory]] = {
    "archived": memory_archive,
    # The page shows the successor beside the button.
    "active": partial(memory_restore, despite_successor=True),
    "deleted": memory_delete,
}
STATES = tuple(_STATE_VERBS)


def memory_set_state(memory_id: int, state: str, viewer: Viewer, reason: str) -> Edited:
    """Archive, restore or delete a memory. Raises a refusal."""
    event = _last_event(memory_id, viewer)
    memory = _STATE_VERBS[state](memory_id=memory_id, viewer=viewer, reason=reason)
    return Edited(memory, ("state",), _undoing(memory_id, event))


def _last_event(memory_id: int, viewer: Viewer) -> str:
    history = memory_history(viewer, memory_id, limit=1)
    return history.events[0].id if history and history.events else ""


def _undoing(memory_id: int, event: str) -> Undoing | None:
    if not event:
        return None
    memory = Memory.objects.defer("content", "terms", "raw").get(pk=memory_id)
    return Undoing(memory_id, event, memory_version(memory))


def _only_number(names: Sequence[str]) -> int | None:
    """The number of the only memory that is named, if it is named by its number."""
    text = names[0].removeprefix("#") if len(names) == 1 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

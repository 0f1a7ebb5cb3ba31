"""The form that edits a memory, or some of its fields, and the one that writes a new memory.

Both go through the services. A refused form keeps what was typed.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, cast

from django import forms
from django.forms import BoundField
from pydantic import ValidationError

from access.viewer import Viewer
from explorer.history.page import ShownChange, compare
from memories.dates import AmbiguousDateError, read_moment
from memories.history import memory_history
from memories.models import Memory, Project
from memories.projects import ProjectExistsError, project_create
from memories.queries import MAX_LINKS, MemoryDetail, memory_version
from memories.records import DEFAULT_REL, SUPERSEDED_BY_REL, MemoryChanges, StrictMemoryRecord
from memories.refusals import ChangeRefusedError, VersionConflictError
from memories.resolve import without_text_links
from memories.services import memory_archive, memory_create, memory_delete, memory_restore, memory_update
from memories.snapshot import NamedLink
from memories.storage import one_revision
from text.formatting import local_time
from web.admin import Lines, Prose
from web.errors import Refusal
from web.validation import reasons

TEXTS = ("title", "summary", "content")
TERMS = ("type", "tags", "categories", "concepts", "entities")
REPLACES, REPLACED_BY = "supersedes", "superseded_by"
NEW_PROJECT = "new_project"
# The further fields of a memory, as they are grouped on its page.
GROUPS = {
    "Dates": ("created_at", "happened_at", "updated_at", "valid_from", "valid_to"),
    "State and weight": ("state", "reason", REPLACED_BY, "pinned", "importance", "confidence"),
    "People and source": ("authors", "agent", "session", "source", "source_url", "external_id"),
    "Links": ("links",),
}
EVERY = (*TEXTS, "project", NEW_PROJECT, *TERMS, REPLACES, *(name for names in GROUPS.values() for name in names))
# Fields that add to what is stored instead of showing it.
_ADDED = {REPLACES, REPLACED_BY, NEW_PROJECT}


def completed(kind: str, **more: Any) -> dict[str, Any]:
    """The attributes of a field for names of a kind, which a script completes."""
    return {"data-complete": kind, "autocomplete": "off", "spellcheck": "false", **more}


def _names_field(kind: str, help_text: str = "", label: str | None = None) -> Lines:
    attributes = {**completed(kind), "rows": 2, "data-many": "", "placeholder": "One per line"}
    return Lines(required=False, label=label, help_text=help_text, widget=forms.Textarea(attrs=attributes))


class MomentField(forms.Field):
    """A date, with or without a time, as people write it. Without an offset it is one of the reader's zone."""

    zone: tzinfo = UTC

    def __init__(self, **more: Any) -> None:
        attributes = {"placeholder": "2026-08-05 14:30", "autocomplete": "off", "spellcheck": "false"}
        super().__init__(required=False, widget=forms.TextInput(attrs=attributes), **more)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            return value
        text = local_time(value, self.zone).strftime("%Y-%m-%d %H:%M:%S")
        return text.removesuffix(":00").removesuffix(" 00:00")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((self.prepare_value(initial) or "") != (data or "").strip())

    def to_python(self, value: Any) -> Any:
        text = (value or "").strip()
        try:
            moment = read_moment(text, zone=self.zone)
            return moment and moment.astimezone(UTC)
        except AmbiguousDateError as error:
            raise forms.ValidationError(f"{error}. Write the year first, such as 2026-08-05.") from error
        except (ValueError, OverflowError) as error:
            reason, shapes = str(error).partition(": ")[0], "2026-08-05, 2026-08-05 14:30 or 5 August 2026"
            raise forms.ValidationError(f"{reason}. Write it as {shapes}.") from error


class ShareField(forms.Field):
    """A number from 0 to 1, or a percentage."""

    def __init__(self, **more: Any) -> None:
        super().__init__(required=False, widget=forms.TextInput(attrs={"inputmode": "decimal"}), **more)

    def to_python(self, value: Any) -> Any:
        text = (value or "").replace(",", ".").replace(" ", "")
        if not text:
            return None
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        share = number / 100 if text.endswith("%") else number
        if not 0 <= share <= 1:
            raise forms.ValidationError(f"“{value}” is not a share: write a number from 0 to 1, such as 0.8, or 80 %.")
        return share


_LINK_LINE = re.compile(r"(?:(?P<rel>\S+): )?(?P<target>.*?)(?: <(?P<url>\S*)>)?", re.DOTALL)


class LinksField(Lines):
    """Links of a memory, one in a line: `relation: target <address>`, of which the target alone is needed."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(_link_line, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed([_link_line(link) for link in initial or ()], data)

    def clean(self, value: Any) -> Any:
        found = (_LINK_LINE.fullmatch(line) for line in super().clean(value))
        return [{name: text for name, text in match.groupdict().items() if text} for match in found if match]


def _link_line(link: Mapping[str, str]) -> str:
    address = f" <{link['url']}>" if link["url"] or link["target"].endswith(">") else ""
    return f"{link['rel']}: {link['target']}{address}"


class EditForm(forms.Form):
    """The fields of a memory. `only` restricts it to some of them."""

    title = forms.CharField(required=False, help_text="Left empty, it is the beginning of the text.")
    summary = Prose(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    content = Prose(
        strip=False, label="Text", help_text="May have Markdown.", widget=forms.Textarea(attrs={"rows": 16})
    )
    project = forms.ChoiceField(required=False)
    new_project = forms.CharField(
        required=False,
        max_length=200,
        label="New project",
        help_text="Its name: it is made when this is saved. Left empty, the one above stays.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
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
    created_at = MomentField(label="Created", help_text="The date that searches, the histogram and sorting take.")
    happened_at = MomentField(label="Happened")
    updated_at = MomentField(label="Updated", help_text="Left as it is, it is the time of this change.")
    valid_from = MomentField(label="Valid from")
    valid_to = MomentField(label="Valid to")
    state = forms.ChoiceField()
    reason = forms.CharField(required=False, max_length=1_000, label="Why", help_text="For the history.")
    pinned = forms.BooleanField(required=False)
    importance = ShareField(help_text="From 0 to 1, or in percent.")
    confidence = ShareField()
    authors = _names_field("author")
    agent = forms.CharField(required=False, widget=forms.TextInput(attrs=completed("agent")))
    session = forms.CharField(required=False, help_text="Its id, as its agent gives it.")
    source = forms.CharField(required=False, widget=forms.TextInput(attrs=completed("source")))
    source_url = forms.CharField(required=False, label="Address of the original")
    external_id = forms.CharField(
        required=False, label="Original id", help_text="Imports and clients know the memory by it."
    )
    links = LinksField(
        required=False,
        help_text="One per line, such as “caused-by: #12”. An address may follow: “see: RFC 9110 <https://…>”.",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None,
        viewer: Viewer,
        detail: MemoryDetail | None = None,
        *,
        only: Collection[str] = EVERY,
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
        own = set(only) if viewer.may_write(None) else set(only) - {NEW_PROJECT}
        for name in set(self.fields) - own:
            del self.fields[name]
        for field in self.fields.values():
            if isinstance(field, MomentField):
                field.zone = viewer.timezone
        if "state" in self.fields and self.memory:
            state = cast("forms.ChoiceField", self.fields["state"])
            # A memory is superseded by naming the newer one.
            chosen = [one for one in Memory.State.values if one != "superseded" or one == self.memory.state]
            state.choices = [(one, one.capitalize()) for one in chosen]
        if REPLACED_BY in self.fields:
            self.fields[REPLACED_BY].required = "content" not in only
        if detail and len(detail.links) >= MAX_LINKS:
            # The others would be lost.
            self.fields.pop("links", None)
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
        values.pop("reason", None)
        if name := values.pop(NEW_PROJECT, ""):
            values["project"] = name
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
        place = {"id": "external_id"}.get(place, place)
        text = reason.removeprefix(f"{place}: ")
        self.add_error(place if place in self.fields else None, text[:1].upper() + text[1:])

    def differences(self) -> tuple[ShownChange, ...]:
        """The values of the stored memory, compared with those that were typed."""
        stored = self.initial
        named = [name for name in self.fields if name not in _ADDED and name in self.cleaned_data]
        values = ((name, *map(self._as_shown(name), (stored.get(name), self.cleaned_data[name]))) for name in named)
        return tuple(compare(name, before, typed) for name, before, typed in values if typed != before)

    def _as_shown(self, name: str) -> Callable[[Any], Any]:
        """Gives a value of a field as its text, but for lists of names."""
        field = self.fields[name]
        return field.prepare_value if isinstance(field, MomentField) else _link_lines if name == "links" else _same

    @property
    def changed_fields(self) -> list[str]:
        """The fields of the memory that differ from what is stored."""
        return [name for name in self.changed_data if name != "reason"]

    @property
    def main_fields(self) -> list[BoundField]:
        grouped = {field.name for _, fields, _ in self.groups for field in fields}
        return [self[name] for name in self.fields if name not in grouped]

    @property
    def groups(self) -> list[tuple[str, list[BoundField], bool]]:
        """The groups of further fields of a memory: label, fields, and whether one of them has an error."""
        if not {"content", "created_at"} <= self.fields.keys():
            return []
        found = [(label, [self[name] for name in names if name in self.fields]) for label, names in GROUPS.items()]
        return [(label, fields, any(field.errors for field in fields)) for label, fields in found if fields]


def _link_lines(links: Sequence[Mapping[str, str]]) -> list[str]:
    return [_link_line({"rel": DEFAULT_REL, "url": "", **link}) for link in links or ()]


def _same(value: Any) -> Any:
    return value


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
    named = [NamedLink(link.rel, link.target, link.url) for link in detail.links]
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
        REPLACED_BY: f"#{detail.superseded_by.id}" if detail.superseded_by else "",
        **{name: getattr(memory, name) for name in _COLUMNS},
        "authors": list(memory.authors),
        "session": memory.session.external_id if memory.session else "",
        "source_url": memory.source_uri,
        "links": [
            {"rel": link.rel, "target": link.target, "url": link.url}
            for link in without_text_links(named, memory.content)
            if link.rel != SUPERSEDED_BY_REL
        ],
    }


# Fields that are named like their columns, whose values they take as they are.
_COLUMNS = (
    *("created_at", "happened_at", "updated_at", "valid_from", "valid_to"),
    *("state", "pinned", "importance", "confidence", "agent", "source", "external_id"),
)


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
    names = form.changed_fields
    # Replacing older memories changes those, not this one.
    older = _only_number(form.cleaned_data.get(REPLACES, ())) if names == [REPLACES] else memory.pk
    event = _last_event(older, form.viewer) if older else ""
    try:
        changes = MemoryChanges.model_validate(form.record(names))
        reason = form.cleaned_data.get("reason", "")
        with one_revision():
            _make_project(form)
            stored = memory_update(
                memory_id=memory.pk, changes=changes, viewer=form.viewer, reason=reason, if_version=version
            )
    except (ValidationError, Refusal) as error:
        form.refuse(error)
        return None
    undo = _undoing(older, event) if older and event and (REPLACES not in names or older != memory.pk) else None
    return Edited(stored, tuple(names), undo)


def _make_project(form: EditForm) -> None:
    """Make the project that a form names as new. Raises ChangeRefusedError for one that is there."""
    if not (name := form.cleaned_data.get(NEW_PROJECT)):
        return
    try:
        project_create(slug="", name=name, viewer=form.viewer)
    except ProjectExistsError as error:
        raise ChangeRefusedError(NEW_PROJECT, f"{error} Choose it above.") from error


def memory_write_new(form: EditForm) -> Edited | None:
    """Store a new memory from a valid form. None, with errors on the form, if it is refused."""
    given = [name for name, value in form.cleaned_data.items() if value not in (None, "", [])]
    try:
        record = StrictMemoryRecord.model_validate(form.record(given))
        with one_revision():
            _make_project(form)
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

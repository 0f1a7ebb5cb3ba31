"""The forms of the pages, one for each operation. The operation's model, shared with the API, validates them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

from django import forms
from pydantic import ValidationError

from access.viewer import Viewer
from curation.plan import Plan
from curation.queries import TermNotFoundError, not_found_message
from curation.schemas import NO_DATE, Alias, Create, Merge, Move, Operation, Relate, Rename, Retag, Split
from curation.services import Applied, CurationBusyError, PlanChangedError, curation_apply, curation_plan
from curation.working_copy import CurationRefusedError, TermRef
from explorer.memory.edit import MomentField, completed
from web.admin import Lines
from web.validation import reasons

CONCEPT_RELATIONS = (
    ("broader", "broader than this"),
    ("narrower", "narrower than this"),
    ("related", "related to this"),
)
# The memories to edit: their numbers, or `all` that match; and the part of the form to begin with.
CHOICE = ("memory", "take", "do")
# Submitted values that are not fields.
_NOT_FIELDS = {"csrfmiddlewaretoken", "query", "token", "next", *CHOICE}


def _lines_field(label: str, help_text: str = "One per line.") -> Lines:
    return Lines(required=False, label=label, help_text=help_text, widget=forms.Textarea(attrs={"rows": 2}))


def _term_field(label: str, **more: Any) -> forms.CharField:
    """A field for the name of a term of the form's kind."""
    return forms.CharField(label=label, max_length=1_600, widget=forms.TextInput(attrs=completed("")), **more)


class _Repeated(forms.Textarea):
    """A text of lines, or several fields of the same name."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return "\n".join(data.getlist(name)) if hasattr(data, "getlist") else data.get(name)


class OperationForm(forms.Form):
    """An operation on the term of the page. `operation` is set once the form is valid."""

    operation_class: type[Operation]
    legend: str
    operation: Operation

    def __init__(self, data: Mapping[str, Any] | None, kind: str, term: str) -> None:
        self.kind, self.term = kind, term
        super().__init__(data, auto_id=f"{self.operation_class.verb}-%s", prefix=None)
        for field in self.fields.values():
            if field.widget.attrs.get("data-complete") == "":
                field.widget.attrs["data-complete"] = kind

    @property
    def verb(self) -> str:
        return self.operation_class.verb

    def arguments(self) -> dict[str, Any]:
        """The arguments of the operation."""
        return {"kind": self.kind, "term": self.term, **self.cleaned_data}

    def clean(self) -> dict[str, Any]:
        # An ignored argument could widen the operation.
        if unknown := sorted(self.data.keys() - self.fields.keys() - _NOT_FIELDS):
            self.add_error(None, f"Unknown parameter: {', '.join(name[:40] for name in unknown)}.")
        if not self.errors:
            try:
                self.operation = self.operation_class.model_validate(self.arguments())
            except ValidationError as error:
                for reason in reasons(error, self.operation_class):
                    self._add_reason(reason)
        return self.cleaned_data

    def _add_reason(self, reason: str) -> None:
        """Add a reason such as `field: text` to its field; the label replaces the name."""
        where, _, text = reason.partition(": ")
        if not set(where.split(", ")) <= self.fields.keys():
            where, text = "", reason
        self.refuse(where, text[:1].upper() + text[1:])

    def refuse(self, field: str, reason: str) -> None:
        """Add an error to a field, or to the form if it has no such field."""
        self.add_error(field if field in self.fields else None, reason)

    def focus(self, field: str) -> None:
        """Give a field the focus when the page is opened."""
        if field in self.fields:
            self.fields[field].widget.attrs["autofocus"] = True


class NewCategoryForm(OperationForm):
    """A category without memories yet, and those above it that are missing."""

    operation_class, legend = Create, "New category"
    name = forms.CharField(
        max_length=1_600,
        help_text="Or a path, such as Backend/Clients.",
        widget=forms.TextInput(attrs={"autofocus": True}),
    )

    def __init__(self, data: Mapping[str, Any] | None) -> None:
        super().__init__(data, "category", "")

    def arguments(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.cleaned_data}


class RenameForm(OperationForm):
    operation_class, legend = Rename, "Rename"
    name = forms.CharField(max_length=600, label="New name")


class MergeForm(OperationForm):
    operation_class, legend = Merge, "Merge into another"
    target = _term_field("Into")

    def arguments(self) -> dict[str, Any]:
        return {"kind": self.kind, "source": self.term, **self.cleaned_data}


# Stands for the term that is kept if each category goes into the one above it.
INTO_PARENTS = "parents"


class MergeSeveralForm(OperationForm):
    """A merge of several terms. Each is named as operations name it; the one that stays may be among them."""

    operation_class, legend = Merge, "Merge"
    sources = Lines(required=False)
    target = _term_field("Keep", required=False)
    into_parents = forms.BooleanField(required=False)

    def __init__(self, kind: str, terms: Sequence[str], target: str) -> None:
        into_parents = kind == "category" and target == INTO_PARENTS
        ending = [term for term in terms if term != target]
        stays = {"into_parents": "1"} if into_parents else {"target": target}
        super().__init__({"sources": "\n".join(ending), **stays}, kind, "")

    def clean(self) -> dict[str, Any]:
        if not self.errors and not self.cleaned_data["sources"]:
            alone = "Choose some of them." if self.cleaned_data["into_parents"] else ""
            self.add_error(None, alone or "Choose two or more, of which one is kept.")
        return super().clean()

    def arguments(self) -> dict[str, Any]:
        return {"kind": self.kind, **{name: value for name, value in self.cleaned_data.items() if value}}


class MoveForm(OperationForm):
    operation_class, legend = Move, "Move"
    parent = _term_field("New parent", required=False, help_text="Leave empty for the top level.")

    def arguments(self) -> dict[str, Any]:
        return {"category": self.term, **self.cleaned_data}


class AliasForm(OperationForm):
    operation_class, legend = Alias, "Other names"
    add = _lines_field("Add")
    remove = Lines(required=False, label="Remove", widget=_Repeated())

    def removed(self) -> frozenset[str]:
        """The names that were ticked."""
        return frozenset((self["remove"].value() or "").splitlines())


class SplitForm(OperationForm):
    """A split. Memories are ticked on the page or in Explore; a query or numbers may be typed too."""

    operation_class, legend = Split, "Split"
    name = forms.CharField(max_length=600, label="New name")
    query = forms.CharField(
        required=False,
        max_length=8_000,
        label="Take the memories matching",
        help_text="A query, such as tag=db&since=30d.",
    )
    memories = forms.CharField(
        required=False,
        label="or these memories",
        help_text="Their numbers, such as 12 15 #19.",
        widget=_Repeated(attrs={"rows": 1}),
    )

    def ticked(self) -> frozenset[str]:
        """The numbers of the memories that were given, as written."""
        return frozenset(_words(self["memories"].value() or ""))

    def clean(self) -> dict[str, Any]:
        if not self.errors and not (self.cleaned_data["query"] or self.cleaned_data["memories"]):
            self.add_error(None, "Tick the memories that get the new name, or choose them in Explore.")
        return super().clean()

    def clean_memories(self) -> list[int]:
        numbers = _words(self.cleaned_data["memories"])
        if wrong := next((n for n in numbers if not (n.isascii() and n.isdecimal() and len(n) < 19)), None):
            raise forms.ValidationError(f"“{wrong}” is not the number of a memory.")
        return [int(number) for number in numbers]


def _words(numbers: str) -> list[str]:
    return [word.removeprefix("#") for word in numbers.replace(",", " ").split()]


class RelateForm(OperationForm):
    operation_class, legend = Relate, "Relate"
    how = forms.CharField(max_length=100, label="How", help_text="The type of the relationship, such as depends-on.")
    other = _term_field("To which other")
    fact = forms.CharField(required=False, max_length=2_000, label="The fact, in a sentence")
    remove = forms.BooleanField(required=False, label="Remove this relation")

    def __init__(self, data: Mapping[str, Any] | None, kind: str, term: str) -> None:
        super().__init__(data, kind, term)
        if kind != "entity":
            del self.fields["fact"]
        if kind == "concept":
            self.fields["how"] = forms.ChoiceField(choices=CONCEPT_RELATIONS, label="The other is")
        elif kind == "category":
            self.fields["how"] = forms.CharField(initial="related", widget=forms.HiddenInput())


def _names_field(kind: str, label: str) -> Lines:
    attributes = completed(kind, rows=2, placeholder="One per line") | {"data-many": ""}
    return Lines(required=False, label=label, widget=_Repeated(attrs=attributes))


def _removal_field(label: str) -> Lines:
    return Lines(required=False, label=label, widget=_Repeated())


class ValidityField(MomentField):
    """A date, or `none` for no date."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.widget.attrs["placeholder"] = "2026-08-05, or none"

    def to_python(self, value: Any) -> Any:
        return NO_DATE if (value or "").strip().lower() == NO_DATE else super().to_python(value)


class RetagForm(OperationForm):
    """An operation on chosen memories, or on all that match a query."""

    operation_class, legend = Retag, "Edit"
    add_tags = _names_field("tag", "Add tags")
    remove_tags = _removal_field("Remove tags")
    set_category = forms.CharField(
        required=False,
        max_length=1_600,
        label="Put into one category only",
        widget=forms.TextInput(attrs=completed("category")),
    )
    add_categories = _names_field("category", "Add categories")
    remove_categories = _removal_field("Remove categories")
    add_concepts = _names_field("concept", "Add concepts")
    remove_concepts = _removal_field("Remove concepts")
    add_entities = _names_field("entity", "Add entities")
    remove_entities = _removal_field("Remove entities")
    set_type = forms.CharField(
        required=False, max_length=100, label="Give them the type", widget=forms.TextInput(attrs=completed("type"))
    )
    set_project = forms.CharField(
        required=False, max_length=100, label="Move to the project", widget=forms.TextInput(attrs=completed("project"))
    )
    set_date = MomentField(label="Give them the date")
    shift_date = forms.CharField(
        required=False,
        max_length=30,
        label="or move their dates by",
        widget=forms.TextInput(attrs={"placeholder": "+3 days, -2 hours, +1 year"}),
    )
    set_valid_from = ValidityField(label="Valid from")
    set_valid_to = ValidityField(label="Valid to")
    add_authors = _names_field("author", "Add authors")
    remove_authors = _removal_field("Remove authors")
    set_authors = _names_field("author", "Only these authors")
    set_state = forms.ChoiceField(
        required=False,
        label="State",
        choices=(("", "Leave as it is"), ("archived", "Archive"), ("active", "Restore archived and deleted ones")),
    )
    merge_into = forms.IntegerField(required=False, label="Keep")
    reason = forms.CharField(required=False, max_length=1_000, label="Why, for the history")

    def __init__(
        self, data: Mapping[str, Any] | None, query: str, memories: Sequence[int] = (), zone: tzinfo = UTC
    ) -> None:
        self.memories = list(memories)
        super().__init__(data, "memory", query)
        for field in self.fields.values():
            if isinstance(field, MomentField):
                field.zone = zone

    def arguments(self) -> dict[str, Any]:
        chosen = {"memories": self.memories} if self.memories else {"query": self.term}
        given = {name: value or None if name in _NOT_EMPTY else value for name, value in self.cleaned_data.items()}
        return {**chosen, **given}


# Fields that are left empty mean that nothing is asked.
_NOT_EMPTY = {"set_state", "merge_into"}

FORMS: dict[str, type[OperationForm]] = {
    form.operation_class.verb: form for form in (RenameForm, MergeForm, MoveForm, AliasForm, RelateForm, SplitForm)
}


def term_name(kind: str, ref: TermRef) -> str:
    """A term as operations name it: a tag by its name, any other by `#id`."""
    return str(ref) if kind == "tag" else f"#{ref}"


def forms_of(kind: str, ref: TermRef, data: Mapping[str, Any] | None = None, verb: str = "") -> list[OperationForm]:
    """The forms for a kind. The submitted form comes first, with its data, so that its errors are visible."""
    verbs = sorted((name for name in FORMS if fits(name, kind)), key=lambda name: name != verb)
    return [FORMS[name](data if name == verb else None, kind, term_name(kind, ref)) for name in verbs]


def fits(verb: str, kind: str) -> bool:
    return verb in FORMS and not (verb == "move" and kind != "category") and not (verb == "relate" and kind == "tag")


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan to confirm. `changed` is true if it differs from the confirmed plan."""

    plan: Plan
    changed: bool = False


def submit_form(form: OperationForm, viewer: Viewer, token: str | None) -> Applied | Preview | None:
    """Apply the operation of a form if there is a token, else preview it. Returns None with errors on the form."""
    if not form.is_valid():
        return None
    try:
        if token is None:
            plan = curation_plan(operation=form.operation, viewer=viewer)
            for reason in plan.refusals:
                form.refuse(plan.field, reason)
            return None if plan.refusals else Preview(plan)
        # An empty token would accept any plan.
        return curation_apply(operation=form.operation.model_copy(update={"token": token or "none"}), viewer=viewer)
    except PlanChangedError as error:
        return Preview(error.plan, changed=True)
    except TermNotFoundError as error:
        form.refuse(error.field, not_found_message(error, viewer))
        return None
    except (CurationRefusedError, CurationBusyError) as error:
        form.refuse(getattr(error, "field", ""), str(error))
        return None

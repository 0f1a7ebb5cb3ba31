"""The forms of the pages, one a verb. Each ends as the request that the API takes, and is judged by it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from pydantic import ValidationError

from access.viewer import Viewer
from curation.plan import Plan
from curation.queries import TermNotFoundError, told
from curation.schemas import Alias, Asked, Merge, Move, Relate, Rename, Retag, Split
from curation.services import Applied, BusyError, PlanChangedError, curation_apply, curation_plan
from curation.working_copy import CurationRefusedError
from web.admin import Lines
from web.validation import reasons

CONCEPT_RELATIONS = (
    ("broader", "broader than this"),
    ("narrower", "narrower than this"),
    ("related", "related to this"),
)
# What a form is sent with besides its fields.
_BESIDE = {"csrfmiddlewaretoken", "query", "token"}


def _names(label: str, help_text: str = "One per line.") -> Lines:
    return Lines(required=False, label=label, help_text=help_text, widget=forms.Textarea(attrs={"rows": 2}))


def _target(label: str, **more: Any) -> forms.CharField:
    """A term by name; the browser offers those that are used most."""
    attributes = {"list": "terms", "autocomplete": "off", "spellcheck": "false"}
    return forms.CharField(label=label, max_length=1_600, widget=forms.TextInput(attrs=attributes), **more)


class VerbForm(forms.Form):
    """What is asked for of a term that the page is about. `asked` is the request, once the form is valid."""

    request: type[Asked]
    legend: str
    asked: Asked

    def __init__(self, data: Mapping[str, Any] | None, kind: str, term: str) -> None:
        self.kind, self.term = kind, term
        super().__init__(data, auto_id=f"{self.request.verb}-%s", prefix=None)

    @property
    def verb(self) -> str:
        return self.request.verb

    def arguments(self) -> dict[str, Any]:
        """The request's arguments by name."""
        return {"kind": self.kind, "term": self.term, **self.cleaned_data}

    def clean(self) -> dict[str, Any]:
        # What would be dropped in silence may have been meant to narrow.
        if strange := sorted(self.data.keys() - self.fields.keys() - _BESIDE):
            self.add_error(
                None,
                f"Unknown parameter: {', '.join(name[:40] for name in strange)}.",
            )
        if not self.errors:
            try:
                self.asked = self.request.model_validate(self.arguments())
            except ValidationError as error:
                for reason in reasons(error, self.request):
                    self._tell(reason)
        return self.cleaned_data

    def _tell(self, reason: str) -> None:
        """A reason that begins with the fields that it is about: the labels stand beside them here."""
        where, _, text = reason.partition(": ")
        if not set(where.split(", ")) <= self.fields.keys():
            where, text = "", reason
        self.refuse(where, text[:1].upper() + text[1:])

    def refuse(self, field: str, reason: str) -> None:
        """Show a reason at the field that it is about."""
        self.add_error(field if field in self.fields else None, reason)


class RenameForm(VerbForm):
    request, legend = Rename, "Rename"
    name = forms.CharField(max_length=600, label="New name")


class MergeForm(VerbForm):
    request, legend = Merge, "Merge into another"
    target = _target("Into")

    def arguments(self) -> dict[str, Any]:
        return {"kind": self.kind, "source": self.term, **self.cleaned_data}


class MoveForm(VerbForm):
    request, legend = Move, "Move"
    parent = _target("New parent", required=False, help_text="Leave empty for the top level.")

    def arguments(self) -> dict[str, Any]:
        return {"category": self.term, **self.cleaned_data}


class AliasForm(VerbForm):
    request, legend = Alias, "Other names"
    add = _names("Add")
    remove = _names("Remove", "One per line; for a category also an earlier path.")


class SplitForm(VerbForm):
    request, legend = Split, "Split"
    name = forms.CharField(max_length=600, label="New name")
    query = forms.CharField(
        required=False,
        max_length=8_000,
        label="Take the memories matching",
        help_text="A query, such as tag=db&since=30d.",
    )
    memories = forms.CharField(required=False, label="or these memories", help_text="Their numbers, such as 12 15 #19.")

    def clean_memories(self) -> list[int]:
        words = self.cleaned_data["memories"].replace(",", " ").split()
        numbers = [word.removeprefix("#") for word in words]
        if wrong := next((n for n in numbers if not (n.isascii() and n.isdecimal() and len(n) < 19)), None):
            raise forms.ValidationError(f"“{wrong}” is not the number of a memory.")
        return [int(number) for number in numbers]


class RelateForm(VerbForm):
    request, legend = Relate, "Relate"
    how = forms.CharField(max_length=100, label="How", help_text="The type of the relationship, such as depends-on.")
    other = _target("Other")
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


class RetagForm(VerbForm):
    """About all memories that match a query, in the place of a term."""

    request, legend = Retag, "Retag"
    add_tags = _names("Add tags")
    remove_tags = _names("Remove tags")
    add_categories = _names("Add categories")
    remove_categories = _names("Remove categories")
    add_concepts = _names("Add concepts")
    remove_concepts = _names("Remove concepts")
    add_entities = _names("Add entities", "One per line, such as person:Ada.")
    remove_entities = _names("Remove entities")
    set_category = _target("Set the category", required=False, help_text="Replaces all categories.")

    def arguments(self) -> dict[str, Any]:
        return {"query": self.term, **self.cleaned_data}


FORMS: dict[str, type[VerbForm]] = {
    form.request.verb: form for form in (RenameForm, MergeForm, MoveForm, AliasForm, SplitForm, RelateForm)
}


def forms_of(kind: str, term: str, data: Mapping[str, Any] | None = None, verb: str = "") -> list[VerbForm]:
    """The verbs that make sense for a kind; the one that was asked for with what it was asked with, and first, for
    what is wrong with it to be seen.
    """
    verbs = sorted((name for name in FORMS if fits(name, kind)), key=lambda name: name != verb)
    return [FORMS[name](data if name == verb else None, kind, term) for name in verbs]


def fits(verb: str, kind: str) -> bool:
    return verb in FORMS and not (verb == "move" and kind != "category") and not (verb == "relate" and kind == "tag")


@dataclass(frozen=True, slots=True)
class Proposed:
    """A plan to be shown; `changed` where it is another than the one that was agreed to."""

    plan: Plan
    changed: bool = False


def form_take(form: VerbForm, viewer: Viewer, token: str | None) -> Applied | Proposed | None:
    """Do what a form asks, as the plan of the token says, or propose it where there is no token. None where it is
    refused: the form then says why.
    """
    if not form.is_valid():
        return None
    try:
        if token is None:
            plan = curation_plan(asked=form.asked, viewer=viewer)
            for reason in plan.refusals:
                form.refuse(plan.field, reason)
            return None if plan.refusals else Proposed(plan)
        # An empty token would be that of any plan.
        return curation_apply(asked=form.asked.model_copy(update={"token": token or "none"}), viewer=viewer)
    except PlanChangedError as error:
        return Proposed(error.plan, changed=True)
    except TermNotFoundError as error:
        form.refuse(error.field, told(error, viewer))
        return None
    except (CurationRefusedError, BusyError) as error:
        form.refuse(getattr(error, "field", ""), str(error))
        return None

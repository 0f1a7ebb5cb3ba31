"""The forms for a new key, for roles and invitations, for signing in, and for another password."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from access.keys import MAX_PER_MINUTE
from access.limits import attempts, sender
from access.models import Membership
from access.services import KeyRights
from access.sign_in import known_browser
from access.viewer import SCOPES
from memories.models import Memory, Project
from web.command_line import command

logger = logging.getLogger("mnemoscope.sign_in")

# Wrong passwords within a quarter of an hour.
PER_ACCOUNT = 10
PER_ADDRESS = 30
EXPIRES = {"30": "in 30 days", "90": "in 90 days", "365": "in a year", "": "never"}
EVERY = "every"


SCOPE_LABELS = {
    "read": "search and read",
    "write": "store, change and delete memories",
    "curate": "change the vocabulary, and decide suggestions",
}


class RightsForm(forms.Form):
    """Scopes, and projects: some of those that are offered, or every project, if that is offered by a label."""

    def __init__(self, *args: Any, projects: Iterable[Project], every: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offered = list(projects)
        label = _project_labels(self.offered)
        named = ((str(project.pk), label(project)) for project in self.offered)
        self.fields["projects"].choices = [*([(EVERY, every)] if every else []), *named]  # type: ignore[attr-defined]

    def clean_projects(self) -> list[str]:
        chosen: list[str] = self.cleaned_data["projects"]
        if EVERY in chosen and len(chosen) > 1:
            raise forms.ValidationError("Select all projects or some of them, not both.")
        return chosen

    def options(self) -> dict[str, Any]:
        """The rights as keyword arguments of `access.keys.make_key` and `access.grants.grant_create`."""
        chosen = self.cleaned_data["projects"]
        return {
            "scopes": self.cleaned_data["scopes"],
            "projects": [project for project in self.offered if str(project.pk) in chosen],
            "every_project": EVERY in chosen,
        }


class KeyForm(RightsForm):
    """A new key. Offers only the projects whose keys the user manages."""

    name = forms.CharField(max_length=200, label="Name", help_text="Shown in the audit trail.")
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in SCOPES],
        widget=forms.CheckboxSelectMultiple,
        initial=["read"],
        label="Scopes",
        help_text="Each is apart from the others: write does not include read. Only admin includes all.",
    )
    projects = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple, label="Projects", help_text="At least one: a key sees no other."
    )
    expires = forms.ChoiceField(choices=list(EXPIRES.items()), required=False, initial="90", label="Expires")
    requests_per_minute = forms.IntegerField(
        min_value=1,
        max_value=MAX_PER_MINUTE,
        required=False,
        label="Requests per minute",
        help_text="Leave empty for the limit of this site.",
    )

    def __init__(self, *args: Any, rights: KeyRights, **kwargs: Any) -> None:
        every = "All projects, including new ones" if rights.every_project else ""
        super().__init__(*args, projects=rights.projects, every=every, **kwargs)

    def options(self) -> dict[str, Any]:
        data = self.cleaned_data
        expires_at = timezone.now() + timedelta(days=int(data["expires"])) if data["expires"] else None
        own = {"name": data["name"], "expires_at": expires_at, "requests_per_minute": data["requests_per_minute"]}
        return super().options() | own


class ConnectForm(RightsForm):
    """The choice of what an app may do: no more than it asks for, and no more than the person may."""

    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=["read"], label="It may")
    projects = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=[EVERY], label="In")

    def __init__(self, *args: Any, scopes: list[str], projects: Iterable[Project]) -> None:
        super().__init__(*args, projects=projects, every="All my projects, including future ones")
        self.fields["scopes"].choices = [(scope, SCOPE_LABELS[scope]) for scope in scopes]  # type: ignore[attr-defined]


def _project_labels(projects: Iterable[Project]) -> Callable[[Project], str]:
    """Gives the label of a project, which says so if it has no memories."""
    there = Exists(Memory.objects.filter(project=OuterRef("pk")))
    named = Project.objects.filter(pk__in=[project.pk for project in projects])
    empty = frozenset(named.exclude(there).values_list("pk", flat=True))

    def label(project: Project) -> str:
        return f"{project.name or project.slug}{' (no memories)' if project.pk in empty else ''}"

    return label


class RoleForm(forms.Form):
    """A role of a person in a project; without a role it ends."""

    person = forms.ModelChoiceField(User.objects.none(), label="Person", empty_label="Choose…")
    project = forms.ModelChoiceField(Project.objects.none(), label="Project", empty_label="Choose…")
    role = forms.ChoiceField(choices=Membership.Role.choices, required=False, label="Role")

    def __init__(self, *args: Any, people: QuerySet[User], projects: QuerySet[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["person"].queryset = people  # type: ignore[attr-defined]  # a choice field
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]
        self.fields["project"].label_from_instance = _project_labels(projects)  # type: ignore[attr-defined]


class InvitationForm(forms.Form):
    """A link that gives a role in projects."""

    role = forms.ChoiceField(choices=Membership.Role.choices, initial=Membership.Role.READER, label="Role")
    projects = forms.ModelMultipleChoiceField(
        Project.objects.none(), widget=forms.CheckboxSelectMultiple, label="Projects"
    )
    expires = forms.TypedChoiceField(
        choices=[("1", "in a day"), ("7", "in a week"), ("30", "in 30 days")], coerce=int, initial="7", label="Expires"
    )
    note = forms.CharField(
        max_length=200, required=False, label="For whom", help_text="Shown with the open invitation."
    )

    def __init__(self, *args: Any, projects: QuerySet[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["projects"].queryset = projects  # type: ignore[attr-defined]  # a choice field
        self.fields["projects"].label_from_instance = _project_labels(projects)  # type: ignore[attr-defined]

    def invitation_options(self) -> dict[str, Any]:
        """The keyword arguments of `access.services.invitation_create`."""
        data = self.cleaned_data
        return {
            "projects": data["projects"],
            "role": Membership.Role(data["role"]),
            "expires_at": timezone.now() + timedelta(days=data["expires"]),
            "note": data["note"],
        }


@contextmanager
def counted_attempt(name: str, request: HttpRequest | None, too_many: object) -> Iterator[None]:
    """Count an attempt at the password of an account, unless the block ends without an error. Raises ValidationError
    with the text `too_many` instead of running the block if there were several wrong ones.

    A browser with which the account has signed in is counted apart: whoever guesses elsewhere locks nobody out of it.
    """
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    counted: tuple[tuple[tuple[str, str], int], ...]
    if request and (browser := known_browser(request, name)):
        counted = ((("browser", browser), PER_ACCOUNT),)
    else:
        # An address that is refused does not count for the account, which it could lock for others.
        counted = ((("address", sender(address)), PER_ADDRESS), (("account", name.casefold()), PER_ACCOUNT))
    if wait := next((wait for one, most in counted if (wait := attempts.take(one, most).wait)), 0.0):
        logger.warning("Too many wrong passwords for %r from %s.", name[:100], address)
        raise forms.ValidationError(str(too_many), code="too_many", params={"seconds": math.ceil(wait)})
    yield
    for one, _ in counted:
        attempts.fill(one)


class SignInForm(AuthenticationForm):
    """Name and password. After several wrong ones the next is not even checked: checking takes a quarter of a second of
    computing, and guessing must not get anywhere.
    """

    error_messages = {
        **AuthenticationForm.error_messages,
        "too_many": "Too many wrong passwords. Wait %(seconds)s seconds, or sign in by a link: "
        + command("sign_in_link"),
    }

    def clean(self) -> dict[str, Any]:
        with counted_attempt(self.cleaned_data.get("username") or "", self.request, self.error_messages["too_many"]):
            return super().clean()


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The same for the admin."""


class PasswordForm(PasswordChangeForm):
    """Another password for whoever knows the present one. Wrong ones count like those of signing in."""

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        # The form is not the first thing on its page.
        del self.fields["old_password"].widget.attrs["autofocus"]

    def clean_old_password(self) -> str:
        too_many = "Too many wrong passwords. Wait %(seconds)s seconds."
        with counted_attempt(self.user.get_username(), self.request, too_many):
            return super().clean_old_password()

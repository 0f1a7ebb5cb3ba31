"""The form of a project, and the projects with their numbers as their page shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count

from access.models import Membership
from access.services import key_rights
from access.viewer import Viewer, may_write_everything
from explorer.links import explore_url, filter_url
from explorer.listings import listed_project, listed_projects
from memories.models import Memory, Project
from memories.projects import LANGUAGE_IS_KEPT, project_create, project_update
from memories.records import MAX_PROJECT
from memories.refusals import ChangeRefusedError
from search.query import SearchQuery
from text.analysis import languages
from web.admin import Prose
from web.errors import Refusal

_EVERY_STATE = tuple(sorted(Memory.State.values))


class ProjectSettingsForm(forms.Form):
    """A project. Its slug is asked for a new one alone, and its language while it has no memories."""

    name = forms.CharField(max_length=200)
    slug = forms.CharField(
        max_length=MAX_PROJECT,
        required=False,
        label="In addresses and filters",
        help_text="Stays as it is, whatever the name becomes. Left empty, it is made of the name.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    description = Prose(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))
    language = forms.ChoiceField(help_text="How its texts are stemmed.")
    secrets = forms.ChoiceField(required=False, label="Secrets in its memories")

    def __init__(self, data: Mapping[str, Any] | None, project: Project | None = None) -> None:
        self.project = project
        fields = ("name", "slug", "description", "language", "secrets")
        stored = {name: getattr(project, name) for name in fields} if project else {"language": "english"}
        super().__init__(data, initial=stored, auto_id="project-%s")
        language, secrets = (cast("forms.ChoiceField", self.fields[name]) for name in ("language", "secrets"))
        language.choices = [(one, one) for one in languages()]
        own = dict(Project._meta.get_field("secrets").flatchoices)
        secrets.choices = [("", f"As on the whole site: {own[settings.SECRETS]}"), *own.items()]
        if project is not None:
            del self.fields["slug"]
            if project.memories.exists():
                language.disabled, language.help_text = True, LANGUAGE_IS_KEPT

    def save(self, viewer: Viewer) -> Project | None:
        """Make or change the project. None, with errors on the form, if that is refused."""
        try:
            if self.project is None:
                return project_create(**self.cleaned_data, viewer=viewer)
            return project_update(project=self.project, **self.cleaned_data, viewer=viewer)
        except ChangeRefusedError as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        except Refusal as error:
            self.add_error("slug" if "slug" in self.fields else None, str(error))
        return None


@dataclass(frozen=True, slots=True)
class ProjectNumbers:
    """A project with its numbers. `memories` is None if they could not be counted in time, `members` for those who do
    not administer it.
    """

    project: Project
    memories: int | None
    url: str
    others: int
    """The number of memories in other states, counted only if searches find none in the project."""
    others_url: str
    members: int | None
    may_change: bool
    may_remove: bool


def project_rows(viewer: Viewer, user: User, only: Project | None = None) -> list[ProjectNumbers]:
    """The projects that somebody sees, by slug; with `only` one of them."""
    rows = listed_projects(viewer) if only is None else [listed_project(only, viewer)]
    members = _members([project.pk for project in key_rights(user).projects])
    others = _others([row.project.pk for row in rows if row.memories == 0])
    is_owner = may_write_everything(viewer)
    return [
        ProjectNumbers(
            project=row.project,
            memories=row.memories,
            url=filter_url("project", row.project.slug),
            others=others.get(row.project.pk, 0),
            others_url=explore_url(SearchQuery().only("project", row.project.slug).with_(state=_EVERY_STATE)),
            members=members.get(row.project.pk),
            may_change=viewer.may_curate(row.project.pk),
            may_remove=is_owner and row.memories == 0 and row.project.pk not in others,
        )
        for row in rows
    ]


def _members(projects: Sequence[int]) -> dict[int, int]:
    active = Membership.objects.filter(project__in=projects, user__is_active=True).order_by()
    counts = dict(active.values_list("project_id").annotate(Count("pk")))
    return {pk: counts.get(pk, 0) for pk in projects}


def _others(projects: Sequence[int]) -> dict[int, int]:
    """The numbers of memories of projects, of which searches find none."""
    if not projects:
        return {}
    return dict(Memory.objects.filter(project__in=projects).order_by().values_list("project_id").annotate(Count("pk")))

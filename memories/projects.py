"""Writes to projects: made and described here, never renamed in links and never deleted."""

from typing import Any

from django.db import transaction

from access.audit import audit
from access.viewer import Viewer
from memories.models import Project
from memories.services import AlreadyExistsError, ChangeRefusedError, NotAllowedError
from memories.storage import corpus_bump
from text.analysis import languages

LANGUAGE_IS_KEPT = "It cannot change once the project has memories, because it determines their terms."


@transaction.atomic
def project_create(
    *, slug: str, name: str, viewer: Viewer, description: str = "", language: str = "english"
) -> Project:
    """Make a project. One of the same slug is AlreadyExistsError."""
    if not viewer.may_write(None):
        raise NotAllowedError("You cannot create projects.")
    _refuse_unknown(language)
    project, made = Project.objects.get_or_create(
        slug=slug, defaults={"name": name, "description": description, "language": language}
    )
    if not made:
        raise AlreadyExistsError(project.pk, f"The project {slug!r} already exists.")
    _written(project, "project_create", viewer, None)
    return project


@transaction.atomic
def project_update(*, project: Project, name: str, description: str, language: str, viewer: Viewer) -> Project:
    """Say what a project is called and is about. Its slug stays: links and keys hold it."""
    if not viewer.may_write(project.pk):
        raise NotAllowedError(f"You cannot change the project {project.slug!r}.")
    # By its id alone, which is the only way a distributed Postgres locks a row.
    stored = Project.objects.select_for_update().get(pk=project.pk)
    before = _told(stored)
    if language != stored.language:
        _refuse_unknown(language)
        if stored.memories.exists():
            raise ChangeRefusedError("language", LANGUAGE_IS_KEPT)
    stored.name, stored.description, stored.language = name, description, language
    if _told(stored) != before:
        stored.save(update_fields=["name", "description", "language"])
        _written(stored, "project_update", viewer, before)
    return stored


def _refuse_unknown(language: str) -> None:
    if language not in languages():
        raise ChangeRefusedError("language", f"{language!r} is not known: write one of {', '.join(languages())}")


def _written(project: Project, verb: str, viewer: Viewer, before: dict[str, Any] | None) -> None:
    audit(viewer, verb, project, before=before, after=_told(project))
    # Facets show the name.
    corpus_bump()


def _told(project: Project) -> dict[str, Any]:
    """What the audit trail keeps of a project."""
    return {name: getattr(project, name) for name in ("slug", "name", "description", "language")}

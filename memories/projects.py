"""Writes to projects. A project is never deleted, and its slug never changes, since links contain it."""

from typing import Any

from django.db import transaction

from access.viewer import Viewer, audit
from categories.services import vocabulary_lock_shared
from memories.models import Project
from memories.refusals import AlreadyExistsError, ChangeRefusedError, NotAllowedError
from memories.storage import corpus_bump
from text.analysis import languages
from web.secrets import mask_note, texts_to_store

LANGUAGE_IS_KEPT = "It cannot change once the project has memories, because it determines their terms."


@transaction.atomic
def project_create(
    *, slug: str, name: str, viewer: Viewer, description: str = "", language: str = "english", secrets: str = ""
) -> Project:
    """Make a project. One of the same slug is AlreadyExistsError."""
    if not viewer.may_write(None):
        raise NotAllowedError("You cannot create projects.")
    _refuse_unknown(language)
    refuse_secret_slug(slug)
    texts = texts_to_store({"name": name, "description": description}, ChangeRefusedError)
    vocabulary_lock_shared()
    project, made = Project.objects.get_or_create(
        slug=slug, defaults={**texts, "language": language, "secrets": secrets}
    )
    if not made:
        raise AlreadyExistsError(project.pk, f"The project {slug!r} already exists.")
    _written(project, "project_create", viewer, None)
    return project


@transaction.atomic
def project_update(
    *, project: Project, name: str, description: str, language: str, viewer: Viewer, secrets: str = ""
) -> Project:
    """Change a project. Its slug stays: links and keys contain it."""
    if not viewer.may_curate(project.pk):
        raise NotAllowedError(f"You cannot change the project {project.slug!r}.")
    vocabulary_lock_shared()
    # A lock by id: the only form that works on a distributed table.
    stored = Project.objects.select_for_update().get(pk=project.pk)
    before = _audit_fields(stored)
    if language != stored.language:
        _refuse_unknown(language)
        if stored.memories.exists():
            raise ChangeRefusedError("language", LANGUAGE_IS_KEPT)
    texts = texts_to_store({"name": name, "description": description}, ChangeRefusedError)
    stored.name, stored.description = texts["name"], texts["description"]
    stored.language, stored.secrets = language, secrets
    if _audit_fields(stored) != before:
        stored.save(update_fields=["name", "description", "language", "secrets"])
        _written(stored, "project_update", viewer, before)
    return stored


def refuse_secret_slug(slug: str) -> None:
    """Raise ChangeRefusedError for a slug that is a secret: links hold it, so that no mark can stand in its place."""
    if mask_note(slug) != slug:
        raise ChangeRefusedError("project", "is a secret, such as a key: choose another name")


def _refuse_unknown(language: str) -> None:
    if language not in languages():
        raise ChangeRefusedError("language", f"{language!r} is not known: write one of {', '.join(languages())}")


def _written(project: Project, verb: str, viewer: Viewer, before: dict[str, Any] | None) -> None:
    audit(viewer, verb, project, before=before, after=_audit_fields(project))
    # Facets show the name.
    corpus_bump()


def _audit_fields(project: Project) -> dict[str, Any]:
    """The fields of a project in the audit trail."""
    return {name: getattr(project, name) for name in ("slug", "name", "description", "language", "secrets")}

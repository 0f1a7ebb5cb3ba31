"""Writes to projects. One with memories is never removed, and no slug ever changes: links, keys' rules and imports
contain it, and a name is free.
"""

from typing import Any

from django.db import transaction

from access.viewer import Viewer, audit, may_write_everything
from categories.models import LocalText
from categories.paths import clean_name
from categories.services import vocabulary_lock, vocabulary_lock_shared
from memories.models import FollowedSource, Memory, Project
from memories.records import MAX_PROJECT, slug_name
from memories.refusals import AlreadyExistsError, ChangeRefusedError, NotAllowedError
from memories.storage import corpus_bump
from text.analysis import languages
from text.formatting import memories
from web.secrets import mask_note, texts_to_store

LANGUAGE_IS_KEPT = "It cannot change once the project has memories, because it determines their terms."
_MAX_NAME = 200


class ProjectExistsError(AlreadyExistsError):
    """A project of this slug is there."""

    def __init__(self, project: Project) -> None:
        super().__init__(project.pk, f"The project {project.slug!r} already exists.")
        self.suggestion = f"Change it: PATCH /api/projects/{project.slug}"
        self.headers = {}


class ProjectUsedError(ChangeRefusedError):
    """A project that something is in, or goes into, and that is not removed."""

    status = 409
    code = "in_use"
    suggestion = "Move its memories to another project first."


@transaction.atomic
def project_create(
    *, slug: str, name: str, viewer: Viewer, description: str = "", language: str = "english", secrets: str = ""
) -> Project:
    """Make a project. Without a slug, it is made of the name. One of the same slug is ProjectExistsError."""
    if not viewer.may_write(None):
        raise NotAllowedError("You cannot create projects.")
    slug, name = slug_name(slug or name), _checked_name(name or slug)
    if len(slug) > MAX_PROJECT:
        raise ChangeRefusedError("slug", f"has {len(slug)} characters; up to {MAX_PROJECT} are allowed")
    _refuse_unknown(language)
    refuse_secret_slug(slug)
    texts = texts_to_store({"name": name, "description": description}, ChangeRefusedError)
    vocabulary_lock_shared()
    project, made = Project.objects.get_or_create(
        slug=slug, defaults={**texts, "language": language, "secrets": secrets}
    )
    if not made:
        raise ProjectExistsError(project)
    _written(project, "project_create", viewer, None)
    return project


@transaction.atomic
def project_update(
    *, project: Project, name: str, description: str, language: str, viewer: Viewer, secrets: str = ""
) -> Project:
    """Change a project. Its slug stays: links and keys contain it."""
    if not viewer.may_curate(project.pk):
        raise NotAllowedError(f"You cannot change the project {project.slug!r}.")
    name = _checked_name(name)
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


@transaction.atomic
def project_delete(*, project: Project, viewer: Viewer) -> None:
    """Remove a project without memories, with its roles, sessions and suggestions. Raises ProjectUsedError.

    Those may who may make projects, and change all. Keys that were for it alone open nothing afterwards.
    """
    if not may_write_everything(viewer):
        raise NotAllowedError(f"You cannot remove the project {project.slug!r}.")
    # Nobody writes into it meanwhile.
    vocabulary_lock()
    # Also deleted ones, which can be restored.
    if count := Memory.objects.filter(project=project).count():
        raise ProjectUsedError("", f"{project.slug!r} has {memories(count)}, counting deleted ones.")
    if source := FollowedSource.objects.filter(project=project.slug).order_by("pk").first():
        error = ProjectUsedError("", f"What is new in {source.path} goes into {project.slug!r}.")
        error.suggestion = "Stop following that first."
        raise error
    roles = {str(one.user): one.role for one in project.memberships.select_related("user")}
    audit(viewer, "project_delete", project, before=_audit_fields(project) | {"roles": roles})
    project.delete()
    # Texts that held in it alone are nobody's now.
    LocalText.objects.exclude(project_ids__overlap=list(Project.objects.values_list("pk", flat=True))).delete()
    corpus_bump()


def _checked_name(name: str) -> str:
    """A name in one line. Raises ChangeRefusedError."""
    name = clean_name(name)
    if not 0 < len(name) <= _MAX_NAME:
        reason = f"has {len(name)} characters; up to {_MAX_NAME} are allowed" if name else "is empty"
        raise ChangeRefusedError("name", reason)
    return name


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

"""Followed sources as pages and the API see them: who may see, follow, stop and decide. All reads of this machine."""

import os
from collections.abc import Collection
from pathlib import Path

from access.viewer import Viewer
from home.jobs import JobStateError, check_may_import_all
from memories.following.queries import sources_read
from memories.following.services import source_new
from memories.importers.base import ImportFailedError
from memories.importers.discovery import places
from memories.importers.registry import importer_for
from memories.models import FollowedSource
from text.formatting import legible
from web.errors import Refusal


class SourceNotFoundError(Refusal):
    """A source that is not followed."""

    status = 404
    code = "not_found"
    suggestion = "GET /api/follows lists those that are."


class SourceRefusedError(Refusal):
    """A source that cannot be followed, or a conflict that cannot be decided, and why."""


def sources_of(viewer: Viewer) -> list[FollowedSource]:
    """The followed sources, with their `open_conflicts`. Raises FullRightsError."""
    check_may_import_all(viewer)
    return list(sources_read())


def source_named(viewer: Viewer, source_id: int) -> FollowedSource:
    """A followed source, with its `open_conflicts`. Raises FullRightsError or SourceNotFoundError."""
    check_may_import_all(viewer)
    source = sources_read().filter(pk=min(source_id, 2**63 - 1)).first()
    if source is None:
        raise SourceNotFoundError(f"No source {source_id} is followed.")
    return source


def is_followable(path: Path) -> bool:
    """Whether the format of a place is one that is followed. Raises NotReadableError."""
    return importer_for(path).follow is not None


def sources_follow(*, paths: Collection[Path], project: str, viewer: Viewer) -> list[FollowedSource]:
    """Follow stores of other systems on this machine; no other path. The process that follows reads them at once.

    Raises FullRightsError, JobStateError for another path, and SourceRefusedError.
    """
    check_may_import_all(viewer)
    known = places(Path.home(), os.environ)
    if strange := [path for path in paths if path not in known]:
        raise JobStateError(f"{legible(str(strange[0]), 200)} is not among the known places of this machine.")
    try:
        sources = [source_new(path=path, importer=importer_for(path), project=project, viewer=viewer) for path in paths]
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    for source in sources:
        source.save(force_insert=True)
    return sources

"""Followed sources as pages and the API see them: who may see, follow, stop and decide. All reads of this machine."""

import os
from collections.abc import Collection
from pathlib import Path

from django.db import IntegrityError, transaction

from access.viewer import Viewer
from memories.models import FollowedSource
from transfer.discover import places
from transfer.follow.queries import sources_read
from transfer.follow.services import source_new
from transfer.formats.base import ImportFailedError
from transfer.formats.registry import importer_for
from transfer.jobs import check_may_import_all, check_places
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


def followable(paths: Collection[Path]) -> list[Path]:
    """The stores whose format is followed, among known places of this machine. No other path is looked at.

    Raises JobStateError for another path, and SourceRefusedError for one that cannot be read.
    """
    check_places(paths, places(Path.home(), os.environ))
    try:
        return [path for path in paths if importer_for(path).follow is not None]
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None


def sources_follow(*, paths: Collection[Path], project: str, viewer: Viewer) -> list[FollowedSource]:
    """Follow stores of other systems on this machine; no other path. The process that follows reads them at once.

    Raises FullRightsError, JobStateError for another path, and SourceRefusedError; then none of them is followed.
    """
    check_may_import_all(viewer)
    check_places(paths, places(Path.home(), os.environ))
    sources = []
    try:
        with transaction.atomic():
            for path in paths:
                source = source_new(path=path, importer=importer_for(path), project=project, viewer=viewer)
                source.save(force_insert=True)
                sources.append(source)
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    except IntegrityError:
        # Somebody else named one of them at the same time.
        raise SourceRefusedError("Some of these sources are followed already.") from None
    return sources

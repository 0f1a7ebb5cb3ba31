"""Says that an answer lacks meaning, wholly or for some memories: the one place, for every mode and interface."""

from collections.abc import Iterator

from categories.names import DataRevision
from memories.embedding.progress import EmbeddedShare, memory_progress
from search.engines.base import EngineQuery
from search.result import SearchWarning


def not_ready_warning(reason: str) -> SearchWarning:
    """The warning of an answer by words alone. `reason` is that of `EmbedderNotReadyError`."""
    return SearchWarning(f"Search by meaning is not ready: {reason}. Found by words alone.", "mode")


def memory_share(revision: DataRevision, plan: EngineQuery) -> EmbeddedShare:
    """The share of the memories of the searched projects that have a vector; it counts no other project."""
    return memory_progress(revision).share(_searched_projects(plan))


def share_warnings(revision: DataRevision, plan: EngineQuery) -> Iterator[SearchWarning]:
    """A warning if not all memories of the searched projects have a vector."""
    share = memory_share(revision, plan)
    if share.is_complete:
        return
    if not share.embedded:
        yield SearchWarning("No memory has a vector so far. Found by words alone.", "mode")
        return
    yield SearchWarning(f"{share.text} of the memories have a vector so far; more may appear.", "mode")


def _searched_projects(plan: EngineQuery) -> frozenset[int] | None:
    """The projects that the plan may find memories of; None stands for all."""
    visible = None if plan.project_ids is None else frozenset(plan.project_ids)
    chosen = plan.filter("project")
    if chosen is None or not chosen.include:
        return visible
    wanted = frozenset(int(value) for values in chosen.include for value in values)
    return wanted if visible is None else wanted & visible

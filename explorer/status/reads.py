"""The state of the site: numbers, progress of embedding, freshness of the index. For page and API."""

from dataclasses import dataclass
from typing import Literal, cast

from django.conf import settings

from access.viewer import Viewer
from categories.names import data_revision
from memories.embedding.query import QueryCache, not_ready_reason, query_cache
from memories.embedding.vectors import EmbeddedShare, memory_progress
from memories.embedding.vocabulary import vocabulary_pending
from memories.models import EmbeddingModel
from memories.queries import visible_to
from search.engines import IndexHealth, index_health
from text.formatting import memories, plural
from web.version import VERSION

_REFRESH_SECONDS = 5


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """An embedding model and the number of memories with up-to-date vectors of it."""

    name: str
    state: Literal["serving", "building"]
    embedded: int
    total: int

    @property
    def percent(self) -> float:
        return EmbeddedShare(self.embedded, self.total).percent


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """The state of the site. Numbers cover visible memories only."""

    memories: int
    revision: int | None
    """None for viewers of some projects, to hide activity in the others."""
    models: tuple[ModelStatus, ...]
    not_ready: str
    """Why semantic search is unavailable; empty if it is available."""
    queries: QueryCache | None
    """None if hidden: the activity of others shows in it."""
    engine: str
    index: IndexHealth
    version: str
    pending_vocabulary: int | None = None
    """Entities and relationships without vectors; None for viewers of some projects."""

    @property
    def pending(self) -> int:
        """Memories without vectors of the serving model."""
        return next((one.total - one.embedded for one in self.models if one.state == "serving"), self.memories)

    @property
    def is_settled(self) -> bool:
        return self.models != () and all(one.embedded == one.total for one in self.models)


def site_status(viewer: Viewer) -> SiteStatus:
    memories = visible_to(viewer).count()
    revision = data_revision()
    models = EmbeddingModel.objects.exclude(state=EmbeddingModel.State.RETIRED).order_by("-state")
    return SiteStatus(
        memories=memories,
        revision=None if viewer.project_ids is not None else revision.revision,
        models=tuple(
            ModelStatus(
                one.name,
                cast(Literal["serving", "building"], one.state),
                # A memory added between the two counts is pending but not in the total.
                max(0, memories - memory_progress(revision, one.pk).pending_in(viewer.project_ids)),
                memories,
            )
            for one in models
        ),
        not_ready=not_ready_reason(),
        queries=query_cache() if viewer.project_ids is None else None,
        engine=settings.SEARCH_ENGINE,
        index=index_health(viewer),
        version=VERSION,
        pending_vocabulary=_pending_vocabulary(viewer),
    )


def _pending_vocabulary(viewer: Viewer) -> int | None:
    if viewer.project_ids is not None:
        return None
    serving = EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING).values_list("pk", flat=True).first()
    # No model has the id 0, so everything is pending.
    return vocabulary_pending(serving or 0)


# --- the page ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model with its progress bar."""

    name: str
    role: str
    percent: str
    text: str


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The context of the status page."""

    memories: str
    models: tuple[ModelRow, ...]
    meaning: str
    meaning_is_ready: bool
    """Whether nearly all memories are found by meaning: vectors of new ones take a moment."""
    meaning_is_complete: bool
    index: str
    index_is_ready: bool
    queries: str
    """Empty if hidden."""
    version: str
    vocabulary: str
    """Progress of the vocabulary; empty if hidden."""
    refresh_seconds: int
    """The interval to reload while work is in progress; 0 if none is."""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for, so that a line says it."""
        return self.meaning_is_complete and self.index_is_ready and not self.refresh_seconds


# Up to one memory of a hundred may wait for its vector while everything works.
_PENDING_SHARE = 100
_ROLES = {"serving": "In use", "building": "Replaces it when all memories are embedded"}


def build_status(status: SiteStatus) -> StatusPage:
    return StatusPage(
        memories=f"{status.memories:,}",
        models=tuple(
            ModelRow(
                one.name,
                _ROLES[one.state],
                f"{one.percent:.1f}",
                f"{one.embedded:,} of {one.total:,} memories embedded, {one.percent:.1f} %",
            )
            for one in status.models
        ),
        meaning=_meaning_text(status),
        meaning_is_ready=not status.not_ready and status.pending * _PENDING_SHARE <= status.memories,
        meaning_is_complete=not status.not_ready and not status.pending,
        index=_index_text(status.index),
        index_is_ready=status.index.state in ("ready", "off"),
        queries=_queries_text(status.queries),
        version=status.version,
        vocabulary=_vocabulary_text(status.pending_vocabulary),
        refresh_seconds=0 if status.is_settled and not status.not_ready else _REFRESH_SECONDS,
    )


def _queries_text(queries: QueryCache | None) -> str:
    asked = queries.hits + queries.misses if queries else 0
    return f"{queries.hits:,} of {asked:,} questions were asked before." if queries and asked else ""


def _meaning_text(status: SiteStatus) -> str:
    if status.not_ready:
        return f"Searching by words only: {status.not_ready}."
    if status.pending:
        are = "is" if status.pending == 1 else "are"
        return f"Partly ready: {memories(status.pending)} {are} still found by words only."
    return "Ready."


def _vocabulary_text(pending: int | None) -> str:
    if pending is None:
        return ""
    return f"{pending:,} concepts, categories, entities and relationships are not embedded yet." if pending else ""


def _index_text(index: IndexHealth) -> str:
    if index.state == "off":
        return "Off: the database answers searches."
    if index.state == "missing":
        return "Being built; until then the database answers searches."
    if not index.lag_seconds:
        return "Up to date."
    waiting = f", {plural(index.waiting, 'change')} pending" if index.waiting is not None else ""
    return f"Behind by {index.lag_seconds:.1f} s{waiting}."

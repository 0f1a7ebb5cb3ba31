"""How the site is: what there is, how far it is embedded, and how far the search index has come. For page and API."""

import time
from dataclasses import dataclass
from typing import Literal, cast

from django.conf import settings

from access.viewer import Viewer
from memories.embedding.query import QueryCache, not_ready_reason, query_cache
from memories.embedding.vectors import pending_count
from memories.embedding.vocabulary import vocabulary_pending
from memories.models import Corpus, EmbeddingModel
from memories.queries import visible_to
from search.engines.health import IndexHealth, index_health
from text.formatting import memories, plural
from web.version import VERSION

_REFRESH_SECONDS = 5
# Counting what waits reads every memory: of very many it is done for at most a twentieth of the time.
_LONG_SECONDS = 0.2
_COUNT_SHARE = 1 / 20
_MOST_KEPT = 1_000

_kept: dict[tuple[int, frozenset[int] | None], tuple[int, float]] = {}


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model that serves or is building, and how many of the memories it has embedded as they are now."""

    name: str
    state: Literal["serving", "building"]
    embedded: int
    total: int

    @property
    def percent(self) -> float:
        """Rounded down, so that all is only said of all."""
        return self.embedded * 1000 // self.total / 10 if self.total else 100.0


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """Everything counts what the viewer may see alone."""

    memories: int
    # None where not every project may be seen: how much goes on in the others is nobody's business.
    revision: int | None
    models: tuple[ModelStatus, ...]
    not_ready: str
    """Why searches go by words alone now; empty where they do not."""
    queries: QueryCache
    engine: str
    index: IndexHealth
    version: str
    # Entities and relationships that the model that serves has yet to embed; None as with the revision.
    pending_vocabulary: int | None = None

    @property
    def pending(self) -> int:
        """Memories that the model that serves has yet to embed."""
        return next((one.total - one.embedded for one in self.models if one.state == "serving"), self.memories)

    @property
    def is_settled(self) -> bool:
        return self.models != () and all(one.embedded == one.total for one in self.models)


def site_status(viewer: Viewer) -> SiteStatus:
    memories = visible_to(viewer).count()
    models = EmbeddingModel.objects.exclude(state=EmbeddingModel.State.RETIRED).order_by("-state")
    return SiteStatus(
        memories=memories,
        revision=None
        if viewer.project_ids is not None
        else Corpus.objects.values_list("revision", flat=True).get(pk=1),
        models=tuple(
            ModelStatus(
                one.name,
                cast(Literal["serving", "building"], one.state),
                # A memory that came between the two counts waits, and is not among those counted first.
                max(0, memories - _pending(one.pk, viewer)),
                memories,
            )
            for one in models
        ),
        not_ready=not_ready_reason(),
        queries=query_cache(),
        engine=settings.SEARCH_ENGINE,
        index=index_health(viewer),
        version=VERSION,
        pending_vocabulary=_pending_vocabulary(viewer),
    )


def _pending_vocabulary(viewer: Viewer) -> int | None:
    if viewer.project_ids is not None:
        return None
    serving = EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING).values_list("pk", flat=True).first()
    # No model has the id 0: everything waits for it.
    return vocabulary_pending(serving or 0)


def _pending(model_id: int, viewer: Viewer) -> int:
    key = (model_id, viewer.project_ids)
    now = time.monotonic()
    if key in _kept and now < _kept[key][1]:
        return _kept[key][0]
    count = pending_count(model_id, viewer.project_ids)
    took = time.monotonic() - now
    if took > _LONG_SECONDS:
        if len(_kept) > _MOST_KEPT:
            _kept.clear()
        _kept[key] = count, now + took / _COUNT_SHARE
    return count


# --- as a page shows it ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model, and a bar of how far it is."""

    name: str
    role: str
    percent: str
    text: str


@dataclass(frozen=True, slots=True)
class StatusPage:
    """All that the page of the site's state may read."""

    memories: str
    models: tuple[ModelLine, ...]
    meaning: str
    meaning_is_ready: bool
    index: str
    index_is_ready: bool
    queries: str
    version: str
    vocabulary: str
    """How far entities and relationships are; empty where that is not told."""
    refresh_seconds: int
    """How long this stays true while work is under way; 0 where none is."""


_ROLES = {"serving": "In use", "building": "Replaces it when all memories are embedded"}


def build_status(status: SiteStatus) -> StatusPage:
    asked = status.queries.hits + status.queries.misses
    return StatusPage(
        memories=f"{status.memories:,}",
        models=tuple(
            ModelLine(
                one.name,
                _ROLES[one.state],
                f"{one.percent:.1f}",
                f"{one.embedded:,} of {one.total:,} memories embedded, {one.percent:.1f} %",
            )
            for one in status.models
        ),
        meaning=_meaning_text(status),
        meaning_is_ready=not status.not_ready,
        index=_index_text(status.index),
        index_is_ready=status.index.state in ("ready", "off"),
        queries=f"{status.queries.hits:,} of {asked:,} hits",
        version=status.version,
        vocabulary=_vocabulary_text(status.pending_vocabulary),
        refresh_seconds=0 if status.is_settled and not status.not_ready else _REFRESH_SECONDS,
    )


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
    return f"{pending:,} entities and relationships are not embedded yet." if pending else ""


def _index_text(index: IndexHealth) -> str:
    if index.state == "off":
        return "Off: the database answers searches."
    if index.state == "missing":
        return "Being built; until then the database answers searches."
    if not index.lag_seconds:
        return "Up to date."
    waiting = f", {plural(index.waiting, 'change')} pending" if index.waiting is not None else ""
    return f"Behind by {index.lag_seconds:.1f} s{waiting}."

"""Memories that say nearly the same as one that was just stored: shown to who stores it, and never an obstacle.

The same text is known by its hash, in any project. Others are compared by meaning, with the vector of the memory's
beginning, or by runs of words while no model is loaded. The last memories stored have no vectors yet, and are compared
by words in any case.
"""

import logging
import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Left

from access.viewer import Viewer
from memories.embedding.chunking import embedded_text
from memories.embedding.query import EmbedderNotReadyError, passage_vector
from memories.models import Memory, Project
from memories.queries import visible_to
from search.engines import with_engine
from search.engines.base import EngineQuery, Filter, VectorQuery
from search.query import Mode, SearchQuery
from search.result import HitDetail
from search.run import run
from web.outages import is_outage

logger = logging.getLogger(__name__)

By = Literal["text", "meaning", "words"]

LIMIT = 3
_STATES = tuple(state.value for state in Memory.State if state != Memory.State.DELETED)
# The best of all limits for pairs labelled by hand: it finds 30 of 34 that say the same, and one of 34 others.
_LEAST_SIMILARITY = 0.7
_LEAST_SHARED_RUNS = 0.5
# Characters that are compared: no model reads further in one window.
_BEGINNING = 4_000
_RUN = 3
_WORD = re.compile(r"\w+")
_LAST_STORED = 50
_SEARCHED_WORDS = 12
_CANDIDATES = 20


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A memory that says nearly the same. By words, the similarity is the share of common runs of three words."""

    id: int
    title: str
    project: str
    state: str
    similarity: float
    by: By

    @property
    def is_duplicate(self) -> bool:
        return self.by == "text" or self.similarity >= settings.SEARCH_DEDUP_SIMILARITY


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """The most similar memories, the nearest first. `reason` says why they were not compared by meaning, or at all."""

    memories: tuple[NearDuplicate, ...] = ()
    reason: str = ""


def near_duplicates(memory: Memory, viewer: Viewer) -> NearDuplicates:
    """The visible memories that say nearly the same as this one. Without the scope read there are none."""
    if "read" not in viewer.scopes:
        return NearDuplicates()
    # The memory is stored, and a failure here must not look as if it were not. Its transaction may still be open.
    try:
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            return _nearest(memory, viewer)
    except Exception as error:
        if connection.in_atomic_block and is_outage(error):
            # The transaction is lost, and the memory with it.
            raise
        logger.exception("Memories similar to #%s could not be looked for", memory.pk)
        return NearDuplicates(reason="looking for them failed")


def _nearest(memory: Memory, viewer: Viewer) -> NearDuplicates:
    found: dict[int, tuple[float, By]] = dict.fromkeys(_same_text(memory, viewer), (1.0, "text"))
    reason = ""
    try:
        for pk, similarity in _by_meaning(memory, viewer):
            found.setdefault(pk, (similarity, "meaning"))
        candidates: Iterable[int] = ()
    except EmbedderNotReadyError as error:
        reason = error.reason
        candidates = _with_its_words(memory, viewer)
    for pk, similarity in _by_words(memory, candidates, viewer):
        found.setdefault(pk, (similarity, "words"))
    found.pop(memory.pk, None)
    best = sorted(found, key=lambda pk: (-found[pk][0], -pk))[:LIMIT]
    shown = (
        visible_to(viewer).filter(state__in=_STATES).select_related("project").only("title", "state", "project__slug")
    )
    rows = shown.in_bulk(best)
    near = [
        NearDuplicate(pk, rows[pk].title, rows[pk].project.slug, rows[pk].state, *found[pk])
        for pk in best
        if pk in rows
    ]
    return NearDuplicates(tuple(near), reason)


def _same_text(memory: Memory, viewer: Viewer) -> list[int]:
    # Each project by its own, through memory_content_hash_idx.
    projects = viewer.project_ids
    if projects is None:
        projects = frozenset(Project.objects.values_list("pk", flat=True))
    same = Memory.objects.filter(project_id__in=projects, content_hash=memory.content_hash, state__in=_STATES)
    return list(same.exclude(pk=memory.pk).order_by("-pk").values_list("pk", flat=True)[:LIMIT])


def _by_meaning(memory: Memory, viewer: Viewer) -> list[tuple[int, float]]:
    beginning = memory.content[:_BEGINNING]
    of = passage_vector(embedded_text(memory.title, beginning, 0, len(beginning)))
    plan = EngineQuery(
        project_ids=None if viewer.project_ids is None else tuple(sorted(viewer.project_ids)),
        # One more, for the memory itself.
        meaning=VectorQuery(of.model_id, of.vector.tobytes(), _LEAST_SIMILARITY, LIMIT + 1, semantic_only=True),
        filters=(Filter("state", include=tuple((state,) for state in _STATES)),),
    )
    near = with_engine(lambda engine: engine.knn(plan), viewer, wait_for_index=False)
    pairs = zip(near.ids.tolist(), near.similarities.tolist(), strict=True)
    return [(pk, round(min(1.0, similarity), 4)) for pk, similarity in pairs]


def _with_its_words(memory: Memory, viewer: Viewer) -> list[int]:
    """Memories with some of its longest words, best first."""
    words = dict.fromkeys(_WORD.findall(f"{memory.title} {memory.content[:_BEGINNING]}".lower()))
    longest = sorted(words, key=len, reverse=True)[:_SEARCHED_WORDS]
    text = " ".join(word[:40] for word in longest if word.isalnum() and word != "or")
    if not text:
        return []
    query = SearchQuery(text=text[:500], mode=Mode.KEYWORD, state=_STATES, page_size=_CANDIDATES)
    return [hit.id for hit in run(query, viewer, detail=HitDetail.NONE).hits]


def _by_words(memory: Memory, candidates: Iterable[int], viewer: Viewer) -> Iterable[tuple[int, float]]:
    """The candidates, and the last memories stored, that share most of their runs of words."""
    newest = Memory.objects.order_by("-pk").values_list("pk", flat=True)[:_LAST_STORED]
    wanted = {*candidates, *newest} - {memory.pk}
    own = _runs(memory.content)
    near = visible_to(viewer).filter(pk__in=wanted, state__in=_STATES)
    for pk, content in near.values_list("pk", Left("content", _BEGINNING)):
        theirs = _runs(content)
        shared = len(own & theirs) / max(1, len(own | theirs))
        if shared >= _LEAST_SHARED_RUNS:
            yield pk, round(shared, 4)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text[:_BEGINNING].lower())
    return {tuple(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1))} if words else set()

"""Memories similar to one, or to a text, among those that pass the filters of a query, and the copies of one that was
just stored.

The similarity of two memories is that of their most similar chunks: symmetric, and the measure of semantic search; the
mean vector of a long text is close to none of its chunks. Since texts that share a paragraph are not duplicates,
possible duplicates also need mean vectors as similar as `SEARCH_DEDUP_SIMILARITY`.

The same text as that of a stored memory is known by its hash, in any project. Others are compared by meaning, with the
vector of the memory's beginning, or by runs of words while no model is loaded. The last memories stored have no vectors
yet, and are compared by words in any case.
"""

import logging
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlencode

import numpy as np
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Left
from pydantic import Field

from access.viewer import Viewer
from categories.queries import Term
from memories.embedding.chunking import embedded_text
from memories.embedding.query import EmbedderNotReadyError, ServingModel, passage_vector, serving_model
from memories.models import EmbeddedMemory, Memory, Project
from memories.queries import visible_to
from memories.recalls import record_list
from memories.refusals import MemoryNotFoundError
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineQuery, Filter, VectorQuery
from search.hits import load_hits
from search.plan import ResolvedQuery, explain_unknown, resolve_query, share_warnings
from search.query import ExtraParams, Mode, SearchQuery
from search.ranking import Ranked, Vector, chunks_of, mean_vector
from search.result import CategoryRef, Hit, HitDetail, SearchWarning
from search.run import engine_notices, run
from web.outages import is_outage
from web.timing import Stopwatch
from web.validation import Problem

# Chunks of a long memory to search with, evenly spread.
_MOST_CHUNKS = 12
_NAMED = 3
# Characters of a text, and of the parts that it is compared by: a part fits the window of the packaged model.
MAX_SIMILAR_TEXT = 10_000
_PART = 900


class SimilarRequest(ExtraParams):
    """How many memories similar to one are wanted, and whether only those of its project."""

    ineffective = frozenset(
        {"q", "mode", "sort", "page", "page_size", "offset", "include_facets", "facet_scope", "bucket"}
    )
    ineffective_message = "does nothing here: the nearest come first"
    ineffective_suggestion = "leave it out; limit says how many, and filters say which"

    limit: int = Field(10, ge=1, le=100, description="Maximum number of memories.")
    same_project: bool = Field(False, description="Only memories of the same project.")

    def conflicts_with(self, query: SearchQuery) -> Iterator[Problem]:
        if self.same_project and query.project:
            yield Problem("same_project", "is given together with project", "give one of the two")


@dataclass(frozen=True, slots=True)
class SharedTerms:
    """Values that two memories share: some of each kind, and the number of further ones."""

    tags: tuple[str, ...] = ()
    entities: tuple[Term, ...] = ()
    categories: tuple[CategoryRef, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    hit: Hit
    similarity: float
    is_duplicate: bool
    shared: SharedTerms


@dataclass(frozen=True, slots=True)
class SimilarResult:
    """Similar memories, nearest first. `reason` explains an empty list."""

    query: SearchQuery
    title: str
    memories: tuple[SimilarMemory, ...] = ()
    reason: str = ""
    min_similarity: float = 0.0
    has_more: bool = False
    warnings: tuple[SearchWarning, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)


def similar_memories(memory_id: int, request: SimilarRequest, query: SearchQuery, viewer: Viewer) -> SimilarResult:
    """The memories most similar to one. Raises MemoryNotFoundError for one that the viewer may not see."""
    found = with_engine(lambda engine: _similar(engine, memory_id, request, query, viewer), viewer)
    asked = urlencode([("id", memory_id), *query.parameters()])
    record_list(viewer, [one.hit.id for one in found.memories], asked)
    return found


def similar_to_text(text: str, request: SimilarRequest, query: SearchQuery, viewer: Viewer) -> SimilarResult:
    """The memories most similar to a text that need not be stored: to all of it, whatever signs are in it."""
    found = with_engine(lambda engine: _similar_to_text(engine, text, request, query, viewer), viewer)
    asked = urlencode([("text", text), *query.parameters()])
    record_list(viewer, [one.hit.id for one in found.memories], asked)
    return found


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The memory to compare with. A text has neither id nor values."""

    id: int = 0
    title: str = ""
    content_hash: str = ""
    project: str = ""
    tags: Sequence[str] = ()
    category_ids: Sequence[int] = ()
    entity_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Compared:
    """A memory or a text, as the vectors of its parts by a model, and the least similarity."""

    title: str
    model_id: int
    chunks: Sequence[Vector]
    threshold: float
    anchor: _Anchor = _Anchor()
    warnings: tuple[SearchWarning, ...] = ()


def _similar(
    engine: Engine, memory_id: int, request: SimilarRequest, query: SearchQuery, viewer: Viewer
) -> SimilarResult:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("search"):
            anchor = _anchor(memory_id, viewer)
            if request.same_project:
                query = query.with_(project=(anchor.project,))
            title = anchor.title or f"Memory {anchor.id}"
            serving = serving_model()
            if serving is None:
                return SimilarResult(query, title, reason="no memory has been embedded yet", timings=watch.timings)
            chunks = chunks_of([anchor.id], serving.id).get(anchor.id, [])
            threshold = serving.min_similarity if query.min_similarity is None else query.min_similarity
            if not chunks:
                reason = "this memory has not been embedded yet"
                return SimilarResult(query, title, reason=reason, min_similarity=threshold, timings=watch.timings)
            warnings = tuple(_changed_since(anchor, serving))
        compared = _Compared(title, serving.id, chunks, threshold, anchor, warnings)
        return _nearest_to(engine, compared, query, viewer, request.limit, watch)


def _similar_to_text(
    engine: Engine, text: str, request: SimilarRequest, query: SearchQuery, viewer: Viewer
) -> SimilarResult:
    watch = Stopwatch(engine.waited_ms)
    title = textwrap.shorten(text, 60, placeholder="…")
    with snapshot():
        with watch.stage("search"):
            try:
                parts = [passage_vector(part) for part in textwrap.wrap(text, _PART)]
            except EmbedderNotReadyError as error:
                reason = f"search by meaning is not ready: {error.reason}"
                return SimilarResult(query, title, reason=reason, timings=watch.timings)
            of = parts[0]
            threshold = of.min_similarity if query.min_similarity is None else query.min_similarity
            vectors = [part.vector for part in parts if part.model_id == of.model_id]
        return _nearest_to(
            engine, _Compared(title, of.model_id, vectors, threshold), query, viewer, request.limit, watch
        )


def _nearest_to(
    engine: Engine, compared: _Compared, query: SearchQuery, viewer: Viewer, limit: int, watch: Stopwatch
) -> SimilarResult:
    """The memories nearest to what is compared, of those that pass the filters of the query alone."""
    with watch.stage("search"):
        resolved = resolve_query(engine, query.with_(text="", mode=Mode.FACETED), viewer, datetime.now(UTC))
        warnings = [*resolved.warnings, *explain_unknown(resolved, engine, resolved.unknown)]
        warnings += [*share_warnings(resolved.revision, resolved.plan), *compared.warnings]
        near = _nearest(engine, resolved, compared, limit)
        listed = dict(sorted(near.items(), key=lambda pair: (-pair[1], -pair[0]))[:limit])
        duplicates = _duplicates(compared, listed)
    with watch.stage("hits"):
        hits = load_hits([Ranked(pk, similarity=similar) for pk, similar in listed.items()], resolved, viewer)
        shared = _shared(compared.anchor, hits, resolved, viewer)
        warnings += engine_notices(engine, viewer)
    found = tuple(SimilarMemory(hit, listed[hit.id], hit.id in duplicates, shared[hit.id]) for hit in hits)
    least = f"{compared.threshold:.2f}"
    return SimilarResult(
        query=query,
        title=compared.title,
        memories=found,
        reason="" if found else f"no other memory{_that_passes(query)} is at least {least} similar",
        min_similarity=compared.threshold,
        has_more=len(near) > len(listed),
        warnings=tuple(warnings),
        timings=watch.timings,
    )


def _that_passes(query: SearchQuery) -> str:
    return " that matches the filters" if set(query.applied()) - {"min_similarity"} else ""


def _anchor(memory_id: int, viewer: Viewer) -> _Anchor:
    columns = ("id", "title", "content_hash", "project__slug", "tags", "category_ids", "entity_ids")
    row = visible_to(viewer).filter(pk=memory_id).values_list(*columns).first()
    if row is None:
        raise MemoryNotFoundError(memory_id)
    return _Anchor(*row)


def _nearest(engine: Engine, resolved: ResolvedQuery, compared: _Compared, limit: int) -> dict[int, float]:
    """Similarities of the memories nearest to any of the chunks."""
    found: dict[int, float] = {}
    for chunk in _spread(compared.chunks):
        # Two more than `limit`: the memory itself, and one to know if there are more.
        meaning = VectorQuery(compared.model_id, chunk.tobytes(), compared.threshold, limit + 2, semantic_only=True)
        near = engine.knn(replace(resolved.plan, meaning=meaning))
        for pk, similar in zip(near.ids.tolist(), near.similarities.tolist(), strict=True):
            if pk != compared.anchor.id:
                found[pk] = min(1.0, max(similar, found.get(pk, -1.0)))
    return found


def _spread(chunks: Sequence[Vector]) -> list[Vector]:
    places = np.linspace(0, len(chunks) - 1, min(len(chunks), _MOST_CHUNKS)).round().astype(int)
    return [chunks[place] for place in places]


def _duplicates(compared: _Compared, listed: dict[int, float]) -> set[int]:
    """Ids of possible duplicates."""
    threshold = settings.SEARCH_DEDUP_SIMILARITY
    suspects = [pk for pk, similar in listed.items() if similar >= threshold]
    if not suspects:
        return set()
    mean = mean_vector(compared.chunks)
    others = chunks_of(suspects, compared.model_id)
    return {pk for pk, theirs in others.items() if float(mean @ mean_vector(theirs)) >= threshold}


def _changed_since(anchor: _Anchor, serving: ServingModel) -> list[SearchWarning]:
    embedded = EmbeddedMemory.objects.filter(memory_id=anchor.id, model_id=serving.id)
    known = embedded.values_list("content_hash", flat=True).first()
    if known in {None, anchor.content_hash}:
        return []
    return [SearchWarning("It has changed since it was embedded: these are similar to its earlier text.")]


def _shared(anchor: _Anchor, hits: Sequence[Hit], resolved: ResolvedQuery, viewer: Viewer) -> dict[int, SharedTerms]:
    """The values that each hit shares with the memory."""
    rows = visible_to(viewer).filter(pk__in=[hit.id for hit in hits]).values_list("pk", "entity_ids")
    theirs: dict[int, list[int]] = dict(rows) if anchor.entity_ids and hits else {}
    entities = sorted(
        resolved.names.entity_terms(anchor.entity_ids).values(), key=lambda term: (term.label.casefold(), term.value)
    )
    paths = {node.path for node in resolved.names.category_nodes(anchor.category_ids).values()}
    found = {}
    for hit in hits:
        tags = tuple(tag for tag in anchor.tags if tag in hit.tags)
        named = tuple(term for term in entities if term.id in theirs.get(hit.id, ()))
        categories = tuple(category for category in hit.categories if category.path in paths)
        more = sum(max(0, len(values) - _NAMED) for values in (tags, named, categories))
        found[hit.id] = SharedTerms(tags[:_NAMED], named[:_NAMED], categories[:_NAMED], more)
    return found


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
            return _nearest_copies(memory, viewer)
    except Exception as error:
        if connection.in_atomic_block and is_outage(error):
            # The transaction is lost, and the memory with it.
            raise
        logger.exception("Memories similar to #%s could not be looked for", memory.pk)
        return NearDuplicates(reason="looking for them failed")


def _nearest_copies(memory: Memory, viewer: Viewer) -> NearDuplicates:
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

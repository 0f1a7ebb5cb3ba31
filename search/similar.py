"""Finds memories similar to one, or to a text, among those that pass the filters of a query.

The similarity of two memories is that of their most similar chunks: symmetric, and the measure of semantic search; the
mean vector of a long text is close to none of its chunks. Since texts that share a paragraph are not duplicates,
possible duplicates also need mean vectors as similar as `SEARCH_DEDUP_SIMILARITY`.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from django.conf import settings
from pydantic import Field

from access.viewer import Viewer
from categories.queries import Term
from memories.embedding.query import EmbedderNotReadyError, ServingModel, passage_vector, serving_model
from memories.models import EmbeddedMemory
from memories.queries import visible_to
from memories.recalls import recalled
from memories.refusals import MemoryNotFoundError
from search.engines import with_engine
from search.engines.base import Engine, VectorQuery
from search.hits import load_hits
from search.meaning import share_warnings
from search.plan import ResolvedQuery, explain_unknown, resolve_query
from search.query import ExtraParams, Mode, SearchQuery
from search.ranking import Ranked
from search.relevance import Vector, chunks_of, mean_vector
from search.result import CategoryRef, Hit, SearchWarning
from search.run import engine_notices
from search.snapshots import snapshot
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
    """A similar memory."""

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
    recalled(viewer, [one.hit.id for one in found.memories])
    return found


def similar_to_text(text: str, request: SimilarRequest, query: SearchQuery, viewer: Viewer) -> SimilarResult:
    """The memories most similar to a text that need not be stored: to all of it, whatever signs are in it."""
    found = with_engine(lambda engine: _similar_to_text(engine, text, request, query, viewer), viewer)
    recalled(viewer, [one.hit.id for one in found.memories])
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

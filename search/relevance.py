"""The page of hits by relevance: asks the engine for candidates by words and by meaning, and ranks them.

What is beyond the candidates comes after them, by words alone, so that every memory of the match set has one place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection

from memories.models import Memory
from search.engines.base import Engine, Meaning, Plan
from search.engines.nearest import similarities_of
from search.query import Sort
from search.ranking import WINDOW, WORD_CANDIDATES, Ranked, Traits, Weights, fold, fuse, rerank

Vector = npt.NDArray[np.float32]

# In days, until being recent says half as much.
_HALF_LIFE = 180.0
_PROPOSED = 0.8

# By the primary key. A vector comes as Postgres sends it: a head of four bytes, then halves.
_CHUNKS = """
SELECT memory_id, halfvec_send(embedding) FROM memories_chunk
WHERE memory_id = ANY(%s) AND model_id = %s{which} ORDER BY memory_id, ordinal"""
_VECTOR_HEAD = 4


def ranked_page(engine: Engine, plan: Plan, *, limit: int, offset: int, now: datetime) -> list[Ranked]:
    """A page of the match set by relevance."""
    if plan.meaning is None:
        found = engine.hits(plan, Sort.RELEVANCE, limit=limit, offset=offset)
        return [Ranked(pk, score, offset + n, score) for n, (pk, score) in enumerate(found, 1)]
    candidates = _candidates(engine, plan, plan.meaning, now)
    page = candidates[offset : offset + limit]
    if len(page) == limit or plan.meaning.alone:
        return page
    by_words = replace(plan, meaning=None)
    known = {one.id for one in candidates}
    begin = max(0, offset - len(candidates))
    # All candidates may be among the best by words: so many more are asked for.
    found = engine.hits(by_words, Sort.RELEVANCE, limit=len(known) + begin + limit, offset=0)
    rest = [(n, pk, score) for n, (pk, score) in enumerate(found, 1) if pk not in known]
    missing = limit - len(page)
    return [*page, *(Ranked(pk, 0.0, n, score) for n, pk, score in rest[begin : begin + missing])]


def _candidates(engine: Engine, plan: Plan, meaning: Meaning, now: datetime) -> list[Ranked]:
    """All that match by meaning and the best by words, in their order. Each is scored by both, however it matched."""
    near = engine.near(plan)
    similarities = dict(zip(near.ids.tolist(), near.similarities.tolist(), strict=True))
    words: dict[int, float] = {}
    if not meaning.alone:
        best = engine.hits(replace(plan, meaning=None), Sort.RELEVANCE, limit=WORD_CANDIDATES, offset=0)
        words = dict.fromkeys([*(pk for pk, _ in best), *similarities], 0.0)
        words |= engine.word_scores(plan, list(words))
        similarities |= similarities_of(meaning, [pk for pk, _ in best if pk not in similarities])
    fused = fuse(words, similarities, settings.SEARCH_MEANING_WEIGHT)
    window, rest = fused[:WINDOW], fused[WINDOW:]
    ids = [one.id for one in window]
    window = rerank(window, traits_of(ids, now), Weights(**settings.SEARCH_WEIGHTS))
    return [*fold(window, vectors_of(ids, meaning.model_id), settings.SEARCH_FOLD_SIMILARITY), *rest]


def traits_of(ids: Sequence[int], now: datetime) -> dict[int, Traits]:
    """What speaks for some memories themselves."""
    rows = Memory.objects.filter(pk__in=ids).values_list(
        "pk", "importance", "confidence", "pinned", "state", "source", "created_at"
    )
    sources: dict[str, float] = settings.SEARCH_SOURCE_WEIGHTS
    found = {}
    for pk, importance, confidence, pinned, state, source, created_at in rows:
        # What nobody judged is neither good nor bad.
        judged = [0.5 if given is None else float(given) for given in (importance, confidence)]
        quality = 1.0 if pinned else sum(judged) / len(judged)
        if state == Memory.State.PROPOSED:
            quality *= _PROPOSED
        age = max(0.0, (now - created_at).total_seconds() / 86_400)
        found[pk] = Traits(quality, 0.5 ** (age / _HALF_LIFE), sources.get(source, 1.0))
    return found


def vectors_of(ids: Iterable[int], model_id: int) -> dict[int, Vector]:
    """The vectors of the first chunks of some memories, of unit length."""
    return dict(_vectors(_CHUNKS.format(which=" AND ordinal = 0"), ids, model_id))


def chunks_of(ids: Iterable[int], model_id: int) -> dict[int, list[Vector]]:
    """The vectors of all chunks of some memories in their order, of unit length. Those that have none are left out."""
    found: dict[int, list[Vector]] = {}
    for memory_id, vector in _vectors(_CHUNKS.format(which=""), ids, model_id):
        found.setdefault(memory_id, []).append(vector)
    return found


def _vectors(statement: str, ids: Iterable[int], model_id: int) -> Iterator[tuple[int, Vector]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(ids), model_id])
        rows = cursor.fetchall()
    for memory_id, sent in rows:
        vector = np.frombuffer(bytes(sent), ">f2", offset=_VECTOR_HEAD).astype(np.float32)
        yield memory_id, vector / max(float(np.linalg.norm(vector)), 1e-6)

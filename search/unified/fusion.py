"""Ranks results of five kinds in one order by reciprocal rank fusion, reranks them, and groups duplicates. Pure.

Raw scores of different legs are not comparable, so only the ranks in the legs and the weight of the kind count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from search.ranking import Boosts, RankWeights, ScoreParts
from search.unified.legs import TERM_KINDS, LegAnswer, ResultKind, Way

# The k of (k + 1) / (k + rank). It is small so that the best of a kind rank among the first of a kind with a greater
# weight.
_RANK_CONSTANT = 10
# The number of best candidates that are deduplicated.
WINDOW = 100
# A term that more memories have is useful beyond the results, and is not folded.
_FEW_MEMORIES = 3
# A result is folded only if its memories lack at most this share of its own terms.
_OWN_SHARE = 1 / 3

Key = tuple[ResultKind, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ranked result with its signals. `places` are its ranks in the legs that found it, from 1."""

    kind: ResultKind
    id: int
    relevance: float
    places: Mapping[Way, int]
    score: float = 0.0
    boosts: Boosts = field(default_factory=Boosts)
    score_parts: ScoreParts | None = None

    @property
    def key(self) -> Key:
        return (self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Origin:
    """The memories of a term or a relationship: candidates, best first, and the number of all."""

    memories: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a result, and those of its own description, which need not occur in its memories."""

    all: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Folded:
    """A result folded into another, with the reason."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class FoldedGroup:
    """A result and its duplicates, ranked by the best of them."""

    lead: Candidate
    folded: tuple[Folded, ...] = ()

    @property
    def score(self) -> float:
        return max([self.lead.score, *(one.candidate.score for one in self.folded)])


def fuse(answers: Iterable[LegAnswer], weights: Mapping[str, float]) -> list[Candidate]:
    """Fuse the answers of legs. A result that is first in all legs of its kind has the weight of the kind."""
    places: dict[Key, dict[Way, int]] = {}
    leg_counts: dict[ResultKind, int] = {}
    for answer in answers:
        if not answer.is_included:
            continue
        leg_counts[answer.kind] = leg_counts.get(answer.kind, 0) + 1
        for place, hit in enumerate(answer.found, 1):
            places.setdefault((answer.kind, hit.id), {})[answer.way] = place
    candidates = []
    for (kind, pk), own in places.items():
        shares = sum((_RANK_CONSTANT + 1) / (_RANK_CONSTANT + place) for place in own.values())
        candidates.append(Candidate(kind, pk, weights[kind] * shares / leg_counts[kind], own))
    return sorted(candidates, key=_order)


def rerank(candidates: Sequence[Candidate], boosts: Mapping[Key, Boosts], weights: RankWeights) -> list[Candidate]:
    """Sort candidates by their weighted score."""
    scored = []
    for one in candidates:
        own = boosts.get(one.key, Boosts())
        score, score_parts = weights.score_parts(one.relevance, own)
        scored.append(replace(one, score=score, boosts=own, score_parts=score_parts))
    return sorted(scored, key=_order)


def fold(
    candidates: Sequence[Candidate],
    terms: Mapping[Key, Terms],
    origins: Mapping[Key, Origin],
    min_similarity: float,
    named: Mapping[Key, tuple[bool, int]] = MappingProxyType({}),
) -> list[FoldedGroup]:
    """Fold duplicates into groups, each led by a result of the earliest kind.

    The rank of a group is the best of its members. The groups of results that are `named` by the whole text of the
    query come first, in the order of these values; such a result is folded only into another one with nearly the same
    text.
    """
    window, rest = candidates[:WINDOW], candidates[WINDOW:]
    place = {one.key: n for n, one in enumerate(window)}
    leads: list[Candidate] = []
    folded: dict[Key, list[Folded]] = {}
    for kind in ResultKind:
        for one in (c for c in window if c.kind == kind):
            if one.key in named:
                found = _fold_target(one, [lead for lead in leads if lead.key in named], {}, terms, {}, min_similarity)
            else:
                found = _fold_target(one, leads, place, terms, origins, min_similarity)
            if found is None:
                leads.append(one)
            else:
                target, reason = found
                folded.setdefault(target, []).append(Folded(one, reason))
    groups = []
    for lead in leads:
        members = folded.get(lead.key, [])
        best = min([lead.key, *(m.candidate.key for m in members)], key=lambda key: place[key])
        rank = (lead.key not in named, named.get(lead.key, ()), place[best])
        groups.append((rank, FoldedGroup(lead, tuple(members))))
    groups.sort(key=lambda found: found[0])
    return [*(group for _, group in groups), *(FoldedGroup(one) for one in rest)]


def _fold_target(
    one: Candidate,
    leads: Sequence[Candidate],
    place: Mapping[Key, int],
    terms: Mapping[Key, Terms],
    origins: Mapping[Key, Origin],
    min_similarity: float,
) -> tuple[Key, str] | None:
    """The leader to fold a candidate into, with the reason; None to keep it."""
    own = terms.get(one.key, Terms())
    for lead in leads:
        if _alike(own.all, terms.get(lead.key, Terms()).all, min_similarity):
            return lead.key, "nearly the same text"
    origin = origins.get(one.key)
    if origin is None:
        return None
    lead_keys = {lead.key for lead in leads}
    keys = [(ResultKind.MEMORY, pk) for pk in origin.memories]
    # A folded memory still counts here, since its leader has nearly the same terms.
    keys = [key for key in keys if key in place]
    leading = [key for key in keys if key in lead_keys]
    if not leading or (one.kind in TERM_KINDS and not len(keys) == origin.count <= _FEW_MEMORIES):
        return None
    origin_terms = frozenset[str]().union(*(terms.get(key, Terms()).all for key in keys))
    if len(own.own - origin_terms) > _OWN_SHARE * len(own.own):
        return None
    return leading[0], "taken from it" if one.kind == ResultKind.RELATIONSHIP else "supported by it only"


def _alike(one: frozenset[str], other: frozenset[str], min_similarity: float) -> bool:
    """Whether the Jaccard similarity of two sets is at least `min_similarity`."""
    fewer, more = sorted((len(one), len(other)))
    if not fewer or fewer < min_similarity * more:
        return False
    common = len(one & other)
    return common >= min_similarity * (fewer + more - common)


def _order(one: Candidate) -> tuple[float, float, str, tuple[tuple[str, int], ...], int]:
    kinds = list(ResultKind)
    # Equal terms are in the order of their legs: ids would show a viewer of some projects which others used first.
    places = () if one.kind is ResultKind.MEMORY else tuple(sorted(one.places.items(), reverse=True))
    return (-one.score, -one.relevance, str(kinds.index(one.kind)), places, -one.id)

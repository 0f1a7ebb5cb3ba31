"""Results of three kinds in one order: ranks made comparable, reranked, and what says the same folded. Pure.

Raw scores of different legs are never compared: a result counts by its place in each leg, and by its kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from search.ranking import Boosts, RankWeights, ScoreParts
from search.unified.legs import LegAnswer, LegState, ResultKind, Way

# How much a place counts: (k + 1) / (k + place). Small enough for the best of one kind to stand among the first of
# another, whose weight is greater.
_RANK_CONSTANT = 10
# So many of the best are looked through for what says the same.
WINDOW = 100
# An entity that more memories name than this leads to others than those in the results.
_FEW_MEMORIES = 3
# From this share of its own terms on that its memories lack, a result adds something.
_OWN_SHARE = 1 / 3

Key = tuple[ResultKind, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A result in its place, and why it stands there. `places` are those in the legs that found it, from 1."""

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
    """Where an entity or a relationship comes from: the memories among the candidates, the best of them first, and how
    many there are in all.
    """

    memories: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a result says, and what of it need not be in the memories that it comes from."""

    every: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Folded:
    """A result that is told as part of another, and why."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class FoldedGroup:
    """A result, and those that say the same. It stands where the best of them would."""

    lead: Candidate
    folded: tuple[Folded, ...] = ()

    @property
    def score(self) -> float:
        return max([self.lead.score, *(one.candidate.score for one in self.folded)])


def fuse(answers: Iterable[LegAnswer], weights: Mapping[str, float]) -> list[Candidate]:
    """All that the legs found. The first of every leg of its kind that answered is as relevant as its kind may be."""
    places: dict[Key, dict[Way, int]] = {}
    leg_counts: dict[ResultKind, int] = {}
    for answer in answers:
        if answer.state != LegState.OK:
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
    """The same candidates by what all weights come to."""
    scored = []
    for one in candidates:
        own = boosts.get(one.key, Boosts())
        score, score_parts = weights.score_parts(one.relevance, own)
        scored.append(replace(one, score=score, boosts=own, score_parts=score_parts))
    return sorted(scored, key=_order)


def fold(
    candidates: Sequence[Candidate], terms: Mapping[Key, Terms], origins: Mapping[Key, Origin], min_similarity: float
) -> list[FoldedGroup]:
    """The same candidates, those that say what another says told as part of it: a memory before an entity before a
    relationship. The place of a group is the best of its members'.
    """
    window, rest = candidates[:WINDOW], candidates[WINDOW:]
    place = {one.key: n for n, one in enumerate(window)}
    leads: list[Candidate] = []
    folded: dict[Key, list[Folded]] = {}
    for kind in ResultKind:
        for one in (c for c in window if c.kind == kind):
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
        groups.append((place[best], FoldedGroup(lead, tuple(members))))
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
    """What a candidate is told as part of, and why."""
    own = terms.get(one.key, Terms())
    for lead in leads:
        if _alike(own.every, terms.get(lead.key, Terms()).every, min_similarity):
            return lead.key, "says nearly the same"
    origin = origins.get(one.key)
    if origin is None:
        return None
    lead_keys = {lead.key for lead in leads}
    keys = [(ResultKind.MEMORY, pk) for pk in origin.memories]
    # A memory that is folded itself is spoken for by the one it is folded into; its terms are nearly the same.
    keys = [key for key in keys if key in place]
    leading = [key for key in keys if key in lead_keys]
    if not leading or (one.kind == ResultKind.ENTITY and not len(keys) == origin.count <= _FEW_MEMORIES):
        return None
    origin_terms = frozenset[str]().union(*(terms.get(key, Terms()).every for key in keys))
    if len(own.own - origin_terms) > _OWN_SHARE * len(own.own):
        return None
    return leading[0], "comes from it" if one.kind == ResultKind.RELATIONSHIP else "is known from it alone"


def _alike(one: frozenset[str], other: frozenset[str], min_similarity: float) -> bool:
    """Whether the terms that two have in common are at least this share of all that either has."""
    fewer, more = sorted((len(one), len(other)))
    if not fewer or fewer < min_similarity * more:
        return False
    common = len(one & other)
    return common >= min_similarity * (fewer + more - common)


def _order(one: Candidate) -> tuple[float, float, str, int]:
    kinds = list(ResultKind)
    return (-one.score, -one.relevance, str(kinds.index(one.kind)), -one.id)

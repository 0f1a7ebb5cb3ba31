"""How often the right category is proposed: memories that have some are asked about as if they had none.

Nothing is changed. A memory is left out of its own neighbours and of the means of its categories, and the trivial guess
stands beside: what most memories of the project have. Right is any category that the memory has.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from categories.queries import category_nodes
from curation.suggestions.classifier import CHOSEN, METHODS, Choice, Classifier, members_of
from curation.suggestions.generate import NothingEmbeddedError
from memories.embedding.models import Embedder
from memories.embedding.query import serving_model
from memories.models import Chunk, Project
from search.relevance import chunks_of

MAJORITY = "the most common"
ALL_PROJECTS = "all"
# A category so deep in the tree is deep.
_DEEP = 4
_BANDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25, 0.0)
_THREE = 3
_BLOCK = 100


@dataclass(slots=True)
class Score:
    """Of so many memories, how many were answered rightly, and in what sense."""

    asked: int = 0
    first: int = 0
    in_three: int = 0
    parent: int = 0
    """The first one is right, or beside a right one, or right above or below it."""
    top: int = 0
    """The first one is in the same tree as a right one."""
    nothing: int = 0
    """Nothing was proposed."""
    deep_asked: int = 0
    deep_in_three: int = 0
    """Of the memories in a category four or five deep: one of these is among the first three."""

    def add(self, other: "Score") -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Band:
    """Of the first proposals of a confidence, how many were right."""

    least: float
    asked: int = 0
    right: int = 0


@dataclass(slots=True)
class Judgement:
    """By method and project, and of the method that is used by confidence."""

    memories: int
    seed: int
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    bands: list[Band] = field(default_factory=lambda: [Band(least) for least in _BANDS])

    def score(self, method: str, project: str) -> Score:
        return self.scores.setdefault(method, {}).setdefault(project, Score())

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def judge(
    memories: int, seed: int, embedder: Embedder | None, tell: Callable[[str], None] = lambda said: None
) -> Judgement:
    """Judge the suggestions of categories on so many memories, as many of each project as there are."""
    serving = serving_model()
    if serving is None:
        raise NothingEmbeddedError
    judgement = Judgement(memories, seed)
    methods = {name: weights for name, weights in METHODS.items() if embedder is not None or not weights.text}
    for project, ids, members in _drawn(memories, seed, serving.id):
        tell(f"{project.slug}: {len(ids):,} of {len(members):,} memories that have a category")
        classifier = Classifier(serving, members, embedder)
        paths = {pk: node.path for pk, node in category_nodes({c for own in members.values() for c in own}).items()}
        common = Counter(category_id for own in members.values() for category_id in own)
        for at in range(0, len(ids), _BLOCK):
            for memory_id, chunks in chunks_of(ids[at : at + _BLOCK], serving.id).items():
                right = {paths[category_id] for category_id in members[memory_id]}
                judgement.score(MAJORITY, project.slug).add(
                    _scored(_most_common(common, members[memory_id], paths), right)
                )
                measured = classifier.measured(memory_id, chunks)
                for name, weights in methods.items():
                    choices = classifier.weighed(measured, weights)[:_THREE]
                    guesses = [paths[choice.category_id] for choice in choices]
                    judgement.score(name, project.slug).add(_scored(guesses, right))
                    if weights is CHOSEN:
                        _band(judgement.bands, choices, guesses, right)
    for by_project in judgement.scores.values():
        total = Score()
        for score in by_project.values():
            total.add(score)
        by_project[ALL_PROJECTS] = total
    return judgement


def _drawn(memories: int, seed: int, model_id: int) -> list[tuple[Project, list[int], dict[int, list[int]]]]:
    """Of each project the memories to ask about, and all that have categories. Small ones give what they have."""
    embedded = set(Chunk.objects.filter(model_id=model_id, ordinal=0).values_list("memory_id", flat=True))
    found = []
    left = memories
    every = [(project, members_of(project.pk)) for project in Project.objects.order_by("id")]
    every = sorted([one for one in every if len(one[1]) > 1], key=lambda one: len(one[1]))
    for at, (project, members) in enumerate(every):
        there = sorted(pk for pk in members if pk in embedded)
        share = min(len(there), left // (len(every) - at))
        left -= share
        drawn = random.Random(f"{seed} {project.slug}").sample(there, share)  # noqa: S311 - seeded, to be repeatable
        found.append((project, sorted(drawn), members))
    return sorted(found, key=lambda one: one[0].slug)


def _most_common(common: Mapping[int, int], own: Sequence[int], paths: Mapping[int, str]) -> list[str]:
    """The trivial guess: it does not count the memory itself either."""
    counts = {pk: count - (pk in own) for pk, count in common.items()}
    return [paths[pk] for pk in sorted(counts, key=lambda pk: (-counts[pk], pk))[:_THREE]]


def _scored(guesses: Sequence[str], right: set[str]) -> Score:
    deep = {path for path in right if path.count("/") >= _DEEP - 1}
    score = Score(asked=1, nothing=not guesses, deep_asked=bool(deep), deep_in_three=bool(deep & set(guesses)))
    if guesses:
        first = guesses[0]
        score.first = first in right
        score.in_three = bool(right & set(guesses))
        score.parent = first in right or any(_kin(first, path) for path in right)
        score.top = _root(first) in {_root(path) for path in right}
    return score


def _kin(one: str, other: str) -> bool:
    above = _above(one), _above(other)
    return above[0] == above[1] != "" or one == above[1] or other == above[0]


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _root(path: str) -> str:
    return path.partition("/")[0]


def _band(bands: Sequence[Band], choices: Sequence[Choice], guesses: Sequence[str], right: set[str]) -> None:
    if choices:
        band = next(band for band in bands if choices[0].confidence >= band.least)
        band.asked += 1
        band.right += guesses[0] in right


def judgement_lines(judgement: Judgement) -> list[str]:
    """The judgement as tables in Markdown."""
    lines = [
        "| project | method | memories | first | in three | parent | tree | deep in three | none |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    projects = list(judgement.scores.get(MAJORITY, {}))
    for project in projects:
        for method, by_project in judgement.scores.items():
            one = by_project[project]
            name = f"**{method}**" if METHODS.get(method) is CHOSEN else method
            cells = [one.first, one.in_three, one.parent, one.top]
            shares = " | ".join(_share(count, one.asked) for count in cells)
            deep = f"{_share(one.deep_in_three, one.deep_asked)} of {one.deep_asked:,}" if one.deep_asked else "–"
            lines.append(f"| {project} | {name} | {one.asked:,} | {shares} | {deep} | {one.nothing:,} |")
    lines += ["", "| confidence of the first | memories | right |", "|---|---|---|"]
    for band in judgement.bands:
        lines.append(f"| {band.least:.2f} and more | {band.asked:,} | {_share(band.right, band.asked)} |")
    return lines


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else "–"

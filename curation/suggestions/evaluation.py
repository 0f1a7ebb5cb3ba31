"""Measures how often the right category is suggested, on memories that have categories. Nothing is changed.

A memory is excluded from its own neighbours and from the means of its categories. Any category of the memory is right.
The baseline is the most common category of the project.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from categories.queries import category_nodes
from curation.suggestions.classifier import CHOSEN, METHODS, CategoryChoice, Classifier, ScoreWeights, members_of
from curation.suggestions.generate import NothingEmbeddedError
from memories.embedding.models import Embedder
from memories.embedding.query import serving_model
from memories.models import Chunk, Project
from search.relevance import chunks_of

MAJORITY = "the most common"
ALL_PROJECTS = "all"
# The depth from which a category counts as deep.
_DEEP = 4
_BANDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25, 0.0)
_THREE = 3
_BLOCK = 100


@dataclass(slots=True)
class Score:
    """The number of evaluated memories, and of right answers in several senses."""

    asked: int = 0
    first: int = 0
    in_three: int = 0
    parent: int = 0
    """The first category is right, or a sibling, the parent or a child of a right category."""
    top: int = 0
    """The first category has the same root as a right category."""
    nothing: int = 0
    """There was no suggestion."""
    deep_asked: int = 0
    deep_in_three: int = 0
    """Share of the memories in a deep category whose first three suggestions include a right deep category."""

    def add(self, other: "Score") -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Band:
    """The first suggestions in a range of confidence, and the number of right suggestions."""

    least: float
    asked: int = 0
    right: int = 0


@dataclass(slots=True)
class Evaluation:
    """Scores by method and project, and for the method in use by confidence."""

    memories: int
    seed: int
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    bands: list[Band] = field(default_factory=lambda: [Band(least) for least in _BANDS])

    def score(self, method: str, project: str) -> Score:
        return self.scores.setdefault(method, {}).setdefault(project, Score())

    def add_totals(self) -> None:
        """Add the scores over all projects to those of each project."""
        for by_project in self.scores.values():
            total = Score()
            for score in by_project.values():
                total.add(score)
            by_project[ALL_PROJECTS] = total

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def evaluate(
    memories: int, seed: int, embedder: Embedder | None, report: Callable[[str], None] = lambda line: None
) -> Evaluation:
    """Evaluate the suggestions of categories on a sample of memories, evenly from all projects."""
    serving = serving_model()
    if serving is None:
        raise NothingEmbeddedError
    evaluation = Evaluation(memories, seed)
    methods = {name: weights for name, weights in METHODS.items() if embedder is not None or not weights.text}
    for project, ids, members in _sample(memories, seed, serving.id):
        report(f"{project.slug}: {len(ids):,} of {len(members):,} memories that have a category")
        _evaluate_project(evaluation, methods, project.slug, ids, Classifier(serving, members, embedder), members)
    evaluation.add_totals()
    return evaluation


def _evaluate_project(
    evaluation: Evaluation,
    methods: Mapping[str, ScoreWeights],
    project: str,
    ids: Sequence[int],
    classifier: Classifier,
    members: Mapping[int, Sequence[int]],
) -> None:
    paths = {pk: node.path for pk, node in category_nodes({c for own in members.values() for c in own}).items()}
    common = Counter(category_id for own in members.values() for category_id in own)
    blocks = (ids[at : at + _BLOCK] for at in range(0, len(ids), _BLOCK))
    for memory_id, chunks in (one for block in blocks for one in chunks_of(block, classifier.serving.id).items()):
        right = {paths[category_id] for category_id in members[memory_id]}
        guesses = _most_common(common, members[memory_id], paths)
        evaluation.score(MAJORITY, project).add(_scored(guesses, right))
        scores = classifier.scores(memory_id, chunks)
        for name, weights in methods.items():
            choices = classifier.weighted(scores, weights)[:_THREE]
            guesses = [paths[choice.category_id] for choice in choices]
            evaluation.score(name, project).add(_scored(guesses, right))
            if weights is CHOSEN:
                _band(evaluation.bands, choices, guesses, right)


def _sample(memories: int, seed: int, model_id: int) -> list[tuple[Project, list[int], dict[int, list[int]]]]:
    """For each project the sampled memories, and all memories with categories. Small projects count whole."""
    embedded = set(Chunk.objects.filter(model_id=model_id, ordinal=0).values_list("memory_id", flat=True))
    found = []
    remaining = memories
    every = [(project, members_of(project.pk)) for project in Project.objects.order_by("id")]
    every = sorted([one for one in every if len(one[1]) > 1], key=lambda one: len(one[1]))
    for at, (project, members) in enumerate(every):
        candidates = sorted(pk for pk in members if pk in embedded)
        share = min(len(candidates), remaining // (len(every) - at))
        remaining -= share
        drawn = random.Random(f"{seed} {project.slug}").sample(candidates, share)  # noqa: S311 - seeded, to be repeatable
        found.append((project, sorted(drawn), members))
    return sorted(found, key=lambda one: one[0].slug)


def _most_common(common: Mapping[int, int], own: Sequence[int], paths: Mapping[int, str]) -> list[str]:
    """The baseline, which does not count the memory itself either."""
    counts = {pk: count - (pk in own) for pk, count in common.items()}
    return [paths[pk] for pk in sorted(counts, key=lambda pk: (-counts[pk], pk))[:_THREE]]


def _scored(guesses: Sequence[str], right: set[str]) -> Score:
    deep = {path for path in right if path.count("/") >= _DEEP - 1}
    score = Score(asked=1, nothing=not guesses, deep_asked=bool(deep), deep_in_three=bool(deep & set(guesses)))
    if guesses:
        first = guesses[0]
        score.first = first in right
        score.in_three = bool(right & set(guesses))
        score.parent = first in right or any(_are_near(first, path) for path in right)
        score.top = _root(first) in {_root(path) for path in right}
    return score


def _are_near(one: str, other: str) -> bool:
    parent, other_parent = one.rpartition("/")[0], other.rpartition("/")[0]
    return parent == other_parent != "" or one == other_parent or other == parent


def _root(path: str) -> str:
    return path.partition("/")[0]


def _band(bands: Sequence[Band], choices: Sequence[CategoryChoice], guesses: Sequence[str], right: set[str]) -> None:
    if choices:
        band = next(band for band in bands if choices[0].confidence >= band.least)
        band.asked += 1
        band.right += guesses[0] in right


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """The evaluation as tables in Markdown."""
    lines = [
        "| project | method | memories | first | in three | parent | tree | deep in three | none |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    projects = list(evaluation.scores.get(MAJORITY, {}))
    for project in projects:
        for method, by_project in evaluation.scores.items():
            one = by_project[project]
            name = f"**{method}**" if METHODS.get(method) is CHOSEN else method
            cells = [one.first, one.in_three, one.parent, one.top]
            shares = " | ".join(_share(count, one.asked) for count in cells)
            deep = f"{_share(one.deep_in_three, one.deep_asked)} of {one.deep_asked:,}" if one.deep_asked else "–"
            lines.append(f"| {project} | {name} | {one.asked:,} | {shares} | {deep} | {one.nothing:,} |")
    lines += ["", "| confidence of the first | memories | right |", "|---|---|---|"]
    for band in evaluation.bands:
        lines.append(f"| {band.least:.2f} and more | {band.asked:,} | {_share(band.right, band.asked)} |")
    return lines


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else "–"

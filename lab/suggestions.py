"""`python -m lab.suggestions`: how often the right category is suggested, on memories of this site that have some.

Nothing is changed. A memory is excluded from its own neighbours and from the means of its categories. Any category of
the memory is right. The baseline is the most common category of the project.
"""

import argparse
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

# These import models, which need the settings.
from categories.queries import category_nodes  # noqa: E402
from curation.suggestions.classifier import Classifier, members_of  # noqa: E402
from lab.report import Cell, table  # noqa: E402
from memories.embedding.query import serving_model  # noqa: E402
from memories.models import Chunk, Project  # noqa: E402

MAJORITY, USED, ALL_PROJECTS = "the most common", "suggestions", "all"
# The depth from which a category counts as deep.
_DEEP = 4
_BANDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25, 0.0)
_THREE = 3
_BLOCK = 100
_SENSES = ("first", "in_three", "parent", "tree")

Scores = dict[str, dict[str, Counter[str]]]


def evaluate(memories: int, seed: int) -> tuple[Scores, dict[float, Counter[str]]]:
    """Right answers by project and method, and those of the first suggestions by their confidence."""
    serving = serving_model()
    if serving is None:
        raise SystemExit("No memory has been embedded yet: run `manage.py worker --once` first.")
    scores: Scores = {}
    bands = {least: Counter[str]() for least in _BANDS}
    for project, ids, members in _sample(memories, seed, serving.id):
        of_project = scores[project.slug] = {MAJORITY: Counter(), USED: Counter()}
        classifier = Classifier(serving, members)
        paths = {pk: node.path for pk, node in category_nodes({c for own in members.values() for c in own}).items()}
        common = Counter(category_id for own in members.values() for category_id in own)
        for block in (ids[at : at + _BLOCK] for at in range(0, len(ids), _BLOCK)):
            for memory_id, choices in classifier.choices(block).items():
                right = {paths[category_id] for category_id in members[memory_id]}
                of_project[MAJORITY].update(_scored(_most_common(common, members[memory_id], paths), right))
                guesses = [paths[choice.category_id] for choice in choices]
                of_project[USED].update(_scored(guesses, right))
                if choices:
                    band = bands[next(least for least in _BANDS if choices[0].confidence >= least)]
                    band.update(asked=1, right=guesses[0] in right)
    totals = {method: Counter[str]() for method in (MAJORITY, USED)}
    for of_project in scores.values():
        for method, counts in of_project.items():
            totals[method].update(counts)
    return {**scores, ALL_PROJECTS: totals}, bands


def _sample(memories: int, seed: int, model_id: int) -> Iterator[tuple[Project, list[int], dict[int, list[int]]]]:
    """For each project the sampled memories, and all memories with categories. Small projects count whole."""
    embedded = set(Chunk.objects.filter(model_id=model_id, ordinal=0).values_list("memory_id", flat=True))
    remaining = memories
    every = [(project, members_of(project.pk)) for project in Project.objects.order_by("id")]
    every = sorted([one for one in every if len(one[1]) > 1], key=lambda one: len(one[1]))
    for at, (project, members) in enumerate(every):
        candidates = sorted(pk for pk in members if pk in embedded)
        share = min(len(candidates), remaining // (len(every) - at))
        remaining -= share
        yield project, sorted(random.Random(f"{seed} {project.slug}").sample(candidates, share)), members


def _most_common(common: Mapping[int, int], own: Sequence[int], paths: Mapping[int, str]) -> list[str]:
    """The baseline, which does not count the memory itself either."""
    counts = {pk: count - (pk in own) for pk, count in common.items()}
    return [paths[pk] for pk in sorted(counts, key=lambda pk: (-counts[pk], pk))[:_THREE]]


def _scored(guesses: Sequence[str], right: set[str]) -> Counter[str]:
    """One answer, right in several senses: the first is right, is next to a right one, has the root of a right one."""
    deep = {path for path in right if path.count("/") >= _DEEP - 1}
    found = Counter(asked=1, none=not guesses, deep_asked=bool(deep), deep=bool(deep & set(guesses)))
    if guesses:
        first = guesses[0]
        found["first"] = first in right
        found["in_three"] = bool(right & set(guesses))
        found["parent"] = first in right or any(_are_near(first, path) for path in right)
        found["tree"] = first.partition("/")[0] in {path.partition("/")[0] for path in right}
    return found


def _are_near(one: str, other: str) -> bool:
    parent, other_parent = one.rpartition("/")[0], other.rpartition("/")[0]
    return parent == other_parent != "" or one == other_parent or other == parent


def report_lines(scores: Scores, bands: Mapping[float, Counter[str]]) -> list[str]:
    rows: list[list[Cell]] = []
    for project, by_method in scores.items():
        for method, of in by_method.items():
            shares = [_share(of[sense], of["asked"]) for sense in _SENSES]
            rows.append([project, method, of["asked"], *shares, _share(of["deep"], of["deep_asked"]), of["none"]])
    confidence: list[list[Cell]] = [
        [f"{least:.2f} and more", of["asked"], _share(of["right"], of["asked"])] for least, of in bands.items()
    ]
    headings = ["project", "method", "memories", "first", "in three", "parent", "tree", "deep in three", "none"]
    return [*table(headings, rows), "", *table(["confidence of the first", "memories", "right"], confidence)]


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else "–"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.suggestions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memories", type=int, default=1000, metavar="N", help="number of memories (1000)")
    parser.add_argument("--seed", type=int, default=7, help="the seed for drawing memories (7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")
    given = parser.parse_args()
    scores, bands = evaluate(given.memories, given.seed)
    print("\n".join(report_lines(scores, bands)))
    if given.json:
        given.json.write_text(json.dumps({"scores": scores, "bands": bands}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

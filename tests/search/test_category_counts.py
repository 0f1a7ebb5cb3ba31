"""Counts of categories stay equal to those of a naive counter through every change, for every viewer."""

import random
from collections import Counter

import pytest

from access.viewer import command_viewer
from categories.models import Category
from explorer.categories.visible_tree import visible_tree
from memories.models import Chunk, Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from search import baseline_counts
from search.engines import select_engine
from tests.embedding import embed_all
from tests.search.conftest import EVERY_COUNT
from web.cache import clear_caches

pytestmark = EVERY_COUNT

PATHS = ["A", "A/B", "A/B/C", "A/D", "E", "E/F"]
STATES = ["active", "active", "proposed", "archived"]
EVERYTHING = command_viewer()


def counted(viewer):
    """By path: memories, own memories, chunks and concepts of every visible category."""
    visible = visible_tree(select_engine(viewer), viewer)
    found = {}
    for node in visible.tree.ordered:
        if visible.is_visible(node.id):
            numbers = visible.counts.numbers(node.id)
            own = visible.counts.own_memories(node.id)
            found[node.path] = (numbers.memories, own, numbers.chunks, numbers.concepts)
    return found


def naive(viewer):
    """The same counts by a loop over all memories."""
    every = Memory.objects.exclude(state="deleted") if viewer.project_ids is None else Memory.objects.all()
    if viewer.project_ids is not None:
        every = every.filter(project_id__in=viewer.project_ids)
    chunks = Counter(Chunk.objects.values_list("memory_id", flat=True))
    found = {}
    for category in Category.objects.all():
        opened = [memory for memory in every if category.pk in memory.category_path_ids]
        shown = [memory for memory in opened if memory.state in {"active", "proposed"}]
        if viewer.project_ids is None or opened:
            found[category.path] = (
                len(shown),
                sum(category.pk in memory.category_ids for memory in shown),
                sum(chunks[memory.pk] for memory in shown),
                len({concept for memory in shown for concept in memory.concept_ids}),
            )
    return found


def change(rng, n):
    """A random change of a memory."""
    there = list(Memory.objects.exclude(state="deleted").values_list("pk", flat=True))
    match rng.choice(["create", "create", "refile", "state", "delete", "embed"]) if there else "create":
        case "create":
            record = MemoryRecord(
                content=f"Memory {n}.",
                project=rng.choice(["p", "q"]),
                categories=rng.sample(PATHS, rng.randrange(3)),
                concepts=rng.sample(["x", "y", "z"], rng.randrange(3)),
                state=rng.choice(STATES),
            )
            memory_create(record=record, viewer=EVERYTHING)
        case "refile":
            changes = MemoryChanges(categories=rng.sample(PATHS, rng.randrange(3)), concepts=rng.sample("xyz", 1))
            memory_update(memory_id=rng.choice(there), changes=changes, viewer=EVERYTHING)
        case "state":
            changes = MemoryChanges(state=rng.choice(STATES))
            memory_update(memory_id=rng.choice(there), changes=changes, viewer=EVERYTHING)
        case "delete":
            memory_delete(memory_id=rng.choice(there), viewer=EVERYTHING, reason="x")
        case "embed":
            embed_all()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.release) for n in (1, 2))])
def test_numbers_stay_right_through_changes(engine, of_projects, seed):
    rng = random.Random(seed)
    for n in range(30):
        change(rng, n)
        viewers = [EVERYTHING, of_projects("p"), of_projects("q"), of_projects("p", "q")]
        viewer = rng.choice(viewers)
        assert counted(viewer) == naive(viewer)
    for viewer in viewers:
        kept = counted(viewer)
        assert kept == naive(viewer)
        clear_caches()
        assert counted(viewer) == kept


@pytest.fixture
def of_projects():
    """Makes viewers of some projects, by slug."""

    def viewer(*slugs):
        ids = frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True))
        return type(EVERYTHING)(ids, frozenset(["read"]))

    return viewer


@pytest.mark.django_db(transaction=True)
def test_nothing_is_counted_twice_while_nothing_changes(engine, of_projects, monkeypatch):
    change(random.Random(1), 0)
    counted(EVERYTHING)
    monkeypatch.setattr(baseline_counts, "_count_categories", None)
    assert counted(EVERYTHING) == naive(EVERYTHING)


@pytest.mark.django_db
def test_without_any_memory_there_is_nothing_to_count(engine):
    Category.objects.create(name="Home", path="home")
    assert counted(EVERYTHING) == {"home": (0, 0, 0, 0)}

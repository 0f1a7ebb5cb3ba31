"""Random sequences of operations: undone in reverse order, they leave the database unchanged.

`CURATION_SEEDS` is the number of sequences, `CURATION_VERBS` the number of operations in each.
"""

import json
import os
import random

import pytest

from categories.models import Category, Concept, Entity
from curation.checks import findings
from curation.schemas import Alias, Create, Edit, Merge, Move, Relate, Rename, Retag, Split
from curation.services import curation_apply, curation_undo
from curation.undo import UndoRefusedError
from curation.working_copy import CurationRefusedError
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.curation.conftest import dump
from tests.oracle import facet_counts, load_documents, matching

pytestmark = pytest.mark.django_db

SEEDS = int(os.environ.get("CURATION_SEEDS", "1"))
VERBS = int(os.environ.get("CURATION_VERBS", "30"))
NAMES = ("Alpha", "beta", "Gamma Ray", "delta/epsilon", "Zeta", "ETA", "théta", "Oven", "Dock", "tea", "kettle", "C++")
MODELS = {"category": Category, "concept": Concept, "entity": Entity}


def some_ref(rng, kind):
    if kind == "tag":
        return rng.choice(sorted({tag for tags in Memory.objects.values_list("tags", flat=True) for tag in tags}))
    return f"#{rng.choice(sorted(MODELS[kind].objects.values_list('pk', flat=True)))}"


def some_memory(rng):
    return rng.choice(sorted(Memory.objects.values_list("pk", flat=True)))


def some_query(rng):
    return rng.choice(
        [
            "sort=newest",
            "project=tea",
            "mode=keyword&q=tea",
            "type=note",
            f"tag={some_ref(rng, 'tag').replace('+', '%2B')}",
            "category=" + rng.choice(sorted(Category.objects.values_list("path", flat=True))).replace("+", "%2B"),
            "state=archived&state=active",
        ]
    )


def some_verb(rng):
    """A random operation, often with invalid arguments."""
    kind = rng.choice(["category", "category", "concept", "entity", "tag"])
    related = rng.choice(["category", "concept", "entity"])
    hows = {"category": ["related"], "concept": ["broader", "narrower", "related"], "entity": ["owns", "knows"]}
    return rng.choice(
        [
            lambda: Merge(kind=kind, source=some_ref(rng, kind), target=some_ref(rng, kind)),
            lambda: Rename(kind=kind, term=some_ref(rng, kind), name=f"{rng.choice(NAMES)}{rng.choice(['', ' 2'])}"),
            lambda: Move(category=some_ref(rng, "category"), parent=rng.choice(["", some_ref(rng, "category")])),
            lambda: Alias(kind=kind, term=some_ref(rng, kind), add=[rng.choice(NAMES)]),
            lambda: Split(
                kind=kind, term=some_ref(rng, kind), name=rng.choice(NAMES), query=some_query(rng) or "sort=newest"
            ),
            lambda: Relate(
                kind=related,
                term=some_ref(rng, related),
                how=rng.choice(hows[related]),
                other=some_ref(rng, related),
                remove=rng.random() < 0.3,
            ),
            lambda: Create(
                kind="concept", name=rng.choice(NAMES), broader=[some_ref(rng, "concept")], memories=[some_memory(rng)]
            ),
            lambda: Create(kind="category", name=f"{rng.choice(NAMES)}/new", related=[some_ref(rng, "category")]),
            lambda: Edit(kind="entity", term=some_ref(rng, "entity"), type=rng.choice(["tool", "person", "boat"])),
            lambda: Retag(
                query=some_query(rng),
                add_tags=[rng.choice(NAMES)],
                remove_tags=[some_ref(rng, "tag")],
                **rng.choice(
                    [
                        {"set_category": some_ref(rng, "category")},
                        {"add_categories": [some_ref(rng, "category")], "remove_concepts": [some_ref(rng, "concept")]},
                        {"remove_categories": [some_ref(rng, "category")], "add_concepts": [some_ref(rng, "concept")]},
                        {"add_entities": [some_ref(rng, "entity")], "remove_entities": [some_ref(rng, "entity")]},
                        {},
                    ]
                ),
            ),
        ]
    )()


def do_some(rng, viewer, wanted):
    """Apply operations until enough succeeded. Returns their curations."""
    done = []
    while len(done) < wanted:
        try:
            done.append(curation_apply(operation=some_verb(rng), viewer=viewer).curation.pk)
        except CurationRefusedError:
            continue
        yield done[-1]


@pytest.fixture
def grown(corpus, curator):
    """The corpus, with enough memories that links collide."""
    rng = random.Random(7)
    for n in range(40):
        record = {
            "project": rng.choice(["tea", "boat"]),
            "content": f"Memory {n} of {rng.choice(NAMES)}.",
            "tags": rng.sample(["tea", "kettle", "crane", "wood", "boat", "dock"], 3),
            "categories": rng.sample(["Kitchen", "Kitchen/Oven", "Yard/Dock", "Yard/Oven", "A/B/C/D/E", "A/B"], 2),
            "concepts": rng.sample(["heat", "safety", "maintenance", "boiling"], 2),
            "entities": rng.sample(["person:Mio", "person:Ada", "tool:kettle", "tool:crane"], 2),
        }
        memory_create(record=MemoryRecord.model_validate(record), viewer=curator)


def assert_counts_are_those_of_the_naive_counter(rng, viewer):
    documents = load_documents()
    query = SearchQuery.from_mapping({"mode": "faceted", "include_facets": True})
    result = run(query, viewer, facet_limit=1_000)
    assert result.total == len(matching(documents, query))
    for facet in result.facets:
        if facet.key in ("tag", "category", "concept", "entity"):
            counts = {str(value.value): value.count for value in facet.values if value.value and value.count}
            assert counts == dict(facet_counts(documents, query, facet.key)[0])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_verbs_undone_the_last_first_leave_everything_as_it_was(grown, curator, seed):
    rng = random.Random(seed)
    stood = [dump()]
    done = []
    for curation_id in do_some(rng, curator, VERBS):
        done.append(curation_id)
        stood.append(dump())
        assert findings() == []
        if len(done) % 10 == 0:
            assert_counts_are_those_of_the_naive_counter(rng, curator)
    for curation_id in reversed(done):
        assert dump() == stood.pop()
        curation_undo(curation_id=curation_id, viewer=curator)
    assert dump() == stood.pop()
    assert findings() == []


def is_undone(curation_id, viewer):
    try:
        curation_undo(curation_id=curation_id, viewer=viewer)
    except UndoRefusedError:
        return False
    return True


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_an_undo_out_of_order_holds_or_is_refused_and_the_end_is_the_beginning(grown, curator, seed):
    rng = random.Random(seed)
    before = dump()
    left = list(do_some(rng, curator, 40))
    refused = 0
    for _ in range(60):
        chosen = rng.choice(left)
        stood = dump()
        if is_undone(chosen, curator):
            left.remove(chosen)
            assert findings() == []
        else:
            refused += 1
            assert dump() == stood
    for curation_id in reversed(left):
        curation_undo(curation_id=curation_id, viewer=curator)
    assert refused
    assert unordered(dump()) == unordered(before)


def unordered(rows):
    """Snapshots without the order of the tags of a memory, and of the words in its search terms."""
    memories = [json.loads(row) for row in rows["memories_memory"]]
    changed = [row | {"tags": sorted(row["tags"]), "terms": len(row["terms"].split())} for row in memories]
    return rows | {"memories_memory": changed}

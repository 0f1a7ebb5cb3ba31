"""The order of results for viewers of some projects depends on the memories of these alone."""

import pytest

from access.viewer import Viewer
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import BOTH_ENGINES

pytestmark = [pytest.mark.django_db, BOTH_ENGINES]

TEXTS = {
    "rare": "alpha",
    "twice": "beta beta gamma",
    "plain": "beta and some other words around it, of which there are quite many to read here",
    "short": "beta",
    "gamma": "gamma",
    "both": "alpha beta",
}


def stored(project, viewer, texts):
    return {
        memory_create(
            record=MemoryRecord(project=project, content=text, title=f"Note {number}"), viewer=viewer
        ).pk: name
        for number, (name, text) in enumerate(texts.items())
    }


def found(viewer, names, **asked):
    result = run(SearchQuery(mode="keyword", **asked), viewer)
    return [(names[hit.id], hit.why.keyword_rank) for hit in result.hits if hit.id in names]


def test_order_stays_when_memories_that_may_not_be_seen_come(engine, everyone):
    names = stored("ours", everyone, TEXTS)
    viewer = Viewer(frozenset([Project.objects.get(slug="ours").pk]), frozenset(["read"]))
    asked = ({"q": "alpha or beta or gamma"}, {"q": "alpha or gamma"}, {"q": "beta", "page_size": 2}, {"q": "alp*"})
    before = [found(viewer, names, **one) for one in asked]
    stored("theirs", everyone, {f"{n}": f"alpha alpha {'gamma ' * n}number {n}, which is longer" for n in range(40)})
    assert [found(viewer, names, **one) for one in asked] == before
    if engine != "postgres":
        # A word that few of their own memories have weighs more, whatever others have.
        assert [name for name, _ in before[0]] == ["both", "twice", "gamma", "rare", "short", "plain"]

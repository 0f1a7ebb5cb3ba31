"""Above a million memories, counts of all of them may be older than the latest change, and say so."""

import pytest

from access.viewer import Viewer, command_viewer
from explorer.categories.reads import category_list
from explorer.categories.schemas import CategoryListRequest
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search import baseline_counts
from search.baseline_counts import EveryCount, ValueTable
from search.engines import base, column_snapshot
from search.engines.base import FacetCounts, ValueCount
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import EVERY_COUNT

pytestmark = [pytest.mark.django_db(transaction=True), EVERY_COUNT]


@pytest.fixture
def engine(settings):
    settings.SEARCH_ENGINE = "postgres"


@pytest.fixture
def served_for_long(monkeypatch):
    """However quickly something is read, it may be served for a while."""
    monkeypatch.setattr(baseline_counts.cache, "_SHARE", 1_000_000)
    monkeypatch.setattr(column_snapshot._passes, "_SHARE", 1_000_000)


def store(content, project="garden"):
    record = {"project": project, "content": content, "categories": ["Plants"], "tags": ["leaf"]}
    memory_create(record=MemoryRecord.model_validate(record), viewer=command_viewer())


def counted(viewer=None):
    """The total, the memories with a tag, all memories, and the warnings about the counts, without a query."""
    result = run(SearchQuery(), viewer or command_viewer(), include_facets=True, with_corpus=True)
    tags = next(facet for facet in result.facets if facet.key == "tag")
    said = [warning.message for warning in result.warnings if warning.parameter == "counts"]
    return result.total, tags.values[0].count, result.corpus.total, said


def test_up_to_a_million_memories_every_count_is_that_of_now(engine, served_for_long):
    store("moss")
    assert counted() == (1, 1, 1, [])
    store("fern")
    assert counted() == (2, 2, 2, [])


def test_above_it_counts_of_all_may_be_older_and_the_answer_says_of_what_time(engine, served_for_long, monkeypatch):
    monkeypatch.setattr(base, "LARGE", 1)
    store("moss")
    store("fern")
    assert counted() == (2, 2, 2, [])
    store("ivy")
    total, tagged, corpus, said = counted()
    assert (total, tagged, corpus, len(said)) == (2, 2, 2, 1)
    assert said[0].startswith("Counts of all memories are of ")
    assert said[0].endswith("they are made again in the background, not after every change.")
    # A query is answered exactly all the same.
    found = run(SearchQuery(text="ivy", mode="keyword"), command_viewer(), include_facets=True)
    assert (found.total, found.warnings) == (1, ())


def test_older_counts_are_those_of_the_projects_of_a_viewer(engine, served_for_long, monkeypatch):
    monkeypatch.setattr(base, "LARGE", 1)
    for content in ("moss", "fern"):
        store(content)
        store(content, "cellar")
    viewer = Viewer(frozenset([Project.objects.get(slug="garden").pk]), frozenset(["read"]))
    assert counted()[:3] == (4, 4, 4)
    assert counted(viewer)[:3] == (2, 2, 2)
    store("ivy", "cellar")
    assert counted(viewer)[:3] == (2, 2, 2)


def test_above_it_numbers_of_categories_may_be_older_too(engine, served_for_long, monkeypatch):
    monkeypatch.setattr(base, "LARGE", 1)
    store("moss")
    store("fern")

    def listed():
        found = category_list(CategoryListRequest(), command_viewer())
        return found.aggregate.numbers.memories, [w.parameter for w in found.warnings if w.parameter == "counts"]

    assert listed() == (2, [])
    store("ivy")
    assert listed() == (2, ["counts"])
    monkeypatch.setattr(base, "LARGE", 1_000_000)
    assert listed() == (3, [])


def counts_of(*values):
    return FacetCounts(tuple(ValueCount(*value) for value in values), len(values))


@pytest.mark.parametrize(
    ("counted", "missing"),
    [
        pytest.param(counts_of((7, 5, 2), (3, 4, 4), (9, 4, 0), (1, 1, 1)), 8, id="ids"),
        pytest.param(counts_of(("moss", 5), ("fern", 4), ("ivy", 4)), "oak", id="texts"),
    ],
)
def test_all_values_of_the_corpus_are_the_ones_that_were_counted(counted, missing):
    table = ValueTable(counted)
    assert table.largest(None) == counted.values
    assert table.largest(2) == counted.values[:2]
    assert [table.get(one.value) for one in counted.values] == list(counted.values)
    assert (table.get(missing), table.get(10_000), table.get("no such text")) == (None, None, None)
    every = EveryCount({"one": table, "none": ValueTable(counts_of())})
    assert dict(every) == {("one", one.value): one.count for one in counted.values}
    assert (len(every), every.get(("one", missing), 0), every.get(("none", 1), 0), every.get(("other", 1))) == (
        len(counted.values),
        0,
        0,
        None,
    )

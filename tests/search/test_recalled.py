"""Filters and the order by recalls, in every engine: which memories were recalled since, which never were, and by whom
they are seen.
"""

from datetime import UTC, datetime

import pytest

from access.viewer import Viewer
from memories.models import Memory, Project, Recall
from memories.recalls import RecallLog
from search.query import SearchQuery
from search.run import run
from search.why_not import why_not
from web.params import QueryError

pytestmark = pytest.mark.django_db


def ask(text, viewer):
    return run(SearchQuery.from_pairs(pair.split("=", 1) for pair in text.split("&")), viewer)


def names(result):
    return [hit.external_id for hit in result.hits]


@pytest.fixture
def used(engine, corpus):
    """t1 was recalled three times, the last time in March; t2 and b1 once in May; no other ever."""
    numbers = dict(Memory.objects.values_list("external_id", "id"))
    Recall.objects.all().delete()
    recalls = RecallLog()
    for month in (1, 2, 3):
        recalls.add([numbers["t1"]], by_agent=True, at=datetime(2026, month, 5, 12, 30, 15, 999_999, tzinfo=UTC))
    recalls.add([numbers["t2"], numbers["b1"]], by_agent=False, at=datetime(2026, 5, 5, tzinfo=UTC))
    recalls.store()
    return numbers


def test_a_memory_with_the_number_of_a_deleted_one_does_not_have_its_recalls(used, everyone):
    assert set(names(ask("recalled_since=ever", everyone))) == {"t1", "t2", "b1"}
    # Gone with their memories, whose numbers copies of an export then have.
    Recall.objects.filter(pk__in=[used["t2"], used["b1"]]).delete()
    recalls = RecallLog()
    recalls.add([used["t1"]], by_agent=True, at=datetime(2026, 6, 5, tzinfo=UTC))
    recalls.store()
    assert names(ask("recalled_since=ever", everyone)) == ["t1"]


def test_recalled_since_finds_what_was_recalled_then_or_later(used, everyone):
    assert set(names(ask("recalled_since=ever", everyone))) == {"t1", "t2", "b1"}
    assert set(names(ask("recalled_since=2026-03-05", everyone))) == {"t1", "t2", "b1"}
    assert set(names(ask("recalled_since=2026-03-05T12:30:15Z", everyone))) == {"t1", "t2", "b1"}
    assert set(names(ask("recalled_since=2026-03-05T12:30:16Z", everyone))) == {"t2", "b1"}
    assert names(ask("recalled_since=2026-03-05&tag=brewing", everyone)) == ["t1"]


def test_most_recalled_come_first_and_then_the_newest_numbers(used, everyone):
    found = ask("sort=recalled&page_size=100", everyone)
    assert names(found)[:3] == ["t1", *sorted(["t2", "b1"], key=lambda name: -used[name])]
    assert [hit.recalls for hit in found.hits[:4]] == [3, 1, 1, 0]
    rest = [hit.id for hit in found.hits[3:]]
    assert rest == sorted(rest, reverse=True)


def test_a_viewer_of_one_project_finds_and_orders_only_its_memories(used):
    tea = Viewer(frozenset([Project.objects.get(slug="tea").pk]), frozenset({"read"}))
    assert set(names(ask("recalled_since=ever", tea))) == {"t1", "t2"}
    assert {hit.project for hit in ask("-recalled_since=ever&sort=recalled", tea).hits} == {"tea"}


def test_why_not_and_alternatives_name_the_recalls(used, everyone):
    query = SearchQuery.from_pairs([("recalled_since", "2026-04-01"), ("-recalled_since", "ever")])
    checks = {check.label: check for check in why_not(query, used["t1"], everyone).checks}
    assert (checks["Recalled"].has, checks["Recalled"].passed) == ("recalled 5 Mar 2026, 12:30 UTC", False)
    assert (checks["Not recalled"].asked, checks["Not recalled"].passed) == ("ever", False)
    nothing = run(query, everyone)
    never = ask("-recalled_since=ever", everyone).total
    assert {one.key: one.count for one in nothing.relaxations} == {"recalled_since": never, "-recalled_since": 2}


def test_a_start_of_recalls_that_is_none_is_refused_with_what_is_allowed():
    with pytest.raises(QueryError, match="'whenever' is neither a time span nor a date") as refused:
        SearchQuery.from_pairs([("recalled_since", "whenever")])
    assert refused.value.suggestion.endswith(", or ever")

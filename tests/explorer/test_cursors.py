"""Paging by cursor and by offset: what changes meanwhile is neither repeated nor skipped."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access.keys import make_key
from access.viewer import command_viewer
from memories import recalls
from memories.models import Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from tests.search.conftest import BOTH_ENGINES
from tests.unified_corpus import AtOnce

pytestmark = [pytest.mark.django_db, BOTH_ENGINES]


def client_for(**rights):
    rights = rights or {"every_project": True}
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), **rights).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture
def caller(corpus):
    return client_for()


def found(caller, query, status=200):
    response = caller.get(f"/api/search?{query}")
    assert response.status_code == status, response.content
    return response.json()


def ids_of(reply):
    return [hit["id"] for hit in reply["memories"]]


def every_page(caller, query, meanwhile=lambda page: None):
    """The ids of all pages, following the cursors."""
    ids, cursor, page = [], "", 0
    while cursor is not None:
        reply = found(caller, f"{query}&cursor={cursor}" if cursor else query)
        ids.append(ids_of(reply))
        cursor = reply["next_cursor"]
        assert (cursor is not None) == reply["has_more"]
        page += 1
        meanwhile(page)
    return ids


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("sort=newest", id="newest"),
        pytest.param("sort=oldest", id="oldest"),
        pytest.param("sort=updated", id="updated"),
        pytest.param("sort=recalled", id="recalled"),
        pytest.param("sort=title&view=index", id="title"),
        pytest.param("q=tea+OR+crane+OR+guests&mode=keyword", id="relevance"),
    ],
)
def test_cursors_lead_through_all_results_once(caller, engine, query):
    whole = ids_of(found(caller, query))
    pages = every_page(caller, f"{query}&page_size=3")
    assert [len(ids) for ids in pages[:-1]] == [3] * (len(pages) - 1)
    assert len(pages) > 1
    assert [pk for ids in pages for pk in ids] == whole


def test_what_is_stored_and_deleted_meanwhile_neither_repeats_nor_skips_a_result(caller, engine):
    before = ids_of(found(caller, "sort=newest"))

    def meanwhile(page):
        if page == 1:
            for n in range(7):
                memory_create(record=MemoryRecord(project="tea", content=f"Newer {n}."), viewer=command_viewer())
        if page == 2:
            # The whole page before.
            for pk in before[3:6]:
                memory_delete(memory_id=pk, viewer=command_viewer(), reason="x")

    pages = every_page(caller, "sort=newest&page_size=3", meanwhile)
    assert [pk for ids in pages for pk in ids] == before


@pytest.mark.parametrize("sort", ["updated", "title", "recalled"])
def test_results_that_are_edited_as_they_are_read_are_not_repeated(caller, engine, sort):
    before = ids_of(found(caller, f"sort={sort}"))
    # That answer has recalled all of them once, which changes nothing in their order.
    recalls.log.store()

    def meanwhile(page):
        for pk in before[3 * page - 3 : 3 * page]:
            memory_update(memory_id=pk, changes=MemoryChanges(title=f"!first {pk}"), viewer=command_viewer())
        recalls.log.store()

    pages = every_page(caller, f"sort={sort}&page_size=3", meanwhile)
    assert [pk for ids in pages for pk in ids] == before


def test_titles_that_begin_alike_are_neither_repeated_nor_skipped(caller, engine):
    alike = ["The same sixteen bytes", "the same sixteen bytes and more", "The same sixteen " + "x" * 900]
    for n, title in enumerate(["", "Ä", "A", *alike] * 3):
        memory_create(record=MemoryRecord(project="tea", title=title, content=f"Text {n}."), viewer=command_viewer())
    whole = ids_of(found(caller, "sort=title&page_size=100"))
    assert len(whole) == 32
    for size in (1, 2, 5):
        pages = every_page(caller, f"sort=title&page_size={size}")
        assert [pk for ids in pages for pk in ids] == whole


def test_a_cursor_by_date_or_title_costs_as_much_as_a_page(caller):
    def statements(query):
        with CaptureQueriesContext(connection) as captured:
            found(caller, query)
        return len(captured)

    for sort in ("newest", "oldest", "updated", "title", "recalled"):
        first = f"sort={sort}&page_size=5"
        further = f"{first}&cursor={found(caller, first)['next_cursor']}"
        assert statements(further) == statements(f"{first}&page=2")


def test_an_order_by_relevance_that_moved_is_reported(caller):
    query = "q=tea&mode=keyword&page_size=1"
    reply = found(caller, query)
    memory_delete(memory_id=ids_of(reply)[0], viewer=command_viewer(), reason="x")
    memory_create(record=MemoryRecord(project="tea", title="Tea", content="Tea tea tea."), viewer=command_viewer())
    assert found(caller, f"{query}&cursor={reply['next_cursor']}", 409)["error"] == "cursor_expired"
    two = found(caller, "q=tea&mode=keyword&page_size=2")
    memory_delete(memory_id=ids_of(two)[1], viewer=command_viewer(), reason="x")
    again = found(caller, f"q=tea&mode=keyword&page_size=2&cursor={two['next_cursor']}")
    assert [warning["parameter"] for warning in again["warnings"]] == ["cursor"]
    assert ids_of(two)[0] not in ids_of(again)


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        pytest.param("tag=tea&cursor={cursor}", "cursor: is of another query", id="other query"),
        pytest.param("page_size=3&page=2&cursor={cursor}", "cursor: is given together with page", id="page"),
        pytest.param("page_size=3&cursor=nonsense", "cursor: is not a cursor", id="nonsense"),
        pytest.param("page_size=3&cursor=WyJhIiwwLFtdXQ", "cursor: is not a cursor", id="forged"),
        pytest.param("mode=unified&q=tea&cursor={cursor}", "cursor: mode unified has none", id="unified"),
    ],
)
def test_a_cursor_that_does_not_fit_is_an_error(caller, query, detail):
    cursor = found(caller, "page_size=3")["next_cursor"]
    reply = found(caller, query.format(cursor=cursor), 422)
    assert reply["error"] == "invalid_query"
    assert detail in reply["detail"]


@pytest.mark.parametrize(
    ("query", "last"),
    [
        pytest.param("sort=newest", [1, "yesterday"], id="no date"),
        pytest.param("sort=newest", [1, "2026-01-01"], id="no time zone"),
        pytest.param("sort=newest", [1], id="a place by relevance"),
        pytest.param("sort=updated", [2**63, "2026-01-01T00:00Z"], id="no id"),
        pytest.param("sort=title", [1, "\0"], id="no text"),
        pytest.param("q=tea", [1, "2026-01-01T00:00Z"], id="a place by date"),
    ],
)
def test_a_forged_cursor_is_an_error(caller, query, last):
    cursor = found(caller, f"{query}&page_size=1")["next_cursor"]
    fingerprint, begin, _ = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    forged = urlsafe_b64encode(json.dumps([fingerprint, begin, last]).encode()).decode().rstrip("=")
    assert "cursor: is not a cursor" in found(caller, f"{query}&cursor={forged}", 422)["detail"]


def test_a_unified_search_has_pages_and_no_cursor(caller, monkeypatch):
    monkeypatch.setattr("search.unified.legs._threads", AtOnce())
    reply = found(caller, "mode=unified&q=tea&page_size=1")
    assert (reply["has_more"], reply["next_cursor"]) == (True, None)


def test_a_cursor_of_another_shows_nothing_that_the_key_may_not_see(caller):
    boat = Project.objects.get(slug="boat")
    narrow = client_for(projects=[boat])
    visible = ids_of(found(narrow, "sort=newest"))
    assert set(visible) == set(Memory.objects.filter(project=boat, state="active").values_list("pk", flat=True))
    whole = ids_of(found(caller, "sort=newest"))
    for size in range(1, 14):
        cursor = found(caller, f"sort=newest&page_size={size}")["next_cursor"]
        reply = found(narrow, f"sort=newest&page_size={size}&cursor={cursor}")
        following = [pk for pk in whole[size:] if pk in visible]
        assert (ids_of(reply), reply["has_more"]) == (following[:size], len(following) > size)
        assert (reply["total"], reply["warnings"]) == (len(visible), [])


@pytest.mark.parametrize(
    ("query", "begin", "end"),
    [
        pytest.param("offset=1&limit=2", 1, 3, id="no multiple"),
        pytest.param("offset=4&limit=2", 4, 6, id="multiple"),
        pytest.param("offset=7&view=index", 7, 14, id="index"),
        pytest.param("offset=0&limit=5", 0, 5, id="none"),
    ],
)
def test_an_offset_skips_that_many_results(caller, query, begin, end):
    reply = found(caller, query)
    assert ids_of(reply) == ids_of(found(caller, ""))[begin:end]
    assert (reply["total"], reply["has_more"]) == (14, end < 14)


def test_an_offset_past_the_last_result_says_so(caller):
    reply = found(caller, "offset=99&limit=10")
    assert ids_of(reply) == []
    assert reply["warnings"][0]["message"] == "Offset 99 is past the last of 14 results."


def test_an_index_has_twenty_rows_by_default_and_a_search_twenty_five(caller):
    sizes = [found(caller, query)["page_size"] for query in ("view=index", "", "view=index&limit=7")]
    assert sizes == [20, 25, 7]


def test_memories_are_listed_as_a_search_lists_them(caller):
    listed = caller.get("/api/memories?type=note&page_size=4").json()
    searched = found(caller, "type=note&page_size=4")
    assert listed.pop("took_ms") > 0
    del searched["took_ms"]
    assert listed == searched
    assert listed["total"] == 6

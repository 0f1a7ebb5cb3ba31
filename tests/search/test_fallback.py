"""Whatever is wrong with the search index, every door answers, rightly, and says so; and the writer makes it good."""

import json
import shutil

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Memory
from search.engines.check import compare
from search.engines.index import follower, store
from search.listings import facet_page
from search.query import SearchQuery
from search.result import FacetListing
from search.run import run
from tests.html import html_of

NOT_READY = "The search index is not ready yet. These results come from the database: exact, but slower."
# Every kind of question that reaches the words: one word, a phrase, the start of one, in the titles alone.
QUESTIONS = [({}, 14), ({"q": "tea"}, 6), ({"q": '"green tea"'}, 1), ({"q": "kett*"}, 2), ({"q": "title:tea"}, 3)]


@pytest.fixture
def indexed(memories):
    follower.catch_up()
    assert_tantivy_answers()


@pytest.fixture
def browser(memories):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


@pytest.fixture
def caller(memories):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


def ask(**arguments):
    return run(SearchQuery.from_mapping({**arguments, "include_facets": True}), command_viewer())


def engine_warnings(result):
    return [warning.message for warning in result.warnings if warning.parameter == "engine"]


def answers():
    """Total, ids of the hits and counts of the facets for every question; which engine gave them, and its notices."""
    results = [ask(**arguments) for arguments, _ in QUESTIONS]
    numbers = [
        (
            result.total,
            {hit.id for hit in result.hits},
            {(facet.key, value.value): value.count for facet in result.facets for value in facet.values},
        )
        for result in results
    ]
    return numbers, {result.engine for result in results}, [engine_warnings(result) for result in results]


def assert_tantivy_answers():
    numbers, engines, notices = answers()
    assert [total for total, _, _ in numbers] == [total for _, total in QUESTIONS]
    assert (engines, notices) == ({"tantivy"}, [[]] * len(QUESTIONS))


# --- what can be wrong --------------------------------------------------------------------------------------------


def generation():
    return store.current_generation()


def columns_file():
    (found,) = generation().glob("*.segment")
    return found


def segment(kind):
    (found,) = (generation() / "words").glob(f"*.{kind}")
    return found


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path):
    """Other bytes in the first half: what stands at the end, and says that the file is whole, stays."""
    stored = bytearray(path.read_bytes())
    for at in range(0, max(1, len(stored) // 2), 7):
        stored[at] ^= 0x55
    # A new file, as a disk that lost the old one gives: the old one may be mapped.
    path.unlink()
    path.write_bytes(stored)


def other_schema():
    manifest = json.loads((generation() / "manifest").read_text())
    (generation() / "manifest").write_text(json.dumps({**manifest, "schema": store.SCHEMA + 1}))


def lose_an_array():
    """A whole segment, and one that is not what the manifest says."""
    manifest = json.loads((generation() / "manifest").read_text())
    (generation() / "manifest").write_text(json.dumps({**manifest, "size": manifest["size"] + 1}))


DAMAGE = {
    "manifest is not JSON": lambda: (generation() / "manifest").write_text("{"),
    "manifest is not text": lambda: (generation() / "manifest").write_bytes(b"\xff\xfe\x00"),
    "manifest is another object": lambda: (generation() / "manifest").write_text("[1, 2]"),
    "manifest is gone": lambda: (generation() / "manifest").unlink(),
    "manifest of other docs": lose_an_array,
    "current is noise": lambda: (store.index_dir() / "current").write_bytes(b"\xff\xfe\x00"),
    "generation is gone": lambda: shutil.rmtree(generation()),
    "columns file is cut off": lambda: cut_off(columns_file()),
    "columns file is empty": lambda: columns_file().write_bytes(b""),
    "columns file is noise": lambda: columns_file().write_bytes(b"noise" * 500),
    "columns file is gone": lambda: columns_file().unlink(),
    "words are gone": lambda: shutil.rmtree(generation() / "words"),
    "meta is cut off": lambda: cut_off(generation() / "words" / "meta.json"),
    "meta is empty": lambda: (generation() / "words" / "meta.json").write_bytes(b""),
    "meta is another object": lambda: (generation() / "words" / "meta.json").write_text("{}"),
    "segment is cut off": lambda: cut_off(segment("idx")),
    "segment is empty": lambda: segment("pos").write_bytes(b""),
    "segment is gone": lambda: segment("store").unlink(),
}
# Damage that only shows when a word is searched. The library panics on some of it.
HIDDEN = {
    "postings are garbled": lambda: garble(segment("idx")),
    "positions are gone": lambda: segment("pos").unlink(),
    "terms are garbled": lambda: garble(segment("term")),
    "documents are garbled": lambda: garble(segment("store")),
    "columns are garbled": lambda: garble(segment("fast")),
}


def parametrized(damages):
    return pytest.mark.parametrize("damage", [pytest.param(damages[name], id=name) for name in damages])


@parametrized(DAMAGE | HIDDEN)
def test_damage_is_answered_around_reported_and_made_good(indexed, browser, caller, damage):
    expected, _, _ = answers()
    damage()
    store.close_view()
    numbers, engines, _ = answers()
    assert numbers == expected
    assert "postgres" in engines
    assert store.rebuild_reason()
    page = browser.get("/explore/?q=tea")
    assert (page.status_code, "6 memories" in html_of(page)) == (200, True)
    assert caller.get("/api/search?q=tea&include_facets=1").json()["total"] == 6

    follower.catch_up()
    assert not store.rebuild_reason()
    assert compare().agrees
    assert_tantivy_answers()


@parametrized(DAMAGE)
def test_damage_that_shows_at_once_is_told(indexed, damage):
    damage()
    store.close_view()
    _, engines, notices = answers()
    assert engines == {"postgres"}
    assert notices == [[NOT_READY]] * len(QUESTIONS)


def test_damage_under_a_reader_is_found_when_there_is_something_newer(indexed):
    """Mapped data stays unchanged; a reader opens the files again after the writer has written."""
    Memory.objects.filter(external_id="t1").update(memory_type="changed")
    follower.catch_up()
    (generation() / "words" / "meta.json").write_text("{")
    assert ask(type="changed").total == 1
    assert store.rebuild_reason()
    follower.catch_up()
    result = ask(type="changed")
    assert (result.total, result.engine) == (1, "tantivy")


def test_no_index_is_answered_around_and_nothing_is_wrong(memories):
    numbers, engines, notices = answers()
    assert [total for total, _, _ in numbers] == [total for _, total in QUESTIONS]
    assert engines == {"postgres"}
    assert notices == [[NOT_READY]] * len(QUESTIONS)
    assert not store.rebuild_reason()
    follower.catch_up()
    assert_tantivy_answers()


def test_index_of_another_version_is_answered_around_and_made_anew(indexed):
    """Nothing is reported: to a writer of that version, which may still run, it is in order."""
    expected, _, _ = answers()
    other_schema()
    store.close_view()
    assert answers() == (expected, {"postgres"}, [[NOT_READY]] * len(QUESTIONS))
    assert not store.rebuild_reason()
    follower.catch_up()
    assert_tantivy_answers()


def test_reader_overtaken_by_a_new_generation_starts_over(indexed, monkeypatch):
    """Between the manifest and the parts that it names, the writer may have removed them."""
    opened, rounds = store._open_view, []

    def overtaken(path, known):
        if not rounds:
            rounds.append(path)
            follower.rebuild()
        return opened(path, known)

    monkeypatch.setattr(store, "_open_view", overtaken)
    store.close_view()
    assert ask().engine == "tantivy"
    assert rounds[0] != generation()
    assert not store.rebuild_reason()


# --- The text -------------------------------------------------------------------------------------------------


def test_every_door_says_that_the_database_answers(memories, browser, caller):
    for address in ("/explore/?q=tea", "/facets/tag/?q=tea"):
        page = browser.get(address)
        assert page.status_code == 200
        assert NOT_READY in html_of(page)
    reply = caller.get("/api/search?q=tea&mode=keyword").json()
    assert (reply["engine"], reply["total"]) == ("postgres", 6)
    assert reply["warnings"] == [{"message": NOT_READY, "parameter": "engine", "did_you_mean": []}]
    for address in ("/api/facets?q=tea", "/api/facets/tag?q=tea"):
        assert NOT_READY in [warning["message"] for warning in caller.get(address).json()["warnings"]]

    follower.catch_up()
    for address in ("/explore/?q=tea", "/facets/tag/?q=tea"):
        assert NOT_READY not in html_of(browser.get(address))
    reply = caller.get("/api/search?q=tea&mode=keyword").json()
    assert (reply["engine"], reply["total"], reply["warnings"]) == ("tantivy", 6, [])


def test_without_the_index_wanted_nothing_is_said(memories, settings):
    settings.SEARCH_ENGINE = "postgres"
    _, engines, notices = answers()
    assert (engines, notices) == ({"postgres"}, [[]] * len(QUESTIONS))


def wait(seconds):
    """Let the changes that wait have waited so long."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_outbox SET at = clock_timestamp() - make_interval(secs => %s)", [seconds])


def test_changes_that_wait_long_are_told(indexed, browser, caller):
    Memory.objects.filter(external_id="t1").update(memory_type="changed")
    assert engine_warnings(ask()) == []
    wait(5)
    assert engine_warnings(ask()) == ["One change is not indexed yet."]
    Memory.objects.filter(external_id__in=["t2", "t3"]).update(memory_type="changed")
    wait(5)
    told = "3 changes are not indexed yet."
    result = ask()
    assert (result.engine, engine_warnings(result)) == ("tantivy", [told])
    assert told in html_of(browser.get("/explore/"))
    reply = caller.get("/api/search").json()
    assert (reply["engine"], [warning["message"] for warning in reply["warnings"]]) == ("tantivy", [told])
    page = facet_page(SearchQuery(), "tag", FacetListing(), command_viewer())
    assert [warning.message for warning in page.warnings] == [told]
    follower.catch_up()
    assert engine_warnings(ask()) == []


def test_many_changes_are_counted_up_to_a_limit(indexed, monkeypatch):
    monkeypatch.setattr("search.run._COUNTED_BEHIND", 3)
    Memory.objects.update(memory_type="changed")
    wait(5)
    assert engine_warnings(ask()) == ["3 or more changes are not indexed yet."]

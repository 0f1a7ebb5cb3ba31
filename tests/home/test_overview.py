"""The home page and its twin in the API: every number is that of the slice it links to, for each viewer."""

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db.models import Min

from access.keys import make_key
from access.models import ApiKey, AuditEvent, Membership
from access.viewer import command_viewer, viewer_of_user
from home.models import Visit
from home.overview import overview
from home.steps import next_steps
from memories.models import ImportBatch, Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from memories.storage import corpus_bump
from search.models import SavedView
from search.run import run
from tests.html import html_of
from web.cache import RepeatedReads

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def lately(corpus, monkeypatch):
    """Three memories changed on 3 March, the rest long ago; `Cups` is dated then too."""
    monkeypatch.setattr("home.overview._overviews", RepeatedReads(limit=64, seconds=0))
    Memory.objects.update(updated_at=NOW - timedelta(days=300))
    ImportBatch.objects.update(finished_at=NOW - timedelta(days=300))
    for title in ("Cups", "Teak for the deck", "No sugar on the tables"):
        Memory.objects.filter(title=title).update(updated_at=NOW - timedelta(days=1))
    Memory.objects.filter(title="Cups").update(created_at=NOW - timedelta(days=1))
    return corpus


def only(slug):
    return replace(command_viewer(), project_ids=frozenset([Project.objects.get(slug=slug).pk]))


def counts(slices):
    return {one.label: one.count for one in slices}


def test_overview_counts_what_is_new_or_changed_and_by_whom(lately, everyone):
    found = overview(everyone, "2026-03-01", NOW)
    assert (found.changed.count, found.written.count, found.corpus.count) == (2, 1, 14)
    assert counts(found.states) == {"superseded": 1}
    assert counts(found.projects) == {"Boat yard": 1, "Tea house": 1}
    assert [(one.kind, one.changed.label, one.written.count, one.changed.count) for one in found.contributors] == [
        ("author", "Ada", 0, 1)
    ]
    assert [(one.memory.title, one.replaces.title if one.replaces else "") for one in found.news] == [
        ("Sugar on every table", "No sugar on the tables"),
        ("Teak for the deck", ""),
        ("Cups", ""),
    ]


def test_every_number_of_the_overview_is_the_total_of_the_slice_behind_it(lately, everyone):
    found = overview(everyone, "2026-03-01", NOW)
    slices = [found.corpus, found.changed, found.written, *found.states, *found.projects]
    slices += [part for one in found.contributors for part in (one.written, one.changed)]
    slices += [part for one in found.coverage for part in (one.having, one.lacking)]
    slices += [one.memories for one in found.newest] + [part for part, _ in found.types]
    slices += [idea.found for idea in found.ideas]
    assert len(slices) > 20
    for one in slices:
        assert run(one.query, everyone).total == one.count, one


def test_viewer_of_one_project_sees_nothing_of_the_others(lately):
    found = overview(only("boat"), "2026-03-01", NOW)
    assert (found.corpus.count, found.changed.count, found.written.count) == (6, 1, 0)
    assert found.states == ()
    assert [one.memory.title for one in found.news] == ["Teak for the deck"]
    assert [one.memories.label for one in found.newest] == ["Boat yard"]
    assert "tea" not in " ".join(idea.typed for idea in found.ideas).lower().split()


@pytest.fixture
def arrived(lately):
    """The import came a day ago, with the dates that its memories have."""
    ImportBatch.objects.update(finished_at=NOW - timedelta(days=1))
    Memory.objects.update(updated_at=NOW - timedelta(days=300))
    return lately


def test_arrivals_are_counted_by_the_day_of_their_import_and_not_by_their_dates(arrived, everyone):
    found = overview(everyone, "2026-03-01", NOW)
    assert found.changed.count == 0
    assert (found.arrivals.count, found.arrivals.imports) == (16, 1)
    assert found.brought.count == run(found.brought.query, everyone).total == 16
    assert found.others.count == 0
    assert found.arrivals.last
    assert found.arrivals.first == Memory.objects.aggregate(first=Min("created_at"))["first"]
    assert overview(everyone, "2026-03-04T00:00Z", NOW).arrivals.count == 0


def test_memories_that_others_changed_are_counted_beside_arrivals(arrived, everyone):
    Memory.objects.filter(title="Cups").update(batch=None, updated_at=NOW)
    found = overview(everyone, "2026-03-01", NOW)
    assert (found.brought.count, found.others.count, found.changed.count) == (15, 1, 1)
    assert run(found.others.query, everyone).total == 1
    # The number of the report stays.
    assert found.arrivals.count == 16
    boat = overview(only("boat"), "2026-03-01", NOW)
    assert (boat.brought.count, boat.others.count) == (7, 0)


def test_projects_of_arrivals_count_what_came_in_and_lead_to_it(arrived, everyone, client):
    found = overview(everyone, "2026-03-01", NOW)
    assert sum(one.count for one in found.arrived) == found.brought.count
    assert all(run(one.query, everyone).total == one.count for one in found.arrived)
    client.force_login(User.objects.create_superuser("ann"))
    page = html_of(client.get("/?since=2026-03-01T00:00Z"))
    assert "Projects: </span>came in" in page
    assert "Projects: </span>new or changed" not in page
    Memory.objects.filter(title="Cups").update(batch=None, updated_at=NOW)
    corpus_bump()
    both = html_of(client.get("/?since=2026-03-01T00:00Z"))
    assert ("Projects: </span>came in" in both, "Projects: </span>new or changed" in both) == (True, True)
    assert not overview(only("boat"), "2026-03-04T00:00Z", NOW).arrived


def test_arrivals_of_more_imports_than_a_search_names_have_no_link(arrived, everyone, monkeypatch):
    monkeypatch.setattr("home.overview.MAX_VALUES", 0)
    found = overview(everyone, "2026-03-01", NOW)
    assert (found.arrivals.count, found.brought, found.others) == (16, None, None)


def test_arrivals_of_projects_that_the_reader_does_not_see_are_not_counted(arrived):
    assert overview(only("boat"), "2026-03-01", NOW).arrivals.count == 7
    nobody = replace(command_viewer(), project_ids=frozenset())
    assert overview(nobody, "2026-03-01", NOW).arrivals.count == 0


@pytest.mark.parametrize("state", ["undone", "failed", "running"])
def test_imports_that_were_undone_or_did_not_end_brought_nothing(arrived, everyone, state):
    ImportBatch.objects.update(state=state)
    assert overview(everyone, "2026-03-01", NOW).arrivals.count == 0


def test_read_first_are_memories_that_are_pinned_important_or_decisions(arrived, everyone):
    Memory.objects.update(pinned=False, importance=None, memory_type="note")
    assert overview(everyone, "2026-03-01", NOW).news == ()
    Memory.objects.filter(title="Cups").update(importance=0.9)
    Memory.objects.filter(title="Teak for the deck").update(pinned=True)
    Memory.objects.filter(title="Sugar on every table").update(memory_type="decision")
    of_tea = [("Cups", "important"), ("Sugar on every table", "decision")]
    assert reasons(everyone) == [("Teak for the deck", "pinned"), *of_tea]
    assert reasons(only("tea")) == of_tea
    # Long there, and not changed.
    ImportBatch.objects.update(finished_at=NOW - timedelta(days=300))
    assert reasons(everyone) == []


def reasons(viewer):
    corpus_bump()
    return [(one.memory.title, one.reason) for one in overview(viewer, "2026-03-01", NOW).news]


def test_read_first_leaves_out_what_the_reader_changed(lately, everyone):
    ann = replace(everyone, user_id=User.objects.create_user("ann").pk)
    ben = replace(everyone, user_id=User.objects.create_user("ben").pk)
    Memory.objects.update(pinned=False, importance=None, memory_type="note")
    made = memory_create(record=MemoryRecord(project="tea", title="Kept warm", content="New."), viewer=ann)
    Memory.objects.filter(pk=made.pk).update(pinned=True)
    AuditEvent.objects.filter(subject_id=made.pk).update(at=NOW)
    assert ("Kept warm", "pinned") in reasons(ben)
    assert ("Kept warm", "pinned") not in reasons(ann)


def test_page_says_how_much_came_in_and_with_what_dates(client, arrived):
    client.force_login(User.objects.create_superuser("ann"))
    page = html_of(client.get("/?since=2026-03-01T00:00Z"))
    assert re.search(r'<a href="/explore/\?import=\d+&amp;state=[^"]+">16</a> memories came in since 1 Mar from', page)
    assert '<a href="/imports/">1 import</a>, dated Jul 1999 to ' in page
    ImportBatch.objects.update(finished_at=datetime.now(UTC))
    assert "16</a> memories came in today from" in html_of(client.get("/?since=24h"))


def test_first_page_says_what_this_is_and_what_to_do_next(client, lately):
    ann, ben = User.objects.create_superuser("ann"), User.objects.create_user("ben")
    Membership.objects.create(user=ben, project=Project.objects.get(slug="tea"), role="reader")
    client.force_login(ben)
    page = html_of(client.get("/"))
    assert "Mnemoscope holds what people and their agents want to know again" in page
    assert "ask an admin of a project for the role of a writer" in page
    assert "What to do next" not in page
    client.force_login(ann)
    page = html_of(client.get("/"))
    assert "Connect an agent</a>" in page
    # Ben is there already, and so are memories.
    assert "Invite somebody</a>" not in page
    assert "Bring in your own memories</a>" not in page


def test_steps_that_are_done_are_gone(lately):
    ann = User.objects.create_superuser("ann")
    sample = ImportBatch.objects.get()
    steps = partial(next_steps, ann, viewer_of_user(ann))
    assert steps(sample) == ("import", "connect", "invite")
    memory_create(record=MemoryRecord(project="tea", content="My own."), viewer=command_viewer())
    assert steps(sample) == ("connect", "invite")
    assert steps(None) == ("connect", "invite")
    key = make_key(name="k", scopes=["read"], viewer=command_viewer(), projects=[Project.objects.get(slug="tea")])
    assert steps(sample) == ("connect", "invite")
    ApiKey.objects.filter(pk=key.key.pk).update(last_used_at=NOW)
    assert steps(sample) == ("invite",)
    User.objects.create_user("ben")
    assert steps(sample) == ()


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        pytest.param("reader", (), id="reader"),
        pytest.param("writer", ("import",), id="writer"),
        pytest.param("curator", ("import",), id="curator"),
        pytest.param("admin", ("import", "connect", "invite"), id="admin"),
    ],
)
def test_steps_are_those_that_the_reader_may_take(lately, role, expected):
    ben = User.objects.create_user("ben")
    Membership.objects.create(user=ben, project=Project.objects.get(slug="tea"), role=role)
    assert next_steps(ben, viewer_of_user(ben), ImportBatch.objects.get()) == expected


def test_page_begins_at_the_last_visit_and_offers_other_spans(client, lately):
    visitor = User.objects.create_superuser("ann")
    client.force_login(visitor)
    assert "memories new or changed since 1 Mar," in html_of(client.get("/?since=2026-03-01T00:00Z"))
    Visit.objects.filter(user=visitor).update(last_at=NOW - timedelta(days=2))
    page = html_of(client.get("/"))
    assert '<a href="/explore/?updated_since=2026-03-02T12%3A00%2B00%3A00&amp;sort=updated">2</a> memories' in page
    assert "You last looked on Monday 2 Mar at 12:00." in page
    # A second look within half an hour belongs to the same visit.
    assert "You last looked on Monday 2 Mar at 12:00." in html_of(client.get("/"))
    assert 'aria-current="true">7 days</a>' in html_of(client.get("/?since=7d"))
    wrong = client.get("/?since=soon")
    assert wrong.status_code == 422
    assert "is neither a time span nor a date" in html_of(wrong)
    assert client.get("/?q=tea&tag=kettle").url == "/explore/?q=tea&tag=kettle"


def test_page_lists_the_views_of_a_person_and_of_the_team_with_their_counts(client, lately):
    ann, ben = User.objects.create_user("ann"), User.objects.create_user("ben")
    Membership.objects.create(user=ann, project=Project.objects.get(slug="tea"), role="reader")
    mine = SavedView.objects.create(owner=ann, slug="tags", name="Kettles", query="tag=kettle")
    team = SavedView.objects.create(owner=ben, slug="team", name="Decisions", query="type=decision", visibility="team")
    SavedView.objects.create(owner=ben, slug="secret", name="Secret", query="")
    client.force_login(ann)
    page = html_of(client.get("/"))
    for view in (mine, team):
        assert f'href="/views/{view.pk}/">{view.name}</a>' in page
        assert f'aria-label="2 in {view.name}">2</a>' in page
    assert "Secret" not in page


def test_api_gives_the_numbers_of_the_page_to_a_key_of_one_project(client, lately):
    key = make_key(name="k", scopes=["read"], viewer=command_viewer(), projects=[Project.objects.get(slug="tea")])
    reply = client.get("/api/overview?since=2026-03-01", headers={"Authorization": f"Bearer {key.raw}"}).json()
    assert reply["changed"]["count"] == 1
    assert reply["changed"]["query"] == "updated_since=2026-03-01T00%3A00%2B00%3A00&sort=updated"
    assert reply["states"][0] | {"query": "", "url": ""} == {
        "label": "superseded", "count": 1, "at_least": False, "query": "", "url": "",
    }  # fmt: skip
    nothing = {"count": 0, "brought": None, "others": None, "imports": 0, "first": None, "last": None}
    assert reply["arrivals"] == nothing
    assert reply["news"][0]["reason"] == "replaces"
    assert reply["news"][0]["replaces"]["title"] == "No sugar on the tables"
    assert [one["memories"]["label"] for one in reply["newest"]] == ["Tea house"]
    refused = client.get("/api/overview?since=soon", headers={"Authorization": f"Bearer {key.raw}"})
    assert refused.status_code == 422


def test_overview_shows_own_changes_at_once_and_is_not_counted_for_each_change_of_others(lately, everyone, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr("home.overview._overviews", RepeatedReads(lambda: next(ticks), limit=64, seconds=60))
    ann = replace(everyone, user_id=User.objects.create_user("ann").pk)

    def remember(viewer, title):
        memory_create(record=MemoryRecord(project="tea", title=title, content="New."), viewer=viewer)
        return overview(ann, "2026-03-01", NOW).corpus.count

    assert overview(ann, "2026-03-01", NOW).corpus.count == 14
    assert [remember(everyone, "One"), remember(everyone, "Two")] == [14, 14]
    assert remember(ann, "Three") == 17


def test_newcomer_to_an_empty_site_learns_what_it_is(client, db):
    client.force_login(User.objects.create_user("ben"))
    page = html_of(client.get("/"))
    assert "Nothing here yet" in page
    assert "Mnemoscope holds what people and their agents want to know again" in page
    assert "ask an administrator of this site" in page

"""The home page and its twin in the API: every number is that of the slice it links to, for each viewer."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from home.models import Visit
from home.overview import overview
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.models import SavedView
from search.run import run
from tests.html import html_of
from web.cache import RepeatedReads

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def lately(corpus):
    """Three memories changed on 3 March, the rest long ago; `Cups` is dated then too."""
    Memory.objects.update(updated_at=NOW - timedelta(days=300))
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

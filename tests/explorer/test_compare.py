"""The page that compares two slices, and its twin in the API."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from memories.models import Project
from tests.html import html_of

PROJECTS = "by=project&a.project=tea&b.project=boat"


@pytest.fixture
def doors(corpus):
    """A signed-in member of the tea house, and a client with a key for everything."""
    user = User.objects.create_user("reader")
    Membership.objects.create(user=user, project=Project.objects.get(slug="tea"))
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), every_project=True).raw
    browser = Client()
    browser.force_login(user)
    return browser, Client(headers={"Authorization": f"Bearer {raw}"})


def totals(page):
    return re.findall(r'class="total" href="[^"]*">([\d,]+)<small>', html_of(page))


def test_page_and_api_give_the_same_numbers_and_every_number_is_its_slice(doors):
    browser, caller = doors
    User.objects.filter(username="reader").update(is_superuser=True)
    page = browser.get(f"/compare/?{PROJECTS}&least=1", follow=True)
    reply = caller.get(f"/api/compare?{PROJECTS}&least=1").json()
    assert totals(page) == ["8", "6"]
    assert [reply[side]["total"] for side in "ab"] == [8, 6]
    assert reply["not_compared"] == ["project"]
    shown = re.findall(r'<small>(\w+)</small><span title="([^"]+)">', html_of(page).replace("</small> ", "</small>"))
    assert shown == [(row["facet"], row["label"]) for row in reply["differs"]]
    links = re.findall(r'<a href="(/explore/\?[^"]+)" aria-label="([\d,]+) memor\w+ of [AB] with', html_of(page))
    assert len(links) == 2 * len(shown)
    for address, count in links:
        found = caller.get(address.replace("&amp;", "&").replace("/explore/", "/api/search"))
        assert found.json()["total"] == int(count)


def test_every_step_of_the_chart_is_its_slice(doors):
    browser, caller = doors
    User.objects.filter(username="reader").update(is_superuser=True)
    # The periods begin and end within months, and are too different to be laid over each other.
    page = html_of(browser.get("/compare/?a.from=2024-01-06&a.to=2024-02-28&b.from=2024-03-20&b.to=2025-03-15"))
    links = re.findall(r'<a href="(/explore/\?[^"]+)" aria-label="[AB], [^"]+: (\d+) memor', page)
    assert len(links) == 15
    assert sum(int(count) for _, count in links) == 9
    for address, count in links:
        found = caller.get(address.replace("&amp;", "&").replace("/explore/", "/api/search"))
        assert found.json()["total"] == int(count)


def test_a_member_of_one_project_sees_nothing_of_the_other(doors):
    browser, _ = doors
    page = browser.get(f"/compare/?{PROJECTS}")
    assert totals(page) == ["8", "0"]
    text = html_of(page)
    assert "Crane brake" not in text
    assert "crane" not in text


def test_invalid_parameters_are_named(doors):
    browser, caller = doors
    page = browser.get("/compare/?by=mood&a.from=soon")
    assert page.status_code == 200
    assert all(name in html_of(page) for name in ("<code>by</code>", "<code>a.from</code>"))
    refused = caller.get("/api/compare?by=mood&a.from=soon")
    assert refused.status_code == 422
    assert "by: " in refused.json()["detail"]
    assert "a.from: " in refused.json()["detail"]


def test_superseded_and_archived_memories_can_be_included(client, corpus):
    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/compare/?by=project&a.project=tea&b.project=boat"))
    assert "Archived and superseded memories are left out." in page
    assert "superseded memories left out" in page
    link = re.search(r'href="([^"]+)">Include archived and superseded ones<', page)[1].replace("&amp;", "&")
    wider = html_of(client.get(link))
    assert "superseded memories are left out" not in wider
    assert "superseded memories left out" not in wider
    for state in ("archived", "superseded"):
        assert f"state={state}" in link
    totals = [int(re.search(r'class="total" href="[^"]+">(\d+)', one)[1]) for one in (page, wider)]
    assert totals[1] > totals[0]

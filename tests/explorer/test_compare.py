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


def test_last_label_of_the_chart_ends_with_its_own_step(doors):
    # 44 weeks, of which every seventh has a label: the last of these is the 43rd.
    page = html_of(doors[0].get("/compare/?a.from=2024-01-06&a.to=2024-02-28&b.from=2024-03-20&b.to=2025-05-15"))
    assert re.findall(r'<text[^>]* text-anchor="end" x="([\d.]+%)"\s+y="15">([^<]+)<', page) == [("97.73%", "21 Oct")]


def test_a_member_of_one_project_sees_nothing_of_the_other(doors):
    browser, _ = doors
    page = browser.get(f"/compare/?{PROJECTS}")
    assert totals(page) == ["8", "0"]
    text = html_of(page)
    assert "Crane brake" not in text
    assert "crane" not in text


def test_forms_lead_to_the_canonical_address(doors):
    browser, _ = doors
    answer = browser.get("/compare/?by=search&a=http://x/explore/?tag=tea%26page=3%26view=table&b.q=&b=agent=codex")
    assert answer.status_code == 302
    assert answer["Location"] == "/compare/?by=search&a.tag=tea&b.agent=codex"


def test_given_slices_say_by_what_they_are_compared(doors):
    browser, _ = doors
    for slices, way in (
        ("a=type%3Dnote&b=type%3Ddecision", "Types"),
        ("a.from=2024-01-01&a.to=2024-12-31", "Periods"),
        ("a.agent=scribe", "Agents"),
        ("a.agent=scribe&b.type=note", "Searches"),
    ):
        text = html_of(browser.get(f"/compare/?{slices}", follow=True))
        assert re.search(r'aria-current="true">([^<]+)', text)[1] == way


def test_slices_that_may_overlap_are_named_and_not_added_up(doors):
    browser, _ = doors
    page = html_of(browser.get("/compare/?by=search&a.as_of=2024-06-01&b.tag=tea&b.author=Mio", follow=True))
    assert re.findall(r"<h2>([^<]+)</h2>", page)[:2] == ["valid on 1 Jun 2024", "tag tea, author Mio"]
    assert "<h1>What differs</h1>" in page
    assert "<h1>What differs <small>8 memories</small></h1>" in html_of(browser.get("/compare/"))


def test_invalid_parameters_are_named(doors):
    browser, caller = doors
    page = browser.get("/compare/?by=mood&a.from=soon")
    assert page.status_code == 200
    assert all(name in html_of(page) for name in ("<code>by</code>", "<code>a.from</code>"))
    refused = caller.get("/api/compare?by=mood&a.from=soon")
    assert refused.status_code == 422
    assert "by: " in refused.json()["detail"]
    assert "a.from: " in refused.json()["detail"]


def test_explore_leads_to_the_comparison_of_its_results(doors):
    browser, _ = doors
    assert 'href="/compare/?q=tea&amp;tag=guests">Compare…' in html_of(
        browser.get("/explore/?q=tea&tag=guests&view=table")
    )


@pytest.mark.parametrize(
    ("slices", "both"),
    [
        ("a.from=2024-01-01&a.to=2024-02-29&b.from=2024-03-01", "14 memories"),
        ("a.from=2024-01-01&b.from=2024-03-01", ""),
        ("a.from=2024-01-01&a.to=2024-03-01&b.from=2024-03-01T10:00", ""),
    ],
)
def test_both_slices_are_added_up_only_if_no_memory_is_in_both(doors, slices, both):
    browser, _ = doors
    User.objects.filter(username="reader").update(is_superuser=True)
    assert browser.get(f"/compare/?{slices}", follow=True).context["page"].beside == both

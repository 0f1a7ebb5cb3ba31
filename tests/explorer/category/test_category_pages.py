"""The pages of the category browser without scripts, and the fragments for htmx."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Membership
from categories.models import Category
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.html import html_of

pytestmark = pytest.mark.django_db
NODE = re.compile(
    r'<div class="node( here)?"><a href="([^"]+)"[^>]*>([^<]*)</a><span class="count"[^>]*>([\d,]+)</span>'
)
ROW = re.compile(
    r'<th scope="row">.*?<a href="([^"]+)">([^<]*)</a>\s*(?:<a class="curate"[^>]*></a>)?</th>'
    r"<td[^>]*>([\d,]+)</td><td[^>]*>([\d,]+)</td>"
)


def nodes(response):
    return [(label, int(count)) for _, _, label, count in NODE.findall(html_of(response))]


def rows(response):
    return [(label, int(memories), int(own)) for _, label, memories, own in ROW.findall(html_of(response))]


def numbers(response):
    found = re.findall(r"<dt>([^<]+)</dt><dd>(?:<a[^>]*>)?([\d,]+)", html_of(response))
    return {label: int(value.replace(",", "")) for label, value in found}


def test_pages_need_a_sign_in(client):
    for path in ("/categories/", "/categories/kitchen/"):
        assert client.get(path)["Location"].startswith("/sign-in/?next=")


def test_overview_shows_the_roots_and_what_is_amiss(corpus, reader):
    page = reader.get("/categories/")
    assert nodes(page) == [("Guests", 3), ("Kitchen", 3), ("Yard", 6)]
    assert rows(page) == [("Yard", 6, 2), ("Guests", 3, 2), ("Kitchen", 3, 1)]
    assert "9 categories cover 11 of 14 memories" in html_of(page)
    assert numbers(page) == {"Uncategorised": 3, "With one memory": 3, "Very large": 0, "Empty": 0}
    assert 'href="/explore/?no=category"' in html_of(page)


def test_node_shows_where_it_stands_and_what_is_in_it(corpus, reader):
    Category.objects.filter(path="yard/dock").update(description="Where boats lie.", aliases=["Pier"])
    page = reader.get("/categories/yard/dock/")
    crumbs = re.search(r'<nav class="crumbs".*?</nav>', html_of(page), re.DOTALL)[0]
    assert re.findall(r">([A-Z]\w+)<", crumbs) == ["Categories", "Yard", "Dock"]
    assert "Where boats lie." in html_of(page)
    assert "Pier" in html_of(page)
    assert numbers(page) == {"Memories": 3, "Directly in it": 2, "Subcategories": 1, "Chunks": 0, "Concepts": 2}
    assert rows(page) == [("Crane", 2, 2)]
    # Open down to the category and its children.
    assert nodes(page) == [
        ("Guests", 3),
        ("Kitchen", 3),
        ("Yard", 6),
        ("Dock", 3),
        ("Crane", 2),
        ("Wood", 1),
    ]
    assert 'aria-current="page">Dock</a>' in html_of(page)
    assert 'class="button primary" href="/explore/?category=yard%2Fdock"' in html_of(page)
    assert len(re.findall(r'<article id="hit-', html_of(page))) == 3
    dock = Category.objects.get(path="yard/dock").pk
    assert reader.get(re.search(r'href="([^"]+)">Curate</a>', html_of(page))[1]).status_code == 200
    assert f'href="/curate/category/{dock}/?next=%2Fcategories%2Fyard%2Fdock%2F">Curate</a>' in html_of(page)


def test_what_is_distinctive_is_ranked_by_evidence_and_does_not_repeat_the_category(corpus, everyone, reader):
    def remember(n, *tags, category="Loft"):
        record = MemoryRecord(content=f"Rope {n}.", project="boat", categories=[category], tags=tags)
        memory_create(record=record, viewer=everyone)

    for n in range(8):
        remember(n, "loft", *(["rope", "towel"] if n < 6 else []), *(["beam"] if n > 2 else []))
    for n in range(3):
        remember(10 + n, "towel", category="Shed")
    page = html_of(reader.get("/categories/loft/"))
    # The tag "loft" is the category itself; all of "rope" and "beam" is here, and 6 of 9 "towel".
    assert re.findall(r'<li class="bar[^"]*"[^>]*title="([^"]+)"', page) == [
        "tag rope: 6 of 6 are here",
        "tag beam: 5 of 5 are here",
        "tag towel: 6 of 9 are here",
    ]
    assert re.findall(r"<span>(\d*)</span><b>([^<]+)</b>", page) == [
        ("", "6 of 6 are here"),
        ("", "5 of 5 are here"),
        ("6", "×1.8"),
    ]


def test_category_that_is_not_there_is_not_found_and_what_was_meant_is_told(corpus, reader):
    page = reader.get("/categories/yard/crain/")
    assert page.status_code == 404
    assert "Category not found: yard/crain." in html_of(page)
    assert 'Did you mean <a class="link" href="/categories/yard/dock/crane/">yard/dock/crane</a>?' in html_of(page)
    assert 'href="/categories/">All categories<' in html_of(page)


def test_other_projects_are_not_there(corpus):
    user = User.objects.create_user("brewer")
    Membership.objects.create(user=user, project=Project.objects.get(slug="tea"))
    client = Client()
    client.force_login(user)
    page = client.get("/categories/")
    assert nodes(page) == [("Guests", 3), ("Kitchen", 3), ("Yard", 1)]
    assert "6 categories cover 6 of 8 memories" in html_of(page)
    assert client.get("/categories/yard/dock/").status_code == 404
    assert "Dock" not in html_of(client.get("/categories/yard/"))
    assert ">Curate</a>" not in html_of(client.get("/categories/yard/"))
    assert nodes(client.get("/categories/?filter=dock")) == []

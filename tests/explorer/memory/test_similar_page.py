"""Similar memories, in the section of a memory's page and on their own page."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Membership
from memories.models import Memory, Project
from tests.explorer.memory.test_memory_page import make
from tests.html import html_of
from tests.vectors import embed_everything
from web.cache import clear_caches


@pytest.fixture
def brewed(tea, settings):
    """Three memories about the same topic, two with the same words, and one about another."""
    settings.SEARCH_ENGINE = "postgres"
    tags = ["brewing", "green", "leaf", "water"]
    make(tea, 1, title="Green tea", content="Brew the green tea leaf with hot water in the kettle.", tags=tags)
    make(tea, 2, title="Green tea", content="Brew the green tea leaf with hot water in the kettle.", tags=tags)
    make(tea, 3, title="Tea", content="Brew black tea leaf with boiling water.", tags=["brewing"], memory_type="note")
    make(tea, 4, title="Crane", content="Oil the crane brake at the dock.")
    embed_everything()
    clear_caches()
    return tea


def test_duplicates_of_one_project_are_merged_from_there_by_who_may(client, brewed):
    link = '<a class="link" href="/curate/retag/?take=chosen&amp;do=merge&amp;memory=1&amp;memory=2">Merge…</a>'
    client.force_login(User.objects.create_superuser("owner"))
    assert link in html_of(client.get("/m/1/similar/"))
    assert client.get("/curate/retag/?take=chosen&do=merge&memory=1&memory=2").status_code == 200
    Memory.objects.filter(pk=2).update(project=Project.objects.create(slug="other"))
    clear_caches()
    page = html_of(client.get("/m/1/similar/"))
    assert "Merge…" not in page
    assert "Only memories of one project can be merged" in page


def test_one_of_another_project_is_not_found_nor_named(brewed):
    boat = Project.objects.create(slug="boat", name="Boat yard")
    make(boat, 90, title="Secret tea", content="Brew the green tea leaf with hot water in the kettle.")
    embed_everything()
    clear_caches()
    user = User.objects.create_user("guest")
    Membership.objects.create(user=user, project=brewed)
    client = Client()
    client.force_login(user)
    assert client.get("/m/90/similar/").status_code == 404
    text = html_of(client.get("/m/1/similar/"))
    assert "Secret" not in text
    assert '<a href="/m/2/">Green tea</a>' in text
    assert Client().get("/m/1/similar/").status_code == 302

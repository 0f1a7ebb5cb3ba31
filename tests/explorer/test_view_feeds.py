"""Feeds of saved views: a secret address, what it shows of a view, and when it stops."""

from xml.etree import ElementTree as ET

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.limits import buckets
from access.models import AuditEvent, Membership
from access.sign_in import token_hash
from access.viewer import viewer_of_user
from memories.models import Memory, Project
from search.models import SavedView, ViewFeed
from search.saved_views import view_feed_create
from tests.html import html_of

pytestmark = [pytest.mark.django_db, pytest.mark.parametrize("engine", ["postgres"], indirect=True)]
ATOM = "{http://www.w3.org/2005/Atom}"


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def reader(corpus):
    return signed_in(User.objects.create_superuser("ada"))


@pytest.fixture
def view(reader):
    reader.post("/views/new/", {"query": "tag=tea&sort=title", "name": "Tea & more", "visibility": "team"})
    return SavedView.objects.get()


def made(client, view):
    """The path of a new feed, as its page shows it once."""
    response = client.post(f"/views/{view.pk}/feed/", {"make": "1"})
    # No browser keeps the secret.
    assert response["Cache-Control"] == "private, no-store"
    page = html_of(response)
    return page.partition('class="feed-address">http://testserver')[2].partition("<")[0]


def parsed(content):
    return ET.fromstring(content)  # noqa: S314 - our own


def titles(path):
    response = Client().get(path)
    assert response.status_code == 200, response.status_code
    return [entry.findtext(f"{ATOM}title") for entry in parsed(response.content).iter(f"{ATOM}entry")]


def test_feed_has_the_newest_memories_of_the_view_for_whoever_has_its_address(reader, view):
    assert "feed-address" not in html_of(reader.get(f"/views/{view.pk}/feed/"))
    path = made(reader, view)
    assert titles(path) == [
        "Serve tea on the boat",
        "Sugar on every table",
        "Guests like oolong",
        "Brew green tea at 70 °C",
    ]
    root = parsed(Client().get(path).content)
    first = list(root.iter(f"{ATOM}entry"))[2]
    number = Memory.objects.get(external_id="t3").pk
    assert root.findtext(f"{ATOM}title") == "Tea & more"
    assert first.findtext(f"{ATOM}id") == f"http://testserver/m/{number}/"
    assert first.findtext(f"{ATOM}published") == "2024-02-28T23:15:00+00:00"
    assert [one.get("term") for one in first.iter(f"{ATOM}category")] == ["note", "tea", "guests"]


def test_address_is_shown_once_and_a_new_one_takes_its_place(reader, view):
    old = made(reader, view)
    assert old.partition("token=")[2] not in html_of(reader.get(f"/views/{view.pk}/feed/"))
    new = made(reader, view)
    assert (Client().get(old).status_code, Client().get(new).status_code) == (404, 200)
    assert ViewFeed.objects.get().token_hash not in new


def test_revoked_feed_is_gone_and_both_are_audited(reader, view):
    path = made(reader, view)
    reader.post(f"/views/{view.pk}/feed/", {"revoke": "1"})
    assert Client().get(path).status_code == 404
    assert not ViewFeed.objects.exists()
    verbs = AuditEvent.objects.filter(verb__startswith="view_feed").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["view_feed_create", "view_feed_revoke"]


def test_feed_shows_what_its_person_may_see_and_ends_with_their_access(reader, view):
    ben = User.objects.create_user("ben")
    seat = Membership.objects.create(user=ben, project=Project.objects.get(slug="boat"), role="reader")
    Memory.objects.filter(external_id="b1").update(tags=["tea"])
    path = made(signed_in(ben), view)
    assert titles(path) == [Memory.objects.get(external_id="b1").title]
    seat.delete()
    assert Client().get(path).status_code == 404
    path = made(reader, view)
    User.objects.filter(username="ada").update(is_active=False)
    assert Client().get(path).status_code == 404


def test_what_a_memory_says_is_text_in_the_feed(reader, view):
    Memory.objects.filter(external_id="t3").update(summary="", content="<script>alert(1)</script> \x0b & so on")
    entries = list(parsed(Client().get(made(reader, view)).content).iter(f"{ATOM}entry"))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in entries[2].findtext(f"{ATOM}summary")


def test_views_of_others_and_wrong_tokens_have_no_feed(reader, view):
    SavedView.objects.update(visibility="private")
    ben = signed_in(User.objects.create_user("ben"))
    assert ben.post(f"/views/{view.pk}/feed/", {"make": "1"}).status_code == 404
    for path in ("/feed/", "/feed/?token=", "/feed/?token=%00%ff"):
        assert Client().get(path).status_code == 404


def test_feed_that_is_read_too_often_is_told_to_wait(reader, view, monkeypatch):
    monkeypatch.setattr("explorer.views.views._PER_MINUTE", 2)
    path = made(reader, view)
    buckets.forget()
    assert [Client().get(path).status_code for _ in range(3)] == [200, 200, 429]
    assert int(Client().get(path)["Retry-After"]) > 0


def test_a_feed_that_is_made_twice_at_once_has_the_later_address(reader, view, monkeypatch):
    def made_elsewhere(size):
        ViewFeed.objects.create(user=view.owner, view=view, token_hash="other")
        return "later"

    monkeypatch.setattr("search.saved_views.secrets.token_urlsafe", made_elsewhere)
    assert view_feed_create(view=view, viewer=viewer_of_user(view.owner)) == "later"
    assert ViewFeed.objects.get().token_hash == token_hash("later")

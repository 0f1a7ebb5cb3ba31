"""The headers that every answer of the API has: version, allowance, ETag, compression; and what OPTIONS answers."""

import gzip

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.records import MemoryRecord
from memories.services import memory_create

pytestmark = pytest.mark.django_db


@pytest.fixture
def key():
    return make_key(
        name="agent", scopes=["read", "write"], every_project=True, viewer=command_viewer(), requests_per_minute=100
    )


@pytest.fixture
def caller(key):
    return Client(headers={"Authorization": f"Bearer {key.raw}"})


@pytest.fixture
def tea():
    return memory_create(record=MemoryRecord(project="tea", content="Tea at four. " * 50), viewer=command_viewer())


@pytest.mark.parametrize(
    "path", ["/api/health", "/api/search", "/api/nothing", "/api/memories/999", "/api/openapi.json"]
)
def test_every_answer_names_the_version_of_the_api(client, caller, path):
    assert (client.get(path)["API-Version"], caller.get(path)["API-Version"]) == ("1", "1")


def test_a_key_is_shown_how_many_requests_it_may_still_make(client, caller):
    shown = [
        [response[f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Reset")]
        for response in (caller.get("/api/search"), caller.get("/api/search?page=x"))
    ]
    assert shown == [["100", "99", "1"], ["100", "98", "2"]]
    assert "X-RateLimit-Limit" not in client.get("/api/health")


def test_a_key_that_asked_too_often_is_shown_that_nothing_remains():
    raw = make_key(name="busy", scopes=["read"], every_project=True, viewer=command_viewer(), requests_per_minute=1).raw
    busy = Client(headers={"X-API-Key": raw})
    busy.get("/api/health")
    refused = busy.get("/api/health")
    assert (refused.status_code, refused["X-RateLimit-Remaining"]) == (429, "0")
    assert 55 <= int(refused["Retry-After"]) <= 60


def test_a_reply_that_has_not_changed_is_not_sent_again(caller, tea):
    first = caller.get("/api/search?q=tea&include_facets=1")
    assert first["Cache-Control"] == "private, no-cache"
    assert first["ETag"].startswith('W/"')
    again = caller.get("/api/search?q=tea&include_facets=1", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again["ETag"] == first["ETag"]
    assert {"Authorization", "X-API-Key"} <= set(again["Vary"].split(", "))
    memory_create(record=MemoryRecord(project="tea", content="More tea."), viewer=command_viewer())
    changed = caller.get("/api/search?q=tea&include_facets=1", headers={"If-None-Match": first["ETag"]})
    assert (changed.status_code, changed.json()["total"]) == (200, 2)


def test_the_etag_of_one_key_is_not_that_of_another_that_sees_less(caller, tea):
    other = memory_create(record=MemoryRecord(project="boat", content="No tea here."), viewer=command_viewer())
    raw = make_key(name="boat", scopes=["read"], projects=[other.project], viewer=command_viewer()).raw
    etag = caller.get("/api/search?q=tea")["ETag"]
    narrow = Client(headers={"X-API-Key": raw}).get("/api/search?q=tea", headers={"If-None-Match": etag})
    assert (narrow.status_code, narrow.json()["total"]) == (200, 1)


def test_replies_to_keys_are_compressed_and_those_to_sessions_are_not_nor_stored(client, caller, tea):
    accept = {"Accept-Encoding": "br, gzip"}
    plain = caller.get(f"/api/memories/{tea.pk}")
    small = caller.get(f"/api/memories/{tea.pk}", headers=accept)
    assert small["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.content) == plain.content
    assert len(small.content) < len(plain.content)
    assert "Accept-Encoding" in small["Vary"]
    client.force_login(User.objects.create_superuser("ada"))
    session = client.get(f"/api/memories/{tea.pk}", headers=accept)
    assert "Content-Encoding" not in session
    assert session["Cache-Control"] == "private, no-store"


def test_the_etag_of_a_compressed_memory_still_allows_to_change_it(caller, tea):
    path = f"/api/memories/{tea.pk}"
    etag = caller.get(path, headers={"Accept-Encoding": "gzip"})["ETag"]
    assert caller.get(path, headers={"If-None-Match": etag}).status_code == 304
    for status in (200, 412):
        changed = caller.patch(path, {"importance": 0.5}, content_type="application/json", headers={"If-Match": etag})
        assert changed.status_code == status


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        pytest.param("/api/search", "GET, HEAD, OPTIONS", id="read"),
        pytest.param("/api/memories/batch", "POST, OPTIONS", id="write"),
    ],
)
def test_options_names_the_methods_of_an_address(client, path, allow):
    response = client.options(path)
    assert (response.status_code, response["Allow"], response.content) == (204, allow, b"")


def test_another_method_is_refused_with_those_there_are(caller):
    response = caller.put("/api/search")
    assert (response.status_code, response["Allow"]) == (405, "GET")

"""Bodies that are too large or too many, refused before they are read."""

import asyncio
import json

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from memories.models import Project
from tests.web.applications import ask
from web import bodies
from web.admission import BusyError
from web.bodies import BytesInFlight
from web.handler import SiteHandler

PIECE = b"x" * 1024**2
UPLOAD_FORM = "/imports/upload/"


def sent(path, *, pieces=11, cookie=b"", **headers):
    """The answer to a large body."""
    body, asked = [PIECE] * pieces, [(b"host", b"localhost"), (b"cookie", cookie)]
    asked += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return asyncio.run(ask(SiteHandler(), path, "POST", body=body, headers=asked))


def cookie_of(client, user):
    client.force_login(user)
    return f"theme=dark; {settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()


@pytest.mark.parametrize("path", ["/", "/sign-in/", "/imports/", "/static/css/site.css", UPLOAD_FORM])
@pytest.mark.parametrize("pieces", [pytest.param(1, id="one megabyte"), pytest.param(11, id="eleven")])
@pytest.mark.django_db(transaction=True)
def test_strangers_send_pages_no_more_than_a_form(path, pieces):
    refused = sent(path, pieces=pieces)
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    assert "The body is too large." in refused.text
    assert "Content-Security-Policy".lower() in refused.headers


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        pytest.param("/api/memories", {}, 401, "unauthorized", id="no key"),
        pytest.param("/api/memories", {"authorization": "Bearer mnk_x"}, 401, "unauthorized", id="a wrong key"),
        pytest.param("/api/memories", {"x_api_key": "mnk_x"}, 401, "unauthorized", id="a wrong key in its own header"),
        pytest.param("/mcp", {"authorization": "Bearer mnk_x"}, 401, "unauthorized", id="an agent's wrong key"),
        pytest.param("/token", {}, 413, "too_large", id="OAuth"),
        pytest.param("/register", {"authorization": "Bearer mnk_x"}, 413, "too_large", id="OAuth with a key"),
        pytest.param("/api/memories", {"authorization": "Bearer {key}"}, 413, "too_large", id="a key and too much"),
        pytest.param("/mcp", {"authorization": "Bearer {key}"}, 413, "too_large", id="an agent's key and too much"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_key_is_asked_for_before_a_large_body_is_read(path, headers, status, code):
    key = make_key(name="k", scopes=["write"], viewer=command_viewer(), every_project=True).raw
    refused = sent(path, **{name: value.format(key=key) for name, value in headers.items()})
    assert refused.status == status
    reply = json.loads(refused.text)
    assert (reply["error"]["data"]["error"] if path == "/mcp" else reply["error"]) == code
    assert not bodies.strangers_bytes.total + bodies.known_bytes.total


@pytest.mark.django_db(transaction=True)
def test_file_is_read_from_those_who_may_import(client):
    assert reverse("imports:upload") == UPLOAD_FORM
    ada = User.objects.create_user("ada")
    cookie = cookie_of(client, ada)
    assert sent(UPLOAD_FORM, cookie=cookie).status == 403
    assert "Importing needs" in sent(UPLOAD_FORM, cookie=cookie).text
    Membership.objects.create(user=ada, project=Project.objects.create(slug="tea"), role="reader")
    assert "Importing needs" in sent(UPLOAD_FORM, cookie=cookie).text
    Membership.objects.update(role="writer")
    assert "another site sent this form" in sent(UPLOAD_FORM, cookie=cookie).text  # it was read, without a token
    assert sent("/imports/", cookie=cookie).status == 413
    assert sent(UPLOAD_FORM, cookie=cookie + b"x").status == 413


def test_bytes_in_flight_are_limited_by_sender_and_in_all():
    in_flight = BytesInFlight(10, 25)
    in_flight.add("ada", 10)
    with pytest.raises(bodies.TooMuchInFlightError):
        in_flight.add("ada", 1)
    in_flight.add("ben", 12, most=12)  # somebody whose one body may be larger
    with pytest.raises(BusyError):
        in_flight.add("eve", 4)
    in_flight.remove("ada", 10)
    in_flight.add("eve", 4)
    in_flight.remove("ben", 12)
    in_flight.remove("eve", 4)
    assert in_flight.total == 0


def test_many_bodies_of_one_sender_are_refused_and_others_are_read(monkeypatch):
    async def scenario():
        monkeypatch.setattr(bodies, "strangers_bytes", BytesInFlight(10, 1_000))
        return [await ask(SiteHandler(), "/static/css/site.css", "POST", body=[b"x" * size]) for size in (10, 11, 10)]

    assert [answer.status for answer in asyncio.run(scenario())] == [405, 429, 405]

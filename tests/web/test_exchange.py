"""Ids of requests, and what is logged of each, whichever application answers."""

import asyncio
import json
import logging
from io import BytesIO

import pytest
from django.http import HttpResponse
from django.urls import include, path

from web.bodies import BODY
from web.exchange import ExchangeApplication, current_id
from web.handler import SiteHandler

pytestmark = pytest.mark.urls(__name__)


def shows_id(request, name=""):
    return HttpResponse(current_id())


def nothing(request, exception):
    return HttpResponse("nothing", status=404)


def bug(request, name=""):
    raise ValueError("a bug")


urlpatterns = [
    path("shows-id/", shows_id),
    path("shows-id/<str:name>/", shows_id),
    path("bug/", bug),
    path("bug/<str:name>/", bug),
    path("", include("access.urls")),
]
handler404 = "tests.web.test_exchange.nothing"
handler500 = "config.urls.server_error"


def ask(application, address, *, headers=(), leaves=False, when_done=None):
    """The messages of a reply, to a client that may leave before it has one."""
    sent, to_come = [], [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        if to_come:
            return to_come.pop()
        return {"type": "http.disconnect"} if leaves else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": address,
        "query_string": b"q=secret",
        "headers": [(b"host", b"localhost"), *headers],
        BODY: BytesIO(),
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    asyncio.run(ExchangeApplication(application, when_done)(scope, receive, send))
    return sent


def id_of(sent):
    (found,) = (value for name, value in sent[0]["headers"] if name.lower() == b"x-request-id")
    return found.decode()


def test_id_is_that_of_the_client_in_the_view_and_the_reply():
    sent = ask(SiteHandler(), "/shows-id/", headers=[(b"x-request-id", b"abc-1")])
    assert (id_of(sent), sent[1]["body"]) == ("abc-1", b"abc-1")


def test_page_of_an_unforeseen_error_names_the_id(caplog):
    sent = ask(SiteHandler(), "/bug/", headers=[(b"x-request-id", b"abc-2")])
    assert sent[0]["status"] == 500
    assert b"<code>abc-2</code>" in sent[1]["body"]


def test_line_of_a_request_has_its_route_and_neither_path_nor_query(caplog):
    with caplog.at_level(logging.INFO, "mnemoscope.access"):
        ask(SiteHandler(), "/shows-id/salary/")
        ask(SiteHandler(), "/nothing/salary/")
        ask(SiteHandler(), "/bug/salary/")
        ask(SiteHandler(), "/static/css/outage.css")
    fields = [record.fields for record in caplog.records if record.name == "mnemoscope.access"]
    assert [(one["method"], one["route"], one["status"]) for one in fields] == [
        ("GET", "/shows-id/<str:name>/", 200),
        ("GET", "unmatched", 404),
        ("GET", "/bug/<str:name>/", 500),
        ("GET", "static", 200),
    ]
    assert "salary" not in caplog.text


def test_application_that_fails_is_answered_for():
    async def fails(scope, receive, send):
        raise ValueError("a bug")

    sent = ask(fails, "/", headers=[(b"x-request-id", b"abc-3")])
    assert (sent[0]["status"], id_of(sent)) == (500, "abc-3")
    body = json.loads(sent[1]["body"])
    assert body["error"] == "internal_error"
    assert body["suggestion"] == "Try again. If it persists, report it with the id of the request, abc-3."


def test_client_that_leaves_is_no_error(caplog):
    async def waits(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        raise RuntimeError("nobody is there")

    done = []
    assert ask(waits, "/", leaves=True, when_done=lambda method, exchange: done.append(exchange)) == []
    assert caplog.records == []
    assert (done[0].status, done[0].client_left) == (499, True)

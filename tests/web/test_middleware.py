"""Headers, outages and expired sign-ins, over views of this module's own."""

import asyncio
import json

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, InternalError, OperationalError, connection
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import include, path

from tests.web.applications import ask
from web.handler import SiteHandler
from web.middleware import CONTENT_SECURITY_POLICY, refusal_response
from web.outages import is_outage, refusal_of_outage

pytestmark = pytest.mark.urls(__name__)


def page(request):
    return HttpResponse("a page")


def long_page(request):
    return HttpResponse("a page " * 100)


def own_policy(request):
    return HttpResponse("a page", headers={"Content-Security-Policy": "default-src 'none'"})


def outage(request):
    raise OperationalError("connection refused")


def closed(request):
    raise InterfaceError("connection already closed")


def bug(request):
    raise ValueError("a bug")


def cancelled(request):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '10ms'")
        cursor.execute("SELECT pg_sleep(5)")


def remembers(request):
    request.session["seen"] = True
    return HttpResponse("remembered")


@login_required
def private(request):
    return HttpResponse("private")


def template_that_asks(request):
    return render(request, "outage.html", {"detail": request.user.username})


urlpatterns = [
    path("page/", page),
    path("long/", long_page),
    path("own-policy/", own_policy),
    path("outage/", outage),
    path("closed/", closed),
    path("bug/", bug),
    path("cancelled/", cancelled),
    path("remembers/", remembers),
    path("private/", private),
    path("asks/", template_that_asks),
    path("api/outage", outage),
    path("", page, name="home"),
    path("", include("access.urls")),
]


@pytest.fixture
def visitor(client):
    client.raise_request_exception = False
    return client


# ── Headers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("address", ["/page/", "/nothing-here/", "/outage/", "/api/outage", "/bug/"])
def test_every_answer_carries_the_policy(visitor, address):
    policy = visitor.get(address)["Content-Security-Policy"]
    assert policy == CONTENT_SECURITY_POLICY
    assert "camera=()" in visitor.get(address)["Permissions-Policy"]
    assert "script" not in policy  # so default-src 'self' rules scripts: no inline ones, no other host
    assert "style-src 'self';" in policy
    assert "unsafe" not in policy


def test_view_may_set_a_policy_of_its_own(visitor):
    assert visitor.get("/own-policy/")["Content-Security-Policy"] == "default-src 'none'"


# ── Outages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("address", ["/outage/", "/closed/"])
def test_outage_in_a_view_gives_a_page_that_says_so(visitor, address):
    response = visitor.get(address)
    assert response.status_code == 503
    assert "The database does not answer" in response.text
    assert "check --database default" in response.text
    assert response["Retry-After"] == "5"
    assert response["Cache-Control"] == "no-store"


def test_outage_below_the_api_has_the_shape_of_its_errors(visitor):
    response = visitor.get("/api/outage")
    assert response.status_code == 503
    body = json.loads(response.content)
    assert sorted(body) == ["detail", "did_you_mean", "error", "suggestion"]
    assert body["error"] == "database_unavailable"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(psycopg.errors.DiskFull("could not extend file"), id="said by Postgres"),
        pytest.param(OperationalError("PANIC: could not write: No space left on device"), id="in the log of Postgres"),
    ],
)
def test_full_disk_is_reported_as_such(error):
    wrapped = OperationalError(str(error))
    wrapped.__cause__ = error
    for path_info in ("/", "/api/search"):
        response = refusal_response(path_info, refusal_of_outage(wrapped))
        assert response.status_code == 503
        assert "The disk of the database is full" in response.text
        assert "Make room" in response.text


def session_table_is_gone(*args, **kwargs):
    raise OperationalError("connection refused")


def test_outage_while_a_session_is_read_is_told_too(visitor, monkeypatch):
    monkeypatch.setattr(SessionStore, "load", session_table_is_gone)
    visitor.cookies[settings.SESSION_COOKIE_NAME] = "x" * 32
    assert visitor.get("/private/").status_code == 503
    assert visitor.get("/asks/").status_code == 503


def test_outage_while_a_session_is_saved_is_told_too(visitor, monkeypatch):
    monkeypatch.setattr(SessionStore, "save", session_table_is_gone)
    assert visitor.get("/remembers/").status_code == 503


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(psycopg.OperationalError("connection refused"), True, id="refused"),
        pytest.param(psycopg.errors.AdminShutdown("going down"), True, id="shutting down"),
        pytest.param(psycopg.errors.TooManyConnections("full"), True, id="no connection left"),
        pytest.param(psycopg.errors.DiskFull("full"), True, id="disk full"),
        pytest.param(psycopg.errors.DeadlockDetected("deadlock"), False, id="deadlock"),
        pytest.param(psycopg.errors.QueryCanceled("timeout"), False, id="statement timeout"),
        pytest.param(psycopg.errors.UniqueViolation("twice"), False, id="not operational"),
    ],
)
def test_what_counts_as_an_outage(cause, expected):
    assert is_outage(cause) is expected
    if isinstance(cause, psycopg.OperationalError):
        wrapped = OperationalError("wrapped by Django")
        wrapped.__cause__ = cause
        assert is_outage(wrapped) is expected


# ── An expired sign-in ────────────────────────────────────────────────────────────────────────────────────────────────

HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/private/?q=tea&tag=green"}


def test_fragment_of_a_signed_out_visitor_sends_the_page_to_sign_in(visitor):
    response = visitor.get("/private/?q=tea", headers=HTMX)
    assert response.status_code == 204
    assert response["HX-Redirect"] == "/sign-in/?next=/private/%3Fq%3Dtea%26tag%3Dgreen"
    assert "Location" not in response


def test_page_of_another_site_is_not_returned_to(visitor):
    headers = {**HTMX, "HX-Current-URL": "https://elsewhere.example/steal"}
    assert visitor.get("/private/?q=tea", headers=headers)["HX-Redirect"] == "/sign-in/?next=/private/%3Fq%3Dtea"


# ── Under ASGI ────────────────────────────────────────────────────────────────────────────────────────────────────────


def get_under_asgi(address):
    """The answer of the handler that the real server runs."""
    return asyncio.run(ask(SiteHandler(), address))


def test_outage_under_asgi():
    answer = get_under_asgi("/api/outage")
    assert answer.status == 503
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert json.loads(answer.text)["error"] == "database_unavailable"


@pytest.mark.parametrize(
    ("headers", "encoding"),
    [
        ({"Sec-Fetch-Site": "none"}, "gzip"),
        ({"Sec-Fetch-Site": "same-origin"}, "gzip"),
        ({"Sec-Fetch-Site": "same-site"}, ""),
        ({"Sec-Fetch-Site": "cross-site"}, ""),
        ({}, ""),
    ],
)
def test_page_is_compressed_unless_another_site_may_have_made_the_browser_ask_for_it(visitor, headers, encoding):
    answer = visitor.get("/long/", headers={"Accept-Encoding": "gzip, br", **headers})
    assert answer.get("Content-Encoding", "") == encoding


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        pytest.param("server closed the connection unexpectedly", True, id="closed"),
        pytest.param("failure on connection marked as essential: db-2:5432", True, id="essential"),
        pytest.param("failed to prepare transaction 'citus_0_7_12_3' on host db-2:5432", True, id="prepare"),
        pytest.param("could not commit transaction for shard 102008 on at least one active node", True, id="commit"),
        pytest.param("could not connect to any active placements", True, id="copy"),
        pytest.param("cannot connect to db-2:5432 to fetch intermediate results", True, id="fetch"),
        pytest.param('failed to read result "12_1" from node db-2:5432', True, id="read"),
        pytest.param("cache lookup failed for type 17", False, id="a fault of Postgres"),
    ],
)
def test_a_cluster_that_loses_a_server_in_a_transaction_is_an_outage(message, is_one):
    assert is_outage(InternalError(message)) is is_one

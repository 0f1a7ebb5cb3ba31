"""Every error of the API: its status, its one shape, and that it says what to do."""

import json
import re
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.test import Client
from django.utils import timezone

from access.keys import make_key
from access.models import ApiKey
from access.viewer import command_viewer
from config.api import api

pytestmark = pytest.mark.django_db
SHAPE = {"error", "detail", "suggestion", "did_you_mean"}


@pytest.fixture
def key():
    scopes = ["read", "write", "curate"]
    return make_key(name="agent", scopes=scopes, every_project=True, viewer=command_viewer())


@pytest.fixture
def caller(key):
    return Client(headers={"Authorization": f"Bearer {key.raw}"})


def refused(response, status, error):
    """The body of an error, which has the shape and nothing else."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    body = response.json()
    assert set(body) == SHAPE
    assert body["error"] == error
    assert body["detail"]
    assert isinstance(body["suggestion"], str)
    assert all(isinstance(name, str) for name in body["did_you_mean"])
    assert "total;dur=" in response["Server-Timing"]
    assert "no-store" in response["Cache-Control"]
    return body


# Every operation there is but the one that is open to everybody.
GUARDED = [
    (method, re.sub(r"{[^}]*}", "1", path))
    for path, methods in api.get_openapi_schema()["paths"].items()
    for method in methods
    if path != "/api/health"
]


def test_no_key_no_data(client):
    for method, path in GUARDED:
        response = getattr(client, method)(path)
        body = refused(response, 401, "unauthorized")
        assert response["WWW-Authenticate"] == "Bearer", (method, path)
        assert "create_api_key" in body["suggestion"]


def test_every_operation_but_health_is_guarded():
    open_ones = [
        f"{method} {path}"
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method, operation in methods.items()
        if not operation["security"]
    ]
    assert open_ones == ["get /api/health"]
    assert len(GUARDED) > 30


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Authorization": "Bearer mnk_wrong"}, id="wrong key"),
        pytest.param({"Authorization": "Bearer "}, id="empty key"),
        pytest.param({"Authorization": "Basic YTpi"}, id="other scheme"),
        pytest.param({"Authorization": "mnk_wrong"}, id="no scheme"),
        pytest.param({"X-API-Key": "mnk_wrong"}, id="wrong key in the other header"),
    ],
)
def test_wrong_key_is_refused(client, headers):
    refused(client.get("/api/search", headers=headers), 401, "unauthorized")


def test_wrong_key_is_not_saved_by_a_session(client, key):
    client.force_login(User.objects.create_superuser("ada"))
    assert client.get("/api/search").status_code == 200
    refused(client.get("/api/search", headers={"Authorization": "Bearer mnk_wrong"}), 401, "unauthorized")


@pytest.mark.parametrize(
    ("scopes", "method", "path", "missing"),
    [
        pytest.param(["write"], "get", "/api/search", "read", id="search"),
        pytest.param(["write"], "get", "/api/facets", "read", id="facets"),
        pytest.param(["write"], "get", "/api/facets/tag", "read", id="facet"),
        pytest.param(["write"], "get", "/api/memories/1", "read", id="memory"),
        pytest.param(["read"], "post", "/api/memories", "write", id="create"),
        pytest.param(["read"], "patch", "/api/memories/1", "write", id="update"),
        pytest.param(["read", "curate"], "delete", "/api/memories/1", "write", id="delete"),
        pytest.param(["read"], "post", "/api/memories/1/restore", "write", id="restore"),
    ],
)
def test_scope_that_is_missing_is_named(client, scopes, method, path, missing):
    raw = make_key(name="narrow", scopes=scopes, every_project=True, viewer=command_viewer()).raw
    response = getattr(client, method)(
        path, headers={"X-API-Key": raw}, content_type="application/json", data={"content": "Tea."}
    )
    assert f"the scope {missing}; yours: {', '.join(sorted(scopes))}" in refused(response, 403, "forbidden")["detail"]


def test_session_reads_without_a_token_and_writes_with_one():
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("ada"))
    assert browser.get("/api/search").status_code == 200
    record = json.dumps({"content": "Tea at four.", "project": "alpha"})
    forged = browser.post("/api/memories", record, content_type="application/json")
    assert "X-CSRFToken" in refused(forged, 403, "csrf_failed")["suggestion"]
    browser.get("/sign-in/")
    token = browser.cookies[settings.CSRF_COOKIE_NAME].value
    meant = browser.post("/api/memories", record, content_type="application/json", headers={"X-CSRFToken": token})
    assert meant.status_code == 201


def test_somebody_without_a_project_is_told_so(client):
    client.force_login(User.objects.create_user("guest"))
    assert "yours: none" in refused(client.get("/api/search"), 403, "forbidden")["detail"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        pytest.param({"q": "x" * 10_001}, "q: is 10,001 characters long", id="too long a text"),
        pytest.param({"q": "a\x00b"}, "q: ", id="NUL"),
        pytest.param({"tag": "a\x00b"}, "tag: ", id="NUL in a value"),
        pytest.param({"start_date": "2026-02-30"}, "start_date: '2026-02-30' is not a date", id="impossible day"),
        pytest.param({"page_size": "1000"}, "page_size: 1000 is too large", id="large page"),
        pytest.param({"page": "9" * 30}, "page: ", id="endless page"),
        pytest.param({"mode": "keywrod"}, "mode: 'keywrod' is not one of the choices", id="mode misspelt"),
        pytest.param({"include_facets": "maybe"}, "include_facets: 'maybe' is not a boolean (1 or 0)", id="no switch"),
        pytest.param({"tz": "Mars/Olympus"}, "tz: 'Mars/Olympus' is not a time zone", id="no time zone"),
        pytest.param({"x" * 5_000: "1"}, "is not a parameter", id="long name"),
    ],
)
def test_bad_parameter_is_an_error_that_names_it(caller, query, named):
    body = refused(caller.get("/api/search", query), 422, "invalid_query")
    assert named in body["detail"]
    assert len(body["detail"]) < 400


def test_thousands_of_parameters_are_refused(caller):
    refused(caller.get("/api/search?" + "&".join(["tag=x"] * 2_000)), 400, "malformed_request")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(b"{not json", 400, "malformed_body", id="not JSON"),
        pytest.param(b"", 422, "invalid_request", id="empty"),
        pytest.param(b"\xff\xfe\x00", 400, "malformed_body", id="not UTF-8"),
        pytest.param(b'{"content": NaN}', 400, "malformed_body", id="NaN"),
        pytest.param(b"[" * 100_000, 400, "malformed_body", id="endless nesting"),
        pytest.param(b"[]", 422, "invalid_request", id="a list"),
        pytest.param(b'"text"', 422, "invalid_request", id="a text"),
    ],
)
@pytest.mark.parametrize("method", ["post", "patch"])
def test_body_that_is_no_record_is_refused(caller, method, body, status, error):
    path = "/api/memories" if method == "post" else "/api/memories/1"
    refused(getattr(caller, method)(path, body, content_type="application/json"), status, error)


@pytest.mark.parametrize(
    ("asked", "detail", "allowed"),
    [
        pytest.param("kind=bean", "kind: 'bean' is not one of", "write one of marked, category, ", id="choice"),
        pytest.param("state=gone", "state: 'gone' is not one of", "write one of open, accepted, rejected", id="state"),
        pytest.param("page=0", "page: 0 is too small", "write a number from 1 to 10,000", id="too small"),
        pytest.param("page_size=9999", "page_size: 9999 is too large", "write a number from 1 to 100", id="too large"),
        pytest.param("page=two", "page: 'two' is not a whole number", "write a number from 1", id="no number"),
        pytest.param("min_confidence=7", "7 is too large", "write a number from 0 to 1", id="share"),
    ],
)
def test_parameter_that_is_wrong_comes_with_what_is_allowed_there(caller, asked, detail, allowed):
    body = refused(caller.get(f"/api/suggestions?{asked}"), 422, "invalid_query")
    assert detail in body["detail"]
    assert allowed in body["suggestion"]


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        pytest.param({"kind": "memory"}, "write one of category, concept, entity, tag", id="choice"),
        pytest.param({"name": "n" * 601}, "name: is 601 characters long: write at most 600", id="too long"),
        pytest.param({"name": None}, "name: must be text, not null", id="no text"),
        pytest.param({"memories": "1"}, "memories: must be a list, not text", id="no list"),
        pytest.param({"memories": [1.5]}, "memories[0]: 1.5 is not a whole number", id="fraction"),
        pytest.param({"memories": [2**63]}, "memories[0]: 9223372036854775808 is too large", id="too large"),
    ],
)
def test_field_that_is_wrong_comes_with_what_is_allowed_there(caller, field, detail):
    body = {"kind": "tag", "term": "tea", "name": "brew", "query": "", **field}
    response = caller.post("/api/curation/split", body, content_type="application/json")
    assert detail in refused(response, 422, "invalid_request")["detail"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        pytest.param("/api/serch", ["/api/search"], id="misspelt"),
        pytest.param("/api/search/", ["/api/search"], id="with a slash"),
        pytest.param("/api/zzzz", [], id="unknown"),
        pytest.param("/api/memories/abc", None, id="not a number"),
        pytest.param("/api/memories/1%0A2", None, id="two lines"),
        pytest.param("/api/", None, id="root"),
    ],
)
def test_unknown_address_is_404_in_the_same_shape(caller, path, meant):
    body = refused(caller.get(path), 404, "not_found")
    assert meant is None or body["did_you_mean"][:1] == meant


WITH_BODY = [
    (method, re.sub(r"{[^}]*}", "1", path))
    for path, methods in api.get_openapi_schema()["paths"].items()
    for method, operation in methods.items()
    if "requestBody" in operation
]


@pytest.mark.parametrize(("method", "path"), WITH_BODY, ids=lambda part: part)
def test_scope_is_checked_before_the_body_is_read(method, path):
    for_writers = ("/api/memories", "/api/imports", "/api/follows")
    is_write = path.endswith(("/batch", "/retag")) or path.startswith(for_writers)
    other = "curate" if is_write or (method, path) == ("post", "/api/projects") else "write"
    raw = make_key(name="agent", scopes=[other], every_project=True, viewer=command_viewer()).raw
    asking = Client(headers={"Authorization": f"Bearer {raw}"})
    response = getattr(asking, method)(path, {"wrong": 1}, content_type="application/json")
    assert "This needs the scope " in refused(response, 403, "forbidden")["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        pytest.param("post", "/api/search", {"GET"}, id="search"),
        pytest.param("put", "/api/memories", {"GET", "POST"}, id="memories"),
        pytest.param("put", "/api/memories/1", {"GET", "PATCH", "DELETE"}, id="memory"),
    ],
)
def test_wrong_method_is_405_with_the_right_ones(caller, method, path, allow):
    response = getattr(caller, method)(path)
    refused(response, 405, "method_not_allowed")
    assert {name.strip() for name in response["Allow"].split(",")} == allow


def _down(sqlstate):
    cause = psycopg.OperationalError("connection refused")
    cause.sqlstate = sqlstate
    error = OperationalError("connection refused")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(_down(None), id="connection refused"),
        pytest.param(_down("57P01"), id="shut down"),
        pytest.param(InterfaceError("connection already closed"), id="closed"),
        pytest.param(psycopg.OperationalError("pool timeout"), id="pool"),
    ],
)
def test_database_that_is_down_is_503(caller, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("explorer.explore.api.run", fail)
    response = caller.get("/api/search")
    refused(response, 503, "database_unavailable")
    assert response["Retry-After"]


def test_statement_that_was_given_up_is_503_and_no_outage(caller, monkeypatch):
    def fail(*args, **kwargs):
        raise _down("57014")

    monkeypatch.setattr("explorer.explore.api.run", fail)
    refused(caller.get("/api/search"), 503, "database_busy")


def test_database_that_goes_down_before_the_key_is_read_is_503(caller, monkeypatch):
    def fail(*args, **kwargs):
        raise _down("08006")

    monkeypatch.setattr("access.keys.find_key", fail)
    refused(caller.get("/api/search"), 503, "database_unavailable")


def test_error_that_nobody_foresaw_tells_nothing_of_itself(caller, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("explorer.explore.api.run", fail)
    response = caller.get("/api/search")
    refused(response, 500, "internal_error")
    assert "secret" not in response.text
    assert "the secret of the house" in caplog.text


def test_suspicious_request_is_400(caller, monkeypatch):
    def fail(*args, **kwargs):
        raise SuspiciousOperation("odd")

    monkeypatch.setattr("explorer.explore.api.run", fail)
    refused(caller.get("/api/search"), 400, "malformed_request")


def test_document_lists_the_errors_of_every_operation(client):
    document = client.get("/api/openapi.json").json()
    assert set(document["components"]["schemas"]["Error"]["properties"]) == SHAPE
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            wanted = {"500", "503", "401"} if path == "/api/health" else {"401", "403", "500", "503"}
            assert wanted <= set(answers), (method, path)
            for status, answer in answers.items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema["$ref"] == "#/components/schemas/Error", (method, path, status)


def test_every_operation_is_in_a_group_that_is_described():
    schema = api.get_openapi_schema()
    used = {tag for operations in schema["paths"].values() for one in operations.values() for tag in one["tags"]}
    assert {group["name"] for group in schema["tags"] if group["description"]} == used


def test_documentation_is_a_page_of_local_files(client):
    page = client.get("/api/docs")
    assert page.status_code == 200
    assert "https://" not in page.text
    assert "swagger-ui-bundle" in page.text
    assert 'aria-label="Mnemoscope, home"' in page.text


def test_body_in_chunks_is_refused(caller):
    response = caller.post("/api/memories", headers={"Transfer-Encoding": "chunked"}, CONTENT_LENGTH="")
    refused(response, 411, "length_required")


def test_body_over_the_limit_is_refused(caller, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000
    body = json.dumps({"content": "x" * 2_000})
    refused(caller.post("/api/memories", body, content_type="application/json"), 413, "too_large")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_body_that_says_it_is_something_else_is_refused(caller, kind):
    response = caller.post("/api/memories", b'{"content": "Tea."}', content_type=kind)
    assert "application/json" in refused(response, 415, "unsupported_media_type")["suggestion"]


def test_expired_and_revoked_keys_are_refused_by_prefix(caller, key):
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(days=1))
    assert f"{key.key.prefix}… expired" in refused(caller.get("/api/search"), 401, "unauthorized")["detail"]
    ApiKey.objects.update(revoked_at=timezone.now())
    assert f"{key.key.prefix}… was revoked" in refused(caller.get("/api/search"), 401, "unauthorized")["detail"]


def test_record_without_content_is_refused(caller):
    body = refused(caller.post("/api/memories", {}, content_type="application/json"), 422, "invalid_request")
    assert body["detail"] == "content: is missing"

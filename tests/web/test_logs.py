"""The lines of the log, and the ids of requests in them."""

import json
import logging
import sys

import psycopg
import pytest
from django.core.exceptions import DisallowedHost, RequestAborted
from django.db import OperationalError

from web import exchange, outages
from web.errors import UnauthorizedError
from web.logs import JsonLine, TextLine


@pytest.fixture(autouse=True)
def outside_of_requests():
    token = exchange._current.set(None)
    yield
    exchange._current.reset(token)


def record(message="It failed", *arguments, error=None, **fields):
    try:
        raise error or ValueError
    except BaseException:
        raised = sys.exc_info() if error else None
    made = logging.LogRecord("mnemoscope.test", logging.ERROR, __file__, 1, message, arguments, raised)
    if fields:
        made.fields = fields
    return made


def entry(made, **options):
    line = JsonLine(**options).format(made)
    assert "\n" not in line
    return json.loads(line)


def test_json_line_has_the_id_of_the_request_and_the_fields_of_the_caller():
    assert "request_id" not in entry(record())
    exchange.begin(b"from-the-proxy.7")
    made = record("%s took long", "GET", status=200)
    made.request = "what Django adds is left out"
    line = entry(made)
    assert line.pop("time").endswith("+00:00")
    assert line.pop("process") > 0
    assert line == {
        "level": "ERROR",
        "logger": "mnemoscope.test",
        "message": "GET took long",
        "request_id": "from-the-proxy.7",
        "status": 200,
    }


@pytest.mark.parametrize("given", [b"", b"two lines\nHTTP", b"-", b"a" * 65, "naïve".encode(), b'{"a":1}'])
def test_id_that_does_not_belong_into_a_log_is_replaced(given):
    made = exchange.begin(given).request_id
    assert len(made) == 16
    assert made != exchange.begin(given).request_id


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OperationalError("the connection is lost\nDETAIL: a secret"), id="database away"),
        pytest.param(psycopg.errors.QueryCanceled("statement timeout"), id="statement cancelled"),
        pytest.param(DisallowedHost("Invalid HTTP_HOST header"), id="another host"),
        pytest.param(RequestAborted("client left"), id="client left"),
        pytest.param(BrokenPipeError("Broken pipe"), id="connection broken"),
        pytest.param(UnauthorizedError(), id="refused"),
    ],
)
def test_what_is_no_mistake_of_ours_has_a_reason_and_no_traceback(error):
    line = entry(record(error=error))
    assert line["message"] == f"It failed: {str(error).splitlines()[0]}"
    assert "traceback" not in line
    assert "Traceback" in entry(record(error=error), tracebacks=True)["traceback"]


def test_mistake_of_ours_has_a_traceback_without_the_values_that_postgres_adds():
    detail = 'null value in column "title"\nDETAIL:  Failing row contains (7, the text of a memory).'
    line = TextLine().format(record(error=psycopg.errors.NotNullViolation(detail)))
    assert "Traceback (most recent call last):" in line
    assert line.endswith('psycopg.errors.NotNullViolation: null value in column "title"')
    value = 'invalid input syntax for type integer: "the text of a memory"'
    refused = psycopg.errors.InvalidTextRepresentation(value)
    assert entry(record(error=refused))["traceback"].endswith("invalid input syntax for type integer: …\n")
    long = entry(record(error=ValueError("x" * 5_000)))["traceback"]
    assert "x" * 200 in long
    assert "x" * 201 not in long


def test_text_cannot_pretend_to_be_a_line_of_its_own():
    line = TextLine().format(record("asked for %s", "a\n2026-01-01 ERROR forged\x1b[2J"))
    assert "\n" not in line
    assert line.endswith(r"asked for a\n2026-01-01 ERROR forged\x1b[2J")


def test_an_outage_is_a_line_every_ten_seconds(monkeypatch, caplog):
    monkeypatch.setattr(outages.time, "monotonic", iter([100.0, 100.0, 105.0, 109.0, 110.5, 110.5]).__next__)
    log = outages._OutageLog()
    for _ in range(4):
        log.log(outages.DatabaseUnavailableError(), OperationalError("connection refused\nIs the server running?"))
    assert [made.getMessage() for made in caplog.records] == [
        "database_unavailable: connection refused",
        "database_unavailable (2 more requests since the last line): connection refused",
    ]

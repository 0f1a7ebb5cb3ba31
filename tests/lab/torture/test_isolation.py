"""Random reads and writes of viewers who may see one project each, in two worlds that differ only in what is hidden.

`python -m lab.torture isolation` asks many more of a running site; see docs/reliability.md.
"""

import json

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from access.keys import viewer_of_raw
from access.limits import buckets
from access.models import AuditEvent
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from lab.torture.accounts import make_accounts
from lab.torture.isolation import HIDDEN_CURATOR, OWNER, WATCHERS, Answer, Leaks, align, record, replay
from tests.unified_corpus import AtOnce
from web.cache import clear_caches

PROBES = 300


class InProcess:
    """The interfaces without a server; MCP by its tools."""

    def __init__(self, keys):
        self.keys = keys
        self.api = {who: Client(headers={"Authorization": f"Bearer {key}"}) for who, key in keys.items()}
        self.pages = {}
        for watcher in WATCHERS:
            self.pages[watcher.name] = Client()
            self.pages[watcher.name].force_login(User.objects.get(username=watcher.name.replace(" ", "-")))

    def ask(self, question):
        if question.interface in {"mcp", "stdio"}:
            viewer = viewer_of_raw(self.keys[question.who], AuditEvent.Door.MCP)
            try:
                return Answer(200, call(TOOL[question.method], dict(question.body), viewer))
            except ToolRefusedError as error:
                return Answer(400, str(error))
        client = (self.pages if question.interface == "page" else self.api)[question.who]
        body = "" if question.body is None else json.dumps(question.body)
        response = client.generic(question.method, question.address, body, content_type="application/json")
        assert response.status_code < 500, question.text
        # Pages have an ETag of their bytes, with the CSRF token among them.
        etag = response.headers.get("ETag", "") if question.interface == "rest" else ""
        return Answer(response.status_code, response.text, etag)

    def settle(self, step):
        with connection.cursor() as cursor:
            cursor.execute(align(step))


@pytest.fixture
def _sequences_go_on(db):
    """Sequences are not rolled back with the test."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema()")
        before = cursor.fetchall()
        yield
        for name, value in before:
            if value is not None:
                cursor.execute(f"SELECT setval('\"{name}\"', %s)", [value])


@pytest.mark.release
@pytest.mark.usefixtures("_sequences_go_on")
def test_nothing_that_a_partial_viewer_is_answered_depends_on_what_they_may_not_see(monkeypatch):
    # Searches of the vocabulary, in the transaction of the test.
    monkeypatch.setattr("search.unified.legs._threads", AtOnce())
    keys = make_accounts()
    # Two worlds in a row: the first is rolled back.
    with transaction.atomic():
        turns = record(InProcess(keys), PROBES, seed=1)
        transaction.set_rollback(True)
    clear_caches()
    buckets.forget()
    leaks = replay(InProcess(keys), turns, seed=1)
    assert (leaks.probes, leaks.around) == (PROBES, 75)
    assert leaks.examples == {}


class LeakyWorld:
    """Answers everybody with how much there is, and with the newest name."""

    def __init__(self):
        self.names = []

    def ask(self, question):
        if question.who in {OWNER, HIDDEN_CURATOR} and question.template == "store":
            self.names.append(question.body["title"])
        return Answer(200, json.dumps({"id": 7, "total": len(self.names), "newest": self.names[-1:]}))

    def settle(self, step):
        pass


def test_probes_notice_counts_names_and_floods():
    turns = record(LeakyWorld(), 24, seed=1)
    leaks: Leaks = replay(LeakyWorld(), turns, seed=1)
    kinds = {name.partition(":")[0] for name in leaks.kinds}
    assert {"canary", "depends on hidden data", "changes with hidden writes"} <= kinds
    assert sum(count for name, count in leaks.kinds.items() if name.startswith("depends")) == 24

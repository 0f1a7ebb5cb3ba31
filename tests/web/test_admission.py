"""A server with more requests than it can answer: some run, some wait, the others are refused honestly."""

import asyncio
import json
import threading

import psycopg_pool
import pytest
from django.db import OperationalError
from django.http import HttpResponse
from django.urls import path

from access.viewer import command_viewer
from agent_tools import asgi
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from tests.web.applications import ask
from web import handler, outages
from web.admission import Admission, BusyError
from web.handler import SiteHandler
from web.middleware import CONTENT_SECURITY_POLICY
from web.outages import HealthEndpoints

pytestmark = pytest.mark.urls(__name__)


class Door:
    """A view that waits until it is opened, and counts its visitors."""

    def __init__(self):
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.inside = self.most = self.visitors = 0

    def __call__(self, request):
        with self.lock:
            self.inside += 1
            self.visitors += 1
            self.most = max(self.most, self.inside)
        self.open.wait(20)
        with self.lock:
            self.inside -= 1
        return HttpResponse("inside")


door = Door()
urlpatterns = [path("door/", lambda request: door(request)), path("api/door", lambda request: door(request))]


@pytest.fixture
def closed_door():
    global door
    door = Door()
    yield door
    door.open.set()


@pytest.fixture
def site(monkeypatch):
    """Django where two requests run at a time, and three wait."""
    monkeypatch.setattr(handler, "requests", Admission(2, 3))
    return SiteHandler()


async def until(condition):
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


# --- turns ------------------------------------------------------------------------------------------------------------


def test_turns_come_in_the_order_of_arrival():
    async def scenario():
        admission, order = Admission(1, 3), []

        async def take(name):
            async with admission.turn():
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*(take(name) for name in "abcd"))
        return order

    assert asyncio.run(scenario()) == ["a", "b", "c", "d"]


def test_one_that_waits_too_long_is_refused_and_leaves_the_queue():
    async def scenario():
        admission = Admission(1, 1, seconds=0.01)
        async with admission.turn():
            for _ in range(2):  # the second would find the place of the first taken
                with pytest.raises(BusyError):
                    async with admission.turn():
                        raise AssertionError
        async with admission.turn():
            return True

    assert asyncio.run(scenario())


def test_one_that_is_cancelled_when_its_turn_comes_passes_it_on():
    async def scenario():
        admission = Admission(1, 2)

        async def take():
            async with admission.turn():
                return True

        async with admission.turn():
            first, second = asyncio.create_task(take()), asyncio.create_task(take())
            await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(scenario())


# --- pages and the API ------------------------------------------------------------------------------------------------


def test_no_more_requests_run_than_may_and_those_that_cannot_wait_are_told_so(site, closed_door):
    async def scenario():
        asked = [asyncio.create_task(ask(site, "/door/")) for _ in range(5)]
        await until(lambda: closed_door.inside == 2)
        page, reply = await ask(site, "/door/"), await ask(site, "/api/door")
        closed_door.open.set()
        return page, reply, await asyncio.gather(*asked)

    page, reply, answers = asyncio.run(scenario())
    assert [answer.status for answer in answers] == [200] * 5
    assert closed_door.most == 2
    assert (page.status, page.headers["retry-after"], page.headers["cache-control"]) == (503, "5", "no-store")
    assert "<h1>The server is busy</h1>" in page.text
    assert "database" not in page.text
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert json.loads(reply.text) == {
        "error": "busy",
        "detail": "The server has more requests than it can answer at the moment.",
        "suggestion": "Try again in a few seconds.",
        "did_you_mean": [],
    }


def test_client_that_hangs_up_while_it_waits_costs_nothing(site, closed_door):
    async def scenario():
        running = [asyncio.create_task(ask(site, "/door/")) for _ in range(2)]
        await until(lambda: closed_door.inside == 2)
        gone = asyncio.Event()
        waiting = asyncio.create_task(ask(site, "/door/", gone=gone))
        await asyncio.sleep(0)
        gone.set()
        await asyncio.sleep(0.01)
        closed_door.open.set()
        await asyncio.gather(*running)
        return await waiting

    assert asyncio.run(scenario()) is None
    assert closed_door.visitors == 2


def test_static_files_and_health_do_not_wait_for_the_others(site, closed_door):
    async def scenario():
        asked = [asyncio.create_task(ask(site, "/door/")) for _ in range(5)]
        await until(lambda: closed_door.inside == 2)
        style, live = await ask(site, "/static/css/outage.css"), await ask(HealthEndpoints(site), "/healthz")
        closed_door.open.set()
        await asyncio.gather(*asked)
        return style, live

    style, live = asyncio.run(scenario())
    assert style.status == 200
    assert (live.status, json.loads(live.text)) == (200, {"status": "live"})


# --- agents -----------------------------------------------------------------------------------------------------------


def test_agent_is_told_that_the_server_is_busy(monkeypatch):
    monkeypatch.setattr(asgi, "requests", Admission(0, 0))
    answer = asyncio.run(ask(asgi.McpApplication(None), "/mcp", "POST"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    error = json.loads(answer.text)["error"]
    assert error["message"].startswith("The server has more requests than it can answer at the moment.")
    assert error["data"]["error"] == "busy"


# --- no connection in time --------------------------------------------------------------------------------------------


def no_connection(*arguments, **options):
    raise OperationalError("no connection") from psycopg_pool.PoolTimeout("no connection within 5 seconds")


@pytest.mark.parametrize(
    ("answers", "code", "heading"),
    [
        pytest.param(True, "busy", "The server is busy", id="the database answers"),
        pytest.param(False, "database_unavailable", "The database does not answer", id="it does not"),
    ],
)
def test_request_without_a_connection_is_told_why(answers, code, heading, client, monkeypatch):
    monkeypatch.setattr("web.outages.database_answers", lambda: answers)
    monkeypatch.setattr("tests.web.test_admission.door", no_connection)
    reply, page = client.get("/api/door"), client.get("/door/")
    assert (reply.status_code, reply.json()["error"]) == (503, code)
    assert (page.status_code, page["Retry-After"]) == (503, "5")
    assert heading in page.text
    monkeypatch.setattr("agent_tools.tools.run", no_connection)
    with pytest.raises(ToolRefusedError) as refusal:
        call(TOOL["search"], {}, command_viewer())
    assert ("more requests" in str(refusal.value)) == answers


# --- probes -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_server_is_ready_while_its_database_answers(monkeypatch):
    async def states():
        return [(found.status, json.loads(found.text)) for found in [await ask(HealthEndpoints(None), "/readyz")]]

    assert asyncio.run(states()) == [(200, {"status": "ready"})]
    monkeypatch.setattr(outages, "_ask_database", no_connection)
    assert asyncio.run(states()) == [(503, {"status": "not ready", "detail": "The database does not answer."})]


@pytest.mark.django_db
def test_probe_continues_after_its_connection_is_lost():
    assert outages.database_answers(within=10)
    outages._own.close()
    assert outages.database_answers(within=10)


def test_probe_that_hangs_is_waited_for_no_longer_than_the_deadline_and_asked_once(monkeypatch):
    hang, asked = threading.Event(), []

    def ask_database():
        asked.append(1)
        hang.wait(20)

    monkeypatch.setattr(outages, "_ask_database", ask_database)
    assert not outages.database_answers(within=0.05)
    assert not outages.database_answers(within=0.05)
    assert len(asked) == 1
    hang.set()
    assert outages.database_answers(within=10)

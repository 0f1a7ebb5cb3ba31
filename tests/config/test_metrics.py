"""Metrics at /metrics: who may read them, and what they count."""

import asyncio
import os
import subprocess
import sys

import pytest
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

from config import metrics
from config.management.commands import up
from web.exchange import Exchange, ExchangeApplication, route_of

TOKEN = "a token of this test"


@pytest.fixture(autouse=True)
def token(settings):
    settings.METRICS_TOKEN = TOKEN


async def beneath(scope, receive, send):
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"not found"})


def ask(path="/metrics", method="GET", token=TOKEN):
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    application = ExchangeApplication(metrics.MetricsApplication(beneath), when_done=metrics.count)
    asyncio.run(application(scope, None, send))
    return sent[0]["status"], b"".join(message["body"] for message in sent[1:]).decode()


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("wrong", ["", "another", TOKEN[:-1], TOKEN + "é"])
def test_metrics_need_the_token(wrong):
    status, body = ask(token=wrong)
    assert status == 401
    assert "mnemoscope" not in body
    assert ask(method="POST")[0] == 405
    assert ask("/other") == (404, "not found")


@pytest.mark.django_db
def test_requests_are_counted_by_route_method_and_status():
    before = samples(metrics.render().decode())
    for seconds in (0.003, 0.02):
        metrics.count("GET", Exchange("1", route="/memory/<int:pk>/", status=200, seconds=seconds))
    metrics.count("BREW", Exchange("2", route="/mcp search", status=200, tool_refused=True))
    status, text = ask()
    found = samples(text)

    def more(*key):
        return found[key] - before.get(key, 0)

    assert status == 200
    assert more("mnemoscope_http_responses_total", "/memory/<int:pk>/", "200", "GET") == 2
    assert more("mnemoscope_http_request_duration_seconds_bucket", "/memory/<int:pk>/", "0.005", "GET") == 1
    assert more("mnemoscope_http_request_duration_seconds_bucket", "/memory/<int:pk>/", "0.025", "GET") == 2
    assert more("mnemoscope_http_responses_total", "/mcp search", "200", "other") == 1
    assert more("mnemoscope_tool_refusals_total", "/mcp search") == 1


WORKER = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
from config import metrics
from config.management.commands import up
from web.exchange import Exchange
metrics.count("GET", Exchange("1", route="/", status=200, seconds=0.1))
metrics._pool.labels("used").set(3)
if sys.argv[1:] == ["render"]:
    metrics._site_collector._site = lambda: None
    sys.stdout.write(metrics.render().decode())
"""


def test_processes_of_a_server_are_added_up_without_what_dead_ones_held(tmp_path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def worker(*arguments):
        command = [sys.executable, "-c", WORKER, *arguments]
        done = subprocess.run(
            command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    worker()
    found = samples(worker("render"))
    assert found[("mnemoscope_http_responses_total", "/", "200", "GET")] == 2
    assert found[("mnemoscope_database_pool", "used")] == 3


def test_server_has_a_folder_for_its_processes_and_removes_those_of_dead_ones(settings, tmp_path, monkeypatch):
    settings.HOME = tmp_path
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    dead, living = tmp_path / "metrics" / "999999999", tmp_path / "metrics" / str(os.getppid())
    for folder in (dead, living):
        folder.mkdir(parents=True)
    with up.shared_metrics():
        assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == str(tmp_path / "metrics" / str(os.getpid()))
        assert sorted(tmp_path.glob("metrics/*")) == sorted([living, tmp_path / "metrics" / str(os.getpid())])
    assert list(tmp_path.glob("metrics/*")) == [living]
    settings.METRICS_TOKEN = ""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = ""
    with up.shared_metrics():
        assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == ""


@pytest.mark.parametrize(
    ("pattern", "route"),
    [
        ("api/memories/<memory_id>", "/api/memories/<memory_id>"),
        ("admin/memories/memory/<path:object_id>/change/", "/admin/"),
        (r"api/^[\s\S]+$", "unmatched"),
    ],
)
def test_routes_are_limited_in_number(pattern, route):
    assert route_of(pattern) == route

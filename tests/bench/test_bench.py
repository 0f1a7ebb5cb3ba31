"""The whole bench at a size that takes seconds: that it runs, agrees with its peers and leaves nothing behind."""

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from bench.query_log import KINDS


def databases():
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        return {row[0] for row in cursor.fetchall()}


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.django_db
def test_bench_measures_everything_and_leaves_no_database(tmp_path):
    done = bench("--size", 300, "--queries", 1, "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert "300 memories" in done.stdout
    report = json.loads((tmp_path / "figures.json").read_text())
    figures = report["sizes"]["300"]
    assert figures["imported"]["memories"] == 300
    assert list(figures["latency"]) == [*KINDS, "mixed"]
    for latency in figures["latency"].values():
        assert latency["search"]["p95_ms"] > 0
        assert latency["explore"]["p95_ms"] > 0
    assert figures["latency"]["mixed"]["page"]["n"] > 0
    for peer in figures["peers"].values():
        agreed = peer["agreement"]
        assert agreed["totals_filters"] == agreed["of_filters"] > 0
        assert agreed["totals_words"] == agreed["of_words"] > 0
        assert agreed["counts_equal"] == agreed["of_counts"] > 0
        assert agreed["pages_equal"] == agreed["of_pages"] > 0
    assert "bench_300" not in databases()


@pytest.mark.django_db
def test_a_database_that_the_bench_did_not_make_is_left_alone():
    with connection._nodb_cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS bench_301")
        cursor.execute("CREATE DATABASE bench_301")
    try:
        done = bench("--size", 301)
        assert done.returncode == 1
        assert "did not make" in done.stderr
        assert "bench_301" in databases()
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute("DROP DATABASE bench_301")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(["--size", "9"], "--size 9", id="too small"),
        pytest.param(["--queries", "0"], "--queries 0", id="no queries"),
        pytest.param(["--json", "nowhere/at/all.json"], "there is no folder", id="no folder"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(arguments, reason):
    done = bench(*arguments)
    assert done.returncode == 2
    assert reason in done.stderr

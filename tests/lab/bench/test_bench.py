"""The whole bench at small sizes: its engine agrees with its peers, and nothing is left behind."""

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from lab.bench.metrics import METRICS
from lab.bench.peers import PEERS
from lab.bench.query_log import KINDS

pytestmark = pytest.mark.release


def databases():
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        return {row[0] for row in cursor.fetchall()}


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "lab.bench", *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.django_db
def test_bench_measures_everything_and_leaves_no_database(tmp_path):
    done = bench("--size", 300, "--queries", len(KINDS), "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert "### 300 memories" in done.stdout
    report = json.loads((tmp_path / "figures.json").read_text())
    size = report["sizes"]["300"]
    # DuckDB may not be installed; then the report says so.
    assert size["peers"].keys() | size["unavailable"].keys() == PEERS.keys()
    assert size["unavailable"].keys() <= {"duckdb"}
    assert size["engine"] == "tantivy"
    assert list(size["figures"]) == list(METRICS)
    missing = [name for name, value in size["figures"].items() if value is None]
    assert all(size["unavailable"] and "duckdb" in name for name in missing)
    for name, peer in size["peers"].items():
        after = ["after_change"] if name in {"postgres", "tantivy"} else []
        assert list(peer["latency"]) == [*KINDS, *after, "keyword", "mixed"]
        assert peer["queries"] == len(KINDS)
        assert peer["load"]["memories"] == 300
        for latency in peer["latency"].values():
            assert 0 < latency["search"]["p50_ms"] <= latency["search"]["max_ms"]
            assert 0 < latency["explore"]["p50_ms"] <= latency["explore"]["max_ms"]
        if name == size["engine"]:
            assert peer["latency"]["mixed"]["page"]["n"] > 0
            continue
        assert peer["ratio"]["mixed"]["queries"] == len(KINDS)
        agreed = peer["agreement"]
        assert agreed["totals_filters"] == agreed["of_filters"] > 0
        assert agreed["totals_words"] == agreed["of_words"] > 0
        if name == "tantivy-engine":  # ids and numbers only
            continue
        assert agreed["counts_equal"] == agreed["of_counts"] > 0
        assert agreed["pages_equal"] == agreed["of_pages"] > 0
    assert "bench_300" not in databases()
    assert not list((settings.HOME / "lab").glob("300-*"))


@pytest.mark.django_db
def test_keyword_hybrid_and_unified_search_are_measured(tmp_path):
    done = bench("--meaning", 1_000, "--queries", 30, "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert "### Keyword, hybrid and unified search, 1,000 memories" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())["meaning"]["1000"]
    assert figures["memories"] == 1_000
    assert figures["chunks"] >= 1_000
    assert figures["relationships"] > 0
    assert figures["legs_left_out"] == 0
    assert list(figures["latency"]) == ["keyword", "hybrid", "unified"]
    assert list(figures["tools"]) == ["search", "timeline", "get_observations"]
    for latency in figures["latency"].values():
        assert latency["n"] == figures["queries"] > 0
        assert 0 < latency["p50_ms"] <= latency["max_ms"]
    assert "bench_meaning_1000" not in databases()


@pytest.mark.django_db
def test_kept_data_is_not_loaded_again_and_removed_by_the_next_run_without_keep():
    arguments = ("--size", 302, "--queries", len(KINDS), "--peer", "sqlite")
    try:
        first, second = (bench(*arguments, "--keep") for _ in range(2))
        assert first.returncode == second.returncode == 0, first.stderr + second.stderr
        assert "loading sqlite" in first.stderr
        assert "loading" not in second.stderr
        assert "opening postgres" in second.stderr
        assert "bench_302" in databases()
    finally:
        last = bench(*arguments)
    assert "loading postgres" in last.stderr
    assert "bench_302" not in databases()


@pytest.mark.django_db
def test_a_database_without_the_mark_of_the_bench_is_not_touched():
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
        pytest.param(["--budget", "0"], "--budget 0", id="no budget"),
        pytest.param(["--peer", "grep"], "invalid choice: 'grep'", id="unknown peer"),
        pytest.param(["--json", "nowhere/at/all.json"], "there is no folder", id="no folder"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_created(arguments, reason):
    done = bench(*arguments)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.django_db
def test_reads_of_categories_are_measured_and_leave_no_database(tmp_path):
    done = bench("--categories", 300, "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert "categories of 300 memories" in done.stdout
    measured = json.loads((tmp_path / "figures.json").read_text())["categories"]["300"]
    assert {(one["read"], one["by"]) for one in measured["reads"]} == {
        (read, by) for read in ("list", "category", "concepts") for by in ("tantivy", "postgres", "plain SQL")
    }
    assert len(measured["figures"]) == 18
    assert "bench_categories_300" not in databases()
    assert not list((settings.HOME / "lab").glob("categories-300-*"))

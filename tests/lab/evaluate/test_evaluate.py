"""A whole evaluation of a collection of twenty documents: it is right, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from lab.evaluate.runner import VARIATIONS, Variation, ranked_modes, sandbox_name, unread_variables

pytestmark = pytest.mark.release

OURS = Path(__file__).parent / "collection"
COMMAND = [sys.executable, "-m", "lab.evaluate"]
ENVIRONMENT = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}


def databases():
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        return {row[0] for row in cursor.fetchall()}


def nothing_is_left(folder):
    return sandbox_name(folder) not in databases() and not list(
        (settings.HOME / "lab").glob(sandbox_name(folder) + "*")
    )


def evaluate(folder, *arguments):
    return subprocess.run(
        [*COMMAND, str(folder), *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path):
    """A copy of the collection, which gets a database of its own."""
    return Path(shutil.copytree(OURS, tmp_path / "Kitchen & garden"))


@pytest.mark.django_db
def test_every_mode_and_baseline_is_measured_and_nothing_is_left(folder, tmp_path):
    # A title that the import refuses, a memory that another one supersedes, and a query that the API refuses.
    with (folder / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "odd-1", "title": "long " * 300, "text": "words"}) + "\n")
        gone = {"state": "superseded", "superseded_by": "tea-1"}
        file.write(json.dumps({"_id": "odd-2", "title": "Green tea", "text": "water", "record": gone}) + "\n")
    with (folder / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "q7", "text": "kettle " * 2_000}) + "\n")
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write("q7\ttea-4\t1\n")
    done = evaluate(folder, "--json", tmp_path / "figures.json")
    assert done.returncode == 0, done.stderr
    assert nothing_is_left(folder)

    report = json.loads((tmp_path / "figures.json").read_text())
    assert (report["documents"], report["queries"], report["judgements"]) == (22, 6, 11)
    rows = {row["kind"]: row for row in report["rows"]}
    assert list(rows) == ["bm25", "cosine", "fusion", *ranked_modes()]
    for kind, row in rows.items():
        assert row["ids"].keys() == {"q1", "q2", "q3", "q4", "tea-3", "q7"}
        # The query that is a document does not find itself.
        assert "tea-3" not in row["ids"]["tea-3"]
        assert 0 < row["scores"]["ndcg_10"] < 1, kind

    keyword = rows["keyword"]
    assert "odd-2" in rows["bm25"]["ids"]["q1"]
    assert "odd-2" not in keyword["ids"]["q1"]
    # A phrase or a word; a word after a colon, and an excluded word.
    assert set(keyword["ids"]["q2"]) == {"bread-3", "garden-4"}
    assert keyword["ids"]["q3"] == ["bike-1"]
    assert keyword["by_query"]["q3"] == {
        "ndcg_10": pytest.approx(0.760188),
        "recall_10": 0.5,
        "recall_100": 0.5,
        "mrr_10": 1,
    }
    assert keyword["ids"]["q4"] == []
    assert keyword["engines"] == {"tantivy": 5}
    assert list(keyword["errors"].values()) == [["q7"]]
    assert next(iter(keyword["errors"])).startswith("422: q: is 13,999 characters long")

    assert "| keyword" in done.stdout
    assert "- keyword, refused: 422: q: is 13,999 characters long" in done.stdout
    assert "- 1 document refused by the import and found by no mode: title: " in done.stdout
    assert "- 1 document (home-5) without title and text" in done.stdout


@pytest.mark.django_db
def test_kept_data_is_reused_and_removed_by_the_next_run_without_keep(folder):
    arguments = ("--modes", "keyword", "--baselines", "bm25", "--limit-queries", 3, "--keep")
    first, second = evaluate(folder, *arguments), evaluate(folder, *arguments, "--ablation")
    kept = sandbox_name(folder) in databases()
    last = evaluate(folder, "--modes", "none", "--baselines", "bm25")
    assert [done.returncode for done in (first, second, last)] == [0, 0, 0], first.stderr + second.stderr + last.stderr
    assert kept
    assert nothing_is_left(folder)
    assert ["importing" in done.stderr for done in (first, second, last)] == [True, False, False]
    # The figures are the same from loaded and from kept data, except the milliseconds.
    figures = [line.split("|")[1:6] for line in first.stdout.splitlines() if line.startswith(("| BM25", "| keyword"))]
    again = [line.split("|")[1:6] for line in second.stdout.splitlines() if line.startswith(("| BM25", "| keyword"))]
    assert [[cell.strip() for cell in row] for row in figures] == [[cell.strip() for cell in row] for row in again[:2]]
    assert "| keyword, postgres alone |" in second.stdout
    assert "Δ nDCG@10" in second.stdout
    assert "- 3 of 5 queries, drawn with the seed 7." in second.stdout


@pytest.mark.django_db
def test_an_interrupted_evaluation_leaves_nothing(folder):
    running = subprocess.Popen(
        [*COMMAND, str(folder), "--modes", "keyword", "--baselines", "bm25"],
        cwd=settings.BASE_DIR,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    log = settings.HOME / "lab" / sandbox_name(folder) / "server.log"
    while not log.exists() and time.monotonic() < until and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130
    assert "Interrupted: there is no table." in said
    assert nothing_is_left(folder)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(["--modes", "keywords"], "'keywords': write some of hybrid, semantic, keyword", id="unknown mode"),
        pytest.param(["--baselines", "grep"], "'grep': write some of bm25, cosine, fusion", id="unknown baseline"),
        pytest.param(["--modes", ""], "'': write some of", id="no mode"),
        pytest.param(["--limit-queries", "0"], "0: write a whole number, 1 or more", id="no queries"),
        pytest.param(["--json", "nowhere/at/all.json"], "there is no folder nowhere/at", id="no folder"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_created(arguments, reason):
    done = evaluate(OURS, *arguments)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "reading" not in done.stderr


def test_a_folder_that_is_not_a_collection_is_refused(tmp_path):
    done = evaluate(tmp_path)
    assert done.returncode == 1
    assert "has no file corpus.jsonl. A collection is a folder with corpus.jsonl, queries.jsonl" in done.stderr


def test_every_variation_changes_a_variable_that_a_setting_reads():
    assert unread_variables(VARIATIONS) == []
    assert unread_variables((Variation("slip", {"SEARCH_ENGIN": "postgres"}),)) == ["SEARCH_ENGIN"]

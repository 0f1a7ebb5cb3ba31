"""Timing of queries, budgets, and ratios over the queries that both participants ran."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from lab.bench.latency import Run, ratios, run_log, time_query
from lab.bench.metrics import METRICS
from lab.bench.peers.base import Answer
from lab.bench.query_log import KINDS, LogEntry, QueryLog
from search.query import SearchQuery

DOCS = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"


class Sleeper:
    """A participant that needs a fixed time for each answer."""

    about = differs = ""

    def __init__(self, name, seconds):
        self.name = name
        self.seconds = seconds
        self.asked = []

    def turn(self):
        return nullcontext()

    def answer(self, query, facets):
        self.asked.append((query.page, facets))
        time.sleep(self.seconds)
        return Answer(query.page, ())


def entry(page=1, kind="no_filter"):
    return LogEntry(kind, SearchQuery(page=page))


def a_run(seconds):
    run = Run()
    for place, (search, explore) in seconds.items():
        run.kinds[place] = "no_filter"
        run.samples[place] = {
            "search": search,
            "explore": explore,
            "facet_overhead": explore - search,
            "first_explore": explore,
        }
    return run


def test_query_runs_once_to_warm_up_and_once_measured():
    peer = Sleeper("quick", 0)
    samples, answer = time_query(peer.answer, entry(3).query, explore_first=True)
    assert peer.asked == [(3, True), (3, False), (3, True), (3, False)]
    assert answer.total == 3
    assert samples.keys() == {"search", "explore", "facet_overhead", "first_explore"}
    assert samples["facet_overhead"] == samples["explore"] - samples["search"]


@pytest.mark.django_db
def test_peer_stops_at_its_budget_and_the_index_runs_the_whole_log():
    log = QueryLog(tuple(entry(page) for page in range(1, 9)), (), ())
    peers = [Sleeper("tantivy", 0.002), Sleeper("slow", 0.01), Sleeper("quick", 0)]
    runs = run_log(log, 1, peers, "nobody", 0.1, lambda: None)
    assert len(runs["tantivy"].samples) == len(runs["quick"].samples) == 8
    # Four times ten milliseconds a query.
    assert 1 <= len(runs["slow"].samples) <= 3
    assert runs["slow"].spent >= 0.1


def test_ratio_is_of_the_queries_that_both_ran():
    ours = a_run({0: (0.001, 0.002), 1: (0.001, 0.002), 2: (0.5, 0.9)})
    theirs = a_run({0: (0.002, 0.010), 1: (0.002, 0.006)})
    mixed = ratios(ours, theirs)["mixed"]
    assert mixed["queries"] == 2
    assert mixed["search_p95"] == 2
    assert mixed["explore_p95"] == 5
    assert mixed["explore_p50"] == 3
    assert mixed["facet_overhead_p95"] == 8


def test_every_figure_and_every_kind_is_documented():
    text = DOCS.read_text()
    missing = [name for name in METRICS if f"`{name}`" not in text]
    missing += [label for label in KINDS.values() if label not in text]
    assert missing == []

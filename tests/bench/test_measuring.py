"""How seconds become figures: what counts of a slow query, budgets, and ratios over what both ran."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import measuring
from bench.figures import Samples, spread
from bench.measuring import Run, measure, ratio, run_log
from bench.naming import FIGURES
from bench.peers.base import Answer
from bench.query_log import KINDS, LogEntry, QueryLog
from search.query import SearchQuery

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


class Sleeper:
    """A participant that takes its time."""

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
        run.samples[place] = Samples([search], [explore], [explore - search], [explore])
    return run


def test_query_is_asked_once_to_warm_and_once_measured():
    peer = Sleeper("quick", 0)
    samples, answer = measure(peer.answer, entry(3), explore_first=True)
    assert peer.asked == [(3, True), (3, False), (3, True), (3, False)]
    assert answer.total == 3
    assert len(samples.explore) == len(samples.search) == len(samples.first_explore) == 1
    assert samples.overhead == [samples.explore[0] - samples.search[0]]


def test_what_is_slow_counts_the_first_time(monkeypatch):
    monkeypatch.setattr(measuring, "SLOW_SECONDS", 0.005)
    peer = Sleeper("slow", 0.01)
    samples, _ = measure(peer.answer, entry(), explore_first=False)
    assert peer.asked == [(1, False), (1, True)]
    assert samples.explore == samples.first_explore
    assert samples.search[0] >= 0.01


@pytest.mark.django_db
def test_who_has_spent_the_budget_takes_no_more_turns_and_the_index_runs_all():
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
    mixed = ratio(ours, theirs)["mixed"]
    assert mixed.queries == 2
    assert mixed.search_p95 == 2
    assert mixed.explore_p95 == 5
    assert mixed.explore_p50 == 3
    assert mixed.facet_overhead_p95 == 8


def test_ratio_to_nothing_is_none():
    ours = a_run({0: (0.002, 0.001)})
    theirs = a_run({0: (0.001, 0.002)})
    assert ratio(ours, theirs)["mixed"].facet_overhead_p95 is None
    assert ratio(ours, Run()) == {}


def test_percentiles_are_values_that_were_measured():
    found = spread([n / 1_000 for n in range(1, 101)])
    assert (found.n, found.p50_ms, found.p95_ms, found.p99_ms, found.max_ms) == (100, 50, 95, 99, 100)
    assert spread([]) is None


def test_every_figure_and_every_kind_is_documented():
    text = DOCS.read_text()
    missing = [name for name in FIGURES if f"`{name}`" not in text]
    missing += [label for label in KINDS.values() if label not in text]
    assert missing == []

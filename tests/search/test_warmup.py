"""Warming up a process when it starts."""

import logging
import threading

from search import baseline_counts as kept_counts
from search import warmup
from search.engines.index import follower
from search.engines.index.engine import IndexEngine
from search.engines.index.segments import Segment
from search.query import SearchQuery
from search.run import run
from web.cache import clear_caches


def test_corpus_is_counted_before_anybody_asks(corpus, everyone, monkeypatch):
    clear_caches()
    warmup.warm()
    monkeypatch.setattr(kept_counts, "CorpusView", None)
    assert run(SearchQuery(include_facets=True), everyone).total == 14


def test_bitmaps_are_made_before_a_large_set_is_counted(memories, monkeypatch):
    follower.catch_up()
    made = threading.Event()
    monkeypatch.setattr(Segment, "make_bitmaps", lambda self: made.set())
    IndexEngine().warm_up()
    # Not for a few memories.
    assert not made.is_set()
    monkeypatch.setattr("search.engines.index.counts._WORTH_BITMAPS", 1)
    IndexEngine().warm_up()
    assert made.wait(10)


def test_nothing_is_made_ready_where_another_engine_has_to_answer(memories, monkeypatch):
    clear_caches()
    monkeypatch.setattr(kept_counts, "CorpusView", None)
    # There is no index yet.
    warmup.warm()


def test_what_fails_is_left_to_the_first_visitor_and_told(db, monkeypatch, caplog):
    def fail():
        raise RuntimeError("no luck")

    monkeypatch.setattr(warmup, "warm", fail)
    with caplog.at_level(logging.ERROR):
        warmup.warm_in_background()
        for thread in threading.enumerate():
            if thread.name == "warming":
                thread.join(10)
    assert "will be slower" in caplog.text

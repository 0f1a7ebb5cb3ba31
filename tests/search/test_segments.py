"""The columns of the derived index: narrow types, and the same counts in every way of counting."""

from datetime import UTC, datetime

import numpy as np
import pytest

from access.viewer import command_viewer
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines.index import follower
from search.engines.index.engine import IndexEngine
from search.engines.index.segments import (
    MULTIPLE,
    Bitmaps,
    Dictionary,
    IndexRow,
    SegmentBuilder,
    bitmap_of,
    merge_segments,
)
from search.engines.index.store import values_at
from search.plan import resolve_query
from search.query import SearchQuery

NOW = datetime(2025, 6, 1, tzinfo=UTC)


def row(number, *tags):
    """A memory with some tags, and nothing else that differs."""
    multiple = tuple(tags if name == "tag" else () for name in MULTIPLE)
    return IndexRow(number, (1, "note", "", "git", 7, "active"), multiple, number, number, f"Title {number}", number)


def segment_of(rows, first=0, dictionary=None):
    builder = SegmentBuilder(first, dictionary or Dictionary())
    for one in rows:
        builder.add(one)
    return builder.build()


def test_codes_take_as_few_bytes_as_they_fit_into():
    few = segment_of([row(1, "a", "b")])
    many = segment_of([row(1, *(f"tag {n}" for n in range(300)))])
    assert (few.arrays["tag.values"].dtype, many.arrays["tag.values"].dtype) == (np.uint8, np.uint16)
    assert few.arrays["source"].dtype == np.uint8


def test_segments_of_different_widths_become_one():
    dictionary = Dictionary()
    narrow = segment_of([row(1, "a", "b")], dictionary=dictionary)
    wide = segment_of([row(2, "a", *(f"tag {n}" for n in range(300)))], first=1, dictionary=dictionary)
    both = merge_segments([narrow, wide], np.ones(2, np.bool_))
    assert both.arrays["tag.values"].dtype == np.uint16
    counts = both.count("tag", np.ones(2, np.bool_), np.arange(2), len(dictionary.values["tag"]))
    assert [int(counts[dictionary.codes["tag"][tag]]) for tag in ("a", "b", "tag 299")] == [2, 1, 1]


@pytest.mark.parametrize(
    "shared", [pytest.param(1, id="all shared"), pytest.param(3, id="some"), pytest.param(99, id="all rare")]
)
def test_rare_and_shared_values_add_up(shared, monkeypatch):
    monkeypatch.setattr("search.engines.index.segments._SHARED", shared)
    segment = segment_of([row(1, "a", "b"), row(2, "a"), row(3, "a", "c"), row(4), row(5, "b")])
    bitmaps = Bitmaps(*(segment.arrays[f"tag.{name}"] for name in ("keys", "starts", "rows")), segment.size)
    mask = np.array([True, True, True, True, False])
    counts = np.zeros(4, np.int64)
    bitmaps.count_rare(mask, counts)
    for code, rows in bitmaps.by_code.items():
        counts[code] += bitmap_of(np.flatnonzero(mask)).intersection_cardinality(rows)
    # No tag; a, b and c.
    assert counts.tolist() == [1, 3, 1, 1]


@pytest.fixture
def three_days(db, index, settings, monkeypatch):
    """Memories of three days, each day in a segment of its own."""
    settings.SEARCH_ENGINE = "tantivy"
    # Neighbouring segments are merged only if they are smaller than this.
    monkeypatch.setattr("search.engines.index.follower.SEGMENT_ROWS", 0)
    for day, number in ((1, 2), (2, 1), (3, 3)):
        for n in range(number):
            record = MemoryRecord(
                content=f"Day {day}, {n}.", created_at=datetime(2025, 5, day, 12, tzinfo=UTC), project="p"
            )
            memory_create(record=record, viewer=command_viewer())
        follower.catch_up()


def days_between(first, last):
    """The counts by day between two dates."""
    engine = IndexEngine()
    query = SearchQuery(date_from=first, date_to=last)
    plan = resolve_query(engine, query, command_viewer(), NOW).plan
    counted = engine.counts(plan, [], zone=UTC, now=NOW)
    return [(day.day, every, inside) for day, every, inside in counted.days.listed()]


def test_days_are_those_of_the_dates_asked_for_now(three_days):
    assert days_between("2025-05-01", "2025-05-01") == [(1, 2, 2), (2, 1, 0), (3, 3, 0)]
    assert days_between("2025-05-02", "2025-05-03") == [(1, 2, 0), (2, 1, 1), (3, 3, 3)]
    memory_create(
        record=MemoryRecord(content="Late.", created_at=datetime(2025, 5, 2, tzinfo=UTC), project="p"),
        viewer=command_viewer(),
    )
    follower.catch_up()
    assert days_between("2025-05-01", "2025-05-01") == [(1, 2, 2), (2, 2, 0), (3, 3, 0)]


def test_columns_are_read_in_any_order(three_days):
    view = IndexEngine()._view
    assert len(view.segments) == 3
    every = values_at(view, "id", np.arange(view.manifest.size))
    assert values_at(view, "id", np.array([5, 0, 3])).tolist() == [every[5], every[0], every[3]]
    assert values_at(view, "id", np.array([], np.int64)).tolist() == []

"""Bitmaps give the same counts as counting row by row."""

import numpy as np
import pytest

from search.engines.index import segments as made_of
from search.engines.index.counts import _BitmapCounts
from search.engines.index.segments import Bitmaps, bitmap_of, by_value, is_shared

SIZE = 70_000
# Rows per value: of rare ones, and of those with bitmaps.
LENGTHS = [1, 2, 15, 16, 40, 149, 150, 900, 1_401, 3_000, 4_375, 4_376, 30_000, SIZE]


def column():
    """The rows of values with the codes 0, 3, 6 and so on, as a segment has them."""
    drawn = np.random.default_rng(11)
    rows = [np.sort(drawn.choice(SIZE, length, replace=False)).astype(np.uint32) for length in LENGTHS]
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    return np.arange(len(LENGTHS), dtype=np.uint32) * 3, starts, np.concatenate(rows), rows


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(0.0, id="none"),
        pytest.param(0.0002, id="a handful"),
        pytest.param(0.03, id="some"),
        pytest.param(0.2, id="many"),
        pytest.param(0.97, id="nearly all"),
        pytest.param(1.0, id="all"),
    ],
)
def test_every_value_is_counted_as_one_by_one(share):
    keys, starts, joined, rows = column()
    bitmaps = Bitmaps(keys, starts, joined, SIZE)
    mask = np.random.default_rng(5).random(SIZE) < share
    naive = {code: int(mask[own].sum()) for code, own in zip(keys.tolist(), rows, strict=True)}
    chosen = bitmap_of(np.flatnonzero(mask))
    assert len(chosen) == int(mask.sum())
    assert {code: chosen.intersection_cardinality(of) for code, of in bitmaps.by_code.items()} == {
        code: naive[code] for code, length in zip(keys.tolist(), LENGTHS, strict=True) if length >= 150
    }
    assert rare_counts(bitmaps, mask) == {
        code: naive[code] for code, length in zip(keys.tolist(), LENGTHS, strict=True) if length < 150
    }


def rare_counts(bitmaps, mask):
    """The counts of the values without bitmaps."""
    counted = np.zeros(3 * len(LENGTHS), np.int64)
    bitmaps.count_rare(mask, counted)
    assert not counted[bitmaps.codes].any()
    return {code: int(counted[code]) for code in range(0, 3 * len(LENGTHS), 3) if code not in bitmaps.by_code}


@pytest.mark.parametrize("share", [0.0, 0.0002, 0.002, 0.03, 0.2, 1.0])
def test_in_a_large_segment_values_need_as_large_a_share_of_the_rows_for_a_bitmap(share, monkeypatch):
    # As a segment of twenty million rows has them.
    monkeypatch.setattr(made_of, "_SHARED_OF", 3_500)
    keys, starts, joined, rows = column()
    bitmaps = Bitmaps(keys, starts, joined, SIZE)
    assert len(bitmaps.by_code) == 5
    mask = np.random.default_rng(5).random(SIZE) < share
    naive = {code: int(mask[own].sum()) for code, own in zip(keys.tolist(), rows, strict=True)}
    rare = rare_counts(bitmaps, mask)
    assert len(rare) == 9
    assert rare == {code: naive[code] for code in rare}


def test_bitmaps_are_made_where_they_cover_a_third_of_the_values(monkeypatch):
    starts = np.array([0, 100, 200, 400])
    assert is_shared(starts, SIZE)
    assert not is_shared(np.array([0, 100, 200, 300, 500, 600, 700]), SIZE)
    monkeypatch.setattr(made_of, "_SHARED_OF", 50_000)
    assert not is_shared(starts, SIZE)


def test_a_column_of_one_value_each_is_laid_out_by_value():
    keys, starts, rows = by_value(np.array([2, 0, 2, 5, 0], np.uint8))
    assert (keys.tolist(), starts.tolist(), rows.tolist()) == ([0, 2, 5], [0, 2, 4, 5], [1, 4, 0, 2, 3])


@pytest.mark.parametrize("share", [0.0002, 0.03, 0.5, 1.0])
def test_the_largest_counts_are_those_of_counting_row_by_row(share):
    keys, starts, joined, rows = column()
    # Code 0 is no value.
    keys = keys + 1
    bitmaps = Bitmaps(keys, starts, joined, SIZE)
    mask = np.random.default_rng(7).random(SIZE) < share
    values = [f"{(7 * code) % 31:02}" for code in range(3 * len(LENGTHS) + 1)]
    naive = np.zeros(len(values), np.int64)
    for code, own in zip(keys.tolist(), rows, strict=True):
        naive[code] = int(mask[own].sum())
    rare = np.zeros(len(values), np.int64)
    bitmaps.count_rare(mask, rare)
    by_bitmaps = _BitmapCounts([(bitmap_of(np.flatnonzero(mask)), bitmaps)], rare)
    ordered = sorted((code for code in keys.tolist() if naive[code]), key=lambda code: (-naive[code], values[code]))
    for limit in range(len(LENGTHS) + 2):
        found = by_bitmaps.top(limit, values)
        assert [code for code in found if naive[code]] == ordered[:limit]
        # All values are rare.
        alone = _BitmapCounts([], naive).top(limit, values)
        assert sorted(alone, key=lambda code: (-naive[code], values[code])) == ordered[:limit]
    assert by_bitmaps.distinct() == len(ordered)

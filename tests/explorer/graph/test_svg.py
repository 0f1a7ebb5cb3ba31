"""Positions of nodes are stable, apart from each other, and inside of the drawing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from explorer.graph.svg import MARGIN, ROW, lay_out


@given(st.integers(0, 59))
def test_names_of_a_side_are_a_row_apart_and_inside(count):
    layout = lay_out(range(count))
    assert layout == lay_out(range(count))
    assert len(layout.spots) == count
    for is_left in (False, True):
        side = sorted(spot.y for spot in layout.spots.values() if spot.is_left is is_left)
        assert all(lower - upper >= ROW - 0.2 for upper, lower in pairwise(side))
        assert all(MARGIN <= y <= layout.height - MARGIN for y in side)
    assert all(20 <= spot.x <= 80 for spot in layout.spots.values())


def test_strongest_are_at_the_top_right_and_go_round_like_the_hours():
    spots = lay_out("abcdef").spots
    assert [key for key in "abcdef" if not spots[key].is_left] == ["a", "b", "c"]
    assert spots["a"].y < spots["b"].y < spots["c"].y
    assert spots["d"].y > spots["e"].y > spots["f"].y


def test_second_step_stands_outside_next_to_what_it_hangs_on():
    layout = lay_out("ab", [("z", "a"), ("y", "b"), ("x", "a")])
    assert [key for key in layout.spots if key in "xyz"] == ["z", "x", "y"]
    assert abs(layout.spots["x"].x - 50) > abs(layout.spots["a"].x - 50)

"""Positions of nodes are stable, apart from each other, and inside of the drawing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from categories.queries import Term
from explorer.graph.labels import AroundRequest
from explorer.graph.neighbourhood import Edge, Neighbourhood, NodeLink, NodeNeighbour
from explorer.graph.svg import MARGIN, ROW, Spot, lay_out, line_path, strongest


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


def test_lines_go_round_the_name_in_the_middle():
    middle = Spot(50, 220, is_left=False)
    left, right = Spot(24, 230, is_left=True), Spot(77, 200, is_left=False)
    assert line_path(middle, left, middle) == "M50 220L24 230"
    assert line_path(Spot(70, 80, is_left=False), right, middle) == "M70 80L77 200"
    begin, bend = line_path(left, right, middle).split("Q")
    x, y, end = bend.split(" ", 2)
    assert (begin, x, end) == ("M24 230", "50", "77 200")
    # Lines that differ by little stay in the order of their ends, above or below.
    lower = float(line_path(Spot(24, 236, is_left=True), right, middle).split("Q")[1].split()[1])
    assert float(y) < lower < 220 - 56
    assert float(line_path(Spot(24, 250, is_left=True), right, middle).split("Q")[1].split()[1]) > 220 + 56


def test_drawing_has_the_twenty_strongest_by_type_and_their_lines():
    terms = {n: Term(n, f"n{n}", f"n{n}", ("tool", "person")[n % 2]) for n in range(31)}
    near = tuple(NodeNeighbour(terms[n], Edge(40 - n), 0) for n in range(1, 31))
    spokes = [NodeLink(0, n, Edge(40 - n)) for n in range(1, 31)]
    lines = (*spokes, NodeLink(2, 3, Edge(1)), NodeLink(3, 25, Edge(1)))
    around = Neighbourhood(terms[0], AroundRequest(), near, lines, (), 30, (), {})
    drawn = strongest(around)
    assert [one.term.id for one in drawn.drawn] == [*range(1, 21, 2), *range(2, 21, 2)]
    assert [(one.source, one.target) for one in drawn.lines] == [*((0, n) for n in range(1, 21)), (2, 3)]

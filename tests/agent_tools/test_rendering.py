"""Rows as text: TOON that is smaller than JSON and says the same, and budgets that are kept at whole rows."""

import json

import pytest
import toon_format

from agent_tools.rendering import OneLine, OutputOptions, encode, render_rows, render_tables
from tests.agent_tools.tokens import tokens
from text.formatting import estimated_tokens


def rows(n, **more):
    return [
        {"id": k, "title": f"Brew “{k}”, twice: slowly", "project": "tea", "seen": k % 2 == 0, **more} for k in range(n)
    ]


def shown(most=1_000, form="toon"):
    return OutputOptions(format=form, max_tokens=most)


@pytest.mark.parametrize("form", ["toon", "json"])
def test_both_forms_say_the_same(form):
    head = {"total": 3, "warnings": ["a: b", "c"], "facets": {"tags": {"a:b": 1, "12": 2}}}
    text = render_rows(head, "memories", rows(3), shown(form=form), str)
    decode = toon_format.decode if form == "toon" else json.loads
    assert decode(text) == {**head, "memories": rows(3)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a,b",
        'say "no"',
        "line\nline",
        "- a",
        "true",
        "null",
        "12",
        "1e5",
        "#",
        "a: b",
        "[1]",
        "{x}",
        "\t",
        "東京 🚢",
        "\\",
    ],
)
def test_any_text_comes_back_from_toon_as_it_was(text):
    data = {"memories": [{"id": 1, "title": text, "empty": None}, {"id": 2, "title": "x", "empty": None}]}
    assert toon_format.decode(encode(data, "toon")) == data


@pytest.mark.parametrize("form", ["toon", "json"])
@pytest.mark.parametrize("most", [200, 300, 500, 900])
def test_budget_is_kept_at_whole_rows_and_says_what_is_left_out(form, most):
    text = render_rows({"total": 90}, "memories", rows(90), shown(most, form), lambda n: f"go on at {n}")
    assert estimated_tokens(text) <= most
    told = toon_format.decode(text) if form == "toon" else json.loads(text)
    kept = len(told["memories"])
    assert told["memories"] == rows(90)[:kept]
    assert 0 < kept < 90
    assert told["left_out"] == f"{90 - kept} of 90 memories, for max_tokens={most}: go on at {kept}"
    assert list(told) == ["total", "left_out", "memories"]


def test_one_row_that_is_too_long_is_cut_inside_and_says_so():
    long = [{"id": 1, "content": "word " * 5_000}, {"id": 2, "content": "short"}]
    told = toon_format.decode(render_rows({}, "memories", long, shown(500), lambda n: f"go on at {n}"))
    assert [row["id"] for row in told["memories"]] == [1]
    assert told["memories"][0]["content"].endswith("…")
    assert told["left_out"].startswith("1 of 2 memories, and content of the first after ")
    assert told["left_out"].endswith(" of 25,000 characters, for max_tokens=500: go on at 1")


ROWS = [{"id": 1, "a": [], "b": None, "c": False}, {"id": 2, "a": ["x", "y, z"], "b": "", "c": False}]


@pytest.mark.parametrize(
    "render",
    [
        pytest.param(lambda options: render_rows({}, "rows", ROWS, options, str), id="rows"),
        pytest.param(lambda options: render_tables({}, {"rows": ROWS}, options, ""), id="tables"),
    ],
)
def test_json_has_lists_and_every_column_and_toon_a_table_of_those_in_use(render):
    assert json.loads(render(shown(form="json")))["rows"] == ROWS
    assert toon_format.decode(render(shown()))["rows"] == [{"id": 1, "a": ""}, {"id": 2, "a": "x, y, z"}]


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({"tea": 3}, id="one value"),
        pytest.param({"a, b": 2, "12": 1, "née 東": 7, "tool:crane": 4}, id="values that need quotes"),
        pytest.param({f"value {n}": 100 - n for n in range(50)}, id="fifty values"),
    ],
)
def test_facet_is_a_line_that_gives_its_counts_back_and_costs_no_more_than_json(counts):
    data = {"facets": {"tags": OneLine(counts)}}
    toon, compact = encode(data, "toon"), encode(data, "json")
    assert len(toon.splitlines()) == 2
    listed = [one.rpartition("=") for one in toon_format.decode(toon)["facets"]["tags"]]
    assert {name: int(count) for name, _, count in listed} == json.loads(compact)["facets"]["tags"] == counts
    assert tokens(toon) <= tokens(compact) + 2

"""The views of the results: list, compact, and a table with chosen columns."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from explorer.page_query import Column
from tests.explorer.contexts import context_of, hit
from tests.html import html_of


def headings(context):
    return [heading.label for heading in context.table.headings]


def test_results_are_a_list_unless_another_view_is_chosen():
    context = context_of()
    assert context.table is None
    assert [(view.label, view.url, view.current) for view in context.views] == [
        ("List", "/explore/", True),
        ("Compact", "/explore/?view=compact", False),
        ("Table", "/explore/?view=table", False),
        ("Map", "/explore/?view=map", False),
    ]


def test_the_table_has_the_chosen_columns_in_their_own_order():
    assert headings(context_of("view=table")) == ["Type", "Project", "Category", "Tags", "Created", "Number"]
    assert headings(context_of("view=table&column=number&column=agent&column=author")) == ["Authors", "Agent", "Number"]


def test_every_cell_has_the_values_of_its_memory():
    every = "&".join(f"column={column}" for column in Column)
    (row,) = context_of(f"view=table&{every}", hits=(hit(importance=0.5),)).table.rows
    shown = {cell.key: ([link.label for link in cell.links] or cell.text, cell.more) for cell in row.cells}
    assert shown == {
        "type": (["bugfix"], 0),
        "project": (["tea"], 0),
        "category": (["Oven"], 0),
        "tag": (["tea", "hot"], 0),
        "author": (["Mio", "Ben"], 1),
        "agent": (["codex"], 0),
        "source": (["git"], 0),
        "state": (["active"], 0),
        "importance": ("0.50", 0),
        "created": ("3 May 2026", 0),
        "updated": ("4 May 2026", 0),
        "recalled": ("never", 0),
        "number": ("#7", 0),
    }


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


@pytest.mark.django_db
@pytest.mark.parametrize("view", ["list", "compact", "table"])
def test_all_views_show_the_same_memories(reader, view):
    expected = re.findall(r'id="tick-(\d+)"', html_of(reader.get("/explore/?tag=kettle", follow=True)))
    shown = html_of(reader.get(f"/explore/?tag=kettle&view={view}", follow=True))
    assert re.findall(r'id="tick-(\d+)"', shown) == expected
    assert len(expected) == 2

"""The page and the API of tables of counts."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Project
from tests.html import html_of


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def cells(page):
    return re.findall(r'<a href="([^"]+)" aria-label="([^"]+)">[\d,]+</a>', page)


@pytest.mark.django_db
def test_each_cell_of_the_page_leads_to_as_many_memories(reader):
    page = html_of(reader.get("/explore/matrix/?rows=tag&columns=type&project=tea"))
    assert "<h1>Tags by type <small>8 memories</small></h1>" in page
    shown = cells(page)
    assert len(shown) == 10
    for url, name in shown:
        count = int(name.rpartition(": ")[2])
        assert re.search(rf"{count} memor(y|ies)", html_of(reader.get(url.replace("&amp;", "&")))), name


def called(querystring, **key):
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), **key).raw
    return Client(headers={"Authorization": f"Bearer {raw}"}).get(f"/api/matrix?{querystring}").json()


@pytest.mark.django_db
def test_the_api_has_the_numbers_of_the_page(corpus):
    reply = called("rows=tag&columns=type&project=tea&row_limit=2&column_limit=2", every_project=True)
    assert (reply["rows_of"], reply["columns_of"], reply["total"]) == ("tag", "type", 8)
    assert [(row["value"], row["count"]) for row in reply["rows"]] == [("tea", 4), ("guests", 2)]
    assert [(column["value"], column["count"]) for column in reply["columns"]] == [("note", 3), ("decision", 2)]
    assert (reply["cells"], reply["distinct_rows"], reply["distinct_columns"]) == ([[1, 2], [1, 1]], 6, 5)


@pytest.mark.django_db
def test_a_key_of_one_project_counts_its_memories_alone(corpus):
    boat = Project.objects.get(slug="boat")
    reply = called("rows=project&columns=date&bucket=year", projects=[boat])
    assert [(row["value"], row["count"]) for row in reply["rows"]] == [("boat", 6)]
    assert (reply["interval"], reply["cells"]) == ("year", [[3, 3]])
    assert [(period["value"], period["last"]) for period in reply["columns"]] == [
        ("2024-01-01", "2024-12-31"),
        ("2025-01-01", "2025-12-31"),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_api_names_what_makes_no_table(corpus):
    reply = called("rows=type&columns=type", every_project=True)
    assert reply["error"] == "invalid_query"
    assert "tag, concept, entity may be both" in reply["suggestion"]

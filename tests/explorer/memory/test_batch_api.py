"""Batches of memories by id, under both paths of the API."""

import json

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Memory, Project
from memories.queries import memory_details
from tests.corpus import RECORDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def ids(db, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)
    return dict(Memory.objects.exclude(external_id="").values_list("external_id", "pk"))


def caller_of(*slugs):
    named = {"projects": Project.objects.filter(slug__in=slugs)} if slugs else {"every_project": True}
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), **named).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


def fetched(caller, path="/api/memories/batch", status=200, **body):
    response = caller.post(path, body, content_type="application/json")
    assert response.status_code == status, response.content
    return response.json()


@pytest.mark.parametrize("path", ["/api/memories/batch", "/api/observations/batch"])
def test_memories_come_in_the_order_of_the_ids(ids, path):
    asked = [ids["b5"], ids["t1"], ids["b5"]]
    reply = fetched(caller_of(), path, ids=asked)
    assert [memory["external_id"] for memory in reply["memories"]] == ["b5", "t1"]
    assert (reply["missing"], reply["left_out"]) == ([], [])
    first = reply["memories"][0]
    assert first["content"].startswith("Check the crane.")
    assert [c["path"] for c in first["categories"]] == ["yard/dock", "yard/dock/crane"]
    assert [e["value"] for e in first["entities"]] == ["tool:crane", "tool:slings"]


def test_each_is_what_it_is_by_itself(ids):
    viewer = command_viewer()
    details = memory_details(viewer, ids.values())
    assert set(details) == set(ids.values())
    for pk, detail in details.items():
        alone = memory_details(viewer, [pk])[pk]
        assert [getattr(detail, name) for name in ("memory", "links", "backlinks", "supersedes", "superseded_by")] == [
            getattr(alone, name) for name in ("memory", "links", "backlinks", "supersedes", "superseded_by")
        ]
        assert (detail.categories, detail.concepts, detail.entities) == (
            alone.categories,
            alone.concepts,
            alone.entities,
        )
    assert [title.id for title in details[ids["t7"]].supersedes] == [ids["t6"]]
    assert details[ids["t6"]].superseded_by.id == ids["t7"]


def test_as_many_statements_for_many_as_for_one(ids):
    viewer = command_viewer()
    counts = []
    for asked in ([ids["b5"]], list(ids.values())):
        with CaptureQueriesContext(
            connection,
        ) as statements:
            memory_details(viewer, asked)
        counts.append(len(statements))
    assert counts[1] <= counts[0] + 1
    assert counts[1] <= 9


def test_order_and_limit(ids):
    caller = caller_of()
    asked = [ids["t1"], ids["b5"], ids["t7"]]
    newest = fetched(caller, ids=asked, orderBy="date_desc", limit=2)
    assert [memory["external_id"] for memory in newest["memories"]] == ["b5", "t7"]
    assert newest["left_out"] == [ids["t1"]]
    oldest = fetched(caller, ids=asked, order="oldest")
    assert [memory["external_id"] for memory in oldest["memories"]] == ["t1", "t7", "b5"]


def test_what_may_not_be_seen_is_missing_as_what_is_not_there(ids):
    reply = fetched(caller_of("boat"), ids=[ids["t1"], ids["b1"], 999_999])
    assert [memory["external_id"] for memory in reply["memories"]] == ["b1"]
    assert reply["missing"] == [ids["t1"], 999_999]
    narrowed = fetched(caller_of(), ids=[ids["t1"], f"#{ids['b1']}"], project="Tea")
    assert [memory["external_id"] for memory in narrowed["memories"]] == ["t1"]
    assert narrowed["missing"] == [ids["b1"]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({}, "ids: is missing", id="nothing asked"),
        pytest.param({"ids": []}, "ids: is empty", id="no ids"),
        pytest.param({"ids": ["first"]}, "'first' is not the id of a memory", id="no number"),
        pytest.param({"ids": [-1]}, "-1 is not the id of a memory", id="negative"),
        pytest.param({"ids": [True]}, "True is not the id of a memory", id="a switch"),
        pytest.param({"ids": [2**70]}, "is not the id of a memory", id="beyond any id"),
        pytest.param({"ids": list(range(1, 102))}, "has 101 ids; give at most 100", id="too many"),
        pytest.param({"ids": [1], "orderBy": "title"}, "'title' is not a sort order", id="order"),
        pytest.param({"ids": [1], "limit": 0}, "limit: ", id="limit"),
        pytest.param({"ids": [1], "projects": "tea"}, "projects: is not a field; did you mean project?", id="unknown"),
    ],
)
def test_what_cannot_be_read_is_named(ids, body, said):
    reply = fetched(caller_of(), status=422, **body)
    assert said in reply["detail"]


def test_key_that_may_not_read_is_refused(ids):
    raw = make_key(name="writer", scopes=["write"], every_project=True, viewer=command_viewer()).raw
    writer = Client(headers={"Authorization": f"Bearer {raw}"})
    assert fetched(writer, status=403, ids=[1])["error"] == "forbidden"

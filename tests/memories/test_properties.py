"""Aliases and own properties of notes, and columns that are no field: shown through every interface, and found."""

import json

import pytest
from django.db import connection
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.rendering import whole_memory
from curation.schemas import Retag
from curation.services import curation_apply
from memories.models import Memory, Project
from memories.properties import own_properties, property_words
from memories.queries import memory_details
from memories.records import MemoryChanges
from memories.services import memory_update
from transfer.formats.registry import importer_for
from transfer.run import ImportChoices, import_path

EVERYTHING = command_viewer()
NOTE = """---
tags: [bread]
aliases: [Roggenbrot, "<b>Rye</b>"]
role: head baker
rating: 5
vegan: true
metadata: {node_type: memory, oven: {kind: stone}}
token: AKIAIOSFODNN7EXAMPLQ
---
Bake it slowly."""


def imported(path, **choices):
    import_path(path=path, importer=importer_for(path), viewer=EVERYTHING, choices=ImportChoices("one", **choices))


@pytest.fixture
def rye(tmp_path, db):
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "Rye.md").write_text(NOTE)
    imported(tmp_path / "vault")
    return Memory.objects.get()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"content": "A.", "title": "B", "author": "C", "external_id": "x"}, {}),
        (
            {"role": "head baker", "n": 5, "is": False, "none": None, "": ""},
            {"role": ["head baker"], "n": ["5"], "is": ["no"]},
        ),
        ({"a": ["x", 1, None, ["y"]]}, {"a": ["x", "1", '["y"]']}),
        ({"a": {"b": 1, "c": {"d": 2}, "title": "x"}}, {"a.b": ["1"], "a.c": ['{"d": 2}']}),
        ({"vector": [0.5] * 384, "few": [0.5, 1]}, {"few": ["0.5", "1"]}),
        ({"long": "x" * 5_000}, {"long": ["x" * 2_000]}),
        ({"note_file": {"path": "a.md"}, "front_matter": {"status": "x"}, "observations": [{}]}, {}),
    ],
)
def test_what_a_record_says_besides_its_fields(data, found):
    assert own_properties(data) == found


@pytest.mark.parametrize("raw", [None, "{}", '"own_properties"', '["own_properties"]', '{"own_properties": 5}'])
def test_anything_may_stand_in_a_raw_record(raw):
    assert property_words(raw) == ()


def test_properties_are_shown_as_texts(rye, reader):
    (detail,) = memory_details(EVERYTHING, [rye.pk]).values()
    expected = {
        "aliases": ["Roggenbrot", "<b>Rye</b>"],
        "role": ["head baker"],
        "rating": ["5"],
        "vegan": ["true"],
        "metadata.node_type": ["memory"],
    }
    assert expected.items() <= dict(detail.properties).items()
    for address in (f"/m/{rye.pk}/", f"/m/{rye.pk}/?sel={rye.pk}"):
        page = reader.get(address).text
        assert "Also in the record" in page
        assert "<span>Roggenbrot</span>" in page
        assert "<span>&lt;b&gt;Rye&lt;/b&gt;</span>" in page
        assert "AKIAIOSFODNN7EXAMPLQ" not in page
    key = make_key(name="k", scopes=["read"], projects=(), every_project=True, viewer=EVERYTHING)
    reply = Client(headers={"Authorization": f"Bearer {key.raw}"}).get(f"/api/memories/{rye.pk}").json()
    assert reply["properties"]["role"] == ["head baker"]
    assert "aliases: Roggenbrot, <b>Rye</b>" in whole_memory(detail)["properties"]
    assert "AKIAIOSFODNN7EXAMPLQ" not in json.dumps(reply)


def test_columns_that_are_no_field_are_properties(tmp_path, db):
    path = tmp_path / "t.csv"
    path.write_text("Title,Text,Area,Rating\nOven,Bricks.,Kitchen floor,5\nTable,Wood.,,\n")
    imported(path, columns={"Area": "", "Rating": ""})
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    details = memory_details(EVERYTHING, ids)
    assert [dict(details[pk].properties) for pk in ids] == [{"Area": ["Kitchen floor"], "Rating": ["5"]}, {}]


def has_term(memory, word):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM memories_memory WHERE id = %s AND terms @@ %s::tsquery", [memory.pk, word])
        return cursor.fetchone()[0] == 1


def test_words_of_properties_stay_found_after_edits(rye):
    memory_update(memory_id=rye.pk, changes=MemoryChanges(content="Another text."), viewer=EVERYTHING)
    assert has_term(rye, "roggenbrot:C")
    Project.objects.create(slug="two", name="two", language="german")
    operation = Retag(memories=[rye.pk], set_project="two", add_tags=["oven"])
    curation_apply(operation=operation, viewer=EVERYTHING)
    assert has_term(rye, "roggenbrot:C")
    assert has_term(rye, "oven:B")

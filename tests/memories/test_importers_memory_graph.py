import pytest

from categories.models import Entity, Relationship
from memories.models import Memory
from tests.memories.foreign import found, write_json
from tests.memories.imports import batch_counts, last_batch, run
from transfer.formats.base import RefusedRecord

ANN = {
    "type": "entity",
    "name": "Ann Lee",
    "entityType": "person",
    "observations": ["Prefers oolong.", "Works at night."],
}
KETTLE = {"type": "entity", "name": "kettle", "entityType": "tool", "observations": []}
OWNS = {"type": "relation", "from": "Ann Lee", "to": "kettle", "relationType": "owns"}


def data(path):
    return [one.data for one in found(path, "mcp-memory")]


def test_observations_are_memories_of_their_entity(jsonl):
    person, oolong, night, tool, owns = data(jsonl(OWNS, ANN, KETTLE))
    assert person == {"record": "entity", "name": "Ann Lee", "type": "person"}
    assert oolong == {
        "source": "mcp-memory",
        "id": oolong["id"],
        "type": "observation",
        "content": "Prefers oolong.",
        "entities": [{"type": "person", "name": "Ann Lee"}],
    }
    assert night["content"] == "Works at night."
    assert tool["name"] == "kettle"
    assert owns == {
        "record": "relationship",
        "source": {"name": "Ann Lee", "type": "person"},
        "type": "owns",
        "target": {"name": "kettle", "type": "tool"},
    }


def test_the_answer_of_read_graph_gives_the_same(jsonl, tmp_path):
    bare = [{name: value for name, value in row.items() if name != "type"} for row in (ANN, KETTLE, OWNS)]
    graph = write_json(tmp_path / "graph", {"entities": bare[:2], "relations": bare[2:]}, indent=2)
    assert data(graph) == data(jsonl(ANN, KETTLE, OWNS))


def test_lines_that_are_neither_are_refused(jsonl):
    path = jsonl(ANN, {"type": "entity", "entityType": "x", "observations": []}, {"type": "note"}, '{"type": "ent')
    refused = [(one.location, one.reason) for one in found(path, "mcp-memory") if isinstance(one, RefusedRecord)]
    assert refused == [
        ("line 2", "is an entity without a name"),
        ("line 3", "is neither an entity nor a relation: its type is unknown"),
        ("line 4", "is not JSON: EOF while parsing a string at character 13"),
    ]


@pytest.mark.django_db
def test_the_graph_is_imported_and_imported_again(jsonl):
    path = jsonl(OWNS | {"to": "nobody"}, ANN, KETTLE)
    run(path)
    assert Memory.objects.count() == 2
    assert set(Entity.objects.values_list("entity_type", "name")) == {
        ("person", "Ann Lee"),
        ("tool", "kettle"),
        ("thing", "nobody"),
    }
    assert str(Relationship.objects.get()) == "person:Ann Lee owns thing:nobody"
    run(path)
    assert batch_counts(last_batch()) == (2, 0, 0, 2, 0)

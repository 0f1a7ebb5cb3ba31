import pytest

from categories.models import Relationship
from memories.models import Memory
from tests.memories.foreign import found, write_json
from tests.memories.imports import batch_counts, last_batch, run
from transfer.formats.base import RefusedRecord

EPISODE = {
    "uuid": "e-1",
    "name": "Order",
    "group_id": "tea-house",
    "labels": [],
    "created_at": "2025-05-02T10:00:00Z",
    "source": "message",
    "source_description": "chat",
    "content": "Ann: the usual oolong, please.",
    "valid_at": "2025-05-01T09:30:00Z",
    "entity_edges": ["f-1"],
}
ANN = {
    "uuid": "n-1",
    "name": "Ann Lee",
    "group_id": "tea-house",
    "labels": ["Entity", "Person"],
    "created_at": "2025-05-02T10:00:00Z",
    "name_embedding": [0.1, 0.2],
    "summary": "A regular guest.",
    "attributes": {},
}
OOLONG = ANN | {"uuid": "n-2", "name": "oolong", "labels": ["Entity"], "summary": ""}
FACT = {
    "uuid": "f-1",
    "group_id": "tea-house",
    "source_node_uuid": "n-1",
    "target_node_uuid": "n-2",
    "created_at": "2025-05-02T10:00:01Z",
    "name": "PREFERS",
    "fact": "Ann Lee prefers oolong.",
    "fact_embedding": [0.1, 0.2],
    "episodes": ["e-1"],
    "expired_at": "2025-09-01T00:00:00Z",
    "valid_at": "2025-05-01T09:30:00Z",
    "invalid_at": "2025-08-31T00:00:00Z",
    "attributes": {},
}
GRAPH = {"episodes": [EPISODE], "nodes": [ANN, OOLONG], "edges": [FACT]}
# The names that dumps of databases and older interfaces use.
OTHER_NAMES = {
    "facts": [{"id" if name == "uuid" else name: value for name, value in FACT.items()}],
    "entities": [ANN | {"labels": None, "label": "Person"}, OOLONG],
    "episodes": [{name if name != "content" else "episode_body": value for name, value in EPISODE.items()}],
}


@pytest.mark.parametrize("graph", [pytest.param(GRAPH, id="present"), pytest.param(OTHER_NAMES, id="older names")])
def test_episodes_entities_and_facts_are_read_in_any_order(tmp_path, graph):
    everything = found(write_json(tmp_path / "graph", graph), "graphiti")
    by_kind = {(one.data.get("record") or one.data["type"], one.data.get("name")): one for one in everything}
    assert len(everything) == 5
    assert by_kind["episode", None].data == {
        "source": "graphiti",
        "id": "e-1",
        "project": "tea-house",
        "created_at": "2025-05-02T10:00:00Z",
        "updated_at": "2025-05-02T10:00:00Z",
        "title": "Order",
        "type": "episode",
        "content": "Ann: the usual oolong, please.",
        "happened_at": "2025-05-01T09:30:00Z",
        "entities": [{"type": "Person", "name": "Ann Lee"}, {"type": "thing", "name": "oolong"}],
    }
    fact = by_kind["fact", None]
    assert fact.data["state"] == "superseded"
    assert (fact.data["valid_from"], fact.data["valid_to"]) == ("2025-05-01T09:30:00Z", "2025-08-31T00:00:00Z")
    assert fact.data["links"] == [{"rel": "from", "target": "e-1"}]
    assert "fact_embedding" not in fact.raw
    assert by_kind["entity", "Ann Lee"].data == {
        "record": "entity",
        "name": "Ann Lee",
        "type": "Person",
        "description": "A regular guest.",
        "projects": ["tea-house"],
    }
    assert by_kind["relationship", None].data == {
        "record": "relationship",
        "source": {"name": "Ann Lee", "type": "Person"},
        "type": "PREFERS",
        "target": {"name": "oolong", "type": "thing"},
        "fact": "Ann Lee prefers oolong.",
        "evidence": ["f-1"],
        "project": "tea-house",
        "valid_from": "2025-05-01T09:30:00Z",
        "valid_to": "2025-08-31T00:00:00Z",
    }


def test_summaries_of_communities_are_memories(tmp_path):
    community = {"uuid": "c-1", "name": "Guests", "group_id": "tea-house", "summary": "Those who come often."}
    _, one = found(write_json(tmp_path / "graph", {"nodes": [ANN], "communities": [community]}), "graphiti")
    assert (one.data["type"], one.data["title"], one.data["content"]) == (
        "community",
        "Guests",
        "Those who come often.",
    )


def test_a_fact_about_something_unknown_is_refused_and_the_rest_is_read(tmp_path):
    graph = {"edges": [FACT | {"target_node_uuid": "n-9"}, 7], "nodes": [ANN]}
    dangling, wrong, ann = found(write_json(tmp_path / "graph", graph), "graphiti")
    assert dangling == RefusedRecord("edges[0]", "is a fact about n-9, which is no entity of the file")
    assert wrong == RefusedRecord("edges[1]", "is no object")
    assert ann.data["name"] == "Ann Lee"


@pytest.mark.django_db
def test_a_fact_becomes_a_relationship_that_its_memory_is_evidence_of(tmp_path):
    path = write_json(tmp_path / "graph", GRAPH)
    run(path)
    relationship = Relationship.objects.get()
    assert (relationship.source.name, relationship.target.name) == ("Ann Lee", "oolong")
    assert relationship.evidence_ids == [Memory.objects.get(external_id="f-1").pk]
    assert Memory.objects.filter(project__slug="tea-house").count() == 2
    run(path)
    assert batch_counts(last_batch()) == (2, 0, 0, 2, 0)

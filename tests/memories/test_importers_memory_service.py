import pytest

from memories.models import Memory
from tests.memories.foreign import found, records, write_database, write_json
from tests.memories.imports import batch_counts, last_batch, link_targets, run

FIRST = """
CREATE TABLE memories (id INTEGER PRIMARY KEY, content_hash TEXT UNIQUE NOT NULL, content TEXT NOT NULL, tags TEXT,
    memory_type TEXT, metadata TEXT, created_at REAL, updated_at REAL, created_at_iso TEXT, updated_at_iso TEXT);
"""
PRESENT = (
    FIRST.replace(
        "updated_at_iso TEXT",
        "updated_at_iso TEXT, deleted_at REAL, parent_id TEXT, version INTEGER DEFAULT 1, confidence REAL DEFAULT 1.0,"
        " last_accessed INTEGER, superseded_by TEXT",
    )
    + """
CREATE TABLE memory_graph (source_hash TEXT, target_hash TEXT, similarity REAL, connection_types TEXT, metadata TEXT,
    created_at REAL, relationship_type TEXT DEFAULT 'related', PRIMARY KEY (source_hash, target_hash));
CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
)
KILN = {
    "id": 4,
    "content_hash": "aa11",
    "content": "Fire the kiln at dawn.",
    "tags": "kiln, proj:pots,Kiln",
    "memory_type": "decision/architecture",
    "metadata": '{"hostname": "desk", "quality": 0.4}',
    "created_at": 1_760_000_000.25,
    "updated_at": 1_760_000_100.5,
    "created_at_iso": "2025-10-09T08:53:20Z",
}
ASH = {"id": 5, "content_hash": "bb22", "content": "Ash glaze runs.", "metadata": "{}", "created_at": 1_760_000_200.0}
EDGES = [
    {"source_hash": "aa11", "target_hash": "bb22", "similarity": 0.7, "relationship_type": "causes"},
    {"source_hash": "bb22", "target_hash": "gone", "similarity": 0.5, "relationship_type": "related"},
]


def test_every_field_of_a_memory_has_its_place(tmp_path):
    later = {"parent_id": "aa11", "confidence": 0.5, "deleted_at": 1_760_000_300.0, "superseded_by": "aa11"}
    tables = {"memories": [KILN, ASH | later], "memory_graph": EDGES}
    by_id = records(write_database(tmp_path / "db", PRESENT, tables), "mcp-memory-service")
    assert by_id["aa11"].data == {
        "source": "mcp-memory-service",
        "id": "aa11",
        "type": "decision/architecture",
        "content": "Fire the kiln at dawn.",
        "tags": ["kiln", "proj:pots", "Kiln"],
        "created_at": 1_760_000_000.25,
        "updated_at": 1_760_000_100.5,
        "confidence": 1.0,
        "links": [{"rel": "causes", "target": "bb22"}],
    }
    assert by_id["aa11"].raw["metadata"] == {"hostname": "desk", "quality": 0.4}
    assert by_id["aa11"].raw["version"] == 1
    assert "content" not in by_id["aa11"].raw
    ash = by_id["bb22"].data
    assert (ash["state"], ash["superseded_by"], ash["confidence"]) == ("deleted", "aa11", 0.5)
    assert ash["links"] == [{"rel": "parent", "target": "aa11"}, {"rel": "related", "target": "gone"}]


def test_the_first_schema_is_read(tmp_path):
    by_id = records(write_database(tmp_path / "db", FIRST, {"memories": [KILN]}), "mcp-memory-service")
    assert by_id["aa11"].data["tags"] == ["kiln", "proj:pots", "Kiln"]
    assert "links" not in by_id["aa11"].data


EXPORTED = {
    "content": "Fire the kiln at dawn.",
    "content_hash": "aa11",
    "tags": ["kiln", "proj:pots"],
    "created_at": 1_760_000_000.25,
    "updated_at": 1_760_000_100.5,
    "memory_type": "decision/architecture",
    "metadata": {"hostname": "desk", "quality": 0.4},
    "export_source": "desk",
    "embedding": [0.1, 0.2],
}
BACKUP = {
    "id": "aa11",
    "document": "Fire the kiln at dawn.",
    "embedding": [0.1, 0.2],
    "metadata": {"tags": "kiln,proj:pots", "type": "decision/architecture", "timestamp": 1_760_000_000},
}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"export_metadata": {"source_machine": "desk"}, "memories": [EXPORTED]}, id="command line"),
        pytest.param({"export_date": "2026-01-01", "total_memories": 1, "memories": [EXPORTED]}, id="dashboard"),
        pytest.param({"timestamp": "2025-01-01", "total_memories": 1, "memories": [BACKUP]}, id="backup"),
    ],
)
def test_exports_and_backups_give_the_memories_of_the_database(tmp_path, document):
    (one,) = records(write_json(tmp_path / "export", document), "mcp-memory-service").values()
    assert (one.data["id"], one.data["content"]) == ("aa11", "Fire the kiln at dawn.")
    assert (one.data["type"], one.data["tags"]) == ("decision/architecture", ["kiln", "proj:pots"])
    assert int(one.data["created_at"]) == 1_760_000_000
    assert "embedding" not in one.raw


def test_a_row_that_is_no_object_is_refused(tmp_path):
    path = write_json(tmp_path / "export", {"memories": [EXPORTED, "x"]})
    assert [one.location for one in found(path, "mcp-memory-service")] == ["memories[0]", "memories[1]"]
    assert found(path, "mcp-memory-service")[1].reason == "is no object; a memory is one"


@pytest.mark.django_db
def test_edges_lead_to_memories_whatever_their_order(tmp_path):
    path = write_database(tmp_path / "db", PRESENT, {"memories": [KILN, ASH], "memory_graph": EDGES})
    run(path)
    assert link_targets() == [("causes", "bb22", "bb22"), ("related", "gone", None)]
    assert Memory.objects.get(external_id="aa11").tags == ["kiln", "proj:pots"]
    run(path)
    assert batch_counts(last_batch()) == (2, 0, 0, 2, 0)

import json
from datetime import UTC, datetime

from tests.memories.foreign import write_database
from tests.memories.test_importers_memory_service import ASH, KILN, PRESENT
from transfer.discover import discoveries


def test_known_places_are_looked_into_and_what_is_there_is_named(tmp_path):
    home = tmp_path / "home"
    database = home / ".local/share/mcp-memory/sqlite_vec.db"
    database.parent.mkdir(parents=True)
    write_database(database, PRESENT, {"memories": [KILN, ASH]})
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("---\ncreated: 2024-01-01\n---\nTea.")
    (home / ".basic-memory").mkdir()
    (notes / "within").mkdir()
    others = {"within": str(notes / "within"), "gone": str(tmp_path / "gone")}
    config = {"projects": {"main": {"path": str(notes)}} | others}
    (home / ".basic-memory/config.json").write_text(json.dumps(config))
    (home / ".claude/projects").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    service, markdown, transcripts = discoveries(home, {})
    assert (service.path, service.importer.name, service.memories) == (database, "mcp-memory-service", 2)
    assert (service.first, service.last) == (
        datetime(2025, 10, 9, 8, 53, 20, 250_000, tzinfo=UTC),
        datetime(2025, 10, 9, 8, 56, 40, tzinfo=UTC),
    )
    assert (markdown.importer.name, markdown.memories) == ("markdown", 1)
    assert transcripts.endswith("holds no Markdown files (*.md, *.markdown, *.mdc).")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_environment_that_names_places_is_followed(tmp_path):
    path = tmp_path / "graph"
    path.write_text(json.dumps({"type": "entity", "name": "Ann", "entityType": "person", "observations": ["x", "y"]}))
    (found,) = discoveries(tmp_path, {"MEMORY_FILE_PATH": str(path)})
    assert (found.importer.name, found.memories, found.first) == ("mcp-memory", 2, None)

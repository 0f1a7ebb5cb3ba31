import gzip
import json

import pytest

from tests.memories.foreign import found, records, write_json, write_zip
from transfer.formats.base import RefusedRecord

MEMORY = {
    "id": "0f3a",
    "memory": "Prefers oolong in the evening",
    "user_id": "ann",
    "agent_id": "barista",
    "run_id": "r-1",
    "app_id": "teahouse",
    "categories": ["food", "habits"],
    "metadata": {"tags": ["tea"], "source": "chat"},
    "created_at": "2025-07-01T10:00:00.123-07:00",
    "updated_at": "2025-07-02T10:00:00-07:00",
    "expiration_date": "2026-07-01",
    "hash": "d41d",
    "score": 0.3,
}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([MEMORY], id="list"),
        pytest.param({"results": [MEMORY]}, id="results"),
        pytest.param({"count": 1, "memories": [MEMORY]}, id="memories"),
        pytest.param(
            {"items": [{"data": MEMORY["memory"], **{k: v for k, v in MEMORY.items() if k != "memory"}}]}, id="data"
        ),
    ],
)
def test_a_memory_is_read_whatever_it_is_wrapped_in(tmp_path, document):
    (one,) = records(write_json(tmp_path / "export", document), "mem0").values()
    assert one.data == {
        "source": "mem0",
        "id": "0f3a",
        "content": "Prefers oolong in the evening",
        "project": "teahouse",
        "agent": "barista",
        "session": "r-1",
        "authors": ["ann"],
        "tags": ["tea"],
        "categories": ["food", "habits"],
        "created_at": "2025-07-01T10:00:00.123-07:00",
        "updated_at": "2025-07-02T10:00:00-07:00",
        "valid_to": "2026-07-01",
    }
    assert one.raw["metadata"] == {"tags": ["tea"], "source": "chat"}


def test_relations_of_the_graph_are_relationships(tmp_path):
    document = {"results": [MEMORY], "relations": [{"source": "ann", "relationship": "likes", "target": "oolong"}, {}]}
    _, likes, nothing = found(write_json(tmp_path / "export", document), "mem0")
    assert likes.data == {
        "record": "relationship",
        "source": {"name": "ann"},
        "type": "likes",
        "target": {"name": "oolong"},
    }
    assert nothing == RefusedRecord("relations[1]", "is a relation without both of its ends")


OPENMEMORY = {
    "user": {"id": "u-1", "user_id": "ann"},
    "apps": [{"id": "a-1", "name": "cursor"}],
    "categories": [{"id": "c-1", "name": "work"}],
    "memories": [
        {
            "id": "m-1",
            "user_id": "u-1",
            "app_id": "a-1",
            "content": "Deploys on Fridays",
            "metadata": {},
            "state": "paused",
            "created_at": "2025-06-01T00:00:00",
            "updated_at": "2025-06-01T00:00:00",
            "category_ids": ["c-1", "c-9"],
        }
    ],
    "memory_categories": [{"memory_id": "m-1", "category_id": "c-1"}],
    "status_history": [],
    "export_meta": {"version": "1"},
}
LINE = {"id": "m-1", "content": "Deploys on Fridays", "metadata": {}, "state": "paused", "app": "cursor"}


def test_openmemory_archives_and_their_lines_give_the_same(tmp_path):
    lines = json.dumps(LINE | {"created_at": "2025-06-01T00:00:00", "categories": ["work"]}) + "\n"
    packed = {"memories.json": OPENMEMORY, "memories.jsonl.gz": gzip.compress(lines.encode())}
    whole = records(write_zip(tmp_path / "openmemory", packed), "mem0")["m-1"]
    (tmp_path / "lines").write_bytes(packed["memories.jsonl.gz"])
    line = records(tmp_path / "lines", "mem0")["m-1"]
    assert whole.data == {
        "source": "openmemory",
        "id": "m-1",
        "content": "Deploys on Fridays",
        "agent": "cursor",
        "authors": ["ann"],
        "categories": ["work"],
        "created_at": "2025-06-01T00:00:00",
        "updated_at": "2025-06-01T00:00:00",
        "state": "archived",
    }
    assert line.data == {name: value for name, value in whole.data.items() if name != "authors"}


def test_a_row_without_a_text_is_refused_and_the_next_one_read(tmp_path):
    path = write_json(tmp_path / "export", [MEMORY, 7, MEMORY | {"id": "1"}])
    assert [type(one).__name__ for one in found(path, "mem0")] == ["SourceRecord", "RefusedRecord", "SourceRecord"]

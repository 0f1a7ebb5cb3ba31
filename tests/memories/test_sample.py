"""The sample that an empty database starts with: it loads without a refusal and has something of everything."""

import json
from datetime import datetime

import pytest

from categories.models import Category, Concept, Entity, Relationship
from config.management.commands import up
from memories.models import ImportBatch, Memory

RECORDS = [json.loads(line) for line in up.SAMPLE.read_text(encoding="utf-8").splitlines()]
MEMORIES = [record for record in RECORDS if "record" not in record]
NEWEST = sorted(MEMORIES, key=lambda memory: datetime.fromisoformat(memory["created_at"]), reverse=True)[:25]


@pytest.mark.django_db
def test_sample_is_loaded_whole():
    up.Command().load_sample()
    batch = ImportBatch.objects.get()
    assert (batch.state, batch.refused) == ("done", 0)
    assert Memory.objects.count() == len(MEMORIES) == 187
    assert set(Memory.objects.values_list("project__slug", flat=True)) == {"refuge", "lantern"}
    counts = [model.objects.count() for model in (Category, Concept, Entity, Relationship)]
    assert counts == [60, 58, 52, 60]


def test_first_page_shows_many_kinds_of_memories():
    assert len({memory["type"] for memory in NEWEST}) >= 8
    assert {memory["project"] for memory in NEWEST} == {"refuge", "lantern"}
    assert len({path.split("/")[0] for memory in NEWEST for path in memory.get("categories", [])}) >= 5
    assert all(memory.get("categories") and memory.get("entities") for memory in NEWEST[:10])


def test_references_of_the_sample_lead_to_its_own_memories():
    ids = {memory["id"] for memory in MEMORIES}
    assert len(ids) == len(MEMORIES)
    targets = {link["target"] for memory in MEMORIES for link in memory.get("links", []) if "url" not in link}
    targets |= {memory["superseded_by"] for memory in MEMORIES if memory.get("superseded_by")}
    assert targets <= ids
    named = {path for memory in MEMORIES for path in memory.get("categories", [])}
    assert named <= {record["path"] for record in RECORDS if record.get("record") == "category"}

import json
import zipfile

import pytest

from memories.models import Memory, MemoryLink
from tests.memories.foreign import found, records, write_zip
from tests.memories.imports import batch_counts, last_batch, run
from transfer.formats import hindsight
from transfer.formats.base import NotReadableError, RefusedRecord
from transfer.formats.registry import importer_for

MANIFEST = {"schema_version": 1, "source_bank_id": "tea-house", "exported_at": "2026-07-01T00:00:00Z"}
DOCUMENT = {
    "id": "order-1",
    "original_text": "Ann ordered oolong because the sencha was gone.",
    "retain_params": None,
    "tags": ["orders"],
    "created_at": "2026-05-02T10:00:00Z",
    "chunks": [{"chunk_index": 0, "chunk_text": "Ann ordered oolong because the sencha was gone."}],
    "facts": [
        {
            "text": "The sencha was gone.",
            "fact_type": "world",
            "context": "stock",
            "event_date": "2026-05-01T09:00:00Z",
            "occurred_start": None,
            "mentioned_at": "2026-05-02T10:00:00Z",
            "metadata": {"shelf": "3"},
            "tags": ["orders"],
            "chunk_index": 0,
            "entities": ["sencha"],
            "causal_relations": [],
        },
        {
            "text": "Ann ordered oolong.",
            "fact_type": "experience",
            "occurred_start": "2026-05-01T09:30:00Z",
            "occurred_end": "2026-05-01T09:31:00Z",
            "created_at": "2026-05-02T10:05:00Z",
            "tags": [],
            "entities": ["Ann Lee", "oolong"],
            "causal_relations": [
                {"relation_type": "caused_by", "target_fact_index": 0},
                {"relation_type": "caused_by", "target_fact_index": 9},
            ],
        },
    ],
}
OBSERVATION = {
    "text": "Guests switch to oolong.",
    "tags": ["orders"],
    "mentioned_at": "2026-05-03T00:00:00Z",
    "proof_count": 1,
    "sources": [{"document_id": "order-1", "fact_index": 1}],
}
OF_DOCUMENTS = {
    "documents/000000.json": DOCUMENT,
    "observations.json": [OBSERVATION],
    "manifest.json": MANIFEST,
}
OF_A_BANK = OF_DOCUMENTS | {
    "documents/000000.json": DOCUMENT
    | {"facts": [fact | {"source_id": f"unit-{number}"} for number, fact in enumerate(DOCUMENT["facts"])]},
    "observations.json": [OBSERVATION | {"source_id": "unit-9", "occurred_start": "0001-01-01T00:00:00Z"}],
    "manifest.json": MANIFEST | {"archive_type": "bank", "scope": {"data": True}, "invalidated_memory_count": 1},
    "data/invalidated_memory_units.json": [{"id": "unit-7", "text": "Ann hates tea.", "fact_type": "world"}],
    "mental_models.json": [
        {"id": "guests", "name": "Guests", "source_query": "Who comes?", "content": "Ann comes daily.", "tags": ["a"]},
        {"id": "older", "name": "Staff", "description": "Two work here.", "created_at": "2026-01-01T00:00:00Z"},
    ],
    "directives.json": [{"id": "d-1", "name": "Tone", "content": "Be kind.", "is_active": False}],
    "webhooks.json": [{"id": "w-1", "url": "https://hooks.example", "secret": "hidden"}],
    "knowledge_pages.json": [],
}


def test_documents_facts_and_observations_are_memories_that_lead_to_each_other(tmp_path):
    by_type = {
        one.data["type"]: one for one in records(write_zip(tmp_path / "bank", OF_DOCUMENTS), "hindsight").values()
    }
    assert list(by_type) == ["document", "world", "experience", "observation"]
    assert by_type["document"].data == {
        "source": "hindsight",
        "project": "tea-house",
        "id": "order-1",
        "type": "document",
        "tags": ["orders"],
        "content": "Ann ordered oolong because the sencha was gone.",
        "created_at": "2026-05-02T10:00:00Z",
        "updated_at": "2026-05-02T10:00:00Z",
    }
    gone, ordered = by_type["world"].data, by_type["experience"].data
    assert (gone["summary"], gone["happened_at"], gone["created_at"]) == (
        "stock",
        "2026-05-01T09:00:00Z",
        "2026-05-02T10:00:00Z",
    )
    assert gone["entities"] == [{"type": "thing", "name": "sencha"}]
    assert by_type["world"].raw["metadata"] == {"shelf": "3"}
    assert ordered["links"] == [{"rel": "from", "target": "order-1"}, {"rel": "caused_by", "target": gone["id"]}]
    assert by_type["experience"].notes == ("causal_relations: 9 is no fact of the document; it is left out",)
    assert by_type["observation"].data["links"] == [{"rel": "derived-from", "target": ordered["id"]}]


def test_a_bank_has_its_mental_models_and_directives_and_none_of_its_secrets(tmp_path):
    path = write_zip(tmp_path / "bank", OF_A_BANK)
    found_there = records(path, "hindsight")
    assert found_there["mental-model:guests"].data["content"] == "Ann comes daily."
    assert found_there["mental-model:older"].data["content"] == "Two work here."
    assert found_there["directive:d-1"].data["state"] == "archived"
    invalidated = found_there["fact:unit-7"].data
    assert (invalidated["content"], invalidated["state"]) == ("Ann hates tea.", "archived")
    observation = next(one.data for one in found_there.values() if one.data["type"] == "observation")
    assert "happened_at" not in observation
    assert "hooks.example" not in str(found_there)


def test_an_archive_that_was_unpacked_gives_the_same(tmp_path):
    packed = records(write_zip(tmp_path / "bank", OF_A_BANK), "hindsight")
    with zipfile.ZipFile(tmp_path / "bank") as archive:
        archive.extractall(tmp_path / "folder")
    assert {known_by: one.data for known_by, one in records(tmp_path / "folder", "hindsight").items()} == {
        known_by: one.data for known_by, one in packed.items()
    }


def test_a_fact_keeps_its_id_when_others_come_before_it(tmp_path):
    first = records(write_zip(tmp_path / "first", OF_DOCUMENTS), "hindsight")
    facts = [{"text": "It rained.", "fact_type": "world"}, *DOCUMENT["facts"], DOCUMENT["facts"][0]]
    later = OF_DOCUMENTS | {"documents/000000.json": DOCUMENT | {"facts": facts}}
    ids = list(records(write_zip(tmp_path / "later", later), "hindsight"))
    assert set(first) <= set(ids)
    assert ids[4] == f"{ids[2]}:2"


def test_an_archive_of_a_newer_schema_is_named(tmp_path):
    path = write_zip(tmp_path / "bank", OF_DOCUMENTS | {"manifest.json": MANIFEST | {"schema_version": 7}})
    with pytest.raises(NotReadableError, match=r"is an archive of hindsight of schema 7; schema 1 is read\."):
        importer_for(path).read(path, hindsight.Options())


def test_damaged_and_enormous_members_are_refused_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hindsight, "MAX_VALUE", 5_000)
    members = OF_DOCUMENTS | {
        "documents/000001.json": '{"id": "cut',
        "documents/000002.json": "[" * 3_000,
        "documents/000003.json": json.dumps({"id": "big", "original_text": "x" * 6_000}),
        "documents/000004.json": {"original_text": "no id"},
    }
    refused = [
        one for one in found(write_zip(tmp_path / "bank", members), "hindsight") if isinstance(one, RefusedRecord)
    ]
    assert [(one.location, one.reason[:40]) for one in refused] == [
        ("documents/000001.json", "is not JSON: Unterminated string startin"),
        ("documents/000002.json", "is not JSON: it is nested too deeply"),
        ("documents/000003.json", "has 6,034 bytes; up to 5,000 are read"),
        ("documents/000004.json", "is a document without an id"),
    ]


@pytest.mark.django_db
def test_importing_an_archive_again_changes_nothing(tmp_path):
    path = write_zip(tmp_path / "bank", OF_A_BANK)
    run(path)
    assert batch_counts(last_batch()) == (8, 8, 0, 0, 0)
    assert Memory.objects.filter(project__slug="tea-house").count() == 8
    assert MemoryLink.objects.filter(target_memory__isnull=True).count() == 0
    run(path)
    assert batch_counts(last_batch()) == (8, 0, 0, 8, 0)

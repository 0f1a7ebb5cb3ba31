import json

import pytest

from categories.models import Category, Concept
from memories.models import Memory, MemoryLink
from tests.memories.foreign import found
from tests.memories.imports import batch_counts, last_batch, run
from transfer.formats.base import NotReadableError, RefusedRecord
from transfer.formats.registry import importer_for

ROWS = [
    {"id": 2, "category": "Brewing", "description": "Hot water.", "parent_category_id": 1, "aliases": ["Steeping"]},
    {"id": 1, "category": "Tea", "description": "Leaves.", "parent_category_id": None, "aliases": []},
    {"id": 5, "name": "infusion", "summary": "Water with leaves.", "catalog_ids": [7], "synonyms": ["steep"]},
    {
        "id": 7,
        "source": "/books/manual.pdf",
        "title": "Tea manual",
        "summary": "How to brew.",
        "category_ids": [2],
        "category_names": ["Brewing"],
        "concept_names": ["infusion"],
        "authors": ["Ann Lee"],
        "year": 2019,
        "isbn": "",
    },
    {
        "id": 9,
        "catalog_id": 7,
        "catalog_title": "Tea manual",
        "text": "Rinse the leaves.",
        "concept_names": ["infusion"],
        "page_number": 12,
        "has_math": False,
        "vector": [0.1, 0.2],
    },
]

# The tables of the layout before: lists are JSON texts, documents have no titles, and there are no categories.
FORMER = [
    {
        "id": "1",
        "concept": "infusion",
        "concept_type": "thematic",
        "category": "brewing",
        "sources": '["/books/Tea manual.pdf"]',
        "related_concepts": '["tannin"]',
        "synonyms": '["steep"]',
        "broader_terms": "[]",
    },
    {
        "id": "0",
        "text": "How to brew.",
        "source": "/books/Tea manual.pdf",
        "loc": "{}",
        "concepts": '{"primary_concepts": ["infusion"], "technical_terms": ["cha qi"]}',
        "concept_categories": '["brewing"]',
    },
    {
        "id": "42",
        "text": "Rinse the leaves.",
        "source": "/books/Tea manual.pdf",
        "loc": '{"lines": {"from": 1, "to": 5}, "pageNumber": 12}',
        "concepts": '["infusion"]',
        "concept_ids": '["1"]',
        "concept_categories": '["brewing"]',
        "concept_density": 0.15,
    },
]


def lines(tmp_path, *rows):
    path = tmp_path / "tables"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_chunk_is_a_memory_with_its_page_and_its_document(tmp_path):
    *_, document, chunk = found(lines(tmp_path, *ROWS), "concept-rag")
    assert chunk.data == {
        "source": "concept-rag",
        "id": "chunk:9",
        "concepts": ["infusion"],
        "type": "passage",
        "title": "Tea manual, p. 12",
        "content": "Rinse the leaves.",
        "links": [{"rel": "from", "target": "catalog:7"}],
        "entities": [{"type": "document", "name": "Tea manual"}],
    }
    assert "vector" not in chunk.raw
    assert document.data["categories"] == ["Tea/Brewing"]
    assert (document.data["source_url"], document.data["happened_at"]) == ("/books/manual.pdf", "2019-01-01")


def test_tables_of_the_layout_before_give_the_same(tmp_path):
    concept, document, chunk = found(lines(tmp_path, *FORMER), "concept-rag")
    assert concept.data == {
        "record": "concept",
        "name": "infusion",
        "type": "thematic",
        "description": "",
        "aliases": ["steep"],
        "broader": [],
        "narrower": [],
        "related": ["tannin"],
    }
    assert document.data == {
        "source": "concept-rag",
        "id": "catalog:0",
        "concepts": ["infusion"],
        "type": "document",
        "title": "Tea manual",
        "content": "How to brew.",
        "summary": "How to brew.",
        "source_url": "/books/Tea manual.pdf",
        "categories": ["brewing"],
    }
    assert chunk.data == {
        "source": "concept-rag",
        "id": "chunk:42",
        "concepts": ["infusion"],
        "type": "passage",
        "title": "Tea manual, p. 12",
        "content": "Rinse the leaves.",
        "categories": ["brewing"],
        "links": [{"rel": "from", "target": "catalog:0"}],
        "entities": [{"type": "document", "name": "Tea manual"}],
    }


def test_rows_of_no_table_and_categories_that_are_each_others_parents_do_no_harm(tmp_path):
    cycle = [ROWS[0] | {"parent_category_id": 1}, ROWS[1] | {"parent_category_id": 2}]
    *_, other = found(lines(tmp_path, *cycle, {"id": 1}), "concept-rag")
    assert other == RefusedRecord("line 3", "is no row of a table of concept-rag")


@pytest.mark.django_db
def test_tables_are_imported_with_their_vocabulary(tmp_path):
    run(lines(tmp_path, *ROWS))
    assert batch_counts(last_batch()) == (2, 2, 0, 0, 0)
    assert set(Category.objects.values_list("name", flat=True)) == {"Tea", "Brewing"}
    assert Concept.objects.get(name="infusion").description == "Water with leaves."
    assert MemoryLink.objects.get().target_memory == Memory.objects.get(external_id="catalog:7")


def test_a_database_of_lancedb_is_refused_with_a_way_to_write_its_tables(tmp_path):
    for table in ("catalog", "chunks"):
        (tmp_path / f"{table}.lance" / "_versions").mkdir(parents=True)
    with pytest.raises(NotReadableError) as caught:
        importer_for(tmp_path)
    assert "is a LanceDB database with the tables catalog, chunks." in str(caught.value)
    assert "db = lancedb.connect(path)" in str(caught.value)

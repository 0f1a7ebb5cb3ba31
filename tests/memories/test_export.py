import gzip
import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from access.viewer import Viewer
from categories.models import FormerPath, Relationship, TagAlias
from memories.models import Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from memories.supersession import memory_supersede
from tests.memories.imports import EVERYTHING, LINKED, VOCABULARY, batch_counts, failing, last_batch, memories, run
from transfer.export import Selection, export_lines

pytestmark = pytest.mark.django_db

TABLES = {
    "memories_memory": "batch_id",
    "memories_memorylink": "",
    "memories_project": "batch_id created_at",
    "memories_session": "batch_id",
    "categories_category": "batch_id created_at",
    "categories_categorylink": "created_at",
    "categories_concept": "batch_id created_at",
    "categories_conceptlink": "created_at",
    "categories_entity": "batch_id created_at",
    "categories_entitylink": "created_at",
    "categories_relationship": "batch_id created_at",
    "categories_formerpath": "id",
    "categories_tagalias": "id",
}


def export(*args, **options):
    out = io.StringIO()
    call_command("export_memories", *map(str, args), stdout=out, stderr=io.StringIO(), **options)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def rows():
    """Every row of every table, without what belongs to the import itself."""
    everything = {}
    with connection.cursor() as cursor:
        for table, without in TABLES.items():
            # The hash of a term's own terms also depends on when projects with other languages were made.
            without = "".join(f" - '{name}'" for name in ("terms_hash", *without.split()))
            cursor.execute(f"SELECT (to_jsonb(t){without})::text FROM {table} t ORDER BY 1")
            everything[table] = [row[0] for row in cursor.fetchall()]
    return everything


def empty():
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in (*TABLES, "memories_importbatch", "access_auditevent"):
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute("SET LOCAL session_replication_role = origin")


@pytest.fixture
def filled(jsonl):
    """Imported, stored by a person, edited, superseded and deleted memories, with vocabulary of every kind."""
    run(jsonl(*VOCABULARY, *LINKED, *memories(5)[3:], {"content": "No id.", "extra": {"kept": [1, 2.5]}}))
    person = Viewer(None, frozenset({"read", "write"}), None)
    made = memory_create(
        record=MemoryRecord(
            content="By hand.",
            project="beta",
            categories=["Ops/Day shift"],
            entities=["tool:Redis"],
            concepts=[{"name": "caching", "weight": 0.25}],
            links=["m3"],
            created_at="2024-02-29",
        ),
        viewer=person,
    )
    later = memory_create(record=MemoryRecord(content="By hand again.", project="beta"), viewer=person)
    memory_supersede(memory_id=made.pk, by_id=later.pk, viewer=person, reason="Newer.")
    three, four = (Memory.objects.get(external_id=name).pk for name in ("m3", "m4"))
    memory_update(memory_id=three, changes=MemoryChanges(content="Edited.", tags=["new"]), viewer=person)
    memory_delete(memory_id=four, viewer=person, reason="Wrong.")
    category = Memory.objects.get(pk=made.pk).category_ids[0]
    FormerPath.objects.create(path="ops/day", category_id=category)
    TagAlias.objects.create(alias="t-three", tag="t3")
    connection.cursor().execute(
        "UPDATE categories_categorylink SET made_by = 'human', weight = 0.5 WHERE memory_id = %s", [made.pk]
    )
    return made


def test_an_export_makes_an_equal_instance(filled, tmp_path):
    path = tmp_path / "everything.jsonl.gz"
    export(path)
    before = rows()
    empty()
    run(path)
    after = rows()
    for table in TABLES:
        assert _numbered(after)[table] == _numbered(before)[table], table
    assert last_batch().refused == 0
    run(path)
    assert batch_counts(last_batch()) == (7, 0, 0, 7, 0)


def _numbered(everything):
    """Rows with the ids of vocabulary replaced by their names, since a copy draws new ones."""
    names = {}
    for table, name in (
        ("memories_project", "slug"),
        ("memories_session", "external_id"),
        ("categories_category", "path"),
        ("categories_concept", "name"),
        ("categories_entity", "name"),
    ):
        for text in everything[table]:
            row = json.loads(text)
            names[table, row["id"]] = row[name]
    columns = {
        "project_id": "memories_project",
        "session_id": "memories_session",
        "parent_id": "categories_category",
        **dict.fromkeys(("category_id", "category_ids", "category_path_ids"), "categories_category"),
        **dict.fromkeys(("concept_id", "concept_ids", "broader_ids", "narrower_ids"), "categories_concept"),
        **dict.fromkeys(("entity_id", "entity_ids", "source_id", "target_id"), "categories_entity"),
    }

    def named(table, row):
        for column, value in row.items():
            kind = columns.get(column) or (table if column == "related_ids" else None)
            if kind and isinstance(value, list):
                row[column] = sorted(names[kind, one] for one in value)
            elif kind and value is not None:
                row[column] = names[kind, value]
        if table != "memories_memory":
            row.pop("id", None)
        return row

    return {
        table: sorted(json.dumps(named(table, json.loads(text)), sort_keys=True) for text in texts)
        for table, texts in everything.items()
    }


def test_an_export_of_edited_memories_is_unchanged_where_it_comes_from_until_they_are_edited_again(filled, tmp_path):
    path = tmp_path / "everything.jsonl"
    export(path)
    run(path)
    assert batch_counts(last_batch()) == (7, 0, 0, 7, 0)
    memory_update(memory_id=filled.pk, changes=MemoryChanges(tags=["later"]), viewer=EVERYTHING)
    said = run(path)
    assert f"#{filled.pk} was edited since it was imported, by a command on " in said
    assert batch_counts(last_batch()) == (7, 0, 0, 6, 1)
    assert Memory.objects.get(pk=filled.pk).tags == ["later"]


def test_numbers_stay_and_new_ones_follow(filled, tmp_path):
    export(tmp_path / "all.jsonl")
    highest = Memory.objects.latest("id").pk
    empty()
    run(tmp_path / "all.jsonl")
    assert Memory.objects.get(content="By hand.").pk == filled.pk
    new = memory_create(record=MemoryRecord(content="New.", project="beta"), viewer=EVERYTHING)
    assert new.pk > highest


def test_an_export_among_other_memories_draws_new_numbers(filled, tmp_path, jsonl):
    export(tmp_path / "all.jsonl")
    empty()
    run(jsonl({"content": "Here before."}))
    run(tmp_path / "all.jsonl")
    assert batch_counts(last_batch()) == (7, 7, 0, 0, 0)
    assert Memory.objects.get(content="By hand.").pk != filled.pk
    assert Memory.objects.get(external_id="m1").superseded_by.external_id == "m2"


def test_relationships_of_an_export_keep_their_evidence_among_other_memories(filled, tmp_path, jsonl):
    number = Memory.objects.get(external_id="m1").pk
    export(tmp_path / "all.jsonl")
    empty()
    # Another memory has the number of the one that supports the fact.
    before = {"content": "Here before.", "project": "alpha", "stored": {"number": number}}
    run(jsonl({"record": "export", "version": 1}, before))
    assert Memory.objects.get().pk == number
    for _ in range(2):
        run(tmp_path / "all.jsonl")
        assert Relationship.objects.get().evidence_ids == [Memory.objects.get(external_id="m1").pk]
        assert number not in Relationship.objects.get().evidence_ids


def test_a_project_or_a_query_is_exported_with_the_vocabulary_that_it_uses(filled):
    lines = export(project=["beta"])
    assert [line.get("record", "memory") for line in lines] == [
        *("export", "project", "category", "category", "concept", "entity", "memory", "memory")
    ]
    assert lines[1] == {"record": "project", "slug": "beta", "name": "beta", "language": "english"}
    found = export(query="q=edited&mode=keyword")
    assert [line["content"] for line in found if "content" in line] == ["Edited."]
    with pytest.raises(CommandError, match="There is no project 'gamma'"):
        export(project=["gamma"])
    with pytest.raises(CommandError, match="--query: "):
        export(query="stat=x")


def test_an_export_holds_nothing_that_its_viewer_may_not_open(filled):
    beta = Project.objects.get(slug="beta").pk
    lines = list(export_lines(Selection(Viewer(frozenset({beta}), frozenset({"read"}), frozenset()))))
    assert {line["content"] for line in lines if "content" in line} == {"By hand.", "By hand again."}
    assert [line["slug"] for line in lines if line.get("record") == "project"] == ["beta"]
    assert not [line for line in lines if line.get("record") in ("relationship", "session", "tag")]


def test_an_export_of_another_version_is_refused(tmp_path):
    path = tmp_path / "later.jsonl"
    path.write_text('{"record": "export", "version": 2}\n{"content": "x"}\n')
    assert "is an export of version 2, and this program reads version 1" in failing(path)


def test_a_file_appears_when_it_is_complete(filled, tmp_path, monkeypatch):
    path = tmp_path / "all.jsonl.gz"
    export(path)
    assert json.loads(gzip.decompress(path.read_bytes()).splitlines()[0]) == {"record": "export", "version": 1}
    assert [entry.name for entry in tmp_path.iterdir() if "all" in entry.name] == ["all.jsonl.gz"]
    with pytest.raises(CommandError, match="cannot be written: "):
        export(tmp_path / "absent" / "all.jsonl")


def test_texts_that_hold_in_some_projects_are_exported_with_these(db, jsonl):
    local = [
        {"record": "category", "path": "kitchen", "former_paths": ["galley"], "projects": ["tea"]},
        {"record": "concept", "name": "heat", "description": "How hot it is.", "projects": ["boat", "tea"]},
        {"record": "entity", "type": "person", "name": "Ann", "aliases": ["Annie"], "projects": ["boat"]},
        {"record": "tag", "name": "hot", "aliases": ["warm"], "projects": ["tea"]},
    ]
    named = {"categories": ["Kitchen"], "concepts": ["heat"], "entities": ["person:Ann"], "tags": ["hot"]}
    path = jsonl(*local, *({"project": slug, "content": f"In {slug}.", **named} for slug in ("tea", "boat")))
    for _ in range(2):
        call_command("import_memories", str(path), verbosity=0)
    assert [line for line in export() if line.get("projects")] == local
    (tea,) = [line for line in export(project=["tea"]) if line.get("record") == "concept" and "projects" in line]
    assert tea["projects"] == ["tea"]
    later = jsonl(
        {"project": "boat", "content": "Later.", "tags": ["warm"], "entities": ["person:Annie"]}, name="l.jsonl"
    )
    call_command("import_memories", str(later), verbosity=0)
    (stored,) = [line for line in export() if line.get("content") == "Later."]
    assert (stored["tags"], stored["entities"]) == (["warm"], [{"type": "person", "name": "Ann"}])


def test_texts_that_are_not_public_are_exported_with_their_projects(db, jsonl):
    terms = [
        {"record": "category", "path": "kitchen", "name": "kitchen", "description": "Where it is hot.",
         "text_projects": {"": ["tea"], "galley": ["tea"], "oven": ["boat"]}, "former_paths": ["galley", "oven"]},
        {"record": "concept", "name": "heat", "aliases": ["warmth", "hotness"], "text_projects": {"warmth": ["tea"]}},
        {"record": "entity", "name": "Ann", "aliases": ["Annie"], "description": "A cook.",
         "text_projects": {"Annie": ["boat", "tea"], "": ["boat"]}, "type": "person"},
        {"record": "tag", "name": "hot", "aliases": ["warm"], "text_projects": {"warm": ["tea"]}},
    ]  # fmt: skip
    named = {"categories": ["Kitchen"], "concepts": ["heat"], "entities": ["person:Ann"], "tags": ["hot"]}
    path = jsonl(*terms, *({"project": slug, "content": f"In {slug}.", **named} for slug in ("tea", "boat")))
    for _ in range(2):
        call_command("import_memories", str(path), verbosity=0)
    kinds = ("category", "concept", "entity", "tag")
    assert [line for line in export() if line.get("record") in kinds] == terms
    of_boat = {line["record"]: line for line in export(project=["boat"]) if line.get("record") in kinds}
    assert of_boat["category"] == {
        "record": "category", "path": "kitchen", "name": "kitchen",
        "text_projects": {"oven": ["boat"]}, "former_paths": ["oven"],
    }  # fmt: skip
    assert (of_boat["concept"]["aliases"], of_boat["entity"]["text_projects"]) == (
        ["hotness"],
        {"Annie": ["boat"], "": ["boat"]},
    )


@pytest.mark.parametrize(
    "made_by",
    [
        7,
        {"concepts": 7},
        {"concepts": [["heat"]]},
        {"categories": [["/", "human", 1.0]]},
        {"entities": [["cup", "human", 1.0]]},
        {"concepts": [["heat", "somebody", 1.0]]},
    ],
)
def test_a_memory_with_makers_of_another_form_is_refused(db, jsonl, made_by):
    lines = [{"record": "export", "version": 1}, {"content": "Tea.", "stored": {"number": 1, "made_by": made_by}}]
    assert "line 2: stored.made_by: is not what an export has there" in failing(jsonl(*lines))

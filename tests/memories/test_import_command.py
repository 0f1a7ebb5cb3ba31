import gzip
import json
import os
import threading
import time
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.db.models import Count
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, Relationship
from memories.models import Corpus, ImportBatch, Memory, MemoryLink, Project
from memories.records import MemoryChanges
from memories.services import memory_delete, memory_update
from tests.memories.imports import (
    EVERYTHING,
    LINKED,
    VOCABULARY,
    batch_counts,
    counts,
    failing,
    last_batch,
    link_targets,
    memories,
    run,
)
from transfer import analysers, blocks, write
from transfer import run as batches
from transfer.formats.base import Reading, SourceRecord
from transfer.formats.registry import importer_for
from transfer.run import ImportChoices, import_path

pytestmark = pytest.mark.django_db


def test_a_file_is_imported_and_reported(jsonl):
    said = run(jsonl(*memories(3)))
    batch = last_batch()
    assert batch_counts(batch) == (3, 3, 0, 0, 0)
    assert (batch.state, batch.format) == ("done", "jsonl")
    assert f"This is batch {batch.pk}; undo with: " in said
    assert f"manage.py import_memories --undo {batch.pk}\n" in said
    memory = Memory.objects.get(external_id="m1")
    assert (memory.title, memory.batch_id, memory.raw["tags"]) == ("Memory number 1.", batch.pk, ["t1"])
    event = AuditEvent.objects.get()
    assert (event.verb, event.subject_type, event.subject_id) == ("import", "importbatch", batch.pk)


def test_the_same_file_again_changes_nothing(jsonl):
    path = jsonl(*VOCABULARY, *LINKED, *memories(5)[3:], {"content": "No id."})
    run(path)
    before = (counts(), Corpus.objects.get(pk=1).revision, AuditEvent.objects.filter(subject_type="memory").count())
    said = run(path)
    assert batch_counts(last_batch()) == (5, 0, 0, 5, 0)
    assert "Nothing new." in said
    assert before == (
        counts(),
        Corpus.objects.get(pk=1).revision,
        AuditEvent.objects.filter(subject_type="memory").count(),
    )


def test_nothing_is_made_for_a_record_that_stays_as_it_is(jsonl):
    named = {"id": "m1", "content": "Glaze at dusk.", "categories": ["Kiln"], "concepts": ["glaze"], "tags": ["ash"]}
    named |= {"entities": ["tool:Kiln"]}
    run(jsonl(named))
    for model in (CategoryLink, ConceptLink, EntityLink, Category, Concept, Entity):
        model.objects.all().delete()
    run(jsonl(named, {"id": "m2", "content": "Fire at dawn.", "concepts": ["fire"]}))
    assert batch_counts(last_batch()) == (2, 1, 0, 1, 0)
    assert list(Concept.objects.values_list("name", flat=True)) == ["fire"]
    assert not Category.objects.exists()
    assert not Entity.objects.exists()


def test_three_broken_lines_among_thousands_are_refused_with_their_reasons(jsonl, tmp_path):
    lines = memories(3_000)
    lines[10] = '{"content": "cut'
    lines[1500] = {"id": "bad", "content": "x", "created_at": "yesterday"}
    lines[2999] = {"id": "nul", "content": "a\0b"}
    said = run(jsonl(*lines), report=str(tmp_path / "report.jsonl"))
    assert batch_counts(last_batch()) == (3_000, 2_997, 0, 0, 3)
    reported = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [(one["location"], one["reason"]) for one in reported] == [
        ("line 11", "is not JSON: EOF while parsing a string at character 16"),
        (
            "line 1501",
            "created_at: 'yesterday' is not a date: write ISO 8601, such as 2026-08-05 or 2026-08-05T14:30:00+02:00, "
            "or seconds since 1970",
        ),
        ("line 3000", "content: holds a NUL character (U+0000), which cannot be stored; remove it"),
    ]
    assert "refused line 11: is not JSON" in said
    assert [one["location"] for one in last_batch().report["refused"]] == ["line 11", "line 1501", "line 3000"]


def test_a_damaged_gzip_writes_nothing_unless_told_to_keep_going(tmp_path):
    packed = gzip.compress("".join(json.dumps(one) + "\n" for one in memories(4_000)).encode())
    path = tmp_path / "memories.jsonl.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    before = counts()
    said = failing(path)
    assert "cut off after line" in said
    assert "--keep-going" in said
    assert counts() == before
    assert last_batch().state == "failed"
    assert "cut off" in last_batch().report["error"]
    run(path, keep_going=True)
    batch = last_batch()
    assert (batch.state, batch.refused) == ("done", 1)
    assert 1_000 < batch.created < 4_000


def test_a_dry_run_goes_through_everything_and_writes_nothing(jsonl):
    before = (counts(), ImportBatch.objects.count(), AuditEvent.objects.count())
    said = run(jsonl(*VOCABULARY, *LINKED, '{"broken'), dry_run=True)
    assert "A dry run: nothing was written." in said
    assert "refused line 8" in said
    assert before == (counts(), ImportBatch.objects.count(), AuditEvent.objects.count())


def test_vocabulary_is_made_matched_and_linked(jsonl):
    run(jsonl(*VOCABULARY, *LINKED))
    project = Project.objects.get()
    assert (project.slug, project.name, project.language) == ("alpha", "Alpha", "german")
    redis = Category.objects.get(path="data/redis")
    ops = Category.objects.get(path="ops")
    assert (redis.aliases, redis.description, redis.related_ids, ops.related_ids) == (
        ["cache"],
        "Fast.",
        [ops.pk],
        [redis.pk],
    )
    caching, speed = Concept.objects.get(name="caching"), Concept.objects.get(name="speed")
    assert (caching.aliases, caching.weight, caching.broader_ids) == (["memoisation"], 0.5, [speed.pk])
    assert speed.narrower_ids == [caching.pk]
    one, two = Memory.objects.order_by("external_id")
    assert one.category_ids == sorted([redis.pk, Category.objects.get(path="ops/night").pk])
    assert set(one.category_path_ids) == set(Category.objects.values_list("id", flat=True))
    assert one.concept_ids == [caching.pk]
    assert one.entity_ids == [Entity.objects.get(entity_type="person").pk]
    assert one.session.external_id == "s1"
    # Stemmed in the language of the project.
    assert Memory.objects.extra(where=["terms @@ '''haus'''"]).get() == one
    relationship = Relationship.objects.get()
    assert (relationship.source.name, relationship.relationship_type) == ("Ann Lee", "maintains")
    assert relationship.evidence_ids == [one.pk]
    assert last_batch().report["notes"] == [
        {"location": "line 5", "note": "evidence: 'gone' is not a memory that was found; left out"}
    ]
    assert (one.state, one.superseded_by_id) == ("superseded", two.pk)


def test_links_are_resolved_forwards_backwards_and_across_imports(jsonl):
    run(jsonl(*LINKED))
    targets = {target: found for rel, target, found in link_targets() if rel != "superseded-by"}
    assert targets == {"m2": "m2", "m1": "m1", "later": None}
    run(jsonl({"id": "later", "project": "alpha", "content": "Now."}))
    assert MemoryLink.objects.get(target="later").target_memory.external_id == "later"


def test_a_changed_record_updates_its_memory_and_keeps_what_stood_before(jsonl):
    run(jsonl(*memories(2, categories=["A/B"], links=["m0"])))
    memory = Memory.objects.get(external_id="m1")
    changed = {"id": "m1", "project": "alpha", "content": "Changed.", "categories": ["C"], "links": ["m9"]}
    run(jsonl(*memories(1, categories=["A/B"], links=["m0"]), changed))
    assert batch_counts(last_batch()) == (2, 0, 1, 1, 0)
    memory.refresh_from_db()
    assert (memory.content, memory.tags, memory.batch_id) == ("Changed.", [], last_batch().pk - 1)
    assert list(memory.category_links.values_list("category__path", flat=True)) == ["c"]
    assert memory.category_ids == memory.category_path_ids == [Category.objects.get(path="c").pk]
    assert Memory.objects.extra(where=["terms @@ '''chang'''"]).get() == memory
    event = AuditEvent.objects.get(subject_type="memory", subject_id=memory.pk)
    assert event.before["content"] == "Memory number 1."
    assert event.before["tags"] == ["t1"]


def test_an_edited_memory_is_not_overwritten_silently(jsonl):
    run(jsonl(*memories(1)))
    memory = Memory.objects.get()
    person = Viewer(None, frozenset({"read", "write"}), None, user_id=1, door=AuditEvent.Door.PAGE)
    memory_update(memory_id=memory.pk, changes=MemoryChanges(title="By hand"), viewer=person)
    path = jsonl(*memories(1, type="idea"))
    said = run(path)
    assert f"#{memory.pk} was edited since it was imported, by the page on " in said
    assert batch_counts(last_batch()) == (1, 0, 0, 0, 1)
    memory.refresh_from_db()
    assert memory.title == "By hand"
    run(path, overwrite=True)
    memory.refresh_from_db()
    assert (memory.title, memory.memory_type) == ("Memory number 0.", "idea")
    run(jsonl(*memories(1, type="plan")))
    assert last_batch().updated == 1


def test_a_deleted_memory_stays_deleted_when_its_file_comes_again(jsonl):
    path = jsonl(*memories(1), {"content": "No id."})
    run(path)
    for memory in Memory.objects.all():
        memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="wrong")
    run(path)
    assert batch_counts(last_batch()) == (2, 0, 0, 2, 0)
    assert set(Memory.objects.values_list("state", flat=True)) == {"deleted"}


def test_records_that_lead_in_circles_are_imported_as_they_are(jsonl):
    circle = [
        {"id": "a", "content": "A.", "superseded_by": "b", "links": ["b"], "concepts": ["heat"]},
        {"id": "b", "content": "B.", "superseded_by": "a", "supersedes": ["a"], "links": ["a", "b"]},
        {"id": "c", "content": "C.", "superseded_by": "c", "supersedes": ["c"]},
    ]
    words = [
        {"record": "concept", "name": "heat", "broader": ["warmth"], "narrower": ["warmth", "heat"]},
        {"record": "concept", "name": "warmth", "broader": ["heat"]},
        {"record": "relationship", "source": "tool:kettle", "type": "is", "target": "tool:kettle"},
        {"record": "category", "path": "Tea", "related": ["Tea"], "former_paths": ["Tea"]},
    ]
    run(jsonl(*words, *circle))
    assert batch_counts(last_batch()) == (3, 3, 0, 0, 0)
    names = dict(Memory.objects.values_list("pk", "external_id"))
    above = Memory.objects.values_list("external_id", "superseded_by_id")
    assert {own: names.get(other) for own, other in above} == {"a": "b", "b": "a", "c": None}
    run(jsonl(*words, *circle))
    assert batch_counts(last_batch()) == (3, 0, 0, 3, 0)
    run("--undo", str(ImportBatch.objects.earliest("pk").pk))
    assert not Memory.objects.exists()


def test_an_id_that_stands_twice_is_taken_once(jsonl, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 2)
    first, second, third = memories(3)
    path = jsonl(
        first, second, first, {**second, "content": "Other."}, third, {"content": "x"}, {"content": "x", "tags": ["y"]}
    )
    for expected in ((7, 4, 0, 1, 2), (7, 0, 0, 5, 2)):
        said = run(path)
        assert batch_counts(last_batch()) == expected
        assert "refused line 4: id: 'm1' is earlier in this import with other content" in said
        assert "refused line 7: is earlier in this import with the same text" in said


def test_many_blocks_go_through_other_processes(jsonl, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 50)
    monkeypatch.setattr(analysers, "_WORTH_A_PROCESS", 50)
    monkeypatch.setattr(analysers.os, "cpu_count", lambda: 3)
    run(jsonl(*memories(500)))
    assert last_batch().created == 500
    assert Memory.objects.extra(where=["terms @@ '''number'' & ''421'''"]).get().external_id == "m421"


def test_a_file_of_which_nothing_can_be_read_fails(jsonl):
    assert "none of its 2 records could be read; the first, line 1: content: is missing." in failing(jsonl({}, {}))
    assert "holds no records" in failing(jsonl())
    assert "there is no such file or folder" in failing("/nowhere/at/all")
    assert "Name a file, a folder or a repository to import" in failing()
    assert "cannot be written" in failing(jsonl({"content": "x"}), report="/nowhere/report")


def test_one_path_that_fails_does_not_stop_the_next(jsonl, tmp_path):
    assert "no such file" in failing(tmp_path / "absent", jsonl(*memories(1)))
    assert Memory.objects.count() == 1


def test_an_interrupted_import_is_rolled_back_and_says_so(jsonl, monkeypatch):
    before = counts()

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "snapshots_insert", interrupted)
    assert "Interrupted: the import is rolled back" in failing(jsonl(*memories(5)))
    assert counts() == before
    assert (last_batch().state, last_batch().report["error"]) == ("failed", "It was interrupted.")


def test_a_batch_that_was_killed_is_marked_by_the_next_import(jsonl):
    killed = ImportBatch.objects.create(origin="x", format="jsonl", started_at=timezone.now())
    run(jsonl(*memories(1)))
    killed.refresh_from_db()
    assert killed.state == "failed"


def test_a_viewer_writes_only_into_projects_that_allow_it(jsonl):
    alpha = Project.objects.create(slug="alpha", name="Alpha")
    ids = frozenset({alpha.pk})
    described = {"record": "concept", "name": "heat", "description": "For all projects."}
    path = jsonl(*memories(1), {"content": "x", "project": "beta"}, described)
    outcome = import_path(
        path=path,
        importer=importer_for(path),
        viewer=Viewer(ids, frozenset({"read", "write"}), ids),
        choices=ImportChoices(),
    )
    assert (outcome.tally.created, outcome.tally.refused) == (1, 1)
    assert outcome.refusals[0].reason == "project: you cannot write to 'beta'"
    assert not Project.objects.filter(slug="beta").exists()
    reason = "left out: only curators of all projects write texts and relations for all projects"
    assert [note for _, note in outcome.tally.notes] == [reason]
    assert not Concept.objects.filter(name="heat").exists()


def test_a_folder_of_markdown_again_changes_nothing_though_files_were_touched(tmp_path):
    root = tmp_path / "notes"
    (root / "Sub").mkdir(parents=True)
    (root / "Sub" / "a.md").write_text("# A\n\nSee [[b]].")
    (root / "b.md").write_text("---\ntags: [x]\n---\n# B\n\nText.")
    run(root)
    assert batch_counts(last_batch()) == (2, 2, 0, 0, 0)
    first = Memory.objects.get(external_id="Sub/a.md")
    assert (first.title, first.project.slug, first.links.get().target_memory.title) == ("A", "notes", "B")
    os.utime(root / "b.md", (1_000_000_000, 1_000_000_000))
    run(root)
    assert batch_counts(last_batch()) == (2, 0, 0, 2, 0)
    created = Memory.objects.get(external_id="b.md").created_at
    (root / "b.md").write_text("# B\n\nOther.")
    run(root)
    assert batch_counts(last_batch()) == (2, 0, 1, 1, 0)
    assert Memory.objects.get(external_id="b.md").created_at == created


def test_a_source_that_fails_in_the_middle_writes_nothing(jsonl, monkeypatch):
    path = jsonl(*memories(1))
    importer = importer_for(path)

    def broken(path, options):
        def records():
            yield SourceRecord("line 1", {"content": "x"})
            raise OSError(5, "Input/output error")

        return Reading(records())

    monkeypatch.setattr(batches, "_settle", lambda: None)
    with pytest.raises(OSError, match="Input/output error"):
        import_path(
            path=path,
            importer=type(importer)(importer.name, "", importer.knows, broken),
            viewer=EVERYTHING,
            choices=ImportChoices(),
        )
    assert Memory.objects.count() == 0
    assert last_batch().state == "failed"


@pytest.mark.release
@pytest.mark.development_data
def test_the_development_data_comes_in_whole_and_goes_again():
    default = Path(__file__).resolve().parents[3] / "shared" / "data" / "memories-dev.jsonl.gz"
    path = Path(os.environ.get("MNEMOSCOPE_DEV_DATA") or default)
    if not path.is_file():
        pytest.skip(f"{path} is not there; MNEMOSCOPE_DEV_DATA names another place")
    before = counts()
    run(path)
    batch = last_batch()
    assert batch_counts(batch) == (21_104, 21_104, 0, 0, 0)
    assert dict(Memory.objects.values_list("project__slug").order_by().annotate(n=Count("id"))) == {
        "cpython": 12_208,
        "angular-components": 7_585,
        "peps": 735,
        "til": 576,
    }
    assert MemoryLink.objects.count() == 23_832
    run(path)
    assert batch_counts(last_batch()) == (21_104, 0, 0, 21_104, 0)
    run(undo=batch.pk)
    assert counts() == before


def test_record_supersedes_the_memories_that_it_names(jsonl):
    old, other = {"id": "old", "content": "Old."}, {"id": "other", "content": "Other.", "state": "archived"}
    new = {"id": "new", "content": "New.", "supersedes": ["old", "other", "nobody"]}
    imported = jsonl(new, old, other)
    run(imported)
    memories = {memory.external_id: memory for memory in Memory.objects.all()}
    assert (memories["old"].state, memories["old"].superseded_by) == ("superseded", memories["new"])
    assert (memories["other"].state, memories["other"].superseded_by) == ("archived", None)
    notes = last_batch().report["notes"]
    assert [note["note"] for note in notes] == ["supersedes: 'nobody' is not another memory of its project; left out"]
    run(imported)
    assert last_batch().unchanged == 3


def test_notes_about_superseded_memories_are_as_many_as_are_stored_of_others(jsonl, monkeypatch):
    monkeypatch.setattr("transfer.state.MAX_NOTES", 2)
    run(jsonl({"id": "new", "content": "New.", "supersedes": ["x", "y", "z"]}))
    assert len(last_batch().report["notes"]) == 2


@pytest.mark.django_db(transaction=True)
def test_an_import_that_loses_a_deadlock_over_new_names_is_done_once_all_the_same(jsonl, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 1)
    path = jsonl(
        {"content": ""}, {"content": "One.", "concepts": ["oolong"]}, {"content": "Two.", "concepts": ["assam"]}
    )
    outcomes, told = [], []

    def bring_in():
        choices = ImportChoices()
        outcomes.append(
            import_path(path=path, importer=importer_for(path), viewer=EVERYTHING, choices=choices, refused=told.append)
        )
        connection.close()

    with transaction.atomic(), connection.cursor() as cursor:
        # The other transaction waits first, and so is the one that notices.
        cursor.execute("SET LOCAL deadlock_timeout = '60s'")
        Concept.objects.create(name="assam")
        thread = threading.Thread(target=bring_in)
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        cursor.execute(waiting)
        while cursor.fetchone()[0] == 0:
            time.sleep(0.01)
            cursor.execute(waiting)
        Concept.objects.create(name="oolong")
    thread.join()
    assert (outcomes[0].tally.created, outcomes[0].tally.refused, len(outcomes[0].refusals)) == (2, 1, 1)
    assert [refusal.location for refusal in told] == ["line 1"]
    assert batch_counts(last_batch()) == (3, 2, 0, 0, 1)
    assert ImportBatch.objects.count() == 1
    assert Memory.objects.count() == 2


def test_a_language_that_is_not_known_is_refused(jsonl):
    said = run(jsonl({"record": "project", "slug": "alpha", "language": "klingon"}, *memories(1)))
    assert "language: 'klingon' is not known: write one of simple, " in said


@pytest.mark.parametrize("others", [[], ['{"broken']], ids=["alone", "beside one that is refused"])
def test_a_new_concept_has_the_type_that_the_last_record_gives_it(jsonl, others):
    run(jsonl({"id": "m1", "content": "Glaze."}))
    first = {"id": "m1", "content": "Glaze at dusk.", "concepts": [{"name": "glaze", "type": "tool"}]}
    last = {"id": "m2", "content": "Glaze at dawn.", "concepts": [{"name": "glaze", "type": "art"}]}
    run(jsonl(last, first, *others))
    assert Concept.objects.get().concept_type == "tool"

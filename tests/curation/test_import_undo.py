"""Undo of imports: created rows are removed, changed rows restored, and rows in use remain."""

import pytest
from django.contrib.auth.models import User

from access.viewer import command_viewer
from categories.models import Category, Entity
from curation.models import Curation
from curation.schemas import Merge, Retag, Split
from curation.services import curation_apply, curation_plan, curation_undo
from curation.suggestions.models import Suggestion
from curation.undo import UndoRefusedError
from memories.models import Memory, MemoryLink, Session
from memories.records import MemoryChanges
from memories.services import memory_update
from tests.html import html_of
from tests.memories.imports import (
    CONTENT_TABLES,
    EVERYTHING,
    LINKED,
    VOCABULARY,
    batch_counts,
    counts,
    failing,
    last_batch,
    memories,
    run,
)

pytestmark = pytest.mark.django_db


def test_undo_leaves_nothing_behind(jsonl):
    before = counts()
    run(jsonl(*VOCABULARY, *LINKED, *memories(20)[3:]))
    batch = last_batch()
    said = run(undo=batch.pk)
    assert f"Batch {batch.pk} is undone: 19 memories, 4 categories, 2 concepts, 2 entities" in said
    assert counts() == before
    batch.refresh_from_db()
    assert batch.state == "undone"
    assert f"Batch {batch.pk} was already undone" in failing(undo=batch.pk)


def test_undo_puts_back_what_the_batch_changed(jsonl):
    run(jsonl(*VOCABULARY, *LINKED, *memories(4)[3:]))

    def everything():
        rows = []
        for model in CONTENT_TABLES:
            names = [field.attname for field in model._meta.concrete_fields if field.attname != "updated_at"]
            # Links are created again: their times differ.
            names = [name for name in names if not (name == "created_at" and model.__name__.endswith("Link"))]
            rows.append(sorted(map(repr, model.objects.values_list(*names))))
        return rows

    before = everything()
    run(
        jsonl(
            {"record": "category", "path": "data/redis", "aliases": ["kv"], "related": ["New"]},
            {"record": "concept", "name": "Caching", "aliases": ["memo"], "narrower": ["lru"]},
            {"record": "entity", "name": "ann", "type": "person", "description": "Here."},
            {
                "record": "relationship",
                "source": "person:Ann",
                "type": "maintains",
                "target": "tool:redis",
                "evidence": ["m3"],
            },
            {"record": "project", "slug": "alpha", "description": "Other."},
            {**LINKED[1], "content": "Changed.", "categories": ["New/Deep"], "concepts": ["lru"]},
            {"id": "later", "project": "alpha", "content": "Arrives.", "session": "s1"},
        )
    )
    batch = last_batch()
    assert batch_counts(batch) == (2, 1, 1, 0, 0)
    assert everything() != before
    assert "1 memory restored" in run(undo=batch.pk)
    assert everything() == before


def test_undo_puts_back_a_memory_that_the_batch_changed_twice(jsonl):
    run(jsonl({"id": "old", "content": "Old."}))
    superseding = {"id": "new", "content": "New.", "supersedes": ["old"]}
    run(jsonl({"id": "old", "content": "Old.", "state": "proposed"}, superseding))
    assert Memory.objects.get(external_id="old").state == "superseded"
    run(undo=last_batch().pk)
    old = Memory.objects.get()
    assert (old.external_id, old.state, old.superseded_by) == ("old", "active", None)


def test_undo_dates_the_sessions_of_what_it_removes_again(jsonl):
    run(jsonl({"id": "late", "project": "a", "content": "Late.", "session": "s", "created_at": "2026-02-02"}))
    run(jsonl({"id": "soon", "project": "a", "content": "Soon.", "session": "s", "created_at": "2026-01-01"}))
    assert Session.objects.get().begun_at.month == 1
    run(undo=last_batch().pk)
    assert Session.objects.get().begun_at.month == 2
    run(jsonl({"id": "late", "project": "a", "content": "Late.", "session": "s", "created_at": "2026-03-03"}))
    assert Session.objects.get().begun_at.month == 3


def test_undo_names_what_was_edited_since_and_force_undoes_it(jsonl):
    before = counts()
    run(jsonl(*memories(2)))
    batch = last_batch()
    memory = Memory.objects.get(external_id="m1")
    memory_update(memory_id=memory.pk, changes=MemoryChanges(pinned=True), viewer=EVERYTHING)
    said = failing(undo=batch.pk)
    assert f"1 memory was changed since this import brought or changed it: #{memory.pk}. Nothing was undone." in said
    assert Memory.objects.count() == 2
    run(undo=batch.pk, force=True)
    assert counts() == before


def test_batches_are_undone_in_reverse_order_without_force(jsonl):
    before = counts()
    run(jsonl({"id": "m1", "content": "First words."}, name="one.jsonl"))
    first = last_batch()
    run(jsonl({"id": "m1", "content": "Second words."}, name="two.jsonl"))
    run(undo=str(last_batch().pk))
    assert Memory.objects.get(external_id="m1").content == "First words."
    run(undo=str(first.pk))
    assert counts() == before


def test_undo_keeps_what_others_use_until_they_are_undone_too(jsonl):
    before = counts()
    run(jsonl({"id": "a", "project": "alpha", "content": "A.", "categories": ["X/Y"], "entities": ["tool:T"]}))
    first = last_batch()
    run(jsonl({"id": "b", "project": "alpha", "content": "B.", "categories": ["X/Y"], "links": ["a"]}))
    second = last_batch()
    said = run(undo=first.pk)
    assert "not removed, because other memories use them: 2 categories, 1 project" in said
    assert (Category.objects.count(), Entity.objects.count()) == (2, 0)
    assert MemoryLink.objects.get().target_memory_id is None
    run(undo=second.pk)
    assert counts() == before


def test_undo_of_what_cannot_be_undone_says_why(jsonl):
    assert "There is no batch 0." in failing(undo=0)
    failing(jsonl('{"broken'))
    assert "is failed: it wrote nothing" in failing(undo=last_batch().pk)


def test_undo_takes_what_was_proposed_of_it_along(jsonl):
    run(jsonl({"id": "a", "project": "alpha", "content": "A.", "entities": ["person:Ann Lee", "person:Anne Lee"]}))
    batch = last_batch()
    one, other = Entity.objects.order_by("id").values_list("pk", flat=True)
    memory = Memory.objects.get()
    proposed = {"fingerprint": "f1", "confidence": 0.9}
    Suggestion.objects.create(kind="entity_duplicate", subject_id=one, target_id=other, **proposed)
    for n in range(3):
        Suggestion.objects.create(
            kind="concept",
            project=memory.project,
            subject_id=memory.pk,
            proposal={"concept": f"c{n}"},
            fingerprint=f"c{n}",
            confidence=0.5,
        )
    assert "1 memory, 2 entities, 1 project removed" in run(undo=batch.pk)
    assert not Suggestion.objects.exists()


def edit_together(kind):
    """Change two memories of the import with others, in one of the ways in which that is done."""
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True)[:2])
    operations = {
        "tags": lambda: Retag(memories=ids, add_tags=["bulk"]),
        "type": lambda: Retag(memories=ids, set_type="rule"),
        "state": lambda: Retag(memories=ids, set_state="archived"),
        "entities": lambda: Retag(memories=ids, add_entities=["person:Zoe"]),
        "split": lambda: Split(kind="tag", term="bulk", name="part", memories=ids),
    }
    if kind == "entities":
        Entity.objects.create(name="Zoe", entity_type="person")
    if kind == "split":
        run_operation(Retag(query="", add_tags=["bulk"]))
        Curation.objects.all().delete()
    return run_operation(operations[kind]()), ids


def run_operation(operation):
    plan = curation_plan(operation=operation, viewer=command_viewer())
    asked = operation.model_copy(update={"token": plan.token})
    return curation_apply(operation=asked, viewer=command_viewer()).curation


@pytest.mark.parametrize("kind", ["tags", "type", "state", "entities", "split"])
def test_undo_refuses_after_changes_of_many_and_they_cannot_be_undone_once_it_is_forced(jsonl, client, kind):
    run(jsonl(*memories(4)))
    batch = last_batch()
    curation, ids = edit_together(kind)
    assert "2 memories were changed since" in failing(undo=batch.pk)
    assert Memory.objects.count() == 4
    run(undo=batch.pk, force=True)
    assert not Memory.objects.exists()
    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/curate/"))
    assert "memories of it were removed" in page
    assert f"/curate/undo/{curation.pk}/" not in page
    with pytest.raises(UndoRefusedError, match=f"#{ids[0]}, #{ids[1]} were removed since"):
        curation_undo(curation_id=curation.pk, viewer=command_viewer())


def test_undone_change_of_many_does_not_hold_the_undo_up_and_others_keep_theirs(jsonl, client):
    run(jsonl(*memories(4)))
    batch = last_batch()
    curation, _ = edit_together("tags")
    curation_undo(curation_id=curation.pk, viewer=command_viewer())
    run(undo=batch.pk)
    run(jsonl(*memories(2)))
    later, _ = edit_together("tags")
    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/curate/"))
    assert f"/curate/undo/{later.pk}/" in page
    assert "memories of it were removed" not in page


def test_title_counts_the_memories_that_change(jsonl):
    run(jsonl(*memories(4)))
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    run_operation(Retag(memories=ids[:1], add_tags=["bulk"], set_type="rule"))
    both = run_operation(Retag(memories=ids, add_tags=["bulk"], set_type="rule"))
    assert (both.title.split(":")[0], both.memories) == ("Edited 3 memories", 3)
    all_of_tag = run_operation(Retag(query="tag=bulk", remove_tags=["bulk"]))
    assert (all_of_tag.title, all_of_tag.memories) == ("Removed the tag bulk from 4 memories", 4)


def test_merged_names_are_no_edit_of_the_memories_that_have_them(jsonl):
    run(jsonl(*memories(4)))
    batch = last_batch()
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    run_operation(Retag(memories=ids, add_tags=["old", "new"]))
    Curation.objects.all().delete()
    run_operation(Merge(kind="tag", source="old", target="new"))
    run(undo=batch.pk)
    assert not Memory.objects.exists()

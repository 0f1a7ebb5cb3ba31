"""The history of a memory: events of the audit trail and curations, with values before and after, and versions."""

import pytest
from django.core.management import call_command

from access.viewer import Viewer, command_viewer
from categories.models import Concept
from curation.schemas import Merge, Retag
from curation.services import curation_apply, curation_undo
from memories.history import TermGoneError, memory_history
from memories.models import Memory, Project, Session
from memories.queries import memory_version
from memories.records import MemoryChanges, MemoryRecord
from memories.refusals import EventNotFoundError, NotAllowedError, VersionConflictError
from memories.services import memory_create, memory_delete, memory_update, memory_version_restore
from memories.supersession import memory_supersede

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()


def create(content="A text.", **fields):
    return memory_create(record=MemoryRecord.model_validate({"content": content, **fields}), viewer=EVERYTHING)


def update(memory, **fields):
    return memory_update(
        memory_id=memory.pk, changes=MemoryChanges.model_validate(fields), viewer=EVERYTHING, reason="better"
    )


def events_of(memory, viewer=EVERYTHING, **options):
    return memory_history(viewer, memory.pk, **options).events


def changes_of(event):
    return {change.field: (change.before, change.after) for change in event.changes if change.field != "updated_at"}


def test_history_has_each_change_with_values_before_and_after():
    memory = create(title="Tea", tags=["hot"], categories=["Kitchen"], entities=["tool:kettle"])
    update(memory, content="Another text.", tags=["hot", "green"], categories=["Kitchen/Brewing"])
    memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="wrong")
    deleted, edited, created = events_of(memory)
    assert [event.kind for event in (deleted, edited, created)] == ["deleted", "edited", "created"]
    assert changes_of(edited) == {
        "content": ("A text.", "Another text."),
        "tags": (["hot"], ["hot", "green"]),
        "categories": (["kitchen"], ["kitchen/brewing"]),
    }
    assert (edited.reason, edited.door, edited.by) == ("better", "command", "")
    assert changes_of(deleted) == {"state": ("active", "deleted"), "state_reason": ("", "wrong")}
    assert created.changes == ()


def test_history_has_the_curations_that_changed_the_memory():
    memory = create(tags=["old"], concepts=["caching"])
    create("Other.", concepts=["cache"], tags=["tea"])
    merge = curation_apply(operation=Merge(kind="concept", source="caching", target="cache"), viewer=EVERYTHING)
    retag = curation_apply(operation=Retag(query="tag=old", add_tags=["new"], remove_tags=["old"]), viewer=EVERYTHING)
    curation_undo(curation_id=retag.curation.pk, viewer=EVERYTHING)
    undone, retagged, merged, _ = events_of(memory)
    assert [event.kind for event in (undone, retagged, merged)] == ["retagged", "retagged", "merged"]
    assert changes_of(merged) == {"concepts": (["caching"], ["cache"])}
    assert (merged.curation_id, merged.reason) == (merge.curation.pk, "Merged the concept caching into cache")
    assert changes_of(retagged) == {"tags": (["old"], ["new"])}
    assert changes_of(undone) == {"tags": (["new"], ["old"])}


def test_titles_of_curations_are_only_for_those_who_see_all_their_memories():
    mine, other = create(project="mine", tags=["a"]), create("B.", project="secret", tags=["a"])
    curation_apply(operation=Retag(query="tag=a&project=secret&project=mine", add_tags=["b"]), viewer=EVERYTHING)
    viewer = Viewer(frozenset({mine.project_id}), frozenset({"read"}))
    retagged, _ = events_of(mine, viewer)
    assert (retagged.reason, changes_of(retagged)) == ("", {"tags": (["a"], ["a", "b"])})
    assert events_of(mine)[0].reason == "Retagged 2 memories: +b"
    assert memory_history(viewer, other.pk) is None


def test_history_of_an_imported_memory_begins_with_its_import(jsonl):
    call_command("import_memories", str(jsonl({"id": "a", "content": "A."})), verbosity=0)
    memory = Memory.objects.get()
    update(memory, content="B.")
    arrived = events_of(memory)[1]
    assert (arrived.id, arrived.kind, arrived.batch_id, arrived.door) == (
        "first",
        "created",
        memory.batch_id,
        "command",
    )
    restored = memory_version_restore(memory_id=memory.pk, event_id="first", viewer=EVERYTHING)
    assert restored.content == "A."
    assert changes_of(events_of(memory)[0]) == {"title": ("B.", "A."), "content": ("B.", "A.")}


def test_version_comes_back_with_all_its_values():
    memory = create(title="Tea", tags=["hot"], categories=["Kitchen"], links=["RFC 1"], id="t1")
    version = events_of(memory)[0].id
    newer = create("New.")
    update(memory, title="Coffee", tags=[], categories=["Yard"], concepts=["brewing"], links=[], id="t2")
    memory_supersede(memory_id=memory.pk, by_id=newer.pk, viewer=EVERYTHING)
    restored = memory_version_restore(
        memory_id=memory.pk, event_id=version, viewer=EVERYTHING, reason="a mistake", despite_successor=True
    )
    assert (restored.title, restored.tags, restored.state, restored.superseded_by_id) == (
        "Tea",
        ["hot"],
        "active",
        None,
    )
    assert (restored.external_id, restored.concept_ids) == ("t1", [])
    assert list(restored.links.values_list("target", flat=True)) == ["RFC 1"]
    assert list(restored.category_links.values_list("category__path", flat=True)) == ["kitchen"]
    assert (events_of(memory)[0].reason, len(events_of(memory))) == ("a mistake", 4)
    again = memory_version_restore(memory_id=memory.pk, event_id=version, viewer=EVERYTHING)
    assert (again.updated_at, len(events_of(memory))) == (restored.updated_at, 4)


def test_version_from_before_a_merge_has_the_merged_term():
    memory = create(concepts=["caching"], tags=["old"])
    create("Other.", concepts=["cache"], tags=["new"])
    version = events_of(memory)[0].id
    update(memory, concepts=[], tags=[], content="Changed.")
    update(memory, concepts=["caching"], tags=["old"])
    curation_apply(operation=Merge(kind="concept", source="caching", target="cache"), viewer=EVERYTHING)
    curation_apply(operation=Merge(kind="tag", source="old", target="new"), viewer=EVERYTHING)
    restored = memory_version_restore(memory_id=memory.pk, event_id=version, viewer=EVERYTHING)
    assert (restored.content, restored.tags) == ("A text.", ["new"])
    assert list(restored.concept_links.values_list("concept__name", flat=True)) == ["cache"]


def test_version_that_cannot_be_had_is_refused_with_the_reason():
    memory = create(id="t1", concepts=["caching"])
    version = events_of(memory)[0].id
    update(memory, id="t2", concepts=[])
    create("Taken.", id="t1")
    with pytest.raises(EventNotFoundError, match="has no event '99'"):
        memory_version_restore(memory_id=memory.pk, event_id="99", viewer=EVERYTHING)
    with pytest.raises(Exception, match="already has a memory with the id 't1'"):
        memory_version_restore(memory_id=memory.pk, event_id=version, viewer=EVERYTHING)
    update(memory, id="")
    Memory.objects.exclude(pk=memory.pk).update(external_id="")
    Concept.objects.all().delete()
    with pytest.raises(TermGoneError, match="had the concept #"):
        memory_version_restore(memory_id=memory.pk, event_id=version, viewer=EVERYTHING)


def test_version_is_only_restored_by_who_may_write():
    memory = create(project="p")
    update(memory, title="New")
    version = events_of(memory)[-1].id
    project = frozenset({Project.objects.get(slug="p").pk})
    reader = Viewer(project, frozenset({"read"}))
    with pytest.raises(NotAllowedError):
        memory_version_restore(memory_id=memory.pk, event_id=version, viewer=reader)


def test_change_of_another_version_than_the_one_read_is_refused():
    memory = create()
    version = memory_version(memory)
    changed = memory_update(
        memory_id=memory.pk, changes=MemoryChanges(title="One"), viewer=EVERYTHING, if_version=version
    )
    assert memory_version(changed) != version
    for write in (
        lambda: memory_update(
            memory_id=memory.pk, changes=MemoryChanges(title="Two"), viewer=EVERYTHING, if_version=version
        ),
        lambda: memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="", if_version=version),
    ):
        with pytest.raises(VersionConflictError, match="was changed since you read it"):
            write()
    assert Memory.objects.get().title == "One"


def test_curation_changes_the_version():
    memory = create(tags=["a"])
    curation_apply(operation=Retag(query="tag=a", add_tags=["b"]), viewer=EVERYTHING)
    assert memory_version(Memory.objects.get()) != memory_version(memory)


def test_version_of_a_session_that_is_gone_comes_back_without_it():
    memory = create(session="s1")
    version = events_of(memory)[0].id
    update(memory, session="")
    Session.objects.all().delete()
    update(memory, title="New")
    restored = memory_version_restore(memory_id=memory.pk, event_id=version, viewer=EVERYTHING)
    assert (restored.title, restored.session_id) == ("A text.", None)

"""The feed of changes: everything that happens to memories, in the order of commits, for who may see it."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from access.models import MemoryChange
from access.viewer import Viewer, command_viewer
from curation.schemas import Merge, Retag
from curation.services import curation_apply, curation_undo
from memories.changes import CursorError, changes, newest_changes
from memories.models import ImportBatch, Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import (
    memory_archive,
    memory_classify,
    memory_create,
    memory_delete,
    memory_restore,
    memory_update,
)
from memories.supersession import memory_supersede
from transfer.undo import batch_undo

EVERYTHING = command_viewer()


def create(content="A text.", **fields):
    record = MemoryRecord.model_validate({"content": content, **fields})
    return memory_create(record=record, viewer=EVERYTHING).pk


def kinds_of(feed):
    return [(change.kind, change.memory_id) for change in feed.changes]


@pytest.mark.django_db
def test_each_kind_of_change_is_listed_in_its_order():
    one, two = create(), create("Another.")
    memory_update(memory_id=one, changes=MemoryChanges(title="New"), viewer=EVERYTHING, reason="clearer")
    memory_update(memory_id=one, changes=MemoryChanges(tags=("tea",)), viewer=EVERYTHING)
    memory_archive(memory_id=one, viewer=EVERYTHING)
    memory_restore(memory_id=one, viewer=EVERYTHING)
    memory_supersede(memory_id=one, by_id=two, viewer=EVERYTHING)
    memory_delete(memory_id=two, viewer=EVERYTHING, reason="wrong")
    memory_classify(memory_id=two, viewer=EVERYTHING)
    feed = changes(EVERYTHING)
    assert kinds_of(feed) == [
        ("created", one),
        ("created", two),
        ("edited", one),
        ("retagged", one),
        ("archived", one),
        ("restored", one),
        ("superseded", one),
        ("deleted", two),
    ]
    assert [change.event.note for change in feed.changes][2::5] == ["clearer", "wrong"]
    assert feed.changes[2].title == "New"
    assert not feed.has_more


@pytest.mark.django_db
def test_curations_list_each_memory_that_they_changed():
    one, two = create(tags=["old"]), create("Two.", tags=["old", "tea"])
    begin = changes(EVERYTHING).cursor
    merged = curation_apply(operation=Merge(kind="tag", source="old", target="tea"), viewer=EVERYTHING)
    curation_apply(operation=Retag(query="tag=tea", add_tags=["drink"]), viewer=EVERYTHING)
    curation_undo(curation_id=merged.curation.pk + 1, viewer=EVERYTHING)
    feed = changes(EVERYTHING, after=begin)
    assert kinds_of(feed) == [
        ("merged", one),
        ("merged", two),
        ("retagged", one),
        ("retagged", two),
        ("retagged", one),
        ("retagged", two),
    ]


@pytest.mark.django_db
def test_import_is_listed_as_its_memories_and_its_undo_as_their_deletion(jsonl):
    path = jsonl({"id": "a", "project": "p", "content": "A."}, {"id": "b", "project": "q", "content": "B."})
    call_command("import_memories", str(path), verbosity=0)
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    feed = changes(EVERYTHING)
    assert kinds_of(feed) == [("created", ids[0]), ("created", ids[1])]
    assert {change.event.door for change in feed.changes} == {"command"}
    call_command("import_memories", str(jsonl({"id": "a", "project": "p", "content": "Changed."})), verbosity=0)
    edited = changes(EVERYTHING, after=feed.cursor)
    assert kinds_of(edited) == [("edited", ids[0])]
    call_command("import_memories", str(path), verbosity=0)
    first, *others = ImportBatch.objects.order_by("pk")
    for batch in reversed(others):
        batch_undo(batch_id=batch.pk, viewer=EVERYTHING)
    cursor = changes(EVERYTHING).cursor
    batch_undo(batch_id=first.pk, viewer=EVERYTHING)
    gone = changes(EVERYTHING, after=cursor)
    assert kinds_of(gone) == [("deleted", ids[0]), ("deleted", ids[1])]
    assert [change.title for change in gone.changes] == [None, None]


@pytest.mark.django_db
def test_pages_continue_within_a_change_of_many(jsonl):
    lines = ({"id": f"m{n}", "content": f"Text {n}."} for n in range(25))
    call_command("import_memories", str(jsonl(*lines)), verbosity=0)
    last = create("The last one.")
    cursor, seen = "", []
    for _ in range(4):
        feed = changes(EVERYTHING, after=cursor, limit=10)
        seen += [change.memory_id for change in feed.changes]
        cursor = feed.cursor
    assert seen == [*Memory.objects.exclude(pk=last).order_by("pk").values_list("pk", flat=True), last]
    assert not feed.has_more
    assert changes(EVERYTHING, after=cursor).changes == ()


@pytest.mark.django_db
def test_viewer_of_one_project_sees_its_changes_alone():
    mine, other = create(project="mine"), create(project="other")
    project = Project.objects.get(slug="mine")
    viewer = Viewer(frozenset({project.pk}), frozenset({"read"}))
    feed = changes(viewer)
    assert kinds_of(feed) == [("created", mine)]
    memory_update(memory_id=other, changes=MemoryChanges(title="Secret"), viewer=EVERYTHING)
    assert changes(viewer, after=feed.cursor).changes == ()
    hidden = Project.objects.get(slug="other").pk
    assert changes(viewer, project_ids=[hidden]).changes == ()
    assert changes(Viewer()).changes == ()
    assert kinds_of(changes(EVERYTHING, project_ids=[hidden])) == [("created", other), ("edited", other)]


@pytest.mark.django_db
def test_changes_are_filtered_by_kind_and_begin_at_a_time():
    one = create()
    begin = datetime.now(UTC)
    MemoryChange.objects.update(at=begin - timedelta(days=2))
    memory_archive(memory_id=one, viewer=EVERYTHING)
    assert kinds_of(changes(EVERYTHING, since=begin - timedelta(days=1))) == [("archived", one)]
    assert kinds_of(changes(EVERYTHING, since=begin - timedelta(days=3))) == [("created", one), ("archived", one)]
    assert kinds_of(changes(EVERYTHING, kinds=["created"])) == [("created", one)]
    later = changes(EVERYTHING, since=datetime.now(UTC) + timedelta(days=1))
    assert later.changes == ()
    memory_restore(memory_id=one, viewer=EVERYTHING)
    assert kinds_of(changes(EVERYTHING, after=later.cursor)) == [("restored", one)]


@pytest.mark.django_db(transaction=True)
def test_change_that_commits_late_is_not_skipped():
    """A transaction draws the id of its entry before another one, and commits after it was read."""
    create("First.", id="first")
    seen = changes(EVERYTHING)
    drawn, commit = threading.Event(), threading.Event()

    def write_late():
        with transaction.atomic():
            with connection.cursor() as cursor:
                # The id of an entry that is written later in this transaction.
                cursor.execute("SELECT nextval('access_memorychange_id_seq')")
            drawn.set()
            commit.wait(10)
            create("Late.", id="late")
        connection.close()

    thread = threading.Thread(target=write_late)
    thread.start()
    assert drawn.wait(10)
    create("Early.", id="early")
    early = changes(EVERYTHING, after=seen.cursor)
    assert [change.title for change in early.changes] == ["Early."]
    commit.set()
    thread.join()
    assert [change.title for change in changes(EVERYTHING, after=early.cursor).changes] == ["Late."]
    assert not MemoryChange.objects.filter(revision=None).exists()


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_nothing_is_lost_between_pages_of_several_projects_and_kinds(monkeypatch, limit):
    monkeypatch.setattr("memories.changes._LOOKED_THROUGH", 4)
    for number in range(12):
        pk = create(f"Text {number}.", project=f"p{number % 4 % 3}")
        if number % 5 == 0:
            memory_archive(memory_id=pk, viewer=EVERYTHING)
    some = frozenset(Project.objects.filter(slug__in=["p0", "p2"]).values_list("pk", flat=True))
    for viewer in (EVERYTHING, Viewer(some, frozenset({"read"}))):
        for kinds in ((), ("archived",)):
            whole = kinds_of(changes(viewer, limit=500, kinds=kinds))
            cursor, pages = "", []
            while True:
                feed = changes(viewer, after=cursor, limit=limit, kinds=kinds)
                pages += kinds_of(feed)
                assert len(feed.changes) <= limit
                cursor = feed.cursor
                if not feed.has_more:
                    break
            assert pages == whole
    assert len(kinds_of(changes(EVERYTHING, limit=500))) == 15


def pages_back(viewer, **asked):
    """The memories of all pages from the newest change back."""
    found, after, has_more = [], "", True
    while has_more:
        feed = newest_changes(viewer, after=after, **asked)
        found += [change.memory_id for change in feed.changes]
        after, has_more = feed.cursor, feed.has_more
    return found


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_the_newest_changes_are_the_same_ones_in_reverse_page_by_page(jsonl, limit):
    one = create("In sight.", project="tea")
    lines = ({"id": f"m{n}", "content": f"Text {n}.", "project": "boat" if n % 3 else "tea"} for n in range(9))
    call_command("import_memories", str(jsonl(*lines)), verbosity=0)
    memory_update(memory_id=one, changes=MemoryChanges(title="New"), viewer=EVERYTHING)
    tea = Viewer(project_ids=frozenset(Project.objects.filter(slug="tea").values_list("pk", flat=True)))
    for viewer, count in ((EVERYTHING, 11), (tea, 5)):
        forth = [change.memory_id for change in changes(viewer).changes]
        assert len(forth) == count
        assert pages_back(viewer, limit=limit) == forth[::-1]
    created = [change.memory_id for change in changes(tea, kinds=["created"]).changes]
    assert pages_back(tea, limit=limit, kinds=["created"]) == created[::-1]


@pytest.mark.django_db
@pytest.mark.parametrize("cursor", ["x", "AAAA", "ü", "A" * 56])
def test_foreign_cursor_is_refused(cursor):
    with pytest.raises(CursorError, match="after: is not a cursor of this site"):
        changes(EVERYTHING, after=cursor)

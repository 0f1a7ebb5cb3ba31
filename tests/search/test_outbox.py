"""Every way of changing memories records which ones, in the same transaction."""

import json
import threading

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from categories.models import Category
from memories import storage
from memories.models import ImportBatch, Memory, OutboxEntry, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_archive, memory_create, memory_delete, memory_restore, memory_update
from memories.supersession import memory_supersede
from search.engines.index import outbox

EVERYTHING = command_viewer()
LIST = "/admin/memories/memory/"


@pytest.fixture
def followed(db):
    outbox.start_following()


def create(**fields):
    record = MemoryRecord.model_validate({"content": "A text.", "project": "tea", **fields})
    return memory_create(record=record, viewer=EVERYTHING)


def written():
    """The memories recorded since the last call."""
    ids = sorted(
        {*OutboxEntry.objects.filter(memory_id=0).values_list("memory_id", flat=True), *outbox.pending_memories()}
    )
    OutboxEntry.objects.all().delete()
    return ids


def execute(statement, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor


def import_lines(tmp_path, count, **fields):
    path = tmp_path / "lines.jsonl"
    lines = [{"id": f"i{n}", "content": f"Line {n}.", "project": "tea", **fields} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    call_command("import_memories", str(path), verbosity=0)


# --- the doors ----------------------------------------------------------------------------------------------------


def test_services_write_down_what_they_change(followed):
    memory = create()
    assert written() == [memory.pk]
    memory_update(memory_id=memory.pk, changes=MemoryChanges.model_validate({"tags": ["tea"]}), viewer=EVERYTHING)
    assert written() == [memory.pk]
    memory_archive(memory_id=memory.pk, viewer=EVERYTHING)
    assert written() == [memory.pk]
    memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="obsolete")
    assert written() == [memory.pk]
    memory_restore(memory_id=memory.pk, viewer=EVERYTHING)
    assert written() == [memory.pk]
    other = create(content="Another.")
    written()
    memory_supersede(memory_id=memory.pk, by_id=other.pk, viewer=EVERYTHING)
    assert memory.pk in written()


def test_update_that_changes_nothing_writes_nothing_down(followed):
    memory = create(tags=["tea"])
    written()
    memory_update(memory_id=memory.pk, changes=MemoryChanges.model_validate({"tags": ["tea"]}), viewer=EVERYTHING)
    assert written() == []


# From a hundred new memories on, an import disables foreign key checks, and ordinary triggers with them.
@pytest.mark.parametrize("count", [pytest.param(3, id="few"), pytest.param(150, id="many")])
def test_import_writes_down_what_it_brings_changes_and_takes_back(followed, tmp_path, monkeypatch, count):
    left_out = []
    allowed = storage._may_skip_checks
    monkeypatch.setattr(storage, "_may_skip_checks", lambda cursor: left_out.append(allowed(cursor)) or left_out[-1])
    import_lines(tmp_path, count)
    assert left_out == ([True] if count == 150 else [])
    every = sorted(Memory.objects.values_list("pk", flat=True))
    assert len(every) == count
    # One entry for all of them.
    (entry,) = OutboxEntry.objects.all()
    assert entry.memory_id == -ImportBatch.objects.get().pk
    assert outbox.backlog().changes == count
    assert written() == every
    import_lines(tmp_path, count)
    assert written() == []
    import_lines(tmp_path, count, tags=["new"])
    assert written() == every
    changed, _, brought = ImportBatch.objects.order_by("-pk")[:3]
    call_command("import_memories", undo=changed.pk, verbosity=0)
    assert written() == every
    call_command("import_memories", undo=brought.pk, verbosity=0)
    assert written() == every
    assert not Memory.objects.exists()


def test_admin_writes_down_what_its_form_and_actions_change(followed):
    memory, other = create(external_id="a"), create(external_id="b", content="Another.")
    client = Client()
    client.force_login(User.objects.create_superuser("curator"))
    written()
    client.post(LIST, {"action": "archive", "_selected_action": [memory.pk, other.pk], "reason": "Tidying."})
    assert written() == [memory.pk, other.pk]
    form = client.get(f"{LIST}{memory.pk}/change/").context["adminform"].form
    sent = {}
    for bound in form:
        value = bound.value()
        values = bound.field.widget.decompress(value) if hasattr(bound.field.widget, "decompress") else None
        if values is not None:
            sent |= {f"{bound.name}_{at}": "" if one is None else str(one) for at, one in enumerate(values)}
        elif value not in (None, False):
            sent[bound.name] = value if isinstance(value, str) else str(value)
    response = client.post(f"{LIST}{memory.pk}/change/", {**sent, "title": "By hand", "reason": "Clearer."})
    assert response.status_code == 302
    assert Memory.objects.get(pk=memory.pk).title == "By hand"
    assert written() == [memory.pk]


def test_api_writes_down_what_it_changes(followed):
    raw = make_key(name="agent", scopes=["read", "write"], every_project=True, viewer=EVERYTHING).raw
    caller = Client(headers={"Authorization": f"Bearer {raw}"})
    reply = caller.post("/api/memories", {"content": "A text.", "project": "tea"}, content_type="application/json")
    memory_id = reply.json()["id"]
    address = f"/api/memories/{memory_id}"
    assert written() == [memory_id]
    assert caller.patch(address, {"title": "New"}, content_type="application/json").status_code == 200
    assert written() == [memory_id]
    assert caller.delete(address).status_code == 200
    assert written() == [memory_id]
    assert caller.post(f"{address}/restore").status_code == 200
    assert written() == [memory_id]
    assert caller.get(address).status_code == 200
    assert caller.patch(address, {"titel": "x"}, content_type="application/json").status_code == 422
    assert written() == []


def test_statements_of_any_kind_are_written_down(followed):
    project = Project.objects.create(slug="tea", name="Tea")
    first, second, third = ids = [10, 11, 12]
    Memory.objects.bulk_create([Memory(pk=pk, project=project, content=f"Line {pk}.") for pk in ids])
    assert written() == ids
    Memory.objects.filter(pk__in=[first, third]).update(memory_type="idea")
    assert written() == [first, third]
    Memory.objects.bulk_update([Memory(pk=second, title="New")], ["title"])
    assert written() == [second]
    execute("UPDATE memories_memory SET title = 'Newer' WHERE id = %s", first)
    assert written() == [first]
    execute("UPDATE memories_memory SET title = 'Newest' WHERE id = 0")
    assert written() == []
    columns = ", ".join(
        field.column for field in Memory._meta.local_concrete_fields if not field.primary_key and not field.generated
    )
    execute(f"INSERT INTO memories_memory (id, {columns}) SELECT id + 1000000, {columns} FROM memories_memory")
    assert written() == [pk + 1_000_000 for pk in ids]
    execute("DELETE FROM memories_memory WHERE id > 1000000")
    assert written() == [pk + 1_000_000 for pk in ids]
    Memory.objects.filter(pk=third).delete()
    assert written() == [third]


def test_conflict_that_becomes_an_update_is_written_down(followed):
    memory = create()
    written()
    Memory.objects.bulk_create(
        [Memory(pk=memory.pk, project_id=memory.project_id, content="Again.")],
        update_conflicts=True, unique_fields=["id"], update_fields=["content"],
    )  # fmt: skip
    assert written() == [memory.pk]


def test_category_that_moves_writes_down_the_memories_in_it(followed):
    inside, beside = create(categories=["Kitchen/Oven"]), create(content="Another.", categories=["Yard"])
    written()
    # Its name and path are only in the vocabulary; memories have the ids of it and of its ancestors.
    oven, yard = Category.objects.get(path="kitchen/oven"), Category.objects.get(path="yard")
    Category.objects.filter(pk=oven.pk).update(name="Stove", path="yard/stove", parent=yard)
    assert written() == []
    path_ids = sorted([oven.pk, yard.pk])
    Memory.objects.filter(category_ids__contains=[oven.pk]).update(category_path_ids=path_ids)
    assert written() == [inside.pk]
    assert beside.pk != inside.pk


def test_truncation_is_one_entry_for_everything(followed):
    create()
    written()
    execute("SET CONSTRAINTS ALL IMMEDIATE")
    execute("TRUNCATE memories_memory CASCADE")
    assert written() == [outbox.EVERYTHING]


# --- with the change or not at all --------------------------------------------------------------------------------


def test_what_is_rolled_back_is_not_written_down(followed):
    memory = create()
    written()

    with transaction.atomic():
        Memory.objects.filter(pk=memory.pk).update(title="Never")
        create(content="Another.")
        assert OutboxEntry.objects.count() >= 2
        transaction.set_rollback(True)
    assert written() == []


def test_dry_run_of_an_import_writes_nothing_down(followed, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"content": "A line.", "project": "tea"}\n')
    call_command("import_memories", str(path), dry_run=True, verbosity=0)
    assert written() == []


def test_nothing_is_written_down_while_nobody_follows(db, tmp_path):
    assert not outbox.is_followed()
    memory = create()
    import_lines(tmp_path, 150)
    Memory.objects.update(memory_type="idea")
    memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="obsolete")
    execute("SET CONSTRAINTS ALL IMMEDIATE")
    execute("TRUNCATE memories_memory CASCADE")
    assert written() == []


# --- following ----------------------------------------------------------------------------------------------------


def test_following_starts_once_and_stops_with_all_that_waits(followed):
    assert outbox.is_followed()
    outbox.start_following()
    create()
    assert outbox.backlog().changes
    outbox.stop_following()
    assert not outbox.is_followed()
    assert outbox.backlog() == outbox.Backlog()
    create(content="Another.")
    assert written() == []


@pytest.mark.django_db(transaction=True)
def test_following_waits_for_changes_under_way():
    """A transaction that has begun to change memories does not record it, so the follower has to wait for it."""
    memory = create()
    started, done = threading.Event(), threading.Event()

    def start():
        started.set()
        outbox.start_following()
        done.set()
        connection.close()

    thread = threading.Thread(target=start)
    with transaction.atomic():
        Memory.objects.filter(pk=memory.pk).update(title="Under way")
        thread.start()
        started.wait(10)
        assert not done.wait(0.3)
    assert done.wait(10)
    thread.join()
    assert written() == []
    Memory.objects.filter(pk=memory.pk).update(title="After")
    assert written() == [memory.pk]


def test_backlog_counts_up_to_a_limit_and_knows_the_age_of_the_oldest(followed):
    for n in range(3):
        create(content=f"Line {n}.")
    execute("UPDATE memories_outbox SET at = clock_timestamp() - interval '90 s' WHERE id = (%s)", oldest_entry())
    assert outbox.backlog().changes == OutboxEntry.objects.count()
    assert outbox.backlog(2).changes == 2
    assert 90 <= outbox.backlog().seconds < 100
    entries, memories = outbox.oldest(2)
    assert entries[0] == oldest_entry()
    outbox.delete_applied(entries)
    assert outbox.backlog().seconds < 10
    assert memories[0] == Memory.objects.earliest("pk").pk


def oldest_entry():
    return OutboxEntry.objects.earliest("pk").pk

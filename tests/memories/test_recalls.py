"""Recalls: what counts as one, how they are stored, and what a viewer sees of them."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories import recalls
from memories.models import Memory, Recall, RecallDay
from memories.recalls import DAYS_KEPT, RecallLog, Recalls, log, recalls_of
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.unified_corpus import AtOnce

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()
# Days are removed when they are long over, so these are not.
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
DAY = NOON.date()


def create(title="Kettle", **fields):
    record = MemoryRecord.model_validate({"content": f"{title} in the kitchen.", "title": title, **fields})
    return memory_create(record=record, viewer=EVERYTHING)


def agent(*projects):
    made = make_key(
        name="agent", scopes=["read"], projects=projects, every_project=not projects, viewer=command_viewer()
    )
    return Client(headers={"Authorization": f"Bearer {made.raw}"})


@pytest.fixture
def person():
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def stored(memory):
    """The recalls of a memory, by agents and by people, once those of this process are stored."""
    log.store()
    found = Recall.objects.filter(pk=memory.pk).first()
    return (found.by_agents, found.total - found.by_agents) if found else (0, 0)


@pytest.mark.parametrize(
    "path",
    [
        "/api/search?q=kettle",
        "/api/search?q=kettle&view=index",
        "/api/search?q=kettle&mode=unified",
        "/api/timeline?anchor={id}",
        "/api/memories/{id}",
    ],
)
def test_an_answer_to_an_agent_recalls_the_memories_that_it_has(path, monkeypatch):
    # The threads of a unified search do not see what the transaction of a test has stored.
    monkeypatch.setattr("search.unified.legs._threads", AtOnce())
    memory, other = create(), create("Oar", project="boat")
    agent(memory.project).get(path.format(id=memory.pk))
    assert (stored(memory), stored(other)) == ((1, 0), (0, 0))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "kettle"}),
        ("timeline", {"query": "kettle"}),
        ("get_observations", {"ids": ["{id}", "{id}"]}),
        ("retrieve_memory", {"query": "kettle"}),
    ],
)
def test_a_tool_recalls_each_memory_of_its_answer_once(tool, arguments):
    memory = create()
    given = {key: [memory.pk, memory.pk] if key == "ids" else value for key, value in arguments.items()}
    call(TOOL[tool], given, Viewer(None, frozenset({"read"}), door=AuditEvent.Door.MCP))
    assert stored(memory) == (1, 0)


def test_a_person_recalls_what_they_open_and_not_what_they_list(person):
    memory = create()
    for path in ("/explore/?q=kettle", "/api/search?q=kettle", "/"):
        assert person.get(path).status_code == 200
    assert stored(memory) == (0, 0)
    person.get(f"/m/{memory.pk}/")
    person.get(f"/explore/?q=kettle&sel={memory.pk}")
    assert stored(memory) == (0, 2)


@pytest.mark.parametrize(
    ("before", "counted"),
    [
        pytest.param("/curate/", 0, id="curation"),
        pytest.param("/curate/merge/tag/?term=a", 0, id="a merge"),
        pytest.param("/review/?kind=category", 0, id="review"),
        pytest.param("/admin/memories/memory/", 0, id="admin"),
        pytest.param("/m/{}/edit/", 0, id="after its own form"),
        pytest.param("/explore/?q=curate", 1, id="a search"),
        pytest.param("/m/1/", 1, id="another memory"),
        pytest.param("", 1, id="an address typed"),
    ],
)
def test_opening_a_memory_while_tidying_recalls_nothing(person, before, counted):
    memory = create()
    headers = {"Referer": f"http://testserver{before.format(memory.pk)}"} if before else {}
    person.get(f"/m/{memory.pk}/", headers=headers)
    assert stored(memory) == (0, counted)


def test_counts_exports_and_contexts_recall_nothing():
    memory = create(pinned=True)
    client = agent()
    for path in ("/api/facets?q=kettle", "/api/context", "/api/export?q=kettle", "/api/changes?since=7d"):
        assert client.get(path).status_code == 200
    assert stored(memory) == (0, 0)


def test_recalls_are_stored_together_and_added_to_those_of_other_processes():
    memory, other = create(), create("Oar")
    first, second = RecallLog(), RecallLog()
    first.add([memory.pk, other.pk], by_agent=True, at=NOON)
    first.add([memory.pk], by_agent=False, at=NOON + timedelta(days=1))
    second.add([memory.pk], by_agent=True, at=NOON - timedelta(days=1))
    with connection.execute_wrapper(counting := _Counting()):
        assert first.store() == 2
    second.store()
    assert recalls_of(EVERYTHING, memory.pk).days == (
        recalls.RecallDays(DAY + timedelta(days=1), 1, 0),
        recalls.RecallDays(DAY, 1, 1),
        recalls.RecallDays(DAY - timedelta(days=1), 1, 1),
    )
    found = Recall.objects.get(pk=memory.pk)
    assert (found.total, found.by_agents) == (3, 2)
    assert (found.first_at, found.last_at) == (NOON - timedelta(days=1), NOON + timedelta(days=1))
    assert found.revision > Recall.objects.get(pk=other.pk).revision
    assert counting.inserts == 2


class _Counting:
    inserts = 0

    def __call__(self, execute, sql, *rest):
        self.inserts += sql.lstrip().startswith("INSERT INTO memories_recall")
        return execute(sql, *rest)


def test_recalls_of_a_purged_memory_are_dropped_and_gone_with_it():
    memory, other = create(), create("Oar")
    gathered = RecallLog()
    gathered.add([memory.pk], by_agent=True, at=NOON)
    gathered.store()
    gathered.add([memory.pk, other.pk], by_agent=True, at=NOON)
    Memory.objects.filter(pk=memory.pk).delete()
    gathered.store()
    assert list(Recall.objects.values_list("pk", "total")) == [(other.pk, 1)]
    assert list(RecallDay.objects.values_list("memory_id", "total")) == [(other.pk, 1)]


def test_recalls_wait_while_the_database_refuses_them(monkeypatch):
    memory = create()
    gathered = RecallLog()
    gathered.add([memory.pk], by_agent=True, at=NOON)

    def refuse(found, reads):
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(recalls, "_store", refuse)
        with pytest.raises(DatabaseError):
            gathered.store()
    gathered.add([memory.pk], by_agent=False, at=NOON)
    gathered.store()
    assert (Recall.objects.get().total, Recall.objects.get().by_agents) == (2, 1)


def test_recalls_are_counted_once_if_old_days_cannot_be_removed(monkeypatch):
    memory = create()
    gathered = RecallLog()
    gathered.add([memory.pk], by_agent=True, at=NOON)

    def refuse(self):
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(RecallLog, "_clean", refuse)
        with pytest.raises(DatabaseError):
            gathered.store()
    gathered.store()
    assert Recall.objects.get().total == 1


@pytest.mark.django_db(transaction=True)
def test_recalls_wait_for_a_deletion_at_most_shortly_so_that_it_is_never_ended_for_them():
    memory = create()
    gathered = RecallLog()
    gathered.add([memory.pk], by_agent=True, at=NOON)
    deleted, over = threading.Event(), threading.Event()

    def delete():
        try:
            with transaction.atomic():
                Memory.objects.filter(pk=memory.pk).delete()
                deleted.set()
                over.wait(5)
                transaction.set_rollback(True)
        finally:
            connection.close()

    thread = threading.Thread(target=delete)
    thread.start()
    assert deleted.wait(30)
    with pytest.raises(OperationalError, match="lock timeout"):
        gathered.store()
    over.set()
    thread.join()
    gathered.store()
    assert Recall.objects.get().total == 1


def test_days_are_removed_after_a_quarter_of_a_year_and_the_sum_stays():
    memory = create()
    gathered = RecallLog()
    gathered.add([memory.pk], by_agent=True, at=datetime.now(UTC) - timedelta(days=DAYS_KEPT + 2))
    gathered.store()
    assert (Recall.objects.get().total, RecallDay.objects.count()) == (1, 0)


def test_whoever_may_open_a_memory_sees_its_recalls_by_others_and_nobody_else():
    mine, secret = create(project="mine"), create(project="secret")
    log.add([mine.pk, secret.pk], by_agent=True, at=NOON)
    log.store()
    client = agent(mine.project)
    reply = client.get(f"/api/memories/{mine.pk}/recalls").json()
    assert reply == {
        "total": 1,
        "by_agents": 1,
        "by_people": 0,
        "first_at": f"{DAY}T12:00:00Z",
        "last_at": f"{DAY}T12:00:00Z",
        "days": [{"day": f"{DAY}", "total": 1, "by_agents": 1, "by_people": 0}],
    }
    assert client.get(f"/api/memories/{secret.pk}/recalls").status_code == 404
    assert recalls_of(Viewer(frozenset({mine.project_id}), frozenset({"read"})), secret.pk) == Recalls()
    assert recalls_of(EVERYTHING, create("New").pk) == Recalls()


def test_the_life_of_a_memory_shows_its_recalls_in_all_and_by_day(person):
    memory = create()
    assert "Never recalled." in person.get(f"/m/{memory.pk}/").content.decode()
    log.add([memory.pk], by_agent=True, at=NOON)
    log.store()
    page = person.get(f"/m/{memory.pk}/").content.decode()
    assert "Recalled 2 times, 1 by agents and 1 by people" in page
    log.add([memory.pk], by_agent=True, at=NOON - timedelta(days=1))
    log.store()
    page = person.get(f"/m/{memory.pk}/").content.decode()
    assert f'<time datetime="{DAY}">' in page


def test_nothing_is_counted_if_the_setting_says_so(settings, person):
    settings.RECALLS = False
    memory = create()
    person.get(f"/m/{memory.pk}/")
    agent().get("/api/search?q=kettle")
    assert stored(memory) == (0, 0)

"""The log of reads: what is recorded, who sees it, and how it ends."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent, Membership
from access.viewer import Viewer, command_viewer, viewer_of_key, viewer_of_user
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories import recalls
from memories.models import MemoryRead, Session
from memories.reads import MOST_IDS, readers_of, reads_of
from memories.recalls import log, record_list, record_passing
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.html import html_of
from web import exchange

pytestmark = pytest.mark.django_db


def create(title="Kettle", **fields):
    record = MemoryRecord.model_validate({"content": f"{title} in the kitchen.", "title": title, **fields})
    return memory_create(record=record, viewer=command_viewer())


def key(name="codex", *projects, scopes=("read",), by=None):
    viewer = viewer_of_user(by) if by else command_viewer()
    return make_key(name=name, scopes=scopes, projects=projects, every_project=not projects, viewer=viewer)


def client_of(made):
    return Client(headers={"Authorization": f"Bearer {made.raw}"})


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


def member(name, project, role="reader"):
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, project=project, role=role)
    return user


def last_read():
    log.store()
    return MemoryRead.objects.first()


@pytest.fixture
def owner():
    return User.objects.create_superuser("ann")


@pytest.fixture(autouse=True)
def _request():
    """Requests of a test client come without one."""
    exchange.begin(session=b"run-7")


@pytest.mark.parametrize(
    ("path", "operation", "kind", "query"),
    [
        ("/api/search?q=kettle&view=index", "/api/search", "list", {"q": ["kettle"], "page_size": ["20"]}),
        ("/api/search?q=zebra&mode=keyword", "/api/search", "list", {"q": ["zebra"], "mode": ["keyword"]}),
        ("/api/timeline?anchor={id}", "/api/timeline", "list", {"anchor": ["{id}"]}),
        ("/api/memories/{id}", "/api/memories/<int:memory_id>", "whole", {}),
        ("/api/memories/{id}/history", "/api/memories/<int:memory_id>/history", "whole", {}),
        ("/api/changes?limit=1", "/api/changes", "list", {"limit": ["1"]}),
        ("/api/context?project=tea", "/api/context", "context", {"project": ["tea"]}),
        ("/api/export?project=tea", "/api/export", "export", {"project": ["tea"]}),
    ],
)
def test_a_reply_of_the_api_is_a_read_of_the_memories_that_it_has(path, operation, kind, query):
    memory = create(project="tea")
    made = key("codex", memory.project)
    response = client_of(made).get(path.format(id=memory.pk))
    assert b"".join(response) if response.streaming else response.content
    read = last_read()
    assert (read.door, read.operation, read.kind) == ("api", operation, kind)
    assert (read.api_key_id, read.user_id, read.session) == (made.key.pk, None, "run-7")
    expected = [] if "zebra" in path else [memory.pk]
    assert (read.memory_ids, read.number) == (expected, len(expected))
    named = {name: [value.format(id=memory.pk) for value in values] for name, values in query.items()}
    assert parse_qs(read.query) == named


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("search", {"query": "kettle"}, "list"),
        ("timeline", {"query": "kettle"}, "list"),
        ("get_observations", {"ids": ["{id}"]}, "whole"),
        ("session_context", {}, "context"),
        ("changes", {}, "list"),
        ("history", {"id": "{id}"}, "whole"),
    ],
)
def test_a_result_of_a_tool_is_a_read(tool, arguments, kind):
    memory = create()
    given = {
        name: [memory.pk] if name == "ids" else memory.pk if name == "id" else value
        for name, value in arguments.items()
    }
    call(TOOL[tool], given, viewer_of_key(key().key, AuditEvent.Door.MCP))
    read = last_read()
    assert (read.door, read.kind, read.memory_ids) == ("mcp", kind, [memory.pk])


def test_what_a_person_lists_is_a_read_and_no_recall_and_what_they_open_is_both(owner):
    memory = create()
    signed_in(owner).get("/explore/?q=kettle")
    read = last_read()
    assert (read.door, read.operation, read.kind, read.user_id) == ("page", "/explore/", "list", owner.pk)
    assert (read.memory_ids, parse_qs(read.query)) == ([memory.pk], {"q": ["kettle"]})
    signed_in(owner).get(f"/m/{memory.pk}/")
    assert last_read().kind == "whole"
    (reader,) = readers_of(reads_of([memory.pk]))
    assert (reader.name, reader.is_agent, reader.times, reader.listed) == ("ann", False, 1, 1)


def test_secrets_of_a_query_are_not_stored():
    create()
    client_of(key()).get("/api/search", {"q": "AKIA" + "QYLPMN5HHHFPZAM2 kettle", "mode": "keyword"})
    read = last_read()
    assert "QYLPMN5HHHFPZAM2" not in read.query
    assert parse_qs(read.query)["q"][0].endswith("M2] kettle")


def test_the_command_exports_as_a_read(tmp_path):
    memory = create(project="tea")
    call_command("export_memories", str(tmp_path / "all.jsonl"), "--project", "tea")
    read = MemoryRead.objects.get()
    assert (read.door, read.operation, read.kind) == ("command", "export_memories", "export")
    assert (read.memory_ids, read.query) == ([memory.pk], "project=tea")


def test_reads_are_dropped_and_counted_where_too_many_wait_while_the_database_is_away(monkeypatch):
    memory = create()
    gathered = recalls.RecallLog()
    monkeypatch.setattr(recalls, "log", gathered)
    monkeypatch.setattr(recalls, "_MOST_READS", 2)
    viewer = Viewer(None, frozenset({"read"}), door=AuditEvent.Door.MCP)

    def refuse(found, reads):
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr(recalls, "_store", refuse)
        for query in ("q=first", "q=second", "q=third"):
            record_list(viewer, [memory.pk], query)
        with pytest.raises(DatabaseError):
            gathered.store()
    assert (gathered.waiting_reads, gathered.dropped_reads) == (2, 1)
    gathered.store()
    assert list(MemoryRead.objects.order_by("pk").values_list("query", flat=True)) == ["q=first", "q=second"]


@pytest.mark.parametrize(("days", "left"), [(90, ["q=new"]), (0, [])])
def test_old_reads_are_removed(settings, monkeypatch, days, left):
    gathered = recalls.RecallLog()
    monkeypatch.setattr(recalls, "log", gathered)
    monkeypatch.setattr("memories.reads._REMOVED_AT_ONCE", 2)
    for _ in range(5):
        record_list(command_viewer(), [], "q=old")
    gathered.store()
    MemoryRead.objects.update(at=datetime.now(UTC) - timedelta(days=91))
    record_list(command_viewer(), [], "q=new")
    settings.READS_DAYS = days
    gathered._cleaned_at = None
    gathered.store()
    record_list(command_viewer(), [], "q=later")
    assert list(MemoryRead.objects.values_list("query", flat=True)) == left
    assert gathered.waiting_reads == (1 if days else 0)


def test_a_large_read_may_have_had_a_memory_whose_id_it_does_not_name():
    memory, other = create(), create("Pot")
    record_passing(command_viewer(), [other.pk], MemoryRead.Kind.EXPORT, number=MOST_IDS + 1)
    record_list(command_viewer(), [memory.pk])
    record_list(command_viewer(), [other.pk])
    log.store()
    assert [(read.kind, read.is_certain) for read in reads_of([memory.pk])] == [("list", True), ("export", False)]


# --- who sees it --------------------------------------------------------------------------------------------------


@pytest.fixture
def read_by_two(owner):
    """A memory of the project tea that the agents of an admin of tea and of the owner have read, and one of coffee."""
    tea, coffee = create(project="tea"), create("Coffee", project="coffee")
    greta = member("greta", tea.project, "admin")
    hers, others = key("greta's agent", tea.project, by=greta), key("robot", by=owner)
    client_of(hers).get("/api/search?q=kettle")
    client_of(others).get("/api/search?q=coffee+kettle&mode=semantic")
    record_list(viewer_of_key(others.key), [tea.pk, coffee.pk], "q=plan")
    log.store()
    return tea, coffee, greta, hers, others


def names(reply):
    return [one["reader"] for one in reply.json()["reads"]]


def test_an_administrator_of_everything_sees_all_reads(read_by_two, owner):
    tea, *_ = read_by_two
    client = signed_in(owner)
    assert set(names(client.get("/api/reads"))) == {"greta's agent", "robot"}
    readers = client.get(f"/api/memories/{tea.pk}/reads").json()["readers"]
    assert {one["name"] for one in readers} == {"greta's agent", "robot"}
    page = html_of(client.get(f"/m/{tea.pk}/"))
    assert "robot 1 time, last today" in page
    assert "q=plan" not in page
    assert "plan" in html_of(client.get("/reads/?reader=robot"))


def test_who_manages_a_key_sees_its_reads_and_no_others(read_by_two):
    tea, _, greta, *_ = read_by_two
    client = signed_in(greta)
    assert set(names(client.get("/api/reads"))) == {"greta's agent"}
    readers = client.get(f"/api/memories/{tea.pk}/reads").json()["readers"]
    assert [one["name"] for one in readers] == ["greta's agent"]
    page = html_of(client.get("/reads/"))
    assert "robot" not in page
    assert "plan" not in page
    assert client.get("/reads/?reader=robot").status_code == 422
    assert client.get("/api/reads?reader=robot").status_code == 422


def test_a_reader_sees_their_own_reads_alone(read_by_two):
    tea, coffee, *_ = read_by_two
    paul = member("paul", tea.project)
    client = signed_in(paul)
    assert names(client.get("/api/reads")) == []
    assert "Read by" not in html_of(client.get(f"/m/{tea.pk}/"))
    log.store()
    assert names(client.get("/api/reads")) == ["paul"]
    assert client.get(f"/api/memories/{coffee.pk}/reads").status_code == 404
    assert names(client.get(f"/api/reads?memory={coffee.pk}")) == []


def test_a_key_sees_its_own_reads_with_the_memories_that_it_still_sees(read_by_two):
    tea, coffee, *_, others = read_by_two
    others.key.every_project = False
    others.key.save()
    others.key.projects.set([tea.project])
    replies = client_of(others).get("/api/reads").json()["reads"]
    assert {one["reader"] for one in replies} == {"robot"}
    assert coffee.pk not in {pk for one in replies for pk in one["memory_ids"]}
    (plan,) = [one for one in replies if one["query"] == "q=plan"]
    assert (plan["memory_ids"], plan["number"]) == ([tea.pk], 2)


def test_the_log_is_filtered_and_read_on_by_a_cursor(owner):
    memory = create()
    for at in range(5):
        record_list(command_viewer(), [memory.pk], f"q={at}")
    client_of(key()).get("/api/search?q=kettle")
    log.store()
    client = signed_in(owner)
    first = client.get("/api/reads?limit=2&door=command").json()
    assert [one["query"] for one in first["reads"]] == ["q=4", "q=3"]
    rest = client.get(f"/api/reads?limit=200&door=command&cursor={first['next']}").json()
    assert ([one["query"] for one in rest["reads"]], rest["next"]) == (["q=2", "q=1", "q=0"], None)
    assert names(client.get("/api/reads?reader=codex&session=run-7")) == ["codex"]
    today = datetime.now(UTC).date()
    assert len(names(client.get(f"/api/reads?from={today - timedelta(days=1)}&to={today + timedelta(days=1)}"))) == 6
    assert names(client.get(f"/api/reads?to={today - timedelta(days=2)}")) == []
    page = html_of(client.get("/reads/?door=command&limit=2"))
    assert "Earlier" in page
    assert "the command line" in page


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("door=window", "door"),
        ("memory=x", "memory"),
        ("from=7d", "from"),
        ("from=2026-03-02&to=2026-03-01", "to"),
        ("reder=ann", "reder"),
    ],
)
def test_a_filter_that_cannot_be_read_is_named_and_shows_nothing(owner, query, named):
    memory = create()
    record_list(command_viewer(), [memory.pk], "q=visible")
    log.store()
    client = signed_in(owner)
    reply = client.get(f"/api/reads?{query}")
    assert reply.status_code == 422
    assert named in reply.json()["detail"]
    response = client.get(f"/reads/?{query}")
    assert response.status_code == 422
    assert "visible" not in html_of(response)


def test_the_page_of_a_session_shows_what_it_read(owner):
    memory = create(project="tea", session="run-7")
    client_of(key()).get("/api/search?q=kettle")
    log.store()
    session = Session.objects.get(external_id="run-7")
    assert "What it read last" in html_of(signed_in(owner).get(f"/sessions/{session.pk}/"))
    paul = member("paul", memory.project)
    assert "What it read last" not in html_of(signed_in(paul).get(f"/sessions/{session.pk}/"))


def test_the_keys_page_leads_to_the_reads_of_each_key(owner):
    key("codex & co", by=owner)
    assert "/reads/?reader=codex%20%26%20co" in html_of(signed_in(owner).get("/settings/keys/"))


def test_reads_outlast_their_memory(owner):
    memory = create()
    record_list(command_viewer(), [memory.pk])
    log.store()
    number = memory.pk
    memory.delete()
    reads = signed_in(owner).get(f"/api/reads?memory={number}").json()["reads"]
    assert [one["memory_ids"] for one in reads] == [[number]]

"""The process that follows sources, and the pages and the API about them."""

import os
import threading
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.viewer import command_viewer, viewer_of_user
from memories.models import FollowedSource, Memory, SourceConflict
from memories.records import MemoryChanges
from memories.services import memory_update
from tests.html import html_of
from tests.memories.foreign import write_database
from tests.memories.test_importers_claude_mem import OBSERVATION, PRESENT, SESSION, VERSIONS
from transfer.follow import process as following
from transfer.follow import watch
from transfer.follow.process import Follower, follower_started
from transfer.follow.services import source_new, source_stop
from transfer.follow.sync import source_has_changed
from transfer.formats.registry import importer_for
from transfer.models import ImportJob
from transfer.process import jobs_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def home(settings, tmp_path):
    settings.HOME = tmp_path


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "oolong.md").write_text("# Oolong\n\nA tea.")
    return folder


def followed(path, viewer=None):
    source = source_new(path=path, importer=importer_for(path), project="", viewer=viewer or command_viewer())
    source.save()
    return source


def test_follower_reads_what_is_new_at_once_and_looks_again_later(notes, monkeypatch):
    source = followed(notes)
    follower = Follower()
    follower.once()
    source.refresh_from_db()
    assert (source.memories, source.error, source.read_at is not None) == (1, "", True)

    (notes / "sencha.md").write_text("# Sencha\n\nA tea.")
    follower.once()
    assert Memory.objects.count() == 1, "a source is not looked at without a pause"
    monkeypatch.setattr(following.time, "monotonic", lambda: 1e9)
    follower.once()
    assert Memory.objects.count() == 2


def test_source_that_cannot_be_read_says_why_and_does_not_stop_the_others(notes, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sencha.md").write_text("# Sencha\n\nA tea.")
    lost, other = followed(notes), followed(tmp_path / "more")
    notes.rename(tmp_path / "away")
    Follower().once()
    for source in (lost, other):
        source.refresh_from_db()
    assert (lost.error, other.error, other.memories) == (f"{notes}: is not there.", "", 1)

    (tmp_path / "away").rename(notes)
    Follower().once()
    lost.refresh_from_db()
    assert (lost.error, lost.memories) == ("", 1)


def test_source_is_not_read_for_somebody_who_may_no_longer_import(notes):
    user = User.objects.create_superuser("ann")
    source = followed(notes, viewer_of_user(user))
    User.objects.filter(pk=user.pk).update(is_superuser=False, is_staff=False)
    Follower().once()
    source.refresh_from_db()
    assert source.error.startswith("Importing from this machine needs the rights to read, write and curate")
    assert not Memory.objects.exists()


@pytest.mark.parametrize(
    ("look", "pause"),
    [(0.001, 2.0), (0.04, 5.0), (0.07, 8.0), (0.6, 8.0), (2.0, 20.0)],
)
def test_looks_take_less_than_a_hundredth_of_the_time_unless_changes_would_be_found_too_late(look, pause):
    assert following._pause(look) == pytest.approx(pause)


@pytest.fixture
def looks(monkeypatch):
    """The paths of the folders that are looked through."""
    through = []

    def look(source):
        through.append(source.path)
        return source_has_changed(source)

    monkeypatch.setattr(watch, "source_has_changed", look)
    return through


@pytest.fixture
def follower():
    return Follower()


@pytest.fixture
def again(notes, looks, follower):
    """A function that lets a follower look at a folder, in which nothing has changed for a while, at once."""
    os.utime(notes / "oolong.md", (0, 0))
    followed(notes)

    def again():
        follower._due.clear()
        looks.clear()
        follower.once()
        return len(looks)

    assert [again() for _ in range(4)] == [1, 1, 0, 0]
    return again


def test_folder_is_looked_through_only_after_the_system_reported_a_change_in_it(again, notes):
    (notes / "green").mkdir()
    (notes / "green" / "sencha.md").write_text("# Sencha\n\nA tea.")
    os.utime(notes / "green" / "sencha.md", (0, 0))
    assert [again() for _ in range(3)] == [1, 1, 0]
    # In the folder that is new, and only in its text.
    (notes / "green" / "sencha.md").write_text("# Sencha\n\nSteamed.")
    assert again() == 1
    assert Memory.objects.get(title="Sencha").content == "# Sencha\n\nSteamed."


def test_folder_that_the_system_does_not_watch_is_looked_through(notes, looks, monkeypatch):
    def refuse(*paths, **options):
        raise OSError("the limit of watches is reached")
        yield

    monkeypatch.setattr(watch.watchfiles, "watch", refuse)
    followed(notes)
    follower = Follower()
    for _ in range(3):
        follower._due.clear()
        follower.once()
    assert (len(looks), Memory.objects.count()) == (3, 1)


@pytest.fixture
def owner(client):
    client.force_login(User.objects.create_superuser("owner"))
    return client


def key(*, every_project=True, projects=()):
    scopes = ["read", "write", "curate"]
    made = make_key(name="k", scopes=scopes, viewer=command_viewer(), every_project=every_project, projects=projects)
    return {"Authorization": f"Bearer {made.raw}"}


@pytest.fixture
def conflict(notes):
    """A followed folder with a memory that was edited here and changed there."""
    source = followed(notes)
    Follower().once()
    memory = Memory.objects.get()
    memory_update(memory_id=memory.pk, changes=MemoryChanges(title="Oolong", content="Mine."), viewer=command_viewer())
    (notes / "oolong.md").write_text("# Oolong\n\nTheirs.")
    Follower().once()
    return source, memory


def test_imports_list_what_is_followed_with_its_memories_and_conflicts(owner, conflict):
    source, _ = conflict
    page = html_of(owner.get("/imports/"))
    assert f'<a class="link" href="/imports/followed/{source.pk}/">{source.path}</a>' in page
    assert "<strong>1 memory · 1 conflict</strong>" in page
    assert "No process follows sources at present." in page
    # The imports that it brought are on its own page.
    assert "Imports so far" not in page
    page = html_of(owner.get(f"/imports/followed/{source.pk}/"))
    assert ">1 new</a>" in page
    assert 'id="total"' in html_of(owner.get(f"/explore/?import=followed:{source.pk}"))
    assert f'<a class="link" href="/explore/?import=followed%3A{source.pk}&' in unescape(page)
    assert f'<a class="link" href="/m/{Memory.objects.get().pk}/">' in page.partition("Its newest memories")[2]


@pytest.mark.parametrize(
    ("take", "text"), [("source", "# Oolong\n\nTheirs."), ("here", "Mine.")], ids=["of the source", "of here"]
)
def test_conflict_is_shown_with_both_sides_and_decided(owner, conflict, take, text):
    source, memory = conflict
    address = f"/imports/followed/{source.pk}/"
    page = html_of(owner.get(address))
    assert "<dt>content</dt><dd><del>Mine.</del><ins># Oolong Theirs.</ins></dd>" in page
    owner.post(f"{address}conflicts/{memory.pk}/", {"take": take})
    memory.refresh_from_db()
    assert (memory.content, SourceConflict.objects.count()) == (text, 0)
    # The other tab of the browser says so, and nothing else happens.
    assert owner.post(f"{address}conflicts/{memory.pk}/", {"take": take}).status_code == 404


def test_when_most_is_gone_the_page_asks_and_then_the_source_is_stopped(owner, notes, monkeypatch):
    monkeypatch.setattr("transfer.follow.sync.MANY", 0)
    (notes / "sencha.md").write_text("# Sencha\n\nA tea.")
    source = followed(notes)
    Follower().once()
    for file in list(notes.iterdir()):
        file.unlink()
    Follower().once()
    address = f"/imports/followed/{source.pk}/"
    assert "2 memories are gone at once" in html_of(owner.get(address))
    owner.post(f"{address}gone/", {"answer": "delete"})
    Follower().once()
    assert set(Memory.objects.values_list("state", flat=True)) == {"deleted"}
    page = html_of(owner.post(f"{address}stop/", follow=True))
    assert "is followed no longer. Its memories stay." in page
    assert not FollowedSource.objects.exists()
    assert owner.get(address).status_code == 404


def test_import_of_a_source_that_changed_since_is_undone_all_the_same_if_somebody_insists(owner, notes, monkeypatch):
    monkeypatch.setattr("transfer.jobs._start", lambda: None)
    source = followed(notes)
    Follower().once()
    first = source.batches.get()
    (notes / "oolong.md").write_text("# Oolong\n\nRolled.")
    Follower().once()
    source_stop(source)

    owner.post(f"/imports/batches/{first.pk}/undo/")
    job = ImportJob.objects.get()
    assert "Undo it all the same" not in html_of(owner.get(f"/imports/{job.pk}/"))
    jobs_run()
    # After an undo that was interrupted nobody knows what was changed since.
    ImportJob.objects.update(is_changed_since=False, error="It was interrupted. Try again.")
    assert "Undo it all the same" not in html_of(owner.get(f"/imports/{job.pk}/"))
    owner.post(f"/imports/{job.pk}/undo/")
    jobs_run()
    page = html_of(owner.get(f"/imports/{job.pk}/"))
    assert "1 memory was changed since" in page
    assert "--force" not in page
    assert "Undo it all the same" in page
    owner.post(f"/imports/{job.pk}/undo/", {"force": "1"})
    jobs_run()
    assert not Memory.objects.exists()
    # Another undo of it would ask again.
    assert ImportJob.objects.get().state == "undone"


def test_api_lists_decides_and_stops(client, conflict):
    source, memory = conflict
    headers = key()
    listed = client.get("/api/follows", headers=headers).json()
    assert (listed["is_running"], [one["conflicts"] for one in listed["follows"]]) == (False, [1])
    one = client.get(f"/api/follows/{source.pk}", headers=headers).json()
    assert (one["path"], one["memories"], one["problem"]) == (source.path, 1, "")
    assert [(found["memory"], found["is_gone"]) for found in one["open"]] == [(memory.pk, False)]
    assert {"field": "content", "here": "Mine.", "source": "# Oolong\n\nTheirs."} in one["open"][0]["differences"]

    def post(path, body):
        return client.post(f"/api/follows/{source.pk}/{path}", body, content_type="application/json", headers=headers)

    assert post(f"conflicts/{memory.pk}", {"take": "both"}).status_code == 422
    assert post(f"conflicts/{memory.pk}", {"take": "source"}).json()["conflicts"] == 0
    assert post(f"conflicts/{memory.pk}", {"take": "source"}).status_code == 404
    assert post("gone", {"answer": "keep"}).status_code == 200
    assert client.delete(f"/api/follows/{source.pk}", headers=headers).status_code == 204
    assert client.get(f"/api/follows/{source.pk}", headers=headers).status_code == 404


def test_who_may_not_write_everything_sees_nothing_of_what_is_followed(client, conflict):
    source, memory = conflict
    headers = key(every_project=False, projects=[memory.project])
    assert client.get("/api/follows", headers=headers).status_code == 403
    assert client.get(f"/api/follows/{source.pk}", headers=headers).status_code == 403
    # The same for one that is not there.
    assert client.get("/api/follows/999", headers=headers).status_code == 403
    path = f"/api/follows/{source.pk}/conflicts/{memory.pk}"
    taken = client.post(path, {"take": "source"}, content_type="application/json", headers=headers)
    assert taken.status_code == 403
    assert client.delete(f"/api/follows/{source.pk}", headers=headers).status_code == 403
    client.force_login(User.objects.create_user("ann"))
    assert source.path not in html_of(client.get("/imports/"))
    assert client.get(f"/imports/followed/{source.pk}/").status_code == 403


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A database of claude-mem in its usual place."""
    (tmp_path / ".claude-mem").mkdir()
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("CLAUDE_MEM_DATA_DIR", raising=False)
    return write_database(
        tmp_path / ".claude-mem" / "claude-mem.db",
        VERSIONS + PRESENT,
        {"schema_versions": [{"version": 30}], "sdk_sessions": [SESSION], "observations": [OBSERVATION]},
        wal=True,
    )


def test_found_stores_are_followed_from_the_page_if_their_format_is(owner, store):
    assert "Keep up with them" in html_of(owner.get("/imports/found/"))
    reply = owner.post("/imports/start/", {"path": [str(store)], "follow": "1"})
    source = FollowedSource.objects.get()
    assert reply.url == f"/imports/followed/{source.pk}/"
    assert "being read for the first time" in html_of(owner.get("/imports/"))
    Follower().once()
    assert Memory.objects.count() == 1
    page = html_of(owner.get("/imports/found/"))
    assert "It is followed already." in page
    assert "Keep up with them" not in page
    again = owner.post("/imports/start/", {"path": [str(store)], "follow": "1"}, follow=True)
    assert "is followed already." in html_of(again)
    strange = owner.post("/imports/start/", {"path": ["/etc"], "follow": "1"}, follow=True)
    assert "/etc is not among the known places of this machine." in html_of(strange)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "/nowhere", "bad\0path", ""], ids=["of this machine", "missing", "no path", "empty"]
)
def test_only_known_places_are_looked_at_before_they_are_followed(owner, monkeypatch, path):
    monkeypatch.setattr("transfer.follow.sources.importer_for", lambda path: pytest.fail(f"{path} was read"))
    page = owner.post("/imports/start/", {"path": [path], "follow": "1"}, follow=True)
    assert "is not among the known places of this machine" in html_of(page)


def test_folders_that_are_not_read_are_not_watched(again, notes, tmp_path):
    (tmp_path / "other").mkdir()
    (notes / "linked").symlink_to(tmp_path / "other", target_is_directory=True)
    (notes / "node_modules" / "package").mkdir(parents=True)
    assert again() == 1
    while again():
        pass
    (tmp_path / "other" / "note.md").write_text("# Another note")
    (notes / "node_modules" / "package" / "readme.md").write_text("# Package")
    assert again() == 0


def test_place_that_cannot_be_read_any_more_is_refused_with_the_reason(owner, store):
    store.write_bytes(b"no database")
    page = owner.post("/imports/start/", {"path": [str(store)], "follow": "1"}, follow=True)
    assert f"{store}: " in html_of(page)
    assert not FollowedSource.objects.exists()


def test_place_that_is_named_twice_is_followed_once(owner, store):
    owner.post("/imports/start/", {"path": [str(store), str(store)], "follow": "1"})
    assert FollowedSource.objects.count() == 1


def test_process_that_follows_is_started_once_there_is_a_source(notes, monkeypatch):
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.01)
    started = threading.Event()
    arguments = []
    there = [False, False, True]
    monkeypatch.setattr(
        following, "FollowedSource", SimpleNamespace(objects=SimpleNamespace(exists=lambda: there.pop(0)))
    )

    def start(process):
        arguments.append(process._arguments)
        started.set()

    with follower_started(start):
        assert started.wait(60)
    assert arguments == [["follow_sources", "--skip-checks"]]
    assert FollowedSource.objects.count() == 0


def test_page_and_api_begin_and_end_writing_back(owner, client, notes):
    source = followed(notes)
    page = html_of(owner.get(f"/imports/followed/{source.pk}/"))
    assert "Write edits into its notes" in page
    address = f"/imports/followed/{source.pk}/write-back/"
    assert "Write nothing to it" in html_of(owner.post(address, {"on": "1"}, follow=True))
    Follower().once()
    memory = Memory.objects.get()
    memory_update(memory_id=memory.pk, changes=MemoryChanges(title="Better"), viewer=command_viewer())
    Follower().once()
    assert (notes / "oolong.md").read_text() == "---\nmnemoscope:\n  title: Better\n---\n# Oolong\n\nA tea."
    call = {"content_type": "application/json", "headers": key()}
    reply = client.post(f"/api/follows/{source.pk}/write_back", {"on": False}, **call).json()
    assert reply["writes_back"] is False


def test_a_source_that_is_no_folder_of_notes_is_not_written_to(owner, client, store):
    source = followed(store)
    assert "Write edits into its notes" not in html_of(owner.get(f"/imports/followed/{source.pk}/"))
    call = {"content_type": "application/json", "headers": key()}
    reply = client.post(f"/api/follows/{source.pk}/write_back", {"on": True}, **call)
    assert reply.status_code == 422
    assert "folders of Markdown notes alone" in reply.content.decode()


def test_who_may_not_write_everything_does_not_have_edits_written(client, conflict):
    source, memory = conflict
    call = {"content_type": "application/json", "headers": key(every_project=False, projects=[memory.project])}
    assert client.post(f"/api/follows/{source.pk}/write_back", {"on": True}, **call).status_code == 403
    source.refresh_from_db()
    assert not source.writes_back

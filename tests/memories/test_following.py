"""Followed sources: what is new, changed or gone there changes here too, and what was edited here stays."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from django.db import connection

from access.models import AuditEvent
from access.viewer import command_viewer
from categories.services import VocabularyBusyError
from memories.models import FollowedRecord, FollowedSource, ImportBatch, Memory, Project, SourceConflict
from memories.records import MemoryChanges
from memories.services import memory_delete, memory_update
from tests.memories.foreign import write_database
from tests.memories.imports import failing, run
from tests.memories.test_importers_claude_mem import OBSERVATION, PRESENT, PROMPT, SESSION, SUMMARY, VERSIONS
from transfer.follow import seen, services, sync
from transfer.follow.services import (
    ConflictNotFoundError,
    NotFollowableError,
    conflict_settle,
    source_gone_settle,
    source_new,
    source_stop,
)
from transfer.follow.sync import Choices, FollowedMeanwhileError, source_has_changed, source_sync
from transfer.formats.base import ImportFailedError
from transfer.formats.registry import importer_for
from transfer.formats.trees import FileTree

pytestmark = pytest.mark.django_db

EVERYTHING = command_viewer()


def follow(path, project=""):
    """Follow a path, and read it for the first time."""
    source = source_new(path=path, importer=importer_for(path), project=project, viewer=EVERYTHING)
    source_sync(source, Choices(EVERYTHING))
    return source


def read(path):
    """The outcome of a further look at a path: new, updated, gone, conflicts; nothing if it had not changed."""
    source = FollowedSource.objects.get(path=str(path.resolve()))
    if not source_has_changed(source):
        return None
    outcome = source_sync(source, Choices(EVERYTHING))
    if outcome is None:
        return (0, 0, 0, 0)
    tally = outcome.tally
    return (tally.created, tally.updated, tally.gone, tally.conflicts)


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def states(**fields):
    return dict(Memory.objects.filter(**fields).values_list("title", "state"))


@pytest.fixture
def claude_mem(tmp_path):
    rows = {"schema_versions": [{"version": 30}], "sdk_sessions": [SESSION], "observations": [OBSERVATION]}
    rows |= {"session_summaries": [SUMMARY], "user_prompts": [PROMPT]}
    return write_database(tmp_path / "claude-mem.db", VERSIONS + PRESENT, rows, wal=True)


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("oolong", "sencha", "matcha"):
        write(folder / f"{name}.md", f"# {name.title()}\n\nA tea.")
    return folder


def write(path, text):
    path.write_text(text)
    # A file of a moment ago is read twice: it may be written again within the precision of its time.
    os.utime(path, ns=(0, path.stat().st_ino * 1_000 + hash(text) % 1_000_000_000 * 1_000))


def git(folder, *arguments):
    names = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def test_claude_mem_is_followed_while_it_is_written_to(claude_mem):
    with closing(sqlite3.connect(claude_mem, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        follow(claude_mem)
        assert Memory.objects.count() == 3
        assert read(claude_mem) is None

        writer.execute(
            "INSERT INTO observations (id, memory_session_id, project, type, title, narrative, created_at_epoch)"
            " VALUES (8, 'm-1', 'tea', 'discovery', 'A new kettle', 'It cools.', 1760000100000)"
        )
        writer.execute("UPDATE session_summaries SET learned = 'It is the kettle.'")
        assert read(claude_mem) == (1, 1, 0, 0)
        assert "It is the kettle." in Memory.objects.get(memory_type="session-summary").content
        assert read(claude_mem) is None

        writer.execute("DELETE FROM observations WHERE id = 8")
        assert read(claude_mem) == (0, 0, 1, 0)
        gone = Memory.objects.get(title="A new kettle")
        assert (gone.state, gone.state_reason) == ("deleted", "It is no longer in its source.")


def test_following_writes_nothing_to_a_database_and_locks_nobody_out(claude_mem):
    with closing(sqlite3.connect(claude_mem, isolation_level=None, timeout=0)) as writer:
        writer.execute("UPDATE observations SET title = 'Too hot'")
        before = [(file.name, file.read_bytes()) for file in (claude_mem, claude_mem.with_name("claude-mem.db-wal"))]
        writer.execute("BEGIN IMMEDIATE")
        follow(claude_mem)
        assert [(name, claude_mem.with_name(name).read_bytes()) for name, _ in before] == before
        writer.execute("UPDATE observations SET title = 'Far too hot'")
        writer.execute("COMMIT")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert read(claude_mem) == (0, 1, 0, 0)


def test_replaced_database_with_the_same_memories_changes_nothing(claude_mem, tmp_path):
    follow(claude_mem)
    shutil.copy(claude_mem, tmp_path / "copy.db")
    # The row has another number in the copy, as after a restore by another program.
    change(tmp_path / "copy.db", "UPDATE observations SET id = 70, title = 'Oolong steeped too hot'")
    (tmp_path / "copy.db").rename(claude_mem)
    for suffix in ("-wal", "-shm"):
        claude_mem.with_name(f"claude-mem.db{suffix}").unlink(missing_ok=True)
    assert read(claude_mem) == (0, 0, 0, 0)
    assert set(Memory.objects.values_list("state", flat=True)) == {"active"}


def test_source_that_is_not_there_for_a_while_loses_nothing(claude_mem, tmp_path):
    source = follow(claude_mem)
    claude_mem.rename(tmp_path / "away.db")
    with pytest.raises(ImportFailedError, match="is not there"):
        source_has_changed(source)
    claude_mem.write_text("something else")
    with pytest.raises(ImportFailedError, match="is no longer what it was"):
        source_sync(source, Choices(EVERYTHING))
    (tmp_path / "away.db").rename(claude_mem)
    assert set(Memory.objects.values_list("state", flat=True)) == {"active"}


def test_notes_that_are_new_changed_renamed_or_gone_are_so_here(notes):
    follow(notes)
    assert read(notes) is None
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")
    write(notes / "assam.md", "# Assam\n\nBlack.")
    (notes / "matcha.md").unlink()
    assert read(notes) == (1, 1, 1, 0)
    assert Memory.objects.get(title="Sencha").content == "# Sencha\n\nSteamed."
    assert states() == {"Assam": "active", "Oolong": "active", "Sencha": "active", "Matcha": "deleted"}
    assert read(notes) is None

    write(notes / "matcha.md", "# Matcha\n\nA tea.")
    assert read(notes) == (0, 1, 0, 0)
    assert (states()["Matcha"], Memory.objects.count()) == ("active", 4)


def test_only_changed_notes_are_read(notes, monkeypatch):
    follow(notes)
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")
    opened = []
    real = FileTree.read
    monkeypatch.setattr(FileTree, "read", lambda *arguments: opened.append(arguments[1].name) or real(*arguments))
    assert read(notes) == (0, 1, 0, 0)
    assert opened == ["sencha.md"]


def test_note_that_moves_with_its_id_stays_one_memory(notes):
    write(notes / "matcha.md", "---\nid: powder\n---\n# Matcha\n\nA tea.")
    follow(notes)
    memory = Memory.objects.get(external_id="powder")
    (notes / "green").mkdir()
    (notes / "matcha.md").rename(notes / "green" / "matcha.md")
    read(notes)
    memory.refresh_from_db()
    assert (memory.state, memory.source_uri, Memory.objects.count()) == ("active", "green/matcha.md", 3)


def test_memory_that_somebody_deleted_here_does_not_come_back(notes):
    follow(notes)
    memory_delete(memory_id=Memory.objects.get(title="Sencha").pk, viewer=EVERYTHING, reason="")
    (notes / "sencha.md").rename(notes / "away")
    read(notes)
    (notes / "away").rename(notes / "sencha.md")
    read(notes)
    assert states()["Sencha"] == "deleted"


def test_commits_are_followed_and_those_of_other_branches_stay(tmp_path):
    repository = tmp_path / "kettle"
    repository.mkdir()
    git(repository, "init", "-b", "main")
    git(repository, "commit", "--allow-empty", "-m", "feat: boil")
    follow(repository)
    git(repository, "commit", "--allow-empty", "-m", "fix: cool")
    assert read(repository) == (1, 0, 0, 0)
    assert read(repository) is None

    git(repository, "checkout", "-b", "steam", "HEAD~1")
    assert read(repository) == (0, 0, 0, 0)
    git(repository, "checkout", "main")
    read(repository)
    git(repository, "commit", "--amend", "--allow-empty", "-m", "fix: cool down")
    assert read(repository) == (1, 0, 1, 0)
    assert states() == {"feat: boil": "active", "fix: cool": "deleted", "fix: cool down": "active"}


def edited(title):
    memory = Memory.objects.get(title=title)
    memory_update(memory_id=memory.pk, changes=MemoryChanges(title=title, content="Mine."), viewer=EVERYTHING)
    return memory


def test_change_there_of_what_was_edited_here_is_a_conflict_and_neither_is_lost(notes):
    source = follow(notes)
    memory = edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    assert read(notes) == (0, 0, 0, 1)
    memory.refresh_from_db()
    conflict = SourceConflict.objects.get()
    assert (memory.content, conflict.record["data"]["content"]) == ("Mine.", "# Sencha\n\nTheirs.")
    assert conflict.edit.startswith("by a command on ")
    # Not again, until it changes again.
    write(notes / "oolong.md", "# Oolong\n\nBlue.")
    assert read(notes) == (0, 1, 0, 0)

    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=False, viewer=EVERYTHING)
    write(notes / "sencha.md", "# Sencha\n\nTheirs again.")
    assert read(notes) == (0, 0, 0, 1)
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    memory.refresh_from_db()
    assert memory.content == "# Sencha\n\nTheirs again."
    with pytest.raises(ConflictNotFoundError):
        conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")
    assert read(notes) == (0, 1, 0, 0)


def test_decision_does_not_wait_for_an_import_that_takes_long(notes, monkeypatch):
    source = follow(notes)
    memory = edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    read(notes)
    # This transaction has read, and holds the lock of imports until its end: another session has it instead.
    other = connection.copy()
    monkeypatch.setattr(services, "IMPORT_LOCK", 4_711_999)
    monkeypatch.setattr(services, "_LONGEST_WAIT", "50ms")
    with closing(other), other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [services.IMPORT_LOCK])
        with pytest.raises(VocabularyBusyError):
            conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
        cursor.execute("SELECT pg_advisory_unlock(%s)", [services.IMPORT_LOCK])
    assert SourceConflict.objects.exists()
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    assert not SourceConflict.objects.exists()


def test_memory_that_was_deleted_here_is_followed_again_once_its_record_is_taken(notes):
    source = follow(notes)
    memory = Memory.objects.get(title="Sencha")
    memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="Wrong.")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    assert read(notes) == (0, 0, 0, 1)
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    memory.refresh_from_db()
    assert (memory.state, memory.content) == ("active", "# Sencha\n\nTheirs.")
    write(notes / "sencha.md", "# Sencha\n\nTheirs again.")
    assert read(notes) == (0, 1, 0, 0)


def test_what_is_gone_there_and_was_edited_here_stays_until_somebody_decides(notes):
    source = follow(notes)
    memory = edited("Sencha")
    (notes / "sencha.md").unlink()
    assert read(notes) == (0, 0, 0, 1)
    assert states()["Sencha"] == "active"
    assert SourceConflict.objects.get().record is None
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    assert states()["Sencha"] == "deleted"


@pytest.mark.parametrize(("delete", "state", "left"), [(True, "deleted", 2), (False, "active", 2)])
def test_when_most_is_gone_at_once_somebody_is_asked(notes, monkeypatch, delete, state, left):
    monkeypatch.setattr(sync, "MANY", 1)
    write(notes / "assam.md", "# Assam\n\nBlack.")
    write(notes / "keemun.md", "# Keemun\n\nBlack.")
    source = follow(notes)
    for name in ("oolong", "sencha", "matcha"):
        (notes / f"{name}.md").unlink()
    read(notes)
    source.refresh_from_db()
    assert (source.gone_waiting, set(states().values())) == (3, {"active"})

    source_gone_settle(source, delete=delete)
    read(notes)
    source.refresh_from_db()
    assert (source.gone_waiting, source.gone_answer, source.memories) == (0, "", left)
    assert states()["Oolong"] == state


def test_reading_that_fails_writes_nothing_and_is_done_again(notes, monkeypatch):
    follow(notes)
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")

    def fail(*arguments):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(seen, "seen_write", fail)
        patch.setattr(sync, "seen_write", fail)
        with pytest.raises(ZeroDivisionError):
            read(notes)
    assert Memory.objects.get(title="Sencha").content == "# Sencha\n\nA tea."
    assert read(notes) == (0, 1, 0, 0)


def test_of_two_readers_one_gives_up(notes):
    follow(notes)
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")
    early = FollowedSource.objects.get()
    assert read(notes) == (0, 1, 0, 0)
    with pytest.raises(FollowedMeanwhileError):
        source_sync(early, Choices(EVERYTHING))


def test_stopping_leaves_the_memories_and_forgets_the_rest(notes):
    source = follow(notes)
    edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    read(notes)
    source_stop(source)
    assert [model.objects.count() for model in (FollowedSource, FollowedRecord, SourceConflict)] == [0, 0, 0]
    assert Memory.objects.filter(state="active").count() == 3


def test_import_with_follow_is_reported_listed_and_stopped(notes, jsonl):
    text = run(notes, "--follow")
    assert "3" in text
    assert f"{notes} is followed while the server runs" in text
    assert f"{notes}" in run("--list")
    assert failing(notes, "--follow") == f"{notes}: is followed already."
    assert failing(notes, "--follow", "--dry-run") == "--follow cannot be used with --dry-run."
    path = jsonl({"content": "Tea."})
    assert failing(path, "--follow") == (
        f"{path}: jsonl is not followed, which these formats are: git, claude-mem, mcp-memory-service, claude-code,"
        " codex, gemini-cli, markdown."
    )
    assert run(notes, "--unfollow") == f"{notes} is followed no longer. Its memories stay.\n"
    assert failing(notes, "--unfollow") == f"{notes}: is not followed. --list shows what is."
    with pytest.raises(NotFollowableError):
        source_new(path=path, importer=importer_for(path), project="", viewer=EVERYTHING)


def test_undo_of_a_reading_restores_what_it_deleted(notes):
    follow(notes)
    (notes / "sencha.md").unlink()
    read(notes)
    run("--undo", str(ImportBatch.objects.first().pk))
    assert states()["Sencha"] == "active"


def test_old_readings_that_only_changed_memories_are_forgotten_and_their_history_stays(notes, monkeypatch):
    monkeypatch.setattr(sync, "MAX_READINGS", 2)
    follow(notes)
    for text in ("Steamed.", "Shaded.", "Roasted.", "Ground."):
        write(notes / "sencha.md", f"# Sencha\n\n{text}")
        assert read(notes) == (0, 1, 0, 0)
    write(notes / "assam.md", "# Assam\n\nA tea.")
    assert read(notes) == (1, 0, 0, 0)
    kept = [(batch.created, batch.updated) for batch in ImportBatch.objects.order_by("pk")]
    # The reading under way, and those that made the memories, besides the last two.
    assert kept == [(3, 0), (0, 1), (0, 1), (1, 0)]

    batch = ImportBatch.objects.filter(created=0).earliest("pk")
    batch.report["gone"] = 11
    batch.save()
    for text in ("Dried.", "Ground."):
        write(notes / "sencha.md", f"# Sencha\n\n{text}")
        assert read(notes) == (0, 1, 0, 0)
    assert ImportBatch.objects.filter(pk=batch.pk).exists(), "its many deletions can be undone at once"
    assert ImportBatch.objects.filter(created=0).count() == 4

    sencha = Memory.objects.get(title="Sencha")
    assert AuditEvent.objects.filter(subject_type="memory", subject_id=sencha.pk, batch__gt=0).count() == 6
    write(notes / "sencha.md", "# Sencha\n\nFried.")
    assert read(notes) == (0, 1, 0, 0), "what a forgotten reading changed is no edit"
    run("--undo", str(ImportBatch.objects.first().pk))
    sencha.refresh_from_db()
    assert sencha.content.endswith("Ground.")


def test_conflict_stays_open_if_the_record_of_the_source_is_refused(notes):
    source = follow(notes)
    memory = edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    read(notes)
    conflict = SourceConflict.objects.get()
    conflict.record["data"]["importance"] = 17
    conflict.save()
    with pytest.raises(ImportFailedError, match=r"cannot be taken: importance: "):
        conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    assert SourceConflict.objects.exists()


def test_change_of_the_source_while_a_conflict_is_decided_is_a_conflict_again(notes, monkeypatch):
    source = follow(notes)
    memory = edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    read(notes)
    import_path = services.import_path

    def later(**arguments):
        write(notes / "sencha.md", "# Sencha\n\nTheirs again.")
        assert read(notes) == (0, 0, 0, 1)
        return import_path(**arguments)

    monkeypatch.setattr(services, "import_path", later)
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    memory.refresh_from_db()
    assert memory.content == "# Sencha\n\nTheirs."
    assert SourceConflict.objects.get().record["data"]["content"] == "# Sencha\n\nTheirs again."


def test_conflict_is_over_when_the_source_has_the_former_record_again(notes):
    follow(notes)
    edited("Sencha")
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    read(notes)
    write(notes / "sencha.md", "# Sencha\n\nA tea.")
    read(notes)
    assert not SourceConflict.objects.exists()


def test_records_that_cannot_be_taken_are_counted_and_not_read_again(notes):
    write(notes / "broken.md", "---\n---\n")
    source = follow(notes)
    source.refresh_from_db()
    assert (source.memories, source.refused) == (3, 1)
    write(notes / "sencha.md", "# Sencha\n\nSteamed.")
    assert read(notes) == (0, 1, 0, 0)
    assert ImportBatch.objects.first().refused == 0


def test_record_of_a_memory_that_was_moved_here_is_a_conflict_and_is_not_stored_again(notes):
    source = follow(notes, "tea")
    Project.objects.create(slug="boat", name="boat")
    memory = Memory.objects.get(title="Sencha")
    memory_update(memory_id=memory.pk, changes=MemoryChanges(project="boat"), viewer=EVERYTHING)
    write(notes / "oolong.md", "# Oolong\n\nAnother tea.")
    assert read(notes) == (0, 1, 0, 0)
    write(notes / "sencha.md", "# Sencha\n\nTheirs.")
    assert read(notes) == (0, 0, 0, 1)
    assert SourceConflict.objects.get().memory_id == memory.pk
    assert states(title="Sencha", project__slug="boat") == {"Sencha": "active"}
    assert Memory.objects.count() == 3
    conflict_settle(source_id=source.pk, memory_id=memory.pk, take=True, viewer=EVERYTHING)
    memory.refresh_from_db()
    # The source's project with its text.
    assert (memory.content, memory.project.slug, Memory.objects.count()) == ("# Sencha\n\nTheirs.", "tea", 3)

"""Edits made here are written into the notes of a followed folder, and nothing is lost on either side."""

import os
import stat
import sys
from random import Random

import pytest

from access.models import AuditEvent
from access.viewer import command_viewer
from memories.models import FollowedSource, Memory, SourceConflict
from memories.records import MemoryChanges
from memories.services import memory_delete, memory_update
from tests.memories.imports import failing, run
from tests.memories.vaults import made_vault, write_vault
from transfer.follow.services import conflict_settle, source_new
from transfer.follow.sync import Choices, source_has_changed, source_sync
from transfer.follow.write_back import source_write_back, write_back_set
from transfer.formats import note_writing
from transfer.formats.base import ImportFailedError
from transfer.formats.registry import importer_named

pytestmark = pytest.mark.django_db

EVERYTHING = command_viewer()
NOTE = b"---\ntags: [hot]\nrating: 5\n---\n\n# Oolong\n\nA tea.\n"


@pytest.fixture
def notes(tmp_path):
    return write_vault(tmp_path / "notes", {"oolong.md": NOTE, "green/sencha.md": b"# Sencha\n\nAnother.\n"})


def follow(path, *, write_back=True):
    source = source_new(
        path=path, importer=importer_named("markdown"), project="", viewer=EVERYTHING, write_back=write_back
    )
    source_sync(source, Choices(EVERYTHING))
    return source


def look(path):
    """Write and read as the process that follows does. Returns the notes written, and the counts of the reading."""
    source = FollowedSource.objects.get(path=str(path.resolve()))
    written = source_write_back(source, EVERYTHING)
    source.refresh_from_db()
    outcome = source_sync(source, Choices(EVERYTHING)) if source_has_changed(source) else None
    tally = outcome.tally if outcome else None
    return written, (tally.created, tally.updated, tally.gone, tally.conflicts) if tally else (0, 0, 0, 0)


def change(title, **changes):
    memory = Memory.objects.get(title=title)
    memory_update(memory_id=memory.pk, changes=MemoryChanges(**changes), viewer=EVERYTHING)
    return memory


def test_an_edit_is_written_and_does_not_come_back(notes):
    follow(notes)
    change("Oolong", add_tags=["new"], content="# Oolong\n\nA better tea.")
    assert look(notes) == (1, (0, 0, 0, 0))
    assert (notes / "oolong.md").read_bytes() == (
        b"---\ntags: [hot, new]\nrating: 5\n---\n\n# Oolong\n\nA better tea.\n"
    )
    assert (notes / "green/sencha.md").read_bytes() == b"# Sencha\n\nAnother.\n"
    assert look(notes) == (0, (0, 0, 0, 0))
    assert not SourceConflict.objects.exists()
    assert AuditEvent.objects.filter(subject_type="memory", batch__isnull=False).count() == 0


def test_nothing_is_written_unless_somebody_asked_for_it(notes):
    follow(notes, write_back=False)
    change("Oolong", add_tags=["new"])
    assert look(notes) == (0, (0, 0, 0, 0))
    assert (notes / "oolong.md").read_bytes() == NOTE
    write_back_set(FollowedSource.objects.get(), on=True)
    assert look(notes)[0] == 1
    assert b"[hot, new]" in (notes / "oolong.md").read_bytes()
    write_back_set(FollowedSource.objects.get(), on=False)
    change("Oolong", add_tags=["newer"])
    assert look(notes)[0] == 0


def test_after_a_write_the_note_is_followed_as_before(notes):
    follow(notes)
    change("Oolong", add_tags=["new"])
    look(notes)
    (notes / "oolong.md").write_bytes((notes / "oolong.md").read_bytes().replace(b"A tea", b"A black tea"))
    assert look(notes) == (0, (0, 1, 0, 0))
    memory = Memory.objects.get(title="Oolong")
    assert "A black tea." in memory.content
    assert memory.tags == ["hot", "new"]
    (notes / "oolong.md").unlink()
    assert look(notes) == (0, (0, 0, 1, 0))


@pytest.mark.parametrize("take", [True, False])
def test_changed_on_both_sides_is_a_conflict_and_neither_is_lost(notes, take):
    follow(notes)
    memory = change("Oolong", content="# Oolong\n\nMine.")
    (notes / "oolong.md").write_bytes(NOTE.replace(b"A tea", b"Theirs"))
    assert look(notes) == (0, (0, 0, 0, 1))
    assert b"Theirs" in (notes / "oolong.md").read_bytes()
    assert look(notes) == (0, (0, 0, 0, 0))
    conflict_settle(source_id=FollowedSource.objects.get().pk, memory_id=memory.pk, take=take, viewer=EVERYTHING)
    assert look(notes) == (0 if take else 1, (0, 0, 0, 0))
    side = "Theirs." if take else "Mine."
    assert (notes / "oolong.md").read_bytes() == NOTE.replace(b"A tea.", side.encode())
    memory.refresh_from_db()
    assert memory.content == f"# Oolong\n\n{side}"
    assert look(notes) == (0, (0, 0, 0, 0))


def test_an_edit_between_the_write_and_the_reading_is_written_too(notes):
    follow(notes)
    change("Oolong", add_tags=["one"])
    source = FollowedSource.objects.get()
    source_write_back(source, EVERYTHING)
    change("Oolong", add_tags=["two"])
    source.refresh_from_db()
    source_sync(source, Choices(EVERYTHING))
    assert look(notes) == (1, (0, 0, 0, 0))
    assert b"tags: [hot, one, two]" in (notes / "oolong.md").read_bytes()
    assert not SourceConflict.objects.exists()


def test_a_write_that_ends_early_loses_nothing(notes, monkeypatch):
    follow(notes)
    change("Oolong", content="# Oolong\n\nMine.")

    def killed(*_):
        raise KeyboardInterrupt

    source = FollowedSource.objects.get()
    with monkeypatch.context() as patched:
        patched.setattr(note_writing.os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            source_write_back(source, EVERYTHING)
    assert (notes / "oolong.md").read_bytes() == NOTE
    (notes / ".mnemoscope-0.tmp").write_bytes(b"left by a kill")
    assert look(notes) == (1, (0, 0, 0, 0))
    assert b"Mine." in (notes / "oolong.md").read_bytes()
    assert sorted(path.name for path in notes.iterdir()) == ["green", "oolong.md"]


@pytest.mark.skipif(sys.platform != "linux", reason="Other systems exchange no names.")
def test_a_program_that_writes_in_the_last_moment_wins(notes, monkeypatch):
    follow(notes)
    change("Oolong", content="# Oolong\n\nMine.")

    def write_meanwhile(before, now):
        (notes / "oolong.md").write_bytes(b"Theirs.")
        return True

    monkeypatch.setattr(note_writing, "_is_same", write_meanwhile)
    assert source_write_back(FollowedSource.objects.get(), EVERYTHING) == 0
    assert (notes / "oolong.md").read_bytes() == b"Theirs."
    assert look(notes) == (0, (0, 0, 0, 1))
    assert sorted(path.name for path in notes.iterdir()) == ["green", "oolong.md"]


def test_a_file_system_without_exchange_replaces(notes, monkeypatch):
    monkeypatch.setattr(note_writing, "_exchange", lambda one, other: False)
    follow(notes)
    change("Oolong", add_tags=["new"])
    assert look(notes) == (1, (0, 0, 0, 0))
    assert b"[hot, new]" in (notes / "oolong.md").read_bytes()


def test_a_crash_after_the_write_is_no_conflict(notes, monkeypatch):
    follow(notes)
    change("Oolong", content="# Oolong\n\nMine.")

    def crash(*_):
        raise KeyboardInterrupt

    source = FollowedSource.objects.get()
    with monkeypatch.context() as patched:
        patched.setattr(note_writing, "_store_folder", crash)
        with pytest.raises(KeyboardInterrupt):
            source_write_back(source, EVERYTHING)
    assert b"Mine." in (notes / "oolong.md").read_bytes()
    source = FollowedSource.objects.get()
    source_sync(source, Choices(EVERYTHING))
    assert look(notes) == (0, (0, 0, 0, 0))
    assert not SourceConflict.objects.exists()


def test_what_is_deleted_here_stays_there(notes):
    follow(notes)
    memory_delete(memory_id=Memory.objects.get(title="Oolong").pk, viewer=EVERYTHING, reason="Wrong.")
    assert look(notes) == (0, (0, 0, 0, 0))
    assert (notes / "oolong.md").read_bytes() == NOTE


def test_permissions_stay_and_links_are_not_followed(notes, tmp_path):
    outside = tmp_path / "outside.md"
    outside.write_bytes(b"# Outside\n")
    (notes / "oolong.md").chmod(0o640)
    follow(notes)
    change("Oolong", add_tags=["new"])
    change("Sencha", add_tags=["new"])
    (notes / "green/sencha.md").unlink()
    (notes / "green/sencha.md").symlink_to(outside)
    with pytest.raises(ImportFailedError, match="is a link or no plain file"):
        source_write_back(FollowedSource.objects.get(), EVERYTHING)
    assert stat.S_IMODE((notes / "oolong.md").stat().st_mode) == 0o640
    assert b"new" in (notes / "oolong.md").read_bytes()
    assert outside.read_bytes() == b"# Outside\n"


def test_a_folder_that_leads_out_is_not_written_to(notes, tmp_path):
    follow(notes)
    change("Sencha", add_tags=["new"])
    (notes / "green").rename(tmp_path / "elsewhere")
    (notes / "green").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImportFailedError, match="leads out of the folder"):
        source_write_back(FollowedSource.objects.get(), EVERYTHING)
    assert (tmp_path / "elsewhere/sencha.md").read_bytes() == b"# Sencha\n\nAnother.\n"


def test_the_command_asks_for_it_and_refuses_what_cannot_be_written(notes, jsonl):
    assert "--write-back belongs to --follow" in failing(notes, write_back=True)
    run(notes, follow=True)
    run(notes, follow=True, write_back=True)
    assert FollowedSource.objects.get().writes_back
    assert "written back to" in run("--list")


# --- many edits on both sides ----------------------------------------------------------------------------------------


def edit_both_sides(tmp_path, seed, rounds):
    """Edits notes and memories at random. Returns the texts that are nowhere afterwards, but for those that a person
    wrote over in a file: before it was read, or while its conflict was open.
    """
    random = Random(seed)
    files = {path: data for path, data in made_vault(random, 30).items() if data.strip()}
    root = write_vault(tmp_path / "both", files)
    source = follow(root)
    texts, unread = set(), {}
    for turn in range(rounds):
        text = f"Text number {turn}."
        texts.add(text)
        if random.random() < 0.5:
            memory = random.choice(list(Memory.objects.exclude(state="deleted").order_by("pk")))
            memory_update(memory_id=memory.pk, changes=MemoryChanges(content=text), viewer=EVERYTHING)
        else:
            path = random.choice(sorted(files))
            former = (root / path).read_bytes()
            texts.discard(unread.get(path))
            texts -= {one for one in texts if one.encode() in former and in_a_conflict(one)}
            head = former[: former.find(b"\n---\n") + 5] if former[:4] == b"---\n" and b"\n---\n" in former else b""
            (root / path).write_bytes(head + f"{text}\n".encode())
            os.utime(root / path, ns=(turn, turn + 1))
            unread[path] = text
        if random.random() < 0.4:
            look(root)
            unread.clear()
        for conflict in SourceConflict.objects.all() if random.random() < 0.1 else ():
            here = random.random() < 0.5
            conflict_settle(source_id=source.pk, memory_id=conflict.memory_id, take=not here, viewer=EVERYTHING)
    look(root)
    look(root)
    return sorted(text for text in texts if not is_somewhere(text, root))


def in_a_conflict(text):
    return SourceConflict.objects.filter(record__data__content__contains=text).exists()


def is_somewhere(text, root):
    return (
        Memory.objects.filter(content__contains=text).exists()
        or any(text.encode() in path.read_bytes() for path in root.rglob("*.md"))
        or in_a_conflict(text)
        or AuditEvent.objects.filter(before__content__contains=text).exists()
        or AuditEvent.objects.filter(after__content__contains=text).exists()
    )


@pytest.mark.parametrize("seed", range(3))
def test_edits_on_both_sides_lose_nothing(tmp_path, seed):
    assert edit_both_sides(tmp_path, seed, 40) == []


@pytest.mark.release
def test_five_hundred_edits_on_both_sides_lose_nothing(tmp_path):
    assert edit_both_sides(tmp_path, 7, 500) == []

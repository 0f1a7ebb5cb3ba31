"""Backups: whole, private and comparable; refused with the reason if they are not; made and removed on schedule."""

import contextlib
import errno
import json
import os
import threading
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone

from access.viewer import command_viewer
from config import backup, backup_schedule
from config.backup import BackupError, Manifest, TableState, backup_create, backup_restore, backup_verify, compare
from explorer.status.reads import _last_backup, backup_is_running
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create

MANIFEST = Manifest(
    created="2026-05-01T12:00:00+00:00",
    mnemoscope="0.1.0",
    postgres=18,
    migrations=[["memories", "0001_initial"]],
    tables={"public.memories_memory": TableState(3, "77")},
    sequences={"public.memory_id_seq": 5},
)


def store(text):
    return memory_create(record=MemoryRecord(content=text, project="tea"), viewer=command_viewer())


def written(path, manifest=MANIFEST, dump=b"no dump", **fields):
    """A file with the form of a backup."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(backup.DUMP, dump)
        archive.writestr(backup.MANIFEST, json.dumps({**json.loads(as_json(manifest)), **fields}))
    return path


def as_json(manifest):
    return json.dumps(backup.asdict(manifest))


@pytest.mark.django_db(transaction=True)
def test_backup_made_under_writes_is_restored_and_compared(tmp_path, settings):
    settings.HOME = tmp_path / "home"
    before = [store(f"Pot {n} is on the stove.").pk for n in range(5)]
    Session.objects.create(session_key="k" * 32, session_data="x", expire_date=timezone.now())
    stopped = threading.Event()

    def write():
        number = 0
        while not stopped.is_set():
            store(f"Kettle {(number := number + 1)} sings.")
        connections.close_all()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        manifest = backup_create(tmp_path / "tea.backup")
    finally:
        stopped.set()
        writer.join()
    assert 5 <= manifest.memories <= Memory.objects.count()
    assert (tmp_path / "tea.backup").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["tea.backup"]
    assert not {"public.django_session", "public.memories_outbox"} & set(manifest.tables)
    with (
        backup.open_backup(tmp_path / "tea.backup") as (read, dump),
        backup.scratch_database() as place,
        place.connect() as restored,
    ):
        assert read == manifest
        backup._restore(dump, manifest, place)
        ids = [pk for (pk,) in restored.execute("SELECT id FROM memories_memory ORDER BY id")]
        assert ids[:5] == before
        assert len(ids) == manifest.memories
        assert restored.execute("SELECT nextval('memory_id_seq')").fetchone()[0] > ids[-1]
        assert restored.execute("SELECT count(*) FROM django_session").fetchone()[0] == 0
        with pytest.raises(BackupError, match=r"holds \d+ tables already.* MNEMOSCOPE_HOME to a new folder"):
            backup._refuse_filled(place)
    assert list(settings.HOME.iterdir()) == []  # of the temporary server

    # A manifest that is not of this dump.
    other = replace(manifest, tables={**manifest.tables, "public.memories_memory": TableState(2, "1")})
    with zipfile.ZipFile(tmp_path / "tea.backup") as archive:
        written(tmp_path / "other.backup", other, archive.read(backup.DUMP))
    with pytest.raises(BackupError, match=r"memories_memory has \d+ rows instead of 2"):
        backup_verify(tmp_path / "other.backup")


def test_every_difference_is_named():
    found = replace(
        MANIFEST,
        tables={"public.memories_memory": TableState(3, "78"), "public.more": TableState(0, "0")},
        sequences={"public.memory_id_seq": 4},
    )
    assert compare(MANIFEST, MANIFEST) == []
    assert compare(MANIFEST, found) == [
        "public.memories_memory has other values",
        "public.more is not in the backup",
        "the sequence public.memory_id_seq is behind",
    ]
    assert compare(MANIFEST, replace(MANIFEST, tables={})) == ["public.memories_memory is missing"]


def cut_off(path):
    path.write_bytes(written(path).read_bytes()[:-30])


def added(path, before, after):
    path.write_bytes(before + written(path).read_bytes() + after)


def damage(path):
    path.write_bytes(written(path).read_bytes().replace(b"no dump", b"no dumb"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda path: None, "There is no file", id="missing"),
        pytest.param(lambda path: path.write_text("memories"), "is not a backup of Mnemoscope", id="text"),
        pytest.param(lambda path: zipfile.ZipFile(path, "w").close(), "it is another zip archive", id="another zip"),
        pytest.param(cut_off, "or its end is missing", id="cut off"),
        pytest.param(damage, r"the checksum of its database.dump is wrong", id="damaged"),
        pytest.param(lambda path: written(path, format=2), "this version of Mnemoscope reads format 1", id="format"),
        pytest.param(lambda path: added(path, b"", b"x" * 5_000), "other bytes were added", id="bytes after it"),
        pytest.param(lambda path: added(path, b"", b"\0"), "other bytes were added", id="a byte after it"),
        pytest.param(lambda path: added(path, b"#!/bin/sh\n", b""), "other bytes were added", id="bytes before it"),
        pytest.param(lambda path: path.mkdir(), "cannot be read: Is a directory", id="folder"),
    ],
)
def test_file_that_is_no_whole_backup_is_refused(tmp_path, monkeypatch, spoil, reason):
    monkeypatch.setattr("config.management.commands.restore.one_at_a_time", contextlib.nullcontext)
    path = tmp_path / "tea.backup"
    spoil(path)
    for command in ("verify", "restore"):
        with pytest.raises(CommandError, match=reason):
            call_command(command, str(path))


@pytest.mark.django_db(transaction=True)
def test_backup_for_which_something_is_too_old_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "_refuse_filled", lambda place: None)
    later = replace(MANIFEST, migrations=[["memories", "0999_from_the_future"]])
    with pytest.raises(BackupError, match=r"does not know memories.0999_from_the_future. Install that version"):
        backup_restore(written(tmp_path / "later.backup", later))
    newer = replace(MANIFEST, postgres=99)
    with pytest.raises(BackupError, match=r"is of Postgres 99.* restore it to Postgres 99 or later"):
        backup_restore(written(tmp_path / "newer.backup", newer))
    with pytest.raises(BackupError, match=r"there is no pg_dump of that version.*postgresql-client-99"):
        backup._program("pg_dump", 99)
    with pytest.raises(BackupError, match=r"Nothing is restored.* pg_restore: error: input file"):
        backup_restore(written(tmp_path / "empty.backup"))


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_of_a_backup_that_failed(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "there").write_text("already")
    with pytest.raises(BackupError, match="exists already: choose another name"):
        backup_create(tmp_path / "there")
    with pytest.raises(BackupError, match="There is no folder"):
        backup_create(tmp_path / "nowhere" / "tea.backup")
    with pytest.raises(BackupError, match="was interrupted"):
        backup_create(tmp_path / "tea.backup", stop=lambda: True)
    monkeypatch.setattr(backup, "_copy", full)
    with pytest.raises(BackupError, match=r"No space left on device. Nothing is left of it; make room"):
        backup_create(tmp_path / "tea.backup")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_temporary_server_that_a_killed_process_left_is_removed(tmp_path, settings, monkeypatch):
    settings.HOME = tmp_path / "home"
    with backup.scratch_database() as place:
        monkeypatch.setattr(backup, "_ABANDONED_SECONDS", -1)
        backup._remove_abandoned()  # not the one that is in use
        place.connect().close()
        (settings.HOME / "verify-killed").mkdir()
        backup._remove_abandoned()
        assert len(list(settings.HOME.iterdir())) == 1


# ── On schedule ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path, settings, monkeypatch):
    """Backups in this folder are empty files."""
    settings.BACKUP_FOLDER = tmp_path / "backups"
    settings.BACKUP_EVERY_HOURS = 24
    settings.BACKUP_KEEP = 2
    settings.BACKUP_FAILURE = tmp_path / "backup-failed"
    monkeypatch.setattr(backup_schedule, "backup_create", lambda path, stop: path.touch() or MANIFEST)
    return settings.BACKUP_FOLDER


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_backup_is_made_when_the_last_one_is_old_enough_and_the_oldest_are_removed(folder):
    made = backup_schedule.backup_if_due()
    assert backup_schedule.backup_if_due() is None
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    made.rename(folder / yesterday.strftime(backup_schedule._NAME))
    for other in ("mnemoscope-20200101-000000.backup", "mnemoscope-mine.backup", ".mnemoscope-x.backup.new-1"):
        (folder / other).touch()
    assert backup_schedule.backup_if_due() is not None
    assert [path.name for path in backup_schedule.backups_in(folder)] == [
        yesterday.strftime(backup_schedule._NAME),
        made.name if (folder / made.name).exists() else backup_schedule.backups_in(folder)[-1].name,
    ]
    assert "mnemoscope-mine.backup" in names(folder)
    assert len(names(folder)) == 3


def test_two_servers_of_a_folder_do_not_make_the_same_backup(folder):
    assert not backup_is_running()
    with backup_schedule._folder_locked():
        assert backup_is_running()
        assert _last_backup(datetime.now(UTC)).now == "now"
        assert backup_schedule.backup_if_due() is None
        with pytest.raises(BackupError, match="Another process is making a backup"):
            backup_schedule.backup_now()
    assert names(folder) == []


@pytest.mark.django_db
def test_a_database_that_goes_away_during_a_backup_is_told_as_such(tmp_path, monkeypatch):
    def gone(*_):
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(backup, "_inventory", gone)
    with pytest.raises(BackupError, match="The database does not answer: the connection is lost\\. Nothing is left"):
        backup_create(tmp_path / "tea.backup")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named_on_the_status_page(folder, settings, tmp_path):
    (tmp_path / "file").touch()
    settings.BACKUP_FOLDER = tmp_path / "file" / "backups"
    with pytest.raises(BackupError, match="Set BACKUP_FOLDER"):
        backup_schedule.backup_now()
    assert "Set BACKUP_FOLDER." in _last_backup(datetime.now(UTC)).words


def test_an_old_backup_that_cannot_be_removed_does_not_keep_the_others(folder, settings, monkeypatch):
    folder.mkdir()
    for day in (1, 2, 3, 4):
        (folder / f"mnemoscope-2020010{day}-000000.backup").touch()
    unlink = Path.unlink

    def refused(path, **kwargs):
        if path.name == "mnemoscope-20200101-000000.backup":
            raise PermissionError(13, "Permission denied")
        unlink(path, **kwargs)

    monkeypatch.setattr(Path, "unlink", refused)
    backup_schedule.backup_now()
    assert len(backup_schedule.backups_in(folder)) == settings.BACKUP_KEEP + 1
    words = _last_backup(datetime.now(UTC)).words
    assert words.endswith("complete, but mnemoscope-20200101-000000.backup cannot be removed: Permission denied.")

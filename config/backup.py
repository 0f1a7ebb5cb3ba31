"""Backups: the database as it was at one instant, in one file, and what it takes to trust that file.

A backup is a zip archive of two entries:

    database.dump   written by pg_dump in its custom format
    manifest.json   versions, and the rows and a checksum of each table, read in the same snapshot as the dump

It holds everything but what is derived from the rest (the search index) and what signs people in: sessions, links and
the secret key. Keys of the API are in it as hashes, and work again after a restore.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, LiteralString

import psycopg
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from config.embedded.server import DATABASE, EmbeddedPostgresError, EmbeddedServer, programs
from config.home import create_home, folder_mode
from search.engines.index import outbox
from search.engines.segment_files import sync_folder
from search.engines.vectors import pgvector
from web.version import VERSION

FORMAT = 1
DUMP, MANIFEST = "database.dump", "manifest.json"
# Their rows are not in a backup.
DERIVED = ("memories_outbox", "memories_vectorchange")
SIGNED_IN = ("django_session", "access_signintoken", "access_invitation", "access_invitation_projects")
# Neither those of Postgres nor those of an extension.
_OWN_TABLES = """relkind = 'r' AND nspname !~ '^pg_' AND nspname <> 'information_schema' AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')"""
_PIECE = 1 << 20
_END_BYTES = 22
# A folder this old that nobody uses was left behind by a killed process.
_ABANDONED_SECONDS = 3600

# They are installed with a setting alone.
_OPTIONAL_APPS = {"account", "socialaccount"}

Stop = Callable[[], bool]


class BackupError(Exception):
    """The backup could not be made, read or restored. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TableState:
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a backup, without a word of what is in the memories."""

    created: str
    mnemoscope: str
    postgres: int
    """The major version of the server."""
    migrations: list[list[str]]
    tables: dict[str, TableState]
    sequences: dict[str, int]
    format: int = FORMAT

    @property
    def memories(self) -> int:
        return self.tables["public.memories_memory"].rows

    @classmethod
    def parse(cls, text: bytes) -> "Manifest":
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise BackupError(
                f"It is a backup of format {fields['format']}, and this version of Mnemoscope reads format {FORMAT}: "
                f"use the version that made it ({fields['mnemoscope']}) or a later one."
            )
        tables = {name: TableState(**state) for name, state in fields.pop("tables").items()}
        return cls(tables=tables, **fields)


@dataclass(frozen=True, slots=True)
class Place:
    """A database, for psycopg and for the programs of Postgres."""

    dsn: str
    password: str = ""

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, password=self.password or None)

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # Not an argument: those of a process can be read by every user.
        return {**inherited, "PGPASSWORD": self.password} if self.password else inherited


def configured_place() -> Place:
    """The database of the settings. Starts the embedded server if necessary."""
    connection.ensure_connection()
    info = connection.connection.info
    return Place(info.dsn, info.password)


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def backup_create(path: Path, stop: Stop = lambda: False) -> Manifest:
    """Write a backup while others read and write. The file appears under its name once it is complete and on disk."""
    if path.exists():
        raise BackupError(f"{path} exists already: choose another name, or remove it.")
    if not path.parent.is_dir():
        raise BackupError(f"There is no folder {path.parent}: create it, or choose another one.")
    draft = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as file:  # noqa: PTH123
            with zipfile.ZipFile(file, "w") as archive:
                manifest = _write(archive, configured_place(), stop)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise BackupError(
            f"The backup cannot be written to {path.parent}: {error.strerror or error}. Nothing is left of it; "
            "make room, or choose another folder."
        ) from error
    except psycopg.Error as error:
        raise BackupError(
            f"The database does not answer: {str(error).strip().rstrip('.')}. Nothing is left of the backup; try again."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return manifest


def _write(archive: zipfile.ZipFile, place: Place, stop: Stop) -> Manifest:
    with place.connect() as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        (snapshot,) = _row(reader, "SELECT pg_export_snapshot()")
        # They are outside of transactions and go on: those of the dump are these or later ones.
        sequences = _sequences(reader)
        major = reader.info.server_version // 10_000
        command = [
            str(_program("pg_dump", major)), "--format=custom", "--compress=1", "--no-owner", "--no-privileges",
            "--no-comments", "--lock-wait-timeout=60000", "--no-password", f"--snapshot={snapshot}",
            *(f"--exclude-table-data=public.{name}" for name in (*DERIVED, *SIGNED_IN)), *_extensions(reader),
            f"--dbname={place.dsn}",
        ]  # fmt: skip
        with (
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=place.environment(),
            ) as dump,
            archive.open(DUMP, "w", force_zip64=True) as entry,
            _lines_of(dump.stderr) as complaints,
        ):
            try:
                _copy(dump.stdout, entry.write, stop)
                dump.wait()
            except BaseException:
                dump.kill()
                raise
        if dump.returncode != 0:
            raise BackupError(f"pg_dump failed: {_last_lines(complaints)}")
        manifest = _inventory(reader, major, sequences)
    archive.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def _extensions(reader: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The extensions of a dump of a cluster: all but Citus, so that a server without it can verify the backup."""
    names = [name for (name,) in reader.execute("SELECT extname FROM pg_extension ORDER BY extname")]
    if "citus" not in names:
        return ()
    kept = [name for name in names if name != "plpgsql" and not name.startswith("citus")]
    return tuple(f"--extension={name}" for name in kept)


def _inventory(reader: psycopg.Connection[Any], major: int, sequences: dict[str, int]) -> Manifest:
    """The state of all tables in the transaction of this connection."""
    # The same text of a value everywhere.
    for name, value in (("timezone", "UTC"), ("datestyle", "ISO, YMD"), ("intervalstyle", "iso_8601")):
        reader.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), value))
    reader.execute("SET LOCAL extra_float_digits = 1")
    reader.execute("SET LOCAL bytea_output = hex")
    tables = {}
    for schema, name in reader.execute(
        "SELECT nspname, relname FROM pg_class JOIN pg_namespace space ON space.oid = relnamespace"
        f" WHERE {_OWN_TABLES} AND NOT relname = ANY(%s) ORDER BY nspname, relname",
        [[*DERIVED, *SIGNED_IN]],
    ).fetchall():
        # A sum does not depend on the order of the rows.
        statement = 'SELECT count(*), coalesce(sum(hashtextextended(t::text COLLATE "C", 0)), 0)::text FROM {} t'
        tables[f"{schema}.{name}"] = TableState(*_row(reader, sql.SQL(statement).format(sql.Identifier(schema, name))))
    migrations = reader.execute("SELECT app, name FROM django_migrations ORDER BY id").fetchall()
    return Manifest(
        datetime.now(UTC).isoformat(timespec="seconds"), VERSION, major, [list(one) for one in migrations], tables,
        sequences,
    )  # fmt: skip


def _sequences(reader: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(
        reader.execute(
            "SELECT schemaname || '.' || sequencename, coalesce(last_value, 0) FROM pg_sequences"
            " WHERE schemaname !~ '^pg_'"
        ).fetchall()
    )


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def open_backup(path: Path) -> Iterator[tuple[Manifest, IO[bytes]]]:
    """Yield the manifest and the dump of a backup, once every byte has been read and found whole."""
    with contextlib.ExitStack() as opened:
        manifest, dump = _opened(path, opened)
        yield manifest, dump


def _opened(path: Path, opened: contextlib.ExitStack) -> tuple[Manifest, IO[bytes]]:
    try:
        archive = opened.enter_context(zipfile.ZipFile(path))
        if set(archive.namelist()) != {DUMP, MANIFEST}:
            raise BackupError(f"{path} is not a backup of Mnemoscope: it is another zip archive.")
        # zipfile passes over other bytes before and after an archive.
        if min(entry.header_offset for entry in archive.infolist()) or not _ends_as_archive(path):
            raise BackupError(f"{path} is damaged: other bytes were added to it. Use another backup.")
        if broken := archive.testzip():
            raise BackupError(f"{path} is damaged: the checksum of its {broken} is wrong. Use another backup.")
        return Manifest.parse(archive.read(MANIFEST)), opened.enter_context(archive.open(DUMP))
    except FileNotFoundError:
        raise BackupError(f"There is no file {path}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
        raise BackupError(
            f"{path} is not a backup of Mnemoscope, or its end is missing ({error}). Use another backup."
        ) from error
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from error


def _ends_as_archive(path: Path) -> bool:
    """Whether the last bytes of a file are the record that ends a zip archive without a comment."""
    with path.open("rb") as file:
        file.seek(-_END_BYTES, os.SEEK_END)
        end = file.read()
    return end.startswith(b"PK\x05\x06") and end.endswith(b"\0\0")


def backup_restore(path: Path) -> Manifest:
    """Restore a backup into the database of the settings, which must be empty, completely or not at all."""
    with open_backup(path) as (manifest, dump):
        place = configured_place()
        _refuse_filled(place)
        _refuse_unknown_migrations(manifest)
        _restore(dump, manifest, place)
    # The search index is built again: another one in this HOME may bear the same name.
    outbox.stop_following()
    pgvector.track_changes_for("")
    connection.close()
    return manifest


def backup_verify(path: Path) -> Manifest:
    """Restore a backup into a database of its own, compare every table with the manifest, and remove that again."""
    with open_backup(path) as (manifest, dump), scratch_database() as place:
        _restore(dump, manifest, place)
    return manifest


def _restore(dump: IO[bytes], manifest: Manifest, place: Place) -> None:
    with place.connect() as target:
        major = target.info.server_version // 10_000
    if major < manifest.postgres:
        raise BackupError(
            f"The backup is of Postgres {manifest.postgres}, and the database is Postgres {major}: restore it to "
            f"Postgres {manifest.postgres} or later."
        )
    command = [
        str(_program("pg_restore", major)), "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges",
        "--no-comments", "--no-password", f"--dbname={place.dsn}",
    ]  # fmt: skip
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=place.environment()
        ) as restore,
        _lines_of(restore.stderr) as complaints,
    ):
        # It closes the pipe early if it fails, and says why.
        if pipe := restore.stdin:
            with contextlib.suppress(BrokenPipeError):
                _copy(dump, pipe.write, lambda: False)
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        restore.wait()
    if restore.returncode != 0:
        raise BackupError(f"Nothing is restored, the database is as before. pg_restore: {_last_lines(complaints)}")
    with place.connect() as target:
        found = _inventory(target, major, _sequences(target))
    if differences := compare(manifest, found):
        raise BackupError("The restored database differs from the backup: " + "; ".join(differences))


def compare(expected: Manifest, found: Manifest) -> list[str]:
    """Where a database differs from the manifest of its backup."""
    differences = []
    for name in sorted({*expected.tables, *found.tables}):
        before, after = expected.tables.get(name), found.tables.get(name)
        if before is None or after is None:
            differences.append(f"{name} is missing" if after is None else f"{name} is not in the backup")
        elif before.rows != after.rows:
            differences.append(f"{name} has {after.rows:,} rows instead of {before.rows:,}")
        elif before.checksum != after.checksum:
            differences.append(f"{name} has other values")
    differences += [
        f"the sequence {name} is behind"
        for name, at in expected.sequences.items()
        if found.sequences.get(name, -1) < at
    ]
    return differences


def _refuse_filled(place: Place) -> None:
    with place.connect() as target:
        (tables,) = _row(
            target,
            f"SELECT count(*) FROM pg_class JOIN pg_namespace space ON space.oid = relnamespace WHERE {_OWN_TABLES}",
        )
    if tables:
        raise BackupError(
            f"The database holds {tables} tables already, and a backup is restored into an empty one only. Set "
            "MNEMOSCOPE_HOME to a new folder (or DATABASE_URL to an empty database), restore there, and start "
            "Mnemoscope there."
        )


def _refuse_unknown_migrations(manifest: Manifest) -> None:
    if unknown := unknown_migrations(manifest.migrations):
        raise BackupError(
            f"The backup was made by a later Mnemoscope ({manifest.mnemoscope}) than this one ({VERSION}), which does "
            f"not know {', '.join(unknown[:3])}. Install that version or a later one, and restore with it."
        )


def unknown_migrations(applied: Iterable[Sequence[str]]) -> list[str]:
    """Those of the migrations, given as app and name, that this version does not have: of a later one. Apps of
    packages that are switched off, such as signing in by OpenID Connect, are known to have none.
    """
    known = MigrationLoader(None).disk_migrations or {}
    return [f"{app}.{name}" for app, name in applied if (app, name) not in known and app not in _OPTIONAL_APPS]


@contextlib.contextmanager
def scratch_database() -> Iterator[Place]:
    """An empty database on an embedded server of its own, removed afterwards."""
    create_home(settings.HOME)
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=settings.HOME))
    folder.chmod(folder_mode())
    server = EmbeddedServer(folder / "postgres", durable=False)
    try:
        address = server.ensure()
        yield Place(f"host='{address.socket_dir}' port={address.port} user={address.user} dbname={DATABASE}")
    except EmbeddedPostgresError as error:
        raise BackupError(f"The backup is compared in a Postgres of its own, which did not start. {error}") from error
    finally:
        server.leave()
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    for folder in settings.HOME.glob("verify-*"):
        if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
            server = EmbeddedServer(folder / "postgres", durable=False)
            server.ensure()
            if server.leave():
                shutil.rmtree(folder, ignore_errors=True)


# ── Programs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _program(name: str, major: int) -> Path:
    """A program of Postgres that is at least as new as the server: of the embedded one, else an installed one."""
    found = []
    with contextlib.suppress(EmbeddedPostgresError):
        found.append(programs() / name)
    if installed := shutil.which(name):
        found.append(Path(installed))
    for path in found:
        told = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"\d+", told.partition(")")[2])
        if version and int(version[0]) >= major:
            return path
    raise BackupError(
        f"The database is Postgres {major}, and there is no {name} of that version or a later one on this machine: "
        f"install it (Debian and Ubuntu: postgresql-client-{major})."
    )


def _copy(source: IO[bytes] | None, write: Callable[[bytes], object], stop: Stop) -> None:
    while source and (piece := source.read(_PIECE)):
        if stop():
            raise BackupError("The backup was interrupted.")
        write(piece)


@contextlib.contextmanager
def _lines_of(stream: IO[bytes] | None) -> Iterator[list[str]]:
    """Collect what a program prints while the block runs: a full pipe would block it."""
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(line.decode(errors="replace") for line in stream or ()))
    thread.start()
    try:
        yield lines
    finally:
        thread.join(10)


def _last_lines(lines: list[str]) -> str:
    text = "".join(lines[-5:]).strip()
    return "the disk of the database is full." if "No space left on device" in text else text


def _row(reader: psycopg.Connection[Any], statement: LiteralString | sql.Composed) -> Any:
    return reader.execute(statement).fetchone()

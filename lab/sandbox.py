"""A database and a MNEMOSCOPE_HOME of their own for a benchmark, and `manage.py` commands that run in them.

The database carries a comment that marks it: a database without the mark is never dropped.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import urlencode

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg.conninfo import make_conninfo

_MARK = "made by python -m lab.bench"
_GRACE_SECONDS = 30
_START_SECONDS = 300
_POLL_SECONDS = 0.2
_LOG_LINES = 15
# They describe another server: its address, and how other machines reach it.
_SERVER_VARIABLES = ("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "PORT", "DEBUG")


class BenchmarkError(Exception):
    """A benchmark that cannot go on. The message says why."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A folder that is MNEMOSCOPE_HOME, and a database. `loaded` is true if an earlier run has filled both."""

    folder: Path
    database: str
    contents: str
    loaded: bool

    def mark_loaded(self) -> None:
        """Record that folder and database are filled, so that a later run can use them."""
        with connection.cursor() as cursor:
            comment = f"COMMENT ON DATABASE {connection.ops.quote_name(self.database)} IS %s"
            cursor.execute(comment, [f"{_MARK}: {self.contents}"])
        (self.folder / "loaded").touch()

    def manage(self, *arguments: str) -> None:
        """Run a `manage.py` command to its end."""
        with self.child("manage.py", *arguments) as child:
            if status := child.wait():
                raise BenchmarkError(f"manage.py {arguments[0]} ended with status {status}; see its output above.")

    @contextmanager
    def child(
        self, *arguments: str, out: int | None = None, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run Python with these arguments in the sandbox until the block ends, with its output on stderr.

        The process group is its own: Ctrl-C reaches this process alone, which then ends the child.
        """
        out = sys.stderr.fileno() if out is None else out
        child: subprocess.Popen[bytes] | None = None
        try:
            with _interrupts_deferred():
                child = subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=settings.BASE_DIR,
                    env={**self.environment(), **(environment or {})},
                    **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, **options},
                    process_group=0,
                )
            yield child
        finally:
            if child is not None and child.poll() is None:
                child.terminate()
                try:
                    child.wait(_GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    @contextmanager
    def serve(
        self, is_ready: Callable[[int], bool], environment: Mapping[str, str], *, workers: int = 1
    ) -> Iterator[tuple[int, int]]:
        """Run `manage.py up` until the block ends; yield its port and its process id once it is ready."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        log = self.folder / "server.log"
        command = ("manage.py", "up", "--port", str(port), "--workers", str(workers))
        until = time.monotonic() + _START_SECONDS
        with log.open("wb") as out, self.child(*command, out=out.fileno(), environment=environment) as child:
            while not is_ready(port):
                if child.poll() is not None or time.monotonic() > until:
                    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                    raise BenchmarkError("\n".join(["manage.py up did not start:", *(lines or ["no output"])]))
                time.sleep(_POLL_SECONDS)
            yield port, child.pid

    def environment(self) -> dict[str, str]:
        """The environment variables that lead a process to this sandbox."""
        return {
            **{name: value for name, value in os.environ.items() if name not in _SERVER_VARIABLES},
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "MNEMOSCOPE_HOME": str(self.folder),
            "DATABASE_URL": f"postgresql:///?{urlencode(_server())}",
            # Settings may take the model from elsewhere than the environment.
            "EMBEDDING_MODEL": settings.EMBEDDING_MODEL,
        }


@contextmanager
def open_sandbox(folder: Path, database: str, contents: str, *, keep: bool) -> Iterator[Sandbox]:
    """Connect this process to a migrated database of that name until the block ends, then remove it and the folder.

    With `keep`, both stay, and are used as they are if an earlier run has filled them with the same contents.
    """
    usual = connection.settings_dict["NAME"]
    if usual == database:
        raise BenchmarkError(f"{database} is the database in use: name another in DATABASE_URL.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        loaded = keep and (folder / "loaded").exists() and _mark_of(database) == f"{_MARK}: {contents}"
        if not loaded:
            _remove(folder, database)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if not loaded:
                _create(database)
            _connect_to(database)
            call_command("migrate", interactive=False, verbosity=0)
            yield Sandbox(folder, database, contents, loaded)
        finally:
            # A second Ctrl-C must not leave half of it behind.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            _connect_to(usual)
            if not keep:
                _remove(folder, database)
            signal.signal(signal.SIGINT, before)


def _server() -> dict[str, str]:
    """Where the server of this process is, its database included."""
    parameters = connection.get_connection_params()
    names = {"dbname", "host", "port", "user", "password", *settings.DATABASES["default"].get("OPTIONS", {})}
    return {name: str(parameters[name]) for name in sorted(names - {"pool"}) if parameters.get(name)}


@contextmanager
def _server_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """A cursor outside of the databases that are created and dropped."""
    address = make_conninfo(**{**_server(), "dbname": "postgres"})
    with psycopg.connect(address, autocommit=True) as server, server.cursor() as cursor:
        yield cursor


def vacuum() -> None:
    """Update statistics, the visibility map and pending index entries, as autovacuum does minutes later."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")


def _create(database: str) -> None:
    quoted = connection.ops.quote_name(database)
    with _server_cursor() as cursor:
        # Names sort by their bytes, so that runs on different servers are comparable.
        cursor.execute(f"CREATE DATABASE {quoted} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
        cursor.execute(f"COMMENT ON DATABASE {quoted} IS '{_MARK}'")


def _remove(folder: Path, database: str) -> None:
    mark = _mark_of(database)
    if mark is not None:
        if mark.partition(":")[0] != _MARK:
            raise BenchmarkError(f"There is a database {database} that the bench did not make: rename it, or drop it.")
        with _server_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {connection.ops.quote_name(database)} WITH (FORCE)")
    shutil.rmtree(folder, ignore_errors=True)


def _mark_of(database: str) -> str | None:
    """The comment on a database, empty if it has none; None if there is no such database."""
    with _server_cursor() as cursor:
        cursor.execute("SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", [database])
        found = cursor.fetchone()
    return None if found is None else str(found[0] or "")


def _connect_to(database: str) -> None:
    connections.close_all()
    # The pool holds connections to the previous database.
    cast(DatabaseWrapper, connections[DEFAULT_DB_ALIAS]).close_pool()
    connection.settings_dict["NAME"] = database


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BenchmarkError(f"{path.stem} is being measured by another process: wait for it to end.") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # another sandbox is there
                path.parent.rmdir()


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block: while a process starts, it would leave one that nobody ends."""
    arrived: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt

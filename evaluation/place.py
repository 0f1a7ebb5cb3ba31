"""Where an evaluation happens: a database and a MNEMOSCOPE_HOME of its own, our commands in them, and our web server.

Everything runs as an installation runs it, in processes of its own that know nothing of the evaluation.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import FrameType
from urllib.parse import urlencode

from django.conf import settings
from django.db import connection

from bench.database import bench_database

_GRACE_SECONDS = 30
_POLL_SECONDS = 0.2
# Told by nobody: the address of the server that is measured, and how other machines reach it.
_OF_ANOTHER_SERVER = ("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "PORT", "DEBUG")
_SHOWN_LINES = 15


class EvaluationError(Exception):
    """An evaluation that cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that is MNEMOSCOPE_HOME, what its processes are told, and whether an earlier run has filled it."""

    folder: Path
    environment: dict[str, str]
    loaded: bool

    def manage(self, *arguments: str) -> None:
        """Run a command of ours to its end; what it says goes to stderr."""
        with _child(arguments, self.environment, sys.stderr.fileno()) as child:
            if status := child.wait():
                raise EvaluationError(f"manage.py {arguments[0]} ended with the status {status}; its words are above.")

    @contextmanager
    def served(self, changes: Mapping[str, str]) -> Iterator[int]:
        """Our web server as `manage.py up` has it, on a port of loopback; gives the port once it is ready.

        `changes` are variables of its environment beside those of the place.
        """
        port = _free_port()
        log = self.folder / "server.log"
        arguments = ("up", "--host", "127.0.0.1", "--port", str(port))
        with log.open("wb") as out, _child(arguments, {**self.environment, **changes}, out.fileno()) as child:
            while not _is_ready(port):
                if child.poll() is not None:
                    raise EvaluationError(f"manage.py up did not start:\n{last_lines(log)}")
                time.sleep(_POLL_SECONDS)
            yield port


@contextmanager
def evaluation_place(collection: Path, digest: str, *, keep: bool) -> Iterator[Place]:
    """A database and a folder for this collection; both are gone at the end, unless they are to be kept."""
    name = place_name(collection)
    folder = Path(settings.HOME) / "evaluation" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock"), collection):
        reuse = keep and (folder / "loaded").exists()
        with bench_database(name, keep=keep, contents=digest, reuse=reuse) as loaded:
            if not loaded:
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                yield Place(folder, _environment(folder), loaded)
            finally:
                # A second Ctrl-C must not leave half of it behind.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)


def place_name(collection: Path) -> str:
    """The name of the database and of the folder: the same for the same collection."""
    path = collection.resolve()
    word = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_")[:30]
    return f"evaluate_{word}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_SHOWN_LINES:]) or "it said nothing"


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_SERVER}
    return {
        **kept,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "MNEMOSCOPE_HOME": str(folder),
        "DATABASE_URL": _database_url(),
        # The one that the baseline has.
        "EMBEDDING_MODEL": settings.EMBEDDING_MODEL,
    }


def _database_url() -> str:
    """The database that this process is connected to, as another process is told of it."""
    parameters = connection.get_connection_params()
    names = {"dbname", "host", "port", "user", "password", *settings.DATABASES["default"].get("OPTIONS", {})}
    told = {name: str(parameters[name]) for name in sorted(names - {"pool"}) if parameters.get(name)}
    return f"postgresql:///?{urlencode(told)}"


@contextmanager
def _locked(path: Path, collection: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EvaluationError(f"{collection} is being evaluated by another process: wait for it to end.") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # another collection's is there
                path.parent.rmdir()


@contextmanager
def _child(arguments: tuple[str, ...], environment: dict[str, str], out: int) -> Iterator[subprocess.Popen[bytes]]:
    """A command of ours in a process group of its own: Ctrl-C is for this process, which ends the child in order."""
    child: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_held():
            child = subprocess.Popen(
                [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
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
def _interrupts_held() -> Iterator[None]:
    """A KeyboardInterrupt comes at the end: in the middle of starting a process, it would leave one that none ends."""
    arrived: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_ready(port: int) -> bool:
    """Whether the server answers, from the engine that its settings name."""
    http = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        http.request("GET", "/api/health")
        health = json.loads(http.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        http.close()
    return bool(health.get("status") == "ok" and health["index"]["state"] != "missing")

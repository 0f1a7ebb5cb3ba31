"""The faults of a campaign. Each returns when its harm is over, or cannot be lifted."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from lab.torture.clients import Http, McpStdio, NoAnswerError
from lab.torture.cluster import NodeProcess, node_processes
from lab.torture.ledger import Findings
from lab.torture.site import Site, signal_all
from lab.torture.writers import Importer

CLOCK = Path(__file__).with_name("clock.c")
PAUSED_SECONDS = (0.3, 2.0)
QUIET_SECONDS = 30.0


@dataclass
class Scene:
    """Everything that faults act upon."""

    site: Site
    folder: Path
    rng: random.Random
    stdio: list[McpStdio]
    importer: Importer
    http: Http
    findings: Findings
    no_disk: str = ""  # why there is no small disk

    def some_seconds(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)


@dataclass(frozen=True)
class Fault:
    """`act` returns the time from which the site has a chance to recover. One without weight is done if it is named."""

    name: str
    weight: float
    act: Callable[[Scene], float]
    reason_not: Callable[[Scene], str] = lambda scene: ""


def _kill(scene: Scene, processes: list[psutil.Process]) -> float:
    signal_all(processes, signal.SIGKILL)
    return time.monotonic()


def postmaster(scene: Scene) -> float:
    return _kill(scene, scene.site.postmaster())


def backend(scene: Scene) -> float:
    found = scene.site.backends()
    return _kill(scene, [scene.rng.choice(found)] if found else [])


def web(scene: Scene) -> float:
    killed = _kill(scene, scene.site.web())
    scene.site.wait_for_end()
    scene.site.restart()
    return killed


def follower(scene: Scene) -> float:
    return _kill(scene, scene.site.helpers("--follow"))


def worker(scene: Scene) -> float:
    return _kill(scene, scene.site.helpers("worker"))


def stdio(scene: Scene) -> float:
    for client in scene.stdio:
        if client.process is not None:
            signal_all([psutil.Process(client.process.pid)], signal.SIGKILL)
    return time.monotonic()


def everything(scene: Scene) -> float:
    killed = time.monotonic()
    scene.site.kill_all()
    scene.site.start()
    return killed


def an_import(scene: Scene) -> float:
    """Kill an import at any moment, or what it needs: the follower, its connection, Postgres."""
    scene.importer.process = None
    scene.importer.is_wanted.set()
    until = time.monotonic() + 10
    while scene.importer.process is None and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(scene.some_seconds(0.5, 6.0))
    running = scene.importer.process
    own: list[psutil.Process] = [] if running is None or running.poll() is not None else [psutil.Process(running.pid)]
    site = scene.site
    return _kill(
        scene,
        scene.rng.choice(
            (own, own, own + site.helpers("--follow"), own + site.postmaster(), [], site.helpers("--follow"))
        ),
    )


def paused(scene: Scene) -> float:
    """Stop one process, or all of Postgres' backends, and let it go on."""
    site = scene.site
    choices = [site.web(), site.helpers("--follow"), site.helpers("worker"), site.backends(), site.postmaster()]
    chosen = scene.rng.choice([one for one in choices if one] or [[]])
    signal_all(chosen, signal.SIGSTOP)
    time.sleep(scene.some_seconds(*PAUSED_SECONDS))
    signal_all(chosen, signal.SIGCONT)
    return time.monotonic()


def dropped(scene: Scene) -> float:
    """Terminate every connection, as a restart of Postgres or of a pooler does."""
    with contextlib.suppress(psycopg.Error), scene.site.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return time.monotonic()


def exhausted(scene: Scene) -> float:
    """Take every connection that is left, after dropping those of the site, so that it gets none."""
    held: list[psycopg.Connection[object]] = []
    try:
        with contextlib.suppress(psycopg.Error):
            while len(held) < 500:
                held.append(scene.site.connect())
                if len(held) == 1:
                    dropped(scene)
                    held[0] = scene.site.connect()
        time.sleep(scene.some_seconds(*PAUSED_SECONDS))
    finally:
        for connection in held:
            connection.close()
    return time.monotonic()


def full_disk(scene: Scene) -> float:
    """Fill the disk of the home, and make room again."""
    ballast = scene.folder / "ballast"
    # The disk may be full already: of data of the site itself.
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        free = os.statvfs(ballast).f_bavail * os.statvfs(ballast).f_frsize
        os.posix_fallocate(file.fileno(), 0, max(free, 1))
        while True:  # what was freed meanwhile
            file.seek(0, os.SEEK_END)
            file.write(b"\0" * 65536)
            file.flush()
    time.sleep(scene.some_seconds(1.0, 5.0))
    ballast.unlink(missing_ok=True)
    return time.monotonic()


def clock(scene: Scene) -> float:
    """Restart the site with a clock that jumps forwards and backwards by hours."""
    library, seconds = scene.folder / "clock.so", scene.folder / "clock"
    compiled = [str(shutil.which("cc")), "-shared", "-fPIC", "-O2", "-o", str(library), str(CLOCK)]
    subprocess.run(compiled, check=True)
    seconds.write_text("0")
    # Postgres has an account of its own, and inherits the clock.
    for path in (library, seconds):
        path.chmod(0o755)
    scene.site.kill_all()
    scene.site.start(LD_PRELOAD=str(library), TORTURE_CLOCK=str(seconds))
    scene.site.wait_until_it_answers()
    for _ in range(3):
        seconds.write_text(str(scene.rng.randrange(-12 * 3600, 12 * 3600)))
        time.sleep(1)
    return time.monotonic()


def node(scene: Scene) -> float:
    """Kill one server of a cluster, and start it again. Meanwhile every error has to say that the database is away."""
    chosen: NodeProcess = scene.rng.choice(node_processes(scene.site))
    chosen.kill()
    until = time.monotonic() + scene.some_seconds(3.0, 8.0)
    while time.monotonic() < until:
        for path in ("/api/search?q=token&include_facets=1", "/api/search?sort=newest", "/"):
            with contextlib.suppress(NoAnswerError):
                answer = scene.http.ask("GET", path)
                if answer.status not in (200, 302, 503):
                    scene.findings.add("unclear error", f"{path}: {answer.status} {answer.text[:300]}")
        time.sleep(0.2)
    chosen.start()
    return time.monotonic()


def nothing(scene: Scene) -> float:
    """Let everybody write, with an import in between."""
    scene.importer.is_wanted.set()
    time.sleep(QUIET_SECONDS)
    return time.monotonic()


def _not_embedded(scene: Scene) -> str:
    return "the database is not the site's own" if scene.site.database else ""


def _no_clock(scene: Scene) -> str:
    return _not_embedded(scene) or ("" if shutil.which("cc") else "it needs a C compiler (cc)")


def _no_nodes(scene: Scene) -> str:
    return (
        ""
        if node_processes(scene.site)
        else "it needs a cluster with workers on this machine, and the right to kill them"
    )


FAULTS = (
    Fault("kill a backend of Postgres", 14, backend, _not_embedded),
    Fault("drop all connections", 14, dropped),
    Fault("pause a process", 14, paused),
    Fault("kill the index follower", 14, follower, _not_embedded),
    Fault("exhaust the connections", 8, exhausted),
    Fault("kill Postgres", 8, postmaster, _not_embedded),
    Fault("kill MCP over stdio", 5, stdio),
    Fault("kill the web server", 3, web),
    Fault("kill an import", 3, an_import),
    Fault("kill the embedding worker", 4, worker),
    Fault("kill everything", 2, everything),
    Fault("fill the disk", 2, full_disk, lambda scene: scene.no_disk or _not_embedded(scene)),
    Fault("jump of the clock", 0.6, clock, _no_clock),
    Fault("kill a server of the cluster", 8, node, _no_nodes),
    Fault("no fault", 0, nothing),
)

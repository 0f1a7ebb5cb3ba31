"""The servers of a Citus cluster that run on this machine, for faults that end them."""

import contextlib
import signal
import subprocess
from dataclasses import dataclass

import psutil
import psycopg

from lab.torture.site import Site, signal_all


def has_citus(site: Site) -> bool:
    """Whether the database of a site is on a coordinator."""
    if not site.database:
        return False
    with site.connect() as connection:
        return connection.execute("SELECT FROM pg_extension WHERE extname = 'citus'").fetchone() is not None


@dataclass(frozen=True)
class NodeProcess:
    """The first process of a server, and what starts it again."""

    process: psutil.Process
    command: tuple[str, ...]
    environment: dict[str, str]
    user: int
    group: int

    def kill(self) -> None:
        """Kill the server with all its processes at once."""
        signal_all([self.process, *self.process.children(recursive=True)], signal.SIGKILL)
        with contextlib.suppress(psutil.TimeoutExpired):
            self.process.wait(10)

    def start(self) -> None:
        subprocess.Popen(
            self.command,
            env=self.environment,
            cwd="/",
            user=self.user,
            group=self.group,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def node_processes(site: Site) -> list[NodeProcess]:
    """The workers on this machine that this process may end."""
    if not has_citus(site):
        return []
    with contextlib.suppress(psycopg.Error, psutil.Error), site.connect() as connection:
        ports = {
            port
            for (port,) in connection.execute(
                "SELECT nodeport FROM pg_dist_node WHERE groupid <> 0 AND nodename IN ('127.0.0.1', 'localhost')"
            )
        }
        listening = {one.laddr.port: one.pid for one in psutil.net_connections("tcp") if one.status == "LISTEN"}
        return [_node(psutil.Process(listening[port])) for port in sorted(ports) if listening.get(port)]
    return []


def _node(process: psutil.Process) -> NodeProcess:
    return NodeProcess(process, tuple(process.cmdline()), process.environ(), process.uids().real, process.gids().real)

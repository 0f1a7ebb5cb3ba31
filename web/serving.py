"""The listening socket, the ASGI server, and signals that stop it like Ctrl-C."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from types import FrameType
from urllib.parse import urljoin, urlsplit

import uvicorn
from django.conf import settings
from django.http import HttpRequest

from web.command_line import command, start_command
from web.connections import BoundedProtocol
from web.exchange import access_logger

SHUTDOWN_SECONDS = 3
# Connections that the kernel holds until a process accepts them.
_BACKLOG = 2048


class CannotListenError(Exception):
    """The address is not available. The message says what to do."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def speaks_safely(address: str) -> bool:
    """Whether tokens may be sent to an address: by HTTPS, or without leaving the machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def site_address(host: str, port: int) -> str:
    """The URL for a browser on this machine. The wildcard addresses (0.0.0.0, ::) become loopback addresses."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "[::1]"
        elif address.version == 6:
            host = f"[{host}]"
    return f"http://{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before any slow step, so that a port in use is reported at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise CannotListenError(f"--host {host} is not an address of this machine ({error.strerror}).") from error
    # With its protocol: asyncio turns off the delay of small packets only for sockets that are known to be of TCP.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListenError(_why_not(error, host, port)) from error
    return listener


def _why_not(error: OSError, host: str, port: int) -> str:
    free = _free_port_after(host, port)
    another = f"Choose another one: PORT={free} {start_command()} (or: {command(f'up --port {free}')})."
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use, perhaps by another Mnemoscope. {another}"
    if error.errno == errno.EACCES:
        return f"Port {port} can only be used by root. {another}"
    return f"Cannot listen on {host}, port {port}: {error.strerror}. Use --host 127.0.0.1 for this machine only."


def _free_port_after(host: str, port: int) -> int:
    start = max(port, 1023) + 1
    for candidate in range(start, min(start + 50, 65536)):
        with contextlib.suppress(OSError), socket.create_server((host, candidate), family=_family(host)):
            return candidate
    return 8000 if port != 8000 else 8001


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None], parent: int | None) -> None:
        super().__init__(config)
        self.when_ready = when_ready
        self.parent = parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        # In a thread: it may use the database, which Django forbids in the event loop's thread.
        await asyncio.to_thread(self.when_ready)

    async def on_tick(self, counter: int) -> bool:
        is_orphan = self.parent is not None and os.getppid() != self.parent
        return await super().on_tick(counter) or is_orphan

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A request that exceeds the grace period is cancelled; its traceback is useless.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def serve(
    listeners: Sequence[socket.socket],
    when_ready: Callable[[], None],
    *,
    access_log: bool,
    parent: int | None = None,
) -> None:
    """Serve until a signal raises KeyboardInterrupt, or the process `parent` is gone.

    `when_ready` is called once connections are accepted.
    """
    if access_log:
        access_logger.setLevel(logging.INFO)
    _Server(server_config(), when_ready, parent).run(sockets=list(listeners))


def server_config() -> uvicorn.Config:
    return uvicorn.Config(
        "config.asgi:application",
        # Not uvloop, if somebody has installed it: nothing is tested with it.
        loop="asyncio",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        # Otherwise any program of this machine could claim to speak for somebody else.
        proxy_headers=settings.BEHIND_TLS_PROXY or bool(os.environ.get("FORWARDED_ALLOW_IPS")),
        log_config=None,
        # Its lines have the queries, which may contain tokens.
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        # Also the number of connections that asyncio accepts in a row. Processes that share a listener take them one by
        # one, so that none of them takes all.
        backlog=1,
    )


def steady_memory() -> None:
    """Tune garbage collection for a server: objects loaded so far are permanent, and requests create few cycles.

    By default Python scans everything ever loaded during every few requests, which then take twice as long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Raise KeyboardInterrupt for Ctrl-C, SIGTERM and the closing of the terminal, and set the event.

    The event tells when code has converted the exception into another error.
    """
    requested = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        requested.set()
        raise KeyboardInterrupt

    def pass_on(number: int, frame: FrameType | None) -> None:
        # The ASGI server handles SIGTERM, but not the signal of a closed terminal.
        signal.raise_signal(signal.SIGTERM)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, pass_on)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def address_file(site: str) -> Iterator[None]:
    """Record the address of this server in a file for commands, and lock it as long as the server runs.

    The kernel releases the lock of a killed server, so that a file that it left behind misleads nobody.
    """
    # Each server of this HOME has its own file, so that none removes that of another.
    path = Path(settings.HOME) / f"address.{os.getpid()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Locked before it has its name: a command would remove one that nobody holds.
    draft = path.with_name(f"address-{os.getpid()}")
    with draft.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(site)
        file.flush()
        draft.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_site() -> str | None:
    """The address for people: that of the settings, or of the server that was started last; None if none runs."""
    found = []
    for path in Path(settings.HOME).glob("address.*"):
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()  # nobody holds it: the server was killed
            except BlockingIOError:
                found.append((path.stat().st_mtime, file.read().strip()))
    return settings.PUBLIC_URL or max(found)[1] if found else None


def public_address(request: HttpRequest, path: str) -> str:
    """A link to give to others: of the settings, or as the reader has reached the site."""
    return urljoin(public_site(request), path)


def public_site(request: HttpRequest) -> str:
    """The address of the site to give to others, without a slash at its end."""
    return settings.PUBLIC_URL or f"{request.scheme}://{request.get_host()}"


class Reach(Enum):
    """The machines that can open an address."""

    ANYWHERE = "everybody can open it"
    NETWORK = "only machines in the same network can open it"
    MACHINE = "only this machine can open it"


def reach_of(address: str) -> Reach:
    """The machines that can open an address, as far as its name shows."""
    host = (urlsplit(address).hostname or "").rstrip(".")
    if is_loopback(host) or host.endswith(".localhost"):
        return Reach.MACHINE
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return Reach.NETWORK if "." not in host or host.endswith(_LOCAL_NAMES) else Reach.ANYWHERE
    if number.is_unspecified:
        return Reach.MACHINE
    return Reach.ANYWHERE if number.is_global else Reach.NETWORK


# Names that routers and systems give to machines of their own network.
_LOCAL_NAMES = (".local", ".lan", ".internal", ".home", ".home.arpa", ".intranet")

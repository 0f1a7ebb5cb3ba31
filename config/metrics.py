"""`/metrics`: numbers for Prometheus, over all processes of the server. Loaded only if METRICS_TOKEN is set.

Requests are counted where they end, in the event loop, into files that the processes of one server share
(PROMETHEUS_MULTIPROC_DIR, which `manage.py up` sets). The numbers of the site are read when they are asked for, within
a second; those that cannot be read then are left out. Labels are routes, methods and statuses: never names or ids.
"""

import asyncio
import hmac
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from django.conf import settings
from django.core.management import get_commands
from django.db import DEFAULT_DB_ALIAS, connection
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from categories.names import data_revision
from memories.embedding.vectors import memory_progress
from memories.recalls import log
from search.engines import index_state
from search.engines.index.outbox import backlog
from web.admission import light_requests, requests
from web.exchange import Application, Exchange, ExchangeApplication, Message, Receive, Send, set_route
from web.outages import database_answers
from web.processes import ended
from web.version import VERSION

PATH = "/metrics"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# The site is read by one thread, so that a database that hangs holds up no more.
_SITE_SECONDS = 1.0
_readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")

_registry = CollectorRegistry()
_seconds = Histogram(
    "mnemoscope_http_request_duration_seconds",
    "From the arrival of a request to the end of its reply.",
    ("route", "method"),
    buckets=_BUCKETS,
    registry=_registry,
)
_responses = Counter(
    "mnemoscope_http_responses", "Replies; 499: the client left.", ("route", "method", "status"), registry=_registry
)
_refused = Counter(
    "mnemoscope_tool_refusals", "Calls of agent tools that were refused.", ("route",), registry=_registry
)
_queue = Gauge(
    "mnemoscope_requests",
    "Requests that run, and that wait for their turn, at the end of the last one.",
    ("state",),
    multiprocess_mode="livesum",
    registry=_registry,
)
_pool = Gauge(
    "mnemoscope_database_pool",
    "Connections of the pools by state, and requests that wait for one, after the last request.",
    ("state",),
    multiprocess_mode="livesum",
    registry=_registry,
)
_waited = Counter(
    "mnemoscope_database_pool_wait_seconds", "Time that requests waited for a connection.", registry=_registry
)
_restarts = Counter(
    "mnemoscope_process_restarts", "Processes that ended by themselves.", ("process",), registry=_registry
)
_timed_out = Counter("mnemoscope_database_pool_timeouts", "Requests that got no connection.", registry=_registry)


_reads = Gauge(
    "mnemoscope_reads_waiting",
    "Reads that are not in the log yet, after the last request.",
    multiprocess_mode="livesum",
    registry=_registry,
)
_dropped = Counter("mnemoscope_reads_dropped", "Reads that the log lacks: too many waited.", registry=_registry)

ended.append(lambda process: _restarts.labels(process).inc())


# --- requests ----------------------------------------------------------------------------------------------------


def _update_queue() -> None:
    lanes = (requests, light_requests)
    _queue.labels("running").set(sum(lane.running - lane.free for lane in lanes))
    _queue.labels("waiting").set(sum(lane.waiting for lane in lanes))


class _ReadNumbers:
    """The log of reads of this process."""

    def __init__(self) -> None:
        self._counted = 0

    def update(self) -> None:
        _reads.set(log.waiting_reads)
        if log.dropped_reads > self._counted:
            _dropped.inc(log.dropped_reads - self._counted)
            self._counted = log.dropped_reads


_read_numbers = _ReadNumbers()


class _PoolNumbers:
    """The pool of this process. It counts since its beginning, the metrics since that of the server."""

    def __init__(self) -> None:
        self._waited_ms = 0
        self._errors = 0
        self._states = {state: _pool.labels(state) for state in ("used", "free", "waiting")}

    def update(self) -> None:
        # Not `connection.pool`, which creates one.
        pool = getattr(connection, "_connection_pools", {}).get(DEFAULT_DB_ALIAS)
        if pool is None:
            return
        stats = pool.get_stats()
        self._states["used"].set(stats["pool_size"] - stats["pool_available"])
        self._states["free"].set(stats["pool_available"])
        self._states["waiting"].set(stats["requests_waiting"])
        waited_ms, errors = stats.get("requests_wait_ms", 0), stats.get("requests_errors", 0)
        # A new pool begins at nought.
        if waited_ms != self._waited_ms:
            _waited.inc(max(0, waited_ms - self._waited_ms) / 1000)
        if errors != self._errors:
            _timed_out.inc(max(0, errors - self._errors))
        self._waited_ms, self._errors = waited_ms, errors


_pool_numbers = _PoolNumbers()


def count(method: str, exchange: Exchange) -> None:
    """Count a request that has ended."""
    method = method if method in _METHODS else "other"
    _seconds.labels(exchange.route, method).observe(exchange.seconds)
    _responses.labels(exchange.route, method, str(exchange.status)).inc()
    if exchange.tool_refused:
        _refused.labels(exchange.route).inc()
    _pool_numbers.update()
    _read_numbers.update()
    _update_queue()


# --- the site ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Site:
    """Numbers of the database and the index."""

    waiting: int
    lag: float
    pending: int
    revision: int
    index_ready: bool


def _read_site() -> _Site:
    try:
        behind = backlog()
        revision = data_revision()
        pending = memory_progress(revision).pending_in(None)
        return _Site(behind.changes, behind.seconds, pending, revision.revision, index_state() == "ready")
    finally:
        # The thread stays, but its connection returns to the pool.
        connection.close()


class _SiteCollector(Collector):
    def __init__(self) -> None:
        self._reading: Future[_Site] | None = None

    def collect(self) -> Iterable[Metric]:
        info = GaugeMetricFamily("mnemoscope_info", "Always 1.", labels=("version", "engine"))
        info.add_metric((VERSION, settings.SEARCH_ENGINE), 1)
        yield info
        yield from _processes()
        site = self._site()
        answers = float(database_answers())
        yield GaugeMetricFamily("mnemoscope_database_up", "1 if the database has answered within a second.", answers)
        if site is None:
            return
        named = (
            ("mnemoscope_index_ready", "1 if searches are answered from the index.", site.index_ready),
            ("mnemoscope_index_lag_seconds", "Age of the oldest change that is not in the index.", site.lag),
            ("mnemoscope_index_waiting_changes", "Changes that are not in the index, up to 100,000.", site.waiting),
            ("mnemoscope_embedding_pending_memories", "Memories that are yet to be embedded.", site.pending),
            ("mnemoscope_revision", "Rises with every change of memories or the vocabulary.", site.revision),
        )
        for name, explanation, value in named:
            yield GaugeMetricFamily(name, explanation, float(value))

    def _site(self) -> _Site | None:
        """The numbers, None if they are not to be had in time. A slow read is waited for again the next time."""
        if self._reading is None or self._reading.done():
            self._reading = _readers.submit(_read_site)
        try:
            return self._reading.result(_SITE_SECONDS)
        except Exception:  # whatever it is, it is in the answers and logs of the site too
            return None


_site_collector = _SiteCollector()


def _processes() -> Iterator[Metric]:
    """Memory and number of the processes of this server by their command."""
    memory = GaugeMetricFamily(
        "mnemoscope_process_resident_bytes", "Memory of processes, with what they share.", labels=("command",)
    )
    number = GaugeMetricFamily("mnemoscope_processes", "Number of processes.", labels=("command",))
    found: dict[str, list[int]] = {}
    for process in _family():
        try:
            found.setdefault(_command_of(process), []).append(process.memory_info().rss)
        except psutil.Error:
            continue
    for command, sizes in sorted(found.items()):
        memory.add_metric((command,), sum(sizes))
        number.add_metric((command,), len(sizes))
    yield memory
    yield number


def _command_of(process: psutil.Process) -> str:
    if process.name() == "postgres":
        return "postgres"
    words = process.cmdline()
    command = next((words[i + 1] for i, word in enumerate(words[:-1]) if word.endswith(_PROGRAMS)), "")
    return command if command in get_commands() else "other"


_PROGRAMS = ("manage.py", "mnemoscope")


def _family() -> list[psutil.Process]:
    """`manage.py up` with its children, or this process alone next to another ASGI server."""
    folder = _shared_folder()
    try:
        head = psutil.Process(int(folder.name)) if folder and folder.name.isdigit() else psutil.Process()
        return [head, *head.children(recursive=True)]
    except psutil.Error:
        return [psutil.Process()]


# --- the reply ---------------------------------------------------------------------------------------------------


def _shared_folder() -> Path | None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(folder) if folder else None


def render() -> bytes:
    """All metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    folder = _shared_folder()
    if folder is None:
        requests = generate_latest(_registry)
    else:
        for file in folder.glob("gauge_live*_*.db"):
            pid = file.stem.rpartition("_")[2]
            if not psutil.pid_exists(int(pid)):
                mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
        requests = b""
    registry.register(_site_collector)
    return requests + generate_latest(registry)


def measured(application: ExchangeApplication) -> ExchangeApplication:
    """An application whose requests are counted, with the numbers at `/metrics`."""
    return ExchangeApplication(MetricsApplication(application.application), when_done=count)


class MetricsApplication:
    """An ASGI application: `/metrics` for who has the token, every other path for another application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._rendering = asyncio.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._application(scope, receive, send)
            return
        set_route(PATH)
        status, body, headers = 200, b"", []
        if scope["method"] not in {"GET", "HEAD"}:
            status, headers = 405, [(b"allow", b"GET, HEAD")]
        elif not _has_token(scope):
            status, headers = 401, [(b"www-authenticate", b"Bearer")]
            body = b"Send METRICS_TOKEN as: Authorization: Bearer TOKEN\n"
        else:
            async with self._rendering:
                body = await asyncio.to_thread(render)
        kind = CONTENT_TYPE_LATEST if status == 200 else "text/plain"
        headers += [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _has_token(scope: Message) -> bool:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = given.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), settings.METRICS_TOKEN.encode())

"""A whole server under load: the answers a second to many readers and a few writers at once, and the memory that each
of its processes has then, with one web process and with one for each core.

The processes of the server, the readers and Postgres share the cores of this machine.
"""

import json
import subprocess
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import connection

from access.keys import make_key
from access.sign_in import owner_to_sign_in, sign_in_link
from access.viewer import command_viewer
from lab.bench.runner import Benchmark, Job
from lab.report import Cell, Row, cells, machine_load, table
from lab.sandbox import BenchmarkError, vacuum
from memories.embedding.models import missing_packages

_SECONDS = 60
_WARM_UP_SECONDS = 10
_MOST_WORKERS = 8


def run(job: Job, size: int) -> Row:
    load_corpus(job, size)
    key = make_key(name="load", scopes=("read", "write"), viewer=command_viewer(), every_project=True).raw
    cores = min(len(psutil.Process().cpu_affinity() or [0]), _MOST_WORKERS)
    return {"runs": [_measure(job, workers, key) for workers in dict.fromkeys((1, cores))]}


def load_corpus(job: Job, size: int) -> None:
    """Load a generated corpus into the sandbox, with its vectors if there is a model."""
    _, path = job.generate_corpus(size)
    if not job.sandbox.loaded:
        job.progress.log("loading")
        job.sandbox.manage("import_memories", str(path))
        if not missing_packages(settings.EMBEDDING_MODEL):
            job.progress.log("embedding")
            job.sandbox.manage("worker", "--once")
        vacuum()
        job.sandbox.mark_loaded()


def _measure(job: Job, workers: int, key: str) -> Row:
    environment = {"API_REQUESTS_PER_MINUTE": "1000000"}
    with job.sandbox.serve(lambda port: is_ready(port, key), environment, workers=workers) as (port, pid):
        url = f"http://127.0.0.1:{port}"
        _load(job, url, key, _WARM_UP_SECONDS)
        job.progress.log(f"{workers} web processes under load")
        load_before = machine_load()
        found = _load(job, url, key, _SECONDS)
        return {"workers": workers, "load_before": load_before, **found, "processes": _memory(psutil.Process(pid))}


def is_ready(port: int, key: str) -> bool:
    """Whether the index and the model of the server answer."""
    asked = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        asked.request("GET", "/api/health", headers={"X-API-Key": key})
        response = asked.getresponse()
        health: dict[str, Any] = json.loads(response.read())
    except (HTTPException, OSError, ValueError):
        return False
    finally:
        asked.close()
    if response.status != 200:
        return False
    has_meaning = bool(health["embeddings"]["ready"]) or bool(missing_packages(settings.EMBEDDING_MODEL))
    return health["index"]["state"] == "ready" and has_meaning


def _load(job: Job, url: str, key: str, seconds: int) -> Row:
    """Readers and writers in a process of their own."""
    user = owner_to_sign_in()
    link = ("--link", sign_in_link(user=user, site=url)) if user else ()
    command = ("-m", "lab.bench.load_client", url, key, str(seconds), *link)
    with job.sandbox.child(*command, stdout=subprocess.PIPE) as child:
        output, _ = child.communicate()
        if child.returncode:
            raise BenchmarkError("The readers failed; see their output above.")
    found: Row = json.loads(output)
    return found


def _memory(server: psutil.Process) -> list[Row]:
    """The memory of each process of a server in MB, Postgres as one. What several share is divided among them."""
    rows = [_memory_of(process) for process in (server, *server.children(recursive=True)) if not _is_postgres(process)]
    postgres = [_memory_of(process) for process in psutil.process_iter() if _is_postgres(process)]
    if postgres:
        total = {name: sum(row[name] for row in postgres) for name in ("resident_mb", "proportional_mb")}
        rows.append({"process": f"postgres ({len(postgres)})", **total})
    return rows


def _memory_of(process: psutil.Process) -> Row:
    memory = process.memory_full_info()
    words = [word for word in process.cmdline()[2:] if not word.startswith("-") and not word.isdigit()]
    return {
        "process": words[0] if words else process.name(),
        "resident_mb": round(memory.rss / 1e6),
        # Only Linux tells.
        "proportional_mb": round(getattr(memory, "pss", memory.uss) / 1e6),
    }


def _is_postgres(process: psutil.Process) -> bool:
    """Whether this is a process of the database of the benchmark, if it runs on this machine."""
    try:
        return process.name().startswith("postgres") and Path(process.cwd()) == _data_folder()
    except psutil.Error:
        return False


def _data_folder() -> Path:
    with connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        return Path(cursor.fetchone()[0])


def lines(name: str, found: Row) -> list[str]:
    rows: list[list[Cell]] = []
    kinds: dict[str, list[Cell]] = {}
    memory: list[list[Cell]] = []
    for of in found["runs"]:
        outcomes = ", ".join(f"{count:,} × {outcome}" for outcome, count in sorted(of["outcomes"].items()))
        rows.append([str(of["workers"]), of["answers_per_second"], *cells(of["latency"]), outcomes])
        for kind, latency in of["kinds"].items():
            kinds.setdefault(kind, []).extend(cells(latency, ("p50", "p95")))
        memory += [
            [f"{of['workers']}: {one['process']}", one["resident_mb"], one["proportional_mb"]]
            for one in of["processes"]
        ]
        memory.append([f"{of['workers']}: together", None, sum(one["proportional_mb"] for one in of["processes"])])
    headings = [f"{of['workers']}: {percentile}" for of in found["runs"] for percentile in ("p50", "p95")]
    return [
        f"### A server of {int(name):,} memories under load",
        "",
        "200 readers and 3 writers for a minute, in milliseconds.",
        "",
        *table(["web processes", "answers/s", "p50", "p95", "p99", "max", "outcomes"], rows),
        "",
        *table(["kind", *headings], [[kind, *row] for kind, row in kinds.items()]),
        "",
        *table(["process", "resident MB", "proportional MB"], memory),
    ]


BENCHMARK = Benchmark(
    "load",
    run,
    lines,
    "MEMORIES",
    "a whole server with a corpus of this size under 200 readers and 3 writers",
    limits=(1_000, 10_000_000),
)

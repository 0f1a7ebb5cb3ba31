"""What the figures were measured on. Names nothing that would tell whose machine it is."""

import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.figures import Machine


def this_machine(postgres: str) -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=_usable_cores(),
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        postgres=postgres,
        sqlite=sqlite3.sqlite_version,
        date=datetime.now(UTC).date().isoformat(),
    )


def machine_load() -> float:
    """How many processes wanted a core over the last minute."""
    return round(float(psutil.getloadavg()[0]), 1)


def _usable_cores() -> int:
    # A container may be given fewer than there are.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

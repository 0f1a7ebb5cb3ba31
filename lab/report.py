"""Rows of a report, shared by both benchmarks: percentiles, the machine, and the Markdown table that prints them."""

import math
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
from django.db import connection

# A part of the JSON report.
Row = dict[str, Any]
Cell = str | float | None
PERCENTILES = ("p50", "p95", "p99", "max")

T = TypeVar("T")


def timed(function: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Call a function; return its result and the seconds it took."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """Percentiles in milliseconds. They are nearest ranks, so each of them was measured."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    ranks = {name: math.ceil(share * len(ordered)) for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))}
    ranks["max"] = len(ordered)
    return {"n": len(ordered)} | {f"{name}_ms": round(ordered[at - 1] * 1_000, 3) for name, at in ranks.items()}


def cells(found: dict[str, float] | None, names: Sequence[str] = PERCENTILES) -> list[Cell]:
    """The cells of a table for some of the percentiles; empty cells where nothing was measured."""
    return [found[f"{name}_ms"] if found else None for name in names]


def machine() -> Row:
    """The hardware and the versions in use, without anything that identifies the machine."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (postgres,) = cursor.fetchone()
    return {
        "cpu": _cpu_model(),
        # A container may be limited to some of the cores.
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "postgres": str(postgres),
        "sqlite": sqlite3.sqlite_version,
        "date": datetime.now(UTC).date().isoformat(),
    }


def machine_load() -> float:
    """The load average over the last minute."""
    return round(float(psutil.getloadavg()[0]), 1)


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """A Markdown table with padded columns, which is also readable on a terminal."""
    texts = [list(headings), *([number(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    rule = [":" + "-" * max(1, widths[0] - 1), *("-" * max(1, width - 1) + ":" for width in widths[1:])]
    padded = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in texts]
    return [f"| {' | '.join(row)} |" for row in (padded[0], rule, *padded[1:])]


def number(value: Cell) -> str:
    """A number with three significant digits or more; text as it is, and None as an empty string."""
    if value is None or isinstance(value, str):
        return value or ""
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2f}"

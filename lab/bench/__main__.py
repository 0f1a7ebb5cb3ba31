"""`python -m lab.bench`: measure the speed of imports and searches on generated corpora, compared with other engines.

It prints Markdown tables on stdout and progress on stderr; --json writes every figure by name.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

# These import models, which need the settings.
from django.core.management.base import CommandError  # noqa: E402

from lab.bench import categories, hybrid, load, pages, sizes, vectors  # noqa: E402
from lab.bench.metrics import growth_lines  # noqa: E402
from lab.bench.peers import PEERS  # noqa: E402
from lab.bench.runner import Benchmark, Options, measure  # noqa: E402
from lab.progress import Progress  # noqa: E402
from lab.report import Row, machine  # noqa: E402
from lab.sandbox import BenchmarkError  # noqa: E402

DEFAULT_SIZE = 21_000
BENCHMARKS: dict[str, Benchmark] = {
    "size": sizes.BENCHMARK,
    "vectors": vectors.BENCHMARK,
    "meaning": hybrid.BENCHMARK,
    "categories": categories.BENCHMARK,
    "load": load.BENCHMARK,
    "pages": pages.BENCHMARK,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench",
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"Options that select a benchmark can be repeated. Without them: --size {DEFAULT_SIZE}.",
    )
    add = parser.add_argument
    for option, benchmark in BENCHMARKS.items():
        add(f"--{option}", type=int, action="append", metavar=benchmark.metavar, help=benchmark.help)
    add("--json", type=Path, metavar="FILE", help="write every figure to this file")
    add("--seed", type=int, default=7, help="the same seed makes the same corpus and the same queries (7)")
    add("--queries", type=int, default=500, help="queries of the mixed log (500)")
    add(
        "--budget",
        type=float,
        default=240.0,
        metavar="SECONDS",
        help="time for the queries of each participant and size (240); the tantivy engine always runs all of them",
    )
    add("--peer", choices=PEERS, action="append", help="measure only this participant and postgres; can be repeated")
    add("--keep", action="store_true", help="keep what was loaded, and use what an earlier run has kept")
    parsed = parser.parse_args()
    if not any(getattr(parsed, option) for option in BENCHMARKS):
        parsed.size = [DEFAULT_SIZE]
    # In the order of PEERS: the derived index and the other peers are loaded after the database.
    chosen = {"postgres", *(parsed.peer or PEERS)}
    parsed.peer = tuple(name for name in PEERS if name in chosen)
    for option in BENCHMARKS:
        setattr(parsed, option, list(dict.fromkeys(getattr(parsed, option) or ())))
    _check_arguments(parser, parsed)
    return parsed


def _check_arguments(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """End the program with a message for the first argument that is not allowed."""
    for option, benchmark in BENCHMARKS.items():
        for value in getattr(parsed, option):
            if not benchmark.limits[0] <= value <= benchmark.limits[1]:
                parser.error(f"--{option} {value}: give a number from {benchmark.limits[0]} to {benchmark.limits[1]}")
    if parsed.queries < 1:
        parser.error(f"--queries {parsed.queries}: give 1 or more")
    if parsed.budget <= 0:
        parser.error(f"--budget {parsed.budget:g}: give more than 0 seconds")
    if parsed.json and not parsed.json.resolve().parent.is_dir():
        parser.error(f"--json {parsed.json}: there is no folder {parsed.json.parent}")


def report_lines(report: Row) -> list[str]:
    """The report as Markdown. The JSON report holds more."""
    of = report["machine"]
    lines = [
        f"{of['cpu']}, {of['cores']} cores, {of['memory_gb']} GB; Python {of['python']}, Postgres {of['postgres']},"
        f" SQLite {of['sqlite']}; {of['date']}; seed {report['seed']}, {report['queries']} queries,"
        f" {report['budget_seconds']:g} s for each participant and size",
    ]
    if report["sizes"]:
        lines += ["", *growth_lines(list(report["sizes"].values()))]
    for benchmark in BENCHMARKS.values():
        for name, row in report[benchmark.key].items():
            lines += ["", *benchmark.lines(name, row)]
    return lines


def main() -> int:
    arguments = parse_arguments()
    # On SIGTERM the database of the benchmark is removed as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    progress = Progress()
    options = Options(arguments.seed, arguments.queries, arguments.budget, arguments.peer, arguments.keep)
    report: Row = {
        "machine": machine(),
        "seed": options.seed,
        "queries": options.queries,
        "budget_seconds": options.budget,
        **{benchmark.key: {} for benchmark in BENCHMARKS.values()},
        "format": 2,
    }
    try:
        for option, benchmark in BENCHMARKS.items():
            for value in getattr(arguments, option):
                report[benchmark.key][str(value)] = measure(option, benchmark, value, options, progress)
                if arguments.json:
                    # After each of them: a large size takes an hour, and a later failure must not lose it.
                    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    except (BenchmarkError, CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: the bench has cleaned up and prints no tables.", file=sys.stderr)
        return 130
    print("\n".join(report_lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

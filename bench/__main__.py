"""`python -m bench`: generate a corpus, load it into our engines and others, and measure what a visitor waits for.

Markdown tables on stdout, progress on stderr, and with --json every figure by name.
"""

import argparse
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import django
from django.core.management.base import CommandError

if TYPE_CHECKING:
    from bench.figures import Report

DEFAULT_SIZE = 21_000
DEFAULT_BUDGET = 240.0
DEFAULT_QUERIES = 500
PEER_NAMES = ("postgres", "tantivy", "tantivy-engine", "sqlite", "duckdb", "tantivy-raw")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, action="append", help=f"memories; repeat for several ({DEFAULT_SIZE})")
    parser.add_argument(
        "--vectors", type=int, action="append", metavar="CHUNKS", default=[], help="search by meaning among so many"
    )
    parser.add_argument(
        "--meaning",
        type=int,
        action="append",
        metavar="MEMORIES",
        default=[],
        help="hybrid and unified search over so many",
    )
    parser.add_argument(
        "--categories", type=int, action="append", metavar="MEMORIES", default=[], help="categories of so many memories"
    )
    parser.add_argument(
        "--embedding",
        type=Path,
        action="append",
        metavar="FILE",
        default=[],
        help="the worker beside the model alone, on the memories of a file; repeat for several",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--seed", type=int, default=7, help="same seed, same corpus and same queries (7)")
    parser.add_argument(
        "--queries",
        type=int,
        default=DEFAULT_QUERIES,
        help=f"queries of the mixed log, and of each read of categories up to 300 ({DEFAULT_QUERIES})",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=DEFAULT_BUDGET,
        metavar="SECONDS",
        help=f"for the queries of each participant and size; the tantivy engine runs all ({DEFAULT_BUDGET:g})",
    )
    parser.add_argument(
        "--peer", choices=PEER_NAMES, action="append", help="measure this one only, and postgres; repeat for several"
    )
    parser.add_argument("--keep", action="store_true", help="keep what was loaded, and use what was kept")
    parsed = parser.parse_args()
    parsed.vectors, parsed.meaning = list(dict.fromkeys(parsed.vectors)), list(dict.fromkeys(parsed.meaning))
    parsed.categories = list(dict.fromkeys(parsed.categories))
    alone = parsed.vectors or parsed.meaning or parsed.categories or parsed.embedding
    parsed.size = list(dict.fromkeys(parsed.size or ([] if alone else [DEFAULT_SIZE])))
    # The others are loaded after the database, and the derived index from it.
    chosen = {"postgres", *(parsed.peer or PEER_NAMES)}
    parsed.peer = tuple(name for name in PEER_NAMES if name in chosen)
    for size in parsed.size:
        if not 100 <= size <= 100_000_000:
            parser.error(f"--size {size}: give a number from 100 to 100000000")
    for chunks in parsed.vectors:
        if not 1_000 <= chunks <= 10_000_000:
            parser.error(f"--vectors {chunks}: give a number from 1000 to 10000000")
    for size in parsed.meaning:
        if not 1_000 <= size <= 10_000_000:
            parser.error(f"--meaning {size}: give a number from 1000 to 10000000")
    for memories in parsed.categories:
        if not 100 <= memories <= 100_000_000:
            parser.error(f"--categories {memories}: give a number from 100 to 100000000")
    for path in parsed.embedding:
        if not path.exists():
            parser.error(f"--embedding {path}: there is no such file")
    if parsed.queries < 1:
        parser.error(f"--queries {parsed.queries}: give 1 or more")
    if parsed.budget <= 0:
        parser.error(f"--budget {parsed.budget:g}: give more than 0 seconds")
    if parsed.json and not parsed.json.resolve().parent.is_dir():
        parser.error(f"--json {parsed.json}: there is no folder {parsed.json.parent}")
    return parsed


def write(report: "Report", path: Path | None) -> None:
    """After each size anew: a large one takes an hour, and what came before it is not lost with it."""
    if path:
        path.write_text(json.dumps(dataclasses.asdict(report), indent=1) + "\n")


def main() -> int:
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()

    # They import models, which need the settings.
    from bench.at_size import Choices, measure_size
    from bench.categories import measure_categories
    from bench.database import DatabaseTakenError, server_version
    from bench.embedding import TooFewMemoriesError, measure_embedding
    from bench.figures import Report
    from bench.machine import this_machine
    from bench.meaning import measure_meaning
    from bench.tables import report_lines
    from bench.telling import Teller
    from bench.vectors import measure_vectors
    from memories.embedding.models import EmbedderUnavailableError

    # Whoever ends the bench politely must not find its database left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    teller = Teller()
    choices = Choices(options.seed, options.queries, options.budget, options.peer, options.keep)
    machine = this_machine(server_version())
    report = Report(machine, options.seed, options.queries, options.budget, {})
    try:
        for size in options.size:
            report.sizes[str(size)] = measure_size(size, choices, teller)
            write(report, options.json)
        for chunks in options.vectors:
            report.vectors[str(chunks)] = measure_vectors(chunks, options.seed, teller, keep=options.keep)
            write(report, options.json)
        for size in options.meaning:
            report.meaning[str(size)] = measure_meaning(size, choices, teller)
            write(report, options.json)
        for memories in options.categories:
            report.categories[str(memories)] = measure_categories(memories, choices, teller)
            write(report, options.json)
        for path in options.embedding:
            report.embedding[path.name] = measure_embedding(path, options.seed, teller)
            write(report, options.json)
    except (DatabaseTakenError, CommandError, EmbedderUnavailableError, TooFewMemoriesError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: the bench has cleaned up, and has no figures of this size.", file=sys.stderr)
        return 130
    print("\n".join(report_lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: generate a corpus, import it into a database of its own, and measure what a visitor waits for.

Tables on stdout, progress on stderr, and with --json every figure by name.
"""

import argparse
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import django
from django.core.management.base import CommandError

DEFAULT_SIZE = 21_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, action="append", help=f"memories; repeat for several ({DEFAULT_SIZE})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--seed", type=int, default=7, help="same seed, same corpus and same queries (7)")
    parser.add_argument("--queries", type=int, default=40, help="queries of each kind (40)")
    parser.add_argument("--keep", action="store_true", help="keep the databases bench_<size> to look into")
    parsed = parser.parse_args()
    parsed.size = list(dict.fromkeys(parsed.size or [DEFAULT_SIZE]))
    for size in parsed.size:
        if not 100 <= size <= 100_000_000:
            parser.error(f"--size {size}: give a number from 100 to 100000000")
    if parsed.queries < 1:
        parser.error(f"--queries {parsed.queries}: give 1 or more")
    if parsed.json and not parsed.json.resolve().parent.is_dir():
        parser.error(f"--json {parsed.json}: there is no folder {parsed.json.parent}")
    return parsed


def main() -> int:
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()

    # They import models, which need the settings.
    from bench.at_size import Choices, measure
    from bench.database import DatabaseTakenError, server_version
    from bench.figures import Report
    from bench.machine import this_machine
    from bench.tables import print_report
    from bench.telling import Teller

    # Whoever ends the bench politely must not find its database left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    teller = Teller()
    choices = Choices(options.seed, options.queries, options.keep)
    try:
        machine = this_machine(server_version())
        sizes = {str(size): measure(size, choices, teller) for size in options.size}
    except (DatabaseTakenError, CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: the bench has cleaned up, and there are no figures.", file=sys.stderr)
        return 130
    report = Report(machine, options.seed, options.queries, sizes)
    if options.json:
        options.json.write_text(json.dumps(dataclasses.asdict(report), indent=1) + "\n")
    print_report(report, markdown=options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())

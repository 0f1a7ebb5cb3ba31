"""`python -m lab.evaluate DIR`: the quality of our search results for a collection of documents with judgements."""

import argparse
import json
import os
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

# These import models, which need the settings.
from django.core.management.base import CommandError  # noqa: E402

from lab.evaluate.baselines import BASELINES  # noqa: E402
from lab.evaluate.collection import LAYOUT  # noqa: E402
from lab.evaluate.metrics import report_lines  # noqa: E402
from lab.evaluate.runner import EvaluationOptions, evaluate, ranked_modes  # noqa: E402
from lab.progress import Progress  # noqa: E402
from lab.report import Row  # noqa: E402
from lab.sandbox import BenchmarkError  # noqa: E402


def parse_arguments() -> argparse.Namespace:
    modes = ranked_modes()
    parser = argparse.ArgumentParser(
        prog="python -m lab.evaluate",
        description="Measure how well memories are found: every ranked mode, plain BM25 and plain vectors.",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help=f"{LAYOUT}, in the layout of BEIR")
    add("--json", type=Path, metavar="FILE", help="write all figures, with those of every query, to this file")
    add("--modes", type=_some_of(modes), default=modes, help=f"comma-separated: {', '.join(modes)} (all), or none")
    choices = ", ".join(BASELINES)
    add("--baselines", type=_some_of(BASELINES), default=BASELINES, help=f"comma-separated: {choices} (all), or none")
    add("--limit-queries", type=_count, metavar="N", help="run this many of the queries, drawn at random (all)")
    add("--seed", type=int, default=7, help="the seed for drawing queries (7)")
    add("--ablation", action="store_true", help="also measure with parts of the search changed or left out")
    add("--keep", action="store_true", help="keep what was loaded, and use what an earlier run has kept")
    parsed = parser.parse_args()
    if parsed.json and not parsed.json.resolve().parent.is_dir():
        parser.error(f"--json {parsed.json}: there is no folder {parsed.json.parent}")
    return parsed


def _some_of(choices: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        given = [part.strip() for part in text.split(",") if part.strip()]
        if given == ["none"]:
            return ()
        if not given or any(name not in choices for name in given):
            raise ArgumentTypeError(f"{text!r}: write some of {', '.join(choices)}, with commas, or none")
        return tuple(name for name in choices if name in given)

    return names


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text}: write a whole number, 1 or more")
    return int(text)


def main() -> int:
    arguments = vars(parse_arguments())
    folder, out = arguments.pop("folder"), arguments.pop("json")
    # On SIGTERM the database of the evaluation is removed as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def write(report: Row) -> None:
        # After each part: an ablation over a large collection takes hours, and a later failure must not lose it.
        if out:
            out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    try:
        report = evaluate(folder, EvaluationOptions(**arguments), Progress(), write)
    except (BenchmarkError, CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: there is no table.", file=sys.stderr)
        return 130
    print("\n".join(report_lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

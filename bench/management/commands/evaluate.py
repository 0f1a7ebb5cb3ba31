"""`manage.py evaluate DIR`: the quality of our search results for a collection of documents, queries and judgements."""

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bench.progress import Progress
from bench.report import Row
from bench.retrieval.baselines import BASELINES
from bench.retrieval.collection import LAYOUT
from bench.retrieval.metrics import report_lines
from bench.retrieval.runner import EvaluationOptions, evaluate, ranked_modes
from bench.sandbox import BenchmarkError
from web.serving import stop_signals


class Command(BaseCommand):
    help = "Measure how well memories are found: every ranked mode, compared with plain BM25 and plain vectors."

    def add_arguments(self, parser: CommandParser) -> None:
        modes = ranked_modes()
        add = parser.add_argument
        add("folder", type=Path, metavar="DIR", help=f"{LAYOUT}, in the layout of BEIR")
        add("--json", type=Path, metavar="FILE", help="write all figures, with those of every query, to this file")
        add("--modes", type=_some_of(modes), default=modes, help=f"comma-separated: {', '.join(modes)} (all), or none")
        add(
            "--baselines",
            type=_some_of(BASELINES),
            default=BASELINES,
            help=f"comma-separated: {', '.join(BASELINES)} (all), or none",
        )
        add("--limit-queries", type=_count, metavar="N", help="run this many of the queries, drawn at random (all)")
        add("--seed", type=int, default=7, help="the seed for drawing queries (7)")
        add("--ablation", action="store_true", help="also measure with parts of the search changed or left out")
        add("--keep", action="store_true", help="keep what was loaded, and use what an earlier run has kept")

    def handle(self, *args: Any, **options: Any) -> None:
        out: Path | None = options["json"]
        if out and not out.resolve().parent.is_dir():
            raise CommandError(f"--json {out}: there is no folder {out.parent}")

        def write(report: Row) -> None:
            # After each part: an ablation over a large collection takes hours, and a later failure must not lose it.
            if out:
                out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

        names = ("modes", "baselines", "ablation", "limit_queries", "seed", "keep")
        try:
            with stop_signals():
                report = evaluate(
                    options["folder"], EvaluationOptions(**{name: options[name] for name in names}), Progress(), write
                )
        except BenchmarkError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("Interrupted: there is no table.", returncode=130) from None
        for line in report_lines(report):
            self.stdout.write(line)


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

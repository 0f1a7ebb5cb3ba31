"""`manage.py evaluate DIR`: how good our answers are, over a collection of documents, queries and judgements."""

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bench.database import DatabaseTakenError
from bench.telling import Teller
from evaluation.baselines import BASELINES
from evaluation.collection import LAYOUT, CollectionError
from evaluation.place import EvaluationError
from evaluation.report import Report, report_lines
from evaluation.runner import Choices, evaluate, ranked_modes
from web.serving import stop_signals


class Command(BaseCommand):
    help = "Measure how well memories are found: every ranked mode beside plain BM25 and plain vectors, as a table."

    def add_arguments(self, parser: CommandParser) -> None:
        modes = ranked_modes()
        parser.add_argument("folder", type=Path, metavar="DIR", help=f"{LAYOUT}, as BEIR lays them out")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and every query's there")
        parser.add_argument(
            "--modes", type=_some_of(modes), default=modes, help=f"some of {', '.join(modes)}, with commas (all)"
        )
        parser.add_argument(
            "--baselines",
            type=_some_of(BASELINES),
            default=BASELINES,
            help=f"some of {', '.join(BASELINES)}, with commas, or none (all)",
        )
        parser.add_argument(
            "--limit-queries", type=_count, metavar="N", help="ask so many of the queries, drawn at random"
        )
        parser.add_argument("--seed", type=int, default=7, help="what they are drawn by (7)")
        parser.add_argument("--ablation", action="store_true", help="also with parts of the search changed or left out")
        parser.add_argument("--keep", action="store_true", help="keep what was loaded, and use what was kept")

    def handle(self, *args: Any, **options: Any) -> None:
        out: Path | None = options["json"]
        if out and not out.resolve().parent.is_dir():
            raise CommandError(f"--json {out}: there is no folder {out.parent}")
        choices = Choices(
            modes=options["modes"],
            baselines=options["baselines"],
            ablation=options["ablation"],
            limit_queries=options["limit_queries"],
            seed=options["seed"],
            keep=options["keep"],
        )

        def write(report: Report) -> None:
            # An ablation over a large collection takes hours: what came first is not lost with what follows.
            if out:
                out.write_text(json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

        try:
            with stop_signals():
                report = evaluate(options["folder"], choices, Teller(), write)
        except (CollectionError, EvaluationError, DatabaseTakenError) as error:
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

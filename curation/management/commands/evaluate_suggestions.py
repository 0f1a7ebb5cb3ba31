"""`manage.py evaluate_suggestions`: measures how often the right category would be suggested."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from curation.suggestions.evaluation import evaluate, evaluation_lines
from curation.suggestions.generate import NothingEmbeddedError
from memories.embedding.models import EmbedderUnavailableError, load_embedder
from memories.embedding.query import serving_model


class Command(BaseCommand):
    help = "Hide the categories of some memories, and report how often the suggestions for them are right."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--memories", type=int, default=1000, metavar="N", help="number of memories to evaluate (default: 1000)"
        )
        parser.add_argument("--seed", type=int, default=7, help="random seed (default: 7)")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")

    def handle(self, *args: Any, **options: Any) -> None:
        memories: int = options["memories"]
        out: Path | None = options["json"]
        if not 1 <= memories <= 1_000_000:
            raise CommandError(f"--memories {memories}: give a number from 1 to 1,000,000.")
        if out and not out.resolve().parent.is_dir():
            raise CommandError(f"--json {out}: there is no folder {out.parent}")
        serving = serving_model()
        try:
            embedder = load_embedder(serving.source) if serving else None
        except EmbedderUnavailableError as error:
            embedder = None
            self.stderr.write(f"Category names are not used, because the model cannot be loaded: {error}")
        try:
            evaluation = evaluate(memories, options["seed"], embedder, self.stderr.write)
        except NothingEmbeddedError as error:
            raise CommandError(str(error)) from None
        if not evaluation.scores:
            raise CommandError("No project has two memories with a category: there is nothing to evaluate.")
        for line in evaluation_lines(evaluation):
            self.stdout.write(line)
        if out:
            out.write_text(json.dumps(evaluation.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

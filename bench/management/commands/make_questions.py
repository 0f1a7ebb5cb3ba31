"""`manage.py make_questions RECORDS FOLDER`: a collection for `manage.py evaluate`, made from exported memories."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bench.retrieval.questions import PARAPHRASE, questions_of, read_paraphrases, read_records, write_collection
from bench.sandbox import BenchmarkError

# Questions of each kind, unless the records have fewer.
_PER_KIND = 90
_SEED = 7


class Command(BaseCommand):
    help = "Make questions with answers from exported memories, without a search engine, for `manage.py evaluate`."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("records", type=Path, metavar="RECORDS", help="memories as JSON Lines, as the export writes them")
        add("folder", type=Path, metavar="FOLDER", help="the folder to write the collection to")
        add(
            "--paraphrases", type=Path, metavar="FILE", help=f"questions that people wrote, as JSON Lines: {PARAPHRASE}"
        )
        add("--per-kind", type=int, default=_PER_KIND, metavar="N", help=f"questions of each kind ({_PER_KIND})")
        add("--seed", type=int, default=_SEED, help=f"the seed for drawing questions ({_SEED})")

    def handle(self, *args: Any, **options: Any) -> None:
        folder: Path = options["folder"]
        paraphrases: Path | None = options["paraphrases"]
        try:
            records = read_records(options["records"])
            written = list(read_paraphrases(paraphrases, records)) if paraphrases else []
            questions = questions_of(records, written, options["per_kind"], options["seed"])
            write_collection(records, questions, folder)
        except (BenchmarkError, OSError) as error:
            raise CommandError(str(error)) from None
        if not questions:
            raise CommandError("These memories give no questions: they have no titles, links, authors or versions.")
        kinds = [one.kind for one in questions]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        self.stdout.write(f"{len(records.by_id):,} memories, {len(questions):,} questions ({counts}) in {folder}")

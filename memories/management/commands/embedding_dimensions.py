"""`manage.py embedding_dimensions N`: makes the column of vectors fit another model."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memories.embedding.vectors import MOST_DIMENSIONS, column_dimensions, column_resize, vectors_count


class Command(BaseCommand):
    help = "Show how many numbers a vector has, or change it, which removes all vectors: the worker makes them anew."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("dimensions", nargs="?", type=int, help=f"how many from now on, up to {MOST_DIMENSIONS:,}")
        parser.add_argument("--drop-vectors", action="store_true", help="yes, remove the vectors that there are")

    def handle(self, *, dimensions: int | None, drop_vectors: bool, **options: Any) -> None:
        now = column_dimensions()
        if now is None:
            raise CommandError("There is no column of vectors yet: manage.py migrate")
        if dimensions is None or dimensions == now:
            self.stdout.write(f"A vector has {now:,} numbers.")
            return
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise CommandError(f"{dimensions} is not a number from 1 to {MOST_DIMENSIONS:,}.")
        if (count := vectors_count()) and not drop_vectors:
            raise CommandError(
                f"{count:,} vectors of {now:,} numbers would be removed; until the worker has made them anew, memories "
                f"are found by words alone. To do it: manage.py embedding_dimensions {dimensions} --drop-vectors"
            )
        column_resize(dimensions)
        self.stdout.write(
            f"A vector has {dimensions:,} numbers now. {count:,} were removed; the worker makes them anew."
        )

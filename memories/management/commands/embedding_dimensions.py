"""`manage.py embedding_dimensions N`: resizes the vector column for another model."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from memories.embedding.vectors import MAX_DIMENSIONS, column_dimensions, column_resize, vectors_count
from web.command_line import local_command


class Command(BaseCommand):
    help = "Show or change the dimensions of vectors. A change removes all vectors; the worker embeds them again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "dimensions", nargs="?", type=int, help=f"the new number of dimensions, up to {MAX_DIMENSIONS:,}"
        )
        parser.add_argument("--drop-vectors", action="store_true", help="confirm that all vectors are removed")

    def handle(self, *, dimensions: int | None, drop_vectors: bool, **options: Any) -> None:
        now = column_dimensions()
        if now is None:
            raise CommandError(f"The vector column does not exist yet: run {local_command('migrate')}")
        if dimensions is None or dimensions == now:
            self.stdout.write(f"Vectors have {now:,} dimensions.")
            return
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise CommandError(f"{dimensions} is not a number from 1 to {MAX_DIMENSIONS:,}.")
        if (count := vectors_count()) and not drop_vectors:
            raise CommandError(
                f"{count:,} vectors of {now:,} dimensions would be removed; until the worker has embedded memories "
                "again, searches use words only. "
                f"Confirm with: {local_command(f'embedding_dimensions {dimensions} --drop-vectors')}"
            )
        column_resize(dimensions)
        self.stdout.write(
            f"Vectors now have {dimensions:,} dimensions. {count:,} were removed; the worker embeds them again."
        )

"""`manage.py verify FILE`: restores a backup into a database of its own and compares all tables."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backup import BackupError, backup_verify


class Command(BaseCommand):
    help = "Restore a backup into a temporary database, and compare the rows and checksums of all tables."
    requires_system_checks: list[str] = []  # a broken installation must not hinder it

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the backup")

    def handle(self, *, file: Path, **options: Any) -> None:
        try:
            manifest = backup_verify(file)
        except BackupError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"{file} is whole: {manifest.memories:,} memories and {len(manifest.tables)} tables of {manifest.created}, "
            "restored and compared, with the same rows and checksums."
        )

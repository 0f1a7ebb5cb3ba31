"""`manage.py restore FILE`: restores a backup into an empty database."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backup import BackupError, backup_restore
from config.management.commands.up import one_at_a_time
from web.command_line import start_command


class Command(BaseCommand):
    help = "Restore a backup into the database of an empty MNEMOSCOPE_HOME, or an empty one in DATABASE_URL."
    requires_system_checks: list[str] = []  # an empty database lacks all tables

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the backup")

    def handle(self, *, file: Path, **options: Any) -> None:
        try:
            with one_at_a_time():
                manifest = backup_restore(file)
        except BackupError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"Restored {manifest.memories:,} memories and {len(manifest.tables)} tables of {manifest.created}, with "
            f"the same rows and checksums. Start Mnemoscope ({start_command()}): it builds the search index. Everybody "
            "signs in again; keys of the API work as before."
        )

"""`manage.py backup [FILE]`: writes a backup of the database while Mnemoscope runs."""

import os
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backup import BackupError, backup_create
from config.backup_schedule import backup_now
from web.command_line import local_command


class Command(BaseCommand):
    help = "Write a backup of the database to a file, while Mnemoscope runs or not."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file",
            nargs="?",
            type=Path,
            help="the file to write, which must not exist (default: a new one in BACKUP_FOLDER)",
        )
        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *, file: Path | None, with_parent: int | None = None, **options: Any) -> None:
        begun = time.monotonic()

        def stop() -> bool:
            return with_parent is not None and os.getppid() != with_parent

        try:
            path, manifest = (file, backup_create(file, stop)) if file else backup_now(stop)
        except BackupError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"{path}: {manifest.memories:,} memories, {len(manifest.tables)} tables, "
            f"{path.stat().st_size / 1e6:,.1f} MB, {time.monotonic() - begun:.1f} s. "
            f"To try it: {local_command(f'verify {path}')}"
        )

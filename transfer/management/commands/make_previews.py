"""`manage.py make_previews`: makes the previews of uploads that have none, then ends."""

import os
import resource
import tempfile
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from transfer.previews import previews_make, unpacked_files

_MEMORY = 2 * 1024**3


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = "Make the previews of uploads, one after another, then exit. The server starts it by itself."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *, with_parent: int | None, **options: Any) -> None:
        # After those who wait for an answer, and where the system can limit it, with bounded memory.
        os.nice(10)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        tempfile.tempdir = str(unpacked_files())
        self.stdout.write(f"Previews made: {previews_make(with_parent)}.")

"""`manage.py mark_memories`: marks stored memories that may steer a model that reads them."""

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from memories.management.commands.worker import stop_requested
from memories.marks import mark_stored
from text.formatting import memories


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = "Look at the memories that the present rules have not looked at, then exit. The server starts it by itself."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *, with_parent: int | None, **options: Any) -> None:
        os.nice(10)
        marked = mark_stored(stop_requested(with_parent))
        self.stdout.write(f"Marked {memories(marked)}.")

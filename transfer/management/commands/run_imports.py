"""`manage.py run_imports`: does the imports that people have queued from the pages and by the API, then ends."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from transfer.process import jobs_run


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = "Do the imports that are queued, one after another, then exit. The server starts it by itself."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *, with_parent: int | None, **options: Any) -> None:
        self.stdout.write(f"Imports done: {jobs_run(with_parent)}.")

"""`manage.py list_api_keys`: lists the keys, their permissions, and their last use."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from access.keys import live_keys
from access.models import ApiKey
from web.command_line import local_command

COLUMNS = ("PREFIX", "NAME", "SCOPES", "PROJECTS", "LAST USED", "STATE")


class Command(BaseCommand):
    help = "List the API keys. A key itself cannot be shown: only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="Include revoked and expired keys.")

    def handle(self, *args: Any, **options: Any) -> None:
        keys = ApiKey.objects.all() if options["all"] else live_keys()
        rows = [_row(key) for key in keys.order_by("name", "pk").prefetch_related("projects")]
        if not rows:
            self.stdout.write(
                f"There are no keys. Create one with: {local_command('create_api_key NAME --scopes read')}"
            )
            return
        widths = [max(len(row[i]) for row in (COLUMNS, *rows)) for i in range(len(COLUMNS))]
        for row in (COLUMNS, *rows):
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(key: ApiKey) -> tuple[str, ...]:
    used = f"{key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never"
    return (key.prefix, key.name, ",".join(key.scopes), key.shown_projects(), used, key.state)

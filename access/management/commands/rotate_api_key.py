"""`manage.py rotate_api_key NAME|PREFIX`: prints a new key with the same permissions; the old one expires after a grace
period.
"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from access.keys import GRACE, rotate_key
from access.management.commands.revoke_api_key import named_key
from access.viewer import command_viewer
from text.formatting import since_span
from web.command_line import local_command


class Command(BaseCommand):
    help = "Replace a key by a new one with the same name, scopes, projects and limits, and print it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "key", metavar="NAME|PREFIX", help="The name of the key, or the prefix that list_api_keys shows."
        )
        parser.add_argument(
            "--grace", default="", help="How long the old key stays active: 2h, 1d (default: 1d); 0 to revoke it now."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        old = named_key(options["key"].strip())
        new = rotate_key(key=old, viewer=command_viewer(), grace=read_grace(options["grace"].strip()))
        if options["verbosity"] == 0:
            self.stdout.write(new.raw)
            return
        old.refresh_from_db()
        self.stdout.write(
            f"""The key "{new.key.name}" is rotated. Copy the new key now: it is not shown again.

    {new.raw}

The old key ({old.prefix}…) stays active until {old.expires_at:%Y-%m-%d %H:%M} UTC.
To revoke it now: {local_command(f"revoke_api_key {old.prefix}")}"""
        )


def read_grace(text: str) -> timedelta:
    """Parse a time span."""
    if not text:
        return GRACE
    if text == "0":
        return timedelta()
    try:
        return since_span(text)
    except ValueError:
        raise CommandError(f"--grace {text!r} is not a time span: write 2h, 1d, 1w, or 0.") from None

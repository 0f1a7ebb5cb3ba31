"""rotate_api_key NAME|PREFIX: another key that may do the same, printed once; the old one ends after a grace."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from access.keys import GRACE, rotate_key
from access.management.commands.revoke_api_key import named_key
from access.viewer import command_viewer
from text.dates import since_span


class Command(BaseCommand):
    help = "Draw another key in place of one, with the same name, scopes, projects and limits, and print it once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", metavar="NAME|PREFIX", help="Its name, or the prefix that list_api_keys shows.")
        parser.add_argument(
            "--grace", default="", help="How long the old one still opens something: 2h, 1d (1d); 0 for not at all."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        old = named_key(options["key"].strip())
        new = rotate_key(key=old, viewer=command_viewer(), grace=read_grace(options["grace"].strip()))
        if options["verbosity"] == 0:
            self.stdout.write(new.raw)
            return
        old.refresh_from_db()
        self.stdout.write(
            f"""The key "{new.key.name}" is drawn anew. Copy it now: it is not shown again.

    {new.raw}

The old one ({old.prefix}…) opens what it did until {old.expires_at:%Y-%m-%d %H:%M} UTC.
To end it at once: python manage.py revoke_api_key {old.prefix}"""
        )


def read_grace(text: str) -> timedelta:
    """A span as it is typed."""
    if not text:
        return GRACE
    if text == "0":
        return timedelta()
    try:
        return since_span(text)
    except ValueError:
        raise CommandError(f"--grace {text!r} is no span of time: write 2h, 1d, 1w, or 0.") from None

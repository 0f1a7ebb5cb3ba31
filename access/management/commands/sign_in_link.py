"""`manage.py sign_in_link`: prints a new one-time link for a running server."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.sign_in import owner_to_sign_in, sign_in_link
from web.command_line import local_command, start_command
from web.serving import running_site, site_address


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = "Print a link that signs in once, within an hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="the user that it signs in (default: owner, else the first superuser)")
        parser.add_argument("--site", help="the address of the server (default: the running server)")

    def handle(self, *, user: str | None, site: str | None, **options: Any) -> None:
        person = owner_to_sign_in(user)
        if person is None:
            raise CommandError(
                f"There is no active user {user!r}. Omit --user, or create one: {local_command('createsuperuser')}."
                if user
                else f"There is no superuser yet. Start Mnemoscope ({start_command()}), or run: "
                f"{local_command('createsuperuser')}."
            )
        site = site or running_site()
        if site is None:
            site = settings.PUBLIC_URL or site_address("127.0.0.1", settings.PORT)
            self.stderr.write(f"No server of this MNEMOSCOPE_HOME is running: the link works once one runs at {site}.")
        self.stdout.write(sign_in_link(user=person, site=site))

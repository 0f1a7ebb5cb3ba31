"""`manage.py create_api_key NAME --scopes read,write`: creates a key for an agent or a program, and prints it once."""

import difflib
from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from access.keys import MAX_PER_MINUTE, NewKey, live_keys, make_key
from access.viewer import SCOPES, command_viewer
from memories.models import Project
from text.formatting import since_span
from web.command_line import local_command
from web.serving import running_site, site_address

EVERY_PROJECT = "It sees all projects, including new ones, because --projects is not given."


class Command(BaseCommand):
    help = "Create an API key and print it. It is shown only once: only its hash is stored."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The name of the key, shown in the audit trail.")
        parser.add_argument(
            "--scopes", default="read", help=f"Comma-separated scopes: some of {', '.join(SCOPES)} (default: read)."
        )
        parser.add_argument("--projects", help="Comma-separated slugs of its projects (default: all).")
        parser.add_argument("--per-minute", type=int, help="Requests per minute (default: the limit of this site).")
        parser.add_argument(
            "--expires", default="", help="A span such as 90d, or a day such as 2027-01-01 (default: never)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"].strip()
        if not name or len(name) > 200:
            raise CommandError("A key needs a name, of at most 200 characters.")
        if options["per_minute"] is not None and not 1 <= options["per_minute"] <= MAX_PER_MINUTE:
            raise CommandError(f"--per-minute takes a number from 1 to {MAX_PER_MINUTE:,}.")
        projects = None if options["projects"] is None else read_projects(options["projects"])
        new = make_key(
            name=name,
            scopes=read_scopes(options["scopes"]),
            projects=projects or (),
            every_project=projects is None,
            expires_at=read_expiry(options["expires"], timezone.now()),
            requests_per_minute=options["per_minute"],
            viewer=command_viewer(),
        )
        if live_keys().filter(name=name).exclude(pk=new.key.pk).exists():
            note = (
                f"Another key is named {name!r} too: commands take the prefix instead, {new.key.prefix} for this one."
            )
            self.stderr.write(note, style_func=str)
        if options["verbosity"] > 0:
            self.stdout.write(_introduced(new))
            return
        # Only the key, for scripts that store it; the note about projects goes to stderr.
        self.stdout.write(new.raw)
        if projects is None:
            self.stderr.write(EVERY_PROJECT, style_func=str)


def read_scopes(text: str) -> list[str]:
    """The scopes in a comma-separated list."""
    named = _parts(text)
    if not named:
        raise CommandError(f"A key needs a scope: write --scopes with some of {', '.join(SCOPES)}.")
    for scope in named:
        if scope not in SCOPES:
            raise CommandError(f"{scope!r} is not a scope{_near(scope, SCOPES)}. The scopes are {', '.join(SCOPES)}.")
    return named


def read_projects(text: str) -> list[Project]:
    """The projects with the slugs in a comma-separated list."""
    named = _parts(text)
    if not named:
        # An empty variable in a script must not open everything.
        raise CommandError(f"--projects {text!r} names no project: write slugs, or omit it for all projects.")
    found = {project.slug: project for project in Project.objects.filter(slug__in=named)}
    for slug in named:
        if slug not in found:
            known = Project.objects.values_list("slug", flat=True)
            raise CommandError(f"There is no project {slug!r}{_near(slug, known)}.")
    return list(found.values())


def read_expiry(text: str, now: datetime) -> datetime | None:
    """The expiry of a key: a span from now, or the start of a day in UTC."""
    if not text:
        return None
    try:
        expiry = now + since_span(text) if text[-1].isalpha() else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise CommandError(f"{text!r} is not an expiry date: write 90d, 6m, 1y, or a day such as 2027-01-01.") from None
    expiry = expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)
    if expiry <= now:
        raise CommandError(f"{text} has passed: an expired key has no access.")
    return expiry


def _parts(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split(",") if part.strip()]


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 3)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _introduced(new: NewKey) -> str:
    key = new.key
    sees = EVERY_PROJECT if key.every_project else f"It sees {key.shown_projects()}."
    expires = f"{key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else "never"
    site = running_site() or settings.PUBLIC_URL or site_address("127.0.0.1", settings.PORT)
    return f"""The key "{key.name}" is created. Copy it now: it is not shown again.

    {new.raw}

Scopes: {", ".join(key.scopes)}. Expires: {expires}. {sees}
Use it like this:

    curl -H "Authorization: Bearer {new.raw}" "{site}/api/search?q=hello"

List all keys with `list_api_keys`. Revoke this one with: {local_command(f"revoke_api_key {key.prefix}")}"""

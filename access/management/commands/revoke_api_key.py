"""`manage.py revoke_api_key NAME|PREFIX`: revokes a key."""

import difflib
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from access.keys import live_keys, revoke_key
from access.models import ApiKey
from access.viewer import command_viewer


class Command(BaseCommand):
    help = "Revoke an API key: the next request that carries it is refused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "key", metavar="NAME|PREFIX", help="The name of the key, or the prefix that list_api_keys shows."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        key = named_key(options["key"].strip())
        revoke_key(key=key, viewer=command_viewer())
        self.stdout.write(f'The key "{key.name}" ({key.prefix}…) is revoked.')


def named_key(name: str) -> ApiKey:
    """The only live key with this name or prefix."""
    # The whole key works too, since it begins with the prefix.
    prefix = name.rstrip("…")[:12]
    found = list(live_keys().filter(Q(name=name) | Q(prefix=prefix)))
    if len(found) == 1:
        return found[0]
    if found:
        prefixes = ", ".join(key.prefix for key in found)
        raise CommandError(f"{len(found)} keys are named {name!r}: use a prefix ({prefixes}).")
    known = [text for pair in live_keys().values_list("name", "prefix") for text in pair]
    near = difflib.get_close_matches(name, known, 3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " See list_api_keys --all."
    raise CommandError(f"There is no active key {name!r}.{hint}")

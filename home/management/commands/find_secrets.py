"""`manage.py find_secrets`: lists the secrets that are stored, and purges them."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.viewer import command_viewer
from home.found_secrets import (
    SecretsBusyError,
    SecretsLook,
    allowed_hashes,
    look_for_secrets,
    secrets_allow,
    secrets_alone,
    store_look,
    store_progress,
)
from home.purge import Purged, open_purges, purge_ask, purges_do
from memories.models import Project
from text.formatting import plural
from text.secrets import is_available

# For scripts: 1 is an error.
FOUND = 3
_PLACES_SHOWN = 5


class Command(BaseCommand):
    help = (
        "List the secrets (keys, tokens, passwords) in all that is stored: what kind, where, since when, and how often "
        f"it was read. No secret is shown. Exits with {FOUND} if there are any. With --purge, remove them for good."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID", help="with --purge or --allow: these only")
        parser.add_argument("--project", metavar="SLUG", help="only the texts about this project and its memories")
        parser.add_argument("--json", action="store_true", help="as JSON")
        do = parser.add_mutually_exclusive_group()
        do.add_argument("--purge", action="store_true", help="remove them everywhere, which cannot be undone")
        do.add_argument("--allow", action="store_true", help="list these no longer: they are no secrets")
        do.add_argument("--disallow", action="store_true", help="list these again")
        do.add_argument("--asked", action="store_true", help="do what was asked for on the page, as the server does")
        parser.add_argument("--yes", action="store_true", help="with --purge: do not ask")
        parser.add_argument("--with-parent", type=int, metavar="PID", help="the process of the server")

    def handle(self, *, ids: list[str], project: str | None, **options: Any) -> None:
        if not is_available():
            raise CommandError("Secrets cannot be looked for here: pip install kingfisher-secret-scanner.")
        if project and not Project.objects.filter(slug=project).exists():
            raise CommandError(f"--project {project}: there is no such project.")
        if options["allow"] or options["disallow"]:
            self.allow(ids, again=options["disallow"])
            return
        if ids and not options["purge"]:
            raise CommandError("Say what to do with these: --purge, --allow or --disallow.")
        try:
            with secrets_alone():
                if options["asked"]:
                    purges_do(store_progress)
                    store_look(look_for_secrets(progress=store_progress))
                else:
                    self.look(ids, project or "", options)
        except SecretsBusyError as error:
            raise CommandError(str(error)) from None

    def allow(self, ids: list[str], *, again: bool) -> None:
        if not ids:
            raise CommandError("Name the ids that `find_secrets` lists.")
        if again and (unknown := set(ids) - allowed_hashes()):
            raise CommandError(f"{', '.join(sorted(unknown))}: not allowed before.")
        secrets_allow(hashes=ids, viewer=command_viewer(), again=again)
        self.stdout.write(f"{plural(len(ids), 'mark')} listed {'again' if again else 'no longer'}.")

    def look(self, ids: list[str], project: str, options: dict[str, Any]) -> None:
        if open_purges():
            self.say("A purge was interrupted, and is continued.")
            self.show_purged(purges_do(self.progress))
        look = look_for_secrets(project=project, progress=self.progress)
        if not project:
            store_look(look)
        if options["purge"]:
            self.purge(look, ids, options)
            return
        if options["json"]:
            self.stdout.write(json.dumps(look.as_json(), indent=2))
        else:
            self.show(look)
        if look.found:
            sys.exit(FOUND)

    def show(self, look: SecretsLook) -> None:
        for one in sorted(look.found.values(), key=lambda one: (-one.rows, one.mark)):
            of = f": {', '.join(one.readers)}" if one.readers else ""
            read = f"read {one.reads:,} times, {one.reads_by_agents:,} by agents, last {one.last_read[:10]}{of}"
            self.stdout.write(
                f"{one.id}  {one.mark}  in {plural(one.rows, 'row')}, since {one.since[:10] or 'unknown'};"
                f" {read if one.reads else 'never read back'}"
            )
            for place in one.places[:_PLACES_SHOWN]:
                of = f" of memory #{place.memory_id}" if place.memory_id and place.word != "memory" else ""
                within = f" in {place.project}" if place.project else ""
                self.stdout.write(f"    {place.word} #{place.id}{of}{within}: {', '.join(place.columns)}")
        allowed = f" {plural(look.allowed, 'mark')} allowed." if look.allowed else ""
        self.stdout.write(f"{plural(len(look.found) + look.more, 'secret')} in {look.rows:,} rows.{allowed}")

    def purge(self, look: SecretsLook, ids: list[str], options: dict[str, Any]) -> None:
        if unknown := set(ids) - look.found.keys():
            raise CommandError(f"{', '.join(sorted(unknown))}: not found. Nothing was purged.")
        hashes = ids or list(look.found)
        if not hashes:
            self.stdout.write("There is nothing to purge.")
            return
        self.say(
            f"This removes {plural(len(hashes), 'secret')} from memories, history, journals and files of this server,"
            " for good: it cannot be undone. Tables are locked meanwhile. Backups keep them. Revoke each key itself."
        )
        if not options["yes"] and input("Write purge to go on: ").strip() != "purge":
            raise CommandError("Nothing was purged.")
        purge_ask(hashes=hashes, viewer=command_viewer())
        self.show_purged(purges_do(self.progress))

    def show_purged(self, done: list[Purged]) -> None:
        for purged in done:
            rows = ", ".join(f"{word}: {count:,}" for word, count in purged.rows.items()) or "none"
            self.stdout.write(f"Purged. Rows that were changed: {rows}. The keys themselves must be revoked.")
            for line in purged.left:
                self.stdout.write(f"  left: {line}")

    def progress(self, word: str, done: int, total: int) -> None:
        self.say(f"{word}: {done:,} of {total:,} …")

    def say(self, text: str) -> None:
        self.stderr.write(text)
        self.stderr.flush()

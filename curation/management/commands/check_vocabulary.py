"""`manage.py check_vocabulary`: checks that the vocabulary and the memories agree; --fix repairs them."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.viewer import command_viewer
from curation.checks import Finding, findings, vocabulary_mend


class Command(BaseCommand):
    help = "Check that the vocabulary and the memories agree; exit with 1 if they do not. --fix repairs what it can."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--fix", action="store_true", help="repair what needs no decision; repairs are audited")
        parser.add_argument("--limit", type=int, default=50, help="show at most this many findings (default: 50)")

    def handle(self, *args: Any, **options: Any) -> None:
        found = findings()
        self._report(found, options["limit"])
        if found and options["fix"]:
            left = vocabulary_mend(viewer=command_viewer())
            self.stdout.write(f"Repaired {len(found) - len(left):,} of {len(found):,}.")
            self._report(left, options["limit"])
            found = left
        if found:
            by_hand = sum(finding.by_hand for finding in found)
            hint = "" if options["fix"] else " --fix repairs what needs no decision."
            more = f" {by_hand:,} need a decision: move or merge them on /curate/." if by_hand else ""
            raise CommandError(f"{len(found):,} inconsistencies found.{hint}{more}", returncode=1)
        self.stdout.write("The vocabulary and the memories agree.")

    def _report(self, found: list[Finding], limit: int) -> None:
        for finding in found[:limit]:
            self.stdout.write(finding.text[:1].upper() + finding.text[1:])
        if len(found) > limit:
            self.stdout.write(f"… and {len(found) - limit:,} more.")

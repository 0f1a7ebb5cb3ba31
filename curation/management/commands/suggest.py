"""`manage.py suggest`: looks for what might be tidied, and puts it into the queue at /review/."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.viewer import command_viewer
from curation.suggestions.generate import ALL_KINDS, NothingEmbeddedError, Tally, suggest
from curation.suggestions.proposals import MEMORY_KINDS, Kind
from memories.models import Project


class Command(BaseCommand):
    help = "Look for what might be tidied, and propose it in the queue. Again is always safe: nothing is asked twice."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--kind",
            action="append",
            choices=[kind.value for kind in Kind],
            metavar="KIND",
            help=f"only these, given once each: {', '.join(kind.value for kind in Kind)}",
        )
        parser.add_argument("--project", metavar="SLUG", help="only about memories of this project")
        parser.add_argument(
            "--limit", type=int, metavar="N", help="at most so many new ones of each kind, the surest first"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        limit: int | None = options["limit"]
        if limit is not None and limit < 1:
            raise CommandError(f"--limit {limit}: give a number from 1 on.")
        project = self._project(options["project"])
        kinds = [Kind(kind) for kind in dict.fromkeys(options["kind"] or ())]
        if project and (other := [kind.value for kind in kinds if kind not in MEMORY_KINDS]):
            raise CommandError(f"--project: names belong to no project; leave out {', '.join(other)}, or the project.")
        chosen = kinds or (MEMORY_KINDS if project else ALL_KINDS)
        try:
            suggest(kinds=chosen, project=project, limit=limit, viewer=command_viewer(), tell=self._tell)
        except NothingEmbeddedError as error:
            raise CommandError(str(error)) from None

    def _project(self, slug: str | None) -> Project | None:
        if slug is None:
            return None
        project = Project.objects.filter(slug=slug).first()
        if project is None:
            known = ", ".join(Project.objects.values_list("slug", flat=True)[:20]) or "none"
            raise CommandError(f"--project {slug}: there is no such project. There are: {known}.")
        return project

    def _tell(self, kind: Kind, tally: Tally) -> None:
        said = f"{tally.new:,} new, {tally.known:,} open already, {tally.decided:,} decided before"
        if tally.gone:
            said += f", {tally.gone:,} proposed no more"
        automatic = f", {tally.accepted:,} accepted as projects allow" if tally.accepted else ""
        self.stdout.write(f"{kind.label}: {said}{automatic}.")

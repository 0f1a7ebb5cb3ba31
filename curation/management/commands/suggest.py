"""`manage.py suggest`: generates suggestions for the queue at /review/."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from access.viewer import command_viewer
from curation.suggestions.background import searching
from curation.suggestions.generate import ALL_KINDS, KindCounts, NothingEmbeddedError, suggest
from curation.suggestions.proposals import MEMORY_KINDS, Kind
from memories.models import Project


class Command(BaseCommand):
    help = "Find possible improvements and add them to the review queue. Safe to repeat: nothing is suggested twice."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--kind",
            action="append",
            choices=[kind.value for kind in Kind],
            metavar="KIND",
            help=f"only this kind; repeat for several: {', '.join(kind.value for kind in Kind)}",
        )
        parser.add_argument("--project", metavar="SLUG", help="only for memories of this project")
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help="at most this many new suggestions of each kind, most confident first",
        )

        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *args: Any, **options: Any) -> None:
        limit: int | None = options["limit"]
        if limit is not None and limit < 1:
            raise CommandError(f"--limit {limit}: give a number of at least 1.")
        project = self._project(options["project"])
        kinds = [Kind(kind) for kind in dict.fromkeys(options["kind"] or ())]
        if project and (other := [kind.value for kind in kinds if kind not in MEMORY_KINDS]):
            raise CommandError(f"--project: names belong to no project; omit {', '.join(other)} or the project.")
        chosen = kinds or (MEMORY_KINDS if project else ALL_KINDS)
        try:
            with searching(options["with_parent"]):
                suggest(kinds=chosen, project=project, limit=limit, viewer=command_viewer(), report=self._report)
        except NothingEmbeddedError as error:
            raise CommandError(str(error)) from None

    def _project(self, slug: str | None) -> Project | None:
        if slug is None:
            return None
        project = Project.objects.filter(slug=slug).first()
        if project is None:
            known = ", ".join(Project.objects.values_list("slug", flat=True)[:20]) or "none"
            raise CommandError(f"--project {slug}: there is no such project. The projects are: {known}.")
        return project

    def _report(self, kind: Kind, counts: KindCounts) -> None:
        text = f"{counts.new:,} new, {counts.known:,} already open, {counts.decided:,} already decided"
        if counts.withdrawn:
            text += f", {counts.withdrawn:,} no longer proposed"
        automatic = f", {counts.accepted:,} accepted automatically" if counts.accepted else ""
        self.stdout.write(f"{kind.label}: {text}{automatic}.")

"""`manage.py import_memories PATH…`: imports files, folders and repositories, and undoes imports."""

import contextlib
import json
import shlex
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, OperationalError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from access.viewer import command_viewer
from memories.dates import ORDERS
from memories.models import FollowedSource, ImportBatch
from text.formatting import memories, plural
from transfer.discover import discoveries
from transfer.follow.queries import sources_read
from transfer.follow.services import source_new, source_stop
from transfer.follow.sync import Choices, source_sync
from transfer.follow.write_back import check_writable, write_back_set
from transfer.formats.base import ColumnsError, ImportFailedError, Options, RefusedRecord
from transfer.formats.choices import check_choices
from transfer.formats.csv_table import columns_check
from transfer.formats.importer import Importer
from transfer.formats.registry import IMPORTERS, importer_for, importer_named
from transfer.renames import archive_gone
from transfer.run import ImportChoices, Outcome, import_path
from transfer.state import ImportCounts
from transfer.undo import BatchUndoRefusedError, ChangedSinceError, Undone, batch_undo
from web.command_line import local_command

SHOWN_REFUSALS = 20
_NOT_FOLLOWED = ("dry_run", "overwrite", "keep_going", "unfollow", "archive_gone")
_EXAMPLES = {"column": "NAME=FIELD, such as --column Note=content", "all": "FIELD=VALUE, such as --all type=decision"}
_SECONDS_BETWEEN_LINES = 5

ProgressCall = Callable[[ImportCounts, float | None], None]


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = "Import memories from files, folders, databases and repositories; list and undo imports."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="*", metavar="PATH", help="A file, a folder or a repository.")
        parser.add_argument(
            "--format",
            choices=[importer.name for importer in IMPORTERS],
            help="The format (default: detected).",
        )
        parser.add_argument("--project", default="", help="The project for memories that name none.")
        parser.add_argument("--dry-run", action="store_true", help="Read everything and write nothing.")
        parser.add_argument(
            "--overwrite", action="store_true", help="Replace memories that were edited after their import."
        )
        parser.add_argument(
            "--keep-going", action="store_true", help="Import the records before the damage in a damaged file."
        )
        parser.add_argument(
            "--column",
            action="append",
            default=[],
            metavar="NAME=FIELD",
            help="Read a column of a table as this field; without a field it is stored as it is.",
        )
        parser.add_argument(
            "--all",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            help="The value of a field for all records that give none, such as type=decision.",
        )
        parser.add_argument(
            "--type",
            action="append",
            default=[],
            metavar="RULE=TYPE",
            help="The type of notes by a rule: Folder/, #tag or '## Heading'. Without a type the rule is off.",
        )
        parser.add_argument(
            "--dates", choices=ORDERS, default="", help="The order of dates such as 03/04/2026 that do not show it."
        )
        parser.add_argument(
            "--archive-gone",
            action="store_true",
            help="Archive memories of notes that an earlier import of the same folder had, and it has no longer.",
        )
        parser.add_argument("--report", metavar="FILE", help="Write every refused record to a file, as JSON lines.")
        parser.add_argument(
            "--discover",
            action="store_true",
            help="Look for memories of other systems in their usual places on this machine, without importing them.",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="Import the paths, and keep up with them: what is new, changed or gone there changes here too.",
        )
        parser.add_argument(
            "--write-back",
            action="store_true",
            help="With --follow: write edits made here into the notes of the folder, also of one that is followed.",
        )
        parser.add_argument("--unfollow", action="store_true", help="Follow the paths no longer; their memories stay.")
        parser.add_argument("--list", action="store_true", help="List the imports so far, and the followed sources.")
        parser.add_argument(
            "--undo", type=int, metavar="BATCH", help="Undo an import: remove everything that it added."
        )
        parser.add_argument(
            "--force", action="store_true", help="Undo the import even if its memories were edited since."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file = cast(IO[str], self.stdout)
        # A file or a pipe has no width.
        self.console = Console(file=file, soft_wrap=True, highlight=False, width=None if file.isatty() else 200)
        try:
            if options["list"]:
                self._list()
            elif options["discover"]:
                self._discover()
            elif options["undo"] is not None:
                self._undo(options["undo"], options["force"])
            elif options["unfollow"]:
                self._unfollow(options["paths"])
            elif options["paths"]:
                self._import(options)
            else:
                raise CommandError("Name a file, a folder or a repository to import. --list shows the imports so far.")
        except KeyboardInterrupt:
            raise CommandError("Interrupted: the import is rolled back and nothing is written.") from None
        except (DatabaseError, psycopg.Error) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            what = "does not answer" if isinstance(error, OperationalError) else "refused"
            raise CommandError(f"The database {what}; nothing was written: {first}") from None

    def _import(self, options: dict[str, Any]) -> None:
        try:
            read_as = check_choices(_pairs("all", options["all"]), _pairs("type", options["type"]), options["dates"])
        except ColumnsError as error:
            raise CommandError(str(error)) from None
        self.archives_gone = options["archive_gone"]
        choices = ImportChoices(
            options["project"],
            options["dry_run"],
            options["overwrite"],
            options["keep_going"],
            _pairs("column", options["column"]),
            **read_as,
        )
        if options["follow"] and (refused := [name for name in _NOT_FOLLOWED if options[name]]):
            raise CommandError(f"--follow cannot be used with --{refused[0].replace('_', '-')}.")
        if options["write_back"] and not options["follow"]:
            raise CommandError("--write-back belongs to --follow: a folder that is imported once is not written to.")
        failures: list[str] = []
        with _report_file(options["report"]) as report:
            for text in options["paths"]:
                try:
                    path = Path(text).expanduser()
                    importer = importer_named(options["format"]) if options["format"] else importer_for(path)
                    if choices.columns:
                        columns_check(importer.columns(path, Options()), choices.columns)
                    self._import_one(path, importer, choices, report, options)
                except ImportFailedError as error:
                    failures.append(str(error))
        if failures:
            raise CommandError("\n".join(failures))

    def _import_one(
        self,
        path: Path,
        importer: Importer,
        choices: ImportChoices,
        report: "IO[str] | None",
        options: dict[str, Any],
    ) -> None:
        def refused(refusal: RefusedRecord) -> None:
            if report:
                line = {"source": str(path), "location": refusal.location, "reason": refusal.reason}
                report.write(json.dumps(line, ensure_ascii=False) + "\n")

        if options["follow"]:
            if options["write_back"] and (known := FollowedSource.objects.filter(path=str(path.resolve())).first()):
                write_back_set(known, on=True)
                self.console.print(f"Edits are written back to {path}, as long as the server runs.", markup=False)
                return
            source = source_new(
                path=path,
                importer=importer,
                project=choices.project,
                viewer=command_viewer(),
                read_as={"values": choices.values, "types": choices.types, "dates": choices.dates},
                write_back=options["write_back"],
            )
            if source.writes_back:
                check_writable(source)
            with self._progress(path) as progress:
                followed = source_sync(source, Choices(command_viewer(), progress, refused))
            if followed:
                self._show(path, importer, followed)
            stop = local_command(f"import_memories --unfollow {shlex.quote(str(path))}")
            self.console.print(
                f"{path} is followed while the server runs: {local_command('up')}, or {local_command('follow_sources')}"
                f" without pages. To stop: {stop}",
                markup=False,
            )
            return
        with self._progress(path) as progress:
            outcome = import_path(
                path=path,
                importer=importer,
                viewer=command_viewer(),
                choices=choices,
                refused=refused,
                progress=progress,
            )
        self._show(path, importer, outcome)
        if outcome.batch_id and self.archives_gone:
            count = archive_gone(ImportBatch.objects.get(pk=outcome.batch_id), command_viewer())
            self.console.print(f"{memories(count)} archived.")

    @contextmanager
    def _progress(self, path: Path) -> Iterator[ProgressCall]:
        """A progress bar on a terminal; elsewhere a line every few seconds."""
        started = time.monotonic()
        if not self.console.is_terminal:
            last = started

            def line(tally: ImportCounts, fraction: float | None) -> None:
                nonlocal last
                if (now := time.monotonic()) - last >= _SECONDS_BETWEEN_LINES:
                    last = now
                    done = f", {fraction:.0%}" if fraction is not None else ""
                    self.console.print(f"{path.name}: {tally.read:,} read{done}, {tally.read / (now - started):,.0f}/s")

            yield line
            return
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        with bar:
            task = bar.add_task(path.name or str(path), total=None, rate="")

            def update(tally: ImportCounts, fraction: float | None) -> None:
                rate = f"{tally.read:,} read, {tally.read / max(time.monotonic() - started, 0.001):,.0f}/s"
                bar.update(task, total=None if fraction is None else 1.0, completed=fraction or 0.0, rate=rate)

            yield update

    def _show(self, path: Path, importer: Importer, outcome: Outcome) -> None:
        tally = outcome.tally
        for refusal in outcome.refusals[:SHOWN_REFUSALS]:
            self.console.print(f"refused {refusal.location}: {refusal.reason}", style="yellow", markup=False)
        if tally.refused > SHOWN_REFUSALS:
            rest = tally.refused - SHOWN_REFUSALS
            self.console.print(f"… and {rest:,} more; --report FILE writes all of them")
        for location, note in tally.notes[:SHOWN_REFUSALS]:
            self.console.print(f"note {location}: {note}", markup=False)
        table = Table(title=f"{path} ({importer.name})", title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for label, value in (
            ("read", f"{tally.read:,}"),
            ("new", f"{tally.created:,}"),
            ("updated", f"{tally.updated:,}"),
            ("unchanged", f"{tally.unchanged:,}"),
            ("refused", f"{tally.refused:,}"),
            *((f"{kind} made", f"{count:,}") for kind, count in sorted(tally.made.items())),
            ("seconds", f"{outcome.seconds:.1f}"),
            ("memories/s", f"{outcome.rate:,.0f}"),
        ):
            table.add_row(label, value)
        self.console.print(table)
        if tally.gone_notes:
            gone = ", ".join(str(one["place"]) for one in tally.gone_notes[:5])
            self.console.print(
                f"{plural(len(tally.gone_notes), 'note')} of earlier imports of {path} are no longer in it: {gone}"
                f"{' …' if len(tally.gone_notes) > 5 else ''}. --archive-gone archives them.",
                markup=False,
            )
        if outcome.batch_id is None:
            self.console.print("A dry run: nothing was written.")
        elif tally.created or tally.updated or tally.made:
            self.console.print(
                f"This is batch {outcome.batch_id}; undo with: "
                f"{local_command(f'import_memories --undo {outcome.batch_id}')}"
            )
        else:
            self.console.print(f"Nothing new. This is batch {outcome.batch_id}.")

    def _unfollow(self, paths: list[str]) -> None:
        if not paths:
            raise CommandError("Name the paths to follow no longer. --list shows them.")
        sources = {Path(text).expanduser().resolve(): None for text in paths}
        for path in sources:
            source = FollowedSource.objects.filter(path=str(path)).first()
            if source is None:
                raise CommandError(f"{path}: is not followed. --list shows what is.")
            source_stop(source)
            self.console.print(f"{path} is followed no longer. Its memories stay.", markup=False)

    def _list(self) -> None:
        self._list_followed()
        batches = ImportBatch.objects.all()
        if not batches:
            self.console.print("Nothing has been imported yet.")
            return
        table = Table()
        for heading in ("batch", "when", "state", "format", "new", "updated", "unchanged", "refused", "from"):
            table.add_column(heading, overflow="fold")
        for batch in batches:
            table.add_row(
                str(batch.pk),
                f"{batch.started_at:%Y-%m-%d %H:%M}",
                batch.state,
                batch.format,
                f"{batch.created:,}",
                f"{batch.updated:,}",
                f"{batch.unchanged:,}",
                f"{batch.refused:,}",
                batch.origin,
            )
        self.console.print(table)

    def _list_followed(self) -> None:
        sources = sources_read()
        if not sources:
            return
        table = Table(title="Followed", title_justify="left")
        for heading in ("source", "format", "memories", "last reading", "conflicts", "state"):
            table.add_column(heading, overflow="fold")
        for source in sources:
            table.add_row(
                source.path,
                source.format,
                f"{source.memories:,}",
                f"{source.read_at:%Y-%m-%d %H:%M}" if source.read_at else "",
                f"{getattr(source, 'open_conflicts', 0):,}",
                source.error
                or (f"{source.gone_waiting:,} gone: asks what to do" if source.gone_waiting else "")
                or ("followed, written back to" if source.writes_back else "followed"),
            )
        self.console.print(table)

    def _discover(self) -> None:
        table = Table()
        for heading in ("format", "memories", "from", "to", "path"):
            table.add_column(heading, overflow="fold")
        paths: list[Path] = []
        for found in discoveries():
            if isinstance(found, str):
                self.console.print(found, style="yellow", markup=False)
                continue
            paths.append(found.path)
            dates = [f"{moment:%Y-%m-%d}" if moment else "" for moment in (found.first, found.last)]
            count = f"{found.memories:,}" if found.is_complete else f"{found.memories:,}+"
            table.add_row(found.importer.name, count, *dates, str(found.path))
        if not paths:
            self.console.print("No memories of other systems were found in their usual places.")
            return
        self.console.print(table)
        self.console.print("Nothing was imported. Import them, or try it first with --dry-run:")
        for path in paths:
            self.console.print(f"  {local_command(f'import_memories {shlex.quote(str(path))}')}", markup=False)

    def _undo(self, batch_id: int, force: bool) -> None:
        try:
            undone = batch_undo(batch_id=batch_id, viewer=command_viewer(), force=force)
        except ChangedSinceError as error:
            raise CommandError(f"{error} --force undoes the batch and loses those changes.") from None
        except BatchUndoRefusedError as error:
            raise CommandError(str(error)) from None
        self.console.print(_undone_text(undone))


def _undone_text(undone: Undone) -> str:
    removed = [memories(undone.memories), *_counted(undone.vocabulary)]
    text = f"Batch {undone.batch_id} is undone: {', '.join(removed)} removed"
    if undone.restored:
        text += f", {memories(undone.restored)} restored"
    if undone.still_used:
        text += f"; not removed, because other memories use them: {', '.join(_counted(undone.still_used))}"
    return text + "."


def _pairs(option: str, written: Sequence[str]) -> dict[str, str]:
    """The pairs of an option that is written as `NAME=VALUE`, such as the fields of columns."""
    if wrong := [text for text in written if "=" not in text]:
        example = _EXAMPLES.get(option, "RULE=TYPE, such as --type Decisions/=decision")
        raise CommandError(f"--{option} {wrong[0]}: write {example}.")
    return {name.strip(): field.strip() for name, _, field in (text.rpartition("=") for text in written)}


@contextmanager
def _report_file(name: str | None) -> Iterator["IO[str] | None"]:
    if not name:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).expanduser().open("w", encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"--report {name}: cannot be written: {error.strerror}.") from None
        yield file


def _counted(kinds: dict[str, int]) -> list[str]:
    """Counts with their nouns, from counts by plural."""
    return [
        plural(count, kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind.removesuffix("s"), kind)
        for kind, count in sorted(kinds.items())
        if count
    ]

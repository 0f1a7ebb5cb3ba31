"""`manage.py index`: show the derived index, compare it with the database, rebuild it, or keep it up to date."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from search.engines.check import Comparison, VectorComparison, compare, compare_vectors
from search.engines.index import follower, outbox, store
from search.engines.index.store import FollowedElsewhereError, WriterElsewhereError
from search.engines.segment_files import DamagedError, NotReadableError
from search.engines.vectors import replica
from text.formatting import memories
from web.command_line import local_command

SHOWN = 10
ANEW = f"Rebuild it: {local_command('index --rebuild')}"
_POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = "Show the search index; compare it with the database, rebuild it, or keep it up to date."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--check", action="store_true", help="compare every memory and every file; exit with 1 if any differs"
        )
        what.add_argument("--rebuild", action="store_true", help="build a new index and replace the old one by it")
        what.add_argument("--catch-up", action="store_true", help="apply the pending changes and exit")
        what.add_argument("--follow", action="store_true", help="keep it up to date, as `up` does")
        what.add_argument("--drop", action="store_true", help="remove it and stop following changes")
        parser.add_argument(
            "--with-parent", type=int, metavar="PID", help="with --follow: exit with the parent process"
        )

    def handle(self, **options: Any) -> None:
        try:
            if options["check"]:
                self.check_index()
            elif options["rebuild"]:
                self.rebuild()
            elif options["catch_up"]:
                self.say(f"{follower.catch_up():,} changes applied.")
            elif options["follow"]:
                self.follow(options["with_parent"])
            elif options["drop"]:
                follower.drop()
                self.say("The search index is removed. SEARCH_ENGINE=postgres answers without one.")
            else:
                self.show()
        except WriterElsewhereError:
            raise CommandError(
                "Another process keeps the search index up to date: `manage.py up`, or `manage.py index --follow`. "
                "Stop it first."
            ) from None
        except DamagedError as error:
            raise CommandError(f"The search index is damaged: {error}. {ANEW}") from None
        except NotReadableError as error:
            raise CommandError(f"There is no search index to read: {error}. {ANEW}") from None

    def show(self) -> None:
        generation = store.current_generation()
        manifest = store.read_manifest(generation)
        behind = outbox.backlog()
        size = sum(file_size(path) for path in generation.rglob("*"))
        self.say(f"{manifest.memories:,} memories in {generation}")
        self.say(f"{manifest.size:,} docs in {len(manifest.segments)} segments, {size / 1e6:,.1f} MB on disk")
        if behind.changes:
            self.say(f"{behind.changes:,} changes are pending, the oldest for {behind.seconds:,.1f} s")
        else:
            self.say("No changes are pending.")
        if vectors := replica.read_manifest():
            size = sum(file_size(replica.folder() / name) for name in vectors.files)
            self.say(
                f"{vectors.size:,} vectors in a replica of {len(vectors.segments)} segments,"
                f" {size / 1e6:,.1f} MB on disk"
            )
        if reason := store.rebuild_reason():
            self.say(f"It is going to be rebuilt: {reason}")
        if not outbox.is_followed():
            self.say(f"Changes are not followed: {local_command('index --rebuild')}")

    def check_index(self) -> None:
        found, vectors = compare(), compare_vectors()
        self.say(f"{found.memories:,} memories in the database, {found.indexed:,} in the index.")
        if found.waiting:
            self.say(f"Changed and not indexed yet: {memories(found.waiting)}.")
        if vectors:
            self.say(f"{vectors.vectors:,} vectors in the database, {vectors.replicated:,} in the replica.")
            if vectors.waiting:
                self.say(f"Vectors changed and not in the replica yet: those of {memories(vectors.waiting)}.")
        if found.agrees and (vectors is None or vectors.agrees):
            self.say(f"Everything agrees: each memory's digest,{' each vector,' if vectors else ''} and each file.")
            return
        for line in [*differences(found), *(vector_differences(vectors) if vectors else [])]:
            self.say(line)
        if found.differs or (vectors and not vectors.agrees):
            raise CommandError(f"The search index differs from the database. {ANEW}")
        raise CommandError("The search index agrees with the database, except for memories that cannot be indexed.")

    def rebuild(self) -> None:
        with progress_bar() as show:
            try:
                made = follower.rebuild(show)
            except FollowedElsewhereError:
                raise
            except WriterElsewhereError:
                made = rebuilt_by_other(show)
        self.say(f"{made:,} memories are in a new search index.")

    def follow(self, parent: int | None) -> None:
        stopped = False

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal stopped
            stopped = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        # The pid is passed in, because the parent may be gone before this process could ask for it.
        follower.follow(lambda: stopped or (parent is not None and os.getppid() != parent))

    def say(self, text: str) -> None:
        self.stdout.write(text)


def differences(found: Comparison) -> list[str]:
    """One line for each kind of difference, with the first few memories."""
    lines = list(found.damage)
    for what, ids in (
        ("not in the index", found.missing),
        ("in the index and not in the database", found.left_over),
        ("different in the index and in the database", found.different),
        ("not indexed, because one of their dates is infinite: set a finite date", found.unindexable),
    ):
        if ids:
            lines.append(f"{len(ids):,} {what}: {first_ids(ids)}")
    return lines


def vector_differences(found: VectorComparison) -> list[str]:
    lines = list(found.damage)
    if found.different:
        lines.append(f"{len(found.different):,} with different vectors in the replica: {first_ids(found.different)}")
    return lines


def first_ids(ids: list[int]) -> str:
    return ", ".join(f"#{memory_id}" for memory_id in ids[:SHOWN]) + (" …" if len(ids) > SHOWN else "")


def rebuilt_by_other(show: Callable[[int, int], None]) -> int:
    """Ask the process that writes the index to rebuild it, and wait until it has."""
    root = store.index_dir()
    before = sorted(root.glob("g-*"))
    store.request_rebuild("a rebuild was requested")
    while store.rebuild_reason():
        with contextlib.suppress(WriterElsewhereError):
            return follower.rebuild(show)  # it has ended meanwhile
        with contextlib.suppress(NotReadableError, DamagedError):
            coming = [path for path in sorted(root.glob("g-*")) if path not in before]
            show(store.read_manifest(coming[-1]).memories if coming else 0, 0)
        time.sleep(_POLL_SECONDS)
    return store.read_manifest(store.current_generation()).memories


def file_size(path: Path) -> int:
    """0 for a folder, and for a file that the writer has just removed."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


class progress_bar:  # noqa: N801 - it reads as a function
    """A progress bar on a terminal, nothing elsewhere: with progress_bar() as show: show(done, total)."""

    def __enter__(self) -> Callable[[int, int], None]:
        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console,
            disable=not console.is_terminal,
        )  # fmt: skip
        self.bar.start()
        task = self.bar.add_task("Indexing", total=None)

        def show(done: int, total: int) -> None:
            self.bar.update(task, completed=done, total=total or None)

        return show

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

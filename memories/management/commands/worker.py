"""`manage.py worker`: embeds what waits, so that it is found by meaning. `up` runs one beside the server."""

import os
import signal
import time
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memories.embedding.models import EmbedderUnavailable, model_name
from memories.embedding.vectors import WrongDimensionsError
from memories.embedding.worker import Worker

# Whoever serves pages comes first.
_NICE = 10
# What a model lacks may be put there meanwhile; a process that is started again and again would only say so each time.
_RETRY_SECONDS = 300.0


class Command(BaseCommand):
    help = "Embed the memories that wait for it, and those that come, until Ctrl-C. Several workers may run at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="embed what waits now, and leave")
        parser.add_argument("--threads", type=int, metavar="N", help="how many threads (default: one for each core)")
        parser.add_argument("--with-parent", type=int, metavar="PID", help="end with the parent process, and mind it")

    def handle(self, *, once: bool, threads: int | None, with_parent: int | None, **options: Any) -> None:
        if threads is not None and not 1 <= threads <= 64:
            raise CommandError(f"--threads {threads}: give a number from 1 to 64.")
        if with_parent is not None:
            os.nice(_NICE)
        stopped = stop_asked(with_parent)
        with progress_bar() as bar:
            task = bar.add_task("Embedding", total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            worker = Worker(settings.EMBEDDING_MODEL, stop=stopped, progress=show, lanes=threads)
            try:
                if once:
                    model = worker.once()
                else:
                    self.follow(worker, stopped, is_child=with_parent is not None)
            except (EmbedderUnavailable, WrongDimensionsError) as error:
                raise CommandError(f"Nothing is embedded: {error}") from None
        tally = worker.tally
        self.stdout.write(f"{tally.memories:,} memories embedded, in {tally.chunks:,} chunks.")
        if once:
            self.stdout.write(f"{model.name} is {model.state}.")

    def follow(self, worker: Worker, stopped: Any, *, is_child: bool) -> None:
        said = ""
        while not stopped():
            try:
                worker.follow()
            except (EmbedderUnavailable, WrongDimensionsError) as error:
                if not is_child:
                    raise
                if str(error) != said:
                    said = str(error)
                    self.stderr.write(f"{model_name(settings.EMBEDDING_MODEL)} does not embed: {said}")
                until = time.monotonic() + _RETRY_SECONDS
                while not stopped() and time.monotonic() < until:
                    time.sleep(0.2)


def stop_asked(parent: int | None) -> Any:
    """Whether a signal came, or the parent is gone. What has begun is finished: a slice of texts, and its storing."""
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return lambda: asked or (parent is not None and os.getppid() != parent)


def progress_bar() -> Progress:
    """On a terminal; elsewhere it shows nothing."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip

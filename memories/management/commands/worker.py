"""`manage.py worker`: embeds pending memories, so that they are found by meaning, and keeps the map of meaning up. `up`
runs a worker too.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memories.embedding.installation import can_install, install
from memories.embedding.models import EmbedderUnavailableError, model_name
from memories.embedding.shared import Models, offer
from memories.embedding.vectors import WrongDimensionsError
from memories.embedding.worker import Worker
from memories.meaning_map import LayoutStoppedError, MapKeeper, can_draw
from memories.models import EmbeddingModel
from text.formatting import memories, plural

# Processes that serve pages have priority, and so have their queries here.
_NICE = 10
# A missing model may be installed in the meantime. A process that fails and restarts would repeat the error each time.
_RETRY_SECONDS = 300.0
_LISTED_REFUSALS = 20
# A step of drawing a large map may take longer: it is given up, and nothing of it has been stored.
_MAP_STOPS_SECONDS = 3.0


class Command(BaseCommand):
    help = "Embed pending and new memories, and keep the map of meaning up, until Ctrl-C. Several may run at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="embed what is pending, then exit")
        parser.add_argument("--threads", type=int, metavar="N", help="the number of threads (default: one a core)")
        parser.add_argument(
            "--with-parent", type=int, metavar="PID", help="exit with the parent process, and run at a lower priority"
        )

    def handle(self, *, once: bool, threads: int | None, with_parent: int | None, **options: Any) -> None:
        if threads is not None and not 1 <= threads <= 64:
            raise CommandError(f"--threads {threads}: give a number from 1 to 64.")
        stopped = stop_requested(with_parent)
        if with_parent is not None and can_install():
            install(stopped)
        model: EmbeddingModel | None = None
        models = Models()
        with progress_bar() as bar:
            task = bar.add_task("Embedding", total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            worker = Worker(settings.EMBEDDING_MODEL, stop=stopped, show=show, threads=threads, load=models.embedder)
            try:
                if once:
                    model = worker.once()
                    if can_draw():
                        with suppress(LayoutStoppedError):
                            MapKeeper(stopped).once()
                else:
                    with offer(models, settings.EMBEDDING_MODEL):
                        if with_parent is not None:
                            # On Linux this thread alone and those that it starts: not those that answer queries.
                            os.nice(_NICE)
                        # Drawing a map takes a minute or more; what is stored meanwhile is embedded at once.
                        keeper = threading.Thread(target=MapKeeper(stopped).follow, name="map", daemon=True)
                        keeper.start()
                        self.follow(worker, stopped, is_child=with_parent is not None)
                        keeper.join(_MAP_STOPS_SECONDS)
            except (EmbedderUnavailableError, WrongDimensionsError) as error:
                raise CommandError(f"Nothing is embedded: {error}") from None
        done = worker.progress
        self.stdout.write(f"Embedded {memories(done.memories)} in {plural(done.chunks, 'chunk')}.")
        if model:
            self.report(worker, model, stopped=stopped())

    def report(self, worker: Worker, model: EmbeddingModel, *, stopped: bool) -> None:
        """Write the state of the model, the texts that it could not embed, and why."""
        if model.state == EmbeddingModel.State.RETIRED:
            self.stdout.write(f"{model.name} is retired: another worker embeds with another model.")
            return
        refusals = [
            f"The {kind} #{row_id} cannot be embedded: {refusal.reason}"
            for kind, rows in worker.refused.kinds.items()
            for row_id, refusal in rows.items()
        ]
        for line in refusals[:_LISTED_REFUSALS]:
            self.stdout.write(line)
        if more := refusals[_LISTED_REFUSALS:]:
            self.stdout.write(f"{plural(len(more), 'more text')} cannot be embedded; the log names each of them.")
        reason = "the worker was stopped." if stopped else "another worker has claimed them, or they have just changed."
        pending = worker.pending(model)
        if pending.memories:
            self.stdout.write(f"{memories(pending.memories)} still pending: {reason}")
        if pending.vocabulary:
            rows = plural(pending.vocabulary, "term of the vocabulary", "terms of the vocabulary")
            self.stdout.write(f"{rows} still pending: {reason}")
        self.stdout.write(f"{model.name} is {model.state}.")

    def follow(self, worker: Worker, stopped: Callable[[], bool], *, is_child: bool) -> None:
        reported = ""
        while not stopped():
            try:
                worker.follow()
            except (EmbedderUnavailableError, WrongDimensionsError) as error:
                if not is_child:
                    raise
                if str(error) != reported:
                    reported = str(error)
                    self.stderr.write(f"{model_name(settings.EMBEDDING_MODEL)} does not embed: {reported}")
                until = time.monotonic() + _RETRY_SECONDS
                while not stopped() and time.monotonic() < until:
                    time.sleep(0.2)


def stop_requested(parent: int | None) -> Callable[[], bool]:
    """A function that returns True after a signal, or once the parent is gone. Work in progress is then completed."""
    requested = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return lambda: requested or (parent is not None and os.getppid() != parent)


def progress_bar() -> Progress:
    """A progress bar that is displayed on a terminal only."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip

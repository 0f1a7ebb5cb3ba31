"""Progress on stderr, so that stdout is the tables: a bar where a person watches, else a line per step."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Teller:
    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._begin = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._begin:7.1f} s  {text}", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[..., None]]:
        """Announce a step of `total` parts; the function given is called after each, or with how many are done."""
        self.say(text)
        shown = Progress(
            TextColumn("          "),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        with shown as progress:
            task = progress.add_task("", total=total)
            yield lambda parts=1: progress.advance(task, parts)

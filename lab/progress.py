"""Progress on stderr, so that stdout holds only tables: a bar on a terminal, otherwise a line for each step."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich import progress
from rich.console import Console

T = TypeVar("T")


class Progress:
    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._start = time.monotonic()

    def log(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._start:7.1f} s  {text}", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[..., None]]:
        """Log a step of `total` parts and yield a function that advances it by one part, or by the number it gets."""
        self.log(text)
        bar = progress.Progress(
            progress.TextColumn("          "),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        with bar:
            task = bar.add_task("", total=total)
            yield lambda parts=1: bar.advance(task, parts)

    def track(
        self, text: str, items: Iterable[T], total: int, parts: Callable[[T], int] = lambda item: 1
    ) -> Iterator[T]:
        """Log a step and yield its items, each of which is one part, or as many as `parts` returns."""
        with self.bar(text, total) as advance:
            for item in items:
                yield item
                advance(parts(item))

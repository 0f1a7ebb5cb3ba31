"""How long the parts of an answer took: the figures of the Server-Timing header."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Milliseconds by stage; a stage entered twice adds up. `waited` is how long the index was waited for before."""

    def __init__(self, waited: float = 0.0) -> None:
        self.timings: dict[str, float] = {"index": round(waited, 3)} if waited else {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - begin) * 1000
            self.timings[name] = round(self.timings.get(name, 0.0) + spent, 3)


def server_timing(timings: Mapping[str, float]) -> str:
    """The value of the header."""
    return ", ".join(f"{name};dur={spent:.1f}" for name, spent in timings.items())

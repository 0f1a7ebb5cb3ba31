"""How long the stages of a response took, for its Server-Timing header and its `took_ms`."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.http import HttpRequest

Timings = Mapping[str, float]
"""Milliseconds by stage."""

Request = TypeVar("Request", bound=HttpRequest)
Arguments = ParamSpec("Arguments")
Reply = TypeVar("Reply")


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


def took_ms(timings: Timings) -> float:
    """The milliseconds of all stages."""
    return round(sum(timings.values()), 2)


def timed(
    operation: Callable[Concatenate[Request, Arguments], tuple[Timings, Reply]],
) -> Callable[Concatenate[Request, Arguments], Reply]:
    """An operation of the API that returns its timings before its reply; the header is written from `timings_of`."""

    @wraps(operation)
    def timed_operation(request: Request, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Reply:
        timings, reply = operation(request, *args, **kwargs)
        request.timings = timings  # type: ignore[attr-defined]
        return reply

    return timed_operation


def timings_of(request: HttpRequest) -> Timings:
    """The timings of a request's operation, empty if it is not timed."""
    timings: Timings = getattr(request, "timings", {})
    return timings


def server_timing(timings: Timings) -> str:
    """The value of the Server-Timing header."""
    return ", ".join(f"{name};dur={spent:.1f}" for name, spent in timings.items())

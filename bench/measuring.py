"""Running a query log through Mnemoscope and its peers in turn, and keeping the seconds."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from access.viewer import command_viewer
from bench.figures import Agreement, Latency, Samples, spread
from bench.peers.base import Answer, Peer
from bench.query_log import APART, FILTER_ONLY, KINDS, LogEntry, QueryLog
from search.corpus import forget
from search.query import SearchQuery, Sort
from search.result import SearchResult
from search.run import run

# Rendering is measured on every so-manieth query: it repeats all that explore does.
_PAGE_EVERY = 4
Advance = Callable[[], None]
T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """What one participant did with the log: seconds by kind, and its answers by place in the log."""

    samples: dict[str, Samples] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    engine: str = ""

    def measure(self, entry: LogEntry, ask: Callable[[SearchQuery, bool], T], explore_first: bool) -> T:
        """Ask for search alone and for search with facets, and give back the answer with facets."""
        seconds: dict[bool, float] = {}
        answers: dict[bool, T] = {}
        for facets in (True, False) if explore_first else (False, True):
            begin = time.perf_counter()
            answers[facets] = ask(entry.query, facets)
            seconds[facets] = time.perf_counter() - begin
        samples = self.samples.setdefault(entry.kind, Samples())
        samples.search.append(seconds[False])
        samples.explore.append(seconds[True])
        samples.overhead.append(seconds[True] - seconds[False])
        return answers[True]

    def latency(self) -> dict[str, Latency]:
        """By kind in their order, and the mixed log of all but those apart."""
        by_kind = {kind: self.samples[kind] for kind in KINDS if kind in self.samples}
        mixed = Samples().extend(of for kind, of in by_kind.items() if kind not in APART)
        return {
            kind: Latency(spread(of.search), spread(of.explore), spread(of.overhead), spread(of.page))
            for kind, of in {**by_kind, "mixed": mixed}.items()
        }


def run_log(log: QueryLog, seed: int, peers: Sequence[Peer], advance: Advance) -> tuple[Run, dict[str, Run]]:
    """The log through `run` in this process, some of it through the page, and all of it through every peer.

    Participants take turns query by query, so that whatever else the machine is doing meets all of them.
    """
    viewer = command_viewer()
    ours = Run()
    theirs = {peer.name: Run() for peer in peers}

    def answer(query: SearchQuery, facets: bool) -> SearchResult:
        return run(query.model_copy(update={"include_facets": facets}), viewer)

    def recount(query: SearchQuery, facets: bool) -> SearchResult:
        # Any change anywhere makes what is kept of the whole corpus worthless: this is what the next visitor pays.
        if facets:
            forget()
        return answer(query, facets)

    with _signed_in_client() as client:

        def page(query: SearchQuery) -> None:
            response = client.get(reverse("search:explore"), query.parameters())
            if response.status_code != 200:
                raise RuntimeError(f"{query.querystring()} gave the status {response.status_code}")

        for entry in log.warm_up:
            page(entry.query)
            for facets in (False, True):
                answer(entry.query, facets)
                for peer in peers:
                    peer.answer(entry.query, facets)
        order = random.Random(seed)
        gc.collect()
        for place, entry in enumerate(log.entries):
            # Whichever comes second finds its rows in memory: each comes first as often.
            explore_first = order.random() < 0.5
            result = ours.measure(entry, recount if entry.kind in APART else answer, explore_first)
            ours.answers.append(_as_answer(result))
            ours.engine = result.engine
            for stage, milliseconds in result.timings.items() if entry.kind not in APART else ():
                ours.stages.setdefault(stage, []).append(milliseconds / 1_000)
            if place % _PAGE_EVERY == 0:
                if entry.kind in APART:
                    forget()
                begin = time.perf_counter()
                page(entry.query)
                ours.samples[entry.kind].page.append(time.perf_counter() - begin)
            for peer in peers:
                found = theirs[peer.name]
                found.answers.append(found.measure(entry, peer.answer, explore_first))
            advance()
    return ours, theirs


def ratios(ours: dict[str, Latency], theirs: dict[str, Latency]) -> dict[str, dict[str, float]]:
    """Their p95 over ours."""
    found: dict[str, dict[str, float]] = {}
    for kind, mine in ours.items():
        other = theirs[kind]
        for what, a, b in (("search", mine.search, other.search), ("explore", mine.explore, other.explore)):
            if a and b and a.p95_ms:
                found.setdefault(kind, {})[what] = round(b.p95_ms / a.p95_ms, 2)
    return found


def agreement(entries: Sequence[LogEntry], ours: Sequence[Answer], theirs: Sequence[Answer]) -> Agreement:
    """Whether the same was measured. What was cut off by a time limit cannot be compared."""
    totals = {True: [0, 0], False: [0, 0]}
    counts, pages = [0, 0], [0, 0]
    for entry, mine, other in zip(entries, ours, theirs, strict=True):
        without_words = entry.kind in FILTER_ONLY
        totals[without_words][0] += mine.total == other.total
        totals[without_words][1] += 1
        if without_words and mine.facets is not None and other.facets is not None and not mine.incomplete:
            for key, values in mine.facets.items():
                # Where values tie at the end of a list, either may be on it.
                both = values.keys() & other.facets.get(key, {}).keys()
                counts[0] += sum(values[value] == other.facets[key][value] for value in both)
                counts[1] += len(both)
        if without_words and entry.query.order in {Sort.NEWEST, Sort.OLDEST}:
            pages[0] += mine.ids == other.ids
            pages[1] += 1
    return Agreement(*totals[True], *totals[False], *counts, *pages)


def _as_answer(result: SearchResult) -> Answer:
    facets = result.facets or ()
    missing = [facet.key for facet in facets if facet.unavailable]
    return Answer(
        total=result.total,
        ids=tuple(hit.external_id for hit in result.hits),
        facets={facet.key: {value.value: value.count for value in facet.values} for facet in facets},
        incomplete=", ".join(missing),
    )


@contextmanager
def _signed_in_client() -> Iterator[Client]:
    """A visitor in this process: no socket and no ASGI server, but every middleware, the session and the template."""
    # No static files need be collected for a page to be rendered.
    storages = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    with override_settings(
        STORAGES=storages, STATIC_ROOT=None, WHITENOISE_USE_FINDERS=True, WHITENOISE_AUTOREFRESH=True
    ):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create_superuser("bench"))
        yield client

"""Running the log through every participant in turn, and keeping the seconds."""

import random
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from bench.figures import Agreement, Latency, Ratio, Samples, Spread, spread
from bench.peers.base import Answer, Peer
from bench.peers.engines import PostgresPeer
from bench.query_log import AFTER_CHANGE, FILTER_ONLY, KEYWORDS, KINDS, LogEntry, QueryLog
from search.query import SearchQuery, Sort
from web.serving import steady_memory

# Rendering is measured on every so-manieth query: it repeats all that explore does.
_PAGE_EVERY = 4
# Who needs so many seconds is not asked for the same again.
SLOW_SECONDS = 2.0
MIXED, KEYWORD = "mixed", "keyword"
Advance = Callable[[], None]
Ask = Callable[[SearchQuery, bool], Answer]


@dataclass(slots=True)
class Run:
    """What one participant did with the log, by the place of each query in it, as far as its budget lasted."""

    kinds: dict[int, str] = field(default_factory=dict)
    samples: dict[int, Samples] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    stages: dict[str, list[float]] = field(default_factory=dict)
    after_change: Samples = field(default_factory=Samples)
    spent: float = 0.0

    def latency(self) -> dict[str, Latency]:
        """By kind in their order, after a change, all keyword queries, and the log as a whole."""
        found = {kind: self._of({kind}).latency() for kind in KINDS if kind in self.kinds.values()}
        if self.after_change.explore:
            found[AFTER_CHANGE] = self.after_change.latency()
        return {**found, KEYWORD: self._of(KEYWORDS).latency(), MIXED: self._of(KINDS).latency()}

    def _of(self, kinds: Container[str]) -> Samples:
        return Samples().extend(of for place, of in self.samples.items() if self.kinds[place] in kinds)


def measure(ask: Ask, entry: LogEntry, explore_first: bool) -> tuple[Samples, Answer]:
    """Search alone and search with facets: once to warm, once measured. What is slow counts the first time."""
    order = (True, False) if explore_first else (False, True)
    seconds: dict[bool, float] = {}
    answer = Answer(0, ())
    for facets in order:
        found, seconds[facets] = _timed(ask, entry.query, facets)
        answer = found if facets else answer
    first = seconds[True]
    for facets in order:
        if seconds[facets] <= SLOW_SECONDS:
            _, seconds[facets] = _timed(ask, entry.query, facets)
    search, explore = seconds[False], seconds[True]
    return Samples([search], [explore], [explore - search], [first]), answer


def _timed(ask: Ask, query: SearchQuery, facets: bool) -> tuple[Answer, float]:
    begin = time.perf_counter()
    answer = ask(query, facets)
    return answer, time.perf_counter() - begin


def run_log(
    log: QueryLog, seed: int, peers: Sequence[Peer], subject: str, budget: float, advance: Advance
) -> dict[str, Run]:
    """The log through every peer, some of it through the page of the subject.

    They take turns query by query, so that whatever else the machine is doing meets all of them. Whose budget is spent
    takes no more turns; the derived index, which the figures are about, answers the whole log.
    """
    runs = {peer.name: Run() for peer in peers}
    order = random.Random(seed)
    with _signed_in_client() as client:
        for peer in peers:
            with peer.turn():
                for entry in log.warm_up:
                    peer.answer(entry.query, True)
                    if peer.name == subject:
                        _page(client, entry.query)
        # As a server does before it answers.
        steady_memory()
        for place, entry in enumerate(log.entries):
            # Whichever comes second finds its rows in memory: each comes first as often.
            explore_first = order.random() < 0.5
            for peer in peers:
                run = runs[peer.name]
                if run.spent >= budget and peer.name != "tantivy":
                    continue
                begin = time.perf_counter()
                with peer.turn():
                    samples, answer = measure(peer.answer, entry, explore_first)
                    run.spent += time.perf_counter() - begin
                    if peer.name == subject and place % _PAGE_EVERY == 0:
                        samples.page.append(_page(client, entry.query))
                run.kinds[place], run.samples[place], run.answers[place] = entry.kind, samples, answer
                for stage, milliseconds in answer.stages.items():
                    run.stages.setdefault(stage, []).append(milliseconds / 1_000)
            advance()
    for peer in peers:
        if isinstance(peer, PostgresPeer):
            _measure_after_change(peer, log, runs[peer.name], budget)
    return runs


def _measure_after_change(peer: PostgresPeer, log: QueryLog, run: Run, budget: float) -> None:
    """First pages when nothing is kept of the whole corpus: what the next visitor pays after any change anywhere."""
    begin = time.perf_counter()
    with peer.turn():
        for entry in log.after_change:
            _, search = _timed(peer.answer, entry.query, False)
            peer.forget()
            _, explore = _timed(peer.answer, entry.query, True)
            run.after_change.extend([Samples([search], [explore], [explore - search])])
            if time.perf_counter() - begin > budget / 10:
                return


def ratio(ours: Run, theirs: Run) -> dict[str, Ratio]:
    """By kind, over the queries that both ran."""
    both = ours.samples.keys() & theirs.samples.keys()
    groups = {kind: {place for place in both if ours.kinds[place] == kind} for kind in KINDS}
    groups[KEYWORD] = {place for place in both if ours.kinds[place] in KEYWORDS}
    groups[MIXED] = set(both)
    return {kind: _ratio(ours, theirs, places) for kind, places in groups.items() if places}


def _ratio(ours: Run, theirs: Run, places: set[int]) -> Ratio:
    mine, other = (Samples().extend(run.samples[place] for place in sorted(places)) for run in (ours, theirs))
    search = spread(mine.search), spread(other.search)
    explore = spread(mine.explore), spread(other.explore)
    overhead = spread(mine.overhead), spread(other.overhead)
    return Ratio(
        queries=len(places),
        search_p50=_over(*search, "p50_ms"),
        search_p95=_over(*search, "p95_ms"),
        explore_p50=_over(*explore, "p50_ms"),
        explore_p95=_over(*explore, "p95_ms"),
        facet_overhead_p95=_over(*overhead, "p95_ms"),
    )


def _over(mine: Spread | None, other: Spread | None, name: str) -> float | None:
    below = float(getattr(mine, name)) if mine else 0.0
    return round(float(getattr(other, name)) / below, 3) if other and below > 0 else None


def agreement(entries: Sequence[LogEntry], ours: dict[int, Answer], theirs: dict[int, Answer]) -> Agreement:
    """Whether the same was measured. What was cut off by a time limit cannot be compared."""
    totals = {True: [0, 0], False: [0, 0]}
    counts, pages = [0, 0], [0, 0]
    for place in sorted(ours.keys() & theirs.keys()):
        entry, mine, other = entries[place], ours[place], theirs[place]
        without_words = entry.kind in FILTER_ONLY
        totals[without_words][0] += mine.total == other.total
        totals[without_words][1] += 1
        if without_words and not mine.incomplete and not other.incomplete:
            equal, compared = equal_counts(mine, other)
            counts[0] += equal
            counts[1] += compared
        named = other.ids or not mine.ids
        if without_words and named and entry.query.order in {Sort.NEWEST, Sort.OLDEST}:
            pages[0] += mine.ids == other.ids
            pages[1] += 1
    return Agreement(*totals[True], *totals[False], *counts, *pages)


def equal_counts(mine: Answer, other: Answer) -> tuple[int, int]:
    """How many counts are the same, and how many both have: where values tie at the end, either may be listed."""
    equal = compared = 0
    for key, values in (mine.facets or {}).items():
        theirs = (other.facets or {}).get(key, {})
        both = values.keys() & theirs.keys()
        equal += sum(values[value] == theirs[value] for value in both)
        compared += len(both)
    return equal, compared


def _page(client: Client, query: SearchQuery) -> float:
    begin = time.perf_counter()
    response = client.get(reverse("explorer:explore"), query.parameters())
    if response.status_code != 200:
        raise RuntimeError(f"{query.querystring()} gave the status {response.status_code}")
    return time.perf_counter() - begin


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
        visitor = User.objects.filter(username="bench").first() or User.objects.create_superuser("bench")
        client.force_login(visitor)
        yield client

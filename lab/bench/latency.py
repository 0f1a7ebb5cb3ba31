"""The query log, answered by every participant in turn: seconds of each query, ratios, and whether answers agree."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from lab.bench.peers.base import Answer, Peer
from lab.bench.peers.engines import PostgresPeer
from lab.bench.query_log import AFTER_CHANGE, FILTER_ONLY, KEYWORDS, KINDS, LogEntry, QueryLog
from lab.report import Row, percentiles, timed
from search.query import SearchQuery, Sort
from web.serving import steady_memory

# A page is rendered for one query in four: it repeats everything that explore does.
_PAGE_EVERY = 4
# A participant that takes longer than this is not asked the same query again.
SLOW_SECONDS = 2.0
MIXED, KEYWORD = "mixed", "keyword"
# Explore is search with every facet and the histogram; the overhead of facets is explore less search of one query.
STAGES = ("search", "explore", "facet_overhead", "first_explore", "page")
_RATIOS = {
    "search_p50": ("search", "p50_ms"),
    "search_p95": ("search", "p95_ms"),
    "explore_p50": ("explore", "p50_ms"),
    "explore_p95": ("explore", "p95_ms"),
    "facet_overhead_p95": ("facet_overhead", "p95_ms"),
}
# Seconds of one query by stage.
Sample = dict[str, float]


@dataclass(slots=True)
class Run:
    """The results of one participant by position in the log, as far as its budget lasted."""

    kinds: dict[int, str] = field(default_factory=dict)
    samples: dict[int, Sample] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    after_change: list[Sample] = field(default_factory=list)
    spent: float = 0.0

    def latency(self) -> Row:
        """Percentiles of each stage by kind of query, after a change, of all keyword queries and of the whole log."""
        groups = {kind: [self.samples[at] for at in places] for kind, places in _groups(self.kinds).items()}
        totals = {kind: groups.pop(kind) for kind in (KEYWORD, MIXED) if kind in groups}
        if self.after_change:
            groups[AFTER_CHANGE] = self.after_change
        return {kind: _latency(samples) for kind, samples in (groups | totals).items()}

    def timings(self) -> Row:
        """Percentiles of the stages that the answers report themselves."""
        names = dict.fromkeys(name for answer in self.answers.values() for name in answer.stages)
        reported = [answer.stages for answer in self.answers.values()]
        return {name: percentiles([of[name] / 1_000 for of in reported if name in of]) for name in names}


def _groups(kinds: Mapping[int, str]) -> dict[str, list[int]]:
    """Positions in the log by kind of query, of all keyword queries, and of the whole log."""
    groups = {kind: [at for at, of in kinds.items() if of == kind] for kind in KINDS}
    groups[KEYWORD] = [at for at, of in kinds.items() if of in KEYWORDS]
    groups[MIXED] = list(kinds)
    return {kind: places for kind, places in groups.items() if places}


def _latency(samples: Sequence[Sample]) -> Row:
    return {stage: percentiles([sample[stage] for sample in samples if stage in sample]) for stage in STAGES}


def time_query(
    answer: Callable[[SearchQuery, bool], Answer], query: SearchQuery, explore_first: bool
) -> tuple[Sample, Answer]:
    """Time search and explore, each once to warm up and once measured. For a slow query the first time counts."""
    order = (True, False) if explore_first else (False, True)
    first = {facets: timed(answer, query, facets) for facets in order}
    seconds = {
        facets: first[facets][1] if first[facets][1] > SLOW_SECONDS else timed(answer, query, facets)[1]
        for facets in order
    }
    explored, first_explore = first[True]
    return {**_sample(seconds[False], seconds[True]), "first_explore": first_explore}, explored


def _sample(search: float, explore: float) -> Sample:
    return {"search": search, "explore": explore, "facet_overhead": explore - search}


def run_log(
    log: QueryLog, seed: int, peers: Sequence[Peer], subject: str, budget: float, advance: Callable[[], None]
) -> dict[str, Run]:
    """Run the log through every peer, and some of it through the pages of the subject.

    Peers take turns query by query, so that other work on the machine affects all of them alike. A peer that has spent
    its budget takes no more turns, except the derived index, which is the subject of the report.
    """
    runs = {peer.name: Run() for peer in peers}
    order = random.Random(seed)
    with _signed_in_client() as client:
        for peer in peers:
            with peer.turn():
                for query in log.warm_up:
                    peer.answer(query, True)
                    if peer.name == subject:
                        _get_page(client, query)
        # As a server does before it answers.
        steady_memory()
        for place, entry in enumerate(log.entries):
            # The second of the two finds its rows in memory, so each comes first equally often.
            explore_first = order.random() < 0.5
            for peer in peers:
                run = runs[peer.name]
                if run.spent >= budget and peer.name != "tantivy":
                    continue
                with peer.turn():
                    (sample, answer), spent = timed(time_query, peer.answer, entry.query, explore_first)
                    run.spent += spent
                    if peer.name == subject and place % _PAGE_EVERY == 0:
                        sample["page"] = timed(_get_page, client, entry.query)[1]
                run.kinds[place], run.samples[place], run.answers[place] = entry.kind, sample, answer
            advance()
    for peer in peers:
        if isinstance(peer, PostgresPeer):
            runs[peer.name].after_change = list(_time_after_change(peer, log, budget))
    return runs


def _time_after_change(peer: PostgresPeer, log: QueryLog, budget: float) -> Iterator[Sample]:
    """Time first pages without the cached counts of the whole corpus, as for the first visitor after any change."""
    start = time.perf_counter()
    with peer.turn():
        for query in log.after_change:
            _, search = timed(peer.answer, query, False)
            peer.clear_caches()
            _, explore = timed(peer.answer, query, True)
            yield _sample(search, explore)
            if time.perf_counter() - start > budget / 10:
                return


def ratios(ours: Run, theirs: Run) -> dict[str, Row]:
    """Their milliseconds over ours by kind, over the queries that both ran: above 1 we are faster."""
    both = {place: kind for place, kind in ours.kinds.items() if place in theirs.kinds}
    return {kind: _ratio(ours, theirs, places) for kind, places in _groups(both).items()}


def _ratio(ours: Run, theirs: Run, places: Sequence[int]) -> Row:
    mine, other = (_latency([run.samples[place] for place in places]) for run in (ours, theirs))
    found: Row = {"queries": len(places)}
    for name, (stage, percentile) in _RATIOS.items():
        divisor = mine[stage][percentile]
        found[name] = round(other[stage][percentile] / divisor, 3) if divisor > 0 else None
    return found


def agreement(entries: Sequence[LogEntry], ours: dict[int, Answer], theirs: dict[int, Answer]) -> Row:
    """How often a peer gives our answer. Facets that a time limit cut off are not compared."""
    found: Row = dict.fromkeys(
        ("totals_filters", "of_filters", "totals_words", "of_words", "counts_equal", "of_counts", "pages_equal",
         "of_pages"), 0
    )  # fmt: skip
    for place in sorted(ours.keys() & theirs.keys()):
        entry, mine, other = entries[place], ours[place], theirs[place]
        group = "filters" if entry.kind in FILTER_ONLY else "words"
        found[f"totals_{group}"] += mine.total == other.total
        found[f"of_{group}"] += 1
        if group == "words":
            continue
        if not mine.incomplete and not other.incomplete:
            equal, compared = equal_counts(mine, other)
            found["counts_equal"] += equal
            found["of_counts"] += compared
        if (other.ids or not mine.ids) and entry.query.order in {Sort.NEWEST, Sort.OLDEST}:
            found["pages_equal"] += mine.ids == other.ids
            found["of_pages"] += 1
    return found


def equal_counts(mine: Answer, other: Answer) -> tuple[int, int]:
    """The counts that are equal, and those in both answers: of values that tie at the end either may be listed."""
    equal = compared = 0
    for key, values in (mine.facets or {}).items():
        theirs = (other.facets or {}).get(key, {})
        both = values.keys() & theirs.keys()
        equal += sum(values[value] == theirs[value] for value in both)
        compared += len(both)
    return equal, compared


def _get_page(client: Client, query: SearchQuery) -> None:
    response = client.get(reverse("explorer:explore"), query.parameters())
    if response.status_code != 200:
        raise RuntimeError(f"{query.querystring()} gave the status {response.status_code}")


@contextmanager
def _signed_in_client() -> Iterator[Client]:
    """A visitor within this process: no socket and no ASGI server, but all middleware, the session and the template."""
    # Pages are rendered without `collectstatic`.
    storages = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    with override_settings(
        STORAGES=storages, STATIC_ROOT=None, WHITENOISE_USE_FINDERS=True, WHITENOISE_AUTOREFRESH=True
    ):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.filter(username="bench").first() or User.objects.create_superuser("bench"))
        yield client

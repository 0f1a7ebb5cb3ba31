"""All that is measured at one size: the import, and a query log through Mnemoscope and every peer."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.core.management import call_command

from access.viewer import command_viewer
from bench.corpus import Corpus, Record, read_records, write_records
from bench.database import bench_database, database_sizes, tidy_database
from bench.figures import ImportFigures, PeerFigures, SizeFigures, spread
from bench.machine import machine_load
from bench.measuring import Run, agreement, ratios, run_log
from bench.peers import PEERS
from bench.peers.base import Peer
from bench.query_log import SAMPLED_RECORDS, QueryLog, build_query_log
from bench.telling import Teller
from search.facets import STATES
from search.query import SearchQuery
from search.run import run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choices:
    """What was asked for on the command line."""

    seed: int
    queries: int
    keep: bool


@dataclass(slots=True)
class _Seen:
    """What is kept of the records as they stream by: a few of them, and how many facet values they had."""

    every: int
    sample: list[Record] = field(default_factory=list)
    count: int = 0
    values: int = 0

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if self.count % self.every == 0:
                self.sample.append(record)
            self.count += 1
            # Project, type, source and state are always there.
            self.values += 5 if "agent" in record else 4
            self.values += len(record["tags"]) + len(record["categories"]) + len(record["concepts"])
            self.values += len(record["entities"]) + len(record["authors"])
            yield record


def measure(size: int, choices: Choices, teller: Teller) -> SizeFigures:
    """Generate, import, measure, and leave nothing behind unless asked to."""
    folder = settings.HOME / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{size}-") as name:
        work = Path(name)
        corpus = Corpus(size, choices.seed)
        path = work / "corpus.jsonl.gz"
        seen = _Seen(every=max(1, size // SAMPLED_RECORDS))
        with teller.bar(f"{size:,} memories: generating", size) as advance:
            write_records(seen.watch(_each(corpus.records(), advance)), path)
        log = build_query_log(corpus, seen.sample, choices.queries, choices.seed)

        database = f"bench_{size}"
        loaded: dict[str, ImportFigures] = {}
        with bench_database(database, keep=choices.keep), contextlib.ExitStack() as open_peers:
            teller.say(f"{size:,} memories: importing into the database {database}")
            imported = _import(path, size)
            teller.say(f"{size:,} memories: imported at {imported.memories_per_second:,.0f}/s; vacuum and analyse")
            tidy_database()
            peers: list[Peer] = []
            for number, make in enumerate(PEERS):
                place = work / str(number)
                place.mkdir()
                peer = make(place)
                open_peers.callback(peer.close)
                teller.say(f"{size:,} memories: loading {peer.name}")
                loaded[peer.name] = _load(peer, path, size)
                peers.append(peer)
            busy = [machine_load()]
            with teller.bar(f"{size:,} memories: {len(log.entries)} queries", len(log.entries)) as advance:
                ours, theirs = run_log(log, choices.seed, peers, advance)
            busy.append(machine_load())
        if choices.keep:
            teller.say(f"{size:,} memories: kept the database {database}")

    return SizeFigures(
        size=size,
        facet_values_per_memory=round(seen.values / size, 2),
        imported=imported,
        engine=ours.engine,
        latency=ours.latency(),
        stages={stage: found for stage, seconds in ours.stages.items() if (found := spread(seconds))},
        incomplete=sum(1 for answer in ours.answers if answer.incomplete),
        load_before=busy[0],
        load_after=busy[1],
        peers={peer.name: _peer_figures(peer, loaded[peer.name], log, ours, theirs[peer.name]) for peer in peers},
    )


def _import(path: Path, size: int) -> ImportFigures:
    """Through the command that people use, until the last memory of the file answers to a word."""
    begin = time.perf_counter()
    call_command("import_memories", str(path), stdout=sys.stderr)
    everything = SearchQuery.from_pairs([("state", state) for state in STATES])
    found = run(everything.model_copy(update={"text": f"bench-{size:08d}"}), command_viewer()).total
    seconds = time.perf_counter() - begin
    total = run(everything, command_viewer()).total
    if not found or total != size:
        raise RuntimeError(f"{size:,} memories were imported and {total:,} are there")
    return ImportFigures(size, round(seconds, 3), round(size / seconds, 1), database_sizes())


def _load(peer: Peer, path: Path, size: int) -> ImportFigures:
    begin = time.perf_counter()
    peer.load(read_records(path))
    seconds = time.perf_counter() - begin
    return ImportFigures(size, round(seconds, 3), round(size / seconds, 1), {"database_bytes": peer.size_bytes()})


def _peer_figures(peer: Peer, load: ImportFigures, log: QueryLog, ours: Run, theirs: Run) -> PeerFigures:
    return PeerFigures(
        about=peer.about,
        differs=peer.differs,
        load=load,
        latency=theirs.latency(),
        ratio=ratios(ours.latency(), theirs.latency()),
        agreement=agreement(log.entries, ours.answers, theirs.answers),
    )


def _each(items: Iterable[T], advance: Callable[[], None]) -> Iterator[T]:
    for item in items:
        yield item
        advance()

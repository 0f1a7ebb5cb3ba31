"""All that is measured at one size: loading, the log through everyone, and what is asked of our engine alone."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.test import override_settings

from access.viewer import command_viewer
from bench.children import Place, follower, resident_after
from bench.corpus import Corpus, Record, read_records, write_records
from bench.database import bench_database, mark_loaded, tidy_database
from bench.figures import LoadFigures, PeerFigures, SizeFigures, spread
from bench.machine import machine_load
from bench.measuring import MIXED, Run, agreement, ratio, run_log
from bench.naming import named_figures
from bench.peers import PEERS
from bench.peers.base import Peer, PeerUnavailableError
from bench.peers.engines import PostgresPeer, forget_index, indexer
from bench.query_log import SAMPLED_RECORDS, QueryLog, build_query_log
from bench.telling import Teller
from memories.models import Memory
from memories.records import MemoryChanges
from memories.services import memory_update
from search.query import SearchQuery
from web.serving import steady_memory

_EDITS = 10
_EDIT_PATIENCE_SECONDS = 60

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choices:
    """What was asked for on the command line."""

    seed: int
    queries: int
    budget: float
    peers: tuple[str, ...]
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


def measure_size(size: int, choices: Choices, teller: Teller) -> SizeFigures:
    """Generate, load, measure, and leave nothing behind unless asked to."""
    work = Path(settings.HOME) / "bench" / f"{size}-{choices.seed}"
    if not choices.keep:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        with override_settings(SEARCH_INDEX=work / "index"):
            return _Measuring(size, choices, teller, work).all()
    finally:
        forget_index()
        if not choices.keep:
            shutil.rmtree(work, ignore_errors=True)


class _Measuring:
    def __init__(self, size: int, choices: Choices, teller: Teller, work: Path) -> None:
        self.size = size
        self.choices = choices
        self.teller = teller
        self.work = work
        self.corpus = Corpus(size, choices.seed)
        self.path = work / "corpus.jsonl.gz"
        self.seen = _Seen(every=max(1, size // SAMPLED_RECORDS))
        self.database = f"bench_{size}"
        self.contents = f"seed {choices.seed}"
        self.loads: dict[str, LoadFigures] = {}
        self.unavailable: dict[str, str] = {}

    def all(self) -> SizeFigures:
        self.make_corpus()
        log = build_query_log(self.corpus, self.seen.sample, self.choices.queries, self.choices.seed)
        kept = self.choices.keep and (self.work / "postgres" / "loaded.json").exists()
        with (
            bench_database(self.database, keep=self.choices.keep, contents=self.contents, reuse=kept) as loaded,
            contextlib.ExitStack() as open_peers,
        ):
            peers = self.load_peers(open_peers, database_loaded=loaded)
            subject = next((peer for name in ("tantivy", "postgres") for peer in peers if peer.name == name), peers[0])
            busy = [machine_load()]
            # For all of them alike: the search for cycles is the process's.
            steady_memory()
            with self.bar(f"{len(log.entries)} queries, {len(peers)} participants", len(log.entries)) as advance:
                runs = run_log(log, self.choices.seed, peers, subject.name, self.choices.budget, advance)
            busy.append(machine_load())
            engine_alone, raw = runs.get("tantivy-engine"), runs.get("tantivy-raw")
            same_work = ratio(engine_alone, raw).get(MIXED) if engine_alone and raw else None
            figures = {peer.name: self.peer_figures(peer, log, runs[subject.name], runs[peer.name]) for peer in peers}
            alone = self.measure_alone(subject, log) if isinstance(subject, PostgresPeer) else {}
        if self.choices.keep:
            self.say(f"kept the database {self.database} and {self.work}")
        return SizeFigures(
            size=self.size,
            facet_values_per_memory=round(self.seen.values / self.size, 2),
            engine=subject.name,
            figures=named_figures(subject.name, figures, same_work, alone),
            load_before=busy[0],
            load_after=busy[1],
            peers=figures,
            unavailable=self.unavailable,
        )

    def make_corpus(self) -> None:
        """Write the file, or read that of an earlier run: the same seed and size make the same one."""
        done = self.work / "corpus.done"
        with self.bar("reading the corpus" if done.exists() else "generating", self.size) as advance:
            if done.exists():
                for _ in self.seen.watch(_each(read_records(self.path), advance)):
                    pass
            else:
                write_records(self.seen.watch(_each(self.corpus.records(), advance)), self.path)
                done.touch()

    def load_peers(self, open_peers: contextlib.ExitStack, *, database_loaded: bool) -> list[Peer]:
        """Every participant, ready to answer. What an earlier run has kept is not loaded again."""
        peers: list[Peer] = []
        made: list[tuple[Peer, Path]] = []
        for name in self.choices.peers:
            place = self.work / name
            # The derived index is that of the database: with another one it is another.
            ours = name in {"postgres", "tantivy", "tantivy-engine"}
            if (ours and not database_loaded) or not (place / "loaded.json").exists():
                shutil.rmtree(place, ignore_errors=True)
                if name == "tantivy":
                    shutil.rmtree(settings.SEARCH_INDEX, ignore_errors=True)
            place.mkdir(parents=True, exist_ok=True)
            try:
                peer = PEERS[name](place)
            except PeerUnavailableError as error:
                self.say(f"{name} takes no part: {error}")
                self.unavailable[name] = str(error)
                continue
            open_peers.callback(peer.close)
            made.append((peer, place))
        for peer, place in made:
            try:
                self.load(peer, place / "loaded.json")
            except PeerUnavailableError as error:
                self.say(f"{peer.name} takes no part: {error}")
                self.unavailable[peer.name] = str(error)
                continue
            if peer.name == "postgres" and not database_loaded:
                mark_loaded(self.database, self.contents)
            peers.append(peer)
        return peers

    def load(self, peer: Peer, done: Path) -> None:
        known = json.loads(done.read_text()) if done.exists() else None
        self.say(f"opening {peer.name}" if known else f"loading {peer.name}")
        seconds = known["seconds"] if known else 0.0
        if not known:
            begin = time.perf_counter()
            peer.load(self.path)
            seconds = time.perf_counter() - begin
        peer.open()
        if isinstance(peer, PostgresPeer):
            begin = time.perf_counter()
            peer.check(self.size)
            if not known:
                seconds += time.perf_counter() - begin
        if peer.name == "postgres" and not known:
            tidy_database()
        rate = round(self.size / seconds, 1) if seconds else 0.0
        figures = LoadFigures(self.size, round(seconds, 3), rate, {"disk_bytes": peer.size_bytes()})
        done.write_text(json.dumps(asdict(figures)))
        self.loads[peer.name] = figures

    def peer_figures(self, peer: Peer, log: QueryLog, ours: Run, theirs: Run) -> PeerFigures:
        alone = ours is theirs
        return PeerFigures(
            about=peer.about,
            differs=peer.differs,
            load=self.loads[peer.name],
            queries=len(theirs.samples),
            budget_spent_seconds=round(theirs.spent, 1),
            incomplete=sum(1 for answer in theirs.answers.values() if answer.incomplete),
            latency=theirs.latency(),
            stages={stage: found for stage, seconds in theirs.stages.items() if (found := spread(seconds))},
            ratio={} if alone else ratio(ours, theirs),
            agreement=None if alone else agreement(log.entries, ours.answers, theirs.answers),
        )

    def measure_alone(self, subject: PostgresPeer, log: QueryLog) -> dict[str, float]:
        """What is asked of our engine beside the log: memory, a rebuild, and how soon a change is found."""
        place = Place(self.database, str(settings.SEARCH_INDEX), subject.name)
        self.say("the log once more in a process of its own, for its memory")
        resident = resident_after(place, [entry.query.parameters() for entry in log.entries])
        found = {"resident_mb": resident.rss / 1e6, "resident_private_mb": resident.private / 1e6}
        if subject.name == "tantivy":
            self.say("rebuilding the index")
            begin = time.perf_counter()
            indexer().rebuild()
            found["rebuild_seconds"] = time.perf_counter() - begin
            self.say("single edits")
            with follower(place):
                edits = spread([self.seconds_until_visible(subject) for _ in range(_EDITS)][1:])
        else:
            edits = spread([self.seconds_until_visible(subject) for _ in range(_EDITS)])
        if edits:
            found |= {
                "edit_visible_p50_seconds": edits.p50_ms / 1_000,
                "edit_visible_max_seconds": edits.max_ms / 1_000,
            }
        return {name: round(value, 3) for name, value in found.items()}

    def seconds_until_visible(self, subject: PostgresPeer) -> float:
        """Change the text of a memory, and ask for its new word until it is found; then put it back as it was."""
        memory = Memory.objects.filter(state="active").order_by("id")[self.size // 2]
        word = f"benchedit{time.time_ns()}"
        query = SearchQuery.from_pairs([("q", word), ("mode", "keyword")])
        viewer = command_viewer()
        memory_update(memory_id=memory.id, changes=MemoryChanges(content=f"{memory.content} {word}"), viewer=viewer)
        begin = time.perf_counter()
        with subject.turn():
            while not subject.answer(query, False).total:
                if time.perf_counter() - begin > _EDIT_PATIENCE_SECONDS:
                    raise RuntimeError(f"a change was not found after {_EDIT_PATIENCE_SECONDS} s")
                time.sleep(0.005)
        seconds = time.perf_counter() - begin
        memory_update(memory_id=memory.id, changes=MemoryChanges(content=memory.content), viewer=viewer)
        return seconds

    def say(self, text: str) -> None:
        self.teller.say(f"{self.size:,} memories: {text}")

    def bar(self, text: str, total: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
        return self.teller.bar(f"{self.size:,} memories: {text}", total)


def _each(items: Iterable[T], advance: Callable[[], None]) -> Iterator[T]:
    for item in items:
        yield item
        advance()

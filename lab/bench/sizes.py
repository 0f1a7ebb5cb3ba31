"""The mixed log over a corpus of one size: loading, every participant, and metrics of our engine outside the log."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from access.viewer import command_viewer
from lab.bench.corpus import Record, read_records
from lab.bench.latency import MIXED, Run, agreement, ratios, run_log
from lab.bench.metrics import named_metrics, size_lines
from lab.bench.peers import PEERS
from lab.bench.peers.base import Peer, PeerUnavailableError
from lab.bench.peers.engines import OtherEngineError, PostgresPeer
from lab.bench.query_log import SAMPLED_RECORDS, QueryLog, build_query_log
from lab.bench.runner import Benchmark, Job
from lab.report import Row, machine_load, percentiles, timed
from lab.sandbox import vacuum
from memories.models import Memory
from memories.records import MemoryChanges
from memories.services import memory_update
from search.engines.index import follower as indexer
from search.query import SearchQuery

_EDITS = 10
_EDIT_TIMEOUT_SECONDS = 60


class _SizeBenchmark:
    """One run of the benchmark."""

    def __init__(self, job: Job, size: int) -> None:
        self.job = job
        self.size = size
        self.corpus, self.path = job.generate_corpus(size)
        self.loads: dict[str, Row] = {}
        self.unavailable: dict[str, str] = {}

    def run(self) -> Row:
        options = self.job.options
        sample, facet_values = self.read_corpus()
        log = build_query_log(self.corpus, sample, options.queries, options.seed)
        with ExitStack() as open_peers:
            peers = self.load_peers(open_peers)
            subject = next((peer for name in ("tantivy", "postgres") for peer in peers if peer.name == name), peers[0])
            load_before = machine_load()
            with self.bar(f"{len(log.entries)} queries, {len(peers)} participants", len(log.entries)) as advance:
                runs = run_log(log, options.seed, peers, subject.name, options.budget, advance)
            load_after = machine_load()
            same_work = None
            if "tantivy-engine" in runs and "tantivy-raw" in runs:
                same_work = ratios(runs["tantivy-engine"], runs["tantivy-raw"]).get(MIXED)
            rows = {peer.name: self.peer_row(peer, log, runs[subject.name], runs[peer.name]) for peer in peers}
            extra = self.measure_outside_log(subject, log) if isinstance(subject, PostgresPeer) else {}
        return {
            "size": self.size,
            "facet_values_per_memory": round(facet_values / self.size, 2),
            "engine": subject.name,
            "figures": named_metrics(subject.name, rows, same_work, extra),
            "load_before": load_before,
            "load_after": load_after,
            "peers": rows,
            "unavailable": self.unavailable,
        }

    def read_corpus(self) -> tuple[list[Record], int]:
        """A sample of the records, and the number of facet values that all of them have."""
        sample, facet_values = [], 0
        every = max(1, self.size // SAMPLED_RECORDS)
        for number, record in enumerate(
            self.job.progress.track("reading the corpus", read_records(self.path), self.size)
        ):
            if number % every == 0:
                sample.append(record)
            # Project, type, source and state are always present.
            facet_values += 5 if "agent" in record else 4
            facet_values += sum(len(record[key]) for key in ("tags", "categories", "concepts", "entities", "authors"))
        return sample, facet_values

    def load_peers(self, open_peers: ExitStack) -> list[Peer]:
        """Prepare every participant. Those that an earlier run has kept are only opened."""
        made: list[tuple[Peer, Path]] = []
        # All exist before the first is loaded: an index follows what is imported after it.
        for name in self.job.options.peers:
            folder = self.job.sandbox.folder / name
            if not (folder / "loaded.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(exist_ok=True)
            try:
                peer = PEERS[name](folder)
            except PeerUnavailableError as error:
                self.leave_out(name, error)
                continue
            open_peers.callback(peer.close)
            made.append((peer, folder))
        peers: list[Peer] = []
        for peer, folder in made:
            try:
                self.load(peer, folder / "loaded.json")
            except PeerUnavailableError as error:
                self.leave_out(peer.name, error)
                continue
            peers.append(peer)
        return peers

    def leave_out(self, name: str, error: PeerUnavailableError) -> None:
        self.log(f"{name} does not take part: {error}")
        self.unavailable[name] = str(error)

    def load(self, peer: Peer, done: Path) -> None:
        """Load a peer until it answers, or open what an earlier run has loaded."""
        known = json.loads(done.read_text()) if done.exists() else None
        self.log(f"opening {peer.name}" if known else f"loading {peer.name}")
        seconds = known["seconds"] if known else timed(peer.load, self.path)[1]
        peer.open()
        if isinstance(peer, PostgresPeer):
            _, check_seconds = timed(peer.check, self.size)
            seconds += 0 if known else check_seconds
        if peer.name == "postgres" and not known:
            vacuum()
            self.job.sandbox.mark_loaded()
        self.loads[peer.name] = {
            "memories": self.size,
            "seconds": round(seconds, 3),
            "memories_per_second": round(self.size / seconds, 1) if seconds else 0.0,
            "bytes": {"disk_bytes": peer.size_bytes()},
        }
        done.write_text(json.dumps(self.loads[peer.name]))

    def peer_row(self, peer: Peer, log: QueryLog, ours: Run, theirs: Run) -> Row:
        is_subject = ours is theirs
        return {
            "about": peer.about,
            "differs": peer.differs,
            "load": self.loads[peer.name],
            "queries": len(theirs.samples),
            "budget_spent_seconds": round(theirs.spent, 1),
            "incomplete": sum(1 for answer in theirs.answers.values() if answer.incomplete),
            "latency": theirs.latency(),
            "stages": theirs.timings(),
            "ratio": {} if is_subject else ratios(ours, theirs),
            "agreement": None if is_subject else agreement(log.entries, ours.answers, theirs.answers),
        }

    def measure_outside_log(self, subject: PostgresPeer, log: QueryLog) -> dict[str, float]:
        """The memory of a process, a rebuild of the index, and the time until an edit is found."""
        found = self.resident_memory(subject.name, log)
        with ExitStack() as follower:
            if subject.name == "tantivy":
                self.log("rebuilding the index")
                _, found["rebuild_seconds"] = timed(indexer.rebuild)
                self.log("single edits")
                follower.enter_context(self.job.sandbox.child("manage.py", "index", "--follow"))
            # The follower may still start during the first edit.
            edits = percentiles([self.seconds_until_found(subject) for _ in range(_EDITS)][1:])
        if edits:
            found["edit_visible_p50_seconds"] = edits["p50_ms"] / 1_000
            found["edit_visible_max_seconds"] = edits["max_ms"] / 1_000
        return {name: round(value, 3) for name, value in found.items()}

    def resident_memory(self, engine: str, log: QueryLog) -> dict[str, float]:
        """The memory of a process that has answered the whole log with facets."""
        self.log("the log once more in a process of its own, for its memory")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = ("-m", "lab.bench.resident")
        with self.job.sandbox.child(*command, environment={"SEARCH_ENGINE": engine}, **pipes) as child:
            output, _ = child.communicate("".join(f"{entry.query.querystring()}\n" for entry in log.entries).encode())
            if child.returncode:
                raise RuntimeError("The process that measures memory failed; see its output above.")
        found: dict[str, float] = json.loads(output)
        return found

    def seconds_until_found(self, subject: PostgresPeer) -> float:
        """Add a word to a memory and search for it until it is found; then restore the memory."""
        memory = Memory.objects.filter(state="active").order_by("id")[self.size // 2]
        word = f"benchedit{time.time_ns()}"
        query = SearchQuery.from_pairs([("q", word), ("mode", "keyword")])
        viewer = command_viewer()
        memory_update(memory_id=memory.id, changes=MemoryChanges(content=f"{memory.content} {word}"), viewer=viewer)
        start = time.perf_counter()
        with subject.turn():
            while not self.finds(subject, query):
                if time.perf_counter() - start > _EDIT_TIMEOUT_SECONDS:
                    raise RuntimeError(f"an edit was not found within {_EDIT_TIMEOUT_SECONDS} s")
                time.sleep(0.005)
        seconds = time.perf_counter() - start
        memory_update(memory_id=memory.id, changes=MemoryChanges(content=memory.content), viewer=viewer)
        return seconds

    def finds(self, subject: PostgresPeer, query: SearchQuery) -> bool:
        """Whether the engine that is measured finds anything; while its index is far behind, another one answers."""
        try:
            return bool(subject.answer(query, False).total)
        except OtherEngineError:
            return False

    def log(self, text: str) -> None:
        self.job.progress.log(f"{self.size:,} memories: {text}")

    def bar(self, text: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        return self.job.progress.bar(f"{self.size:,} memories: {text}", total)


def run(job: Job, size: int) -> Row:
    return _SizeBenchmark(job, size).run()


BENCHMARK = Benchmark(
    "sizes", run, size_lines, "MEMORIES", "the mixed query log over a corpus of this size", limits=(100, 100_000_000)
)

"""One way to run every benchmark: a sandbox, the benchmark in it, and clean caches afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.test import override_settings

from lab.bench.corpus import Corpus, write_records
from lab.progress import Progress
from lab.report import Row
from lab.sandbox import Sandbox, open_sandbox
from search.engines.index import store
from web import cache


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line that every benchmark can read."""

    seed: int
    queries: int
    budget: float
    peers: tuple[str, ...]
    keep: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a benchmark: its sandbox, the options, and where it reports progress."""

    sandbox: Sandbox
    options: Options
    progress: Progress

    def generate_corpus(self, size: int) -> tuple[Corpus, Path]:
        """A corpus, and the file in the sandbox that it is written to, unless an earlier run has kept it."""
        corpus, path = Corpus(size, self.options.seed), self.sandbox.folder / "corpus.jsonl.gz"
        if not self.sandbox.loaded:
            write_records(self.progress.track(f"generating {size:,} memories", corpus.records(), size), path)
        return corpus, path


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark and the option that selects it.

    `run` receives the size that the option names, and returns a part of the JSON report; `lines` prints it. `limits`
    are the sizes it accepts.
    """

    key: str
    run: Callable[[Job, int], Row]
    lines: Callable[[str, Row], list[str]]
    metavar: str
    help: str
    limits: tuple[int, int]
    can_keep: bool = True


def measure(option: str, benchmark: Benchmark, size: int, options: Options, progress: Progress) -> Row:
    """Run a benchmark in a sandbox, which is removed afterwards unless --keep was given."""
    parts = [str(size)] if option == "size" else [option, str(size)]
    keep = options.keep and benchmark.can_keep
    folder = Path(settings.HOME) / "lab" / "-".join([*parts, str(options.seed)])
    with (
        override_settings(SEARCH_INDEX=folder / "index"),
        open_sandbox(folder, "_".join(["bench", *parts]), f"seed {options.seed}", keep=keep) as sandbox,
    ):
        try:
            report = benchmark.run(Job(sandbox, options, progress), size)
        finally:
            clear_caches()
    if keep:
        progress.log(f"kept the database {sandbox.database} and {folder}")
    return report


def clear_caches() -> None:
    """Release the index and forget all that this process has cached of the database."""
    # Names of generations repeat from one index to the next.
    store.close_view()
    cache.clear_caches()

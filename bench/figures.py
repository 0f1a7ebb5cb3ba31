"""What a run found out, as frozen figures. Their names are the keys of the JSON, and stay as they are."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds over n samples."""

    n: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def spread(seconds: Sequence[float]) -> Spread | None:
    """The nearest rank, so that each figure is one that was measured."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1_000, 3)

    return Spread(len(ordered), at(0.50), at(0.95), at(0.99), round(ordered[-1] * 1_000, 3))


@dataclass(slots=True)
class Samples:
    """Seconds per query of one participant; `overhead` is explore less search of the same query, `first_explore` what
    it took when the query had not been asked before.
    """

    search: list[float] = field(default_factory=list)
    explore: list[float] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)
    first_explore: list[float] = field(default_factory=list)
    page: list[float] = field(default_factory=list)

    def extend(self, others: Iterable["Samples"]) -> "Samples":
        for other in others:
            self.search += other.search
            self.explore += other.explore
            self.overhead += other.overhead
            self.first_explore += other.first_explore
            self.page += other.page
        return self

    def latency(self) -> "Latency":
        return Latency(
            spread(self.search),
            spread(self.explore),
            spread(self.overhead),
            spread(self.first_explore),
            spread(self.page),
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """Search alone, explore (search with every facet and the histogram), what the facets add, the rendered page."""

    search: Spread | None
    explore: Spread | None
    facet_overhead: Spread | None
    first_explore: Spread | None = None
    page: Spread | None = None


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Until findable by words, and what it takes on disk."""

    memories: int
    seconds: float
    memories_per_second: float
    bytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a peer gave our answer: totals without words, totals with words, counts and pages without words."""

    totals_filters: int
    of_filters: int
    totals_words: int
    of_words: int
    counts_equal: int
    of_counts: int
    pages_equal: int
    of_pages: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """The peer's milliseconds over ours at one percentile, over the queries that both ran: above one we are faster."""

    queries: int
    search_p50: float | None
    search_p95: float | None
    explore_p50: float | None
    explore_p95: float | None
    facet_overhead_p95: float | None


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """One participant. `ratio` is by kind, and empty for the one that all others are compared with."""

    about: str
    differs: str
    load: LoadFigures
    queries: int
    budget_spent_seconds: float
    incomplete: int
    latency: dict[str, Latency]
    stages: dict[str, Spread]
    ratio: dict[str, Ratio]
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """All that was measured at one size. A load above the number of cores says that others were at work too.

    `figures` has those that everything else is there for, by name; None where it was not measured. `unavailable` says
    why a peer took no part.
    """

    size: int
    facet_values_per_memory: float
    engine: str
    figures: dict[str, float | None]
    load_before: float
    load_after: float
    peers: dict[str, PeerFigures]
    unavailable: dict[str, str]


@dataclass(frozen=True, slots=True)
class FilterFigures:
    """The nearest to many queries among what a filter keeps, `limit` of them, against the exact answer.

    `recall` is the share of the exact ten that were found, on the average; `least_recall` that of the worst query;
    `too_few` counts the answers that had fewer memories than there are. `spread_out` filters keep memories of all
    subjects, the others whole subjects, which are seldom those of the query. `read` is where the vectors were read.
    """

    read: str
    share: str
    spread_out: bool
    passing: int
    limit: int
    queries: int
    recall: float
    least_recall: float
    too_few: int
    latency: Spread | None


@dataclass(frozen=True, slots=True)
class VectorFigures:
    """Search by meaning among so many chunks, with the vector of the query given."""

    chunks: int
    memories: int
    dimensions: int
    index_seconds: float | None
    index_bytes: int
    replica_seconds: float
    replica_bytes: int
    load_before: float
    load_after: float
    figures: dict[str, float]
    filters: list[FilterFigures]


@dataclass(frozen=True, slots=True)
class MeaningFigures:
    """Whole answers with every facet, by mode; `embedding` is what the vector of a query takes beside that."""

    memories: int
    chunks: int
    entities: int
    relationships: int
    queries: int
    load_before: float
    load_after: float
    legs_left_out: int
    latency: dict[str, Spread]
    embedding: Spread | None


@dataclass(frozen=True, slots=True)
class EmbeddingRound:
    """The same memories embedded by the worker, and their chunks by the model alone."""

    memories: int
    chunks: int
    worker_seconds: float
    alone_seconds: float


@dataclass(frozen=True, slots=True)
class EmbeddingFigures:
    """The worker beside the model alone, in rounds; and what the process of the worker holds, with the model."""

    model: str
    memories: int
    lanes: int
    load_before: float
    load_after: float
    resident_before_mb: int
    resident_most_mb: int
    rounds: list[EmbeddingRound]


@dataclass(frozen=True, slots=True)
class CategoryRead:
    """One read of categories by an engine, or by plain SQL: asked again and again, and the first time after a write."""

    read: str
    by: str
    viewer: str
    warm: Spread | None
    after_write: Spread | None


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """The three reads of categories among so many memories. `cold` is the first answer of a process."""

    memories: int
    categories: int
    queries: int
    writes: int
    load_before: float
    load_after: float
    figures: dict[str, float]
    cold: dict[str, Spread | None]
    reads: list[CategoryRead]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when it was measured."""

    cpu: str
    cores: int
    memory_gb: float
    python: str
    postgres: str
    sqlite: str
    date: str


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    machine: Machine
    seed: int
    queries: int
    budget_seconds: float
    sizes: dict[str, SizeFigures]
    vectors: dict[str, VectorFigures] = field(default_factory=dict)
    meaning: dict[str, MeaningFigures] = field(default_factory=dict)
    categories: dict[str, CategoryFigures] = field(default_factory=dict)
    embedding: dict[str, EmbeddingFigures] = field(default_factory=dict)
    format: int = 2

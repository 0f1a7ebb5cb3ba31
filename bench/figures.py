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
    """Seconds per query of one participant; `overhead` is explore less search of the same query."""

    search: list[float] = field(default_factory=list)
    explore: list[float] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)
    page: list[float] = field(default_factory=list)

    def extend(self, others: Iterable["Samples"]) -> "Samples":
        for other in others:
            self.search += other.search
            self.explore += other.explore
            self.overhead += other.overhead
            self.page += other.page
        return self


@dataclass(frozen=True, slots=True)
class Latency:
    """Search alone, explore (search with every facet and the histogram), what the facets add, the rendered page."""

    search: Spread | None
    explore: Spread | None
    facet_overhead: Spread | None
    page: Spread | None = None


@dataclass(frozen=True, slots=True)
class ImportFigures:
    """From the first byte read to findable by words, and what it takes on disk."""

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
class PeerFigures:
    """`ratio` is the peer's p95 over ours, for search and explore of each kind: above one we are faster."""

    about: str
    differs: str
    load: ImportFigures
    latency: dict[str, Latency]
    ratio: dict[str, dict[str, float]]
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """All that was measured at one size. A load above the number of cores says that others were at work too."""

    size: int
    facet_values_per_memory: float
    imported: ImportFigures
    engine: str
    latency: dict[str, Latency]
    stages: dict[str, Spread]
    incomplete: int
    load_before: float
    load_after: float
    peers: dict[str, PeerFigures]


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
    sizes: dict[str, SizeFigures]
    format: int = 1

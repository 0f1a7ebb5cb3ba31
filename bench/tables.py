"""A report as Markdown tables, to read on a terminal and to paste into docs/benchmarks.md. The JSON holds more."""

from collections.abc import Sequence
from statistics import median

from bench.figures import (
    CategoryFigures,
    EmbeddingFigures,
    MeaningFigures,
    PeerFigures,
    Report,
    SizeFigures,
    Spread,
    VectorFigures,
)
from bench.measuring import KEYWORD, MIXED
from bench.naming import FIGURES
from bench.query_log import AFTER_CHANGE, KINDS

_LABELS = {**KINDS, AFTER_CHANGE: "after a change", KEYWORD: "all with words alone", MIXED: "all, mixed"}
_PERCENTILES = ("p50", "p95", "p99", "max")


def report_lines(report: Report) -> list[str]:
    machine = report.machine
    lines = [
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb} GB; Python {machine.python},"
        f" Postgres {machine.postgres}, SQLite {machine.sqlite}; {machine.date}; seed {report.seed},"
        f" {report.queries} queries, {report.budget_seconds:g} s for each participant and size",
    ]
    if report.sizes:
        lines += ["", "### As it grows", "", *_growth(list(report.sizes.values()))]
    for figures in report.sizes.values():
        lines += ["", *_size(figures)]
    for vectors in report.vectors.values():
        lines += ["", *_vectors(vectors)]
    for meaning in report.meaning.values():
        lines += ["", *_meaning(meaning)]
    for categories in report.categories.values():
        lines += ["", *_categories(categories)]
    for name, embedding in report.embedding.items():
        lines += ["", *_embedding(name, embedding)]
    return lines


def _growth(sizes: Sequence[SizeFigures]) -> list[str]:
    rows = [
        [label, *(_number(of.figures.get(name)) for of in sizes)]
        for name, label in FIGURES.items()
        if any(of.figures.get(name) is not None for of in sizes)
    ]
    return table_lines(["", *(f"{of.size:,}" for of in sizes)], rows)


def _size(figures: SizeFigures) -> list[str]:
    lines = [
        f"### {figures.size:,} memories",
        "",
        f"{figures.facet_values_per_memory} facet values each; load of the machine {figures.load_before} before the"
        f" queries, {figures.load_after} after them.",
        "",
        *_loads(figures),
        "",
        *_compared(figures),
    ]
    for name, peer in figures.peers.items():
        ours = name in {"postgres", "tantivy"}
        lines += ["", f"**{name}**: {peer.about}. Milliseconds.", "", *_latency(peer, first=ours)]
        lines += ["", *_remarks(name, peer)]
    lines += [f"- {name} took no part: {why}" for name, why in figures.unavailable.items()]
    return lines


def _vectors(figures: VectorFigures) -> list[str]:
    rows = []
    for one in figures.filters:
        which = "" if one.share == "all" else ", spread out" if one.spread_out else ", by subject"
        recalls = [f"{one.recall:.3f}", f"{one.least_recall:.2f}", str(one.too_few)]
        latency = [_at(one.latency, percentile) for percentile in _PERCENTILES]
        rows.append([one.read, f"{one.share}{which}", f"{one.passing:,}", f"{one.limit:,}", *recalls, *latency])
    made = "" if figures.index_seconds is None else f", made in {_number(figures.index_seconds)} s"
    headings = ["read", "kept", "memories", "asked for", "recall of ten", "worst", "too few", *_PERCENTILES]
    return [
        f"### The nearest of {figures.chunks:,} vectors",
        "",
        f"{figures.memories:,} memories, {figures.dimensions} dimensions, an index of"
        f" {_number(figures.index_bytes / 1e6)} MB{made}, and a replica of {_number(figures.replica_bytes / 1e6)} MB,"
        f" made in {_number(figures.replica_seconds)} s; load of the machine"
        f" {figures.load_before} before the queries, {figures.load_after} after them. Milliseconds, of"
        f" {figures.filters[0].queries} queries a row.",
        "",
        *table_lines(headings, rows),
    ]


def _meaning(figures: MeaningFigures) -> list[str]:
    of_words = figures.latency["keyword"]
    rows = []
    for mode, of in figures.latency.items():
        cells = [_at(of, percentile) for percentile in _PERCENTILES]
        times = [] if of is of_words else [_times(of.p50_ms / of_words.p50_ms), _times(of.p95_ms / of_words.p95_ms)]
        rows.append([f"mode={mode}", *cells, *(times or ["", ""])])
    if figures.embedding:
        cells = [_at(figures.embedding, percentile) for percentile in _PERCENTILES]
        rows.append(["the vector of a query", *cells, "", ""])
    return [
        f"### By words and by meaning, {figures.memories:,} memories",
        "",
        f"{figures.chunks:,} chunks, {figures.entities:,} entities, {figures.relationships:,} relationships; load of"
        f" the machine {figures.load_before} before the queries, {figures.load_after} after them. Milliseconds of whole"
        f" answers with every facet, of {figures.queries} queries asked once in each mode; × keyword at p50 and p95."
        f" {figures.legs_left_out} legs of unified search were left out.",
        "",
        *table_lines(["", *_PERCENTILES, "× p50", "× p95"], rows),
    ]


def _categories(figures: CategoryFigures) -> list[str]:
    rows = []
    for one in figures.reads:
        times = [_at(spread, percentile) for spread in (one.warm, one.after_write) for percentile in _PERCENTILES[:3]]
        rows.append([one.read, one.by, one.viewer, *times])
    cold = ", ".join(f"{of} {_at(spread, 'p50')}" for of, spread in figures.cold.items())
    headings = ["read", "by", "sees", *_PERCENTILES[:3], *(f"{p}, after a write" for p in _PERCENTILES[:3])]
    return [
        f"### {figures.categories:,} categories of {figures.memories:,} memories",
        "",
        f"{figures.queries} queries a read, {figures.writes} writes; load of the machine {figures.load_before} before,"
        f" {figures.load_after} after them. Milliseconds. The first answer of a process: {cold}.",
        "",
        *table_lines(headings, rows),
    ]


def _embedding(name: str, figures: EmbeddingFigures) -> list[str]:
    rows = []
    for one in figures.rounds:
        rates = [one.chunks / one.worker_seconds, one.chunks / one.alone_seconds]
        rows.append([f"{one.memories:,}", f"{one.chunks:,}", *map(_number, rates), _times(rates[0] / rates[1])])
    shares = [one.alone_seconds / one.worker_seconds for one in figures.rounds]
    return [
        f"### Embedding {name}",
        "",
        f"{figures.model}, {figures.lanes} threads; load of the machine {figures.load_before} before,"
        f" {figures.load_after} after. Chunks a second. In the middle the worker embeds {median(shares):.0%} of what"
        f" the model does alone; its process held {figures.resident_before_mb} MB before, at most"
        f" {figures.resident_most_mb} MB.",
        "",
        *table_lines(["memories", "chunks", "the worker", "the model alone", "×"], rows),
    ]


def _loads(figures: SizeFigures) -> list[str]:
    rows = []
    for name, peer in figures.peers.items():
        if name == "tantivy-engine":
            continue
        label = f"{name}, after postgres" if name == "tantivy" else name
        load = peer.load
        on_disk = _number(load.bytes["disk_bytes"] / 1e6)
        rows.append([label, _number(load.seconds), _number(load.memories_per_second), on_disk])
    return table_lines(["loading", "seconds", "memories/s", "MB on disk"], rows)


def _compared(figures: SizeFigures) -> list[str]:
    rows = []
    for name, peer in figures.peers.items():
        if name == figures.engine:
            continue
        for kind, ratio in peer.ratio.items():
            if kind in {KEYWORD, MIXED}:
                cells = [ratio.search_p50, ratio.search_p95, ratio.explore_p50, ratio.explore_p95]
                cells.append(ratio.facet_overhead_p95)
                rows.append([f"{name}, {_LABELS[kind]}", str(ratio.queries), *map(_times, cells)])
    headings = ["search p50", "search p95", "explore p50", "explore p95", "facets p95"]
    return table_lines([f"× {figures.engine}", "queries of both", *headings], rows)


def _latency(peer: PeerFigures, *, first: bool) -> list[str]:
    headings = ["", "n", *(f"{what} {at}" for what in ("search", "explore", "facets") for at in _PERCENTILES)]
    headings += ["first explore p95", "first explore max"] if first else []
    paged = peer.latency[MIXED].page is not None
    headings += ["page p50", "page p95"] if paged else []
    headings += ["× search", "× explore"] if peer.ratio else []
    rows = []
    for kind, of in peer.latency.items():
        cells = [_LABELS[kind], str(of.explore.n if of.explore else 0)]
        for found in (of.search, of.explore, of.facet_overhead):
            cells += [_at(found, percentile) for percentile in _PERCENTILES]
        cells += [_at(of.first_explore, "p95"), _at(of.first_explore, "max")] if first else []
        cells += [_at(of.page, "p50"), _at(of.page, "p95")] if paged else []
        if peer.ratio:
            ratio = peer.ratio.get(kind)
            cells += [_times(ratio.search_p95), _times(ratio.explore_p95)] if ratio else ["", ""]
        rows.append(cells)
    return table_lines(headings, rows)


def _remarks(name: str, peer: PeerFigures) -> list[str]:
    lines = [f"- {name} ran {peer.queries} queries in {peer.budget_spent_seconds:,.0f} s."]
    if peer.differs:
        lines.append(f"- It {peer.differs}.")
    if peer.stages:
        stages = ", ".join(f"{stage} {of.p50_ms:,.1f} / {of.p95_ms:,.1f}" for stage, of in peer.stages.items())
        lines.append(f"- Stages of explore the first time, p50 / p95: {stages}.")
    if peer.incomplete:
        lines.append(
            f"- {peer.incomplete} answers ran into SEARCH_FACET_TIMEOUT_MS and came without facets: the figures of"
            " explore are lower bounds."
        )
    agreed = peer.agreement
    if agreed and agreed.of_counts:
        lines.append(
            f"- It agrees in {agreed.totals_filters} of {agreed.of_filters} totals without words and"
            f" {agreed.totals_words} of {agreed.of_words} with words, in {agreed.counts_equal} of {agreed.of_counts}"
            f" counts and {agreed.pages_equal} of {agreed.of_pages} pages without words."
        )
    return lines


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns padded, so that a terminal shows them as columns too."""
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
        return f"| {' | '.join(padded)} |"

    rule = [":" + "-" * max(1, widths[0] - 1), *("-" * max(1, width - 1) + ":" for width in widths[1:])]
    return [line(headings), f"| {' | '.join(rule)} |", *(line(row) for row in rows)]


def _at(found: Spread | None, percentile: str) -> str:
    return _number(getattr(found, f"{percentile}_ms")) if found else ""


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.1f}" if abs(ratio) >= 1 else f"{ratio:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2f}"

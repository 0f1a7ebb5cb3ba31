"""A report as aligned tables for people. The JSON holds the same figures, and more of them."""

from rich.box import MARKDOWN, SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table

from bench.figures import Latency, Report, SizeFigures, Spread
from bench.query_log import KINDS

# A table that is piped into a file must not be cut at eighty columns.
_WIDTH_OF_A_PIPE = 140
_LABELS = {**KINDS, "mixed": "all, mixed"}


def print_report(report: Report, *, markdown: bool = False) -> None:
    box = MARKDOWN if markdown else SIMPLE_HEAD
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_OF_A_PIPE)
    machine = report.machine
    console.print(
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb} GB; Python {machine.python},"
        f" Postgres {machine.postgres}, SQLite {machine.sqlite}; {machine.date}; seed {report.seed},"
        f" {report.queries} queries a kind"
    )
    for figures in report.sizes.values():
        console.print()
        console.rule(
            f"{figures.size:,} memories, {figures.facet_values_per_memory} facet values each; engine {figures.engine}"
        )
        console.print(_import_table(figures, box))
        console.print(_latency_table("Mnemoscope, milliseconds", box, figures.latency))
        stages = ", ".join(
            f"{name} {found.p50_ms:,.1f} / {found.p95_ms:,.1f}" for name, found in figures.stages.items()
        )
        console.print(f"stages of explore, p50 / p95 ms: {stages}")
        console.print(f"load of the machine {figures.load_before} before the queries, {figures.load_after} after them")
        if figures.incomplete:
            console.print(
                f"{figures.incomplete} answers ran into SEARCH_FACET_TIMEOUT_MS and came without facets: the figures"
                " of explore are lower bounds"
            )
        for name, peer in figures.peers.items():
            console.print(
                _latency_table(f"{name}, milliseconds; × is its p95 over ours", box, peer.latency, peer.ratio)
            )
            agreed = peer.agreement
            console.print(f"{name}: {peer.about}; {peer.differs}")
            console.print(
                f"{name} agrees in {agreed.totals_filters} of {agreed.of_filters} totals without words and"
                f" {agreed.totals_words} of {agreed.of_words} with words, in {agreed.counts_equal} of"
                f" {agreed.of_counts} counts and {agreed.pages_equal} of {agreed.of_pages} pages without words"
            )


def _import_table(figures: SizeFigures, box: Box) -> Table:
    table = Table(title="Import, until findable by words", title_justify="left", box=box)
    for heading in ("", "seconds", "memories/s", "on disk MB", "table MB", "indexes MB", "links MB"):
        table.add_column(heading, justify="left" if not heading else "right")
    ours = figures.imported

    def megabytes(key: str) -> str:
        return f"{ours.bytes[key] / 2**20:,.0f}"

    table.add_row(
        "mnemoscope",
        f"{ours.seconds:,.1f}",
        f"{ours.memories_per_second:,.0f}",
        *map(megabytes, ("database_bytes", "memory_table_bytes", "memory_indexes_bytes", "link_tables_bytes")),
    )
    for name, peer in figures.peers.items():
        load = peer.load
        on_disk = f"{load.bytes['database_bytes'] / 2**20:,.0f}"
        table.add_row(name, f"{load.seconds:,.1f}", f"{load.memories_per_second:,.0f}", on_disk)
    return table


def _latency_table(
    title: str, box: Box, latency: dict[str, Latency], ratio: dict[str, dict[str, float]] | None = None
) -> Table:
    table = Table(title=title, title_justify="left", box=box)
    table.add_column("")
    table.add_column("n", justify="right")
    paged = any(of.page for of in latency.values())
    headings = ["search p50", "p95", "p99", "explore p50", "p95", "p99", "facets p50", "p95", "p99"]
    headings += ["page p50", "p95"] if paged else []
    headings += ["× search", "× explore"] if ratio is not None else []
    for heading in headings:
        table.add_column(heading, justify="right")
    for kind, of in latency.items():
        cells = [*_cells(of.search), *_cells(of.explore), *_cells(of.facet_overhead)]
        if paged:
            cells += _cells(of.page)[:2]
        if ratio is not None:
            cells += [_times(ratio.get(kind, {}).get(what)) for what in ("search", "explore")]
        if kind == "mixed" and box is not MARKDOWN:
            table.add_section()
        table.add_row(_LABELS[kind], str(of.search.n if of.search else 0), *cells)
    return table


def _cells(found: Spread | None) -> list[str]:
    return [_short(found.p50_ms), _short(found.p95_ms), _short(found.p99_ms)] if found else ["", "", ""]


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.1f}" if ratio >= 1 else f"{ratio:.2f}"


def _short(milliseconds: float) -> str:
    return f"{milliseconds:,.1f}" if abs(milliseconds) < 100 else f"{milliseconds:,.0f}"

"""What an evaluation has found: rows for the table, and for the JSON every query of every row."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.figures import Machine, Spread
from bench.tables import table_lines
from evaluation.ablation import Variation
from evaluation.baselines import BM25
from evaluation.metrics import LABELS, Scores

_SHOWN = 5
# A difference below this is no difference.
_SAME = 1e-9


@dataclass(slots=True)
class Row:
    """One way to answer, over all queries. `ids` are what it gave for each, the best first."""

    name: str
    kind: str
    scores: Scores
    by_query: dict[str, Scores]
    ids: dict[str, list[str]]
    mode: str = ""
    variation: Variation | None = None
    engines: dict[str, int] = field(default_factory=dict)
    latency: Spread | None = None
    # What was said, and to which queries.
    warnings: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_varied(self) -> bool:
        return self.variation is not None and bool(self.variation.name)

    @property
    def without_hits(self) -> int:
        return sum(1 for ids in self.ids.values() if not ids)


@dataclass(slots=True)
class Report:
    collection: str
    documents: int
    queries: int
    judgements: int
    notes: list[str]
    machine: Machine
    rows: list[Row] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {name: value for name, value in asdict(self).items() if name != "rows"}
        return {**said, "rows": [asdict(row) for row in self.rows]}


def report_lines(report: Report) -> list[str]:
    """The report as Markdown, which a terminal shows as columns too."""
    machine = report.machine
    lines = [
        f"{report.collection}: {report.documents:,} documents, {report.queries:,} queries,"
        f" {report.judgements:,} judgements; {machine.cpu}, {machine.cores} cores, {machine.date}",
        "",
        *_table(report),
    ]
    for row in report.rows:
        for kind, said in (("refused", row.errors), ("warned", row.warnings)):
            lines += [f"- {row.name}, {kind}: {line}" for line in _said(said)]
    return [*lines, *(f"- {note}." for note in report.notes)]


def _table(report: Report) -> list[str]:
    plain = next((row for row in report.rows if row.kind == BM25), None)
    usual = {row.mode: row for row in report.rows if row.mode and not row.is_varied}
    headings = [
        "",
        *LABELS.values(),
        "better / worse than BM25",
        "nothing found",
        "warned",
        "refused",
        "p50 ms",
        "p95 ms",
    ]
    varied = any(row.is_varied for row in report.rows)
    headings += ["Δ nDCG@10"] if varied else []
    rows = []
    for row in report.rows:
        cells = [row.name, *(f"{getattr(row.scores, name):.4f}" for name in LABELS)]
        cells.append(" / ".join(map(str, compared(row, plain))) if plain and row is not plain else "")
        cells.append(str(row.without_hits))
        cells += [str(_queries_of(said)) if row.mode else "" for said in (row.warnings, row.errors)]
        cells += [f"{row.latency.p50_ms:,.1f}", f"{row.latency.p95_ms:,.1f}"] if row.latency else ["", ""]
        if varied:
            base = usual.get(row.mode)
            cells.append(f"{row.scores.ndcg_10 - base.scores.ndcg_10:+.4f}" if base and row.is_varied else "")
        rows.append(cells)
    return table_lines(headings, rows)


def compared(row: Row, other: Row) -> tuple[int, int]:
    """For how many queries the row has the higher nDCG@10, and for how many the lower."""
    differences = [scores.ndcg_10 - other.by_query[name].ndcg_10 for name, scores in row.by_query.items()]
    return sum(d > _SAME for d in differences), sum(d < -_SAME for d in differences)


def _queries_of(said: Mapping[str, list[str]]) -> int:
    return len({name for names in said.values() for name in names})


def _said(said: Mapping[str, list[str]]) -> list[str]:
    """The most frequent messages, with how many queries and which got each."""
    ordered = sorted(said.items(), key=lambda item: -len(item[1]))
    lines = []
    for message, names in ordered[:_SHOWN]:
        some = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        lines.append(f"{message} ({len(names):,}: {some})")
    if rest := ordered[_SHOWN:]:
        lines.append(f"{len(rest):,} other messages, in the JSON")
    return lines

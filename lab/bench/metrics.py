"""The named metrics of the mixed log, which keep their names in the JSON report, and the tables of each size."""

from collections.abc import Mapping, Sequence

from lab.bench.latency import KEYWORD, MIXED
from lab.bench.peers import PEERS
from lab.bench.query_log import AFTER_CHANGE, KINDS
from lab.report import PERCENTILES, Cell, Row, cells, number, table

# The participants that our fastest engine is compared with.
COMPARED = tuple(name for name in PEERS if name not in {"tantivy", "tantivy-engine"})
_LOADED = tuple(name for name in PEERS if name != "tantivy-engine")
_LABELS = {**KINDS, AFTER_CHANGE: "after a change", KEYWORD: "all keyword queries", MIXED: "all, mixed"}


def _key(peer: str) -> str:
    return peer.replace("-", "_")


# Labels, in the order of the tables.
METRICS: dict[str, str] = {
    "facet_overhead_p50_ms": "facets add, p50 ms",
    "facet_overhead_p95_ms": "facets add, p95 ms",
    "explore_p50_ms": "explore, p50 ms",
    "explore_p95_ms": "explore, p95 ms",
    "explore_p99_ms": "explore, p99 ms",
    "explore_max_ms": "explore, max ms",
    "first_explore_p95_ms": "explore, the first time a query is asked, p95 ms",
    "first_explore_max_ms": "explore, the first time a query is asked, max ms",
    "keyword_search_p50_ms": "keyword search, p50 ms",
    "keyword_search_p95_ms": "keyword search, p95 ms",
    "page_p95_ms": "page, p95 ms",
    **{f"ratio_explore_p95_{_key(name)}": f"× {name}, explore at p95" for name in COMPARED},
    **{f"ratio_search_p95_{_key(name)}": f"× {name}, search at p95" for name in COMPARED},
    **{f"ratio_facet_overhead_p95_{_key(name)}": f"× {name}, facets at p95" for name in COMPARED},
    "ratio_engine_search_p95_tantivy_raw": "× tantivy-raw, the same work, search at p95",
    "ratio_engine_explore_p95_tantivy_raw": "× tantivy-raw, the same work, explore at p95",
    **{f"ratio_queries_{_key(name)}": f"queries compared with {name}" for name in COMPARED},
    "import_seconds": "import into Postgres, s",
    "index_seconds": "then until the index is read, s",
    "import_rate": "import into Postgres, memories/s",
    "findable_rate": "import until findable, memories/s",
    "rebuild_seconds": "rebuild of the index, s",
    "edit_visible_p50_seconds": "an edit is found, p50 s",
    "edit_visible_max_seconds": "an edit is found, max s",
    "resident_mb": "resident memory of a process after the log, MB",
    "resident_private_mb": "private part of it, MB",
    **{f"disk_mb_{_key(name)}": f"on disk, {name}, MB" for name in _LOADED},
}


def named_metrics(
    engine: str, peers: Mapping[str, Row], same_work: Row | None, extra: Mapping[str, float]
) -> dict[str, float | None]:
    """Every metric by name, None where it was not measured. `extra` are those measured outside the log."""
    found: dict[str, float | None] = dict.fromkeys(METRICS)
    latency = peers[engine]["latency"]
    for name, kind, stage, names in (
        ("facet_overhead", MIXED, "facet_overhead", ("p50", "p95")),
        ("explore", MIXED, "explore", PERCENTILES),
        ("first_explore", MIXED, "first_explore", ("p95", "max")),
        ("keyword_search", KEYWORD, "search", ("p50", "p95")),
        ("page", MIXED, "page", ("p95",)),
    ):
        if measured := latency.get(kind, {}).get(stage):
            found |= {f"{name}_{percentile}_ms": measured[f"{percentile}_ms"] for percentile in names}
    for name, peer in peers.items():
        if name in _LOADED:
            found[f"disk_mb_{_key(name)}"] = round(peer["load"]["bytes"]["disk_bytes"] / 1e6, 1)
        if name in COMPARED and (ratio := peer["ratio"].get(MIXED)):
            for stage in ("explore_p95", "search_p95", "facet_overhead_p95", "queries"):
                found[f"ratio_{stage}_{_key(name)}"] = ratio[stage]
    if "postgres" in peers:
        imported = peers["postgres"]["load"]
        seconds = imported["seconds"]
        found |= {"import_seconds": seconds, "import_rate": imported["memories_per_second"]}
        if "tantivy" in peers:
            found["index_seconds"] = peers["tantivy"]["load"]["seconds"]
            seconds += peers["tantivy"]["load"]["seconds"]
        found["findable_rate"] = round(imported["memories"] / seconds, 1)
    if same_work:
        found |= {f"ratio_engine_{stage}_tantivy_raw": same_work[stage] for stage in ("search_p95", "explore_p95")}
    return found | dict(extra)


def growth_lines(sizes: Sequence[Row]) -> list[str]:
    """The named metrics, a column for each size."""
    columns = [size["figures"] for size in sizes]
    rows = [
        [label, *(column[name] for column in columns)]
        for name, label in METRICS.items()
        if any(column[name] is not None for column in columns)
    ]
    return ["### Growth", "", *table(["", *(number(size["size"]) for size in sizes)], rows)]


def size_lines(name: str, size: Row) -> list[str]:
    """All tables of one size."""
    lines = [
        f"### {size['size']:,} memories",
        "",
        f"{size['facet_values_per_memory']} facet values each; load of the machine {size['load_before']} before the"
        f" queries, {size['load_after']} after them.",
        "",
        *_loading(size),
        "",
        *_comparison(size),
    ]
    for peer_name, peer in size["peers"].items():
        lines += ["", f"**{peer_name}**: {peer['about']}. Milliseconds.", "", *_latencies(peer_name, peer)]
        lines += ["", *_remarks(peer_name, peer)]
    return lines + [f"- {peer_name} did not take part: {why}" for peer_name, why in size["unavailable"].items()]


def _loading(size: Row) -> list[str]:
    rows: list[list[Cell]] = []
    for name, peer in size["peers"].items():
        if name in _LOADED:
            load = peer["load"]
            label = f"{name}, after postgres" if name == "tantivy" else name
            rows.append([label, load["seconds"], load["memories_per_second"], load["bytes"]["disk_bytes"] / 1e6])
    return table(["loading", "seconds", "memories/s", "MB on disk"], rows)


def _comparison(size: Row) -> list[str]:
    rows = [
        [f"{name}, {_LABELS[kind]}", *peer["ratio"][kind].values()]
        for name, peer in size["peers"].items()
        for kind in (KEYWORD, MIXED)
        if kind in peer["ratio"]
    ]
    headings = ["queries of both", "search p50", "search p95", "explore p50", "explore p95", "facets p95"]
    return table([f"× {size['engine']}", *headings], rows)


def _latencies(name: str, peer: Row) -> list[str]:
    headings = ["", "n", *(f"{stage} {at}" for stage in ("search", "explore", "facets") for at in PERCENTILES)]
    extra = [("first_explore", "first explore", ("p95", "max"))] if name in {"postgres", "tantivy"} else []
    extra += [("page", "page", ("p50", "p95"))] if peer["latency"][MIXED]["page"] else []
    headings += [f"{label} {at}" for _, label, names in extra for at in names]
    headings += ["× search", "× explore"] if peer["ratio"] else []
    rows: list[list[Cell]] = []
    for kind, of in peer["latency"].items():
        row: list[Cell] = [_LABELS[kind], of["explore"]["n"]]
        for stage in ("search", "explore", "facet_overhead"):
            row += cells(of[stage])
        for stage, _, names in extra:
            row += cells(of[stage], names)
        if peer["ratio"]:
            row += [peer["ratio"].get(kind, {}).get(name) for name in ("search_p95", "explore_p95")]
        rows.append(row)
    return table(headings, rows)


def _remarks(name: str, peer: Row) -> list[str]:
    lines = [f"- {name} ran {peer['queries']} queries in {peer['budget_spent_seconds']:,.0f} s."]
    if peer["differs"]:
        lines.append(f"- It {peer['differs']}.")
    if peer["stages"]:
        stages = (f"{stage} {of['p50_ms']:,.1f} / {of['p95_ms']:,.1f}" for stage, of in peer["stages"].items())
        lines.append(f"- Stages of the first explore, p50 / p95: {', '.join(stages)}.")
    if peer["incomplete"]:
        lines.append(
            f"- {peer['incomplete']} answers reached SEARCH_FACET_TIMEOUT_MS and came without facets: the figures of"
            " explore are lower bounds."
        )
    agreed = peer["agreement"]
    if agreed and agreed["of_counts"]:
        lines.append(
            "- It agrees in {totals_filters} of {of_filters} totals without words and {totals_words} of {of_words} with"
            " words, in {counts_equal} of {of_counts} counts and {pages_equal} of {of_pages} pages without"
            " words.".format(**agreed)
        )
    return lines

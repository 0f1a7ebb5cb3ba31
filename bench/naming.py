"""The figures that everything else is measured for, each under a name that stays as it is."""

from collections.abc import Mapping

from bench.figures import PeerFigures, Ratio, Spread
from bench.measuring import KEYWORD, MIXED
from bench.peers import PEERS

# Who is compared with our fastest engine.
COMPARED = tuple(name for name in PEERS if name not in {"tantivy", "tantivy-engine"})
_LOADED = tuple(name for name in PEERS if name != "tantivy-engine")


def _key(peer: str) -> str:
    return peer.replace("-", "_")


# What each says, in the order of the tables.
FIGURES: dict[str, str] = {
    "facet_overhead_p50_ms": "facets add, p50 ms",
    "facet_overhead_p95_ms": "facets add, p95 ms",
    "explore_p50_ms": "explore, p50 ms",
    "explore_p95_ms": "explore, p95 ms",
    "explore_p99_ms": "explore, p99 ms",
    "explore_max_ms": "explore, max ms",
    "first_explore_p95_ms": "explore, the first time a query is asked, p95 ms",
    "first_explore_max_ms": "explore, the first time a query is asked, max ms",
    "keyword_search_p50_ms": "search by words, p50 ms",
    "keyword_search_p95_ms": "search by words, p95 ms",
    "page_p95_ms": "page, p95 ms",
    **{f"ratio_explore_p95_{_key(name)}": f"× {name}, explore at p95" for name in COMPARED},
    **{f"ratio_search_p95_{_key(name)}": f"× {name}, search at p95" for name in COMPARED},
    **{f"ratio_facet_overhead_p95_{_key(name)}": f"× {name}, facets at p95" for name in COMPARED},
    "ratio_engine_search_p95_tantivy_raw": "× tantivy-raw, the same work, search at p95",
    "ratio_engine_explore_p95_tantivy_raw": "× tantivy-raw, the same work, explore at p95",
    **{f"ratio_queries_{_key(name)}": f"queries compared with {name}" for name in COMPARED},
    "import_seconds": "import into Postgres, the index written meanwhile, s",
    "index_seconds": "then until the index is read, s",
    "import_rate": "import into Postgres, memories/s",
    "findable_rate": "import until findable, memories/s",
    "rebuild_seconds": "rebuild of the index, s",
    "edit_visible_p50_seconds": "a change is found, p50 s",
    "edit_visible_max_seconds": "a change is found, max s",
    "resident_mb": "memory of a process after the log, MB",
    "resident_private_mb": "of that its own, MB",
    **{f"disk_mb_{_key(name)}": f"on disk, {name}, MB" for name in _LOADED},
}


def named_figures(
    engine: str, peers: Mapping[str, PeerFigures], same_work: Ratio | None, alone: Mapping[str, float]
) -> dict[str, float | None]:
    """Every figure by its name; None for one that was not measured."""
    found: dict[str, float | None] = dict.fromkeys(FIGURES)
    mixed = peers[engine].latency[MIXED]
    keyword = peers[engine].latency[KEYWORD]
    for name, of, percentiles in (
        ("facet_overhead", mixed.facet_overhead, ("p50", "p95")),
        ("explore", mixed.explore, ("p50", "p95", "p99", "max")),
        ("first_explore", mixed.first_explore, ("p95", "max")),
        ("keyword_search", keyword.search, ("p50", "p95")),
        ("page", mixed.page, ("p95",)),
    ):
        found |= {f"{name}_{percentile}_ms": _at(of, percentile) for percentile in percentiles}
    for name, peer in peers.items():
        if name in _LOADED:
            found[f"disk_mb_{_key(name)}"] = round(peer.load.bytes["disk_bytes"] / 1e6, 1)
        if name in COMPARED and (ratio := peer.ratio.get(MIXED)):
            found[f"ratio_explore_p95_{_key(name)}"] = ratio.explore_p95
            found[f"ratio_search_p95_{_key(name)}"] = ratio.search_p95
            found[f"ratio_facet_overhead_p95_{_key(name)}"] = ratio.facet_overhead_p95
            found[f"ratio_queries_{_key(name)}"] = ratio.queries
    if "postgres" in peers:
        imported = peers["postgres"].load
        seconds = imported.seconds
        found |= {"import_seconds": seconds, "import_rate": imported.memories_per_second}
        if "tantivy" in peers:
            seconds += peers["tantivy"].load.seconds
            found["index_seconds"] = peers["tantivy"].load.seconds
        found["findable_rate"] = round(imported.memories / seconds, 1)
    if same_work:
        found["ratio_engine_search_p95_tantivy_raw"] = same_work.search_p95
        found["ratio_engine_explore_p95_tantivy_raw"] = same_work.explore_p95
    return found | dict(alone)


def _at(of: Spread | None, percentile: str) -> float | None:
    return None if of is None else float(getattr(of, f"{percentile}_ms"))

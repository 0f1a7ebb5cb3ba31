"""The reads of categories that agents use (the list, one category, its concepts), and the same in plain SQL.

The corpus is generated. Memories have numbers of chunks, as the worker records them, but no vectors, which nothing here
reads. Before anything is measured, the numbers of every category are compared with those of SQL.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connection
from django.test import override_settings

from access.viewer import Viewer, command_viewer
from categories.models import Category
from explorer.categories.reads import category_list, category_overview, concepts_in
from explorer.categories.schemas import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from explorer.categories.visible_tree import visible_tree
from lab.bench.peers.engines import load_engines
from lab.bench.runner import Benchmark, Job, clear_caches
from lab.bench.vectors import create_model
from lab.report import Cell, Row, cells, machine_load, number, percentiles, table, timed
from lab.sandbox import vacuum
from memories.models import Memory, Project
from memories.records import MemoryChanges
from memories.services import memory_update
from search.engines import select_engine
from search.engines.index import follower
from web.serving import steady_memory

_MAX_QUERIES = 300
# Writes before each read; fewer for postgres, which reads everything again after each of them.
_WRITES = {"tantivy": 30, "postgres": 5}
_COLD_READS = 5
# Plain SQL is slow, so it answers fewer requests.
_SQL_QUERIES = {"list": 2, "category": 15, "concepts": 15}
READS = ("list", "category", "concepts")
_PERCENTILES = ("p50", "p95", "p99")
_VISIBLE = "memory.state IN ('active', 'proposed') AND (%(all)s OR memory.project_id = ANY(%(projects)s))"
# Arrays of a memory hold its categories with all of their ancestors.
_LIST_SQL = (
    f"""
SELECT path, count(*), sum(coalesce(embedded.chunks, 0)) FROM memories_memory memory
CROSS JOIN unnest(memory.category_path_ids) path
LEFT JOIN memories_embeddedmemory embedded ON embedded.memory_id = memory.id AND embedded.model_id = 1
WHERE {_VISIBLE} GROUP BY path""",
    f"""
SELECT path, count(DISTINCT concept) FROM memories_memory memory
CROSS JOIN unnest(memory.category_path_ids) path CROSS JOIN unnest(memory.concept_ids) concept
WHERE {_VISIBLE} GROUP BY path""",
)
_INSIDE = f"FROM memories_memory memory WHERE {_VISIBLE} AND category_path_ids @> ARRAY[%(category)s]::int[]"
_CATEGORY_SQL = (
    f"SELECT count(*) {_INSIDE}",
    f"SELECT id, title, left(content, 800) {_INSIDE} ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
    f"SELECT concept, count(*) FROM (SELECT unnest(concept_ids) concept {_INSIDE}) found GROUP BY 1 ORDER BY 2 DESC",
    f"SELECT sum(chunks) FROM memories_embeddedmemory WHERE model_id = 1 AND memory_id IN (SELECT id {_INSIDE})",
)
_SQL = {"list": _LIST_SQL, "category": _CATEGORY_SQL, "concepts": (_CATEGORY_SQL[0], _CATEGORY_SQL[2])}

Read = Callable[[Viewer], object]


def run(job: Job, size: int) -> Row:
    if not job.sandbox.loaded:
        _load(job, size)
        job.sandbox.mark_loaded()
    follower.catch_up()
    draw = random.Random(job.options.seed)
    queries = min(job.options.queries, _MAX_QUERIES)
    projects = list(Project.objects.order_by("id").values_list("pk", flat=True))
    viewers = {
        "everything": command_viewer(),
        "two projects": Viewer(frozenset(projects[1:3]), frozenset(["read"])),
    }
    load_before = machine_load()
    rows: list[Row] = []
    cold: Row = {}
    steady_memory()
    for engine, writes in _WRITES.items():
        with override_settings(SEARCH_ENGINE=engine):
            for sees, viewer in viewers.items():
                job.progress.log(f"{engine}, a viewer of {sees}")
                _check_counts(viewer)
                reads = _reads(viewer, job.options.seed, queries)
                cold[f"{engine}, {sees}"] = percentiles([_time_cold(viewer) for _ in range(_COLD_READS)])
                warm = {read: _time_warm(asks, viewer) for read, asks in reads.items()}
                written = _time_after_writes(reads, viewer, draw, writes)
                rows += [_row(read, engine, sees, warm[read], written[read]) for read in READS]
    for sees, viewer in viewers.items():
        job.progress.log(f"plain SQL, a viewer of {sees}")
        rows += [_row(read, "plain SQL", sees, _time_sql(read, viewer, draw), []) for read in READS]
    return {
        "memories": size,
        "categories": Category.objects.count(),
        "queries": queries,
        "writes": _WRITES["tantivy"],
        "load_before": load_before,
        "load_after": machine_load(),
        "figures": _named(rows),
        "cold": cold,
        "reads": rows,
    }


def _row(read: str, by: str, viewer: str, warm: Sequence[float], after_write: Sequence[float]) -> Row:
    return {
        "read": read,
        "by": by,
        "viewer": viewer,
        "warm": percentiles(warm),
        "after_write": percentiles(after_write),
    }


def _named(rows: Sequence[Row]) -> dict[str, float]:
    """The named metrics: those of tantivy, of the viewer whose reads take longer."""
    named: dict[str, float] = {}
    for read in READS:
        candidates = [row for row in rows if row["read"] == read and row["by"] == "tantivy"]
        worst = max(candidates, key=lambda row: row["warm"]["p95_ms"])
        for when in ("warm", "after_write"):
            named |= {f"category_{read}_{when}_{name}_ms": worst[when][f"{name}_ms"] for name in _PERCENTILES}
    return named


def _load(job: Job, size: int) -> None:
    load_engines(job.generate_corpus(size)[1])
    create_model()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)"
            " SELECT id, 1, content_hash, CASE WHEN id % 8 = 0 THEN 3 ELSE 1 END FROM memories_memory"
        )
    vacuum()


def _reads(viewer: Viewer, seed: int, queries: int) -> dict[str, list[Read]]:
    """Requests, the same for every engine. Each level of the tree is asked for equally often."""
    draw = random.Random(seed)
    visible = visible_tree(select_engine(viewer), viewer)
    by_depth: dict[int, list[str]] = {}
    for node in visible.tree.ordered:
        if visible.is_visible(node.id):
            by_depth.setdefault(node.depth, []).append(node.path)

    def category() -> str:
        return draw.choice(by_depth[draw.choice(sorted(by_depth))])

    def part_of_name() -> str:
        return category().rpartition("/")[2][:3] if draw.random() < 0.4 else ""

    lists = [
        CategoryListRequest(
            sort_by=draw.choice(CATEGORY_SORTS),
            requested_limit=draw.choice((50, 200)),
            include_hierarchy=draw.random() < 0.5,
            filter=part_of_name(),
        )
        for _ in range(queries)
    ]
    overviews = [
        CategoryRequest(name=category(), include_children=draw.random() < 0.7, requested_limit=draw.choice((10, 50)))
        for _ in range(queries)
    ]
    concepts = [
        ConceptListRequest(name=category(), sort_by=draw.choice(CONCEPT_SORTS), include_children=True)
        for _ in range(queries)
    ]
    return {
        "list": [partial(category_list, request) for request in lists],
        "category": [partial(category_overview, request) for request in overviews],
        "concepts": [partial(concepts_in, request) for request in concepts],
    }


def _time_warm(reads: Sequence[Read], viewer: Viewer) -> list[float]:
    """Each request runs once before it is measured, so that the first does not fill caches for all others."""
    for read in reads:
        read(viewer)
    return [timed(read, viewer)[1] for read in reads]


def _time_cold(viewer: Viewer) -> float:
    """The first answer of a process."""
    clear_caches()
    return timed(category_list, CategoryListRequest(), viewer)[1]


def _time_after_writes(
    reads: dict[str, list[Read]], viewer: Viewer, draw: random.Random, writes: int
) -> dict[str, list[float]]:
    """The first answer after a memory has changed and the index has caught up, for each read in turn."""
    found: dict[str, list[float]] = {read: [] for read in READS}
    ids = list(Memory.objects.filter(state="active").order_by("id").values_list("pk", flat=True)[:2_000])
    for n in range(writes * len(READS)):
        memory = Memory.objects.get(pk=draw.choice(ids))
        # Values that no earlier run has written, which would change nothing.
        changes = MemoryChanges(concepts=[f"bench {n % 7}", "bench"], tags=[f"bench-{time.time_ns()}"])
        memory_update(memory_id=memory.pk, changes=changes, viewer=command_viewer())
        follower.catch_up()
        read = READS[n % len(READS)]
        found[read].append(timed(draw.choice(reads[read]), viewer)[1])
    return found


def _time_sql(read: str, viewer: Viewer, draw: random.Random) -> list[float]:
    ids = list(Category.objects.filter(depth__lte=3).order_by("id").values_list("pk", flat=True))
    parameters = {**_visibility(viewer), "limit": 10}
    return [
        timed(_rows, _SQL[read], {**parameters, "category": draw.choice(ids)})[1] for _ in range(_SQL_QUERIES[read])
    ]


def _visibility(viewer: Viewer) -> dict[str, Any]:
    return {"all": viewer.project_ids is None, "projects": sorted(viewer.project_ids or ())}


def _rows(statements: Sequence[str], parameters: dict[str, Any]) -> list[list[Any]]:
    """The rows of each statement."""
    found = []
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, parameters)
            found.append(cursor.fetchall())
    return found


def _check_counts(viewer: Viewer) -> None:
    """Raise RuntimeError if the engine counts any category otherwise than SQL."""
    memories, concepts = _rows(_LIST_SQL, _visibility(viewer))
    concepts_by_id = dict(concepts)
    expected = {pk: (count, int(chunks), concepts_by_id.get(pk, 0)) for pk, count, chunks in memories}
    visible = visible_tree(select_engine(viewer), viewer)
    counted = {node.id: visible.counts.numbers(node.id) for node in visible.tree.ordered}
    wrong = [pk for pk, n in counted.items() if (n.memories, n.chunks, n.concepts) != expected.get(pk, (0, 0, 0))]
    if wrong:
        raise RuntimeError(f"{len(wrong)} categories are counted otherwise by SQL, {wrong[0]} first")


def lines(name: str, found: Row) -> list[str]:
    rows: list[list[Cell]] = [
        [
            row["read"],
            row["by"],
            row["viewer"],
            *cells(row["warm"], _PERCENTILES),
            *cells(row["after_write"], _PERCENTILES),
        ]
        for row in found["reads"]
    ]
    cold = ", ".join(f"{of} {number(times['p50_ms'])}" for of, times in found["cold"].items())
    headings = ["read", "by", "sees", *_PERCENTILES, *(f"{name}, after a write" for name in _PERCENTILES)]
    return [
        f"### {found['categories']:,} categories of {found['memories']:,} memories",
        "",
        f"{found['queries']} queries a read, {found['writes']} writes; load of the machine {found['load_before']}"
        f" before, {found['load_after']} after them. Milliseconds. The first answer of a process: {cold}.",
        "",
        *table(headings, rows),
    ]


BENCHMARK = Benchmark(
    "categories", run, lines, "MEMORIES", "the reads of categories in a corpus of this size", limits=(100, 100_000_000)
)

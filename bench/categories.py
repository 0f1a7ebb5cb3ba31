"""Categories as agents ask for them: the list, one with all that is in it, its concepts; and the same in plain SQL.

Memories of the generator in a database of their own. How many chunks each has is written down as the worker does, but
without the vectors, which nothing here reads. The numbers of every category are compared with those of SQL before
anything is measured.
"""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.test import override_settings

from access.viewer import Viewer, command_viewer
from bench.corpus import Corpus, write_records
from bench.database import bench_database, mark_loaded, tidy_database
from bench.figures import CategoryFigures, CategoryRead, Spread, spread
from bench.machine import machine_load
from bench.peers.engines import PostgresPeer, TantivyPeer, forget_index, indexer
from bench.telling import Teller
from categories import names, vocabulary_cache
from categories.models import Category
from explorer.category_reads import category_list, category_overview, concepts_in
from explorer.category_requests import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from explorer.visible_tree import visible_tree
from memories.models import EmbeddingModel, Memory, Project
from memories.records import MemoryChanges
from memories.services import memory_update
from search import category_counts
from search.engines import postgres_columns, select_engine
from web.serving import steady_memory

_QUERIES = 300
# Of each read; of the engine that reads everything anew after each of them, fewer.
_WRITES = {"tantivy": 30, "postgres": 5}
_COLD = 5
# So many of the requests are asked of the statements, which take long.
_BY_SQL = 15
READS = ("list", "category", "concepts")
_SHOWN = "memory.state IN ('active', 'proposed') AND (%(all)s OR memory.project_id = ANY(%(projects)s))"
# What a careful developer would write: the arrays of the memories, which have every category above too.
_LIST_SQL = (
    f"""
SELECT path, count(*), sum(coalesce(embedded.chunks, 0)) FROM memories_memory memory
CROSS JOIN unnest(memory.category_path_ids) path
LEFT JOIN memories_embeddedmemory embedded ON embedded.memory_id = memory.id AND embedded.model_id = 1
WHERE {_SHOWN} GROUP BY path""",
    f"""
SELECT path, count(DISTINCT concept) FROM memories_memory memory
CROSS JOIN unnest(memory.category_path_ids) path CROSS JOIN unnest(memory.concept_ids) concept
WHERE {_SHOWN} GROUP BY path""",
)
_INSIDE = f"FROM memories_memory memory WHERE {_SHOWN} AND category_path_ids @> ARRAY[%(category)s]::int[]"
_CATEGORY_SQL = (
    f"SELECT count(*) {_INSIDE}",
    f"SELECT id, title, left(content, 800) {_INSIDE} ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
    f"SELECT concept, count(*) FROM (SELECT unnest(concept_ids) concept {_INSIDE}) found GROUP BY 1 ORDER BY 2 DESC",
    "SELECT sum(chunks) FROM memories_embeddedmemory WHERE model_id = 1 AND memory_id IN (SELECT id " + _INSIDE + ")",
)
_CONCEPTS_SQL = (_CATEGORY_SQL[0], _CATEGORY_SQL[2])

Ask = Callable[[Viewer], object]


def measure_categories(size: int, seed: int, teller: Teller, *, keep: bool) -> CategoryFigures:
    """Generate, load, measure, and leave nothing behind unless asked to."""
    work = Path(settings.HOME) / "bench" / f"categories-{size}-{seed}"
    name, contents = f"bench_categories_{size}", f"seed {seed}"
    if not keep:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        with (
            override_settings(SEARCH_INDEX=work / "index"),
            bench_database(name, keep=keep, contents=contents, reuse=keep) as is_there,
        ):
            if not is_there:
                _load(Corpus(size, seed), work, teller)
                mark_loaded(name, contents)
            indexer().catch_up()
            return _measured(size, seed, teller)
    finally:
        _forget()
        forget_index()
        if not keep:
            shutil.rmtree(work, ignore_errors=True)


def _load(corpus: Corpus, work: Path, teller: Teller) -> None:
    shutil.rmtree(settings.SEARCH_INDEX, ignore_errors=True)
    path = work / "corpus.jsonl.gz"
    teller.say(f"generating {corpus.size:,} memories")
    write_records(corpus.records(), path)
    database, index = PostgresPeer(work), TantivyPeer(work)
    teller.say("loading them")
    database.load(path)
    index.load(path)
    EmbeddingModel.objects.create(
        id=1, name="bench", source="bench", dimensions=384, min_similarity=0.3, state=EmbeddingModel.State.SERVING
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)"
            " SELECT id, 1, content_hash, CASE WHEN id %% 8 = 0 THEN 3 ELSE 1 END FROM memories_memory",
            [],
        )
    tidy_database()


def _measured(size: int, seed: int, teller: Teller) -> CategoryFigures:
    draw = random.Random(seed)
    everyone = command_viewer()
    projects = list(Project.objects.order_by("id").values_list("pk", flat=True))
    viewers = {"everything": everyone, "two projects": Viewer(frozenset(projects[1:3]), frozenset(["read"]))}
    busy = [machine_load()]
    reads: list[CategoryRead] = []
    cold: dict[str, Spread | None] = {}
    steady_memory()
    for engine in ("tantivy", "postgres"):
        with override_settings(SEARCH_ENGINE=engine):
            for told, viewer in viewers.items():
                teller.say(f"{engine}, a viewer of {told}")
                _compare(viewer)
                requests = _requests(viewer, seed)
                cold[f"{engine}, {told}"] = spread([_cold(viewer) for _ in range(_COLD)])
                warm = {read: _warm(asks, viewer) for read, asks in requests.items()}
                changed = _after_writes(requests, viewer, draw, _WRITES[engine])
                reads += [CategoryRead(read, engine, told, spread(warm[read]), spread(changed[read])) for read in READS]
    for told, viewer in viewers.items():
        teller.say(f"plain SQL, a viewer of {told}")
        reads += [CategoryRead(read, "plain SQL", told, spread(_by_sql(read, viewer, draw)), None) for read in READS]
    busy.append(machine_load())
    worst = {read: max((one for one in reads if one.read == read and one.by == "tantivy"), key=_p95) for read in READS}
    return CategoryFigures(
        memories=size,
        categories=Category.objects.count(),
        queries=_QUERIES,
        writes=_WRITES["tantivy"],
        load_before=busy[0],
        load_after=busy[1],
        figures={
            f"category_{read}_{what}_{at}": getattr(of, at)
            for read, one in worst.items()
            for what, of in (("warm", one.warm), ("after_write", one.after_write))
            if of
            for at in ("p50_ms", "p95_ms", "p99_ms")
        },
        cold=cold,
        reads=reads,
    )


def _p95(one: CategoryRead) -> float:
    return one.warm.p95_ms if one.warm else 0.0


def _requests(viewer: Viewer, seed: int) -> dict[str, list[Ask]]:
    """What is asked: roots and what is below them as often as leaves, of which there are many more. The same for every
    engine.
    """
    draw = random.Random(seed)
    known = visible_tree(select_engine(viewer), viewer)
    by_depth: dict[int, list[str]] = {}
    for node in known.tree.ordered:
        if known.is_visible(node.id):
            by_depth.setdefault(node.depth, []).append(node.path)

    def some() -> str:
        return draw.choice(by_depth[draw.choice(sorted(by_depth))])

    def part() -> str:
        return some().rpartition("/")[2][:3] if draw.random() < 0.4 else ""

    lists = [
        CategoryListRequest(draw.choice(CATEGORY_SORTS), draw.choice((50, 200)), draw.random() < 0.5, part())
        for _ in range(_QUERIES)
    ]
    searches = [CategoryRequest(some(), draw.random() < 0.7, False, draw.choice((10, 50))) for _ in range(_QUERIES)]
    concepts = [ConceptListRequest(some(), draw.choice(CONCEPT_SORTS), 50, True) for _ in range(_QUERIES)]
    return {
        "list": [partial(category_list, asked) for asked in lists],
        "category": [partial(category_overview, asked) for asked in searches],
        "concepts": [partial(concepts_in, asked) for asked in concepts],
    }


def _warm(asks: Sequence[Ask], viewer: Viewer) -> list[float]:
    """Each is asked before it is measured, or whoever comes first would read the pages of all who come after."""
    for ask in asks:
        ask(viewer)
    return [_timed(ask, viewer) for ask in asks]


def _timed(ask: Ask, viewer: Viewer) -> float:
    begin = time.perf_counter()
    ask(viewer)
    return time.perf_counter() - begin


def _cold(viewer: Viewer) -> float:
    """As the first answer of a process is."""
    _forget()
    return _timed(lambda viewer: category_list(CategoryListRequest(), viewer), viewer)


def _forget() -> None:
    for kept in (category_counts, vocabulary_cache, names, postgres_columns):
        kept.forget()


def _after_writes(
    requests: dict[str, list[Ask]], viewer: Viewer, draw: random.Random, writes: int
) -> dict[str, list[float]]:
    """The first answer after a memory was changed and the index has taken it in; each read takes its turns."""
    found: dict[str, list[float]] = {read: [] for read in READS}
    ids = list(Memory.objects.filter(state="active").order_by("id").values_list("pk", flat=True)[:2_000])
    for n in range(writes * len(READS)):
        memory = Memory.objects.get(pk=draw.choice(ids))
        # Never what an earlier run has written: that would change nothing.
        changes = MemoryChanges(concepts=[f"bench {n % 7}", "bench"], tags=[f"bench-{time.time_ns()}"])
        memory_update(memory_id=memory.pk, changes=changes, viewer=command_viewer())
        indexer().catch_up()
        read = READS[n % len(READS)]
        found[read].append(_timed(draw.choice(requests[read]), viewer))
    return found


def _bound(viewer: Viewer) -> dict[str, Any]:
    return {"all": viewer.project_ids is None, "projects": sorted(viewer.project_ids or ())}


def _by_sql(read: str, viewer: Viewer, draw: random.Random) -> list[float]:
    ids = list(Category.objects.filter(depth__lte=3).order_by("id").values_list("pk", flat=True))
    seconds = []
    statements = {"list": _LIST_SQL, "category": _CATEGORY_SQL, "concepts": _CONCEPTS_SQL}[read]
    for _ in range(2 if read == "list" else _BY_SQL):
        asked = {**_bound(viewer), "category": draw.choice(ids), "limit": 10}
        begin = time.perf_counter()
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, asked)
                cursor.fetchall()
        seconds.append(time.perf_counter() - begin)
    return seconds


def _compare(viewer: Viewer) -> None:
    """Nothing is measured that is not right."""
    with connection.cursor() as cursor:
        cursor.execute(_LIST_SQL[1], _bound(viewer))
        concepts: dict[int, int] = dict(cursor.fetchall())
        cursor.execute(_LIST_SQL[0], _bound(viewer))
        stated: dict[int, tuple[int, ...]] = {
            pk: (memories, int(chunks), concepts.get(pk, 0)) for pk, memories, chunks in cursor.fetchall()
        }
    found = visible_tree(select_engine(viewer), viewer)
    wrong = _differences(stated, found.counts, [node.id for node in found.tree.ordered])
    if wrong:
        raise RuntimeError(f"{len(wrong)} categories are counted otherwise by SQL, {wrong[0]} first")


def _differences(
    stated: dict[int, tuple[int, ...]], counted: category_counts.CategoryCounts, ids: Sequence[int]
) -> list[int]:
    found = {pk: counted.numbers(pk) for pk in ids}
    return [pk for pk, n in found.items() if (n.memories, n.chunks, n.concepts) != stated.get(pk, (0, 0, 0))]

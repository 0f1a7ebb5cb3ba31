"""Our own engines, measured through `run` as every page goes through it: database, viewer, snippets and all."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.test import override_settings

from access.viewer import command_viewer
from bench.database import database_sizes
from bench.peers.base import Answer, PeerUnavailableError, folder_bytes
from categories import names
from memories.models import Memory
from search import baseline_counts as kept_counts
from search.engines import engine_named
from search.engines.base import EngineUnavailableError, FacetRequest
from search.facets import FACETS, STATES
from search.plan import ResolvedQuery, resolve_query
from search.query import SearchQuery
from search.result import SearchResult
from search.run import run
from search.warmup import warm


class PostgresPeer:
    """The protocol of `bench.peers.base`, over the database that the bench has made."""

    name = "postgres"
    about = "the postgres engine: everything from the database"
    differs = ""

    def __init__(self, folder: Path) -> None:
        self._viewer = command_viewer()

    def load(self, corpus: Path) -> None:
        call_command("import_memories", str(corpus), stdout=sys.stderr)

    def open(self) -> None:
        try:
            engine_named(self.name)
        except (KeyError, EngineUnavailableError) as error:
            raise PeerUnavailableError(f"the {self.name} engine cannot answer: {error}") from error

    def check(self, size: int) -> None:
        """That all memories are there, and the last of the file answers to a word."""
        everything = SearchQuery.from_pairs([("state", state) for state in STATES])
        with self.turn():
            found = self.answer(everything.model_copy(update={"text": f"bench-{size:08d}"}), False).total
            total = self.answer(everything, False).total
        if not found or total != size:
            raise RuntimeError(f"{size:,} memories were imported, and the {self.name} engine finds {total:,}")

    @contextmanager
    def turn(self) -> Iterator[None]:
        with override_settings(SEARCH_ENGINE=self.name):
            yield

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        result = run(query.model_copy(update={"include_facets": facets}), self._viewer)
        if result.engine != self.name:
            raise RuntimeError(f"The {result.engine} engine answered instead of {self.name}: {query.querystring()}")
        return _as_answer(result)

    def forget(self) -> None:
        """What any change anywhere does to what is kept of the whole corpus and of names."""
        kept_counts.clear_cache()
        names.forget()

    def size_bytes(self) -> int:
        return database_sizes()["database_bytes"]

    def close(self) -> None:
        self.forget()


class TantivyPeer(PostgresPeer):
    """The derived index on top of the same database."""

    name = "tantivy"
    about = "the tantivy engine: words and columns from the derived index, rows from the database"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        keeper = indexer()
        if not Memory.objects.exists():
            # An index of nothing: from here on changes are written down for it, as for one that is in use.
            keeper.catch_up()

    def load(self, corpus: Path) -> None:
        indexer().catch_up()

    def open(self) -> None:
        indexer().catch_up()
        super().open()
        # As a server does when it begins.
        with self.turn():
            warm()

    def size_bytes(self) -> int:
        return folder_bytes(Path(settings.SEARCH_INDEX))

    def close(self) -> None:
        super().close()
        forget_index()


class TantivyEnginePeer:
    """The derived index asked for ids and numbers, with all names resolved before: the work that raw tantivy does."""

    name = "tantivy-engine"
    about = "the tantivy engine alone, beneath `run`: ids and counts, no rows, labels or snippets"
    differs = "does what tantivy-raw does and some more: no value, own counts, date buckets, days instead of months"

    def __init__(self, folder: Path) -> None:
        indexer()
        self._viewer = command_viewer()
        self._planned: dict[str, ResolvedQuery] = {}

    def load(self, corpus: Path) -> None:
        """It is the index that the engine has."""

    def open(self) -> None:
        indexer().catch_up()
        try:
            engine_named("tantivy")
        except (KeyError, EngineUnavailableError) as error:
            raise PeerUnavailableError(f"the tantivy engine cannot answer: {error}") from error

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        engine = engine_named("tantivy")
        now = datetime.now(UTC)
        key = query.querystring()
        if key not in self._planned:
            self._planned[key] = resolve_query(engine, query, self._viewer, now)
        resolved = self._planned[key]
        if facets:
            requests = [FacetRequest(spec.key, spec.limit) for spec in FACETS]
            total = engine.counts(resolved.plan, requests, zone=resolved.zone, now=now).summary.total
        else:
            total = engine.summary(resolved.plan, no_values=False).total
        engine.hits(resolved.plan, query.order, limit=query.page_size, offset=(query.page - 1) * query.page_size)
        return Answer(total, ())

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._planned.clear()


def indexer() -> Any:
    """What keeps the derived index. Raises PeerUnavailableError where this version has none."""
    try:
        return importlib.import_module("search.engines.index.follower")
    except ImportError as error:
        raise PeerUnavailableError(f"the tantivy engine is not available: {error}") from error


def forget_index() -> None:
    """Let go of the index that this process reads, so that the next one is not taken for it."""
    try:
        store: Any = importlib.import_module("search.engines.index.store")
        words: Any = importlib.import_module("search.engines.index.match")
    except ImportError:
        return
    store.forget_view()
    # What is kept of words goes by the name of the generation, which is the same in the next index.
    words.word_sets.forget()


def _as_answer(result: SearchResult) -> Answer:
    facets = result.facets or ()
    missing = [facet.key for facet in facets if facet.unavailable]
    return Answer(
        total=result.total,
        ids=tuple(hit.external_id for hit in result.hits),
        facets={facet.key: {value.value: value.count for value in facet.values} for facet in facets},
        incomplete=", ".join(missing),
        stages=result.timings,
    )

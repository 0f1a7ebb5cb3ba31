"""Our own engines, measured through `run` as every page uses it: database, viewer and snippets included."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from access.viewer import command_viewer
from categories import names
from lab.bench.peers.base import Answer, Peer, PeerUnavailableError, folder_bytes
from memories.models import Memory
from search import baseline_counts
from search.engines import engine_named
from search.engines.base import EngineUnavailableError, FacetRequest
from search.engines.index import follower
from search.facets import FACETS, STATES
from search.plan import ResolvedQuery, resolve_query
from search.query import SearchQuery
from search.run import run
from search.warmup import warm


class OtherEngineError(RuntimeError):
    """Another engine answered than the one that is measured."""


class PostgresPeer(Peer):
    """The postgres engine, over the database of the benchmark."""

    name = "postgres"
    about = "the postgres engine: everything from the database"

    def __init__(self, folder: Path) -> None:
        self._viewer = command_viewer()

    def load(self, corpus: Path) -> None:
        call_command("import_memories", str(corpus), stdout=sys.stderr)

    def open(self) -> None:
        _check_available(self.name)

    def check(self, size: int) -> None:
        """Check that all memories are there, and that a word finds the last of the file."""
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
            raise OtherEngineError(f"The {result.engine} engine answered instead of {self.name}: {query.querystring()}")
        counted = result.facets or ()
        return Answer(
            total=result.total,
            ids=tuple(hit.external_id for hit in result.hits),
            facets={facet.key: {value.value: value.count for value in facet.values} for facet in counted},
            incomplete=", ".join(facet.key for facet in counted if facet.unavailable),
            stages=result.timings,
        )

    def clear_caches(self) -> None:
        """Forget the counts of the whole corpus and the names, as after any change anywhere."""
        baseline_counts.cache.clear()
        names.cache.clear()

    def size_bytes(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])

    def close(self) -> None:
        self.clear_caches()


class TantivyPeer(PostgresPeer):
    """The derived index on top of the same database."""

    name = "tantivy"
    about = "the tantivy engine: words and columns from the derived index, rows from the database"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not Memory.objects.exists():
            # An empty index, which records changes from here on as an index in use does.
            follower.catch_up()

    def load(self, corpus: Path) -> None:
        follower.catch_up()

    def open(self) -> None:
        follower.catch_up()
        super().open()
        # As a server does when it starts.
        with self.turn():
            warm()

    def size_bytes(self) -> int:
        return folder_bytes(Path(settings.SEARCH_INDEX))


class TantivyEnginePeer(Peer):
    """The derived index beneath `run`, with all names resolved in advance: the work that raw tantivy does."""

    name = "tantivy-engine"
    about = "the tantivy engine alone, beneath `run`: ids and counts, no rows, labels or snippets"
    differs = "does what tantivy-raw does and more: no value, own counts, date buckets, days instead of months"

    def __init__(self, folder: Path) -> None:
        self._viewer = command_viewer()
        self._plans: dict[str, ResolvedQuery] = {}

    def load(self, corpus: Path) -> None:
        """The index of the tantivy engine is all it needs."""

    def open(self) -> None:
        follower.catch_up()
        _check_available("tantivy")

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        engine = engine_named("tantivy")
        now = datetime.now(UTC)
        key = query.querystring()
        if key not in self._plans:
            self._plans[key] = resolve_query(engine, query, self._viewer, now)
        resolved = self._plans[key]
        if facets:
            requests = [FacetRequest(spec.key, spec.limit) for spec in FACETS]
            total = engine.counts(resolved.plan, requests, zone=resolved.zone, now=now).summary.total
        else:
            total = engine.match([resolved.plan])[0].total
        engine.hits(resolved.plan, query.order, limit=query.page_size, offset=(query.page - 1) * query.page_size)
        return Answer(total, ())

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._plans.clear()


def load_engines(corpus: Path) -> TantivyPeer:
    """Load a corpus into both of our engines."""
    database, index = PostgresPeer(corpus.parent), TantivyPeer(corpus.parent)
    database.load(corpus)
    index.load(corpus)
    return index


def _check_available(name: str) -> None:
    try:
        engine_named(name)
    except (KeyError, EngineUnavailableError) as error:
        raise PeerUnavailableError(f"the {name} engine cannot answer: {error}") from error

"""SQLite with FTS5 and GROUP BY: what a careful developer builds without a search engine, and what Datasette stands on.

One row per memory, link tables without row ids and with an index each way, every ancestor of a category written out.
"""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.corpus import Record, read_records
from bench.peers.base import CATEGORY_LIMIT, EXCERPT, MULTIPLE, SINGLE, Answer, values_of, words_of
from search.facets import FACET
from search.query import SearchQuery, Sort

_BATCH = 5_000

_SCHEMA = """
CREATE TABLE memory (
  id INTEGER PRIMARY KEY, external_id TEXT NOT NULL, title TEXT NOT NULL, content TEXT NOT NULL, tags TEXT NOT NULL,
  project TEXT NOT NULL, type TEXT NOT NULL, agent TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL,
  created_at INTEGER NOT NULL, month TEXT NOT NULL
);
CREATE VIRTUAL TABLE memory_words USING fts5(
  title, tags, content, content='memory', content_rowid='id', tokenize='porter unicode61'
);
"""
_LINK_SCHEMA = """
CREATE TABLE {key} (id INTEGER PRIMARY KEY, value TEXT NOT NULL UNIQUE);
CREATE TABLE memory_{key} (
  memory_id INTEGER NOT NULL, {key}_id INTEGER NOT NULL, PRIMARY KEY (memory_id, {key}_id)
) WITHOUT ROWID;
"""
# Made once everything is in, as one does with a bulk load.
_INDEXES = (
    *(f"CREATE INDEX memory_{column} ON memory ({column}, created_at, id)" for column in SINGLE),
    *(f"CREATE INDEX {key}_memory ON memory_{key} ({key}_id, memory_id)" for key in MULTIPLE),
    "CREATE INDEX memory_created ON memory (created_at, id)",
    "INSERT INTO memory_words (memory_words) VALUES ('rebuild')",
    "INSERT INTO memory_words (memory_words) VALUES ('optimize')",
    "ANALYZE",
)
_ORDERS = {
    Sort.RELEVANCE: "bm25(memory_words, 6.0, 4.0, 1.0), m.created_at DESC, m.id DESC",
    Sort.NEWEST: "m.created_at DESC, m.id DESC",
    Sort.OLDEST: "m.created_at, m.id",
}


@dataclass(slots=True)
class _Where:
    """Conditions by the facet they come from, so that a facet can be counted without its own."""

    words: str = ""
    conditions: dict[str, tuple[str, list[object]]] = field(default_factory=dict)

    def clause(self, without: str = "") -> tuple[str, list[object]]:
        """FROM and WHERE, and their parameters."""
        tables, texts, values = "memory m", [], list[object]()
        if self.words:
            tables = "memory_words JOIN memory m ON m.id = memory_words.rowid"
            texts.append("memory_words MATCH ?")
            values.append(self.words)
        for key, (text, bound) in self.conditions.items():
            if key != without:
                texts.append(text)
                values += bound
        return f"FROM {tables} WHERE {' AND '.join(texts) or 'true'}", values


class SqlitePeer:
    """The protocol of `bench.peers.base`."""

    name = "sqlite"
    about = f"SQLite {sqlite3.sqlite_version}, FTS5 (porter) and GROUP BY facets"
    differs = (
        "does less: no snippets, no 'no value' and own counts, no date buckets, bars by month only; its words are "
        "porter stems of title, tags and content, and the rule of how many words must match is written out for it"
    )

    def __init__(self, folder: Path) -> None:
        self._path = folder / "peer.sqlite3"
        self._db = sqlite3.connect(self._path)
        self._memories = 0
        self._ids: dict[str, dict[str, int]] = {key: {} for key in MULTIPLE}

    def load(self, corpus: Path) -> None:
        # A bulk load that is simply done again when it fails needs no journal.
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")
        self._db.executescript(_SCHEMA + "".join(_LINK_SCHEMA.format(key=key) for key in MULTIPLE))
        rows = enumerate(read_records(corpus), 1)
        while batch := list(itertools.islice(rows, _BATCH)):
            self._insert(batch)
        for statement in _INDEXES:
            self._db.execute(statement)
        self._db.commit()

    def open(self) -> None:
        self._memories = self._db.execute("SELECT count(*) FROM memory").fetchone()[0]
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA mmap_size = 4294967296; PRAGMA temp_store = MEMORY;"
            "CREATE TEMP TABLE matched (id INTEGER PRIMARY KEY)"
        )

    def _insert(self, batch: list[tuple[int, Record]]) -> None:
        links: dict[str, list[tuple[int, int]]] = {key: [] for key in MULTIPLE}
        memories = []
        for number, record in batch:
            moment = datetime.fromisoformat(record["created_at"])
            memories.append(
                (
                    number, record["id"], record["title"], record["content"], " ".join(record["tags"]),
                    record["project"], record["type"], record.get("agent", ""), record["source"], record["state"],
                    int(moment.timestamp()), record["created_at"][:7],
                )
            )  # fmt: skip
            for key, values in values_of(record).items():
                links[key] += [(number, self._value_id(key, value)) for value in values]
        self._db.executemany(f"INSERT INTO memory VALUES ({', '.join('?' * 12)})", memories)
        for key, pairs in links.items():
            self._db.executemany(f"INSERT INTO memory_{key} VALUES (?, ?)", pairs)

    def _value_id(self, key: str, value: str) -> int:
        known = self._ids[key]
        if value not in known:
            known[value] = len(known) + 1
            self._db.execute(f"INSERT INTO {key} VALUES (?, ?)", (known[value], value))
        return known[value]

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        where = _where(query)
        source, values = where.clause()
        if facets:
            # The matches once, for all facets that do not leave their own filter out.
            self._db.execute("DELETE FROM matched")
            self._db.execute(f"INSERT INTO matched SELECT m.id {source} ORDER BY m.id", values)
            total = int(self._db.execute("SELECT count(*) FROM matched").fetchone()[0])
        else:
            total = int(self._db.execute(f"SELECT count(*) {source}", values).fetchone()[0])
        offset = (query.page - 1) * query.page_size
        page = self._db.execute(
            f"SELECT m.external_id, m.title, substr(m.content, 1, {EXCERPT}) {source}"
            f" ORDER BY {_ORDERS[query.order]} LIMIT ? OFFSET ?",
            [*values, query.page_size, offset],
        ).fetchall()
        counted = dict(self._facets(where, total)) if facets else None
        return Answer(total, tuple(str(row[0]) for row in page), counted)

    def _facets(self, where: _Where, total: int) -> Iterator[tuple[str, dict[str, int]]]:
        # CROSS JOIN is how SQLite is told to go from the matches to their links. Its own choice is to scan the links,
        # which is only right where nearly everything matches.
        join = "CROSS JOIN" if total < 0.5 * self._memories else "JOIN"
        for key in (*SINGLE, *MULTIPLE, "date"):
            if key in where.conditions and key != "state":
                source, values = where.clause(without=key)
                matched = f"(SELECT m.id {source})"
            else:
                matched, values = "matched", []
            if key in MULTIPLE:
                statement = (
                    f"SELECT v.value, g.n FROM (SELECT l.{key}_id AS id, count(*) AS n FROM {matched} s"
                    f" {join} memory_{key} l ON l.memory_id = s.id GROUP BY 1 ORDER BY 2 DESC LIMIT ?) g"
                    f" JOIN {key} v ON v.id = g.id"
                )
                limit = CATEGORY_LIMIT if key == "category" else FACET[key].limit
            else:
                column = "month" if key == "date" else key
                statement = (
                    f"SELECT m.{column}, count(*) FROM {matched} s {join} memory m ON m.id = s.id"
                    " GROUP BY 1 ORDER BY 2 DESC LIMIT ?"
                )
                limit = 1_000 if key == "date" else FACET[key].limit
            yield key, dict(self._db.execute(statement, [*values, limit]).fetchall())

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._db.close()


def _where(query: SearchQuery) -> _Where:
    where = _Where(words=_fts_expression(query.text))
    where.conditions["state"] = ("m.state IN ('active', 'proposed')", [])
    for key, selection in query.selections().items():
        marks = ", ".join("?" * len(selection.include))
        if key in SINGLE:
            text = f"m.{key} IN ({marks})"
        else:
            text = (
                f"m.id IN (SELECT memory_id FROM memory_{key}"
                f" WHERE {key}_id IN (SELECT id FROM {key} WHERE value IN ({marks})))"
            )
        where.conditions[key] = (text, list(selection.include))
    start, end = query.period(UTC, datetime.now(UTC))
    bounds = [(sign, int(moment.timestamp())) for sign, moment in ((">=", start), ("<", end)) if moment]
    if bounds:
        text = " AND ".join(f"m.created_at {sign} ?" for sign, _ in bounds)
        where.conditions["date"] = (text, [second for _, second in bounds])
    return where


def _fts_expression(text: str) -> str:
    """The same rule of matching as a boolean expression: phrases whole, and enough of the words but the stopwords."""
    asked = words_of(text)
    if asked.phrase:
        return f'"{" ".join(asked.phrase)}"'
    enough = itertools.combinations((f'"{word}"' for word in asked.words), asked.need)
    return " OR ".join(f"({' AND '.join(some)})" for some in enough) if asked.words else ""

"""SQLite with FTS5 and GROUP BY: the usual design without a search engine, and the base of Datasette.

One row per memory, link tables without row ids and with an index in each direction, and links to every ancestor of a
category.
"""

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.bench.corpus import Record, read_records
from lab.bench.peers.base import (
    EXCERPT,
    FACET_KEYS,
    MULTIPLE,
    SINGLE,
    Answer,
    Peer,
    Sql,
    columns_of,
    facet_limit,
    sql_conditions,
    sql_marks,
    sql_source,
    values_of,
    words_of,
)
from search.query import SearchQuery, Sort

_BATCH = 5_000

_SCHEMA = """
CREATE TABLE memory (
  id INTEGER PRIMARY KEY, external_id TEXT NOT NULL, title TEXT NOT NULL, content TEXT NOT NULL,
  project TEXT NOT NULL, type TEXT NOT NULL, agent TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL,
  created_at INTEGER NOT NULL, month TEXT NOT NULL, tags TEXT NOT NULL
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
# Made after the bulk load, which is faster.
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


class SqlitePeer(Peer):
    """SQLite in one file."""

    name = "sqlite"
    about = f"SQLite {sqlite3.sqlite_version}, FTS5 (porter) and GROUP BY facets"
    differs = (
        "does less: no snippets, no 'no value' and own counts, no date buckets, bars by month only; its words are "
        "porter stems of title, tags and content, and how many of them must match is a boolean expression"
    )

    def __init__(self, folder: Path) -> None:
        self._path = folder / "peer.sqlite3"
        self._db = sqlite3.connect(self._path)
        self._memories = 0
        self._ids: dict[str, dict[str, int]] = {key: {} for key in MULTIPLE}

    def load(self, corpus: Path) -> None:
        # A bulk load is repeated when it fails, so it needs no journal.
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
            memories.append((*columns_of(number, record).values(), " ".join(record["tags"])))
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

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        conditions = _conditions(query)
        source = _source(conditions)
        if facets:
            # The matches once, for all facets without a filter of their own.
            self._db.execute("DELETE FROM matched")
            self._db.execute(f"INSERT INTO matched SELECT m.id {source.text} ORDER BY m.id", source.values)
            total = int(self._db.execute("SELECT count(*) FROM matched").fetchone()[0])
        else:
            total = int(self._db.execute(f"SELECT count(*) {source.text}", source.values).fetchone()[0])
        page = self._db.execute(
            f"SELECT m.external_id, m.title, substr(m.content, 1, {EXCERPT}) {source.text}"
            f" ORDER BY {_ORDERS[query.order]} LIMIT ? OFFSET ?",
            (*source.values, query.page_size, (query.page - 1) * query.page_size),
        ).fetchall()
        counted = dict(self._facets(conditions, total)) if facets else None
        return Answer(total, tuple(str(row[0]) for row in page), counted)

    def _facets(self, conditions: dict[str, Sql], total: int) -> Iterator[tuple[str, dict[str, int]]]:
        # CROSS JOIN makes SQLite go from the matches to their links. By itself it scans the links, which is faster only
        # if nearly everything matches.
        join = "CROSS JOIN" if total < 0.5 * self._memories else "JOIN"
        for key in FACET_KEYS:
            matched, values = "matched", tuple[object, ...]()
            if key in conditions and key != "state":
                source = _source({other: of for other, of in conditions.items() if other != key})
                matched, values = f"(SELECT m.id {source.text})", source.values
            if key in MULTIPLE:
                statement = (
                    f"SELECT v.value, g.n FROM (SELECT l.{key}_id AS id, count(*) AS n FROM {matched} s"
                    f" {join} memory_{key} l ON l.memory_id = s.id GROUP BY 1 ORDER BY 2 DESC LIMIT ?) g"
                    f" JOIN {key} v ON v.id = g.id"
                )
            else:
                statement = (
                    f"SELECT m.{'month' if key == 'date' else key}, count(*) FROM {matched} s"
                    f" {join} memory m ON m.id = s.id GROUP BY 1 ORDER BY 2 DESC LIMIT ?"
                )
            yield key, dict(self._db.execute(statement, (*values, facet_limit(key))).fetchall())

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._db.close()


def _conditions(query: SearchQuery) -> dict[str, Sql]:
    words = _fts_expression(query.text)
    found = {"words": Sql("memory_words MATCH ?", (words,))} if words else {}
    return found | sql_conditions(query, _linked)


def _linked(key: str, values: Sequence[str]) -> Sql:
    text = (
        f"m.id IN (SELECT memory_id FROM memory_{key}"
        f" WHERE {key}_id IN (SELECT id FROM {key} WHERE value IN ({sql_marks(values)})))"
    )
    return Sql(text, tuple(values))


def _source(conditions: dict[str, Sql]) -> Sql:
    with_words = "memory_words JOIN memory m ON m.id = memory_words.rowid"
    return sql_source(with_words if "words" in conditions else "memory m", conditions.values())


def _fts_expression(text: str) -> str:
    """Our rule of matching as a boolean expression: a whole phrase, or enough of the words."""
    asked = words_of(text)
    if asked.phrase:
        return f'"{" ".join(asked.phrase)}"'
    enough = itertools.combinations((f'"{word}"' for word in asked.words), asked.need)
    return " OR ".join(f"({' AND '.join(words)})" for words in enough) if asked.words else ""

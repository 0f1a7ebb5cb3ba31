"""DuckDB: one columnar table with a list column for each facet of several values, unnested to count it.

Its full-text search is an extension that has to be downloaded and does not index phrases, so words use an ordinary
table of postings, sorted by term, with the numbers that BM25 and phrases need.
"""

import importlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.bench.corpus import Record, read_records
from lab.bench.peers.base import (
    EXCERPT,
    FACET_KEYS,
    MULTIPLE,
    SINGLE,
    Answer,
    FacetValues,
    Peer,
    PeerUnavailableError,
    Sql,
    columns_of,
    facet_limit,
    sql_conditions,
    sql_marks,
    sql_source,
    stem,
    values_of,
    words_of,
)
from search.query import SearchQuery, Sort
from text.analysis import index_terms

_MEMORY = {
    "id": "INTEGER", "external_id": "VARCHAR", "title": "VARCHAR", "content": "VARCHAR",
    **dict.fromkeys(SINGLE, "VARCHAR"), "created_at": "BIGINT", "month": "VARCHAR", "length": "INTEGER",
    **dict.fromkeys(MULTIPLE, "INTEGER[]"),
}  # fmt: skip
_POSTING = {"term": "INTEGER", "memory": "INTEGER", "times": "SMALLINT", "length": "INTEGER", "places": "SMALLINT[]"}
_ORDERS = {
    Sort.RELEVANCE: "w.score DESC, m.id DESC",
    Sort.NEWEST: "m.created_at DESC, m.id DESC",
    Sort.OLDEST: "m.created_at, m.id",
}
# Memories with enough of the words, scored by BM25 with k1 = 1.2 and b = 0.75.
_WORDS = """
CREATE OR REPLACE TEMP TABLE words AS
SELECT p.memory AS id, sum(t.idf * p.times * 2.2 / (p.times + 1.2 * (0.25 + 0.75 * p.length / ?))) AS score
FROM posting p JOIN term t ON t.id = p.term
WHERE p.term IN ({terms}) GROUP BY p.memory HAVING count(*) >= ?
"""
_PHRASE = """
CREATE OR REPLACE TEMP TABLE words AS
SELECT p0.memory AS id, 1.0 / (20 + p0.length) AS score FROM {tables}
WHERE {conditions} AND len({common}) > 0
"""


class DuckdbPeer(Peer):
    """DuckDB in one file, with all cores."""

    name = "duckdb"
    about = "DuckDB, columnar, list columns unnested for facets, words in a table of postings"
    differs = (
        "does less: no snippets, no 'no value' and own counts, no date buckets, bars by month only; the terms of its"
        " words come from our analysis, and its BM25 is written out in SQL, phrases aside, which it ranks by length"
    )

    def __init__(self, folder: Path) -> None:
        try:
            duckdb: Any = importlib.import_module("duckdb")
        except ImportError:
            raise PeerUnavailableError("duckdb is not installed: pip install 'mnemoscope[bench]'") from None
        self.about = self.about.replace("DuckDB", f"DuckDB {duckdb.__version__}")
        self._folder = folder
        self._path = folder / "peer.duckdb"
        self._db = duckdb.connect(str(self._path))
        self._names: dict[str, list[str]] = {}
        self._ids: dict[str, dict[str, int]] = {}
        self._terms: dict[str, int] = {}
        self._memories = 0
        self._average = 1.0

    def load(self, corpus: Path) -> None:
        self._ids = {key: {} for key in MULTIPLE}
        memories, postings, terms = (self._folder / f"{name}.jsonl" for name in ("memory", "posting", "term"))
        held_by: Counter[int] = Counter()
        known: dict[str, int] = {}
        number = 0
        # Reading rows from a file is much faster than binding them one by one.
        with memories.open("w") as memory_file, postings.open("w") as posting_file:
            for number, record in enumerate(read_records(corpus), 1):
                index = index_terms([(record["title"], "A"), (record["content"], "D")])
                length = sum(len(places) for places in index.values())
                memory_file.write(json.dumps(self._memory(number, record, length)) + "\n")
                for term, places in index.items():
                    code = known.setdefault(term, len(known) + 1)
                    held_by[code] += 1
                    row = (code, number, len(places), length, [at for at, _ in places])
                    posting_file.write(json.dumps(dict(zip(_POSTING, row, strict=True))) + "\n")
        with terms.open("w") as term_file:
            for term, code in known.items():
                idf = math.log(1 + (number - held_by[code] + 0.5) / (held_by[code] + 0.5))
                term_file.write(json.dumps({"id": code, "term": term, "idf": idf}) + "\n")
        self._read("memory", memories, _MEMORY, "id")
        self._read("posting", postings, _POSTING, "term, memory")
        self._read("term", terms, {"id": "INTEGER", "term": "VARCHAR", "idf": "DOUBLE"}, "id")
        for key, ids in self._ids.items():
            self._db.execute(f"CREATE TABLE {key} (id INTEGER, value VARCHAR)")
            for start in range(0, len(ids), 1_000):
                rows = list(ids.items())[start : start + 1_000]
                marks = ", ".join("(?, ?)" for _ in rows)
                self._db.execute(f"INSERT INTO {key} VALUES {marks}", [cell for name, n in rows for cell in (n, name)])
        self._db.execute("CHECKPOINT")
        for path in (memories, postings, terms):
            path.unlink()

    def _memory(self, number: int, record: Record, length: int) -> dict[str, object]:
        linked = {
            key: [self._ids[key].setdefault(value, len(self._ids[key])) for value in values]
            for key, values in values_of(record).items()
        }
        return {**columns_of(number, record), "length": length, **linked}

    def _read(self, table: str, path: Path, columns: dict[str, str], order: str) -> None:
        self._db.execute(
            f"CREATE TABLE {table} AS SELECT * FROM read_json(?, format = 'newline_delimited', columns = {columns})"
            f" ORDER BY {order}",
            [str(path)],
        )

    def open(self) -> None:
        self._memories, self._average = self._db.execute("SELECT count(*), avg(length) FROM memory").fetchone()
        self._terms = dict(self._db.execute("SELECT term, id FROM term").fetchall())
        for key in MULTIPLE:
            rows = self._db.execute(f"SELECT value FROM {key} ORDER BY id").fetchall()
            self._names[key] = [value for (value,) in rows]
            self._ids[key] = {value: n for n, value in enumerate(self._names[key])}

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        with_words = self._find_words(query.text)
        tables = "memory m JOIN words w ON w.id = m.id" if with_words else "memory m"
        conditions = sql_conditions(query, self._listed)
        source = sql_source(tables, conditions.values())
        total = int(self._rows(f"SELECT count(*) {source.text}", source.values)[0][0])
        page = self._rows(
            f"SELECT m.external_id, m.title, substr(m.content, 1, {EXCERPT}) {source.text}"
            f" ORDER BY {_ORDERS[query.order]} LIMIT ? OFFSET ?",
            (*source.values, query.page_size, (query.page - 1) * query.page_size),
        )
        counted = self._facets(conditions, tables, narrowed=with_words or len(conditions) > 1) if facets else None
        return Answer(total, tuple(str(row[0]) for row in page), counted)

    def _listed(self, key: str, values: Sequence[str]) -> Sql:
        known = tuple(self._ids[key].get(value, -1) for value in values)
        return Sql(f"list_has_any(m.{key}, [{sql_marks(known)}])", known)

    def _find_words(self, text: str) -> bool:
        """Write the memories with the words, and their scores, into a table. False if the text has no words."""
        asked = words_of(text)
        if not (asked.phrase or asked.words):
            return False
        # -1 is a term that no memory has.
        codes = [self._terms.get(stem(word), -1) for word in asked.phrase or asked.words]
        if asked.phrase:
            tables = " ".join(
                f"JOIN posting p{n} ON p{n}.memory = p0.memory" if n else "posting p0" for n in range(len(codes))
            )
            conditions = " AND ".join(f"p{n}.term = ?" for n in range(len(codes)))
            # The positions of the first word that the position of every word implies.
            common = "p0.places"
            for n in range(1, len(codes)):
                common = f"list_intersect({common}, list_transform(p{n}.places, lambda place: place - {n}))"
            self._db.execute(_PHRASE.format(tables=tables, conditions=conditions, common=common), codes)
        else:
            terms = ", ".join(map(str, codes))
            self._db.execute(_WORDS.format(terms=terms), [self._average, asked.need])
        return True

    def _facets(self, conditions: dict[str, Sql], tables: str, *, narrowed: bool) -> FacetValues:
        """All facets in one statement. Those without a filter of their own share one set of matches."""
        every = sql_source(tables, conditions.values())
        values = list(every.values) if narrowed else []
        parts: list[str] = []
        for key in FACET_KEYS:
            source = Sql("FROM matched m")
            if key in conditions and key != "state":
                source = sql_source(tables, (of for other, of in conditions.items() if other != key))
            elif not narrowed:
                source = every
            column = "m.month" if key == "date" else f"unnest(m.{key})" if key in MULTIPLE else f"m.{key}"
            parts.append(
                f"(SELECT '{key}' AS facet, value::VARCHAR AS value, count(*) AS n FROM (SELECT {column} AS value"
                f" {source.text}) GROUP BY value ORDER BY n DESC, value LIMIT {facet_limit(key)})"
            )
            values += source.values
        columns = ", ".join(f"m.{key}" for key in (*SINGLE, *MULTIPLE, "month"))
        matched = f"WITH matched AS MATERIALIZED (SELECT {columns} {every.text}) " if narrowed else ""
        counted: FacetValues = {key: {} for key in FACET_KEYS}
        for facet, value, count in self._rows(matched + " UNION ALL ".join(parts), values):
            counted[facet][self._names[facet][int(value)] if facet in MULTIPLE else value] = int(count)
        return counted

    def _rows(self, statement: str, values: Any) -> list[Any]:
        found: list[Any] = self._db.execute(statement, list(values)).fetchall()
        return found

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._db.close()

"""DuckDB: one columnar table with a list column for each facet of several values, unnested to count it.

Its full-text search is an extension that is downloaded and indexes no phrases, so words go through an ordinary table:
a row for each term of each memory, sorted by term, with what BM25 and phrases need.
"""

import importlib
import json
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.corpus import Record, read_records
from bench.peers.base import (
    CATEGORY_LIMIT,
    EXCERPT,
    MULTIPLE,
    SINGLE,
    Answer,
    PeerUnavailableError,
    stem,
    values_of,
    words_of,
)
from search.facets import DATE_KEY, DEFAULT_STATES, FACET
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
# Of the postings that are read, those of memories with enough of the words: as BM25 has it, k1 = 1.2 and b = 0.75.
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


@dataclass(frozen=True, slots=True)
class _Source:
    """FROM and WHERE, and their parameters."""

    text: str
    values: tuple[object, ...] = ()


class DuckdbPeer:
    """The protocol of `bench.peers.base`."""

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
        # Rows are bound far slower one by one than they are read from a file.
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
                term_file.write(json.dumps({"id": code, "term": term, "held_by": held_by[code]}) + "\n")
        self._read("memory", memories, _MEMORY, "id")
        self._read("posting", postings, _POSTING, "term, memory")
        self._read("term", terms, {"id": "INTEGER", "term": "VARCHAR", "held_by": "INTEGER"}, "id")
        self._db.execute("ALTER TABLE term ADD COLUMN idf DOUBLE")
        self._db.execute(
            "UPDATE term SET idf = ln(1 + (n - held_by + 0.5) / (held_by + 0.5)) FROM (SELECT count(*) n FROM memory)"
        )
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
        moment = datetime.fromisoformat(record["created_at"])
        linked = {
            key: [self._ids[key].setdefault(value, len(self._ids[key])) for value in values]
            for key, values in values_of(record).items()
        }
        return {
            "id": number,
            "external_id": record["id"],
            "title": record["title"],
            "content": record["content"],
            **{key: record.get(key, "") for key in SINGLE},
            "created_at": int(moment.timestamp()),
            "month": record["created_at"][:7],
            "length": length,
            **linked,
        }

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

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        with_words = self._find_words(query.text)
        conditions = self._conditions(query)
        every = _source(conditions, with_words)
        total = int(self._rows(f"SELECT count(*) {every.text}", every.values)[0][0])
        page = self._rows(
            f"SELECT m.external_id, m.title, substr(m.content, 1, {EXCERPT}) {every.text}"
            f" ORDER BY {_ORDERS[query.order]} LIMIT ? OFFSET ?",
            (*every.values, query.page_size, (query.page - 1) * query.page_size),
        )
        counted = self._facets(conditions, with_words) if facets else None
        return Answer(total, tuple(str(row[0]) for row in page), counted)

    def _find_words(self, text: str) -> bool:
        """Put the memories with the words, and how well they have them, into a table. False where none is asked for."""
        asked = words_of(text)
        if not (asked.phrase or asked.words):
            return False
        # A term that no memory has is -1.
        codes = [self._terms.get(stem(word), -1) for word in asked.phrase or asked.words]
        if asked.phrase:
            tables = " ".join(
                f"JOIN posting p{n} ON p{n}.memory = p0.memory" if n else "posting p0" for n in range(len(codes))
            )
            conditions = " AND ".join(f"p{n}.term = ?" for n in range(len(codes)))
            # Where the first word would stand, going by each of the words.
            common = "p0.places"
            for n in range(1, len(codes)):
                common = f"list_intersect({common}, list_transform(p{n}.places, lambda place: place - {n}))"
            self._db.execute(_PHRASE.format(tables=tables, conditions=conditions, common=common), codes)
        else:
            terms = ", ".join(map(str, codes))
            self._db.execute(_WORDS.format(terms=terms), [self._average, asked.need])
        return True

    def _conditions(self, query: SearchQuery) -> dict[str, _Source]:
        chosen = {"state": DEFAULT_STATES, **{key: found.include for key, found in query.selections().items()}}
        conditions: dict[str, _Source] = {}
        for key, values in chosen.items():
            marks = ", ".join("?" * len(values))
            if key in SINGLE:
                conditions[key] = _Source(f"m.{key} IN ({marks})", tuple(values))
            else:
                known = tuple(self._ids[key].get(value, -1) for value in values)
                conditions[key] = _Source(f"list_has_any(m.{key}, [{marks}])", known)
        start, end = query.period(UTC, datetime.now(UTC))
        bounds = [(sign, int(moment.timestamp())) for sign, moment in ((">=", start), ("<", end)) if moment]
        if bounds:
            text = " AND ".join(f"m.created_at {sign} ?" for sign, _ in bounds)
            conditions[DATE_KEY] = _Source(text, tuple(second for _, second in bounds))
        return conditions

    def _facets(self, conditions: dict[str, _Source], with_words: bool) -> dict[str, dict[str, int]]:
        """All facets in one statement, each without its own filter. What is asked for is found once for all others."""
        keys = (*SINGLE, *MULTIPLE, DATE_KEY)
        narrowed = with_words or len(conditions) > 1
        every = _source(conditions, with_words)
        values = list(every.values) if narrowed else []
        parts: list[str] = []
        for key in keys:
            source = _Source("FROM matched m")
            if key in conditions and key != "state":
                source = _source({other: of for other, of in conditions.items() if other != key}, with_words)
            elif not narrowed:
                source = every
            column = "m.month" if key == DATE_KEY else f"unnest(m.{key})" if key in MULTIPLE else f"m.{key}"
            limit = 1_000 if key == DATE_KEY else CATEGORY_LIMIT if key == "category" else FACET[key].limit
            parts.append(
                f"(SELECT '{key}' AS facet, value::VARCHAR AS value, count(*) AS n"
                f" FROM (SELECT {column} AS value {source.text}) GROUP BY value ORDER BY n DESC, value LIMIT {limit})"
            )
            values += source.values
        columns = ", ".join(f"m.{key}" for key in (*SINGLE, *MULTIPLE, "month"))
        matched = f"WITH matched AS MATERIALIZED (SELECT {columns} {every.text}) " if narrowed else ""
        counted: dict[str, dict[str, int]] = {key: {} for key in keys}
        for facet, value, count in self._rows(matched + " UNION ALL ".join(parts), values):
            name = self._names[facet][int(value)] if facet in MULTIPLE else value
            counted[facet][name] = int(count)
        return counted

    def _rows(self, statement: str, values: Any) -> list[Any]:
        found: list[Any] = self._db.execute(statement, list(values)).fetchall()
        return found

    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def close(self) -> None:
        self._db.close()


def _source(conditions: dict[str, _Source], with_words: bool) -> _Source:
    tables = "memory m JOIN words w ON w.id = m.id" if with_words else "memory m"
    texts = [of.text for of in conditions.values()]
    values = tuple(value for of in conditions.values() for value in of.values)
    return _Source(f"FROM {tables} WHERE {' AND '.join(texts) or 'true'}", values)

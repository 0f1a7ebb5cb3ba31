"""A collection in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/test.tsv, checked line by line.

Ids, queries and judgements are held in memory; the texts of documents are read from the file each time.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lab.sandbox import BenchmarkError
from web.validation import kind_of

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"
LAYOUT = f"A collection is a folder with {CORPUS}, {QUERIES} and {QRELS}"
DOCUMENT = 'a document is {"_id": "d1", "title": "…", "text": "…"}'
QUERY = 'a query is {"_id": "q1", "text": "…"}, and its kind if they are of several'
_RECORD = "a record is an object with further fields, as in our JSON Lines format"
JUDGEMENT = "a judgement is query-id, corpus-id and a whole number, with tabs between"
_SHOWN = 5


class CollectionError(BenchmarkError):
    """A folder that is not a collection. The message names the file, the line, and what is expected there."""


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    title: str
    text: str
    record: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its record in the import."""

    @property
    def full_text(self) -> str:
        """Title and text in one string."""
        return f"{self.title} {self.text}".strip()


@dataclass(slots=True)
class Collection:
    """The queries, their judgements, and access to the documents. `ids` are those with a text, in order."""

    folder: Path
    ids: list[str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]
    digest: str
    notes: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each query that has one."""

    def documents(self) -> Iterator[Document]:
        """The documents of `ids`, in their order."""
        for _, data in _objects(self.folder / CORPUS, DOCUMENT):
            title, text = _stripped(data.get("title")), _stripped(data.get("text"))
            document = Document(data["_id"].strip(), title, text, data.get("record") or {})
            if document.full_text:
                yield document

    def limit_queries(self, count: int, seed: int) -> None:
        """Keep a random sample of the queries, in their order."""
        if count < len(self.queries):
            sample = set(random.Random(seed).sample(list(self.queries), count))
            self.notes.append(f"{count:,} of {len(self.queries):,} queries, drawn with the seed {seed}")
            self.queries = {name: text for name, text in self.queries.items() if name in sample}
            self.judgements = {name: judged for name, judged in self.judgements.items() if name in sample}


def read_collection(folder: Path) -> Collection:
    """Read and check everything once. Raises CollectionError for the first invalid line."""
    for name in (CORPUS, QUERIES, QRELS):
        if not (folder / name).is_file():
            raise CollectionError(f"{folder} has no file {name}. {LAYOUT}.")
    notes: list[str] = []
    known, left_out, digest = _corpus_ids(folder / CORPUS, notes)
    texts, kinds = _queries(folder / QUERIES)
    judgements = _judgements(folder / QRELS)
    asked = {name: text for name, text in texts.items() if name in judgements}
    if not asked:
        raise CollectionError(f"{folder / QRELS} judges no query of {QUERIES}: there is nothing to measure.")
    if unknown := [name for name in judgements if name not in texts]:
        notes.append(f"{_counted(unknown, 'judged query', 'judged queries')} not in {QUERIES}: left out")
    judged = {name: judgements[name] for name in asked}
    notes += _judgement_notes(judged, {*known, *left_out})
    return Collection(folder, list(known), asked, judged, digest, notes, kinds)


def _judgement_notes(judged: Mapping[str, Mapping[str, int]], documents: Set[str]) -> Iterator[str]:
    """Notes about judgements that no search can meet."""
    missing = [name for grades in judged.values() for name in grades if name not in documents]
    if missing:
        where = f"{_counted(missing, 'judgement', 'judgements')} of documents that are not in {CORPUS}"
        yield f"{where}: they count as relevant documents that nobody finds"
    if unanswerable := [name for name, grades in judged.items() if max(grades.values()) <= 0]:
        yield f"{_counted(unanswerable, 'query', 'queries')} without a relevant document: they count as 0"


def _corpus_ids(path: Path, notes: list[str]) -> tuple[dict[str, int], set[str], str]:
    """Ids with line numbers of documents with a text, ids of the others, and a digest of the file."""
    known: dict[str, int] = {}
    empty: dict[str, int] = {}
    untexted = 0
    digest = hashlib.sha256()
    for number, data in _objects(path, DOCUMENT, digest):
        name = _id_of(data, path, number, DOCUMENT)
        for key in ("title", "text"):
            if not isinstance(data.get(key), str | None):
                raise _wrong(path, number, f"{key} is {kind_of(data[key])}", DOCUMENT)
        if not isinstance(data.get("record"), dict | None):
            raise _wrong(path, number, f"record is {kind_of(data['record'])}", _RECORD)
        if "text" not in data:
            raise _wrong(path, number, "has no text", DOCUMENT)
        if first := known.get(name) or empty.get(name):
            raise _wrong(path, number, f"the _id {name!r} was given in line {first} already", "an _id is given once")
        text, title = _stripped(data["text"]), _stripped(data.get("title"))
        (known if text or title else empty)[name] = number
        untexted += bool(title and not text)
    if not known:
        raise CollectionError(f"{path} holds no document with a text; {DOCUMENT}.")
    if empty:
        notes.append(f"{_counted(empty, 'document', 'documents')} without title and text: nobody can find them")
    if untexted:
        have = "document has" if untexted == 1 else "documents have"
        notes.append(f"{untexted:,} {have} a title alone, which stands for the text")
    return known, set(empty), digest.hexdigest()


def _queries(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of the queries, and the kinds of those that have one."""
    texts: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for number, data in _objects(path, QUERY):
        name = _id_of(data, path, number, QUERY)
        text = data.get("text")
        if not isinstance(text, str) or not text.strip():
            what = "has no text" if text is None or isinstance(text, str) else f"text is {kind_of(text)}"
            raise _wrong(path, number, what, QUERY)
        if name in texts:
            raise _wrong(path, number, f"the _id {name!r} was given before", "an _id is given once")
        texts[name] = text
        if kind := data.get("kind"):
            kinds[name] = str(kind)
    return texts, kinds


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise _wrong(path, number, f"has {len(cells)} columns", JUDGEMENT)
        query, document, grade = cells
        try:
            score = int(grade)
        except ValueError:
            # The first line may name the columns.
            if number == 1:
                continue
            raise _wrong(path, number, f"{grade[:40]!r} is not a whole number", JUDGEMENT) from None
        judged = judgements.setdefault(query, {})
        if judged.setdefault(document, score) != score:
            what = f"{document!r} was judged {judged[document]} for {query!r} before, and {score} here"
            raise _wrong(path, number, what, "a document is judged once for a query")
    if not judgements:
        raise CollectionError(f"{path} holds no judgement; {JUDGEMENT}.")
    return judgements


def _objects(path: Path, expected: str, digest: Any = None) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path, digest):
        try:
            data = json.loads(line)
        except ValueError as error:
            raise _wrong(path, number, f"is not JSON: {error}", expected) from None
        if not isinstance(data, dict):
            raise _wrong(path, number, f"is {kind_of(data)}", expected)
        yield number, data


def _lines(path: Path, digest: Any = None) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if digest:
                digest.update(raw)
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"is not UTF-8 at byte {error.start + 1}"
                raise _wrong(path, number, where, "save the file as UTF-8") from None
            if line.strip():
                yield number, line.rstrip("\r\n")


def _id_of(data: dict[str, Any], path: Path, number: int, expected: str) -> str:
    name = data.get("_id")
    if not isinstance(name, str) or not name.strip():
        what = "has no _id" if name is None or isinstance(name, str) else f"_id is {kind_of(name)}"
        raise _wrong(path, number, what, expected)
    return name.strip()


def _stripped(value: str | None) -> str:
    return (value or "").strip()


def _wrong(path: Path, number: int, what: str, expected: str) -> CollectionError:
    return CollectionError(f"{path}, line {number}: {what}; {expected}.")


def _counted(names: Sequence[str] | dict[str, int], singular: str, plural: str) -> str:
    """The number of names, and the first of them."""
    shown = ", ".join([*islice(dict.fromkeys(names), _SHOWN), *(["…"] if len(set(names)) > _SHOWN else [])])
    return f"{len(names):,} {singular if len(names) == 1 else plural} ({shown})"

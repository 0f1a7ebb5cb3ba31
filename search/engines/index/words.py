"""The words of the derived index: terms in tantivy, and the queries for them.

The document of a memory has its terms with their positions, once for all fields and once for the title, and its doc.
The beginning of a content that serves as its title is apart from titles that somebody wrote, whose words count more.
Nothing is parsed here: the terms of documents and queries come from `text.analysis`.
"""

import itertools
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tantivy

from search.engines.base import LanguageText
from text.analysis import Pattern

DOC = "doc"
WORDS = "words"
TITLE = "title"
BEGINNING = "beginning"

_PHRASES_AT_ONCE = 500

# The weight of a word in the title, added to its weight elsewhere.
_TITLE_BOOST = 0.25
# How much more a word counts that the query has several times: up to 1 + this many times, by Okapi BM25.
_K3 = 8.0
_HEAP_BYTES = 128_000_000

# A lexeme of a tsvector as Postgres writes it, with its positions; weight A is the title.
_LEXEME = re.compile(r"'([^']*(?:''[^']*)*)'(?::([0-9A-D,]+))?")

_EVERY_SEGMENT = (".term", ".idx", ".pos", ".fast", ".fieldnorm")
_FOOTER_MAGIC = 1337

Docs = npt.NDArray[np.uint32]


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise ValueError for Rust panics, which some damage causes and which are no `Exception` to Python."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(str(error)) from error
        raise


def schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(DOC, indexed=True, fast=True)
    # The terms are analysed already; every index has this tokenizer.
    builder.add_text_field(WORDS, tokenizer_name="whitespace", index_option="position")
    builder.add_text_field(TITLE, tokenizer_name="whitespace", index_option="position")
    builder.add_text_field(BEGINNING, tokenizer_name="whitespace", index_option="position")
    return builder.build()


_SCHEMA = schema()


def make_index(path: Path) -> tantivy.Index:
    path.mkdir(parents=True)
    return tantivy.Index(_SCHEMA, str(path), reuse=False)


@panics_as_errors()
def open_index(path: Path) -> tantivy.Index:
    """Open an existing index. Raise ValueError if it is missing or damaged."""
    index = tantivy.Index(_SCHEMA, str(path), reuse=True) if tantivy.Index.exists(str(path)) else None
    if index is None:
        raise ValueError(f"{path.name}: there is no index of words")
    index.config_reader(reload_policy="manual")
    return index


def damaged_files(path: Path) -> list[str]:
    """Describe the files of the segments that are missing or fail the checksum that tantivy ends each with."""
    while True:
        meta = (path / "meta.json").read_bytes()
        try:
            damaged = [file.name for file in segment_files(path, meta) if not _is_whole(file.read_bytes())]
        except FileNotFoundError:
            # Tantivy removes files of segments that a commit has replaced.
            if (path / "meta.json").read_bytes() == meta:
                raise
            continue
        return [f"{name} is damaged" for name in damaged] + [f"{name} is missing" for name in missing_files(path)]


def _is_whole(data: bytes) -> bool:
    try:
        length, magic = struct.unpack("<II", data[-8:])
        foot = json.loads(data[-8 - length : -8]) if magic == _FOOTER_MAGIC else {}
    except (struct.error, ValueError):
        foot = {}
    return bool(foot) and foot.get("crc") == zlib.crc32(data[: -8 - length])


def segment_files(path: Path, meta: bytes) -> list[Path]:
    """The files of the segments that a meta.json names. The folder also has files that are still being written, and
    files that no segment uses any more.
    """
    found = []
    for segment in json.loads(meta)["segments"]:
        name, deletes = segment["segment_id"].replace("-", ""), segment.get("deletes")
        in_use = f"{name}.{deletes['opstamp']}.del" if deletes else ""
        found += [file for file in sorted(path.glob(f"{name}.*")) if file.suffix != ".del" or file.name == in_use]
    return found


def missing_files(path: Path) -> list[str]:
    """The files missing from the segments of an index."""
    meta = json.loads((path / "meta.json").read_text())
    names = [segment["segment_id"].replace("-", "") for segment in meta["segments"]]
    return [f"{name}{kind}" for name in names for kind in _EVERY_SEGMENT if not (path / f"{name}{kind}").exists()]


def index_writer(index: tantivy.Index) -> tantivy.IndexWriter:
    # One thread: the documents of a commit become one segment, and the other core serves requests.
    return index.writer(_HEAP_BYTES, 1)


@cache
def _place(written: str) -> tuple[int, int]:
    """A position of a tsvector, and its field by its weight; Postgres leaves the last weight out."""
    weight = written[-1:]
    return (int(written[:-1]), "ABCD".index(weight)) if weight > "9" else (int(written or 1), 3)


def document(doc: int, terms: str) -> tantivy.Document:
    """A document from a tsvector, as Postgres or `text.analysis` write it."""
    fields: tuple[list[tuple[int, str]], ...] = ([], [], [], [])
    found = _LEXEME.findall(terms)
    if "''" in terms or "\\" in terms:
        found = [(lexeme.replace("''", "'").replace("\\\\", "\\"), places) for lexeme, places in found]
    for lexeme, places in found:
        for written in places.split(","):
            position, field = _place(written)
            fields[field].append((position, lexeme))
    for placed in fields:
        placed.sort()
    title, tags, names, content = fields
    is_joined = not content or (bool(title) and content[0][0] == title[-1][0] + 1)
    made = tantivy.Document()
    made.add_unsigned(DOC, doc)
    is_gapless = all(map(_is_gapless, fields))
    _add(made, BEGINNING if is_joined else TITLE, title, is_gapless)
    if not is_gapless:
        # Postgres drops positions above its limit: keep the others, so that no terms become adjacent.
        _add(made, WORDS, sorted(itertools.chain.from_iterable(fields)), is_gapless)
        return made
    # Tantivy leaves a gap between values, as there is between fields.
    for placed in ([*title, *content] if is_joined else title, [] if is_joined else content, tags, names):
        _add(made, WORDS, placed, is_gapless)
    return made


def _is_gapless(placed: Sequence[tuple[int, str]]) -> bool:
    return not placed or placed[-1][0] - placed[0][0] + 1 == len(set(map(itemgetter(0), placed)))


def _add(made: tantivy.Document, name: str, placed: Sequence[tuple[int, str]], is_gapless: bool) -> None:
    """Add a value. Passing a text of words at consecutive positions takes a sixth of the time of passing tokens."""
    if not placed:
        return
    first, last = placed[0][0], placed[-1][0]
    words = [term for _, term in placed]
    if is_gapless and len(words) == last - first + 1 and "".join(words).isalnum():
        made.add_text(name, " ".join(words))
    else:
        tokens = [tantivy.Token(term, at - first, 0, 0) for at, term in placed]
        made.add_pre_tokenized_text(name, tantivy.PreTokenizedString("", tokens))


def pattern_query(pattern: Pattern) -> tantivy.Query:
    """A query for a pattern. For a phrase that ends in a prefix it ignores the order of the words."""
    queries = [_field_query(pattern, field) for field in _fields(pattern)]
    if len(queries) == 1:
        return queries[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _fields(pattern: Pattern) -> tuple[str, ...]:
    return (TITLE, BEGINNING) if pattern.field == "title" else (WORDS,)


def _field_query(pattern: Pattern, field: str) -> tantivy.Query:
    if pattern.prefix:
        begins = tantivy.Query.regex_query(_SCHEMA, field, re.escape(pattern.terms[-1]) + ".*")
        exact = [tantivy.Query.term_query(_SCHEMA, field, term) for term in pattern.terms[:-1]]
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in (*exact, begins)])
    if len(pattern.terms) == 1:
        return tantivy.Query.term_query(_SCHEMA, field, pattern.terms[0])
    return tantivy.Query.phrase_query(_SCHEMA, field, _at_places(pattern, pattern.terms[-1]))


def _at_places(pattern: Pattern, last: str) -> list[str | tuple[int, str]]:
    """The terms of a phrase with their positions, and `last` for the last."""
    placed: list[str | tuple[int, str]] = []
    at = 0
    for term, gap in zip((*pattern.terms[:-1], last), (0, *pattern.gaps), strict=True):
        at += gap
        placed.append((at, term))
    return placed


@panics_as_errors()
def docs_having(searcher: tantivy.Searcher, pattern: Pattern, first: int, limit: int) -> Docs:
    """The docs from `first` on that have a pattern, in ascending order."""
    if not pattern.prefix or len(pattern.terms) == 1:
        return docs_of(searcher, pattern_query(pattern), first, limit)
    # Tantivy limits the number of terms that a prefix in a phrase expands to, so search the phrase with each term that
    # has the prefix and occurs together with the other words.
    found = [np.empty(0, np.uint32)]
    for field in _fields(pattern):
        among = tantivy.Query.const_score_query(_field_query(pattern, field), 1.0)
        terms = [term for term, _ in searcher.terms_with_prefix(field, pattern.terms[-1], among, limit=None)]
        for start in range(0, len(terms), _PHRASES_AT_ONCE):
            phrases = [
                (tantivy.Occur.Should, tantivy.Query.phrase_query(_SCHEMA, field, _at_places(pattern, term)))
                for term in terms[start : start + _PHRASES_AT_ONCE]
            ]
            found.append(docs_of(searcher, tantivy.Query.boolean_query(phrases), first, limit))
    return np.unique(np.concatenate(found))


@panics_as_errors()
def docs_of(searcher: tantivy.Searcher, query: tantivy.Query, first: int, limit: int) -> Docs:
    """The docs from `first` on that match a query, in ascending order, at most `limit`."""
    if first:
        recent = tantivy.Query.range_query(_SCHEMA, DOC, tantivy.FieldType.Unsigned, lower_bound=first)
        query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, recent)])
    found = searcher.search(
        tantivy.Query.const_score_query(query, 1.0),
        limit=max(1, limit),
        count=False,
        order_by_field=DOC,
        order=tantivy.Order.Asc,
    ).hits
    return np.fromiter((doc for doc, _ in found), np.uint32, len(found))


def rank_query(texts: Sequence[LanguageText], *, matching: bool = True) -> tantivy.Query | None:
    """The ranking query: BM25 over all positive patterns, with a higher weight for the title and for repeated words.

    It may match more than the text does, and the caller leaves the rest out. With `matching`, patterns that every match
    has are required, which leaves less to filter; otherwise any of them is enough.
    """
    patterns = list(dict.fromkeys(pattern for text in texts for pattern in text.words.positive))
    if not patterns:
        return None
    needed = set(_needed_by_all(texts)) if matching else set()
    times = {pattern: count for text in texts for pattern, count in text.words.repeated}
    clauses: list[tuple[tantivy.Occur, tantivy.Query]] = []
    for pattern in patterns:
        occur = tantivy.Occur.Must if pattern in needed else tantivy.Occur.Should
        weight = query_weight(times.get(pattern, 1))
        clauses.append((occur, _boosted(pattern_query(pattern), weight)))
        if not pattern.prefix and not pattern.field and len(pattern.terms) == 1:
            title = tantivy.Query.term_query(_SCHEMA, TITLE, pattern.terms[0])
            clauses.append((tantivy.Occur.Should, _boosted(title, _TITLE_BOOST * weight)))
    return tantivy.Query.boolean_query(clauses)


def query_weight(times: int) -> float:
    """The weight of a word by how often the query has it."""
    return (_K3 + 1) * times / (_K3 + times)


def _boosted(query: tantivy.Query, weight: float) -> tantivy.Query:
    return query if weight == 1 else tantivy.Query.boost_query(query, weight)


def _needed_by_all(texts: Sequence[LanguageText]) -> Iterable[Pattern]:
    """The patterns that every match has, if there is one language and no `or`."""
    if len(texts) != 1 or len(texts[0].words.groups) > 1:
        return
    words = texts[0].words
    yield from words.required
    for group in words.groups:
        yield from group.phrases
        if group.need == len(group.words):
            yield from group.words


def within_docs(query: tantivy.Query, docs: Docs) -> tantivy.Query:
    among = tantivy.Query.const_score_query(tantivy.Query.term_set_query(_SCHEMA, DOC, docs.tolist()), 0.0)
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, among)])


@panics_as_errors()
def best(searcher: tantivy.Searcher, query: tantivy.Query, limit: int) -> tuple[npt.NDArray[np.float64], Docs]:
    """The scores of the best matches, descending, and their docs."""
    found = searcher.search(query, limit=limit, count=False).hits
    scores = np.fromiter((score for score, _ in found), np.float64, len(found))
    docs = searcher.fast_field_values(DOC, [address for _, address in found])
    return scores, np.array(docs, np.uint32)


@panics_as_errors()
def fuzzy_query(term: str, distance: int) -> tantivy.Query:
    """A query for terms within an edit distance."""
    return tantivy.Query.fuzzy_term_query(_SCHEMA, WORDS, term, distance)


def delete_docs(writer: tantivy.IndexWriter, docs: Sequence[int]) -> None:
    if docs:
        writer.delete_documents_by_query(tantivy.Query.term_set_query(_SCHEMA, DOC, docs))


def delete_from(writer: tantivy.IndexWriter, first: int) -> None:
    """Delete the docs of an unfinished commit, which no segment has."""
    writer.delete_documents_by_query(
        tantivy.Query.range_query(_SCHEMA, DOC, tantivy.FieldType.Unsigned, lower_bound=first)
    )

"""tantivy called directly: one text field, a fast raw field for each facet, and aggregations for the counts.

The lower bound for an index of this kind, with nothing around it: no database, no viewer, no snippets.
"""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tantivy

from lab.bench.corpus import Record, read_records
from lab.bench.peers.base import (
    EXCERPT,
    FACET_KEYS,
    MULTIPLE,
    SINGLE,
    Answer,
    Peer,
    columns_of,
    facet_limit,
    folder_bytes,
    period_of,
    selected_values,
    stem,
    values_of,
    words_of,
)
from search.query import SearchQuery, Sort

_HEAP_BYTES = 512_000_000
# The number of values that each segment returns: more than there are, so that counts are exact.
_SEGMENT_SIZE = 65_000


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="en_stem", index_option="position")
    for key in (*SINGLE, *MULTIPLE, "month"):
        builder.add_text_field(key, tokenizer_name="raw", index_option="basic", fast=True)
    builder.add_unsigned_field("created", indexed=True, fast=True)
    # Memories arrive in the order of their dates, so their number sorts as the date does, without ties.
    builder.add_unsigned_field("number", fast=True)
    for name in ("external_id", "title", "excerpt"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    return builder.build()


_SCHEMA = _schema()


class TantivyRawPeer(Peer):
    """One index in the folder."""

    name = "tantivy-raw"
    about = f"tantivy {version('tantivy')}, called directly: BM25, terms aggregations over fast fields"
    differs = (
        "does less: no database behind it, no snippets, no 'no value' and own counts, no date buckets, bars by month"
        " only; its words are Porter stems of title and content"
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._searcher: Any = None

    def load(self, corpus: Path) -> None:
        index = tantivy.Index(_SCHEMA, str(self._folder), reuse=False)
        writer = index.writer(_HEAP_BYTES)
        for number, record in enumerate(read_records(corpus), 1):
            writer.add_document(_document(number, record))
        writer.commit()
        writer.wait_merging_threads()

    def open(self) -> None:
        index = tantivy.Index.open(str(self._folder))
        index.reload()
        self._searcher = index.searcher()

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        conditions = _conditions(query)
        match = _all_of(conditions)
        found = self._page(query, match)
        page = [self._searcher.doc(address) for _, address in found.hits]
        ids = tuple(str(document.get_first("external_id")) for document in page)
        return Answer(int(found.count), ids, dict(self._facets(conditions, match)) if facets else None)

    def _page(self, query: SearchQuery, match: tantivy.Query) -> Any:
        offset = (query.page - 1) * query.page_size
        if query.order == Sort.RELEVANCE:
            return self._searcher.search(match, query.page_size, offset=offset)
        order = tantivy.Order.Asc if query.order == Sort.OLDEST else tantivy.Order.Desc
        return self._searcher.search(match, query.page_size, offset=offset, order_by_field="number", order=order)

    def _facets(
        self, conditions: dict[str, tantivy.Query], match: tantivy.Query
    ) -> Iterator[tuple[str, dict[str, int]]]:
        # A facet with a filter is counted without that filter; all others in one pass over the matches.
        filtered = [key for key in FACET_KEYS if key in conditions and key != "state"]
        yield from self._aggregate(match, [key for key in FACET_KEYS if key not in filtered])
        for key in filtered:
            others = {other: condition for other, condition in conditions.items() if other != key}
            yield from self._aggregate(_all_of(others), [key])

    def _aggregate(self, match: tantivy.Query, keys: list[str]) -> Iterator[tuple[str, dict[str, int]]]:
        counted = self._searcher.aggregate(match, {key: {"terms": _terms(key)} for key in keys})
        for key in keys:
            yield key, {str(bucket["key"]): int(bucket["doc_count"]) for bucket in counted[key]["buckets"]}

    def size_bytes(self) -> int:
        return folder_bytes(self._folder)

    def close(self) -> None:
        self._searcher = None


def _document(number: int, record: Record) -> tantivy.Document:
    document = tantivy.Document()
    document.add_text("text", record["title"])
    document.add_text("text", record["content"])
    columns = columns_of(number, record)
    for key in (*SINGLE, "month"):
        if columns[key]:
            document.add_text(key, columns[key])
    for key, values in values_of(record).items():
        for value in values:
            document.add_text(key, value)
    document.add_unsigned("created", columns["created_at"])
    document.add_unsigned("number", number)
    document.add_text("external_id", record["id"])
    document.add_text("title", record["title"])
    document.add_text("excerpt", record["content"][:EXCERPT])
    return document


def _terms(key: str) -> dict[str, object]:
    field = "month" if key == "date" else key
    return {"field": field, "size": facet_limit(key), "segment_size": _SEGMENT_SIZE}


def _conditions(query: SearchQuery) -> dict[str, tantivy.Query]:
    """The conditions of a query by the facet they come from."""
    conditions: dict[str, tantivy.Query] = {}
    if words := _words(query.text):
        conditions["words"] = words
    for key, values in selected_values(query).items():
        conditions[key] = _unranked(tantivy.Query.term_set_query(_SCHEMA, key, list(values)))
    start, end = period_of(query)
    if start or end:
        kind = tantivy.FieldType.Unsigned
        between = tantivy.Query.range_query(_SCHEMA, "created", kind, start, end, include_upper=end is None)
        conditions["date"] = _unranked(between)
    return conditions


def _words(text: str) -> tantivy.Query | None:
    asked = words_of(text)
    if asked.phrase:
        terms: list[str | tuple[int, str]] = [stem(word) for word in asked.phrase]
        return tantivy.Query.phrase_query(_SCHEMA, "text", terms)
    if not asked.words:
        return None
    one_of = [(tantivy.Occur.Should, tantivy.Query.term_query(_SCHEMA, "text", stem(word))) for word in asked.words]
    return tantivy.Query.boolean_query(one_of, minimum_number_should_match=asked.need)


def _unranked(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _all_of(conditions: dict[str, tantivy.Query]) -> tantivy.Query:
    # Never empty: there is always a condition on the state.
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, condition) for condition in conditions.values()])

"""The tables of concept-rag as JSON lines. Its database is one of LanceDB, whose library is too large to depend on.

Its databases before 2025-11-27 have other columns, whose lists are JSON texts, and no table of categories.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from categories.paths import MAX_DEPTH
from transfer.formats.base import NotReadableError, Options, Reading, Records, RefusedRecord, SourceRecord, read_guarded
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.jsonl import rows_of_documents
from transfer.formats.sources import Document, Source

SOURCE = "concept-rag"
# The folders of tables of a LanceDB database.
_TABLE, _VERSIONS = ".lance", "_versions"
# The tables by columns that only they have: of the present layout, and of the one before.
_KINDS = (
    ("chunk", {"catalog_id", "text"}),
    ("concept", {"name", "catalog_ids"}),
    ("category", {"category", "parent_category_id"}),
    ("catalog", {"source", "summary", "category_ids"}),
    ("chunk", {"text", "source", "loc", "concept_density"}),
    ("concept", {"concept", "concept_type", "sources"}),
    ("catalog", {"text", "source", "loc", "concept_categories"}),
)
# A table at a time, and its rows in parts: there may be half a million, each with a vector.
_DUMP = (
    "import json, lancedb, os; path = {path!r}; db = lancedb.connect(path); "
    "tables = (db.open_table(name).to_arrow().drop_columns(['vector']) "
    "for name in ('categories', 'concepts', 'catalog', 'chunks') if os.path.isdir(os.path.join(path, name + '.lance')))"
    "; [print(json.dumps(row, default=str)) "
    "for table in tables for part in table.to_batches(1000) for row in part.to_pylist()]"
)

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    """Whether a file has lines of concept-rag. A database of LanceDB is refused, with a way to get such lines."""
    if source.path.is_dir() and (tables := _lance_tables(source.path)):
        command = f'python -c "{_DUMP.format(path=str(source.path))}" > tables.jsonl'
        raise NotReadableError(
            f"{source.path}: is a LanceDB database with the tables {', '.join(tables)}. LanceDB is not read here: its "
            "library takes 160 MB. If it is of concept-rag, write its tables as JSON lines where lancedb is installed, "
            f"and import the file: {command}"
        )
    return any(_kind_of(document.head) for document in source.documents)


def _lance_tables(folder: Path) -> list[str]:
    tables = (one for one in folder.iterdir() if one.suffix == _TABLE and (one / _VERSIONS).is_dir())
    return sorted(table.stem for table in tables)[:20]


def _kind_of(row: Any) -> str:
    if not isinstance(row, Mapping):
        return ""
    return next((kind for kind, names in _KINDS if names <= row.keys()), "")


def read(path: Path, options: Options) -> Reading:
    documents = [document for document in Source(path).documents if _kind_of(document.head)]
    if not documents:
        raise NotReadableError(f"{path}: has no lines of the tables of concept-rag.")

    def records() -> Records:
        names = _names_of(documents, options)
        for location, row in rows_of_documents(documents, options):
            if isinstance(row, RefusedRecord):
                yield row
            elif kind := _kind_of(row):
                yield from read_guarded(location, partial(_READERS[kind], location, row, names))
            else:
                yield RefusedRecord(location, "is no row of a table of concept-rag")

    return Reading(records())


@dataclass(frozen=True, slots=True)
class _Names:
    """Names that other tables use: of categories for their paths, and sources of documents for their ids."""

    paths: Mapping[str, str]
    documents: Mapping[str, str]


def _names_of(documents: list[Document], options: Options) -> _Names:
    parents: dict[str, tuple[str, str]] = {}
    sources: dict[str, str] = {}
    for _, row in rows_of_documents(documents, options):
        if isinstance(row, RefusedRecord):
            continue
        kind = _kind_of(row)
        if kind == "category" and (name := plain_text(row["category"])):
            parents[plain_text(row.get("id"))] = (name, plain_text(row.get("parent_category_id")))
        elif kind == "catalog":
            sources.setdefault(plain_text(row.get("source")), plain_text(row.get("id")))
    paths: dict[str, str] = {}
    for name, parent in parents.values():
        steps = [name]
        # A cycle ends at the depth that categories may have.
        while parent in parents and len(steps) < MAX_DEPTH:
            steps.append(parents[parent][0])
            parent = parents[parent][1]
        paths[name] = "/".join(step.replace("/", "-") for step in reversed(steps))
    return _Names(paths, sources)


def _category(location: str, row: Row, names: _Names) -> Iterator[SourceRecord | RefusedRecord]:
    if (name := plain_text(row.get("category"))) not in names.paths:
        yield RefusedRecord(location, "is a category without a name")
        return
    description = plain_text(row.get("description")) or plain_text(row.get("summary"))
    aliases = [plain_text(alias) for alias in listed(row.get("aliases")) if plain_text(alias)]
    data = {"record": "category", "path": names.paths[name], "description": description, "aliases": aliases}
    yield SourceRecord(location, data)


_RELATIONS = (
    ("aliases", "synonyms"),
    ("broader", "broader_terms"),
    ("narrower", "narrower_terms"),
    ("related", "related_concepts"),
)


def _concept(location: str, row: Row, names: _Names) -> Iterator[SourceRecord | RefusedRecord]:
    if not (name := plain_text(row.get("name")) or plain_text(row.get("concept"))):
        yield RefusedRecord(location, "is a concept without a name")
        return
    data: dict[str, Any] = {"record": "concept", "name": name[:300], "description": plain_text(row.get("summary"))}
    if kind := plain_text(row.get("concept_type")):
        data["type"] = kind[:100]
    for field, column in _RELATIONS:
        data[field] = [plain_text(term)[:300] for term in listed(row.get(column)) if plain_text(term)]
    yield SourceRecord(location, data)


def _draft(location: str, row: Row, kind: str) -> Draft:
    raw = {name: value for name, value in row.items() if value not in (None, "", [], 0) and name != "vector"}
    draft = Draft(location, raw, SOURCE)
    draft.text("id", f"{kind}:{plain_text(row.get('id'))}")
    draft.names("concepts", listed(row.get("concept_names")))
    # The former column: a list, or of some documents an object with several.
    former = row.get("concepts")
    several = fields_of(former)
    draft.names("concepts", listed(several.get("primary_concepts") if several else former))
    return draft


def _catalog(location: str, row: Row, names: _Names) -> Iterator[SourceRecord | RefusedRecord]:
    """A document: its summary, and its bibliographic fields."""
    draft = _draft(location, row, "catalog")
    draft.data["type"] = "document"
    title, summary = plain_text(row.get("title")), plain_text(row.get("summary")) or plain_text(row.get("text"))
    draft.text("title", title, _file_title(row))
    draft.text("content", row.get("abstract"), summary, title, row.get("source"))
    draft.text("summary", summary)
    draft.text("source_url", row.get("source"))
    draft.names("authors", listed(row.get("authors")) or [row.get("author")])
    draft.names("tags", listed(row.get("keywords"), by_comma=True))
    draft.names("categories", _categories(row, names))
    year = plain_text(row.get("year"))
    draft.moment("happened_at", f"{year}-01-01" if len(year) == 4 and year.isdigit() else None)
    yield draft.record()


def _categories(row: Row, names: _Names) -> Iterator[str]:
    for value in (*listed(row.get("category_names")), *listed(row.get("concept_categories"))):
        name = plain_text(value)
        yield names.paths.get(name, name.replace("/", "-"))


def _file_title(row: Row) -> str:
    """The name of the file of a document, which has no title before it has a column for it."""
    return PurePosixPath(plain_text(row.get("source")).replace("\\", "/")).stem


def _chunk(location: str, row: Row, names: _Names) -> Iterator[SourceRecord | RefusedRecord]:
    draft = _draft(location, row, "chunk")
    draft.data["type"] = "passage"
    page = plain_text(row.get("page_number")) or plain_text(fields_of(row.get("loc")).get("pageNumber"))
    title = plain_text(row.get("catalog_title")) or _file_title(row)
    has_page = page not in ("", "0")
    draft.text("title", f"{title}, p. {page}" if title and has_page else title)
    draft.text("content", row.get("text"))
    draft.names("categories", _categories(row, names))
    document = plain_text(row.get("catalog_id")) or names.documents.get(plain_text(row.get("source")), "")
    draft.link("from", f"catalog:{document}" if document else "")
    if title:
        draft.entities("document", [title])
    yield draft.record()


_READERS = {"category": _category, "concept": _concept, "catalog": _catalog, "chunk": _chunk}

IMPORTER = Importer(SOURCE, "the tables of concept-rag as JSON lines (not its LanceDB database)", knows, read)

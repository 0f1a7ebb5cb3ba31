"""Immutable snapshots of memories, passed between services and tables; and as lines of COPY, the fastest way into
Postgres, built without it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from types import NoneType
from typing import Any

from categories.models import MadeBy


@dataclass(frozen=True, slots=True)
class Ref:
    """A link to a category, concept or entity."""

    id: int
    made_by: str = MadeBy.IMPORT.value
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link by name, as in the record."""

    rel: str
    target: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """All stored fields of a memory, without derived ones. `raw` is JSON text."""

    id: int
    project_id: int
    memory_type: str
    title: str
    summary: str
    content: str
    tags: tuple[str, ...]
    state: str
    state_reason: str
    importance: float | None
    confidence: float | None
    pinned: bool
    authors: tuple[str, ...]
    agent: str
    session_id: int | None
    source: str
    external_id: str
    source_uri: str
    created_at: datetime
    happened_at: datetime | None
    updated_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by_id: int | None
    record_hash: str
    raw: str | None
    batch_id: int | None
    categories: tuple[Ref, ...]
    concepts: tuple[Ref, ...]
    entities: tuple[Ref, ...]
    links: tuple[NamedLink, ...]
    trust: int | None = None


def content_hash_of(title: str, content: str) -> str:
    """Hash used to detect duplicate content."""
    return hashlib.sha256(f"{title}\0{content}".encode()).hexdigest()[:32]


LINKED = ("categories", "concepts", "entities", "links")
SCALARS = tuple(field.name for field in fields(MemorySnapshot) if field.name not in LINKED)
_SCALAR_VALUES = attrgetter(*SCALARS)
# Kind of link -> its table, its foreign key column, and the facet column of the memories.
LINK_TABLES = {
    "categories": ("categories_categorylink", "category_id", "category_ids"),
    "concepts": ("categories_conceptlink", "concept_id", "concept_ids"),
    "entities": ("categories_entitylink", "entity_id", "entity_ids"),
}
_FACET_COLUMNS = ("category_ids", "category_path_ids", "concept_ids", "entity_ids")
COPY_MEMORIES = f"COPY memories_memory ({', '.join((*SCALARS, 'content_hash', 'terms', *_FACET_COLUMNS))}) FROM STDIN"
_NULL = "\\N"
_COPY_LINKS = "COPY memories_memorylink (memory_id, ordinal, rel, target, url, target_memory_id) FROM STDIN"


def link_columns(snapshot: MemorySnapshot, lineages: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    """The facet columns of a memory: sorted, each id once."""
    return {
        "category_ids": sorted({ref.id for ref in snapshot.categories}),
        "category_path_ids": sorted({step for ref in snapshot.categories for step in lineages[ref.id]}),
        "concept_ids": sorted({ref.id for ref in snapshot.concepts}),
        "entity_ids": sorted({ref.id for ref in snapshot.entities}),
    }


@dataclass(frozen=True, slots=True)
class InsertBlock:
    """New memories and their lines of COPY."""

    snapshots: list[MemorySnapshot]
    terms: Sequence[str]
    hashes: Sequence[str]
    """Content hashes."""
    columns: list[dict[str, list[int]]]
    """Facet columns."""
    lines: list[str]
    refs: dict[str, str]
    """Lines of COPY by kind of link."""


def insert_block(
    snapshots: Sequence[MemorySnapshot],
    terms: Sequence[str],
    hashes: Sequence[str],
    lineages: Mapping[int, tuple[int, ...]],
) -> InsertBlock:
    """Build a block without the database, so that an import builds one block while it stores another."""
    columns = [link_columns(snapshot, lineages) for snapshot in snapshots]
    return InsertBlock(
        list(snapshots),
        terms,
        hashes,
        columns,
        copy_lines(snapshots, terms, hashes, columns),
        {
            kind: ref_lines((snapshot.id, ref) for snapshot in snapshots for ref in getattr(snapshot, kind))
            for kind in LINK_TABLES
        },
    )


def copy_lines(
    snapshots: Sequence[MemorySnapshot],
    terms: Sequence[str],
    hashes: Sequence[str],
    columns: Sequence[Mapping[str, list[int]]],
) -> list[str]:
    """Memories as lines of COPY, built column by column: value by value would take as long as storing them."""
    scalars = [_copied(values) for values in zip(*map(_SCALAR_VALUES, snapshots), strict=True)]
    numbers = [_copied_numbers([one[name] for one in columns]) for name in _FACET_COLUMNS]
    rows = zip(*scalars, hashes, _escaped_each(terms), *numbers, strict=True)
    return ["\t".join(row) + "\n" for row in rows]


def _copied(values: Sequence[Any]) -> list[str]:
    kinds = set(map(type, values))
    if kinds == {str}:
        return _escaped_each(values)
    if kinds == {tuple}:
        return _escaped_each([array_literal(items) for items in values])
    if kinds == {NoneType}:
        return [_NULL] * len(values)
    # Numbers and times need no escaping.
    return [_copy_value(value) for value in values] if kinds & {str, NoneType} else list(map(str, values))


def _copy_value(value: Any) -> str:
    if value is None:
        return _NULL
    return _escaped(value) if isinstance(value, str) else str(value)


def _escaped_each(texts: Sequence[str]) -> list[str]:
    """Escape all texts at once; a storable text contains no NUL."""
    return _escaped("\0".join(texts)).split("\0")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def array_literal(items: Sequence[str]) -> str:
    """A Postgres array literal, which is faster to send than an array parameter."""
    if not items:
        return "{}"
    text = "\0".join(items).replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + text.replace("\0", '","') + '"}'


def _copied_numbers(lists: Sequence[list[int]]) -> list[str]:
    return "\0".join(map(str, lists)).replace("[", "{").replace("]", "}").split("\0")


def ref_lines(rows: Iterable[tuple[int, Ref]]) -> str:
    return "".join([f"{memory_id}\t{ref.id}\t{ref.made_by}\t{ref.weight!r}\tnow\n" for memory_id, ref in rows])


def refs_copy(cursor: Any, kind: str, lines: str) -> None:
    if not lines:
        return
    table, column, _ = LINK_TABLES[kind]
    with cursor.copy(f"COPY {table} (memory_id, {column}, made_by, weight, created_at) FROM STDIN") as copy:
        copy.write(lines)


def links_copy(
    cursor: Any,
    snapshots: Sequence[MemorySnapshot],
    targets: Mapping[tuple[int, str], int],
    found: Mapping[tuple[int, str], int],
) -> None:
    """Store the links of memories, with the targets of those of a project, and those that links of a memory found."""
    rows = [
        (
            *(snapshot.id, ordinal, link.rel, link.target, link.url),
            targets.get((snapshot.project_id, link.target)) or found.get((snapshot.id, link.target)),
        )
        for snapshot in snapshots
        for ordinal, link in enumerate(snapshot.links)
    ]
    if rows:
        with cursor.copy(_COPY_LINKS) as copy:
            copy.write("".join("\t".join(map(_copy_value, row)) + "\n" for row in rows))

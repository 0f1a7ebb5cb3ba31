"""New memories and their links as lines of COPY: the fastest way into Postgres, and made ready without it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from memories.images import MemoryImage, Ref, content_hash_of

LINKED = ("categories", "concepts", "entities", "links")
SCALARS = tuple(field.name for field in fields(MemoryImage) if field.name not in LINKED)
_SCALAR_VALUES = attrgetter(*SCALARS)
# By the kind of link: its table, what it points to, and the facet column of the memories.
LINK_TABLES = {
    "categories": ("categories_categorylink", "category_id", "category_ids"),
    "concepts": ("categories_conceptlink", "concept_id", "concept_ids"),
    "entities": ("categories_entitylink", "entity_id", "entity_ids"),
}
_DERIVED = ("content_hash", "terms", "category_ids", "category_path_ids", "concept_ids", "entity_ids")
COPY_MEMORIES = f"COPY memories_memory ({', '.join((*SCALARS, *_DERIVED))}) FROM STDIN"
_COPY_LINKS = "COPY memories_memorylink (memory_id, ordinal, rel, target, url, target_memory_id) FROM STDIN"


def link_columns(image: MemoryImage, lineages: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    """The facet columns: sorted, each id once."""
    return {
        "category_ids": sorted({ref.id for ref in image.categories}),
        "category_path_ids": sorted({step for ref in image.categories for step in lineages[ref.id]}),
        "concept_ids": sorted({ref.id for ref in image.concepts}),
        "entity_ids": sorted({ref.id for ref in image.entities}),
    }


@dataclass(frozen=True, slots=True)
class InsertBlock:
    """New memories as lines of COPY, one each, with what the lines were made of."""

    images: list[MemoryImage]
    terms: Sequence[str]
    columns: list[dict[str, list[int]]]
    """The facet columns."""
    lines: list[str]
    refs: dict[str, str]
    """Lines of COPY for each link table."""


def insert_block(
    images: Sequence[MemoryImage], terms: Sequence[str], lineages: Mapping[int, tuple[int, ...]]
) -> InsertBlock:
    """What can be made ready without the database, so that an import makes one block ready while it stores another."""
    columns = [link_columns(image, lineages) for image in images]
    return InsertBlock(
        list(images),
        terms,
        columns,
        [copy_line(*one) for one in zip(images, terms, columns, strict=True)],
        {kind: ref_lines((image.id, ref) for image in images for ref in getattr(image, kind)) for kind in LINK_TABLES},
    )


def copy_line(image: MemoryImage, vector: str, columns: Mapping[str, list[int]]) -> str:
    """A memory as a line of COPY. Written here: adapting thirty values one by one costs as much as storing them."""
    values = [_copy_value(value) for value in _SCALAR_VALUES(image)]
    values.append(content_hash_of(image.title, image.content))
    values.append(_escaped(vector))
    values.extend("{" + ",".join(map(str, ids)) + "}" for ids in columns.values())
    return "\t".join(values) + "\n"


def _copy_value(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, tuple):
        return _escaped("{" + ",".join(map(_array_item, value)) + "}") if value else "{}"
    return str(value)


def _escaped(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\t" in text:
        text = text.replace("\t", "\\t")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    return text


def _array_item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def ref_lines(rows: Iterable[tuple[int, Ref]]) -> str:
    return "".join([f"{memory_id}\t{ref.id}\t{ref.made_by}\t{ref.weight!r}\tnow\n" for memory_id, ref in rows])


def refs_copy(cursor: Any, kind: str, lines: str) -> None:
    if not lines:
        return
    table, column, _ = LINK_TABLES[kind]
    with cursor.copy(f"COPY {table} (memory_id, {column}, made_by, weight, created_at) FROM STDIN") as copy:
        copy.write(lines)


def links_copy(cursor: Any, images: Sequence[MemoryImage], targets: Mapping[tuple[int, str], int]) -> None:
    rows = [
        (image.id, ordinal, link.rel, link.target, link.url, targets.get((image.project_id, link.target)))
        for image in images
        for ordinal, link in enumerate(image.links)
    ]
    if rows:
        with cursor.copy(_COPY_LINKS) as copy:
            copy.write("".join("\t".join(map(_copy_value, row)) + "\n" for row in rows))

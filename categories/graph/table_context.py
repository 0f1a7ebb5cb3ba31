"""TableContext: all that a table of entities or of concepts may read. No database and no request."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo

from categories.graph.asking import TableRequest, TableSort
from categories.graph.kinds import ENTITY, Kind
from categories.graph.table import Table, TableRow
from categories.graph.wording import graph_tabs, table_url, term_url, toggled, warning_notices
from search.context import Notice
from search.labels import day_label, plural
from search.links import Link, filter_url
from search.pager import Pager, build_pager

_TYPES_SHOWN = 14
_COLUMNS = (
    ("name", "Name", ""),
    ("type", "Type", ""),
    ("links", "Links", "How many others it is linked with: by what is stated, or because one memory names both"),
    ("memories", "Memories", "How many memories name it"),
    ("first", "First seen", "The day of the first memory that names it"),
    ("last", "Last seen", "The day of the last memory that names it"),
)
_UP_FIRST = {"name", "type", "first"}


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    label: str
    title: str
    url: str
    # What aria-sort says; empty where the table is not sorted by it.
    order: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    name: str
    url: str
    type: str
    links: str
    memories: str
    memories_url: str
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class TableContext:
    title: str
    kind: str
    many: str
    summary: str
    tabs: tuple[Link, ...]
    search: str
    # What the search form sends beside its text.
    hidden: tuple[tuple[str, str], ...]
    types: tuple[Link, ...]
    more_types: tuple[Link, ...]
    all_types: Link
    columns: tuple[Column, ...]
    rows: tuple[ShownRow, ...]
    pager: Pager | None
    notices: tuple[Notice, ...]
    empty: str
    # Where there is something, if nothing is here.
    elsewhere: Link | None


def build_table(table: Table, notices: Iterable[Notice], zone: tzinfo = UTC) -> TableContext:
    kind, asked = table.kind, table.asked

    def at(**changes: object) -> str:
        return table_url(kind, asked.but(**{"page": 1, **changes}))

    types = tuple(
        Link(name or "no type", at(type=toggled(asked.type, name)), count=f"{count:,}", current=name in asked.type)
        for name, count in table.types
    )
    is_narrowed = bool(asked.search or asked.type)
    found = plural(table.total, kind.key, kind.many)
    return TableContext(
        title=kind.many.capitalize(),
        kind=kind.key,
        many=kind.many,
        summary=f"{found} of {table.every:,}" if is_narrowed else found,
        tabs=graph_tabs(kind),
        search=asked.search,
        hidden=tuple(pair for pair in asked.parameters() if pair[0] not in {"search", "page"}),
        types=types[:_TYPES_SHOWN],
        more_types=types[_TYPES_SHOWN:],
        all_types=Link("All types", at(type=()), current=not asked.type),
        columns=tuple(_column(asked, at, *column) for column in _COLUMNS),
        rows=tuple(_row(kind, row, zone) for row in table.rows),
        pager=build_pager(asked.page, table.pages, asked.page_size, table.total, lambda page: at(page=page))
        if table.pages > 1
        else None,
        notices=(*notices, *warning_notices(table.warnings)),
        empty=_empty(table, is_narrowed=is_narrowed),
        elsewhere=_elsewhere(table, at(), is_narrowed=is_narrowed),
    )


def _column(asked: TableRequest, at: Callable[..., str], key: str, label: str, title: str) -> Column:
    is_current = asked.sort.column == key
    down = not asked.sort.is_down if is_current else key not in _UP_FIRST
    order = ("descending" if asked.sort.is_down else "ascending") if is_current else ""
    return Column(key, label, title, at(sort=TableSort(f"-{key}" if down else key)), order)


def _row(kind: Kind, row: TableRow, zone: tzinfo) -> ShownRow:
    return ShownRow(
        name=row.term.label,
        url=term_url(kind, row.term),
        type=row.term.type,
        links=f"{row.links:,}",
        memories=f"{row.memories:,}",
        memories_url=filter_url(kind.key, row.term.value) if row.memories else "",
        first=day_label(row.first, zone) if row.first else "",
        last=day_label(row.last, zone) if row.last else "",
    )


def _empty(table: Table, *, is_narrowed: bool) -> str:
    if table.rows:
        return ""
    if table.total:
        return "Nothing stands on this page."
    if is_narrowed:
        return f"No {table.kind.key} here has such a name and type."
    return f"None of the memories that you may see names {_article(table.kind)} yet."


def _elsewhere(table: Table, first_page: str, *, is_narrowed: bool) -> Link | None:
    if table.total:
        return Link("Go to the first page", first_page)
    return Link(f"Show all {table.kind.many}", table_url(table.kind)) if is_narrowed else None


def _article(kind: Kind) -> str:
    return "an entity" if kind is ENTITY else "a concept"

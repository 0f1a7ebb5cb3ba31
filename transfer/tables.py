"""The tables that an export of everything has row by row.

Next to the lines about memories and their vocabulary, which any instance takes, such an export has rows with their
numbers. An empty instance stores them as they are: its history, journals and suggestions refer to these numbers.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.postgres.search import SearchVectorField
from django.db import connection
from django.db.models import Model

Row = dict[str, Any]

# Rows whose values are read at once: some are large.
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table with the columns that its rows lack, their order, and which of them there are."""

    label: str
    without: tuple[str, ...] = ()
    order: str = "id"
    condition: str = "true"

    @property
    def model(self) -> type[Model]:
        return apps.get_model(self.label)


# Tables that memories refer to. A category comes after its ancestors.
BEFORE_MEMORIES = (
    RowTable("memories.Project"),
    RowTable("memories.Session"),
    RowTable("categories.Category", order="depth, id"),
    RowTable("categories.Concept"),
    RowTable("categories.Entity"),
    RowTable("categories.Relationship"),
)
# Other names of terms are here too: the names of memories are those of the terms themselves. Events
# of accounts and keys are no history of memories.
AFTER_MEMORIES = (
    RowTable("categories.FormerPath"),
    RowTable("categories.TagAlias"),
    RowTable("categories.LocalText"),
    RowTable("memories.Recall", without=("revision",), order="memory_id"),
    RowTable("memories.RecallDay", order="memory_id, day"),
    # Only what names it: a copy of a key opens nothing.
    RowTable("access.ApiKey", without=("key_hash", "scopes", "every_project", "requests_per_minute")),
    RowTable(
        "access.AuditEvent", condition="subject_type NOT IN ('user', 'membership', 'invitation', 'apikey', 'appgrant')"
    ),
    RowTable("access.MemoryChange"),
    RowTable("curation.Curation"),
    RowTable("curation.CurationChange"),
    RowTable("curation.Suggestion"),
    RowTable("curation.SuggestionPolicy"),
    RowTable("search.SavedView"),
    RowTable("search.ViewMark"),
)
ROW_TABLES = {table.label: table for table in (*BEFORE_MEMORIES, *AFTER_MEMORIES)}


def row_lines(tables: Sequence[RowTable]) -> Iterator[Row]:
    """The lines of the rows of tables. People are named, not numbered."""
    names = dict(User.objects.values_list("pk", "username"))
    for table in tables:
        fields = table.model._meta.concrete_fields
        people = [str(field.column) for field in fields if field.related_model is User]
        for row in _rows(table):
            for column in people:
                row[column] = names.get(row[column])
            yield {"record": "row", "table": table.label, "values": row}


def _rows(table: RowTable) -> Iterator[Row]:
    own, fields = table.model._meta.db_table, table.model._meta.concrete_fields
    # The import computes them from the others.
    derived = [field.column for field in fields if isinstance(field, SearchVectorField) or field.name == "terms_hash"]
    with connection.chunked_cursor() as cursor:
        cursor.execute(
            f"SELECT (to_jsonb(own) - %s::text[])::text FROM {own} own WHERE {table.condition} ORDER BY {table.order}",
            [[*derived, *table.without]],
        )
        while found := cursor.fetchmany(_AT_ONCE):
            yield from (json.loads(row) for (row,) in found)

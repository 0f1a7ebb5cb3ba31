"""All texts that the database holds, table by table, wherever a later model puts some: for finding secrets in them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models

from transfer.formats.note_files import NOTE_FILE, NoteFile, note_file_in

# Rows that are in memory at a time: some are large.
_AT_ONCE = 100

# Columns that hold no text of somebody: what is known by a hash, names of kinds, and what signs in.
_OTHERWISE = {
    "admin.LogEntry": {"object_id"},
    "auth.User": {"password"},
    "access.ApiKey": {"prefix", "scopes"},
    "access.AuditEvent": {"verb", "subject_type"},
    "access.IdempotentReply": {"owner", "rights"},
    "categories.Category": {"path", "alias_projects"},
    "categories.Concept": {"alias_projects"},
    "categories.Entity": {"alias_projects"},
    "categories.LocalText": {"kind"},
    "curation.Curation": {"verb", "kind", "merged", "door"},
    "curation.CurationChange": {"table"},
    "curation.Suggestion": {"fingerprint"},
    "home.ImportJob": {"fingerprint"},
    "memories.FollowedSource": {"format", "stamp", "gone_answer"},
    "memories.ImportBatch": {"format"},
    "memories.Project": {"language"},
}
_WITHOUT_TEXTS = {
    *("auth.Group", "auth.Permission", "contenttypes.ContentType", "sessions.Session", "access.SignInToken"),
    *("access.AppGrant", "search.ViewFeed", "memories.EmbeddingModel", "memories.Corpus"),
}
# Columns by which something is found, so that no mark can stand there.
FIXED = {
    "memories.Project": {"slug"},
    "memories.FollowedSource": {"path", "project"},
    "home.ImportJob": {"path", "files", "project"},
    "auth.User": {"username", "first_name", "last_name", "email"},
}
_WORDS = {
    "memories.Memory": "memory",
    "memories.MemoryLink": "link",
    "memories.Session": "session",
    "memories.Project": "project",
    "memories.ImportBatch": "report of an import",
    "memories.FollowedSource": "followed source",
    "memories.SourceConflict": "conflict",
    "home.ImportJob": "import",
    "access.AuditEvent": "history",
    "access.IdempotentReply": "stored reply",
    "access.ApiKey": "key",
    "access.Invitation": "invitation",
    "auth.User": "account",
    "search.SavedView": "view",
    "curation.Curation": "curation",
    "curation.CurationChange": "undo of a curation",
    "curation.Suggestion": "suggestion",
    "categories.LocalText": "local name",
    "categories.FormerPath": "former path",
    "categories.TagAlias": "alias of a tag",
}
_MEMORY_IDS = {
    "memories.Memory": "id",
    "memories.MemoryLink": "memory_id",
    "memories.SourceConflict": "memory_id",
    "access.AuditEvent": "subject_id",
}
_MOMENTS = ("created_at", "at", "started_at", "noticed_at", "date_joined", "action_time")
_QUERIES = ("query", "presentation")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with its columns of texts, and what its rows are called."""

    model: type[models.Model]
    columns: tuple[str, ...]
    moment: str
    """The column that has when a row was stored; empty if none has."""

    @property
    def label(self) -> str:
        return self.model._meta.label

    @property
    def word(self) -> str:
        return _WORDS.get(self.label, str(self.model._meta.verbose_name))

    @property
    def fixed_columns(self) -> set[str]:
        return FIXED.get(self.label, set())

    def memory_column(self) -> str:
        """The column with the id of the memory that a row is about; empty if rows are about others."""
        return _MEMORY_IDS.get(self.label, "")

    def of_project(self, project_id: int) -> "models.QuerySet[Any] | None":
        """The rows about a project and its memories; None if no row of the table is."""
        rows = self.model._default_manager.all()
        if self.label == "memories.Project":
            return rows.filter(pk=project_id)
        if self.label in ("memories.Memory", "memories.Session"):
            return rows.filter(project_id=project_id)
        if not (column := self.memory_column()):
            return None
        if self.label == "access.AuditEvent":
            rows = rows.filter(subject_type="memory")
        return rows.filter(**{f"{column}__in": models.Subquery(_memories_of(project_id))})


def _memories_of(project_id: int) -> "models.QuerySet[Any]":
    memories = apps.get_model("memories.Memory")._default_manager
    return memories.filter(project_id=project_id).values("pk")


@cache
def text_tables() -> tuple[TextTable, ...]:
    """All tables with texts. Those that a memory is read from come first."""
    found = []
    for model in apps.get_models(include_auto_created=True):
        columns = tuple(_text_columns(model))
        if columns and model._meta.label not in _WITHOUT_TEXTS and not model._meta.proxy:
            names = {field.name for field in model._meta.concrete_fields}
            found.append(TextTable(model, columns, next((name for name in _MOMENTS if name in names), "")))
    order = list(_WORDS)
    return tuple(sorted(found, key=lambda table: order.index(table.label) if table.label in order else len(order)))


def _text_columns(model: type[models.Model]) -> Iterator[str]:
    for field in model._meta.concrete_fields:
        inner = field.base_field if isinstance(field, ArrayField) else field
        is_text = isinstance(inner, models.CharField | models.TextField | models.JSONField)
        is_known = field.choices or field.is_relation or field.name.endswith(("_hash", "_challenge"))
        if is_text and not is_known and field.name not in _OTHERWISE.get(model._meta.label, ()):
            yield field.name


@dataclass(frozen=True, slots=True)
class TextRow:
    """The texts of a row, by column, and what is known of it besides."""

    pk: Any
    texts: dict[str, Any]
    at: Any
    memory_id: int | None


def text_rows(table: TextTable, rows: "models.QuerySet[Any] | None" = None) -> Iterator[TextRow]:
    """The rows of a table, read some at a time."""
    chosen = table.model._default_manager.all() if rows is None else rows
    about = table.memory_column()
    is_event = table.label == "access.AuditEvent"
    others = [name for name in (table.moment, about, "subject_type" if is_event else "") if name]
    names = list(dict.fromkeys([*table.columns, *others]))
    for pk, *values in chosen.order_by().values_list("pk", *names).iterator(chunk_size=_AT_ONCE):
        row = dict(zip(names, values, strict=True))
        memory_id = row.get(about) if not is_event or row["subject_type"] == "memory" else None
        texts = {name: row[name] for name in table.columns if row[name] not in (None, "", [], {})}
        yield TextRow(pk, texts, row.get(table.moment), memory_id)


# --- texts in other forms -----------------------------------------------------------------------------------------


def opened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in which queries are not escaped and files of notes not packed, so that their texts can be read."""
    return _rebuilt(values, lambda file: {**file.as_json(), "whole": file.text()}, unquote_plus)


def with_texts_changed(values: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Values with the texts changed that are escaped in queries, or packed in files of notes."""

    def query(text: str) -> str:
        pairs = parse_qsl(text, keep_blank_values=True)
        changed = [(name, change(value)) for name, value in pairs]
        return text if changed == pairs else urlencode(changed)

    return _rebuilt(values, lambda file: file.changed_by(change).as_json(), query)


def _rebuilt(
    values: Mapping[str, Any], file_as: Callable[[NoteFile], dict[str, Any]], query_as: Callable[[str], str]
) -> dict[str, Any]:
    def rebuilt(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return query_as(value) if name in _QUERIES and "=" in value else value
        if isinstance(value, list):
            return [rebuilt(name, one) for one in value]
        if not isinstance(value, Mapping):
            return value
        if "path" in value and (file := note_file_in({NOTE_FILE: value})):
            others = {key: one for key, one in value.items() if key not in NoteFile.__slots__}
            return {**others, **file_as(file)}
        return {key: rebuilt(key, one) for key, one in value.items()}

    return {name: rebuilt(name, value) for name, value in values.items()}

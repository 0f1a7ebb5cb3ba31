"""Rows of an export of everything: an empty instance stores them with their numbers, and so becomes an equal one.

An instance that has something already takes the lines about memories and vocabulary instead, which have no numbers.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.db.models import Max, Model
from django.db.models.functions import Greatest
from django.utils import timezone

from access.models import ApiKey, AuditEvent, MemoryChange
from access.viewer import may_write_everything
from categories.searched_terms import terms_refresh_all
from memories.models import Corpus, ImportBatch
from text.analysis import languages
from transfer.formats.base import ImportFailedError, RefusedRecord, SourceRecord
from transfer.state import ImportRun
from transfer.tables import BEFORE_MEMORIES, ROW_TABLES

# Tables whose rows get other numbers if there are some already: nothing but rows of these tables has their numbers.
_RENUMBERED: tuple[Any, ...] = (AuditEvent, MemoryChange, ApiKey)
# Rows of these tables do not make an instance one that is in use.
_MAY_BE_THERE = {model._meta.label for model in _RENUMBERED}
_BEFORE = {table.label for table in BEFORE_MEMORIES}

Values = dict[str, Any]
Change = Callable[[Any], Any]


class Row(NamedTuple):
    """A row of a table. `size` is about that of its line."""

    location: str
    label: str
    values: Values
    size: int


def is_row(record: SourceRecord) -> bool:
    return record.data.get("record") == "row"


def row_of(record: SourceRecord) -> Row | RefusedRecord:
    """The row of a line."""
    label, values = record.data.get("table"), record.data.get("values")
    if not isinstance(label, str) or label not in ROW_TABLES:
        return RefusedRecord(record.location, "table: is not one that an export has")
    if not isinstance(values, dict):
        return RefusedRecord(record.location, "values: is not an object of columns")
    return Row(record.location, label, values, len(json.dumps(values)))


def rows_write(run: ImportRun, rows: Sequence[Row]) -> None:
    """Store rows if the instance was empty before this import. Everything that they refer to must be stored."""
    if run.is_copy is None:
        reason = _no_copy(run)
        run.is_copy = not reason
        if reason:
            text = "history, journals, suggestions, saved views, recalls and numbers are left out: "
            run.note(rows[0].location, text + reason)
    if not run.is_copy:
        return
    for (label, columns), found in groupby(rows, lambda row: (row.label, tuple(row.values))):
        _store(run, ROW_TABLES[label].model, columns, list(found))


def _no_copy(run: ImportRun) -> str:
    """Why the rows of an export cannot be stored; empty if they can."""
    if not may_write_everything(run.viewer) or "admin" not in run.viewer.scopes:
        return "only administrators of the site import them"
    if run.options.is_only_project:
        return f"everything goes into {run.options.project}"
    for label in ("memories.Memory", *(label for label in ROW_TABLES if label not in _MAY_BE_THERE)):
        model = apps.get_model(label)
        if model._default_manager.exists():
            return (
                f"there are {model._meta.verbose_name_plural} here already; import into an empty instance to have them"
            )
    return ""


def _store(run: ImportRun, model: type[Model], columns: Sequence[str], rows: Sequence[Row]) -> None:
    table, label = model._meta.db_table, model._meta.label
    known = {field.column for field in model._meta.concrete_fields}
    if strange := [name for name in columns if name not in known]:
        raise ImportFailedError(
            f"{rows[0].location}: {label} has no column {strange[0][:100]!r} here. Nothing was imported. Import it "
            "with the version of the program that wrote it, or a later one."
        )
    try:
        values = list(_changed(run, model, rows))
        names = ", ".join(f'"{name}"' for name in values[0])
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb)",
                [json.dumps(values)],
            )
            if any(field.column == "id" for field in model._meta.concrete_fields):
                cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
                (sequence,) = cursor.fetchone()
                cursor.execute(f"SELECT setval(%s, greatest(nextval(%s), max(id))) FROM {table}", [sequence, sequence])
                run.tally.copied[label] = max(run.tally.copied.get(label, 0), *(one["id"] for one in values))
    except (DatabaseError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ImportFailedError(
            f"{rows[0].location} and the {len(rows) - 1:,} rows after it: cannot be stored ({reason}). Nothing was "
            "imported. Get an unchanged export."
        ) from error
    if label in _BEFORE:
        run.tally.vocabulary += len(rows)
        run.vocabulary.count(str(model._meta.verbose_name_plural), len(rows))


def _changed(run: ImportRun, model: type[Model], rows: Sequence[Row]) -> Iterator[Values]:
    """The rows as they are here: people by number, events and keys renumbered, and of the batch of this import."""
    changes = dict(_column_changes(run, model, rows))
    more = _MORE.get(model._meta.label)
    for row in rows:
        values = {name: changes[name](value) if name in changes else value for name, value in row.values.items()}
        yield more(run, values) if more else values


def _column_changes(run: ImportRun, model: type[Model], rows: Sequence[Row]) -> Iterator[tuple[str, Change]]:
    for field in model._meta.concrete_fields:
        column = str(field.column)
        target = model if field.primary_key else field.related_model
        if target is User:
            yield column, _people(run, {row.values.get(column) for row in rows}).get
        elif target is ImportBatch:
            # Whether somebody or an import changed a memory decides whether the next import may change it.
            yield column, partial(_batch_of_event, run) if model is AuditEvent else lambda _: run.batch_id
        elif target is not None and target in _RENUMBERED:
            yield column, partial(_raised, _added(run, target))


def _raised(added: int, number: int | None) -> int | None:
    return None if number is None else number + added


def _batch_of_event(run: ImportRun, batch_id: int | None) -> int | None:
    return None if batch_id is None else run.batch_id


def _added(run: ImportRun, model: type[Model]) -> int:
    """The number that is added to those of a table: the highest that there was before."""
    label = model._meta.label
    if label not in run.renumbered:
        run.renumbered[label] = model._default_manager.aggregate(top=Max("pk"))["top"] or 0
    return run.renumbered[label]


def _people(run: ImportRun, names: set[Any]) -> dict[str, int]:
    """Accounts by name. A missing one is made; it cannot sign in until an administrator activates it."""
    wanted = {name for name in names if isinstance(name, str) and name}
    known = dict(User.objects.filter(username__in=wanted).values_list("username", "pk"))
    if missing := sorted(wanted - known.keys()):
        User.objects.bulk_create(User(username=name, is_active=False, password=make_password(None)) for name in missing)
        run.note("people", f"{', '.join(missing)}: an account that cannot sign in was made for the name in the history")
        known = dict(User.objects.filter(username__in=wanted).values_list("username", "pk"))
    return known


def _key_without_secret(run: ImportRun, values: Values) -> Values:
    revoked = values.get("revoked_at") or timezone.now().isoformat()
    # No hash of any key has this form.
    return (
        values
        | {"key_hash": f"copied by {run.batch_id}: {values['id']}", "scopes": [], "every_project": False}
        | {"revoked_at": revoked}
    )


def _event_of_batch(run: ImportRun, values: Values) -> Values:
    # The batches themselves are not copied: another one may have the number here.
    is_batch = values.get("subject_type") == "importbatch"
    return values | {"subject_id": -abs(values["subject_id"])} if is_batch else values


def _journal_of_batch(run: ImportRun, values: Values) -> Values:
    """A change in the journal, with this batch in the rows that it has: an undo compares them with those of today."""
    for name in ("before", "after"):
        values[name] = [
            row | {"batch_id": run.batch_id} if isinstance(row, dict) and "batch_id" in row else row
            for row in values.get(name) or ()
        ]
    return values


def _recall(run: ImportRun, values: Values) -> Values:
    # Readers load what is newer than what they have.
    if "recall" not in run.renumbered:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval('recall_revision_seq')")
            run.renumbered["recall"] = cursor.fetchone()[0]
    return values | {"revision": run.renumbered["recall"]}


def _project(run: ImportRun, values: Values) -> Values:
    if values["language"] not in languages():
        raise ValueError(f"language {values['language']!r} is not known")
    return values


_MORE: dict[str, Callable[[ImportRun, Values], Values]] = {
    "access.ApiKey": _key_without_secret,
    "access.AuditEvent": _event_of_batch,
    "curation.CurationChange": _journal_of_batch,
    "memories.Project": _project,
    "memories.Recall": _recall,
}


def rows_finish(run: ImportRun) -> None:
    """Compute what rows lack. The feed of changes goes on after its last entry."""
    if not run.is_copy:
        return
    terms_refresh_all()
    last = MemoryChange.objects.aggregate(last=Max("revision"))["last"] or 0
    if not Corpus.objects.filter(pk=1).update(revision=Greatest("revision", last)):
        Corpus.objects.create(id=1, revision=last)

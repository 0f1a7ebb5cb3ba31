"""Choices of somebody who imports: values of all records, types of notes, and how dates are meant."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from memories.dates import ORDERS
from memories.records import MemoryRecord
from memories.vocabulary_records import is_vocabulary
from transfer.formats.base import ColumnsError, Records, SourceRecord
from transfer.formats.csv_table import FIELDS, field_named
from transfer.formats.states import read_status
from web.validation import reasons, shown

_NOT_OF_ALL = ("id", "content", "title")


def check_choices(values: Mapping[str, str], types: Mapping[str, str], dates: str) -> dict[str, Any]:
    """The choices by the names that options have. Raises ColumnsError, with what can be chosen."""
    if dates and dates not in ORDERS:
        raise ColumnsError(f"dates: {shown(dates)} is no order; write {' or '.join(ORDERS)}.")
    for rule in types:
        if not (rule.endswith("/") or rule.startswith("#")):
            raise ColumnsError(
                f"types: {shown(rule)} is no rule: write a folder as Decisions/, a #tag or a ## Heading."
            )
    named = {_field_of_all(name): value for name, value in values.items() if value.strip()}
    if "state" in named:
        named["state"] = read_status(named["state"]).state or named["state"]
    try:
        MemoryRecord.model_validate({"content": "-", **named})
    except ValidationError as error:
        raise ColumnsError(f"All records: {'; '.join(reasons(error, MemoryRecord))}.") from None
    return {"values": named, "types": dict(types), "dates": dates}


def _field_of_all(name: str) -> str:
    field = field_named(name)
    if not field or field in _NOT_OF_ALL:
        can = ", ".join(one for one in FIELDS if one not in _NOT_OF_ALL)
        raise ColumnsError(f"{shown(name)} is no field that all records can have: write one of {can}.")
    return field


def with_values(records: Records, values: Mapping[str, str]) -> Records:
    """The records, with values for fields that they do not give."""
    try:
        for record in records:
            if values and isinstance(record, SourceRecord) and not is_vocabulary(record.data):
                record = replace(
                    record, data={**values, **{k: v for k, v in record.data.items() if v not in ("", None)}}
                )
            yield record
    finally:
        records.close()

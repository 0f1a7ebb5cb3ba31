"""The source of an import in blocks: records are read and validated ahead by another thread."""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from pydantic import ValidationError

from memories.properties import OWN_PROPERTIES, own_properties, properties_of
from memories.records import STORABLE, MemoryRecord, derived_title, unstorable
from memories.resolve import RecordNames, names_of
from memories.snapshot import content_hash_of
from memories.vocabulary_records import is_vocabulary
from text.secrets import mask_values
from transfer.formats.base import ImportFailedError, Reading, RefusedRecord, SourceRecord, fault_text
from transfer.rows import Row, is_row, row_of
from web.secrets import OFF, REFUSE, mask_note, refusal_of
from web.validation import reasons

logger = logging.getLogger("mnemoscope.imports")

BLOCK = 4_000
# Blocks of long texts end after this many characters: several blocks are in memory at a time.
BLOCK_SIZE = 16_000_000
# Blocks that are analysed while the next are read and the previous are written.
AHEAD = 2

_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode


class Incoming(NamedTuple):
    """A valid record with what it is known by. `raw` is its canonical JSON text."""

    found: SourceRecord
    record: MemoryRecord
    raw: str
    record_hash: str
    title: str
    content_hash: str

    @property
    def location(self) -> str:
        return self.found.location

    @property
    def stored(self) -> Mapping[str, Any] | None:
        return self.found.stored


# The items of a block: memories, vocabulary records, and unreadable records; or rows alone.
Item = Incoming | SourceRecord | RefusedRecord | Row


class Block(NamedTuple):
    """A part of the source in order, and all names in its records. Rows have blocks of their own."""

    items: list[Item]
    names: RecordNames
    fraction: float | None
    """The share of the source read so far; None if unknown."""


@contextmanager
def blocks_read(reading: Reading, policy: Callable[[Mapping[str, Any]], str]) -> Iterator[Iterator[Block]]:
    """The source in blocks, read and validated by another thread while this one waits for the database.

    `policy` says what is done about secrets in a record.
    """
    ahead: list[Item] = []
    records = (without_secrets(record, policy) for record in _place_errors(reading))

    def following() -> Block | None:
        items: list[Item] = []
        size = 0
        for item in chain(_taken(ahead), map(_read, records)):
            if items and isinstance(item, Row) != isinstance(items[-1], Row):
                ahead.append(item)
                break
            items.append(item)
            size += _size(item)
            if len(items) == BLOCK or size > BLOCK_SIZE:
                break
        if not items:
            return None
        names = names_of([item.record for item in items if isinstance(item, Incoming)])
        return Block(items, names, reading.fraction())

    def blocks(thread: ThreadPoolExecutor) -> Iterator[Block]:
        coming = deque(thread.submit(following) for _ in range(AHEAD))
        while block := coming.popleft().result():
            coming.append(thread.submit(following))
            yield block

    with one_thread("import-reader") as thread:
        yield blocks(thread)


@contextmanager
def one_thread(name: str) -> Iterator[ThreadPoolExecutor]:
    """A thread that works while this one waits for the database. Its queue is cancelled at the end."""
    thread = ThreadPoolExecutor(1, name)
    try:
        yield thread
    finally:
        thread.shutdown(wait=True, cancel_futures=True)


def _place_errors(reading: Reading) -> Iterator[SourceRecord | RefusedRecord]:
    """The records of a source. An error of its reader that nobody foresaw names the place.

    Raises ImportFailedError.
    """
    last = "at its beginning"
    try:
        for record in reading.records:
            last = f"after {record.location}"
            yield record
    except (ImportFailedError, MemoryError, OSError):
        raise
    except Exception as error:
        raise ImportFailedError(f"Nothing was imported: what comes {last} {fault_text(error)}.") from error


def _taken(items: list[Item]) -> Iterator[Item]:
    while items:
        yield items.pop(0)


def _size(item: Item) -> int:
    if isinstance(item, Row):
        return item.size
    return len(item.record.content) + len(item.raw) if isinstance(item, Incoming) else 0


def _read(item: SourceRecord | RefusedRecord) -> Item:
    if isinstance(item, SourceRecord) and is_row(item):
        return row_of(item)
    return item if isinstance(item, RefusedRecord) or is_vocabulary(item.data) else validate_source(item)


def without_secrets(
    found: SourceRecord | RefusedRecord, policy: Callable[[Mapping[str, Any]], str]
) -> SourceRecord | RefusedRecord:
    """A record whose secrets are masked, in all that is stored of it; or its refusal."""
    if isinstance(found, RefusedRecord):
        file = found.file and found.file.changed_by(mask_note)
        return replace(found, reason=mask_note(found.reason), file=file)
    chosen = policy(found.data)
    if chosen == OFF:
        return found
    file = found.file and found.file.changed_by(mask_note)
    own = found.properties or {}
    parts = {
        "data": found.data,
        "raw": found.raw or {},
        "stored": found.stored or {},
        "notes": {"": found.notes},
        "properties": own,
    }
    masked, marks = mask_values(parts)
    if not marks:
        return replace(found, file=file) if file is not found.file else found
    if chosen == REFUSE:
        return RefusedRecord(found.location, refusal_of(marks))
    note = f"secrets are masked: {', '.join(dict.fromkeys(marks))}"
    return replace(
        found,
        data=masked["data"],
        raw=masked["raw"] if found.raw is not None else None,
        stored=masked["stored"] if found.stored is not None else None,
        properties=masked["properties"] if found.properties is not None else None,
        notes=(*masked["notes"][""], note),
        # Its bytes are not those of the file any more, to which nothing is written then.
        file=file and replace(file, digest=""),
    )


def validate_source(found: SourceRecord) -> Incoming | RefusedRecord:
    """A record with what it is known by. An error of any kind refuses this record alone."""
    try:
        validated = _validate(found)
    except Exception as error:
        logger.exception("%s cannot be validated.", found.location)
        validated = RefusedRecord(found.location, fault_text(error))
    if isinstance(validated, RefusedRecord) and found.file:
        return replace(validated, file=found.file.complete(str(found.data.get("content", ""))))
    return validated


def _validate(found: SourceRecord) -> Incoming | RefusedRecord:
    # The text is most of a record: store it once, in its own column.
    text_key = next((name for name in ("content", "text", "body") if isinstance(found.data.get(name), str)), "")
    text = found.data.get(text_key, "")
    try:
        raw = _CANONICAL({name: value for name, value in found.data.items() if name != text_key})
        raw_bytes, text_bytes = raw.encode(), text.encode()
    except (ValueError, RecursionError):
        return RefusedRecord(found.location, _unstorable(found.data) or "cannot be stored as JSON")
    if ("\0" in text or "\\u0000" in raw) and (reason := _unstorable(found.data)):
        return RefusedRecord(found.location, reason)
    try:
        found, record = _record_of(found)
    except ValidationError as error:
        return RefusedRecord(found.location, "; ".join(reasons(error, MemoryRecord)))
    title = record.title or derived_title(record.content)
    known_by = _lasting(found.data, found.volatile | {text_key}) if found.volatile else raw_bytes
    if found.raw is not None:
        try:
            raw = _CANONICAL(found.raw)
            raw.encode()
            known_by += b"\0" + _lasting(found.raw, found.volatile_raw)
        except (ValueError, RecursionError):
            return RefusedRecord(found.location, _unstorable(found.raw) or "cannot be stored as JSON")
        if "\\u0000" in raw and (reason := _unstorable(found.raw)):
            return RefusedRecord(found.location, reason)
    given = own_properties(found.data) if found.file else found.properties
    if properties := given and properties_of(given):
        raw = _CANONICAL(json.loads(raw) | {OWN_PROPERTIES: properties})
    return Incoming(
        found,
        record,
        raw,
        hashlib.sha256(known_by + b"\0" + text_bytes).hexdigest()[:32],
        title,
        content_hash_of(title, record.content),
    )


# Another project would show a record to others.
_NEVER_LEFT_OUT = {"content", "text", "body", "project"}


def _record_of(found: SourceRecord) -> tuple[SourceRecord, MemoryRecord]:
    """The record of a source. Of a lenient one, fields that are not valid are left out, and noted.

    Raises ValidationError.
    """
    try:
        return found, MemoryRecord.model_validate(found.data, context=STORABLE)
    except ValidationError as error:
        wrong = {str(detail["loc"][0]) if detail["loc"] else "valid_to" for detail in error.errors()}
        if not found.is_lenient or wrong & _NEVER_LEFT_OUT:
            raise
        rest = {name: value for name, value in found.data.items() if name not in wrong}
        notes = [f"{reason}; it is left out" for reason in reasons(error, MemoryRecord)]
        record = MemoryRecord.model_validate(rest, context=STORABLE)
        return replace(found, notes=(*found.notes, *notes)), record


def _lasting(data: Mapping[str, Any], volatile: Collection[str]) -> bytes:
    """The fields by which a record is known again, as canonical JSON. Raises ValueError for what is no UTF-8."""
    return _CANONICAL({name: value for name, value in data.items() if name not in volatile}).encode()


def _unstorable(data: Mapping[str, Any]) -> str:
    try:
        return unstorable(data)
    except RecursionError:
        return "is nested too deeply"

"""Memory records derived from records of other systems: what does not fit is left out or cut, with a note.

A record of our own form is refused for such a mistake, since its author can mend it. Nobody can mend another program's
data, and the rest of the record is worth having.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from memories.dates import AmbiguousDateError, date_value
from memories.records import MAX_CONTENT, MAX_LIST, MAX_SUMMARY, MAX_TAG, MAX_TITLE, MAX_URL
from transfer.formats.base import SourceRecord

_LIMITS = {
    "content": MAX_CONTENT,
    "summary": MAX_SUMMARY,
    "title": MAX_TITLE,
    "source_url": MAX_URL,
    "id": 500,
    "project": 100,
    "type": 100,
    "session": 200,
    "agent": 200,
    "source": 200,
    "superseded_by": 500,
}
_NAME_LIMITS = {
    "tags": MAX_TAG,
    "concepts": 300,
    "entities": 500,
    "authors": 200,
    "categories": 300,
    "supersedes": 500,
}


class Draft:
    """A memory record in the making. `raw` is the record of the other system, stored with the memory."""

    def __init__(self, location: str, raw: Mapping[str, Any], source: str) -> None:
        self.location = location
        self.raw = raw
        self.data: dict[str, Any] = {"source": source}
        self.notes: list[str] = []

    def text(self, name: str, *values: Any) -> None:
        """Set a field to the first value that is not empty, cut at the field's limit."""
        text = next((text for value in values if (text := plain_text(value))), "")
        if not text:
            return
        limit = _LIMITS[name]
        if len(text) > limit:
            kept = text[: limit - 1] + "…"
            self.notes.append(f"{name}: has {_length(text)} characters; the first {limit - 1:,} are stored")
            text = kept
        self.data[name] = text

    def names(self, name: str, values: Iterable[Any], prefix: str = "") -> None:
        """Add names to a list field; repeats are dropped."""
        names: dict[str, None] = dict.fromkeys(self.data.get(name, ()))
        limit = _NAME_LIMITS[name]
        for value in values:
            text = " ".join(plain_text(value).split())
            if len(text) > limit:
                self.notes.append(f"{name}: {text[:40]!a}… has {len(text):,} characters; up to {limit} are stored")
                text = text[:limit]
            if text:
                names[f"{prefix}{text}"] = None
        if len(names) > MAX_LIST:
            self.notes.append(f"{name}: has {len(names):,} items; the first {MAX_LIST:,} are stored")
        if names:
            self.data[name] = list(names)[:MAX_LIST]

    def entities(self, kind: str, values: Iterable[Any]) -> None:
        """Add entities of a type."""
        entities = self.data.setdefault("entities", [])
        known = {(entity["type"], entity["name"]) for entity in entities}
        for value in values:
            name = " ".join(plain_text(value).split())[:500]
            if name and (kind, name) not in known and len(entities) < MAX_LIST:
                known.add((kind, name))
                entities.append({"type": kind, "name": name})

    def link(self, rel: str, target: str, url: str = "") -> None:
        links = self.data.setdefault("links", [])
        link = {"rel": rel[:100], "target": target[:500]} | ({"url": url[:MAX_URL]} if url else {})
        if target and link not in links and len(links) < MAX_LIST:
            links.append(link)

    def moment(self, name: str, *values: Any) -> None:
        """Set a date to the first value that is one."""
        for value in values:
            if value in (None, "", 0):
                continue
            try:
                self.data[name] = date_value(value)
            except AmbiguousDateError as error:
                self.notes.append(f"{name}: {error}; it is left out")
            except ValueError:
                self.notes.append(f"{name}: {str(value)[:40]!a} is not a date; it is left out")
            else:
                return

    def fraction(self, name: str, value: Any) -> None:
        """Set a number from 0 to 1; others are left out."""
        number = number_of(value)
        if number is not None and 0 <= number <= 1:
            self.data[name] = number
        elif value is not None:
            self.notes.append(f"{name}: {str(value)[:40]!a} is not a number from 0 to 1; it is left out")

    def record(self, volatile_raw: Iterable[str] = ()) -> SourceRecord:
        """The record. The field of the raw record that is the content is not stored again."""
        content = self.data.get("content")
        raw = {name: value for name, value in self.raw.items() if value is not None and value != content}
        return SourceRecord(
            self.location,
            self.data,
            raw=raw,
            volatile_raw=frozenset(volatile_raw),
            notes=tuple(self.notes),
        )


def _length(text: str) -> str:
    # Longer texts may have been cut already when they were read.
    return f"{len(text):,}" if len(text) <= MAX_CONTENT else f"more than {MAX_CONTENT:,}"


def plain_text(value: Any) -> str:
    """A text or number as text; empty for anything else."""
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def number_of(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def listed(value: Any, *, by_comma: bool = False) -> list[Any]:
    """A list from a list, a JSON list as text, or a text: a single item, or several separated by commas."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, list):
                return value
        return [part.strip() for part in text.split(",")] if by_comma else [text] if text else []
    if isinstance(value, Mapping):
        return [name for name, used in value.items() if used]
    return list(value) if isinstance(value, list | tuple) else []


def fields_of(value: Any) -> dict[str, Any]:
    """An object from an object, or from its JSON text; empty for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def sections(parts: Iterable[tuple[str, str | list[str]]]) -> str:
    """Markdown from headings and texts; a heading may be empty. Lists become list items, empty parts are left out."""
    written: list[str] = []
    for heading, part in parts:
        text = "\n".join(f"- {item}" for item in part) if isinstance(part, list) else part.strip()
        if text:
            written.append(f"## {heading}\n\n{text}" if heading else text)
    return "\n\n".join(written)

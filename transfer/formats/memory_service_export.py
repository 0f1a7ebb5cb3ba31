"""The export of mcp-memory-service in JSON, which its own importer takes.

What it has no field for is in `metadata`, where it keeps whatever it is given. A memory that came from there has its
own metadata, tags and hash again.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.utils import timezone

from memories.timestamps import parse_moment
from transfer.export import Line
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.export import Lines, as_there, json_bytes, json_list, original, own_title, spelt, type_of
from transfer.formats.files import shown_name
from transfer.formats.memory_service import SOURCE, hash_of

# Fields of a record that are metadata there, in their order.
_METADATA = (
    *("title", "summary", "project", "categories", "concepts", "entities", "links", "state", "happened_at"),
    *("valid_from", "valid_to", "importance", "confidence", "pinned", "authors", "agent", "session", "source"),
    *("source_url",),
)
_MACHINE = "mnemoscope"


def written(lines: Lines) -> Iterator[bytes]:
    """The document, with what counts its memories at its end."""
    total = 0

    def memories() -> Iterator[bytes]:
        nonlocal total
        for line in lines():
            if "record" not in line:
                total += 1
                yield json_bytes(_memory(line))

    yield b'{"memories": '
    yield from json_list(memories())
    about = {
        "source_machine": _MACHINE,
        "export_timestamp": timezone.now().isoformat(),
        "total_memories": total,
        "include_embeddings": False,
        "filter_tags": None,
    }
    yield b', "export_metadata": ' + json_bytes(about) + b"}\n"


def _memory(line: Line) -> dict[str, Any]:
    raw = original(line, SOURCE)
    kind, tags = line["type"], line.get("tags", [])
    return {
        "content_hash": _hash(line, raw),
        "content": spelt(raw.get("content"), line["content"]),
        "tags": as_there(listed(raw.get("tags"), by_comma=True), tags) if raw else [*tags, f"proj:{line['project']}"],
        "created_at": _seconds(line["created_at"], raw.get("created_at")),
        "updated_at": _seconds(line["updated_at"], raw.get("updated_at")),
        # A memory without a type is a note here.
        "memory_type": raw.get("memory_type") if raw and type_of(raw.get("memory_type")) == kind else kind,
        "metadata": _own_metadata(line, raw) if raw else _metadata(line),
        "export_source": _MACHINE,
    }


def _hash(line: Line, raw: Mapping[str, Any]) -> str:
    """The hash that the memory is known by there, unless its text has changed here since."""
    computed = hash_of(line["content"])
    # Older versions hashed more than the text, so that a text that is unchanged can have another hash.
    draft = Draft("", {}, SOURCE)
    draft.moment("updated_at", raw.get("updated_at"), raw.get("updated_at_iso"), raw.get("created_at"))
    there = draft.data.get("updated_at")
    unchanged = there is not None and parse_moment(there) == datetime.fromisoformat(line["updated_at"])
    return (unchanged and line.get("id")) or computed


def _seconds(here: str, there: Any) -> float:
    """A moment as seconds, with all the digits that it has there."""
    moment = datetime.fromisoformat(here)
    with suppress(ValueError):
        if isinstance(there, int | float) and parse_moment(there) == moment:
            return float(there)
    return moment.timestamp()


def _own_metadata(line: Line, raw: Mapping[str, Any]) -> dict[str, Any]:
    metadata = fields_of(raw.get("metadata"))
    for name, own in (("title", own_title(line)), ("summary", line.get("summary", ""))):
        if plain_text(metadata.get(name)) not in (own, line.get(name, "")):
            metadata[name] = own
    return metadata


def _metadata(line: Line) -> dict[str, Any]:
    metadata = {name: line[name] for name in _METADATA if name in line}
    if not own_title(line):
        metadata.pop("title", None)
    for name in ("concepts", "entities"):
        if name in metadata:
            metadata[name] = [shown_name(one) for one in metadata[name]]
    return metadata

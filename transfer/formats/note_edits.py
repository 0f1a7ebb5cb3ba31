"""The file of a note with what was edited here: in the fields that the note has, else below the field `mnemoscope`.

Does not use the database.
"""

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any

import yaml
from pydantic import ValidationError

from categories.paths import slug_path
from memories.records import STORABLE, SUPERSEDED_BY_REL, MemoryRecord, derived_title, normalise_tag, slug_name
from memories.timestamps import parse_moment
from transfer.formats.base import UnreadableFileError
from transfer.formats.drafts import listed
from transfer.formats.export import Line, as_there, type_of, untold_links
from transfer.formats.front_matter import FURTHER, TOML_BLOCK, OwnField, block_of, own_field, read_front_matter
from transfer.formats.markdown import Folder, NoteNames, note
from transfer.formats.note_files import NoteFile, parts_around
from transfer.formats.states import read_status

_DATES = ("created_at", "updated_at", "happened_at", "valid_from", "valid_to")
_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]")
_DAY = re.compile(r"[\"']?\d{4}-\d\d-\d\d[\"']?")
_WORDS = {"active": "active", "proposed": "proposed", "archived": "archived", "superseded": "superseded"}
# Fields that an import takes from a text as well.
_DERIVED = ("title", "tags", "type", "state")
# Fields that have a way of their own.
_NOT_FIELDS = ("content", "links", "superseded_by")


@dataclass(frozen=True, slots=True)
class Around:
    """Facts about other notes that an edited note needs: the name of its successor, and the word for a state there."""

    successor: str = ""
    word: Callable[[str], str | None] = lambda state: None


def edited_note(file: NoteFile, line: Line, around: Around) -> bytes:
    """The bytes of a note with the edits of its memory, as a line of an export has it."""
    fields = list(line["stored"].get("edited", ()))
    if not fields:
        return file.original(line["content"])
    head, text, tail = _parts(file, line, fields)
    before = _valid_record({**(line["stored"].get("raw") or {}), "content": "as it was"})
    values = _edited_values(file, line, fields, before, around)
    values = {name: value for name, value in values.items() if name == "updated_at" or not _is_same(name, line, before)}
    head = _with_own_fields(head, values)
    found = _record_of(file, head + text + tail, line)
    further = {name: value for name, value in values.items() if not _is_same(name, line, found)}
    # Fields that an import takes from the text too stay as they are here.
    derived = [name for name in _DERIVED if name not in values and _differ(before, found, name)]
    further |= {name: _front_matter_value(name, line) for name in (*derived, *further) if name != "superseded_by"} | {
        name: value for name, value in further.items() if name == "superseded_by"
    }
    further.pop("updated_at", None)
    if added := _added_links(line) if "links" in fields else []:
        further["links"] = added
    if "title" in further or "title" in fields:
        further |= _former_title(before, line, head)
    return file.encoded(_with_further(head, further) + text + tail)


def _parts(file: NoteFile, line: Line, fields: Sequence[str]) -> tuple[str, str, str]:
    """The head of a file, its text and its tail. A note may be front matter alone."""
    if not file.whole:
        return file.head, line["content"], file.tail
    whole = file.text()
    if parts := parts_around(whole, read_front_matter(whole).body):
        return parts[0], line["content"], parts[1]
    text = line["content"] if "content" in fields else ""
    return whole.rstrip("\n") + "\n", f"\n{text}\n" if text else "", ""


def _record_of(file: NoteFile, text: str, line: Line) -> MemoryRecord | None:
    """The record that an import makes of the note; None if it makes none."""
    folder = Folder("", NoteNames(), file.is_obsidian)
    try:
        found = note(file.path, file.encoded(text), datetime.fromisoformat(line["updated_at"]), folder)
    except UnreadableFileError:
        return None
    return _valid_record(found.data)


def _valid_record(data: Mapping[str, Any]) -> MemoryRecord | None:
    """A record without the fields that are not valid, as an import reads those of a note."""
    try:
        return MemoryRecord.model_validate(data, context=STORABLE)
    except ValidationError as error:
        wrong = {str(detail["loc"][0]) if detail["loc"] else "valid_to" for detail in error.errors()}
    try:
        rest = {name: value for name, value in data.items() if name not in wrong}
        return MemoryRecord.model_validate(rest, context=STORABLE)
    except ValidationError:
        return None


# --- values --------------------------------------------------------------------------------------------------------


def _edited_values(
    file: NoteFile, line: Line, fields: Sequence[str], before: MemoryRecord | None, around: Around
) -> dict[str, Any]:
    """The edited fields as front matter has them, but for text and links."""
    values = {name: _front_matter_value(name, line) for name in fields if name not in _NOT_FIELDS}
    own = read_front_matter(file.text() if file.whole else file.head).fields
    if "tags" in values and before:
        spelt = _tags_of(own)
        there = [spelt.get(tag, tag) for tag in before.tags if tag not in line.get("tags", ()) or tag in spelt]
        in_text = set(before.tags) - spelt.keys()
        values["tags"] = as_there(there, [tag for tag in values["tags"] if tag not in in_text])
    if "categories" in values:
        folder = slug_path(posixpath.dirname(file.path))
        values["categories"] = [path for path in values["categories"] if path != folder]
    if {"state", "superseded_by"} & set(fields):
        state = line["state"]
        values["state"] = around.word(state) or _word(state, line)
        values["superseded_by"] = _link(around.successor, file.path) if state == "superseded" else ""
    # Edited files say when, where they say so at all.
    return values | {"updated_at": line["updated_at"]}


def _link(name: str, path: str) -> str:
    """A name as a wiki link, unless its characters would end one. A note beside the linking one may have it too."""
    name = f"/{name}" if name and "/" in path and "/" not in name else name
    return f"[[{name}]]" if name and not set("#|^[]") & set(name) else name


def _word(state: str, line: Line) -> str:
    return "accepted" if state == "active" and line.get("type") == "decision" else _WORDS.get(state, state)


def _front_matter_value(name: str, line: Line) -> Any:
    value = line.get(name)
    if name == "concepts":
        return [one if "weight" in one else one["name"] for one in value or ()]
    if name == "entities":
        return [f"{one['type']}:{one['name']}" for one in value or ()]
    if name in ("tags", "categories", "authors"):
        return list(value or ())
    return "" if value is None else value


def _tags_of(own: Mapping[str, Any]) -> dict[str, str]:
    """The tags in front matter, each with the spelling that it has there."""
    found = [value for name, value in own.items() if name.strip().lower() in ("tags", "tag", "keywords", "labels")]
    texts = [text for value in found for text in (value if isinstance(value, list) else str(value).split(","))]
    spelt = [text.strip().lstrip("#") for text in texts if isinstance(text, str)]
    return {normalise_tag(text): text for text in spelt}


def _is_same(name: str, line: Line, found: MemoryRecord | None) -> bool:
    """Whether an import gives a field the value that the memory has."""
    if found is None:
        return False
    there, here = getattr(found, name), line.get(name)
    if name in _DATES:
        return bool(there == parse_moment(here))
    if name == "categories":
        return {slug_path(path) for path in there} == set(here or ())
    if name == "concepts":
        return {one.name for one in there} == {one["name"] for one in here or ()}
    if name == "entities":
        return {(one.type, one.name) for one in there} == {(one["type"], one["name"]) for one in here or ()}
    if name in ("tags", "authors"):
        return set(there) == set(here or ())
    if name == "superseded_by":
        return bool(there) == (line["state"] == "superseded" and bool(line["stored"].get("superseded_by")))
    if name == "title":
        return bool((there or derived_title(found.content)) == here)
    return bool((there or "") == (here or "") or (name == "state" and (there or "active") == here))


def _differ(before: MemoryRecord | None, found: MemoryRecord | None, name: str) -> bool:
    return before is not None and found is not None and getattr(before, name) != getattr(found, name)


def _added_links(line: Line) -> list[dict[str, str]]:
    """The links that the memory has, and its note had not."""
    raw = line["stored"].get("raw") or {}
    # A note may have anything there.
    there = [(one.get("rel"), one.get("target")) for one in listed(raw.get("links")) if isinstance(one, dict)]
    return [
        dict(one)
        for one in untold_links(line)
        if (one["rel"], one["target"]) not in there and one["rel"] != SUPERSEDED_BY_REL
    ]


def _former_title(before: MemoryRecord | None, line: Line, head: str) -> dict[str, Any]:
    """The title that front matter had, by which links of other notes may mean the note."""
    matter = read_front_matter(head).fields
    further = matter.get(FURTHER)
    had = further.get("aliases", []) if isinstance(further, Mapping) else []
    aliases = [*(had if isinstance(had, list) else [had]), *([before.title] if before and before.title else [])]
    texts = dict.fromkeys(one for one in aliases if isinstance(one, str))
    aliases = [one for one in texts if one and one != line.get("title")]
    return {"aliases": aliases} if aliases and own_of(head, "title") else {}


# --- front matter --------------------------------------------------------------------------------------------------


def own_of(head: str, name: str) -> OwnField | None:
    """The field of a note that gives a field of its record."""
    span = block_of(head)
    return own_field(head[slice(*span)].split("\n"), name) if span else None


def _with_own_fields(head: str, values: Mapping[str, Any]) -> str:
    """Front matter in which the fields that the note has got these values."""
    if not (span := block_of(head)):
        return head
    lines = head[slice(*span)].split("\n")
    for name, value in values.items():
        if found := own_field(lines, name):
            lines[found.begin : found.end] = _field_lines(name, value, lines[found.begin : found.end])
    return head[: span[0]] + "\n".join(lines) + head[span[1] :]


def _field_lines(name: str, value: Any, lines: Sequence[str]) -> list[str]:
    """The lines of a field with another value, in the style of the former ones."""
    key, _, former = lines[0].partition(":")
    former = former.strip()
    if isinstance(value, list):
        return _written_list(key, value, former, lines[1:])
    if name in _DATES and value:
        return [f"{key}: {_date(str(value), former)}"]
    if name == "type" and type_of(former.strip("\"'")) == value:
        return list(lines)
    if name == "state" and former.strip("\"'")[:1].isupper():
        value = str(value).capitalize()
    text = _scalar(value) if value != "" else ""
    if former[:1] == '"' and text[:1] not in ('"', "'", ""):
        text = f'"{text}"'
    return [f"{key}: {text}".rstrip()]


def _written_list(key: str, values: Sequence[Any], former: str, rest: Sequence[str]) -> list[str]:
    texts = [_scalar(value) for value in values]
    if texts and not former and (item := next((match for line in rest if (match := _ITEM.match(line))), None)):
        return [f"{key}:", *(f"{item['indent']}- {text}" for text in texts)]
    if former[:1] not in ("", "[") and texts and not any(text[:1] in "'\"[{" or "," in text for text in texts):
        return [f"{key}: {', '.join(texts)}"]
    return [f"{key}: [{', '.join(texts)}]"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _yaml([value], default_flow_style=True).strip()[1:-1]


def _toml(values: Mapping[str, Any]) -> str:
    """The fields as a table of TOML, whose texts, numbers and lists are those of JSON."""
    lines = [f"{name} = {_toml_value(value)}\n" for name, value in values.items()]
    return f"[{FURTHER}]\n{''.join(lines)}"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml_value(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


class _Dumper(yaml.SafeDumper):
    """Writes links in quotation marks, as Obsidian does: an apostrophe in one stays one."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if text.startswith("[[") else None)


_Dumper.add_representer(str, _write_text)


def _yaml(value: Any, **style: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=1_000_000_000, **style))


def _date(value: str, former: str) -> str:
    """A date as the note writes its dates: with a time if it had one, or has one now."""
    moment = datetime.fromisoformat(value).astimezone(UTC)
    return moment.date().isoformat() if _DAY.fullmatch(former) and moment.time() == time.min else moment.isoformat()


def _with_further(head: str, further: Mapping[str, Any]) -> str:
    """Front matter with these fields below `mnemoscope`, next to those that are there."""
    span = block_of(head)
    lines = head[slice(*span)].split("\n") if span else []
    found = own_field(lines, FURTHER)
    if not further:
        return head
    stored = read_front_matter(head).fields.get(FURTHER)
    values = (dict(stored) if isinstance(stored, Mapping) else {}) | {
        name: slug_name(value) if name == "type" else value for name, value in further.items()
    }
    if span is None and (toml := TOML_BLOCK.match(head)):
        bare = toml["lines"].split(f"[{FURTHER}]")[0].rstrip("\n")
        return f"{head[: toml.start('lines')]}{bare}\n\n{_toml(values)}{head[toml.end('lines') :]}"
    written = _yaml({FURTHER: values})
    if span is None:
        return f"---\n{written}---\n{head}"
    if head[span[0] :].lstrip().startswith("{"):
        # A block of its own, next to one that is no list of lines.
        end = head.index("\n", span[1]) + 1 if "\n" in head[span[1] :] else len(head)
        return f"{head[:end].rstrip()}\n---\n{written}---\n{head[end:]}"
    new = written.rstrip("\n").split("\n")
    if found:
        lines[found.begin : found.end] = new
    else:
        lines[-1:] = [*new, lines[-1]]
    return head[: span[0]] + "\n".join(lines) + head[span[1] :]


def state_word(raw: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a note and the word for it, as its front matter has them; empty if it does not say."""
    matter = raw.get("front_matter")
    values = [matter.get(name) for name in ("status", "state", "Status")] if isinstance(matter, Mapping) else []
    word = next((one for one in (*values, raw.get("state")) if isinstance(one, str)), "")
    status = read_status(word)
    return (status.state, word.strip()) if status.state and not status.successor and len(word) < 40 else ("", "")

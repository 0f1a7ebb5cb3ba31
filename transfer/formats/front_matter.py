"""The front matter of a note: its fields as those of a record. What cannot be read is left out, and noted."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from memories.dates import AmbiguousDateError, date_value
from memories.records import MemoryRecord
from text.analysis import fold
from transfer.formats.languages import FIELD_OF_WORD
from transfer.formats.states import STATE_WORDS, read_status
from web.validation import shown

_BLOCK = re.compile(r"---[ \t]*\n(?P<lines>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(
    r"(?P<name>[^\s:#\-\[\]{},&*!|>'\"%@`?][^:\n]{0,80}?|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}')[ \t]*:(?P<text>[ \t].*|)"
)
_ITEM = re.compile(r"[ \t]*-[ \t]+(?P<text>.+)")
_PROPERTY = re.compile(r"(?P<name>[^\W\d_][^:\n]{0,60}):[ \t]+(?P<text>\S.*)")
_COMMA_IN_LINK = re.compile(r",(?=[^\[\]]*+\]\])")
_WIKI = re.compile(r"!?\[\[(?P<target>[^\[\]|#^]*+)[^\[\]]*+\]\]")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s_-]+")
# The field below which an export writes what the note has no field for.
FURTHER = "mnemoscope"
# Some programs put a block of their own before that of others.
_BLOCKS = 2
# The first characters of values that are no plain text.
_FLOW = ("[", "{", '"', "'", "!", "|", ">", "&")
_EMPTY = ("null", "~", "")
# Fields in TOML between these, as Hugo has them.
TOML_BLOCK = re.compile(r"\+\+\+[ \t]*\n(?P<lines>.*?)^\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# Fields of other tools -> fields of a record.
_ALIASES = {
    "created": "created_at",
    "date": "created_at",
    "creation_date": "created_at",
    "created_by": "authors",
    "owner": "authors",
    "date_created": "created_at",
    "created_on": "created_at",
    "created_time": "created_at",
    "updated": "updated_at",
    "modified": "updated_at",
    "lastmod": "updated_at",
    "last_modified": "updated_at",
    "date_modified": "updated_at",
    "last_updated": "updated_at",
    "last_edited_time": "updated_at",
    "expires": "valid_to",
    "valid_until": "valid_to",
    "valid_since": "valid_from",
    "permalink": "id",
    "category": "categories",
    "keywords": "tags",
    "labels": "tags",
    # Obsidian before version 1.9 reads the singular too.
    "tag": "tags",
    "description": "summary",
    "url": "source_url",
    "author": "authors",
    "deciders": "authors",
    "decision_makers": "authors",
    "status": "state",
    "replaces": "supersedes",
    "supercedes": "supersedes",
    "replaced_by": "superseded_by",
    "superceded_by": "superseded_by",
    "memory_type": "type",
    "external_id": "id",
    "source_uri": "source_url",
    "kind": "type",
    "origin_session_id": "session",
    # Agents that write memories name them so.
    "name": "title",
}
# The text of the file is the content, whatever its front matter contains.
_CONTENT = ("content", "text", "body")
_DATES = ("created_at", "updated_at", "happened_at", "valid_from", "valid_to")
_LISTS = ("tags", "categories", "authors", "supersedes")
_TEXTS = ("id", "title", "summary", "project", "type", "agent", "session", "source", "source_url", "superseded_by")
_NUMBERS = ("importance", "confidence")
_KNOWN = frozenset(MemoryRecord.model_fields)


@dataclass(slots=True)
class FrontMatter:
    """The fields of a note as they are written, its text, and what could not be read."""

    fields: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    notes: list[str] = field(default_factory=list)


def read_front_matter(text: str) -> FrontMatter:
    """Divide a note. A block that has no fields belongs to the text, as one below a rule does."""
    found = FrontMatter()
    start = len(text) - len(text.lstrip("\n"))
    if toml := TOML_BLOCK.match(text, start):
        return _read_toml(toml["lines"], text, toml.end())
    if not (match := _BLOCK.match(text, start)):
        found.body = text.strip()
        return found
    lines = ""
    for _ in range(_BLOCKS):
        if not match or not _has_fields(match["lines"], is_further=bool(lines)):
            break
        for name, value in _fields_of_lines(match["lines"], found.notes).items():
            found.fields.setdefault(name, value)
        lines += match["lines"]
        text = text[match.end() :].lstrip("\n")
        match = _BLOCK.match(text)
    found.body = text.strip()
    if not found.body and found.fields:
        # It is all that the note says.
        found.body = "\n".join(line for line in lines.splitlines() if line.strip())
    return found


class OwnField(NamedTuple):
    """A field as a block of front matter has it: its name as it is written, and its first and last line."""

    name: str
    begin: int
    end: int


def block_of(text: str) -> tuple[int, int] | None:
    """Where the lines of the first block of front matter begin and end in a text; None if it has none."""
    match = _BLOCK.match(text, len(text) - len(text.lstrip("\n")))
    return match.span("lines") if match and _has_fields(match["lines"], is_further=False) else None


def own_field(lines: Sequence[str], wanted: str) -> OwnField | None:
    """The lines of a block that give a field of a record: those that count of several."""
    found: list[OwnField] = []
    for number, line in enumerate(lines):
        if match := _FIELD.fullmatch(line.rstrip()):
            found.append(OwnField(match["name"], number, number + 1))
        elif found and (line[:1] in (" ", "\t", "-", "]", "}")) and line.strip():
            found[-1] = found[-1]._replace(end=number + 1)
    fitting = [one for one in found if field_of(one.name.strip("\"' ")) == wanted or one.name == wanted]
    # YAML takes the last of fields of one name.
    return min(reversed(fitting), key=lambda one: _rank(one.name.strip("\"' ")), default=None)


def _read_toml(lines: str, text: str, end: int) -> FrontMatter:
    try:
        # Dates become the texts that they are written as.
        fields = json.loads(json.dumps(tomllib.loads(lines), default=str))
    except tomllib.TOMLDecodeError as error:
        return FrontMatter({}, text.strip(), [f"front matter: is not TOML ({error}); it is part of the text"])
    return FrontMatter(fields, text[end:].strip() or lines.strip())


def page_properties(body: str) -> dict[str, Any]:
    """The properties that an exported page of Notion has as lines below its title."""
    fields: dict[str, Any] = {}
    _, _, below = body.partition("\n")
    for line in below.lstrip("\n").split("\n"):
        if not (match := _PROPERTY.fullmatch(line.strip())):
            break
        fields[match["name"]] = match["text"]
    return fields if body.startswith("# ") else {}


def _has_fields(lines: str, *, is_further: bool) -> bool:
    """Whether lines between rules are fields: the first one is, and no paragraph of a text follows."""
    written = [line for line in lines.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not written:
        return not is_further and not lines.strip()
    if not _FIELD.fullmatch(written[0].rstrip()) and written[0][:2] != "? ":
        return written[0].strip() in ("{", "}") or (written[0].startswith("{") and written[-1].rstrip().endswith("}"))
    prose = [line for line in written if not (line[:1] in " \t-[]{}\"'?:" or _FIELD.fullmatch(line.rstrip()))]
    return len(prose) <= len(written) // 2


def _fields_of_lines(lines: str, notes: list[str]) -> dict[str, Any]:
    """The fields of a block: by YAML if it is valid, else each field by itself."""
    try:
        loaded = _loaded(lines)
        if isinstance(loaded, dict):
            return loaded
    except (yaml.YAMLError, RecursionError) as error:
        notes.append(f"front matter: is not YAML ({_reason(error)}); its lines are read one by one")
    fields: dict[str, Any] = {}
    for name, part in _parts_of_lines(lines, notes):
        try:
            is_structure = "\n" in part or part[:1] in _FLOW or name == FURTHER
            value = _loaded(part) if is_structure else _text_of(part)
        except (yaml.YAMLError, RecursionError):
            value = _text_of(part)
        fields.setdefault(name, value)
    return fields


def _parts_of_lines(lines: str, notes: list[str]) -> Iterable[tuple[str, str]]:
    """The fields of a block with their lines: those that are indented, or are list items, belong to the one before."""
    parts: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines.split("\n"), 2):
        if match := _FIELD.fullmatch(line.rstrip()):
            parts.append((match["name"].strip("\"' "), [match["text"].strip()]))
        elif parts and (line[:1] in (" ", "\t", "-", "]", "}") or not line.strip()):
            parts[-1][1].append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            notes.append(f"front matter: line {number}, {shown(line.strip())}, is no field; it is left out")
    return [(name, "\n".join(part).strip("\n")) for name, part in parts]


def _text_of(part: str) -> str | list[str]:
    """A value that is no YAML, as a text, or as the texts of a list."""
    first, _, rest = part.strip().partition("\n")
    items = [match["text"].strip().strip("\"'") for line in rest.split("\n") if (match := _ITEM.fullmatch(line))]
    if items and not first:
        return items
    return " ".join(part.split()).strip("\"'")


def _loaded(text: str) -> Any:
    """YAML as texts, lists and mappings alone: a record itself interprets `3.10`, `no` and dates."""
    root = yaml.compose(text, Loader=_Composer)
    if not isinstance(root, yaml.MappingNode):
        return _plain_value(root, text)
    return {_key(key, text): _plain_value(value, text) for key, value in root.value}


class _Composer(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        # Aliases can expand a few lines to gigabytes.
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read here; write the value out")
        return super().compose_node(parent, index)


def _key(node: Any, text: str) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else text[node.start_mark.index : node.end_mark.index]


def _plain_value(node: Any, text: str) -> Any:
    match node:
        case yaml.ScalarNode():
            return node.value
        case yaml.SequenceNode():
            return [_plain_value(item, text) for item in node.value if not _is_null(item)]
        case yaml.MappingNode() if any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
            # Templates have `{{date}}`.
            return text[node.start_mark.index : node.end_mark.index].strip()
        case yaml.MappingNode() if (
            node.value and all(_is_nothing(value) for _, value in node.value) and node.flow_style
        ):
            # A set.
            return [key.value for key, _ in node.value]
        case yaml.MappingNode():
            return {key.value: _plain_value(value, text) for key, value in node.value}
    return None


def _is_null(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("null", "~") and node.style is None


def _is_nothing(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.value and node.style is None


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        # Lines are counted in the file, of which the first is the opening dashes.
        where = f" at line {error.problem_mark.line + 2}" if error.problem_mark else ""
        return f"{error.problem}{where}"
    return str(error) if isinstance(error, yaml.YAMLError) else "it is nested too deeply"


# --- fields of a record --------------------------------------------------------------------------------------------


def field_of(name: str) -> str:
    """The field of a record that a name in front matter means; empty if it means none."""
    key = _WORDS.sub("_", name.strip()).lower()
    key = _ALIASES.get(key) or FIELD_OF_WORD.get(fold(key), key)
    return key if key in _KNOWN else ""


def record_fields(found: FrontMatter, order: str) -> dict[str, Any]:
    """The fields of a record. What is read otherwise than it is written is stored as it was too, in `front_matter`.

    Unknown fields stay as they are. Notes of what is left out are added to those of the front matter.
    """
    data: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    own = sorted(found.fields.items(), key=lambda pair: _rank(pair[0]))
    metadata = found.fields.get("metadata")
    further = metadata.items() if isinstance(metadata, Mapping) else ()
    for name, value in [*own, *((name, value) for name, value in further if field_of(name))]:
        key = field_of(name)
        if value in _EMPTY or key == "content" or name.strip().lower() in _CONTENT:
            continue
        if not key:
            data.setdefault(name, value)
            continue
        if key in data:
            continue
        read = _read_value(key, name, value, order, found.notes)
        if read != value:
            changed[name] = value
        if read not in (None, "", []):
            data[key] = read
            if key == "state" and "superseded_by" not in data and (by := read_status(str(value)).successor):
                data["superseded_by"] = by
    return data | ({"front_matter": changed} if changed else {})


def further_fields(own: Mapping[str, Any], order: str, notes: list[str]) -> dict[str, Any]:
    """The fields that an export writes below `mnemoscope`: these count instead of the note's own, also empty ones."""
    read = record_fields(FrontMatter(dict(own), notes=notes), order)
    named = {field_of(name): value for name, value in own.items()}
    empty = {key: None for key, value in named.items() if key and key not in read and value in (*_EMPTY, [], None)}
    return {key: value for key, value in (empty | read).items() if key in named and key not in ("id", "content")}


def _rank(name: str) -> int:
    """The order in which fields count: a name of our own before one of another tool, and the least certain last."""
    key = name.strip().lower()
    return 0 if key in _KNOWN else 2 if key in ("date", "name", "kind") else 1


def _read_value(key: str, name: str, value: Any, order: str, notes: list[str]) -> Any:
    """A value as a field of a record has it; None if it cannot be read."""
    if key in _LISTS:
        return _list_of(key, name, value, notes)
    if key in _DATES:
        return _date_of(name, value, order, notes)
    if key in _NUMBERS:
        return _number_of(name, value, notes)
    if key == "state":
        return _state_of(name, value, notes)
    return _one_text(name, value, notes) if key in _TEXTS else value


def _list_of(key: str, name: str, value: Any, notes: list[str]) -> Any:
    if isinstance(value, str) and "[[" not in value and (key != "tags" or ("#" not in value and value[:1] != "[")):
        return value
    if isinstance(value, list) and all(isinstance(one, str) and one[:1] != "#" and "[[" not in one for one in value):
        return value
    separators = r"[,\s]+(?=#)|," if key == "tags" else ","
    texts: list[str] = []
    for text in _texts_of(name, value, notes):
        if "[[" in text and key == "supersedes":
            texts.append(text)
        elif "[[" in text:
            parts = text if key == "tags" else _COMMA_IN_LINK.sub("\0", text)
            names = _WIKI.sub(lambda match: match["target"].strip(), parts).split(",")
            texts += [one.replace("\0", ",").strip().removeprefix("#") for one in names]
        elif key == "supersedes" or (key == "categories" and not isinstance(value, str)):
            texts.append(text)
        else:
            # A list that is never closed begins with its bracket.
            several = re.split(separators, text)
            texts += [part.strip(" []").removeprefix("#") if key == "tags" else part for part in several]
    return [text for text in texts if text.strip()]


def _texts_of(name: str, value: Any, notes: list[str]) -> list[str]:
    """The texts in a value: `[[a]]` without quotation marks is a list in a list."""
    if isinstance(value, str):
        return [value]
    if (
        isinstance(value, list)
        and len(value) == 1
        and isinstance(value[0], list)
        and all(isinstance(one, str) for one in value[0])
    ):
        return [f"[[{', '.join(value[0])}]]"] if value[0] else []
    if isinstance(value, list):
        return [text for one in value for text in _texts_of(name, one, notes)]
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return [value["name"]]
    if value is not None:
        notes.append(f"{name}: {shown(value)} is no text; it is left out. Write a text, or a list of texts")
    return []


def _one_text(name: str, value: Any, notes: list[str]) -> str | None:
    if isinstance(value, str) and "[[" not in value:
        return value
    texts = _texts_of(name, value, notes)
    if len(texts) > 1:
        notes.append(f"{name}: has {len(texts)} values; the first, {shown(texts[0])}, is read")
    if not texts:
        return None
    links = [match["target"].strip() for match in _WIKI.finditer(texts[0])]
    return links[0] if links else texts[0]


def _date_of(name: str, value: Any, order: str, notes: list[str]) -> Any:
    texts = _texts_of(name, value, notes)
    if not texts:
        return None
    text = texts[0].strip()
    try:
        return date_value(text, order)
    except AmbiguousDateError as error:
        notes.append(f"{name}: {error}; it is left out. Say which, as the order of dates")
    except ValueError:
        notes.append(f"{name}: {shown(text)} is not a date; it is left out. Write one such as 2026-08-05")
    return None


def _number_of(name: str, value: Any, notes: list[str]) -> Any:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            if 0 <= float(value) <= 1:
                return value
        except ValueError:
            pass
    notes.append(f"{name}: {shown(value)} is not a number from 0 to 1; it is left out")
    return None


def _state_of(name: str, value: Any, notes: list[str]) -> str | None:
    texts = _texts_of(name, value, notes)
    for text in texts:
        if state := read_status(text).state:
            return state
    if texts:
        words = ", ".join(list(STATE_WORDS)[:8])
        notes.append(f"{name}: {shown(texts[0])} is no known state; it is left out. Some that are: {words}")
    return None

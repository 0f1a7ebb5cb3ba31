"""Forms of an export: JSON lines, a table for spreadsheets, and a vault of Markdown files.

JSON lines hold everything; the other two have the memories alone.
"""

import csv
import io
import itertools
import re
import unicodedata
import zipfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import yaml

from text.highlight import plain_title
from transfer.formats.export import PIECE, Line, Lines, Remembered, json_bytes

_COLUMNS = (
    *("id", "project", "type", "title", "summary", "content", "tags", "categories", "concepts", "entities", "authors"),
    *("state", "created_at", "updated_at", "happened_at", "valid_from", "valid_to", "importance", "confidence"),
    *("pinned", "agent", "session", "source", "source_url", "number"),
)
# A spreadsheet takes a cell that begins so for a formula, also after spaces and what it does not show.
_FORMULA, _BEFORE_FORMULA = ("=", "+", "-", "@"), ("\t", "\r", "\n")
# File systems, or links of Obsidian, do not allow these in a name.
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f<>:"/\\|?*#^\[\]]+')
_LONGEST_NAME = 80
# Disks take names of up to 255 bytes, with the number and the suffix.
_LONGEST_NAME_BYTES = 200
# Fields of a record that are front matter of a note, in their order.
_FRONT_MATTER = (
    *("type", "tags", "categories", "concepts", "entities", "authors", "state", "created_at", "updated_at"),
    *("happened_at", "valid_from", "valid_to", "importance", "confidence", "pinned", "agent", "session", "source"),
    *("source_url", "summary"),
)
# The one in C, where there is one, takes a tenth of the time.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# ZIP has no earlier dates.
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


def json_lines(lines: Lines) -> Iterator[bytes]:
    """The lines as JSON, from which an import makes equal memories."""
    for line in lines():
        yield json_bytes(line) + b"\n"


def table(lines: Lines) -> Iterator[bytes]:
    """The memories as CSV in UTF-8 with a byte order mark, which spreadsheets need.

    Several values are separated by semicolons. A text that a spreadsheet would take for a formula begins with an
    apostrophe. All cells are quoted: spreadsheets of some languages divide at semicolons.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, extrasaction="ignore", lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    out.write("\ufeff")
    writer.writeheader()
    for line in lines():
        if "record" not in line:
            number = line.get("stored", {}).get("number")
            writer.writerow({name: _cell(line.get(name)) for name in _COLUMNS} | {"number": number})
        if out.tell() > PIECE:
            yield _taken(out).encode(errors="replace")
    yield _taken(out).encode(errors="replace")


def _taken(out: io.StringIO) -> str:
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text


def _cell(value: Any) -> str:
    if isinstance(value, list):
        value = "; ".join(shown_name(one) for one in value)
    elif isinstance(value, bool):
        value = "yes" if value else ""
    text = "" if value is None else str(value)
    return f"'{text}" if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet may take a text for a formula: also one whose sign is as wide as a Chinese letter."""
    first = next((letter for letter in text if unicodedata.category(letter)[0] not in "CZ"), "")
    return text.startswith(_BEFORE_FORMULA) or unicodedata.normalize("NFKC", first).startswith(_FORMULA)


def shown_name(value: Any) -> str:
    """A concept or an entity by its name; an entity has its type before it."""
    if not isinstance(value, dict):
        return str(value)
    return f"{value['type']}:{value['name']}" if "type" in value else str(value["name"])


def vault(lines: Lines) -> Iterator[bytes]:
    """The memories as a ZIP of Markdown files with front matter, a folder for each project.

    Links are wiki links to the file of the other memory, whose name a first pass finds out. Obsidian, basic-memory and
    the import of Markdown read them.
    """
    buffer = _Unseekable()
    with Remembered() as numbers, Remembered() as by_target:
        names = _FileNames(numbers, by_target)
        for line in lines():
            if "record" not in line:
                names.add(line)
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for line in lines():
                if "record" not in line:
                    moment = datetime.fromisoformat(line["updated_at"])
                    entry = zipfile.ZipInfo(names.file_of(line), max(moment.timetuple()[:6], _FIRST_DATE))
                    archive.writestr(entry, _note(line, names), zipfile.ZIP_DEFLATED)
                if len(buffer.waiting) > PIECE:
                    yield buffer.taken()
    yield buffer.taken()


class _Unseekable(io.RawIOBase):
    """A file that is only written to, and holds what has not been taken yet."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.waiting += data
        return len(data)

    def taken(self) -> bytes:
        data = bytes(self.waiting)
        self.waiting.clear()
        return data


class _FileNames:
    """The names of the files of memories: their titles, with the number if another one has the same."""

    def __init__(self, numbers: Remembered, by_target: Remembered) -> None:
        self._numbers = numbers
        self._by_target = by_target

    def add(self, line: Line) -> None:
        number, stem = str(line["stored"]["number"]), _stem(line)
        others = (f"{stem} ({number}, {n})" for n in itertools.count(2))
        names = itertools.chain((stem, f"{stem} ({number})"), others)
        name = next(one for one in names if self._numbers.add(number, one.casefold()) == number)
        for target in (line.get("id"), _mark(line)):
            if target:
                self._by_target.set(name, line["project"], target)

    def file_of(self, line: Line) -> str:
        project: str = line["project"]
        return f"{project}/{self.linked(project, _mark(line))}.md"

    def linked(self, project: str, target: str) -> str:
        """The target of a link as it is written: the name of its file, if the export has it."""
        return self._by_target.get(project, target) or target


def _mark(line: Line) -> str:
    return f"#{line['stored']['number']}"


def _stem(line: Line) -> str:
    title = " ".join(_NOT_IN_NAMES.sub(" ", plain_title(line.get("title", ""))).split())
    # A name that begins with a dot is hidden, and one that ends with a dot or a space is none on Windows.
    short = title[:_LONGEST_NAME].encode(errors="replace")[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return short.strip(" .") or "Untitled"


def _note(line: Line, names: _FileNames) -> bytes:
    matter: dict[str, Any] = {"title": line.get("title", "")}
    matter["permalink"] = line.get("id") or _mark(line)
    matter |= {name: line[name] for name in _FRONT_MATTER if name in line}
    if "concepts" in matter:
        matter["concepts"] = [one if "weight" in one else one["name"] for one in matter["concepts"]]
    head = yaml.dump(matter, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=1_000)
    relations = [
        f"- {link['rel']}: <{link['url']}>"
        if "url" in link
        else f"- {link['rel']} [[{names.linked(line['project'], link['target'])}]]"
        for link in line.get("links", ())
    ]
    below = "\n\n## Relations\n\n" + "\n".join(relations) if relations else ""
    return f"---\n{head}---\n\n{line['content']}{below}\n".encode(errors="replace")

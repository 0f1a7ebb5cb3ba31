"""The interface of the forms of an export: from the lines of `export_lines` to bytes, a piece at a time.

An export of any size takes little memory: what a form has to say later than its line waits in a file.
"""

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memories.records import DEFAULT_REL, DEFAULT_TYPE, EMBEDS_REL, derived_title, normalise_tag, slug_name
from text.wiki_links import name_key, named_texts, names_of_file
from transfer.formats.drafts import plain_text

PIECE = 64 * 1024

Line = dict[str, Any]

Lines = Callable[[], Iterable[Line]]
"""Begins the lines of an export; called again, it gives the same lines."""


@dataclass(frozen=True, slots=True)
class Format:
    """A form of an export: its media type, the end of a file's name, and what writes it.

    A form without states is for systems that do not know them: it takes what a search would find, unless the search
    selects states.
    """

    media_type: str
    suffix: str
    write: Callable[[Lines], Iterator[bytes]]
    is_text: bool = True
    has_states: bool = True
    has_rows: bool = False
    """Whether it writes the rows of tables too."""
    has_files: bool = False
    """Whether it writes the files of notes that became no memories too."""


def json_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; a half of a character becomes a question mark."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


class Waiting:
    """Bytes that are written later than they are known, in a file that is gone when it is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the with block
        self._end = 0

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, data: bytes) -> int:
        """Append the data, and give its place."""
        place = self._end
        self._end += self._file.write(data)
        return place

    def at(self, place: int, length: int) -> bytes:
        """The bytes at a place. Nothing can be added afterwards."""
        self._file.seek(place)
        return self._file.read(length)

    def lines(self) -> Iterator[bytes]:
        """The pieces that were added, if each ends with its only line break."""
        self._file.seek(0)
        yield from self._file


class Remembered:
    """Texts by text, in a file that is gone when it is closed: those of a million memories take little memory."""

    def __init__(self) -> None:
        # A response may be written by one thread after another.
        self._file = sqlite3.connect("", check_same_thread=False)
        self._file.execute("PRAGMA cache_size = -16000")
        self._file.execute("CREATE TABLE texts (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

    def __enter__(self) -> "Remembered":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def get(self, *key: str) -> str | None:
        row = self._file.execute("SELECT value FROM texts WHERE key = ?", ["\0".join(key)]).fetchone()
        return str(row[0]) if row else None

    def add(self, value: str, *key: str) -> str:
        """The value of a key: this one, unless it has one already."""
        made = self._file.execute("INSERT INTO texts VALUES (?, ?) ON CONFLICT DO NOTHING", ["\0".join(key), value])
        return value if made.rowcount else self.get(*key) or ""

    def set(self, value: str, *key: str) -> None:
        self._file.execute("REPLACE INTO texts VALUES (?, ?)", ["\0".join(key), value])


def json_list(items: Iterable[bytes]) -> Iterator[bytes]:
    """The JSON of a list from that of its items."""
    yield b"["
    first = True
    for item in items:
        yield item if first else b",\n" + item
        first = False
    yield b"]"


def as_there(there: Iterable[Any], here: Iterable[str]) -> list[str]:
    """The names that a memory has, in the order and spelling of the system that it came from; then those it lacks."""
    stored = [text for name in there if (text := plain_text(name))]
    present = {normalise_tag(name): name for name in here}
    known = {normalise_tag(name) for name in stored}
    return [name for name in stored if normalise_tag(name) in present] + [
        name for key, name in present.items() if key not in known
    ]


def original(line: Line, source: str) -> Mapping[str, Any]:
    """The record that a memory was made of, if it came from that system; else an empty one."""
    raw = line["stored"].get("raw") if line.get("source") == source else None
    return raw if isinstance(raw, Mapping) else {}


def type_of(there: Any) -> str:
    """The type that a memory gets by that of another system."""
    return slug_name(plain_text(there)) or DEFAULT_TYPE


def untold_links(line: Line) -> list[dict[str, Any]]:
    """The links of a memory that its text does not have itself."""
    told = {name_key(one.name) for one in named_texts(line["content"])}
    return [
        link
        for link in line.get("links", ())
        if link["rel"] not in (DEFAULT_REL, EMBEDS_REL) or told.isdisjoint(map(name_key, names_of_file(link["target"])))
    ]


def own_title(line: Line) -> str:
    """The title that a memory was given; empty if its title comes from its text."""
    title: str = line.get("title", "")
    return "" if title == derived_title(line["content"]) else title


def spelt(there: Any, here: str | None) -> str | None:
    """A text as the other system stores it, white space at its ends included, unless it has changed."""
    return there if isinstance(there, str) and plain_text(there) == (here or "") else here

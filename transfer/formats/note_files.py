"""The file of a note: what it has besides the text of its memory, so that an export gives the same bytes again.

A memory of a note has it in its raw record, under `note_file`, with hashes of its fields as they came from the note, by
which edits made here are known. Does not use the database.
"""

import base64
import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Formats are read by processes that have no database.
    from memories.snapshot import MemorySnapshot

NOTE_FILE = "note_file"
# The last are rules of Cursor.
NOTE_SUFFIXES = (".md", ".markdown", ".mdc")
# Files of notes are read up to this size; see `markdown.MAX_BYTES`.
_MAX_BYTES = 5_000_000
_ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
_LINE_ENDS = ("\n", "\r\n", "\r")
# Fields of a record -> those of a memory.
_FIELDS = {
    **{name: name for name in ("title", "summary", "content", "tags", "authors", "agent", "pinned")},
    **{name: name for name in ("created_at", "happened_at", "valid_from", "valid_to", "importance", "confidence")},
    **{name: name for name in ("categories", "concepts", "entities", "links")},
    "type": "memory_type",
    "project": "project_id",
    "session": "session_id",
}
# Fields that imports of other notes change too, and are stored as they are.
_STATE = {"state": "state", "superseded_by": "superseded_by_id"}
_EDITED = "edited"


@dataclass(frozen=True, slots=True)
class NoteFile:
    """A file of a note, but for the text of its memory, which is between `head` and `tail`.

    `whole` has all bytes of a file that does not consist of these, such as one with two kinds of line ends.
    """

    path: str
    vault: str = ""
    """The name of the folder that was imported."""
    is_obsidian: bool = False
    """Whether that is a vault of Obsidian, whose notes have tags in their texts."""
    encoding: str = "utf-8"
    has_mark: bool = False
    """Whether it begins with a byte order mark."""
    line_end: str = "\n"
    head: str = ""
    tail: str = ""
    whole: str = ""
    digest: str = ""
    imported: Mapping[str, Any] = field(default_factory=dict)
    project: str = ""
    """The project of a note that became no memory."""
    pending: Mapping[str, Any] = field(default_factory=dict)
    """The hash of a file that is being written in place of this one, and its fields, as in `imported`."""

    def as_json(self) -> dict[str, Any]:
        """The values to store: those that most files have are left out."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != _USUAL.get(name)}

    def original(self, content: str) -> bytes:
        """The bytes of the file, given its text, if neither was edited."""
        return _unpack(self.whole) if self.whole else self.encoded(f"{self.head}{content}{self.tail}")

    def encoded(self, text: str) -> bytes:
        """A text with line feeds as the file writes texts."""
        mark = "\ufeff" if self.has_mark else ""
        return (mark + text.replace("\n", self.line_end)).encode(self.encoding, errors="replace")

    def complete(self, content: str) -> "NoteFile":
        """The file with all its bytes in itself, for a note that becomes no memory."""
        return self if self.whole else replace(self, whole=_pack(self.original(content)))

    def changed_by(self, change: Callable[[str], str]) -> "NoteFile":
        """The file with its texts changed. It is not the one that was read then, and nothing is written to that."""
        whole = _unpack(self.whole).decode(self.encoding, "replace") if self.whole else ""
        text = change(whole)
        packed = _pack(text.encode(self.encoding, "replace")) if text != whole else self.whole
        names = [self.path, self.vault, self.project]
        # Together first, since hardly any is changed.
        if change("\n".join(names)) != "\n".join(names):
            names = [change(name) for name in names]
        path, vault, project = names
        changed = replace(
            self, path=path, vault=vault, project=project, head=change(self.head), tail=change(self.tail), whole=packed
        )
        return self if changed == self else replace(changed, digest="")

    def read_again(self, known: "NoteFile") -> "NoteFile":
        """This file, read in place of one that is known: with the fields that came from it, or were written to it."""
        is_own = known.pending.get("digest") == self.digest
        return replace(self, imported=known.pending.get("imported", {}) if is_own else known.imported)

    def text(self) -> str:
        """The text of a file that has all bytes in itself, with line feeds."""
        text = _unpack(self.whole).decode(self.encoding, errors="replace").removeprefix("\ufeff")
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")

    def edited_fields(self, memory: "MemorySnapshot") -> list[str]:
        """The fields of a record that were edited since the note was imported."""
        now = _hashes(memory)
        hashed = [name for name in _FIELDS if now.get(name) != self.imported.get(name)]
        return hashed + [name for name, own in _STATE.items() if getattr(memory, own) != self.imported.get(name)]


_USUAL: dict[str, Any] = {
    "vault": "",
    "is_obsidian": False,
    "encoding": "utf-8",
    "has_mark": False,
    "line_end": "\n",
    "head": "",
    "tail": "",
    "whole": "",
    "digest": "",
    "imported": {},
    "project": "",
    "pending": {},
}


def note_file_of(path: str, vault: str, data: bytes, encoding: str, body: str, *, is_obsidian: bool) -> NoteFile:
    """The file of a note, given its bytes and the text of its memory; without a text, with all of its bytes."""
    plain = {"utf-8-sig": "utf-8", "utf-16": "utf-16-be" if data[:2] == b"\xfe\xff" else "utf-16-le"}
    encoding = plain.get(encoding, encoding)
    digest = digest_of(data)
    found = NoteFile(path, vault, is_obsidian, encoding if encoding in _ENCODINGS else "utf-8", digest=digest)
    text = data.decode(found.encoding, errors="replace")
    found = replace(found, has_mark=text.startswith("\ufeff"), line_end=_line_end(text))
    plain_text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if "\0" not in plain_text and (parts := parts_around(plain_text, body)):
        in_parts = replace(found, head=parts[0], tail=parts[1])
        if in_parts.original(body) == data:
            return in_parts
    return replace(found, whole=_pack(data))


def digest_of(data: bytes) -> str:
    """The hash by which a file is known to be as it was read."""
    return blake2b(data, digest_size=8).hexdigest()


def _line_end(text: str) -> str:
    """The most frequent end of a line."""
    both = text.count("\r\n")
    counts = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    return max(counts, key=lambda end: counts[end])


def parts_around(text: str, body: str) -> tuple[str, str] | None:
    """The text before a body, and the white space after it; None if it does not end with it."""
    bare = text.rstrip()
    if not body or not bare.endswith(body):
        return None
    return bare[: len(bare) - len(body)], text[len(bare) :]


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _unpack(whole: str) -> bytes:
    return zlib.decompressobj().decompress(base64.b64decode(whole), _MAX_BYTES)


# --- in raw records ------------------------------------------------------------------------------------------------


def note_file_in(raw: Any) -> NoteFile | None:
    """The file in a raw record; None if there is none, or something else that somebody wrote there."""
    stored = raw.get(NOTE_FILE) if isinstance(raw, Mapping) else None
    if not isinstance(stored, Mapping):
        return None
    values = _USUAL | {name: value for name, value in stored.items() if name in NoteFile.__slots__}
    if any(not isinstance(values[name], type(usual)) for name, usual in _USUAL.items()):
        return None
    is_known = values["encoding"] in _ENCODINGS and values["line_end"] in _LINE_ENDS
    if not is_known or not is_safe_path(values.get("path")) or "/" in values["vault"] or values["vault"][:1] == ".":
        return None
    try:
        _unpack(values["whole"]) if values["whole"] else b""
    except (ValueError, zlib.error):
        return None
    return NoteFile(**values)


def is_safe_path(path: Any) -> bool:
    """Whether a path is that of a note below a folder. Hidden ones, such as a program's settings, are none."""
    if not isinstance(path, str) or not path.lower().endswith(NOTE_SUFFIXES) or "\\" in path or "\0" in path:
        return False
    return not any(not step or step.startswith(".") for step in path.split("/"))


def with_note_file(memory: "MemorySnapshot", note: NoteFile, *, edited: Collection[str] = ()) -> "MemorySnapshot":
    """A memory with the file of its note, whose fields are as they came from it, but for those that were edited."""
    imported = _imported_fields(memory)
    return with_file_as_it_is(memory, replace(note, imported=imported | dict.fromkeys(edited, _EDITED)))


def pending_of(memory: "MemorySnapshot", digest: str) -> dict[str, Any]:
    """The `pending` of a file that is about to get the fields of a memory."""
    return {"digest": digest, "imported": _imported_fields(memory)}


def _imported_fields(memory: "MemorySnapshot") -> dict[str, Any]:
    imported = _hashes(memory) | {name: getattr(memory, own) for name, own in _STATE.items()}
    return {name: value for name, value in imported.items() if value is not None}


def with_file_as_it_is(memory: "MemorySnapshot", note: NoteFile) -> "MemorySnapshot":
    """A memory with the file of its note in its raw record."""
    raw = json.loads(memory.raw) if memory.raw else {}
    return replace(memory, raw=json.dumps(raw | {NOTE_FILE: note.as_json()}, ensure_ascii=False, sort_keys=True))


def _hashes(memory: "MemorySnapshot") -> dict[str, str]:
    values = {name: getattr(memory, own) for name, own in _FIELDS.items()}
    return {name: _hash_of(value) for name, value in values.items() if value not in (None, "", (), False)}


def _hash_of(value: Any) -> str:
    if isinstance(value, tuple):
        value = [getattr(one, "id", one) for one in value]
        value = repr(value if any(not isinstance(one, int) for one in value) else sorted(value))
    text = value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=5).hexdigest()

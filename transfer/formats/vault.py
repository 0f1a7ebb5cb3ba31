"""A vault of Markdown files as a form of an export: notes that came from files as these files, others as new ones."""

import io
import itertools
import json
import logging
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml

from text.formatting import plural
from text.highlight import plain_title
from text.wiki_links import name_key, names_of_file
from transfer.formats.export import PIECE, Line, Lines, Remembered, Waiting, json_bytes, untold_links
from transfer.formats.note_edits import Around, edited_note, state_word
from transfer.formats.note_files import NoteFile, note_file_in
from transfer.formats.trees import EXPORT_REPORT

logger = logging.getLogger("mnemoscope.exports")

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
# ZIP has no other dates.
_FIRST_DATE, _LAST_DATE = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)
_DELETED = "deleted"


def vault(lines: Lines) -> Iterator[bytes]:
    """The memories as a ZIP of Markdown files: a folder for each one that was imported, and for each other project.

    A note that was imported is at its place again, with its bytes if nothing was edited. Others are new notes with
    front matter, whose links are wiki links. A first pass finds out the names of the files.
    """
    buffer = _Unseekable()
    with _Places() as places:
        for line in lines():
            places.add(line)
        places.settle()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for line in lines():
                if found := places.file(line):
                    moment = datetime.fromisoformat(line.get("updated_at", "")) if "updated_at" in line else _now()
                    date = min(max(moment.timetuple()[:6], _FIRST_DATE), _LAST_DATE)
                    entry = zipfile.ZipInfo(found[0], date)
                    archive.writestr(entry, found[1], zipfile.ZIP_DEFLATED)
                if len(buffer.waiting) > PIECE:
                    yield buffer.taken()
            if report := places.report():
                archive.writestr(EXPORT_REPORT, report, zipfile.ZIP_DEFLATED)
    yield buffer.taken()


def _now() -> datetime:
    return datetime.now(UTC)


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


class _Places:
    """The files of memories: those that notes came from, and names for others, with the number if it is taken."""

    def __init__(self) -> None:
        # Number -> file; file -> number; project and name -> file; and others, each with a first word of its own.
        self._known = Remembered()
        self._new = Waiting()
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> "_Places":
        return self

    def __exit__(self, *_: object) -> None:
        self._known.__exit__()
        self._new.__exit__()

    def add(self, line: Line) -> None:
        """Take a place of a note; others wait until all of these are taken."""
        if line.get("record") == "file":
            self._new.add(json_bytes({"file": line}) + b"\n")
        if "record" in line:
            return
        if line["state"] != _DELETED:
            for link in line.get("links", ()):
                self._known.set("yes", "linked", line["project"], name_key(link["target"]))
        number, note = str(line["stored"]["number"]), note_file_in(line["stored"].get("raw"))
        if note is None:
            new = {name: line[name] for name in ("id", "project", "title") if name in line}
            self._new.add(json_bytes(new | {"number": number}) + b"\n")
            return
        folder = note.vault or line["project"]
        self._known.add(folder, "folder", line["project"])
        state, word = state_word(line["stored"]["raw"])
        if state:
            self._known.add(word, "word", folder, state)
        path = f"{folder}/{note.path}"
        bare, end = posixpath.splitext(path)
        others = (f"{bare} ({number}, {n}){end}" for n in itertools.count(2))
        for one in itertools.chain((path, f"{bare} ({number}){end}"), others):
            if self._known.add(number, "file", one) == number:
                break
        self._known.add(number, "taken", one.casefold())
        self._name(number, one, line["project"], line.get("id"))
        if one != path:
            self._counts["renamed"] += 1

    def _name(self, number: str, path: str, project: str, name: str | None) -> None:
        self._known.set(path, "of", number)
        for target in (name, f"#{number}"):
            if target:
                self._known.set(path, "target", project, target)

    def settle(self) -> None:
        """Give the other memories, and files that became no memories, the places that are free."""
        for text in self._new.lines():
            new = json.loads(text)
            if "file" in new:
                note = note_file_in(new["file"])
                path = f"{note.vault or new['file']['project']}/{note.path}" if note else ""
                if note and self._known.get("file", path) is None:
                    self._known.set("file", "file", path)
                    self._known.add("file", "taken", path.casefold())
                continue
            number, stem = new["number"], _stem(new.get("title", ""))
            folder = self._known.get("folder", new["project"]) or new["project"]
            others = (f"{stem} ({number}, {n})" for n in itertools.count(2))
            for name in itertools.chain((stem, f"{stem} ({number})"), others):
                path = f"{folder}/{name}.md"
                taken = self._known.get("taken", path.casefold())
                if taken is None and self._known.add(number, "name", name.casefold()) == number:
                    break
            self._name(number, path, new["project"], new.get("id"))

    def file(self, line: Line) -> tuple[str, bytes] | None:
        """The path and the bytes of a line; None if it has no file."""
        if "record" in line:
            return self._bare_file(line) if line["record"] == "file" else None
        number = str(line["stored"]["number"])
        path = self._known.get("of", number) or ""
        note = note_file_in(line["stored"].get("raw"))
        edited = line["stored"].get("edited", ())
        if line["state"] == _DELETED and (note is None or "state" in edited):
            files = names_of_file(note.path) if note else ()
            names = filter(None, (line.get("id"), line.get("title"), f"#{number}", *files))
            if not any(self._known.get("linked", line["project"], name_key(name)) for name in names):
                self._counts["deleted"] += 1
                return None
        self._counts["new" if note is None else "edited" if edited else "same"] += 1
        if line["state"] in ("superseded", "archived"):
            self._counts[line["state"]] += 1
        return path, self._new_note(line, path) if note is None else self._edited_file(note, line, path)

    def _bare_file(self, line: Line) -> tuple[str, bytes] | None:
        note = note_file_in(line)
        path = f"{note.vault or line['project']}/{note.path}" if note else ""
        if note is None or self._known.get("file", path) != "file":
            return None
        self._counts["bare"] += 1
        return path, note.original("")

    def _edited_file(self, note: NoteFile, line: Line, path: str) -> bytes:
        folder, successor = path.split("/", 1)[0], line["stored"].get("superseded_by")
        name = self._linked(line["project"], f"#{successor}", path) if successor else ""
        try:
            return edited_note(note, line, Around(name, lambda state: self._known.get("word", folder, state)))
        except Exception:
            # One note must not end the export of all.
            logger.exception("The edits of %s cannot be written in its own way.", path)
            return self._new_note(line, path)

    def _linked(self, project: str, target: str, path: str) -> str:
        """The target of a link as it is written: the file that it leads to, if the export has it."""
        there = self._known.get("target", project, target)
        if there is None:
            self._counts["dangling"] += 1
            return target
        bare = posixpath.splitext(there)[0]
        folder, _, below = bare.partition("/")
        return below if folder == path.split("/", 1)[0] else posixpath.basename(bare)

    def _new_note(self, line: Line, path: str) -> bytes:
        """A new note of a memory."""
        matter: dict[str, Any] = {"title": line.get("title", "")}
        matter["permalink"] = line.get("id") or f"#{line['stored']['number']}"
        matter |= {name: line[name] for name in _FRONT_MATTER if name in line}
        if "concepts" in matter:
            matter["concepts"] = [one if "weight" in one else one["name"] for one in matter["concepts"]]
        head = yaml.dump(matter, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=1_000)
        relations = [
            f"- {link['rel']}: <{link['url']}>"
            if "url" in link
            else f"- {link['rel']} [[{self._linked(line['project'], link['target'], path)}]]"
            for link in untold_links(line)
        ]
        below = "\n\n## Relations\n\n" + "\n".join(relations) if relations else ""
        return f"---\n{head}---\n\n{line['content']}{below}\n".encode(errors="replace")

    def report(self) -> str:
        """Sentences about an export of notes that came from files, or that leaves something out; else empty."""
        counts = self._counts
        if not any(counts[name] for name in ("same", "edited", "bare", "deleted")):
            return ""
        told = [
            f"{plural(counts['same'], 'note')} as imported, byte for byte.",
            f"{plural(counts['edited'], 'note')} with what was edited since.",
            f"{plural(counts['new'], 'new note')} of memories that came from no note.",
            f"{plural(counts['bare'], 'file')} of notes that are no memories, as imported (empty ones, for example).",
            f"{counts['superseded']:,} of these are superseded and {counts['archived']:,} archived, which their front "
            "matter says where it was edited or is new.",
            f"{plural(counts['deleted'], 'deleted memory', 'deleted memories')} left out.",
            f"{plural(counts['renamed'], 'note')} with a number in the name, since two folders had the same file.",
            f"{plural(counts['dangling'], 'link')} of new notes to what is not in this export.",
        ]
        shown = [line for line in told if not line.startswith(("0 ", "no "))]
        more = (
            "Attachments (images and other files) and hidden folders are not stored here, and so not in this export: "
            "unpack a folder over the one that it came from, and links to them lead where they led."
        )
        return "\n".join((*shown, "", more, ""))


def _stem(title: str) -> str:
    plain = " ".join(_NOT_IN_NAMES.sub(" ", plain_title(title)).split())
    # A name that begins with a dot is hidden, and one that ends with a dot or a space is none on Windows.
    short = plain[:_LONGEST_NAME].encode(errors="replace")[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return short.strip(" .") or "Untitled"

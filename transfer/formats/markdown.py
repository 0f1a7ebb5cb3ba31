"""A folder of Markdown files, or a single one: front matter, folders as categories, wiki links and relative links.

Notes of basic-memory have observations and typed relations; vaults of Obsidian have inline tags, aliases and embeds.
"""

import contextlib
import hashlib
import os
import posixpath
import re
import stat
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from categories.paths import MAX_DEPTH
from memories.dates import DateOrder, date_value, read_moment
from memories.records import MAX_CONTENT, MAX_LIST, MAX_TAG
from text.highlight import first_heading, heading_text
from text.wiki_links import WIKI_LINK, name_key, without_code
from transfer.formats import claude_code, notion
from transfer.formats.base import (
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    RefusedRecord,
    SourceRecord,
    UnreadableFileError,
    read_guarded,
)
from transfer.formats.decisions import decision_fields
from transfer.formats.front_matter import FURTHER, further_fields, page_properties, read_front_matter, record_fields
from transfer.formats.importer import Following, Importer
from transfer.formats.note_files import NOTE_SUFFIXES, note_file_of
from transfer.formats.sessions import folder_name
from transfer.formats.sources import encoding_of
from transfer.formats.trees import FileTree, TreeFile, is_skipped, storable_name
from transfer.formats.type_rules import type_by_rule

SUFFIXES = NOTE_SUFFIXES
# Files in which people and agents write what an agent of a repository should know.
AGENT_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "copilot-instructions.md")
_AGENT_FOLDERS = (".claude", ".github", ".cursor", "rules")
# The memory of Claude Code for a repository, and the list of its files.
_MEMORY_FOLDER, _MEMORY_INDEX = "memory", "MEMORY.md"
# Files that users may expect to be imported along with the notes.
_RECORD_SUFFIXES = (".jsonl", ".jsonl.gz")
# A file that changed this lately may be changed again without a difference in its time.
_JUST_NOW_NS = 2_000_000_000
# The longest text in four-byte characters, plus the front matter.
MAX_BYTES = 5 * MAX_CONTENT
# The first bytes of a file, which hold its front matter.
START = 4096
_RECORDS_HERE = "Name files of records themselves as paths to import"
_FRONT_MATTER = re.compile(r"\A\n*---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAMING_LINE = re.compile(r"^(?P<field>id|permalink|title):[ \t]*(?P<value>.+)$", re.MULTILINE | re.IGNORECASE)
_DATE_LINE = re.compile(
    r"^[\w -]{0,20}(?:date|created|updated|modified)[\w -]{0,20}:[ \t]*(?P<value>.+)$", re.MULTILINE | re.IGNORECASE
)
_LINK = re.compile(r"(?P<embedded>!?)\[\[(?P<target>[^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
# No pattern may start again within what it has read, or a note of brackets alone would take hours.
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]*\]\((?P<target><[^<>\n]*>|[^()\s]+)(?:\s+\"[^\"\n]*\")?\)")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?P<text>\S.*)$", re.MULTILINE)
# `[category] text`; not a task, a link, a time code or a mark such as [x] or [>].
_OBSERVATION = re.compile(r"\[(?P<category>[^\[\]()\n]+)\][ \t]+(?P<text>.+)")
_TIME_CODE = re.compile(r"\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?(?:\s+-\s+\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?)?")
# `relation [[Target]] (context)`: one word, or several in quotation marks, and nothing else after the target.
_RELATION = re.compile(
    r"(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<word>[^\s\[\]\"'!]+))[ \t]*"
    r"\[\[(?P<target>[^\[\]|#\n]++)[^\[\]\n]*\]\][ \t]*+(?:\((?P<context>[^()\n]*)\)[ \t]*)?"
)
_TITLE = re.compile(r"^ {0,3}#[ \t]+(?P<text>\S.*)$|^(?P<underlined>\S.*)\n=+[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->")
_OBSERVATIONS_HEADING = re.compile(r"^#{1,6}[ \t]+Observations[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ALIAS = re.compile(r"^[ \t]*alias(?:es)?:", re.MULTILINE)
_INLINE_TAG = re.compile(r"(?:(?<=\s)|^)#(?P<tag>[\w/-]*[^\W\d][\w/-]*)", re.MULTILINE)
VAULT = ".obsidian"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<text>\S.{0,200})$", re.MULTILINE)
# The number of a decision record in the name of its file, and in what others write.
_NUMBERED = re.compile(r"(?:adr|dr|rfc|decision)?[-_ #]*0*(?P<number>\d{1,5})(?=[-_. ]|$)", re.IGNORECASE)
_NUMBER = re.compile(r"\W*(?:adr|dr|rfc|decision)?[-_ #]*0*(?P<number>\d{1,5})\b(?!-\d\d-)", re.IGNORECASE)
_DATED_NAME = re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)([-_.]?)(?P<month>[01]\d)\2(?P<day>[0-3]\d)(?!\d(?!\d{3}))")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_SUPERSEDES = ("supersedes", "supercedes", "replaces")
_SUPERSEDED_BY = ("superseded-by", "superseded by", "superceded-by", "replaced-by", "replaced by")


def knows(path: Path) -> bool:
    """Whether a path is a folder, or a file with a Markdown suffix: any text is valid Markdown."""
    return path.is_dir() or (path.is_file() and path.suffix.lower() in SUFFIXES)


def read(path: Path, options: Options) -> Reading:
    return _reading(path, options)


def read_parts(path: Path, options: Options, locations: Collection[str]) -> Reading:
    return _reading(path, options, locations)


def parts(path: Path) -> Iterator[tuple[str, str]]:
    """The files by their places below the folder, and a text of size and time that differs once one was written."""
    now = time.time_ns()
    for place, state in _states(path):
        if stat.S_ISREG(state.st_mode):
            fresh = " fresh" if 0 <= now - state.st_mtime_ns < _JUST_NOW_NS else ""
            yield storable_name(place), f"{state.st_ino} {state.st_size} {state.st_mtime_ns}{fresh}"


def _states(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a folder, or the one, and their states: asked of the open folders, since there may be very many."""
    if not path.is_dir():
        yield path.name, path.stat()
        return
    begin = len(str(path).rstrip("/")) + 1
    for folder, folders, names, opened in os.fwalk(path, onerror=_cannot_be_read):
        folders[:] = _read_folders(folders)
        place = f"{folder[begin:]}/" if folder[begin:] else ""
        read = sorted(name for name in names if name.lower().endswith(SUFFIXES) and not is_skipped(name))
        for name in (name for name in read if not is_index(folder, name, read)):
            with contextlib.suppress(FileNotFoundError):
                yield place + name, os.stat(name, dir_fd=opened)


def places(path: Path) -> list[str]:
    """The places of the notes of a folder; none for a single one, which says nothing about others."""
    return [storable_name(place) for place, _ in _states(path)] if path.is_dir() else []


def folders(path: Path) -> Iterator[str]:
    """The folder and those below it that are read."""
    for folder, below, _ in os.walk(path, onerror=_cannot_be_read):
        below[:] = _read_folders(below)
        yield folder


def stamp(path: Path) -> str:
    if not path.exists():
        raise ImportFailedError(f"{path}: is not there.")
    digest = hashlib.blake2b(digest_size=16)
    for location, text in parts(path):
        digest.update(f"{location}\0{text}\n".encode())
    return digest.hexdigest()


def _reading(path: Path, options: Options, locations: Collection[str] | None = None) -> Reading:
    tree = FileTree(path)
    every = list(tree.files())
    files = [file for file in every if file.suffix in SUFFIXES or not path.is_dir()]
    beside = [file.name for file in files]
    files = [file for file in files if not is_index(str(path), file.name, beside)]
    chosen = files if locations is None else [file for file in files if file.name in locations]
    of_records = [file.name for file in every if file.name.lower().endswith(_RECORD_SUFFIXES)] if path.is_dir() else []
    if not files and locations is None:
        here = f" {_RECORDS_HERE}, such as {path / of_records[0]}." if of_records else ""
        raise NotReadableError(
            f"{path}: holds no Markdown files ({', '.join(f'*{suffix}' for suffix in SUFFIXES)}).{here}"
        )
    # The resolved name, since the path may be `.`; a single file does not name a project.
    project = options.project or project_of(path)
    done = 0

    def records() -> Generator[SourceRecord | RefusedRecord, None, None]:
        nonlocal done
        names = names_of((file.name, tree.start(file, START)) for file in files)
        is_vault = (tree.folder / VAULT).is_dir()
        about = {} if options.project else agent_projects(tree.folder, [file.name for file in files])
        folder = Folder(
            project, names, is_vault, name=name_of(path), rules=options.types, dates=options.dates, about=about
        )
        for file in chosen:
            yield from read_guarded(file.name, partial(read_note, tree, file, folder))
            done += 1
        for name in of_records if locations is None else ():
            yield RefusedRecord(name, f"is not Markdown. {_RECORDS_HERE}")

    return Reading(records(), lambda: done / len(chosen) if chosen else None)


def is_index(folder: str, name: str, beside: Sequence[str]) -> bool:
    """Whether a file only lists the memories of Claude Code that are beside it."""
    place, base = posixpath.split(name)
    of_memory = posixpath.basename(posixpath.join(folder.rstrip("/"), place).rstrip("/")) == _MEMORY_FOLDER
    return base == _MEMORY_INDEX and of_memory and sum(posixpath.dirname(one) == place for one in beside) > 1


def agent_projects(root: Path, names: Iterable[str]) -> dict[str, str]:
    """The repositories that folders of Claude Code's memory are about, by the sessions that lie beside these."""
    found = {}
    for place in {posixpath.dirname(name) for name in names}:
        if posixpath.basename(place) == _MEMORY_FOLDER and (about := claude_code.working_folder((root / place).parent)):
            found[place] = folder_name(about)
    return found


def project_of(path: Path) -> str:
    """The project of notes that name none: their folder, or the repository that they are about; empty for one note."""
    path = path.resolve()
    if path.name == _MEMORY_FOLDER and (about := claude_code.working_folder(path.parent)):
        return folder_name(about)
    if path.name not in AGENT_FILES and path.parts[-2:] != (".cursor", "rules"):
        return path.name if path.is_dir() else ""
    repository = next((folder for folder in path.parents if (folder / ".git").exists()), None)
    if repository is None and path.parent.name == ".claude":
        # For all repositories of somebody.
        return ""
    return (repository or next((one for one in path.parents if one.name not in _AGENT_FOLDERS), path.parent)).name


def name_of(path: Path) -> str:
    """The name of a folder of notes, by which an export writes them; empty for a single note."""
    path = path.resolve()
    return (project_of(path) if path.name == _MEMORY_FOLDER else path.name).lstrip(".") if path.is_dir() else ""


def _cannot_be_read(error: OSError) -> None:
    raise ImportFailedError(f"{error.filename}: cannot be read: {error.strerror}.")


def _read_folders(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not is_skipped(name))


@dataclass(slots=True)
class NoteNames:
    """The names by which links may mean the notes of a folder."""

    ids: dict[str, str] = field(default_factory=dict)
    """NoteNames and ends of paths, as `name_key` has them -> ids of memories."""
    numbers: dict[tuple[str, int], str] = field(default_factory=dict)
    """Folder and number of decision records -> ids."""
    repeated: set[str] = field(default_factory=set)
    """Ids that several files give themselves, which none of them has then."""
    dates: DateOrder = field(default_factory=DateOrder)

    def id_of(self, target: str, relative: str) -> str | None:
        """The id of the note that a link in a file means: by its path from that file, else by its name."""
        key = name_key(target.strip().rstrip("\\"))
        beside = posixpath.normpath(posixpath.join(name_key(posixpath.dirname(relative)), key))
        return self.ids.get(beside) or self.ids.get(key.lstrip("/").removeprefix("./"))

    def ids_named(self, text: str, relative: str) -> list[str]:
        """The ids of the notes that a text names: by links, by names, or by the numbers of decision records."""
        targets = [match["target"] for match in WIKI_LINK.finditer(text)]
        targets += [unquote(match["target"].strip("<>")).split("#", 1)[0] for match in _LINK.finditer(text)]
        if not targets:
            whole = self.id_of(text, relative)
            targets = [text] if whole else re.split(r"\s*[,;&]\s*|\s+and\s+", text)
        found = [self.id_of(one, relative) or self._note_of_number(one, relative) or one.strip() for one in targets]
        return [one for one in dict.fromkeys(found) if one]

    def _note_of_number(self, target: str, relative: str) -> str | None:
        match = _NUMBER.match(posixpath.basename(target))
        return self.numbers.get((posixpath.dirname(relative), int(match["number"]))) if match else None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is imported: its project, the names of its notes, and whether it is a vault of Obsidian.

    Relative links to files with these suffixes are links between memories. `name` is that of the folder, `rules` give
    types to notes without one, and `dates` tells what is first in dates that do not show it.
    """

    project: str
    names: NoteNames
    is_vault: bool
    suffixes: tuple[str, ...] = SUFFIXES
    name: str = ""
    rules: Mapping[str, str] = field(default_factory=dict)
    dates: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    """The projects of folders that are about another one, as Claude Code's memory is about a repository."""


def names_of(starts: Iterable[tuple[str, bytes]]) -> NoteNames:
    """The names that links may use, given the paths and first bytes of files.

    Matched by patterns in the first lines: how the front matter is read in full shows later. Only aliases are parsed.
    """
    names, given = NoteNames(), Counter[str]()
    titles: list[tuple[str, str]] = []
    aliases: list[tuple[str, str]] = []
    fields_by_file: list[tuple[str, dict[str, str], str]] = []
    for relative, data in starts:
        start = _line_ends(data.decode(_encoding_of_note(data), errors="replace"))
        fields: dict[str, str] = {}
        matter = ""
        if match := _FRONT_MATTER.match(start):
            matter = match["yaml"]
            for line in _NAMING_LINE.finditer(matter):
                fields.setdefault(line["field"].lower(), line["value"].strip().strip("\"'"))
            names.dates.see(line["value"].strip().strip("\"'[]") for line in _DATE_LINE.finditer(matter))
        given.update([fields.get("id") or fields.get("permalink") or relative])
        fields_by_file.append((relative, fields, matter))
    names.repeated = {name for name, count in given.items() if count > 1}
    ends: list[tuple[str, str]] = []
    for relative, fields, matter in fields_by_file:
        memory_id = fields.get("id") or fields.get("permalink") or relative
        memory_id = relative if memory_id in names.repeated else memory_id
        bare = posixpath.splitext(relative)[0]
        for name in (memory_id, relative, bare):
            names.ids.setdefault(name_key(name), memory_id)
        steps = relative.split("/")
        ends += [("/".join(steps[at:]), memory_id) for at in range(len(steps) - 1, 0, -1)]
        if match := _NUMBERED.match(steps[-1]):
            names.numbers.setdefault((posixpath.dirname(relative), int(match["number"])), memory_id)
        if "title" in fields:
            titles.append((fields["title"], memory_id))
        if _ALIAS.search(matter):
            # Any error is reported when the note itself is read.
            with contextlib.suppress(Exception):
                aliases += [(one, memory_id) for one in _aliases(read_front_matter(f"---\n{matter}---\n").fields)]
    for end, memory_id in ends:
        for name in (end, posixpath.splitext(end)[0]):
            names.ids.setdefault(name_key(name), memory_id)
    # The name of a file goes before another note's title, and that before another note's alias.
    for name, memory_id in (*titles, *aliases):
        names.ids.setdefault(name_key(name), memory_id)
    return names


def _aliases(matter: Mapping[str, Any]) -> list[str]:
    further = matter.get(FURTHER)
    both = (matter, further if isinstance(further, Mapping) else {})
    found = [alias for one in both for name in ("aliases", "alias") for alias in _listed(one.get(name))]
    return [alias.strip() for alias in found if isinstance(alias, str) and alias.strip()]


def read_note(tree: FileTree, file: TreeFile, folder: Folder) -> Iterator[SourceRecord]:
    """The memory of a note of a tree. Raises UnreadableFileError."""
    yield note(file.name, tree.read(file, MAX_BYTES), file.modified, folder)


def note(relative: str, text: bytes, changed: datetime, folder: Folder) -> SourceRecord:
    """The memory of a note, given its path in the folder, its bytes and the time of the file.

    Raises UnreadableFileError.
    """
    file = partial(note_file_of, relative, folder.name, text, _encoding_of_note(text), is_obsidian=folder.is_vault)
    try:
        decoded = _line_ends(text.decode(_encoding_of_note(text)).removeprefix("\ufeff"))
        found = read_front_matter(decoded.replace("\0", ""))
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}; save the file as UTF-8"
        raise UnreadableFileError(reason, replace(file(body=""), project=folder.project)) from None
    if "\0" in decoded:
        found.notes.append("holds NUL characters (U+0000), which cannot be stored; they are left out")
    if not found.body:
        raise UnreadableFileError("is empty; a memory needs a text", replace(file(body=""), project=folder.project))
    body = found.body
    if notion.NUMBER.search(posixpath.splitext(relative)[0]):
        found.fields = page_properties(body) | found.fields
    bare = without_code(body)
    further = found.fields.pop(FURTHER, None)
    project = folder.about.get(posixpath.dirname(relative), folder.project)
    data: dict[str, Any] = {"id": relative, "project": project, "source": "markdown", "source_url": relative}
    data |= record_fields(found, folder.dates or folder.names.dates.order)
    notes = found.notes
    if data["id"] in folder.names.repeated:
        notes.append(f"id: {data['id']!r} is the id of several files; this one has its path as id")
        data["id"] = relative
    if not data.get("title"):
        data["title"] = _title(relative, bare, is_vault=folder.is_vault)
    data["content"] = body
    data["categories"] = _listed(data.get("categories"))
    if (folders := posixpath.dirname(relative)) and folders not in folder.about:
        data["categories"].append("/".join(notion.folder_path(folders).split("/")[:MAX_DEPTH]))
    own = data["links"] if isinstance(data.get("links"), list) else []
    data["links"] = [*own, *links(bare, relative, folder)]
    is_basic_memory = "permalink" in found.fields or _OBSERVATIONS_HEADING.search(bare) is not None
    observations = list(_observations(bare)) if is_basic_memory else []
    if observations:
        data |= _observed(observations, data.get("concepts"))
    inline = _INLINE_TAG.finditer(bare) if folder.is_vault or is_basic_memory else ()
    tags = [
        *_listed(data.get("tags")),
        *(tag for one in observations for tag in one["tags"]),
        *(match["tag"].strip("/") for match in inline),
    ]
    if tags:
        data["tags"] = list(dict.fromkeys(tag[:MAX_TAG] if isinstance(tag, str) else tag for tag in tags))[:MAX_LIST]
        long = [tag for tag in tags if isinstance(tag, str) and len(tag) > MAX_TAG]
        notes += [f"tags: {tag[:40]!r}… has {len(tag):,} characters; the first {MAX_TAG} are stored" for tag in long]
    rule = _give_type(relative, data, bare, folder, notes)
    if isinstance(further, Mapping):
        _add_further(data, further_fields(further, folder.dates or folder.names.dates.order, notes))
    _relate(data, relative, folder.names)
    if not data.get("created_at") and (dated := date_of_name(relative)):
        data["created_at"] = dated
    volatile = frozenset(name for name in ("created_at", "updated_at") if not data.get(name))
    data |= dict.fromkeys(volatile, changed.isoformat())
    if aliases := _aliases({**found.fields, FURTHER: further}):
        data["aliases"] = list(dict.fromkeys(aliases))
    return SourceRecord(
        relative,
        data,
        volatile,
        notes=tuple(notes),
        is_lenient=True,
        rule=rule,
        file=file(body=body),
    )


def _add_further(data: dict[str, Any], further: dict[str, Any]) -> None:
    """Give a note the fields that an export wrote into it. Its links are those of its text, and these."""
    added = further.pop("links", None)
    data["links"] += [one for one in (added if isinstance(added, list) else []) if isinstance(one, (str, dict))]
    for name, value in further.items():
        if value is not None:
            data[name] = value
        elif name in data:
            data[name] = [] if isinstance(data[name], list) else ""


def _title(relative: str, bare: str, *, is_vault: bool) -> str:
    """The title of a note that gives none: its heading, else the name of its file. Other headings are of its parts."""
    name = notion.NUMBER.sub("", posixpath.splitext(posixpath.basename(relative))[0])
    # In a vault a note is called by the name of its file, unless its text begins with its heading.
    match = _TITLE.match(bare.lstrip()) if is_vault else _TITLE.search(bare)
    heading = heading_text(_COMMENT.sub("", match["text"] or match["underlined"])) if match else ""
    if not heading and name.casefold() in ("readme", "index"):
        heading = first_heading(bare)
    return heading or name


def _give_type(relative: str, data: dict[str, Any], bare: str, folder: Folder, notes: list[str]) -> str:
    """Give a note its type by a rule, unless it has one, and what the text of a decision says. Returns the rule."""
    rule = ""
    if not data.get("type"):
        headings = [heading_text(match["text"]) for match in _HEADING.finditer(bare)]
        tags = [tag.strip() for tag in _listed(data.get("tags")) if isinstance(tag, str)]
        kind, rule = type_by_rule(posixpath.dirname(relative), tags, headings, folder.rules)
        kind = kind or ("instructions" if posixpath.basename(relative) in AGENT_FILES else "")
        data |= {"type": kind} if kind else {}
    if data.get("type") == "decision":
        data |= decision_fields(bare, data, notes, folder.dates or folder.names.dates.order)
    return rule


def _relate(data: dict[str, Any], relative: str, names: NoteNames) -> None:
    """State the memories that a note replaces, and the one that replaced it, by their ids.

    Relations in its text mean the same as its fields.
    """
    older = [one for text in _listed_texts(data.pop("supersedes", None)) for one in names.ids_named(text, relative)]
    newer = names.ids_named(data.pop("superseded_by", ""), relative) if data.get("superseded_by") else []
    others = []
    for link in data["links"]:
        rel = str(link.get("rel", "")).strip().casefold().replace("_", "-") if isinstance(link, dict) else ""
        if rel in _SUPERSEDES:
            older += names.ids_named(f"[[{link.get('target', '')}]]", relative)
        elif rel in _SUPERSEDED_BY:
            newer += names.ids_named(f"[[{link.get('target', '')}]]", relative)
        else:
            others.append(link)
    data["links"] = others
    older = [one for one in dict.fromkeys(older) if one not in (data["id"], *newer)]
    if older:
        data["supersedes"] = older
    if newer:
        data["superseded_by"] = newer[0]
        data["links"] += [{"rel": "superseded-by", "target": target[:500]} for target in newer[1:]]
        # A note that names its successor is no longer in force, whatever it says besides.
        data["state"] = "superseded" if data.get("state") in (None, "active", "proposed") else data["state"]


def _listed_texts(value: Any) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one.strip()]


def date_of_name(relative: str) -> str:
    """The day that a note is named after, such as `2026-01-20 Talk.md` or `2026/01/20.md`; empty if there is none."""
    bare = posixpath.splitext(relative)[0]
    name = posixpath.basename(bare)
    steps = bare.split("/")[-3:]
    match = _DATED_NAME.match(name) or (_DATED_NAME.search(name) if name[-1:].isdecimal() else None)
    text = f"{match['year']}-{match['month']}-{match['day']}" if match else ""
    if not text and len(steps) == 3 and all(re.match(r"\d{2}", step) for step in steps) and len(steps[0]) == 4:
        text = f"{steps[0]}-{steps[1][:2]}-{steps[2][:2]}"
    # Other numbers are ids of notes, or versions.
    if not text and (name.isdecimal() or not _YEAR.search(name)):
        return ""
    try:
        return (text and read_moment(text) and text) or str(date_value(name))
    except ValueError:
        return ""


def _encoding_of_note(data: bytes) -> str:
    """The encoding of a note: also UTF-16 without a mark, which has a null byte in its first letter."""
    if data[1:2] == b"\0" and data[:1] != b"\0":
        return "utf-16-le"
    return "utf-16-be" if data[:1] == b"\0" and data[1:2] != b"\0" else encoding_of(data)


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _observed(observations: Sequence[Mapping[str, Any]], concepts: Any) -> dict[str, Any]:
    """The fields that the observations of a note give: themselves, and their categories as further concepts."""
    categories = dict.fromkeys(str(one["category"]) for one in observations if one["category"])
    further = ({"name": name[:300], "type": "observation"} for name in categories)
    return {"observations": observations, "concepts": [*_listed(concepts), *further]}


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return list(value)
    return value.split(",") if isinstance(value, str) else [] if value is None else [value]


def links(text: str, relative: str, folder: Folder) -> list[dict[str, str]]:
    """Typed relations, and links to other files of the folder by their ids. Others are found in the text itself."""
    names = folder.names
    found: dict[tuple[str, str], None] = {}
    for item in _LIST_ITEM.finditer(text):
        if (match := _RELATION.fullmatch(item["text"])) and (target := match["target"].strip()):
            rel = match["double"] or match["single"] or match["word"]
            found[rel.strip()[:100], target] = None
    for match in _LINK.finditer(text):
        target = unquote(match["target"].strip("<>")).split("#", 1)[0].split("?", 1)[0]
        if not target or _SCHEME.match(target) or not target.lower().endswith(folder.suffixes):
            continue
        base = "" if target.startswith("/") else posixpath.dirname(relative)
        path = posixpath.normpath(posixpath.join(base, target.lstrip("/")))
        if not path.startswith("../"):
            found["links-to", names.ids.get(name_key(path)) or path] = None
    return [{"rel": rel, "target": target[:500]} for rel, target in list(found)[:MAX_LIST]]


def _observations(text: str) -> Iterator[dict[str, Any]]:
    """The observations of a note of basic-memory: list items with a category, or with inline tags."""
    for item in _LIST_ITEM.finditer(text):
        body, category = item["text"].strip(), ""
        if match := _OBSERVATION.fullmatch(body):
            category = match["category"].strip()
            if _TIME_CODE.fullmatch(category) or (len(category) == 1 and not category.isalnum()) or category in "xX":
                continue
            body = match["text"].strip()
        elif body.startswith("[") or not _INLINE_TAG.search(body):
            continue
        context = ""
        if body.endswith(")") and (start := body.rfind("(")) > 0:
            body, context = body[:start].strip(), body[start + 1 : -1].strip()
        tags = [match["tag"] for match in _INLINE_TAG.finditer(body)]
        yield {"category": category, "content": body, "tags": tags, "context": context}


IMPORTER = Importer(
    "markdown",
    "a folder of Markdown files (*.md), or one such file",
    lambda source: knows(source.path),
    read,
    places=places,
    follow=Following(stamp, parts, read_parts, folders),
)

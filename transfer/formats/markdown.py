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
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from categories.paths import MAX_DEPTH
from memories.records import MAX_CONTENT, MAX_LIST, MemoryRecord
from text.highlight import first_heading
from transfer.formats.base import ImportFailedError, NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.importer import Following, Importer
from transfer.formats.trees import FileTree, TreeFile, UnreadableFileError, is_skipped, storable_name
from web.validation import field_names, shown

SUFFIXES = (".md", ".markdown")
# Files that users may expect to be imported along with the notes.
_RECORD_SUFFIXES = (".jsonl", ".jsonl.gz")
# A file that changed this lately may be changed again without a difference in its time.
_JUST_NOW_NS = 2_000_000_000
# The longest text in four-byte characters, plus the front matter.
MAX_BYTES = 5 * MAX_CONTENT
# The first bytes of a file, which hold its front matter.
START = 4096
_RECORDS_HERE = "Name files of records themselves as paths to import"
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_NAMING_LINE = re.compile(r"^(?P<field>id|permalink|title):[ \t]*(?P<value>.+)$", re.MULTILINE | re.IGNORECASE)
# No pattern may start again within what it has read, or a note of brackets alone would take hours.
_CODE = re.compile(r"^(?P<fence>```++|~~~++).*?(?:^(?P=fence)|\Z)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_WIKI_LINK = re.compile(r"(?P<embedded>!?)\[\[(?P<target>[^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]*\]\((?P<target><[^<>\n]*>|[^()\s]+)(?:\s+\"[^\"\n]*\")?\)")
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?P<text>\S.*)$", re.MULTILINE)
# `[category] text`; not a task, a link, a time code or a mark such as [x] or [>].
_OBSERVATION = re.compile(r"\[(?P<category>[^\[\]()\n]+)\][ \t]+(?P<text>.+)")
_TIME_CODE = re.compile(r"\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?(?:\s+-\s+\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?)?")
# `relation [[Target]] (context)`: one word, or several in quotation marks, and nothing else after the target.
_RELATION = re.compile(
    r"(?:\"(?P<double>[^\"\n]+)\"|'(?P<single>[^'\n]+)'|(?P<word>[^\s\[\]\"'!]+))[ \t]*"
    r"\[\[(?P<target>[^\[\]|#\n]++)[^\[\]\n]*\]\][ \t]*(?:\((?P<context>[^()\n]*)\))?[ \t]*"
)
_OBSERVATIONS_HEADING = re.compile(r"^#{1,6}[ \t]+Observations[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ALIAS = re.compile(r"^alias(?:es)?:", re.MULTILINE)
_INLINE_TAG = re.compile(r"(?:(?<=\s)|^)#(?P<tag>[\w/-]*[^\W\d][\w/-]*)", re.MULTILINE)
VAULT = ".obsidian"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# Fields of other tools -> fields of a record.
_ALIASES = {
    "created": "created_at",
    "date": "created_at",
    "updated": "updated_at",
    "modified": "updated_at",
    "lastmod": "updated_at",
    "permalink": "id",
    "category": "categories",
    "keywords": "tags",
    # Obsidian before version 1.9 reads the singular too.
    "tag": "tags",
    "description": "summary",
    "url": "source_url",
}


class _TextLoader(yaml.SafeLoader):
    """Reads front matter as text: the record interprets `3.10`, `no` and dates. Plain values only."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Aliases can expand a few lines to gigabytes.
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read here; write the value out")
        return super().compose_node(parent, index)


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
        for name in sorted(name for name in names if name.lower().endswith(SUFFIXES) and not is_skipped(name)):
            with contextlib.suppress(FileNotFoundError):
                yield place + name, os.stat(name, dir_fd=opened)


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
    chosen = files if locations is None else [file for file in files if file.name in locations]
    of_records = [file.name for file in every if file.name.lower().endswith(_RECORD_SUFFIXES)] if path.is_dir() else []
    if not files and locations is None:
        here = f" {_RECORDS_HERE}, such as {path / of_records[0]}." if of_records else ""
        raise NotReadableError(
            f"{path}: holds no Markdown files ({', '.join(f'*{suffix}' for suffix in SUFFIXES)}).{here}"
        )
    # The resolved name, since the path may be `.`; a single file does not name a project.
    project = options.project or (path.resolve().name if path.is_dir() else "")
    done = 0

    def records() -> Generator[SourceRecord | RefusedRecord, None, None]:
        nonlocal done
        names = names_of((file.name, tree.start(file, START)) for file in files)
        folder = Folder(project, names, (tree.folder / VAULT).is_dir())
        for file in chosen:
            yield read_note(tree, file, folder)
            done += 1
        for name in of_records if locations is None else ():
            yield RefusedRecord(name, f"is not Markdown. {_RECORDS_HERE}")

    return Reading(records(), lambda: done / len(chosen) if chosen else None)


def _cannot_be_read(error: OSError) -> None:
    raise ImportFailedError(f"{error.filename}: cannot be read: {error.strerror}.")


def _read_folders(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not is_skipped(name))


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is imported: its project, the names of its notes, and whether it is a vault of Obsidian.

    Relative links to files with these suffixes are links between memories.
    """

    project: str
    names: Mapping[str, str]
    is_vault: bool
    suffixes: tuple[str, ...] = SUFFIXES


def names_of(starts: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Names that wiki links may use, case-folded -> ids of the memories. Given are the paths and first bytes of files.

    Matched by patterns in the first lines: files with invalid front matter are refused later. Only aliases are parsed.
    """
    names: dict[str, str] = {}
    titles: list[tuple[str, str]] = []
    aliases: list[tuple[str, str]] = []
    for relative, data in starts:
        start = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
        fields: dict[str, str] = {}
        if match := _FRONT_MATTER.match(start):
            for line in _NAMING_LINE.finditer(match["yaml"]):
                fields.setdefault(line["field"].lower(), line["value"].strip().strip("\"'"))
        memory_id = fields.get("id") or fields.get("permalink") or relative
        bare = posixpath.splitext(relative)[0]
        for name in (memory_id, relative, bare, posixpath.basename(bare), posixpath.basename(relative)):
            names.setdefault(name.casefold(), memory_id)
        if "title" in fields:
            titles.append((fields["title"], memory_id))
        if match and _ALIAS.search(match["yaml"]):
            aliases.extend((alias, memory_id) for alias in _aliases(match["yaml"]))
    # The name of a file goes before another note's title, and that before another note's alias.
    for name, memory_id in (*titles, *aliases):
        names.setdefault(name.casefold(), memory_id)
    return names


def _aliases(front_matter: str) -> list[str]:
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        loaded = yaml.load(front_matter, Loader=_TextLoader)  # noqa: S506 - a SafeLoader that reads even less
        if isinstance(loaded, dict):
            found = [alias for name in ("aliases", "alias") for alias in _listed(loaded.get(name))]
            return [alias.strip() for alias in found if isinstance(alias, str) and alias.strip()]
    return []


def read_note(tree: FileTree, file: TreeFile, folder: Folder) -> SourceRecord | RefusedRecord:
    """The memory of a note of a tree."""
    try:
        return note(file.name, tree.read(file, MAX_BYTES), file.modified, folder)
    except UnreadableFileError as error:
        return RefusedRecord(file.name, str(error))


def note(relative: str, text: bytes, changed: datetime, folder: Folder) -> SourceRecord:
    """The memory of a note, given its path in the folder, its bytes and the time of the file.

    Raises UnreadableFileError.
    """
    try:
        matter, body = _split(text.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
        raise UnreadableFileError(reason) from None
    bare = without_code(body)
    data = {"id": relative, "project": folder.project, "source": "markdown", "source_url": relative} | _fields(matter)
    if not data.get("title"):
        data["title"] = first_heading(bare) or posixpath.splitext(posixpath.basename(relative))[0]
    data["content"] = body
    data["categories"] = _listed(data.get("categories"))
    if folders := posixpath.dirname(relative):
        data["categories"].append("/".join(folders.split("/")[:MAX_DEPTH]))
    own = data["links"] if isinstance(data.get("links"), list) else []
    data["links"] = [*own, *links(bare, relative, folder)]
    is_basic_memory = "permalink" in matter or _OBSERVATIONS_HEADING.search(bare) is not None
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
        data["tags"] = list(dict.fromkeys(tag[:200] if isinstance(tag, str) else tag for tag in tags))[:MAX_LIST]
    volatile = frozenset(name for name in ("created_at", "updated_at") if not data.get(name))
    return SourceRecord(relative, data | dict.fromkeys(volatile, changed.isoformat()), volatile)


def _observed(observations: Sequence[Mapping[str, Any]], concepts: Any) -> dict[str, Any]:
    """The fields that the observations of a note give: themselves, and their categories as further concepts."""
    categories = dict.fromkeys(str(one["category"]) for one in observations if one["category"])
    further = ({"name": name[:300], "type": "observation"} for name in categories)
    return {"observations": observations, "concepts": [*_listed(concepts), *further]}


def _split(text: str) -> tuple[dict[str, Any], str]:
    """The front matter and the body of a file."""
    matter: dict[str, Any] = {}
    if match := _FRONT_MATTER.match(text):
        try:
            loaded = yaml.load(match["yaml"], Loader=_TextLoader)  # noqa: S506 - a SafeLoader that reads even less
        except (yaml.YAMLError, RecursionError) as error:
            raise UnreadableFileError(f"its front matter is not YAML: {_yaml_reason(error)}") from error
        if loaded and not isinstance(loaded, dict):
            raise UnreadableFileError(f"its front matter is {shown(loaded)}; write fields, such as title: …")
        matter = {str(name): value for name, value in (loaded or {}).items()}
        text = text[match.end() :]
    body = text.strip()
    if not body:
        raise UnreadableFileError("is empty; a memory needs a text")
    return matter, body


def _yaml_reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        # Lines are counted in the file, of which the first is the opening dashes.
        where = f" at line {error.problem_mark.line + 2}" if error.problem_mark else ""
        return f"{error.problem}{where}"
    return str(error) if isinstance(error, yaml.YAMLError) else "it is nested too deeply"


def _fields(matter: dict[str, Any]) -> dict[str, Any]:
    """Front matter as the fields of a record. Unknown fields stay as they are."""
    known = set(field_names(MemoryRecord))
    data: dict[str, Any] = {}
    for name, value in matter.items():
        key = name.strip().lower().replace("-", "_").replace(" ", "_")
        key = _ALIASES.get(key, key)
        if value in ("null", "~", ""):
            continue
        # The text of the file is the content, whatever its front matter contains.
        if key in ("content", "text", "body"):
            continue
        data.setdefault(key if key in known else name, value)
    return data


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return list(value)
    return value.split(",") if isinstance(value, str) else [] if value is None else [value]


def without_code(text: str) -> str:
    """A text of Markdown without the code in it, whose brackets are no links and whose signs are no tags."""
    return _CODE.sub(" ", text)


def links(text: str, relative: str, folder: Folder) -> list[dict[str, str]]:
    """Wiki links, and links to other files of the folder by their ids."""
    names = folder.names
    found: dict[tuple[str, str], None] = {}
    typed: set[int] = set()
    for item in _LIST_ITEM.finditer(text):
        if (match := _RELATION.fullmatch(item["text"])) and (target := match["target"].strip()):
            rel = match["double"] or match["single"] or match["word"]
            found[rel.strip()[:100], names.get(target.casefold(), target)] = None
            typed.add(item.start("text") + match.start("target"))
    for match in _WIKI_LINK.finditer(text):
        if (target := match["target"].strip()) and match.start("target") not in typed:
            found["embeds" if match["embedded"] else "links-to", names.get(target.casefold(), target)] = None
    for match in _LINK.finditer(text):
        target = unquote(match["target"].strip("<>")).split("#", 1)[0].split("?", 1)[0]
        if not target or _SCHEME.match(target) or not target.lower().endswith(folder.suffixes):
            continue
        base = "" if target.startswith("/") else posixpath.dirname(relative)
        path = posixpath.normpath(posixpath.join(base, target.lstrip("/")))
        if not path.startswith("../"):
            found["links-to", names.get(path.casefold(), path)] = None
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
    follow=Following(stamp, parts, read_parts, folders),
)

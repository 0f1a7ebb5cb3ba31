"""Documents: a folder, or a single file, of text, Markdown, HTML and PDF.

A short document is one memory. A longer one is divided into parts, at pages or at headings, and each part is a memory:
a search finds the passage, not the book. Markdown files are notes, as `markdown` reads them, and never divided.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from categories.paths import MAX_DEPTH
from text.formatting import plural
from text.wiki_links import without_code
from transfer.formats import csv_table, document_process, jsonl, markdown, notion
from transfer.formats.base import (
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    UnreadableFileError,
    read_guarded,
)
from transfer.formats.document_parts import Part, parts_of_pages, parts_of_text
from transfer.formats.document_reader import DocumentReader, DocumentText
from transfer.formats.drafts import Draft, listed
from transfer.formats.importer import Importer
from transfer.formats.sources import Source, encoding_of
from transfer.formats.trees import FileTree, TreeFile

_MAX_TEXT_BYTES = 4 * document_process.MAX_TEXT
_MAX_BYTES = {"pdf": 1024**3, "html": 64 * 1024**2}
_PDF = (".pdf",)
_HTML = (".html", ".htm", ".xhtml")
_TEXT = (".txt", ".text", ".rst", ".org", ".adoc")
_NOT_MARKDOWN = (*_PDF, *_HTML, *_TEXT)
SUFFIXES = (*markdown.SUFFIXES, *_NOT_MARKDOWN)
# Documents that other programs can save as one of these.
_OFFICE = {
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "an OpenDocument text",
    ".rtf": "a document in Rich Text Format",
    ".epub": "a book in EPUB",
    ".ppt": "a presentation",
    ".pptx": "a presentation",
    ".xls": "a spreadsheet",
    ".xlsx": "a spreadsheet",
}
_RECORDS = (".jsonl", ".jsonl.gz")
# Files of a folder that are looked at before it is taken for one without documents.
_LOOKED_AT = 100_000
_PDF_MARK, _PDF_MARK_WITHIN = b"%PDF-", 1024
_IS_HTML = re.compile(rb"\s*(?:<\?xml[^>]{0,200}\?>\s*)?<(?:!doctype\s+)?html\b", re.IGNORECASE)
# Titles that programs give by themselves.
_NO_TITLE = re.compile(
    r"(?:microsoft (?:word|powerpoint|excel) - .*|untitled.*|.*\.(?:docx?|pdf|tex|dvi|indd|qxd|pptx?))", re.IGNORECASE
)

Found = Iterator[SourceRecord | RefusedRecord]


def knows(source: Source) -> bool:
    """Whether a folder has documents that are not Markdown, or a file is one. A folder of Markdown alone has notes."""
    path = source.path
    if path.is_dir():
        return any(file.suffix in _NOT_MARKDOWN for file in islice(FileTree(path).files(), _LOOKED_AT))
    if not path.is_file() or source.is_archive:
        return False
    with path.open("rb") as file:
        kind = _kind_of(path.name, file.read(markdown.START))
    if kind == "text":
        return not jsonl.knows(source) and not csv_table.knows(source)
    return kind in ("pdf", "html")


def _kind_of(name: str, start: bytes) -> str:
    """The kind of a file, by its first bytes, and by its name only where any bytes would do. Empty for others."""
    suffix = posixpath.splitext(name)[1].lower()
    if _PDF_MARK in start[:_PDF_MARK_WITHIN]:
        return "pdf"
    if suffix in _HTML or (suffix in ("", *_TEXT) and _IS_HTML.match(start)):
        return "html"
    if suffix in markdown.SUFFIXES:
        return "markdown"
    return "text" if suffix in _TEXT else ""


def read(path: Path, options: Options) -> Reading:
    tree = FileTree(path)
    every = list(tree.files())
    names = [file.name for file in every if file.suffix in markdown.SUFFIXES]
    files = [file for file in every if not markdown.is_index(str(path), file.name, names)]
    if not any(
        file.suffix in SUFFIXES or _kind_of(file.name, tree.start(file, markdown.START)) for file in files[:_LOOKED_AT]
    ):
        raise NotReadableError(f"{path}: holds no documents ({', '.join(SUFFIXES)}).")
    # The resolved name, since the path may be `.`; a single file does not name a project.
    project = options.project or markdown.project_of(path)
    done = 0

    def records() -> Records:
        nonlocal done
        with closing(DocumentReader(is_preview=options.is_preview)) as reader:
            folder = _Documents(tree, project, files, reader, options)
            for file in files:
                yield from read_guarded(file.name, partial(folder.records, file))
                done += 1
            yield from folder.left_out()

    return Reading(records(), lambda: done / len(files))


@dataclass(slots=True)
class _Documents:
    """The documents of a tree, and the process that reads some of them."""

    tree: FileTree
    project: str
    files: Sequence[TreeFile]
    reader: DocumentReader
    options: Options
    others: Counter[str] = field(default_factory=Counter)
    notes: markdown.Folder = field(init=False)

    def __post_init__(self) -> None:
        starts = (
            (file.name, self.tree.start(file, markdown.START) if file.suffix in markdown.SUFFIXES else b"")
            for file in self.files
            if file.suffix in SUFFIXES
        )
        is_vault = (self.tree.root / markdown.VAULT).is_dir()
        names = markdown.names_of(starts)
        rules, dates = self.options.types, self.options.dates
        name = markdown.name_of(self.tree.root)
        about = {}
        if not self.options.project:
            about = markdown.agent_projects(self.tree.root, [file.name for file in self.files])
        self.notes = markdown.Folder(self.project, names, is_vault, SUFFIXES, name, rules, dates, about)

    def records(self, file: TreeFile) -> Found:
        kind = _kind_of(file.name, self.tree.start(file, markdown.START))
        if kind == "markdown":
            yield from markdown.read_note(self.tree, file, self.notes)
        elif kind:
            yield from self._document(file, kind, self._text(file, kind))
        elif file.suffix in _PDF:
            yield RefusedRecord(file.name, "is named like a PDF, and is none")
        elif office := _OFFICE.get(file.suffix):
            yield RefusedRecord(file.name, f"is {office}, which is not read: save it as PDF, HTML or text")
        elif file.name.endswith(_RECORDS):
            yield RefusedRecord(file.name, "is a file of records: name it as a path to import")
        else:
            self.others[file.suffix or "without an ending"] += 1

    def left_out(self) -> Found:
        """One line for all files that are no documents."""
        if self.others:
            kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in self.others.most_common(8))
            more = f" and {len(self.others) - 8} other kinds" if len(self.others) > 8 else ""
            count = plural(self.others.total(), "other file")
            yield RefusedRecord(count, f"no document, not read: {kinds}{more}")

    def _text(self, file: TreeFile, kind: str) -> DocumentText:
        if kind != "text":
            return self.reader.read(self.tree.path_of(file, _MAX_BYTES[kind]), kind)
        data = self.tree.read(file, _MAX_TEXT_BYTES)
        try:
            text = data.decode(encoding_of(data))
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            reason = f"is not UTF-8: byte {error.start + 1} is 0x{wrong:02x}; save it as UTF-8"
            raise UnreadableFileError(reason) from None
        if "\0" in text:
            raise UnreadableFileError("is no text: it holds NUL characters")
        text = text.replace("\r\n", "\n").strip()
        first, _, rest = text.partition("\n")
        is_title = len(first) <= 120 and rest.startswith("\n") and not first.rstrip().endswith((".", ",", ";", ":"))
        return DocumentText([text], {"title": first.strip("#=* \t") if is_title else ""})

    def _document(self, file: TreeFile, kind: str, text: DocumentText) -> Found:
        parts = parts_of_pages(text.pages) if text.has_pages else parts_of_text("\n\n".join(text.pages))
        if not parts:
            yield RefusedRecord(file.name, _why_empty(text))
            return
        title = _title(text.information, file)
        for number, part in enumerate(parts):
            draft = Draft(file.name, _raw(file, kind, text, parts, number), kind)
            draft.text("id", _part_id(file.name, number))
            draft.data["type"] = "document"
            draft.text("project", self.project)
            draft.text("title", _part_title(title, parts, number))
            draft.data["content"] = part.text
            draft.text("source_url", text.information.get("url"), file.name)
            if part.pages and part.pages[0] > 1:
                draft.data["source_url"] += f"#page={part.pages[0]}"
            if folders := posixpath.dirname(file.name):
                draft.names("categories", ["/".join(notion.folder_path(folders).split("/")[:MAX_DEPTH])])
            draft.names("authors", re.split(r"\s*;\s*|\s+and\s+", str(text.information.get("author") or "")))
            draft.names("tags", listed(text.information.get("keywords"), by_comma=True))
            if len(parts) > 1:
                draft.entities("document", [title])
            if number:
                draft.link("continues", _part_id(file.name, number - 1))
            else:
                draft.text("summary", text.information.get("description"))
                draft.notes += _notes(text)
            for link in markdown.links(without_code(part.text), file.name, self.notes) if kind == "html" else ():
                draft.link(link["rel"], link["target"])
            yield _dated(draft, text.information, file)


def _why_empty(text: DocumentText) -> str:
    pages = plural(len(text.pages), "page")
    if text.information.get("is_deep"):
        return "has no text but in elements that are nested too deeply"
    if text.information.get("unreadable"):
        return f"has {pages}, and none can be read: damaged, or larger than is read"
    if text.has_pages:
        return f"has no text on its {pages}; recognise the text of scanned pages first, for example with OCRmyPDF"
    return "has no text"


def _dated(draft: Draft, information: Mapping[str, Any], file: TreeFile) -> SourceRecord:
    """The record with the dates of the document, else of the file. Touching a file is no change."""
    draft.moment("created_at", information.get("created"))
    draft.moment("updated_at", information.get("modified"), draft.data.get("created_at"))
    volatile = frozenset(name for name in ("created_at", "updated_at") if not draft.data.get(name))
    draft.data |= dict.fromkeys(volatile, file.modified.isoformat())
    return replace(draft.record(volatile_raw=("parts", "pages_of_document")), volatile=volatile)


def _title(information: Mapping[str, Any], file: TreeFile) -> str:
    title = " ".join(str(information.get("title") or "").split())
    if not title or _NO_TITLE.fullmatch(title):
        title = posixpath.splitext(posixpath.basename(file.name))[0]
    return title[:400]


def _part_id(name: str, number: int) -> str:
    """The id of a part. The first has that of the document, which links lead to."""
    return f"{name}#part-{number + 1}" if number else name


def _part_title(title: str, parts: Sequence[Part], number: int) -> str:
    part = parts[number]
    if len(parts) == 1:
        return title
    if part.pages:
        first, last = part.pages
        return f"{title}, p. {first}" + (f"–{last}" if last > first else "")
    heading = part.heading if part.heading != title else ""
    return f"{title}: {heading}" if heading else f"{title}, part {number + 1}"


def _raw(file: TreeFile, kind: str, text: DocumentText, parts: Sequence[Part], number: int) -> dict[str, Any]:
    part = parts[number]
    raw: dict[str, Any] = {"file": file.name, "kind": kind}
    if part.pages:
        raw["pages"] = [{"page": page, "start": start} for page, start in part.starts]
        raw["pages_of_document"] = len(text.pages)
    if len(parts) > 1:
        raw |= {"part": number + 1, "parts": len(parts)}
    return raw | {name: value for name, value in text.information.items() if isinstance(value, str) and value}


def _notes(text: DocumentText) -> list[str]:
    notes = []
    if text.information.get("is_cut"):
        notes.append(f"is long: its first {document_process.MAX_TEXT:,} characters are stored")
    if text.information.get("is_deep"):
        notes.append("has elements that are nested too deeply; their text is left out")
    if unreadable := text.information.get("unreadable"):
        notes.append(f"pages that cannot be read, and are left out: {', '.join(map(str, unreadable))}")
    if empty := [number for number, page in enumerate(text.pages, 1) if not page] if text.has_pages else []:
        shown = ", ".join(map(str, empty[:20])) + (" …" if len(empty) > 20 else "")
        notes.append(f"pages without text, such as images: {shown}")
    return notes


IMPORTER = Importer(
    "documents",
    "a folder of documents (text, Markdown, HTML, PDF), or one of them",
    knows,
    read,
    places=markdown.places,
    previews_in_part=lambda path: knows(Source(path)),
)

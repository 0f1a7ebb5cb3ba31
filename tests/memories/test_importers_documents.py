import os
import zipfile

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from memories.models import Memory, MemoryLink
from tests.memories.foreign import found, records
from tests.memories.imports import batch_counts, counts, last_batch, link_targets, run
from transfer.formats import document_process, document_reader
from transfer.formats.base import RefusedRecord
from transfer.formats.document_parts import PART, WHOLE, parts_of_pages, parts_of_text
from transfer.formats.document_reader import DocumentReader
from transfer.formats.registry import importer_for
from transfer.formats.trees import UnreadableFileError


def write_pdf(path, pages, *, password="", **information):
    """A PDF with a page of plain text each."""
    writer = PdfWriter()
    font = DictionaryObject()
    for name, value in (("Type", "Font"), ("Subtype", "Type1"), ("BaseFont", "Helvetica")):
        font[NameObject(f"/{name}")] = NameObject(f"/{value}")
    for text in pages:
        page = writer.add_blank_page(595, 842)
        lines = "".join(f"({line}) Tj T* " for line in text.split("\n"))
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 9 Tf 11 TL 20 800 Td {lines}ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(stream)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    writer.add_metadata({f"/{name}": value for name, value in information.items()})
    if password:
        writer.encrypt(password, algorithm="AES-256")
    writer.write(path)
    return path


PAGE = "\n".join("The kettle is heated, and the leaves are rinsed before the first infu-\nsion." for _ in range(56))
HEAD = (
    "<!DOCTYPE html><html><head><meta charset='iso-8859-1'><title>Brewing &amp; pouring</title>"
    "<meta name='author' content='Ann Lee'><meta name='description' content='A short guide.'>"
    "<meta name='keywords' content='tea, Gong Fu'><link rel='canonical' href='https://tea.example/guide'>"
    "<meta property='article:published_time' content='2024-05-01T10:00:00Z'></head>"
)


def test_a_long_pdf_is_divided_into_parts_of_whole_pages(tmp_path):
    pages = [f"Chapter {number}.\n{PAGE}" for number in range(1, 9)]
    path = write_pdf(tmp_path / "manual.pdf", pages, Title="Tea manual", Author="Ann Lee; Bo Chen", Subject="Brewing.")
    first, second, third, last = found(path, "documents", project="tea")
    assert first.data["content"].startswith("— 1 —\n\nChapter 1.\nThe kettle is heated, and the leaves are rinsed")
    assert "before the first infusion." in first.data["content"]
    assert {
        name: value for name, value in first.data.items() if name not in ("content", "created_at", "updated_at")
    } == {
        "source": "pdf",
        "id": "manual.pdf",
        "type": "document",
        "project": "tea",
        "title": "Tea manual, p. 1–2",
        "source_url": "manual.pdf",
        "authors": ["Ann Lee", "Bo Chen"],
        "entities": [{"type": "document", "name": "Tea manual"}],
        "summary": "Brewing.",
    }
    assert [one.data["title"] for one in (second, third, last)] == [
        "Tea manual, p. 3–4",
        "Tea manual, p. 5–6",
        "Tea manual, p. 7–8",
    ]
    assert second.data["source_url"] == "manual.pdf#page=3"
    assert third.data["links"] == [{"rel": "continues", "target": "manual.pdf#part-2"}]
    seventh, eighth = last.raw["pages"]
    assert (seventh["page"], last.data["content"][seventh["start"] :].startswith("Chapter 7.")) == (7, True)
    assert last.data["content"][eighth["start"] :].startswith("Chapter 8.")


def test_a_short_pdf_is_one_memory_with_the_numbers_of_its_pages(tmp_path):
    path = write_pdf(
        tmp_path / "sencha.pdf", ["Steam.", "", "Dry."], Title="Microsoft Word - x.docx", Keywords="tea, steam"
    )
    (one,) = found(path, "documents")
    assert (one.data["title"], one.data["tags"]) == ("sencha", ["tea", "steam"])
    assert one.data["content"] == "— 1 —\n\nSteam.\n\n— 3 —\n\nDry."
    assert one.raw["pages"] == [{"page": 1, "start": 7}, {"page": 3, "start": 22}]
    assert one.notes == ("pages without text, such as images: 2",)


def test_a_page_of_html_becomes_markdown_with_the_fields_of_its_head(tmp_path):
    body = "<body><nav>Home</nav><h1>Café</h1><p>See <a href='sub/manual.pdf#page=3'>page 3</a>, <b>then</b> pour.</p>"
    body += (
        "<script>alert(1)</script><table><tr><th>Tea</th></tr><tr><td>Oolong</td></tr></table><code>[[ -f x ]]</code>"
    )
    (tmp_path / "page.htm").write_bytes((HEAD + body).encode("latin-1"))
    (tmp_path / "sub").mkdir()
    write_pdf(tmp_path / "sub" / "manual.pdf", ["Pour."])
    page, manual = found(tmp_path, "documents")
    assert page.data == {
        "source": "html",
        "id": "page.htm",
        "type": "document",
        "project": tmp_path.name,
        "title": "Brewing & pouring",
        "content": "# Café\n\nSee [page 3](sub/manual.pdf#page=3), **then** pour.\n\n"
        "| Tea    |\n| ------ |\n| Oolong |\n\n`[[ -f x ]]`",
        "source_url": "https://tea.example/guide",
        "authors": ["Ann Lee"],
        "tags": ["tea", "Gong Fu"],
        "summary": "A short guide.",
        "links": [{"rel": "links-to", "target": "sub/manual.pdf"}],
        "created_at": "2024-05-01T10:00:00Z",
        "updated_at": "2024-05-01T10:00:00Z",
    }
    assert (manual.data["id"], manual.data["categories"]) == ("sub/manual.pdf", ["sub"])


def test_notes_among_documents_are_the_same_as_in_a_folder_of_notes(tmp_path):
    (tmp_path / "note.md").write_text("---\ntags: [tea]\n---\n# Oolong\n\nSee [[manual.pdf]] and [[Green]].")
    (tmp_path / "green.md").write_text("---\ntitle: Green\n---\nSencha.")
    alone = records(tmp_path, "markdown")
    write_pdf(tmp_path / "manual.pdf", ["Pour."])
    together = records(tmp_path, "documents")
    assert together["green.md"].data == alone["green.md"].data
    assert together["note.md"].data == alone["note.md"].data


@pytest.mark.django_db
def test_a_note_links_to_a_document_by_its_name(tmp_path):
    (tmp_path / "note.md").write_text("See [[manual.pdf]] and [[Green]].")
    (tmp_path / "green.md").write_text("Sencha.")
    (tmp_path / "deep").mkdir()
    write_pdf(tmp_path / "deep" / "manual.pdf", ["Pour."])
    run(tmp_path)
    targets = MemoryLink.objects.filter(memory__external_id="note.md").order_by("ordinal")
    assert [link.target_memory.external_id for link in targets] == ["deep/manual.pdf", "green.md"]


def test_a_long_text_is_divided_at_headings_and_loses_nothing():
    sections = [f"## Day {number}\n\n" + f"Boiled on day {number}. " * 200 + "\n\n" for number in range(8)]
    parts = parts_of_text("# Log\n\n" + "".join(sections))
    assert [part.heading for part in parts] == ["Log", "Day 2", "Day 4", "Day 6"]
    unbroken = "x" * (3 * PART + 5)
    pieces = parts_of_text(unbroken + "\n\n" + "tea " * 5_000)
    assert "".join(part.text for part in pieces).replace(" ", "").strip() == unbroken + "\n\n" + "tea" * 5_000
    assert max(len(part.text) for part in [*parts, *pieces]) <= PART


def test_a_page_that_no_printer_could_print_is_divided_too():
    parts = parts_of_pages(["x" * (WHOLE + PART), "last"])
    assert [(len(part.text), part.pages) for part in parts] == [
        (10_000, (1, 1)),
        (10_000, (1, 1)),
        (10_000, (1, 1)),
        (11, (2, 2)),
    ]


def test_files_that_give_no_text_are_refused_with_what_to_do(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_pdf(folder / "scan.pdf", ["", ""])
    write_pdf(folder / "locked.pdf", ["Secret."], password="oolong")
    whole = write_pdf(folder / "whole.pdf", ["Steam."])
    (folder / "cut.pdf").write_bytes(b"%PDF-1.7\n" + os.urandom(200))
    (folder / "fake.pdf").write_text("Steam.")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "binary.txt").write_bytes(b"a\0b")
    (folder / "empty.html").write_text("<html></html>")
    (folder / "letter.docx").write_bytes(b"PK")
    (folder / "lines.jsonl").write_text('{"content": "x"}')
    (folder / "one.png").write_bytes(b"x")
    (folder / "two.png").write_bytes(b"x")
    (folder / "Makefile").write_text("x")
    (tmp_path / "outside.txt").write_text("Secret.")
    (folder / "outside.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "nothing.txt").symlink_to(tmp_path / "nothing.txt")
    everything = {getattr(one, "location", ""): one for one in found(folder, "documents")}
    reasons = {where: one.reason for where, one in everything.items() if isinstance(one, RefusedRecord)}
    assert everything[whole.name].data["content"] == "Steam."
    assert reasons.pop("cut.pdf").startswith("is a damaged PDF (")
    assert reasons == {
        "scan.pdf": "has no text on its 2 pages; recognise the text of scanned pages first, for example with OCRmyPDF",
        "locked.pdf": "is encrypted: save it without its password",
        "fake.pdf": "is named like a PDF, and is none",
        "latin.txt": "is not UTF-8: byte 4 is 0xe9; save it as UTF-8",
        "binary.txt": "is no text: it holds NUL characters",
        "empty.html": "has no text",
        "letter.docx": "is a Word document, which is not read: save it as PDF, HTML or text",
        "lines.jsonl": "is a file of records: name it as a path to import",
        "outside.txt": "is a link to a file outside the folder",
        "nothing.txt": "is a link to nothing, or no plain file",
        "3 other files": "no document, not read: 2 .png, 1 without an ending",
    }


def test_a_page_nested_a_million_times_and_a_stream_that_expands_do_no_harm(tmp_path):
    (tmp_path / "deep.html").write_text("<html><body>" + "<div>" * 1_000_000 + "oolong")
    (tmp_path / "also.html").write_text("<html><body>puerh" + "<div>" * 5_000 + "oolong")
    path = write_pdf(tmp_path / "bomb.pdf", ["Steam."])
    writer = PdfWriter(path)
    stream = DecodedStreamObject()
    stream.set_data(b" " * 300_000_000)
    writer.pages[0][NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    writer.write(path)
    (tmp_path / "last.html").write_text("<html><body>sencha")
    also, bomb, deep, last = found(tmp_path, "documents")
    assert (also.data["content"], also.notes) == (
        "puerh",
        ("has elements that are nested too deeply; their text is left out",),
    )
    assert bomb.reason == "has 1 page, and none can be read: damaged, or larger than is read"
    assert deep == RefusedRecord("deep.html", "has no text but in elements that are nested too deeply")
    assert last.data["content"] == "sencha"


STUCK = """
import json, sys, time
for line in sys.stdin:
    path = json.loads(line)["path"]
    print(json.dumps({"page": "Steam."}), flush=True)
    time.sleep(60 if path.endswith("slow.pdf") else 0)
    if path.endswith("crash.pdf"):
        sys.exit(3)
    print(json.dumps({"title": "Tea"}), flush=True)
"""


def test_a_document_that_stops_its_reader_does_not_stop_the_next_one(tmp_path, monkeypatch):
    program = tmp_path / "stuck.py"
    program.write_text(STUCK)
    monkeypatch.setattr(document_process, "__file__", str(program))
    monkeypatch.setattr(document_reader, "PAGE_SECONDS", 3.0)
    reader = DocumentReader()
    with pytest.raises(UnreadableFileError, match=r"^takes too long to read, at page 2$"):
        reader.read(tmp_path / "slow.pdf", "pdf")
    with pytest.raises(UnreadableFileError, match=r"^is damaged: it stops the program that reads it, at page 2$"):
        reader.read(tmp_path / "crash.pdf", "pdf")
    assert reader.read(tmp_path / "good.pdf", "pdf").pages == ["Steam."]
    reader.close()


def test_a_preview_has_the_first_pages_and_waits_for_no_others(tmp_path, monkeypatch):
    path = write_pdf(tmp_path / "book.pdf", ["Steam." for _ in range(45)])
    (short,) = found(path, "documents", is_preview=True)
    assert (short.data["content"].count("Steam."), short.data["title"]) == (40, "book")
    program = tmp_path / "stuck.py"
    program.write_text(STUCK)
    monkeypatch.setattr(document_process, "__file__", str(program))
    monkeypatch.setattr(document_reader, "PREVIEW_SECONDS", 2.0)
    reader = DocumentReader(is_preview=True)
    assert reader.read(tmp_path / "slow.pdf", "pdf").pages == ["Steam."]
    reader.close()


@pytest.mark.parametrize(
    ("name", "content", "importer"),
    [
        pytest.param("manual", b"%PDF-1.7\n", "documents", id="PDF without an ending"),
        pytest.param("page", b"<!doctype HTML><html>", "documents", id="HTML without an ending"),
        pytest.param("note.txt", b"Boiled.", "documents", id="text"),
        pytest.param("note.txt", b'{"content": "Boiled."}', "jsonl", id="records"),
        pytest.param("note.txt", b"id,content\n1,Boiled.\n", "csv", id="table"),
        pytest.param("note.md", b"Boiled.", "markdown", id="Markdown"),
    ],
)
def test_a_single_file_is_known_by_its_content(tmp_path, name, content, importer):
    (tmp_path / name).write_bytes(content)
    assert importer_for(tmp_path / name).name == importer


@pytest.mark.django_db
def test_documents_are_imported_once_updated_when_they_change_and_undone(tmp_path):
    folder = tmp_path / "library"
    folder.mkdir()
    pages = [f"Chapter {number}.\n{PAGE}" for number in range(1, 9)]
    manual = write_pdf(folder / "manual.pdf", pages)
    (folder / "note.md").write_text("See [the manual](manual.pdf).")
    (folder / "log.txt").write_text("Boiled.")
    before = counts()
    run(folder)
    batch = last_batch()
    assert (batch.format, *batch_counts(batch)) == ("documents", 6, 6, 0, 0, 0)
    assert [found for _, _, found in link_targets()].count("manual.pdf") == 2
    os.utime(manual, (1, 1))
    run(folder)
    assert batch_counts(last_batch()) == (6, 0, 0, 6, 0)
    write_pdf(manual, [*pages[:7], "The end."])
    run(folder)
    assert batch_counts(last_batch()) == (6, 0, 1, 5, 0)
    assert Memory.objects.get(external_id="manual.pdf#part-4").content.endswith("The end.")
    run(undo=last_batch().pk)
    run(undo=batch.pk)
    assert counts() == before


@pytest.mark.django_db
def test_a_zip_of_documents_is_imported_with_its_folders(tmp_path):
    write_pdf(tmp_path / "manual.pdf", ["Pour."])
    with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
        archive.write(tmp_path / "manual.pdf", "library/sub/manual.pdf")
        archive.writestr("library/note.md", "See [the manual](sub/manual.pdf).")
        archive.writestr("library/table.csv", "id,content\n1,Boiled.\n")
        archive.writestr("../outside.txt", "Secret.")
    run(tmp_path / "library.zip")
    assert batch_counts(last_batch()) == (4, 3, 0, 0, 1)
    assert MemoryLink.objects.get().target_memory.external_id == "sub/manual.pdf"

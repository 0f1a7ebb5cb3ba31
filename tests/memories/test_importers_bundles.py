"""Several files as one: ZIP archives and folders of uploads, each file in its own format."""

import json
import zipfile
from pathlib import Path

import pytest

from categories.models import Category
from memories.models import Memory
from tests.memories.foreign import write_zip
from tests.memories.imports import batch_counts, last_batch, run
from transfer.formats import bundles
from transfer.formats.base import NotReadableError, Options, RefusedRecord, SourceRecord
from transfer.formats.registry import BUNDLE, importer_for

LINES = '{"id": "a", "content": "Green tea."}\n{"content": ""}\n'
TABLE = "Note,Labels\nCups are on the shelf.,kitchen\n"
NOTES = {"vault/.obsidian/app.json": "{}", "vault/tea.md": "See [[oven/hot]].", "vault/oven/hot.md": "It is hot. #fire"}


def read(path, **options):
    return list(BUNDLE.read(path, Options(**options)).records)


def places(records):
    return [(one.location, one.reason if isinstance(one, RefusedRecord) else one.data["content"]) for one in records]


def test_each_file_of_an_archive_is_read_in_its_own_format(tmp_path):
    members = {
        "b/lines.jsonl": LINES,
        "a.csv": TABLE,
        "photo.png": b"\x89PNG\x00\x01",
        "__MACOSX/a.csv": TABLE,
        ".hidden.csv": TABLE,
    }
    path = write_zip(tmp_path / "all.zip", members)
    assert importer_for(path) is BUNDLE
    records = read(path)
    assert places(records) == [
        ("a.csv line 2", "Cups are on the shelf."),
        ("b/lines.jsonl line 1", "Green tea."),
        ("b/lines.jsonl line 2", ""),
        ("photo.png", "is a picture"),
    ]
    assert records[0].data["tags"] == ["kitchen"]


def test_notes_of_an_archive_are_read_together_as_the_vault_that_they_are(tmp_path):
    tea, hot = read(write_zip(tmp_path / "notes.zip", NOTES))
    assert (hot.location, hot.data["categories"], hot.data["tags"]) == ("oven/hot.md", ["oven"], ["fire"])
    assert tea.data["project"] == hot.data["project"] == "vault"


def test_notes_without_a_folder_of_their_own_name_no_project_and_have_the_dates_of_their_files(tmp_path):
    path = tmp_path / "notes.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a.md", "b.md"):
            archive.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10)), "Text.")
    assert {record.data["created_at"] for record in read(path)} == {"2024-05-06T07:08:10+00:00"}
    assert [record.data.get("project") for record in read(path)] == [None, None]
    assert [record.data["project"] for record in read(path, project="tea")] == ["tea", "tea"]


def test_a_file_of_an_archive_that_names_no_date_is_read(tmp_path):
    path = tmp_path / "streamed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (("a.csv", TABLE), ("b.md", "Text.")):
            # Programs that stream archives write this: month 0, day 0.
            archive.writestr(zipfile.ZipInfo(name, (1980, 0, 0, 0, 0, 0)), text)
    assert places(read(path)) == [("b.md", "Text."), ("a.csv line 2", "Cups are on the shelf.")]


def test_an_archive_makes_no_folder_outside_of_its_own(tmp_path):
    outside = f"/{tmp_path.name}-outside"
    members = {"/.obsidian/app.json": "{}", f"{outside}/.obsidian/app.json": "{}", "a.csv": TABLE}
    existed = Path("/.obsidian").exists()
    assert [one.location for one in read(write_zip(tmp_path / "evil.zip", members))][-1] == "a.csv line 2"
    assert Path("/.obsidian").exists() == existed
    assert not Path(outside).exists()


@pytest.mark.parametrize(
    ("members", "refused"),
    [
        ({"\u8a18" * 90 + ".md": "Text."}, "has a name that leads out of the archive, or is too long"),
        ({"\u8a18" * 90 + "/.obsidian/x": "{}"}, None),
        ({"x.md/.obsidian/app.json": "{}", "x.md": "Text."}, "is damaged or cannot be unpacked (FileExistsError)"),
    ],
)
def test_a_file_that_no_disk_can_hold_is_refused_alone(tmp_path, members, refused):
    records = read(write_zip(tmp_path / "odd.zip", members | {"a.csv": TABLE}))
    assert records[-1].location == "a.csv line 2"
    assert refused is None or refused in {one.reason for one in records[:-1]}


def test_names_and_links_that_lead_out_of_an_archive_are_refused_and_the_rest_is_read(tmp_path):
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../evil.md", "/etc/evil.md", "a/../../evil.md", "good.md"):
            archive.writestr(name, "Text.")
        link = zipfile.ZipInfo("link.md")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("good.md", "Other text.")
    outside = "has a name that leads out of the archive, or is too long"
    assert places(read(path)) == [
        ("../evil.md", outside),
        ("/etc/evil.md", outside),
        ("a/../../evil.md", outside),
        ("link.md", "is a link to another file; links are not followed"),
        ("good.md", "is in the archive twice; the first one is read"),
        ("good.md", "Text."),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["bad.zip"]


def test_an_archive_that_expands_too_much_or_is_damaged_is_named(tmp_path, monkeypatch):
    bomb = write_zip(tmp_path / "bomb.zip", {"a.jsonl": " " * 3_000_000})
    monkeypatch.setattr(bundles, "_MAX_UNPACKED", 1_000_000)
    with pytest.raises(NotReadableError, match=r"would unpack from .* to 3,000,000 bytes"):
        read(bomb)
    whole = write_zip(tmp_path / "whole.zip", {"a.md": "x" * 5_000, "b.md": "Text."}).read_bytes()
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(whole.replace(whole[40:44], b"\xff\xff\xff\xff", 1))
    assert [type(one) for one in read(damaged)] == [RefusedRecord, SourceRecord]
    cut = tmp_path / "cut.zip"
    cut.write_bytes(whole[:100])
    with pytest.raises(NotReadableError, match="damaged ZIP archive"):
        importer_for(cut)


@pytest.mark.django_db
def test_an_archive_is_one_import_and_importing_it_again_changes_nothing(tmp_path):
    path = write_zip(tmp_path / "all.zip", {"lines.jsonl": LINES, "a.csv": TABLE, **NOTES})
    run(path)
    assert batch_counts(last_batch()) == (5, 4, 0, 0, 1)
    assert last_batch().format == "files"
    run(path)
    assert batch_counts(last_batch()) == (5, 0, 0, 4, 1)
    assert Memory.objects.filter(links__target_memory__isnull=False).count() == 1


def test_an_archive_in_an_archive_is_not_opened(tmp_path):
    inner = write_zip(tmp_path / "inner.zip", {"a.jsonl": LINES}).read_bytes()
    path = write_zip(tmp_path / "outer.zip", {"inner.zip": inner, "b.json": json.dumps([])})
    assert places(read(path)) == [
        ("b.json", "is an empty list in JSON: nothing can be read"),
        ("inner.zip", "is nothing that can be imported"),
    ]


HOME, TASKS, LOGIN, DOCS = (
    "0123456789abcdef" * 2,
    "aaaabbbbccccdddd" * 2,
    "1111222233334444" * 2,
    "5555666677778888" * 2,
)
IN_TASKS = f"Home {HOME}/Tasks {TASKS}"
TASK_TABLE = "\ufeffName,Status,Due\nFix login,Done,2026-03-02\nWrite docs,In progress,\nNever a page,Done,\n"
OF_NOTION = {
    f"Home {HOME}.md": f"# Home\n\nSee [Fix login](Home%20{HOME}/Tasks%20{TASKS}/Fix%20login%20{LOGIN}.md).\n",
    f"{IN_TASKS}.csv": TASK_TABLE.replace("Never a page,Done,\n", ""),
    f"{IN_TASKS}_all.csv": TASK_TABLE,
    f"{IN_TASKS}/Fix login {LOGIN}.md": "# Fix login\n\nStatus: Done\nTags: auth, bug\nPriority: High\n\nLost.\n",
    f"{IN_TASKS}/Write docs {DOCS}.md": f"# Write docs\n\nAfter [it](Fix%20login%20{LOGIN}.md).\n",
}


@pytest.mark.django_db
@pytest.mark.parametrize("is_packed_twice", [pytest.param(False, id="one-archive"), pytest.param(True, id="parts")])
def test_an_export_of_notion_has_pages_without_numbers_and_rows_that_are_no_pages(tmp_path, is_packed_twice):
    path = write_zip(tmp_path / "Export.zip", OF_NOTION)
    if is_packed_twice:
        path = write_zip(tmp_path / "outer.zip", {"ExportBlock-0a1b2c3d-4e5f-Part-1.zip": path.read_bytes()})
    run(path, "--project", "team")
    by_title = {memory.title or memory.content: memory for memory in Memory.objects.all()}
    assert sorted(by_title) == ["Fix login", "Home", "Never a page", "Write docs"]
    login = by_title["Fix login"]
    assert (login.tags, login.raw["Priority"], login.raw["front_matter"]) == (
        ["auth", "bug"],
        "High",
        {"Status": "Done"},
    )
    assert [category.path for category in Category.objects.filter(pk__in=login.category_ids)] == ["home/tasks"]
    linked = {link.target_memory.title for title in ("Home", "Write docs") for link in by_title[title].links.all()}
    assert linked == {"Fix login"}
    assert last_batch().refused == 1


def test_an_archive_in_a_part_of_a_notion_export_is_not_opened(tmp_path):
    block = "ExportBlock-0a1b2c3d-4e5f-Part-1.zip"
    inner = write_zip(tmp_path / "inner.zip", {"a.jsonl": LINES}).read_bytes()
    for number in range(3):
        inner = write_zip(tmp_path / f"{number}.zip", {block: inner}).read_bytes()
    found = places(read(write_zip(tmp_path / "outer.zip", {block: inner})))
    assert found == [(f"{block} {block}", "is nothing that can be imported")]

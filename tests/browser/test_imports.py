"""Bringing memories in, in a real browser: a file dropped into the page in parts, previewed, imported and undone;
and a store of this machine that is followed.
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from access.viewer import command_viewer
from memories.models import Memory
from memories.records import MemoryChanges
from memories.services import memory_update
from tests.home.test_previews import make_previews_here
from tests.memories.foreign import write_database
from tests.memories.test_importers_claude_mem import OBSERVATION, PRESENT, SESSION, VERSIONS
from transfer.follow.process import Follower
from transfer.models import ImportJob
from transfer.process import jobs_run


@pytest.fixture
def site(live_server, settings, tmp_path, monkeypatch):
    """A site without memories, whose imports begin when a test says so."""
    settings.HOME = tmp_path
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    monkeypatch.setattr("transfer.previews.start_once", lambda arguments: Thread(target=make_previews_here).start())
    monkeypatch.setattr("transfer.previews._START_SECONDS", 0.0)
    monkeypatch.delenv("CLAUDE_MEM_DATA_DIR", raising=False)
    monkeypatch.setattr("transfer.views.PART", 64)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return live_server


def test_upload_survives_a_broken_connection_and_is_imported_with_its_progress(open_page, tmp_path):
    lines = [{"id": f"m{n}", "title": f"Kettle {n}", "content": "It leaks.", "type": "note"} for n in range(9)]
    file = tmp_path / "kettles.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"content": ""}]))
    page = open_page("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing here yet")
    page.get_by_role("link", name="Look for memories").click()
    expect(page.get_by_text("Nothing to import was found on this machine.")).to_be_visible()
    assert page.url.endswith("/")
    # After the third part the connection breaks; a moment later it is there again.
    parts = []

    def pass_on(route):
        parts.append(route.request.url)
        route.abort() if len(parts) == 3 else route.continue_()

    page.route("**/data?offset=*", pass_on)
    page.get_by_label("Drop files or a folder here, or choose files").set_input_files(file)
    expect(page.get_by_role("heading", name="The first rows as they were read")).to_be_visible()
    assert len(parts) > 9
    open_page.complaints[:] = [text for text in open_page.complaints if "ERR_FAILED" not in text]
    expect(page.get_by_role("row")).to_have_count(9)
    page.get_by_label(re.compile("^Project of")).fill("Kitchen")
    page.get_by_role("button", name=re.compile("^Import")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("kettles.jsonl waiting")
    jobs_run()
    expect(page.get_by_role("heading", level=1)).to_have_text("kettles.jsonl imported")
    expect(page.get_by_text("content: is empty; a memory needs a text")).to_be_visible()
    assert set(Memory.objects.values_list("project__slug", flat=True)) == {"kitchen"}
    page.get_by_role("link", name="To the home page").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("9 memories came in today from 1 import")
    page.get_by_role("link", name="9 memories", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("9 memories")


def test_refused_upload_goes_on_with_the_same_file_and_another_follows_after_back(open_page, tmp_path):
    for name in ("tea", "coffee"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"title": "All about {name}", "content": "{name} is hot."}}\n')
    page = open_page("/imports/")
    field = page.get_by_label("Drop files or a folder here, or choose files")
    page.route("**/data?offset=*", lambda route: route.fulfill(status=409, json={"detail": "Not now."}))
    field.set_input_files(tmp_path / "tea.jsonl")
    expect(page.get_by_text("Not now. Choose the file again to go on.")).to_be_visible()
    open_page.complaints.clear()
    # An empty field notices that the same file is chosen.
    expect(field).to_have_value("")
    (tmp_path / "empty.csv").touch()
    field.set_input_files(tmp_path / "empty.csv")
    expect(page.get_by_text("empty.csv is empty.", exact=True)).to_be_visible()
    page.unroute("**/data?offset=*")
    field.set_input_files(tmp_path / "tea.jsonl")
    expect(page.get_by_role("row").nth(1)).to_contain_text("All about tea")
    page.go_back()
    field.set_input_files(tmp_path / "coffee.jsonl")
    expect(page.get_by_role("row").nth(1)).to_contain_text("All about coffee")


def test_everything_is_reachable_without_scripts_and_by_keyboard(open_page, tmp_path):
    file = tmp_path / "note.jsonl"
    file.write_text('{"content": "The kettle leaks."}\n')
    page = open_page("/imports/", java_script_enabled=False)
    page.get_by_label("Drop files or a folder here, or choose files").set_input_files(file)
    page.get_by_role("button", name="Upload").press("Enter")
    expect(page.get_by_role("row").nth(1)).to_contain_text("The kettle leaks.")
    page.get_by_role("button", name=re.compile("^Import")).press("Enter")
    jobs_run()
    page.get_by_role("link", name="Look again").press("Enter")
    expect(page.get_by_text("new memories")).to_be_visible()
    page.get_by_role("button", name="Undo the import").press("Enter")
    jobs_run()
    assert not Memory.objects.exists()
    assert User.objects.exists()


def test_upload_is_cancelled_and_another_file_of_its_name_and_size_is_another_upload(open_page, tmp_path):
    file = tmp_path / "tea.jsonl"
    file.write_text('{"title": "All about tea", "content": "Tea is hot."}\n' * 3)
    page = open_page("/imports/")
    field = page.get_by_label("Drop files or a folder here, or choose files")
    # The second part never arrives.
    page.route("**/data?offset=64", lambda route: None)
    field.set_input_files(file)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled. Nothing is stored.")).to_be_visible()
    assert not ImportJob.objects.exists()
    # Once more, and the page is closed in the middle.
    field.set_input_files(file)
    expect(page.get_by_text("% of tea.jsonl")).to_be_visible()
    job = ImportJob.objects.get()
    page.goto(page.url + f"{job.pk}/")
    again = page.get_by_label("Choose tea.jsonl again")
    file.write_text(file.read_text().replace("hot", "ice"))
    again.set_input_files(file)
    expect(page.get_by_text("This is not tea.jsonl as it was: it is another file, or was changed.")).to_be_visible()
    assert ImportJob.objects.get().received == 64


def test_found_store_is_followed_its_conflict_decided_and_then_stopped(open_page, tmp_path):
    (tmp_path / ".claude-mem").mkdir()
    rows = {"schema_versions": [{"version": 30}], "sdk_sessions": [SESSION], "observations": [OBSERVATION]}
    store = write_database(tmp_path / ".claude-mem" / "claude-mem.db", VERSIONS + PRESENT, rows, wal=True)
    page = open_page("/imports/found/")
    expect(page.get_by_label("Keep up with them")).to_be_checked()
    page.get_by_role("button", name="Import 1 memory").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{store} claude-mem, followed")
    expect(page.get_by_text("It is being read for the first time")).to_be_visible()
    Follower().once()
    memory = Memory.objects.get()
    memory_update(memory_id=memory.pk, changes=MemoryChanges(title="Mine"), viewer=command_viewer())
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE observations SET title = 'Theirs'")
    Follower().once()
    page.get_by_role("link", name="← All imports").click()
    expect(page.get_by_text("1 memory · 1 conflict")).to_be_visible()
    page.get_by_role("link", name=str(store), exact=True).click()
    expect(page.get_by_text("1 new")).to_be_visible()
    conflict = page.get_by_role("region", name="Conflicts")
    expect(conflict.locator("dd del")).to_have_text("Mine")
    expect(conflict.locator("dd ins")).to_have_text("Theirs")
    conflict.get_by_role("button", name="Take the source’s: Mine").click()
    expect(page.get_by_text(f"#{memory.pk} is as in its source now.")).to_be_visible()
    expect(conflict).to_have_count(0)
    assert Memory.objects.get().title == "Theirs"
    page.get_by_role("button", name="Stop following").click()
    expect(page.get_by_text("is followed no longer. Its memories stay.")).to_be_visible()
    expect(page.get_by_role("heading", name="Followed")).to_have_count(0)
    assert Memory.objects.count() == 1

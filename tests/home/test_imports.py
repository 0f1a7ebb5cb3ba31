"""Imports from the pages and by the API: found stores, uploads in parts, previews, progress, reports and undo."""

import json
import re
import threading
import time
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from access.keys import make_key, revoke_key
from access.models import Membership
from access.viewer import command_viewer, viewer_of_user
from memories.models import ImportBatch, Memory, Project
from tests.home.conftest import make_previews_when_asked
from tests.html import html_of
from transfer import jobs, uploads
from transfer import process as import_process
from transfer.formats.base import ImportFailedError, Options, Reading, SourceRecord
from transfer.formats.importer import Importer
from transfer.formats.registry import IMPORTERS
from transfer.jobs import FullRightsError, ImportForbiddenError, JobStateError
from transfer.models import ImportJob
from transfer.process import jobs_run
from transfer.source_cards import CARDS
from transfer.uploads import FileToSend, upload_append, upload_begin

pytestmark = pytest.mark.django_db

LINES = [
    {"id": "a", "project": "tea", "type": "decision", "title": "Brew at 70 °C", "content": "Green tea.", "tags": ["x"]},
    {"id": "b", "content": "Cups are on the shelf."},
    {"id": "c", "content": ""},
]
FILE = "".join(json.dumps(line) + "\n" for line in LINES).encode()


@pytest.fixture(autouse=True)
def place(settings, tmp_path, monkeypatch):
    """A home folder of the test's own, and no process of its own for imports: tests do what is queued themselves."""
    settings.HOME = tmp_path
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    make_previews_when_asked(monkeypatch)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("CLAUDE_MEM_DATA_DIR", "CLAUDE_CONFIG_DIR", "MEMORY_FILE_PATH", "BASIC_MEMORY_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def owner(client):
    client.force_login(User.objects.create_superuser("owner"))
    return client


def key(*scopes):
    return {
        "Authorization": f"Bearer {make_key(name='k', scopes=scopes, viewer=command_viewer(), every_project=True).raw}"
    }


def send(client, headers, part, job, offset):
    url = f"/api/imports/{job}/data?offset={offset}"
    return client.put(url, part, content_type="application/octet-stream", headers=headers)


def begun(client, headers):
    return client.post(
        "/api/imports", {"name": "tea.jsonl", "size": len(FILE)}, content_type="application/json", headers=headers
    )


def test_upload_goes_on_where_it_stopped_and_is_imported_reported_and_undone(client, place):
    headers = key("read", "write", "curate")

    job = begun(client, headers).json()["id"]
    assert send(client, headers, FILE[:40], job, 0).json()["received"] == 40
    # The same file once more, as after a reload: the upload that has begun goes on.
    again = begun(client, headers).json()
    assert (again["id"], again["state"], again["received"]) == (job, "uploading", 40)
    wrong = send(client, headers, FILE, job, 0)
    assert wrong.status_code == 409
    assert wrong.json()["detail"] == f"tea.jsonl has 40 of {len(FILE)} bytes: go on from offset 40."
    assert send(client, headers, FILE[40:], job, 40).json()["state"] == "ready"
    preview = client.get(f"/api/imports/{job}", headers=headers).json()["preview"]
    assert [(row["title"], row["type"], row["project"]) for row in preview["rows"]] == [
        ("Brew at 70 °C", "decision", "tea"),
        ("Cups are on the shelf.", "note", ""),
    ]
    assert preview["refused"] == [{"location": "line 3", "reason": "content: is empty; a memory needs a text"}]
    assert Memory.objects.count() == 0

    start = f"/api/imports/{job}/start"
    queued = client.post(start, {"project": "House"}, content_type="application/json", headers=headers)
    assert (queued.status_code, queued.json()["state"]) == (202, "waiting")
    assert client.post(start, {}, content_type="application/json", headers=headers).status_code == 409
    assert jobs_run() == 1
    done = client.get(f"/api/imports/{job}", headers=headers).json()
    assert (done["state"], done["created"], done["refused"], done["share"]) == ("done", 2, 1, 1.0)
    assert done["refusals"][0]["location"] == "line 3"
    assert sorted(Memory.objects.values_list("project__slug", flat=True)) == ["house", "tea"]
    assert ImportBatch.objects.get().origin == "tea.jsonl"
    assert list((place / "uploads").iterdir()) == []

    assert client.post(f"/api/imports/{job}/undo", headers=headers).json()["state"] == "undo_waiting"
    jobs_run()
    assert client.get(f"/api/imports/{job}", headers=headers).json()["state"] == "undone"
    assert not Memory.objects.exists()
    assert not Project.objects.exists()


def test_an_upload_goes_on_only_with_the_same_files(client):
    headers = key("read", "write", "curate")

    def begin(**values):
        sent = {"name": "tea.jsonl", "size": len(FILE), "fingerprint": "f1", **values}
        return client.post("/api/imports", sent, content_type="application/json", headers=headers).json()

    first = begin()
    send(client, headers, FILE[:40], first["id"], 0)
    assert [begin()["received"], begin(fingerprint="f2")["received"], begin(size=9)["received"]] == [40, 0, 0]
    assert begin(name="coffee.jsonl")["id"] != first["id"]


def test_a_form_is_never_added_to_the_beginning_of_another_upload(owner):
    other = FILE.replace(b"Green tea.", b"Black tea")
    other += b"\n" * (len(FILE) - len(other))
    begun = upload_begin(files=[FileToSend("tea.jsonl", len(FILE))], viewer=viewer_of_user(User.objects.get()))
    upload_append(job=begun, offset=0, part=other[:-1])
    job = ImportJob.objects.get(
        pk=owner.post("/imports/upload/", {"file": SimpleUploadedFile("tea.jsonl", FILE)}).url.strip("/").split("/")[-1]
    )
    assert Path(job.path).read_bytes() == FILE


@pytest.mark.parametrize("names", [("tea/a.csv", "tea"), ("tea", "tea/a.csv")])
def test_a_file_with_the_name_of_a_folder_is_refused_before_it_is_sent(client, place, names):
    files = [{"name": name, "size": 5} for name in names]
    body = {"name": "tea", "size": 10, "files": files}
    reply = client.post("/api/imports", body, content_type="application/json", headers=key("read", "write", "curate"))
    assert (reply.status_code, reply.json()["detail"][:7]) == (422, "files: ")
    assert list((place / "uploads").iterdir()) == []


def test_several_files_are_one_upload_and_one_import(client, place):
    headers = key("read", "write", "curate")
    table = b"Note,Labels\nCups are on the shelf.,kitchen\n"
    files = [
        {"name": "tea/lines.jsonl", "size": len(FILE)},
        {"name": "tea/../notes/kettle.md", "size": 17, "modified": "2025-03-04T05:06:07Z"},
        {"name": "tea/table.csv", "size": len(table)},
    ]
    body = {"name": "tea (3 files)", "size": len(FILE) + 17 + len(table), "files": files}
    wrong = client.post("/api/imports", body | {"size": 9}, content_type="application/json", headers=headers)
    assert wrong.json()["detail"] == f"size: is 9, and the files have {body['size']} bytes together."
    job = client.post("/api/imports", body, content_type="application/json", headers=headers).json()
    assert (job["files"], job["name"]) == (3, "tea (3 files)")
    # In parts that end in the middle of files.
    content = FILE + b"The kettle leaks." + table
    for start in range(0, len(content), 100):
        job = send(client, headers, content[start : start + 100], job["id"], start).json()
    preview = client.get(f"/api/imports/{job['id']}", headers=headers).json()["preview"]
    assert [(file["name"], file["format"]) for file in preview["files"]] == [
        ("documents", "documents"),
        ("tea/lines.jsonl", "jsonl"),
        ("tea/table.csv", "csv"),
    ]
    assert {row["created_at"] for row in preview["rows"] if row["title"] == "kettle"} == {"2025-03-04T05:06:07Z"}
    assert [(column["name"], column["field"]) for column in preview["columns"]] == [
        ("Note", "content"),
        ("Labels", "tags"),
    ]
    client.post(f"/api/imports/{job['id']}/start", {}, content_type="application/json", headers=headers)
    jobs_run()
    done = client.get(f"/api/imports/{job['id']}", headers=headers).json()
    assert (done["state"], done["created"], done["refused"]) == ("done", 4, 1)
    assert done["refusals"][0]["location"] == "tea/lines.jsonl line 3"
    assert list((place / "uploads").iterdir()) == []


def test_columns_are_guessed_shown_and_changed_by_the_api_and_on_the_page(owner, client):
    table = SimpleUploadedFile("lijst.csv", b"Nummer;Kommentaar;Wer\n7;Der Kessel leckt.;Ann\n")
    job = owner.post("/imports/upload/", {"file": table}).url
    page = html_of(owner.get(job))
    assert "lijst.csv: none of its columns is known as the text of a memory" in page
    assert "lijst.csv <small>needs a column with the text</small>" in page
    assert '<td class="examples">Der Kessel leckt.</td>' in page
    columns = f"{job}columns/"
    owner.post(columns, {"column": ["Nummer", "Kommentaar", "Wer"], "field": ["title", "title", ""]})
    refused = html_of(owner.get(job, headers={"HX-Request": "true"}))
    assert "are both read as title" in refused
    owner.post(columns, {"column": ["Nummer", "Kommentaar", "Wer"], "field": ["id", "content", "authors"]})
    page = html_of(owner.get(job))
    assert '<th scope="row">Der Kessel leckt.</th>' in page
    assert '<option value="authors" selected>' in page
    # A column that takes the field of another one leaves that without.
    owner.post(columns, {"column": ["Nummer", "Kommentaar", "Wer"], "field": ["id", "content", "content"]})
    assert ImportJob.objects.latest("id").columns == {"Nummer": "id", "Kommentaar": "", "Wer": "content"}
    path = f"/api{job.rstrip('/')}"
    headers = key("read", "write", "curate")
    refused = client.patch(path, {"columns": {"Name": "title"}}, content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "There is no column 'Name'. The columns are 'Nummer', 'Kommentaar', 'Wer'.",
    )
    wanted = {"columns": {"Kommentaar": "content", "Nummer": "title"}}
    preview = client.patch(path, wanted, content_type="application/json", headers=headers).json()["preview"]
    assert [(row["title"], row["text"]) for row in preview["rows"]] == [("7", "Der Kessel leckt.")]
    assert preview["fields"][:3] == ["content", "id", "title"]
    owner.post(f"{job}import/")
    jobs_run()
    assert Memory.objects.get().title == "7"


@pytest.mark.django_db(transaction=True)
def test_an_import_is_cancelled_while_it_waits_and_while_it_runs(owner, client, monkeypatch):
    owner.post("/imports/start/", {"sample": 1})
    job = ImportJob.objects.get()
    headers = key("read", "write", "curate")
    cancel = f"/api/imports/{job.pk}/cancel"
    assert client.post(cancel, headers=headers).json()["problem"] == "It was cancelled; nothing was written."
    again = client.post(cancel, headers=headers)
    assert (again.status_code, again.json()["detail"]) == (409, "The sample is failed: there is nothing to cancel.")
    assert "The sample <small>cancelled</small>" in html_of(owner.get(f"/imports/{job.pk}/"))
    owner.post(f"/imports/{job.pk}/import/")
    monkeypatch.setattr("transfer.blocks.BLOCK", 40)
    written = import_process.import_path

    def cancel_elsewhere():
        assert owner.post(f"/imports/{job.pk}/cancel/").status_code == 302
        connection.close()

    def cancelled_meanwhile(*, progress, **options):
        def show(counts, share):
            if ImportJob.objects.get().state == "running":
                thread = threading.Thread(target=cancel_elsewhere)
                thread.start()
                thread.join()
                # Until the job is seen to be cancelled.
                while True:
                    progress(counts, share)
                    time.sleep(0.01)
            progress(counts, share)

        return written(progress=show, **options)

    monkeypatch.setattr(import_process, "import_path", cancelled_meanwhile)
    monkeypatch.setattr(import_process, "_BEAT_SECONDS", 0.02)
    jobs_run()
    job.refresh_from_db()
    assert (job.state, job.error) == ("failed", "It was cancelled; nothing was written.")
    assert not Memory.objects.exists()


def test_a_job_whose_person_lost_the_rights_writes_nothing(owner):
    owner.post("/imports/start/", {"sample": 1})
    User.objects.update(is_superuser=False)
    jobs_run()
    job = ImportJob.objects.get()
    assert (job.state, job.error) == ("failed", FullRightsError.message)
    assert not Memory.objects.exists()


def test_empty_corpus_welcomes_and_imports_what_is_found_on_the_machine(owner, place):
    page = html_of(owner.get("/"))
    assert "<h1>Nothing here yet</h1>" in page
    assert "Look for memories</a>" in page
    notes = place / "basic-memory"
    notes.mkdir()
    (notes / "kettle.md").write_text("---\ncreated: 2026-01-05\n---\nThe kettle leaks.")
    found = html_of(owner.get("/imports/found/"))
    assert f'value="{notes}"' in found
    assert "<code>~/basic-memory</code>" in found
    assert "All of 5 Jan 2026." in found
    assert ">Import 1 memory</button>" in found
    assert not Memory.objects.exists()
    owner.post("/imports/start/", {"path": str(place / "secrets")})
    assert "secrets is not among the known places of this machine." in html_of(owner.get("/imports/"))
    assert not ImportJob.objects.exists()
    job = owner.post("/imports/start/", {"path": str(notes)}).url
    assert 'hx-trigger="every 1s"' in html_of(owner.get(job))
    jobs_run()
    page = html_of(owner.get(job))
    assert leads_to(owner, page, "new memories", 1)
    assert "every 1s" not in page
    assert "1</a> memory came in today from" in html_of(owner.get("/"))
    assert "Imported already" in html_of(owner.get("/imports/found/"))


def leads_to(client, page, name, count):
    """Whether a number of the page of an import is linked to as many memories."""
    address = re.search(rf'<dt>{name}</dt><dd><a class="link" href="([^"]*)">{count}</a></dd>', page)[1]
    found = html_of(client.get(unescape(address)))
    return re.search(r'<h1 id="total"[^>]*>\s*([\d,]+)', found)[1] == str(count)


def test_counts_of_an_import_lead_to_their_memories_whatever_became_of_them(owner, client, jsonl, place):
    headers = key("read", "write", "curate")
    notes = jsonl(*({"id": f"n{n}", "content": f"Note {n}."} for n in range(5)))
    changed = jsonl({"id": "n1", "content": "Note 1, changed."}, {"id": "new", "content": "Another."}, name="b.jsonl")
    for path in (notes, changed):
        call_command("import_memories", str(path), verbosity=0)
    first, second = ImportBatch.objects.order_by("pk").values_list("pk", flat=True)
    Memory.objects.filter(external_id="n2").update(state="archived")
    Memory.objects.filter(external_id="n3").update(state="superseded")
    page = html_of(owner.get("/imports/"))
    for batch_id, count in ((first, 5), (second, 1)):
        address = re.search(rf'href="(/explore/\?import={batch_id}&[^"]*)"[^>]*>{count} new</a>', page)[1]
        found = html_of(owner.get(unescape(address)))
        assert re.search(r'<h1 id="total"[^>]*>\s*(\d+)', found)[1] == str(count)
    job = ImportJob.objects.create(name="b.jsonl", state="done", batch_id=second)
    page = html_of(owner.get(f"/imports/{job.pk}/"))
    assert leads_to(owner, page, "new memories", 1)
    assert '<dt>updated</dt><dd><a class="link" href="#changed-title">1</a></dd>' in page
    assert "<dt>unchanged</dt><dd>0</dd>" in page
    reply = client.get(f"/api/imports/{job.pk}", headers=headers).json()
    assert reply["updated_ids"] == [Memory.objects.get(external_id="n1").pk]
    listed = client.get(reply["brought_url"], headers=headers).json()
    assert [hit["title"] for hit in listed["memories"]] == ["Another."]
    memory = Memory.objects.get(external_id="new")
    assert client.get(f"/api/memories/{memory.pk}", headers=headers).json()["batch_id"] == second
    assert f'href="/explore/?import={second}&amp;' in owner.get(f"/m/{memory.pk}/").content.decode()
    assert ">b.jsonl, jsonl, " in html_of(owner.get(f"/m/{memory.pk}/"))


def test_file_is_uploaded_previewed_and_imported_without_scripts(owner):
    uploaded = owner.post("/imports/upload/", {"file": SimpleUploadedFile("../../tea <b>.jsonl", FILE)})
    page = html_of(owner.get(uploaded.url))
    assert '<th scope="row">Brew at 70 °C</th>' in page
    assert "tea &lt;b&gt;.jsonl" in page

    assert "<dt>line 3</dt><dd>content: is empty; a memory needs a text</dd>" in page
    owner.post(f"{uploaded.url}import/", {"project": "kitchen"})
    jobs_run()
    page = html_of(owner.get(uploaded.url))
    assert leads_to(owner, page, "new memories", 2)
    owner.post(f"{uploaded.url}undo/")
    jobs_run()
    assert "<small>undone</small>" in html_of(owner.get(uploaded.url))


def test_a_failed_upload_says_why_without_where_it_is_stored(owner, client, place):
    headers = key("read", "write", "curate")
    lines = b'{"id": "a", "content": "Tea.", "importance": 3}\n'
    named = {"name": "tea.jsonl", "size": len(lines)}
    job = client.post("/api/imports", named, content_type="application/json", headers=headers).json()["id"]
    send(client, headers, lines, job, 0)
    client.post(f"/api/imports/{job}/start", {}, content_type="application/json", headers=headers)
    jobs_run()
    page = html_of(owner.get("/imports/"))
    assert "<b>Failed.</b> none of its 1 records could be read; the first, line 1: importance: 3 is too large" in page
    assert str(place) not in page


def test_any_past_import_is_undone_from_the_page_and_edits_stop_it(owner, jsonl, place):
    call_command("import_memories", str(jsonl(*LINES[:2])), verbosity=0)
    batch = ImportBatch.objects.get().pk
    assert ">2 new</a>" in html_of(owner.get("/imports/"))
    memory = Memory.objects.get(external_id="a")
    owner.post(f"/m/{memory.pk}/state/", {"state": "archived", "reason": "old"})
    job = owner.post(f"/imports/batches/{batch}/undo/").url
    jobs_run()
    assert "1 memory was changed since this import" in html_of(owner.get(job))
    assert Memory.objects.count() == 2


def test_interrupted_job_is_named_and_can_be_tried_again(owner):
    owner.post("/imports/start/", {"sample": 1})
    job = ImportJob.objects.get()
    ImportJob.objects.update(state="running", beat_at=timezone.now() - timedelta(minutes=2))
    page = html_of(owner.get(f"/imports/{job.pk}/"))
    assert "It was interrupted; nothing was written. Try again." in page
    assert "Not finished" in html_of(owner.get("/imports/"))
    ImportJob.objects.update(beat_at=timezone.now() - timedelta(days=8))
    assert "Not finished" not in html_of(owner.get("/imports/"))
    owner.post(f"/imports/{job.pk}/import/")
    jobs_run()
    job.refresh_from_db()
    assert (job.state, job.batch.created) == ("done", 187)
    assert "Remove the sample" in html_of(owner.get("/imports/"))
    assert "So far these are the memories of an invented team." in html_of(owner.get("/"))


def test_uploads_that_nobody_imported_are_removed_after_days(place, monkeypatch):
    old = upload_begin(files=[FileToSend("old.csv", 10)], viewer=command_viewer())
    ImportJob.objects.update(created_at=timezone.now() - timedelta(days=3))
    upload_begin(files=[FileToSend("new.csv", 10)], viewer=command_viewer())
    assert list(ImportJob.objects.values_list("name", flat=True)) == ["new.csv"]
    assert not Path(old.path).exists()
    monkeypatch.setattr(uploads, "_SPARE", 10**18)
    with pytest.raises(uploads.UploadRefusedError, match="not enough space"):
        upload_begin(files=[FileToSend("big.csv", 10)], viewer=command_viewer())
    with pytest.raises(uploads.UploadRefusedError, match="from 1 to 2,147,483,648"):
        upload_begin(files=[FileToSend("big.csv", 3 * 1024**3)], viewer=command_viewer())


def test_a_job_whose_key_was_revoked_writes_nothing(client):
    made = make_key(name="k", scopes=["read", "write", "curate"], viewer=command_viewer(), every_project=True)
    headers = {"Authorization": f"Bearer {made.raw}"}
    job = begun(client, headers).json()["id"]
    send(client, headers, FILE, job, 0)
    client.post(f"/api/imports/{job}/start", {}, content_type="application/json", headers=headers)
    revoke_key(key=made.key, viewer=command_viewer())
    jobs_run()
    one = ImportJob.objects.get()
    assert (one.state, one.error) == ("failed", ImportForbiddenError.message)
    assert not Memory.objects.exists()


def test_preview_names_what_is_left_out_of_rows_and_is_made_once_for_each_way_to_read_them(owner, client, monkeypatch):
    memories = json.dumps([{"id": "a", "memory": "The kettle leaks.", "created_at": "some day"}]).encode()
    job = owner.post("/imports/upload/", {"file": SimpleUploadedFile("mem0.json", memories)}).url
    page = html_of(owner.get(job))
    assert "Taken with a note" in page
    assert "created_at" in page
    assert "Import 1 memory</button>" in page
    monkeypatch.setattr("transfer.previews.importer_of", None)
    headers = key("read", "write", "curate")
    path = f"/api{job.rstrip('/')}"
    (noted,) = client.get(path, headers=headers).json()["preview"]["notes"]
    assert "some day" in noted["note"]
    owner.post(f"{job}import/")
    jobs_run()
    assert client.get(path, headers=headers).json()["notes"] == [noted]


def test_a_cancelled_import_reads_no_further_record_of_its_block():
    progress = import_process._Progress()

    def records():
        for number in range(3):
            progress.is_cancelled = number == 1
            yield SourceRecord(str(number), {"content": "x"})

    importer = Importer("slow", "", lambda source: True, lambda path, options: Reading(records()))
    found = import_process._watched(importer, progress).read(Path(), Options()).records
    assert next(found).location == "0"
    with pytest.raises(ImportFailedError, match="It was cancelled"):
        next(found)


def test_an_undo_that_waits_or_runs_is_not_begun_again(owner, jsonl):
    call_command("import_memories", str(jsonl(*LINES[:2])), verbosity=0)
    batch = ImportBatch.objects.get().pk
    owner.post(f"/imports/batches/{batch}/undo/")
    for state in ("undo_waiting", "undoing"):
        ImportJob.objects.update(state=state)
        with pytest.raises(JobStateError, match="wait until it is finished"):
            jobs.batch_undo_queue(batch_id=batch, viewer=command_viewer())
        assert ImportJob.objects.get().state == state


def test_undo_of_a_batch_that_is_refused_leaves_no_import_behind(owner, jsonl, monkeypatch):
    call_command("import_memories", str(jsonl(*LINES[:2])), verbosity=0)

    def refuse(batch_id, viewer):
        raise ImportForbiddenError("The import has memories in projects that you cannot write to.")

    monkeypatch.setattr(jobs, "check_may_undo", refuse)
    with pytest.raises(ImportForbiddenError):
        jobs.batch_undo_queue(batch_id=ImportBatch.objects.get().pk, viewer=command_viewer())
    assert not ImportJob.objects.exists()


def test_page_has_a_card_for_each_product_that_says_how_to_get_the_file(owner):
    page = html_of(owner.get("/imports/"))
    for key, card in CARDS.items():
        assert f'href="/imports/from/{key}/"><b>{card.name}</b>' in page
        own = html_of(owner.get(f"/imports/from/{key}/"))
        assert f"<h1>Bring in {card.name}</h1>" in own
        assert own.count("<li>") >= len(card.steps)
        assert ('type="file"' in own) == bool(card.upload)
        assert (f'href="/imports/found/?from={key}"' in own) == card.is_found
    assert owner.get("/imports/from/roam/").status_code == 404


def test_cards_name_formats_that_are_read_and_leave_none_out():
    named = {name for card in CARDS.values() for name in card.formats}
    assert named == {importer.name for importer in IMPORTERS}
    assert all(card.steps and (card.upload or card.command) for card in CARDS.values())


def test_cards_are_for_those_who_may_import(client):
    reader, writer = User.objects.create_user("reader"), User.objects.create_user("writer")
    tea = Project.objects.create(slug="tea", name="Tea")
    for user, role in ((reader, "reader"), (writer, "writer")):
        Membership.objects.create(user=user, project=tea, role=role)
    client.force_login(reader)
    assert "/imports/from/" not in html_of(client.get("/imports/"))
    assert client.get("/imports/from/obsidian/").status_code == 403
    client.force_login(writer)
    page = html_of(client.get("/imports/from/claude-mem/"))
    assert 'type="file"' in page
    # Only who may import everything looks on the machine.
    assert "/imports/found/" not in page


@pytest.mark.parametrize(
    ("key", "name", "content", "expected"),
    [
        pytest.param("chatgpt", "notes.jsonl", FILE, True, id="something-else"),
        pytest.param("json", "notes.jsonl", FILE, False, id="as-chosen"),
        pytest.param("obsidian", "Tea.md", b"# Tea\n\nGreen.", False, id="note"),
        pytest.param("table", "Tea.md", b"# Tea\n\nGreen.", True, id="note-as-table"),
        pytest.param("roam", "notes.jsonl", FILE, False, id="unknown-product"),
    ],
)
def test_preview_says_that_an_upload_is_not_what_was_chosen(owner, key, name, content, expected):
    job = owner.post("/imports/upload/", {"file": SimpleUploadedFile(name, content), "from": key}).url
    page = html_of(owner.get(job))
    assert ("This is not what" in page) == expected
    assert (f'href="/imports/from/{key}/"' in page) == expected
    assert "The first rows as they were read" in page
    # Not on the page without the product in its address.
    assert "This is not what" not in html_of(owner.get(job.partition("?")[0]))


def test_search_on_this_machine_shows_what_the_product_has(owner, place):
    notes = place / "basic-memory"
    notes.mkdir()
    (notes / "Tea.md").write_text("# Tea\n\nGreen.")
    assert str(notes) in html_of(owner.get("/imports/found/?from=basic-memory"))
    assert str(notes) not in html_of(owner.get("/imports/found/?from=claude-mem"))
    assert str(notes) in html_of(owner.get("/imports/found/?from=roam"))

"""Previews are made by a process beside the server: no request reads an upload, and hostile ones hold up nobody."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile

import httpx2
import pytest
from django.contrib.auth.models import User
from django.db import connections

from access.models import ApiKey, Membership
from access.viewer import viewer_of_user
from memories.models import Project
from tests.agent_tools.conftest import key_for, shared_ids, site
from tests.html import html_of
from tests.web.test_doors import answers_others
from transfer import previews
from transfer.formats import bundles
from transfer.jobs import JobStateError, UploadInvalidError
from transfer.models import ImportJob
from transfer.previews import job_read_as, preview_of, previews_make, previews_start
from transfer.uploads import FileToSend, upload_append, upload_begin

__all__ = ["shared_ids", "site"]

BLANK = b" " * 1024**2


def zipped(*files, packing=zipfile.ZIP_DEFLATED):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", packing) as archive:
        for name, pieces in files:
            with archive.open(name, "w") as file:
                for piece in pieces:
                    file.write(piece)
    return written.getvalue()


BOMBS = {
    "many empty notes.zip": lambda: zipped(*((f"n/{n}.md", ()) for n in range(20_000))),
    "many empty notes in many folders.zip": lambda: zipped(*((f"{n}/" * 20 + "a.md", ()) for n in range(5_000))),
    "many empty records.zip": lambda: zipped(*((f"{n}.json", ()) for n in range(20_000))),
    "a blank record.zip": lambda: zipped(("a.json", [BLANK] * 200)),
    "blank notes.zip": lambda: zipped(*((f"{n}.md", [BLANK] * 50) for n in range(10))),
    "a blank table.zip": lambda: zipped(("a.csv", [b"id,text\n", *[b"1,\n" * 300_000] * 50])),
    "a packed file in an archive.zip": lambda: zipped(("a.json.gz", [gzip.compress(BLANK * 100)])),
    "an archive in an archive.zip": lambda: zipped(("a.zip", [zipped(("a.json", [BLANK] * 100))])),
    "too much.zip": lambda: zipped(("a.json", [BLANK] * 600)),
    "blank.json.gz": lambda: gzip.compress(b"[" + BLANK * 200),
    "deep.json": lambda: b"[" * 3_000_000,
    "long.jsonl": lambda: b'{"content": "' + b"x" * 8_000_000,
    "wide.csv": lambda: b",".join(b"c%d" % n for n in range(200_000)),
}
# One of each kind.
QUICK = {"many empty notes in many folders.zip", "a blank table.zip", "an archive in an archive.zip"}
QUICK |= {"too much.zip", "deep.json", "long.jsonl", "wide.csv"}


@pytest.fixture(autouse=True)
def place(settings, tmp_path, monkeypatch):
    settings.HOME = tmp_path
    monkeypatch.setattr(previews, "start_once", lambda arguments: None)
    return tmp_path


def person(name):
    user = User.objects.create_user(name)
    project, _ = Project.objects.get_or_create(slug=name)
    Membership.objects.create(user=user, project=project, role="writer")
    return user


def uploaded(user, name, content):
    job = upload_begin(files=[FileToSend(name, len(content))], viewer=viewer_of_user(user))
    for start in range(0, len(content), 8 * 1024**2):
        job = upload_append(job=job, offset=start, part=content[start : start + 8 * 1024**2])
    return job


LINE = json.dumps({"content": "Tea cools."}).encode()


@pytest.mark.django_db
def test_page_and_api_wait_for_no_preview(client, monkeypatch):
    ada = person("ada")
    client.force_login(ada)
    job = uploaded(ada, "tea.jsonl", LINE)
    asked = []
    monkeypatch.setattr(previews, "start_once", asked.append)
    monkeypatch.setattr(previews, "_started", float("-inf"))
    with monkeypatch.context() as patch:
        patch.setattr(previews, "importer_of", None)
        page = html_of(client.get(f"/imports/{job.pk}/"))
        assert "Its first rows are being read." in page
        assert 'hx-trigger="every 1s"' in page
        assert "Import</button>" not in page
        reply = client.get(f"/api/imports/{job.pk}").json()
        assert (reply["state"], reply["preview"]) == ("ready", None)
        with pytest.raises(JobStateError, match=r"tea.jsonl is still being read"):
            job_read_as(job=job, columns={"content": "content"})
    assert asked == [["make_previews"]]
    assert previews_make() == 1
    assert [row["text"] for row in client.get(f"/api/imports/{job.pk}").json()["preview"]["rows"]] == ["Tea cools."]
    page = html_of(client.get(f"/imports/{job.pk}/"))
    assert "every 1s" not in page
    assert "Import 1 memory</button>" in page
    client.post(f"/imports/{job.pk}/remove/")
    assert not list(previews.Path(job.path).parent.parent.iterdir())
    assert not previews.job_previews(job).exists()


@pytest.mark.django_db
def test_one_process_makes_previews_and_is_started_once(monkeypatch):
    asked = []
    monkeypatch.setattr(previews, "start_once", asked.append)
    monkeypatch.setattr(previews, "_started", float("-inf"))
    uploaded(person("ada"), "tea.jsonl", LINE)
    with previews._alone():
        previews_start()
        assert previews_make() == 0
    assert not asked
    previews_start()
    previews_start()
    assert len(asked) == 1


@pytest.mark.django_db
def test_many_uploads_of_one_person_hold_up_nobody_else(monkeypatch):
    ada, ben = person("ada"), person("ben")
    jobs = [uploaded(ada, f"{n}.jsonl", LINE) for n in range(4)] + [uploaded(ben, "tea.jsonl", LINE)]
    order = []
    monkeypatch.setattr(previews, "_preview_make", lambda job: order.append(job.pk) or previews._TOO_LONG)
    assert previews_make() == 5
    assert order.index(jobs[4].pk) == 1


@pytest.mark.django_db
def test_upload_that_ended_the_process_twice_is_not_read_again(monkeypatch):
    ada = person("ada")
    fatal, other = uploaded(ada, "fatal.jsonl", LINE), uploaded(ada, "tea.jsonl", LINE)

    def end(job):
        if job.pk == fatal.pk:
            raise SystemExit
        return preview_make(job)

    preview_make = previews._preview_make
    monkeypatch.setattr(previews, "_preview_make", end)
    for _ in range(2):
        assert preview_of(fatal) is None
        with pytest.raises(SystemExit):
            previews_make()
    assert previews_make() == 2
    assert "takes too long" in preview_of(fatal).error
    assert len(preview_of(other).rows) == 1


@pytest.mark.django_db
def test_what_an_ended_process_has_unpacked_is_removed_and_none_goes_on_without_its_server():
    job = uploaded(person("ada"), "tea.jsonl", LINE)
    (previews.unpacked_files() / "import-1").mkdir(parents=True)
    assert previews_make(parent=-1) == 0
    assert not list(previews.unpacked_files().iterdir())
    assert preview_of(job) is None
    assert previews_make(parent=os.getppid()) == 1


@pytest.mark.django_db
def test_preview_unpacks_no_large_file(monkeypatch):
    monkeypatch.setattr(bundles, "_PREVIEW_FILE", 20)
    monkeypatch.setattr(bundles, "_PREVIEW_NOTES", 2)
    notes = [(f"{n}.md", [b"Tea cools."]) for n in range(5)]
    job = uploaded(person("ada"), "tea.zip", zipped(*notes, ("a.csv", [b"id,text\n1,Tea cools.\n"])))
    previews_make()
    found = preview_of(job)
    assert [row.title for row in found.rows] == ["0", "1"]
    assert [(file.name, file.reason) for file in found.files] == [
        ("documents", ""),
        ("3 further documents", "are not previewed; the import reads them"),
        ("a.csv", "is too large for a preview; the import reads it"),
    ]
    assert found.count is None


def test_what_never_ends_is_ended_by_the_system():
    code = "import re; from transfer import previews; previews._MOST_SECONDS = 1; "
    code += "previews._in_time(lambda: re.match('(a*)*b', 'a' * 50))"
    start = "import django; django.setup(); "
    done = subprocess.run([sys.executable, "-c", start + code], timeout=60, check=False)
    assert done.returncode == -signal.SIGALRM


def make_previews_here():
    try:
        previews_make()
    finally:
        connections.close_all()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.release) for name in BOMBS]
)
def test_bomb_is_previewed_or_refused_while_the_site_answers_others(name, shared_ids, site, place, monkeypatch):
    # The system would end this process.
    monkeypatch.setattr(previews, "_MOST_SECONDS", 300)
    ada, key = person("ada"), key_for()
    writer = key_for("ada")
    job = uploaded(ada, name, BOMBS[name]())
    ImportJob.objects.update(user=None, api_key=ApiKey.objects.get(prefix=writer[:12]))
    headers = {"Authorization": f"Bearer {writer}"}

    def look():
        reply = httpx2.get(f"{site}/api/imports/{job.pk}", headers=headers, timeout=30)
        assert reply.status_code == 200, reply.text
        return reply.json()["preview"]

    assert [look() for _ in range(6)] == [None] * 6
    maker = threading.Thread(target=make_previews_here)
    maker.start()
    assert answers_others(site, key)
    maker.join(300)
    assert not maker.is_alive()
    found = look()
    assert found is not None
    assert len(found["rows"]) <= 60
    assert not list((place / "uploads").glob("*/*.zip/*"))


def preview_made(files, **choices):
    job = uploaded(person("ada"), "vault.zip", zipped(*((name, [text.encode()]) for name, text in files.items())))
    previews_make()
    if choices:
        job = job_read_as(job=job, **choices)
        previews_make()
    return job, preview_of(job)


VAULT = {
    "vault/2025-05-06.md": "A day.",
    "vault/Decisions/a.md": "---\ncreated: 2024-01-02\ntags: [tea, green]\n---\nA.",
    "vault/Decisions/b.md": "---\ncreated: soon\ntags: tea\n---\nB.",
    **{f"vault/{n}.md": f"---\ncreated: 2026-01-{n + 1:02}\n---\nNote {n}." for n in range(20)},
    "vault/empty.md": "",
}


@pytest.mark.django_db
def test_folder_is_previewed_in_numbers():
    _, found = preview_made(VAULT)
    total = found.found
    assert (total.memories, total.is_all, total.refused, total.notes, total.undated) == (23, True, 1, 1, 1)
    assert (total.first.date().isoformat(), total.last.date().isoformat()) == ("2024-01-02", "2026-01-20")
    assert total.types == {"note": 21, "decision": 2}
    assert total.tags == {"tea": 2, "green": 1}
    assert [(one.rule, one.type, one.memories) for one in total.rules] == [("Decisions/", "decision", 2)]
    assert found.refused == (("empty.md", "is empty; a memory needs a text"),)
    assert found.notes[0][0] == "Decisions/b.md"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("choices", "types"),
    [
        ({"types": {"Decisions/": "choice"}}, {"note": 21, "choice": 2}),
        ({"types": {"decisions/": ""}}, {"note": 23}),
        ({"values": {"type": "idea"}}, {"idea": 21, "decision": 2}),
        ({"types": {"#tea": "drink"}}, {"note": 21, "decision": 2}),
    ],
)
def test_types_of_a_preview_can_be_changed(choices, types):
    job, found = preview_made(VAULT, **choices)
    assert found.found.types == types
    with pytest.raises(UploadInvalidError, match="is no rule"):
        job_read_as(job=job, types={"Decisions": "x"})


@pytest.mark.django_db
def test_unclear_dates_are_asked_for_before_the_import():
    table = "When,Text\n03/04/2026,Tea cools.\nnever,Cups.\n"
    job = uploaded(person("ada"), "tea.csv", table.encode())
    columns = {"When": "date"}
    previews_make()
    job = job_read_as(job=job, columns=columns)
    previews_make()
    found = preview_of(job)
    assert "column 'When' has dates such as 03/04/2026" in found.error
    assert found.columns[0].question == "03/04/2026"
    job = job_read_as(job=job, dates="month-first")
    previews_make()
    found = preview_of(job)
    assert (job.columns, found.error) == (columns, "")
    assert [row.created_at and row.created_at.date().isoformat() for row in found.rows] == ["2026-03-04", None]
    assert found.notes == (
        ("line 3", "column 'When': 'never' is not a date; it is left out. Write one such as 2026-08-05"),
    )

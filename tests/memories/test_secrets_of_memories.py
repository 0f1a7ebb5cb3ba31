"""No door stores a secret: nothing of one is readable in any table afterwards, and the reply says so."""

import base64
import json
import zlib

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from access.viewer import command_viewer
from agent_tools.writing_tools import store_memory, update_memory
from memories.models import ImportBatch, Memory, Project
from memories.projects import project_create, project_update
from memories.records import MemoryRecord
from memories.refusals import ChangeRefusedError
from memories.services import memory_archive, memory_create
from tests.explorer.memory.test_memory_api import Caller, key
from tests.memories.imports import run
from tests.memories.test_write_back import change, follow
from text.secrets import is_available
from transfer.follow.write_back import source_write_back
from transfer.formats.base import ImportFailedError
from transfer.process import jobs_run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not is_available(), reason="no wheel of kingfisher-secret-scanner for this machine"),
]
KEY, PASSWORD = "AKIAY2CQ7ZT6WNISIGQJ", "x7Kq91LmZpT4"
MARK = "[AWS key id …QJ]"
RECORD = {
    "title": f"Deploy with {KEY}",
    "content": f"The key is {KEY}.\nDB_PASSWORD={PASSWORD}",
    "summary": f"password: {PASSWORD}",
    "tags": [KEY],
    "entities": [{"name": KEY, "type": "key"}],
    "links": [f"see {KEY}"],
    "source_url": f"https://ann:{PASSWORD}@git.example.org/",
}


@pytest.fixture
def owner(client):
    client.force_login(User.objects.create_superuser("owner"))
    return client


def readable():
    """The tables that hold a part of a secret."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        found = []
        for table in tables:
            cursor.execute(
                f'SELECT count(*) FROM "{table}" t WHERE t::text ~* %s', [f"{KEY[4:]}|{KEY[:12]}|{PASSWORD[:8]}"]
            )
            found += [table] if cursor.fetchone()[0] else []
    return found


def test_the_api_masks_and_says_so(db):
    caller = Caller(key(["read", "write"]).raw)
    reply = caller.send("post", "/api/memories", RECORD).json()
    assert MARK in reply["masked_secrets"]
    assert reply["memory"]["content"] == f"The key is {MARK}.\nDB_PASSWORD=[password …T4]"
    changed = caller.send("patch", f"/api/memories/{reply['id']}?reason=as+{KEY}+says", {"summary": f"{KEY}!"}).json()
    assert changed["masked_secrets"] == [MARK]
    bulk = {"operations": [{"op": "create", "memory": {"content": f"Second {KEY}"}}]}
    assert caller.send("post", "/api/memories/bulk", bulk).status_code == 200
    assert Memory.objects.filter(content=f"Second {MARK}").exists()
    assert readable() == []


def test_an_agent_is_told(db):
    viewer = command_viewer()
    assert MARK in store_memory({**RECORD, "project": "tea"}, viewer)
    assert MARK in update_memory({"id": Memory.objects.get().pk, "content": f"New {KEY}", "reason": KEY}, viewer)
    assert readable() == []


def test_pages_mask_what_people_write(owner):
    page = owner.post("/m/new/", {"content": RECORD["content"], "title": RECORD["title"]}, follow=True)
    memory = Memory.objects.get()
    assert "Secrets are not stored. In their place: " in page.content.decode()
    owner.post(f"/m/{memory.pk}/edit/", {"field": "summary", "summary": KEY})
    owner.post(f"/m/{memory.pk}/state/", {"state": "archived", "reason": f"{KEY} is old"})
    assert Memory.objects.get().summary == MARK
    assert readable() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", json.dumps({**RECORD, "settings": {"password": PASSWORD}})),
        ("a.csv", f"Title,Text,Password\nDeploy {KEY},It is {KEY},{PASSWORD}\n"),
        ("vault/a.md", f"---\ntitle: Deploy {KEY}\npassword: {PASSWORD}\ncreated: {KEY}\n---\nIt is {KEY}.\n"),
        ("vault/b.html", f"<h1>Deploy {KEY}</h1><p>password={PASSWORD}</p>"),
    ],
)
def test_imports_mask_records_and_what_is_kept_of_them(db, tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    run(path if path.parent == tmp_path else path.parent)
    batch = ImportBatch.objects.get()
    assert MARK in Memory.objects.get().content + Memory.objects.get().title
    assert "secrets are masked: " in json.dumps(batch.report)
    assert readable() == []
    run(path if path.parent == tmp_path else path.parent)
    assert ImportBatch.objects.order_by("-id")[0].unchanged == 1


def test_uploads_are_masked_in_their_preview_too(owner):
    job = owner.post("/imports/upload/", {"file": SimpleUploadedFile("a.csv", f"Text\nIt is {KEY}\n".encode())}).url
    assert KEY not in owner.get(job).content.decode()
    owner.post(f"{job}import/")
    jobs_run()
    assert Memory.objects.get().content == f"It is {MARK}"
    assert readable() == []


def test_a_site_or_a_project_may_refuse_them_or_leave_them(db, settings, tmp_path):
    viewer = command_viewer()
    settings.SECRETS = "refuse"
    with pytest.raises(
        ChangeRefusedError, match=r"content: holds secrets, which are not stored here: \[AWS key id …QJ\]"
    ):
        memory_create(record=MemoryRecord(content=KEY), viewer=viewer)
    assert not Memory.objects.exists()
    project_create(slug="vault", name="Vault", secrets="off", viewer=viewer)
    memory_create(record=MemoryRecord(project="vault", content=KEY), viewer=viewer)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"project": "{name}", "content": "{KEY} of {name}"}}\n' for name in ("tea", "vault")))
    run(path)
    assert sorted(Memory.objects.values_list("content", flat=True)) == [KEY, f"{KEY} of vault"]
    assert "holds secrets" in json.dumps(ImportBatch.objects.get().report)
    assert KEY not in json.dumps(ImportBatch.objects.get().report)
    vault = Project.objects.get(slug="vault")
    project_update(project=vault, name="Vault", description="", language="english", secrets="mask", viewer=viewer)
    memory = memory_create(record=MemoryRecord(project="vault", content=f"Masked {KEY}"), viewer=viewer)
    assert (memory.content, memory.masked_secrets) == (f"Masked {MARK}", (MARK,))


def test_reasons_are_masked(db):
    memory = memory_create(record=MemoryRecord(content="Tea"), viewer=command_viewer())
    memory_archive(memory_id=memory.pk, viewer=command_viewer(), reason=f"{KEY} leaked")
    assert Memory.objects.get().state_reason == f"{MARK} leaked"
    assert readable() == []


def test_files_of_notes_hold_none_and_are_not_written_to(db, tmp_path):
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.md").write_text(f"---\n# {KEY}\ntitle: Tea\n---\nThe tea.\n", encoding="utf-8")
    (vault / "b.md").write_bytes(f"Two kinds of lines.\r\nIt is {KEY}.\n".encode())
    (vault / "c.md").write_text(f"---\ntitle: {KEY}\n---\n", encoding="utf-8")
    (vault / "d.md").write_bytes(f"caf\xe9 {KEY}".encode("latin-1"))
    run(vault)
    assert readable() == []
    for memory in Memory.objects.all():
        whole = (memory.raw or {}).get("note_file", {}).get("whole", "")
        assert KEY not in (zlib.decompress(base64.b64decode(whole)).decode() if whole else "")
        assert "digest" not in memory.raw["note_file"]
    assert (vault / "a.md").read_text().count(KEY) == 1


def test_an_edit_of_a_masked_note_is_not_written_and_the_reason_is_told(db, tmp_path):
    vault = tmp_path / "vault"
    vault.mkdir()
    text = f"---\ntitle: Tea\n---\nIt is {KEY}.\n".encode()
    (vault / "a.md").write_bytes(text)
    (vault / "b.md").write_bytes(b"---\ntitle: Oolong\n---\nA tea.\n")
    source = follow(vault)
    change("Tea", add_tags=["new"])
    change("Oolong", content="A better tea.")
    for _ in range(2):
        with pytest.raises(ImportFailedError, match=r"a\.md: holds secrets"):
            source_write_back(source, command_viewer())
        assert "pending" not in Memory.objects.get(title="Tea").raw["note_file"]
    assert (vault / "a.md").read_bytes() == text
    assert b"A better tea." in (vault / "b.md").read_bytes()

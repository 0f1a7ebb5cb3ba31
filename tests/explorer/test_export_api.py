"""The export of the API: what a search finds, as JSON lines, a table or notes."""

import csv
import gc
import io
import json
import zipfile

import pytest
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.memories.imports import run as import_run
from transfer.formats.files import table

pytestmark = pytest.mark.django_db


@pytest.fixture
def notes():
    viewer = command_viewer()
    for record in (
        {"id": "oolong", "title": "Oolong", "content": "Steep oolong twice.", "tags": ["tea", "green; mild"]},
        {
            "id": "kettle",
            "title": "Kettle: 80 °C",
            "content": "=1+1 is no formula.",
            "tags": ["tool"],
            "importance": 0.5,
            "concepts": ["heat"],
            "entities": [{"type": "tool", "name": "kettle"}],
            "links": [{"rel": "goes with", "target": "oolong"}],
        },
        {"id": "old", "title": "Oolong", "content": "Steep oolong once.", "state": "archived"},
    ):
        memory_create(record=MemoryRecord.model_validate(record | {"project": "tea"}), viewer=viewer)
    memory_create(record=MemoryRecord(project="secret", content="The oolong of the others."), viewer=viewer)


def caller(*projects):
    key = make_key(
        name="reader",
        scopes=["read"],
        every_project=not projects,
        projects=list(Project.objects.filter(slug__in=projects)),
        viewer=command_viewer(),
    )
    return Client(headers={"Authorization": f"Bearer {key.raw}"})


def exported(client, **parameters):
    response = client.get("/api/export", parameters)
    assert response.status_code == 200, response.content
    return response, b"".join(response.streaming_content)


def memories_of(content):
    return [line for line in map(json.loads, content.splitlines()) if "record" not in line]


def test_a_search_is_exported_as_the_lines_that_an_import_reads(notes):
    response, content = exported(caller("tea"), q="twice")
    assert [line["id"] for line in memories_of(content)] == ["oolong"]
    assert response["Content-Type"] == "application/x-ndjson"
    assert response["Content-Disposition"].startswith('attachment; filename="mnemoscope-')


def test_without_a_search_everything_that_one_may_see_is_exported_in_every_state(notes):
    _, content = exported(caller("tea"))
    assert {line["id"] for line in memories_of(content)} == {"oolong", "kettle", "old"}
    assert b"others" not in content
    _, content = exported(caller())
    assert len(memories_of(content)) == 4


def test_a_table_has_a_row_for_each_memory_and_no_formula(notes):
    response, content = exported(caller("tea"), format="csv", tag="tool")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    (row,) = csv.DictReader(io.StringIO(content.decode("utf-8-sig")))
    assert row["content"] == "'=1+1 is no formula."
    assert (row["id"], row["project"], row["tags"], row["importance"]) == ("kettle", "tea", "tool", "0.5")
    assert (row["concepts"], row["entities"]) == ("heat", "tool:kettle")


@pytest.mark.parametrize(
    ("text", "is_formula"),
    [
        *(
            (text, True)
            for text in ("=1+1", "+1", "-1", "@x", "＝1+1", "＋1", "－1", "＠x", "﹦1+1", "\n=1+1", "  =1+1")
        ),
        *((text, True) for text in ("\u3000＝1", "\ufeff=1+1", "\u200b=1+1", "\u00a0@x", "\tx", "\nx", "\x00=1")),
        *((text, False) for text in ("x;=1+1", "x =1+1", "", " ", "“=1”", "１", "x\n=1", "don't")),
    ],
)
def test_no_cell_is_a_formula_and_none_is_divided(text, is_formula):
    (written,) = table(lambda: iter([{"id": text, "tags": [text, "b"]}]))
    rows = list(csv.reader(io.StringIO(written.decode("utf-8-sig"), newline="")))
    cells = dict(zip(*rows, strict=True))
    assert cells["id"] == ("'" + text if is_formula else text)
    assert cells["tags"] == ("'" if is_formula else "") + f"{text}; b"
    # Every cell begins and ends with quotes, so that no other separator divides it.
    plain = written.decode("utf-8-sig").replace('""', "")
    assert plain.count('"') == 2 * (len(rows[0]) * 2) - 2 * sum(not cell for row in rows for cell in row)


def test_notes_are_named_by_their_titles_and_linked(notes, tmp_path):
    response, content = exported(caller("tea"), format="markdown")
    # The first one by number has the bare title.
    number = Memory.objects.filter(title="Oolong").latest("pk").pk
    linked = "Oolong" if Memory.objects.get(external_id="oolong").pk < number else f"Oolong ({number})"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {"tea/Oolong.md", "tea/Kettle 80 °C.md", f"tea/Oolong ({number}).md"}
        assert set(archive.namelist()) == names
        note = archive.read("tea/Kettle 80 °C.md").decode()
        archive.extractall(tmp_path)
    assert response["Content-Type"] == "application/zip"
    assert note.startswith("---\ntitle: 'Kettle: 80 °C'\npermalink: kettle\n")
    assert note.endswith(f"=1+1 is no formula.\n\n## Relations\n\n- goes-with [[{linked}]]\n")
    import_run(tmp_path / "tea", project="back")
    back = Memory.objects.get(project__slug="back", external_id="kettle")
    assert (back.title, back.tags, float(back.importance)) == ("Kettle: 80 °C", ["tool"], 0.5)
    assert back.links.get().target_memory.external_id == "oolong"


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("claude-mem", "application/json"),
        ("mcp-memory-service", "application/json"),
        ("mcp-memory", "application/x-ndjson"),
    ],
)
def test_files_for_other_systems_hold_what_a_search_finds(notes, form, media_type):
    response, content = exported(caller("tea"), format=form)
    assert response["Content-Type"] == media_type
    texts = ("Steep oolong twice.", "=1+1 is no formula.", "Steep oolong once.", "of the others")
    assert [text.encode() in content for text in texts] == [True, True, False, False]
    assert b"secret" not in content
    _, content = exported(caller("tea"), format=form, state="archived")
    assert [text.encode() in content for text in texts] == [False, False, True, False]


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        pytest.param({"format": "xml"}, "format: 'xml' is not one of the choices", id="form"),
        pytest.param({"page": "2"}, "page: has no effect", id="page"),
        pytest.param({"mode": "unified", "q": "tea"}, "mode: unified finds more than memories", id="unified"),
    ],
)
def test_what_an_export_cannot_take_is_refused(notes, parameters, detail):
    response = caller("tea").get("/api/export", parameters)
    assert response.status_code == 422
    assert detail in response.json()["detail"]


def test_exports_beyond_the_second_are_told_that_the_server_is_busy(notes):
    # An export that an earlier test did not read to its end is open until it is collected.
    gc.collect()
    client = caller("tea")
    open_ones = [client.get("/api/export") for _ in range(2)]
    assert client.get("/api/export").status_code == 503
    for response in open_ones:
        assert b"".join(response.streaming_content)
    exported(client)

"""Imports by people who may write to some projects: their own uploads, into these projects, by the rules of writes."""

import json
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from categories.models import Category, Concept, ConceptLink, LocalText
from memories.models import ImportBatch, Memory, Project
from tests.home.conftest import make_previews_when_asked
from tests.home.test_imports import leads_to
from tests.html import html_of
from tests.memories.imports import run
from transfer.formats.jsonl import EXPORT_VERSION
from transfer.models import ImportJob
from transfer.process import jobs_run

pytestmark = pytest.mark.django_db

SECRET = [
    {"record": "concept", "name": "spam", "aliases": ["roadmap"], "text_projects": {"roadmap": ["secret"]}},
    {"id": "s", "project": "secret", "content": "Nobody else may read this.", "concepts": ["spam"], "tags": ["hush"]},
]


@pytest.fixture(autouse=True)
def place(settings, tmp_path, monkeypatch):
    settings.HOME = tmp_path
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    make_previews_when_asked(monkeypatch)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)


@pytest.fixture
def tea(jsonl):
    """A project of the writer's own, next to one that they know nothing of."""
    run(jsonl(*SECRET))
    return Project.objects.create(slug="tea", name="Tea")


class Importer:
    """A client of the API with a key for some projects."""

    def __init__(self, client, projects, scopes=("read", "write")):
        raw = make_key(name="k", scopes=scopes, viewer=command_viewer(), projects=projects).raw
        self.client, self.headers = client, {"Authorization": f"Bearer {raw}"}

    def send(self, verb, path, body=None):
        call = getattr(self.client, verb)
        return call(f"/api/imports{path}", body, content_type="application/json", headers=self.headers)

    def uploaded(self, *lines):
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        job = self.send("post", "", {"name": "tea.jsonl", "size": len(content)}).json()["id"]
        path = f"/api/imports/{job}/data?offset=0"
        self.client.put(path, content, content_type="application/octet-stream", headers=self.headers)
        return job

    def imported(self, *lines, **options):
        job = self.uploaded(*lines)
        started = self.send("post", f"/{job}/start", options)
        assert started.status_code == 202, started.json()
        jobs_run()
        return self.send("get", f"/{job}").json()


def test_writer_imports_into_their_project_with_names_of_their_own_and_nothing_else_shows(client, tea):
    writer = Importer(client, [tea])
    done = writer.imported(
        {"id": "a", "content": "Green tea.", "concepts": ["roadmap"], "categories": ["Kitchen/Oven"]},
        {"id": "b", "project": "secret", "content": "Into another project."},
        {"id": "c", "project": "nowhere", "content": "Into a project that is not there."},
        {"id": "d", "content": "Too much.", "tags": [f"t{n}" for n in range(51)]},
        {"id": "e", "content": "More.", "supersedes": ["s"], "links": [{"target": "s"}]},
        {"record": "project", "slug": "tea", "name": "Mine", "description": "x"},
        {"record": "concept", "name": "roadmap", "description": "Mine."},
    )
    assert (done["state"], done["created"], done["project"]) == ("done", 2, "tea")
    assert [(one["location"], one["reason"]) for one in done["refusals"]] == [
        ("line 6", "project: only its curators describe it"),
        ("line 2", "project: you cannot write to 'secret'"),
        ("line 3", "project: you cannot write to 'nowhere'"),
        ("line 4", "names: More than 50 of its tags, categories, concepts and entities would be new."),
    ]
    assert set(Memory.objects.filter(project=tea).values_list("external_id", flat=True)) == {"a", "e"}
    memory = Memory.objects.get(external_id="a")
    assert Concept.objects.get(pk=memory.concept_ids[0]).name == "roadmap"
    assert Memory.objects.get(external_id="s").state == "active"
    assert not Project.objects.filter(slug="nowhere").exists()
    assert not any(term in json.dumps(done) for term in ("spam", "Nobody", "vocabulary"))

    # It may lose the changes of others.
    assert writer.send("post", f"/{done['id']}/undo?force=true").status_code == 403
    assert writer.send("post", f"/{done['id']}/undo").status_code == 202
    jobs_run()
    assert writer.send("get", f"/{done['id']}").json()["state"] == "undone"
    assert list(Memory.objects.values_list("external_id", flat=True)) == ["s"]
    assert not Category.objects.exists()


def test_everything_goes_into_the_one_project_that_is_chosen(client, tea):
    coffee = Project.objects.create(slug="coffee", name="Coffee")
    writer = Importer(client, [tea, coffee])
    job = writer.uploaded({"content": "One."})
    for project, said in (("", "name the one for memories that name none"), ("secret", "cannot import into 'secret'")):
        refused = writer.send("post", f"/{job}/start", {"project": project})
        assert refused.status_code == 422
        assert said in refused.json()["detail"]
        assert refused.json()["detail"].endswith("You can import into: coffee, tea.")
    lines = [
        {"project": "secret", "content": "Two.", "session": "s-1"},
        {"record": "session", "id": "s-1", "title": "T"},
    ]
    done = writer.imported(*lines, project="coffee", only_project=True)
    assert (done["created"], done["refused"]) == (1, 0)
    assert (Memory.objects.get(title="Two.").project, Memory.objects.get(title="Two.").session.title) == (coffee, "T")


def test_others_imports_and_the_machine_are_not_there_for_a_writer(client, tea):
    theirs = ImportJob.objects.create(name="salaries.csv", state="done", batch=ImportBatch.objects.get())
    writer = Importer(client, [tea])
    own = writer.uploaded({"content": "One."})
    assert [one["id"] for one in writer.send("get", "").json()["imports"]] == [own]
    for verb, path in (("get", ""), ("post", "/undo"), ("post", "/cancel"), ("delete", "")):
        assert writer.send(verb, f"/{theirs.pk}{path}").json()["detail"] == f"There is no import {theirs.pk}."
    ann = User.objects.create_user("ann")
    Membership.objects.create(user=ann, project=tea, role="writer")
    client.force_login(ann)
    page = html_of(client.get("/imports/"))
    assert "Drop files or a folder here" in page
    assert not any(text in page for text in ("salaries", "tea.jsonl", "On this machine", "The sample", "records"))
    assert client.get("/imports/found/").status_code == 403
    assert client.post("/imports/start/", {"sample": 1}).status_code == 403
    assert client.post(f"/imports/batches/{theirs.batch_id}/undo/").status_code == 404
    Membership.objects.update(role="reader")
    assert "ask an administrator of this site" in html_of(client.get("/imports/"))
    assert Importer(client, [tea], ["read"]).send("get", "").status_code == 403
    assert Importer(client, [tea], ["write", "curate"]).send("get", "").status_code == 403


def test_page_of_a_writer_offers_their_projects_and_names_those_that_are_closed_to_them(client, tea):
    ann = User.objects.create_user("ann")
    Membership.objects.create(user=ann, project=tea, role="writer")
    client.force_login(ann)
    content = b'{"project": "secret", "content": "One."}\n{"content": "Two.", "concepts": ["spam"]}\n'
    file = {"name": "notes.jsonl", "size": len(content)}
    job = client.post("/api/imports", file, content_type="application/json").json()["id"]
    client.put(f"/api/imports/{job}/data?offset=0", content, content_type="application/octet-stream")
    page = html_of(client.get(f"/imports/{job}/"))
    assert re.findall(r'<option value="(.*?)">', page) == ["tea"]
    assert "Some name projects that you cannot write to: secret." in page
    client.post(f"/imports/{job}/import/", {"project": "tea", "only_project": "1"})
    jobs_run()
    page = html_of(client.get(f"/imports/{job}/"))
    assert leads_to(client, page, "new memories", 2)
    # A number of new terms would say which of the names are those of others.
    assert "made</dt>" not in page


def test_a_writer_who_lost_the_project_neither_imports_nor_undoes(client, tea):
    coffee = Project.objects.create(slug="coffee", name="Coffee")
    ann = User.objects.create_user("ann")
    for project in (tea, coffee):
        Membership.objects.create(user=ann, project=project, role="writer")
    client.force_login(ann)
    job = ImportJob.objects.create(name="n.jsonl", user=ann, is_upload=True, state="waiting", project="tea")
    batch = ImportBatch.objects.create(origin="n.jsonl", format="jsonl", state="done")
    Memory.objects.filter(external_id="s").update(batch=batch, project=tea)
    done = ImportJob.objects.create(name="old.jsonl", user=ann, state="done", batch=batch)
    Membership.objects.filter(project=tea).delete()
    jobs_run()
    job.refresh_from_db()
    assert (job.state, job.error) == (
        "failed",
        "project: you cannot import into 'tea'. You can import into: coffee.",
    )
    undone = client.post(f"/api/imports/{done.pk}/undo")
    assert undone.json()["detail"] == "The import has memories in projects that you cannot write to."
    assert Memory.objects.filter(external_id="s").exists()


def test_lines_of_an_export_number_no_memories_and_name_no_makers_for_a_writer(client, tea):
    secret = Memory.objects.get(external_id="s").pk
    head = {"record": "export", "version": EXPORT_VERSION}
    stored = {"number": secret + 7, "superseded_by": secret, "state_reason": "old", "raw": {"x": 1}}
    stored["made_by"] = {"concepts": [["green", "human", 1.0]]}
    line = {"id": "a", "content": "Green tea.", "concepts": ["green"], "stored": stored}
    assert Importer(client, [tea]).imported(head, line)["created"] == 1
    memory = Memory.objects.get(external_id="a")
    assert (memory.superseded_by_id, memory.state_reason, memory.raw) == (None, "old", {"x": 1})
    assert memory.pk != secret + 7
    assert ConceptLink.objects.get(memory=memory).made_by == "import"
    # Once more, with the number that it has now, as a changed memory.
    line["stored"] = stored | {"number": memory.pk, "state_reason": "older"}
    assert Importer(client, [tea]).imported(head, line)["updated"] == 1
    memory.refresh_from_db()
    assert (memory.superseded_by_id, memory.state_reason) == (None, "older")


def test_lines_with_projects_make_no_names_that_no_memory_has(client, tea):
    curator = Importer(client, [tea], ("read", "write", "curate"))
    local = [
        {"record": "concept", "name": "green", "aliases": ["verdant"], "projects": ["tea"]},
        {"record": "concept", "name": "nobody-has-it", "aliases": ["x"], "projects": ["tea"]},
        {"record": "concept", "name": "roadmap", "aliases": ["y"], "projects": ["tea"]},
        {"record": "category", "path": "A/B/C", "description": "x", "projects": ["tea"]},
        {"record": "entity", "name": "Someone", "aliases": ["z"], "projects": ["tea"]},
    ]
    done = curator.imported({"id": "a", "content": "Green tea.", "concepts": ["green"]}, *local)
    assert (done["state"], done["created"]) == ("done", 1)
    reason = "no memory that you see has it; its names come with the memories that have them"
    assert [(one["location"], one["reason"]) for one in done["refusals"]] == [
        ("line 3", f"concept: {reason}"),
        ("line 4", f"concept: {reason}"),
        ("line 5", f"category: {reason}"),
        ("line 6", f"entity: {reason}"),
    ]
    assert [row.text for row in LocalText.objects.all()] == ["verdant"]
    assert not Concept.objects.filter(name="nobody-has-it").exists()
    assert not Category.objects.exists()

"""No text beside memories holds a secret: names, descriptions, reasons, views, uploads, replies, the log."""

import json
import logging

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import AuditEvent, IdempotentReply
from access.viewer import audit, viewer_of_user
from categories.models import Category, Concept, Entity, Relationship
from curation.models import Curation
from curation.schemas import Alias, Create, Edit, Forget, Relate, Rename, Retag
from curation.services import curation_apply, curation_plan
from curation.text_edits import EditRefusedError, relationship_describe, term_describe
from curation.working_copy import CurationRefusedError
from memories.models import FollowedSource, ImportBatch, Memory, Project
from memories.projects import project_create, project_update
from memories.records import MemoryRecord
from memories.refusals import ChangeRefusedError
from memories.services import memory_create
from search.models import SavedView
from search.query import SearchQuery
from search.saved_views import ViewRefusedError, saved_view_change, saved_view_create
from tests.explorer.memory.test_memory_api import Caller, key
from tests.memories.imports import run
from tests.memories.test_secrets_of_memories import KEY, MARK, PASSWORD, readable
from text.secrets import is_available, mask_values
from transfer.follow.services import NotFollowableError, source_new
from transfer.formats.registry import importer_named
from transfer.jobs import UploadInvalidError, job_project
from transfer.uploads import FileToSend, upload_begin
from web.logs import JsonLine, TextLine
from web.secrets import mask_query

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not is_available(), reason="no wheel of kingfisher-secret-scanner for this machine"),
]


@pytest.fixture
def person(db):
    return viewer_of_user(User.objects.create_superuser("ann"))


@pytest.fixture
def memory(person):
    return memory_create(record=MemoryRecord(content="Tea", tags=["green"], project="tea"), viewer=person)


def test_curators_texts(person, memory):
    for operation in (
        Create(kind="concept", name=f"steep {KEY}", description=f"password: {PASSWORD}", aliases=[KEY, "brew"]),
        Create(kind="entity", name="pot", type="thing"),
        Create(kind="entity", name="lid", type="thing"),
        Create(kind="category", name=f"kitchen/{KEY}"),
        Edit(kind="entity", term="pot", description=f"opened with {KEY}"),
        Alias(kind="entity", term="lid", add=[KEY]),
        Rename(kind="tag", term="green", name=f"green {KEY}"),
        Relate(kind="entity", term="pot", how="has", other="lid", fact=f"The pot needs {KEY}."),
        Retag(memories=[memory.pk], add_tags=[KEY], set_authors=[f"Ann {KEY}"], reason=KEY),
    ):
        assert not curation_plan(operation=operation, viewer=person).refusals
        curation_apply(operation=operation, viewer=person)
    assert Concept.objects.get().aliases == [MARK, "brew"]
    assert Category.objects.get(depth=2).name == MARK
    assert Entity.objects.get(name="pot").description == f"opened with {MARK}"
    assert Memory.objects.get().authors == [f"Ann {MARK}"]
    relation = Relationship.objects.get()
    relationship_describe(relationship=relation, fact=f"It is {KEY}.", confidence=None, viewer=person)
    pot = Entity.objects.get(name="pot")
    term_describe(term=pot, description=f"Now {KEY}", aliases=[KEY], viewer=person)
    assert readable() == []


def test_a_query_that_names_a_secret_chooses_the_same_memories_and_is_not_in_the_log(person, memory):
    Memory.objects.filter(pk=memory.pk).update(title=f"Old {KEY}")
    query = f"tag=green&q={KEY}%20password%3D{PASSWORD}"
    curation_apply(operation=Forget(query="tag=green", reason=f"{KEY} leaked"), viewer=person)
    with pytest.raises(CurationRefusedError) as refused:
        curation_apply(operation=Forget(query=query), viewer=person)
    assert "[" not in str(refused.value)
    assert KEY not in json.dumps(Curation.objects.get().arguments)
    assert mask_query(query) == "tag=green&q=%5BAWS+key+id+%E2%80%A6QJ%5D+password%3D%5Bsecret+%E2%80%A6T4%5D"
    assert mask_query("q=tea&tag=a%20b") == "q=tea&tag=a%20b"


def test_refused_texts_of_curators_name_the_field(person, memory, settings):
    settings.SECRETS = "refuse"
    operation = Create(kind="concept", name="heat", description=f"It is {KEY}")
    assert "description: holds secrets" in curation_plan(operation=operation, viewer=person).refusals[0]
    with pytest.raises(CurationRefusedError, match=r"description: holds secrets.*\[AWS key id …QJ\]"):
        curation_apply(operation=operation, viewer=person)
    with pytest.raises(ChangeRefusedError, match="description: holds secrets"):
        project_create(slug="vault", name="Vault", description=KEY, viewer=person)
    with pytest.raises(ViewRefusedError, match="holds secrets"):
        saved_view_create(name=KEY, query=SearchQuery.from_pairs([]), viewer=person)
    thing = Entity.objects.create(name="pot", entity_type="thing")
    with pytest.raises(EditRefusedError, match="aliases: holds secrets"):
        term_describe(term=thing, description="", aliases=[KEY], viewer=person)
    assert not Concept.objects.exists()
    assert readable() == []


def test_a_site_may_leave_them(person, settings):
    settings.SECRETS = "off"
    curation_apply(operation=Create(kind="concept", name=KEY), viewer=person)
    saved_view_create(name="Mine", query=SearchQuery.from_pairs([("q", KEY)]), viewer=person)
    assert Concept.objects.get().name == KEY
    assert SavedView.objects.get().query == f"q={KEY}"


def test_views_projects_keys_and_notes_of_the_audit_trail(person, memory):
    view = saved_view_create(name=f"About {KEY}", query=SearchQuery.from_pairs([]), viewer=person, description=KEY)
    assert (view.name, view.slug, view.description) == (f"About {MARK}", "about-aws-key-id-qj", MARK)
    with pytest.raises(ViewRefusedError, match="searches for a secret"):
        saved_view_change(view=view, viewer=person, query=SearchQuery.from_pairs([("q", f"password={PASSWORD}")]))
    project = project_create(slug="vault", name=f"Vault {KEY}", description=KEY, viewer=person)
    project_update(project=project, name=KEY, description=f"for {KEY}", language="english", viewer=person)
    with pytest.raises(ChangeRefusedError, match="is a secret"):
        project_create(slug=KEY.lower(), name="x", viewer=person)
    with pytest.raises(ChangeRefusedError, match="is a secret"):
        memory_create(record=MemoryRecord(content="x", project=KEY.lower()), viewer=person)
    assert make_key(name=f"robot {KEY}", scopes=["read"], every_project=True, viewer=person).key.name == f"robot {MARK}"
    audit(person, "test", project, before={"deep": [{"note": KEY}]}, note=KEY)
    assert AuditEvent.objects.latest("id").before == {"deep": [{"note": MARK}]}
    assert readable() == []


def test_idempotent_replies(db):
    caller = Caller(key(["read", "write"]).raw)
    body = {"content": "Tea"}
    first, again = (
        caller.post("/api/memories", body, content_type="application/json", headers={"Idempotency-Key": KEY})
        for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert IdempotentReply.objects.count() == 1
    assert readable() == []


def test_names_of_files_of_uploads_and_of_followed_sources(person, tmp_path, settings):
    settings.HOME = tmp_path / "home"
    settings.HOME.mkdir()
    job = upload_begin(files=[FileToSend(f"{KEY}.md", 3)], viewer=person, fingerprint=KEY)
    assert job.name == f"{MARK}.md"
    assert upload_begin(files=[FileToSend(f"{KEY}.md", 3)], viewer=person, fingerprint=KEY) == job
    assert not [path for path in settings.HOME.rglob("*") if KEY in path.name]
    vault = tmp_path / KEY
    vault.mkdir()
    (vault / "a.md").write_text("A tea.")
    (vault / f"{KEY}.md").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(NotFollowableError, match=r"\[AWS key id …QJ\]: its name holds a secret"):
        source_new(path=vault, importer=importer_named("markdown"), project="", viewer=person)
    run(vault)
    assert ImportBatch.objects.get().origin.endswith(MARK)
    with pytest.raises(UploadInvalidError, match="is a secret"):
        job_project(KEY.lower(), person)
    assert not FollowedSource.objects.exists()
    assert not Project.objects.filter(slug__icontains=KEY).exists()
    assert readable() == []


def test_a_copy_of_a_secret_in_another_field_is_masked_too():
    masked = mask_values({"content": f"password={PASSWORD} and the postgres:postgres", "tags": [PASSWORD, "postgres"]})[
        0
    ]
    assert masked["tags"] == ["[password …T4]", "postgres"]
    assert PASSWORD not in masked["content"]
    address = f"https://ann:{PASSWORD}@git.example.org/tea"
    masked = mask_values({"source_url": address, "content": f"password={PASSWORD}"})[0]
    assert masked["source_url"] == "https://git.example.org/tea"


def test_names_in_json_that_are_secrets():
    assert mask_values({"raw": {f"x {KEY}": 1, "kind": [{KEY: "tea"}]}})[0] == {
        "raw": {f"x {MARK}": 1, "kind": [{MARK: "tea"}]}
    }


@pytest.mark.parametrize("made", [TextLine(), JsonLine(), TextLine(tracebacks=True)])
def test_lines_of_the_log(made):
    try:
        raise ValueError(f"no such tag: {KEY}")
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    line = made.format(logging.LogRecord("x", logging.ERROR, "f", 1, "GET /?q=%s failed", (KEY,), raised))
    assert KEY not in line
    assert line.count("[AWS key id ") == 2

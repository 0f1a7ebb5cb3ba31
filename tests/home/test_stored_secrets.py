"""Secrets that are stored are found wherever they are, and a purge leaves none of them in any table."""

import base64
import json
import zlib

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import models

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import command_viewer, viewer_of_key, viewer_of_user
from categories.models import Category, Concept
from curation.models import Curation
from curation.schemas import Create, Merge, Rename
from curation.services import curation_apply, curation_undo
from curation.undo import UndoRefusedError
from home.found_secrets import SecretsForbiddenError, look_for_secrets, secrets_allow
from home.purge import open_purges, purge_ask, purges_do
from home.stored_texts import text_tables
from memories.history import memory_history
from memories.models import Memory, MemoryRead, Project
from memories.recalls import RecallLog
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_update
from search.models import SavedView
from search.query import SearchQuery
from search.run import run as search_run
from search.saved_views import saved_view_create
from tests.memories.imports import run
from tests.memories.test_secrets_of_memories import KEY, MARK, PASSWORD, readable
from text.secrets import is_available

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not is_available(), reason="no wheel of kingfisher-secret-scanner for this machine"),
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """A test is within a transaction: tables cannot be written again."""
    monkeypatch.setattr("home.purge.tables_rewrite", lambda tables: [])
    monkeypatch.setattr("home.purge.index_rebuild", list)


@pytest.fixture
def person(db):
    return viewer_of_user(User.objects.create_superuser("ann"))


@pytest.fixture
def stored(person, settings, tmp_path):
    """A site that has stored secrets everywhere, since it did not look for them."""
    settings.SECRETS, settings.HOME, settings.BACKUP_FOLDER = "off", tmp_path / "home", tmp_path / "home" / "backups"
    settings.BACKUP_FOLDER.mkdir(parents=True)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.md").write_text(f"---\ntitle: Tea\npassword: {PASSWORD}\n---\nIt is {KEY}.\n")
    (vault / "b.md").write_bytes(f"Two kinds of lines.\r\nIt is {KEY}.\n".encode())
    (vault / "c.md").write_text(f"---\ntitle: {KEY}\n---\n")
    run(vault)
    record = MemoryRecord(
        project="tea",
        content=f"The key is {KEY} of the shop.\nDB_PASSWORD={PASSWORD}",
        summary=f"It opens with {PASSWORD}",
        tags=[KEY, "green"],
        entities=[{"name": KEY, "type": "key"}],
        links=[f"see {KEY}"],
        source_url=f"https://ann:{PASSWORD}@git.example.org/",
        session=f"session {KEY}",
    )
    memory = memory_create(record=record, viewer=person)
    memory_update(memory_id=memory.pk, changes=MemoryChanges(content="Steep it."), viewer=person, reason=f"has {KEY}")
    memory_update(memory_id=memory.pk, changes=MemoryChanges(content=f"Steep it with {KEY}."), viewer=person)
    curation_apply(operation=Create(kind="category", name=f"kitchen/{KEY}", description=KEY), viewer=person)
    curation_apply(operation=Create(kind="category", name=f"kitchen/{KEY}/below"), viewer=person)
    curation_apply(operation=Create(kind="concept", name=KEY, aliases=[f"my {KEY}"]), viewer=person)
    curation_apply(operation=Create(kind="concept", name=f"password={PASSWORD}"), viewer=person)
    curation_apply(operation=Rename(kind="tag", term=KEY, name=f"{KEY} old"), viewer=person)
    saved_view_create(name=f"About {KEY}", query=SearchQuery.from_pairs([("q", f"password={PASSWORD}")]), viewer=person)
    Project.objects.filter(slug="tea").update(description=KEY)
    settings.SECRETS = "mask"
    return memory


def test_every_column_of_texts_is_read_or_known_to_hold_none():
    """A new column of texts is searched by itself; here stand those that are not."""
    searched = {f"{table.label}.{name}" for table in text_tables() for name in table.columns}
    assert {"memories.Memory.content", "memories.Memory.raw", "access.AuditEvent.before"} <= searched
    assert {"curation.CurationChange.after", "access.IdempotentReply.body", "search.SavedView.query"} <= searched
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.concrete_fields:
            if isinstance(field, models.TextField) and not field.choices:
                known = {"access.AppGrant.client_id", "access.AppGrant.resource", "access.AppGrant.redirect_uri"}
                known |= {"memories.EmbeddingModel.source", "sessions.Session.session_data", "admin.LogEntry.object_id"}
                known |= {"memories.FollowedSource.stamp"}
                assert f"{model._meta.label}.{field.name}" in searched | known


def test_what_is_found_has_kind_place_time_and_readers_but_not_the_secret(stored):
    log = RecallLog()
    log.add([stored.pk], by_agent=True, at=stored.created_at)
    log.store()
    MemoryRead.objects.create(
        at=stored.created_at, door="mcp", operation="search", session="", kind="list", query="", memory_ids=[stored.pk],
        number=1,
    )  # fmt: skip
    look = look_for_secrets()
    found = {one.mark: one for one in look.found.values()}
    one = found[MARK]
    assert one.kind == "AWS key id"
    words = {place.word for place in one.places}
    assert {"memory", "link", "session"} <= words
    assert (one.reads, one.reads_by_agents, one.readers) == (1, 1, ["MCP"])
    assert one.since
    assert one.rows > 10
    text = json.dumps(look.as_json())
    assert not {KEY, KEY.lower(), PASSWORD, KEY[4:12]} & {part for part in (KEY, PASSWORD, KEY[4:12]) if part in text}
    place = next(place for place in one.places if place.word == "memory" and place.id == str(stored.pk))
    assert {"content", "raw"} <= set(place.columns)
    assert place.project == "tea"


def test_the_look_may_be_about_one_project(stored, person):
    memory_create(record=MemoryRecord(project="oolong", content="Nothing here."), viewer=person)
    assert look_for_secrets(project="oolong").found == {}
    assert look_for_secrets(project="tea").found


def test_a_false_mark_is_not_listed_again_and_only_a_hash_is_stored(stored, person):
    known = next(one.id for one in look_for_secrets().found.values() if one.mark == MARK)
    secrets_allow(hashes=[known], viewer=person)
    look = look_for_secrets()
    assert (known in look.found, look.allowed) == (False, 1)
    assert AuditEvent.objects.get(verb="secret_allow").after == {"hashes": [known]}
    secrets_allow(hashes=[known], viewer=person, again=True)
    assert known in look_for_secrets().found


def test_a_purge_leaves_nothing_in_any_table_and_the_rest_works(stored, person, settings):
    (settings.HOME / "postgres.log").write_text(f"LOG: it is {KEY}\n")
    (settings.BACKUP_FOLDER / "old.zip").write_bytes(b"PK")
    assert readable()
    look = look_for_secrets()
    purge_ask(hashes=look.found, viewer=person)
    (purged,) = purges_do()
    assert readable() == []
    assert look_for_secrets().found == {}
    assert open_purges() == []
    assert (settings.HOME / "postgres.log").read_text() == f"LOG: it is {MARK}\n"
    assert any("old.zip" in line for line in purged.left)
    memory = Memory.objects.get(pk=stored.pk)
    assert memory.content == f"Steep it with {MARK}."
    assert memory.tags == [f"{MARK.lower().replace('aws', 'AWS')}-old", "green"]
    assert memory_history(person, memory.pk) is not None
    assert [hit.id for hit in search_run(SearchQuery.from_pairs([("q", "steep"), ("mode", "keyword")]), person).hits]
    for one in Memory.objects.exclude(raw=None):
        whole = one.raw.get("note_file", {}).get("whole", "")
        assert KEY not in (zlib.decompress(base64.b64decode(whole)).decode() if whole else "")
    category = Category.objects.get(depth=2)
    assert category.name == MARK
    assert Category.objects.get(depth=3).path == f"{category.path}/below"
    assert not SavedView.objects.filter(query__contains=PASSWORD[:6]).exists()
    event = AuditEvent.objects.get(verb="secrets_purge")
    assert (event.user_id, event.after["state"]) == (person.user_id, "done")
    assert MARK in event.after["marks"]


def test_a_purge_leaves_the_key_of_the_site_as_it_is(person, settings, tmp_path):
    settings.SECRETS, settings.HOME, settings.BACKUP_FOLDER = "off", tmp_path, tmp_path / "backups"
    for name in ("secret_key", "postgres.log"):
        (tmp_path / name).write_text(KEY)
    memory_create(record=MemoryRecord(content=f"The site has {KEY}."), viewer=person)
    purge_ask(hashes=list(look_for_secrets().found), viewer=person)
    (purged,) = purges_do()
    assert (tmp_path / "secret_key").read_text() == KEY
    assert KEY not in (tmp_path / "postgres.log").read_text()
    assert ["secret_key" in line for line in purged.left] == [True]


def test_a_title_that_ends_within_a_secret_is_masked_in_the_history_too(person, settings, tmp_path):
    settings.SECRETS, settings.HOME, settings.BACKUP_FOLDER = "off", tmp_path, tmp_path / "backups"
    secret = "sk-ant-" + "api03-" + "b7Kq2LmZ9pTxW4" * 6 + "v1Rr8Q-AA"
    key_of = "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "zQLWDiizJle3LSkCYoY7RSVI3ugQ21rr\n" * 12
    for text in (
        f"The one of the shop for all that it has to do is {secret}",
        f"{key_of}-----END RSA PRIVATE KEY-----",
    ):
        memory_create(record=MemoryRecord(content=text), viewer=person)
    settings.SECRETS = "mask"
    purge_ask(hashes=look_for_secrets().found, viewer=person)
    purges_do()
    stored = json.dumps(
        [*Memory.objects.values_list("title", "content", "raw"), *AuditEvent.objects.values_list("after")]
    )
    assert "b7Kq2LmZ9p" not in stored
    assert "zQLWDiiz" not in stored


def test_undo_of_what_was_purged_is_refused_and_that_of_others_works(stored, person):
    memory_create(record=MemoryRecord(project="tea", content="Oolong", tags=["a", "b"]), viewer=person)
    other = curation_apply(operation=Merge(kind="tag", source="a", target="b"), viewer=person).curation
    rename = Curation.objects.get(verb="rename")
    purge_ask(hashes=look_for_secrets().found, viewer=person)
    purges_do()
    with pytest.raises(UndoRefusedError, match="held secrets, which were purged"):
        curation_undo(curation_id=rename.pk, viewer=person)
    curation_undo(curation_id=other.pk, viewer=person)
    assert Memory.objects.get(content="Oolong").tags == ["a", "b"]


def test_only_the_chosen_secrets_are_purged_and_words_stay(person, settings, tmp_path):
    settings.SECRETS, settings.HOME = "off", tmp_path
    words = memory_create(record=MemoryRecord(content="The postgres server, and hunter2x."), viewer=person)
    short = memory_create(
        record=MemoryRecord(content=f"postgres://app:postgres@db/shop and password=hunter2x {KEY}"), viewer=person
    )
    settings.SECRETS = "mask"
    look = look_for_secrets()
    chosen = [one.id for one in look.found.values() if one.mark != MARK]
    purge_ask(hashes=chosen, viewer=person)
    purges_do()
    words.refresh_from_db()
    short.refresh_from_db()
    # A name alone may be a word; a password with a digit is masked wherever it is.
    assert words.content.startswith("The postgres server, and [")
    assert "app:postgres@" not in short.content
    assert KEY in short.content


def test_a_purge_that_was_interrupted_goes_on(stored, person, monkeypatch):
    purge_ask(hashes=look_for_secrets().found, viewer=person)

    def killed(tables):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("home.purge.tables_rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            purges_do()
    (event,) = open_purges()
    assert event.after["state"] == "masked"
    assert len(purges_do()) == 1
    assert open_purges() == []
    assert readable() == []


def test_only_administrators_of_everything(stored):
    admin = make_key(name="one", scopes=["admin"], projects=[Project.objects.get(slug="tea")], viewer=command_viewer())
    writer = make_key(name="all", scopes=["curate"], every_project=True, viewer=command_viewer())
    for key in (admin, writer):
        with pytest.raises(SecretsForbiddenError):
            purge_ask(hashes=[], viewer=viewer_of_key(key.key))
        with pytest.raises(SecretsForbiddenError):
            secrets_allow(hashes=["a"], viewer=viewer_of_key(key.key))


def test_the_command(stored, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("find_secrets", "--json")
    assert ended.value.code == 3
    out = capsys.readouterr()
    found = json.loads(out.out)["secrets"]
    assert MARK in {one["mark"] for one in found}
    assert KEY not in out.out + out.err
    with pytest.raises(CommandError, match="no such project"):
        call_command("find_secrets", "--project", "none")
    with pytest.raises(CommandError, match="Nothing was purged"):
        call_command("find_secrets", "--purge", "--yes", "0000")
    with pytest.raises(SystemExit):
        call_command("find_secrets")
    assert f"{MARK}  in " in capsys.readouterr().out
    call_command("find_secrets", "--purge", "--yes")
    out = capsys.readouterr()
    assert "must be revoked" in out.out
    assert KEY not in out.out + out.err
    call_command("find_secrets")
    assert "0 secrets in " in capsys.readouterr().out
    assert readable() == []
    assert not Concept.objects.filter(name__icontains=KEY).exists()

"""The page of stored secrets: for administrators, with marks only, and a purge that has to be confirmed."""

import pytest
from django.contrib.auth.models import User

from access.models import AuditEvent, Membership
from home.found_secrets import look_for_secrets, secrets_alone, store_look
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.home.test_stored_secrets import person  # noqa: F401
from tests.memories.test_secrets_of_memories import KEY, MARK, readable
from text.secrets import is_available

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not is_available(), reason="no wheel of kingfisher-secret-scanner for this machine"),
]
PAGE = "/settings/secrets/"


@pytest.fixture
def started(monkeypatch):
    """The processes that the page starts."""
    made = []
    monkeypatch.setattr("home.found_secrets.start_once", made.append)
    return made


@pytest.fixture
def found(person, settings, tmp_path, started):  # noqa: F811
    settings.SECRETS, settings.HOME, settings.BACKUP_FOLDER = "off", tmp_path, tmp_path / "backups"
    settings.BACKUP_FOLDER.mkdir()
    (settings.BACKUP_FOLDER / "monday.zip").write_bytes(b"PK")
    memory_create(record=MemoryRecord(project="tea", content=f"The key is {KEY} now."), viewer=person)
    settings.SECRETS = "mask"
    look = look_for_secrets()
    store_look(look)
    return next(iter(look.found))


def test_a_site_without_a_look_offers_one(person, client, settings, tmp_path, started):  # noqa: F811
    settings.HOME = settings.BACKUP_FOLDER = tmp_path
    client.force_login(User.objects.get())
    assert "Nobody has looked for them yet" in client.get(PAGE).content.decode()
    assert client.post(PAGE, {"do": "look"}).url == PAGE
    assert started == [["find_secrets", "--asked"]]


def test_the_page_has_the_mark_and_the_place_but_not_the_secret(found, client):
    client.force_login(User.objects.get())
    page = client.get(PAGE).content.decode()
    assert MARK in page
    assert "in tea" in page
    assert "monday.zip" in page
    assert KEY not in page
    assert KEY[4:12] not in page


def test_a_purge_needs_the_word_and_a_choice(found, client, started):
    client.force_login(User.objects.get())
    for sent, problem in (
        ({"do": "purge", "id": found}, "Nothing was purged: write purge"),
        ({"do": "purge", "confirmation": "purge"}, "Choose at least one"),
        ({"do": "purge", "id": "0" * 16, "confirmation": "purge"}, "Choose at least one"),
    ):
        page = client.post(PAGE, sent)
        assert page.status_code == 422
        assert problem in page.content.decode()
    assert started == []
    assert not AuditEvent.objects.filter(verb="secrets_purge").exists()
    assert client.post(PAGE, {"do": "purge", "id": found, "confirmation": " Purge "}).status_code == 302
    assert started == [["find_secrets", "--asked"]]
    assert AuditEvent.objects.get(verb="secrets_purge").after == {"state": "begun", "hashes": [found]}
    page = client.get(PAGE)
    assert "looked through" in page.content.decode()
    assert page["Refresh"]
    assert readable()


def test_a_false_mark_is_listed_no_longer(found, client):
    client.force_login(User.objects.get())
    client.post(PAGE, {"do": "allow", "id": found})
    assert MARK not in client.get(PAGE).content.decode()


def test_nothing_is_done_while_a_look_runs(found, client):
    client.force_login(User.objects.get())
    with secrets_alone():
        page = client.post(PAGE, {"do": "purge", "id": found, "confirmation": "purge"})
    assert page.status_code == 422
    assert "Wait until" in page.content.decode()


def test_only_administrators_of_everything_see_it(found, client):
    assert client.get(PAGE).status_code == 302
    admin = User.objects.create_user("bob")
    Membership.objects.create(user=admin, project=Project.objects.get(slug="tea"), role="admin")
    client.force_login(admin)
    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE, {"do": "look"}).status_code == 403

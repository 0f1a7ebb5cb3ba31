"""The status page and the health API: progress of embedding, and parts that are not ready."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from access.models import Membership
from access.viewer import command_viewer
from explorer.status.reads import ModelStatus, SiteStatus, _answers, _last_backup, build_status, measure_groups
from memories import checks
from memories.embedding import vectors
from memories.embedding.query import QueryCache, load_in_background
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines import IndexHealth
from tests.embedding import embed_all
from tests.html import html_of
from web.version import VERSION

pytestmark = pytest.mark.django_db


def store(content, project="tea"):
    return memory_create(record=MemoryRecord(content=content, project=project), viewer=command_viewer())


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


def status_of(**changes):
    values = {
        "memories": 3,
        "revision": 1,
        "models": (ModelStatus("all-MiniLM-L6-v2", "serving", 3, 3),),
        "not_ready": "",
        "queries": QueryCache(1, 3, 3, 2_000),
        "engine": "tantivy",
        "index": IndexHealth("ready"),
        "version": VERSION,
    }
    return SiteStatus(**{**values, **changes})


def test_page_needs_a_visitor_who_is_signed_in(client):
    assert client.get("/status/").url == "/sign-in/?next=/status/"


def test_page_tells_how_far_memories_are_embedded(curator):
    store("Tea.")
    page = html_of(curator.get("/status/"))
    assert "no memory has been embedded yet" in page
    embed_all()
    store("Coffee.")
    page = html_of(curator.get("/status/"))
    assert "1 of 2 memories embedded, 50.0 %" in page
    assert '<progress max="100" value="50.0"' in page
    assert "hashed-words" in page


def test_page_counts_what_its_visitor_may_see(client):
    store("Tea.")
    store("Secret.", project="secret")
    embed_all()
    store("Another secret.", project="secret")
    user = User.objects.create_user("reader")
    Membership.objects.create(user=user, project=Project.objects.get(slug="tea"))
    client.force_login(user)
    page = html_of(client.get("/status/"))
    assert "1 of 1 memories embedded, 100.0 %" in page
    assert "Query cache" not in page  # its numbers move with the searches of others


def test_page_asks_again_while_there_is_work_and_only_for_its_part(curator):
    store("Tea.")
    assert 'hx-trigger="every 5s"' in html_of(curator.get("/status/"))
    part = html_of(curator.get("/status/", headers={"HX-Request": "true"}))
    assert "Search by meaning" in part
    assert "<html" not in part


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ("Ready.", "Up to date.", 0), id="all is well"),
        pytest.param(
            {"not_ready": "the model is still loading"},
            ("Searching by words only: the model is still loading.", "Up to date.", 5),
            id="not ready",
        ),
        pytest.param(
            {"models": (ModelStatus("a", "serving", 3, 3), ModelStatus("b", "building", 1, 3))},
            ("Ready.", "Up to date.", 5),
            id="a model is building",
        ),
        pytest.param(
            {"models": (ModelStatus("a", "serving", 2, 3),)},
            ("Partly ready: 1 memory is still found by words only.", "Up to date.", 5),
            id="one waits",
        ),
        pytest.param(
            {"index": IndexHealth("ready", 1.25, 3)},
            ("Ready.", "Behind by 1.2 s, 3 changes pending.", 0),
            id="behind",
        ),
        pytest.param({"index": IndexHealth("ready", 1.25)}, ("Ready.", "Behind by 1.2 s.", 0), id="behind by unknown"),
        pytest.param({"index": IndexHealth("off")}, ("Ready.", "Off: the database answers searches.", 0), id="off"),
        pytest.param(
            {"index": IndexHealth("missing")},
            ("Ready.", "Being built; until then the database answers searches.", 0),
            id="missing",
        ),
    ],
)
def test_state_in_words(changes, expected):
    page = build_status(status_of(**changes))
    assert (page.meaning, page.index, page.refresh_seconds) == expected


def test_all_is_only_said_of_all():
    page = build_status(status_of(models=(ModelStatus("a", "serving", 99_999, 100_000),)))
    assert page.models[0].text == "99,999 of 100,000 memories embedded, 99.9 %"
    assert build_status(status_of(models=(ModelStatus("a", "serving", 0, 0),))).models[0].percent == "100.0"


# --- the check ----------------------------------------------------------------------------------------------------


def test_check_tells_of_a_model_that_does_not_fit_and_how_to_change_that(settings):
    assert checks.model_fits(None, ["default"]) == []
    call_command("embedding_dimensions", "512")
    (error,) = checks.model_fits(None, ["default"])
    assert error.id == "memories.E009"
    assert error.msg == "The vectors of hashed-words have 384 dimensions; the column has 512."
    assert "python manage.py embedding_dimensions 384" in error.hint
    assert vectors.column_dimensions() == 512


def test_check_asks_for_the_similarity_of_another_model(settings):
    settings.EMBEDDING_MODEL = "intfloat/e5-small-v2"
    (warning,) = checks.model_fits(None, ["default"])
    assert warning.id == "memories.W001"
    settings.EMBEDDING_MIN_SIMILARITY = 0.8
    assert checks.model_fits(None, ["default"]) == []


def test_site_is_settled_once_the_model_is_loaded_and_all_is_embedded(curator):
    store("Tea.")
    embed_all()
    load_in_background()
    for _ in range(200):
        page = html_of(curator.get("/status/"))
        if "hx-trigger" not in page:
            break
    assert "Ready." in page


def test_measures_are_those_of_the_memories_that_a_viewer_sees(curator):
    for text, project in (("one", "tea"), ("two", "tea"), ("three", "boat")):
        store(text, project)
    everybody = {group.title: group.measures for group in measure_groups(command_viewer(), status_of())}
    assert list(everybody) == ["Memories", "Search", "Answers", "The server"]
    assert [measure.now for measure in everybody["Memories"]] == ["3", "3", "3", "3", "3"]
    boat = Project.objects.get(slug="boat")
    own, search = measure_groups(replace(command_viewer(), project_ids=frozenset({boat.pk})), status_of(memories=1))
    assert [measure.now for measure in own.measures] == ["1", "1", "1", "1", "1"]
    assert [measure.now for measure in search.measures] == ["0.0 s", "100 %"]
    assert '<a href="/explore/?no=category">3</a>' in html_of(curator.get("/status/"))


def test_missing_or_late_backup_needs_attention_and_says_what_to_do(curator, settings, tmp_path):
    settings.BACKUP_FOLDER, settings.BACKUP_EVERY_HOURS = tmp_path, 24
    now = datetime.now(UTC)
    assert (_last_backup(now).state, _last_backup(now).now) == ("Watch", "never")
    page = html_of(curator.get("/status/"))
    assert "<h2>Last backup</h2>" in page
    assert '<p class="big">never</p>' in page
    assert "Make one now, and see why none was made." in page
    (tmp_path / "mnemoscope-20260101-000000.backup").touch()
    assert (_last_backup(now).state, _last_backup(now).now) == ("OK", "just now")
    late = _last_backup(now + timedelta(days=3, hours=1))
    assert (late.state, late.now, late.words) == (
        "Watch",
        "3 days ago",
        "1 backup in the folder of backups. One is due every 24 hours.",
    )


def test_a_backup_is_started_from_the_page_by_who_may_write_everything(curator, monkeypatch, settings, tmp_path):
    settings.BACKUP_FOLDER, started = tmp_path, []
    monkeypatch.setattr("explorer.status.reads.start_once", started.append)
    store("Tea.")
    reader = User.objects.create_user("reader")
    Membership.objects.create(user=reader, project=Project.objects.get(slug="tea"))
    other = Client()
    other.force_login(reader)
    assert 'action="/status/back-up/"' not in html_of(other.get("/status/"))
    assert (other.post("/status/back-up/").status_code, started) == (403, [])
    assert 'action="/status/back-up/"' in html_of(curator.get("/status/"))
    assert curator.get("/status/back-up/").status_code == 405
    page = html_of(curator.post("/status/back-up/", follow=True))
    assert "A backup is being made." in page
    assert "One is being made." in page
    assert 'action="/status/back-up/"' not in page
    assert started == [["backup"]]


def test_percentiles_and_errors_are_those_of_the_last_answers():
    measures = _answers([(0.001 * n, 200) for n in range(1, 101)] + [(2.0, 503)] * 10)
    assert [(measure.now, measure.state) for measure in measures] == [
        ("55 ms", "OK"),
        ("2,000 ms", "Watch"),
        ("10", "Watch"),
    ]

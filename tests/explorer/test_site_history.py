"""The past of the site: what is recorded, its trends and incidents, for the status page and the API."""

from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from explorer.models import SiteSample
from explorer.status.course import build_course
from explorer.status.reads import site_status
from explorer.status.site_history import milliseconds, site_history, site_sample_add
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.html import html_of
from web.exchange import SPEEDS, Tally

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
EMPTY = [0] * (len(SPEEDS) + 1)


def tally(*answers):
    found = Tally()
    for seconds, status in answers:
        found.add(seconds, status)
    return found


def sample(minutes, **values):
    """A sample that began a number of minutes before noon."""
    values = {"speeds": EMPTY, "memories": 10, "pending": 0, "free_bytes": 9_000_000_000, **values}
    return SiteSample.objects.create(begin=NOON - timedelta(minutes=minutes), **values)


def history(span="24h"):
    return site_history(command_viewer(), span, NOON)


def kinds(found):
    return [(one.kind, one.begin.strftime("%H:%M"), one.end and one.end.strftime("%H:%M")) for one in found.incidents]


# --- recording --------------------------------------------------------------------------------------------------------


def test_answers_of_all_processes_add_up_in_one_row_for_five_minutes():
    memory_create(record=MemoryRecord(content="Tea."), viewer=command_viewer())
    site_sample_add(tally((0.010, 200), (0.020, 200)), NOON + timedelta(minutes=1))
    site_sample_add(tally((0.030, 503)), NOON + timedelta(minutes=4))
    site_sample_add(tally(), NOON + timedelta(minutes=5))
    first, second = SiteSample.objects.all()
    assert (first.begin, first.answers, first.errors, sum(first.speeds)) == (NOON, 3, 1, 3)
    assert (second.begin, second.answers, second.memories, second.pending) == (NOON + timedelta(minutes=5), 0, 1, None)
    assert second.database_bytes > 1_000_000


def test_memories_are_counted_once_in_five_minutes_by_whoever_is_first(monkeypatch):
    counted = Mock(side_effect=site_status)
    monkeypatch.setattr("explorer.status.site_history.site_status", counted)
    for minutes in (1, 2, 3, 4, 5, 6):
        site_sample_add(tally((0.010, 200)), NOON + timedelta(minutes=minutes))
    assert counted.call_count == 2
    assert [one.answers for one in SiteSample.objects.all()] == [4, 2]


def test_samples_are_deleted_after_a_month():
    sample(60 * 24 * 32)
    sample(60 * 24 * 30)
    site_sample_add(tally(), NOON)
    assert [one.begin.day for one in SiteSample.objects.all()] == [2, 4]


# --- trends -----------------------------------------------------------------------------------------------------------


def test_a_period_tells_how_fast_the_answers_of_its_samples_were():
    sample(20, answers=95, speeds=tally(*[(0.010, 200)] * 95).speeds)
    sample(15, answers=5, errors=1, index_lag=3.5, pending=4, speeds=tally(*[(2.0, 200)] * 5).speeds)
    *_, before, last = history().periods
    assert (before.answers, before.errors, before.p50_ms, before.p95_ms) == (100, 1, 11.6, 11.6)
    assert (before.index_lag_seconds, before.pending, before.covered) == (3.5, 4, 60.0)
    assert (last.begin, last.answers, last.p50_ms) == (NOON, None, None)


def test_a_speed_is_told_to_within_a_quarter_and_none_without_answers():
    for seconds in (0.0004, 0.0123, 0.5, 3.0):
        found = milliseconds(tally((seconds, 200)).speeds, 0.95)
        assert max(1, 1000 * seconds) <= found <= max(1, 1250 * seconds)
    assert milliseconds(tally((600.0, 200)).speeds, 0.5) == 56051.9
    assert milliseconds(EMPTY, 0.5) is None


@pytest.mark.parametrize(
    ("span", "periods", "minutes"), [("1h", 12, 5), ("24h", 48, 30), ("7d", 84, 120), ("30d", 60, 720)]
)
def test_each_span_has_its_periods_up_to_now(span, periods, minutes):
    sample(0, answers=7)
    found = history(span)
    assert len(found.periods) == periods
    assert found.step == timedelta(minutes=minutes)
    assert found.periods[-1].answers == 7


# --- incidents --------------------------------------------------------------------------------------------------------


def test_errors_that_follow_each_other_are_one_incident_and_later_ones_another():
    for minutes in range(0, 125, 5):
        sample(minutes, answers=10, errors=int(minutes in (5, 60, 70)))
    found = history()
    assert kinds(found) == [("errors", "11:55", None), ("errors", "10:50", "11:05")]
    assert found.incidents[1].text == "2 answers of 20 failed because of the server. The log has a line for each."
    lasting = build_course(found, (), UTC, str).lasting
    assert (lasting[:13], lasting[-5:]) == ("Errors since ", "11:55")


def test_a_late_index_few_vectors_a_full_disk_and_slow_answers_are_incidents():
    slow = {"answers": 30, "speeds": tally(*[(4.0, 200)] * 30).speeds}
    for minutes, values in ((40, slow), (35, {"index_lag": 11}), (30, {"pending": 3}), (25, {"pending": 2})):
        sample(minutes, **values)
    for minutes, values in ((20, {"free_bytes": 1}), (15, {"pending": 9}), (10, {}), (5, {}), (0, {})):
        sample(minutes, **values)
    assert kinds(history()) == [
        ("disk", "11:40", "11:45"),
        ("vectors", "11:30", "11:50"),
        ("index", "11:25", "11:30"),
        ("slow", "11:20", "11:25"),
    ]


def test_a_time_without_samples_is_one_in_which_the_site_did_not_run():
    for minutes in (120, 115, 30, 25):
        sample(minutes)
    assert kinds(history()) == [("off", "10:10", "11:30")]


# --- page and API -----------------------------------------------------------------------------------------------------


def test_page_and_api_tell_the_same_and_only_to_who_sees_every_project(client):
    memory_create(record=MemoryRecord(content="Tea.", project="tea"), viewer=command_viewer())
    now = datetime.now(UTC)
    for minutes in (70, 65, 10, 5):
        SiteSample.objects.create(begin=now - timedelta(minutes=minutes), answers=4, errors=1, speeds=EMPTY, memories=1)
    key = make_key(name="all", scopes=("read",), viewer=command_viewer(), every_project=True).raw
    reply = client.get("/api/status/history?span=7d", headers={"Authorization": f"Bearer {key}"}).json()
    assert sum(one["answers"] or 0 for one in reply["periods"]) == 16
    assert [one["kind"] for one in reply["incidents"]] == ["errors", "off", "errors"]

    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/status/?span=7d"))
    assert page.count("2 answers of 8 failed because") == 2
    assert 'aria-current="true">7 days</a>' in page

    reader = User.objects.create_user("reader")
    Membership.objects.create(user=reader, project=Project.objects.get(slug="tea"))
    client.force_login(reader)
    page = html_of(client.get("/status/"))
    assert "Incidents" not in page
    assert "Trend" not in page
    limited = make_key(
        name="tea", scopes=("read",), viewer=command_viewer(), projects=Project.objects.filter(slug="tea")
    ).raw
    reply = client.get("/api/status/history", headers={"Authorization": f"Bearer {limited}"})
    assert (reply.status_code, reply.json()["error"]) == (403, "forbidden")


def test_more_incidents_than_the_page_has_are_counted_with_the_address_of_all(client):
    now = datetime.now(UTC)
    for minutes in range(20, 20 * 15, 20):
        SiteSample.objects.create(begin=now - timedelta(minutes=minutes), answers=4, errors=1, speeds=EMPTY, memories=1)
    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/status/"))
    assert page.count('<span class="what">') == 12
    assert '<a class="link" href="/api/status/history">' in page


def test_an_unknown_span_is_named_and_the_usual_one_shown(client):
    client.force_login(User.objects.create_superuser("owner"))
    page = html_of(client.get("/status/?span=2y"))
    assert "span" in page
    # A site that has just begun has no trends, and offers none of other lengths.
    assert "Trends of the last" not in page
    assert client.get("/api/status/history?span=2y").status_code in (401, 422)

"""Uploads by the page and the API: choices before the import, and what became of notes afterwards."""

import io
import zipfile
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from memories.models import ImportBatch, Memory
from tests.home.test_imports import key, owner, place
from tests.html import html_of
from transfer.process import jobs_run

__all__ = ["owner", "place"]

pytestmark = pytest.mark.django_db

TABLE = b"When;Text;Who\n03/04/2026;Use Postgres.;Ann\nsoon;Use Redis.;Bob\n"
VAULT = {
    "v/Decisions/a.md": "Use Postgres, which everybody knows.",
    "v/b.md": "Tea is in the kitchen. See [[a]].",
    "v/gone.md": "A note that will be gone before long.",
}


def uploaded(owner, name, content):
    return owner.post("/imports/upload/", {"file": SimpleUploadedFile(name, content)}).url


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def done(owner, job):
    owner.post(f"{job}import/")
    jobs_run()
    return html_of(owner.get(job))


def test_an_order_of_dates_is_asked_on_the_page_and_chosen_with_a_type_of_all(owner):
    job = uploaded(owner, "decisions.csv", TABLE)
    names = {"column": ["When", "Text", "Who"], "field": ["created_at", "content", "authors"]}
    owner.post(f"{job}columns/", names)
    page = unescape(html_of(owner.get(job)))
    assert "needs the order of its dates" in page
    question = "column 'When' has dates such as 03/04/2026, which may have the day or the month first. Choose one: "
    assert f"{question}on the page of the import, by the API (dates).</p>" in page
    owner.post(f"{job}columns/", {**names, "dates": "day-first", "all_type": "decision", "all_tags": ""})
    page = unescape(html_of(owner.get(job)))
    assert "column 'When': 'soon' is not a date; it is left out." in page
    assert "<dt>without a date of their own</dt><dd>1</dd>" in page
    page = done(owner, job)
    assert sorted(Memory.objects.values_list("memory_type", "authors")) == [
        ("decision", ["Ann"]),
        ("decision", ["Bob"]),
    ]
    assert Memory.objects.get(content="Use Postgres.").created_at.date().isoformat() == "2026-04-03"
    assert f"import={ImportBatch.objects.get().pk}&" in page


def test_choices_are_made_by_the_api(owner, client):
    job = uploaded(owner, "decisions.csv", TABLE)
    headers = key("read", "write", "curate")

    def choose(**choices):
        return client.patch(f"/api{job.rstrip('/')}", choices, content_type="application/json", headers=headers)

    assert choose(columns={"When": "date", "Who": "author"}).json()["preview"]["columns"][0]["question"] == "03/04/2026"
    preview = choose(dates="month-first", values={"types": "decision"}).json()["preview"]
    assert (preview["problem"], preview["rows"][0]["type"]) == ("", "decision")
    assert preview["rows"][0]["created_at"].startswith("2026-03-04")
    assert preview["found"]["types"] == {"decision": 2}
    refused = choose(values={"colour": "red"})
    assert refused.status_code == 422
    assert "is no field that all records can have: write one of" in refused.json()["detail"]
    assert choose(dates="first").status_code == 422


def test_rules_are_shown_and_changed_and_notes_that_are_gone_are_archived(owner):
    job = uploaded(owner, "v.zip", zipped(VAULT))
    page = unescape(html_of(owner.get(job)))
    assert 'name="rule" value="Decisions/"' in page
    owner.post(f"{job}columns/", {"rule": "Decisions/", "type": "choice"})
    done(owner, job)
    assert Memory.objects.get(memory_type="choice").external_id == "Decisions/a.md"
    later = {name.replace("b.md", "kitchen/Tea.md"): text for name, text in VAULT.items() if "gone" not in name}
    job = uploaded(owner, "v.zip", zipped(later))
    owner.post(f"{job}columns/", {"rule": "Decisions/", "type": "choice"})
    page = done(owner, job)
    assert "1 note that an earlier import of v.zip had" in page
    assert '<h2 id="changed-title">Updated</h2>' in page
    assert set(Memory.objects.values_list("external_id", flat=True)) == {"Decisions/a.md", "kitchen/Tea.md", "gone.md"}
    owner.post(f"{job}archive/")
    assert Memory.objects.get(external_id="gone.md").state == "archived"
    assert "gone-title" not in html_of(owner.get(job))

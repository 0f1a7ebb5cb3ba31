"""The page of an upload before it is imported: what was understood of its rows, and how that is changed."""

import io
import re
import zipfile

import pytest
from django.contrib.auth.models import User

from tests.home.conftest import make_previews_when_asked
from tests.html import html_of
from transfer import previews, views
from transfer.models import ImportJob
from transfer.process import jobs_run

pytestmark = pytest.mark.django_db
TABLE = "Decision,Text,Status,Who,Day\n" + "".join(
    f"Choice {n},Because {n}.,{('active', 'superseded', 'proposed')[n % 3]},Ada,{n + 1:02}.03.2024\n" for n in range(20)
)


@pytest.fixture(autouse=True)
def place(settings, tmp_path, monkeypatch):
    settings.HOME = tmp_path
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    make_previews_when_asked(monkeypatch)
    return tmp_path


@pytest.fixture
def owner(client):
    client.force_login(User.objects.create_superuser("owner"))
    return client


def sent(client, name, content):
    file = io.BytesIO(content if isinstance(content, bytes) else content.encode())
    file.name = name
    address = client.post("/imports/upload/", {"file": file})["Location"]
    return ImportJob.objects.get(pk=int(re.search(r"/imports/(\d+)/", address)[1]))


def page_of(client, job):
    return html_of(client.get(f"/imports/{job.pk}/"))


def vault(**notes):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in notes.items():
            archive.writestr(f"{path.replace('__', '/')}.md", text)
    return made.getvalue()


def test_table_shows_states_authors_and_dates_as_understood_and_further_rows_on_request(owner):
    page = page_of(owner, sent(owner, "decisions.csv", TABLE))
    first, more = page.split("12 more rows")
    for shown in ("Because 7", "<td>superseded</td>", "<td>Ada</td>", "1 Mar 2024"):
        assert shown in first
    assert "Because 8.<" not in first
    assert "Because 19" in more
    assert "States: active 7, superseded 7, proposed 6." in page


def test_table_without_states_and_authors_has_no_columns_for_them(owner):
    page = page_of(owner, sent(owner, "plain.csv", "Text\nOne.\nTwo.\n"))
    assert '<th scope="col">State</th>' not in page
    assert "more row" not in page
    assert "States:" not in page


def test_vault_is_counted_by_type_state_and_folder(owner):
    notes = {f"V__Notes__n{n}": f"# N{n}\n\nText {n}." for n in range(6)}
    notes |= {"V__Decisions__d": "---\nstatus: archived\n---\n# D\n\nBake.", "V__top": "# Top\n\nHere."}
    page = page_of(owner, sent(owner, "vault.zip", vault(**notes)))
    assert re.search(r"Folders: Decisions 1, Notes 6, the top folder 1\.", page), re.findall("Folders:[^<]*", page)
    assert "States: active 7, archived 1." in page
    assert page.count('<th scope="row">') >= 8
    assert "documents</dt><dd>documents" not in page


def test_form_stays_while_rows_are_read_again_and_takes_further_choices(owner, monkeypatch):
    job = sent(owner, "decisions.csv", TABLE)
    assert "Because 1" in page_of(owner, job)
    for module in (views, previews):
        monkeypatch.setattr(module, "preview_of", lambda job: None)
    names = ["Decision", "Text", "Status", "Who", "Day"]
    for fields in (["title", "content", "state", "tags", "created_at"], ["title", "content", "", "agent", ""]):
        owner.post(f"/imports/{job.pk}/columns/", {"column": names, "field": fields})
        page = page_of(owner, job)
        assert "are being read again" in page
        assert re.findall(r'<option value="([^"]*)" selected>', page)[:5] == fields
        assert 'hx-trigger="every 1s"' in page
        assert '<button class="button primary" disabled>' in page
    assert "There is no column" in html_of(
        owner.post(f"/imports/{job.pk}/columns/", {"column": ["Nope"], "field": ["title"]}, follow=True)
    )


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ("Text,Project\nOne.,a\nTwo.,b\n", "Each names its project; another one for all"),
        ("Text,Project\nOne.,a\nTwo.,\n", "Project of 1 memory that names none"),
        ("Text\nOne.\nTwo.\n", "Project of 2 memories that name none"),
    ],
)
def test_project_is_asked_for_those_that_name_none(owner, table, label):
    job = sent(owner, "some.csv", table)
    page = page_of(owner, job)
    assert label in page
    assert ('placeholder="default"' in page) == (not label.startswith("Each"))
    owner.post(f"/imports/{job.pk}/import/", {"project": "all", "only_project": "1"})
    jobs_run()
    job.refresh_from_db()
    assert job.state == "done"


def test_a_table_that_is_here_already_is_offered_the_project_that_it_is_in(owner):
    first = sent(owner, "decisions.csv", TABLE)
    owner.post(f"/imports/{first.pk}/import/", {"project": "choices"})
    jobs_run()
    again = sent(owner, "decisions.csv", TABLE)
    page = page_of(owner, again)
    assert "20, most in choices" in page
    assert 'value="choices"' in page
    owner.post(f"/imports/{again.pk}/import/", {"project": "choices"})
    jobs_run()
    assert ImportJob.objects.get(pk=again.pk).batch.unchanged == 20

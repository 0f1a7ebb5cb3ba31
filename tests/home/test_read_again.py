"""The rows of an imported table, read again in another way: memories change in place, edits made here stay."""

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from categories.models import Category
from curation.schemas import Retag
from curation.services import curation_apply, curation_plan
from memories.models import ImportBatch, Memory, Project
from memories.records import MemoryChanges
from memories.services import memory_delete, memory_update
from tests.home.conftest import make_previews_when_asked
from tests.html import html_of
from transfer.models import ImportJob
from transfer.process import jobs_run
from transfer.read_again import merge_lists

pytestmark = pytest.mark.django_db

TABLE = """Nr,Decision,Why,Area,Status,Day,Who,Replaced by
D1,Bake at night,Cheaper power.,Oven,superseded,01.02.2024,Ada,D3
D2,Rye on Monday,"People ask
for it.",Shop,active,05.02.2024,"Mio, Ada",
D3,Bake at noon,The oven is new.,Oven,active,13.03.2024,Mio,
D4,Close early,Nobody comes.,Shop,,07.04.2024,,
"""


@pytest.fixture(autouse=True)
def place(settings, tmp_path, monkeypatch):
    settings.HOME = tmp_path
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    make_previews_when_asked(monkeypatch)
    return tmp_path


@pytest.fixture
def owner():
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    return client


def job_of(response):
    return ImportJob.objects.get(pk=int(re.search(r"/imports/(\d+)/", response["Location"])[1]))


def bring_in(client, place, table=TABLE, project="bakery", **columns):
    """Import a table with these columns, and others guessed by their names."""
    path = place / "decisions.csv"
    path.write_text(table)
    with path.open("rb") as file:
        job = job_of(client.post("/imports/upload/", {"file": file}))
    return start(client, job, {"Decision": "title"} | columns, project=project)


def start(client, job, columns, **sent):
    if columns:
        choose(client, job, columns)
    client.post(f"/imports/{job.pk}/import/", {"project": job.project, **sent})
    jobs_run()
    job.refresh_from_db()
    assert (job.state, job.error) == ("done", "")
    return job


def choose(client, job, columns, **more):
    shown = client.get(f"/imports/{job.pk}/")
    names = re.findall(r'name="column" value="([^"]*)"', html_of(shown))
    fields = [columns.get(name, chosen_field(shown, name)) for name in names]
    client.post(f"/imports/{job.pk}/columns/", {"column": names, "field": fields, **more})
    job.refresh_from_db()
    assert job.columns == dict(zip(names, fields, strict=True))


def chosen_field(page, column):
    part = html_of(page).split(f'name="column" value="{column}"')[1].split("</select>")[0]
    found = re.search(r'<option value="([^"]*)" selected>', part)
    return found[1] if found else ""


def again(client, job):
    return job_of(client.post(f"/imports/{job.pk}/again/"))


def memories():
    return {memory.external_id or memory.title: memory for memory in Memory.objects.order_by("pk")}


def test_column_is_repaired_in_place_without_the_file_and_one_undo_takes_it_back(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Decision="title", Day="", Who="authors")
    assert not Path(job.path).exists()
    assert f"it is number {job.batch_id}." in html_of(owner.get(f"/imports/{job.pk}/"))
    before = {pk: row for pk, *row in Memory.objects.values_list("pk", "title", "created_at", "category_ids")}
    second = again(owner, job)
    page = owner.get(f"/imports/{second.pk}/")
    assert "Change 4 memories" in html_of(page)
    assert {name: chosen_field(page, name) for name in ("Why", "Nr", "Day", "Area")} == {
        "Why": "content",
        "Nr": "id",
        "Day": "",
        "Area": "",
    }
    start(owner, second, {"Area": "categories", "Day": "created_at"})
    rows = memories()
    assert set(before) == {memory.pk for memory in rows.values()}
    assert [str(rows[name].created_at.date()) for name in ("D1", "D2", "D3", "D4")] == [
        "2024-02-01",
        "2024-02-05",
        "2024-03-13",
        "2024-04-07",
    ]
    assert Category.objects.get(pk=rows["D1"].category_ids[0]).name == "Oven"
    assert (second.batch.created, second.batch.updated, second.batch.unchanged) == (0, 4, 0)
    owner.post(f"/imports/{second.pk}/undo/")
    jobs_run()
    assert {pk: row for pk, *row in Memory.objects.values_list("pk", "title", "created_at", "category_ids")} == before
    # And it can be repaired once more, from how it was read at first.
    third = again(owner, job)
    assert chosen_field(owner.get(f"/imports/{third.pk}/"), "Area") == ""


def test_text_and_title_change_places_and_no_memory_is_doubled(owner, place):
    job = bring_in(owner, place, Why="content", Decision="title", Nr="id")
    second = start(owner, again(owner, job), {"Why": "summary", "Decision": "content"})
    rows = memories()
    assert len(rows) == 4
    assert (rows["D2"].content, rows["D2"].summary) == ("Rye on Monday", "People ask\nfor it.")
    third = again(owner, second.__class__.objects.get(pk=job.pk))
    start(owner, third, {"Why": "content", "Decision": "title"})
    assert memories()["D2"].content == "People ask\nfor it."


@pytest.mark.parametrize("first", ['"",D0,Empty', ",,Empty", "a,b,c,d"])
def test_table_whose_first_row_is_refused_can_be_read_again(owner, place, first):
    job = bring_in(owner, place, f"Text,Nr,Why\n{first}\nRye.,D1,Cheap.\nOats.,D2,Dear.\n", Nr="id")
    assert (job.batch.created, job.batch.refused) == (2, 1)
    assert "column 'Nr' is read as id" in [one["note"] for one in job.batch.report["notes"]]
    start(owner, again(owner, job), {"Why": "summary"})
    assert {name: one.summary for name, one in memories().items()} == {"D1": "Cheap.", "D2": "Dear."}


def test_table_without_ids_gets_them_and_successors_by_them(owner, place):
    job = bring_in(owner, place, Why="content", Decision="title", Nr="", **{"Replaced by": "", "Status": ""})
    assert set(memories()) == {"Bake at night", "Rye on Monday", "Bake at noon", "Close early"}
    start(owner, again(owner, job), {"Nr": "id", "Replaced by": "superseded_by", "Status": "state"})
    rows = memories()
    assert set(rows) == {"D1", "D2", "D3", "D4"}
    assert (rows["D1"].state, rows["D1"].superseded_by_id) == ("superseded", rows["D3"].pk)
    second = ImportJob.objects.order_by("-pk").first()
    owner.post(f"/imports/{second.pk}/undo/")
    jobs_run()
    assert [(one.state, one.superseded_by_id, one.external_id) for one in memories().values()] == [
        ("active", None, "")
    ] * 4


def test_what_was_edited_here_stays_field_by_field_and_is_named(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Decision="title", Area="tags", Who="")
    rows = memories()
    changes = MemoryChanges(title="Bake by night", tags=["Oven", "mine"], authors=["Zoe"])
    memory_update(memory_id=rows["D1"].pk, changes=changes, viewer=command_viewer())
    memory_update(memory_id=rows["D2"].pk, changes=MemoryChanges(content="Mine."), viewer=command_viewer())
    second = start(owner, again(owner, job), {"Area": "", "Who": "authors", "Decision": "summary"})
    rows = memories()
    assert (rows["D1"].title, rows["D1"].tags, rows["D1"].summary) == ("Bake by night", ["mine"], "Bake at night")
    assert rows["D1"].authors == ["Zoe", "Ada"]
    assert (rows["D2"].content, rows["D2"].tags, rows["D2"].authors) == ("Mine.", [], ["Mio", "Ada"])
    notes = {one["location"]: one["note"] for one in second.batch.report["notes"]}
    assert notes[f"#{rows['D1'].pk}"] == "title: was edited here since, and stays as it is"


@pytest.mark.parametrize("how", ["retag", "move"])
def test_bulk_edits_stay_too(owner, place, how):
    job = bring_in(owner, place, Why="content", Nr="id", Area="type", Who="")
    pk = memories()["D2"].pk
    Project.objects.create(slug="attic", name="Attic")
    asked = Retag(memories=[pk], **({"set_type": "habit"} if how == "retag" else {"set_project": "attic"}))
    plan = curation_plan(operation=asked, viewer=command_viewer())
    curation_apply(operation=asked.model_copy(update={"token": plan.token}), viewer=command_viewer())
    start(owner, again(owner, job), {"Area": "categories", "Who": "authors"})
    memory = memories()["D2"]
    assert memory.authors == ["Mio", "Ada"]
    assert (memory.memory_type, memory.project.slug) == (("habit", "bakery") if how == "retag" else ("note", "attic"))


def test_project_changes_for_all_rows_or_by_a_column(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", project="decisons", **{"Replaced by": "superseded_by"})
    start(owner, again(owner, job), {}, project="decisions")
    assert {one.project.slug for one in memories().values()} == {"decisions"}
    client = again(owner, job)
    owner.post(f"/imports/{client.pk}/columns/", {})
    page = html_of(owner.get(f"/imports/{client.pk}/"))
    assert 'value="decisions"' in page
    # D1 is replaced by D3, and both are of the oven.
    start(owner, client, {"Area": "project"}, project="decisions")
    assert {name: one.project.slug for name, one in memories().items()} == {
        "D1": "oven",
        "D2": "shop",
        "D3": "oven",
        "D4": "shop",
    }


def test_parting_a_memory_from_its_successor_changes_nothing(owner, place):
    table = TABLE.replace("The oven is new.,Oven", "The oven is new.,Attic")
    job = bring_in(owner, place, table, Why="content", Nr="id", **{"Replaced by": "superseded_by"})
    second = again(owner, job)
    choose(owner, second, {"Area": "project"})
    owner.post(f"/imports/{second.pk}/import/", {"project": "bakery"})
    jobs_run()
    second.refresh_from_db()
    assert second.state == "failed"
    assert "move them to" in second.error
    assert {one.project.slug for one in memories().values()} == {"bakery"}
    # The job that failed is still one that reads rows again, not the import of these.
    assert "Undo the import" not in html_of(owner.get(f"/imports/{second.pk}/"))


def test_values_of_all_rows_and_the_order_of_dates_can_be_chosen_again(owner, place):
    table = "Text,When\nOne,03/04/2024\nTwo,05/06/2024\n"
    (place / "decisions.csv").write_text(table)
    with (place / "decisions.csv").open("rb") as file:
        job = job_of(owner.post("/imports/upload/", {"file": file}))
    choose(owner, job, {}, dates="day-first", all_type="decision")
    start(owner, job, {}, project="bakery")
    second = again(owner, job)
    page = html_of(owner.get(f"/imports/{second.pk}/"))
    assert '<option value="day-first" selected>' in page
    assert 'name="all_type" maxlength="200" value="decision"' in page
    choose(owner, second, {}, dates="month-first", all_type="habit")
    start(owner, second, {})
    assert [(str(one.created_at.date()), one.memory_type) for one in memories().values()] == [
        ("2024-03-04", "habit"),
        ("2024-05-06", "habit"),
    ]


def test_row_that_reads_as_before_is_unchanged_and_the_same_table_afterwards_too(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Who="")
    second = start(owner, again(owner, job), {"Who": "authors"})
    # D4 names nobody.
    assert (second.batch.updated, second.batch.unchanged) == (3, 1)
    third = bring_in(owner, place, Why="content", Nr="id", Who="authors")
    assert (third.batch.created, third.batch.updated, third.batch.unchanged) == (0, 0, 4)


def test_id_that_another_memory_has_is_left_out_with_a_note(owner, place):
    Project.objects.create(slug="bakery", name="Bakery")
    job = bring_in(owner, place, Why="content", Decision="title", Nr="")
    other = Memory.objects.get(title="Close early")
    memory_update(memory_id=other.pk, changes=MemoryChanges.model_validate({"id": "D1"}), viewer=command_viewer())
    second = start(owner, again(owner, job), {"Nr": "id"})
    first = Memory.objects.get(title="Bake at night")
    assert first.external_id == ""
    assert {"location": f"#{first.pk}", "note": f"id: 'D1' is that of #{other.pk}; left out"} in second.batch.report[
        "notes"
    ]


def test_undone_import_says_that_the_file_is_needed(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id")
    second = again(owner, job)
    owner.post(f"/imports/{job.pk}/undo/")
    jobs_run()
    page = html_of(owner.get(f"/imports/{job.pk}/"))
    assert "choose the file again" in page
    assert "Read again" not in page
    assert "has rows to read again" in html_of(owner.post(f"/imports/{job.pk}/again/", follow=True))
    owner.post(f"/imports/{second.pk}/import/", {"project": "bakery"})
    jobs_run()
    second.refresh_from_db()
    assert (second.state, "was undone: choose the file again" in second.error) == ("failed", True)
    assert not Memory.objects.exists()


def test_first_undo_refuses_after_a_repair_unless_forced(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Who="")
    start(owner, again(owner, job), {"Who": "authors"})
    owner.post(f"/imports/{job.pk}/undo/")
    jobs_run()
    job.refresh_from_db()
    assert job.error.startswith("3 memories were changed since")
    owner.post(f"/imports/{job.pk}/undo/", {"force": "1"})
    jobs_run()
    assert not Memory.objects.exists()


def test_other_formats_and_deleted_memories(owner, place):
    (place / "a.md").write_text("# Bread\n\nBake it.")
    with (place / "a.md").open("rb") as file:
        job = start(owner, job_of(owner.post("/imports/upload/", {"file": file})), {}, project="bakery")
    assert "Read again" not in html_of(owner.get(f"/imports/{job.pk}/"))
    table = bring_in(owner, place, Why="content", Nr="id", Who="")
    memory_delete(memory_id=memories()["D1"].pk, viewer=command_viewer(), reason="")
    start(owner, again(owner, table), {"Who": "authors"})
    assert (memories()["D1"].state, memories()["D1"].authors) == ("deleted", ["Ada"])


def test_members_repair_their_own_imports_in_projects_that_they_write(owner, place):
    bakery = Project.objects.create(slug="bakery", name="Bakery")
    user = User.objects.create_user("mio")
    Membership.objects.create(user=user, project=bakery, role="writer")
    client = Client()
    client.force_login(user)
    job = bring_in(client, place, Why="content", Nr="id", Who="")
    others = bring_in(owner, place, TABLE.replace("\nD", "\nE"), project="attic", Why="content", Nr="id")
    assert client.post(f"/imports/{others.pk}/again/").status_code == 404
    second = again(client, job)
    # A column that names other projects is refused row by row: nothing moves to where they may not write.
    start(client, second, {"Who": "authors", "Area": "project"}, project="bakery")
    assert second.batch.refused == 4
    assert set(Memory.objects.filter(external_id__startswith="D").values_list("project__slug", flat=True)) == {"bakery"}
    third = again(client, job)
    Membership.objects.filter(user=user).update(role="reader")
    client.post(f"/imports/{third.pk}/import/", {"project": "bakery"})
    jobs_run()
    third.refresh_from_db()
    assert third.state != "done"


def test_the_same_by_the_api(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Who="")
    key = make_key(name="k", scopes=["read", "write", "curate"], viewer=command_viewer(), every_project=True)
    client = Client(headers={"X-API-Key": key.raw})
    reply = client.post(f"/api/imports/{job.pk}/again", {}, "application/json")
    assert reply.status_code == 201, reply.content
    begun = reply.json()
    assert (begun["state"], begun["batch"], begun["rows_of"], begun["created"]) == ("ready", None, job.batch_id, 0)
    columns = {
        one["name"]: one["field"] for one in client.get(f"/api/imports/{begun['id']}").json()["preview"]["columns"]
    }
    client.patch(f"/api/imports/{begun['id']}", {"columns": columns | {"Who": "authors"}}, "application/json")
    client.post(f"/api/imports/{begun['id']}/start", {"project": "bakery"}, "application/json")
    jobs_run()
    done = client.get(f"/api/imports/{begun['id']}").json()
    assert (done["state"], done["updated"], done["created"], done["rows_of"]) == ("done", 3, 0, None)
    assert len(done["updated_ids"]) == 3
    assert client.post(f"/api/imports/{begun['id']}/again", {}, "application/json").status_code == 409


@pytest.mark.parametrize(
    ("mine", "old", "new", "merged"),
    [
        (["a"], ["a"], ["b"], ("b",)),
        (["a", "x"], ["a"], ["b"], ("x", "b")),
        (["x"], ["a"], ["b"], ("x", "b")),
        (["b"], ["a"], ["b"], ("b",)),
        ([], ["a"], ["a"], ()),
        (["a"], [], ["a"], ("a",)),
    ],
)
def test_lists_keep_what_was_added_and_removed_here(mine, old, new, merged):
    assert merge_lists(mine, old, new) == merged


def test_batches_have_the_readings_that_an_undo_restores(owner, place):
    job = bring_in(owner, place, Why="content", Nr="id", Who="")
    start(owner, again(owner, job), {"Who": "authors"})
    second = start(owner, again(owner, job), {"Who": "tags"})
    report = ImportBatch.objects.get(pk=job.batch_id).report
    assert report["reading"]["columns"]["Who"] == "tags"
    assert (memories()["D1"].tags, memories()["D1"].authors) == (["ada"], [])
    owner.post(f"/imports/{second.pk}/undo/")
    jobs_run()
    assert ImportBatch.objects.get(pk=job.batch_id).report["reading"]["columns"]["Who"] == "authors"
    assert memories()["D1"].authors == ["Ada"]

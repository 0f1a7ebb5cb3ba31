"""Writing and editing memories on pages: who may, what is refused, and how it is taken back."""

import html
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Membership
from memories.models import Memory, Project
from tests.html import html_of

pytestmark = pytest.mark.django_db


def signed_in(**roles):
    user = User.objects.create_user("-".join(roles) + "".join(roles.values()))
    for slug, role in roles.items():
        Membership.objects.create(user=user, project=Project.objects.get(slug=slug), role=role)
    client = Client()
    client.force_login(user)
    return client


def number(external_id):
    return Memory.objects.get(external_id=external_id).pk


def version_on(page):
    return re.search(r'name="version" value="([^"]+)"', html_of(page))[1]


@pytest.mark.parametrize("path", ["edit/", "state/"])
def test_memories_of_other_projects_are_not_found_and_those_one_reads_are_not_changed(corpus, path):
    client = signed_in(tea="curator", boat="reader")
    send = {"state": "archived", "content": "x", "field": "content"}
    assert client.post(f"/m/{number('b1')}/{path}", send).status_code == 403
    stranger = signed_in(tea="curator")
    assert stranger.post(f"/m/{number('b1')}/{path}", send).status_code == 404
    assert Memory.objects.get(external_id="b1").state == "active"
    assert "Edit tags" not in html_of(client.get(f"/m/{number('b1')}/"))
    assert "Edit tags" in html_of(client.get(f"/m/{number('t1')}/"))


def test_panel_of_a_memory_that_one_may_not_open_is_not_there(corpus):
    client = signed_in(tea="curator")
    shown = html_of(client.get(f"/explore/?sel={number('b1')}"))
    assert f"There is no memory {number('b1')} that you can see." in shown
    assert "Crane" not in shown
    headers = {"HX-Request": "true", "HX-Target": "panel"}
    assert client.get(f"/explore/?sel={number('b1')}", headers=headers).status_code == 404


def test_panel_fetches_the_memory_alone_and_names_its_address(corpus):
    headers = {"HX-Request": "true", "HX-Target": "panel"}
    response = signed_in(tea="curator").get(f"/explore/?tag=kettle&sel={number('t2')}", headers=headers)
    assert response.headers["HX-Push-Url"] == f"/explore/?tag=kettle&sel={number('t2')}"
    assert "2 of 2" in html_of(response)
    assert 'id="explorer"' not in html_of(response)


def test_only_the_changed_fields_are_written_and_one_step_takes_them_back(corpus):
    client = signed_in(tea="curator")
    address = f"/m/{number('t2')}/"
    page = client.get(f"{address}edit/")
    before = Memory.objects.get(external_id="t2")
    sent = {
        "version": version_on(page),
        "field": ["tags", "categories"],
        "tags": "kettle",
        "categories": "kitchen/oven",
    }
    assert client.post(f"{address}edit/", sent | {"next": address}).headers["Location"] == address
    after = Memory.objects.get(external_id="t2")
    assert (after.tags, after.title, len(after.category_ids)) == (["kettle"], before.title, 1)
    undo = re.search(r'action="(/m/[^"]+restore/[^"]+)"', html_of(client.get(address)))[1].replace("&amp;", "&")
    client.post(undo)
    assert Memory.objects.get(external_id="t2").tags == before.tags
    # The step back is for what was written then, not for later changes.
    Memory.objects.filter(external_id="t2").update(title="Another")
    client.post(undo)
    assert "was changed since you read it" in html_of(client.get(address))


def test_refused_text_stays_in_the_form(corpus):
    client = signed_in(tea="curator")
    response = client.post("/m/new/", {"project": "tea", "content": "Bought forty cups.", "title": "Cups", "tags": "a"})
    assert response.status_code == 422
    assert "already has a memory with this title and text" in html_of(response)
    assert "Bought forty cups." in html_of(response)
    elsewhere = client.post("/m/new/", {"project": "boat", "content": "Mine."})
    assert "Select a valid choice" in html_of(elsewhere)


def test_successor_starts_with_what_it_replaces_and_only_of_memories_one_may_write(corpus):
    client = signed_in(tea="curator")
    page = html_of(client.get(f"/m/new/?replaces={number('t4')}"))
    assert "Bought forty cups." in page
    assert f"#{number('t4')}" in page
    assert client.get(f"/m/new/?replaces={number('b1')}").status_code == 404
    assert signed_in(boat="reader").get("/m/new/").status_code == 403


def test_memory_is_replaced_by_another_and_comes_back(corpus):
    client = signed_in(tea="curator")
    address = f"/m/{number('t4')}/"
    version = version_on(client.get(address))
    sent = {"version": version, "field": "superseded_by", "superseded_by": f"#{number('t3')}"}
    client.post(f"{address}edit/", sent)
    assert Memory.objects.get(external_id="t4").superseded_by_id == number("t3")
    client.post(f"{address}state/", {"state": "active"})
    memory = Memory.objects.get(external_id="t4")
    assert (memory.state, memory.superseded_by_id) == ("active", None)


def whole_form(page):
    """The values that the form of a page sends if nothing is typed in it."""
    text = page.content.decode()
    form = text[text.index('<form class="edit"') :]
    sent = dict(re.findall(r'<input[^>]*?name="(\w+)"[^>]*?value="([^"]*)"', form))
    sent |= {name: "" for name in re.findall(r'<input type="text"[^>]*?name="(\w+)"', form) if name not in sent}
    sent |= {
        name: html.unescape(value).removeprefix("\n")
        for name, value in re.findall(r'<textarea[^>]*?name="(\w+)"[^>]*>(.*?)</textarea>', form, re.DOTALL)
    }
    for name, options in re.findall(r'<select[^>]*?name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        sent[name] = re.search(r'value="([^"]*)" selected', options)[1]
    return {name: html.unescape(value) for name, value in sent.items()}


def edited(client, which, **fields):
    address = f"/m/{number(which)}/"
    return client.post(f"{address}edit/", whole_form(client.get(f"{address}edit/")) | fields | {"next": address})


def test_form_that_is_sent_as_it_came_changes_nothing(corpus):
    client = signed_in(tea="curator")
    for external_id in ("t1", "t2", "t3", "t4"):
        before = Memory.objects.filter(external_id=external_id).values().get()
        assert edited(client, external_id).status_code == 302
        assert Memory.objects.filter(external_id=external_id).values().get() == before


def test_every_field_is_edited_and_one_step_takes_all_of_them_back(corpus):
    client = signed_in(tea="curator")
    address = f"/m/{number('t2')}/"
    before = Memory.objects.filter(external_id="t2").values().get()
    client.cookies["timezone"] = "Europe/Berlin"
    fields = {
        "created_at": "3. März 2024, 14:30",
        "happened_at": "2024-03-02",
        "valid_from": "1 March 2024",
        "valid_to": "2024-04-01T00:00Z",
        "state": "archived",
        "reason": "Too old.",
        "pinned": "on",
        "importance": "80 %",
        "confidence": "0,5",
        "authors": "Ann\nBen",
        "agent": "claude",
        "session": "s-9",
        "source": "notes",
        "source_url": "https://tea.example/x",
        "external_id": "t2-new",
        "links": f"caused-by: #{number('t3')}\nA leaf\nsee: RFC 9110 <https://rfc.example/9110>",
    }
    assert edited(client, "t2", **fields).status_code == 302
    stored = Memory.objects.get(external_id="t2-new")
    assert [f"{stored.created_at:%Y-%m-%d %H:%M}", f"{stored.happened_at:%d %H}"] == ["2024-03-03 13:30", "01 23"]
    assert [f"{stored.valid_from:%m-%d %H}", f"{stored.valid_to:%m-%d %H}"] == ["02-29 23", "04-01 00"]
    assert (stored.state, stored.state_reason, stored.pinned) == ("archived", "Too old.", True)
    assert (stored.importance, stored.confidence, stored.authors) == (0.8, 0.5, ["Ann", "Ben"])
    assert (stored.agent, stored.session.external_id, stored.source) == ("claude", "s-9", "notes")
    links = list(stored.links.order_by("ordinal").values_list("rel", "target", "url", "target_memory"))
    assert links[0] == ("caused-by", f"#{number('t3')}", "", number("t3"))
    assert links[1:] == [("links-to", "A leaf", "", None), ("see", "RFC 9110", "https://rfc.example/9110", None)]
    said = html_of(client.get(address))
    shown = html_of(client.get(f"{address}edit/"))
    assert 'value="2024-03-03 14:30"' in shown
    assert 'value="2024-03-02"' in shown
    undo = re.search(r'action="(/m/[^"]+restore/[^"]+)"', said)[1].replace("&amp;", "&")
    client.post(undo)
    changing = {"updated_at", "terms"}
    after = Memory.objects.filter(pk=before["id"]).values().get()
    assert {name: after[name] for name in after if name not in changing} == {
        name: value for name, value in before.items() if name not in changing
    }


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("created_at", "03/04/2024", "may have the day or the month first"),
        ("created_at", "soon", "is not a date"),
        ("created_at", "", "Cannot be empty"),
        ("happened_at", "31 February 2024", "is not a date"),
        ("valid_to", "1999-01-01", "Is before valid_from"),
        ("importance", "very", "is not a share"),
        ("confidence", "120 %", "is not a share"),
        ("superseded_by", "#999999", "is not a memory of this project"),
        ("external_id", "t1", "already has a memory with the id"),
        ("project", "boat", "Select a valid choice"),
        ("agent", "a" * 201, "up to 200 are allowed"),
        ("links", "x" * 501, "up to 500 are allowed"),
    ],
)
def test_refused_value_is_named_at_its_field_and_nothing_is_written(corpus, field, typed, said):
    client = signed_in(tea="curator", boat="reader")
    Memory.objects.filter(external_id="t2").update(valid_from="2024-01-01T00:00Z")
    before = Memory.objects.filter(external_id="t2").values().get()
    response = edited(client, "t2", **{field: typed, "title": "Another"})
    page = html_of(response)
    assert response.status_code == 422
    assert Memory.objects.filter(external_id="t2").values().get() == before
    place = page.index(f'class="field field-{field}"')
    own = page[place : page.find('class="field field-', place + 10)]
    assert said in html.unescape(own if field != "external_id" else page)
    assert "Another" in page


def test_form_of_an_older_page_clears_nothing_that_it_does_not_have(corpus):
    client = signed_in(tea="curator")
    Memory.objects.filter(external_id="t2").update(pinned=True, authors=["Ann"])
    address = f"/m/{number('t2')}/edit/"
    client.post(address, {"version": version_on(client.get(address)), "title": "Another", "content": "Text."})
    stored = Memory.objects.get(external_id="t2")
    assert (stored.title, stored.content, stored.pinned, stored.authors) == ("Another", "Text.", True, ["Ann"])


def test_two_people_who_edit_at_once_see_both_texts_and_neither_is_lost(corpus):
    first, second = signed_in(tea="curator"), signed_in(tea="writer")
    page = whole_form(second.get(f"/m/{number('t2')}/edit/"))
    assert edited(first, "t2", valid_to="2030-01-01", authors="Ann").status_code == 302
    response = second.post(f"/m/{number('t2')}/edit/", page | {"valid_to": "2031-02-03"})
    shown = html_of(response)
    assert response.status_code == 422
    assert 'value="2031-02-03"' in shown
    assert "Saving it again replaces what is stored now" in shown
    assert "<del>2030-01-01</del>" in shown
    assert f"{Memory.objects.get(external_id='t2').valid_to:%Y}" == "2030"


def test_memory_moves_to_a_project_that_one_may_write_and_back(corpus):
    client = signed_in(tea="curator", boat="curator")
    assert edited(client, "t2", project="boat").status_code == 302
    memory = Memory.objects.get(external_id="t2")
    assert memory.project.slug == "boat"
    address = f"/m/{memory.pk}/"
    assert signed_in(tea="reader").get(address).status_code == 404
    # Readers of the new project alone do not see where it comes from.
    page = html_of(signed_in(boat="reader").get(address))
    assert "another project" in page
    shown = html_of(client.get(address))
    undo = re.search(r'action="(/m/[^"]+restore/[^"]+)"', shown)[1].replace("&amp;", "&")
    # Whoever may write one of the two cannot move it back.
    signed_in(boat="curator").post(undo)
    assert Memory.objects.get(pk=memory.pk).project.slug == "boat"
    client.post(undo)
    assert Memory.objects.get(pk=memory.pk).project.slug == "tea"

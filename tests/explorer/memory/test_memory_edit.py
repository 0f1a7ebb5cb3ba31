"""Writing and editing memories on pages: who may, what is refused, and how it is taken back."""

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

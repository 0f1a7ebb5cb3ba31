"""Forms that cannot be taken, since a session ended or began meanwhile, are offered to be sent again."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from memories.models import Memory, Project

TYPED = "\nA line that was typed,\r\nand <another> & more."
SITE = {"HTTP_ORIGIN": "http://testserver"}


@pytest.fixture
def writer(db):
    Project.objects.create(slug="tea", name="Tea")
    return User.objects.create_superuser("writer", password="opensesame")


@pytest.fixture
def browser(writer):
    client = Client(enforce_csrf_checks=True)
    client.force_login(writer)
    return client


def token_of(page):
    return re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.content.decode())[1]


def kept_fields(page):
    found = re.findall(r'<textarea name="(\w+)" hidden>\n(.*?)</textarea>', page.content.decode(), re.DOTALL)
    unescaped = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&#x27;": "'", "&quot;": '"'}
    return {name: re.sub("|".join(unescaped), lambda match: unescaped[match[0]], value) for name, value in found}


def form(client):
    return {"csrfmiddlewaretoken": token_of(client.get("/m/new/")), "project": "tea", "content": TYPED, "type": "note"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda browser, writer: browser.force_login(writer), id="signed in again"),
        pytest.param(lambda browser, writer: browser.logout(), id="signed out"),
        pytest.param(lambda browser, writer: browser.cookies.clear(), id="cookies deleted"),
        pytest.param(lambda browser, writer: browser.session.flush(), id="session ended"),
    ],
)
def test_what_was_typed_is_stored_after_signing_in_again(browser, writer, change):
    typed = form(browser)
    change(browser, writer)
    # Django's own client changes no token: a browser that signs in gets another.
    browser.cookies.pop(next((name for name in browser.cookies if name.startswith("csrftoken")), ""), None)
    page = browser.post("/m/new/", typed, **SITE)
    assert page.status_code == 403
    assert "Nothing was saved yet" in page.text
    assert kept_fields(page)["content"] == TYPED
    assert Memory.objects.count() == 0
    browser.force_login(writer)
    again = browser.post(
        "/m/new/", {**kept_fields(page), "csrfmiddlewaretoken": form(browser)["csrfmiddlewaretoken"]}, **SITE
    )
    assert again.status_code == 302
    assert "A line that was typed" in Memory.objects.get().content


def test_form_without_a_session_is_kept_where_its_token_is_good(browser):
    typed = form(browser)
    browser.cookies.pop(next(name for name in browser.cookies if name.startswith("sessionid")))
    page = browser.post("/m/new/", typed, **SITE)
    assert (page.status_code, kept_fields(page)["content"]) == (403, TYPED)
    assert "Sign in" in page.text


@pytest.mark.parametrize(
    "origin", [{"HTTP_ORIGIN": "http://elsewhere.example"}, {"HTTP_ORIGIN": "null"}, {}], ids=["other", "null", "none"]
)
def test_form_of_another_site_is_not_offered(browser, origin):
    page = browser.post("/m/new/", {"content": "forged"}, **origin)
    assert page.status_code == 403
    assert "forged" not in page.content.decode()
    assert "You cannot open this page" in page.text


def test_passwords_and_files_are_not_kept(browser, writer, jsonl):
    page = browser.post(reverse("access:sign_in"), {"username": "writer", "password": "opensesame"}, **SITE)
    assert "opensesame" not in page.content.decode()
    assert "Passwords are not kept" in page.text
    with jsonl({"content": "x"}).open("rb") as file:
        page = browser.post(reverse("imports:upload"), {"file": file}, **SITE)
    assert "choose memories.jsonl again" in page.text


def test_signing_out_leads_to_the_sign_in_page(client, writer):
    client.force_login(writer)
    assert client.post(reverse("access:sign_out")).status_code == 302

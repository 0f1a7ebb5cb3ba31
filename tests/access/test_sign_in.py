"""One-time links and the sign-in page."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from access.forms import PER_ACCOUNT, PER_ADDRESS
from access.models import AuditEvent, SignInToken
from access.sign_in import (
    browser_cookie,
    owner_ensure,
    owner_to_sign_in,
    sign_in_link,
    sign_in_token_issue,
    sign_in_token_redeem,
    superuser_with_password_exists,
)
from tests.html import html_of

pytestmark = pytest.mark.django_db
SIGN_IN = "/sign-in/"


@pytest.fixture
def owner():
    owner_ensure()
    return User.objects.get(username="owner")


def signed_in(client):
    return client.session.get("_auth_user_id")


def test_link_signs_in_and_leads_to_the_home_page(client, owner):
    link = urlsplit(sign_in_link(user=owner, site="http://127.0.0.1:8000"))
    response = client.get(f"{link.path}?{link.query}")
    assert (response.status_code, response["Location"]) == (302, "/")
    assert signed_in(client) == str(owner.pk)
    assert "no-store" in response["Cache-Control"]


def test_link_works_once(client, owner):
    token = sign_in_token_issue(user=owner)
    assert client.get(SIGN_IN, {"token": token}).status_code == 302
    client.post("/sign-out/")
    response = client.get(SIGN_IN, {"token": token})
    assert response.status_code == 403
    assert signed_in(client) is None
    assert "no longer works" in html_of(response)
    assert "manage.py sign_in_link" in html_of(response)


def test_link_expires_after_an_hour(client, owner):
    token = sign_in_token_issue(user=owner)
    SignInToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get(SIGN_IN, {"token": token}).status_code == 403
    assert signed_in(client) is None


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("guess", id="unknown"),
        pytest.param("x" * 10_000, id="long"),
        pytest.param("\ud800\x00", id="not text"),
    ],
)
def test_wrong_token_is_refused(owner, token):
    assert sign_in_token_redeem(token) is None


def test_token_of_somebody_who_was_switched_off_is_refused(owner):
    token = sign_in_token_issue(user=owner)
    User.objects.update(is_active=False)
    assert sign_in_token_redeem(token) is None


def test_only_the_hash_of_a_token_is_stored(owner):
    token = sign_in_token_issue(user=owner)
    stored = SignInToken.objects.get()
    assert token not in {stored.token_hash, str(stored)}
    assert len(stored.token_hash) == 64
    assert stored.expires_at - stored.created_at < timedelta(hours=1, seconds=1)


def test_old_tokens_are_cleared_away_when_a_new_one_is_made(owner):
    sign_in_token_issue(user=owner)
    SignInToken.objects.update(expires_at=timezone.now() - timedelta(days=2))
    sign_in_token_issue(user=owner)
    assert SignInToken.objects.count() == 1


def test_password_form_signs_in_and_goes_where_the_visitor_wanted(client):
    User.objects.create_user("ada", password="a long enough one")
    page = client.get(SIGN_IN, {"next": "/explore/?q=tea"})
    assert 'name="next" value="/explore/?q=tea"' in html_of(page)
    response = client.post(SIGN_IN, {"username": "ada", "password": "a long enough one", "next": "/explore/?q=tea"})
    assert response["Location"] == "/explore/?q=tea"


@pytest.mark.parametrize("elsewhere", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"])
def test_sign_in_never_leads_to_another_site(client, owner, elsewhere):
    token = sign_in_token_issue(user=owner)
    assert client.get(SIGN_IN, {"token": token, "next": elsewhere})["Location"] == "/"
    assert "elsewhere" not in html_of(client.get(SIGN_IN, {"next": elsewhere}))


def test_wrong_password_says_so(client):
    User.objects.create_user("ada", password="a long enough one")
    response = client.post(SIGN_IN, {"username": "ada", "password": "wrong"})
    assert response.status_code == 200
    assert "correct username and password" in html_of(response)
    assert signed_in(client) is None


@pytest.mark.parametrize("address", [SIGN_IN, "/admin/login/"])
def test_guessing_a_password_is_slowed_down_without_looking_at_it(client, monkeypatch, address):
    User.objects.create_superuser("ada", password="a long enough one")
    for _ in range(PER_ACCOUNT):
        client.post(address, {"username": "ada", "password": "wrong"})
    # Not even the right one is compared, under no spelling of the name and from no other address.
    with monkeypatch.context() as patch:
        patch.setattr(User, "check_password", None)
        response = client.post(address, {"username": "ADA", "password": "a long enough one"}, REMOTE_ADDR="192.0.2.7")
    assert response.status_code == (429 if address == SIGN_IN else 200)
    assert "Too many wrong passwords. Wait " in html_of(response)
    assert signed_in(client) is None


RIGHT = {"username": "ada", "password": "a long enough one"}


def guess(browser, name="ada", times=PER_ACCOUNT, **where):
    """Guess a password; the status of the last answer."""
    return [browser.post(SIGN_IN, {"username": name, "password": "wrong"}, **where).status_code for _ in range(times)][
        -1
    ]


@pytest.fixture
def adas():
    """A browser with which ada has signed in, and out."""
    User.objects.create_superuser("ada", password=RIGHT["password"])
    browser = Client()
    assert browser.post(SIGN_IN, RIGHT).status_code == 302
    browser.post("/sign-out/")
    return browser


@pytest.mark.parametrize("address", ["192.0.2.7", "127.0.0.1"])
def test_guesses_of_others_do_not_lock_an_account_where_it_has_signed_in(client, adas, address):
    for number in range(PER_ADDRESS):
        guess(client, f"user{number}", times=1, REMOTE_ADDR="127.0.0.1")
    guess(client, times=PER_ACCOUNT + 5, REMOTE_ADDR=address)
    assert client.post(SIGN_IN, RIGHT, REMOTE_ADDR=address).status_code == 429
    assert adas.post(SIGN_IN, RIGHT).status_code == 302
    assert signed_in(adas) is not None
    wrong = adas.post(ACCOUNT, new_password("a guess"))
    assert "old password was entered incorrectly" in html_of(wrong)


def test_known_browser_guesses_no_more_than_others_and_for_its_account_alone(client, adas):
    User.objects.create_user("ben", password=RIGHT["password"])
    assert guess(adas, times=PER_ACCOUNT + 1) == 429
    assert client.post(SIGN_IN, RIGHT).status_code == 302
    assert guess(adas, "ben") == 200
    assert adas.post(SIGN_IN, {**RIGHT, "username": "ben"}).status_code == 429


@pytest.mark.parametrize("change", [lambda value: value[:-4], lambda value: "", lambda value: "x" * 5_000])
def test_browser_is_known_by_what_was_signed_here(client, adas, change):
    guess(client, times=PER_ACCOUNT + 1)
    adas.cookies[browser_cookie()] = change(adas.cookies[browser_cookie()].value)
    assert adas.post(SIGN_IN, RIGHT, REMOTE_ADDR="192.0.2.8").status_code == 429


def test_guessing_many_accounts_from_one_address_is_slowed_down(client):
    for number in range(PER_ADDRESS):
        client.post(SIGN_IN, {"username": f"user{number}", "password": "wrong"})
    assert client.post(SIGN_IN, {"username": "ada", "password": "wrong"}).status_code == 429
    elsewhere = client.post(SIGN_IN, {"username": "ada", "password": "wrong"}, REMOTE_ADDR="192.0.2.7")
    assert elsewhere.status_code == 200


def test_address_that_is_refused_locks_no_account_for_others(client):
    User.objects.create_user("ada", password="a long enough one")
    for number in range(PER_ADDRESS):
        client.post(SIGN_IN, {"username": f"user{number}", "password": "wrong"})
    for _ in range(PER_ACCOUNT):
        assert client.post(SIGN_IN, {"username": "ada", "password": "wrong"}).status_code == 429
    right = {"username": "ada", "password": "a long enough one"}
    assert client.post(SIGN_IN, right, REMOTE_ADDR="192.0.2.7").status_code == 302


def test_right_password_forgives_the_wrong_ones_before(client):
    User.objects.create_user("ada", password="a long enough one")
    for _ in range(3):
        for _ in range(PER_ACCOUNT - 1):
            client.post(SIGN_IN, {"username": "ada", "password": "wrong"})
        response = client.post(SIGN_IN, {"username": "ada", "password": "a long enough one"})
        assert response.status_code == 302


def test_sign_out_takes_a_post(client, owner):
    client.force_login(owner)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/")["Location"] == reverse("access:sign_in")
    assert signed_in(client) is None


def test_owner_is_made_only_where_nobody_is():
    User.objects.create_user("ada")
    owner_ensure()
    assert list(User.objects.values_list("username", flat=True)) == ["ada"]
    assert owner_to_sign_in() is None


def test_owner_has_no_password_that_works(owner):
    assert owner.is_superuser
    assert not owner.has_usable_password()
    assert not superuser_with_password_exists()
    owner.set_password("a long enough one")
    owner.save()
    assert superuser_with_password_exists()


def test_sign_in_link_command_prints_a_link_that_works(client, owner, capsys):
    call_command("sign_in_link", site="http://127.0.0.1:9000/")
    link = capsys.readouterr().out.strip()
    assert link.startswith("http://127.0.0.1:9000/sign-in/?token=")
    assert client.get(link.removeprefix("http://127.0.0.1:9000")).status_code == 302


# --- the page of one's account -----------------------------------------------------------------------------------

ACCOUNT = "/settings/account/"


def new_password(old, new="correct horse battery"):
    return {"old_password": old, "new_password1": new, "new_password2": new}


def test_password_is_changed_by_whoever_knows_it(client):
    user = User.objects.create_user("ada", password="the one before")
    client.force_login(user)
    elsewhere = Client()
    elsewhere.force_login(user)
    wrong = client.post(ACCOUNT, new_password("a guess"))
    assert wrong.status_code == 422
    assert "old password was entered incorrectly" in html_of(wrong)
    assert client.post(ACCOUNT, new_password("the one before", "short")).status_code == 422
    assert client.post(ACCOUNT, new_password("the one before"))["Location"] == ACCOUNT
    assert client.get(ACCOUNT).status_code == 200
    assert elsewhere.get(ACCOUNT)["Location"].startswith(SIGN_IN)
    user.refresh_from_db()
    assert user.check_password("correct horse battery")
    assert AuditEvent.objects.filter(verb="user_change", note="password", user=user).count() == 1


def test_guesses_at_the_present_password_are_counted(client):
    client.force_login(User.objects.create_user("ada", password="the one before"))
    for _ in range(PER_ACCOUNT):
        client.post(ACCOUNT, new_password("a guess"))
    assert "Too many wrong passwords" in html_of(client.post(ACCOUNT, new_password("the one before")))


def test_looking_at_a_link_without_opening_it_uses_nothing_up(client, owner):
    token = sign_in_token_issue(user=owner)
    assert client.head(SIGN_IN, {"token": token}).status_code == 200
    assert signed_in(client) is None
    assert client.get(SIGN_IN, {"token": token}).status_code == 302


def test_account_without_a_password_is_told_who_can_set_one(client, owner):
    client.force_login(owner)
    page = html_of(client.get(ACCOUNT))
    assert "changepassword owner" in page
    assert "old_password" not in page
    assert client.post(ACCOUNT, new_password("")).status_code == 200
    owner.refresh_from_db()
    assert not owner.has_usable_password()


def test_sign_in_link_command_names_what_is_missing(owner):
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("sign_in_link", user="nobody")
    User.objects.all().delete()
    with pytest.raises(CommandError, match="createsuperuser"):
        call_command("sign_in_link")


def test_spent_link_does_no_harm_to_somebody_who_is_signed_in(client, owner):
    token = sign_in_token_issue(user=owner)
    client.get(SIGN_IN, {"token": token})
    assert client.get(SIGN_IN, {"token": token})["Location"] == "/"

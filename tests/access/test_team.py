"""Serving a team: links that nobody else can open are marked, and the page that checks each setting."""

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Invitation, Membership
from access.team import SiteState, missing_lines, team_steps, wanted_site
from memories.models import Project
from tests.html import html_of

pytestmark = pytest.mark.django_db
PAGE, PEOPLE = "/settings/serve/", "/people/"

# Nothing is set, as after the first start.
FRESH = SiteState(
    public_url="",
    reached="http://127.0.0.1:8000",
    is_secure=False,
    client="127.0.0.1",
    has_secret=False,
    behind_proxy=False,
    proxies="",
    secure_cookies=False,
    hsts_seconds=0,
    debug=False,
    admins_with_password=0,
    people=1,
    invitations=0,
    oidc_issuer="",
    oidc_domains=(),
    gives_roles=False,
)
SERVED = replace(
    FRESH,
    public_url="https://memories.example",
    reached="https://memories.example",
    is_secure=True,
    client="203.0.113.7",
    has_secret=True,
    behind_proxy=True,
    secure_cookies=True,
    hsts_seconds=31_536_000,
    admins_with_password=1,
    people=4,
)


@pytest.fixture
def project():
    return Project.objects.create(slug="tea", name="Tea")


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def root():
    return signed_in(User.objects.create_superuser("root", password="a long pass phrase"))


def invite(client, project):
    return html_of(client.post(PEOPLE, {"role": "reader", "projects": [project.pk], "expires": "7"}))


def test_fresh_site_lacks_all_and_a_served_one_nothing():
    steps = team_steps(FRESH)
    assert [(step.key, step.is_done) for step in steps] == [("address", False), ("https", False), ("sign-in", False)]
    lines = missing_lines(steps)
    assert [line.partition("=")[0] for line in lines] == [
        "PUBLIC_URL",
        "SECRET_KEY",
        "BEHIND_TLS_PROXY",
        "HSTS_SECONDS",
    ]
    assert "PUBLIC_URL=https://team.example" in missing_lines(team_steps(FRESH, "https://team.example"))
    done = team_steps(SERVED)
    assert all(step.is_done for step in done)
    assert missing_lines(done) == []
    assert {check.state for step in done for check in step.checks} == {"ok"}


@pytest.mark.parametrize(
    ("change", "step", "state", "text", "line"),
    [
        pytest.param({"public_url": ""}, "address", "missing", "PUBLIC_URL is not set", "PUBLIC_URL", id="no-address"),
        pytest.param(
            {"public_url": "http://localhost", "reached": "http://localhost"},
            "address", "missing", "only this machine", "PUBLIC_URL", id="loopback",
        ),
        pytest.param(
            {"public_url": "http://192.168.1.20", "reached": "http://192.168.1.20"},
            "address", "advice", "the same network", "PUBLIC_URL", id="private",
        ),
        pytest.param(
            {"reached": "http://127.0.0.1"}, "address", "advice", "Open the address of PUBLIC_URL", "", id="past-it"
        ),
        pytest.param({"has_secret": False}, "address", "advice", "SECRET_KEY is not set", "SECRET_KEY", id="no-secret"),
        pytest.param({"debug": True}, "address", "missing", "DEBUG is on", "DEBUG", id="debug"),
        pytest.param(
            {"behind_proxy": False}, "https", "missing", "BEHIND_TLS_PROXY is off", "BEHIND_TLS_PROXY", id="no-proxy"
        ),
        pytest.param({"is_secure": False}, "https", "missing", "does not send X-Forwarded-Proto", "", id="no-header"),
        pytest.param({"secure_cookies": False}, "https", "missing", "cookies are sent", "SECURE_COOKIES", id="cookies"),
        pytest.param({"client": "127.0.0.1"}, "https", "advice", "does not send X-Forwarded-For", "", id="no-client"),
        pytest.param({"hsts_seconds": 0}, "https", "advice", "HSTS_SECONDS is 0", "HSTS_SECONDS", id="no-hsts"),
        pytest.param({"admins_with_password": 0}, "sign-in", "missing", "has a password", "", id="no-password"),
        pytest.param(
            {"oidc_issuer": "https://login.example", "gives_roles": True},
            "sign-in", "advice", "everybody whom the provider knows", "OIDC_ALLOWED_DOMAINS", id="open-provider",
        ),
        pytest.param(
            {"oidc_issuer": "https://login.example", "oidc_domains": ("tea.example",)},
            "sign-in", "advice", "an admin gives each person a role", "", id="provider-without-roles",
        ),
        pytest.param({"people": 1}, "sign-in", "advice", "Invite somebody", "", id="alone"),
    ],
)  # fmt: skip
def test_each_setting_is_checked_by_itself(change, step, state, text, line):
    steps = team_steps(replace(SERVED, **change))
    wrong = [(one.key, check.state, check.text) for one in steps for check in one.checks if not check.holds]
    assert [(key, found) for key, found, _ in wrong] == [(step, state)]
    assert text in wrong[0][2]
    assert [one.partition("=")[0] for one in missing_lines(steps)] == ([line] if line else [])


@pytest.mark.parametrize(
    "text", ["memories.example", "http://memories.example", "https://127.0.0.1", "https://nas", "https://a.lan", "x y"]
)
def test_address_that_others_cannot_open_is_refused(root, text):
    with pytest.raises(ValueError, match="is not an address that others can open"):
        wanted_site(text)
    reply = root.get(PAGE, {"address": text})
    assert reply.status_code == 422
    assert "is not an address that others can open" in html_of(reply)


def test_page_shows_the_settings_as_they_are_and_the_texts_for_an_address(root, settings):
    page = html_of(root.get(PAGE))
    assert "others cannot reach this site safely" in page
    assert "PUBLIC_URL is not set" in page
    assert "1 person who administers everything can sign in with a password." in page
    page = root.get(PAGE, {"address": "https://tea.example/"}).content.decode()
    assert "PUBLIC_URL=https://tea.example" in page
    assert "tea.example {\n    reverse_proxy 127.0.0.1:8000" in page
    assert "https://tea.example/sign-in/oidc/callback/" in page
    settings.PUBLIC_URL, settings.BEHIND_TLS_PROXY = "https://memories.example", True
    page = html_of(root.get(PAGE, headers={"x-forwarded-proto": "https"}))
    assert "PUBLIC_URL is https://memories.example" in page
    assert "BEHIND_TLS_PROXY is on" in page


def test_page_is_for_those_who_administer_everything(root, project):
    admin = User.objects.create_user("admin")
    Membership.objects.create(user=admin, project=project, role="admin")
    assert root.get(PAGE).status_code == 200
    assert signed_in(admin).get(PAGE).status_code == 403
    assert Client().get(PAGE).status_code == 302
    assert f'href="{PAGE}"' not in html_of(signed_in(admin).get(PEOPLE))
    assert f'href="{PAGE}"' in html_of(root.get(PEOPLE))


@pytest.mark.parametrize(
    ("address", "warnings"),
    [
        pytest.param("http://127.0.0.1:8000", ["Only this machine can open it"], id="loopback"),
        pytest.param("https://nas.local", ["Only machines in the same network"], id="network"),
        pytest.param(
            "http://192.168.1.20:8000", ["Only machines in the same network", "It is not encrypted"], id="plain-network"
        ),
        pytest.param("http://memories.example", ["It is not encrypted"], id="plain"),
        pytest.param("https://memories.example", [], id="good"),
    ],
)
def test_invitation_says_who_cannot_open_it(root, project, settings, address, warnings):
    settings.PUBLIC_URL = address
    page = invite(root, project)
    assert f'value="{address}/join/' in page
    known = ["Only this machine can open it", "Only machines in the same network", "It is not encrypted"]
    assert [text for text in known if text in page] == warnings
    assert Invitation.objects.count() == 1


def test_admin_of_a_project_learns_the_setting_without_the_page(project, settings):
    settings.PUBLIC_URL = "http://127.0.0.1:8000"
    admin = User.objects.create_user("admin")
    Membership.objects.create(user=admin, project=project, role="admin")
    page = invite(signed_in(admin), project)
    assert "Only this machine can open it" in page
    assert "Whoever runs this site can change that" in page
    assert PAGE not in page

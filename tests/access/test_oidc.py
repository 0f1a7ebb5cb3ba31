"""Signing in through an OpenID Connect provider: a real server, and a provider that signs identities."""

import base64
import hashlib
import html
import json
import re
import secrets
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.config.conftest import folder_for_a_server
from tests.config.test_up import LINK, Up, command, free_port, query

pytestmark = pytest.mark.release

CLIENT, SECRET = "mnemoscope", "a secret of the two"


class Issuer(ThreadingHTTPServer):
    """A provider whose only user is whoever `claims` describes, and who agrees to everything."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Endpoints)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = self.signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.codes, self.claims, self.asked = {}, {}, {}

    def identity(self):
        now = int(time.time())
        about = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 60, **self.claims}
        return jwt.encode(about, self.signing_key, algorithm="RS256", headers={"kid": "1"})


class Endpoints(BaseHTTPRequestHandler):
    """Its endpoints, with the checks that providers make."""

    server: Issuer

    def log_message(self, *arguments):
        pass

    def reply(self, value, status=200, **headers):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        at, issuer = urlsplit(self.path), self.server
        match at.path:
            case "/.well-known/openid-configuration":
                names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
                found = {f"{name}_endpoint": f"{issuer.address}/{path}" for name, path in names.items()}
                self.reply({"issuer": issuer.address, "jwks_uri": f"{issuer.address}/jwks", **found})
            case "/jwks":
                public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(issuer.key.public_key()))
                self.reply({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]})
            case "/userinfo":
                self.reply(issuer.claims)
            case "/authorize":
                asked = issuer.asked = {name: values[0] for name, values in parse_qs(at.query).items()}
                code = secrets.token_hex(8)
                issuer.codes[code] = asked
                back = urlencode({"code": code, "state": asked["state"]})
                self.reply({}, 302, Location=f"{asked['redirect_uri']}?{back}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = {name: values[0] for name, values in parse_qs(body).items()}
        asked = self.server.codes.pop(sent["code"])
        digest = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        right = (CLIENT, SECRET, asked["redirect_uri"], asked["code_challenge"])
        if (sent["client_id"], sent["client_secret"], sent["redirect_uri"], digest) != right:
            self.reply({"error": "invalid_grant"}, 400)
            return
        self.reply({"access_token": "x", "token_type": "Bearer", "id_token": self.server.identity()})


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def server(issuer):
    """A server that people of example.org may sign in to."""
    with folder_for_a_server() as folder:
        run = Up(
            folder / "home",
            free_port(),
            SEARCH_ENGINE="postgres",
            OIDC_ISSUER=issuer.address,
            OIDC_CLIENT_ID=CLIENT,
            OIDC_CLIENT_SECRET=SECRET,
            OIDC_NAME="Example",
            OIDC_ALLOWED_DOMAINS="example.org",
            OIDC_ROLES="groups:leads=admin@*,groups:wardens=writer@refuge",
        )
        try:
            # A busy machine takes long to prepare an empty home.
            run.wait_for(LINK, 300)
            yield run
        finally:
            run.end(signal.SIGTERM)


@pytest.fixture
def sign_in(server, issuer):
    """Sign in as whoever has these claims: the browser, and the page that it ends at."""
    browsers = []

    def as_(**claims):
        verified = {"email": f"{claims.get('preferred_username')}@example.org", "email_verified": True}
        issuer.claims = {**verified, **claims}
        browsers.append(httpx2.Client(base_url=f"http://127.0.0.1:{server.port}", follow_redirects=True, timeout=60))
        return browsers[-1], browsers[-1].get("/sign-in/oidc/?next=/explore/?q=tea")

    issuer.signing_key = issuer.key
    yield as_
    for browser in browsers:
        browser.close()


def roles(server, username):
    """The role of a person in the project refuge, and the number of projects in which they have one."""
    of = f"FROM access_membership m JOIN auth_user u ON u.id = m.user_id WHERE u.username = '{username}'"
    refuge = "AND m.project_id = (SELECT id FROM memories_project WHERE slug = 'refuge')"
    return query(server.home, f"SELECT max(role) {of} {refuge}"), query(server.home, f"SELECT count(*) {of}")


def test_claims_give_roles_at_every_time_of_signing_in(server, issuer, sign_in):
    browser, page = sign_in(sub="7", preferred_username="ada", groups=["wardens"])
    assert (page.status_code, page.url.path, page.url.params["q"]) == (200, "/explore/", "tea")
    assert issuer.asked["code_challenge_method"] == "S256"
    assert roles(server, "ada") == ("writer", 1)
    assert browser.get("/people/").status_code == 403
    browser, _ = sign_in(sub="7", preferred_username="renamed", groups=["wardens", "leads"])
    everywhere = query(server.home, "SELECT count(*) FROM memories_project")
    assert roles(server, "ada") == ("admin", everywhere)
    assert browser.get("/people/").status_code == 200
    browser, page = sign_in(sub="7", preferred_username="ada", groups=[])
    assert (page.status_code, roles(server, "ada")) == (200, (None, 0))
    assert browser.get("/api/search").status_code == 403
    assert query(server.home, "SELECT count(*) FROM auth_user WHERE username = 'renamed'") == 0
    made = "FROM access_auditevent WHERE verb = 'user_create' AND after ->> 'username' = 'ada'"
    assert query(server.home, f"SELECT string_agg(note, ',') {made}") == "Example"


def test_account_of_this_site_is_not_taken_over_by_its_name_or_address(server, sign_in):
    command(server.home, "sign_in_link")
    query(server.home, "UPDATE auth_user SET email = 'owner@example.org' WHERE username = 'owner'")
    browser, page = sign_in(sub="9", preferred_username="owner", groups=[])
    assert page.status_code == 200
    assert browser.get("/people/").status_code == 403
    assert query(server.home, "SELECT count(*) FROM auth_user WHERE is_superuser") == 1
    assert query(server.home, "SELECT count(*) FROM auth_user WHERE email = 'owner@example.org'") == 2


@pytest.mark.parametrize(
    ("claims", "other_key", "said"),
    [
        pytest.param({"email": "eve@elsewhere.org"}, False, "not allowed to sign in here", id="other domain"),
        pytest.param({"email": "eve@example.org.evil"}, False, "not allowed to sign in here", id="like the domain"),
        pytest.param({"email_verified": False}, False, "not allowed to sign in here", id="unverified address"),
        pytest.param({}, True, "Signing in with Example did not work", id="signed by somebody else"),
        pytest.param({"aud": "another"}, False, "Signing in with Example did not work", id="for another site"),
        pytest.param({"iss": "https://evil.example"}, False, "Signing in with Example did not work", id="of another"),
        pytest.param({"exp": 1}, False, "Signing in with Example did not work", id="expired"),
    ],
)
def test_nobody_else_is_let_in(server, issuer, sign_in, claims, other_key, said):
    if other_key:
        issuer.signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    browser, page = sign_in(sub="13", preferred_username="mallory", groups=["leads"], **claims)
    assert page.status_code == 403
    assert said in page.text
    assert browser.get("/api/search").status_code == 401
    assert query(server.home, "SELECT count(*) FROM auth_user WHERE username = 'mallory'") == 0


def test_answer_that_nobody_asked_for_is_refused(server):
    with httpx2.Client(base_url=f"http://127.0.0.1:{server.port}") as browser:
        assert browser.get("/sign-in/oidc/callback/?code=x&state=y").status_code == 403
        assert browser.get("/sign-in/oidc/callback/?error=access_denied&state=y").status_code == 403
        assert browser.get("/sign-in/another/").status_code == 404


# --- linking -----------------------------------------------------------------------------------------------------

ACCOUNT, PASSWORD = "/settings/account/", "correct horse battery"


@pytest.fixture
def local(server):
    """Sign in to an account of this site by a link, as a browser does."""
    browsers = []

    def as_(name, password=True):
        script = f"""
from django.contrib.auth.models import User
user = User.objects.create_user({name!r}, password={PASSWORD if password else None!r})
from access.models import Membership
from memories.models import Project
Membership.objects.create(user=user, project=Project.objects.get(slug="refuge"), role="curator")
"""
        command(server.home, "shell", "--no-imports", "-c", script)
        address = command(server.home, "sign_in_link", "--user", name).split()[-1]
        browser = httpx2.Client(base_url=f"http://127.0.0.1:{server.port}", follow_redirects=True, timeout=60)
        browsers.append(browser)
        at = urlsplit(address)
        assert browser.get(f"{at.path}?{at.query}").status_code == 200
        return browser

    yield as_
    for browser in browsers:
        browser.close()


def link_of(browser):
    return html.unescape(re.search(r'href="(/settings/account/link/[^"]*)"', browser.get(ACCOUNT).text)[1])


def unlink(browser):
    page = browser.get(ACCOUNT).text
    action = re.search(r'action="(/settings/account/links/\d+/unlink/)"', page)[1]
    return browser.post(action, data={"csrfmiddlewaretoken": token_of(page)})


def token_of(page):
    return re.search(r'name="csrfmiddlewaretoken" value="([^"]*)"', page)[1]


def events(server, name):
    of = f"user_id = (SELECT id FROM auth_user WHERE username = '{name}') AND verb LIKE 'account_%'"
    return query(server.home, f"SELECT string_agg(verb, ' ' ORDER BY id) FROM access_auditevent WHERE {of}")


def test_provider_account_is_linked_signs_in_and_is_unlinked_again(server, issuer, sign_in, local):
    browser = local("linda")
    issuer.claims = {"sub": "21", "email": "linda@example.org", "email_verified": True, "groups": ["wardens"]}
    page = browser.get(link_of(browser))
    assert (page.status_code, page.url.path) == (200, ACCOUNT)
    assert "You can sign in as linda@example.org of Example now." in page.text
    # As at every time of signing in, the claims decide in the projects that the rules name.
    assert roles(server, "linda") == ("writer", 1)
    assert "is linked already" in browser.get(link_of(browser)).text
    other, _ = sign_in(sub="21", preferred_username="linda", groups=["wardens"])
    assert roles(server, "linda") == ("writer", 1)
    assert "linda@example.org" in other.get(ACCOUNT).text
    assert query(server.home, "SELECT count(*) FROM auth_user WHERE username LIKE 'linda%'") == 1

    page = unlink(browser)
    assert "linda@example.org of Example is unlinked." in page.text
    assert "Link an account" in page.text
    assert roles(server, "linda") == (None, 0)
    assert events(server, "linda") == "account_link account_unlink"
    stranger, _ = sign_in(sub="21", preferred_username="stranger", groups=[])
    assert "stranger" in stranger.get(ACCOUNT).text


def test_account_of_somebody_else_is_not_linked(server, issuer, sign_in, local):
    sign_in(sub="22", preferred_username="ben", groups=[])
    browser = local("carl")
    issuer.claims = {"sub": "22", "email": "ben@example.org", "email_verified": True}
    assert "belongs to another account of this site" in browser.get(link_of(browser)).text
    issuer.claims = {"sub": "23", "email": "carl@elsewhere.org", "email_verified": True}
    page = browser.get(link_of(browser))
    assert (page.url.path, "not allowed to sign in here" in page.text) == (ACCOUNT, True)
    assert events(server, "carl") is None
    assert roles(server, "carl") == ("curator", 1)


def test_another_site_can_neither_link_nor_unlink(server, issuer, sign_in, local):
    browser, eve = local("fay"), local("eve")
    issuer.claims = {"sub": "25", "email": "eve@example.org", "email_verified": True}
    for path in (link_of(eve), "/settings/account/link/"):
        assert "was not made for you" in browser.get(path).text
    assert browser.get("/sign-in/oidc/?process=connect").status_code == 404
    assert browser.post("/settings/account/links/1/unlink/").status_code == 403
    eve.get(link_of(eve))
    number = query(server.home, "SELECT id FROM socialaccount_socialaccount WHERE uid = '25'")
    token = token_of(browser.get(ACCOUNT).text)
    answer = browser.post(f"/settings/account/links/{number}/unlink/", data={"csrfmiddlewaretoken": token})
    assert answer.status_code == 404
    assert (events(server, "fay"), events(server, "eve")) == (None, "account_link")
    with httpx2.Client(base_url=f"http://127.0.0.1:{server.port}") as nobody:
        assert nobody.get("/settings/account/link/").headers["Location"].startswith("/sign-in/")


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"OIDC_ISSUER": "http://login.example"}, "does not begin with https", id="not safe"),
        pytest.param({"OIDC_CLIENT_SECRET": ""}, "needs OIDC_CLIENT_ID and OIDC_CLIENT_SECRET", id="no secret"),
    ],
)
def test_wrong_setting_stops_the_start(tmp_path, changes, said):
    good = {"OIDC_ISSUER": "https://login.example", "OIDC_CLIENT_ID": CLIENT, "OIDC_CLIENT_SECRET": SECRET}
    with pytest.raises(AssertionError, match=said):
        command(tmp_path, "check", **{**good, **changes})


def test_only_way_in_stays_linked(server, sign_in):
    browser, _ = sign_in(sub="24", preferred_username="dora", groups=["wardens"])
    page = browser.get(ACCOUNT).text
    assert "It is your only way in" in page
    assert "/unlink/" not in page
    number = query(server.home, "SELECT id FROM socialaccount_socialaccount WHERE uid = '24'")
    answer = browser.post(f"/settings/account/links/{number}/unlink/", data={"csrfmiddlewaretoken": token_of(page)})
    assert "is your only way in: it stays linked." in answer.text
    assert roles(server, "dora") == ("writer", 1)

"""Hosted clients connect by OAuth: the SDK's own client against the real server, with a person in between."""

import asyncio
import json
import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client as Browser
from django.utils import timezone
from mcp import Client
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from access.grants import _hash
from access.limits import Buckets
from access.models import ApiKey, AppGrant, AuditEvent, Membership
from memories.models import Memory, Project

CALLBACK = "http://127.0.0.1:9/callback"


class Storage:
    """The memory of a client."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


@pytest.fixture(autouse=True)
def _no_earlier_requests(monkeypatch):
    monkeypatch.setattr("agent_tools.asgi.oauth_requests", Buckets())


@pytest.fixture
def person(shared_ids):
    """A writer of tea who reads boat."""
    user = User.objects.create_user("ada")
    for slug, role in (("tea", "writer"), ("boat", "reader")):
        Membership.objects.create(user=user, project=Project.objects.get(slug=slug), role=role)
    return user


def cookies_of(user):
    browser = Browser()
    browser.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {name: browser.cookies[name].value}


async def answered(address, cookies, answer):
    """The page at an address, and the reply to the answer of the person there."""
    async with httpx2.AsyncClient(cookies=cookies, timeout=120) as http:
        page = await http.get(address, follow_redirects=True)
        assert page.status_code == 200, page.text
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[1]
        headers = {"Origin": "{0.scheme}://{0.netloc}".format(urlsplit(address))}
        form = {"csrfmiddlewaretoken": token, **answer}
        reply = await http.post(str(page.url), data=form, headers=headers)
        return unescape(page.text), page, reply


class App:
    """A client with the SDK's OAuth, whose person gives one answer to the page."""

    def __init__(self, site, person, **answer):
        self.site, self.storage = site, Storage()
        self.cookies, self.answer = cookies_of(person), answer
        self.pages, self.asked = [], []
        connections.close_all()
        self.oauth = OAuthClientProvider(
            server_url=f"{site}/mcp",
            client_metadata=OAuthClientMetadata(
                client_name="Hosted <b>agent</b>", redirect_uris=[CALLBACK], token_endpoint_auth_method="none"
            ),
            storage=self.storage,
            redirect_handler=self._redirect,
            callback_handler=self._callback,
        )

    async def _redirect(self, address):
        self.asked.append(address)
        text, page, self.reply = await answered(address, self.cookies, self.answer)
        self.pages.append((text, page))

    async def _callback(self):
        assert self.reply.status_code == 302, self.reply.text
        assert self.reply.headers["Location"].startswith(CALLBACK)
        answer = dict(parse_qsl(urlsplit(self.reply.headers["Location"]).query))
        return AuthorizationCodeResult(code=answer.get("code", ""), state=answer["state"])

    def call(self, name, **arguments):
        async def talk():
            async with (
                httpx2.AsyncClient(auth=self.oauth, timeout=120) as http,
                Client(streamable_http_client(f"{self.site}/mcp", http_client=http)) as client,
            ):
                result = await client.call_tool(name, arguments)
                return result.is_error, result.content[0].text

        return asyncio.run(talk())

    def total(self):
        is_error, text = self.call("search", limit=1, format="json")
        assert not is_error, text
        return json.loads(text)["total"]


def test_client_registers_asks_the_person_and_gets_no_more_than_was_allowed(site, person):
    app = App(site, person, scopes=["read", "write"], projects=["every"])
    assert app.total() == 14
    is_error, text = app.call("store_memory", content="Tea cools.", project="tea")
    assert not is_error, text
    assert app.call("store_memory", content="A leak.", project="boat")[0]
    assert Memory.objects.count() == 17  # with two that are superseded or archived
    assert app.storage.tokens.scope == "read write"
    assert app.storage.tokens.expires_in == 3600
    (page, response) = app.pages[0]
    assert len(app.pages) == 1
    assert "<strong>Hosted <b>agent</b></strong>" in page  # as text: the answer is unescaped
    assert "Hosted &lt;b&gt;agent" in response.text
    assert "http://127.0.0.1:9" in page
    assert 'value="curate"' not in page
    assert "form-action 'self' http://127.0.0.1:9;" in response.headers["Content-Security-Policy"]
    key = ApiKey.objects.get()
    assert (key.acts_for, key.created_by, key.every_project) == (person, person, True)
    event = AuditEvent.objects.get(verb="create", subject_type="memory", api_key=key)
    assert (event.door, event.user) == ("mcp", None)
    assert AuditEvent.objects.get(verb="api_key_create").user == person
    # Nothing that opens anything is stored.
    stored = str([vars(key), vars(AppGrant.objects.get())])
    for secret in (app.storage.tokens.access_token, app.storage.tokens.refresh_token):
        assert secret not in stored
    # And the token is for /mcp alone.
    refused = httpx2.get(f"{site}/api/search", headers={"Authorization": f"Bearer {app.storage.tokens.access_token}"})
    assert (refused.status_code, "is for /mcp only" in refused.json()["detail"]) == (401, True)


def test_app_may_do_less_when_the_person_may(site, person):
    app = App(site, person, scopes=["read", "write"], projects=[str(Project.objects.get(slug="tea").pk)])
    assert app.total() == 8
    Membership.objects.filter(project__slug="tea").update(role="reader")
    connections.close_all()
    assert "needs the scope write" in app.call("store_memory", content="Tea cools.", project="tea")[1]
    Membership.objects.all().delete()
    connections.close_all()
    assert app.call("search")[0]
    User.objects.filter(pk=person.pk).delete()
    assert not ApiKey.objects.exists()


def test_tokens_are_renewed_and_one_that_was_used_before_ends_everything(site, person):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    first = app.storage.tokens
    AppGrant.objects.update(access_expires_at=timezone.now() - timedelta(seconds=1))
    connections.close_all()
    refused = httpx2.post(f"{site}/mcp", headers={"Authorization": f"Bearer {first.access_token}"})
    assert (refused.status_code, "has expired: renew it" in refused.text) == (401, True)
    app.oauth.context.token_expiry_time = 1
    assert app.total() == 14
    second = app.storage.tokens
    assert len(app.pages) == 1
    assert second.access_token != first.access_token
    assert second.refresh_token != first.refresh_token
    form = {"grant_type": "refresh_token", "client_id": app.storage.client.client_id}
    stolen = httpx2.post(f"{site}/token", data={**form, "refresh_token": first.refresh_token})
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    after = httpx2.post(f"{site}/token", data={**form, "refresh_token": second.refresh_token})
    assert after.status_code == 400
    assert ApiKey.objects.get().revoked_at is not None


def test_code_works_once_for_its_client_and_with_its_verifier(site, person):
    app = App(site, person, scopes=["read"], projects=["every"])
    seen = []
    exchange = app.oauth._exchange_token_authorization_code

    async def spied(code, verifier):
        request = await exchange(code, verifier)
        seen.append(dict(parse_qsl(request.content.decode())))
        return request

    app.oauth._exchange_token_authorization_code = spied
    assert app.total() == 14
    (form,) = seen
    assert "code_challenge_method=S256" in app.asked[0]
    for changes in ({"code_verifier": "x" * 43}, {"client_id": "another"}, {"code": "guess"}, {}):
        reply = httpx2.post(f"{site}/token", data={**form, **changes})
        assert reply.status_code in {400, 401}
    # The last one was the code again, which somebody else must have: the tokens of the first are ended.
    assert ApiKey.objects.get().revoked_at is not None


def test_person_who_says_no_gives_nothing(site, person):
    app = App(site, person, deny="1")
    with pytest.RaisesGroup(OAuthFlowError, flatten_subgroups=True, allow_unwrapped=True):
        app.call("search")
    assert "error=access_denied" in app.reply.headers["Location"]
    assert not ApiKey.objects.exists()


def test_person_sees_their_apps_on_the_page_of_keys_and_ends_them(site, person):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    other, browser = Browser(), Browser()
    browser.force_login(person)
    other.force_login(User.objects.create_user("ben"))
    key = ApiKey.objects.get()
    assert "app of ada" in browser.get("/settings/keys/").text
    assert "every project of ada" in browser.get("/settings/keys/").text
    assert "app of ada" not in other.get("/settings/keys/").text
    assert other.post(f"/settings/keys/{key.pk}/revoke/").status_code == 404
    # An app renews its own key; a key without its bounds must not come of it.
    assert browser.post(f"/settings/keys/{key.pk}/rotate/").status_code == 409
    assert ApiKey.objects.count() == 1
    browser.post(f"/settings/keys/{key.pk}/revoke/")
    form = {"grant_type": "refresh_token", "client_id": app.storage.client.client_id}
    refused = httpx2.post(f"{site}/token", data={**form, "refresh_token": app.storage.tokens.refresh_token})
    assert refused.status_code == 400
    headers = {"Authorization": f"Bearer {app.storage.tokens.access_token}"}
    assert httpx2.post(f"{site}/mcp", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        pytest.param("access_token", {"token_type_hint": "access_token"}, id="access token"),
        pytest.param("refresh_token", {"token_type_hint": "refresh_token"}, id="refresh token"),
        pytest.param("access_token", {}, id="without a hint"),
        pytest.param("refresh_token", {"token_type_hint": "access_token"}, id="a wrong hint"),
        pytest.param("refresh_token", {"token_type_hint": "other"}, id="an unknown hint"),
    ],
)
def test_client_revokes_what_it_has(site, person, kind, hint):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    token = getattr(app.storage.tokens, kind)
    form = {"token": token, **hint}
    stranger = httpx2.post(f"{site}/register", json={"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"})
    httpx2.post(f"{site}/revoke", data={**form, "client_id": stranger.json()["client_id"]})
    assert ApiKey.objects.get().revoked_at is None
    own = {"client_id": app.storage.client.client_id}
    assert httpx2.post(f"{site}/revoke", data=own).json()["error"] == "invalid_request"
    assert httpx2.post(f"{site}/revoke", data={"token": token}).status_code == 401
    assert httpx2.post(f"{site}/revoke", data={**own, "token": "unknown"}).status_code == 200
    assert ApiKey.objects.get().revoked_at is None
    reply = httpx2.post(f"{site}/revoke", data={**form, **own})
    assert reply.status_code == 200, reply.text
    assert ApiKey.objects.get().revoked_at is not None


@pytest.mark.parametrize("age", [1, 2, 5])
def test_refresh_token_of_any_generation_ends_everything_when_it_comes_again(site, person, age):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    form = {"grant_type": "refresh_token", "client_id": app.storage.client.client_id}
    spent = [app.storage.tokens.refresh_token]
    for _ in range(age):
        reply = httpx2.post(f"{site}/token", data={**form, "refresh_token": spent[-1]})
        spent.append(reply.json()["refresh_token"])
    for guess in (spent[0] + "x", spent[0].partition(":")[0] + ":x", "1.x", "x"):
        assert httpx2.post(f"{site}/token", data={**form, "refresh_token": guess}).status_code == 400
    assert ApiKey.objects.get().revoked_at is None
    assert httpx2.post(f"{site}/token", data={**form, "refresh_token": spent[0]}).status_code == 400
    assert ApiKey.objects.get().revoked_at is not None
    assert httpx2.post(f"{site}/token", data={**form, "refresh_token": spent[-1]}).status_code == 400


def test_refresh_token_from_before_they_named_their_consent_is_renewed(site, person):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    AppGrant.objects.update(refresh_hash=_hash("old"))
    connections.close_all()
    form = {"grant_type": "refresh_token", "client_id": app.storage.client.client_id, "refresh_token": "old"}
    assert httpx2.post(f"{site}/token", data=form).status_code == 200


@pytest.mark.parametrize("given", ["https://elsewhere.example/mcp", "{site}/other", "{site}", "mcp"])
def test_token_for_another_server_is_refused(site, person, given):
    app = App(site, person, scopes=["read"], projects=["every"])
    assert app.total() == 14
    form = {"grant_type": "refresh_token", "client_id": app.storage.client.client_id}
    form["refresh_token"] = app.storage.tokens.refresh_token
    reply = httpx2.post(f"{site}/token", data={**form, "resource": given.format(site=site)})
    assert (reply.status_code, reply.json()["error"]) == (400, "invalid_target")
    assert httpx2.post(f"{site}/token", data={**form, "resource": f"{site}/mcp/"}).status_code == 200


# --- endpoints ---------------------------------------------------------------------------------------------------


def test_metadata_names_the_endpoints_and_strangers_are_led_to_it(shared_ids, site):
    refused = httpx2.post(f"{site}/mcp", json={})
    at = f"{site}/.well-known/oauth-protected-resource/mcp"
    assert refused.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{at}"'
    resource = httpx2.get(at).json()
    assert resource["resource"] == f"{site}/mcp"
    assert resource["authorization_servers"] == [site]
    assert resource["scopes_supported"] == ["read", "write", "curate"]
    server = httpx2.get(f"{site}/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == site
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["registration_endpoint"] == f"{site}/register"
    for name in ("token", "revocation"):
        assert server[f"{name}_endpoint_auth_methods_supported"] == [
            "none",
            "client_secret_post",
            "client_secret_basic",
        ]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"redirect_uris": ["http://elsewhere.example/back"]}, "invalid_redirect_uri", id="not safe"),
        pytest.param({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri", id="a script"),
        pytest.param({"redirect_uris": ["https://a.example@b.example/"]}, "invalid_redirect_uri", id="another host"),
        pytest.param({"redirect_uris": ["https://a;script-src/"]}, "invalid_redirect_uri", id="another policy"),
        pytest.param({"redirect_uris": [f"{CALLBACK}/{n}" for n in range(6)]}, "invalid_redirect_uri", id="many"),
        pytest.param({"redirect_uris": [f"{CALLBACK}/{'x' * 500}"]}, "invalid_redirect_uri", id="long"),
        *(
            pytest.param({"redirect_uris": [uri]}, "invalid_redirect_uri", id=uri)
            for uri in (
                "search-ms:query=x",
                "intent://x#Intent;end",
                "chrome://settings",
                "ms-settings:privacy",
                "steam://run/1",
                "data:text/html,x",
                "https://app.example/back#part",
                "com.example.app:/back#part",
                "http://localhost.evil.example/",
            )
        ),
        pytest.param({"redirect_uris": []}, "invalid_client_metadata", id="none"),
        pytest.param({"scope": "read admin"}, "invalid_client_metadata", id="to administer"),
    ],
)
def test_client_that_may_not_register(shared_ids, site, changes, error):
    reply = httpx2.post(f"{site}/register", json={"redirect_uris": [CALLBACK], **changes})
    assert (reply.status_code, reply.json()["error"]) == (400, error)


def test_registration_is_stored_nowhere_and_cannot_be_forged(shared_ids, site):
    asked = {"redirect_uris": ["https://app.example/back", "com.example.app:/back"], "client_name": "x" * 10_000}
    known = httpx2.post(f"{site}/register", json=asked).json()
    assert len(known["client_id"]) < 600
    assert known["client_secret"]
    form = {"grant_type": "refresh_token", "client_id": known["client_id"], "refresh_token": "x"}
    with_secret = httpx2.post(f"{site}/token", data={**form, "client_secret": known["client_secret"]})
    without = httpx2.post(f"{site}/token", data={**form, "client_secret": "guess"})
    assert (with_secret.json()["error"], without.json()["error"]) == ("invalid_grant", "invalid_client")
    forged = httpx2.post(f"{site}/token", data={**form, "client_id": known["client_id"][:-1] + "A"})
    assert forged.status_code == 401


def test_other_names_of_the_site_and_other_servers_get_nothing(shared_ids, site, monkeypatch):
    metadata = f"{site}/.well-known/oauth-authorization-server"
    assert httpx2.get(metadata, headers={"Host": "evil.example"}).status_code == 400
    assert httpx2.get(metadata, headers={"Host": "localhost."}).status_code == 400
    known = httpx2.post(f"{site}/register", json={"redirect_uris": [CALLBACK]}).json()
    asked = {
        "client_id": known["client_id"],
        "response_type": "code",
        "code_challenge": "x" * 43,
        "code_challenge_method": "S256",
        "redirect_uri": CALLBACK,
    }
    reply = httpx2.get(f"{site}/authorize", params={**asked, "resource": "https://elsewhere.example/mcp"})
    assert (reply.status_code, "Location" in reply.headers) == (400, False)
    assert f"This is the server of {site}/mcp" in reply.text
    elsewhere = httpx2.get(f"{site}/authorize", params={**asked, "redirect_uri": "https://elsewhere.example/"})
    assert elsewhere.status_code == 400
    plain = httpx2.get(f"{site}/authorize", params={**asked, "code_challenge_method": "plain"})
    assert (plain.status_code, "Location" in plain.headers) == (400, False)
    # Signed in or not, a request that was not signed here is not shown.
    assert httpx2.get(f"{site}/connect/?request=x").headers["Location"].startswith("/sign-in/?next=/connect/")
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["*"])
    lan = httpx2.get(metadata, headers={"Host": "memories.lan"})
    assert (lan.status_code, lan.json()["detail"]) == (404, "OAuth needs HTTPS.")
    refused = httpx2.post(f"{site}/mcp", json={}, headers={"Host": "memories.lan"})
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"response_type": "x"}, id="another kind of answer"),
        pytest.param({"response_type": None}, id="no kind of answer"),
        pytest.param({"scope": "root"}, id="an unknown scope"),
        pytest.param({"code_challenge": None}, id="no challenge"),
        pytest.param({"client_id": "x"}, id="an unknown app"),
        pytest.param({"redirect_uri": "https://evil.example/"}, id="another address"),
        pytest.param({"state": "<script>", "response_type": "token"}, id="a script"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_wrong_request_of_an_app_leads_nowhere(shared_ids, site, changes, method):
    asked = {"redirect_uris": ["https://app.example/back"], "token_endpoint_auth_method": "none"}
    known = httpx2.post(f"{site}/register", json=asked).json()
    form = {"client_id": known["client_id"], "response_type": "code", "code_challenge": "x" * 43}
    form |= {"redirect_uri": "https://app.example/back", "code_challenge_method": "S256", **changes}
    form = {name: value for name, value in form.items() if value is not None}
    sent = {"params": form} if method == "GET" else {"data": form}
    reply = httpx2.request(method, f"{site}/authorize", **sent)
    assert (reply.status_code, "Location" in reply.headers) == (400, False)
    assert "<h1>This app cannot be connected</h1>" in reply.text
    assert "<script>" not in reply.text
    assert "Content-Security-Policy" in reply.headers


def test_requests_of_an_address_are_limited(shared_ids, site, monkeypatch):
    monkeypatch.setattr("agent_tools.asgi.OAUTH_PER_ADDRESS", 2)
    codes = [httpx2.post(f"{site}/register", json={"redirect_uris": [CALLBACK]}).status_code for _ in range(3)]
    assert codes == [201, 201, 429]

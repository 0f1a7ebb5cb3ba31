"""A site below a path of its host: behind nginx, whether that takes the path off or not."""

import http.cookiejar
import io
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from html import unescape
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from config.settings import env_address
from tests.config.conftest import folder_for_a_server
from tests.config.test_up import Up, command, eventually, free_port
from web.handler import mount_is_free, path_below

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin:/usr/bin:/usr/local/bin")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param("/memories", "/", id="the path alone"),
        pytest.param("/memories/", "/", id="with a slash"),
        pytest.param("/memories/explore/", "/explore/", id="whole"),
        pytest.param("/explore/", "/explore/", id="taken off by the proxy"),
        pytest.param("/memoriesque/", "/memoriesque/", id="only the same letters"),
        pytest.param("/memories/mcp", "/mcp", id="agents"),
        pytest.param("/memories/memories/", "/memories/", id="once"),
        pytest.param(
            "/.well-known/oauth-authorization-server/memories", "/.well-known/oauth-authorization-server", id="8414"
        ),
        pytest.param(
            "/.well-known/oauth-protected-resource/memories/mcp", "/.well-known/oauth-protected-resource/mcp", id="9728"
        ),
        pytest.param(
            "/memories/.well-known/oauth-protected-resource/mcp",
            "/.well-known/oauth-protected-resource/mcp",
            id="metadata below it",
        ),
    ],
)
def test_path_of_the_site_is_taken_off(asked, found):
    assert path_below("/memories", asked) == found


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        pytest.param("https://host.example/memories", True, id="a path"),
        pytest.param("https://host.example/team/memories/", True, id="two parts, and a slash at the end"),
        pytest.param("http://[::1]:8000/a.b_c-d~e", True, id="every character"),
        pytest.param("https://host.example//memories", False, id="two slashes"),
        pytest.param("https://host.example/..", False, id="up"),
        pytest.param("https://host.example/a b", False, id="a space"),
        pytest.param("https://host.example/memories?q=1", False, id="a query"),
        pytest.param("https://host.example/%2e", False, id="escaped"),
        pytest.param("host.example/memories", False, id="no scheme"),
    ],
)
def test_public_address_may_have_a_path(monkeypatch, address, is_one):
    monkeypatch.setenv("PUBLIC_URL", address)
    if is_one:
        assert env_address("PUBLIC_URL") == address.rstrip("/")
    else:
        with pytest.raises(ImproperlyConfigured, match="is not the address of a site, such as"):
            env_address("PUBLIC_URL")


@pytest.mark.parametrize(
    ("path", "is_free"),
    [("", True), ("/memories", True), ("/mem/api", True), ("/api", False), ("/m", False), ("/static/x", False)],
)
def test_path_that_addresses_of_the_site_begin_with_is_refused(settings, path, is_free):
    settings.SITE_PATH = path
    settings.PUBLIC_URL = f"https://host.example{path}"
    assert [error.id for error in mount_is_free(None)] == ([] if is_free else ["web.E001"])


# --- behind nginx ----------------------------------------------------------------------------------------------------

CONFIGURATION = """
daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme;
  server {{
    listen 127.0.0.1:{whole};
    location /memories/ {{ proxy_pass http://127.0.0.1:{port}; }}
    location ~ ^/\\.well-known/oauth-[a-z-]+/memories {{ proxy_pass http://127.0.0.1:{port}; }}
  }}
  server {{
    listen 127.0.0.1:{stripped};
    location /memories/ {{ proxy_pass http://127.0.0.1:{port}/; }}
    location ~ ^/\\.well-known/oauth-[a-z-]+/memories {{ proxy_pass http://127.0.0.1:{port}; }}
  }}
}}
"""


class Site:
    """The site as the people behind one of the proxies see it."""

    def __init__(self, origin, link, key):
        self.origin, self.key = origin, key
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self.home = self.get(urlsplit(link)._replace(netloc=urlsplit(origin).netloc).geturl())

    def get(self, address, data=None, **headers):
        request = urllib.request.Request(urljoin(self.origin, address), data=data, headers=headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=60) as response:
                return response.url, response.headers, response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            # It holds the socket, about which a later test would be warned.
            with error:
                text = io.BytesIO(error.read())
            raise urllib.error.HTTPError(error.url, error.code, error.msg, error.headers, text) from None

    def call(self, path, data=None, **headers):
        headers |= {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return self.get(path, data, Accept="application/json, text/event-stream", **headers)[2]


@pytest.fixture(scope="module")
def sites():
    if NGINX is None:
        pytest.skip("nginx is not installed (Debian: nginx-light)")
    with folder_for_a_server() as folder:
        ports = {name: free_port() for name in ("port", "whole", "stripped")}
        public = f"http://127.0.0.1:{ports['whole']}/memories"
        up = Up(folder / "home", ports["port"], PUBLIC_URL=public)
        (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, **ports))
        proxy = subprocess.Popen([NGINX, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")])
        try:
            up.wait_for(re.escape(f"{public}/sign-in/?token="))
            eventually(lambda: up.index_state() == "ready")
            made = command(up.home, "create_api_key", "agent", "--scopes", "read,write", PUBLIC_URL=public)
            key = re.search(r"mnk_[\w-]+", made)[0]
            found = {}
            for name in ("whole", "stripped"):
                link = command(up.home, "sign_in_link", PUBLIC_URL=public).strip()
                assert link.startswith(f"{public}/sign-in/?token=")
                found[name] = Site(f"http://127.0.0.1:{ports[name]}", link, key)
            yield found
        finally:
            proxy.terminate()
            proxy.wait(10)
            up.process.terminate()
            up.process.wait(60)
            up._reader.join(5)
            up.process.stdout.close()


@pytest.fixture(params=["whole", "stripped"])
def site(request, sites):
    return sites[request.param]


LINKS = re.compile(
    r"""\s(?:href|src|action|hx-(?:get|post|put|delete)|data-[\w-]*(?:url|page|from|tiles))=["']([^"']*)"""
)


def links_of(page):
    return {unescape(link) for link in LINKS.findall(page) if link.startswith(("/", "http"))}


@pytest.mark.release
def test_every_link_of_every_kind_of_page_stays_below_the_path(site):
    address, _, page = site.home
    assert address == f"{site.origin}/memories/"
    waiting, seen, kinds, refusals = [*sorted(links_of(page))], set(), set(), {}
    while waiting and len(seen) < 150:
        link = waiting.pop(0)
        path = urlsplit(link).path
        if link.startswith("http") and urlsplit(link).netloc != urlsplit(site.origin).netloc:
            continue
        assert link.startswith(("/memories/", f"{site.origin}/memories/")), link
        # One page of each kind: without the numbers in its address.
        kind = (re.sub(r"\d+", "1", path), *sorted(re.findall(r"[?&](\w+)=", link)))
        if kind in kinds or "/sign-out/" in link or "/connect/" in link:
            continue
        kinds.add(kind)
        seen.add(link)
        try:
            address, headers, page = site.get(link)
        except urllib.error.HTTPError as error:
            # The action of a form, or a fragment without what it needs.
            refusals[link] = error.code
            continue
        assert address.startswith(f"{site.origin}/memories/"), f"{link} leads to {address}"
        if "text/html" in headers["Content-Type"]:
            waiting += sorted(links_of(page))
        if "text/css" in headers["Content-Type"]:
            waiting += [
                urljoin(link, one) for one in re.findall(r'url\("?([^")#]+)', page) if not one.startswith("data:")
            ]
    assert set(refusals.values()) <= {400, 403, 405, 422}, refusals
    assert len(seen) > 60
    assert {"static", "m", "explore", "api", "graph", "categories"} <= {
        urlsplit(link).path.split("/")[2] for link in seen
    }


@pytest.mark.release
def test_scripts_ask_the_api_below_the_path(site):
    page = site.home[2]
    api = re.search(r'data-api="([^"]+)"', page)[1]
    assert api == "/memories/api/"
    assert json.loads(site.get(f"{api}facets/tag?page_size=1")[2])["values"]
    scripts = [path.read_text() for path in (settings.BASE_DIR / "static" / "js").rglob("*.js")]
    assert scripts
    assert not [text for text in scripts if re.search(r"""fetch\(["'`]/|["'`]/api/""", text)]


@pytest.mark.release
def test_redirects_and_refusals_stay_below_the_path(site):
    stranger = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with stranger.open(f"{site.origin}/memories/explore/?q=tea", timeout=60) as response:
        assert response.url.startswith(f"{site.origin}/memories/sign-in/?next=/memories/explore/")
        assert "path=/memories/" in response.headers["Set-Cookie"].lower()
    with pytest.raises(urllib.error.HTTPError) as missing:
        site.get("/memories/nowhere/")
    assert missing.value.code == 404
    assert all(link.startswith("/memories/") for link in links_of(missing.value.read().decode()))


@pytest.mark.release
def test_api_names_addresses_below_the_path(site):
    found = json.loads(site.call("/memories/api/search?page_size=1"))
    assert found["memories"][0]["url"].startswith(f"{site.origin}/memories/m/")
    document = json.loads(site.get("/memories/api/openapi.json")[2])
    assert all(path.startswith("/memories/api/") for path in document["paths"])


@pytest.mark.release
def test_agents_and_apps_find_their_way_below_the_path(site):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    begun = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    assert '"name":"mnemoscope"' in site.call("/memories/mcp", begun)
    with pytest.raises(urllib.error.HTTPError) as refused:
        site.get("/memories/mcp", begun)
    metadata = re.search(r'resource_metadata="([^"]+)"', refused.value.headers["WWW-Authenticate"])[1]
    assert metadata.startswith(f"{site.origin}/memories/")
    for address in (metadata, "/.well-known/oauth-protected-resource/memories/mcp"):
        resource = json.loads(site.get(address)[2])
        assert resource["resource"] == f"{site.origin}/memories/mcp"
        assert resource["authorization_servers"] == [f"{site.origin}/memories"]
    server = json.loads(site.get("/.well-known/oauth-authorization-server/memories")[2])
    assert server["issuer"] == f"{site.origin}/memories"
    assert {server[f"{name}_endpoint"] for name in ("authorization", "token", "registration", "revocation")} == {
        f"{site.origin}/memories/{name}" for name in ("authorize", "token", "register", "revoke")
    }
    app = {
        "redirect_uris": ["http://localhost:5000/back"],
        "token_endpoint_auth_method": "none",
        "client_name": "An app",
    }
    client = json.loads(
        site.get(server["registration_endpoint"], json.dumps(app).encode(), **{"Content-Type": "application/json"})[2]
    )
    asked = (
        f"{server['authorization_endpoint']}?response_type=code&client_id={client['client_id']}&state=1"
        "&redirect_uri=http%3A%2F%2Flocalhost%3A5000%2Fback&code_challenge_method=S256"
        "&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )
    address, _, page = site.get(asked)
    assert address.startswith(f"{site.origin}/memories/connect/")
    assert "An app" in page


@pytest.mark.release
def test_snippets_for_agents_have_the_public_address(sites):
    made = sites["stripped"].get("/memories/settings/agents/")[2]
    # That of the settings, by whatever way the reader has come.
    assert f"{sites['whole'].origin}/memories/mcp" in made
    assert sites["stripped"].origin not in made

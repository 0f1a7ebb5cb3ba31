"""The page that connects an agent: its key, a text for each client in the form that it reads, and the first call."""

import json
import re
import shlex
import tomllib
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from markupsafe import escape

from access.clients import PLACEHOLDER, instructions, snippets
from access.models import ApiKey, Membership
from agent_tools.catalogue import TOOLS
from memories.models import Project
from tests.html import html_of

pytestmark = pytest.mark.django_db
PAGE = "/settings/agents/"
SITE, KEY = "https://memories.example.org", "mnk_" + "a-Z_0" * 8
BEARER = {"Authorization": f"Bearer {KEY}"}
URL = f"{SITE}/mcp"


def texts(site=SITE):
    return {one.key: one.text for one in snippets(site, KEY)}


# The form that each client reads, by its own documentation: the path to the server, and the fields that it has there.
JSON_CLIENTS = [
    # geminicli.com/docs/tools/mcp-server: httpUrl is streamable HTTP, url would be SSE.
    pytest.param("gemini-cli", ["mcpServers"], {"httpUrl": URL, "headers": BEARER}, id="gemini-cli"),
    # cursor.com/docs/mcp
    pytest.param("cursor", ["mcpServers"], {"url": URL, "headers": BEARER}, id="cursor"),
    # code.visualstudio.com/docs/copilot/reference/mcp-configuration: servers, each with type and url.
    pytest.param("vscode", ["servers"], {"type": "http", "url": URL, "headers": BEARER}, id="vscode"),
    # docs.windsurf.com/windsurf/cascade/mcp: serverUrl.
    pytest.param("windsurf", ["mcpServers"], {"serverUrl": URL, "headers": BEARER}, id="windsurf"),
    # opencode.ai/v2/docs/mcp-servers: mcp.servers, each of the type local or remote.
    pytest.param(
        "opencode",
        ["mcp", "servers"],
        {"type": "remote", "url": URL, "headers": BEARER, "oauth": False},
        id="opencode",
    ),
    pytest.param("other", ["mcpServers"], {"type": "http", "url": URL, "headers": BEARER}, id="other"),
]


@pytest.mark.parametrize(("client", "path", "expected"), JSON_CLIENTS)
def test_json_snippet_has_the_fields_that_its_client_reads(client, path, expected):
    found = json.loads(texts()[client])
    for name in path:
        found = found[name]
    assert found == {"mnemoscope": expected}


@pytest.mark.parametrize(("site", "is_plain"), [(SITE, False), ("http://127.0.0.1:8000", True)])
def test_snippet_of_claude_desktop_starts_a_command_with_the_key_in_its_environment(site, is_plain):
    server = json.loads(texts(site)["claude-desktop"])["mcpServers"]["mnemoscope"]
    # modelcontextprotocol.io: a command, its arguments, and an environment of texts. There is no url.
    assert server.keys() == {"command", "args", "env"}
    assert server["command"] == "npx"
    assert server["args"][:3] == ["-y", "mcp-remote", f"{site}/mcp"]
    header = server["args"][server["args"].index("--header") + 1]
    name, _, variable = header.partition(":")
    assert (name, server["env"][variable.strip("${}")]) == ("Authorization", BEARER["Authorization"])
    assert " " not in header
    assert ("--allow-http" in server["args"]) == is_plain


def test_snippet_of_codex_is_a_table_with_literal_headers():
    server = tomllib.loads(texts()["codex"])["mcp_servers"]["mnemoscope"]
    # codex-rs/config/src/mcp_types.rs: url and http_headers; a field headers would be ignored.
    assert server == {"url": URL, "http_headers": BEARER}


def test_snippets_for_a_terminal_are_one_command_each():
    command = shlex.split(texts()["claude-code"])
    assert command[:3] == ["claude", "mcp", "add"]
    assert command[command.index("--transport") + 1] == "http"
    assert command[command.index("--header") + 1] == f"Authorization: {BEARER['Authorization']}"
    assert command[-4:-2] == ["mnemoscope", URL]
    assert shlex.split(texts()["http"]) == [
        "curl", "-H", f"Authorization: {BEARER['Authorization']}", f"{SITE}/api/search?q=hello",
    ]  # fmt: skip


def test_every_snippet_is_tested_and_without_a_key_says_where_it_goes():
    tested = {one.values[0] for one in JSON_CLIENTS} | {"claude-desktop", "codex", "claude-code", "http"}
    assert {one.key for one in snippets(SITE)} == tested
    assert all(PLACEHOLDER in one.text for one in snippets(SITE))
    assert all(KEY in text for text in texts().values())


@pytest.mark.parametrize("may_write", [True, False])
def test_text_for_the_agent_names_tools_that_there_are(may_write):
    text = instructions(["tea"], may_write=may_write)
    named = set(re.findall(r"`([a-z_]+)`", text)) - {"mnemoscope", "supersedes", "tea"}
    assert named <= {tool.name for tool in TOOLS}
    assert ("store_memory" in named) == may_write
    assert '`project="tea"`' in text
    assert "project" not in instructions(["tea", "boat"]).replace("this project", "")


# --- the page ----------------------------------------------------------------------------------------------------


@pytest.fixture
def projects():
    return {slug: Project.objects.create(slug=slug, name=slug.title()) for slug in ("tea", "boat")}


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


def member(name, project, role):
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, project=project, role=role)
    return signed_in(user)


def asked(*projects, **changes):
    chosen = [project.pk for project in projects]
    return {"name": "Claude", "scopes": ["read", "write"], "projects": chosen, "expires": "90", **changes}


def test_key_for_an_agent_comes_with_what_to_paste_and_reports_its_first_call(projects):
    owner = signed_in(User.objects.create_superuser("owner"))
    reply = owner.post(PAGE, asked(projects["tea"]))
    assert reply.headers["Cache-Control"] == "private, no-store"
    page, made = html_of(reply), ApiKey.objects.get()
    assert (made.name, made.scopes, made.every_project) == ("Claude", ["read", "write"], False)
    assert list(made.projects.all()) == [projects["tea"]]
    raw = re.search(r"mnk_[\w-]{40}", page)[0]
    for one in snippets("http://testserver", raw):
        assert f'data-copy="{escape(one.text)}"' in reply.content.decode()
    assert PLACEHOLDER not in page
    assert 'project="tea"' in unescape(page)
    address = f"{PAGE}{made.pk}/"
    assert "Waiting for the first call" in html_of(owner.get(address))
    assert Client().get("/api/search?q=tea", headers={"Authorization": f"Bearer {raw}"}).status_code == 200
    assert "The first call has come" in html_of(owner.get(address))
    assert raw not in html_of(owner.get(PAGE))


def test_no_project_is_chosen_unasked_unless_there_is_one_alone(projects):
    owner = signed_in(User.objects.create_superuser("owner"))
    assert "checked" not in re.search(r"<legend>Projects</legend>.*?</fieldset>", html_of(owner.get(PAGE)))[0]
    refused = owner.post(PAGE, asked())
    assert refused.status_code == 422
    assert not ApiKey.objects.exists()
    admin = member("admin", projects["tea"], "admin")
    page = html_of(admin.get(PAGE))
    assert re.search(r'<input[^>]*value="\d+"[^>]*checked[^>]*> Tea', page)
    assert "Boat" not in page
    assert admin.post(PAGE, asked(projects["boat"])).status_code == 422


@pytest.mark.parametrize("role", ["reader", "writer", "curator"])
def test_who_may_make_no_keys_sees_the_texts_without_one(projects, role):
    client = member("ben", projects["tea"], role)
    page = html_of(client.get(PAGE))
    assert "Only admins of projects can create keys" in page
    assert PLACEHOLDER in page
    assert f'action="{PAGE}"' not in page
    assert client.post(PAGE, asked(projects["tea"])).status_code == 403


def test_first_call_of_a_key_of_others_is_not_reported(projects):
    owner = signed_in(User.objects.create_superuser("owner"))
    owner.post(PAGE, asked(projects["tea"]))
    address = f"{PAGE}{ApiKey.objects.get().pk}/"
    assert member("ben", projects["boat"], "admin").get(address).status_code == 404
    assert Client().get(PAGE).status_code == 302


def test_page_warns_where_the_key_would_be_sent_in_the_open(projects, settings):
    owner = signed_in(User.objects.create_superuser("owner"))
    settings.PUBLIC_URL = "http://memories.example.org"
    assert "http://memories.example.org is not encrypted" in html_of(owner.get(PAGE))
    for address in ("https://memories.example.org", "http://127.0.0.1:8000"):
        settings.PUBLIC_URL = address
        assert "is not encrypted" not in html_of(owner.get(PAGE))

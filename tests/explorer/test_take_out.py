"""The menu that takes the results of a page elsewhere."""

import io
import json
import re
import zipfile
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from tests.html import html_of


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def menu_of(reader, address):
    return re.search(r'<details class="take-out">.*?</details>', html_of(reader.get(address)), re.DOTALL)[0]


@pytest.mark.parametrize(
    ("address", "total"),
    [
        pytest.param("/explore/", 14, id="everything"),
        pytest.param("/explore/?q=tea&mode=keyword&sort=newest", 6, id="a text"),
        pytest.param("/explore/?state=archived&state=superseded", 2, id="other states"),
        pytest.param("/explore/?as_of=2024-06-01", 9, id="as of a date"),
    ],
)
def test_files_hold_as_many_memories_as_the_page_says(reader, address, total):
    menu = menu_of(reader, address)
    assert f">Export {total}…</summary>" in menu
    link = re.search(r'<a class="link" href="([^"]+)" download>JSON lines</a>', menu)[1]
    lines = map(json.loads, b"".join(reader.get(unescape(link)).streaming_content).splitlines())
    assert sum("record" not in line for line in lines) == total


def test_files_for_other_systems_hold_the_same_memories(reader):
    menu = menu_of(reader, "/explore/?q=tea&mode=keyword")
    links = dict(re.findall(r'<a class="link" href="([^"]+)" download>([^<]+)</a>', menu))
    addresses = {label: unescape(address) for address, label in links.items()}
    assert list(addresses) == [
        *("JSON lines", "CSV", "Markdown notes", "Markdown notes with superseded and archived"),
        *("claude-mem", "mcp-memory-service", "MCP memory server"),
    ]
    document = json.loads(b"".join(reader.get(addresses["mcp-memory-service"]).streaming_content))
    assert len(document["memories"]) == 6


def test_notes_may_be_taken_with_what_is_hidden(reader):
    links = dict(re.findall(r'<a class="link" href="([^"]+)" download>([^<]+)</a>', menu_of(reader, "/explore/")))
    addresses = {label: unescape(address) for address, label in links.items()}
    data = b"".join(reader.get(addresses["Markdown notes with superseded and archived"]).streaming_content)
    shown = b"".join(reader.get(addresses["Markdown notes"]).streaming_content)
    names = [{*zipfile.ZipFile(io.BytesIO(one)).namelist()} for one in (shown, data)]
    assert len(names[0]) == 14
    assert len(names[1]) == 16
    assert ">Markdown notes</a>" in menu_of(reader, "/explore/?state=archived")
    assert "with superseded" not in menu_of(reader, "/explore/?state=archived")


def test_calls_are_the_same_search(reader):
    api, agent = re.findall(r"<code>(.*?)</code>", menu_of(reader, "/explore/?q=tea&mode=keyword&tag=green"))
    address = re.search(r'"http://testserver(/api/search\?[^"]+)"', unescape(api))[1]
    key = make_key(name="reader", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    reply = Client(headers={"Authorization": f"Bearer {key}"}).get(address).json()
    assert reply["filters"] == {"q": "tea", "mode": "keyword", "tag": ["green"]}
    assert json.loads(unescape(agent).removeprefix("search ")) == {"query": "tea", "mode": "keyword", "tag": ["green"]}

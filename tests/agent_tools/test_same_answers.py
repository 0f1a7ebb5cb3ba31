"""Random queries answered alike by the page, the API, and MCP over HTTP and over standard input and output.

In the first second of a server, while its model is loading, and later; with a key for every project, and for one.
"""

import asyncio
import json
import random
import re
import socketserver
import threading
import time
from html import unescape

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from mcp import Client

from access.models import Membership
from memories.embedding import query as embeddings
from memories.embedding.models import EmbedderUnavailableError
from memories.models import Project
from search.facets import FACET
from search.query import Mode
from tests.agent_tools.conftest import key_for
from tests.agent_tools.test_clients import over_http, stdio
from tests.embedding import embed_all
from tests.html import html_of
from tests.search.queries import EXAMPLES
from tests.search.test_interfaces import shown_counts

# In each of the four cases.
QUERIES = EXAMPLES // 2
NOT_READY = "Search by meaning is not ready: the model is still loading. Found by words alone."
TEXTS = (
    *("tea", "green tea", "crane brake slips", "kettle.valve", "what do guests like", "zzqqxx", '"green tea" -boat'),
    *("temperature", "hardware", "Mio", "kitchen", "stove", "person:Mio", "te*", "title:tea", "-tea", "the"),
)
FILTERS = {
    "project": ("tea", "boat", "tea house"),
    "type": ("note", "bugfix", "decision"),
    "tag": ("tea", "guests", "hardware", "no-such-tag"),
    "category": ("kitchen", "stove", "yard/dock", "nowhere"),
    "concept": ("temperature",),
    "entity": ("kettle", "person:Mio"),
    "-tag": ("tea", "crane"),
    "state": ("archived", "superseded"),
    "from": ("2024-02-01",),
    "since": ("30d", "10y"),
    # Not `recalled`: each answer to an agent changes that order.
    "sort": ("newest", "oldest", "updated", "title"),
    "page": ("2", "9"),
    "page_size": ("3", "5", "25"),
}


def random_query(rng):
    query = {key: rng.choice(values) for key, values in FILTERS.items() if rng.random() < 0.15}
    if rng.random() < 0.75:
        query["q"] = rng.choice(TEXTS)
        query["mode"] = rng.choice([mode.value for mode in Mode if mode != Mode.TAG])
    if query.get("mode") == Mode.UNIFIED:
        query.pop("sort", None)
    # Dates replace a span on the page, whose form sends both.
    if "from" in query:
        query.pop("since", None)
    return query


def of_api(reply):
    data = reply.json()
    if reply.status_code != 200:
        return data["detail"]
    rows = data["results"] if "results" in data else data["memories"]
    facets = {name: counts for name, counts in data["facets"].items() if name != "histogram" and any(counts.values())}
    return {
        "rows": [(row.get("kind"), row["id"]) for row in rows],
        # The results of all pages: `total` of a unified search counts the memories.
        "total": data.get("found", data["total"]),
        "hidden": data["hidden"],
        "notices": [warning["message"] for warning in data["warnings"]],
        "facets": facets,
        "no_value": data["no_value"],
    }


def of_tool(result):
    text = result.content[0].text
    if result.is_error:
        return text
    data = json.loads(text)
    rows = data["results"] if "results" in data else data["memories"]
    # Facets of which the tool has the largest values alone.
    cut = {name for note in data.get("facet_notes", ()) for name in re.findall(r"largest of [\d,]+ (\w+)", note)}
    return {
        "cut": cut,
        # Other ids than those of memories name their kind, so that no agent fetches them as memories.
        "rows": [(row.get("kind"), int(str(row["id"]).rpartition(":")[2])) for row in rows],
        "total": data["total"],
        # A sentence that begins with the number.
        "hidden": int(str(data.get("hidden", 0)).split()[0].replace(",", "")),
        "notices": data.get("warnings", []),
        "facets": {name: counts for name, counts in data["facets"].items() if any(counts.values())},
    }


def of_page(response, *, is_unified):
    text = html_of(response)
    total = re.search(r'<h1 id="total"[^>]*>\s*([\d,]+)', text)
    hidden = re.search(r"([\d,]+) archived or superseded (?:is|are) hidden", text)
    notices = re.findall(r'<div class="notice[^>]*>(.*?)</div>', text, re.DOTALL)
    rows = re.findall(r'<article id="(\w+)-(\d+)" class="hit">', text)
    of_memories = "memory" if is_unified else None
    return {
        "rows": [(of_memories if kind == "hit" else kind, int(pk)) for kind, pk in rows],
        "total": int(total[1].replace(",", "")) if total else 0,
        "hidden": int(hidden[1].replace(",", "")) if hidden else 0,
        "notices": [" ".join(unescape(re.sub(r"<[^>]+>", " ", notice)).split()) for notice in notices],
        "counts": shown_counts(text),
    }


@pytest.fixture(params=["first second", "later"])
def is_ready(request, shared_ids, site):
    """Whether the model of the server is there. In its first second it is loading, as long as the test runs."""
    embed_all()
    if request.param == "later":
        for _ in range(600):
            if not embeddings.not_ready_reason():
                break
            time.sleep(0.1)
        yield True
        return
    over = threading.Event()

    def load(source):
        over.wait()
        raise EmbedderUnavailableError("The test is over.")

    embeddings.use(embeddings.QueryEmbedder(load=load))
    yield False
    over.set()


class StillLoading(socketserver.StreamRequestHandler):
    """A server, as other processes ask it for vectors, whose model is loading."""

    def handle(self):
        self.rfile.readline()
        self.wfile.write(json.dumps({"reason": "the model is still loading", "is_loading": True}).encode() + b"\n")


@pytest.fixture
def command(is_ready, database_url, tmp_path):
    """The parameters of `manage.py mcp` for a key, in the home of the server."""
    (tmp_path / "home_of_the_server.py").write_text(
        f"from tests.settings import *\nfrom pathlib import Path\nHOME = Path({str(tmp_path)!r})\n"
    )

    def parameters(raw):
        module = {"DJANGO_SETTINGS_MODULE": "home_of_the_server", "PYTHONPATH": str(tmp_path)}
        return stdio(database_url, MNEMOSCOPE_KEY=raw, **module)

    if is_ready:
        yield parameters
        return
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "queries.sock"), StillLoading) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield parameters
        server.shutdown()


@pytest.mark.parametrize(
    "project",
    [pytest.param("", id="every project", marks=pytest.mark.release), pytest.param("tea", id="one project")],
)
def test_random_queries_give_the_same_answer_through_every_interface(is_ready, command, site, project):
    raw = key_for(*filter(None, [project]))
    rng = random.Random(f"{is_ready} {project}")
    queries = [random_query(rng) for _ in range(QUERIES)]

    async def answers(client):
        # A page counts what each choice would give.
        options = {"include_facets": True, "facet_scope": "choices", "format": "json", "max_tokens": 90_000}
        return [of_tool(await client.call_tool("search", {**query, **options})) for query in queries]

    async def over_stdio():
        async with Client(command(raw)) as client:
            return await answers(client)

    # First of all, so that the process that has just started answers as the one that runs already.
    by_stdio = asyncio.run(over_stdio())
    by_http = asyncio.run(over_http(site, raw, answers))
    browser = Browser()
    user = User.objects.create_user("reader", is_superuser=not project)
    for one in Project.objects.filter(slug=project):
        Membership.objects.create(user=user, project=one)
    browser.force_login(user)
    without_meaning = 0
    with httpx2.Client(base_url=site, headers={"Authorization": f"Bearer {raw}"}, timeout=120) as http:
        for query, stdio_answer, http_answer in zip(queries, by_stdio, by_http, strict=True):
            asked = {"page_size": 20, **query}
            expected = of_api(http.get("/api/search", params={**asked, "include_facets": "1"}))
            assert stdio_answer == http_answer, query
            if isinstance(expected, str):
                assert http_answer.startswith(expected.rstrip(".")), query
                continue
            no_value = expected.pop("no_value")
            # The tool adds spellings to a notice, which the API has in a field of their own.
            notices = http_answer.pop("notices")
            expected_notices = expected.pop("notices")
            assert len(notices) == len(expected_notices), query
            assert all(map(str.startswith, notices, expected_notices)), query
            facets, listed, cut = expected.pop("facets"), http_answer.pop("facets"), http_answer.pop("cut")
            assert listed.keys() == facets.keys(), query
            for name, counts in listed.items():
                assert counts.items() <= facets[name].items(), (query, name)
                assert name in cut or counts == facets[name], (query, name)
            assert http_answer == expected, query
            # A closed panel has no counts.
            opened = {"X-Open": " ".join(f"facet-{key}" for key in FACET)}
            is_unified = query.get("mode") == Mode.UNIFIED and "q" in query
            page = of_page(browser.get("/explore/", asked, headers=opened, follow=True), is_unified=is_unified)
            assert (page["rows"], page["hidden"]) == (expected["rows"], expected["hidden"]), query
            assert page["total"] == expected["total"], query
            for (key, value), count in page["counts"].items():
                name = FACET[key].api_name
                of_api_value = no_value[name] if value is None else facets.get(name, {}).get(value, 0)
                assert (key, value, of_api_value) == (key, value, count), query
            for notice in expected_notices:
                assert any(notice.rstrip(".") in shown for shown in page["notices"]), (query, notice, page["notices"])
            without_meaning += NOT_READY in expected_notices
    # Most queries have a text, and a mode that uses meaning.
    assert without_meaning == 0 if is_ready else without_meaning > QUERIES // 3

"""Random queries answered alike by the page, the API, and MCP over HTTP and over standard input and output."""

import asyncio
import json
import random
import re
import time
from html import unescape

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from mcp import Client

from memories.embedding.query import not_ready_reason
from search.query import Mode
from tests.agent_tools.conftest import key_for
from tests.agent_tools.test_clients import over_http, stdio
from tests.embedding import embed_all
from tests.html import html_of

QUERIES = 200
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
    return {
        "rows": [(row.get("kind"), row["id"]) for row in rows],
        "total": data["total"],
        "hidden": data["hidden"],
        "notices": [warning["message"] for warning in data["warnings"]],
    }


def of_tool(result):
    text = result.content[0].text
    if result.is_error:
        return text
    data = json.loads(text)
    rows = data["results"] if "results" in data else data["memories"]
    return {
        # Other ids than those of memories name their kind, so that no agent fetches them as memories.
        "rows": [(row.get("kind"), int(str(row["id"]).rpartition(":")[2])) for row in rows],
        "total": data["total"],
        # A sentence that begins with the number.
        "hidden": int(str(data.get("hidden", 0)).split()[0].replace(",", "")),
        "notices": data.get("warnings", []),
    }


def of_page(response):
    text = html_of(response)
    total = re.search(r'<h1 id="total"[^>]*>\s*([\d,]+)', text)
    notices = re.findall(r'<div class="notice[^>]*>(.*?)</div>', text, re.DOTALL)
    return {
        "rows": [(None, int(pk)) for pk in re.findall(r'<article id="hit-(\d+)"', text)],
        "total": int(total[1].replace(",", "")) if total else None,
        "notices": [" ".join(unescape(re.sub(r"<[^>]+>", " ", notice)).split()) for notice in notices],
    }


@pytest.fixture
def embedded(shared_ids):
    embed_all()
    # A server without its model says so, while the command waits for its own: compare them when both are ready.
    for _ in range(600):
        if not not_ready_reason():
            return shared_ids
        time.sleep(0.1)
    raise AssertionError(not_ready_reason())


def test_random_queries_give_the_same_answer_through_every_interface(embedded, site, database_url):
    raw = key_for()
    rng = random.Random(13)
    queries = [random_query(rng) for _ in range(QUERIES)]

    async def answers(client):
        tool = [
            await client.call_tool("search", {**query, "format": "json", "max_tokens": 90_000}) for query in queries
        ]
        return [of_tool(result) for result in tool]

    async def over_stdio():
        async with Client(stdio(database_url, MNEMOSCOPE_KEY=raw)) as client:
            return await answers(client)

    # First of all, so that the process that has just started answers as the one that runs already.
    by_stdio = asyncio.run(over_stdio())
    by_http = asyncio.run(over_http(site, raw, answers))
    browser = Browser()
    browser.force_login(User.objects.create_user("reader", is_superuser=True))
    with httpx2.Client(base_url=site, headers={"Authorization": f"Bearer {raw}"}, timeout=120) as http:
        for query, stdio_answer, http_answer in zip(queries, by_stdio, by_http, strict=True):
            expected = of_api(http.get("/api/search", params={"page_size": 20, **query}))
            assert stdio_answer == http_answer, query
            if isinstance(expected, str):
                assert http_answer.startswith(expected.rstrip(".")), query
                continue
            # The tool adds spellings to a notice, which the API has in a field of their own.
            notices = http_answer.pop("notices")
            expected_notices = expected.pop("notices")
            assert len(notices) == len(expected_notices), query
            assert all(map(str.startswith, notices, expected_notices)), query
            assert http_answer == expected, query
            page = of_page(browser.get("/explore/", {"page_size": 20, **query}, follow=True))
            if query.get("mode") != Mode.UNIFIED:
                assert (page["rows"], page["total"] or 0) == (expected["rows"], expected["total"]), query
            for notice in expected_notices:
                assert any(notice.rstrip(".") in shown for shown in page["notices"]), (query, notice, page["notices"])

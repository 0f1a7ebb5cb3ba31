"""Hostile texts through every interface: a correct result or a clear error, never a failure of the server."""

import json
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from memories.models import Memory
from search.query import SearchQuery
from search.run import run
from tests.hostile import TEXTS
from tests.html import html_of
from tests.search.conftest import BOTH_ENGINES
from web.params import QueryError

pytestmark = BOTH_ENGINES

FAILED = "Internal error"
FILTERS = ("tag", "category", "type", "concept", "author", "entity", "agent", "project", "source", "state")
# Refusals before the search do not depend on the engine.
one_engine = pytest.mark.engines("postgres")


@pytest.fixture
def caller(corpus):
    raw = make_key(
        name="agent",
        scopes=["read", "write"],
        every_project=True,
        viewer=command_viewer(),
        requests_per_minute=1_000_000,
    ).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture(params=[8, pytest.param(1, marks=pytest.mark.release)], ids=["an eighth", "all"])
def texts(request):
    return TEXTS[:: request.param]


def address(path, **parameters):
    """A URL with these parameters, including surrogates."""
    pairs = (f"{key}={quote(value.encode(errors='surrogatepass'))}" for key, value in parameters.items())
    return f"{path}?{'&'.join(pairs)}"


def with_engine(response, text):
    """The reply; other statuses must be clear refusals."""
    assert response.status_code in {200, 404, 422}, (text[:100], response.status_code, response.content[:500])
    reply = response.json()
    if response.status_code != 200:
        assert reply["detail"], text[:100]
        return None
    return reply


def test_there_are_enough_of_them():
    assert len(TEXTS) >= 500


def test_any_text_is_searched_for_or_refused_clearly(corpus, caller, everyone, texts):
    for text in texts:
        reply = with_engine(caller.get(address("/api/search", q=text, page_size="100", view="index")), text)
        # URLs cannot contain surrogates: the replacement character arrives.
        text = text.encode(errors="surrogatepass").decode(errors="replace")
        try:
            result = run(SearchQuery.from_mapping({"q": text, "page_size": 100}), everyone)
        except QueryError:
            assert reply is None, text[:100]
            continue
        # The reply echoes the same text as the query elsewhere.
        assert reply["filters"].get("q", "") == text.strip()
        assert [row["id"] for row in reply["memories"]] == [hit.id for hit in result.hits]
    assert Memory.objects.count() == 16


@one_engine
def test_any_text_as_a_value_finds_what_has_it_and_nothing_else(corpus, caller, texts):
    for n, text in enumerate(texts):
        name = FILTERS[n % len(FILTERS)]
        reply = with_engine(caller.get(address("/api/search", **{name: text})), text)
        assert reply is None or not text.strip() or reply["total"] == 0, (name, text[:100])


@one_engine
def test_any_text_anywhere_else_is_read_or_refused(corpus, caller, texts):
    places = [
        ("/api/search", "from"),
        ("/api/search", "since"),
        ("/api/search", "tz"),
        ("/api/search", "page"),
        ("/api/search", "view"),
        ("/api/search", "mode"),
        ("/api/facets", "q"),
        ("/api/facets/tag", "search"),
        ("/api/facets/category", "parent"),
        ("/api/timeline", "anchor"),
        ("/api/timeline", "query"),
        ("/api/timeline", "depth_before"),
        ("/api/health", "q"),
    ]
    for n, text in enumerate(texts):
        path, name = places[n % len(places)]
        with_engine(caller.get(address(path, **{name: text})), text)
        body = json.dumps({"ids": [text, 1], "project": text}) if n % 2 else json.dumps({"ids": [1], text: 1})
        with_engine(caller.post("/api/memories/batch", body, content_type="application/json"), text)


@one_engine
def test_tools_answer_any_text(corpus, everyone, texts):
    asked = [
        lambda text: ("search", {"query": text}),
        lambda text: ("search", {"tag": [text], "-category": text}),
        lambda text: ("timeline", {"query": text}),
        lambda text: ("timeline", {"anchor": text}),
        lambda text: ("get_observations", {"ids": [text]}),
        lambda text: ("get_observations", {"ids": text}),
        lambda text: ("retrieve_memory", {"query": text, "include_facets": True, "max_tokens": 500}),
        lambda text: ("search", {text: text}),
        lambda text: ("update_memory", {"id": text, "title": text}),
        lambda text: ("relate", {"id": 1, "target": text, "rel": text}),
    ]
    for n, text in enumerate(texts):
        name, arguments = asked[n % len(asked)](text)
        try:
            told = call(TOOL[name], arguments, everyone)
        except ToolRefusedError as error:
            told = str(error)
        assert FAILED not in told, (name, text[:100])
        assert told.strip(), (name, text[:100])


@one_engine
def test_any_text_can_be_stored_and_comes_back_or_is_refused(corpus, caller, texts):
    for n, text in enumerate(texts):
        body = json.dumps(
            {"content": text, "title": text[:400], "project": "tea", "external_id": f"h{n}", "tags": [text[:90]]}
        )
        response = caller.post("/api/memories", body, content_type="application/json")
        assert response.status_code in {201, 422}, (text[:100], response.content[:500])
        if response.status_code == 201 and text.isprintable():
            memory = response.json()["memory"]
            assert memory["content"].strip() == text.strip()
            assert (
                json.loads(
                    call(
                        TOOL["get_observations"],
                        {"ids": [memory["id"]], "format": "json", "max_tokens": 100_000},
                        command_viewer(),
                    )
                )["total"]
                == 1
            )


@one_engine
def test_pages_answer_any_text(corpus, texts):
    browser = Client()
    browser.force_login(User.objects.create_superuser("owner"))
    for n, text in enumerate(texts):
        path, name = [("/explore/", "q"), ("/explore/", "tag"), ("/facets/tag/", "search"), ("/explore/", "from")][
            n % 4
        ]
        response = browser.get(address(path, **{name: text}))
        assert response.status_code in {200, 302, 400, 404}, text[:100]
        assert "<script>alert(1)</script>" not in html_of(response)


@one_engine
def test_deep_nesting_is_refused_and_breaks_nothing(corpus, caller):
    for body in (
        "[" * 100_000,
        '{"ids":' * 50_000,
        "[" * 50_000 + "]" * 50_000,
        '{"ids": ' + "[" * 3_000 + "]" * 3_000 + "}",
    ):
        response = caller.post("/api/memories/batch", body, content_type="application/json")
        assert response.status_code in {400, 422}
        with pytest.raises(ToolRefusedError) as error:
            call(TOOL["get_observations"], {"ids": body}, command_viewer())
        assert FAILED not in str(error.value)

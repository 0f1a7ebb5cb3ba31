"""The explorer's pages through the test client."""

import gc
import re
import weakref
from urllib.parse import unquote_plus

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.test import Client
from django.views.defaults import permission_denied
from django_htmx.middleware import HtmxDetails

from access.models import Membership
from access.viewer import command_viewer
from config.urls import bad_request, server_error
from explorer.http import page_response
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.html import html_of

HTMX = {"HTTP_HX_REQUEST": "true", "HTTP_HX_TARGET": "explorer"}


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def hit_titles(response):
    found = re.findall(r'<article id="hit-\d+".*?<h2><a [^>]*>(.*?)</a></h2>', html_of(response), re.DOTALL)
    return [re.sub(r"<[^>]+>", "", title) for title in found]


def hidden_fields(response):
    return re.findall(r'<input type="hidden" form="explore-form" name="([^"]+)" value="([^"]*)">', html_of(response))


def ticked(response):
    tags = re.findall(r'<input type="checkbox"[^>]*form="explore-form"[^>]*>', html_of(response))
    on = [tag for tag in tags if " checked" in tag and " disabled" not in tag]
    return [tuple(re.search(rf'{name}="([^"]*)"', tag)[1] for name in ("name", "value")) for tag in on]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/explore/", "/facets/tag/"])
def test_pages_need_a_sign_in(client, path):
    response = client.get(path)
    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in/?next=")


def test_explore_is_a_whole_page(reader):
    response = reader.get("/explore/")
    assert response.status_code == 200
    assert html_of(response).count("<h1") == 1
    assert "14 memories" in html_of(response)
    assert "<title>14 memories · Mnemoscope</title>" in html_of(response)
    assert "2 archived or superseded are hidden" in html_of(response)
    assert len(hit_titles(response)) == 14


def test_page_is_private_and_varies(reader):
    response = reader.get("/explore/")
    assert response["Cache-Control"] == "private, no-cache"
    assert {part.strip() for part in response["Vary"].split(",")} >= {"HX-Request", "Cookie"}
    stages = {part.split(";")[0] for part in response["Server-Timing"].split(", ")}
    assert stages == {"search", "facets", "hits", "render"}


# --- the canonical address ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        pytest.param("?q=&from=&to=&bucket=&sort=", "/explore/", id="empty fields"),
        pytest.param("?tag=tea&tag=guests&tag=tea", "/explore/?tag=guests&tag=tea", id="order and repeats"),
        pytest.param("?memory_type=note&query=tea", "/explore/?q=tea&type=note", id="other spellings"),
        pytest.param("?page=1&page_size=25&mode=hybrid", "/explore/", id="defaults"),
        pytest.param("?q=tea&mode=", "/explore/?q=tea", id="the default mode of the form"),
        pytest.param("?q=tag:tea+oolong+-type:note", "/explore/?q=oolong&tag=tea&-type=note", id="typed filters"),
        pytest.param(
            "?q=tea&mode=keyword&min_similarity=0.4",
            "/explore/?q=tea&mode=keyword",
            id="meaning where words are asked for",
        ),
        pytest.param("?include_facets=1&q=tea", "/explore/?q=tea", id="facets are no choice here"),
        pytest.param("?q=+tea+", "/explore/?q=tea", id="blanks"),
    ],
)
def test_form_leads_to_the_canonical_address(reader, given, canonical):
    response = reader.get(f"/explore/{given}")
    assert response.status_code == 302
    assert response["Location"] == canonical
    assert reader.get(canonical).status_code == 200


# --- fragments ----------------------------------------------------------------------------------------------------


def test_fragment_holds_the_explorer_and_its_title_alone(reader):
    response = reader.get("/explore/?tag=tea", **HTMX)
    assert "<html" not in html_of(response)
    assert 'id="q"' not in html_of(response)
    assert html_of(response).strip().startswith("<title>")
    assert 'id="explorer"' in html_of(response)
    assert 'data-status="4 memories"' in html_of(response)


def test_fragment_and_page_agree(reader):
    page, fragment = reader.get("/explore/?q=tea&project=tea"), reader.get("/explore/?q=tea&project=tea", **HTMX)

    def told(response):
        start = html_of(response).index('<div id="explorer"')
        end = html_of(response).index('<aside id="panel"') if '<aside id="panel"' in html_of(response) else None
        text = re.sub(r"\d+ ms", "", html_of(response)[start:end])
        # A token against forgery is written differently each time.
        text = re.sub(r'(name="csrfmiddlewaretoken" value=")\w+', r"\1", text)
        # Only scripts request fragments.
        text = re.sub(r"(<li>)?<noscript>.*?</noscript>(</li>)?", "", text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", text).strip()

    assert told(page) == told(fragment)


# --- the form keeps the query ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "querystring",
    [
        pytest.param("q=tea&project=tea&tag=guests&tag=tea&-type=howto", id="ticks and exclusions"),
        pytest.param("tag=guests&tag=tea&tag.all=1", id="all of them"),
        pytest.param("category=kitchen%2Foven&subcategories=0", id="exact category"),
        pytest.param("has=entity&no=agent", id="presence"),
        pytest.param("tag=tea&since=1y&tz=Asia%2FTokyo&page_size=50", id="span, zone and page size"),
        pytest.param("author=Nobody+at+all", id="unknown value"),
        pytest.param("state=archived&state=superseded", id="states"),
    ],
)
def test_form_sends_the_query_that_it_shows(reader, querystring):
    response = reader.get(f"/explore/?{querystring}")
    assert response.status_code == 200
    visible = [("q", value) for value in re.findall(r'<input id="q"[^>]*value="([^"]+)"', html_of(response))]
    visible += [("tag.all", "1")] if re.search(r'name="tag.all" value="1" checked', html_of(response)) else []
    sent = [*visible, *ticked(response), *hidden_fields(response)]
    wanted = [tuple(pair) for pair in re.findall(r"([^&=]+)=([^&]*)", querystring)]
    decoded = [(key, value.replace("%2F", "/").replace("+", " ")) for key, value in wanted]
    assert sorted(sent) == sorted(decoded)


def test_row_shows_the_count_that_ticking_it_gives(reader):
    response = reader.get("/explore/?project=tea")
    rows = re.findall(r'name="type" value="([^"]+)" aria-label="[^",]+, (\d+)', html_of(response))
    assert rows
    for value, count in rows:
        assert len(hit_titles(reader.get(f"/explore/?project=tea&type={value}"))) == int(count)


def test_apply_is_there_for_those_without_scripts(reader):
    text = html_of(reader.get("/explore/"))
    assert re.search(r'<noscript><p class="apply"><button[^>]*type="submit"[^>]*form="explore-form"', text)
    assert "data-open-filters" in text


# --- what is wrong with a request -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("querystring", "parameter", "told"),
    [
        pytest.param("from=yesterday", "from", "Write YYYY-MM-DD", id="malformed date"),
        pytest.param("page=0", "page", "Write a number from 1 to 1,000,000", id="page zero"),
        pytest.param("sort=best", "sort", "Write one of relevance", id="unknown sort"),
        pytest.param("q=" + "x" * 10_001, "q", "Write at most 10,000", id="long query"),
        pytest.param("q=a%00b", "q", "holds a character that is not text", id="NUL"),
        pytest.param("mode=tag", "tag", "Add tag=", id="contradiction"),
    ],
)
def test_bad_parameter_is_named_and_does_not_widen(reader, querystring, parameter, told):
    page = reader.get(f"/explore/?{querystring}")
    assert page.status_code == 200
    assert f"<strong><code>{parameter}</code></strong>" in html_of(page)
    assert told in html_of(page)
    filters = parameter in {"from", "q"}
    assert ("Nothing matches, because this is not understood" if filters else "14 memories") in html_of(page)
    fragment = reader.get(f"/explore/?{querystring}", **HTMX)
    assert fragment.status_code == 422
    assert told in html_of(fragment)
    # Every filter stays in the address, so that nothing is done with more than was asked for.
    kept = querystring if filters or parameter == "tag" else ""
    assert unquote_plus(fragment["HX-Push-Url"]) == f"/explore/?{unquote_plus(kept)}".rstrip("?")


def test_unknown_parameter_is_one_quiet_line_with_the_list_folded(reader):
    page = html_of(reader.get("/explore/?tagg=tea"))
    assert re.search(r'<div class="notice" role="note"><p>\s*“tagg” is not a parameter of this page.', page)
    assert "No memory matches" in page
    assert 'href="/explore/">Search without it</a>' in page
    assert "Did you mean “tag” or “-tag”?" in page
    assert "<details><summary>All parameters</summary>The parameters are q, mode," in page
    fragment = reader.get("/explore/?tagg=tea", **HTMX)
    assert (fragment.status_code, fragment["HX-Push-Url"]) == (422, "/explore/?tagg=tea")


def test_only_reading_is_allowed(reader):
    assert reader.post("/explore/").status_code == 405
    assert reader.head("/explore/").status_code == 200


# --- who sees what --------------------------------------------------------------------------------------------------


def test_member_of_one_project_sees_and_counts_that_alone(corpus):
    user = User.objects.create_user("guest")
    Membership.objects.create(user=user, project=Project.objects.get(slug="tea"))
    client = Client()
    client.force_login(user)
    text = html_of(client.get("/explore/"))
    assert "Teak for the deck" not in text
    assert 'name="project" value="boat"' not in text
    total = Memory.objects.filter(project__slug="tea", state__in=["active", "proposed"]).count()
    assert f"{total} memories" in text


def test_memory_text_is_escaped(corpus, reader, tmp_path):
    path = tmp_path / "evil.jsonl"
    path.write_text(
        '{"title": "<script>alert(1)</script> zebra", "content": "<img src=x onerror=alert(1)> zebra",'
        ' "tags": ["<b>bold</b>"], "project": "tea"}\n'
    )
    call_command("import_memories", str(path), verbosity=0)
    text = html_of(reader.get("/explore/?q=zebra"))
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>bold" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; <mark>zebra</mark>" in text


def test_statements_do_not_grow_with_what_is_shown(reader, django_assert_max_num_queries):
    # The counts, and the names of people, are cached. The text is the name of a project, which is offered.
    reader.get("/explore/?q=cups")
    with django_assert_max_num_queries(44):
        reader.get("/explore/?q=tea&category=kitchen&tag=tea&page_size=100")


# --- the values of one facet ----------------------------------------------------------------------------------------


# --- error pages ----------------------------------------------------------------------------------------------------


def test_error_pages_say_what_to_do(reader, rf, django_assert_num_queries, settings):
    settings.DEBUG = False
    assert "Page not found" in html_of(reader.get("/nowhere/"))
    with django_assert_num_queries(0):
        assert "Something went wrong" in server_error(rf.get("/")).text
    request = rf.get("/")
    request.user, request.htmx = AnonymousUser(), HtmxDetails(request)
    for page in (bad_request(request, ValueError()), permission_denied(request, PermissionDenied())):
        assert "every memory, by words and by filters" in page.text


def test_page_leaves_nothing_of_itself_to_the_garbage_collector(rf, admin_user):
    class Shown:
        pass

    shown = Shown()
    watched = weakref.ref(shown)
    request = rf.get("/")
    request.user, request.htmx = admin_user, HtmxDetails(request)
    gc.disable()
    try:
        page_response(request, "400.html", {"shown": shown, "length": 0}, partial="", timings={})
        del shown
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["/explore/?q={}", "/explore/?tag={}", "/m/1/?{}"])
def test_address_that_is_too_long_is_named_so(client, path):
    page = client.get(path.format("a" * 20_000))
    assert page.status_code == 414
    assert "This address is too long" in page.text
    assert "at most" not in page.text


def menu_of(client):
    """The paths of the menus of a page."""
    page = html_of(client.get("/explore/names/"))
    return set(re.findall(r'<a href="([^"]+)"', page[page.index('<nav class="menu"') : page.index("<main")]))


def test_the_menu_shows_the_analyses_that_have_content(corpus):
    places = {"/", "/explore/", "/categories/", "/map/", "/review/"}
    analyses = {"/compare/", "/graph/", "/sessions/"}
    users = {name: User.objects.create_user(name) for name in ("nobody", "tea", "boat")}
    for name in ("tea", "boat"):
        Membership.objects.create(user=users[name], project=Project.objects.get(slug=name), role="reader")
    memory_create(record=MemoryRecord(project="tea", content="One.", session="s1"), viewer=command_viewer())
    menus = {}
    for name, user in users.items():
        client = Client()
        client.force_login(user)
        menus[name] = menu_of(client)
        assert places <= menus[name]
    assert menus["nobody"] & analyses == set()
    assert menus["tea"] & analyses == analyses
    assert menus["boat"] & analyses == {"/compare/", "/graph/"}

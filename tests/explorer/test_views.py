"""The explorer's pages through the test client."""

import gc
import re
import weakref
from datetime import UTC, datetime
from html import unescape
from urllib.parse import parse_qsl, unquote_plus
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django_htmx.middleware import HtmxDetails

from access.models import Membership
from explorer.http import page_response
from memories.models import Memory, Project
from search.query import SearchQuery
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


def test_fragment_sends_the_canonical_address_to_the_address_bar(reader):
    response = reader.get("/explore/?q=&tag=tea&from=", **HTMX, HTTP_HX_CURRENT_URL="http://testserver/explore/")
    assert response.status_code == 200
    assert response["HX-Push-Url"] == "/explore/?tag=tea"


def test_typing_replaces_the_address(reader):
    response = reader.get("/explore/?q=te", **HTMX, HTTP_X_TYPING="1")
    assert response["HX-Replace-Url"] == "/explore/?q=te"
    assert "HX-Push-Url" not in response


def test_asking_again_for_the_same_adds_no_history(reader):
    here = "http://testserver/explore/?tag=tea"
    response = reader.get("/explore/?tag=tea&q=", **HTMX, HTTP_HX_CURRENT_URL=here)
    assert response["HX-Replace-Url"] == "/explore/?tag=tea"


# --- fragments ----------------------------------------------------------------------------------------------------


def test_fragment_holds_the_explorer_and_its_title_alone(reader):
    response = reader.get("/explore/?tag=tea", **HTMX)
    assert "<html" not in html_of(response)
    assert 'id="q"' not in html_of(response)
    assert html_of(response).strip().startswith("<title>")
    assert 'id="explorer"' in html_of(response)
    assert 'data-status="4 memories"' in html_of(response)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"HTTP_HX_BOOSTED": "true"}, id="boosted"),
        pytest.param({"HTTP_HX_HISTORY_RESTORE_REQUEST": "true"}, id="history"),
    ],
)
def test_links_taken_over_and_back_get_the_whole_page(reader, headers):
    assert "<html" in html_of(reader.get("/explore/?tag=tea", **HTMX, **headers))


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


DATES = [
    pytest.param("from=2026-01-01&to=2026-12-31", "date", id="days"),
    pytest.param("to=2026-12-31", "date", id="one end"),
    pytest.param("from=2026-01-01&to=9999-12-31", "date", id="last day there is"),
    pytest.param("from=2026-01-01T00:00Z&to=2026-12-31", "datetime-local", id="time and day"),
    pytest.param("from=2025-12-31T23:00Z&to=2026-12-31", "date", id="whole days of the zone"),
    pytest.param("from=2026-03-01T10:00-03:00&to=2026-03-01T10:59-03:00", "datetime-local", id="hour elsewhere"),
    pytest.param("from=2026-03-01T10:00:15Z&to=2026-03-01T10:30:45Z", "datetime-local", id="seconds"),
    pytest.param("from=2026-03-01T10:00:15Z", "datetime-local", id="seconds, one end"),
    pytest.param("from=2026-03-01T10:00:15Z&to=2026-03-01T10:30:00Z", "text", id="no picker says second zero"),
    pytest.param("from=2026-03-01T10:00:15.25Z", "text", id="fraction of a second"),
    pytest.param("from=2025-10-26T02:30%2B01:00", "text", id="hour that comes twice"),
    pytest.param("from=2026-03-29T02:30&to=2026-03-30", "datetime-local", id="hour that never comes"),
]


@pytest.mark.parametrize(("querystring", "kind"), DATES)
def test_dates_that_nobody_changed_are_sent_as_they_were_asked(reader, querystring, kind):
    reader.cookies["timezone"] = "Europe/Berlin"
    zone, now = ZoneInfo("Europe/Berlin"), datetime(2026, 6, 1, tzinfo=UTC)
    Memory.objects.filter(title="Cups").update(created_at=datetime(2026, 3, 1, 10, tzinfo=UTC))
    query = SearchQuery.from_pairs(parse_qsl(querystring))
    text = html_of(reader.get(f"/explore/?{query.querystring()}"))
    inputs = re.findall(
        r'<input type="([^"]*)" id="date-[^>]*? name="(\w+)" [^>]*?value="([^"]*)" data-asked="([^"]*)"', text
    )
    assert {kind_of for kind_of, *_ in inputs} == {kind}
    asked = SearchQuery.from_pairs((name, unescape(was)) for _, name, _, was in inputs)
    assert asked == query
    shown = SearchQuery.from_pairs((name, unescape(value)) for _, name, value, _ in inputs)
    assert shown.period(zone, now) == query.period(zone, now)
    # Browsers drop values that the type of an input does not allow.
    forms = {"date": r"(\d{4}-\d\d-\d\d)?", "datetime-local": r"(\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?)?", "text": ".*"}
    assert all(re.fullmatch(forms[kind], unescape(value)) for _, _, value, _ in inputs)


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


def test_excluded_word_alone_is_named_in_the_sentence_of_matches(reader):
    assert "12 do not contain “kettle”" in html_of(reader.get("/explore/?q=-kettle&mode=keyword"))


def test_page_past_the_last_links_to_the_last(reader):
    response = reader.get("/explore/?page=9")
    assert response.status_code == 200
    assert "is past the last page" in html_of(response)
    assert '<a class="link" data-swap href="/explore/">Go to page 1</a>' in html_of(response)


def test_dates_the_wrong_way_round_are_explained(reader):
    text = html_of(reader.get("/explore/?from=2025-01-01&to=2024-01-01"))
    assert "The date range ends before it starts" in text
    assert "No memory matches" in text


def test_nothing_found_names_what_each_removal_would_give(reader):
    text = html_of(reader.get("/explore/?q=zebra&tag=tea"))
    assert "<b>4</b> without the words “zebra”" in text


@pytest.mark.django_db
def test_empty_corpus_says_how_to_fill_it(client):
    client.force_login(User.objects.create_superuser("reader"))
    assert "python manage.py import_memories" in html_of(client.get("/explore/"))


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


def test_theme_and_time_zone_come_from_cookies(reader):
    reader.cookies["theme"] = "dark"
    reader.cookies["timezone"] = "Asia/Tokyo"
    text = html_of(reader.get("/explore/?q=kettle+valve"))
    assert 'data-theme="dark"' in text
    assert "6 Jan 2024, 08:30 JST" in text


@pytest.mark.parametrize("zone", ["Nowhere/Else", "../../etc/passwd", "", "x" * 5_000])
def test_time_zone_that_is_none_is_the_default(reader, zone):
    reader.cookies["timezone"] = zone
    reader.cookies["theme"] = '"><script>'
    text = html_of(reader.get("/explore/?q=kettle+valve"))
    assert "5 Jan 2024, 23:30 UTC" in text
    assert "data-theme=" not in text


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_either_end_of_the_calendar_is_listed_in_every_zone(reader, zone):
    ends = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for title, moment in zip(("Cups", "Paint order"), ends, strict=True):
        assert Memory.objects.filter(title=title).update(created_at=moment) == 1
    reader.cookies["timezone"] = zone
    for querystring in (
        "",
        "sort=oldest",
        "q=paint",
        "q=cups",
        "q=cups&bucket=hour",
        "from=2024-01-01",
        "to=2024-01-01",
    ):
        response = reader.get(f"/explore/?{querystring}")
        assert response.status_code == 200
        assert hit_titles(response)


def test_statements_do_not_grow_with_what_is_shown(reader, django_assert_max_num_queries):
    reader.get("/explore/")
    with django_assert_max_num_queries(36):
        reader.get("/explore/?q=tea&category=kitchen&tag=tea&page_size=100")


# --- the values of one facet ----------------------------------------------------------------------------------------


def test_values_page_lists_searches_and_sorts(reader):
    text = html_of(reader.get("/facets/tag/?project=tea&sort=name"))
    names = re.findall(r'name="tag" value="([^"]+)"', text)
    assert names == sorted(names)
    found = html_of(reader.get("/facets/tag/?search=kett"))
    assert re.findall(r'<input type="checkbox"[^>]*value="([^"]+)"', found) == ["kettle"]
    assert "No tag matches this name." in html_of(reader.get("/facets/tag/?search=zzz"))


def test_values_page_offers_what_is_typical_where_there_is_something_to_compare_with(reader):
    assert "Typical first" not in html_of(reader.get("/facets/tag/"))
    page = html_of(reader.get("/facets/tag/?type=decision"))
    assert re.search(r'href="(/facets/tag/\?[^"]*sort=typical[^"]*)">Typical first<', page)
    chosen = html_of(reader.get("/facets/tag/?sort=typical"))
    assert re.search(r'aria-current="true">Typical first<', chosen)


def test_values_page_calls_what_is_chosen_by_its_name(reader):
    path = "/facets/tag/?category=stove&entity=kettle"
    explored = html_of(reader.get(path.replace("/facets/tag/", "/explore/")))
    names = re.findall(r'aria-label="(Remove filter: [^"]+)"', explored)
    assert names == ["Remove filter: category Kitchen / Oven", "Remove filter: entity kettle"]
    assert re.findall(r'aria-label="(Remove filter: [^"]+)"', html_of(reader.get(path))) == names


def test_values_page_sends_ticks_to_the_results(reader):
    text = html_of(reader.get("/facets/tag/?q=tea&tag=guests"))
    assert '<form id="values-form" method="get" action="/explore/"' in text
    assert '<input type="hidden" name="q" value="tea">' in text
    assert re.search(r'form="values-form" name="tag" value="guests"[^>]* checked', text)


def test_ticking_on_the_values_page_stays_there(reader):
    headers = {"HTTP_HX_REQUEST": "true", "HTTP_HX_TARGET": "main"}
    response = reader.get("/facets/tag/?sort=name&q=tea&tag=guests", **headers)
    assert "<html" not in html_of(response)
    assert response["HX-Push-Url"] == "/facets/tag/?q=tea&tag=guests&sort=name"


def test_level_of_the_tree_is_a_fragment_of_rows(reader):
    page = reader.get("/facets/category/?parent=kitchen")
    assert "<html" in html_of(page)
    fragment = reader.get("/facets/category/?parent=kitchen", HTTP_HX_REQUEST="true", HTTP_HX_TARGET="below-x")
    assert html_of(fragment).strip().startswith("<li")
    assert re.findall(r'name="category" value="([^"]+)"', html_of(fragment)) == ["kitchen/brewing", "kitchen/oven"]
    assert 'form="explore-form"' in html_of(fragment)
    assert "HX-Push-Url" not in fragment


def test_ticking_on_the_page_of_a_level_gets_that_page(reader):
    headers = {"HTTP_HX_REQUEST": "true", "HTTP_HX_TARGET": "main"}
    response = reader.get("/facets/category/?parent=kitchen&category=kitchen%2Foven", **headers)
    assert 'id="values"' in html_of(response)
    assert response["HX-Push-Url"] == "/facets/category/?category=kitchen%2Foven&parent=kitchen"


def test_unknown_facet_is_not_found(reader):
    assert reader.get("/facets/colour/").status_code == 404


def test_bad_listing_is_named(reader):
    response = reader.get("/facets/tag/?sort=best&page=x")
    assert response.status_code == 200
    assert "Write one of count, name" in html_of(response)
    assert "Write a number from 1" in html_of(response)


# --- error pages ----------------------------------------------------------------------------------------------------


def test_error_pages_say_what_to_do(reader, rf, django_assert_num_queries, settings):
    settings.DEBUG = False
    assert "Page not found" in html_of(reader.get("/nowhere/"))
    from django.template.loader import render_to_string

    with django_assert_num_queries(0):
        assert "Something went wrong" in render_to_string("500.html", {"request_id": ""})
    request = rf.get("/")
    for name, values in (("400.html", {"length": 0}), ("403.html", {"exception": ""})):
        assert "every memory, by words and by filters" in render_to_string(name, values, request)


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

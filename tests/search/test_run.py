"""run() over the hand-written corpus."""

import dataclasses
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines import sql, with_engine
from search.engines.base import EngineQuery, Filter
from search.engines.index.engine import IndexEngine
from search.engines.postgres import PostgresEngine
from search.listings import facet_page
from search.query import SearchQuery, Sort
from search.result import FacetListing, HitDetail
from search.run import run
from tests.search.conftest import EVERY_COUNT
from tests.search.queries import EVERYTHING, facet

pytestmark = EVERY_COUNT


def ask(querystring, viewer, **options):
    return run(SearchQuery.from_pairs(parse_qsl(querystring, keep_blank_values=True)), viewer, **options)


def titles(result):
    return [hit.title_text for hit in result.hits]


def counts(result, key):
    return {value.value: value.count for value in facet(result, key).values}


# --- by hand ------------------------------------------------------------------------------------------------------


def test_nothing_asked_finds_active_and_proposed_newest_first(corpus, everyone):
    result = ask("", everyone)
    assert result.total == 14
    assert result.hidden == 2
    assert titles(result)[:2] == ["Serve tea on the boat", "Descale with rm -rf vinegar"]
    assert result.facets is None


def test_type_count_ignores_its_own_filter(corpus, everyone):
    result = ask("type=decision&include_facets=1", everyone)
    assert result.total == 3
    assert counts(result, "type") == {"note": 6, "decision": 3, "bugfix": 2, "howto": 2, "idea": 1}
    assert counts(result, "project") == {"tea": 2, "boat": 1}


def test_parent_category_counts_each_memory_once(corpus, everyone):
    values = {v.value: v for v in facet(ask("include_facets=1", everyone), "category").values}
    assert (values["yard"].count, values["yard"].own_count) == (6, 2)
    assert (values["yard/dock"].count, values["yard/dock"].own_count) == (3, 2)
    assert values["yard/dock"].parent == "yard"
    assert (values["kitchen"].count, values["kitchen"].own_count) == (3, 1)


@pytest.mark.parametrize("name", ["kitchen/oven", "Kitchen/Oven", "oven", "STOVE"])
def test_category_is_found_by_path_name_or_alias(corpus, everyone, name):
    assert titles(ask(f"category={name}", everyone)) == ["Kettle valve stuck"]


def test_exclusion_says_how_many_it_hides(corpus, everyone):
    result = ask("-tag=tea&include_facets=1", everyone)
    (row,) = [value for value in facet(result, "tag").values if value.excluded]
    assert (row.value, row.count) == ("tea", 4)
    assert result.total == 14 - 4


def test_all_of_several_tags(corpus, everyone):
    assert ask("tag=tea&tag=guests", everyone).total == 4
    result = ask("tag=tea&tag=guests&match_all=1&include_facets=1", everyone)
    assert titles(result) == ["Sugar on every table", "Guests like oolong"]
    assert counts(result, "tag") == {"guests": 2, "tea": 2}


def test_selected_value_is_listed_though_nothing_has_it(corpus, everyone):
    result = ask("tag=paint&project=tea&include_facets=1", everyone)
    assert result.total == 0
    assert ("paint", 0, True) in [(v.value, v.count, v.selected) for v in facet(result, "tag").values]


def test_unknown_value_matches_nothing_and_suggests(corpus, everyone):
    result = ask("category=kichen&include_facets=1", everyone)
    assert result.total == 0
    assert [(w.parameter, w.did_you_mean) for w in result.warnings] == [("category", ("kitchen",))]
    result = ask("tag=kettel", everyone)
    assert [(w.parameter, w.did_you_mean) for w in result.warnings] == [("tag", ("kettle",))]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("oolnog", ["oolong"]),
        ("sugar+guetss", ["sugar guests"]),
        ("suggar+guetss", ["sugar guests"]),
        ("+valvve", ["+valve"]),
        ("xyzzyq", []),
    ],
)
def test_a_word_that_nothing_has_suggests_one_like_it(corpus, everyone, typed, meant):
    result = ask(f"q={typed.replace('+', '%2B', 1) if typed[0] == '+' else typed}", everyone)
    assert result.total == 0
    (warning,) = [w for w in result.warnings if w.parameter == "q"]
    assert list(warning.did_you_mean) == meant
    for text in meant:
        assert run(SearchQuery(text=text), everyone).total


def test_suggested_words_are_of_memories_that_may_be_seen(corpus, everyone):
    viewer = dataclasses.replace(everyone, project_ids=frozenset({Memory.objects.get(external_id="b1").project_id}))
    assert [w.did_you_mean for w in ask("q=oolnog&mode=keyword", everyone).warnings] == [("oolong",)]
    assert not any(w.did_you_mean for w in ask("q=oolnog", viewer).warnings)


def test_zero_hits_say_what_each_removal_would_give(corpus, everyone):
    result = ask("tag=paint&project=tea&-type=note", everyone)
    assert [(w.label, w.count) for w in result.relaxations] == [
        ("project tea", 0),
        ("not type note", 0),
        ("tag paint", 5),
    ]
    for removal in result.relaxations:
        assert run(removal.query, everyone).total == removal.count


def test_dates_that_end_before_they_start_match_nothing_and_say_so(corpus, everyone):
    result = ask("start_date=2025-01-01&end_date=2024-01-01&include_facets=1", everyone)
    assert result.total == 0
    assert "ends before it starts" in result.warnings[0].message


def test_histogram_bar_gives_the_number_on_it(corpus, everyone):
    for zone in ("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Tokyo"):
        for bucket in ("day", "month", "quarter", "year", "auto"):
            result = ask(f"include_facets=1&tz={zone}&bucket={bucket}&from=2024-01-01&to=2024-03-31", everyone)
            for bar in result.histogram.bars:
                clicked = run(result.query.between(bar.first, bar.last), everyone)
                assert clicked.total == bar.all, (zone, bucket, bar)
            assert sum(bar.count for bar in result.histogram.bars) == result.total


def test_hour_bars_give_the_numbers_on_them(corpus, everyone):
    for zone in ("UTC", "Europe/Berlin", "America/St_Johns"):
        result = ask(f"include_facets=1&tz={zone}&bucket=hour&from=2025-03-01&to=2025-03-01&project=boat", everyone)
        assert result.histogram.interval == "hour"
        assert sum(bar.count for bar in result.histogram.bars) == result.total > 0
        for bar in result.histogram.bars:
            if bar.all:
                assert run(result.query.between(bar.first, bar.last), everyone).total == bar.all


def test_date_buckets_are_cumulative_and_their_edges_are_inside(corpus, everyone, monkeypatch):
    now = datetime.now(UTC)
    monkeypatch.setattr("search.run.datetime", Mock(now=lambda zone: now))
    ages = [1, 7, 8, 30, 31, 90, 91, 365, 366]
    for memory, age in zip(Memory.objects.filter(project__slug="tea").order_by("id"), ages, strict=False):
        Memory.objects.filter(pk=memory.pk).update(created_at=now - timedelta(days=age), state="active")
    result = ask("project=tea&include_facets=1", everyone)
    buckets = result.date_buckets.by_name()
    assert buckets == {"last_7d": 2, "last_30d": 4, "last_90d": 6, "last_year": 8, "older": 1}
    assert buckets["last_year"] + buckets["older"] == result.total
    assert ask("project=tea&since=7d", everyone).total == 2


def test_what_is_dated_later_than_now_is_in_no_bucket_but_its_own(corpus, everyone):
    Memory.objects.filter(title="Cups").update(created_at=datetime.now(UTC) + timedelta(days=2))
    for querystring in ("project=tea", "project=tea&type=note", "project=tea&from=2024-01-01"):
        result = ask(f"{querystring}&include_facets=1", everyone)
        for buckets in (result.date_buckets, result.quick_ranges):
            assert (buckets.last_7d, buckets.last_year, buckets.future) == (0, 0, 1)
            assert buckets.older == result.total - 1
    assert result.date_buckets.by_name()["future"] == 1
    assert ask("project=tea&since=7d", everyone).total == 0


def test_updated_since_filters_by_the_last_change_whenever_a_memory_was_created(corpus, everyone):
    now = datetime.now(UTC)
    for title, age in (("Cups", 2), ("Paint order", 6), ("Crane brake slips", 8)):
        Memory.objects.filter(title=title).update(updated_at=now - timedelta(days=age))
    Memory.objects.exclude(title__in=["Cups", "Paint order", "Crane brake slips"]).update(
        updated_at=now - timedelta(days=300)
    )
    assert titles(ask("updated_since=7d&sort=updated", everyone)) == ["Cups", "Paint order"]
    assert ask("updated_since=2w", everyone).total == 3
    assert titles(ask(f"updated_since={(now - timedelta(days=3)):%Y-%m-%dT%H:%MZ}", everyone)) == ["Cups"]
    result = ask("updated_since=7d&tag=paint&include_facets=1", everyone)
    assert result.total == 1
    assert {v.value: v.count for v in facet(result, "type").values if v.count} == {"note": 1}
    assert sum(bar.all for bar in result.histogram.bars) == 1
    tea = replace(everyone, project_ids=frozenset([Project.objects.get(slug="tea").pk]))
    assert titles(ask("updated_since=7d", tea)) == ["Cups"]
    nothing = ask("updated_since=24h&tag=paint", everyone)
    assert [(one.key, one.label, one.count) for one in nothing.relaxations] == [
        ("updated_since", "the date of change", 1),
        ("tag", "tag paint", 0),
    ]


def test_facets_count_the_choices_or_the_results(corpus, everyone):
    def counts(querystring, key):
        found = facet(ask(f"{querystring}&include_facets=1", everyone, facet_limit=100), key)
        return {v.value: v.count for v in found.values if v.count}, found.no_value

    assert counts("type=decision", "type") == ({"note": 6, "decision": 3, "bugfix": 2, "howto": 2, "idea": 1}, 0)
    assert counts("type=decision&facet_scope=results", "type") == ({"decision": 3}, 0)
    assert counts("tag=tea", "tag")[0]["hardware"] == 3
    # The tags of t1, t3, t7 and t8.
    assert counts("tag=tea&facet_scope=results", "tag") == ({"tea": 4, "guests": 2, "boat": 1, "brewing": 1}, 0)
    assert counts("tag=tea&no=tag", "tag")[1] == counts("tag=tea&no=tag&facet_scope=results", "tag")[1] == 2
    assert counts("type=note", "state")[0] == {"active": 6, "archived": 1}
    assert counts("type=note&facet_scope=results", "state")[0] == {"active": 6}
    # In AND mode both count the results.
    for scope in ("choices", "results"):
        both = counts(f"tag=tea&tag=guests&tag.all=1&facet_scope={scope}", "tag")[0]
        assert both == {"tea": 2, "guests": 2}


def test_buckets_are_of_the_match_set_and_quick_ranges_ignore_the_dates(corpus, everyone):
    result = ask("include_facets=1&from=2024-01-01&to=2024-01-31", everyone)
    assert result.date_buckets.older + result.date_buckets.last_year == result.total
    assert result.quick_ranges.older + result.quick_ranges.last_year == ask("", everyone).total


def test_facets_are_the_same_on_every_page(corpus, everyone):
    first = ask("include_facets=1&page_size=3", everyone)
    last = ask("include_facets=1&page_size=3&page=5", everyone)
    assert first.facets == last.facets
    assert first.histogram == last.histogram


@pytest.mark.parametrize("sort", list(Sort))
def test_pages_are_stable_disjoint_and_complete(corpus, everyone, sort):
    seen = []
    for page in range(1, 7):
        result = ask(f"q=tea or boat or crane&sort={sort}&page_size=2&page={page}", everyone)
        seen += [hit.id for hit in result.hits]
    assert len(seen) == len(set(seen)) == result.total == 10


def test_an_index_has_the_same_rows_without_marks_and_snippets(corpus, everyone):
    query = SearchQuery.from_pairs([("q", "kettle")])
    full, index = (run(query, everyone, detail=detail) for detail in (HitDetail.FULL, HitDetail.INDEX))
    assert full.hits
    assert [(hit.id, hit.title_text, hit.score) for hit in index.hits] == [
        (hit.id, hit.title_text, hit.score) for hit in full.hits
    ]
    assert not any(hit.snippet or hit.found or any(part.marked for part in hit.title) for hit in index.hits)
    assert run(query, everyone, detail=HitDetail.NONE).total == full.total


def test_words_are_found_in_the_language_of_the_project(corpus, everyone):
    from memories.models import Project

    Project.objects.filter(slug="boat").update(language="german")
    result = ask("q=teas", everyone)
    assert {hit.project for hit in result.hits} == {"tea"}


def test_what_is_asked_for_in_the_title_is_marked_there_alone(corpus, everyone):
    (hit,) = ask("q=title:kett*", everyone).hits
    assert [s.text for s in hit.title if s.marked] == ["Kettle"]
    assert not any(s.marked for s in hit.snippet)
    (hit,) = ask("q=title:kett* valv*", everyone).hits
    assert [s.text for s in hit.title if s.marked] == ["Kettle", "valve"]
    assert {s.text for s in hit.snippet if s.marked} == {"valve", "kettle.valve"}


def test_statements_do_not_grow_with_hits_or_values(corpus, everyone):
    def statements(querystring):
        with CaptureQueriesContext(connection) as captured:
            ask(querystring, everyone)
        return len(captured)

    # Counts of the corpus are cached.
    ask("include_facets=1", everyone)
    few = statements("include_facets=1&page_size=1&q=paint")
    many = statements("include_facets=1&page_size=25&q=tea or boat or crane or check")
    assert many <= few + 2
    assert many <= 20


@pytest.mark.engines("postgres")
def test_facets_that_run_out_of_time_are_reported_and_hits_still_come(corpus, everyone, settings, monkeypatch):
    settings.SEARCH_FACET_TIMEOUT_MS = 1
    original = sql.facet_select

    def slow(sql, plan, request, k):
        return original(sql, plan, request, k).replace("WHERE", "WHERE pg_sleep(0.05) IS NOT NULL AND", 1)

    monkeypatch.setattr(sql, "facet_select", slow)
    result = ask("include_facets=1", everyone)
    assert len(result.hits) == 14
    assert all(facet.unavailable for facet in result.facets)
    assert result.histogram.unavailable


# --- visibility ---------------------------------------------------------------------------------------------------


def test_a_viewer_is_counted_only_what_they_may_open(corpus, everyone):
    from memories.models import Project

    tea = Project.objects.get(slug="tea").pk
    viewer = dataclasses.replace(everyone, project_ids=frozenset([tea]))
    result = ask("include_facets=1", viewer, facet_limit=EVERYTHING)
    assert {hit.project for hit in result.hits} == {"tea"}
    assert counts(result, "project") == {"tea": 8}
    assert "crane" not in counts(result, "tag")
    assert "yard/dock" not in counts(result, "category")
    hidden = ask("category=yard/dok&project=boat", viewer)
    assert hidden.total == 0
    assert all(not warning.did_you_mean for warning in hidden.warnings)
    nobody = ask("include_facets=1", dataclasses.replace(everyone, project_ids=frozenset()))
    assert (nobody.total, nobody.hidden) == (0, 0)
    assert all(not value.count for facet in nobody.facets for value in facet.values)


# --- values of one facet ------------------------------------------------------------------------------------------


def values_page(key, querystring, viewer, **listing):
    query = SearchQuery.from_pairs(parse_qsl(querystring))
    return facet_page(query, key, FacetListing(**listing), viewer)


def test_values_are_searched_sorted_and_paged(corpus, everyone):
    page = values_page("tag", "", everyone, sort="name", page_size=4)
    assert [v.label for v in page.facet.values] == ["boat", "brewing", "crane", "guests"]
    assert page.has_more
    assert [v.label for v in values_page("tag", "", everyone, search="BRE").facet.values] == ["brewing"]
    assert [v.label for v in values_page("entity", "", everyone, search="mio").facet.values] == ["Mio", "Mio"]


def test_values_that_are_more_frequent_here_than_elsewhere_come_first(corpus, everyone):
    def store(memory_type, numbers, *tags):
        for number in numbers:
            record = MemoryRecord(
                content=f"{memory_type} {number}", external_id=f"{memory_type}-{number}", type=memory_type, tags=tags
            )
            memory_create(record=record, viewer=everyone)

    store("survey", range(8), "weather", "tide")
    store("survey", range(8, 14), "weather", "rope")
    store("log", range(40), "weather", "rope")

    def labels(querystring, **listing):
        return [value.label for value in values_page("tag", querystring, everyone, **listing).facet.values]

    assert labels("type=survey") == ["weather", "tide", "rope"]
    assert labels("type=survey", sort="typical") == ["tide", "weather", "rope"]
    # The facet is counted without its own selection, and so is its order.
    assert labels("type=survey&tag=rope", sort="typical") == ["tide", "weather", "rope"]
    assert labels("type=survey", sort="typical", page_size=2, page=2) == ["rope"]
    assert labels("", sort="typical") == labels("")


def test_children_of_a_category_are_listed(corpus, everyone):
    page = values_page("category", "", everyone, parent="yard")
    assert [(v.value, v.count) for v in page.facet.values] == [("yard/dock", 3), ("yard/wood", 1)]
    assert [v.has_children for v in page.facet.values] == [True, False]


# --- what a visitor may try ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York", "Pacific/Pago_Pago"])
def test_dates_at_the_ends_of_the_calendar_break_no_zone(corpus, everyone, zone):
    first, last = Memory.objects.filter(project__slug="tea", state="active").order_by("id")[:2]
    Memory.objects.filter(pk=first.pk).update(created_at=datetime(1, 1, 1, tzinfo=UTC))
    Memory.objects.filter(pk=last.pk).update(created_at=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
    result = ask(f"include_facets=1&tz={zone}", everyone)
    assert sum(bar.all for bar in result.histogram.bars) == result.total == 14


@pytest.mark.parametrize("name", ["İstanbul", "ΟΔΟΣ", "École", "a:b"])
def test_any_spelling_of_a_name_finds_itself(corpus, everyone, name):
    from categories.models import Concept, Entity

    Concept.objects.filter(name="safety").update(name=name)
    Entity.objects.filter(name="crane").update(name=name, entity_type="x:y")
    assert ask(f"concept={name}", everyone).total == 3
    assert ask(f"entity=x:y:{name}", everyone).total == 2


@pytest.mark.parametrize("key", ["concept", "entity", "category"])
def test_a_name_from_a_project_that_may_not_be_seen_is_as_good_as_none(corpus, everyone, key):
    from categories.models import Category, Concept, Entity
    from memories.models import Project

    names = {"concept": ("safety", Concept), "entity": ("slings", Entity), "category": ("crane", Category)}
    name, model = names[key]
    viewer = dataclasses.replace(everyone, project_ids=frozenset([Project.objects.get(slug="tea").pk]))
    for asked in (name, str(model.objects.get(name__iexact=name).pk)):
        hidden = ask(f"{key}={asked}&include_facets=1", viewer)
        invented = ask(f"{key}=nothing&include_facets=1", viewer)
        assert hidden.labels == invented.labels == {}
        assert [w.message.replace(asked, "nothing") for w in hidden.warnings] == [w.message for w in invented.warnings]
        (row,) = [value for value in facet(hidden, key).values if value.selected]
        assert (row.label, row.ref) == (asked, None)


def test_branches_open_only_to_what_the_viewer_may_see(corpus, everyone):
    from memories.models import Project

    viewer = dataclasses.replace(everyone, project_ids=frozenset([Project.objects.get(slug="tea").pk]))
    rows = {v.value: v for v in facet(ask("include_facets=1", viewer), "category").values}
    assert rows["yard"].has_children is False
    assert rows["kitchen"].has_children is True
    assert values_page("category", "", viewer, parent="yard").facet.values == ()
    assert values_page("category", "", viewer, parent="yard/dock").warnings[0].parameter == "parent"


def test_words_of_a_project_that_is_not_chosen_are_counted_in_its_own_language(corpus, everyone):
    from memories.models import Project

    Project.objects.filter(slug="boat").update(language="simple")
    result = ask("q=boats or boat&project=tea&include_facets=1", everyone)
    assert counts(result, "project")["boat"] == ask("q=boats or boat&project=boat", everyone).total


def test_whether_anything_matches_is_known_without_a_count(corpus, everyone, engine, monkeypatch):
    plans = [EngineQuery(filters=(Filter("type", include=((value,),)),)) for value in ("note", "nothing", "decision")]
    assert with_engine(lambda engine: engine.any_match(plans), everyone) == [True, False, True]
    counted = []

    def counting(self, plans, **options):
        counted.extend(plans)
        return whole(self, plans, **options)

    kind = PostgresEngine if engine == "postgres" else IndexEngine
    whole = kind.match
    monkeypatch.setattr(kind, "match", counting)
    found = run(SearchQuery(type=("note", "nothing"), not_tag=("nowhere",)), everyone)
    assert [warning.message for warning in found.warnings] == [
        "No type is named “nothing”.",
        "No tag is named “nowhere”.",
    ]
    # The search itself, and what the default states hide.
    assert len(counted) == 2


@pytest.mark.parametrize(
    ("text", "excluded", "as_words"),
    [
        pytest.param("kettle -valve", "“valve”", "kettle valve", id="a word"),
        pytest.param('valve -"rf"', "“rf”", 'valve "rf"', id="in quotes"),
        pytest.param(
            "error: -v22 -e kettle -valve", "“v22” or “valve”", "error: v22 -e kettle valve", id="several, beside flags"
        ),
        pytest.param("-title:valve kettle", "“title:valve”", "title:valve kettle", id="of a field"),
    ],
)
@pytest.mark.parametrize("mode", ["keyword", "hybrid", "semantic", "faceted"])
def test_what_a_dash_excludes_is_named_and_offered_as_words(corpus, everyone, text, excluded, as_words, mode):
    found = [one for one in ask(f"q={text}&mode={mode}", everyone).warnings if "left out" in one.message]
    assert [(one.parameter, one.did_you_mean) for one in found] == [("q", (as_words,))]
    assert f"Memories with {excluded} are left out" in found[0].message


@pytest.mark.parametrize("text", ["kettle --verbose", "rm -rf", "state-of-the-art", '"kettle -valve"', "+kettle"])
def test_nothing_is_said_of_exclusions_where_there_are_none(corpus, everyone, text):
    assert not any("left out" in one.message for one in ask(f"q={text}", everyone).warnings)


@pytest.mark.parametrize(
    ("querystring", "sets"),
    [
        pytest.param("type=nosuch&tag=nosuch", [{"type nosuch", "tag nosuch"}], id="two wrong filters"),
        pytest.param("type=nosuch&tag=nosuch&project=tea", [{"type nosuch", "tag nosuch"}], id="beside a right one"),
        pytest.param("tag=a1&tag=b1&tag.all=1", [{"tag a1", "tag b1"}], id="two of all values"),
        pytest.param("type=x&type=y&tag=z", [{"type x", "type y", "tag z"}], id="three"),
        pytest.param(
            "q=zzqqxx&mode=keyword&type=nosuch&from=2024-01-01",
            [{"the words “zzqqxx”", "type nosuch"}],
            id="words and a filter",
        ),
        pytest.param("since=1min&author=nobody", [{"the dates", "author nobody"}], id="dates"),
        pytest.param(
            "&".join(f"{key}=nosuch" for key in ("type", "tag", "author", "agent", "source", "concept", "entity")),
            None,
            id="seven",
        ),
    ],
)
def test_wrong_filters_are_found_together(corpus, everyone, querystring, sets):
    result = ask(querystring, everyone)
    assert result.total == 0
    for one in result.relaxations:
        assert one.count == run(one.query, everyone).total > 0
    if sets is None:
        (one,) = result.relaxations
        assert len(one.also) == 6
    else:
        labels = [set(one.label.replace(" and ", ", ").split(", ")) for one in result.relaxations]
        assert labels == sets
    # Whatever is left of the filters still applies.
    assert all(("project=tea" in one.query.querystring()) == ("project" in querystring) for one in result.relaxations)


def test_a_chosen_value_is_listed_once(corpus, everyone):
    rows = [value.value for value in values_page("tag", "tag=tea", everyone, page_size=2).facet.values]
    assert rows.count("tea") == 1
    assert "tea" not in [v.value for v in values_page("tag", "tag=tea", everyone, search="boat").facet.values]
    assert "tea" not in [v.value for v in values_page("tag", "tag=tea", everyone, page=3, page_size=2).facet.values]

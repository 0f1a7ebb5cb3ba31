"""What the explore page says, from hand-made answers: no database."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from search.context import build_context, build_values_context, problem_notices
from search.corpus import CorpusCounts
from search.facets import DateBuckets, Facet, FacetValue
from search.histogram import Bar, Histogram
from search.query import Interval, SearchQuery
from search.ranking import Ranked
from search.result import CategoryRef, FacetListing, FacetPage, Hit, SearchResult, SearchWarning, WithoutFilter
from search.snippets import Segment

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CORPUS = CorpusCounts(total=1_200, counts={("tag", "tea"): 340, ("type", "fix"): 60})


def query_of(querystring=""):
    pairs = [tuple(part.split("=", 1)) for part in querystring.split("&") if part]
    query, problems = SearchQuery.read(pairs)
    assert not problems
    return query


def hit(**changes):
    return replace(
        Hit(
            id=7,
            project="tea",
            memory_type="bugfix",
            title=(Segment("The ", marked=False), Segment("kettle", marked=True)),
            snippet=(Segment("It leaks.", marked=False),),
            created_at=datetime(2026, 5, 3, 23, 30, tzinfo=UTC),
            updated_at=datetime(2026, 5, 4, tzinfo=UTC),
            state="active",
            tags=("tea", "hot"),
            categories=(CategoryRef("kitchen/oven", ("Kitchen", "Oven")),),
            authors=("Mio", "Ben", "Ada"),
            agent="codex",
            source="git",
            source_uri="",
            external_id="t7",
            pinned=False,
            importance=None,
            superseded_by=None,
            score=None,
            why=Ranked(7),
        ),
        **changes,
    )


def tag_values(*counts, **flags):
    return tuple(FacetValue(f"tag{n}", f"tag{n}", count, ref=f"tag{n}") for n, count in enumerate(counts))


def answer(query, **changes):
    return SearchResult(**{"query": query, "total": 12, "hits": (hit(),), "matched_by": "", "facets": (), **changes})


def context_of(querystring="", zone=UTC, corpus=CORPUS, **changes):
    query = query_of(querystring)
    return build_context(query, answer(query, **changes), corpus, zone=zone, now=NOW)


def panel_of(facet, querystring="", corpus=CORPUS):
    return context_of(querystring, corpus=corpus, facets=(facet,)).panels[0]


# --- facets -------------------------------------------------------------------------------------------------------


def test_count_stands_beside_that_of_the_corpus():
    row = panel_of(Facet("tag", (FacetValue("tea", "tea", 12, ref="tea"),), distinct=1)).rows[0]
    assert (row.name, row.value, row.count, row.corpus, row.share) == ("tag", "tea", "12", "340", 100)
    assert row.accessible_name == "tea, 12 of 340"


def test_corpus_that_is_no_whole_of_the_count_is_left_out():
    row = panel_of(Facet("tag", (FacetValue("tea", "tea", 341, ref="tea"),), distinct=1)).rows[0]
    assert (row.count, row.corpus) == ("341", "")


def test_six_rows_and_the_number_of_the_rest():
    panel = panel_of(Facet("tag", tag_values(9, 8, 7, 6, 5, 4, 3), distinct=42))
    assert [row.label for row in panel.rows] == ["tag0", "tag1", "tag2", "tag3", "tag4", "tag5"]
    assert panel.more_label == "Show 36 more"
    assert panel.more_url == "/facets/tag/"
    assert panel.summary == "42 values"


def test_chosen_values_are_listed_wherever_they_stand():
    values = (*tag_values(9, 8, 7, 6, 5, 4), FacetValue("late", "late", 0, selected=True, ref="late"))
    panel = panel_of(Facet("tag", values, distinct=6), "tag=late")
    assert panel.rows[-1].label == "late"
    assert panel.rows[-1].checked
    assert panel.rows[-1].zero
    assert panel.summary == "6 values · 1 selected"


def test_excluded_value_sends_its_exclusion_and_says_what_it_hides():
    value = FacetValue("wip", "wip", 7, excluded=True, ref="wip")
    context = context_of("-tag=wip", facets=(Facet("tag", (value,), distinct=3),))
    row = context.panels[0].rows[0]
    assert (row.name, row.value, row.checked, row.excluded) == ("-tag", "wip", True, True)
    assert row.accessible_name == "Excluded: wip, hides 7. Untick to allow it again"
    assert context.hidden == ()


def test_links_of_a_row_are_whole_queries():
    row = panel_of(Facet("tag", tag_values(3), distinct=1), "q=kettle&tag=tea&page=4").rows[0]
    assert row.exclude_url == "/explore/?q=kettle&tag=tea&-tag=tag0"
    assert row.only_url == "/explore/?q=kettle&tag=tag0"


def test_no_value_is_a_row_with_its_count():
    row = panel_of(Facet("entity", tag_values(1), distinct=1, no_value=5)).no_value
    assert (row.name, row.value, row.label, row.count) == ("no", "entity", "No entity", "5")
    assert row.exclude_name == "Only with an entity"
    assert row.exclude_url == "/explore/?has=entity"


def test_switch_between_any_and_all_needs_two_ticks():
    values = tuple(replace(value, selected=True) for value in tag_values(2, 1))
    assert panel_of(Facet("tag", values[:1], distinct=2), "tag=tag0").all_switch is None
    switch = panel_of(Facet("tag", values, distinct=2, requires_all=True), "tag=tag0&tag=tag1&tag.all=1").all_switch
    assert (switch.name, switch.require_all) == ("tag.all", True)
    assert panel_of(Facet("author", values, distinct=2), "author=tag0&author=tag1").all_switch is None


def test_default_states_are_not_ticked():
    values = (FacetValue("active", "active", 12), FacetValue("archived", "archived", 3))
    panel = panel_of(Facet("state", values, distinct=2))
    assert [row.checked for row in panel.rows] == [False, False]
    assert panel.note
    assert panel.summary == "active and proposed"
    ticked = (replace(values[0], selected=True), values[1])
    chosen = panel_of(Facet("state", ticked, distinct=2), "state=active")
    assert [row.checked for row in chosen.rows] == [True, False]
    assert not chosen.note


def test_facet_that_could_not_be_counted_says_so():
    panel = panel_of(Facet("tag", unavailable="Counting took too long."))
    assert panel.unavailable == "Counting took too long."
    assert panel.rows == ()


def test_what_has_no_control_is_sent_hidden():
    facet = Facet("tag", (FacetValue("tea", "tea", 2, selected=True),), distinct=1)
    context = context_of("q=kettle&tag=tea&author=Mio&since=7d&page_size=50&page=3&sort=oldest", facets=(facet,))
    assert [(pair.name, pair.value) for pair in context.hidden] == [
        ("author", "Mio"),
        ("since", "7d"),
        ("page_size", "50"),
    ]


def test_ids_of_rows_hold_any_value():
    values = tuple(FacetValue(text, text, 1, ref=text) for text in ("a b", "a\tb", "<&>", "ä/ö"))
    ids = [row.id for row in panel_of(Facet("tag", values, distinct=4)).rows]
    assert len(set(ids)) == 4
    assert all(part.isalnum() for row_id in ids for part in row_id.split("-"))


# --- the tree -----------------------------------------------------------------------------------------------------


def tree(*rows):
    return Facet(
        "category",
        tuple(
            FacetValue(
                path,
                path.rsplit("/", 1)[-1],
                count,
                own_count=own,
                parent=path.rpartition("/")[0] or None,
                depth=path.count("/") + 1,
                has_children=more,
                selected=chosen,
                ref=path,
            )
            for path, count, own, more, chosen in rows
        ),
        distinct=len(rows),
    )


def test_tree_nests_and_opens_on_the_way_to_what_is_chosen():
    panel = panel_of(
        tree(
            ("kitchen", 9, 1, True, False),
            ("kitchen/oven", 3, 3, False, False),
            ("yard", 5, 0, True, False),
            ("yard/dock", 4, 2, True, True),
        ),
        "category=yard/dock",
    )
    kitchen, yard = panel.rows
    assert [row.label for row in kitchen.children] == ["oven"]
    assert not kitchen.is_open
    assert yard.is_open
    assert yard.children[0].checked
    assert "1 right here" in kitchen.accessible_name
    assert kitchen.title == "kitchen: 1 right here, 9 with what is below"


def test_level_that_is_not_at_hand_is_fetched_under_the_same_query():
    panel = panel_of(tree(("yard", 5, 0, True, False)), "q=crane&sort=oldest")
    assert panel.rows[0].children_url == "/facets/category/?q=crane&parent=yard&page_size=50"


def test_ticked_parent_takes_its_children_in():
    rows = (("yard", 5, 0, True, True), ("yard/dock", 4, 2, False, False))
    child = panel_of(tree(*rows), "category=yard").rows[0].children[0]
    assert child.implied
    assert not child.checked
    exact = panel_of(tree(*rows), "category=yard&subcategories=0").rows[0].children[0]
    assert not exact.implied


# --- chips --------------------------------------------------------------------------------------------------------


def test_chips_name_every_filter_and_remove_one_value_each():
    context = context_of(
        "q=kettle&tag=hot&tag=tea&-type=test&category=kitchen/oven&no=entity&has=agent&from=2018-01-01&to=2023-12-31",
        labels={("category", "kitchen/oven"): "Kitchen / Oven"},
    )
    assert [chip.text for chip in context.chips] == [
        "not type test",
        "category Kitchen / Oven",
        "tag hot or tea",
        "entity none",
        "agent any",
        "date 2018 – 2023",
    ]
    tags = next(chip for chip in context.chips if chip.id == "chip-tag")
    assert tags.parts[0].remove_name == "Remove filter: tag hot"
    assert "tag=tea" in tags.parts[0].remove_url
    assert "tag=hot" not in tags.parts[0].remove_url
    assert context.clear_url == "/explore/?q=kettle"
    assert context.filter_count == 7


@pytest.mark.parametrize(
    ("querystring", "text"),
    [
        pytest.param("from=2026-03-01", "date from 1 Mar 2026", id="from"),
        pytest.param("to=2026-03-01", "date to 1 Mar 2026", id="to"),
        pytest.param("from=2026-03-01&to=2026-03-01", "date 1 Mar 2026", id="one day"),
        pytest.param("from=2026-03-01&to=2026-04-02", "date 1 Mar 2026 – 2 Apr 2026", id="days"),
        pytest.param("from=2025-01-01&to=2025-12-31", "date 2025", id="year"),
        pytest.param("from=2026-03-01T10:00Z", "date from 1 Mar 2026, 10:00", id="time"),
        pytest.param("since=7d", "date last 7 days", id="since"),
        pytest.param("since=1y", "date last year", id="last year"),
    ],
)
def test_dates_in_words(querystring, text):
    assert context_of(querystring).chips[-1].text == text


def test_all_of_the_tags_are_joined_by_and():
    assert context_of("tag=a&tag=b&tag.all=1").chips[0].text == "tag a and b"


# --- the histogram ------------------------------------------------------------------------------------------------

MONTHS = Histogram(
    Interval.MONTH,
    (
        Bar("2026-03-01", "2026-03-31", "Mar 2026", 0, 10),
        Bar("2026-04-01", "2026-04-30", "Apr 2026", 5, 20, partial=True),
        Bar("2026-05-01", "2026-05-31", "May 2026", 0, 0),
        Bar("2026-06-01", "2026-06-30", "Jun 2026", 8, 8),
    ),
)


def test_bars_are_links_that_are_named_by_what_they_give():
    plot = context_of("q=tea", histogram=MONTHS).plot
    assert plot.bars[0].name == "Mar 2026: 10"
    assert plot.bars[0].url == "/explore/?q=tea&from=2026-03-01&to=2026-03-31"
    assert plot.bars[1].name == "Apr 2026: 20, 5 within the dates"
    assert plot.bars[1].partial
    assert plot.bars[2].empty
    assert (plot.bars[1].all_height, plot.bars[0].all_height, plot.bars[0].now_height) == ("100.00%", "50.00%", "0.00%")
    assert (plot.bars[2].slot_x, plot.bars[2].slot_width) == ("50.000%", "25.000%")


def test_caption_says_when_by_what_and_where_it_peaks():
    assert context_of(histogram=MONTHS).plot.caption == "Apr 2026 – Jun 2026, by month · peak 8 in Jun 2026"
    assert context_of(histogram=Histogram()).plot.caption == "No dates to draw"
    years = Histogram(Interval.YEAR, (Bar("1990-01-01", "1999-12-31", "1990–1999", 3, 3),), step=10)
    assert context_of(histogram=years).plot.caption == "1990 – 1999, by 10 years · peak 3 in 1990–1999"
    day = Histogram(Interval.DAY, (Bar("2026-11-22", "2026-11-22", "22 Nov 2026", 3, 3),))
    assert context_of(histogram=day).plot.caption == "22 Nov 2026, by day · peak 3 on 22 Nov 2026"


def test_handles_stand_on_the_dates():
    plot = context_of("from=2026-04-10&to=2026-05-20", histogram=MONTHS).plot
    assert [(handle.end, handle.value, handle.text) for handle in plot.handles] == [
        ("from", 1, "Apr 2026"),
        ("to", 2, "May 2026"),
    ]
    assert (plot.chosen_left, plot.chosen_width) == ("25.000%", "50.000%")
    assert plot.reset_url == "/explore/"
    free = context_of(histogram=MONTHS).plot
    assert [handle.value for handle in free.handles] == [0, 3]
    assert free.chosen_width == ""


def test_hours_are_picked_in_local_time():
    hour = Bar("2026-05-01T10:00+02:00", "2026-05-01T10:59+02:00", "1 May 2026, 10:00–10:59", 1, 1)
    zone = ZoneInfo("Europe/Berlin")
    plot = context_of(
        "from=2026-05-01T10:00&to=2026-05-01T10:59", zone, histogram=Histogram(Interval.HOUR, (hour,))
    ).plot
    assert (plot.dates.type, plot.dates.step) == ("datetime-local", "")
    assert (plot.dates.first, plot.dates.last) == ("2026-05-01T10:00", "2026-05-01T10:59")
    assert plot.bars[0].first == "2026-05-01T10:00"
    assert plot.bars[0].url == "/explore/?from=2026-05-01T10%3A00%2B02%3A00&to=2026-05-01T10%3A59%2B02%3A00"
    assert plot.handles[0].value == 0


def test_quick_ranges_have_counts_and_the_current_one_is_taken_off_again():
    plot = context_of("since=30d", histogram=MONTHS, quick_ranges=DateBuckets(0, 4, 9, 1_200, 3)).plot
    assert [(r.label, r.count, r.current, r.empty) for r in plot.ranges] == [
        ("7 d", "0", False, True),
        ("30 d", "4", True, False),
        ("90 d", "9", False, False),
        ("1 y", "1,200", False, False),
    ]
    assert plot.ranges[0].url == "/explore/?since=7d"
    assert plot.ranges[1].url == "/explore/"
    assert plot.ranges[3].name == "Last year: 1,200"


def test_too_fine_a_choice_is_explained():
    plot = context_of(histogram=replace(MONTHS, coarsened_from=Interval.DAY)).plot
    assert plot.note == "By day would be too many bars, so they are by month."


def test_ticks_stand_where_a_quarter_or_a_year_begins():
    ticks = context_of(histogram=MONTHS).plot.ticks
    assert [(tick.label, tick.left) for tick in ticks] == [("Apr", "25.000%")]


# --- results ------------------------------------------------------------------------------------------------------


def test_hit_shows_its_day_in_the_time_zone_of_the_viewer():
    assert context_of().hits[0].date == "3 May 2026"
    card = context_of(zone=ZoneInfo("Europe/Berlin")).hits[0]
    assert card.date == "4 May 2026"
    assert card.date_title == "4 May 2026, 01:30 CEST"


def test_hit_links_keep_the_query():
    card = context_of("q=kettle&tag=hot").hits[0]
    assert card.url == "/m/7/?ctx=q%3Dkettle%26tag%3Dhot"
    tea, hot = card.tags
    assert tea.url == "/explore/?q=kettle&tag=hot&tag=tea"
    assert (hot.url, hot.current, hot.name) == ("/explore/?q=kettle", True, "Remove filter: tag hot")
    assert card.path.url == "/explore/?q=kettle&category=kitchen%2Foven&tag=hot"
    assert [person.label for person in card.people] == ["Mio", "Ben"]
    assert card.more_people == 1
    assert context_of().hits[0].url == "/m/7/"


def test_hit_without_title_is_called_by_its_id():
    assert context_of(hits=(hit(title=()),)).hits[0].title[0].text == "Memory 7"


@pytest.mark.parametrize(
    ("memory_type", "family"),
    [
        pytest.param("bugfix", "fix", id="bugfix"),
        pytest.param("standards-track", "decision", id="standards-track"),
        pytest.param("feature_request", "feature", id="feature_request"),
        pytest.param("test", "test", id="test"),
        pytest.param("til", "note", id="til"),
    ],
)
def test_type_has_a_family(memory_type, family):
    assert context_of(hits=(hit(memory_type=memory_type),)).hits[0].family == family


def test_sort_that_comes_by_itself_is_sent_as_nothing():
    assert [(option.value, option.selected) for option in context_of().sorts] == [
        ("", True),
        ("oldest", False),
        ("updated", False),
        ("title", False),
    ]
    ranked = context_of("q=tea&sort=newest").sorts
    assert [(option.value, option.selected) for option in ranked][:2] == [("", False), ("newest", True)]


def test_pager_shows_the_ends_and_what_is_near():
    pager = context_of("page=10", total=1_000).pager
    assert [page.label for page in pager.pages] == ["1", "…", "8", "9", "10", "11", "12", "…", "40"]
    assert [page.label for page in pager.pages if page.current] == ["10"]
    assert pager.previous_url == "/explore/?page=9"
    assert pager.next_url == "/explore/?page=11"
    assert pager.span == "226–250 of 1,000"
    assert pager.pages[0].url == "/explore/"


def test_a_gap_of_one_page_is_that_page():
    assert [p.label for p in context_of("page=5", total=200).pager.pages] == ["1", "2", "3", "4", "5", "6", "7", "8"]


def test_few_results_need_no_pager():
    assert context_of().pager is None


def test_title_status_and_total():
    context = context_of("q=kettle&tag=tea", total=1_201)
    assert context.title == "1,201 memories · kettle · tag tea"
    assert (context.total, context.noun, context.of_total) == ("1,201", "memories", "of 1,200")
    assert context.status == "1,201 memories"
    assert context_of(total=1).noun == "memory"
    assert context_of(total=1_200).of_total == ""


def test_match_is_explained_with_the_time_it_took():
    assert (
        context_of(matched_by="112 contain the word", timings={"search": 13.6}).matched
        == "112 contain the word · 14 ms"
    )


def test_hidden_memories_are_named_with_a_way_to_them():
    note = context_of("q=tea", hidden=37).hidden_note
    assert note.count == "37 hidden: archived or superseded"
    assert note.url == "/explore/?q=tea&state=active&state=archived&state=proposed&state=superseded"
    assert context_of().hidden_note is None


def test_empty_state_names_the_filters_and_what_each_removal_would_give():
    query = query_of("q=zebra&tag=tea")
    without = (
        WithoutFilter("q", "zebra", "the words “zebra”", 0, query_of("tag=tea")),
        WithoutFilter("tag", "tea", "tag tea", 14, query_of("q=zebra")),
    )
    context = build_context(query, answer(query, total=0, hits=(), without=without), CORPUS)
    assert context.empty.message == "Nothing matches the words “zebra”, tag tea."
    assert [(link.label, link.count, link.url) for link in context.empty.without] == [
        ("the words “zebra”", "0", ""),
        ("tag tea", "14", "/explore/?q=zebra"),
    ]
    assert context.status == "No memory matches"
    assert not context.empty.corpus_is_empty


def test_empty_corpus_says_how_to_fill_it():
    assert context_of(total=0, hits=(), corpus=CorpusCounts(0, {})).empty.corpus_is_empty


# --- notices ------------------------------------------------------------------------------------------------------


def test_problem_becomes_a_notice_with_what_is_allowed():
    _, problems = SearchQuery.read([("tagg", "x"), ("from", "yesterday")])
    unknown, malformed = problem_notices(problems)
    assert (unknown.parameter, unknown.text, unknown.is_error) == ("tagg", "is not a parameter", True)
    assert unknown.suggestion.startswith("Did you mean tag")
    assert "The parameters are q, mode" in unknown.suggestion
    assert malformed.parameter == "from"
    assert "YYYY-MM-DD" in malformed.suggestion


def test_warning_about_a_name_links_to_what_may_have_been_meant():
    warning = SearchWarning("No tag is called “te”.", "tag", ("tea",))
    notice = context_of("tag=te", warnings=(warning,)).notices[0]
    assert notice.links[0].url == "/explore/?tag=tea"
    assert not notice.is_error


def test_page_past_the_last_links_to_the_last():
    warning = SearchWarning("Page 9 is past the last page, 2.", "page")
    notice = context_of("page=9&q=tea", total=30, warnings=(warning,)).notices[0]
    assert notice.links[0].url == "/explore/?q=tea&page=2"


# --- the values of one facet --------------------------------------------------------------------------------------


def values_of(querystring="", listing=None, **changes):
    facet = Facet("tag", tag_values(5, 3), distinct=changes.pop("distinct", 2))
    page = FacetPage(facet, listing or FacetListing(), total=12, **changes)
    return build_values_context(query_of(querystring), page, CORPUS)


def test_values_page_keeps_the_query_and_its_own_listing_apart():
    context = values_of("q=tea&tag=tag0&tag=other&sort=oldest", FacetListing(search="ta", sort="name"))
    assert context.listing_url == "/facets/tag/?search=ta&sort=name"
    assert context.here == "/facets/tag/?q=tea&tag=other&tag=tag0&search=ta&sort=name"
    assert context.results_url == "/explore/?q=tea&tag=other&tag=tag0&sort=oldest"
    assert [(pair.name, pair.value) for pair in context.search_hidden] == [
        ("q", "tea"),
        ("tag", "other"),
        ("tag", "tag0"),
        ("sort", "name"),
    ]
    assert [link.current for link in context.sorts] == [False, True]


def test_values_page_has_pages():
    context = values_of(listing=FacetListing(page=2, page_size=2), distinct=6)
    assert [page.label for page in context.pager.pages] == ["1", "2", "3"]
    assert context.pager.pages[0].url == "/facets/tag/?page_size=2"
    assert context.pager.pages[2].url == "/facets/tag/?page=3&page_size=2"


def test_level_of_the_tree_shows_last_names_and_the_way_down():
    values = (FacetValue("yard/dock/crane", "Yard / Dock / Crane", 2, has_children=True, own_count=2),)
    page = FacetPage(Facet("category", values, distinct=1), FacetListing(parent="yard/dock"), total=2)
    context = build_values_context(query_of(), page, CORPUS)
    assert context.rows[0].label == "Crane"
    assert context.rows[0].children_url == "/facets/category/?parent=yard%2Fdock%2Fcrane&page_size=50"
    assert context.heading == "Dock"
    assert [(crumb.label, crumb.url) for crumb in context.crumbs] == [
        ("All", "/facets/category/"),
        ("Yard", "/facets/category/?parent=yard"),
        ("Dock", ""),
    ]


# --- words, meaning, and numbers that are lower bounds ------------------------------------------------------------


def test_ways_to_look_for_a_text_are_offered_and_the_default_is_not_sent():
    assert [(o.value, o.label, o.selected) for o in context_of("q=tea").modes] == [
        ("", "Words and meaning", True),
        ("semantic", "Meaning", False),
        ("keyword", "Words", False),
        ("unified", "Memories, entities, relationships", False),
    ]
    assert [o.value for o in context_of("q=tea&mode=keyword").modes if o.selected] == ["keyword"]


def test_mode_of_a_link_is_offered_where_it_is_another():
    assert [(o.value, o.label) for o in context_of("mode=faceted").modes if o.selected] == [
        ("faceted", "Filters, then words")
    ]


def test_mode_is_in_every_link_and_has_a_control_of_its_own():
    context = context_of("q=tea&mode=keyword", facets=(Facet("tag", tag_values(3), distinct=1),), total=60)
    assert context.hits[0].url == "/m/7/?ctx=q%3Dtea%26mode%3Dkeyword"
    assert context.panels[0].rows[0].only_url == "/explore/?q=tea&mode=keyword&tag=tag0"
    assert context.pager.next_url == "/explore/?q=tea&mode=keyword&page=2"
    assert context.hidden == ()


def test_exact_total_has_no_other_name():
    context = context_of("q=tea")
    assert (context.total, context.total_name, context.status) == ("12", "", "12 memories")


def test_lower_bound_of_the_total_is_written_with_a_plus_and_read_as_at_least():
    context = context_of("q=tea", total=1_000, at_least=True, hidden=4, hidden_at_least=True)
    assert (context.total, context.total_name) == ("1,000+", "at least 1,000")
    assert context.status == "At least 1,000 memories"
    assert context.title == "1,000+ memories · tea"
    assert context.pager.span == "1–25 of 1,000+"
    assert context.hidden_note.count == "4+ hidden: archived or superseded"


def test_lower_bounds_of_a_facet_are_marked_on_every_number():
    values = (FacetValue("tea", "tea", 12, ref="tea"), *tag_values(8, 7, 6, 5, 4, 3))
    panel = panel_of(Facet("tag", values, distinct=42, no_value=2, at_least=True), "q=x")
    assert (panel.rows[0].count, panel.rows[0].accessible_name) == ("12+", "tea, at least 12 of 340")
    assert (panel.no_value.count, panel.no_value.accessible_name) == ("2+", "No tag, at least 2")
    assert (panel.summary, panel.more_label) == ("42+ values", "Show 36+ more")


def test_what_an_exclusion_hides_is_not_told_from_two_lower_bounds():
    value = FacetValue("wip", "wip", 7, excluded=True, ref="wip")
    row = panel_of(Facet("tag", (value,), distinct=3, at_least=True), "q=x&-tag=wip").rows[0]
    assert (row.count, row.accessible_name) == ("", "Excluded: wip. Untick to allow it again")


def test_lower_bounds_over_time_are_marked_in_bars_ranges_and_caption():
    bars = (Bar("2026-05-01", "2026-05-31", "May 2026", 31, 31),)
    histogram = Histogram(Interval.MONTH, bars, at_least=True)
    plot = context_of("q=x", histogram=histogram, quick_ranges=DateBuckets(1, 2, 3, 4, 5)).plot
    assert (plot.bars[0].name, plot.bars[0].all) == ("May 2026: at least 31", "31+")
    assert plot.caption == "May 2026, by month · peak 31+ in May 2026"
    assert (plot.ranges[0].name, plot.ranges[0].count) == ("Last 7 days: at least 1", "1+")
    assert plot.at_least


def test_lower_bounds_are_marked_on_the_page_of_a_facet():
    facet = Facet("tag", tag_values(9), distinct=1, at_least=True)
    query = query_of("q=x")
    values = build_values_context(query, FacetPage(facet, FacetListing(), total=1_000, at_least=True), CORPUS)
    assert values.summary == "1+ values in 1,000+ memories"
    assert values.results_label == "Show 1,000+ memories"
    assert values.rows[0].accessible_name == "tag0, at least 9"


def test_lower_bound_without_a_filter_is_marked():
    without = WithoutFilter("tag", "tea", "tag tea", 1_000, query_of("q=x"), at_least=True)
    empty = context_of("q=x&tag=tea", total=0, hits=(), without=(without,)).empty
    assert empty.without[0].count == "1,000+"

"""The context of the explore page from hand-made results, without a database."""

import re
from zoneinfo import ZoneInfo

import pytest

from explorer.explore.answer import PageAnswer
from explorer.explore.page import ExplorerContext, problem_notices, typed_notices
from explorer.page_query import PageQuery
from search.baseline_counts import CorpusCounts
from search.facets import Facet, FacetValue
from search.result import FilterRelaxation
from search.typed import understand
from tests.explorer.contexts import CORPUS, answer, context_of, panel_of, query_of, tag_values

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


def test_pager_shows_the_ends_and_what_is_near():
    pager = context_of("page=10", total=1_000).pager
    assert [page.label for page in pager.pages] == ["1", "…", "8", "9", "10", "11", "12", "…", "40"]
    assert [page.label for page in pager.pages if page.current] == ["10"]
    assert pager.previous_url == "/explore/?page=9"
    assert pager.next_url == "/explore/?page=11"
    assert pager.span == "226–250 of 1,000"
    assert pager.pages[0].url == "/explore/"


def test_title_status_and_total():
    context = context_of("q=kettle&tag=tea", total=1_201)
    assert context.title == "1,201 memories · kettle · tag tea"
    assert (context.total, context.noun, context.of_total) == ("1,201", "memories", "of 1,200")
    assert context.status == "1,201 memories"
    assert context_of(total=1).noun == "memory"
    assert context_of(total=1_200).of_total == ""


def test_match_is_explained_with_the_time_it_took():
    assert (
        context_of(matched_by="112 contain “harbour”", timings={"search": 13.6}).match_text
        == "112 contain “harbour” · 14 ms"
    )


def test_hidden_memories_are_named_with_a_way_to_them():
    note = context_of("q=tea", hidden=37).hidden_note
    assert note.count == "37 archived or superseded are hidden"
    assert note.url == "/explore/?q=tea&state=active&state=archived&state=proposed&state=superseded"
    assert context_of().hidden_note is None


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param("no memory contains “zebra” or is close in meaning", "in", id="said by the empty state"),
        pytest.param("no word to search for; ignored: the", "no word to search for; ignored: the ·", id="a reason"),
    ],
)
def test_zero_results_say_once_that_no_memory_has_the_words(words, shown):
    query = query_of("q=zebra")
    found = ExplorerContext(
        query, PageAnswer(answer(query, total=0, hits=(), matched_by=words, corpus=CORPUS))
    ).match_text
    assert re.fullmatch(rf"{shown} \d+ ms", found)


def test_empty_state_names_the_filters_and_what_each_removal_would_give():
    query = query_of("q=zebra&tag=tea")
    without = (
        FilterRelaxation("q", "zebra", "the words “zebra”", 0, query_of("tag=tea")),
        FilterRelaxation("tag", "tea", "tag tea", 14, query_of("q=zebra")),
    )
    context = ExplorerContext(query, PageAnswer(answer(query, total=0, hits=(), relaxations=without, corpus=CORPUS)))
    assert context.empty.message == "Nothing matches the words “zebra”, tag tea."
    assert [(link.label, link.count, link.url) for link in context.empty.relaxations] == [
        ("the words “zebra”", "0", ""),
        ("tag tea", "14", "/explore/?q=zebra"),
    ]
    assert context.status == "No memory matches"
    assert not context.empty.corpus_is_empty


def test_empty_corpus_says_how_to_fill_it():
    assert context_of(total=0, hits=(), corpus=CorpusCounts(0, {})).empty.corpus_is_empty


# --- notices ------------------------------------------------------------------------------------------------------


def test_problem_becomes_a_notice_with_what_is_allowed():
    _, problems = PageQuery.read([("tagg", "x"), ("from", "yesterday")])
    unknown, malformed = problem_notices(problems)
    assert (unknown.text, unknown.is_error) == ("“tagg” is not a parameter of this page.", False)
    assert unknown.suggestion == "Did you mean “tag” or “-tag”?"
    # The list is long, so the page folds it.
    assert unknown.details.startswith("The parameters are q, mode")
    assert malformed.parameter == "from"
    assert "YYYY-MM-DD" in malformed.suggestion


def test_part_that_is_no_filter_is_named_with_the_reason():
    query, _ = PageQuery.read([("q", "tea from:soon")])
    (notice,) = typed_notices(understand(query))
    assert notice.text.startswith("“from:soon” is searched for as text: from: 'soon' is not a date")
    assert not notice.is_error


# --- words, meaning, and numbers that are lower bounds ------------------------------------------------------------


def test_ways_to_look_for_a_text_are_offered_and_the_default_is_not_sent():
    assert [(o.value, o.label, o.selected) for o in context_of("q=tea").modes] == [
        ("", "Words + meaning", True),
        ("semantic", "Meaning only", False),
        ("keyword", "Words only", False),
        ("unified", "Memories, entities, relationships", False),
    ]
    assert [o.value for o in context_of("q=tea&mode=keyword").modes if o.selected] == ["keyword"]


def test_mode_is_in_every_link_and_has_a_control_of_its_own():
    context = context_of("q=tea&mode=keyword", facets=(Facet("tag", tag_values(3), distinct=1),), total=60)
    assert context.hits[0].url == "/m/7/?ctx=q%3Dtea%26mode%3Dkeyword"
    assert context.pager.next_url == "/explore/?q=tea&mode=keyword&page=2"
    assert context.hidden == ()


def test_lower_bound_of_the_total_is_written_with_a_plus_and_read_as_at_least():
    context = context_of("q=tea", total=1_000, at_least=True, hidden=4, hidden_at_least=True)
    assert (context.total, context.total_name) == ("1,000+", "at least 1,000")
    assert context.status == "At least 1,000 memories"
    assert context.title == "1,000+ memories · tea"
    assert context.pager.span == "1–25 of 1,000+"
    assert context.hidden_note.count == "4+ archived or superseded are hidden"


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


def test_lower_bound_without_a_filter_is_marked():
    without = FilterRelaxation("tag", "tea", "tag tea", 1_000, query_of("q=x"), at_least=True)
    empty = context_of("q=x&tag=tea", total=0, hits=(), relaxations=(without,)).empty
    assert empty.relaxations[0].count == "1,000+"

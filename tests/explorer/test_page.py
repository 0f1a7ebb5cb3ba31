"""The context of the explore page from hand-made results, without a database."""

import re

import pytest

from explorer.explore.answer import PageAnswer
from explorer.explore.page import ExplorerContext, problem_notices, typed_notices
from explorer.page_query import PageQuery
from search.baseline_counts import CorpusCounts
from search.facets import Facet, FacetValue
from search.result import FilterRelaxation
from search.typed import understand
from tests.explorer.contexts import CORPUS, answer, context_of, panel_of, query_of

# --- results ------------------------------------------------------------------------------------------------------


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


def test_title_status_and_total():
    context = context_of("q=kettle&tag=tea", total=1_101)
    assert context.title == "1,101 memories · kettle · tag tea"
    assert (context.total, context.noun, context.of_total) == ("1,101", "memories", "of 1,200")
    assert context.status == "1,101 memories"
    assert context_of(total=1).noun == "memory"
    assert context_of(total=1_200).of_total == ""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param("no memory contains “zebra” or is close in meaning", "", id="said by the empty state"),
        pytest.param("no word to search for; ignored: the", "no word to search for; ignored: the", id="a reason"),
    ],
)
def test_zero_results_say_once_that_no_memory_has_the_words(words, shown):
    query = query_of("q=zebra")
    found = ExplorerContext(query, PageAnswer(answer(query, total=0, hits=(), matched_by=words, corpus=CORPUS)))
    assert found.match_text == shown


def test_measures_are_apart_from_the_words():
    query = query_of("q=tea")
    context = ExplorerContext(query, PageAnswer(answer(query, matched_by="4 contain “tea”", min_similarity=0.3)))
    assert context.match_text == "4 contain “tea”"
    assert re.fullmatch(r"\d+ ms, similarity of at least 0\.30", context.measures)
    assert re.fullmatch(r"\d+ ms", ExplorerContext(query, PageAnswer(answer(query))).measures)


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


def test_what_an_exclusion_hides_is_not_told_from_two_lower_bounds():
    value = FacetValue("wip", "wip", 7, excluded=True, ref="wip")
    row = panel_of(Facet("tag", (value,), distinct=3, at_least=True), "q=x&-tag=wip").rows[0]
    assert (row.count, row.accessible_name) == ("", "Excluded: wip. Untick to allow it again")

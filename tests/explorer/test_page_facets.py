"""Sidebar, chips and the page of a facet from hand-made results, without a database."""

from dataclasses import replace

from explorer.explore.query_views import build_values_context
from search.facets import Facet, FacetValue
from search.result import FacetListing, FacetPage
from tests.explorer.contexts import CORPUS, context_of, panel_of, query_of, tag_values

# --- facets -------------------------------------------------------------------------------------------------------


def test_count_stands_beside_that_of_the_corpus():
    row = panel_of(Facet("tag", (FacetValue("tea", "tea", 12, ref="tea"),), distinct=1)).rows[0]
    assert (row.name, row.value, row.count, row.corpus, row.share) == ("tag", "tea", "12", "340", 100)
    assert row.accessible_name == "tea, 12 of 340"


def test_chosen_values_are_listed_wherever_they_stand():
    values = (*tag_values(9, 8, 7, 6, 5, 4), FacetValue("late", "late", 0, selected=True, ref="late"))
    panel = panel_of(Facet("tag", values, distinct=6), "tag=late")
    assert panel.rows[-1].label == "late"
    assert panel.rows[-1].checked
    assert panel.rows[-1].zero
    assert panel.summary == "1 selected"


def test_excluded_value_sends_its_exclusion_and_says_what_it_hides():
    value = FacetValue("wip", "wip", 7, excluded=True, ref="wip")
    context = context_of("-tag=wip", facets=(Facet("tag", (value,), distinct=3),))
    row = context.panels[0].rows[0]
    assert (row.name, row.value, row.checked, row.excluded) == ("-tag", "wip", True, True)
    assert row.accessible_name == "Excluded: wip, hides 7. Untick to allow it again"
    assert context.hidden == ()


def test_links_of_a_row_are_whole_queries_on_the_page_of_all_values():
    row = values_of("q=kettle&tag=tea&page=4").rows[0]
    assert row.exclude_url == "/explore/?q=kettle&tag=tea&-tag=tag0"
    assert row.only_url == "/explore/?q=kettle&tag=tag0"
    panel = panel_of(Facet("tag", tag_values(3), distinct=1), "q=kettle")
    assert (panel.rows[0].exclude_url, panel.exclude_url) == ("", "/facets/tag/?q=kettle")


def test_facet_that_could_not_be_counted_says_so():
    panel = panel_of(Facet("tag", unavailable="Counting took too long."))
    assert panel.unavailable == "Counting took too long."
    assert panel.rows == ()


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


# --- chips --------------------------------------------------------------------------------------------------------


# --- the values of one facet --------------------------------------------------------------------------------------


def values_of(querystring="", listing=None, **changes):
    facet = Facet("tag", tag_values(5, 3), distinct=changes.pop("distinct", 2))
    page = FacetPage(facet, listing or FacetListing(), total=12, **changes)
    return build_values_context(query_of(querystring), replace(page, corpus=CORPUS))


def test_level_of_the_tree_shows_last_names_and_the_way_down():
    values = (FacetValue("yard/dock/crane", "Yard / Dock / Crane", 2, has_children=True, own_count=2),)
    page = FacetPage(Facet("category", values, distinct=1), FacetListing(parent="yard/dock"), total=2)
    context = build_values_context(query_of(), replace(page, corpus=CORPUS))
    assert context.rows[0].label == "Crane"
    assert context.rows[0].children_url == "/facets/category/?parent=yard%2Fdock%2Fcrane&page_size=50"
    assert context.heading == "Dock"
    assert [(crumb.label, crumb.url) for crumb in context.crumbs] == [
        ("All", "/facets/category/"),
        ("Yard", "/facets/category/?parent=yard"),
        ("Dock", ""),
    ]

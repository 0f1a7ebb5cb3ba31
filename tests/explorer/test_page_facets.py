"""Sidebar, chips and the page of a facet from hand-made results, without a database."""

from dataclasses import replace

from explorer.explore.values_page import build_values_context
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


def test_default_states_are_not_ticked():
    values = (FacetValue("active", "active", 12), FacetValue("archived", "archived", 3))
    panel = context_of(facets=(Facet("state", values, distinct=2),), opened={"facet-state"}).panels[0]
    assert [row.checked for row in panel.rows] == [False, False]
    assert panel.note
    assert panel.summary == "active and proposed"
    ticked = (values[0]._replace(selected=True), values[1])
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
    assert (kitchen.is_branch, kitchen.is_open, kitchen.children) == (True, False, ())
    assert kitchen.children_url == "/facets/category/?category=yard%2Fdock&parent=kitchen&page_size=50"
    assert yard.is_open
    assert yard.children[0].checked
    assert "1 directly in it" in kitchen.accessible_name
    assert kitchen.title == "kitchen: 1 directly in it, 9 with subcategories"


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


# --- the values of one facet --------------------------------------------------------------------------------------


def values_of(querystring="", listing=None, **changes):
    facet = Facet("tag", tag_values(5, 3), distinct=changes.pop("distinct", 2))
    page = FacetPage(facet, listing or FacetListing(), total=12, **changes)
    return build_values_context(query_of(querystring), replace(page, corpus=CORPUS))


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
    assert [link.current for link in context.sorts] == [False, True, False]


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

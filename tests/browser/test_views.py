"""Views and charts of a slice in a real browser."""

import re

from playwright.sync_api import expect

from tests.browser.test_explore import SETTLED, address


def test_table_by_mouse_and_keys(open_page):
    page = open_page("/explore/?tag=tea")
    page.get_by_role("group", name="View").get_by_role("link", name="Table").click()
    page.wait_for_function(SETTLED)
    expect(page.locator("#view-table")).to_be_focused()
    page.get_by_text("Columns", exact=True).click()
    page.locator("#column-agent").check()
    page.wait_for_function(SETTLED)
    expect(page.get_by_role("columnheader", name="Agent")).to_be_visible()
    expect(page.locator("#column-agent")).to_be_focused()
    page.locator("#column-agent").uncheck()
    page.wait_for_function(SETTLED)
    assert address(page) == "/explore/?tag=tea&view=table"
    page.get_by_role("link", name="Title", exact=True).click()
    page.wait_for_function(SETTLED)
    assert address(page) == "/explore/?tag=tea&sort=title&view=table"
    expect(page.get_by_role("columnheader", name="Title")).to_have_attribute("aria-sort", "ascending")
    first, second = page.locator("#hits .title a").nth(0), page.locator("#hits .title a").nth(1)
    page.locator("#total").focus()
    page.keyboard.press("j")
    expect(first).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator("#chosen-count")).to_have_text("1 chosen")
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_be_focused()
    assert re.search(r"view=table&sel=\d+$", address(page))
    page.keyboard.press("Escape")
    expect(first).to_be_focused()
    expect(second).to_be_visible()


def test_cross_table_leads_to_the_memories_of_a_cell(open_page):
    page = open_page("/explore/?project=tea")
    page.get_by_text("Analyse…").click()
    page.get_by_role("link", name="Cross-table").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tags by type 8 memories")
    page.get_by_label("Rows").select_option("category")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Categories by type 8 memories")
    page.get_by_role("link", name="Kitchen, howto: 1").click()
    expect(page.locator("#total")).to_have_text("1 memory of 14")
    assert address(page) == "/explore/?project=tea&type=howto&category=kitchen"


def test_bars_are_split_by_a_facet_and_its_key_filters(open_page):
    page = open_page("/explore/")
    page.locator("#dates > summary").click()
    page.locator("#split").select_option("project")
    page.wait_for_function(SETTLED)
    page.keyboard.press("Escape")
    expect(page.locator("#split")).to_be_hidden()
    assert address(page) == "/explore/?split=project"
    expect(page.locator(".legend li")).to_have_text(["Tea house 8", "Boat yard 6"])
    page.locator(".legend").get_by_role("link", name="Boat yard").click()
    page.wait_for_function(SETTLED)
    assert address(page) == "/explore/?project=boat&split=project"
    expect(page.locator("#total")).to_have_text("6 memories of 14")

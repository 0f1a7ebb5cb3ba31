"""The map of meaning in a real browser: drawn, moved, lassoed, read."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.test_explore import SETTLED, address
from tests.map_corpus import put_on_map


def expect_drawn(page, points):
    expect(page.locator("#map-drawing")).to_have_attribute("data-drawn", str(points))


@pytest.fixture
def map_page(site, open_page):
    """The map, as soon as its points are drawn."""
    put_on_map()

    def opened(path="/map/", points=12, **options):
        page = open_page(path, **options)
        expect_drawn(page, points)
        return page

    return opened


def drag_around(page, left, top, right, bottom):
    """Draw a rectangle, given by shares of the map."""
    box = page.locator("#map").bounding_box()
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top + 0.02)]
    (x, y), *others = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    page.mouse.move(x, y)
    page.mouse.down()
    for x, y in others:
        page.mouse.move(x, y, steps=8)
    page.mouse.up()


def test_a_lasso_becomes_a_filter_with_exact_counts(map_page):
    page = map_page()
    assert address(page) == "/explore/?view=map"
    expect(page.locator("#q")).to_have_value("")
    expect(page.locator("#total")).to_contain_text("14 memories")
    expect(page.locator(".map-note")).to_have_text("2 of 14 have no place yet.")
    page.get_by_role("button", name="Draw around memories").click()
    drag_around(page, 0.01, 0.05, 0.99, 0.5)
    page.wait_for_function(SETTLED)
    heading = page.locator("#inside h2")
    expect(heading).to_have_text(re.compile(r"^[1-9]\d* memor(y|ies) in here$"))
    inside = re.match(r"\d+", heading.inner_text()).group()
    assert re.search(r"\?area=1_[\d._]+&view=map$", address(page))
    expect(page.locator("#total")).to_have_text(re.compile(rf"^\s*{inside}\s"))
    # The points outside are still drawn, and the chip gives the area up.
    expect_drawn(page, 12)
    here = address(page)
    page.get_by_role("link", name="Explore these").click()
    expect(page.locator("#total")).to_have_text(re.compile(rf"^\s*{inside}\s"))
    assert page.locator("#hits article").count() == int(inside)
    page.goto(here.join([page.url.split("/explore/")[0], ""]))
    expect_drawn(page, 12)
    page.get_by_role("link", name="Remove filter: area of the map").click()
    page.wait_for_function(SETTLED)
    expect(page.locator("#total")).to_contain_text("14 memories")
    assert address(page) == "/explore/?view=map"


def test_filters_and_colours_change_the_points(map_page):
    page = map_page()
    page.get_by_role("checkbox", name="bugfix").check()
    page.wait_for_function(SETTLED)
    expect_drawn(page, 2)
    assert address(page) == "/explore/?type=bugfix&view=map"
    page.locator("#colour").select_option("project")
    page.wait_for_function(SETTLED)
    assert address(page) == "/explore/?type=bugfix&view=map&colour=project"
    expect(page.locator("#key li").first).to_have_text("Tea house")
    page.get_by_role("link", name="Density").click()
    page.wait_for_function(SETTLED)
    assert address(page) == "/explore/?type=bugfix&view=map&colour=project&look=density"
    page.go_back()
    expect(page.locator("#map")).to_have_attribute("data-look", "auto")
    expect(page.locator("#colour")).to_have_value("project")


def test_a_point_reads_its_memory(map_page):
    page = map_page()
    box = page.locator("#map").bounding_box()
    card = page.locator(".hover-card")
    spots = ((x, y) for y in range(10, int(box["height"]) - 60, 8) for x in range(10, int(box["width"] / 3), 8))
    for x, y in spots:
        page.mouse.move(box["x"] + x, box["y"] + y)
        if page.evaluate("document.querySelector('#map').classList.contains('aiming')"):
            break
    expect(card).to_be_visible()
    page.mouse.click(box["x"] + x, box["y"] + y)
    expect(card).to_be_visible()
    title = card.locator("h2").inner_text()
    card.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_keys_move_the_map_and_the_table_says_the_same(map_page):
    page = map_page()
    page.locator("#map").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(page.locator("#zoom output")).to_have_text("225 %")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("0")
    expect(page.locator("#zoom output")).to_have_text("100 %")
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="Draw around memories")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Draw around memories")).to_have_attribute("aria-pressed", "false")
    page.get_by_text("Regions as a table").click()
    expect(page.locator("#regions table")).to_be_visible()

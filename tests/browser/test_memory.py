"""The page of a memory in a real browser: what is loaded once it is in sight, and how without scripts."""

import pytest
from playwright.sync_api import expect

from memories.models import Memory
from tests.vectors import embed_everything
from web.cache import clear_caches

# How far things on the page have been moved without anybody asking, as the browser itself counts it.
COUNT_SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.shifted += entry.value; })
  .observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture
def kettle(site):
    """A memory that has some like it."""
    embed_everything()
    clear_caches()
    return Memory.objects.get(external_id="t1").pk


@pytest.mark.parametrize(
    "viewport", [pytest.param({"width": w, "height": 700}, id=f"{w} px") for w in (1440, 1024, 390)]
)
def test_similar_ones_come_when_they_are_in_sight_and_move_nothing(open_page, kettle, viewport):
    page = open_page("/", viewport=viewport)
    page.context.add_init_script(COUNT_SHIFTS)
    page.goto(page.url.split("/explore")[0] + f"/m/{kettle}/")
    page.locator("#similar-title").scroll_into_view_if_needed()
    expect(page.locator("#similar li").first).to_be_visible()
    expect(page.get_by_role("link", name="Similar memories")).to_have_count(0)
    assert page.evaluate("window.shifted") == 0

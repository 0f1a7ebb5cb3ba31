"""Curating names in a real browser, without typing a query string or a number."""

import re

from playwright.sync_api import expect

from memories.models import Memory
from tests.browser.test_explore import address


def tags(external_id):
    return Memory.objects.get(external_id=external_id).tags


def test_a_tag_is_split_by_ticking_and_the_list_is_where_it_was(open_page):
    page = open_page("/facets/tag/?sort=name")
    page.get_by_role("link", name="Curate kettle").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("kettle")
    split = page.get_by_role("region", name="Split")
    split.get_by_label("New name").fill("valve")
    split.get_by_role("button", name="Preview split").click()
    expect(page.get_by_role("alert")).to_have_text(
        "Tick the memories that get the new name, or choose them in Explore."
    )
    expect(page.get_by_label("New name").first).to_have_value("valve")
    page.get_by_role("checkbox", name=re.compile("Kettle valve stuck")).check()
    page.get_by_role("button", name="Preview split").click()
    expect(page.get_by_text("1 memory tagged “kettle” moves to “valve”")).to_be_visible()
    page.get_by_role("button", name="Split", exact=True).click()
    page.wait_for_url("**/facets/tag/?sort=name")
    assert (tags("t2"), tags("t5")) == (["valve", "hardware"], ["kettle"])
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".messages")).to_contain_text("Undone: Split valve off the tag kettle.")
    assert (address(page), tags("t2")) == ("/facets/tag/?sort=name", ["kettle", "hardware"])
    # The refusal, which the browser reports as an error.
    open_page.complaints[:] = [text for text in open_page.complaints if "Failed to load resource" not in text]


def test_a_category_is_renamed_from_its_page_and_is_there_again_after_an_undo(open_page):
    page = open_page("/categories/yard/dock/")
    page.get_by_role("link", name="Curate", exact=True).click()
    page.get_by_label("New name").first.fill("Quay")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.wait_for_url("**/categories/yard/quay/")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url("**/categories/yard/dock/")
    expect(page.locator(".messages")).to_contain_text("Undone")
    expect(page.get_by_role("heading", level=1)).to_have_text("Dock")


def test_tags_are_ticked_over_searches_and_merged_into_the_one_of_most_memories(open_page):
    page = open_page("/facets/tag/?sort=name")
    page.get_by_role("checkbox", name=re.compile(r"^guests, \d")).check()
    page.wait_for_url(re.compile("tag=guests"))
    search = page.get_by_label("Search in tag")
    search.press_sequentially("kttle")
    page.wait_for_url(re.compile("search=kttle"))
    expect(page.get_by_text("No tag matches this name.")).to_be_visible()
    # It goes on as it was, with the caret in its place.
    for key in ("Home", "ArrowRight", "e"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile("search=kettle"))
    expect(search).to_be_focused()
    assert search.evaluate("(field) => field.selectionStart") == 2
    page.get_by_role("checkbox", name=re.compile(r"^kettle, \d")).check()
    merge = page.get_by_role("button", name="Merge 2 tags…")
    expect(merge).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name="Curate kettle")).to_be_focused()
    page.keyboard.press("a")
    expect(merge).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("radio", name="Keep guests")).to_be_focused()
    expect(page.get_by_role("radio", name="Keep guests")).to_be_checked()
    adding = page.get_by_role("combobox", name="More tags to merge")
    adding.fill("te")
    page.get_by_role("option", name="tea").click()
    page.get_by_role("button", name="Add to the list").click()
    page.get_by_role("radio", name="Keep tea").check()
    page.get_by_role("button", name="Preview the merge").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Merge the tags guests and kettle into tea")
    page.get_by_role("button", name="Merge", exact=True).click()
    # The list, without the ticks and the search.
    page.wait_for_url("**/facets/tag/?sort=name")
    assert (tags("t2"), tags("t3")) == (["tea", "hardware"], ["tea"])
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".messages")).to_contain_text("Undone: Merged the tags guests and kettle into tea.")
    assert (tags("t2"), tags("t3")) == (["kettle", "hardware"], ["tea", "guests"])

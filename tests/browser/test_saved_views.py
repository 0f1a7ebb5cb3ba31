"""Saved views in a real browser: save by keyboard, modify, discard, and the counts that come after the page."""

import re

from playwright.sync_api import expect


def test_view_is_saved_modified_and_discarded(open_page):
    page = open_page("/explore/?type=note")
    page.keyboard.press("s")
    name = page.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    name.fill("Notes")
    page.get_by_label("Pinned").check()
    assert page.url.endswith("/explore/?type=note")
    page.locator(".save-form").get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile(r"/explore/\?type=note&v=\d+$"))
    bar = page.get_by_role("group", name="Saved view")
    expect(bar).to_contain_text("Notes")
    page.get_by_role("checkbox", name=re.compile(r"^decision, \d")).check()
    expect(bar).to_contain_text("Modified")
    expect(bar).to_contain_text("type decision")
    expect(page).to_have_url(re.compile(r"\?type=decision&type=note&v=\d+$"))
    page.go_back()
    expect(bar).not_to_contain_text("Modified")
    # The message about the saving is gone, and no row is held where it was below that.
    expect(page.locator('#filters [style*="margin-top"]')).to_have_count(0)
    page.go_forward()
    bar.get_by_role("link", name="Discard").click()
    expect(page).to_have_url(re.compile(r"\?type=note&v=\d+$"))
    bar.get_by_role("link", name="Leave the view Notes").click()
    expect(bar).to_have_count(0)
    expect(page).to_have_url(re.compile(r"\?type=note$"))
    page.locator(".person").click()
    page.get_by_role("link", name="Views").click()
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
    expect(page.locator(".view-list .count")).to_have_text("6")


def test_views_without_scripts(open_page):
    page = open_page("/explore/?type=note", java_script_enabled=False)
    page.get_by_text("Save view…").click()
    page.get_by_label("Name", exact=True).fill("Notes")
    page.locator(".save-form").get_by_role("button", name="Save").click()
    page.locator(".person").click()
    page.get_by_role("link", name="Views").click()
    page.get_by_role("button", name="Pin Notes").click()
    page.get_by_role("link", name="Count them").click()
    expect(page.locator(".view-list .count")).to_have_text("6")
    page.get_by_role("link", name="Notes", exact=True).click()
    expect(page).to_have_url(re.compile(r"/explore/\?type=note&v=\d+$"))

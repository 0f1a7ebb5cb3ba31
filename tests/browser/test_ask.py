"""The search box in a real browser: typed filters, completion, the query as text, recent searches, new memories."""

import re

from playwright.sync_api import expect

from access.viewer import command_viewer
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.browser.test_explore import SETTLED


def test_typed_filters_become_filters_on_enter(open_page):
    page = open_page("/explore/?tag=tea")
    box = page.locator("#q")
    box.fill("oolong project:tea")
    expect(page.locator(".how")).to_contain_text("Enter filters by project:tea")
    # Until then the words alone are searched for, and the address says so.
    expect(page).to_have_url(re.compile(r"/explore/\?q=oolong&tag=tea$"))
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"/explore/\?q=oolong&project=tea&tag=tea$"))
    expect(box).to_have_value("oolong")
    expect(page.get_by_role("link", name="Remove filter: project tea")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/explore/\?q=oolong&tag=tea$"))


def test_quick_enter_is_not_overtaken_by_the_search_while_typing(open_page):
    page = open_page("/explore/")
    page.locator("#q").fill("type:note")
    page.locator("#q").press("Enter")
    expect(page.locator("#total")).to_have_text("6 memories of 14")
    page.wait_for_timeout(500)
    expect(page).to_have_url(re.compile(r"/explore/\?type=note$"))
    expect(page.locator("#q")).to_have_value("")


def test_value_is_completed_with_its_count_in_the_slice(open_page):
    page = open_page("/explore/?project=tea")
    box = page.locator("#q")
    box.fill("-type:n")
    option = page.get_by_role("option", name=re.compile("^note"))
    expect(option).to_be_visible()
    box.press("ArrowDown")
    box.press("Enter")
    expect(box).to_have_value("-type:note ")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"/explore/\?project=tea&-type=note$"))
    page.wait_for_function(SETTLED)


def test_query_is_edited_as_text(open_page):
    page = open_page("/explore/?q=tea&type=note&-tag=guests&sort=oldest")
    page.get_by_role("link", name="Edit as text").click()
    box = page.locator("#q")
    expect(box).to_have_value("tea type:note -tag:guests sort:oldest ")
    box.fill("tea type:decision")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"/explore/\?q=tea&type=decision$"))
    expect(box).to_have_value("tea")


def test_new_memories_are_announced_and_shown_on_request(open_page):
    page = open_page("/explore/?type=note")
    expect(page.locator("#total")).to_have_text("6 memories of 14")
    memory_create(record=MemoryRecord(project="tea", content="A new note.", type="note"), viewer=command_viewer())
    memory_create(record=MemoryRecord(project="tea", content="A decision.", type="decision"), viewer=command_viewer())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    pill = page.get_by_role("link", name="1 new or changed: show")
    expect(pill).to_be_visible()
    expect(page.locator("#total")).to_have_text("6 memories of 14")
    pill.click()
    expect(page.locator("#total")).to_have_text("7 memories of 16")
    expect(pill).to_have_count(0)

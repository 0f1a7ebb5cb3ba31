"""Reading beside the results and acting on them, in a real browser: by keyboard, without scripts, on a phone."""

import re

import pytest
from playwright.sync_api import expect

from memories.models import Memory
from tests.browser.test_explore import SETTLED, address, staying, total


def settle(page):
    page.wait_for_timeout(100)
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(100)


def number(external_id):
    return Memory.objects.get(external_id=external_id).pk


def tags(external_id):
    return Memory.objects.get(external_id=external_id).tags


# --- many at once -----------------------------------------------------------------------------------------------------


def test_rows_are_chosen_edited_and_undone_by_keyboard_alone(open_page):
    page = open_page("/explore/?tag=kettle")
    bar = page.get_by_role("form", name="Chosen memories")
    expect(bar).to_be_hidden()
    with staying(page):
        for key in ("j", "x", "j", "x"):
            page.keyboard.press(key)
        expect(bar).to_contain_text("2 chosen")
    assert address(page) == "/explore/?tag=kettle"
    bar.get_by_role("button", name="Tag…").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Edit 2 memories")
    page.get_by_label("Add tags").press_sequentially("boil")
    page.keyboard.press("Enter")
    page.get_by_label("Add tags").press_sequentially("har")
    expect(page.get_by_role("option", name="hardware")).to_contain_text("3 memories")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Preview").press("Enter")
    expect(page.get_by_role("heading", name="2 memories change")).to_be_visible()
    expect(page.locator(".change ins").first).to_have_text("boil")
    page.get_by_role("button", name="Retag 2 memories").press("Enter")
    expect(page).to_have_url(re.compile(r"/explore/\?tag=kettle$"))
    assert tags("t5") == ["kettle", "boil", "hardware"]
    page.get_by_role("button", name="Undo").press("Enter")
    expect(page.locator(".messages")).to_contain_text("Undone: Retagged 2 memories")
    assert (address(page), tags("t5")) == ("/explore/?tag=kettle", ["kettle"])


def test_all_that_match_are_taken_and_a_range_is_ticked_with_shift(open_page):
    page = open_page("/explore/?project=tea")
    total_of_tea = re.match(r"\d+", total(page).inner_text())[0]
    page.locator("#hits .tick").nth(0).click()
    page.locator("#hits .tick").nth(3).click(modifiers=["Shift"])
    expect(page.locator("#chosen-count")).to_have_text("4 chosen")
    page.get_by_label(re.compile(r"take all \d")).check()
    page.get_by_role("button", name="Categorise…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Edit all {total_of_tea} memories")
    expect(page.locator("#part-category")).to_have_attribute("open", "")


def test_ticking_works_without_scripts(open_page):
    page = open_page("/explore/?tag=kettle", java_script_enabled=False)
    page.locator("#hits .tick").first.check()
    page.get_by_role("button", name="Tag…").click()
    page.locator("textarea[name=add_tags]").fill("water")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Retag 1 memory").click()
    assert address(page) == "/explore/?tag=kettle"
    assert Memory.objects.filter(tags__contains=["water"]).count() == 1
    page.get_by_role("button", name="Undo").click()
    assert Memory.objects.filter(tags__contains=["water"]).count() == 0


# --- beside the list --------------------------------------------------------------------------------------------------


def test_result_opens_beside_the_list_and_keys_step_through_and_close_it(open_page):
    page = open_page("/explore/?tag=kettle")
    title = page.locator("#hits h2 a")
    with staying(page):
        title.first.click()
        expect(page.locator("#panel-title")).to_have_text(title.first.inner_text())
        expect(page.locator("#panel-title")).to_be_focused()
        expect(page.locator(".panel-head .where")).to_have_text("1 of 2")
        assert address(page) == f"/explore/?tag=kettle&sel={number('t5')}"
        page.keyboard.press("j")
        expect(page.locator(".panel-head .where")).to_have_text("2 of 2")
        expect(page.locator("#panel-title")).to_be_focused()
        settle(page)
        page.keyboard.press("k")
        expect(page.locator(".panel-head .where")).to_have_text("1 of 2")
        settle(page)
        page.keyboard.press("Escape")
        expect(page.locator("#panel")).to_be_empty()
        settle(page)
        expect(title.first).to_be_focused()
    assert address(page) == "/explore/?tag=kettle"


def test_back_forward_reload_and_a_deep_link_give_the_same_panel(open_page):
    page = open_page("/explore/?tag=kettle")
    first, second = number("t5"), number("t2")
    page.locator("#hits h2 a").first.click()
    expect(page.locator(".panel-body")).to_have_attribute("data-sel", str(first))
    settle(page)
    page.get_by_role("link", name="Next memory").click()
    expect(page.locator(".panel-body")).to_have_attribute("data-sel", str(second))
    settle(page)
    page.go_back()
    expect(page.locator(".panel-body")).to_have_attribute("data-sel", str(first))
    assert address(page).endswith(f"sel={first}")
    page.go_forward()
    expect(page.locator(".panel-body")).to_have_attribute("data-sel", str(second))
    page.reload()
    expect(page.locator(".panel-head .where")).to_have_text("2 of 2")
    expect(page.locator(f"#hit-{second}")).to_have_class(re.compile("open"))
    page.goto(page.url.replace(f"sel={second}", f"sel={first}"))
    expect(page.locator(".panel-head .where")).to_have_text("1 of 2")
    # Another slice closes it, and page and address agree.
    page.get_by_role("checkbox", name=re.compile(r"^howto, \d")).check()
    expect(page.locator("#panel")).to_be_empty()
    assert address(page) == "/explore/?type=howto&tag=kettle"


# --- acting in place --------------------------------------------------------------------------------------------------


def test_tags_are_edited_in_the_panel_and_undone(open_page):
    page = open_page(f"/explore/?tag=kettle&sel={number('t5')}")
    page.get_by_label("Edit tags").click()
    field = page.locator("#edit-tags")
    expect(field).to_be_focused()
    field.press_sequentially("brew")
    expect(page.get_by_role("option", name=re.compile("brewing"))).to_contain_text("memor")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove kettle").click()
    page.locator(".edit-fact[open]").get_by_role("button", name="Save").click()
    expect(page.locator(".messages")).to_contain_text("Saved")
    assert tags("t5") == ["brewing"]
    assert address(page) == f"/explore/?tag=kettle&sel={number('t5')}"
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".messages")).to_contain_text("Restored")
    assert tags("t5") == ["kettle"]


def test_text_that_meets_a_later_change_is_kept_and_compared(open_page):
    page = open_page(f"/m/{number('t4')}/")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Text").fill("Bought fifty cups.")
    Memory.objects.filter(external_id="t4").update(title="Mugs")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice.error")).to_contain_text("was changed since you read it")
    # The browser notes the refusal.
    open_page.complaints.clear()
    expect(page.get_by_label("Text")).to_have_value("Bought fifty cups.")
    expect(page.locator(".differences")).to_contain_text("Mugs")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".messages")).to_contain_text("Saved")
    assert Memory.objects.get(external_id="t4").content == "Bought fifty cups."


def test_memory_is_written_and_replaces_another_that_is_found_while_typing(open_page):
    page = open_page("/m/new/")
    page.get_by_label("Text").fill("Cups and saucers are bought together.")
    page.get_by_label("Project", exact=True).select_option("tea")
    page.get_by_label("This replaces").press_sequentially("forty cups", delay=20)
    page.get_by_role("option", name=re.compile("Cups")).first.click()
    page.get_by_role("button", name="Store").click()
    expect(page.locator(".messages")).to_contain_text("Stored as #")
    expect(page.locator(".notice", has_text="Supersedes")).to_contain_text("Cups")
    assert Memory.objects.get(external_id="t4").state == "superseded"


# --- to the curation of a term ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scripts", [True, False])
def test_memory_is_archived_and_comes_back_by_undo(open_page, scripts):
    page = open_page(f"/m/{number('t4')}/", java_script_enabled=scripts)
    page.get_by_role("button", name="Archive").click()
    assert Memory.objects.get(external_id="t4").state == "archived"
    page.get_by_role("button", name="Undo").click()
    assert Memory.objects.get(external_id="t4").state == "active"
    assert total(page).count() == 0

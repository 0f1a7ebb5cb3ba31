"""The review queue by keyboard alone, and with its keys switched off."""

import re

import pytest
from playwright.sync_api import expect

from curation.suggestions.generate import suggest
from curation.suggestions.models import Suggestion
from curation.suggestions.proposals import Kind
from tests.curation.suggestions.conftest import EVERYTHING, remember


@pytest.fixture
def tags(site):
    """Three pairs of tags, the surest first."""
    remember("tea", "One", "One.", tags=["green-tea", "kettle_lid", "oolong-cup"])
    remember("tea", "Two", "Two.", tags=["greentea", "kettle-lid", "oolong-cups"])
    suggest(kinds=[Kind.TAG_DUPLICATE], viewer=EVERYTHING)
    return list(Suggestion.objects.order_by("-confidence", "id"))


def test_reject_skip_undo_by_keys(open_page, tags):
    page = open_page("/review/?kind=tag_duplicate")
    current = page.locator(".queue [aria-current]")
    names = page.locator(".queue .proposal").all_inner_texts()
    expect(current).to_contain_text(names[0])
    page.keyboard.press("j")
    expect(current).to_contain_text(names[1])
    page.keyboard.press("k")
    expect(current).to_contain_text(names[0])
    page.keyboard.press("r")
    expect(page.locator(".done")).to_contain_text("are kept apart")
    expect(page.locator(".done")).to_contain_text("It is not proposed again.")
    expect(current).to_contain_text(names[1])
    page.keyboard.press("u")
    expect(page.locator(".done")).to_contain_text("Reopened")
    expect(page.locator(".queue .proposal")).to_have_count(len(names))
    page.keyboard.press("a")
    expect(page.locator(".done")).to_contain_text("Accepted")


def test_without_scripts_buttons_do_all_of_it(open_page, tags):
    page = open_page("/review/?kind=tag_duplicate", java_script_enabled=False)
    page.get_by_role("button", name=re.compile("^Reject")).click()
    expect(page.locator(".done")).to_contain_text("are kept apart")
    page.get_by_role("button", name=re.compile("^Undo")).click()
    expect(page.locator(".done")).to_contain_text("Reopened")

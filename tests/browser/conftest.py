"""A browser for each module of tests. Without one they fail: a skipped test proves nothing."""

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.chromium import HOW_TO_GET_ONE, browser_path

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


# Not for the whole session: Playwright's synchronous API keeps an event loop running in this thread, in which other
# tests, run in between in random order, could neither use asyncio nor the database.
@pytest.fixture(scope="module")
def browser():
    path = browser_path()
    if path is None:
        pytest.fail(HOW_TO_GET_ONE)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Django sees that loop and would refuse the database, though nothing here runs in it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield launched
        launched.close()

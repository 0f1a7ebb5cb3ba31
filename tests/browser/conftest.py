"""A browser for each module of tests, a site for each test. Without one they fail: a skipped test proves nothing."""

import time
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from playwright.sync_api import expect, sync_playwright

from tests.browser.chromium import HOW_TO_GET_ONE, browser_path
from tests.corpus import bring_in
from tests.database import fill

HERE = Path(__file__).parent
# The seconds that a page may take on a busy machine, where the first one also warms up the site.
PATIENCE = 30
expect.set_options(timeout=1000 * PATIENCE)


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


@pytest.fixture
def site(live_server, tmp_path):
    """The hand-written memories, served, and somebody who is signed in."""
    fill("memories", lambda: bring_in(tmp_path))
    return live_server


def answers_given():
    """Wait until the site does nothing any more: a page that was left may have asked for something that is still being
    answered, and its locks and those of the emptying of the tables would wait for each other.
    """
    until = time.monotonic() + 60
    seen_idle = 0
    while seen_idle < 3:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type ="
                " 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'"
            )
            seen_idle = 0 if cursor.fetchone()[0] else seen_idle + 1
        assert time.monotonic() < until, "the site is busy without end"
        time.sleep(0.05)


@pytest.fixture
def session(site):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client.cookies[settings.SESSION_COOKIE_NAME].value


# A request that a later one replaces is by design, and htmx reports it as an error by these two events. One that fails
# has others: htmx:sendError, htmx:responseError.
REPLACED = ("htmx:afterRequest", "htmx:sendAbort")


def is_error(message):
    return message.type == "error" and not message.text.startswith(REPLACED)


@pytest.fixture
def open_page(browser, site, session):
    """Opens a page; any error of a script or of the policy fails the test."""
    contexts, complaints = [], []

    def opened(path, **options):
        # A page left while it still fades in has its transition skipped, which the browser reports as an error.
        still = {"viewport": {"width": 1280, "height": 900}, "timezone_id": "UTC", "reduced_motion": "reduce"}
        options = {**still, **options}
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site.url}])
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: is_error(message) and complaints.append(message.text))
        page.goto(site.url + path)
        return page

    opened.complaints = complaints
    yield opened
    for context in contexts:
        context.close()
    answers_given()
    assert complaints == []

"""Fixtures of categories for the tests of pages and API."""

from tests.categories.conftest import *  # noqa: F403

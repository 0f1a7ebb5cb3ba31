"""Fixtures of searches for the tests of pages and API."""

from tests.search.conftest import *  # noqa: F403

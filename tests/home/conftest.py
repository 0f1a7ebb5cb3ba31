"""Fixtures of searches for the tests of the home page."""

from tests.search.conftest import *  # noqa: F403

"""Fixtures of memories for the tests of pages and API."""

from tests.memories.conftest import *  # noqa: F403

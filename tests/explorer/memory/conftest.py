"""The fixtures of memories, for their pages and API."""

from tests.memories.conftest import *  # noqa: F403

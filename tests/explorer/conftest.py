"""The fixtures of searches, for the pages and the API over them."""

from tests.search.conftest import *  # noqa: F403

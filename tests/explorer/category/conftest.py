"""The fixtures of categories, for the pages and the API over them."""

from tests.categories.conftest import *  # noqa: F403

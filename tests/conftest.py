"""What every test stands on. The database is set up in tests/settings.py, the sockets in pyproject.toml."""

import pytest

from access.limits import buckets
from categories import names
from categories.graph import whole
from memories import embeddings
from search import corpus


@pytest.fixture(autouse=True)
def _nothing_kept():
    """A test's transaction is rolled back, and with it the revision that counts and names are kept under."""
    corpus.forget()
    names.forget()
    whole.forget()
    embeddings.forget()
    buckets.forget()

"""What every test stands on. The database is set up in tests/settings.py, the sockets in pyproject.toml."""

import pytest

from access.limits import buckets
from categories import figures, names, tree
from categories.graph import whole
from memories import embeddings
from search import corpus
from search.engines import packed


@pytest.fixture(autouse=True)
def _nothing_kept():
    """A test's transaction is rolled back, and with it the revision that counts and names are kept under."""
    corpus.forget()
    names.forget()
    tree.forget()
    figures.forget()
    packed.forget()
    whole.forget()
    embeddings.forget()
    buckets.forget()

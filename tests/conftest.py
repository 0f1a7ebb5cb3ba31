"""What every test stands on. The database is set up in tests/settings.py, the sockets in pyproject.toml."""

import json

import pytest

from access.limits import buckets
from categories import names, vocabulary_cache
from explorer.graph import cache
from memories.embedding import query
from search import baseline_counts, category_counts
from search.engines import postgres_columns


@pytest.fixture(autouse=True)
def _nothing_kept():
    """A test's transaction is rolled back, and with it the revision that counts and names are kept under."""
    baseline_counts.clear_cache()
    names.forget()
    vocabulary_cache.forget()
    category_counts.clear_cache()
    postgres_columns.forget()
    cache.clear_cache()
    query.forget()
    buckets.forget()


@pytest.fixture
def jsonl(tmp_path):
    def write_lines(*lines, name="memories.jsonl"):
        path = tmp_path / name
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    return write_lines

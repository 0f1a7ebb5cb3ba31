"""What every test stands on. The database is set up in tests/settings.py, the sockets in pyproject.toml."""

import json

import pytest

from access.limits import buckets
from memories.embedding import query
from web.cache import clear_caches


@pytest.fixture(autouse=True)
def _nothing_kept():
    """Rolling back the transaction of a test takes the revision back that caches are keyed by."""
    clear_caches()
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

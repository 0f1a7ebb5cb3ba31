"""Memories with vectors."""

import pytest

from memories.models import EmbeddingModel, Memory
from tests.corpus import bring_in
from tests.database import fill
from tests.search.vectors.drawn import DIMENSIONS, write
from web.cache import clear_caches


@pytest.fixture
def stored(index, settings, tmp_path):
    """The hand-written memories with one to three random vectors each, of a serving model."""
    settings.SEARCH_ENGINE = "tantivy"
    fill("memories", lambda: bring_in(tmp_path))
    EmbeddingModel.objects.create(
        id=1, name="drawn", source="drawn", dimensions=DIMENSIONS, min_similarity=0.1, state="serving"
    )
    write(Memory.objects.values_list("pk", flat=True), seed=0)
    clear_caches()
    yield sorted(Memory.objects.values_list("pk", flat=True))
    clear_caches()

"""A small corpus in the derived index, changed, and compared with the database."""

import threading

from django.db import connection

from access.viewer import command_viewer
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines.check import compare
from search.engines.index import follower as indexer
from search.facets import FACETS
from search.query import SearchQuery
from search.run import run
from tests.corpus import bring_in
from tests.database import fill
from tests.oracle import facet_counts, load_documents, matching


def load(folder):
    """The hand-written memories."""
    fill("memories", lambda: bring_in(folder))


def assert_true_to_the_database():
    """Compare every memory's digest, every file, and the results and counts of searches."""
    assert compare().agrees, compare()
    documents = load_documents()
    for arguments in ({}, {"q": "tea"}, {"q": '"green tea" or crane'}, {"tag": "tea"}, {"category": "kitchen"}):
        query = SearchQuery.from_mapping({**arguments, "include_facets": True})
        result = run(query, command_viewer(), facet_limit=1_000)
        assert result.engine == "tantivy"
        assert {hit.id for hit in result.hits} == {document.id for document in matching(documents, query)}
        for spec, found in zip(FACETS, result.facets, strict=True):
            values, _ = facet_counts(documents, query, spec.key)
            assert {v.value: v.count for v in found.values if v.count} == values, spec.key


def change_much():
    """Insert a memory, change one, delete one, and remove the row of one."""
    memory_create(
        record=MemoryRecord(content="Another green tea, with crane", tags=("tea", "new"), project="tea"),
        viewer=command_viewer(),
    )
    first, second, *_ = Memory.objects.order_by("id").values_list("pk", flat=True)
    Memory.objects.filter(pk=first).update(memory_type="changed")
    Memory.objects.filter(pk=second).update(state="deleted")
    with connection.cursor() as cursor:
        last = Memory.objects.filter(external_id="t4").get().pk
        cursor.execute("DELETE FROM memories_memory WHERE id = %s", [last])


def follower(stop):
    """Follow in a thread, as another process does."""

    def follow():
        try:
            indexer.follow(stop.is_set)
        finally:
            connection.close()

    thread = threading.Thread(target=follow)
    thread.start()
    return thread

"""Readers of the index see no partial writes, and are not misled by leftovers."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.db.models.functions import Now

from access.viewer import command_viewer
from memories.models import Corpus, Memory, OutboxEntry, Project
from search.engines.check import compare
from search.engines.index import follower, outbox, store
from search.engines.index.engine import IndexEngine
from search.engines.index.store import docs_of, ids_at
from search.plan import resolve_query
from search.query import SearchQuery
from search.run import run
from tests.corpus import bring_in
from tests.search.indexed import assert_true_to_the_database, load


def test_an_index_of_another_database_is_not_read(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    outbox.activate("g-000001-of-another")
    assert run(SearchQuery(), command_viewer()).engine == "postgres"
    follower.catch_up()
    assert run(SearchQuery(), command_viewer()).engine == "tantivy"


def test_an_index_of_a_later_past_is_not_read(db, tantivy, tmp_path):
    """The database was restored to an earlier state."""
    load(tmp_path)
    follower.catch_up()
    Corpus.objects.update(revision=0)
    assert run(SearchQuery(), command_viewer()).engine == "postgres"
    follower.catch_up()
    assert run(SearchQuery(), command_viewer()).engine == "tantivy"


def test_a_prefix_of_very_many_words_ends_a_phrase(db, tantivy, tmp_path):
    records = [
        {"id": f"r{n}", "content": "commit " + " ".join(f"ab{n:03}{m:03}" for m in range(200))} for n in range(100)
    ]
    bring_in(tmp_path, records)
    follower.catch_up()
    result = run(SearchQuery(text='"commit ab*"'), command_viewer())
    assert (result.total, result.engine, store.rebuild_reason()) == (100, "tantivy", "")


def test_a_score_says_nothing_to_who_may_not_see_all(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    tea = frozenset({Project.objects.get(slug="tea").pk})
    restricted = dataclasses.replace(command_viewer(), project_ids=tea)
    assert all(hit.score is None for hit in run(SearchQuery(text="tea"), restricted).hits)
    assert all(hit.score for hit in run(SearchQuery(text="tea"), command_viewer()).hits)


def test_how_much_waits_is_told_to_who_may_see_all(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    Memory.objects.update(memory_type="changed")
    OutboxEntry.objects.update(at=Now() - timedelta(seconds=5))
    restricted = dataclasses.replace(command_viewer(), project_ids=frozenset({Project.objects.get(slug="boat").pk}))
    assert [w.message[:2] for w in run(SearchQuery(), command_viewer()).warnings] == ["16"]
    assert [w.message[:4] for w in run(SearchQuery(), restricted).warnings] == ["Some"]
    OutboxEntry.objects.update(at=Now() - timedelta(minutes=1))
    assert run(SearchQuery(), restricted).engine == "postgres"


def test_what_was_deleted_meanwhile_is_not_shown(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    Memory.objects.filter(external_id="t1").update(state="deleted")
    assert "t1" not in {hit.external_id for hit in run(SearchQuery(), command_viewer()).hits}


def test_who_matches_by_an_exclusion_alone_is_listed_too(db, tantivy, tmp_path):
    """In German "was" is a word to look for; in English it is not counted, and only the exclusion is left."""
    load(tmp_path)
    Project.objects.filter(slug="boat").update(language="german")
    follower.catch_up()
    result = run(SearchQuery(text="was -sugar", page_size=100), command_viewer())
    assert result.engine == "tantivy"
    assert len(result.hits) == result.total > 5


@pytest.mark.parametrize("array", ["rows", "keys", "starts", "values", "offsets"])
def test_damaged_columns_are_found_out_and_made_anew(db, tantivy, tmp_path, array):
    load(tmp_path)
    follower.catch_up()
    (path,) = store.current_generation().glob("*.segment")
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[8:16], "little")
    head = json.loads(data[24 : 24 + length])
    begin = -(-(24 + length) // 64) * 64 + head["arrays"][f"tag.{array}"][2]
    data[begin : begin + 12] = b"\xff\xff\xff\x7f" * 3
    path.write_bytes(data)
    store.close_view()
    query = SearchQuery.from_mapping({"tag": "tea", "include_facets": True})
    first = run(query, command_viewer())
    if first.engine == "postgres":
        assert store.rebuild_reason()
    assert not compare().agrees
    store.report_damage("it differs")
    assert run(query, command_viewer()).engine == "postgres"
    follower.catch_up()
    assert run(query, command_viewer()).engine == "tantivy"
    assert_true_to_the_database()


def test_words_are_kept_for_the_view_they_were_found_in(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    older = IndexEngine()
    plan = resolve_query(older, SearchQuery(text="oolong"), command_viewer(), datetime.now(UTC)).plan
    total = Memory.objects.filter(content__contains="oolong").count()
    for memory in Memory.objects.filter(content__contains="oolong"):
        memory.memory_type = "changed"
        memory.save()
    follower.catch_up()
    assert [found.total for found in IndexEngine().match([plan])] == [total]
    assert [found.total for found in older.match([plan])] == [total]


def test_memories_that_were_changed_again_and_again_stand_where_they_were_written_last(db, tantivy, tmp_path):
    """Merged segments hold the deleted docs of a memory before its live one."""
    load(tmp_path)
    follower.catch_up()
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    for round_ in range(5):
        Memory.objects.filter(pk__in=ids[round_:]).update(memory_type=f"type{round_}")
        follower.catch_up()
    view = store.read_view()
    assert any(len(set(segment.ids.tolist())) < segment.size for segment in view.segments)
    docs = docs_of(view, np.array(ids))
    assert view.live[docs].all()
    assert (docs >= 0).all()
    assert ids_at(view, docs) == ids
    assert docs_of(view, np.array([0, 10**9])).tolist() == [-1, -1]
    engine = IndexEngine()
    everything = resolve_query(engine, SearchQuery(), command_viewer(), datetime.now(UTC)).plan
    total = run(SearchQuery(), command_viewer()).total
    assert len(engine.filter_ids(everything, ids)) == total

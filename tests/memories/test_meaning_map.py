"""The map of meaning: similar memories are near each other, and what is placed stays in its place."""

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from access.viewer import command_viewer
from memories import meaning_map
from memories import meaning_map as keeping
from memories.embedding import vectors
from memories.meaning_map import MOST, LayoutStoppedError, MapKeeper, current_layout, place
from memories.models import MapLayout, MapPlace, Memory
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_update
from tests.embedding import embed_all

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()
TOPICS = {
    "tea": "oolong leaves brew in the kettle pot with hot water",
    "boat": "the crane lifts a hull out of the dock of the yard",
    "code": "async task cancelled by a timeout while waiting for socket",
}
EACH = 12


def store(content):
    return memory_create(record=MemoryRecord(content=content), viewer=EVERYTHING)


@pytest.fixture
def drawn():
    """A map of a dozen memories on each of three topics."""
    pytest.importorskip("openTSNE", reason="the extra `embeddings` is not installed")
    topics = {name: [store(f"{text} {name} {n}").pk for n in range(EACH)] for name, text in TOPICS.items()}
    embed_all()
    MapKeeper().once()
    return topics


def places():
    return {pk: (x, y) for pk, x, y in MapPlace.objects.values_list("memory_id", "x", "y")}


def middles(topics):
    found = places()
    return {name: np.median([found[pk] for pk in ids], axis=0) for name, ids in topics.items()}


def nearest_topic(point, topics):
    return min(topics, key=lambda name: float(np.linalg.norm(middles(topics)[name] - point)))


def test_without_the_library_that_draws_nothing_else_stops(monkeypatch):
    monkeypatch.setattr(keeping, "find_spec", lambda name: None)
    store("a memory to embed")
    call_command("worker", "--once", "--threads", "1")
    assert vectors.pending_count(vectors.serving_id()) == 0
    with pytest.raises(CommandError, match="install mnemoscope"):
        call_command("draw_map")


def test_places_do_not_depend_on_how_many_are_placed_at_once(monkeypatch):
    some = np.random.default_rng(5).normal(size=(60, 8)).astype(np.float32)
    anchors, points = some[:40], np.arange(80).reshape(40, 2) * 700
    whole = place(some[40:], anchors, points, np.arange(20))
    monkeypatch.setattr(meaning_map, "_COMPARED", 3)
    assert place(some[40:], anchors, points, np.arange(20)).tolist() == whole.tolist()


def test_memories_of_a_topic_are_near_each_other(drawn):
    found = places()
    assert len(found) == 36
    assert all(0 <= n <= MOST for point in found.values() for n in point)
    assert {name: {nearest_topic(found[pk], drawn) for pk in ids} for name, ids in drawn.items()} == {
        "tea": {"tea"},
        "boat": {"boat"},
        "code": {"code"},
    }


def test_a_new_memory_is_placed_without_moving_others(drawn):
    before = places()
    new = store("oolong leaves brew in the kettle pot, and more hot water")
    embed_all()
    MapKeeper().once()
    after = places()
    assert nearest_topic(after.pop(new.pk), drawn) == "tea"
    assert after == before
    assert MapLayout.objects.count() == 1


def test_only_a_memory_whose_text_changes_moves(drawn):
    before, moved = places(), drawn["tea"].pop()
    memory_update(memory_id=moved, changes=MemoryChanges(content=TOPICS["boat"]), viewer=EVERYTHING)
    embed_all()
    MapKeeper().once()
    after = places()
    assert nearest_topic(after.pop(moved), drawn) == "boat"
    del before[moved]
    assert after == before


def test_places_end_with_their_memories(drawn):
    Memory.objects.filter(pk__in=drawn["boat"]).delete()
    assert sorted(places()) == sorted(drawn["tea"] + drawn["code"])


def test_a_map_that_is_outgrown_is_drawn_again_when_nothing_waits_for_its_vector(drawn):
    for n in range(36):
        store(f"{TOPICS['code']} again {n}")
    MapKeeper().once()
    assert current_layout().pk == 1
    embed_all()
    MapKeeper().once()
    assert (current_layout().pk, current_layout().memories) == (2, 72)
    assert MapLayout.objects.count() == 1
    assert MapPlace.objects.filter(layout=2, is_anchor=True).count() == MapPlace.objects.count() == 72


def test_a_layout_that_is_stopped_stores_nothing(drawn):
    with pytest.raises(LayoutStoppedError):
        MapKeeper(lambda: True).once(redraw=True)
    assert current_layout().pk == 1


def test_two_workers_give_a_memory_the_same_place(drawn, monkeypatch):
    new = store("the hull in the dock")
    embed_all()
    MapKeeper().once()
    first = places()[new.pk]
    MapPlace.objects.filter(memory=new).delete()
    monkeypatch.setattr(keeping, "_PLACED_AT_ONCE", 1)
    MapKeeper().once()
    assert places()[new.pk] == first

"""Facts and terms whose memories are all archived or superseded are counted among what is hidden."""

import pytest

from access.viewer import command_viewer
from memories.embedding import query as embeddings
from memories.models import Memory, Project
from search.query import SearchQuery
from search.unified import legs
from search.unified.service import unified
from tests.unified_corpus import AtOnce, fill_with_mill
from tests.vectors import MODEL
from web.cache import clear_caches

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _mill(db, tmp_path, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    embeddings.use_embedder(MODEL)
    fill_with_mill(tmp_path)
    yield
    embeddings.forget()


def ask(text, viewer=None, **arguments):
    clear_caches()
    return unified(SearchQuery.from_mapping({"q": text, "mode": "unified", **arguments}), viewer or command_viewer())


@pytest.mark.parametrize("state", ["archived", "superseded"])
def test_fact_of_memories_out_of_sight_is_counted(state):
    assert [hit.title_text for hit in ask("cracks +lantern").hits] == ["Osk inspects wheel"]
    assert ask("cracks +lantern").answer.hidden == 0
    Memory.objects.filter(external_id="m4").update(state=state)
    hidden = ask("cracks +lantern")
    assert (hidden.found, hidden.answer.hidden) == (0, 1)
    assert ask("cracks +lantern", state=state).found == 1
    assert ask("cracks +lantern", state=state).answer.hidden == 0


def test_fact_with_other_evidence_and_a_term_in_sight_are_not_counted():
    before = ask("+sluice")
    Memory.objects.filter(external_id="v1").update(state="archived")
    assert (ask("+sluice").found, ask("+sluice").answer.hidden) == (before.found, before.answer.hidden)
    Memory.objects.filter(external_id="m3").update(state="archived")
    # The memory, the entity that it alone carries, and the fact that both support.
    assert ask("+sluice").answer.hidden == before.answer.hidden + 3


def test_deleted_evidence_is_not_counted_and_a_filter_applies():
    Memory.objects.filter(external_id="m4").update(state="deleted")
    assert ask("cracks +lantern").answer.hidden == 0
    Memory.objects.filter(external_id="m4").update(state="archived")
    assert ask("cracks +lantern", project="vault").answer.hidden == 0
    assert ask("cracks +lantern", project="mill").answer.hidden == 1


def test_member_of_another_project_is_told_nothing():
    Memory.objects.filter(external_id="m4").update(state="archived")
    vault = frozenset({Project.objects.get(slug="vault").pk})
    viewer = type(command_viewer())(vault, frozenset({"read"}))
    assert ask("cracks +lantern", viewer).answer.hidden == 0

"""A search is answered with 304 while nothing has changed."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.embedding import query as embeddings
from memories.models import Memory
from memories.recalls import store_now
from search.ranking import boosts_of
from search.unified import legs
from tests.unified_corpus import AtOnce
from tests.vectors import MODEL, embed_everything
from web.cache import clear_caches

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller(db):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.mark.parametrize(
    "asked",
    [
        "q=tea",
        "q=tea&include_facets=1",
        "q=tea&mode=unified",
        "sort=newest",
        "q=tea&view=index",
        "q=tea&page_size=2&page=2",
    ],
)
def test_search_is_unchanged_all_day_and_after_it_was_recalled(corpus, caller, asked, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    embeddings.use_embedder(MODEL)
    embed_everything()
    clear_caches()
    address, moments = f"/api/search?{asked}", []

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            moment = super().now(tz)
            return moment.replace(hour=len(moments), minute=7 * len(moments))

    for module in ("search.run", "search.unified.service"):
        monkeypatch.setattr(f"{module}.datetime", Clock)
    first = caller.get(address)
    for _ in range(3):
        moments.append(None)
        store_now()
        assert caller.get(address, headers={"If-None-Match": first["ETag"]}).status_code == 304
    embeddings.forget()


def test_recency_still_orders_the_memories_of_a_day(corpus):
    now = datetime(2026, 3, 4, 15, tzinfo=UTC)
    ids = list(Memory.objects.order_by("id").values_list("pk", flat=True)[:4])
    ages = (timedelta(0), timedelta(minutes=1), timedelta(hours=14), timedelta(days=3))
    for pk, age in zip(ids, ages, strict=True):
        Memory.objects.filter(pk=pk).update(created_at=now - age)
    boosts = boosts_of(ids, now)
    recency = [boosts[pk].recency for pk in ids]
    assert recency == sorted(set(recency), reverse=True)
    assert boosts_of(ids, now.replace(hour=23, minute=59)) == boosts
    assert boosts_of(ids, now + timedelta(days=1))[ids[0]].recency < recency[0]

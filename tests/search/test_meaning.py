"""Semantic match sets: compared to the naive counter, truncated, and by every k-NN method."""

import json
import random
from dataclasses import replace
from itertools import product
from urllib.parse import parse_qsl

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories.embedding.models import HASHED
from memories.models import Chunk, Corpus, EmbeddingModel, Memory, Project
from search.engines import knn
from search.engines.base import VectorQuery
from search.facets import FACET, FACETS, STATES
from search.query import SearchQuery
from search.ranking import COMPARED
from search.run import run
from tests.html import html_of
from tests.oracle import facet_counts, load_documents, matching
from tests.search.conftest import BOTH_ENGINES
from tests.search.queries import EVERYTHING, facet
from tests.vectors import embed_everything, similarity
from web.cache import clear_caches

pytestmark = BOTH_ENGINES


def ask(querystring, viewer, **options):
    return run(SearchQuery.from_pairs(parse_qsl(querystring, keep_blank_values=True)), viewer, **options)


def ids(result):
    return [hit.id for hit in result.hits]


# --- by hand ------------------------------------------------------------------------------------------------------


def test_meaning_finds_what_shares_too_few_words(embedded, everyone):
    text = "kettle brew leaf cup morning"
    assert ask(f"q={text}&mode=keyword", everyone).total < ask(f"q={text}", everyone).total


def test_reply_says_how_the_set_was_made(embedded, everyone):
    result = ask("q=green tea", everyone)
    by_words = ask("q=green tea&mode=keyword", everyone).total
    more = result.total - by_words
    assert more > 0
    verb = "contains" if by_words == 1 else "contain"
    assert result.matched_by == f"{by_words} {verb} both words, {more} more close in meaning"


def test_semantic_looks_by_meaning_alone(embedded, everyone):
    result = ask("q=green tea&mode=semantic", everyone)
    near = {d.id for d in embedded if similarity(d.vectors, "green tea") >= 0.2}
    assert set(ids(result)) <= near
    assert result.matched_by == f"{result.total} close in meaning"
    shown = [hit.why.similarity for hit in result.hits]
    assert all(similar is not None and similar >= 0.2 for similar in shown)


def test_faceted_is_hybrid_within_the_filters_with_a_text_and_newest_first_without(embedded, everyone):
    with_text = ask("q=green tea&mode=faceted&project=tea&include_facets=1", everyone)
    hybrid = ask("q=green tea&project=tea&include_facets=1", everyone)
    assert ids(with_text) == ids(hybrid)
    assert with_text.facets == hybrid.facets
    assert with_text.total > ask("q=green tea&mode=keyword&project=tea", everyone).total
    assert ask("q=green tea&mode=faceted", everyone).matched_by == ask("q=green tea", everyone).matched_by
    assert all(0 <= hit.score <= 1 for hit in with_text.hits)
    assert ids(ask("q=green tea&mode=faceted&min_similarity=1", everyone)) == ids(
        ask("q=green tea&min_similarity=1", everyone)
    )
    dates = [hit.created_at for hit in ask("mode=faceted&project=tea", everyone).hits]
    assert dates == sorted(dates, reverse=True)


def test_least_similarity_narrows(embedded, everyone):
    wide = ask("q=green tea&mode=semantic&min_similarity=0.05", everyone)
    narrow = ask("q=green tea&mode=semantic&min_similarity=0.5", everyone)
    assert set(ids(narrow)) < set(ids(wide))


def test_near_duplicates_stand_behind_the_first_and_are_folded_on_the_page(embedded, everyone, client):
    clone = Memory.objects.get(external_id="t1")
    copy = Memory.objects.get(external_id="t2")
    Memory.objects.filter(pk=copy.pk).update(title=clone.title, content=clone.content)
    embed_everything()
    clear_caches()
    result = ask("q=green tea", everyone)
    alike = [hit for hit in result.hits if hit.why.similar_to]
    assert [(hit.id, hit.why.similar_to) for hit in alike] in ([(copy.pk, clone.pk)], [(clone.pk, copy.pk)])
    client.force_login(User.objects.create_superuser("reader"))
    page = html_of(client.get("/explore/", {"q": "green tea"}))
    assert page.count("<article ") == result.total
    assert page.count("+1 similar</summary>") == 1
    folded = page.split(f'<details id="similar-{alike[0].why.similar_to}"')[1]
    assert f'<article id="hit-{alike[0].id}"' in folded


@pytest.fixture
def many_teas(corpus, query_model, tmp_path):
    """Thirty more memories of tea, so that the best results are compared with each other."""
    leaves, uses = ("green", "black", "white"), ("brewed", "packed", "sold", "poured", "tasted")
    records = [
        {"project": "tea", "title": f"{leaf.title()} tea {n}", "content": f"{leaf} tea {n} is {use} in the house"}
        for n, (leaf, use) in enumerate(product(leaves, uses * 2))
    ]
    path = tmp_path / "teas.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    call_command("import_memories", str(path), verbosity=0)
    embed_everything()
    clear_caches()


def test_why_and_why_not_tell_the_place_that_the_comparison_with_neighbours_gave(many_teas, everyone, settings):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=everyone).raw
    caller = Client(headers={"Authorization": f"Bearer {raw}"})
    query = {"q": "green tea brewed", "min_similarity": "0", "page_size": 100}
    hits = caller.get("/api/search", query).json()["memories"]
    compared = [hit for hit in hits if hit["why"]["fused_rank"]]
    assert len(compared) == COMPARED
    by_relevance = sorted(compared, key=lambda hit: hit["why"]["neighbour_rank"])
    assert [hit["why"]["neighbour_rank"] for hit in by_relevance] == list(range(1, COMPARED + 1))
    relevances = [hit["why"]["relevance"] for hit in by_relevance]
    assert relevances == sorted(relevances, reverse=True)
    assert any(hit["why"]["fused_rank"] != hit["why"]["neighbour_rank"] for hit in compared)
    for place, hit in enumerate(hits, 1):
        why = hit["why"]
        assert hit["score"] == pytest.approx(sum(why["score_parts"].values()))
        told = [reason["label"] for reason in why["reasons"]]
        assert ("Neighbours" in told) == (why["fused_rank"] is not None)
        if place in (1, 2, COMPARED, len(hits)):
            asked = caller.get("/api/search/why-not", {**query, "id": hit["id"]}).json()
            assert asked["verdict"] == f"It matches: result {place} of {len(hits)}, on page 1."
    # The rank before is the one that there is without neighbours.
    settings.SEARCH_NEIGHBOUR_WEIGHT = 0.0
    clear_caches()
    before = {hit["id"]: hit["why"] for hit in caller.get("/api/search", query).json()["memories"]}
    fused = sorted(compared, key=lambda hit: hit["why"]["fused_rank"])
    assert [before[hit["id"]]["fused_rank"] for hit in fused] == [None] * COMPARED
    assert [before[hit["id"]]["relevance"] for hit in fused] == sorted(
        (why["relevance"] for why in before.values()), reverse=True
    )[:COMPARED]


def test_who_may_not_see_everything_gets_no_scores_but_the_reasons(embedded, everyone):
    project = Project.objects.get(slug="tea")
    viewer = replace(everyone, project_ids=frozenset({project.pk}))
    why = ask("q=green tea", viewer).hits[0].why
    assert (why.score, why.word_score, why.relevance, why.score_parts.relevance) == (None, None, None, None)
    assert why.semantic_rank == 1
    assert why.boosts is not None


# --- while there is no model --------------------------------------------------------------------------------------


NOT_READY = "Search by meaning is not ready: no memory has been embedded yet. Found by words alone."


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_without_vectors_words_answer_and_the_reply_says_so_once(corpus, everyone, query_model, mode):
    result = ask(f"q=green tea&mode={mode}", everyone)
    assert result.total == ask("q=green tea&mode=keyword", everyone).total
    assert [(warning.message, warning.parameter) for warning in result.warnings] == [(NOT_READY, "mode")]
    assert "words only" not in result.matched_by


def forget_vectors_of(memory_ids):
    for table in ("memories_chunk", "memories_embeddedmemory"):
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table} WHERE memory_id = ANY(%s)", [list(memory_ids)])
    Corpus.objects.update(vectors=F("vectors") + 1)
    clear_caches()


def test_what_is_not_embedded_yet_stands_where_its_words_put_it_and_the_share_is_named(embedded, everyone):
    best = ids(ask("q=green tea&mode=keyword", everyone))[0]
    assert ask("q=green tea", everyone).warnings == ()
    forget_vectors_of([best])
    assert Memory.objects.count() == 16
    result = ask("q=green tea", everyone)
    (why,) = [hit.why for hit in result.hits if hit.id == best]
    scores = [hit.why.word_score for hit in result.hits]
    assert why.relevance == pytest.approx((why.word_score - min(scores)) / (max(scores) - min(scores)))
    assert [(warning.message, warning.parameter) for warning in result.warnings] == [
        ("93 % of the memories have a vector so far; more may appear.", "mode")
    ]
    assert ask("tag=tea", everyone).warnings == ask("q=green tea&mode=keyword", everyone).warnings == ()


def test_share_counts_the_searched_projects_of_the_viewer_alone(embedded, everyone):
    forget_vectors_of(Memory.objects.filter(project__slug="boat").values_list("pk", flat=True))
    tea = Project.objects.get(slug="tea")
    in_tea = replace(everyone, project_ids=frozenset({tea.pk}))
    in_boats = replace(everyone, project_ids=frozenset({Project.objects.get(slug="boat").pk}))
    none = "No memory has a vector so far. Found by words alone."
    assert ask("q=green tea", in_tea).warnings == ask("q=green tea&project=tea", everyone).warnings == ()
    assert [warning.message for warning in ask("q=wet wood", in_boats).warnings] == [none]
    assert [warning.message for warning in ask("q=wet wood&project=boat", everyone).warnings] == [none]


@pytest.mark.parametrize("querystring", ["q=green tea", "q=green tea&mode=faceted", "q=green tea&mode=semantic"])
def test_page_api_and_tools_name_the_share(embedded, querystring):
    forget_vectors_of(Memory.objects.filter(project__slug="tea").values_list("pk", flat=True)[:4])
    share = "75 % of the memories have a vector so far; more may appear."
    user = User.objects.create_superuser("reader")
    browser = Client()
    browser.force_login(user)
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), every_project=True).raw
    headers = {"Authorization": f"Bearer {raw}"}
    arguments = dict(parse_qsl(querystring))
    assert html_of(browser.get("/explore/", arguments)).count(share) == 1
    for path in ("search", "timeline"):
        reply = browser.get(f"/api/{path}", arguments, headers=headers).json()
        assert [warning["message"] for warning in reply["warnings"]].count(share) == 1
    for name in ("search", "timeline"):
        assert call(TOOL[name], arguments, command_viewer()).count(share) == 1


# --- against the naive counter ------------------------------------------------------------------------------------


def by_meaning(documents, seed):
    """A semantic query, deterministic by seed."""
    rng = random.Random(seed)
    known = {spec.key: sorted({v for d in documents for v in d.values[spec.key]} or {""}) for spec in FACETS}
    known["state"] = list(STATES)

    def some(options, most):
        return rng.sample(options, min(len(options), rng.randint(0, most)))

    shape = {spec.key: some(known[spec.key], 2) for spec in FACETS}
    shape |= {f"-{spec.key}": some(known[spec.key], 1) for spec in FACETS}
    shape |= {
        "has": some(list(FACET), 1),
        "no": some(list(FACET), 1),
        "tag.all": rng.random() < 0.5,
        "concept.all": rng.random() < 0.5,
        "entity.all": rng.random() < 0.5,
        "subcategories": rng.random() < 0.5,
        "from": rng.choice(["2024-01-05", "2024-02-29", "2025-03-01"]),
        "to": rng.choice(["2024-02-29", "2024-12-31", "2025-06-01"]),
    }
    said = ["tea", "boat", "dock", "wet wood", "kettle", "-tea", "+boat", '"green tea"']
    return {
        **{key: shape[key] for key in rng.sample(sorted(shape), rng.randint(0, 4))},
        "mode": rng.choice(["hybrid", "semantic"]),
        "min_similarity": rng.choice([None, 0.0, 0.1, 0.15, 0.4]),
        "q": " ".join(rng.choices(said, k=rng.randint(1, 4))),
    }


SEEDS = [range(10), *(pytest.param(range(n, n + 10), marks=pytest.mark.release) for n in range(10, 60, 10))]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_any_query_by_meaning_equals_the_naive_counter(embedded, everyone, seeds):
    for seed in seeds:
        query = SearchQuery.from_mapping({**by_meaning(embedded, seed), "include_facets": True, "page_size": 100})
        result = run(query, everyone, facet_limit=EVERYTHING)
        expected = matching(embedded, query)
        assert {hit.id for hit in result.hits} == {document.id for document in expected}
        assert (result.total, result.at_least) == (len(expected), False)
        for spec in FACETS:
            values, no_value = facet_counts(embedded, query, spec.key)
            found = facet(result, spec.key)
            excluded = set(query.selection(spec.key).exclude)
            shown = {v.value: v.count for v in found.values if not v.excluded and v.count}
            assert shown == {value: n for value, n in values.items() if value not in excluded}, spec.key
            assert (found.no_value, found.at_least) == (no_value, False), spec.key


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_pages_together_are_the_match_set_each_memory_once(embedded, everyone, seeds):
    for seed in seeds:
        asked = by_meaning(embedded, seed)
        query = SearchQuery.from_mapping({**asked, "page_size": 3})
        whole = run(query.model_copy(update={"page_size": 100}), everyone)
        paged = [
            pk for n in range(1, whole.pages * 40) for pk in ids(run(query.model_copy(update={"page": n}), everyone))
        ]
        assert paged == ids(whole)
        assert len(paged) == len(set(paged)) == whole.total


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_at_the_ceiling_numbers_are_lower_bounds_and_say_so(embedded, low_ceiling, everyone, seeds):
    for seed in seeds:
        query = SearchQuery.from_mapping({**by_meaning(embedded, seed), "include_facets": True})
        result = run(query, everyone, facet_limit=EVERYTHING)
        expected = len(matching(embedded, query))
        assert result.total == expected or (result.at_least and result.total < expected)
        for spec in FACETS:
            values, no_value = facet_counts(embedded, query, spec.key)
            found = facet(result, spec.key)
            for value in found.values:
                if value.excluded or value.selected:
                    continue
                true = values.get(value.value, 0)
                assert value.count == true or (found.at_least and value.count < true)
                ticked = run(query.toggle(spec.key, value.value), everyone)
                if not query.selection(spec.key).restricts:
                    # A narrower filter can only increase the count within it.
                    assert ticked.total >= value.count
                    assert found.at_least or ticked.total == value.count
            assert found.no_value == no_value or (found.at_least and found.no_value < no_value)


# --- how the nearest are read -------------------------------------------------------------------------------------


class Some:
    """The memories that pass the filter of a test."""

    def __init__(self, passing):
        self.passing = np.array(sorted(passing), np.int64)

    def contains(self, asked):
        return np.isin(asked, self.passing)

    def count(self, most=None):
        return len(self.passing)

    def ids(self):
        return self.passing


@pytest.fixture(scope="class")
def many(django_db_setup, django_db_blocker):
    """3,000 vectors of memories that need not exist, in some order of the meaning, once for all tests of a class."""
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((60, 384))
    vectors = centres[rng.integers(0, 60, 3_000)] + 0.9 * rng.standard_normal((3_000, 384))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'chunk_memory_fk'")
        (to_memories,) = cursor.fetchone()
        cursor.execute("SELECT pg_get_indexdef('chunk_embedding_hnsw'::regclass)")
        (index,) = cursor.fetchone()
        model = EmbeddingModel.objects.create(
            id=1, name=HASHED, source=HASHED, dimensions=384, min_similarity=0.2, state="serving"
        )
        cursor.execute("ALTER TABLE memories_chunk DROP CONSTRAINT chunk_memory_fk")
        # Rebuilt after the rows: what other tests have taken back stands in it until a vacuum, and takes the places
        # of what there is; and to add to it row by row takes longer.
        cursor.execute("DROP INDEX chunk_embedding_hnsw")
        Chunk.objects.bulk_create(
            Chunk(memory_id=n // 2, model_id=1, ordinal=n % 2, start=0, end=1, embedding=v)
            for n, v in enumerate(vectors)
        )
        Corpus.objects.update(vectors=F("vectors") + 1)
        cursor.execute(index)
        cursor.execute("ANALYZE memories_chunk")
    clear_caches()
    yield vectors
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE memories_chunk")
        cursor.execute(f"ALTER TABLE memories_chunk ADD CONSTRAINT chunk_memory_fk {to_memories}")
        model.delete()
        Corpus.objects.update(vectors=F("vectors") + 1)
        cursor.execute("ANALYZE memories_chunk")


def exact(vectors, query, passing, least, limit):
    found = {}
    for n, similar in enumerate((vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)).tolist()):
        if n // 2 in passing and similar >= least:
            found[n // 2] = max(similar, found.get(n // 2, -2.0))
    return sorted(found, key=lambda pk: -found[pk])[:limit], len(found)


WAYS = {
    "every": {"_SCAN_COST": 0.0},
    "by id": {"_SCAN_COST": 1e9, "_BY_ID_COST": 1e-9},
    "index": {"_SCAN_COST": 1e6, "_BY_ID_COST": 1e6, "_NEXT_COST": 1e-3},
}


@pytest.mark.django_db
class TestNearest:
    @pytest.fixture(autouse=True)
    def _nothing_read(self, query_model):
        clear_caches()

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("kept", [pytest.param(n, id=f"{n} pass") for n in (1_500, 750, 75, 10, 1, 0)])
    @pytest.mark.parametrize(("least", "limit"), [pytest.param(-1.0, 10, id="ten"), pytest.param(0.2, 100, id="near")])
    def test_nearest_that_pass_are_found_however_few_they_are(self, many, monkeypatch, way, kept, least, limit):
        for name, cost in WAYS[way].items():
            monkeypatch.setattr(knn, name, cost)
        passing = set(np.random.default_rng(kept).permutation(1_500)[:kept].tolist())
        query = many[11] + 0.5 * many[501]
        expected, there_are = exact(many, query, passing, least, limit)
        meaning = VectorQuery(1, query.astype(np.float32).tobytes(), least, limit)
        with transaction.atomic():
            near = knn.nearest_candidates(meaning, Some(passing))
        assert len(near.ids) == len(expected)
        assert near.similarities.tolist() == sorted(near.similarities.tolist(), reverse=True)
        # From the index alone it is not known whether there are more than it was asked for.
        assert near.truncated or there_are <= limit
        assert not near.truncated or len(near.ids) == limit
        if not near.truncated or way != "index":
            assert near.ids.tolist() == expected

    @pytest.mark.parametrize("kept", [pytest.param(n, id=f"{n} pass") for n in (1_500, 750, 75, 10, 1)])
    @pytest.mark.parametrize(("least", "limit"), [pytest.param(-1.0, 10, id="ten"), pytest.param(0.2, 100, id="near")])
    def test_of_a_hundred_nearest_the_index_finds_ninety_five(self, many, monkeypatch, kept, least, limit):
        # Over many queries: the index is drawn by chance, and of one query alone it may miss one of ten.
        for name, cost in WAYS["index"].items():
            monkeypatch.setattr(knn, name, cost)
        passing = set(np.random.default_rng(kept).permutation(1_500)[:kept].tolist())
        found = there_are = 0
        for n in range(10):
            query = many[11 + n] + 0.5 * many[501 + n]
            expected, _ = exact(many, query, passing, least, limit)
            meaning = VectorQuery(1, query.astype(np.float32).tobytes(), least, limit)
            with transaction.atomic():
                near = knn.nearest_candidates(meaning, Some(passing))
            found += len(set(near.ids.tolist()) & set(expected))
            there_are += len(expected)
        assert found >= 0.95 * there_are

    def test_a_change_of_vectors_is_seen_at_once(self, many):
        meaning = VectorQuery(1, many[0].tobytes(), 0.2, 50)
        with transaction.atomic():
            before = knn.nearest_candidates(meaning, Some(range(1_500)))
        Chunk.objects.filter(memory_id=0).delete()
        Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
        with transaction.atomic():
            after = knn.nearest_candidates(meaning, Some(range(1_500)))
        assert before.ids[0] == 0
        assert 0 not in after.ids


def test_documents_of_the_oracle_know_their_vectors(embedded):
    assert {d.id for d in load_documents()} == {d.id for d in embedded}

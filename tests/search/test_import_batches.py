"""An import in the index: one row of the outbox, applied in steps, and documents that are found where the terms are."""

import itertools
import logging
import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest
from django.core.management import call_command
from django.db import connection
from tantivy import Query

from memories.models import Memory, OutboxEntry
from search.engines.check import compare
from search.engines.index import follower, outbox, store, words
from tests.corpus import RECORDS, bring_in
from tests.killed import run_until
from tests.search.indexed import assert_true_to_the_database, change_much
from text.analysis import index_terms, to_tsvector
from text.query_syntax import parse_text
from transfer import analysers

pytestmark = pytest.mark.django_db(transaction=True)

# The first records are of the vocabulary.
MEMORIES = 16
FIRST, REST = RECORDS[:12], RECORDS[12:]
IMPORT_STEPS = ["block stored", "records written"]
STEPS = ["documents added", "words committed", "segment written", "manifest written", "changes deleted"]


@pytest.fixture
def tantivy(settings, index):
    """A followed index without memories."""
    settings.SEARCH_ENGINE = "tantivy"
    follower.catch_up()
    return index


def test_an_import_is_one_row_of_the_outbox(tantivy, tmp_path):
    bring_in(tmp_path)
    # None is found until it is applied.
    assert OutboxEntry.objects.filter(memory_id__lt=0).count() == 1
    assert compare().waiting == MEMORIES
    assert follower.catch_up() >= MEMORIES
    assert_true_to_the_database()


@pytest.mark.parametrize("step", IMPORT_STEPS)
def test_an_import_killed_before_its_commit_leaves_nothing_and_can_be_repeated(tantivy, tmp_path, step):
    bring_in(tmp_path, FIRST)
    follower.catch_up()
    before = Memory.objects.count()
    assert run_until(step, bring_in, tmp_path, REST)
    assert Memory.objects.count() == before
    follower.catch_up()
    assert_true_to_the_database()
    bring_in(tmp_path, REST)
    follower.catch_up()
    assert_true_to_the_database()
    assert Memory.objects.count() == MEMORIES


def test_an_import_whose_analysing_process_is_killed_fails_as_a_whole(tantivy, tmp_path, monkeypatch):
    monkeypatch.setattr(analysers, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(analysers, "memories_terms", _end_of_the_process)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(BrokenProcessPool):
        bring_in(tmp_path)
    assert not Memory.objects.exists()
    assert not OutboxEntry.objects.exists()


def _end_of_the_process(_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("step", STEPS)
def test_killed_while_an_import_is_applied_it_goes_on(tantivy, tmp_path, step):
    bring_in(tmp_path, FIRST)
    follower.catch_up()
    bring_in(tmp_path, REST)
    change_much()
    assert run_until(step, follower.catch_up)
    follower.catch_up()
    assert not outbox.backlog().changes
    assert_true_to_the_database()


def test_what_an_import_of_an_earlier_version_left_behind_is_removed(tantivy, tmp_path):
    (tantivy / "import-7" / "words").mkdir(parents=True)
    follower.rebuild()
    assert not list(tantivy.glob("import-*"))


def test_a_batch_that_is_undone_before_it_is_taken_in_is_gone(tantivy, tmp_path):
    bring_in(tmp_path)
    batch_id = -OutboxEntry.objects.get(memory_id__lt=0).memory_id
    call_command("import_memories", undo=batch_id, verbosity=0)
    follower.catch_up()
    assert store.read_view().manifest.memories == 0
    assert compare().agrees


def test_an_unindexable_memory_is_left_out_and_told(tantivy, tmp_path, caplog):
    bring_in(tmp_path)
    follower.catch_up()
    first = Memory.objects.earliest("pk").pk
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_memory SET created_at = 'infinity' WHERE id = %s", [first])
    with caplog.at_level(logging.ERROR):
        follower.catch_up()
    assert f"#{first} is not indexed" in caplog.text
    assert not outbox.backlog().changes
    assert compare().unindexable == [first]
    assert store.read_manifest(store.current_generation()).unindexable == (first,)
    follower.rebuild()
    assert store.read_manifest(store.current_generation()).unindexable == (first,)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_memory SET created_at = now() WHERE id = %s", [first])
    follower.catch_up()
    assert compare().agrees
    assert store.read_manifest(store.current_generation()).unindexable == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("See `MisubZalorag` and foo_bar.baz, C++ or --dry-run in src/x.py twice: src/x.py.", id="joined"),
        pytest.param("a state-of-the-art vault, see brew-00042 (or pre-war MatTooltip-x)", id="hyphens"),
        pytest.param("it's a 'quoted' back\\slash c:\\temp\\x", id="quotes"),
        pytest.param("Grüße aus Köln, 緑茶を飲む, ไทย", id="scripts"),
        pytest.param("tea " * 300, id="often"),
        pytest.param("tea and crane " * 9_000, id="long"),
        pytest.param("", id="empty"),
    ],
)
def test_documents_have_terms_where_the_analysis_has_them(tmp_path, text):
    fields = [("A Title of tea", "A"), (text, "D"), ("tag one", "B"), ("", "C")]
    title = words.TITLE if text else words.BEGINNING
    terms = index_terms(fields)
    assert_found_where_they_are(tmp_path / "words", documents_of(terms), terms, title)


def documents_of(terms):
    """The document of terms as they are made, and as Postgres gives them back."""
    made = to_tsvector(terms)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::tsvector::text", [made])
        return [words.document(1, made), words.document(2, cursor.fetchone()[0])]


@pytest.mark.parametrize("title", ["Kettle at high-tide", "See foo_bar.baz", "緑茶"])
@pytest.mark.parametrize("content", [" sings of state-of-the-art tea", " calls src/x.py", ""])
def test_content_that_continues_its_title_is_one_text(tmp_path, title, content):
    fields = [(title, "A"), (content, "D"), ("tag", "B")]
    terms = index_terms(fields, is_joined=True)
    documents = documents_of(terms)
    assert_found_where_they_are(tmp_path / "words", documents, terms, words.BEGINNING)
    across = f'"{title.split()[-1]} {content.split()[0]}"' if content else f'"{title}"'
    (pattern,) = parse_text(across).positive
    assert words.docs_having(searcher_of(tmp_path / "found", documents), pattern, 0, 10).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("the connection-pool", '"the connecti*"', id="a prefix longer than the stem"),
        pytest.param("a brew-00042", '"a bre*"', id="a prefix of a word that is its stem"),
        pytest.param("the brew-00042-x now", '"brew 00042 x now"', id="words in a row"),
        pytest.param(f"the {'abcde-' * 40}x.y now", f'"the {"abcde-" * 40}x.y now"', id="a name that was cut"),
        pytest.param(f"the {'a' * 250}-b now", f'"the {"a" * 250}-b now"', id="cut within its first word"),
    ],
)
def test_phrases_find_what_hyphens_join(tmp_path, text, query):
    documents = documents_of(index_terms([("A Title", "A"), (text, "D"), ("", "B"), ("", "C")]))
    (pattern,) = parse_text(query).positive
    assert words.docs_having(searcher_of(tmp_path / "words", documents), pattern, 0, 10).tolist() == [1, 2]


def searcher_of(path, documents):
    index = words.make_index(path)
    writer = words.index_writer(index)
    for document in documents:
        writer.add_document(document)
    writer.commit()
    index.reload()
    return index.searcher()


def assert_found_where_they_are(path, documents, terms, title=words.TITLE):
    """Search for every two adjacent terms, in the title and anywhere."""
    searcher = searcher_of(path, documents)
    docs = list(range(1, len(documents) + 1))
    for field, weights in ((words.WORDS, "ABCD"), (title, "A")):
        for first, second in itertools.pairwise(terms):
            starts = {at for at, weight in terms[first] if weight in weights}
            ends = {at for at, weight in terms[second] if weight in weights}
            for gap in (0, 1):
                query = Query.phrase_query(words.schema(), field, [(0, first), (gap, second)])
                expected = docs if any(start + gap in ends for start in starts) else []
                assert words.docs_of(searcher, query, 0, 9).tolist() == expected, (field, first, second, gap)

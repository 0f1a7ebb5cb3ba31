"""An import that writes the index while it runs: killed at every step, rolled back, overtaken, and correct at last."""

import itertools
import json
import logging
import multiprocessing

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from tantivy import Query

from access.viewer import command_viewer
from memories.models import Memory, OutboxEntry
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines import crash_points
from search.engines.index import follower, import_sink, import_stage, outbox, store, words
from search.engines.index.check import compare
from search.query import SearchQuery
from search.run import run
from tests.corpus import RECORDS
from tests.killed import FORKED, import_in_blocks, run_until
from tests.search.indexed import assert_true_to_the_database
from text.analysis import index_terms, to_tsvector
from text.bulk_terms import placed_terms
from text.query_syntax import parse_text
from transfer import blocks
from transfer import run as batches

pytestmark = pytest.mark.django_db(transaction=True)

# The first records are of the vocabulary.
MEMORIES = 16
FIRST, REST = RECORDS[:12], RECORDS[12:]
IMPORT_STEPS = ["stage begun", "block stored", "stage written", "import over"]
ADOPTION_STEPS = ["words committed", "manifest written", "stage filled up", "stage named", "generation followed"]
ADOPTION_STEPS += ["generation in place"]


@pytest.fixture
def tantivy(settings, index, monkeypatch):
    """A followed index without memories; every import counts as a large one, in blocks of five."""
    settings.SEARCH_ENGINE = "tantivy"
    monkeypatch.setattr(import_sink, "STAGE_FROM", 1)
    # Those that are killed start theirs as an import does.
    monkeypatch.setattr(import_sink, "PROCESSES", FORKED)
    monkeypatch.setattr(blocks, "BLOCK", 5)
    follower.catch_up()
    return index


def lines(path, records=RECORDS):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def bring_in(path, **options):
    call_command("import_memories", str(path), verbosity=0, **options)


def change_much():
    memory_create(record=MemoryRecord(content="Another green tea", project="tea"), viewer=command_viewer())
    first, second, third, *_ = Memory.objects.order_by("id").values_list("pk", flat=True)
    Memory.objects.filter(pk=first).update(memory_type="changed")
    Memory.objects.filter(pk=second).update(state="deleted")
    with connection.cursor() as cursor:
        for table in ("categories_categorylink", "categories_conceptlink", "categories_entitylink"):
            cursor.execute(f"DELETE FROM {table} WHERE memory_id = %s", [third])
        cursor.execute("DELETE FROM memories_memorylink WHERE memory_id = %s", [third])
        cursor.execute("DELETE FROM memories_memory WHERE id = %s", [third])


def forbid_reading(monkeypatch):
    """Promoted memories are not read from the database again."""

    def refuse(*_):
        raise AssertionError("the memories of the batch were read from the database")

    monkeypatch.setattr(outbox, "batch_memories", refuse)


def test_an_import_is_in_the_index_without_being_read_again(tantivy, tmp_path, monkeypatch):
    bring_in(lines(tmp_path / "tea.jsonl"))
    assert list(tantivy.glob("import-*"))
    # One row for all of them; none is found until it is applied.
    assert OutboxEntry.objects.filter(memory_id__lt=0).count() == 1
    assert compare().waiting == MEMORIES
    forbid_reading(monkeypatch)
    assert follower.catch_up() >= MEMORIES
    assert_true_to_the_database()
    assert [path.name for path in tantivy.iterdir() if path.is_dir()] == [store.current_generation().name]


def test_the_process_of_an_import_starts_without_django(tantivy, tmp_path, monkeypatch):
    monkeypatch.setattr(import_sink, "PROCESSES", multiprocessing.get_context("spawn"))
    bring_in(lines(tmp_path / "tea.jsonl"))
    forbid_reading(monkeypatch)
    assert follower.catch_up() >= MEMORIES


def test_a_smaller_import_writes_the_index_where_it_is_half_of_it(tantivy, tmp_path, monkeypatch):
    monkeypatch.setattr(import_sink, "STAGE_FROM", 1_000)
    monkeypatch.setattr(import_sink, "STAGE_HALF_FROM", 3)
    bring_in(lines(tmp_path / "most.jsonl", RECORDS[:-4]))
    assert list(tantivy.glob("import-*"))
    follower.catch_up()
    bring_in(lines(tmp_path / "rest.jsonl", RECORDS[-4:]))
    assert not list(tantivy.glob("import-*"))
    follower.catch_up()
    assert_true_to_the_database()


def test_what_is_changed_while_it_runs_and_before_it_is_taken_in_is_there_as_well(tantivy, tmp_path, monkeypatch):
    bring_in(lines(tmp_path / "first.jsonl", FIRST))
    follower.catch_up()
    finish = import_sink.ImportSink.finish

    def overtaken(self):
        finish(self)
        # Applied by another process, over another connection, before the import commits.
        assert run_until("changes deleted", follower.catch_up)

    before = list(Memory.objects.order_by("id").values_list("pk", flat=True))
    Memory.objects.filter(pk=before[0]).update(memory_type="changed")
    Memory.objects.filter(pk=before[1]).update(state="archived")
    monkeypatch.setattr(import_sink.ImportSink, "finish", overtaken)
    bring_in(lines(tmp_path / "rest.jsonl", REST))
    Memory.objects.filter(pk=before[2]).update(memory_type="also")
    forbid_reading(monkeypatch)
    follower.catch_up()
    assert_true_to_the_database()


@pytest.mark.parametrize("step", IMPORT_STEPS)
def test_an_import_killed_at_a_step_leaves_everything_true(tantivy, tmp_path, step):
    bring_in(lines(tmp_path / "first.jsonl", FIRST))
    follower.catch_up()
    assert run_until(step, import_in_blocks, lines(tmp_path / "rest.jsonl", REST))
    assert Memory.objects.count() == (MEMORIES if step == "import over" else 8)
    assert_within(8)
    follower.catch_up()
    assert_true_to_the_database()
    assert not list(tantivy.glob("import-*"))
    bring_in(tmp_path / "rest.jsonl")
    follower.catch_up()
    assert_true_to_the_database()
    assert Memory.objects.count() == MEMORIES


def assert_within(count):
    """The index has only what it had before."""
    store.close_view()
    assert store.read_view().manifest.memories == count


@pytest.mark.parametrize("step", ADOPTION_STEPS)
def test_killed_while_an_import_becomes_part_of_the_index_it_becomes_part_of_it(tantivy, tmp_path, step):
    bring_in(lines(tmp_path / "first.jsonl", FIRST))
    follower.catch_up()
    bring_in(lines(tmp_path / "rest.jsonl", REST))
    change_much()
    assert run_until(step, follower.catch_up)
    assert run(SearchQuery(), command_viewer()).total
    follower.catch_up()
    assert_true_to_the_database()
    assert len([path for path in tantivy.iterdir() if path.is_dir()]) == 1


def test_an_import_that_fails_leaves_no_stage(tantivy, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no more")

    monkeypatch.setattr(batches, "_close", fail)
    with pytest.raises(RuntimeError, match="no more"):
        bring_in(lines(tmp_path / "tea.jsonl"))
    assert not list(tantivy.glob("import-*"))
    assert not OutboxEntry.objects.exists()
    follower.catch_up()
    assert_within(0)


def test_a_dry_run_and_an_import_again_begin_no_stage(tantivy, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(crash_points, "reached", begun.append)
    bring_in(lines(tmp_path / "tea.jsonl"), dry_run=True)
    assert "stage begun" not in begun
    bring_in(tmp_path / "tea.jsonl")
    assert begun.count("stage begun") == 1
    follower.catch_up()
    bring_in(tmp_path / "tea.jsonl")
    assert begun.count("stage begun") == 1
    assert not OutboxEntry.objects.exists()


def test_a_process_that_is_killed_fails_the_import_as_a_whole(tantivy, tmp_path, monkeypatch):
    confirm = import_sink.ImportSink.confirm

    def killing(self, block):
        for process in self._pool._processes.values():
            process.kill()
        confirm(self, block)

    monkeypatch.setattr(import_sink.ImportSink, "confirm", killing)
    with pytest.raises((CommandError, Exception), match="terminated"):
        bring_in(lines(tmp_path / "tea.jsonl"))
    assert not Memory.objects.exists()
    assert not list(tantivy.glob("import-*"))


def test_a_stage_that_is_of_no_use_any_more_is_left_for_the_database(tantivy, tmp_path):
    bring_in(lines(tmp_path / "tea.jsonl"))
    follower.rebuild()
    # The new index has all of it, and its recorded changes are deleted.
    assert not OutboxEntry.objects.exists()
    bring_in(lines(tmp_path / "more.jsonl", [{**record, "project": "more"} for record in RECORDS[4:]]))
    (stage,) = tantivy.glob("import-*/base")
    stage.write_text('{"generation": "g-000009-0", "docs": 0}')
    assert follower.catch_up() >= MEMORIES
    assert compare().agrees
    follower.catch_up()
    with store.writer_lock() as root:
        import_stage.remove_abandoned(root)
    assert not list(tantivy.glob("import-*"))


@pytest.mark.parametrize("what", ["_link_generation", "_create_locked"])
def test_a_full_disk_fails_no_import(tantivy, tmp_path, monkeypatch, what):
    monkeypatch.setattr(import_stage, what, lambda *_: False)
    bring_in(lines(tmp_path / "tea.jsonl"))
    assert not list(tantivy.glob("import-*"))
    follower.catch_up()
    assert_true_to_the_database()


def test_a_batch_that_is_undone_before_it_is_taken_in_is_gone(tantivy, tmp_path):
    bring_in(lines(tmp_path / "tea.jsonl"))
    batch_id = -OutboxEntry.objects.get(memory_id__lt=0).memory_id
    call_command("import_memories", undo=batch_id, verbosity=0)
    follower.catch_up()
    assert_within(0)
    assert compare().agrees


def test_an_unindexable_memory_is_left_out_and_told(tantivy, tmp_path, caplog):
    bring_in(lines(tmp_path / "tea.jsonl"))
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
def test_terms_of_an_import_are_those_that_postgres_gives_back(tmp_path, text):
    fields = [("A Title of tea", "A"), (text, "D"), ("tag one", "B"), ("", "C")]
    made = placed_terms(fields)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::tsvector::text, %s::tsvector::text", [made.vector, to_tsvector(index_terms(fields))])
        stored, slowly = cursor.fetchone()
    assert stored == slowly
    assert (made.fields is None) == (len(text) > 255 * 4 and text.startswith("tea"))
    documents = [words.document(1, stored)]
    if made.fields is not None:
        documents.append(words.placed_document(2, made.fields))
    else:
        documents.append(words.document(2, made.vector))
    title = words.TITLE if text else words.BEGINNING
    assert_found_where_they_are(tmp_path / "words", documents, index_terms(fields), title)


@pytest.mark.parametrize("title", ["Kettle at high-tide", "See foo_bar.baz", "緑茶"])
@pytest.mark.parametrize("content", [" sings of state-of-the-art tea", " calls src/x.py", ""])
def test_content_that_continues_its_title_is_one_text_by_import_and_by_rebuild(tmp_path, title, content):
    fields = [(title, "A"), (content, "D"), ("tag", "B")]
    made = placed_terms(fields, is_joined=True)
    terms = index_terms(fields, is_joined=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::tsvector::text, %s::tsvector::text", [made.vector, to_tsvector(terms)])
        stored, slowly = cursor.fetchone()
    assert stored == slowly
    documents = [
        words.document(1, stored), words.placed_document(2, made.fields or [], is_joined=made.is_joined)
    ]  # fmt: skip
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
def test_phrases_find_what_hyphens_join_by_import_and_by_rebuild(tmp_path, text, query):
    fields = [("A Title", "A"), (text, "D"), ("", "B"), ("", "C")]
    made = placed_terms(fields)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::tsvector::text", [made.vector])
        documents = [words.document(1, cursor.fetchone()[0]), words.placed_document(2, made.fields or [])]
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

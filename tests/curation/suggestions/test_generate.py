"""Generated suggestions: their content, their uniqueness and their visibility."""

import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from access.models import AuditEvent
from categories.models import Category, CategoryLink, Concept
from curation.suggestions.generate import suggest
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.proposals import Kind
from curation.suggestions.services import policy_set, suggestion_accept, suggestion_reject, suggestion_undo
from memories.models import Memory
from memories.records import MemoryChanges
from memories.refusals import ChangeRefusedError, NotAllowedError
from memories.services import memory_classify, memory_delete, memory_update
from memories.snapshot import Ref
from tests.curation.suggestions.conftest import EVERYTHING, embedded, member_of, pk_of, remember

pytestmark = pytest.mark.django_db


def made(*kinds, **options):
    return suggest(kinds=kinds, viewer=EVERYTHING, **options)


def paths():
    """External id -> the categories proposed, the surest first."""
    found = {}
    for row in Suggestion.objects.filter(kind=Kind.CATEGORY):
        memory = Memory.objects.get(pk=row.subject_id)
        found.setdefault(memory.external_id, []).append(Category.objects.get(pk=row.target_id).path)
    return found


# --- categories ------------------------------------------------------------------------------------------------------


def test_a_category_is_that_of_the_nearest(garden):
    made(Kind.CATEGORY)
    assert {pk: found[0] for pk, found in paths().items()} == {"bed": "beds/carrots", "tree": "trees/apples"}
    sure = Suggestion.objects.filter(subject_id=pk_of("bed")).order_by("-confidence").first()
    assert sure.project == garden
    assert "closest memories with a category are in it" in sure.reason


def test_another_projects_categories_are_proposed_where_there_are_none_of_ones_own(garden):
    remember("mill", "Carrots at the mill", "Carrots in the sandy bed behind the mill.", id="mill")
    embedded()
    made(Kind.CATEGORY)
    assert paths()["mill"][0] == "beds/carrots"


def test_the_only_category_is_not_that_of_memories_that_are_nearer_to_others(garden):
    apples = Memory.objects.filter(content__icontains="apple")
    apples.update(category_ids=[], category_path_ids=[])
    made(Kind.CATEGORY)
    assert not Suggestion.objects.exists()
    # Nor is one of two.
    remember("garden", "Hoe", "The hoe is in the shed.", categories=["Tools"])
    embedded()
    made(Kind.CATEGORY)
    about = {Memory.objects.get(pk=row.subject_id).title: row.confidence for row in Suggestion.objects.all()}
    assert about.pop("More carrots") > 0.6
    assert all(confidence < 0.4 for confidence in about.values()), about


# --- concepts --------------------------------------------------------------------------------------------------------


def concepts():
    return {(row.subject_id, row.proposal["concept"]): row for row in Suggestion.objects.filter(kind=Kind.CONCEPT)}


def test_a_concept_of_the_project_is_found_by_its_name_and_its_alias(db):
    remember("mill", "Stones", "About stones.", concepts=["mill race"])
    Concept.objects.filter(name="mill race").update(aliases=["leat"])
    by_name = remember("mill", "The mill races", "Ice in the water.").pk
    by_alias = remember("mill", "Ice", "There is ice in the leat.").pk
    made(Kind.CONCEPT)
    found = concepts()
    assert found[by_name, "mill race"].target_id == Concept.objects.get().pk
    assert found[by_name, "mill race"].confidence > found[by_alias, "mill race"].confidence
    assert "“leat”" in found[by_alias, "mill race"].reason


def test_a_concept_of_another_project_is_not_named(db):
    remember("garden", "Stones", "About stones.", concepts=["mill race"])
    remember("mill", "The mill race", "Ice in the mill race.")
    made(Kind.CONCEPT)
    assert [row.target_id for row in Suggestion.objects.all()] == []


def test_a_phrase_that_recurs_is_proposed_as_new(db):
    for title in ("Oil the chain", "Buckets came loose", "Who greases it"):
        remember("mill", title, "The grain elevator again. " + title + " of the grain elevator.")
    remember("mill", "Sparrows", "Sparrows nest under the roof beam.")
    made(Kind.CONCEPT)
    found = [row for row in Suggestion.objects.all() if row.proposal["concept"].lower() == "grain elevator"]
    assert len(found) == 3
    assert all(row.proposal["is_new"] and row.proposal["concept_type"] == "thematic" for row in found)
    assert not [row for row in Suggestion.objects.all() if "parrow" in row.proposal["concept"]]


# --- names -----------------------------------------------------------------------------------------------------------


def pairs(kind):
    return {(row.proposal["from"], row.proposal["into"]): row for row in Suggestion.objects.filter(kind=kind)}


def test_entities_of_one_name_are_told_apart_by_type(db):
    names = ["person:Ada Lovelace", "person:Ada Lovelacs", "tool:Drill", "machine:Drill", "verb:drill"]
    remember("mill", "Names", "Names.", entities=names)
    made(Kind.ENTITY_DUPLICATE)
    found = pairs(Kind.ENTITY_DUPLICATE)
    assert set(found) == {("Ada Lovelacs", "Ada Lovelace"), ("Drill", "Drill")} or set(found) == {
        ("Ada Lovelace", "Ada Lovelacs"),
        ("Drill", "Drill"),
    }
    assert "the types differ: " in found["Drill", "Drill"].reason
    assert found["Drill", "Drill"].confidence == 0.5


def test_plurals_of_short_tags_share_few_trigrams_and_are_found(db):
    remember("mill", "One", "One.", tags=["bug", "box", "go"])
    remember("mill", "Two", "Two.", tags=["bugs", "boxes", "gos"])
    made(Kind.TAG_DUPLICATE)
    assert set(pairs(Kind.TAG_DUPLICATE)) == {("bugs", "bug"), ("boxes", "box")}


# --- memories --------------------------------------------------------------------------------------------------------

FIRE = "Fire the oven with beech wood for two hours before the first loaves go in, and keep the door shut meanwhile."


def test_rows_that_are_gone_hide_none_that_are_there(db):
    remember("mill", "Fire the oven", FIRE, id="one")
    remember("mill", "Fire the oven", f"{FIRE} Sweep.", id="other")
    embedded()
    with connection.cursor() as cursor:
        # Until a vacuum, the index keeps the entries of a rolled-back transaction, like those of deleted rows.
        with transaction.atomic():
            cursor.execute(
                """INSERT INTO memories_chunk (memory_id, model_id, ordinal, "start", "end", embedding)
                SELECT memory_id, model_id, n, 0, 1, embedding FROM memories_chunk, generate_series(1, 800) n"""
            )
            transaction.set_rollback(True)
        # Nor do vectors without a direction, which are near to nothing.
        cursor.execute(
            """INSERT INTO memories_chunk (memory_id, model_id, ordinal, "start", "end", embedding)
            SELECT memory_id, model_id, n, 0, 1, array_fill(0, ARRAY[384])::halfvec
            FROM memories_chunk, generate_series(1, 20) n"""
        )
        # With this few memories Postgres would not read the index.
        cursor.execute("SET LOCAL enable_sort = off")
    made(Kind.MEMORY_DUPLICATE)
    assert Suggestion.objects.filter(kind=Kind.MEMORY_DUPLICATE).count() == 1


def test_memories_that_say_the_same_are_near_duplicates(db):
    one = remember("mill", "Fire the oven", FIRE, id="one")
    other = remember("mill", "Fire the oven", f"{FIRE} Sweep.", id="other")
    remember("garden", "Fire the oven", FIRE, id="elsewhere")
    embedded()
    made(Kind.MEMORY_DUPLICATE)
    row = Suggestion.objects.get()
    # The longer one remains.
    assert (row.subject_id, row.target_id) == (one.pk, other.pk)
    assert row.confidence > 0.7


def test_a_newer_memory_of_the_subject_that_says_no_longer_may_supersede(db):
    old = remember("mill", "Fire the oven with beech wood", FIRE, created_at="2024-01-01")
    text = f"We no longer do this: {FIRE[:-1]} is done by gas."
    new = remember("mill", "Fire the oven without beech wood", text, created_at="2025-01-01")
    embedded()
    made(Kind.SUPERSEDED)
    row = Suggestion.objects.get()
    assert (row.subject_id, row.target_id) == (old.pk, new.pk)
    assert "“no longer”" in row.reason
    assert row.evidence["sentence"].startswith("We no longer do this")


# --- once ------------------------------------------------------------------------------------------------------------


def told(*kinds, **options):
    return [(tally.new, tally.known, tally.decided) for tally in made(*kinds, **options).values()]


def test_a_second_run_finds_the_same_and_adds_nothing(garden):
    (new, known, decided), *_ = told(Kind.CATEGORY)
    assert new > 0
    assert (known, decided) == (0, 0)
    before = list(Suggestion.objects.order_by("id").values())
    assert told(Kind.CATEGORY) == [(0, new, 0)]
    assert list(Suggestion.objects.order_by("id").values()) == before


def test_what_was_rejected_is_never_asked_again(garden):
    made(Kind.CATEGORY)
    row = Suggestion.objects.filter(subject_id=pk_of("bed")).order_by("-confidence").first()
    suggestion_reject(suggestion_id=row.pk, viewer=EVERYTHING)
    made(Kind.CATEGORY)
    row.refresh_from_db()
    assert row.state == "rejected"
    assert Suggestion.objects.filter(kind="category", subject_id=row.subject_id, target_id=row.target_id).count() == 1


def test_what_applies_no_more_is_withdrawn(garden):
    made(Kind.CATEGORY)
    row = Suggestion.objects.filter(subject_id=pk_of("bed")).order_by("-confidence").first()
    memory_classify(memory_id=row.subject_id, categories=[Ref(row.target_id, "human")], viewer=EVERYTHING)
    memory_delete(memory_id=pk_of("tree"), viewer=EVERYTHING, reason="Felled.")
    made(Kind.CATEGORY)
    assert not Suggestion.objects.filter(pk=row.pk).exists()
    assert not Suggestion.objects.filter(subject_id=pk_of("tree")).exists()


def test_what_else_is_proposed_of_a_memory_outlives_a_decision(db):
    remember("mill", "Stones", "About stones.", concepts=["mill race", "grain elevator"])
    remember("mill", "Ice", "Ice in the mill race, and on the grain elevator.", id="ice")
    made(Kind.CONCEPT)
    first, second = Suggestion.objects.filter(subject_id=pk_of("ice"))
    suggestion_accept(suggestion_id=first.pk, viewer=EVERYTHING)
    made(Kind.CONCEPT)
    assert list(Suggestion.objects.filter(state="open")) == [second]


def test_what_a_run_proposes_no_more_goes_unless_a_person_had_it_in_hand(db):
    for title in ("Oil the chain", "Buckets came loose", "Who greases it"):
        remember("mill", title, "The grain elevator again. " + title + " of the grain elevator.")
    made(Kind.CONCEPT)
    rows = Suggestion.objects.filter(proposal__concept__iexact="grain elevator").order_by("id")
    assert rows.count() == 3
    kept, changed = rows[0].pk, rows[1].subject_id
    suggestion_reject(suggestion_id=kept, viewer=EVERYTHING)
    suggestion_undo(suggestion_id=kept, viewer=EVERYTHING)
    memory_update(memory_id=changed, changes=MemoryChanges(content="The brakes again."), viewer=EVERYTHING)
    made(Kind.CONCEPT)
    assert [row.pk for row in rows.all()] == [kept]


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_write_each_suggestion_once():
    names = [f"person:Ada Lovelac{letter}" for letter in "eklm"]
    remember("mill", "Names", "Names.", entities=names, tags=[f"flour{'s' * n}" for n in range(2)])
    failures = []
    start = threading.Barrier(2)

    def run():
        try:
            start.wait()
            made(Kind.ENTITY_DUPLICATE, Kind.TAG_DUPLICATE)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Suggestion.objects.filter(kind=Kind.ENTITY_DUPLICATE).count() == 3
    assert Suggestion.objects.filter(kind=Kind.TAG_DUPLICATE).count() == 1


# --- what a project allows -------------------------------------------------------------------------------------------


def test_nothing_is_applied_unless_the_project_says_so(garden):
    made(Kind.CATEGORY, Kind.CONCEPT)
    assert not SuggestionPolicy.objects.exists()
    assert set(Suggestion.objects.values_list("state", flat=True)) == {"open"}
    assert Memory.objects.get(external_id="bed").category_ids == []


def test_a_project_may_let_sure_ones_be_applied(garden):
    policy_set(project=garden, category_from=0.6, concept_from=None, viewer=EVERYTHING)
    tally = made(Kind.CATEGORY)[Kind.CATEGORY]
    row = Suggestion.objects.get(subject_id=pk_of("bed"), state="accepted")
    assert tally.accepted == Suggestion.objects.filter(state="accepted").count()
    assert (row.is_automatic, row.decided_by) == (True, None)
    link = CategoryLink.objects.get(memory_id=row.subject_id)
    assert (link.made_by, link.weight) == ("model", row.confidence)
    event = AuditEvent.objects.get(verb="suggestion_accept", subject_id=row.pk)
    assert event.after["made_by"] == "model"


def test_what_a_person_took_back_is_not_applied_again(garden):
    policy_set(project=garden, category_from=0.6, concept_from=None, viewer=EVERYTHING)
    made(Kind.CATEGORY)
    row = Suggestion.objects.get(subject_id=pk_of("bed"), state="accepted")
    suggestion_undo(suggestion_id=row.pk, viewer=EVERYTHING)
    made(Kind.CATEGORY)
    row.refresh_from_db()
    assert row.state == "open"
    assert Memory.objects.get(external_id="bed").category_ids == []


def test_a_policy_is_set_by_a_curator_of_the_project_within_bounds(garden):
    remember("mill", "Stones", "Stones.")
    with pytest.raises(NotAllowedError):
        policy_set(project=garden, category_from=0.9, concept_from=None, viewer=member_of("mill"))
    with pytest.raises(ChangeRefusedError, match="category_from"):
        policy_set(project=garden, category_from=0.2, concept_from=None, viewer=EVERYTHING)
    assert not SuggestionPolicy.objects.exists()


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"project": "nowhere"}, "no such project", id="unknown project"),
        pytest.param({"limit": 0}, "at least 1", id="limit"),
        pytest.param({"project": "garden", "kind": ["tag_duplicate"]}, "belong to no project", id="names of a project"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(garden, options, message):
    with pytest.raises(CommandError, match=message):
        call_command("suggest", **options)
    assert not Suggestion.objects.exists()


def test_a_limit_takes_the_surest(garden):
    made(Kind.CATEGORY)
    sure = set(Suggestion.objects.order_by("-confidence").values_list("fingerprint", flat=True)[:2])
    Suggestion.objects.all().delete()
    assert told(Kind.CATEGORY, limit=2) == [(2, 0, 0)]
    assert set(Suggestion.objects.values_list("fingerprint", flat=True)) == sure
    assert told(Kind.CATEGORY, limit=2)[0][1] == 2


def test_a_phrase_in_passing_is_no_concept_of_a_memory(db):
    for title in ("Oil the chain", "Buckets came loose", "Who greases it"):
        remember("mill", title, "The grain elevator again. " + title + " of the grain elevator.")
    plans = "Beech Hill, Stone Weir, Otter Pond and Heron Lock are inspected every spring. "
    remember("mill", "Beech Hill and Stone Weir", plans * 3 + "Somebody saw the grain elevator.", id="passing")
    made(Kind.CONCEPT)
    assert Suggestion.objects.filter(proposal__concept__iexact="grain elevator").count() == 3
    assert not Suggestion.objects.filter(subject_id=pk_of("passing")).exists()


def test_concepts_that_are_said_to_be_parts_of_each_other_are_not_the_same(db):
    remember("mill", "One", "One.", concepts=["test", "tests", "unit test", "unit-tests"])
    one, other = Concept.objects.get(name="test"), Concept.objects.get(name="tests")
    Concept.objects.filter(pk=one.pk).update(broader_ids=[other.pk])
    made(Kind.CONCEPT_DUPLICATE)
    assert {frozenset(pair) for pair in pairs(Kind.CONCEPT_DUPLICATE)} == {frozenset({"unit test", "unit-tests"})}


def test_the_same_with_another_number_is_no_duplicate_but_may_be_superseded(db):
    old = remember("mill", "Fire the oven", f"{FIRE} 200 degrees.", created_at="2024-01-01")
    new = remember("mill", "Fire the oven", f"{FIRE} 230 degrees.", created_at="2025-01-01", id="new")
    embedded()
    made(Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED)
    row = Suggestion.objects.get()
    assert (row.kind, row.subject_id, row.target_id) == ("superseded", old.pk, new.pk)
    assert "with other numbers" in row.reason


def test_what_a_memory_is_linked_to_as_an_entity_is_no_concept_of_it(db):
    for n in range(3):
        remember(
            "mill", f"Grain elevator {n}", f"The grain elevator squeaks, day {n}.", entities=["tool:grain elevator"]
        )
    made(Kind.CONCEPT)
    assert not [row for row in Suggestion.objects.all() if row.proposal["concept"].lower() == "grain elevator"]

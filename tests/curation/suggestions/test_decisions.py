"""Decisions about suggestions: their effects, their memory, and their undo."""

import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection

from access.models import AuditEvent
from access.viewer import viewer_of_user
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity
from curation.schemas import Merge, Rename
from curation.services import curation_apply, curation_undo
from curation.suggestions.generate import suggest
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import with_names
from curation.suggestions.services import (
    CountChangedError,
    SuggestionNotFoundError,
    SuggestionRefusedError,
    suggestion_accept,
    suggestion_reject,
    suggestion_undo,
    suggestions_decide,
)
from memories.models import Memory
from memories.refusals import NotAllowedError
from memories.services import memory_restore
from tests.curation.suggestions.conftest import EVERYTHING, embedded, member_of, pk_of, remember

pytestmark = pytest.mark.django_db


def made(kind, **where):
    suggest(kinds=[kind], viewer=EVERYTHING)
    return Suggestion.objects.filter(kind=kind, **where).order_by("-confidence", "id").first()


def accepted(row, viewer=EVERYTHING, **options):
    return suggestion_accept(suggestion_id=row.pk, viewer=viewer, **options)


def undone(row, viewer=EVERYTHING):
    return suggestion_undo(suggestion_id=row.pk, viewer=viewer)


def carrots(garden):
    return made(Kind.CATEGORY, subject_id=pk_of("bed"))


# --- categories and concepts -----------------------------------------------------------------------------------------


def test_accepting_a_category_links_the_memory_and_its_facet_columns_follow(garden):
    person = viewer_of_user(User.objects.create_superuser("curator"))
    row = accepted(carrots(garden), person)
    memory = Memory.objects.get(pk=row.subject_id)
    category = Category.objects.get(path="beds/carrots")
    assert memory.category_ids == [category.pk]
    assert memory.category_path_ids == sorted([category.pk, category.parent_id])
    assert CategoryLink.objects.get(memory=memory).made_by == "human"
    assert (row.state, row.decided_by_id) == ("accepted", person.user_id)
    assert AuditEvent.objects.get(subject_type="memory", subject_id=memory.pk, verb="classify").note.startswith(
        f"Suggestion {row.pk}: "
    )
    assert AuditEvent.objects.get(verb="suggestion_accept").user_id == person.user_id


def test_what_a_key_accepts_was_said_by_a_model(garden):
    row = accepted(carrots(garden))
    assert CategoryLink.objects.get(memory_id=row.subject_id).made_by == "model"


def test_undoing_a_category_leaves_the_memory_as_it_was(garden):
    row = undone(accepted(carrots(garden)))
    memory = Memory.objects.get(pk=row.subject_id)
    assert (memory.category_ids, memory.category_path_ids) == ([], [])
    assert not CategoryLink.objects.filter(memory=memory).exists()
    assert (row.state, row.applied) == ("open", None)


def test_a_link_that_came_to_another_category_is_not_taken_back_in_silence(garden):
    row = accepted(carrots(garden))
    curation_apply(operation=Merge(kind="category", source="beds/carrots", target="trees"), viewer=EVERYTHING)
    with pytest.raises(SuggestionRefusedError, match="has since been merged into another"):
        undone(row)


def a_new_concept():
    for title in ("Oil the chain", "Buckets came loose", "Who greases it"):
        remember("mill", title, "The grain elevator again. " + title + " of the grain elevator.")
    return made(Kind.CONCEPT)


def test_accepting_a_new_concept_makes_it_and_undoing_takes_it_away(db):
    row = accepted(a_new_concept())
    concept = Concept.objects.get()
    assert (concept.name.lower(), concept.concept_type) == ("grain elevator", "thematic")
    assert Memory.objects.get(pk=row.subject_id).concept_ids == [concept.pk]
    undone(row)
    assert not Concept.objects.exists()
    assert Memory.objects.get(pk=row.subject_id).concept_ids == []


# --- memories --------------------------------------------------------------------------------------------------------

FIRE = "Fire the oven with beech wood for two hours before the first loaves go in, and keep the door shut meanwhile."


def two_alike():
    remember("mill", "Fire the oven", FIRE, id="one")
    remember("mill", "Fire the oven", f"{FIRE} Sweep.", id="other")
    embedded()
    return made(Kind.MEMORY_DUPLICATE)


@pytest.mark.parametrize(
    ("swap", "gone", "kept"),
    [pytest.param(False, "one", "other", id="as proposed"), pytest.param(True, "other", "one", id="the other way")],
)
def test_of_two_alike_one_is_kept_and_the_other_leads_to_it(db, swap, gone, kept):
    row = accepted(two_alike(), swap=swap)
    memory = Memory.objects.get(external_id=gone)
    assert (memory.state, memory.superseded_by_id) == ("superseded", pk_of(kept))
    undone(row)
    memory.refresh_from_db()
    assert (memory.state, memory.superseded_by_id) == ("active", None)


def test_what_was_changed_since_is_not_undone_over_it(db):
    row = accepted(two_alike())
    memory_restore(memory_id=row.subject_id, viewer=EVERYTHING, despite_successor=True)
    with pytest.raises(SuggestionRefusedError, match="changed since"):
        undone(row)


# --- names -----------------------------------------------------------------------------------------------------------


def test_merging_entities_moves_links_keeps_the_name_and_can_be_undone(db):
    one = remember("mill", "One", "One.", entities=["person:Ada Lovelace"])
    other = remember("mill", "Two", "Two.", entities=["person:ada  lovelace!"])
    Entity.objects.filter(name="ada lovelace!").update(name="Ada-Lovelace")
    row = accepted(made(Kind.ENTITY_DUPLICATE))
    entity = Entity.objects.get()
    assert entity.pk == row.target_id
    assert len(entity.aliases) == 1
    assert Memory.objects.get(pk=one.pk).entity_ids == Memory.objects.get(pk=other.pk).entity_ids == [entity.pk]
    undone(row)
    assert Entity.objects.count() == 2
    assert Memory.objects.get(pk=one.pk).entity_ids != Memory.objects.get(pk=other.pk).entity_ids


def test_merging_tags_renames_them_where_they_stand(db):
    one = remember("mill", "One", "One.", tags=["flours", "stone"])
    remember("mill", "Two", "Two.", tags=["flour"])
    row = accepted(made(Kind.TAG_DUPLICATE))
    assert Memory.objects.get(pk=one.pk).tags == ["flour", "stone"]
    undone(row)
    assert Memory.objects.get(pk=one.pk).tags == ["flours", "stone"]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Merge(kind="tag", source="flours", target="flour"), id="merge"),
        pytest.param(Rename(kind="tag", term="flours", name="meal"), id="rename"),
    ],
)
def test_a_change_by_hand_withdraws_the_suggestions_that_it_settles(db, asked):
    remember("mill", "One", "One.", tags=["flours", "millstone"])
    remember("mill", "Two", "Two.", tags=["flour", "mill-stone"])
    suggest(kinds=[Kind.TAG_DUPLICATE], viewer=EVERYTHING)
    assert Suggestion.objects.count() == 2
    curation_apply(operation=asked, viewer=EVERYTHING)
    assert {row.proposal["from"] for row in Suggestion.objects.all()} <= {"millstone", "mill-stone"}
    assert Suggestion.objects.count() == 1


# --- who, and when ---------------------------------------------------------------------------------------------------


def test_a_decision_is_taken_once(garden):
    row = suggestion_reject(suggestion_id=carrots(garden).pk, viewer=EVERYTHING, reason="No.")
    with pytest.raises(SuggestionRefusedError, match="already rejected"):
        accepted(row)
    undone(row)
    with pytest.raises(SuggestionRefusedError, match="nothing to undo"):
        undone(row)
    assert accepted(row).state == "accepted"
    assert [event.verb for event in AuditEvent.objects.filter(subject_type="suggestion").order_by("id")] == [
        "suggestion_reject",
        "suggestion_undo",
        "suggestion_accept",
    ]


def test_deciding_takes_a_curator_of_the_project(garden):
    row = carrots(garden)
    remember("mill", "Stones", "Stones.")
    with pytest.raises(SuggestionNotFoundError):
        accepted(row, member_of("mill"))
    with pytest.raises(NotAllowedError):
        accepted(row, member_of("garden", scopes=("read", "write")))
    with pytest.raises(NotAllowedError):
        accepted(row, member_of("garden", scopes=("read", "curate")))
    assert accepted(row, member_of("garden")).state == "accepted"


def test_tags_that_others_use_too_are_merged_in_the_projects_of_who_accepts(db):
    remember("mill", "One", "One.", tags=["flour", "flours"])
    remember("garden", "Two", "Two.", tags=["flour", "flours"])
    accepted(made(Kind.TAG_DUPLICATE), member_of("mill"))
    assert len(Memory.objects.get(title="One").tags) == 1
    assert Memory.objects.get(title="Two").tags == ["flour", "flours"]


@pytest.mark.django_db(transaction=True)
def test_of_two_who_accept_at_once_one_is_told_so():
    row = two_alike()
    said = []
    start = threading.Barrier(2)

    def decide():
        try:
            start.wait()
            said.append(accepted(row).state)
        except SuggestionRefusedError as error:
            said.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=decide) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == sorted(["accepted", f"Suggestion {row.pk} is already accepted."])


# --- many ------------------------------------------------------------------------------------------------------------


def test_many_are_accepted_if_they_are_as_many_as_were_shown(garden):
    made(Kind.CATEGORY)
    query = ReviewQuery(kind="category", confidence=0.6)
    count = Suggestion.objects.filter(confidence__gte=0.6).count()
    assert count >= 2
    with pytest.raises(CountChangedError):
        suggestions_decide(query=query, shown=count + 1, viewer=EVERYTHING)
    assert not Suggestion.objects.filter(state="accepted").exists()
    done = suggestions_decide(query=query, shown=count, viewer=EVERYTHING)
    assert (done.decided, done.refused) == (count, ())
    assert Suggestion.objects.filter(state="accepted").count() == count


def test_what_is_refused_among_many_stays_open_and_is_told(garden):
    row = carrots(garden)
    Suggestion.objects.filter(pk=row.pk).update(target_id=10**9)
    count = Suggestion.objects.count()
    done = suggestions_decide(query=ReviewQuery(kind="category"), shown=count, viewer=EVERYTHING)
    assert done.decided == count - 1
    assert done.message.endswith("Not accepted: The category no longer exists.")


def tag_pair(source, target, confidence):
    return Suggestion.objects.create(
        kind=Kind.TAG_DUPLICATE,
        fingerprint=f"{source}-{target}",
        proposal={"from": source, "into": target},
        confidence=confidence,
    )


def test_of_pairs_that_contradict_each_other_many_accept_only_the_surest(db):
    for tag, count in (("hil", 1), ("hill", 3), ("hall", 4)):
        for number in range(count):
            remember("hills", f"{tag} {number}", f"A walk to the {tag}, number {number}.", tags=[tag])
    sure, unsure = tag_pair("hil", "hill", 0.9), tag_pair("hil", "hall", 0.8)
    # With the first it would make hil hall as well.
    chained = tag_pair("hill", "hall", 0.7)
    query = ReviewQuery(kind="tag_duplicate")
    done = suggestions_decide(query=query, shown=3, viewer=EVERYTHING)
    assert done.message == (
        "1 accepted. Not accepted: “hil” and “hall”, since “hil” and “hill” comes first. "
        "“hill” and “hall”, since “hil” and “hill” comes first."
    )
    states = [Suggestion.objects.get(pk=one.pk).state for one in (sure, unsure, chained)]
    assert states == ["accepted", "open", "open"]
    # Nor would it merge by itself the tag that now has the name.
    with pytest.raises(SuggestionRefusedError, match="“hil” is another name of “hill” now"):
        accepted(unsure)
    assert Memory.objects.filter(tags__contains=["hill"]).count() == 4
    assert Memory.objects.filter(tags__contains=["hall"]).count() == 4
    suggestion_reject(suggestion_id=unsure.pk, viewer=EVERYTHING)


def test_the_tag_that_more_memories_have_remains_as_far_as_the_viewer_sees_them(db):
    for project, tag, times in (("mill", "ovens", 2), ("mill", "oven", 1), ("garden", "oven", 3)):
        for n in range(times):
            remember(project, f"{tag} {n}", f"{project} {n}", tags=[tag])
    made(Kind.TAG_DUPLICATE)
    row = Suggestion.objects.get()

    def shown(viewer):
        (one,) = with_names([row], viewer)
        return one.subject.name, one.target.name

    miller = member_of("mill")
    assert (shown(EVERYTHING), shown(miller)) == (("ovens", "oven"), ("oven", "ovens"))
    # A page has shown this direction, and it holds, whatever is stored meanwhile.
    done = suggestion_accept(suggestion_id=row.pk, viewer=miller, turned=True)
    assert done.applied["turned"] is True
    tags = Memory.objects.filter(project__slug="mill").values_list("tags", flat=True)
    assert [list(one) for one in tags] == [["ovens"]] * 3
    suggestion_undo(suggestion_id=row.pk, viewer=EVERYTHING)
    suggestion_accept(suggestion_id=row.pk, viewer=EVERYTHING, swap=True)
    assert not Memory.objects.filter(tags__contains=["oven"]).exists()


def test_a_category_that_is_gone_is_refused(garden):
    row = carrots(garden)
    Suggestion.objects.filter(pk=row.pk).update(target_id=10**9)
    with pytest.raises(SuggestionRefusedError, match="no longer exists"):
        accepted(row)
    row.refresh_from_db()
    assert row.state == "open"


def test_a_concept_that_came_to_be_used_stays_when_its_maker_is_undone(db):
    first = accepted(a_new_concept())
    suggest(kinds=[Kind.CONCEPT], viewer=EVERYTHING)
    second = Suggestion.objects.filter(state="open", kind="concept").first()
    accepted(second)
    undone(first)
    assert list(ConceptLink.objects.values_list("memory_id", flat=True)) == [second.subject_id]


def test_a_merge_of_what_was_merged_by_hand_is_refused_in_words_for_people(db):
    remember("mill", "One", "One.", concepts=["unit test", "unit-tests"])
    row = made(Kind.CONCEPT_DUPLICATE)
    by_hand = Merge(kind="concept", source=f"#{row.subject_id}", target=f"#{row.target_id}")
    curation_apply(operation=by_hand, viewer=EVERYTHING, settles=False)
    with pytest.raises(SuggestionRefusedError, match="One of the two no longer exists"):
        accepted(row)


def test_a_merge_that_was_undone_in_the_log_of_curations_is_open_again(db):
    one = remember("mill", "One", "One.", tags=["flours", "stone"])
    remember("mill", "Two", "Two.", tags=["flour"])
    row = accepted(made(Kind.TAG_DUPLICATE))
    curation_undo(curation_id=row.applied["curation"], viewer=EVERYTHING)
    row.refresh_from_db()
    assert (row.state, row.decided_by, row.applied) == ("open", None, None)
    assert Memory.objects.get(pk=one.pk).tags == ["flours", "stone"]
    accepted(row)
    assert Memory.objects.get(pk=one.pk).tags == ["flour", "stone"]


def test_merging_concepts_either_way(db):
    remember("mill", "One", "One.", concepts=["unit test", "unit-tests"])
    row = made(Kind.CONCEPT_DUPLICATE)
    accepted(row, swap=True)
    assert Concept.objects.get().pk == row.subject_id
    undone(row)
    assert Concept.objects.count() == 2

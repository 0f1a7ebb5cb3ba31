"""A refused undo names its reason and changes nothing."""

import pytest

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import Category, Concept
from curation.models import Curation
from curation.queries import TermNotFoundError, visible_curations
from curation.schemas import Alias, Merge, Move, Rename, Retag, Split
from curation.services import curation_apply, curation_undo
from curation.text_edits import term_describe
from curation.undo import UndoRefusedError
from memories.models import ImportBatch, Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_update
from tests.curation.conftest import dump, number
from transfer.undo import batch_undo

pytestmark = pytest.mark.django_db


def done(viewer, asked):
    return curation_apply(operation=asked, viewer=viewer).curation


def refusal(viewer, curation):
    before = dump()
    with pytest.raises(UndoRefusedError) as caught:
        curation_undo(curation_id=curation.pk, viewer=viewer)
    assert dump() == before
    return str(caught.value)


def test_an_undo_is_seen_audited_and_happens_once(corpus, curator):
    curation = done(curator, Rename(kind="concept", term="heat", name="warm"))
    curation_undo(curation_id=curation.pk, viewer=curator)
    assert Curation.objects.get().undone_at
    event = AuditEvent.objects.first()
    assert (event.verb, event.subject_id) == ("curation_undo", curation.pk)
    assert "already undone" in refusal(curator, curation)


def test_what_was_said_of_a_term_meanwhile_stays(corpus, curator):
    curation = done(curator, Rename(kind="concept", term="heat", name="warm"))
    term_describe(term=Concept.objects.get(name="warm"), description="How it feels.", aliases=["heat"], viewer=curator)
    curation_undo(curation_id=curation.pk, viewer=curator)
    heat = Concept.objects.get(name="heat")
    assert (heat.aliases, heat.description) == ([], "How it feels.")


def test_later_changes_of_other_tags_stay(corpus, curator):
    was = Memory.objects.get(external_id="t1").tags
    curation = done(curator, Rename(kind="tag", term="tea", name="beverage"))
    changed = MemoryChanges(tags=("hot", "beverage"))
    memory_update(memory_id=number("t1"), changes=changed, viewer=curator)
    curation_undo(curation_id=curation.pk, viewer=curator)
    assert "tea" in was
    assert Memory.objects.get(external_id="t1").tags == ["hot", "tea"]


def test_either_of_two_merges_into_a_tag_is_undone_unless_they_changed_the_same_memory(corpus, curator):
    memory_update(memory_id=number("b5"), changes=MemoryChanges(tags=("timber",)), viewer=curator)
    first = done(curator, Merge(kind="tag", source="tea", target="guests"))
    apart = done(curator, Merge(kind="tag", source="timber", target="guests"))
    curation_undo(curation_id=first.pk, viewer=curator)
    assert Memory.objects.get(external_id="b5").tags == ["guests"]
    again = done(curator, Merge(kind="tag", source="tea", target="guests"))
    memory_update(memory_id=number("t1"), changes=MemoryChanges(tags=("guests", "wood")), viewer=curator)
    done(curator, Merge(kind="tag", source="wood", target="guests"))
    assert "undo that first" in refusal(curator, again)
    assert apart.undone_at is None


@pytest.mark.parametrize(
    ("asked", "meanwhile", "reason"),
    [
        pytest.param(
            Merge(kind="category", source="kitchen/oven", target="kitchen/brewing"),
            lambda v: memory_update(memory_id=number("b5"), changes=MemoryChanges(categories=("Yard",)), viewer=v),
            None,
            id="another memory was filed elsewhere",
        ),
        pytest.param(
            Merge(kind="category", source="yard/dock", target="kitchen"),
            lambda v: memory_update(memory_id=number("b2"), changes=MemoryChanges(categories=("Yard",)), viewer=v),
            "has lost the category since",
            id="one of its memories was filed elsewhere",
        ),
        pytest.param(
            Merge(kind="tag", source="tea", target="guests"),
            lambda v: memory_update(memory_id=number("t1"), changes=MemoryChanges(tags=("hot",)), viewer=v),
            "has other tags since",
            id="one of its memories has lost the tag",
        ),
        pytest.param(
            Rename(kind="category", term="yard", name="Garden"),
            lambda v: memory_create(
                record=MemoryRecord(project="tea", content="x", categories=("Garden/Beds",)), viewer=v
            ),
            "garden/beds",
            id="a category has come below it",
        ),
        pytest.param(
            Split(kind="concept", term="safety", name="Harness", query="concept=safety&tag=wood"),
            lambda v: memory_update(
                memory_id=number("t1"), changes=MemoryChanges.model_validate({"concepts": ["Harness"]}), viewer=v
            ),
            "is used since",
            id="what it made is used",
        ),
        pytest.param(
            Rename(kind="concept", term="heat", name="warm"),
            lambda v: Concept.objects.filter(name="warm").update(name="hot"),
            "was changed since: its name",
            id="changed by hand",
        ),
        pytest.param(
            Merge(kind="concept", source="heat", target="safety"),
            lambda v: Concept.objects.create(name="HEAT"),
            "is used by another now",
            id="its name was taken",
        ),
        pytest.param(
            Move(category="yard/dock", parent="kitchen"),
            lambda v: done(v, Rename(kind="category", term="kitchen", name="Galley")),
            "#2 (Renamed the category kitchen to galley): undo that first",
            id="a later curation of what it hangs under",
        ),
    ],
)
def test_later_changes_stand_in_the_way(corpus, curator, asked, meanwhile, reason):
    Curation.objects.all().delete()
    curation = done(curator, asked)
    meanwhile(curator)
    if reason is None:
        curation_undo(curation_id=curation.pk, viewer=curator)
    else:
        assert reason.replace("#2", f"#{curation.pk + 1}") in refusal(curator, curation)


def test_whoever_may_not_write_all_of_it_may_not_undo_it_and_others_do_not_see_it(corpus, curator, tea_curator):
    of_both = done(curator, Retag(query="tag=boat&mode=faceted", add_tags=["ship"]))
    of_tea = done(curator, Merge(kind="category", source="kitchen/oven", target="kitchen/brewing"))
    assert [curation.pk for curation in visible_curations(tea_curator)] == [of_tea.pk]
    with pytest.raises(TermNotFoundError):
        curation_undo(curation_id=of_both.pk, viewer=tea_curator)
    memory_create(record=MemoryRecord(project="boat", content="x", categories=("Kitchen/Brewing",)), viewer=curator)
    assert "Memories that you cannot write" in refusal(tea_curator, of_tea)
    boat = frozenset([Project.objects.get(slug="boat").pk])
    assert not visible_curations(Viewer(boat, frozenset(["read"]))).exists()


def test_undoing_an_import_puts_its_memories_back_under_what_took_the_place_of_their_categories(
    corpus, curator, tmp_path
):
    from django.core.management import call_command

    changed = tmp_path / "changed.jsonl"
    changed.write_text(
        '{"id": "b2", "project": "boat", "title": "Paint order", "content": "Red.", "categories": ["Yard/Wood"],'
        ' "tags": ["paint"]}\n'
    )
    call_command("import_memories", str(changed), verbosity=0)
    done(curator, Merge(kind="category", source="yard/dock", target="kitchen"))
    done(curator, Rename(kind="tag", term="paint", name="colour"))
    batch_undo(batch_id=ImportBatch.objects.latest("pk").pk, viewer=curator)
    memory = Memory.objects.get(external_id="b2")
    assert [link.category.path for link in memory.category_links.all()] == ["kitchen"]
    assert memory.tags == ["colour"]


def test_an_undone_import_may_take_a_category_with_former_paths_away(corpus, curator, tmp_path):
    done(curator, Rename(kind="category", term="yard", name="Garden"))
    done(curator, Alias(kind="category", term="garden", add=["Plot"]))
    batch_undo(batch_id=ImportBatch.objects.get().pk, viewer=curator)
    assert not Category.objects.exists()

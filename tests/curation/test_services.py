"""The effects and the refusals of each operation, and that its preview agrees with them."""

import pytest

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, FormerPath, Relationship, TagAlias
from categories.queries import resolve_categories
from curation.checks import findings, vocabulary_mend
from curation.queries import TermNotFoundError
from curation.schemas import Alias, Edit, Merge, Move, Relate, Rename, Retag, Split
from curation.services import CurationForbiddenError, PlanChangedError, curation_apply, curation_plan, curation_undo
from curation.working_copy import CurationRefusedError
from explorer.categories.reads import category_overview
from explorer.categories.schemas import CategoryRequest
from explorer.categories.visible_tree import CategoryNotFoundError
from memories.models import Corpus, Memory, OutboxEntry
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.curation.conftest import dump, number, tags

pytestmark = pytest.mark.django_db


def total(viewer, **query):
    return run(SearchQuery.from_mapping({"mode": "faceted", "state": "", **query}), viewer).total


def paths():
    return set(Category.objects.values_list("path", flat=True))


def apply(viewer, asked):
    """Apply an operation with the token of its preview, as a page does."""
    plan = curation_plan(operation=asked, viewer=viewer)
    assert plan.refusals == ()
    applied = curation_apply(operation=asked.model_copy(update={"token": plan.token}), viewer=viewer)
    assert applied.plan == plan
    assert findings() == []
    return applied


def test_a_plan_changes_nothing(corpus, curator):
    before = dump()
    plan = curation_plan(operation=Merge(kind="category", source="Kitchen", target="Yard"), viewer=curator)
    assert (plan.title, plan.memories) == ("Merged the category kitchen into yard", 3)
    assert dump() == before
    assert not AuditEvent.objects.filter(verb__startswith="curation").exists()


# --- categories ------------------------------------------------------------------------------------------------------


def test_merged_categories_are_one(corpus, curator):
    apply(curator, Merge(kind="category", source="kitchen/oven", target="kitchen/brewing"))
    assert "kitchen/oven" not in paths()
    merged = Category.objects.get(path="kitchen/brewing")
    assert merged.aliases == ["Oven", "stove"]
    # t2 was in both.
    assert CategoryLink.objects.filter(memory_id=number("t2")).count() == 1
    assert total(curator, category="kitchen/brewing") == total(curator, category="kitchen/oven") == 2
    assert [node.path for node in resolve_categories(["stove"], None)["stove"]] == ["kitchen/brewing"]


def test_children_move_with_a_merged_category_and_merge_where_they_collide(corpus, curator):
    record = MemoryRecord(project="tea", content="An oven in the yard.", categories=("Yard/Oven/Door", "Yard/Oven"))
    memory_create(record=record, viewer=curator)
    apply(curator, Merge(kind="category", source="yard", target="kitchen"))
    assert {path for path in paths() if path.startswith(("yard", "kitchen"))} == {
        "kitchen",
        "kitchen/brewing",
        "kitchen/dock",
        "kitchen/dock/crane",
        "kitchen/oven",
        "kitchen/oven/door",
        "kitchen/wood",
    }
    assert Category.objects.get(path="kitchen/dock/crane").depth == 3
    assert total(curator, category="yard/oven") == total(curator, category="kitchen/oven") == 2


def test_a_category_can_be_merged_into_what_is_above_it(corpus, curator):
    Category.objects.create(name="Dock", path="yard/dock/dock", depth=3, parent=Category.objects.get(path="yard/dock"))
    apply(curator, Merge(kind="category", source="yard/dock", target="yard"))
    assert {path for path in paths() if path.startswith("yard")} == {"yard", "yard/crane", "yard/dock", "yard/wood"}
    assert total(curator, category="yard/dock/crane") == 2


def test_a_duplicate_link_keeps_the_person_who_made_it_and_the_better_weight(corpus, curator):
    heat = Concept.objects.get(name="heat").pk
    temperature = Concept.objects.get(name="temperature").pk
    ConceptLink.objects.create(memory_id=number("t1"), concept_id=heat, made_by="human", weight=0.2)
    ConceptLink.objects.filter(memory_id=number("t1"), concept_id=temperature).update(weight=0.7)
    vocabulary_mend(viewer=curator)
    apply(curator, Relate(kind="concept", term="heat", how="narrower", other="temperature", remove=True))
    before = dump()
    merged = apply(curator, Merge(kind="concept", source="heat", target="temperature"))
    assert [(figure.moved, figure.collapsed) for figure in merged.plan.figures] == [(0, 1)]
    link = ConceptLink.objects.get(memory_id=number("t1"))
    assert (link.concept_id, link.made_by, link.weight) == (temperature, "human", 0.7)
    curation_undo(curation_id=merged.curation.pk, viewer=curator)
    assert dump() == before


def test_an_old_path_goes_on_finding_its_category_and_what_comes_by_it(corpus, curator):
    apply(curator, Rename(kind="category", term="yard", name="Boat Yard"))
    assert Category.objects.get(path="boat-yard/dock/crane").depth == 3
    assert Category.objects.get(path="boat-yard").aliases == ["Yard"]
    assert total(curator, category="yard/dock") == 3
    record = MemoryRecord(project="boat", content="A new jetty.", categories=("Yard/Dock/Jetty", "yard/dock"))
    memory = memory_create(record=record, viewer=curator)
    assert [link.category.path for link in memory.category_links.order_by("category__path")] == [
        "boat-yard/dock",
        "boat-yard/dock/jetty",
    ]
    assert findings() == []


def test_every_door_finds_a_category_by_a_path_that_it_had_until_that_is_taken_away(corpus, curator):
    apply(curator, Move(category="kitchen/oven", parent="yard"))
    found = category_overview(CategoryRequest(name="Kitchen/Oven"), curator)
    assert found.category.node.path == "yard/oven"
    apply(curator, Alias(kind="category", term="yard/oven", remove=["kitchen/oven"]))
    with pytest.raises(CategoryNotFoundError):
        category_overview(CategoryRequest(name="kitchen/oven"), curator)


def test_a_former_path_ends_when_somebody_is_there_again(corpus, curator):
    apply(curator, Rename(kind="category", term="guests", name="Visitors"))
    assert FormerPath.objects.count() == 2
    apply(curator, Rename(kind="category", term="visitors", name="Guests"))
    assert set(FormerPath.objects.values_list("path", flat=True)) == {"visitors", "visitors/tables"}


def test_a_moved_category_takes_its_memories_to_its_new_ancestors(corpus, curator):
    assert apply(curator, Move(category="yard/dock", parent="kitchen")).plan.memories == 4
    assert total(curator, category="kitchen") == 6
    apply(curator, Move(category="kitchen/dock/crane"))
    assert Category.objects.get(path="crane").parent is None
    assert total(curator, category="yard/dock/crane") == 2


def test_some_memories_of_a_category_become_another_one(corpus, curator):
    apply(curator, Split(kind="category", term="kitchen/brewing", name="Repairs", query="tag=hardware&mode=faceted"))
    assert Category.objects.get(path="kitchen/repairs").depth == 2
    assert total(curator, category="kitchen/repairs") == 1
    assert total(curator, category="kitchen/brewing") == 1


# --- concepts, entities, tags ----------------------------------------------------------------------------------------


def test_relationships_of_a_merged_entity_follow_and_those_with_itself_end(corpus, curator):
    apply(curator, Merge(kind="entity", source="person:Ada", target="person:Mio"))
    facts = [(str(fact), fact.fact, fact.evidence_ids) for fact in Relationship.objects.all()]
    assert facts == [("person:Mio owns tool:kettle", "Ada's kettle", [number("t1")])]
    assert total(curator, entity="Ada") == total(curator, entity="person:Mio") == 3


def test_of_a_split_entity_come_along_the_relationships_that_its_memories_alone_bear_out(corpus, curator):
    before = dump()
    applied = apply(curator, Split(kind="entity", term="tool:kettle", name="teapot", memories=[number("t1")]))
    facts = Relationship.objects.filter(target__entity_type="tool").order_by("id")
    assert [str(fact) for fact in facts] == ["person:Mio owns tool:teapot", "person:Ada owns tool:kettle"]
    assert ("relationship moves along", "owns", "teapot") in [
        (line.what, line.before, line.after) for line in applied.plan.lines
    ]
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before


def test_an_entity_merged_into_another_type_is_known_by_its_full_name(corpus, curator):
    applied = apply(curator, Merge(kind="entity", source="boat:Mio", target="person:Mio"))
    assert applied.curation.title == "Merged the entity boat:Mio into person:Mio"
    assert Entity.objects.get(name="Mio").aliases == ["boat:Mio"]
    record = MemoryRecord.model_validate({"project": "boat", "content": "x", "entities": ["boat:Mio"]})
    memory = memory_create(record=record, viewer=curator)
    assert [link.entity.entity_type for link in memory.entity_links.all()] == ["person"]


def test_a_merged_tag_stands_where_the_old_one_stood_and_what_comes_by_it_is_the_new_one(corpus, curator):
    apply(curator, Merge(kind="tag", source="tea", target="guests"))
    assert (tags("t1"), tags("t3"), tags("t8")) == (["guests", "brewing"], ["guests"], ["guests", "boat"])
    assert total(curator, tag="tea") == total(curator, tag="guests") == 4
    memory = memory_create(record=MemoryRecord(project="tea", content="x", tags=("tea", "new")), viewer=curator)
    assert memory.tags == ["guests", "new"]


def test_a_renamed_tag_is_found_by_its_words_and_by_its_whole_old_name(corpus, curator):
    apply(curator, Rename(kind="tag", term="hardware", name="Iron Ware"))
    assert TagAlias.objects.get().tag == "iron-ware"
    assert total(curator, q="ware", mode="keyword") == 3
    assert total(curator, q="hardware", mode="keyword") == 3
    assert total(curator, q='"hardware"', mode="keyword") == 0


def test_aliases_of_a_tag_that_becomes_an_alias_follow_it(corpus, curator):
    apply(curator, Rename(kind="tag", term="hardware", name="iron"))
    Memory.objects.filter(tags__contains=["iron"]).update(tags=["kettle"])
    apply(curator, Alias(kind="tag", term="kettle", add=["iron"]))
    assert dict(TagAlias.objects.values_list("alias", "tag")) == {"hardware": "kettle", "iron": "kettle"}
    assert findings() == []


def test_a_relationship_is_stated_and_taken_back(corpus, curator):
    apply(curator, Relate(kind="entity", term="tool:crane", how="Stands On", other="boat:Mio", fact="By the dock."))
    assert Relationship.objects.get(relationship_type="stands-on").fact == "By the dock."
    assert total(curator, q="dock", mode="unified") == total(curator, q="dock")
    apply(curator, Relate(kind="entity", term="tool:crane", how="stands-on", other="boat:Mio", remove=True))
    assert not Relationship.objects.filter(relationship_type="stands-on").exists()


# --- many memories at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        pytest.param(
            Relate(kind="entity", term="person:Mio", how="knows", other="kettle"),
            ("relationship", "", "Mio knows kettle"),
            id="relationship stated",
        ),
        pytest.param(
            Relate(kind="entity", term="person:Ada", how="owns", other="kettle", remove=True),
            ("relationship", "Ada owns kettle", ""),
            id="relationship taken back",
        ),
        pytest.param(
            Relate(kind="concept", term="safety", how="broader", other="heat"),
            ("relation", "", "heat is broader than safety"),
            id="concepts",
        ),
        pytest.param(
            Relate(kind="category", term="kitchen", how="related", other="guests", remove=True),
            ("related", "kitchen and guests", ""),
            id="categories no longer",
        ),
        pytest.param(Alias(kind="tag", term="tea", add=["chai"]), ("alias", "", "chai"), id="alias"),
    ],
)
def test_a_preview_tells_what_stands_now_from_what_would_stand_then(corpus, curator, asked, line):
    (told,) = curation_plan(operation=asked, viewer=curator).lines
    assert (told.what, told.before, told.after) == line


def test_all_that_match_a_query_are_retagged(corpus, curator):
    asked = Retag(
        query="project=tea&tag=kettle&mode=faceted",
        add_tags=["boiler"],
        remove_tags=["kettle"],
        set_category="Yard",
        add_concepts=["safety"],
        add_entities=["person:Ada"],
        remove_entities=["tool:kettle"],
    )
    before = dump()
    applied = apply(curator, asked)
    assert applied.plan.memories == 2
    assert (tags("t2"), tags("t5")) == (["hardware", "boiler"], ["boiler"])
    assert set(Memory.objects.get(external_id="t2").category_links.values_list("category__path", flat=True)) == {"yard"}
    assert total(curator, concept="safety") == 5
    assert list(Memory.objects.get(external_id="t2").entity_links.values_list("entity__name", flat=True)) == ["Ada"]
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before


def test_a_set_that_has_changed_is_asked_about_again(corpus, curator):
    asked = Retag(query="tag=kettle&mode=faceted", add_tags=["boiler"])
    token = curation_plan(operation=asked, viewer=curator).token
    memory_create(record=MemoryRecord(project="tea", content="Another.", tags=("kettle",)), viewer=curator)
    with pytest.raises(PlanChangedError) as caught:
        curation_apply(operation=asked.model_copy(update={"token": token}), viewer=curator)
    assert caught.value.plan.memories == 3
    assert total(curator, tag="boiler") == 0


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param(Merge(kind="category", source="yard", target="yard"), "into itself", id="category into itself"),
        pytest.param(Merge(kind="tag", source="tea", target="tea"), "into itself", id="tag into itself"),
        pytest.param(Merge(kind="concept", source="heat", target="heat"), "already the same", id="concept into itself"),
        pytest.param(
            Merge(kind="category", source="yard", target="yard/dock"), "is below yard", id="into what is below it"
        ),
        pytest.param(Move(category="yard", parent="yard/dock/crane"), "would have a cycle", id="ring in the tree"),
        pytest.param(Move(category="yard", parent="yard"), "under itself", id="under itself"),
        pytest.param(Move(category="yard/dock", parent="yard"), "is already under yard", id="where it is"),
        pytest.param(Rename(kind="category", term="kitchen", name="YARD"), "merge the two", id="path taken"),
        pytest.param(Rename(kind="category", term="kitchen", name="a/b"), "has no slash", id="slash in a name"),
        pytest.param(Rename(kind="category", term="kitchen", name="\u200b "), "needs a name", id="empty name"),
        pytest.param(Rename(kind="category", term="yard", name="x" * 400), "up to 300", id="name too long"),
        pytest.param(Rename(kind="concept", term="heat", name="Warmth"), "of another concept", id="alias taken"),
        pytest.param(Rename(kind="entity", term="Ada", name="mio"), "of another entity", id="name of its type taken"),
        pytest.param(Rename(kind="tag", term="tea", name="Kettle"), "is already a tag", id="tag taken"),
        pytest.param(
            Alias(kind="concept", term="heat", add=["Safety"]), "is already the name of", id="alias is a name"
        ),
        pytest.param(
            Alias(kind="category", term="yard", add=["Kitchen / Oven"]), "path of another", id="alias is a path"
        ),
        pytest.param(Alias(kind="tag", term="tea", remove=["chai"]), "is not an alias", id="no such alias"),
        pytest.param(
            Relate(kind="concept", term="heat", how="broader", other="boiling"), "cannot also be narrower", id="ring"
        ),
        pytest.param(
            Relate(kind="concept", term="heat", how="narrower", other="boiling"), "already", id="related already"
        ),
        pytest.param(
            Relate(kind="entity", term="Ada", how="owns", other="kettle"), "already stated", id="stated already"
        ),
        pytest.param(Split(kind="tag", term="tea", name="x", memories=[1]), "None of these", id="nothing to split"),
        pytest.param(Split(kind="tag", term="tea", name="x", query="tag=tea"), "rename it", id="all to split"),
        pytest.param(
            Split(kind="concept", term="temperature", name="Warmth", query="tag=tea"),
            "one of its names",
            id="own alias",
        ),
        pytest.param(Split(kind="entity", term="Ada", name="ada", query="tag=wood"), "one of its names", id="own name"),
        pytest.param(Retag(query="tag=nothing", add_tags=["x"]), "No memory matches", id="no match"),
        pytest.param(Retag(query="tagg=tea", add_tags=["x"]), "not a parameter", id="query that cannot be read"),
        pytest.param(Retag(query="tag=tea", add_tags=["x"], remove_tags=["X"]), "both", id="added and removed"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(corpus, curator, asked, reason):
    before = dump()
    plan = curation_plan(operation=asked, viewer=curator)
    assert reason in " ".join(plan.refusals)
    with pytest.raises(CurationRefusedError, match=reason[:12]):
        curation_apply(operation=asked, viewer=curator)
    assert dump() == before


def test_a_concept_between_two_keeps_them_from_becoming_one(corpus, curator):
    apply(curator, Relate(kind="concept", term="temperature", how="narrower", other="safety"))
    plan = curation_plan(operation=Merge(kind="concept", source="heat", target="safety"), viewer=curator)
    assert "would be broader than itself" in plan.refusals[0]


def test_a_tree_has_at_most_twelve_levels(corpus, curator):
    deep = MemoryRecord(project="tea", content="x", categories=("a/b/c/d/e/f/g/h/i/j/k",))
    memory_create(record=deep, viewer=curator)
    plan = curation_plan(operation=Move(category="yard", parent="a/b/c/d/e/f/g/h/i/j/k"), viewer=curator)
    assert "13 levels deep" in plan.refusals[0]


# --- who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Rename(kind="category", term="yard", name="Garden"), id="category of which others have a part"),
        pytest.param(Rename(kind="entity", term="person:Mio", name="M."), id="entity of others' relationships"),
        pytest.param(Relate(kind="entity", term="person:Mio", how="owns", other="tool:kettle"), id="what is stated"),
    ],
)
def test_what_others_use_is_not_for_a_curator_of_one_project_and_no_number_is_told(tea_curator, curator, asked):
    memory_create(record=MemoryRecord(project="boat", content="Another.", tags=("boat",)), viewer=curator)
    plan = curation_plan(operation=asked, viewer=tea_curator)
    assert plan.refusals == (
        "Memories that you cannot write also use it, and all projects share the vocabulary. Ask a curator of all"
        " projects.",
    )
    assert (plan.memories, plan.figures, plan.lines, plan.examples) == (0, (), (), ())


def test_what_a_curator_does_not_see_is_not_there(tea_curator):
    for kind, name in (("tag", "crane"), ("concept", "safety"), ("entity", "person:Ada"), ("category", "yard/dock")):
        with pytest.raises(TermNotFoundError):
            curation_plan(operation=Rename(kind=kind, term=name, name="x"), viewer=tea_curator)


def test_a_relationship_that_a_curator_does_not_see_is_not_told_though_it_follows(tea_curator, curator):
    pot = MemoryRecord(project="tea", content="A pot.", entities=({"name": "pot", "type": "tool"},))
    memory_create(record=pot, viewer=curator)
    ada, kettle = Entity.objects.get(name="Ada"), Entity.objects.get(name="pot")
    Relationship.objects.create(source=ada, relationship_type="owns", target=kettle, fact="Ada's pot")
    asked = Merge(kind="entity", source="tool:pot", target="tool:kettle")
    told = [line.what for line in curation_plan(operation=asked, viewer=curator).lines]
    assert told == ["merges into", "other names", "relationships merged"]
    assert [line.what for line in curation_plan(operation=asked, viewer=tea_curator).lines] == told[:2]


def test_a_curator_of_one_project_curates_what_is_its_own(tea_curator):
    apply(tea_curator, Merge(kind="category", source="kitchen/oven", target="kitchen/brewing"))
    apply(tea_curator, Retag(query="tag=boat&mode=faceted", add_tags=["ship"]))
    assert tags("t8") == ["tea", "boat", "ship"]


def test_a_reader_curates_nothing(tea_curator):
    reader = Viewer(tea_curator.project_ids, frozenset(["read"]))
    with pytest.raises(CurationForbiddenError):
        curation_plan(operation=Rename(kind="tag", term="tea", name="chai"), viewer=reader)


# --- what is kept of it ----------------------------------------------------------------------------------------------


def test_a_verb_is_audited_and_raises_the_revision(corpus, curator):
    revision = Corpus.objects.get().revision
    curation = apply(curator, Merge(kind="category", source="guests", target="kitchen")).curation
    event = AuditEvent.objects.first()
    assert (event.verb, event.subject_type, event.subject_id) == ("curation_merge", "curation", curation.pk)
    assert event.after["title"] == curation.title == "Merged the category guests into kitchen"
    assert Corpus.objects.get().revision == revision + 1


def test_a_verb_is_seen_by_the_index(corpus, curator):
    Corpus.objects.update(indexed=True)
    apply(curator, Merge(kind="category", source="guests", target="kitchen"))
    changed = {number(name) for name in ("t3", "t6", "t7", "t8")}
    assert changed <= set(OutboxEntry.objects.values_list("memory_id", flat=True))


def _renamed(curator):
    apply(curator, Rename(kind="entity", term="tool:kettle", name="boiler"))


def _merged(curator):
    apply(curator, Merge(kind="entity", source="tool:kettle", target="person:Mio"))


def _renamed_and_of_another_type(curator):
    _renamed(curator)
    apply(curator, Edit(kind="entity", term="tool:boiler", type="vessel"))


def _named_too(curator):
    apply(curator, Alias(kind="entity", term="tool:kettle", add=["urn"]))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(_renamed, ["tool:kettle", "TOOL:Kettle", "kettle", "tool:boiler"], id="renamed"),
        pytest.param(_merged, ["tool:kettle", "kettle", "person:Mio"], id="merged"),
        pytest.param(_renamed_and_of_another_type, ["tool:kettle", "tool:boiler", "vessel:kettle"], id="type too"),
        pytest.param(_named_too, ["tool:urn", "urn", "tool:kettle"], id="alias"),
    ],
)
def test_former_names_of_entities_are_found_and_excluded_with_their_type(corpus, curator, change, names):
    everything = total(curator)
    change(curator)
    found = {name: total(curator, entity=name) for name in names}
    assert len(set(found.values())) == 1
    assert found[names[0]] > 0
    for name in names:
        assert total(curator, **{"-entity": name}) == everything - found[name]
    unrelated = "thing:kettle"
    assert total(curator, entity=unrelated) == 0


def test_the_relations_of_a_merged_concept_follow(corpus, curator):
    apply(curator, Merge(kind="concept", source="safety", target="maintenance"))
    kept, heat = Concept.objects.get(name="maintenance"), Concept.objects.get(name="heat")
    assert (kept.aliases, kept.related_ids, heat.related_ids) == (["safety"], [heat.pk], [kept.pk])
    assert total(curator, concept="safety") == total(curator, concept="maintenance") == 4

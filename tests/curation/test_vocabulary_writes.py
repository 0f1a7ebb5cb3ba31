"""Categories, concepts, entities and relationships are made and corrected through curation: previewed, undoable."""

from dataclasses import replace

import pytest

from access.keys import make_key
from access.models import AuditEvent
from categories.models import Category, Concept, ConceptLink, Entity, Relationship
from curation.checks import findings
from curation.queries import TermNotFoundError
from curation.schemas import Alias, Create, Edit, Relate, Rename
from curation.services import curation_apply, curation_plan, curation_undo
from curation.working_copy import CurationRefusedError
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.curation.conftest import dump, number

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(client, corpus, curator):
    raw = make_key(name="agent", scopes=["admin"], every_project=True, viewer=curator).raw
    headers = {"Authorization": f"Bearer {raw}"}

    def call(path, body=None):
        if body is None:
            return client.get(f"/api{path}", headers=headers)
        return client.post(f"/api/curation{path}", body, content_type="application/json", headers=headers)

    return call


@pytest.fixture
def tea_key(tea_curator, curator):
    """The viewer of a key for the tea house alone, which sees its own curations."""
    projects = Project.objects.filter(slug="tea")
    key = make_key(name="tea", scopes=["read", "write", "curate"], projects=projects, viewer=curator).key
    return replace(tea_curator, api_key_id=key.pk)


def there_and_back(viewer, asked):
    """Apply an operation, undo it, see that nothing is left of it, and apply it again."""
    before = dump()
    assert curation_plan(operation=asked, viewer=viewer).refusals == ()
    assert dump() == before
    applied = curation_apply(operation=asked, viewer=viewer)
    assert findings() == []
    curation_undo(curation_id=applied.curation.pk, viewer=viewer)
    assert dump() == before
    return curation_apply(operation=asked, viewer=viewer)


def test_a_concept_is_made_with_its_weight_aliases_relations_and_memories(corpus, curator):
    applied = there_and_back(
        curator,
        Create(
            kind="concept",
            name="Simmering",
            type="Cooking Step",
            aliases=["slow boil"],
            weight=0.85,
            broader=["heat"],
            related=["safety"],
            memories=[number("t1")],
        ),
    )
    made = Concept.objects.get(name="Simmering")
    heat, safety = Concept.objects.get(name="heat"), Concept.objects.get(name="safety")
    assert (made.concept_type, made.weight, made.aliases) == ("cooking-step", 0.85, ["slow boil"])
    assert (made.broader_ids, made.related_ids) == ([heat.pk], [safety.pk])
    assert made.pk in heat.narrower_ids
    assert made.pk in safety.related_ids
    assert [(row.kind, row.id) for row in applied.made] == [("concept", made.pk)]
    assert applied.plan.title == "Created the concept Simmering"
    assert ConceptLink.objects.get(concept_id=made.pk).memory_id == number("t1")
    found = run(SearchQuery.from_mapping({"mode": "faceted", "concept": "slow boil"}), curator)
    assert [hit.id for hit in found.hits] == [number("t1")]
    assert AuditEvent.objects.filter(verb="curation_create").count() == 2


def test_a_category_is_made_with_its_parents_also_below_a_former_path(corpus, curator):
    applied = there_and_back(
        curator, Create(kind="category", name="Cellar/Wine Rack/Red", aliases=["reds"], related=["kitchen"])
    )
    assert len(applied.made) == 3
    red = Category.objects.get(path="cellar/wine-rack/red")
    assert (red.depth, red.parent.parent.name, red.aliases) == (3, "Cellar", ["reds"])
    assert red.pk in Category.objects.get(path="kitchen").related_ids
    curation_apply(operation=Edit(kind="category", term="cellar", description="Below."), viewer=curator)
    curation_apply(operation=Rename(kind="category", term="cellar", name="Vault"), viewer=curator)
    there_and_back(curator, Create(kind="category", name="cellar/Cheese"))
    assert Category.objects.get(path="vault/cheese").parent.description == "Below."


def test_an_entity_of_another_type_is_still_found_under_the_old_one(corpus, curator):
    there_and_back(curator, Create(kind="entity", name="Samovar", type="tool", description="Boils.", aliases=["urn"]))
    there_and_back(curator, Edit(kind="entity", term="tool:Samovar", type="machine"))
    found = Entity.objects.get(name="Samovar")
    assert (found.entity_type, found.aliases) == ("machine", ["urn", "tool:Samovar", "tool:urn"])
    applied = curation_plan(operation=Edit(kind="entity", term="tool:Samovar", description=""), viewer=curator)
    assert applied.title == "Edited the entity Samovar"


def test_the_weight_of_a_concept_is_set_and_taken_away_again(corpus, curator):
    there_and_back(curator, Edit(kind="concept", term="heat", weight=0.5, description="Warmth."))
    assert Concept.objects.get(name="heat").weight == 0.5
    there_and_back(curator, Edit(kind="concept", term="heat", weight=None))
    heat = Concept.objects.get(name="heat")
    assert (heat.weight, heat.description) == (None, "Warmth.")


def test_a_relationship_is_stated_corrected_and_ended(corpus, curator):
    stated = Relate(
        kind="entity",
        term="person:Mio",
        how="repairs",
        other="tool:kettle",
        fact="Mio repairs the kettle.",
        confidence=0.9,
        valid_from="2026-01-01T00:00:00.5Z",
        evidence=[number("t2"), number("t1")],
    )
    applied = there_and_back(curator, stated)
    row = Relationship.objects.get(relationship_type="repairs")
    assert (row.confidence, row.valid_from.microsecond, row.evidence_ids) == (
        0.9,
        500_000,
        [number("t1"), number("t2")],
    )
    assert [(made.kind, made.id) for made in applied.made] == [("relationship", row.pk)]
    with pytest.raises(CurationRefusedError, match="already stated"):
        curation_apply(operation=stated, viewer=curator)
    short = {"kind": "entity", "term": "person:Mio", "how": "repairs", "other": "tool:kettle"}
    there_and_back(curator, Relate(**short, confidence=0.4, valid_to="2026-06-01"))
    row.refresh_from_db()
    assert (row.confidence, row.valid_to.month, row.fact) == (0.4, 6, "Mio repairs the kettle.")
    there_and_back(curator, Relate(**short, remove=True))
    assert not Relationship.objects.filter(relationship_type="repairs").exists()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param(Create(kind="concept", name="HEAT"), "is the name of another concept", id="name taken"),
        pytest.param(Create(kind="concept", name="warmth"), "edit that one instead", id="alias taken"),
        pytest.param(Create(kind="concept", name="x", aliases=["heat"]), "already the name", id="alias is a name"),
        pytest.param(Create(kind="category", name="Kitchen/Oven"), "kitchen/oven is taken", id="path taken"),
        pytest.param(Create(kind="category", name="a/" * 13), "levels deep", id="path too deep"),
        pytest.param(Create(kind="category", name=" / "), "needs a name", id="no name"),
        pytest.param(Create(kind="concept", name="x", memories=[10**9]), "not memories that you can", id="no memory"),
        pytest.param(
            Create(kind="concept", name="x", broader=["temperature"], narrower=["heat"]), "already broader", id="cycle"
        ),
        pytest.param(Edit(kind="concept", term="temperature", description="How hot it is."), "already", id="no change"),
        pytest.param(
            Relate(kind="entity", term="person:Mio", how="owns", other="tool:kettle", evidence=[10**9]),
            "not memories that you can see",
            id="unseen evidence",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_reason(corpus, curator, asked, reason):
    before = dump()
    assert reason in curation_plan(operation=asked, viewer=curator).refusals[0]
    with pytest.raises(CurationRefusedError, match=reason):
        curation_apply(operation=asked, viewer=curator)
    assert dump() == before


def test_a_curator_of_one_project_makes_terms_of_their_own_memories_only(tea_key, curator):
    alone = curation_plan(operation=Create(kind="concept", name="Infusion"), viewer=tea_key)
    assert "Name memories of yours" in alone.refusals[0]
    others = curation_plan(operation=Create(kind="concept", name="Infusion", memories=[number("b1")]), viewer=tea_key)
    assert "not memories that you can change" in others.refusals[0]
    with pytest.raises(TermNotFoundError):
        curation_plan(
            operation=Create(kind="concept", name="Infusion", related=["safety"], memories=[number("t1")]),
            viewer=tea_key,
        )
    there_and_back(tea_key, Create(kind="concept", name="Infusion", memories=[number("t1")]))
    there_and_back(tea_key, Edit(kind="concept", term="infusion", weight=0.5))
    # Once a memory of another project is about it, only texts of their own project are theirs to change.
    memory_create(record=MemoryRecord(project="boat", content="x", concepts=({"name": "Infusion"},)), viewer=curator)
    weigh = Edit(kind="concept", term="infusion", weight=3)
    assert "cannot write" in curation_plan(operation=weigh, viewer=tea_key).refusals[0]
    there_and_back(tea_key, Alias(kind="concept", term="infusion", add=["brew"]))
    there_and_back(tea_key, Edit(kind="concept", term="infusion", description="Leaves in hot water."))


def test_a_curator_of_one_project_states_nothing_that_they_would_not_see(tea_key, curator):
    for name in ("pot", "lid"):
        record = MemoryRecord(project="tea", content=f"A {name}.", entities=({"name": name, "type": "tool"},))
        evidence = memory_create(record=record, viewer=curator).pk
    said = {"kind": "entity", "term": "tool:lid", "how": "covers", "other": "tool:pot"}
    assert "support it" in curation_plan(operation=Relate(**said), viewer=tea_key).refusals[0]
    there_and_back(tea_key, Relate(**said, evidence=[evidence]))
    there_and_back(tea_key, Relate(**said, fact="The lid covers the pot."))
    assert "support it" in curation_plan(operation=Relate(**said, evidence=[]), viewer=tea_key).refusals[0]


def test_what_is_made_through_the_api_is_read_through_it(api):
    created = api("/create", {"kind": "concept", "name": "Steeping", "weight": 0.85, "memories": [number("t1")]}).json()
    (made,) = created["made"]
    assert made["kind"] == "concept"
    assert api(f"/concepts/{made['id']}").json()["name"] == "Steeping"
    said = {"kind": "entity", "term": "person:Ada", "how": "repairs", "other": "tool:kettle", "confidence": 0.7}
    (fact,) = api("/relate", said).json()["made"]
    assert api(f"/relationships/{fact['id']}").json()["confidence"] == 0.7
    assert api("/create", {"kind": "entity", "name": "Lamp", "type": "tool", "dry_run": True}).json()["made"] == []
    # A term that no memory has yet is read all the same by a key for every project.
    assert api("/create", {"kind": "entity", "name": "Lamp", "type": "tool"}).status_code == 200
    assert api("/entities/tool:Lamp").json()["memories"] == 0


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        pytest.param(
            "/create", {"kind": "entity", "name": "x", "weight": 1}, "weight: a term of the kind", id="weight"
        ),
        pytest.param("/create", {"kind": "tag", "name": "x"}, "kind: 'tag' is not one of the choices", id="tag"),
        pytest.param("/edit", {"kind": "concept", "term": "heat"}, "give what to change", id="nothing"),
        pytest.param("/edit", {"kind": "category", "term": "yard", "type": "x"}, "type: a term of the kind", id="type"),
        pytest.param(
            "/relate",
            {"kind": "concept", "term": "heat", "how": "related", "other": "safety", "confidence": 1},
            "confidence: only relationships of entities",
            id="confidence",
        ),
        pytest.param(
            "/relate",
            {
                "kind": "entity",
                "term": "a",
                "how": "b",
                "other": "c",
                "valid_from": "2026-02-01",
                "valid_to": "2026-01-01",
            },
            "valid_to: is before valid_from",
            id="validity",
        ),
    ],
)
def test_a_field_that_does_not_fit_the_kind_is_an_error(api, path, body, detail):
    response = api(path, body)
    assert response.status_code == 422
    assert detail in response.json()["detail"]

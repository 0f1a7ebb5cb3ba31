"""The names of the sample stay in its projects: nobody else gets them by an alias, is offered them, or keeps them."""

import json
from dataclasses import replace

import pytest
from django.core.management import call_command

from agent_tools.vocabulary_tools import list_values
from categories.models import Category, Concept, Entity, LocalText
from curation.suggestions.classifier import members_of
from curation.suggestions.duplicate_names import concept_duplicate_proposals, entity_proposals, tag_proposals
from memories.invented_team import SAMPLE, categories_of_sample, sample_projects
from memories.models import ImportBatch, Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.home.test_imports import owner
from tests.html import html_of
from tests.memories.imports import EVERYTHING
from transfer.undo import batch_undo

__all__ = ["owner"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def sample(db):
    call_command("import_memories", str(SAMPLE), verbosity=0)
    return ImportBatch.objects.get()


def write(project="home", **fields):
    return memory_create(record=MemoryRecord(project=project, **{"content": "Mine.", **fields}), viewer=EVERYTHING)


def names_of(memory):
    memory.refresh_from_db()
    return (
        sorted(Category.objects.filter(pk__in=memory.category_ids).values_list("path", flat=True)),
        sorted(Concept.objects.filter(pk__in=memory.concept_ids).values_list("name", flat=True)),
        sorted(map(str, Entity.objects.filter(pk__in=memory.entity_ids))),
    )


@pytest.fixture(params=["written", "imported"])
def add(request, jsonl):
    """A function that adds a memory, by a write or by an import."""

    def imported(project="home", **fields):
        line = {"id": f"own {len(fields)}", "project": project, "content": "Mine.", **fields}
        call_command("import_memories", str(jsonl(line)), verbosity=0)
        return Memory.objects.latest("pk")

    return write if request.param == "written" else imported


def test_aliases_of_the_sample_lead_nowhere_in_other_projects(sample, add):
    own = add(categories=["Billing"], concepts=["p99"], entities=["technology:pg"])
    categories, concepts, entities = names_of(own)
    assert categories == ["billing"]
    assert concepts == ["p99"]
    assert entities == ["technology:pg"]


def test_aliases_of_the_sample_lead_to_its_terms_in_its_own_projects(sample, add):
    own = add(project="lantern", categories=["Billing"], concepts=["p99"])
    assert names_of(own)[:2] == (["domain/payments"], ["tail latency"])


def test_a_name_of_the_sample_is_the_same_for_all_and_stays_for_those_who_use_it(sample, add):
    own = add(categories=["Engineering/Backend"], concepts=["retries"])
    assert names_of(own)[:2] == (["engineering/backend"], ["retries"])
    assert Category.objects.filter(path="engineering/backend").count() == 1
    batch_undo(batch_id=sample.pk, viewer=EVERYTHING)
    assert set(Category.objects.values_list("path", flat=True)) == {"engineering", "engineering/backend"}
    assert list(Concept.objects.values_list("name", flat=True)) == ["retries"]
    # No word of the sample is left on them.
    assert not LocalText.objects.exists()
    assert not Category.objects.exclude(aliases=[], description="").exists()
    assert set(Project.objects.values_list("slug", flat=True)) == {"home"}


def test_nothing_is_left_of_the_sample_where_nobody_uses_it(sample):
    batch_undo(batch_id=sample.pk, viewer=EVERYTHING)
    for model in (Category, Concept, Entity, LocalText, Project, Memory):
        assert not model.objects.exists(), model


def test_texts_of_others_stay_when_the_sample_goes(sample):
    own = write(categories=["House"])
    LocalText.objects.create(
        kind="category", term_id=own.category_ids[0], role="alias", text="home", project_ids=[own.project_id]
    )
    batch_undo(batch_id=sample.pk, viewer=EVERYTHING)
    assert LocalText.objects.get().text == "home"


def test_the_sample_is_found_by_its_aliases(sample):
    assert run(SearchQuery(category=("billing",)), EVERYTHING).total > 3
    assert run(SearchQuery(concept=("p99",)), EVERYTHING).total > 0


def test_duplicates_are_not_sought_between_the_sample_and_others(sample):
    write(concepts=["retry"], entities=["technology:Postgre"], tags=["bookings", "kettles"])
    write(content="Another.", concepts=["kettles", "kettle"], tags=["kettle"])
    found = [one.proposal for one in (*concept_duplicate_proposals(None), *entity_proposals(None), *tag_proposals())]
    pairs = {frozenset(one.values()) for one in found}
    assert frozenset(["kettle", "kettles"]) in pairs
    assert not [pair for pair in pairs if pair & {"retry", "Postgre", "bookings"}]


def test_memories_of_the_sample_say_nothing_about_the_categories_of_others(sample):
    own = write(categories=["House"])
    assert len(members_of(None)) > 100
    assert members_of(None, without=sample_projects()) == {own.pk: own.category_ids}


def test_categories_page_leaves_the_tree_of_the_sample_out_once_there_are_others(sample, owner):
    assert '">Engineering</a>' in html_of(owner.get("/categories/"))
    write(categories=["House/Kitchen", "Team/Agents"])
    page = html_of(owner.get("/categories/"))
    assert '">House</a>' in page
    assert '">Engineering</a>' not in page
    # Others use it too.
    assert '">Team</a>' in page
    assert (
        'Without those of <a class="link" href="/categories/?project=lantern&amp;project=refuge">the sample</a>.'
        in page
    )
    assert '">Engineering</a>' in html_of(owner.get("/categories/?project=lantern&project=refuge"))
    assert owner.get("/categories/engineering/storage/").status_code == 200


def test_categories_that_others_use_are_not_the_sample_s_alone(sample):
    assert categories_of_sample(EVERYTHING) == frozenset()
    own = write(categories=["Team/Agents"])
    hidden = categories_of_sample(EVERYTHING)
    assert len(hidden) == 58
    assert not hidden & set(own.category_path_ids)
    lantern = Project.objects.get(slug="lantern").pk
    assert categories_of_sample(replace(EVERYTHING, project_ids=frozenset({lantern}))) == frozenset()
    assert sample_projects() == set(Project.objects.exclude(slug="home").values_list("pk", flat=True))


def test_names_that_are_completed_are_not_those_of_the_sample(sample, owner):
    write(categories=["Engineering/Ovens"])

    def offers(**parameters):
        reply = owner.get("/api/facets/category", {"search": "engineering", **parameters}).json()
        return {value["value"] for value in reply["values"]}

    assert len(offers()) > 5
    assert offers(without_sample=1) == {"engineering", "engineering/ovens"}


def test_the_sample_is_removed_after_a_question_and_by_its_name(sample, owner, settings, tmp_path, monkeypatch):
    monkeypatch.setattr("transfer.jobs.start_once", lambda arguments: None)
    settings.HOME = tmp_path
    page = html_of(owner.get("/imports/"))
    assert '<summary class="button wide">Remove the sample</summary>' in page
    assert "Its 187 memories are removed" in page
    job = owner.post(f"/imports/batches/{sample.pk}/undo/").url
    page = html_of(owner.get(job))
    assert "<h1>The sample " in page
    assert "team.jsonl" not in page


def test_agents_are_not_listed_the_names_of_the_sample_beside_those_of_others(sample):
    assert '"lantern"' in list_values({"facet": "project", "format": "json"}, EVERYTHING)
    write(tags=("mine",), project="home")
    listed = list_values({"facet": "tag", "format": "json"}, EVERYTHING)
    assert [row["value"] for row in json.loads(listed)["values"]] == ["mine"]
    # They say that, and whoever asks for a project of the sample gets its names.
    assert "lantern" in listed
    of_sample = json.loads(list_values({"facet": "tag", "project": "lantern", "format": "json"}, EVERYTHING))
    assert len(of_sample["values"]) > 5
    of_import = json.loads(list_values({"facet": "tag", "import": str(sample.pk), "format": "json"}, EVERYTHING))
    assert len(of_import["values"]) > 5

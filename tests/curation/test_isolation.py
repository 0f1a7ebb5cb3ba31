"""Writers and curators of one project neither learn nor change what other projects have in the shared vocabulary."""

import json
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent, Membership
from access.viewer import Viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from categories.models import Category, Concept, Entity, FormerPath, LocalText, TagAlias
from curation.suggestions.models import Suggestion
from curation.suggestions.services import suggestion_accept
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.curation.conftest import dump
from tests.unified_corpus import AtOnce

pytestmark = pytest.mark.django_db

SCOPES = ["read", "write", "curate"]


@pytest.fixture(autouse=True)
def _legs_in_the_transaction_of_the_test(monkeypatch):
    monkeypatch.setattr("search.unified.legs._threads", AtOnce())


class Key:
    """A client with a key of its own."""

    def __init__(self, client, name, projects, curator, scopes=SCOPES):
        rows = list(Project.objects.filter(slug__in=projects))
        raw = make_key(name=name, scopes=scopes, projects=rows, every_project=not projects, viewer=curator).raw
        self._client, self._headers = client, {"Authorization": f"Bearer {raw}"}

    def get(self, path):
        return self._client.get(f"/api{path}", headers=self._headers)

    def send(self, method, path, **body):
        response = getattr(self._client, method)(
            f"/api{path}", body, content_type="application/json", headers=self._headers
        )
        assert response.status_code < 300, response.content
        return response.json()

    def store(self, project, content, **fields):
        return self.send("post", "/memories", project=project, content=content, **fields)

    def curate(self, verb, **body):
        return self.send("post", f"/curation/{verb}", **body)

    def refused(self, path, **body):
        response = self._client.post(f"/api{path}", body, content_type="application/json", headers=self._headers)
        return response.status_code, response.json()


@pytest.fixture
def projects(db):
    return Project.objects.bulk_create([Project(slug="advisories", name="a"), Project(slug="keps", name="b")])


@pytest.fixture
def a(client, projects, curator):
    return Key(client, "a", ["advisories"], curator)


@pytest.fixture
def b(client, projects, curator):
    return Key(client, "b", ["keps"], curator)


@pytest.fixture
def everyone(client, projects, curator):
    return Key(client, "everyone", [], curator)


@pytest.fixture
def secrets(b):
    """Terms of the second project with present names, aliases and descriptions that the first must not learn."""
    names = {
        "tags": ["oldtag"],
        "categories": ["bsecret/deep-name"],
        "concepts": ["layoffs"],
        "entities": ["person:Bob Realname", "org:Victim Corp"],
    }
    memory = b.store("keps", "A secret of the second project.", **names)
    b.curate("rename", kind="tag", term="oldtag", name="acquisition-of-acme")
    b.curate("rename", kind="category", term="bsecret/deep-name", name="Merger Plan")
    b.curate("alias", kind="category", term="bsecret/merger-plan", add=["dn"])
    b.curate("rename", kind="concept", term="layoffs", name="BConcept Proper")
    b.curate("alias", kind="concept", term="BConcept Proper", add=["bcp"])
    b.curate("alias", kind="entity", term="person:Bob Realname", add=["Bobby"])
    b.curate("edit", kind="entity", term="org:Victim Corp", description="Will be bought in May.")
    b.curate("alias", kind="entity", term="org:Victim Corp", add=["The Target"])
    return memory["id"]


GUESSES = {
    "tags": ["oldtag"],
    "categories": ["dn", "bsecret/deep-name", "bsecret/deep-name/new"],
    "concepts": ["bcp", "layoffs"],
    "entities": ["person:Bobby", "org:Victim Corp"],
}
SECRET = ("acme", "erger", "Proper", "Realname", "Will be bought", "The Target")


def names(reply):
    reply = reply.get("memory", reply)
    return {
        "tags": reply["tags"],
        "categories": sorted(category["path"] for category in reply["categories"]),
        "concepts": sorted(concept["name"] for concept in reply["concepts"]),
        "entities": sorted(f"{entity['type']}:{entity['name']}" for entity in reply["entities"]),
    }


def test_a_write_that_guesses_names_of_another_project_is_answered_with_the_names_as_written(a, secrets):
    stored = a.store("advisories", "A guess.", **GUESSES)
    assert names(stored) == {
        "tags": ["oldtag"],
        "categories": ["bsecret/deep-name", "bsecret/deep-name/new", "dn"],
        "concepts": ["bcp", "layoffs"],
        "entities": ["org:Victim Corp", "person:Bobby"],
    }
    changed = a.send("patch", f"/memories/{stored['id']}", **GUESSES)
    assert names(changed) == names(stored)
    assert not any(secret in json.dumps(one) for secret in SECRET for one in (stored, changed))


def test_a_guessed_term_shows_no_text_of_another_project(a, b, everyone, secrets):
    assert a.get("/entities/org:Victim%20Corp").status_code == 404
    a.store("advisories", "A guess.", **GUESSES)
    seen = a.get("/entities/org:Victim%20Corp").json()
    assert (seen["description"], seen["aliases"]) == ("", [])
    for path in ("/tags", "/concepts", "/entities", "/categories", "/curation", "/categories/bsecret", "/changes",
                 "/search?q=The+Target&include_facets=true", "/search?q=Realname&mode=unified"):  # fmt: skip
        found = a.get(path)
        assert found.status_code == 200, path
        asked = path.replace("+", " ")
        assert not any(secret in found.content.decode() for secret in SECRET if secret not in asked), path
    assert a.get("/entities/org:The%20Target").status_code == 404
    assert a.get("/search?entity=The+Target").json()["total"] == 0
    for reader in (b, everyone):
        seen = reader.get("/entities/org:Victim%20Corp").json()
        assert (seen["description"], seen["aliases"]) == ("Will be bought in May.", ["The Target"])
    assert b.get("/search?entity=The+Target").json()["total"] == 1


def test_names_of_a_project_go_on_working_in_it_after_another_project_has_used_them(a, b, secrets):
    a.store("advisories", "A guess.", **GUESSES)
    stored = b.store("keps", "The same names.", **GUESSES)
    assert names(stored) == {
        "tags": ["acquisition-of-acme"],
        "categories": ["bsecret/merger-plan", "bsecret/merger-plan/new"],
        "concepts": ["BConcept Proper"],
        "entities": ["org:Victim Corp", "person:Bob Realname"],
    }
    assert b.get("/search?category=bsecret/deep-name").json()["total"] == 2
    assert b.get("/search?tag=oldtag").json()["total"] == 2
    assert b.get("/search?concept=layoffs").json()["total"] == 2
    assert a.get("/search?tag=oldtag").json()["total"] == 1
    assert a.get("/search?category=dn").json()["total"] == 1


def test_an_agent_and_an_accepted_suggestion_store_names_as_written(projects, secrets):
    advisories = projects[0].pk
    viewer = Viewer(frozenset([advisories]), frozenset(SCOPES), frozenset([advisories]), door=AuditEvent.Door.MCP)
    fields = GUESSES | {"project": "advisories", "content": "A guess."}
    stored = call(TOOL["store_memory"], fields, viewer)
    (memory,) = Memory.objects.filter(project=advisories)
    stored += call(TOOL["get_observations"], {"ids": [memory.pk]}, viewer)
    assert all(name in stored for name in ("oldtag", "bsecret/deep-name/new", "bcp", "layoffs", "person:Bobby"))
    plain = memory_create(record=MemoryRecord(project="advisories", content="Plain."), viewer=viewer)
    proposal = {"kind": "concept", "project": projects[0], "subject_id": plain.pk, "proposal": {"concept": "Bcp"}}
    row = Suggestion.objects.create(fingerprint="f", confidence=0.9, **proposal)
    suggestion_accept(suggestion_id=row.pk, viewer=viewer)
    shown = call(TOOL["get_observations"], {"ids": [plain.pk]}, viewer)
    assert "bcp" in shown
    assert not any(secret in text for secret in SECRET for text in (stored, shown))


def test_an_import_resolves_the_names_of_each_project_in_this_project_alone(a, b, secrets, tmp_path):
    path = tmp_path / "both.jsonl"
    lines = [
        {"project": slug, "id": slug, "content": f"Imported to {slug}.", **GUESSES} for slug in ("advisories", "keps")
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    call_command("import_memories", str(path), verbosity=0)
    tags = dict(Memory.objects.filter(external_id__in=["advisories", "keps"]).values_list("external_id", "tags"))
    assert tags == {"advisories": ["oldtag"], "keps": ["acquisition-of-acme"]}
    found = a.get("/search?q=imported&include_facets=true").content.decode()
    assert not any(secret in found for secret in SECRET)


def test_an_alias_acts_in_the_projects_of_its_curator_alone(a, b, everyone):
    a.store("advisories", "Unwanted.", tags=["spam"], entities=["person:Evil"], concepts=["trash"], categories=["Bin"])
    a.curate("alias", kind="tag", term="spam", add=["roadmap", "q3"])
    a.curate("alias", kind="entity", term="person:Evil", add=["New Hire"])
    a.curate("alias", kind="concept", term="trash", add=["strategy"])
    a.curate("alias", kind="category", term="Bin", add=["Plans"])
    own = {"tags": ["roadmap"], "entities": ["person:New Hire"], "concepts": ["strategy"], "categories": ["Plans"]}
    expected = {**own, "categories": ["plans"]}
    stored = b.store("keps", "Wanted.", **own)
    assert names(stored) == expected
    assert names(b.send("patch", f"/memories/{stored['id']}", **own)) == expected
    assert names(everyone.store("keps", "By who sees all.", **own)) == expected
    assert names(a.store("advisories", "In the project of the alias.", **own)) == {
        "tags": ["spam"], "entities": ["person:Evil"], "concepts": ["trash"], "categories": ["bin"]
    }  # fmt: skip
    assert b.get("/search?tag=roadmap").json()["total"] == 2
    assert b.get("/tags").json()["tags"] == [{"tag": "roadmap", "count": 2, "aliases": []}]


def test_a_project_curates_a_tag_that_another_one_uses_too(a, b):
    a.store("advisories", "One.", tags=["roadmap"])
    b.store("keps", "Two.", tags=["roadmap"])
    renamed = a.curate("rename", kind="tag", term="roadmap", name="plan")
    assert renamed["plan"]["memories"] == 1
    assert b.get("/tags").json()["tags"] == [{"tag": "roadmap", "count": 1, "aliases": []}]
    assert a.get("/tags").json()["tags"] == [{"tag": "plan", "count": 1, "aliases": ["roadmap"]}]
    # The same name for another tag, in the other project.
    b.curate("rename", kind="tag", term="roadmap", name="strategy")
    assert a.store("advisories", "Three.", tags=["roadmap"])["memory"]["tags"] == ["plan"]
    assert b.store("keps", "Four.", tags=["roadmap"])["memory"]["tags"] == ["strategy"]


def test_a_tag_that_only_others_use_is_no_reason_to_refuse_a_name(a, b):
    b.store("keps", "Two.", tags=["taken"])
    a.store("advisories", "One.", tags=["mine"])
    plan = a.curate("rename", kind="tag", term="mine", name="taken", dry_run=True)["plan"]
    assert plan["refusals"] == []
    a.curate("alias", kind="tag", term="mine", add=["taken"])
    assert a.store("advisories", "Three.", tags=["taken"])["memory"]["tags"] == ["mine"]
    assert b.get("/search?tag=taken").json()["total"] == 1


def test_curators_see_their_own_curations_and_none_of_another_project(a, b, secrets):
    a.store("advisories", "Unwanted.", tags=["spam"])
    a.curate("alias", kind="tag", term="spam", add=["roadmap"])
    assert [one["title"] for one in a.get("/curation").json()["curations"]] == ["Changed the aliases of the tag spam"]
    assert len(b.get("/curation").json()["curations"]) == 8


def test_texts_of_a_project_are_undone_with_the_curation_that_wrote_them(a, b, secrets):
    a.store("advisories", "Kept.", tags=["spam", "junk"], concepts=["trash", "rubbish"], categories=["Bin/New", "Heap"])
    before = dump()
    done = [
        a.curate("merge", kind="tag", source="junk", target="spam"),
        a.curate("alias", kind="tag", term="spam", add=["roadmap"]),
        a.curate("edit", kind="concept", term="trash", description="What nobody wants."),
        a.curate("merge", kind="concept", source="rubbish", target="trash"),
        a.curate("move", category="Bin/New", parent="Heap"),
        a.curate("rename", kind="category", term="Heap", name="Pile"),
    ]
    assert LocalText.objects.filter(project_ids=[Project.objects.get(slug="advisories").pk]).count() == 8
    assert not TagAlias.objects.exists()
    assert names(a.store("advisories", "Again.", categories=["Bin/New", "Heap"]))["categories"] == ["pile", "pile/new"]
    for one in reversed(done):
        a.send("post", f"/curation/{one['curation']['id']}/undo")
    after = dump()
    assert {name: rows for name, rows in after.items() if name in ("categories_localtext", "categories_category")} == {
        name: rows for name, rows in before.items() if name in ("categories_localtext", "categories_category")
    }


def test_a_key_that_only_writes_uses_the_names_of_its_project(a, b, secrets, client, curator):
    writer = Key(client, "writer", ["keps"], curator, scopes=["write"])
    writer.store("keps", "By the writer.", tags=["oldtag"])
    assert b.get("/search?tag=acquisition-of-acme").json()["total"] == 2


def test_other_names_of_a_category_are_read_in_the_projects_of_their_curator_alone(a, b, everyone):
    a.store("advisories", "In both.", categories=["Shared"])
    b.store("keps", "In both.", categories=["Shared"])
    b.curate("alias", kind="category", term="shared", add=["Merger Plan"])
    for one, is_read in ((a, False), (b, True), (everyone, True)):
        for path in (
            "/categories",
            "/categories/shared",
            "/facets/category?search=merger",
            "/search?q=merger&unified=1",
        ):
            assert ("merger plan" in one.get(path).content.decode().lower()) <= is_read, path
    assert "Merger Plan" in b.get("/categories/shared").content.decode()


def test_an_alias_by_who_sees_all_acts_in_the_projects_that_had_the_term_and_for_who_sees_all(a, b, everyone):
    b.store("keps", "Two.", tags=["kubernetes"], concepts=["orchestration"])
    everyone.curate("alias", kind="tag", term="kubernetes", add=["k8s"])
    everyone.curate("alias", kind="concept", term="orchestration", add=["orch"])
    assert names(a.store("advisories", "One.", tags=["k8s"], concepts=["orch"]))["concepts"] == ["orch"]
    assert names(b.store("keps", "Three.", tags=["k8s"], concepts=["orch"]))["concepts"] == ["orchestration"]
    assert b.get("/search?tag=k8s").json()["total"] == 2
    assert a.get("/search?tag=k8s").json()["total"] == 1
    # Not even once the project has the term.
    a.store("advisories", "Four.", tags=["kubernetes"])
    assert a.store("advisories", "Five.", tags=["k8s"])["memory"]["tags"] == ["k8s"]
    assert everyone.store("advisories", "Six.", tags=["k8s"], concepts=["orch"])["memory"]["tags"] == ["kubernetes"]
    # An alias of a term that both have is for both.
    everyone.curate("alias", kind="tag", term="kubernetes", add=["kube"])
    assert a.store("advisories", "Seven.", tags=["kube"])["memory"]["tags"] == ["kubernetes"]
    assert a.get("/tags?search=kubernetes").json()["tags"][0]["aliases"] == ["kube"]


def found(key, words):
    """The titles of the terms that a search finds."""
    reply = key.get(f"/search?q={words}&mode=unified").json()
    return [hit["title"] for hit in reply["results"] if hit["kind"] == "entity"]


WORDS = ("acme", "Merger", "Realname", "Will be bought", "The Target", "Jobs")


@pytest.fixture
def texts_by_all(b, everyone):
    """Texts on terms of the second project, by a curator of all projects."""
    theirs = {"categories": ["bsecret/deep-name"], "concepts": ["layoffs"], "tags": ["oldtag"]}
    b.store("keps", "A secret.", **theirs, entities=["org:Victim Corp", "person:Bobby"])
    everyone.curate("edit", kind="entity", term="org:Victim Corp", description="Will be bought in May.")
    everyone.curate("alias", kind="entity", term="org:Victim Corp", add=["The Target"])
    everyone.curate("rename", kind="entity", term="person:Bobby", name="Bob Realname")
    everyone.curate("rename", kind="tag", term="oldtag", name="acquisition-of-acme")
    everyone.curate("rename", kind="category", term="bsecret/deep-name", name="Merger Plan")
    everyone.curate("edit", kind="category", term="bsecret", description="The Merger of Acme.")
    everyone.curate("alias", kind="category", term="bsecret", add=["dn"])
    everyone.curate("rename", kind="concept", term="layoffs", name="BConcept Proper")
    everyone.curate("edit", kind="concept", term="BConcept Proper", description="Jobs will be cut.")


@pytest.fixture
def reader(projects):
    """A client of the pages, signed in as a curator of the first project."""
    ann = User.objects.create_user("ann")
    Membership.objects.create(user=ann, project=projects[0], role=Membership.Role.CURATOR)
    pages = Client()
    pages.force_login(ann)
    return pages


# Former and present names of the second project's terms.
GUESSED = {
    "tags": ["oldtag"],
    "categories": ["bsecret", "dn", "bsecret/deep-name"],
    "concepts": ["layoffs", "bconcept proper"],
    "entities": ["person:Bobby", "org:Victim Corp"],
}


def test_who_guesses_a_name_learns_no_text_by_a_curator_of_all_projects(a, b, everyone, reader, texts_by_all):
    stored = a.store("advisories", "A guess.", **GUESSED)
    assert names(stored) == {
        "tags": ["oldtag"],
        "categories": ["bsecret", "bsecret/deep-name", "dn"],
        "concepts": ["BConcept Proper", "layoffs"],
        "entities": ["org:Victim Corp", "person:Bobby"],
    }
    for path in ("entities/org:Victim%20Corp", "concepts/BConcept%20Proper", "categories/bsecret"):
        seen = a.get(f"/{path}").json()
        seen = seen.get("category", seen)
        assert (seen["description"], seen["aliases"]) == ("", []), path
    (corp,) = Entity.objects.filter(name="Victim Corp").values_list("pk", flat=True)
    (proper,) = Concept.objects.filter(name="BConcept Proper").values_list("pk", flat=True)
    (secret,) = Category.objects.filter(path="bsecret").values_list("pk", flat=True)
    viewer = Viewer(frozenset([Project.objects.get(slug="advisories").pk]), frozenset(SCOPES))
    paths = (
        *("/entities/org:Victim%20Corp", "/concepts/layoffs", "/concepts/bconcept%20proper", "/tags", "/entities"),
        *("/concepts", "/categories", "/categories/bsecret", "/categories/bsecret%2Fdeep-name", "/suggestions"),
        *("/search?q=bought&mode=unified", "/search?q=Victim&mode=unified", "/search?q=merger&mode=unified"),
        *("/search?entity=Target&include_facets=true", "/entities?search=arget", "/export"),
    )
    pages = (
        *("/graph/entity/org:Victim%20Corp/", "/categories/bsecret/", "/explore/?q=bought&mode=unified"),
        *(f"/curate/entity/{corp}/", f"/curate/concept/{proper}/", f"/curate/category/{secret}/"),
    )
    calls = {
        "about": {"entity": "org:Victim Corp"},
        "category_search": {"category": "bsecret"},
        "list_categories": {"include_hierarchy": True},
        "search": {"query": "bought in May"},
    }
    answers = {path: b"".join(a.get(path)).decode() for path in paths}
    answers |= {path: b"".join(reader.get(path)).decode() for path in pages}
    answers |= {name: call(TOOL[name], arguments, viewer) for name, arguments in calls.items()}
    for path, answer in answers.items():
        told = [word for word in WORDS if word in answer and word not in path]
        assert told == [], path
    assert a.get("/entities/org:The%20Target").status_code == 404
    assert (found(a, "bought"), found(a, "Victim Corp")) == ([], ["Victim Corp"])
    for one in (b, everyone):
        seen = one.get("/entities/org:Victim%20Corp").json()
        assert (seen["description"], seen["aliases"]) == ("Will be bought in May.", ["The Target"])
        assert found(one, "bought") == ["Victim Corp"]
        assert one.get("/categories/bsecret").json()["category"]["description"] == "The Merger of Acme."
    assert [one.get("/search?entity=The+Target").json()["total"] for one in (b, everyone)] == [1, 2]
    assert b.get("/search?category=dn&tag=oldtag").json()["total"] == 1


def test_who_curates_a_guessed_term_learns_nothing_of_its_texts_either(a, everyone, texts_by_all):
    a.store("advisories", "A guess.", **GUESSED)
    # Neither by what is refused, nor by what changes.
    plans = [
        a.curate("alias", kind="entity", term="org:Victim Corp", add=[name], dry_run=True)["plan"]
        for name in ("The Target", "Another")
    ]
    assert [plan["refusals"] for plan in plans] == [[], []]
    removed = [
        a.curate("alias", kind="entity", term="org:Victim Corp", remove=[name], dry_run=True)["plan"]["refusals"]
        for name in ("The Target", "Another")
    ]
    assert removed == [[f"“{name}” is not one of its aliases."] for name in ("The Target", "Another")]
    described = {"kind": "entity", "term": "org:Victim Corp", "description": "Will be bought in May."}
    plan = a.curate("edit", **described, dry_run=True)["plan"]
    assert [(line["before"], line["after"]) for line in plan["lines"]] == [("", "Will be bought in May.")]
    a.curate("alias", kind="entity", term="org:Victim Corp", add=["The Target"])
    assert a.get("/entities/org:Victim%20Corp").json()["aliases"] == ["The Target"]
    assert everyone.get("/entities/org:Victim%20Corp").json()["aliases"] == ["The Target"]


def test_a_merge_keeps_each_text_in_the_projects_that_it_comes_from(a, b, everyone):
    a.store("advisories", "One.", entities=["org:Acme"])
    everyone.curate("edit", kind="entity", term="org:Acme", description="Makes anvils.")
    b.store("keps", "Two.", entities=["org:Victim Corp"])
    everyone.curate("alias", kind="entity", term="org:Victim Corp", add=["The Target"])
    merged = everyone.curate("merge", kind="entity", source="org:Victim Corp", target="org:Acme")
    shown = {one: one.get("/entities/org:Acme").json() for one in (a, b, everyone)}
    assert {one: (seen["description"], seen["aliases"]) for one, seen in shown.items()} == {
        a: ("Makes anvils.", []),
        b: ("", ["Victim Corp", "The Target"]),
        everyone: ("Makes anvils.", ["Victim Corp", "The Target"]),
    }
    assert [found(one, "anvils") for one in (a, b, everyone)] == [["Acme"], [], ["Acme"]]
    assert names(b.store("keps", "Three.", entities=["org:The Target"]))["entities"] == ["org:Acme"]
    # A text that is written now is for both.
    edited = everyone.curate("edit", kind="entity", term="org:Acme", description="Makes rockets.")
    assert [one.get("/entities/org:Acme").json()["description"] for one in (a, b)] == ["Makes rockets."] * 2
    for done in (edited, merged):
        everyone.send("post", f"/curation/{done['curation']['id']}/undo")
    assert a.get("/entities/org:Acme").json()["description"] == "Makes anvils."
    assert b.get("/entities/org:Victim%20Corp").json()["aliases"] == ["The Target"]


def test_texts_of_terms_that_nobody_uses_and_imported_ones_are_public(a, b, everyone, tmp_path):
    everyone.curate("create", kind="concept", name="layoffs", description="Public.")
    path = tmp_path / "terms.jsonl"
    path.write_text(json.dumps({"record": "concept", "name": "heat", "description": "How hot.", "aliases": ["warmth"]}))
    call_command("import_memories", str(path), verbosity=0)
    assert names(a.store("advisories", "One.", concepts=["layoffs", "heat"]))["concepts"] == ["heat", "layoffs"]
    assert names(a.store("advisories", "Two.", concepts=["warmth"]))["concepts"] == ["heat"]
    assert [a.get(f"/concepts/{name}").json()["description"] for name in ("layoffs", "heat")] == ["Public.", "How hot."]
    # A new term with memories is of their projects.
    memory = b.store("keps", "A secret.")["id"]
    everyone.curate("create", kind="concept", name="merger", description="In May.", memories=[memory])
    a.store("advisories", "A guess.", concepts=["merger"])
    assert [one.get("/concepts/merger").json()["description"] for one in (a, b)] == ["", "In May."]


def test_an_upgraded_site_keeps_its_texts_in_the_projects_that_use_their_terms(a, b, everyone, texts_by_all):
    before = dump()
    for model in (Category, Concept, Entity):
        model.objects.update(alias_projects=None, description_projects=None)
    for model in (FormerPath, TagAlias):
        model.objects.update(project_ids=None)
    import_module("categories.migrations.0006_projects_of_present_texts").record_present_use(
        None, SimpleNamespace(connection=connection)
    )
    assert dump() == before


def test_a_memory_adds_at_most_fifty_names_that_its_writer_does_not_see(a, b):
    b.store("keps", "Theirs.", concepts=[f"hidden {number}" for number in range(10)])
    a.store("advisories", "Ours.", tags=["known"])
    paths = {"categories": [f"root{number}/a/b" for number in range(16)]}
    few = {"project": "advisories", "content": "Few.", **paths, "tags": ["known", "new"], "concepts": ["hidden 1"]}
    rows = Category.objects.count()
    too_many = (
        {"tags": ["1", "2", "3"]},
        {"concepts": ["hidden 1", "hidden 2", "hidden 3"]},
        {"categories": [f"x{number}/y" for number in range(26)]},
    )
    for more in too_many:
        status, error = a.refused("/memories", **(few | more))
        assert (status, error["error"]) == (422, "too_many_new_names")
        assert error["detail"] == "More than 50 of its tags, categories, concepts and entities would be new."
    assert Category.objects.count() == rows
    stored = a.send("post", "/memories", **few)
    a.send("patch", f"/memories/{stored['id']}", **paths, concepts=[f"own {number}" for number in range(49)])


def test_names_that_may_be_taken_elsewhere_are_tried_a_limited_number_of_times(a, b, monkeypatch):
    monkeypatch.setattr("curation.services._NAMES_AN_HOUR", 2)
    b.store("keps", "Theirs.", concepts=["layoffs"])
    a.store("advisories", "Ours.", concepts=["mine"], tags=["own"])
    asked = {"kind": "concept", "term": "mine", "dry_run": True}
    taken = a.curate("rename", **asked, name="layoffs")["plan"]["refusals"]
    assert taken == ["“layoffs” is the name of another concept: merge the two instead."]
    a.curate("rename", **asked, name="free")
    status, error = a.refused("/curation/rename", **asked, name="another")
    assert (status, error["error"]) == (429, "too_many_names_tried")
    a.curate("rename", kind="tag", term="own", name="another", dry_run=True)


def test_names_of_others_do_not_replace_similar_names_that_are_suggested(a, b):
    a.store("advisories", "Ours.", concepts=["kettle of tea"], categories=["Kettle of tea"])
    b.store(
        "keps", "Theirs.", concepts=[f"kettle {n}" for n in range(15)], categories=[f"kettle {n}" for n in range(15)]
    )
    assert a.get("/concepts/kettle").json()["did_you_mean"] == ["kettle of tea"]
    (warning,) = a.get("/search?category=kettle").json()["warnings"]
    assert warning["did_you_mean"] == ["kettle-of-tea"]

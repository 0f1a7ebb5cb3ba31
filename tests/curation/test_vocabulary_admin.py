"""The admin of the vocabulary: texts and aliases are edited through services; names and paths are not."""

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse

from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from categories.models import Category, Concept, Entity, LocalText, Relationship
from categories.queries import resolve_categories
from curation.text_edits import EditRefusedError, term_describe
from memories.models import Corpus, Memory, Project

pytestmark = pytest.mark.django_db


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


@pytest.fixture
def kitchen():
    return Category.objects.create(name="Kitchen", path="kitchen")


def page_of(row):
    return reverse(f"admin:categories_{row._meta.model_name}_change", args=[row.pk])


def revision():
    return Corpus.objects.get().revision


def test_description_and_aliases_are_saved_audited_and_seen(curator, kitchen):
    before = revision()
    response = curator.post(page_of(kitchen), {"description": " Where we cook. ", "aliases": "Küche\r\nGalley\r\n"})
    assert response.status_code == 302
    kitchen.refresh_from_db()
    assert (kitchen.description, kitchen.aliases) == ("Where we cook.", ["Küche", "Galley"])
    event = AuditEvent.objects.get()
    assert (event.verb, event.door, event.subject_type, event.subject_id) == (
        "category_describe",
        "admin",
        "category",
        kitchen.pk,
    )
    assert event.user.username == "curator"
    assert event.before == {"description": "", "aliases": []}
    assert event.after == {"description": "Where we cook.", "aliases": ["Küche", "Galley"]}
    assert revision() == before + 1
    assert [node.path for node in resolve_categories(["galley"], None)["galley"]] == ["kitchen"]


def test_saving_without_a_change_leaves_no_trace(curator, kitchen):
    before = revision()
    assert curator.post(page_of(kitchen), {"description": "", "aliases": ""}).status_code == 302
    assert not AuditEvent.objects.exists()
    assert revision() == before


def test_name_and_place_are_not_edited(curator, kitchen):
    curator.post(page_of(kitchen), {"description": "x", "aliases": "", "name": "Galley", "path": "galley", "depth": 7})
    kitchen.refresh_from_db()
    assert (kitchen.name, kitchen.path, kitchen.depth) == ("Kitchen", "kitchen", 1)
    assert curator.get(reverse("admin:categories_category_add")).status_code == 403
    assert curator.post(reverse("admin:categories_category_delete", args=[kitchen.pk])).status_code == 403


def test_aliases_are_cleaned_and_kept_once():
    concept = Concept.objects.create(name="Backoff")
    term_describe(
        term=concept,
        description="",
        aliases=["  retry   delay ", "Retry Delay", "BACKOFF", ""],
        viewer=command_viewer(),
    )
    assert concept.aliases == ["retry delay"]


def test_alias_that_is_the_name_of_another_is_an_error_of_the_form(curator):
    Concept.objects.create(name="Jitter")
    backoff = Concept.objects.create(name="Backoff")
    response = curator.post(page_of(backoff), {"description": "kept", "aliases": "jitter"})
    assert response.status_code == 200
    assert "“Jitter” is already the name of" in response.context["adminform"].form.errors["aliases"][0]
    backoff.refresh_from_db()
    assert (backoff.description, backoff.aliases) == ("", [])
    assert not AuditEvent.objects.exists()


def test_alias_may_be_the_name_of_another_type_of_thing():
    Entity.objects.create(name="Mio", entity_type="boat")
    person = Entity.objects.create(name="Mio Tanaka", entity_type="person")
    term_describe(term=person, description="", aliases=["Mio"], viewer=command_viewer())
    assert person.aliases == ["Mio"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"aliases": ["x" * 501]}, "up to 500 characters", id="long alias"),
        pytest.param({"aliases": [str(n) for n in range(1_001)]}, "at most 1,000", id="many aliases"),
        pytest.param({"description": "a\x00b"}, "NUL", id="NUL"),
        pytest.param({"aliases": ["\ud800"]}, "lone surrogate", id="half a character"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_words(kitchen, changes, message):
    with pytest.raises(EditRefusedError, match=message):
        term_describe(term=kitchen, **{"description": "", "aliases": [], **changes}, viewer=command_viewer())


def test_editing_needs_the_scope_to_curate(kitchen):
    reader = Viewer(None, frozenset({"read", "write"}), None)
    with pytest.raises(EditRefusedError, match="Only curators"):
        term_describe(term=kitchen, description="x", aliases=[], viewer=reader)


def test_fact_of_a_relationship_is_edited_and_its_ends_are_not(curator):
    ada, crane = (Entity.objects.create(name=name, entity_type="thing") for name in ("Ada", "crane"))
    relation = Relationship.objects.create(source=ada, relationship_type="repairs", target=crane)
    page = page_of(relation)
    assert curator.post(page, {"fact": "Since 2024.", "confidence": "0.9", "source": crane.pk}).status_code == 302
    relation.refresh_from_db()
    assert (relation.fact, relation.confidence, relation.source) == ("Since 2024.", 0.9, ada)
    assert AuditEvent.objects.get().verb == "relationship_describe"
    refused = curator.post(page, {"fact": "Since 2024.", "confidence": "3"})
    assert "from 0 to 1" in refused.context["adminform"].form.errors["confidence"][0]


@pytest.fixture
def member(client):
    """A curator of one project, with permission for the pages of the vocabulary."""
    member = User.objects.create_user("member", is_staff=True)
    member.user_permissions.set(_vocabulary_permissions())
    mine, theirs = (Project.objects.create(slug=slug, name=slug) for slug in ("mine", "theirs"))
    member.memberships.create(project=mine, role="curator")
    client.force_login(member)
    names = ["ours", "their secret", "of both"]
    own, other, both = (Concept.objects.create(name=name, concept_type="x") for name in names)
    Concept.objects.filter(pk=own.pk).update(related_ids=[other.pk, both.pk])
    Memory.objects.create(id=1, project=mine, title="x", content="x", concept_ids=[own.pk, both.pk])
    Memory.objects.create(id=2, project=theirs, title="x", content="x", concept_ids=[other.pk, both.pk])
    return client


def test_names_are_of_what_the_visitor_may_see(member):
    own, other = (Concept.objects.get(name=name) for name in ("ours", "their secret"))
    source, target = (Entity.objects.create(name=name, entity_type="x") for name in ("a", "b"))
    facts = [
        Relationship.objects.create(source=source, relationship_type=kind, target=target, evidence_ids=[memory])
        for kind, memory in (("our-fact", 1), ("their-fact", 2))
    ]
    listed = member.get("/admin/categories/concept/").text
    assert "of both" in listed
    assert "their secret" not in listed
    assert "their secret" not in member.get(page_of(own)).text
    assert member.get(page_of(other)).status_code == 302
    assert "their-fact" not in member.get("/admin/categories/relationship/").text
    assert [member.get(page_of(fact)).status_code for fact in facts] == [200, 302]


def test_what_others_use_is_not_edited_by_who_curates_one_project(member):
    own, both = (Concept.objects.get(name=name) for name in ("ours", "of both"))
    page = member.post(page_of(both), {"description": "Mine now.", "aliases": ""}).text
    assert "Memories that you cannot write also use it" in page
    assert member.post(page_of(own), {"description": "Ours.", "aliases": "our own"}).status_code == 302
    # It holds in their project alone.
    assert set(Concept.objects.values_list("description", flat=True)) == {""}
    mine = [Project.objects.get(slug="mine").pk]
    texts = LocalText.objects.order_by("text").values_list("term_id", "role", "text", "project_ids")
    assert list(texts) == [(own.pk, "description", "Ours.", mine), (own.pk, "alias", "our own", mine)]
    page = member.get(page_of(own)).text
    assert "Ours." in page
    assert "our own" in page


def _vocabulary_permissions():
    return Permission.objects.filter(content_type__app_label="categories")

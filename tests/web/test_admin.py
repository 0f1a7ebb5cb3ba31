"""All pages of the admin: every model is there, and no list runs a query for each row."""

from importlib import import_module

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.db.models import CompositePrimaryKey
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from access.models import (
    ApiKey,
    AppGrant,
    AuditEvent,
    IdempotentReply,
    Invitation,
    Membership,
    MemoryChange,
    SignInToken,
)
from categories.models import (
    Category,
    CategoryLink,
    Concept,
    ConceptLink,
    Entity,
    EntityLink,
    FormerPath,
    LocalText,
    Relationship,
    TagAlias,
)
from curation.models import Curation, CurationChange
from curation.suggestions.models import Suggestion, SuggestionPolicy
from memories.models import (
    Corpus,
    EmbeddingModel,
    FollowedSource,
    ImportBatch,
    MapLayout,
    Memory,
    MemoryMark,
    MemoryRead,
    OutboxEntry,
    Project,
    Recall,
    Session,
    SourceConflict,
    VectorChange,
)
from search.models import SavedView, ViewFeed, ViewMark
from web.admin import CurationAdmin

pytestmark = pytest.mark.django_db
OURS = [
    model for app in ("memories", "categories", "access", "search") for model in apps.get_app_config(app).get_models()
]
# Changes not yet applied to the index: `manage.py index` shows their number. The feed of changes repeats the audit
# trail, stored replies are for those who asked, and recalls are on the page of their memory. Reads have a
# page of their own, and marks are decided in the queue.
PASSING = {OutboxEntry, VectorChange, MemoryChange, IdempotentReply, Recall, MemoryMark, MemoryRead}
LISTED = [m for m in OURS if not isinstance(m._meta.pk, CompositePrimaryKey) and m not in PASSING]


@pytest.fixture(autouse=True)
def _registered():
    """The pages of the admin are registered with the addresses of the site."""
    import_module(settings.ROOT_URLCONF)


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


def fill(start, end):
    """Rows of every model, each with relations of its own."""
    for n in range(start, end):
        now = timezone.now()
        batch = ImportBatch.objects.create(origin=f"file-{n}", format="jsonl")
        project = Project.objects.create(slug=f"project-{n}", name=f"Project {n}", batch=batch)
        session = Session.objects.create(project=project, external_id=f"session-{n}", agent="claude", batch=batch)
        memory = Memory.objects.create(
            id=n + 1, project=project, session=session, batch=batch, title="" if n % 2 else f"Title {n}", content=f"{n}"
        )
        source = FollowedSource.objects.create(path=f"/notes/{n}", format="markdown")
        SourceConflict.objects.create(source=source, memory_id=memory.pk, edit="curator, today")
        EmbeddingModel.objects.create(id=n + 1, name=f"model-{n}", dimensions=384, min_similarity=0.3)
        MapLayout.objects.create(id=n + 1, model_id=1, memories=n)
        category = Category.objects.create(name=f"Category {n}", path=f"category-{n}", batch=batch, aliases=["x"])
        concept = Concept.objects.create(name=f"Concept {n}", batch=batch)
        entity = Entity.objects.create(name=f"Entity {n}", entity_type="thing", batch=batch)
        other = Entity.objects.create(name=f"Other {n}", entity_type="thing", batch=batch)
        CategoryLink.objects.create(memory=memory, category=category)
        ConceptLink.objects.create(memory=memory, concept=concept)
        EntityLink.objects.create(memory=memory, entity=entity)
        Relationship.objects.create(source=entity, relationship_type="uses", target=other, batch=batch)
        user = User.objects.create(username=f"user-{n}")
        Group.objects.create(name=f"group-{n}")
        Membership.objects.create(user=user, project=project)
        key = ApiKey.objects.create(name=f"key-{n}", prefix="mnk_", key_hash=f"{n}", scopes=["read"], created_by=user)
        key.projects.add(project)
        SignInToken.objects.create(user=user, token_hash=f"{n}", expires_at=now)
        Invitation.objects.create(token_hash=f"{n}", role="reader", created_by=user, expires_at=now)
        AppGrant.objects.create(
            key=key,
            client_id=f"app-{n}",
            redirect_uri="http://127.0.0.1/",
            is_redirect_given=True,
            code_hash=f"{n}",
            code_challenge="",
            code_expires_at=now,
        )
        AuditEvent.objects.create(
            user=user, api_key=key, batch=batch, door="api", verb="update", subject_type="memory", subject_id=memory.pk
        )
        curation = Curation.objects.create(verb="merge", kind="tag", title=f"Merged {n}", door="api", user=user)
        CurationChange.objects.create(curation=curation, table="memory", action="tag")
        FormerPath.objects.create(path=f"former-{n}", category=category)
        TagAlias.objects.create(alias=f"alias-{n}", tag=f"tag-{n}")
        LocalText.objects.create(kind="tag", tag=f"tag-{n}", role="alias", text=f"local-{n}", project_ids=[n])
        Suggestion.objects.create(
            kind="category",
            project=project,
            fingerprint=f"{n}",
            subject_id=memory.pk,
            target_id=category.pk,
            proposal={"category": category.pk},
            confidence=0.5,
            reason=f"reason {n}",
        )
        SuggestionPolicy.objects.create(project=project, category_from=0.9)
        view = SavedView.objects.create(owner=user, slug=f"view-{n}", name=f"View {n}")
        ViewMark.objects.create(user=user, view=view, pinned=True)
        ViewFeed.objects.create(user=user, view=view, token_hash=f"{n}")


def test_every_model_is_in_the_admin_but_those_it_cannot_take():
    assert set(LISTED) <= set(admin.site._registry)
    composite = {model.__name__ for model in OURS if model not in LISTED}
    assert composite == {
        "Chunk",
        "EmbeddedMemory",
        "MemoryLink",
        "CategoryLink",
        "ConceptLink",
        "EntityLink",
        "EntityVector",
        "ConceptVector",
        "CategoryVector",
        "OutboxEntry",
        "MemoryChange",
        "IdempotentReply",
        "VectorChange",
        "RelationshipVector",
        "MapPlace",
        "Recall",
        "RecallDay",
        "MemoryMark",
        "MemoryRead",
        "FollowedRecord",
    }


@pytest.mark.parametrize("model", [pytest.param(model, id=model.__name__) for model in [*LISTED, User, Group]])
def test_list_asks_no_query_per_row(curator, model):
    address = _list_of(model)
    curator.get(address)
    fill(0, 1)
    few = queries_of(curator, address)
    fill(1, 20)
    many = queries_of(curator, address)
    assert few == many
    assert few <= MOST.get(model, 7)


# Session and user of the request, the rows, and for each filter over a column its values. More than the seven of most:
MOST = {
    AuditEvent: 10,
    Curation: 8,
    CurationChange: 8,
    Memory: 12,
    ApiKey: 7,
    ImportBatch: 8,
    User: 7,
    Membership: 7,
    Session: 8,
}


@pytest.mark.parametrize("model", [pytest.param(model, id=model.__name__) for model in LISTED])
def test_list_searches_and_filters(curator, model):
    fill(0, 3)
    page = admin.site._registry[model]
    assert isinstance(page, CurationAdmin)
    assert not page.show_full_result_count
    assert page.show_facets is admin.ShowFacets.ALLOW
    assert curator.get(_list_of(model), {"_facets": "True"}).status_code == 200
    if model is not Corpus:
        assert page.search_fields
        response = curator.get(_list_of(model), {"q": "no such thing"})
        assert (response.status_code, response.context["cl"].result_count) == (200, 0)


@pytest.mark.parametrize("model", [pytest.param(model, id=model.__name__) for model in LISTED])
def test_page_of_a_row_opens(curator, model):
    fill(0, 2)
    row = model.objects.first()
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[row.pk])
    assert curator.get(address).status_code == 200


@pytest.mark.parametrize("model", [AuditEvent, ImportBatch, SignInToken, Session, Corpus], ids=lambda m: m.__name__)
def test_what_happened_is_shown_and_not_edited(curator, model):
    fill(0, 1)
    row = model.objects.first()
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert curator.post(reverse(f"{name}_change", args=[row.pk]), {"origin": "other"}).status_code == 403
    assert curator.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    assert curator.get(reverse(f"{name}_add")).status_code == 403


@pytest.mark.parametrize(
    "model", [AuditEvent, ImportBatch, SignInToken, Corpus, ApiKey, Membership], ids=lambda m: m.__name__
)
def test_what_tells_of_every_project_is_for_superusers(client, model):
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(_permissions(model))
    client.force_login(staff)
    assert client.get(_list_of(model)).status_code == 403


def test_site_says_what_it_is(curator):
    page = curator.get("/admin/").text
    assert "Mnemoscope" in page
    assert "Django administration" not in page


def _permissions(model):
    return Permission.objects.filter(content_type__app_label=model._meta.app_label)


def _list_of(model):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def queries_of(client, address):
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    return len(queries)

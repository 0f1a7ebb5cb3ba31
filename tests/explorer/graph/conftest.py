import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import Viewer, command_viewer
from categories.models import Concept, Entity, Relationship
from memories.models import Memory, Project
from tests.database import fill
from tests.unified_corpus import bring_in_mill


@pytest.fixture
def mill(db, tmp_path):
    """Memories, entities and relationships of a mill and a vault, with links between both.

    In the mill the wheel is named with the axle and with Osk; the vault names the wheel with Quill.
    """
    fill("mill", lambda: bring_in_mill(tmp_path))
    evidence = {name: Memory.objects.get(external_id=name).pk for name in ("v1", "v2")}
    for source, kind, target, name in (("Brotlade", "pays", "Quill", "v1"), ("Quill", "opens", "sluice", "v2")):
        Relationship.objects.create(
            source=Entity.objects.get(name=source),
            relationship_type=kind,
            target=Entity.objects.get(name=target),
            evidence_ids=[evidence[name]],
        )


@pytest.fixture
def everyone():
    return command_viewer()


@pytest.fixture
def miller(mill):
    """A viewer of the mill but not of the vault."""
    return Viewer(frozenset([Project.objects.get(slug="mill").pk]), frozenset(["read"]))


@pytest.fixture
def reader(mill):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


@pytest.fixture
def neighbour(mill):
    """A signed-in user who may see the mill but not the vault."""
    user = User.objects.create_user("miller")
    Membership.objects.create(user=user, project=Project.objects.get(slug="mill"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def caller(mill):
    raw = make_key(name="all", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture
def mill_caller(mill):
    project = Project.objects.get(slug="mill")
    raw = make_key(name="mill", scopes=["read"], projects=[project], viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture
def concepts(mill):
    """A chain of three concepts of the mill, and one of the vault only."""
    power, water, flow, secrecy = (Concept.objects.create(name=name) for name in ("power", "water", "flow", "secrecy"))
    for narrower, broader in ((water, power), (flow, water), (secrecy, power)):
        narrower.broader_ids.append(broader.pk)
        broader.narrower_ids.append(narrower.pk)
    for concept in (power, water, flow, secrecy):
        concept.save()
    for name, about in (("m1", [power, water]), ("m3", [water, flow]), ("v1", [power, secrecy])):
        Memory.objects.filter(external_id=name).update(concept_ids=[concept.pk for concept in about])

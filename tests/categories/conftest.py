"""The hand-written memories under every engine, as searches are tested over them."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import Viewer, command_viewer
from memories.models import Project
from tests.search.conftest import corpus, engine, everyone, index  # noqa: F401 - fixtures are known by their names


@pytest.fixture
def of_tea(corpus):  # noqa: F811 - the fixture is asked for by its name
    """A viewer who may see the tea house alone."""
    return Viewer(frozenset([Project.objects.get(slug="tea").pk]), frozenset(["read"]))


@pytest.fixture
def caller(db):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture
def reader(db):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client

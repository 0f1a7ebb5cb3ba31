"""Viewers and folders for tests of memories."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from memories.models import Project


@pytest.fixture
def tea(db):
    return Project.objects.create(slug="tea", name="Tea house")


@pytest.fixture
def reader(db):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client

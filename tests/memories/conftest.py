"""Who reads, and where memories are put."""

import json

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


@pytest.fixture
def jsonl(tmp_path):
    def write_lines(*lines, name="memories.jsonl"):
        path = tmp_path / name
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    return write_lines

"""A small vocabulary with everything that operations update, and snapshots of the database to compare."""

import pytest
from django.db import connection

from access.viewer import Viewer, command_viewer
from memories.models import Memory, Project
from tests.corpus import RECORDS, bring_in
from tests.database import fill

MORE = [
    {"record": "concept", "name": "heat", "narrower": ["temperature", "boiling"], "related": ["safety"]},
    {"record": "concept", "name": "temperature", "aliases": ["warmth"], "description": "How hot it is."},
    {"record": "category", "path": "Kitchen", "related": ["Guests"], "description": "Where we cook."},
    {"record": "relationship", "source": "person:Mio", "type": "owns", "target": "tool:kettle", "evidence": ["t1"]},
    {"record": "relationship", "source": "person:Ada", "type": "owns", "target": "tool:kettle", "fact": "Ada's kettle"},
    {"record": "relationship", "source": "person:Ada", "type": "knows", "target": "person:Mio", "evidence": ["b1"]},
    {"record": "relationship", "source": "person:Mio", "type": "knows", "target": "person:Ada", "evidence": ["t2"]},
]
# Tables that a curation may change, without the audit trail, its own log, the outbox and the revision.
TABLES = (
    "memories_memory",
    "memories_project",
    "memories_memorylink",
    "categories_category",
    "categories_categorylink",
    "categories_concept",
    "categories_conceptlink",
    "categories_entity",
    "categories_entitylink",
    "categories_relationship",
    "categories_entityvector",
    "categories_relationshipvector",
    "categories_formerpath",
    "categories_tagalias",
    "categories_localtext",
)


@pytest.fixture
def corpus(db, tmp_path):
    fill("memories and more", lambda: bring_in(tmp_path, [*RECORDS, *MORE]))


@pytest.fixture
def curator():
    """A curator of all projects."""
    return command_viewer()


@pytest.fixture
def tea_curator(corpus):
    """A curator of the tea house, who sees no other project."""
    tea = frozenset([Project.objects.get(slug="tea").pk])
    return Viewer(tea, frozenset(["read", "write", "curate"]), tea)


def dump():
    """Every row of the tables, whole."""
    rows = {table: [] for table in TABLES}
    selects = (f"SELECT '{table}', to_jsonb(own)::text FROM {table} own" for table in TABLES)
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(selects) + " ORDER BY 1, 2")
        for table, row in cursor.fetchall():
            rows[table].append(row)
    return rows


def number(external_id):
    """The number of a memory of the corpus."""
    return Memory.objects.get(external_id=external_id).pk


def tags(external_id):
    return Memory.objects.get(external_id=external_id).tags

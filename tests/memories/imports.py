"""Helpers for tests of imports: records, the command, and counts."""

import io

import pytest
from django.core.management import CommandError, call_command

from access.viewer import command_viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, Relationship
from memories.models import Chunk, ImportBatch, Memory, MemoryLink, Project, Session

CONTENT_TABLES = (
    Memory,
    MemoryLink,
    Chunk,
    Project,
    Session,
    Category,
    CategoryLink,
    Concept,
    ConceptLink,
    Entity,
    EntityLink,
    Relationship,
)
EVERYTHING = command_viewer()


def run(*args, **options):
    out = io.StringIO()
    call_command("import_memories", *map(str, args), stdout=out, **options)
    return out.getvalue()


def failing(*args, **options):
    with pytest.raises(CommandError) as caught:
        run(*args, **options)
    return str(caught.value)


def counts():
    return {model.__name__: model.objects.count() for model in CONTENT_TABLES}


def last_batch():
    return ImportBatch.objects.latest("id")


def batch_counts(batch):
    return (batch.read, batch.created, batch.updated, batch.unchanged, batch.refused)


def link_targets(**filters):
    """Relationship, written target and external id of the linked memory of links; a cluster joins no two memories."""
    names = dict(Memory.objects.values_list("pk", "external_id"))
    links = MemoryLink.objects.filter(**filters).values_list("rel", "target", "target_memory_id")
    return sorted((rel, target, names.get(memory_id)) for rel, target, memory_id in links)


def memories(count, **fields):
    return [
        {"id": f"m{n}", "project": "alpha", "content": f"Memory number {n}.", "tags": [f"t{n % 7}"], **fields}
        for n in range(count)
    ]


VOCABULARY = [
    {"record": "project", "slug": "alpha", "name": "Alpha", "description": "The first.", "language": "german"},
    {"record": "category", "path": "Data/Redis", "aliases": ["cache"], "description": "Fast.", "related": ["Ops"]},
    {"record": "concept", "name": "caching", "aliases": ["memoisation"], "broader": ["speed"], "weight": 0.5},
    {"record": "entity", "name": "Ann Lee", "type": "person", "aliases": ["Ann"]},
    {
        "record": "relationship",
        "source": {"name": "Ann", "type": "person"},
        "type": "maintains",
        "target": "tool:Redis",
        "fact": "Since 2020.",
        "evidence": ["m1", "gone"],
    },
]
LINKED = [
    {
        "id": "m1",
        "project": "alpha",
        "content": "Zwei Häuser.",
        "categories": ["Cache", "Ops/Night"],
        "concepts": ["Memoisation"],
        "entities": ["person:ann"],
        "links": ["m2"],
        "superseded_by": "m2",
        "session": "s1",
    },
    {"id": "m2", "project": "alpha", "content": "Drei.", "links": [{"rel": "replaces", "target": "m1"}, "later"]},
]

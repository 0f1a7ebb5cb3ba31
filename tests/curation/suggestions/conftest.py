"""A garden and a mill: small memories with obvious neighbours, embedded by a model that counts words."""

import pytest

from access.viewer import Viewer, command_viewer
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.database import fill
from tests.embedding import embed_all
from web.cache import clear_caches

EVERYTHING = command_viewer()

BEDS = [
    ("Carrots in the sandy bed", "Sow carrots in the sandy bed in March and thin the carrots twice."),
    ("Carrots and onions", "Carrots beside onions in the sandy bed keep the carrot fly away."),
    ("Thin the carrots", "Thin carrots in the sandy bed when the carrots are a finger high."),
    ("Carrots need water", "Water carrots in the sandy bed every second day in May."),
    ("Carrot fly", "The carrot fly came to the carrots of the sandy bed again."),
    ("Beds for carrots", "Dig the sandy bed deep, so that carrots grow straight."),
]
TREES = [
    ("Prune the apple trees", "Prune apple trees in February, before the apple buds open."),
    ("Apple trees and frost", "Late frost took the apple buds; the apple trees by the wall kept theirs."),
    ("Graft apple trees", "Graft young apple trees with twigs of the old apple tree."),
    ("Apple harvest", "The apple trees by the wall gave forty baskets of apple."),
    ("Whitewash for trees", "Whitewash keeps apple trees from cracking in frost."),
    ("Apple scab", "Apple scab on the apple trees: rake the apple leaves away."),
]


@pytest.fixture(autouse=True)
def _nothing_read():
    clear_caches()


def remember(project, title, content, **fields):
    fields = {"project": project, "title": title, "content": content, **fields}
    return memory_create(record=MemoryRecord.model_validate(fields), viewer=EVERYTHING)


def member_of(*slugs, scopes=("read", "write", "curate"), **fields):
    ids = frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True))
    return Viewer(ids, frozenset(scopes), ids if "write" in scopes else frozenset(), **fields)


def embedded():
    embed_all()
    clear_caches()


@pytest.fixture
def garden(db):
    """A dozen memories in two categories, and one for each category without any."""
    fill("garden", plant)
    clear_caches()
    return Project.objects.get(slug="garden")


def plant():
    for title, content in BEDS:
        remember("garden", title, content, categories=["Beds/Carrots"])
    for title, content in TREES:
        remember("garden", title, content, categories=["Trees/Apples"])
    remember("garden", "More carrots", "Sow more carrots in the sandy bed in April.", id="bed")
    remember("garden", "An apple tree more", "Plant an apple tree by the wall and prune it in February.", id="tree")
    embedded()


def pk_of(external_id):
    return Memory.objects.get(external_id=external_id).pk

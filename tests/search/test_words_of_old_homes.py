"""A home made by earlier code finds what today's analysis finds."""

from importlib import import_module

import pytest
from django.db import connection

from memories.models import Memory, Project
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import BOTH_ENGINES

pytestmark = BOTH_ENGINES

migration = import_module("memories.migrations.0009_words_in_every_script")


@pytest.mark.parametrize("at_once", [1, 5, 1_000])
def test_memories_are_analysed_again(corpus, everyone, monkeypatch, at_once):
    Project.objects.filter(slug="boat").update(language="german")
    before = dict(Memory.objects.values_list("pk", "terms"))
    Memory.objects.update(terms="'xyzzy':1A")
    monkeypatch.setattr(migration, "_AT_ONCE", at_once)
    with connection.schema_editor() as editor:
        migration.analyse_again(None, editor)
    after = dict(Memory.objects.values_list("pk", "terms"))
    changed = {pk for pk in before if before[pk] != after[pk]}
    assert changed <= set(Memory.objects.filter(project__slug="boat").values_list("pk", flat=True))
    assert "xyzzy" not in " ".join(after.values())
    assert run(SearchQuery(text="kettle valve"), everyone).total


def test_terms_of_the_vocabulary_are_of_this_analysis(corpus, monkeypatch):
    from categories import searched_terms

    assert searched_terms.terms_refresh_all() == 0
    monkeypatch.setattr(searched_terms, "_HASH", searched_terms._HASH.replace("concat(", "concat('later', "))
    assert searched_terms.terms_refresh_all() > 0

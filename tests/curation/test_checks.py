"""Disagreements are reported, and repaired if that needs no decision."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from access.models import AuditEvent
from categories.models import Category, CategoryLink, Concept, LocalText, Relationship
from curation.checks import findings, vocabulary_mend
from memories.models import Memory
from tests.curation.conftest import dump, number

pytestmark = pytest.mark.django_db


def break_columns():
    Memory.objects.filter(external_id="t2").update(category_path_ids=[], concept_ids=[7])


def break_link():
    CategoryLink.objects.filter(memory_id=number("t1")).delete()


def break_path():
    Category.objects.filter(path="yard/dock").update(path="dock", depth=1)


def break_references():
    Concept.objects.filter(name="heat").update(related_ids=[999_999])


def break_self_reference():
    heat = Concept.objects.get(name="heat")
    Concept.objects.filter(pk=heat.pk).update(related_ids=[*heat.related_ids, heat.pk])


def break_evidence():
    Relationship.objects.filter(evidence_ids__contains=[number("t1")]).update(evidence_ids=[number("t1"), 999_999])


def break_tags():
    Memory.objects.filter(external_id="t1").update(tags=["tea", "brewing", "tea"])


def break_local_text():
    LocalText.objects.create(kind="concept", term_id=999_999, role="alias", text="warmth", project_ids=[1])


@pytest.mark.parametrize(
    ("damage", "told", "exactly"),
    [
        pytest.param(break_columns, "is counted under other categories", True, id="facet columns"),
        pytest.param(break_link, "is counted under other categories", False, id="a link gone"),
        pytest.param(break_path, "hangs under yard, which its path does not say", True, id="path"),
        pytest.param(break_references, "names 999999 as related, which is not there", False, id="dangling"),
        pytest.param(break_self_reference, "which is itself", True, id="itself"),
        pytest.param(break_evidence, "refers to memories that do not exist", True, id="evidence"),
        pytest.param(break_tags, "has a tag twice", True, id="tag twice"),
        pytest.param(break_local_text, "local text warmth belongs to the concept #999999", True, id="local text"),
    ],
)
def test_what_is_damaged_is_told_and_mended(corpus, curator, damage, told, exactly):
    assert findings() == []
    before = dump()
    damage()
    assert any(told in finding.text for finding in findings())
    assert vocabulary_mend(viewer=curator) == []
    assert findings() == []
    assert AuditEvent.objects.first().verb == "vocabulary_mend"
    if exactly:
        assert dump() == before


def test_the_command_tells_mends_and_ends_with_what_it_found(corpus, capsys):
    call_command("check_vocabulary")
    assert capsys.readouterr().out == "The vocabulary and the memories agree.\n"
    break_columns()
    with pytest.raises(CommandError) as caught:
        call_command("check_vocabulary")
    assert caught.value.returncode == 1
    assert "2 inconsistencies found" in str(caught.value)
    call_command("check_vocabulary", fix=True)
    assert "Repaired 2 of 2" in capsys.readouterr().out


def test_checking_writes_nothing(corpus, django_assert_num_queries):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id_if_assigned()")
        before = cursor.fetchone()
    findings()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id_if_assigned()")
        assert cursor.fetchone() == before

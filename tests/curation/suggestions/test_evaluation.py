"""The evaluation of suggestions on memories whose known categories are hidden."""

import json

import pytest
from django.core.management import CommandError, call_command

from categories.models import CategoryLink
from curation.suggestions.evaluation import MAJORITY, evaluate
from memories.embedding.models import HashedWords
from tests.curation.suggestions.conftest import embedded, remember

pytestmark = pytest.mark.django_db
USED = "neighbours and centroids"


def test_the_right_category_is_the_first_where_two_subjects_are_apart(garden):
    judgement = evaluate(100, 7, HashedWords())
    used, trivial = judgement.scores[USED]["garden"], judgement.scores[MAJORITY]["garden"]
    assert (used.asked, used.first, used.nothing) == (12, 12, 0)
    # Without the memory itself, the other category is larger, so the most common one is always wrong.
    assert (trivial.first, trivial.in_three) == (0, 12)


def test_a_memory_does_not_vote_for_itself(garden):
    remember("garden", "Slugs", "Slugs ate everything.", categories=["Pests/Slugs"])
    embedded()
    score = evaluate(100, 7, None).scores["neighbours"]["garden"]
    assert (score.asked, score.first, score.in_three) == (13, 12, 12)


def test_the_same_seed_draws_the_same(garden):
    first, second = evaluate(5, 3, None), evaluate(5, 3, None)
    assert first.as_json() == second.as_json()
    assert first.scores[USED]["garden"].asked == 5


def test_nothing_is_changed(garden):
    before = list(CategoryLink.objects.order_by("memory_id").values())
    evaluate(100, 7, None)
    assert list(CategoryLink.objects.order_by("memory_id").values()) == before


def test_the_command_prints_a_table_and_writes_every_figure(garden, tmp_path, capsys):
    out = tmp_path / "judged.json"
    call_command("evaluate_suggestions", memories=12, json=out)
    said = capsys.readouterr().out
    assert f"| garden | **{USED}** | 12 | 100.0% | 100.0% |" in said
    assert json.loads(out.read_text())["scores"][USED]["all"]["first"] == 12


def test_it_says_what_is_missing(db):
    with pytest.raises(CommandError, match="worker --once"):
        call_command("evaluate_suggestions")
    with pytest.raises(CommandError, match="from 1"):
        call_command("evaluate_suggestions", memories=0)

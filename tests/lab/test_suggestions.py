"""The evaluation of suggestions on memories whose known categories are hidden."""

import json

import pytest

from categories.models import CategoryLink
from lab import suggestions
from lab.suggestions import MAJORITY, USED, evaluate
from tests.curation.suggestions.conftest import embedded, garden, remember  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def test_the_right_category_is_the_first_where_two_subjects_are_apart(garden):  # noqa: F811
    before = list(CategoryLink.objects.order_by("memory_id").values())
    scores, _ = evaluate(100, 7)
    used, trivial = scores["garden"][USED], scores["garden"][MAJORITY]
    assert (used["asked"], used["first"], used["none"]) == (12, 12, 0)
    # Without the memory itself, the other category is larger, so the most common one is always wrong.
    assert (trivial["first"], trivial["in_three"]) == (0, 12)
    assert list(CategoryLink.objects.order_by("memory_id").values()) == before


def test_a_memory_does_not_vote_for_itself(garden):  # noqa: F811
    remember("garden", "Slugs", "Slugs ate everything.", categories=["Pests/Slugs"])
    embedded()
    score = evaluate(100, 7)[0]["garden"][USED]
    assert (score["asked"], score["first"], score["in_three"]) == (13, 12, 12)


def test_the_same_seed_draws_the_same_and_every_figure_is_written(garden, tmp_path, capsys, monkeypatch):  # noqa: F811
    assert evaluate(5, 3) == evaluate(5, 3)
    out = tmp_path / "judged.json"
    monkeypatch.setattr("sys.argv", ["suggestions", "--memories", "12", "--json", str(out)])
    suggestions.main()
    assert "100.0%" in capsys.readouterr().out
    assert json.loads(out.read_text())["scores"]["all"][USED]["first"] == 12


def test_it_needs_vectors():
    with pytest.raises(SystemExit, match="worker --once"):
        evaluate(12, 7)

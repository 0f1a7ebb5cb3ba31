"""Which relationships answer a text as a question: its direction and its relation count."""

import pytest

from search.unified.questions import Statement, fits, is_question

FACTS = {
    1: Statement("gateway-a", "service", "depends_on", "asyncpg", "library"),
    2: Statement("tablet app", "app", "syncs_with", "gateway-a", "service"),
    3: Statement("api", "service", "depends_on", "gateway-a", "service"),
    4: Statement("api", "service", "depends_on", "Postgres", "tool"),
    5: Statement("pg-1", "host", "runs", "Postgres", "tool"),
    6: Statement("Aïcha Benali", "person", "leads", "client team", "team"),
    7: Statement("Ngozi Adeyemi", "person", "leads", "backend team", "team"),
    8: Statement("console", "service", "used_by", "support desk", "team"),
    9: Statement("FastAPI", "library", "part-of", "api", "service"),
    10: Statement("runner", "service", "replaced", "Celery", "library"),
    11: Statement("deploy/rollout.sh", "file", "deploys", "api", "service"),
}


def answers(text, language="english"):
    return {pk for pk, fit in fits(text, language, FACTS).items() if fit.is_whole}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("who depends on gateway-a", {3}, id="who"),
        pytest.param("which services depend on the gateway-a?", {3}, id="which, with the type of the answer"),
        pytest.param("what does gateway-a depend on", {1}, id="what does"),
        pytest.param("on what does the gateway-a depend", {1}, id="preposition first"),
        pytest.param("dependencies of gateway-a", {1}, id="dependencies"),
        pytest.param("gateway-a's dependencies", {1}, id="possessive"),
        pytest.param("what is gateway-a a dependency of", {3}, id="dependency of"),
        pytest.param("gateway-a’s dependents", {3}, id="dependents"),
        pytest.param("depends_on Postgres", {4}, id="type with underscore"),
        pytest.param("DEPENDS-ON postgres", {4}, id="type with hyphen, upper case"),
        pytest.param("dependsOn Postgres", {4}, id="type in camel case"),
        pytest.param("depends on Postgres", {4}, id="type with spaces"),
        pytest.param("api depends_on Postgres", {4}, id="a whole fact"),
        pytest.param("api Postgres", {4}, id="both names"),
        pytest.param("Postgres api", {4}, id="both names in the other order"),
        pytest.param("which host runs Postgres", {5}, id="host"),
        pytest.param("who leads the client team", {6}, id="not the other team"),
        pytest.param("client team's leader", {6}, id="leader"),
        pytest.param("who is the client team led by", {6}, id="irregular verb, by at the end"),
        pytest.param("client team leader", {6}, id="leader, last"),
        pytest.param("which team does Aïcha Benali lead", {6}, id="kind of the target"),
        pytest.param("which file deploys the api", {11}, id="relation in a name"),
        pytest.param("who uses the console", {8}, id="passive type"),
        pytest.param("what is used by the support desk", {8}, id="passive type and text"),
        pytest.param("what is part of the api", {9}, id="type with a hyphen"),
        pytest.param("what was Celery replaced by", {10}, id="passive"),
        pytest.param("by what was Celery replaced", {10}, id="passive, by first"),
        pytest.param("Celery was replaced by runner", {10}, id="passive sentence"),
        pytest.param("does Postgres depend on api", set(), id="contrary"),
        pytest.param("what does Celery replace", set(), id="contrary, does"),
        pytest.param("Postgres backups", set(), id="no question"),
        pytest.param("who depends on gateway-a in Bern", set(), id="a word of its own"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_facts_that_answer_a_text(text, expected):
    assert answers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("who depends on gateway-a", [3, 2, 1], id="targets first"),
        pytest.param("who relies on gateway-a", [2, 3, 1], id="unknown verb"),
        pytest.param("what does gateway-a rely on", [1, 2, 3], id="unknown verb, sources first"),
        pytest.param("what is served by gateway-a", [1, 2, 3], id="unknown verb, passive"),
        pytest.param("depends_on Postgres", [4, 5], id="relation and name, then name"),
    ],
)
def test_direction_orders_the_facts_of_a_name(text, expected):
    found = fits(text, "english", FACTS)
    named = [pk for pk in expected if found[pk].score]
    assert sorted(named, key=lambda pk: -found[pk].score) == named == expected
    others = [found[pk].score for pk in FACTS if pk not in expected]
    assert max(others) <= min(found[pk].score for pk in expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("who leads", True, id="who"),
        pytest.param("On what does it run", True, id="preposition"),
        pytest.param("is it so", True, id="yes or no"),
        pytest.param("läuft Postgres?", True, id="question mark"),
        pytest.param("client team", False, id="name"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_questions_are_recognised(text, expected):
    assert is_question(text) == expected

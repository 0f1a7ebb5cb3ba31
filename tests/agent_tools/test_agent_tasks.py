"""Ten tasks of an agent over the sample: each takes at most three calls and 600 tokens of replies.

`pytest -s` prints the calls and their tokens.
"""

import json

import pytest

from access.viewer import command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories.embedding import query
from memories.models import Memory
from tests.agent_tools.conftest import fill_with_sample
from tests.agent_tools.tokens import tokens
from tests.vectors import MODEL

pytestmark = [pytest.mark.django_db, pytest.mark.release]

MOST_CALLS, MOST_TOKENS = 3, 600


class Agent:
    """Calls tools, and counts the calls and the tokens of their replies."""

    def __init__(self, task):
        self.task, self.calls, self.tokens = task, 0, 0

    def ask(self, tool, **arguments):
        reply = call(TOOL[tool], arguments, command_viewer())
        self.calls += 1
        self.tokens += tokens(reply)
        asked = f"{tool}({json.dumps(arguments, ensure_ascii=False)})"
        print(f"{self.task}: {asked} -> {tokens(reply)} tokens\n{reply}\n")  # noqa: T201 - for `pytest -s`
        return reply


@pytest.fixture
def agent(request, db):
    fill_with_sample()
    query.use_embedder(MODEL)
    one = Agent(request.node.name)
    yield one
    query.forget()
    assert one.calls <= MOST_CALLS
    assert one.tokens <= MOST_TOKENS


def test_finds_what_was_decided_about_something(agent):
    found = agent.ask("search", query="PgBouncer", type="decision", limit=5)
    assert "decision" in found
    assert "hidden:" in found


def test_finds_what_happened_around_it(agent):
    anchor = Memory.objects.filter(title__icontains="PgBouncer", memory_type="decision").order_by("id")[0].pk
    around = agent.ask("timeline", anchor=anchor, depth_before=2, depth_after=2)
    assert around.count("\n  ") >= 5
    assert "state" in around


def test_stores_a_decision_where_it_belongs(agent):
    stored = agent.ask("store_memory", content="We pin Postgres to 18.", type="decision", project="refuge")
    assert "project: refuge" in stored


def test_supersedes_a_decision_with_a_new_one(agent):
    old = Memory.objects.filter(memory_type="decision", state="active").select_related("project").order_by("id")[0]
    text = {"content": "We do the opposite from now on.", "type": "decision", "project": old.project.slug}
    agent.ask("store_memory", **text, supersedes=[f"#{old.pk}"])
    seen = agent.ask("search", state="superseded", orderBy="updated", limit=3)
    assert f"  {old.pk}," in seen
    assert Memory.objects.get(pk=old.pk).superseded_by_id == Memory.objects.latest("id").pk


def test_finds_duplicates(agent):
    old = Memory.objects.filter(state="active").order_by("id")[0]
    stored = agent.ask("store_memory", content=old.content, title=old.title, project="another")
    assert f"#{old.pk}" in stored
    assert f"  {old.pk}," in agent.ask("similar", text=f"{old.title}. {old.content[:200]}", limit=5)


def test_lists_the_tags_with_their_counts(agent):
    tags = agent.ask("list_values", facet="tag", limit=40)
    assert "values[40]{value,count}" in tags
    assert "has_more: true" in tags


def test_narrows_by_category(agent):
    agent.ask("list_categories", filter="postgres", limit=5)
    found = agent.ask("search", category="postgres", query="timeout", limit=5)
    assert "total: 0" not in found


def test_explains_a_concept_and_its_link_to_another(agent):
    about = agent.ask("about", concept="thundering herd", max_tokens=350)
    assert "neighbours" in about
    both = agent.ask("about", concept="thundering herd", to="backpressure", max_tokens=250)
    assert "memories_about_both" in both


def test_corrects_a_mistake_and_takes_the_correction_back(agent):
    memory = Memory.objects.order_by("id")[0]
    changed = agent.ask("update_memory", id=memory.pk, title="Wrong", reason="a try")
    assert "→ Wrong" in changed
    first = agent.ask("history", id=memory.pk, format="json")
    agent.ask("restore", id=memory.pk, event=json.loads(first)["events"][-1]["event"])
    assert Memory.objects.get(pk=memory.pk).title == memory.title


def test_sees_what_changed_last_week(agent):
    agent.ask("update_memory", id=Memory.objects.order_by("id")[0].pk, tags=["checked"])
    changed = agent.ask("changes", since="7d", kind="retagged", limit=10)
    assert "changes[1]" in changed

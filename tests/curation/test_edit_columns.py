"""Type, project, date, authors and validity of many memories: previewed with counts, written and undone at once."""

import random

import pytest

from access.models import MemoryChange
from access.viewer import Viewer
from curation import memory_operations
from curation.models import Curation
from curation.schemas import Retag
from curation.services import PlanChangedError, curation_apply, curation_plan, curation_undo
from curation.undo import UndoRefusedError
from curation.working_copy import CurationRefusedError
from memories.history import memory_history
from memories.models import Memory, Project, Session
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_update, memory_version_restore
from memories.supersession import memory_supersede
from search.query import SearchQuery
from search.run import run
from tests.curation.conftest import dump, number
from tests.curation.test_edit_many import signed_in, tea_writer  # noqa: F401
from tests.curation.test_interfaces import HIDDEN
from tests.html import html_of
from tests.oracle import load_documents, matching

pytestmark = pytest.mark.django_db


def memory(external_id):
    return Memory.objects.get(external_id=external_id)


def apply(viewer, **asked):
    operation = Retag(**asked)
    plan = curation_plan(operation=operation, viewer=viewer)
    assert not plan.refusals, plan.refusals
    return curation_apply(operation=operation.model_copy(update={"token": plan.token}), viewer=viewer)


def refusal(viewer, **asked):
    before = dump()
    plan = curation_plan(operation=Retag(**asked), viewer=viewer)
    with pytest.raises(CurationRefusedError):
        curation_apply(operation=Retag(**asked), viewer=viewer)
    assert dump() == before
    return f"{plan.field}: {plan.refusals[0]}"


def test_each_value_is_counted_before_and_after_and_the_examples_have_both(corpus, curator):
    ids = [number("t1"), number("t2"), number("t3")]
    Memory.objects.filter(pk__in=ids).update(memory_type="note", authors=["Ann", "Ben"])
    Memory.objects.filter(pk=ids[0]).update(memory_type="decision")
    asked = {"memories": ids, "set_type": "Decision", "remove_authors": ["ann"], "add_authors": ["Cid"]}
    plan = curation_plan(operation=Retag(**asked), viewer=curator)
    figures = [(one.kind, one.source, one.target, one.moved) for one in plan.figures]
    assert figures == [("type", "note", "decision", 2), ("authors", "Ann", "", 3), ("authors", "", "Cid", 3)]
    assert (plan.memories, plan.unchanged) == (3, 0)
    assert plan.title == "Edited 3 memories: type decision, +author Cid, −author ann"
    lines = {one.id: [(line.what, line.before, line.after) for line in one.lines] for one in plan.examples}
    assert lines[ids[1]] == [("type", "note", "decision"), ("authors", "Ann, Ben", "Cid, Ben")]
    assert lines[ids[0]] == [("authors", "Ann, Ben", "Cid, Ben")]
    apply(curator, **asked)
    assert {(one.memory_type, tuple(one.authors)) for one in Memory.objects.filter(pk__in=ids)} == {
        ("decision", ("Cid", "Ben"))
    }


@pytest.mark.parametrize(
    ("asked", "column", "after"),
    [
        pytest.param({"set_type": "Design Note"}, "memory_type", "design-note", id="type"),
        pytest.param({"set_date": "2020-02-29T12:00:00+02:00"}, "created_at", "2020-02-29 10:00", id="date"),
        pytest.param({"shift_date": "+3 days"}, "created_at", "2024-01-08 10:00", id="days later"),
        pytest.param({"shift_date": "-2h"}, "created_at", "2024-01-05 08:00", id="hours earlier"),
        pytest.param({"shift_date": "− 1 month"}, "created_at", "2023-12-05 10:00", id="a month earlier"),
        pytest.param({"shift_date": "1 year"}, "created_at", "2025-01-05 10:00", id="a year later"),
        pytest.param({"set_valid_to": "2031-01-01"}, "valid_to", "2031-01-01 00:00", id="valid to"),
        pytest.param({"set_valid_from": "none"}, "valid_from", None, id="no begin"),
        pytest.param({"set_authors": ["Eva", "eva", "Dan"]}, "authors", ["Eva", "Dan"], id="authors"),
        pytest.param({"add_authors": ["Eva", "ANN"]}, "authors", ["Ann", "Eva"], id="another author"),
        pytest.param({"remove_authors": ["ann", "nobody"]}, "authors", [], id="no author"),
    ],
)
def test_values_are_set_and_come_back_by_one_undo(corpus, curator, asked, column, after):
    Memory.objects.filter(external_id="t1").update(valid_from="2024-01-01T00:00Z", authors=["Ann"])
    before = dump()
    applied = apply(curator, memories=[number("t1"), number("b1")], **asked)
    value = getattr(memory("t1"), column)
    assert (f"{value:%Y-%m-%d %H:%M}" if hasattr(value, "year") else value) == after
    event = memory_history(curator, number("t1")).events[0]
    assert (event.kind, event.curation_id) == ("edited", applied.curation.pk)
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before
    assert memory_history(curator, number("t1")).events[0].curation_id == applied.curation.pk


def test_the_end_of_a_month_stays_one_and_what_happened_moves_where_it_is_the_same(corpus, curator):
    ids = [number("t1"), number("t2")]
    Memory.objects.filter(pk=ids[0]).update(created_at="2024-01-31T09:00Z", happened_at="2024-01-31T09:00Z")
    Memory.objects.filter(pk=ids[1]).update(created_at="2024-02-29T09:00Z", happened_at="2020-01-01T00:00Z")
    apply(curator, memories=ids, shift_date="+1 month")
    first, second = (Memory.objects.get(pk=pk) for pk in ids)
    assert [f"{one:%m-%d}" for one in (first.created_at, first.happened_at)] == ["02-29", "02-29"]
    assert [f"{one:%m-%d}" for one in (second.created_at, second.happened_at)] == ["03-29", "01-01"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param({"set_project": "nowhere"}, "set_project: There is no project 'nowhere' that you", id="project"),
        pytest.param({"shift_date": "+9000 years"}, "shift_date: #", id="after the calendar"),
        pytest.param({"set_valid_to": "1999-01-01"}, "set_valid_to: #", id="ends before it begins"),
        pytest.param({"set_valid_from": "2999-01-01"}, "set_valid_from: #", id="begins after it ends"),
    ],
)
def test_what_one_memory_cannot_have_is_refused_for_all(corpus, curator, asked, reason):
    Memory.objects.filter(external_id="t2").update(valid_from="2024-01-01T00:00Z", valid_to="2025-01-01T00:00Z")
    assert reason in refusal(curator, query="project=tea", **asked)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"shift_date": "a bit"}, "shift_date: 'a bit' is not a shift: write one such as +3 days"),
        ({"set_date": "soon"}, "set_date: 'soon' is not a date"),
        ({"set_valid_to": "never"}, "set_valid_to: 'never' is not a date"),
        ({"set_date": "2024-01-01", "shift_date": "+1 day"}, "shift_date: cannot be combined with a date"),
        ({"set_authors": ["A"], "add_authors": ["B"]}, "set_authors: cannot be combined"),
        ({"add_authors": ["a"], "remove_authors": ["a"]}, "add_authors: “a” is both added and removed"),
        ({"add_authors": [" "]}, "is empty; write a name"),
        ({"set_type": "x" * 101}, "up to 100 are allowed"),
        ({"set_type": "x", "merge_into": 1}, "merge_into: cannot be combined"),
    ],
)
def test_mistakes_are_named_by_the_api(corpus, asked, reason):
    from tests.explorer.memory.test_memory_api import Caller, key

    caller = Caller(key(["read", "write"]).raw)
    reply = caller.send("post", "/api/curation/retag", {"memories": [number("t1")], "dry_run": True, **asked})
    assert reply.status_code == 422
    assert reason in reply.json()["detail"]


def test_only_memories_that_one_may_write_change(corpus, tea_writer):  # noqa: F811
    boat = memory("b1").memory_type
    applied = apply(tea_writer, query="tag=hardware", set_type="part", add_authors=["Ann"])
    assert (applied.plan.memories, applied.plan.not_writable) == (1, 2)
    assert (memory("t2").memory_type, memory("b1").memory_type, memory("b1").authors) == ("part", boat, ["Ada"])


@pytest.mark.parametrize("slug", ["boat", "nowhere"])
def test_a_project_that_one_only_reads_is_like_one_that_is_not_there(corpus, tea_writer, slug):  # noqa: F811
    reason = refusal(tea_writer, memories=[number("t1")], set_project=slug)
    assert f"There is no project '{slug}' that you can write to. You can write to: tea." in reason


def test_memories_move_with_their_sessions_and_terms_and_those_who_see_one_project_follow(corpus, curator):
    tea, boat = (Project.objects.get(slug=slug) for slug in ("tea", "boat"))
    boat.language = "german"
    boat.save()
    one = memory_create(
        record=MemoryRecord(content="Die Häuser.", project="tea", session="s1", agent="claude"), viewer=curator
    )
    before = dump()
    applied = apply(curator, memories=[one.pk, number("t1")], set_project="boat")
    assert applied.curation.project_ids == sorted([tea.pk, boat.pk])
    moved = Memory.objects.get(pk=one.pk)
    assert (moved.project, moved.session.project, moved.session.external_id) == (boat, boat, "s1")
    assert "'haus'" in moved.terms
    found = run(SearchQuery.from_pairs([("q", "häuser"), ("project", "boat")]), curator)
    assert [hit.id for hit in found.hits] == [one.pk]
    kinds = MemoryChange.objects.filter(memory_ids__contains=[one.pk]).order_by("-id").values_list("project_id", "kind")
    assert list(kinds[:2]) == [(boat.pk, "edited"), (tea.pk, "deleted")]
    reader = Viewer(frozenset([boat.pk]), frozenset(["read"]), frozenset())
    changes = [change for change in memory_history(reader, one.pk).events[0].changes if change.field == "project"]
    assert [(change.before, change.after) for change in changes] == [("another project", "boat")]
    # Whoever may write one of the projects alone does not undo it.
    for project in (tea, boat):
        with pytest.raises(UndoRefusedError):
            curation_undo(
                curation_id=applied.curation.pk,
                viewer=Viewer(None, frozenset(["read", "write"]), frozenset([project.pk])),
            )
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before
    assert not Session.objects.filter(project=boat, external_id="s1").exists()


def test_memories_move_with_their_successors_or_not_at_all(corpus, curator):
    old, new = number("t1"), number("t2")
    memory_supersede(memory_id=old, by_id=new, viewer=curator)
    for alone in (old, new):
        assert f"#{old} is replaced by #{new}" in refusal(curator, memories=[alone], set_project="boat")
    applied = apply(curator, memories=[old, new], set_project="boat")
    assert {one.project.slug for one in Memory.objects.filter(pk__in=[old, new])} == {"boat"}
    assert memory("t1").superseded_by_id == new
    # Another one that was replaced there since keeps the undo from parting them.
    memory_supersede(memory_id=number("b1"), by_id=new, viewer=curator)
    with pytest.raises(UndoRefusedError, match="is replaced by"):
        curation_undo(curation_id=applied.curation.pk, viewer=curator)


def test_memories_do_not_move_where_their_ids_are_taken(corpus, curator):
    memory_create(record=MemoryRecord(content="There.", project="boat", id="t1"), viewer=curator)
    reason = refusal(curator, query="project=tea", set_project="boat")
    assert "have the same id 't1': boat cannot have both." in reason or "is replaced by" in reason


def test_filter_is_edited_as_it_was_previewed(corpus, curator):
    operation = Retag(query="tag=kettle", set_type="part")
    plan = curation_plan(operation=operation, viewer=curator)
    memory_update(memory_id=number("t1"), changes=MemoryChanges(add_tags=["kettle"]), viewer=curator)
    with pytest.raises(PlanChangedError):
        curation_apply(operation=operation.model_copy(update={"token": plan.token}), viewer=curator)
    again = curation_plan(operation=operation, viewer=curator)
    assert again.memories == plan.memories + 1
    # Another date than the one that was previewed is also another plan.
    shift = Retag(query="tag=kettle", shift_date="+1 day")
    plan = curation_plan(operation=shift, viewer=curator)
    changes = MemoryChanges(created_at="2020-01-01T00:00:00Z")
    memory_update(memory_id=number("t1"), changes=changes, viewer=curator)
    with pytest.raises(PlanChangedError):
        curation_apply(operation=shift.model_copy(update={"token": plan.token}), viewer=curator)


def test_undo_names_what_was_changed_again_and_changes_nothing(corpus, curator):
    applied = apply(curator, memories=[number("t1"), number("t2")], set_type="part", add_authors=["Ann"])
    memory_update(memory_id=number("t2"), changes=MemoryChanges(type="note"), viewer=curator)
    before = dump()
    with pytest.raises(UndoRefusedError, match=f"#{number('t2')} has another value of type since"):
        curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before
    memory_update(memory_id=number("t2"), changes=MemoryChanges(type="part", summary="More."), viewer=curator)
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    # The change of another field stays.
    assert (memory("t2").summary, "Ann" in memory("t2").authors, "Ann" in memory("t1").authors) == (
        "More.",
        False,
        False,
    )


def test_version_before_is_restored_one_memory_at_a_time(corpus, curator):
    event = memory_history(curator, number("t1")).events[0].id
    before = memory("t1")
    apply(curator, query="project=tea", set_type="part", shift_date="+2 days", set_valid_to="2033-01-01")
    memory_version_restore(memory_id=before.pk, event_id=event, viewer=curator)
    after = memory("t1")
    assert (after.memory_type, after.created_at, after.valid_to) == (before.memory_type, before.created_at, None)


def test_twenty_thousand_are_the_most(corpus, curator, monkeypatch):
    monkeypatch.setattr(memory_operations, "MOST_MEMORIES", 3)
    with pytest.raises(CurationRefusedError, match="at most 3 can be changed at once"):
        curation_apply(operation=Retag(query="project=tea", set_type="part"), viewer=curator)


@pytest.mark.parametrize("seed", range(3))
def test_any_edits_undone_in_reverse_leave_everything_as_it_was(corpus, curator, seed):
    rng = random.Random(seed)
    before, applied = dump(), []
    choices = [
        {"set_type": "part"},
        {"set_project": "boat"},
        {"set_project": "tea"},
        {"set_date": "2022-03-01T00:00:00Z"},
        {"shift_date": "-40 days"},
        {"add_authors": ["Ann"], "remove_authors": ["Ben"]},
        {"set_authors": ["Ben", "Cid"]},
        {"set_valid_from": "2021-01-01", "set_valid_to": "none"},
        {"set_valid_to": "2031-01-01"},
        {"add_tags": ["x"]},
    ]
    ids = list(Memory.objects.order_by("pk").values_list("pk", flat=True))
    for _ in range(12):
        asked = {}
        for choice in rng.sample(choices, 2):
            asked |= choice
        asked = {name: value for name, value in asked.items() if name != "add_authors" or "set_authors" not in asked}
        if "set_authors" in asked or {"set_date", "shift_date"} <= asked.keys():
            asked.pop("remove_authors", None)
            asked.pop("shift_date", None)
        asked = asked or {"set_type": "thing"}
        try:
            applied.append(curation_apply(operation=Retag(memories=rng.sample(ids, 4), **asked), viewer=curator))
        except CurationRefusedError:
            continue
        documents = load_documents()
        found = run(SearchQuery.from_pairs([("author", "Cid")]), curator, include_facets=True)
        assert found.total == len(matching(documents, SearchQuery.from_pairs([("author", "Cid")])))
    assert applied
    for one in reversed(applied):
        curation_undo(curation_id=one.curation.pk, viewer=curator)
    assert dump() == before


# --- the page ---------------------------------------------------------------------------------------------------------


def test_page_previews_edits_and_undoes(corpus):
    client = signed_in(tea="curator")
    client.cookies["timezone"] = "Europe/Berlin"
    Memory.objects.filter(external_id="t1").update(authors=["Ann"])
    chosen = {"take": "chosen", "memory": [number("t1"), number("t3")], "do": "type"}
    form = html_of(client.get("/curate/retag/", chosen))
    assert '<details class="edit-part" id="part-type" open>' in form
    assert 'name="remove_authors" value="Ann"' in form
    asked = {"set_type": "part", "set_date": "5. März 2024", "set_valid_to": "none", "remove_authors": ["Ann"]}
    preview = html_of(client.get("/curate/retag/", {**chosen, **asked}))
    assert "2 memories change" in preview
    assert "created" in preview
    assert "5 Mar 2024, 00:00 CET" in preview
    sent = {}
    for name, value in HIDDEN.findall(preview):
        sent.setdefault(name, []).append(value)
    client.post("/curate/retag/", sent)
    assert f"{memory('t1').created_at:%Y-%m-%d %H:%M}" == "2024-03-04 23:00"
    assert (memory("t1").memory_type, memory("t1").authors) == ("part", [])
    client.post(f"/curate/undo/{Curation.objects.get().pk}/")
    assert memory("t1").authors == ["Ann"]


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("set_date", "03/04/2024", "may have the day or the month first"),
        ("set_valid_from", "someday", "is not a date"),
        ("shift_date", "a bit", "is not a shift"),
        ("set_project", "boat", "There is no project"),
    ],
)
def test_page_names_what_cannot_be_read_at_its_field(corpus, field, typed, said):
    client = signed_in(tea="curator", boat="reader")
    page = client.get("/curate/retag/", {"memory": [number("t1")], field: typed})
    assert page.status_code == 422
    shown = html_of(page)
    place = shown.index(f'name="{field}"')
    assert said in shown[place : place + 700]

"""The campaign notices what is lost, doubled, half-written and invented. No site is needed for that."""

import pytest

from lab.torture.ledger import Entry, Ledger, Version, Write, changed
from lab.torture.writers import Traffic


def reply(number, entry, version, **different):
    """A memory as the API gives it."""
    fields = {**entry.fields(version), **different}
    return {
        "id": number,
        "memory_type": fields["type"],
        "state": "deleted" if version.is_deleted else "active",
        "categories": [{"path": path} for path in fields["categories"]],
        "concepts": [{"name": name} for name in fields["concepts"]],
        "entities": [{"value": value} for value in fields["entities"]],
        **{name: fields[name] for name in ("title", "content", "tags")},
    }


def stored(ledger, *tokens, acknowledged=True):
    """One write of several memories with the ids 1, 2, …"""
    made = {Entry("REST", 1): Version(token) for token in tokens}
    write = Write("REST", "store", made, 1)
    ledger.begin(write)
    if acknowledged:
        ledger.acknowledge(write, range(1, len(tokens) + 1))
    return made


def compared(ledger, entries, replies):
    ledger.compare({one["id"]: one for one in replies}, entries)
    return dict(ledger.findings.counts)


def test_what_is_as_acknowledged_is_no_finding():
    ledger = Ledger("p")
    made = stored(ledger, "a", "b")
    assert compared(ledger, made, [reply(n, *pair) for n, pair in enumerate(made.items(), 1)]) == {}
    assert ledger.expected_ids(1, deleted=False) == {1, 2}
    assert ledger.expected_counts(1)["tags"]["cycle-1"] == 2


def test_acknowledged_memory_that_is_gone_is_lost():
    ledger = Ledger("p")
    assert compared(ledger, stored(ledger, "a"), []) == {"lost": 1}


def test_fields_of_two_versions_are_half_a_write():
    ledger = Ledger("p")
    made = stored(ledger, "a")
    (entry,) = made
    older = entry.fields(Version("b"))
    assert compared(ledger, made, [reply(1, entry, made[entry], tags=older["tags"])]) == {"not as written": 1}


def test_second_memory_with_a_token_is_doubled():
    ledger = Ledger("p")
    made = stored(ledger, "a")
    ((entry, version),) = made.items()
    assert compared(ledger, made, [reply(1, entry, version), reply(2, entry, version)]) == {
        "doubled or never written": 1
    }


def test_write_without_an_answer_may_be_done_after_the_look_and_once():
    ledger = Ledger("p")
    made = stored(ledger, "a", acknowledged=False)
    ledger.leave_open(next(iter({entry.doubt for entry in made})))
    ((entry, version),) = made.items()
    assert compared(ledger, made, []) == {}
    assert compared(ledger, [], [reply(7, entry, version)]) == {}
    assert (ledger.late, ledger.expected_ids(1, deleted=False)) == (1, {7})
    assert compared(ledger, made, [reply(7, entry, version), reply(8, entry, version)]) == {
        "doubled or never written": 1
    }


@pytest.mark.parametrize("done", [True, False])
def test_write_without_an_answer_may_have_been_done_or_not_and_stays_so(done):
    ledger = Ledger("p")
    made = stored(ledger, "a", "b", acknowledged=False)
    replies = [reply(n, *pair) for n, pair in enumerate(made.items(), 7)] if done else []
    assert compared(ledger, made, replies) == {}
    assert ledger.done_unanswered == done
    assert compared(ledger, made, []) == ({"lost": 2} if done else {})


def test_write_without_an_answer_is_done_wholly_or_not_at_all():
    ledger = Ledger("p")
    made = stored(ledger, "a", "b", acknowledged=False)
    (first, version), _ = made.items()
    assert compared(ledger, made, [reply(7, first, version)])["half-written"] == 1


def test_what_was_refused_and_is_there_all_the_same_is_a_finding():
    ledger = Ledger("p")
    entry, version = Entry("REST", 1), Version("a")
    write = Write("REST", "store", {entry: version}, 1)
    ledger.begin(write)
    ledger.refuse(write, "409")
    assert compared(ledger, [entry], [reply(1, entry, version)]) == {"written although refused": 1}


def test_deletion_and_merge_change_what_is_expected():
    ledger = Ledger("p")
    entry, version = Entry("curation", 1, group="5 concept"), Version("a")
    ledger.begin(write := Write("curation", "store", {entry: version}, 1))
    ledger.acknowledge(write, [1])
    assert ledger.expected_counts(None)["concepts"]["left 5"] == 1
    ledger.begin(write := Write("curation", "merge", {entry: changed(version, is_merged=True)}, 1))
    ledger.acknowledge(write)
    assert ledger.expected_counts(None)["concepts"]["right 5"] == 1
    ledger.begin(write := Write("REST", "delete", {entry: changed(version, is_deleted=True)}, 1))
    ledger.acknowledge(write)
    assert (ledger.expected_ids(1, deleted=False), ledger.expected_ids(1, deleted=True)) == (set(), {1})


def test_traffic_waits_for_the_answers_of_writers():
    traffic = Traffic()
    traffic.open()
    with traffic.turn():
        assert not traffic.close(0.01)
    assert traffic.close(0.01)

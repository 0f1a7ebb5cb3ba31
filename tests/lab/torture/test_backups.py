"""The comparison of a restored backup with what was written."""

from typing import Any

from lab.torture.backups import compare
from lab.torture.ledger import Entry, Ledger, Version, Write


def _written(ledger: Ledger, token: str) -> tuple[Entry, Version]:
    entry, version = Entry("REST", 1), Version(token)
    write = Write("REST", "store", {entry: version}, 1)
    ledger.begin(write)
    ledger.acknowledge(write, [len(ledger.entries)])
    return entry, version


def _read(entry: Entry, version: Version) -> dict[str, Any]:
    """A memory as the API answers it."""
    fields = entry.fields(version)
    return {
        "id": entry.id,
        "state": "deleted" if version.is_deleted else "active",
        "title": fields["title"],
        "content": fields["content"],
        "memory_type": fields["type"],
        "tags": fields["tags"],
        "categories": [{"path": path} for path in fields["categories"]],
        "concepts": [{"name": name} for name in fields["concepts"]],
        "entities": [{"value": name} for name in fields["entities"]],
    }


def test_a_restored_backup_is_held_against_every_write():
    ledger = Ledger("torture")
    old, changing, late = (_written(ledger, token) for token in ("old", "changing", "late"))
    whole = {number: _read(*one) for number, one in enumerate((old, changing), 1)}

    def found(replies: dict[int, dict[str, Any]]) -> dict[str, int]:
        ledger.findings.counts.clear()
        compare(ledger, replies, dict([old]), {"old", "changing"})
        return dict(ledger.findings.counts)

    assert found(whole) == {}
    # A write made meanwhile may be there or not.
    assert found({1: whole[1]}) == {}
    assert found({2: whole[2]}) == {"not in the backup": 1}
    assert found({**whole, 1: {**whole[1], "content": "Other"}}) == {"not as written in the backup": 1}
    assert found({**whole, 2: {**whole[2], "tags": []}}) == {"half-written in the backup": 1}
    assert found({**whole, 3: _read(*late)}) == {"in the backup and not written before its end": 1}
    assert found({**whole, 3: {**whole[1], "id": 3}}) == {"doubled in the backup": 1}

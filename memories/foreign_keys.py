"""The references of many new memories proven at once, and the checks that this saves."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError

from memories.bulk_copy import InsertBlock

# From so many new memories on, their references are proven together.
_MANY = 100


@contextmanager
def lock_references(cursor: Any, block: InsertBlock, proven: dict[str, set[int]] | None = None) -> Iterator[None]:
    """Prove the references of many new memories at once, so that Postgres need not look each of them up again.
    `proven` are those that this transaction has proven already, by table; what comes is added.

    Row by row its checks take a third of the time that the rows themselves take. What they would lock is locked here
    all the same, in one statement a table. Only a superuser may leave them out; for any other role, and where an id
    is not there, they do their work and say what is wrong. Triggers that must see every row are `ENABLE ALWAYS`.
    """
    if len(block.snapshots) < _MANY or not _may_skip_checks(cursor) or not _references_locked(cursor, block, proven):
        yield
        return
    cursor.execute("SET LOCAL session_replication_role = replica")
    try:
        yield
    except BaseException:
        # In a transaction that is broken by now it goes with that.
        with suppress(DatabaseError):
            cursor.execute("SET LOCAL session_replication_role = origin")
        raise
    cursor.execute("SET LOCAL session_replication_role = origin")


def _may_skip_checks(cursor: Any) -> bool:
    """Whether this role may, and the triggers that write the outbox see what is written so."""
    cursor.execute(
        "SELECT current_setting('is_superuser'), current_setting('session_replication_role'),"
        " (SELECT count(*) FROM pg_trigger WHERE tgrelid = 'memories_memory'::regclass"
        " AND tgname LIKE 'memory_outbox_%%' AND tgenabled <> 'A')"
    )
    return bool(cursor.fetchone() == ("on", "origin", 0))


def _references_locked(cursor: Any, block: InsertBlock, proven: dict[str, set[int]] | None) -> bool:
    """Whether every row that the snapshots refer to is there, each now locked against deletion until this is over."""
    named: dict[str, set[int | None]] = {
        "memories_project": {snapshot.project_id for snapshot in block.snapshots},
        "memories_session": {snapshot.session_id for snapshot in block.snapshots},
        "memories_importbatch": {snapshot.batch_id for snapshot in block.snapshots},
        "categories_category": set().union(*[columns["category_ids"] for columns in block.columns]),
        "categories_concept": set().union(*[columns["concept_ids"] for columns in block.columns]),
        "categories_entity": set().union(*[columns["entity_ids"] for columns in block.columns]),
    }
    for table, ids in named.items():
        known = proven.setdefault(table, set()) if proven is not None else set()
        wanted = sorted(found for found in ids - known if found is not None)
        if wanted:
            cursor.execute(f"SELECT id FROM {table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE", [wanted])
            if len(cursor.fetchall()) != len(wanted):
                return False
            known.update(wanted)
    return True

"""Undo of an import: what its batch created is removed, what it changed is restored."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import connection, models, transaction
from django.db.models import Q
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer, audit
from categories.kinds import VOCABULARIES, VocabularyKind
from categories.models import Category, Entity, EntityLink, LocalText, Relationship
from categories.searched_terms import terms_refresh_all
from categories.services import tags_written, vocabulary_lock
from curation.models import CurationChange
from curation.queries import merged_ids
from curation.suggestions.obsolete import withdraw_obsolete
from memories.changes import Kind, changes_record_many
from memories.link_targets import dangling_links, set_targets
from memories.models import ImportBatch, Memory, MemoryLink, Project, Session
from memories.storage import (
    corpus_bump,
    memories_audit,
    outbox_stamp,
    sessions_date,
    snapshot_restored,
    snapshots_read,
    snapshots_update,
)
from text.formatting import memories
from transfer.read_again import restore_reading
from transfer.tables import AFTER_MEMORIES
from transfer.write import IMPORT_LOCK
from web.sql import fetch_column

_BLOCK = 5_000
_NAMED = 10


class BatchUndoRefusedError(Exception):
    """The batch cannot be undone. The message gives the reason and a remedy."""


class ChangedSinceError(BatchUndoRefusedError):
    """Memories of the batch were changed since. They are named; an undo that is forced loses the changes."""


@dataclass(slots=True)
class Undone:
    """The numbers of rows that an undo removed, restored and left because others use them."""

    batch_id: int
    memories: int = 0
    restored: int = 0
    vocabulary: dict[str, int] = field(default_factory=dict)
    still_used: dict[str, int] = field(default_factory=dict)


@transaction.atomic
def batch_undo(*, batch_id: int, viewer: Viewer, force: bool = False) -> Undone:
    """Remove what a batch created and restore what it changed. With `force`, later edits are lost."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
    # No curation may change the vocabulary while rows are removed.
    vocabulary_lock()
    batch = _undoable(batch_id)
    copied: dict[str, int] = batch.report.get("copied", {})
    # Events up to this one are those of the instance that was copied.
    history_until = copied.get(AuditEvent._meta.label, 0)
    events = AuditEvent.objects.filter(batch=batch, before__isnull=False, pk__gt=history_until)
    made = list(Memory.objects.filter(batch=batch).order_by("id").values_list("id", flat=True))
    changed = set(events.filter(subject_type="memory").values_list("subject_id", flat=True)) - set(made)
    if not force:
        _refuse_edited(batch, [*made, *changed], history_until)
    undone = Undone(batch_id, memories=len(made))
    event = audit(viewer, "undo", batch)
    # While they exist, and their projects are known.
    changes_record_many(event, Kind.DELETED, made)
    undone.restored = _memories_restore(events, changed, batch_id, viewer)
    for start in range(0, len(made), _BLOCK):
        _memories_remove(made[start : start + _BLOCK])
    _vocabulary_restore(events)
    _copied_remove(copied)
    _vocabulary_remove(batch, undone)
    restore_reading(batch)
    withdraw_obsolete()
    terms_refresh_all()
    batch.state = ImportBatch.State.UNDONE
    batch.finished_at = timezone.now()
    batch.save(update_fields=["state", "finished_at"])
    event.after = {"memories": undone.memories, "restored": undone.restored, "vocabulary": undone.vocabulary}
    event.save(update_fields=["after"])
    outbox_stamp()
    corpus_bump()
    return undone


def _undoable(batch_id: int) -> ImportBatch:
    batch = ImportBatch.objects.filter(pk=batch_id).first()
    if batch is None:
        raise BatchUndoRefusedError(f"There is no batch {batch_id}. --list shows the imports so far.")
    if batch.state == ImportBatch.State.UNDONE:
        raise BatchUndoRefusedError(f"Batch {batch_id} was already undone on {batch.finished_at:%Y-%m-%d %H:%M} UTC.")
    if batch.state != ImportBatch.State.DONE:
        raise BatchUndoRefusedError(f"Batch {batch_id} is {batch.state}: it wrote nothing that could be undone.")
    return batch


def _refuse_edited(batch: ImportBatch, memory_ids: Sequence[int], history_until: int) -> None:
    """Refuse if others changed memories of the batch since, and name them."""
    # Through auditevent_subject_idx. A memory that the batch created has no event of the batch, so every event counts,
    # except those of undone batches.
    edited = fetch_column(
        "SELECT DISTINCT subject_id FROM access_auditevent edit"
        " WHERE subject_type = 'memory' AND subject_id = ANY(%s) AND batch_id IS DISTINCT FROM %s"
        " AND id > greatest(%s, coalesce((SELECT min(id) FROM access_auditevent own WHERE own.subject_type = 'memory'"
        " AND own.subject_id = edit.subject_id AND own.batch_id = %s), 0))"
        " AND NOT EXISTS (SELECT 1 FROM memories_importbatch b WHERE b.id = edit.batch_id AND b.state = 'undone')"
        " ORDER BY 1",
        [list(memory_ids), batch.pk, history_until, batch.pk],
    )
    edited = sorted({*edited, *_edited_together(batch, memory_ids)})
    if edited:
        named = ", ".join(f"#{memory_id}" for memory_id in edited[:_NAMED])
        more = f" and {len(edited) - _NAMED:,} more" if len(edited) > _NAMED else ""
        raise ChangedSinceError(
            f"{memories(len(edited))} {'was' if len(edited) == 1 else 'were'} changed since this import brought or "
            f"changed {'it' if len(edited) == 1 else 'them'}: {named}{more}. Nothing was undone."
        )


def _edited_together(batch: ImportBatch, memory_ids: Sequence[int]) -> set[int]:
    """Memories that were edited with others since: that has no events of theirs.

    A merge or a new name of a term is no edit of them: it stays, also for another import of the same.
    """
    # curationchange_memory_gin.
    changes = CurationChange.objects.filter(
        Q(curation__kind="memory") | Q(curation__verb="split"),
        memory_ids__overlap=list(memory_ids),
        curation__undone_at=None,
        curation__at__gt=batch.finished_at,
    )
    found = changes.values_list("memory_ids", flat=True)
    return set(memory_ids).intersection(pk for ids in found for pk in ids or ())


def _memories_restore(events: models.QuerySet[AuditEvent], memory_ids: set[int], batch_id: int, viewer: Viewer) -> int:
    """Restore memories of other batches to their state before this batch. Returns their number."""
    before: dict[int, dict[str, Any]] = {}
    for memory_id, values in (
        events.filter(subject_type="memory", subject_id__in=memory_ids)
        .order_by("-id")
        .values_list("subject_id", "before")
    ):
        # The oldest event of the batch comes last and wins.
        before.setdefault(memory_id, {}).update(values or {})
    wanted = list(before)
    restored = 0
    for values in before.values():
        _resolve_merged(values)
    for start in range(0, len(wanted), _BLOCK):
        snapshots = snapshots_read(wanted[start : start + _BLOCK])
        for snapshot in snapshots.values():
            if "tags" in (values := before[snapshot.id]):
                values["tags"] = list(tags_written(values["tags"], snapshot.project_id, viewer))
        changes = [(snapshot, snapshot_restored(snapshot, before[snapshot.id])) for snapshot in snapshots.values()]
        changes = snapshots_update(changes)
        memories_audit(viewer, "undo_import", changes, batch_id=batch_id)
        # Links lose their targets with the text that the import put in the place of theirs.
        set_targets(dangling_links([after.id for _, after in changes]), viewer)
        restored += len(changes)
    return restored


def _resolve_merged(values: dict[str, Any]) -> None:
    """Replace terms that were merged since by their targets, each once."""
    for vocabulary in VOCABULARIES.values():
        if vocabulary.plural not in values:
            continue
        previous = values[vocabulary.plural]
        ids = merged_ids(vocabulary.name, [ref[0] for ref in previous])
        refs: dict[int, list[Any]] = {}
        for ref in previous:
            refs.setdefault(ids[ref[0]], [ids[ref[0]], *ref[1:]])
        values[vocabulary.plural] = [refs[term_id] for term_id in sorted(refs) if term_id]


def _memories_remove(memory_ids: Sequence[int]) -> None:
    """Delete memories with their rows. Links from other memories to them become dangling."""
    MemoryLink.objects.filter(target_memory_id__in=memory_ids).exclude(memory_id__in=memory_ids).update(
        target_memory=None
    )
    sessions = list(Memory.objects.filter(pk__in=memory_ids).order_by().values_list("session_id", flat=True).distinct())
    Memory.objects.filter(superseded_by_id__in=memory_ids).exclude(pk__in=memory_ids).update(superseded_by=None)
    with connection.cursor() as cursor:
        # Relationships of others keep their remaining evidence.
        cursor.execute(
            "UPDATE categories_relationship SET evidence_ids = ("
            "SELECT coalesce(array_agg(kept ORDER BY kept), '{}') FROM unnest(evidence_ids) kept"
            " WHERE NOT kept = ANY(%s)) WHERE evidence_ids && %s::bigint[]",
            [list(memory_ids), list(memory_ids)],
        )
        for table in (*(vocabulary.link_table for vocabulary in VOCABULARIES.values()), MemoryLink._meta.db_table):
            cursor.execute(f"DELETE FROM {table} WHERE memory_id = ANY(%s)", [list(memory_ids)])
        cursor.execute("DELETE FROM memories_memory WHERE id = ANY(%s)", [list(memory_ids)])
    sessions_date(sessions)


_RESTORED: dict[str, type[models.Model]] = {
    "project": Project,
    "session": Session,
    "relationship": Relationship,
    **{name: vocabulary.model for name, vocabulary in VOCABULARIES.items()},
}


def _vocabulary_restore(events: models.QuerySet[AuditEvent]) -> None:
    """Revert the batch's changes of existing vocabulary, where nobody changed it since."""
    for event in events.filter(subject_type__in=list(_RESTORED)).order_by("-id"):
        row = _RESTORED[event.subject_type]._default_manager.filter(pk=event.subject_id).first()
        if row is None:
            continue
        values = dict(_unchanged_since(event, row))
        for name, value in values.items():
            field = row._meta.get_field(name)
            setattr(row, name, field.to_python(value) if isinstance(field, models.DateTimeField) else value)
        if values:
            row.save(update_fields=list(values))


def _unchanged_since(event: AuditEvent, row: models.Model) -> Iterator[tuple[str, Any]]:
    """The fields of a changed row that still have the values of the change, with the values to restore."""
    for name, before in (event.before or {}).items():
        now, after = getattr(row, name), (event.after or {}).get(name)
        if isinstance(now, list) and isinstance(after, list):
            # Others may have added items since, which stay.
            added = [item for item in after if item not in before]
            yield name, [item for item in now if item not in added]
        elif (now.isoformat() if isinstance(now, datetime) else now) == after:
            yield name, before


def _copied_remove(copied: Mapping[str, int]) -> None:
    """Remove the rows that made this instance a copy of another. What happened stays in the audit trail."""
    for table in reversed(AFTER_MEMORIES):
        if table.label in copied and not table.label.startswith("access."):
            table.model._default_manager.filter(pk__lte=copied[table.label]).delete()


def _vocabulary_remove(batch: ImportBatch, undone: Undone) -> None:
    """Remove unused vocabulary of the batch, and of undone batches, whose rows this batch may have used."""
    batches = [batch.pk, *ImportBatch.objects.filter(state=ImportBatch.State.UNDONE).values_list("pk", flat=True)]

    def remove(kind: str, query: models.QuerySet[Any]) -> int:
        # Cascaded rows, such as suggestions about a project, are not counted.
        count = query.delete()[1].get(query.model._meta.label, 0)
        if count:
            undone.vocabulary[kind] = undone.vocabulary.get(kind, 0) + count
        return count

    remove("relationships", Relationship.objects.filter(batch_id__in=batches))
    _remove_unused(VOCABULARIES["concept"], batches, undone)
    remove(
        "entities",
        Entity.objects.filter(batch_id__in=batches)
        .exclude(pk__in=EntityLink.objects.values("entity_id"))
        .exclude(pk__in=Relationship.objects.values("source_id"))
        .exclude(pk__in=Relationship.objects.values("target_id")),
    )
    # Leaves first: a category is removed after its last child.
    while _remove_unused(VOCABULARIES["category"], batches, undone):
        pass
    remove(
        "sessions",
        Session.objects.filter(batch_id__in=batches).exclude(
            pk__in=Memory.objects.filter(session__isnull=False).values("session_id")
        ),
    )
    api_key_projects = apps.get_model("access", "ApiKey").projects.through
    remove(
        "projects",
        Project.objects.filter(batch_id__in=batches, memberships__isnull=True, sessions__isnull=True)
        .exclude(pk__in=Memory.objects.values("project_id"))
        .exclude(pk__in=api_key_projects.objects.values("project_id")),
    )
    # Texts that held in these projects alone are nobody's now.
    LocalText.objects.exclude(project_ids__overlap=list(Project.objects.values_list("pk", flat=True))).delete()
    tables = {vocabulary.plural: vocabulary.model for vocabulary in VOCABULARIES.values()} | {"projects": Project}
    for kind, model in tables.items():
        if count := model._default_manager.filter(batch_id=batch.pk).count():
            undone.still_used[kind] = count


def _remove_unused(vocabulary: VocabularyKind, batches: Iterable[int], undone: Undone) -> int:
    """Delete unused rows of the batches, and their ids from related rows. Returns their number."""
    unused = vocabulary.model._default_manager.filter(batch_id__in=list(batches)).exclude(
        pk__in=vocabulary.link._default_manager.values(vocabulary.link_column)
    )
    if vocabulary.model is Category:
        unused = unused.exclude(pk__in=Category.objects.filter(parent__isnull=False).values("parent_id"))
    ids = list(unused.values_list("pk", flat=True))
    if not ids:
        return 0
    with connection.cursor() as cursor:
        for column in vocabulary.relations:
            cursor.execute(
                f"UPDATE {vocabulary.table} SET {column} = (SELECT coalesce(array_agg(kept ORDER BY kept), '{{}}')"
                f" FROM unnest({column}) kept WHERE NOT kept = ANY(%s)) WHERE {column} && %s::integer[]",
                [ids, ids],
            )
        cursor.execute("DELETE FROM categories_localtext WHERE kind = %s AND term_id = ANY(%s)", [vocabulary.name, ids])
        cursor.execute(f"DELETE FROM {vocabulary.table} WHERE id = ANY(%s)", [ids])
    undone.vocabulary[vocabulary.plural] = undone.vocabulary.get(vocabulary.plural, 0) + len(ids)
    return len(ids)

"""Undoing an import: all that its batch brought goes, all that it changed is put back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import connection, models, transaction
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, Relationship
from categories.queries import tags_now
from categories.searched_terms import terms_refresh_all
from categories.services import VOCABULARY_LOCK
from curation.queries import ids_now
from curation.suggestions.generate import withdraw
from memories.importers.write import IMPORT_LOCK
from memories.models import ImportBatch, Memory, MemoryLink, Project, Session
from memories.storage import corpus_bump, outbox_stamp, snapshot_restored, snapshots_read, snapshots_update
from text.formatting import memories

_BLOCK = 5_000
_NAMED = 10


class UndoRefusedError(Exception):
    """The batch cannot be undone. The message says why, and what can be done."""


@dataclass(slots=True)
class Undone:
    """What undoing removed, put back and had to keep."""

    batch_id: int
    memories: int = 0
    restored: int = 0
    vocabulary: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)


@transaction.atomic
def batch_undo(*, batch_id: int, viewer: Viewer, force: bool = False) -> Undone:
    """Remove what a batch made and restore what it changed. With `force`, edits made since are lost."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        # Rows of the vocabulary go: what a curation wrote down of them must not change meanwhile.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [VOCABULARY_LOCK])
    batch = _undoable(batch_id)
    events = AuditEvent.objects.filter(batch=batch, before__isnull=False)
    made = list(Memory.objects.filter(batch=batch).order_by("id").values_list("id", flat=True))
    changed = set(events.filter(subject_type="memory").values_list("subject_id", flat=True)) - set(made)
    if not force:
        _refuse_edited(batch, [*made, *changed])
    undone = Undone(batch_id, memories=len(made))
    undone.restored = _memories_restore(events, changed)
    for start in range(0, len(made), _BLOCK):
        _memories_remove(made[start : start + _BLOCK])
    _vocabulary_restore(events)
    _vocabulary_remove(batch, undone)
    withdraw()
    terms_refresh_all()
    batch.state = ImportBatch.State.UNDONE
    batch.finished_at = timezone.now()
    batch.save(update_fields=["state", "finished_at"])
    AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb="undo",
        subject_type="importbatch",
        subject_id=batch.pk,
        after={"memories": undone.memories, "restored": undone.restored, "vocabulary": undone.vocabulary},
    )
    outbox_stamp()
    corpus_bump()
    return undone


def _undoable(batch_id: int) -> ImportBatch:
    batch = ImportBatch.objects.filter(pk=batch_id).first()
    if batch is None:
        raise UndoRefusedError(f"There is no batch {batch_id}. --list shows the imports so far.")
    if batch.state == ImportBatch.State.UNDONE:
        raise UndoRefusedError(f"Batch {batch_id} was already undone on {batch.finished_at:%Y-%m-%d %H:%M} UTC.")
    if batch.state != ImportBatch.State.DONE:
        raise UndoRefusedError(f"Batch {batch_id} is {batch.state}: it wrote nothing that could be undone.")
    return batch


def _refuse_edited(batch: ImportBatch, memory_ids: Sequence[int]) -> None:
    """Name what was changed since by others than this batch: undoing would lose it."""
    with connection.cursor() as cursor:
        # Through auditevent_subject_idx. A memory that the batch made has no event of its own: any counts, but those
        # of batches that are undone themselves.
        cursor.execute(
            "SELECT DISTINCT subject_id FROM access_auditevent edit"
            " WHERE subject_type = 'memory' AND subject_id = ANY(%s) AND batch_id IS DISTINCT FROM %s"
            " AND id > coalesce((SELECT min(id) FROM access_auditevent own WHERE own.subject_type = 'memory'"
            " AND own.subject_id = edit.subject_id AND own.batch_id = %s), 0)"
            " AND NOT EXISTS (SELECT 1 FROM memories_importbatch b WHERE b.id = edit.batch_id AND b.state = 'undone')"
            " ORDER BY 1",
            [list(memory_ids), batch.pk, batch.pk],
        )
        edited = [row[0] for row in cursor.fetchall()]
    if edited:
        named = ", ".join(f"#{memory_id}" for memory_id in edited[:_NAMED])
        more = f" and {len(edited) - _NAMED:,} more" if len(edited) > _NAMED else ""
        raise UndoRefusedError(
            f"{memories(len(edited))} {'was' if len(edited) == 1 else 'were'} changed since batch {batch.pk} imported "
            f"{'it' if len(edited) == 1 else 'them'}: {named}{more}. "
            "Nothing was undone. --force undoes the batch and loses those changes."
        )


def _memories_restore(events: models.QuerySet[AuditEvent], memory_ids: set[int]) -> int:
    """Put memories of other batches back as they were before this one changed them."""
    before: dict[int, dict[str, Any]] = {}
    for memory_id, values in (
        events.filter(subject_type="memory", subject_id__in=memory_ids)
        .order_by("-id")
        .values_list("subject_id", "before")
    ):
        # The oldest event of the batch comes last and decides.
        before.setdefault(memory_id, {}).update(values or {})
    wanted = list(before)
    restored = 0
    for values in before.values():
        _merged_follow(values)
    for start in range(0, len(wanted), _BLOCK):
        snapshots = snapshots_read(wanted[start : start + _BLOCK])
        changes = [(snapshot, snapshot_restored(snapshot, before[snapshot.id])) for snapshot in snapshots.values()]
        restored += len(snapshots_update(changes))
    return restored


def _merged_follow(values: dict[str, Any]) -> None:
    """Links that stood before lead to what has taken the place of a term that was merged since, each once."""
    for kind, column in (("category", "categories"), ("concept", "concepts"), ("entity", "entities")):
        refs: dict[int, list[Any]] = {}
        ids = ids_now(kind, [ref[0] for ref in values.get(column, ())])
        for ref in values.get(column, ()):
            refs.setdefault(ids[ref[0]], [ids[ref[0]], *ref[1:]])
        if column in values:
            values[column] = [refs[one] for one in sorted(refs) if one]
    if "tags" in values:
        now = tags_now(values["tags"])
        values["tags"] = list(dict.fromkeys(now.get(tag, tag) for tag in values["tags"]))


def _memories_remove(memory_ids: Sequence[int]) -> None:
    """Memories and all that hangs on them. Links that others have to them are dangling again."""
    MemoryLink.objects.filter(target_memory_id__in=memory_ids).exclude(memory_id__in=memory_ids).update(
        target_memory=None
    )
    Memory.objects.filter(superseded_by_id__in=memory_ids).exclude(pk__in=memory_ids).update(superseded_by=None)
    with connection.cursor() as cursor:
        # Evidence that others state keeps what remains of it.
        cursor.execute(
            "UPDATE categories_relationship SET evidence_ids = ("
            "SELECT coalesce(array_agg(kept ORDER BY kept), '{}') FROM unnest(evidence_ids) kept"
            " WHERE NOT kept = ANY(%s)) WHERE evidence_ids && %s::bigint[]",
            [list(memory_ids), list(memory_ids)],
        )
        for model in (CategoryLink, ConceptLink, EntityLink, MemoryLink):
            cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE memory_id = ANY(%s)", [list(memory_ids)])
        cursor.execute("DELETE FROM memories_memory WHERE id = ANY(%s)", [list(memory_ids)])


_DESCRIBED: dict[str, type[models.Model]] = {
    "project": Project,
    "category": Category,
    "concept": Concept,
    "entity": Entity,
    "relationship": Relationship,
}


def _vocabulary_restore(events: models.QuerySet[AuditEvent]) -> None:
    """Take back what the batch added to vocabulary that was there before it, and nobody changed since."""
    for event in events.filter(subject_type__in=list(_DESCRIBED)).order_by("-id"):
        row = _DESCRIBED[event.subject_type]._default_manager.filter(pk=event.subject_id).first()
        if row is None:
            continue
        values: dict[str, Any] = {}
        for name, before in (event.before or {}).items():
            now, after = getattr(row, name), (event.after or {}).get(name)
            if isinstance(now, list) and isinstance(after, list):
                # Only what the batch added: others may have added more.
                added = [item for item in after if item not in before]
                values[name] = [item for item in now if item not in added]
            elif (now.isoformat() if isinstance(now, datetime) else now) == after:
                values[name] = before
        for name, value in values.items():
            field = row._meta.get_field(name)
            setattr(row, name, field.to_python(value) if isinstance(field, models.DateTimeField) else value)
        if values:
            row.save(update_fields=list(values))


def _vocabulary_remove(batch: ImportBatch, undone: Undone) -> None:
    """Vocabulary that the batch made and nothing else uses; also what an earlier undo had to leave for this one."""
    batches = [batch.pk, *ImportBatch.objects.filter(state=ImportBatch.State.UNDONE).values_list("pk", flat=True)]

    def remove(kind: str, query: models.QuerySet[Any]) -> int:
        # What goes with them, such as suggestions about a project, is not counted.
        count = query.delete()[1].get(query.model._meta.label, 0)
        if count:
            undone.vocabulary[kind] = undone.vocabulary.get(kind, 0) + count
        return count

    remove("relationships", Relationship.objects.filter(batch_id__in=batches))
    _links_between_drop(Concept, "concepts", batches, undone, ("broader_ids", "narrower_ids", "related_ids"))
    remove(
        "entities",
        Entity.objects.filter(batch_id__in=batches)
        .exclude(pk__in=EntityLink.objects.values("entity_id"))
        .exclude(pk__in=Relationship.objects.values("source_id"))
        .exclude(pk__in=Relationship.objects.values("target_id")),
    )
    # Leaves first: a branch goes when its last child has gone.
    while _links_between_drop(Category, "categories", batches, undone, ("related_ids",)):
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
    for kind, model in (("categories", Category), ("concepts", Concept), ("entities", Entity), ("projects", Project)):
        if kept := model._default_manager.filter(batch_id=batch.pk).count():
            undone.kept[kind] = kept


def _links_between_drop(
    model: type[Category] | type[Concept], kind: str, batches: Iterable[int], undone: Undone, columns: Sequence[str]
) -> int:
    """Remove unused rows of a batch, and their ids from the rows that relate to them."""
    unused = model._default_manager.filter(batch_id__in=list(batches))
    if model is Category:
        parents = Category.objects.filter(parent__isnull=False).values("parent_id")
        unused = unused.exclude(pk__in=CategoryLink.objects.values("category_id")).exclude(pk__in=parents)
    else:
        unused = unused.exclude(pk__in=ConceptLink.objects.values("concept_id"))
    ids = list(unused.values_list("pk", flat=True))
    if not ids:
        return 0
    with connection.cursor() as cursor:
        for column in columns:
            cursor.execute(
                f"UPDATE {model._meta.db_table} SET {column} = (SELECT coalesce(array_agg(kept ORDER BY kept), '{{}}')"
                f" FROM unnest({column}) kept WHERE NOT kept = ANY(%s)) WHERE {column} && %s::integer[]",
                [ids, ids],
            )
        cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE id = ANY(%s)", [ids])
    undone.vocabulary[kind] = undone.vocabulary.get(kind, 0) + len(ids)
    return len(ids)

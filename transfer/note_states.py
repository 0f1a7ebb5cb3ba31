"""The states that imports give to the memories of notes because of other notes: these are no edits of theirs."""

from access.models import AuditEvent
from web.sql import execute


def note_states_store(batch_id: int) -> None:
    """Store the states and successors of notes that an import superseded, next to what came from their files."""
    events = AuditEvent.objects.filter(batch_id=batch_id, subject_type="memory")
    changed = list(events.filter(verb__in=("import", "supersede")).values_list("subject_id", flat=True))
    # memory_batch_idx, and the primary key.
    execute(
        "UPDATE memories_memory SET raw = jsonb_set(raw, '{note_file,imported}', raw #> '{note_file,imported}'"
        " || jsonb_build_object('state', state, 'superseded_by', superseded_by_id))"
        " WHERE (batch_id = %s OR id = ANY(%s)) AND raw #> '{note_file,imported}' IS NOT NULL"
        " AND (state, coalesce(superseded_by_id, 0)) IS DISTINCT FROM (raw #>> '{note_file,imported,state}',"
        " coalesce((raw #>> '{note_file,imported,superseded_by}')::bigint, 0))",
        [batch_id, changed],
    )

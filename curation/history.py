"""The curations that changed a memory, for its history."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from access.models import AuditEvent, MemoryChange
from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from curation.models import Curation, CurationChange
from curation.tables import load_json
from memories.changes import kind_of_values
from memories.history import HistoryEvent, LinkChange, maker_of
from web.sql import fetch

Action = CurationChange.Action
Kind = MemoryChange.Kind

_MOST = 1_000
_STATE_COLUMNS = ("state", "state_reason", "superseded_by_id")
# curationchange_memory_gin. Of rows that list thousands of memories, only those of this one leave the database.
_CHANGES = """
SELECT curation_id, "table", action, source_id, target_id,
  (SELECT jsonb_agg(item) FROM jsonb_array_elements(before) item
    WHERE action IN ('unlink', 'tag', 'state', 'columns') AND item -> 0 = to_jsonb(%(id)s)),
  (SELECT jsonb_agg(item) FROM jsonb_array_elements(after) item
    WHERE action IN ('tag', 'state', 'columns') AND item -> 0 = to_jsonb(%(id)s))
FROM curation_curationchange WHERE memory_ids @> ARRAY[%(id)s]::bigint[] ORDER BY id DESC LIMIT %(most)s"""
_DELETED = """
SELECT (item ->> 'id')::bigint, item FROM curation_curationchange, jsonb_array_elements(before) item
WHERE "table" = %s AND action = 'delete' AND (item ->> 'id')::bigint = ANY(%s) ORDER BY curation_curationchange.id"""


class CurationHistory:
    """Changes of many memories at once, and what became of terms that no longer exist."""

    def events(self, memory_id: int, viewer: Viewer) -> Sequence[HistoryEvent]:
        """The curations that changed a memory, and those of them that were undone, a second event each."""
        changes: dict[int, list[Any]] = {}
        for row in fetch(_CHANGES, {"id": memory_id, "most": _MOST}):
            changes.setdefault(row[0], []).append((*row[1:5], *(load_json(rows) or [] for rows in row[5:])))
        curations = Curation.objects.filter(pk__in=changes).select_related("user", "api_key")
        undone = [curation.pk for curation in curations if curation.undone_at]
        undo = {
            event.subject_id: event
            for event in AuditEvent.objects.filter(
                subject_type="curation", subject_id__in=undone, verb="curation_undo"
            ).select_related("user", "api_key")
        }
        # The title of a curation of memories of other projects may name what only these have.
        # Each start of the project imports this module, few need a search.
        from curation.queries import visible_curations

        shown = set(visible_curations(viewer).filter(pk__in=changes).values_list("pk", flat=True))
        found = []
        for curation in curations:
            event = _event(curation, changes[curation.pk], curation.title if curation.pk in shown else "")
            found.append(event)
            if curation.undone_at:
                found.append(_undone(event, curation.undone_at, undo.get(curation.pk)))
        return found

    def present_ids(self, kind: str, ids: Collection[int]) -> dict[int, int]:
        """Each id with that of the term that it was merged into; its own if it exists, 0 if neither does."""
        from curation.queries import merged_ids

        return merged_ids(kind, ids)

    def former_names(self, kind: str, ids: Collection[int]) -> dict[int, str]:
        """The names that merged and deleted terms had."""
        return {term_id: _name(kind, load_json(row)) for term_id, row in fetch(_DELETED, [kind, list(ids)])}


def _event(curation: Curation, changes: Sequence[Any], title: str) -> HistoryEvent:
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    links: dict[str, LinkChange] = {}
    # Newest first, so that the oldest value is the one before.
    for table, action, source_id, target_id, rows_before, rows_after in changes:
        if action == Action.TAG:
            before["tags"], after["tags"] = rows_before[0][1], rows_after[0][1]
            continue
        if action == Action.STATE:
            # Journals of earlier versions have no successors.
            for place, name in enumerate(_STATE_COLUMNS[: len(rows_after[0]) - 1], 1):
                before[name], after[name] = rows_before[0][place], rows_after[0][place]
            continue
        if action == Action.COLUMNS:
            before |= rows_before[0][1]
            after |= rows_after[0][1]
            continue
        removed = [source_id] if action == Action.RELINK else [row[1] for row in rows_before]
        added = [target_id] if action in (Action.RELINK, Action.LINK) else []
        if removed or added:
            plural = VOCABULARIES[table].plural
            known = links.get(plural, LinkChange())
            links[plural] = LinkChange((*known.removed, *removed), (*known.added, *added))
    kind = Kind.MERGED if curation.verb == "merge" else _kind_of(before, after)
    return HistoryEvent(
        id=f"curation-{curation.pk}",
        at=curation.at,
        kind=kind.value,
        by=str(curation.user) if curation.user else curation.api_key.name if curation.api_key else "",
        door=curation.door,
        reason=title,
        curation_id=curation.pk,
        before=before,
        after=after,
        links=links,
    )


def _kind_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> Kind:
    is_same = before.get("state") == after.get("state")
    fields = after.keys() - {*_STATE_COLUMNS}
    return kind_of_values(before.get("state"), None if is_same else after["state"], fields)


def _undone(event: HistoryEvent, at: datetime, undo: AuditEvent | None) -> HistoryEvent:
    return replace(
        event,
        id=f"{event.id}-undone",
        at=at,
        kind=_kind_of(event.after, event.before).value,
        by=maker_of(undo) if undo else "",
        door=undo.door if undo else event.door,
        reason=f"Undone: {event.reason}" if event.reason else "Undone.",
        before=event.after,
        after=event.before,
        links={plural: LinkChange(change.added, change.removed) for plural, change in event.links.items()},
    )


def _name(kind: str, row: Any) -> str:
    label = str(row[VOCABULARIES[kind].label_column])
    return f"{row['entity_type']}:{label}" if kind == "entity" else label

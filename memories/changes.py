"""The feed of changes: entries written with each change, and read in the order in which they were committed.

An entry lists memories of one project, so that a viewer's entries are those of their projects. A change of many
memories has an entry for every thousand of a project. See `access.models.MemoryChange` for the order.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from access.models import AuditEvent, MemoryChange
from access.viewer import Viewer
from memories.models import Corpus, Memory, Project
from memories.queries import visible_to
from memories.snapshot import MemorySnapshot
from web.errors import Refusal
from web.sql import execute, fetch

Kind = MemoryChange.Kind

# Memories in an entry, and entries that one request looks through for the wanted kinds.
_BLOCK = 1_000
_LOOKED_THROUGH = 5_000
# Fields that alone make a change a change of tags; the others of these come with any import.
_TERMS = {"tags", "categories", "concepts", "entities", "updated_at", "raw", "record_hash"}
_BY_STATE = {
    Memory.State.SUPERSEDED: Kind.SUPERSEDED,
    Memory.State.ARCHIVED: Kind.ARCHIVED,
    Memory.State.DELETED: Kind.DELETED,
}


# --- writing ----------------------------------------------------------------------------------------------------------


def kind_of_change(before: MemorySnapshot | None, after: MemorySnapshot, fields: Collection[str]) -> Kind:
    """The kind of a change, by the fields that differ."""
    if before is None:
        return Kind.CREATED
    state = after.state if after.state != before.state else None
    return kind_of_values(before.state, state, fields)


def kind_of_values(before: str | None, state: str | None, fields: Collection[str]) -> Kind:
    """The kind of a change, by the state before it, the state that it set, if any, and the fields that differ."""
    if state is not None:
        was_there = before in (Memory.State.ACTIVE, Memory.State.PROPOSED)
        return _BY_STATE.get(Memory.State(state), Kind.EDITED if was_there else Kind.RESTORED)
    return Kind.RETAGGED if _TERMS.issuperset(fields) else Kind.EDITED


def changes_record(entries: Iterable[tuple[AuditEvent, int, Kind]]) -> None:
    """Record changes of single memories: their stored events, projects and kinds."""
    MemoryChange.objects.bulk_create(
        (
            MemoryChange(project_id=project_id, kind=kind, memory_ids=[event.subject_id], event=event)
            for event, project_id, kind in entries
        ),
        batch_size=500,
    )


def changes_record_many(event: AuditEvent, kind: Kind, memory_ids: Sequence[int]) -> None:
    """Record one change of many memories."""
    _record_selected(event, kind, "id = ANY(%s)", list(memory_ids))


def changes_record_left(event: AuditEvent, left: Mapping[int, Sequence[int]]) -> None:
    """Record for projects that memories have left them: for their readers these are gone."""
    MemoryChange.objects.bulk_create(
        MemoryChange(project_id=project_id, kind=Kind.DELETED, memory_ids=ids[start : start + _BLOCK], event=event)
        for project_id, ids in left.items()
        for start in range(0, len(ids), _BLOCK)
    )


def changes_record_batch(event: AuditEvent, batch_id: int) -> None:
    """Record that an import has created the memories of its batch."""
    _record_selected(event, Kind.CREATED, "batch_id = %s", batch_id)


def _record_selected(event: AuditEvent, kind: Kind, condition: str, parameter: int | list[int]) -> None:
    execute(
        "INSERT INTO access_memorychange (project_id, kind, memory_ids, event_id)"
        " SELECT project_id, %s, array_agg(id ORDER BY id), %s FROM (SELECT id, project_id,"
        f" (row_number() OVER (PARTITION BY project_id ORDER BY id) - 1) / {_BLOCK} AS block"
        f" FROM memories_memory WHERE {condition}) chosen GROUP BY project_id, block ORDER BY min(id)",
        [kind, event.pk, parameter],
    )


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedMemory:
    """A change of one memory. The title is that of today; None if the memory is gone."""

    memory_id: int
    title: str | None
    project: str
    kind: str
    at: datetime
    event: AuditEvent


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """Changes in the order that was asked for, and the cursor after the last one."""

    changes: tuple[ChangedMemory, ...]
    cursor: str
    has_more: bool


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """A place in the feed: after the first `done` memories of an entry.

    On the way back, it is before an entry, or, if `done` is negative, before the last -`done` - 1 memories of one.
    """

    revision: int
    id: int
    done: int = 0


_END = 2**62


class CursorError(Refusal):
    """A cursor that this site has not given out."""

    code = "invalid_query"
    message = "after: is not a cursor of this site"
    suggestion = "Send the cursor of an earlier reply unchanged, or begin again with since=7d."


class OtherOrderError(CursorError):
    """A cursor of the feed in the other direction."""

    message = "after: is a cursor of the other order"
    suggestion = "Send it with the order of the request that it comes from, or begin again without it."


def changes(
    viewer: Viewer,
    *,
    after: str = "",
    since: datetime | None = None,
    project_ids: Collection[int] | None = None,
    kinds: Collection[str] = (),
    limit: int = 100,
) -> ChangeFeed:
    """The visible changes after a cursor, or since a time, or all of them. Raises CursorError.

    `project_ids` None means every project. A page may be short, or empty, although there are more.
    """
    # Before the entries: what is committed in between is not skipped.
    newest = Corpus.objects.filter(pk=1).values_list("revision", flat=True).first() or 0
    place = _read_cursor(after) if after else _Place(-1, 0)
    if place.done < 0:
        raise OtherOrderError
    if since is not None:
        place = max(place, _first_since(since) or _Place(newest, _END))
    visible = _projects(viewer, project_ids)
    # There may be few of the wanted kinds.
    window, is_cut = _window(place, visible, least=limit + 1, most=_LOOKED_THROUGH if kinds else limit + 1)
    last = window[-1][0] if window else place
    end = last if is_cut else _Place(max(last.revision, newest), _END)
    matching = [at for at, kind in window if not kinds or kind in kinds]
    wanted = matching[: limit + 1]
    if len(matching) > len(wanted):
        end, is_cut = wanted[-1], True
    listed, rest = _listed(place, wanted, limit)
    if rest is not None:
        end, is_cut = rest, True
    return ChangeFeed(_described(viewer, listed), _write_cursor(end), is_cut)


def newest_changes(
    viewer: Viewer,
    *,
    after: str = "",
    since: datetime | None = None,
    project_ids: Collection[int] | None = None,
    kinds: Collection[str] = (),
    limit: int = 100,
) -> ChangeFeed:
    """The visible changes from the newest back, to a time if one is given. Raises CursorError.

    The cursor continues further back. A page may be short, or empty, although there are more.
    """
    place = _read_cursor(after) if after else _Place(_END, 0, -1)
    if place.done >= 0:
        raise OtherOrderError
    first = _Place(-1, 0)
    if since is not None:
        first = _first_since(since) or _Place(_END, _END)
    most = _LOOKED_THROUGH if kinds else limit + 1
    found, is_cut = _window(place, _projects(viewer, project_ids), least=limit + 1, most=most, back=True)
    window = [(at, kind) for at, kind in found if at > first]
    is_cut = is_cut and len(window) == len(found)
    wanted = [at for at, kind in window if not kinds or kind in kinds]
    entries = MemoryChange.objects.select_related("event__user", "event__api_key").in_bulk([at.id for at in wanted])
    listed: list[tuple[MemoryChange, int]] = []
    end = _Place(window[-1][0].revision, window[-1][0].id, -1) if window else place
    for at in wanted:
        entry = entries[at.id]
        rest = entry.memory_ids[: len(entry.memory_ids) + place.done + 1] if at.id == place.id else entry.memory_ids
        left = max(0, len(rest) - (limit - len(listed)))
        listed += [(entry, memory_id) for memory_id in reversed(rest[left:])]
        if left or (len(listed) == limit and at != wanted[-1]):
            end, is_cut = _Place(at.revision, at.id, left - len(entry.memory_ids) - 1 if left else -1), True
            break
    return ChangeFeed(_described(viewer, listed), _write_cursor(end), is_cut)


def _projects(viewer: Viewer, project_ids: Collection[int] | None) -> frozenset[int] | None:
    """The projects whose changes a viewer gets, of those that are wanted; None for all."""
    if project_ids is None:
        return viewer.project_ids
    return frozenset(project_ids) if viewer.project_ids is None else viewer.project_ids.intersection(project_ids)


def _listed(
    place: _Place, wanted: Sequence[_Place], limit: int
) -> tuple[list[tuple[MemoryChange, int]], _Place | None]:
    """The first `limit` memories of the entries, each with its entry, and the place of the rest, None without one."""
    entries = MemoryChange.objects.select_related("event__user", "event__api_key").in_bulk([at.id for at in wanted])
    listed: list[tuple[MemoryChange, int]] = []
    for at in wanted:
        entry = entries[at.id]
        begin = place.done if at.id == place.id else 0
        end = begin + limit - len(listed)
        listed += [(entry, memory_id) for memory_id in entry.memory_ids[begin:end]]
        if end < len(entry.memory_ids) or (len(listed) == limit and at != wanted[-1]):
            return listed, _Place(at.revision, at.id, min(end, len(entry.memory_ids)))
    return listed, None


def _described(viewer: Viewer, listed: Sequence[tuple[MemoryChange, int]]) -> tuple[ChangedMemory, ...]:
    """The changes with the titles of the memories that the viewer may open, and the names of their projects."""
    titles = visible_to(viewer).filter(pk__in=[memory_id for _, memory_id in listed])
    projects = Project.objects.filter(pk__in={entry.project_id for entry, _ in listed})
    slugs = dict(projects.values_list("pk", "slug"))
    title_of = dict(titles.values_list("pk", "title"))
    return tuple(
        ChangedMemory(pk, title_of.get(pk), slugs.get(entry.project_id, ""), entry.kind, entry.at, entry.event)
        for entry, pk in listed
        if entry.at is not None
    )


def _window(
    place: _Place, project_ids: frozenset[int] | None, *, least: int, most: int, back: bool = False
) -> tuple[list[tuple[_Place, str]], bool]:
    """The next entries, on the way back those before, as place and kind, and whether there may be more of them."""
    # An entry of which a part is listed already is read again.
    beside = 0 if place.done not in (0, -1) else -1 if back else 1
    parameters: dict[str, Any] = {"revision": place.revision, "id": place.id + beside}
    comparison, direction, last = ("<=", "DESC", min) if back else (">=", "ASC", max)
    statement = (
        "SELECT revision, id, kind FROM access_memorychange"
        f" WHERE (revision, id) {comparison} (%(revision)s, %(id)s){{of}}"
        f" ORDER BY revision {direction}, id {direction} LIMIT %(most)s"
    )
    if project_ids is None:
        # memorychange_feed_idx.
        most = max(least, most)
        rows = fetch(statement.format(of=""), {**parameters, "most": most})
        return [(_Place(*row[:2]), row[2]) for row in rows], len(rows) == most
    # memorychange_project_idx, once for each project.
    most = max(least, most // max(1, len(project_ids)))
    rows = fetch(
        "SELECT found.*, project.id FROM unnest(%(projects)s::bigint[]) AS project (id) CROSS JOIN LATERAL ("
        f"{statement.format(of=' AND project_id = project.id')}) found"
        f" ORDER BY 1 {direction}, 2 {direction}",
        {**parameters, "most": most, "projects": sorted(project_ids)},
    )
    read = Counter(row[3] for row in rows)
    # Behind the last entry of a project that has more, entries of that project are missing.
    cuts = [last(row[:2] for row in rows if row[3] == project) for project, count in read.items() if count == most]
    if not cuts:
        return [(_Place(*row[:2]), row[2]) for row in rows], False
    end = max(cuts) if back else min(cuts)
    return [(_Place(*row[:2]), row[2]) for row in rows if (row[:2] >= end if back else row[:2] <= end)], True


def _first_since(since: datetime) -> _Place | None:
    """The place before the first entry since a time, through memorychange_at_idx. Times rise with revisions."""
    rows = MemoryChange.objects.filter(at__gte=since).order_by("at", "revision", "id").values_list("revision", "id")
    row = rows.first()
    return row and _Place(row[0] or 0, row[1] - 1)


# --- cursors: encrypted, since their numbers tell how much others write -----------------------------------------------

_NONCE, _MARK, _NUMBERS = 6, 6, 3 * 8


def _write_cursor(place: _Place) -> str:
    plain = b"".join(number.to_bytes(8, "big", signed=True) for number in (place.revision, place.id, place.done))
    nonce = secrets.token_bytes(_NONCE)
    hidden = bytes(one ^ other for one, other in zip(plain, _digest(b"hide", nonce), strict=False))
    mark = _digest(b"mark", nonce + hidden)[:_MARK]
    return urlsafe_b64encode(nonce + mark + hidden).decode()


def _read_cursor(cursor: str) -> _Place:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii"))
    except ValueError:
        raise CursorError from None
    nonce, mark, hidden = raw[:_NONCE], raw[_NONCE : _NONCE + _MARK], raw[_NONCE + _MARK :]
    if len(hidden) != _NUMBERS or not hmac.compare_digest(mark, _digest(b"mark", nonce + hidden)[:_MARK]):
        raise CursorError
    plain = bytes(one ^ other for one, other in zip(hidden, _digest(b"hide", nonce), strict=False))
    return _Place(*(int.from_bytes(plain[at : at + 8], "big", signed=True) for at in range(0, _NUMBERS, 8)))


def _digest(purpose: bytes, text: bytes) -> bytes:
    return hmac.new(settings.SECRET_KEY.encode(), b"cursor of changes:" + purpose + text, hashlib.sha256).digest()

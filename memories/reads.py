"""The log of reads: when which person or key was given which memories, by which operation, and for which query.

Every answer that has memories is one read: a page that a person looks at, a reply of the API, a tool's result, a feed,
an export. Reads wait in the process with the recalls (`memories/recalls.py`) and are stored with them, so that no
answer waits. They are removed after READS_DAYS days.

Whoever administers everything sees all of them, other people their own and those with the keys that they manage, and a
key its own.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import BooleanField, Case, Count, Max, Q, QuerySet, Value, When

from access.models import ApiKey, AuditEvent
from access.services import key_rights
from access.viewer import Viewer
from memories.models import MemoryRead
from web.exchange import current
from web.secrets import mask_query

ReadDoor, Kind = MemoryRead.ReadDoor, MemoryRead.Kind
# Ids of a read that are stored; it is in the condition of memoryread_large_idx.
MOST_IDS = 1_000
_LONGEST_QUERY = 2_000
_REMOVED_AT_ONCE = 10_000
_DOORS = {door: ReadDoor(door.value) for door in AuditEvent.Door}
_CLAUDE_MEM = "claude-mem"

_COPY = (
    "COPY memories_memoryread (at, user_id, api_key_id, door, operation, session, kind, query, memory_ids, number)"
    " FROM STDIN"
)
# Uses memoryread_at_idx.
_REMOVE = """
DELETE FROM memories_memoryread WHERE id = ANY(ARRAY(
  SELECT id FROM memories_memoryread WHERE at < %(until)s ORDER BY at LIMIT %(most)s))"""


@dataclass(frozen=True, slots=True)
class WaitingRead:
    """A read that is not stored yet."""

    at: datetime
    user_id: int | None
    api_key_id: int | None
    door: str
    operation: str
    session: str
    kind: str
    query: str
    memory_ids: tuple[int, ...]
    number: int


def build_read(
    viewer: Viewer, ids: Sequence[int], kind: MemoryRead.Kind, query: str, at: datetime, number: int | None = None
) -> WaitingRead:
    """A read by the viewer in the current request, of all memories with these ids, or of a greater number."""
    exchange = current()
    operation = exchange.route if exchange else ""
    return WaitingRead(
        at=at,
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=_door(viewer, operation),
        operation=operation.removeprefix("/mcp ").removeprefix(f"{_CLAUDE_MEM} "),
        session=exchange.session if exchange else "",
        kind=kind,
        query=query,
        memory_ids=tuple(ids[:MOST_IDS]),
        number=len(ids) if number is None else number,
    )


def _door(viewer: Viewer, operation: str) -> MemoryRead.ReadDoor:
    if operation.startswith(_CLAUDE_MEM):
        return ReadDoor.CLAUDE_MEM
    return ReadDoor.FEED if operation == "/feed/" else _DOORS[viewer.door]


def without_secrets(read: WaitingRead) -> WaitingRead:
    """A read whose query has no secrets, and is short enough to be stored."""
    return replace(read, query=mask_query(read.query)[:_LONGEST_QUERY])


def store_reads(reads: Iterable[WaitingRead]) -> None:
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for read in reads:
            copy.write_row(
                (
                    *(read.at, read.user_id, read.api_key_id, read.door, read.operation, read.session, read.kind),
                    *(read.query, list(read.memory_ids), read.number),
                )
            )


def remove_old_reads() -> None:
    """Remove reads that are older than the setting says; all of them if none are kept."""
    until = datetime.now(UTC) - timedelta(days=settings.READS_DAYS)
    with connection.cursor() as cursor:
        removed = _REMOVED_AT_ONCE
        while removed == _REMOVED_AT_ONCE:
            cursor.execute(_REMOVE, {"until": until, "most": _REMOVED_AT_ONCE})
            removed = cursor.rowcount


# --- who has read what --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """An agent or a person, and how often they were given memories: as the whole, or among the results of a list."""

    name: str
    is_agent: bool
    times: int
    listed: int
    last_at: datetime


def visible_reads(viewer: Viewer) -> QuerySet[MemoryRead]:
    """The reads that a viewer may see, the latest first."""
    if "admin" in viewer.scopes and viewer.project_ids is None:
        return MemoryRead.objects.all()
    if viewer.api_key_id is not None:
        return MemoryRead.objects.filter(api_key_id=viewer.api_key_id)
    user = User.objects.filter(pk=viewer.user_id).first() if viewer.user_id else None
    if user is None:
        return MemoryRead.objects.none()
    managed = key_rights(user).keys().order_by().values("pk")
    return MemoryRead.objects.filter(Q(user_id=user.pk) | Q(api_key_id__in=managed))


def reads_of(memory_ids: Collection[int]) -> QuerySet[MemoryRead]:
    """All reads that gave one of the memories, the latest first. Uses memoryread_memories_gin.

    Of a very large one, such as an export, not every id is stored: it is among them, and not `is_certain`.
    """
    certain = Q(memory_ids__overlap=list(memory_ids))
    is_certain = Case(When(certain, then=Value(True)), default=Value(False), output_field=BooleanField())
    return MemoryRead.objects.filter(certain | Q(number__gt=MOST_IDS)).annotate(is_certain=is_certain)


def readers_of(reads: QuerySet[MemoryRead]) -> list[MemoryReader]:
    """Whoever made some reads, with the number of each, the last reader first."""
    is_listed = Q(kind=Kind.LIST, api_key_id=None) & ~Q(door__in=(ReadDoor.MCP, ReadDoor.CLAUDE_MEM))
    rows = list(
        reads.order_by()
        .values_list("user_id", "api_key_id", "door")
        .annotate(times=Count("pk", filter=~is_listed), listed=Count("pk", filter=is_listed), last=Max("at"))
    )
    names = reader_names((user_id, key_id, door) for user_id, key_id, door, *_ in rows)
    merged: dict[tuple[str, bool], MemoryReader] = {}
    for user_id, key_id, door, times, listed, last in rows:
        name, is_agent = names[user_id, key_id, door]
        known = merged.get((name, is_agent))
        if known:
            times, listed, last = known.times + times, known.listed + listed, max(known.last_at, last)
        merged[name, is_agent] = MemoryReader(name, is_agent, times, listed, last)
    return sorted(merged.values(), key=lambda reader: reader.last_at, reverse=True)


Identity = tuple[int | None, int | None, str]
_NAMELESS = {
    ReadDoor.CLAUDE_MEM.value: "claude-mem",
    ReadDoor.COMMAND.value: "the command line",
    ReadDoor.MCP.value: "MCP",
}


def key_label(key: ApiKey) -> str:
    """The name of a key as a reader; of an app's, with the person it acts for."""
    return f"{key.name} for {key.acts_for}" if key.acts_for else key.name


def reader_names(identities: Iterable[Identity]) -> dict[Identity, tuple[str, bool]]:
    """The name of each reader, by the numbers of the person and the key, and the door; and whether it is an agent."""
    asked = set(identities)
    users = dict(User.objects.filter(pk__in={user for user, _, _ in asked if user}).values_list("pk", "username"))
    keys = ApiKey.objects.select_related("acts_for").in_bulk({key for _, key, _ in asked if key})
    names: dict[Identity, tuple[str, bool]] = {}
    for user_id, key_id, door in asked:
        if key_id is not None:
            names[user_id, key_id, door] = key_label(keys[key_id]) if key_id in keys else "a deleted key", True
        elif user_id is not None:
            names[user_id, key_id, door] = users.get(user_id, "a deleted account"), door == ReadDoor.MCP
        else:
            names[user_id, key_id, door] = _NAMELESS.get(door, "nobody in particular"), door != ReadDoor.COMMAND
    return names

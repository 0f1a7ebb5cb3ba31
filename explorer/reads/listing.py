"""The log of reads, filtered: a part of it at a time, with the names of readers and the memories that a viewer sees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from pydantic import AfterValidator, Field

from access.models import ApiKey
from access.services import key_rights
from access.viewer import Viewer
from memories.models import MemoryRead
from memories.queries import MemoryTitle, titles_of, visible_to
from memories.reads import key_label, reader_names, visible_reads
from search.query import check_first_date
from text.formatting import check_date, instant, legible
from web.errors import close_to
from web.params import Params, QueryError, Value, Values
from web.validation import Problem

DOORS = tuple(door.value for door in MemoryRead.ReadDoor)
# Memories of a read whose titles are shown.
_TITLES = 5


class ReadsRequest(Params):
    """Which reads are listed, the latest first."""

    reader: Value = Field("", description="Name of a key or of a person.")
    door: Values = Field((), description=f"Any of {', '.join(DOORS)}.")
    memory: int | None = Field(None, ge=1, lt=2**63, description="Number of a memory that was read.")
    session: Value = Field("", description="The session of the agent, as its client named it.")
    date_from: Annotated[str, AfterValidator(check_first_date)] = Field(
        "", alias="from", description="First day, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    date_to: Annotated[str, AfterValidator(check_date)] = Field(
        "", alias="to", description="Last day, included, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    cursor: int | None = Field(None, ge=1, lt=2**63, description="`next` of the previous reply.")
    limit: int = Field(50, ge=1, le=200, description="Maximum number of reads.")

    def conflicts(self) -> Iterable[Problem]:
        for door in self.door:
            if door not in DOORS:
                wrong = f"'{legible(door, 40)}' is not a door"
                yield Problem("door", wrong, f"write one of {', '.join(DOORS)}", close_to(door, DOORS))
        if self.date_from and self.date_to:
            first, end = instant(self.date_from, UTC, end=False), instant(self.date_to, UTC, end=True)
            if first and end and first >= end:
                yield Problem("to", "is before from", "swap them")


@dataclass(frozen=True, slots=True)
class ListedRead:
    """A read, with the memories of it that the viewer sees: the ids of all, and the titles of the first."""

    read: MemoryRead
    reader: str
    is_agent: bool
    memory_ids: tuple[int, ...]
    titles: tuple[MemoryTitle, ...]


@dataclass(frozen=True, slots=True)
class ReadsPage:
    """A part of the log. `next` is the cursor of the next one, None if there is none."""

    reads: tuple[ListedRead, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class _Identities:
    """The accounts and keys that have a name."""

    users: frozenset[int]
    keys: frozenset[int]


def readers_to_choose(viewer: Viewer) -> dict[str, _Identities]:
    """The people and keys whose reads the viewer may see, by name."""
    if "admin" in viewer.scopes and viewer.project_ids is None:
        users, keys = User.objects.all(), ApiKey.objects.all()
    elif viewer.api_key_id is not None:
        users, keys = User.objects.none(), ApiKey.objects.filter(pk=viewer.api_key_id)
    else:
        users = User.objects.filter(pk=viewer.user_id or 0)
        own = users.first()
        keys = key_rights(own).keys() if own else ApiKey.objects.none()
    found: dict[str, tuple[set[int], set[int]]] = {}
    for pk, name in users.values_list("pk", "username"):
        found.setdefault(name, (set(), set()))[0].add(pk)
    for key in keys.select_related("acts_for"):
        found.setdefault(key_label(key), (set(), set()))[1].add(key.pk)
    named = {name: _Identities(frozenset(users), frozenset(keys)) for name, (users, keys) in found.items()}
    return dict(sorted(named.items(), key=lambda item: item[0].casefold()))


def list_reads(request: ReadsRequest, viewer: Viewer) -> ReadsPage:
    """A part of the reads that the viewer may see. Raises QueryError for the name of a reader whom they do not see."""
    reads = _find_reads(request, viewer)
    if request.cursor is not None:
        reads = reads.filter(pk__lt=request.cursor)
    rows = list(reads.order_by("-pk")[: request.limit + 1])
    shown = rows[: request.limit]
    names = reader_names((row.user_id, row.api_key_id, row.door) for row in shown)
    visible = _visible_ids(viewer, {pk for row in shown for pk in row.memory_ids})
    given = [tuple(pk for pk in row.memory_ids if pk in visible) for row in shown]
    first = {pk for ids in given for pk in ids[:_TITLES]}
    titles = {one.id: one for one in titles_of(visible_to(viewer).filter(pk__in=first))}
    listed = [
        ListedRead(row, *names[row.user_id, row.api_key_id, row.door], ids, _in_order(titles, ids[:_TITLES]))
        for row, ids in zip(shown, given, strict=True)
    ]
    return ReadsPage(tuple(listed), shown[-1].pk if len(rows) > len(shown) else None)


def _visible_ids(viewer: Viewer, ids: set[int]) -> set[int]:
    if viewer.project_ids is None:
        return ids
    return set(visible_to(viewer).filter(pk__in=ids).values_list("pk", flat=True))


def _in_order(titles: Mapping[int, MemoryTitle], ids: Iterable[int]) -> tuple[MemoryTitle, ...]:
    return tuple(titles[pk] for pk in ids if pk in titles)


def _find_reads(request: ReadsRequest, viewer: Viewer) -> QuerySet[MemoryRead]:
    reads = visible_reads(viewer)
    if request.reader:
        known = readers_to_choose(viewer)
        if request.reader not in known:
            wrong = f"“{legible(request.reader)}” is no key or person whose reads you may see"
            raise QueryError(
                [Problem("reader", wrong, "write a name as it is listed", close_to(request.reader, known))]
            )
        identities = known[request.reader]
        reads = reads.filter(Q(user_id__in=identities.users, api_key_id=None) | Q(api_key_id__in=identities.keys))
    if request.door:
        reads = reads.filter(door__in=request.door)
    if request.memory is not None:
        # A memory that the viewer does not see leads to no read.
        visible = visible_to(viewer).filter(pk=request.memory).exists() or viewer.project_ids is None
        reads = reads.filter(memory_ids__contains=[request.memory]) if visible else reads.none()
    if request.session:
        reads = reads.filter(session=request.session)
    if first := instant(request.date_from, viewer.timezone, end=False):
        reads = reads.filter(at__gte=first)
    if end := instant(request.date_to, viewer.timezone, end=True):
        reads = reads.filter(at__lt=end)
    return reads

"""A session and what it did, in order: the memories that it stored, and those that they replaced."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Max, Min, Q
from django.db.models.functions import Left
from pydantic import Field

from access.viewer import Viewer
from explorer.listings import PageRequest, first_titles
from memories.models import NEWEST_SESSIONS, SESSION_BEGUN, Memory, Session
from memories.queries import MemoryTitle, visible_to
from web.errors import Refusal
from web.timing import Stopwatch, Timings

# Characters of a content that are read for an excerpt.
_EXCERPT_SCOPE = 1_200


class SessionNotFoundError(Refusal):
    """There is no session of this number that the viewer may see."""

    status = 404
    code = "not_found"
    title = "There is no such session"
    suggestion = "GET /api/sessions lists the sessions."


class SessionRequest(PageRequest):
    """Which part of a session's memories is listed, in the order in which they were created."""

    page_size: int = Field(100, ge=1, le=200)


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """A memory that a session stored, and the visible memories that it replaced."""

    memory: Memory
    head: str
    """The beginning of its text."""
    replaced: tuple[MemoryTitle, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionDetail:
    """A session and a page of its memories, the oldest first. Deleted ones are left out."""

    session: Session
    memories: tuple[SessionMemory, ...]
    total: int
    retired: int
    """How many of them are archived or superseded now."""
    first: datetime | None
    last: datetime | None
    types: tuple[tuple[str, int], ...]
    """The types of its memories with their numbers, the largest first."""
    previous: Session | None
    """The session of the same agent in the same project that began before it."""
    following: Session | None
    titles: dict[int, str]
    """The title of the first memory of this session, and of those before and after it, by the id of the session."""
    timings: Timings


def session_detail(session_id: int, request: SessionRequest, viewer: Viewer) -> SessionDetail:
    """A session of a project that the viewer sees. Raises SessionNotFoundError for any other, or none."""
    watch = Stopwatch()
    with watch.stage("hits"):
        sessions = Session.objects.select_related("project")
        if viewer.project_ids is not None:
            sessions = sessions.filter(project_id__in=viewer.project_ids)
        session = sessions.filter(pk=session_id).first()
        if session is None:
            raise SessionNotFoundError(f"There is no session {session_id} that you can see.")
        # Uses memory_session_idx.
        stored = visible_to(viewer).filter(session_id=session_id).exclude(state=Memory.State.DELETED).order_by()
        numbers = stored.aggregate(total=Count("pk"), first=Min("created_at"), last=Max("created_at"))
        kept = stored.filter(state__in=[Memory.State.ACTIVE, Memory.State.PROPOSED]).count()
        types = stored.values_list("memory_type").annotate(number=Count("pk")).order_by("-number", "memory_type")
        page = stored.order_by("created_at", "pk").annotate(head=Left("content", _EXCERPT_SCOPE))
        rows = list(page.defer("content", "terms", "raw")[request.slice])
        replaced = _replaced([row.pk for row in rows], viewer)
        previous, following = _beside(session)
        return SessionDetail(
            session=session,
            memories=tuple(SessionMemory(row, row.head, tuple(replaced.get(row.pk, ()))) for row in rows),
            total=numbers["total"],
            retired=numbers["total"] - kept,
            first=numbers["first"],
            last=numbers["last"],
            types=tuple(types),
            previous=previous,
            following=following,
            titles=first_titles([one for one in (session, previous, following) if one], viewer),
            timings=watch.timings,
        )


def _beside(session: Session) -> tuple[Session | None, Session | None]:
    """The sessions of the same agent in the same project that began before and after this one."""
    at = session.begun_at
    if at is None:
        return None, None
    beside = Session.objects.filter(project_id=session.project_id, agent=session.agent).annotate(begun=SESSION_BEGUN)
    same = Q(begun=at)
    return (
        beside.filter(Q(begun__lt=at) | same & Q(pk__lt=session.pk)).order_by(*NEWEST_SESSIONS).first(),
        beside.filter(Q(begun__gt=at) | same & Q(pk__gt=session.pk)).order_by("begun", "pk").first(),
    )


def _replaced(memory_ids: list[int], viewer: Viewer) -> dict[int, list[MemoryTitle]]:
    """The visible memories that each of these superseded. Uses memory_superseded_idx."""
    replaced: dict[int, list[MemoryTitle]] = defaultdict(list)
    rows = visible_to(viewer).filter(superseded_by_id__in=memory_ids).exclude(state=Memory.State.DELETED)
    names = ("id", "title", "memory_type", "state", "created_at")
    for successor, *row in rows.order_by("pk").annotate(by=F("superseded_by_id")).values_list("by", *names):
        replaced[successor].append(MemoryTitle(*row))
    return replaced

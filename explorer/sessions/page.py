"""The pages of sessions: their list, and what one of them did. No database and no request."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

from django.urls import reverse

from explorer.explore.page import Notice
from explorer.http import Pager, build_pager
from explorer.links import Link, explore_url, filter_url, memory_url, session_url
from explorer.listings import Listed, ListedSession, SessionsRequest
from explorer.sessions.reads import SessionDetail, SessionMemory, SessionRequest
from memories.models import Memory, Session
from search.query import SearchQuery
from text.formatting import day_label, local_time, memories, minute_label, moment_label, number, plural, type_family
from text.highlight import plain_text
from text.titles import plain_title

_EXCERPT = 220
# An id that no reader looks for.
_MACHINE_ID = re.compile(r"(?=.*[a-fA-F])[0-9a-fA-F-]{16,}|[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class SessionRow:
    label: str
    url: str
    external_id: str
    """Its id, if it is not the label, and was not made by a machine."""
    begins: str
    """The title of its first memory, if the label is another."""
    agent: Link | None
    project: Link
    begun: str
    moment: str
    begun_iso: str
    lasted: str
    memories: str


@dataclass(frozen=True, slots=True)
class SessionsContext:
    total: str
    search: str
    hidden: tuple[tuple[str, str], ...]
    filters: tuple[Link, ...]
    """The agents and projects that the list is limited to, each with the list without it."""
    rows: tuple[SessionRow, ...]
    pager: Pager | None
    notices: tuple[Notice, ...]
    empty: str


@dataclass(frozen=True, slots=True)
class Event:
    """A memory of the session. `replaced` are the memories that it superseded."""

    id: int
    time: str
    moment: str
    iso: str
    title: str
    url: str
    type: str
    family: str
    excerpt: str
    tags: tuple[Link, ...]
    state: str
    replaced: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Day:
    label: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class SessionContext:
    title: str
    external_id: str
    agent: str
    agent_url: str
    project: Link
    facts: tuple[tuple[str, str], ...]
    types: tuple[tuple[str, str, str], ...]
    """Type, its family, and the number of memories."""
    days: tuple[Day, ...]
    pager: Pager | None
    previous: Link | None
    following: Link | None
    explore_url: str
    """The memories of its agent and project in its days, with those of other sessions then."""
    empty: str

    @property
    def has_mix(self) -> bool:
        """Whether its numbers by type say more than the memories below."""
        return sum(len(day.events) for day in self.days) > 1 or self.pager is not None


def sessions_url(request: SessionsRequest | None = None) -> str:
    query = request.querystring() if request else ""
    return f"{reverse('explorer:sessions')}{f'?{query}' if query else ''}"


def session_label(session: Session, begins: str) -> str:
    """Its title, else that of its first memory, else its id."""
    return session.title or plain_title(begins).strip() or session.external_id


def build_sessions(
    found: Listed[ListedSession], request: SessionsRequest, zone: tzinfo, notices: Iterable[Notice] = ()
) -> SessionsContext:
    """The context of the list."""
    pages = request.pages(found.total)
    is_narrowed = bool(request.search or request.agent or request.project)
    empty = "No session matches." if is_narrowed else "No memory that you can see was stored in a session yet."
    return SessionsContext(
        total=number(found.total),
        search=request.search,
        hidden=tuple(pair for pair in request.parameters() if pair[0] not in {"search", "page"}),
        filters=tuple(_filters(request)),
        rows=tuple(_session_row(row, request, zone) for row in found.rows),
        pager=build_pager(
            request.page,
            pages,
            request.page_size,
            found.total,
            lambda page: sessions_url(request.replace(page=page)),
        )
        if pages > 1
        else None,
        notices=tuple(notices),
        empty="" if found.rows else empty,
    )


def _filters(request: SessionsRequest) -> Iterator[Link]:
    for name, values in (("agent", request.agent), ("project", request.project)):
        for value in values:
            rest = tuple(other for other in values if other != value)
            yield Link(f"{name} {value}", sessions_url(request.with_(**{name: rest})), f"Remove filter: {name} {value}")


def _session_row(row: ListedSession, request: SessionsRequest, zone: tzinfo) -> SessionRow:
    session = row.session
    begun = session.begun_at
    ended = session.ended_at or row.last
    project, label = session.project, session_label(session, row.begins)
    return SessionRow(
        label=label,
        url=session_url(session.pk),
        external_id=""
        if session.external_id == label or _MACHINE_ID.fullmatch(session.external_id)
        else session.external_id,
        begins=plain_title(row.begins) if session.title else "",
        agent=Link(session.agent, sessions_url(request.with_(agent=(session.agent,)))) if session.agent else None,
        project=Link(project.name or project.slug, sessions_url(request.with_(project=(project.slug,)))),
        begun=minute_label(begun, zone) if begun else "",
        moment=moment_label(begun, zone) if begun else "",
        begun_iso=begun.isoformat() if begun else "",
        lasted=_lasted(begun, ended),
        memories=number(row.memories),
    )


def _lasted(begun: datetime | None, ended: datetime | None) -> str:
    """A length of time in words; empty if it is unknown or none."""
    if begun is None or ended is None or ended <= begun:
        return ""
    minutes = round((ended - begun) / timedelta(minutes=1))
    if minutes < 1:
        return "under a minute"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return plural(minutes // (24 * 60), "day")


def build_session(found: SessionDetail, request: SessionRequest, zone: tzinfo) -> SessionContext:
    """The context of the page of one session."""
    session, pages = found.session, request.pages(found.total)
    project = session.project
    return SessionContext(
        title=session_label(session, found.titles.get(session.pk, "")),
        external_id=session.external_id,
        agent=session.agent,
        agent_url=sessions_url(SessionsRequest(agent=(session.agent,))) if session.agent else "",
        project=Link(project.name or project.slug, filter_url("project", project.slug)),
        facts=tuple(_facts(found, zone)),
        types=tuple((name, type_family(name), number(count)) for name, count in found.types),
        days=tuple(
            Day(label, tuple(_event(one, zone) for one in rows))
            for label, rows in groupby(found.memories, lambda one: day_label(one.memory.created_at, zone))
        ),
        pager=build_pager(
            request.page,
            pages,
            request.page_size,
            found.total,
            lambda page: f"{session_url(session.pk)}?{request.replace(page=page).querystring()}",
        )
        if pages > 1
        else None,
        previous=_beside(found.previous, found.titles),
        following=_beside(found.following, found.titles),
        explore_url=_around(found, zone),
        empty="" if found.total else "No memory of this session is left.",
    )


def _beside(session: Session | None, titles: Mapping[int, str]) -> Link | None:
    return Link(session_label(session, titles.get(session.pk, "")), session_url(session.pk)) if session else None


def _facts(found: SessionDetail, zone: tzinfo) -> Iterator[tuple[str, str]]:
    session = found.session
    begun, ended = session.begun_at, session.ended_at or found.last
    if begun:
        yield ("Started" if session.started_at else "First memory", moment_label(begun, zone))
    if ended and ended != begun:
        yield ("Ended" if session.ended_at else "Last memory", moment_label(ended, zone))
    if lasted := _lasted(begun, ended):
        yield ("Lasted", lasted)
    retired = f", {number(found.retired)} of them archived or superseded since" if found.retired else ""
    yield ("Stored", f"{memories(found.total)}{retired}")


def _around(found: SessionDetail, zone: tzinfo) -> str:
    if found.first is None or found.last is None:
        return ""
    first, last = (local_time(moment, zone).date().isoformat() for moment in (found.first, found.last))
    query = SearchQuery().only("project", found.session.project.slug).between(first, last)
    return explore_url(query.only("agent", found.session.agent) if found.session.agent else query)


def _event(one: SessionMemory, zone: tzinfo) -> Event:
    memory = one.memory
    text = plain_text(memory.summary or one.head)
    return Event(
        id=memory.pk,
        time=f"{local_time(memory.created_at, zone):%H:%M}",
        moment=moment_label(memory.created_at, zone),
        iso=memory.created_at.isoformat(),
        title=_title(memory.pk, memory.title),
        url=memory_url(memory.pk),
        type=memory.memory_type,
        family=type_family(memory.memory_type),
        excerpt=text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1].rstrip()}…",
        tags=tuple(Link(tag, filter_url("tag", tag)) for tag in memory.tags[:5]),
        state="" if memory.state == Memory.State.ACTIVE else memory.state,
        replaced=tuple(Link(_title(old.id, old.title), memory_url(old.id)) for old in one.replaced),
    )


def _title(memory_id: int, title: str) -> str:
    return plain_title(title).strip() or f"Memory {memory_id}"

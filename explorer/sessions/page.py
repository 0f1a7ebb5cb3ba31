"""The pages of sessions: their list, and what one of them did. No database and no request."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

from django.urls import reverse

from explorer.explore.page import Notice
from explorer.http import Pager, build_pager
from explorer.links import Link, explore_url, session_url
from explorer.listings import Listed, ListedSession, SessionsRequest
from explorer.sessions.reads import SessionDetail, SessionMemory, SessionRequest
from memories.models import Memory, Session
from memories.queries import MemoryTitle
from search.query import SearchQuery
from text.formatting import day_label, local_time, minute_label, moment_label, number, plural
from text.highlight import plain_text, plain_title

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
    duration: str
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
        duration=_duration(begun, ended),
        memories=number(row.memories),
    )


def _duration(begun: datetime | None, ended: datetime | None) -> str:
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


@dataclass(frozen=True)
class SessionPage:
    """The page of one session: the template reads `found` itself, and here what has to be put together."""

    found: SessionDetail
    request: SessionRequest
    zone: tzinfo

    def label(self, session: Session) -> str:
        return session_label(session, self.found.titles.get(session.pk, ""))

    @property
    def duration(self) -> str:
        return _duration(self.found.session.begun_at, self.end)

    @property
    def end(self) -> datetime | None:
        return self.found.session.ended_at or self.found.last

    @property
    def days(self) -> list[tuple[str, list[SessionMemory]]]:
        by_day = groupby(self.found.memories, lambda one: day_label(one.memory.created_at, self.zone))
        return [(label, list(rows)) for label, rows in by_day]

    def title(self, memory: Memory | MemoryTitle) -> str:
        return plain_title(memory.title).strip() or f"Memory {memory.id}"

    def time(self, moment: datetime) -> str:
        return f"{local_time(moment, self.zone):%H:%M}"

    def excerpt(self, one: SessionMemory) -> str:
        text = plain_text(one.memory.summary or one.head)
        return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1].rstrip()}…"

    @property
    def pager(self) -> Pager | None:
        pages, request = self.request.pages(self.found.total), self.request

        def at(page: int) -> str:
            return f"{session_url(self.found.session.pk)}?{request.replace(page=page).querystring()}"

        return build_pager(request.page, pages, request.page_size, self.found.total, at) if pages > 1 else None

    @property
    def explore_url(self) -> str:
        """The memories of its agent and project in its days, with those of other sessions then."""
        found, session = self.found, self.found.session
        if found.first is None or found.last is None:
            return ""
        first, last = (local_time(moment, self.zone).date().isoformat() for moment in (found.first, found.last))
        query = SearchQuery().only("project", session.project.slug).between(first, last)
        return explore_url(query.only("agent", session.agent) if session.agent else query)

"""The page of the log of reads, and its parts on other pages. No request."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from urllib.parse import parse_qsl, urlencode

from django.urls import reverse

from access.viewer import Viewer
from explorer.explore.page import Notice
from explorer.reads.listing import DOORS, ListedRead, ReadsPage, ReadsRequest, list_reads
from memories.reads import MemoryReader, readers_of, visible_reads
from text.formatting import plural, when_text

# Reads and readers that another page shows.
_SHOWN = 5
_LONGEST = 80
_PLACE = re.compile(r"<[^>]*>")
_DOORS = {"page": "on a page", "api": "through the API", "mcp": "through MCP", "claude-mem": "through claude-mem",
    "feed": "by a feed", "admin": "in the admin", "command": "on the command line"}  # fmt: skip
_KINDS = {"list": "listed", "whole": "read whole", "context": "context of a session", "export": "exported"}


def reads_url(**parameters: str | int) -> str:
    return f"{reverse('explorer:reads')}?{urlencode(parameters)}"


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A read in words."""

    listed: ListedRead

    @property
    def door(self) -> str:
        return _DOORS[self.listed.read.door]

    @property
    def operation(self) -> str:
        """The tool, or the address with `…` for its numbers and names."""
        return _PLACE.sub("…", self.listed.read.operation)

    @property
    def kind(self) -> str:
        return _KINDS[self.listed.read.kind]

    @property
    def url(self) -> str:
        """The reads of the same reader; empty for one without an account or a key."""
        has_name = self.listed.read.user_id is not None or self.listed.read.api_key_id is not None
        return reads_url(reader=self.listed.reader) if has_name else ""

    @property
    def session_url(self) -> str:
        return reads_url(session=self.listed.read.session)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of its query."""
        pairs = parse_qsl(self.listed.read.query, keep_blank_values=True)
        return [(key, value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…") for key, value in pairs]

    @property
    def further(self) -> str:
        """How many memories it gave besides those with titles."""
        rest = self.listed.read.number - len(self.listed.titles)
        if not rest:
            return ""
        return f"{rest:,} more" if self.listed.titles else plural(rest, "memory", "memories")


@dataclass(frozen=True, slots=True)
class ReadsContext:
    """The page: a part of the log, and the form of its filters."""

    request: ReadsRequest
    rows: tuple[ReadRow, ...]
    older_url: str
    readers: Sequence[str]
    sees_all: bool
    days: int
    zone: tzinfo
    notices: tuple[Notice, ...]

    @property
    def doors(self) -> list[tuple[str, str]]:
        return [(door, _DOORS[door]) for door in DOORS if door != "admin"]

    @property
    def is_narrowed(self) -> bool:
        return bool(self.request.replace(cursor=None).parameters())


def build_reads(
    found: ReadsPage,
    request: ReadsRequest,
    viewer: Viewer,
    readers: Iterable[str],
    days: int,
    notices: tuple[Notice, ...] = (),
) -> ReadsContext:
    older = f"{reverse('explorer:reads')}?{request.replace(cursor=found.next).querystring()}" if found.next else ""
    rows = tuple(ReadRow(one) for one in found.reads)
    sees_all = "admin" in viewer.scopes and viewer.project_ids is None
    return ReadsContext(request, rows, older, list(readers), sees_all, days, viewer.timezone, notices)


@dataclass(frozen=True, slots=True)
class ReadersPart:
    """By whom a memory was read, on its page: as far as the viewer may know."""

    memory_id: int
    readers: tuple[MemoryReader, ...]

    def text(self, zone: tzinfo) -> str:
        """Such as "Read by codex 12 times, last yesterday"."""
        parts, now = [], datetime.now(UTC)
        for reader in self.readers[:_SHOWN]:
            times = f" {plural(reader.times, 'time')}" if reader.times else " in lists"
            parts.append(f"{reader.name}{times}, last {when_text(reader.last_at, now, zone)}")
        if (further := len(self.readers) - _SHOWN) > 0:
            parts.append(f"{further:,} more")
        return f"Read by {'; '.join(parts)}" if parts else ""

    @property
    def url(self) -> str:
        return reads_url(memory=self.memory_id)


def read_readers(viewer: Viewer, memory_id: int) -> ReadersPart:
    found = readers_of(visible_reads(viewer).filter(memory_ids__contains=[memory_id]))
    return ReadersPart(memory_id, tuple(found))


@dataclass(frozen=True, slots=True)
class SessionReads:
    """The last reads of a session, on its page."""

    rows: tuple[ReadRow, ...]
    url: str


def read_session_reads(viewer: Viewer, session: str) -> SessionReads:
    """The last reads of a session, as far as the viewer may see them."""
    found = list_reads(ReadsRequest(session=session, limit=_SHOWN), viewer) if session else ReadsPage((), None)
    return SessionReads(tuple(ReadRow(one) for one in found.reads), reads_url(session=session))

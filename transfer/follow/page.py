"""The contexts of the pages about followed sources. Pure, except for the reverse lookup of their URLs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from django.urls import reverse

from explorer.history.page import ShownChange, compare
from explorer.links import Link, memory_url
from memories.models import FollowedSource, ImportBatch
from memories.queries import MemoryTitle
from text.formatting import day_label, day_text, memories, number, plural, when_text
from text.titles import plain_title
from transfer.follow.queries import Conflict
from transfer.page import PastImport, build_past

# The process that follows is started with the first source, and takes seconds for that on a busy machine.
_STARTS_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class FollowedLine:
    """A followed source as the page of imports lists it."""

    path: str
    format: str
    url: str
    state: str
    is_trouble: bool
    is_reading: bool
    """Whether it is read for the first time, or about to be."""
    when: str
    iso: str


@dataclass(frozen=True, slots=True)
class ShownConflict:
    """A memory that differs from its record in the source, and what can be done about it."""

    memory_id: int
    title: str
    url: str
    """Empty if the memory is no longer stored."""
    what: str
    changes: tuple[ShownChange, ...]
    take: str
    settle_url: str


@dataclass(frozen=True, slots=True)
class FollowPage:
    """One followed source: its readings, what is asked about it, and its conflicts."""

    id: int
    line: FollowedLine
    error: str
    facts: tuple[Link, ...]
    times: tuple[tuple[str, str, str], ...]
    """Label, text and ISO form."""
    gone: str
    """How many memories are gone at once, if somebody has to decide about them."""
    conflicts: tuple[ShownConflict, ...]
    more_conflicts: str
    readings: tuple[PastImport, ...]
    stored: str
    newest: tuple[Link, ...]
    """The memories that came last, with their dates."""


def build_followed(
    sources: Iterable[FollowedSource], now: datetime, zone: tzinfo, *, is_followed_now: bool
) -> tuple[FollowedLine, ...]:
    return tuple(_line(source, now, zone, is_followed_now=is_followed_now) for source in sources)


def _line(source: FollowedSource, now: datetime, zone: tzinfo, *, is_followed_now: bool) -> FollowedLine:
    conflicts: int = getattr(source, "open_conflicts", 0)
    asked = [
        *(["cannot be read"] if source.error else []),
        *([f"{memories(source.gone_waiting)} gone: asks what to do"] if source.gone_waiting else []),
        *([plural(conflicts, "conflict")] if conflicts else []),
    ]
    is_unread = not source.read_at and not source.error
    is_reading = is_unread and (is_followed_now or now - source.created_at < _STARTS_WITHIN)
    if is_unread:
        asked.append("is being read for the first time …" if is_reading else "not read yet")
    return FollowedLine(
        path=source.path,
        format=source.format,
        url=reverse("imports:follow", args=[source.pk]),
        state=" · ".join([memories(source.memories), *asked]) if source.read_at else " · ".join(asked),
        is_trouble=bool(source.error or source.gone_waiting or conflicts),
        is_reading=is_reading,
        when=when_text(source.read_at, now, zone) if source.read_at else "",
        iso=source.read_at.isoformat() if source.read_at else "",
    )


def build_follow(
    source: FollowedSource,
    conflicts: Sequence[Conflict],
    readings: Sequence[ImportBatch],
    newest: Iterable[MemoryTitle],
    now: datetime,
    zone: tzinfo,
    *,
    is_followed_now: bool,
) -> FollowPage:
    count: int = getattr(source, "open_conflicts", 0)
    return FollowPage(
        id=source.pk,
        line=_line(source, now, zone, is_followed_now=is_followed_now),
        error=source.error,
        facts=(
            Link("memories", "", count=number(source.memories)),
            Link("conflicts", "", count=number(count)),
            Link("records not taken", "", count=number(source.refused)),
        ),
        times=tuple(
            (label, when_text(at, now, zone), at.isoformat())
            for label, at in (
                ("Last look", source.looked_at),
                ("Last change", source.changed_at),
                ("Followed since", source.created_at),
            )
            if at
        ),
        gone=memories(source.gone_waiting) if source.gone_waiting and not source.gone_answer else "",
        conflicts=tuple(_shown(source, one) for one in conflicts),
        more_conflicts=number(count - len(conflicts)) if count > len(conflicts) else "",
        # Their times distinguish them; all have the name of the source.
        stored=number(source.memories),
        newest=tuple(
            Link(plain_title(one.title) or f"#{one.id}", memory_url(one.id), day_label(one.created_at, zone))
            for one in newest
        ),
        readings=tuple(replace(one, name=one.when, when="") for one in build_past(readings, {}, now, zone)),
    )


def _shown(source: FollowedSource, one: Conflict) -> ShownConflict:
    there = "It is no longer in its source" if one.is_gone else "It has changed in its source"
    here = ", and it is deleted here" if one.is_deleted else ""
    return ShownConflict(
        memory_id=one.memory_id,
        title=one.title or f"#{one.memory_id}",
        url=reverse("explorer:memory", args=[one.memory_id]) if one.title else "",
        what=f"{there}{here}; it was edited here {one.edit}. Noticed on {day_text(one.noticed_at.date())}.",
        changes=tuple(compare(name, here, there) for name, here, there in one.differences),
        take="Delete it here too" if one.is_gone else "Take the source’s",
        settle_url=reverse("imports:follow_conflict", args=[source.pk, one.memory_id]),
    )

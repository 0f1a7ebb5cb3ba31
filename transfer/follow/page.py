"""The sentences about followed sources. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memories.models import FollowedSource
from text.formatting import memories, plural

# The process that follows is started with the first source, and takes seconds for that on a busy machine.
_STARTS_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class FollowedLine:
    """A followed source as the page of imports lists it."""

    source: FollowedSource
    state: str
    is_trouble: bool
    is_reading: bool
    """Whether it is read for the first time, or about to be."""


def build_followed(
    sources: Iterable[FollowedSource], now: datetime, *, is_followed_now: bool
) -> tuple[FollowedLine, ...]:
    return tuple(followed_line(source, now, is_followed_now=is_followed_now) for source in sources)


def followed_line(source: FollowedSource, now: datetime, *, is_followed_now: bool) -> FollowedLine:
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
        source=source,
        state=" · ".join([memories(source.memories), *asked]) if source.read_at else " · ".join(asked),
        is_trouble=bool(source.error or source.gone_waiting or conflicts),
        is_reading=is_reading,
    )

"""Immutable snapshots of memories, passed between services and tables."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from categories.models import MadeBy


@dataclass(frozen=True, slots=True)
class Ref:
    """A link to a category, concept or entity."""

    id: int
    made_by: str = MadeBy.IMPORT.value
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link by name, as in the record."""

    rel: str
    target: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """All stored fields of a memory, without derived ones. `raw` is JSON text."""

    id: int
    project_id: int
    memory_type: str
    title: str
    summary: str
    content: str
    tags: tuple[str, ...]
    state: str
    state_reason: str
    importance: float | None
    confidence: float | None
    pinned: bool
    authors: tuple[str, ...]
    agent: str
    session_id: int | None
    source: str
    external_id: str
    source_uri: str
    created_at: datetime
    happened_at: datetime | None
    updated_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by_id: int | None
    record_hash: str
    raw: str | None
    batch_id: int | None
    categories: tuple[Ref, ...]
    concepts: tuple[Ref, ...]
    entities: tuple[Ref, ...]
    links: tuple[NamedLink, ...]


def content_hash_of(title: str, content: str) -> str:
    """Hash used to detect duplicate content."""
    return hashlib.sha256(f"{title}\0{content}".encode()).hexdigest()[:32]

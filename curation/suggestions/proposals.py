"""A proposal before it is stored as a suggestion."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from curation.suggestions.models import Suggestion
from memories.models import Memory

Kind = Suggestion.Kind

STATES = (Memory.State.ACTIVE, Memory.State.PROPOSED)
"""States of the memories that suggestions are about."""

MEMORY_KINDS = (Kind.CATEGORY, Kind.CONCEPT, Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED)
"""Kinds of suggestions about memories, which belong to a project."""
NAME_KINDS = (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE)
"""Kinds of suggestions about names, which belong to no project."""
HELD_ALIAS = "held_alias"
"""The rule that found two names by an alias that holds in some projects only: viewers of all projects alone see it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change. `key` identifies it among those of its kind."""

    kind: Kind
    key: tuple[int | str, ...]
    confidence: float
    reason: str
    proposal: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    project_id: int | None = None
    subject_id: int | None = None
    target_id: int | None = None

    @property
    def fingerprint(self) -> str:
        identity = json.dumps([self.kind.value, *self.key], ensure_ascii=False)
        return hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:32]

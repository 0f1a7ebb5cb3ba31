"""A proposal before it is written down: what, about what, how sure, why. Pure."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from curation.suggestions.models import Suggestion

Kind = Suggestion.Kind

MEMORY_KINDS = (Kind.CATEGORY, Kind.CONCEPT, Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED)
"""What is proposed about memories, each within one project."""
NAME_KINDS = (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE)
"""What is proposed about names, which belong to no project."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What might be done. `key` is what makes it the same proposal as another one of its kind."""

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
        said = json.dumps([self.kind.value, *self.key], ensure_ascii=False)
        return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:32]

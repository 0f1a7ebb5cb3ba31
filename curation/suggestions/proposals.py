"""A proposal before it is stored as a suggestion."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from curation.suggestions.models import Suggestion
from memories.models import Memory
from web.sql import fetch_column

Kind = Suggestion.Kind

STATES = (Memory.State.ACTIVE, Memory.State.PROPOSED)
"""States of the memories that suggestions are about."""

MEMORY_KINDS = (Kind.MARKED, Kind.CATEGORY, Kind.CONCEPT, Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED)
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


# A proposal that is stored already is updated while it is open.
_WRITE = """
INSERT INTO curation_suggestion
    (kind, project_id, fingerprint, subject_id, target_id, proposal, confidence, reason, evidence, state, is_automatic)
SELECT kind, project_id, fingerprint, subject_id, target_id, proposal::jsonb, confidence, reason, evidence::jsonb,
    'open', false
FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::float8[], %s::text[],
    %s::text[]) AS made (kind, project_id, fingerprint, subject_id, target_id, proposal, confidence, reason, evidence)
ON CONFLICT (fingerprint) DO UPDATE SET subject_id = EXCLUDED.subject_id, target_id = EXCLUDED.target_id,
    proposal = EXCLUDED.proposal, confidence = EXCLUDED.confidence, reason = EXCLUDED.reason,
    evidence = EXCLUDED.evidence
WHERE curation_suggestion.state = 'open'
RETURNING xmax = 0"""


@transaction.atomic
def write_proposals(proposals: Sequence[Proposal]) -> list[bool]:
    """Store proposals, each once; those that were decided stay. Returns of each that is open whether it is new."""
    # One order for all runs, so that concurrent runs cannot deadlock.
    rows = sorted({one.fingerprint: one for one in proposals}.values(), key=lambda one: one.fingerprint)
    if not rows:
        return []
    columns = zip(
        *(
            (
                row.kind.value,
                row.project_id,
                row.fingerprint,
                row.subject_id,
                row.target_id,
                json.dumps(row.proposal, ensure_ascii=False),
                row.confidence,
                row.reason,
                json.dumps(row.evidence, ensure_ascii=False),
            )
            for row in rows
        ),
        strict=True,
    )
    return fetch_column(_WRITE, [list(column) for column in columns])

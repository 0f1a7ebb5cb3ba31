"""Suggestions made and written down: each proposal once, whatever became of it, and however many runs are at it.

What is open is brought up to date by the next run, what was decided stays as it was, and what applies no more goes.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from django.db import connection, transaction
from django.utils import timezone

from access.viewer import Viewer
from curation.suggestions.classifier import CHOSEN, Choice, Classifier, members_of
from curation.suggestions.duplicate_memories import likeness_proposals
from curation.suggestions.duplicate_names import concept_duplicate_proposals, entity_proposals, tag_proposals
from curation.suggestions.key_concepts import STATES, concept_proposals
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.proposals import Kind, Proposal
from curation.suggestions.services import REFUSALS, suggestion_accept
from memories.embedding.models import Embedder, EmbedderUnavailableError, load_embedder
from memories.embedding.query import ServingModel, serving_model
from memories.models import Memory, Project

Item = TypeVar("Item")

_BLOCK = 500
# A memory is asked about so many categories at most, each at least as sure as that.
_MOST_CATEGORIES = 3
LEAST_CONFIDENCE = 0.25
# A project with fewer memories that have a category is helped out by all of them.
_FEW_MEMBERS = 10

# What one run finds for another one's, or its own of before: the same row, brought up to date while it is open.
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

# What an open suggestion is about is gone, or has been done by hand. By the primary keys of what is named.
_OVER = """
DELETE FROM curation_suggestion one WHERE state = 'open' AND (
    (kind IN ('category', 'concept', 'memory_duplicate', 'superseded') AND NOT EXISTS (
        SELECT FROM memories_memory WHERE id = one.subject_id AND state IN ('active', 'proposed')))
    OR (kind IN ('memory_duplicate', 'superseded') AND NOT EXISTS (
        SELECT FROM memories_memory WHERE id = one.target_id AND state IN ('active', 'proposed')))
    OR (kind = 'category' AND (
        NOT EXISTS (SELECT FROM categories_category WHERE id = one.target_id)
        OR EXISTS (SELECT FROM categories_categorylink
                   WHERE memory_id = one.subject_id AND category_id = one.target_id)))
    OR (kind = 'concept' AND target_id IS NOT NULL AND (
        NOT EXISTS (SELECT FROM categories_concept WHERE id = one.target_id)
        OR EXISTS (SELECT FROM categories_conceptlink
                   WHERE memory_id = one.subject_id AND concept_id = one.target_id)))
    OR (kind = 'entity_duplicate' AND 2 > (
        SELECT count(*) FROM categories_entity WHERE id IN (one.subject_id, one.target_id)))
    OR (kind = 'concept_duplicate' AND 2 > (
        SELECT count(*) FROM categories_concept WHERE id IN (one.subject_id, one.target_id)))
    OR (kind = 'tag_duplicate' AND NOT (
        EXISTS (SELECT FROM memories_memory WHERE tags @> ARRAY[one.proposal ->> 'from'])
        AND EXISTS (SELECT FROM memories_memory WHERE tags @> ARRAY[one.proposal ->> 'into']))))"""


class NothingEmbeddedError(Exception):
    """Suggestions of this kind are made from vectors, and there are none. The message says what to do."""

    def __init__(self) -> None:
        super().__init__("No memory has been embedded yet: run `python manage.py worker --once` first.")


@dataclass(slots=True)
class Tally:
    """What a run did about one kind."""

    new: int = 0
    known: int = 0
    """Open already, and brought up to date."""
    decided: int = 0
    """Accepted or rejected before: never asked again."""
    gone: int = 0
    """Open before, and proposed no more."""
    accepted: int = 0
    """By what a project allows."""


def suggest(
    *,
    kinds: Collection[Kind],
    viewer: Viewer,
    project: Project | None = None,
    limit: int | None = None,
    tell: Callable[[Kind, Tally], None] = lambda kind, tally: None,
) -> dict[Kind, Tally]:
    """Make suggestions of some kinds, for one project or for all. With a limit so many new ones, the surest first."""
    tallies: dict[Kind, Tally] = {}
    withdraw()
    for kind in kinds:
        begun, found = timezone.now(), set[str]()
        tallies[kind] = _written(_proposals(kind, project), limit, found)
        tallies[kind].gone = _leave_out(kind, project, found, begun)
        if kind in (Kind.CATEGORY, Kind.CONCEPT):
            tallies[kind].accepted = _accept_allowed(kind, project, viewer)
        tell(kind, tallies[kind])
    return tallies


def withdraw() -> int:
    """Take away what is open and applies no more; tells how many that were."""
    with connection.cursor() as cursor:
        cursor.execute(_OVER)
        return int(cursor.rowcount)


# --- what is proposed ------------------------------------------------------------------------------------------------


def _proposals(kind: Kind, project: Project | None) -> Iterator[Proposal]:
    projects = [project] if project else list(Project.objects.order_by("id"))
    if kind is Kind.CATEGORY:
        return (one for each in projects for one in category_proposals(each))
    if kind is Kind.CONCEPT:
        return (one for each in projects for one in concept_proposals(each))
    if kind is Kind.ENTITY_DUPLICATE:
        serving = serving_model()
        return entity_proposals(serving.id if serving else None)
    if kind is Kind.CONCEPT_DUPLICATE:
        return concept_duplicate_proposals(_embedder_at_hand())
    if kind is Kind.TAG_DUPLICATE:
        return tag_proposals()
    return _likeness(kind, project)


def category_proposals(project: Project) -> Iterator[Proposal]:
    """Categories for the memories of a project that have none: of its own, unless it has hardly any."""
    serving = _serving()
    memories = Memory.objects.filter(project=project, state__in=STATES, category_ids=[]).order_by("id")
    waiting = list(memories.values_list("id", flat=True))
    members = members_of(project.pk) if waiting else {}
    # What memories of other projects say is for the eyes of who sees them all.
    elsewhere = bool(waiting) and len(members) < _FEW_MEMBERS
    if elsewhere:
        members = members_of(None)
    if not members:
        return
    classifier = Classifier(serving, members)
    for ids in _blocks(waiting):
        for memory_id, choices in classifier.choices(ids, CHOSEN, _MOST_CATEGORIES).items():
            sure = [choice for choice in choices if choice.confidence >= LEAST_CONFIDENCE]
            yield from (_category(project.pk, memory_id, choice, elsewhere) for choice in sure)


def _category(project_id: int, memory_id: int, choice: Choice, elsewhere: bool) -> Proposal:
    if choice.neighbours:
        reason = (
            f"{len(choice.neighbours)} of the {choice.asked} closest memories are in it, "
            f"the closest with a similarity of {choice.neighbours[0].similarity:.2f}."
        )
    else:
        reason = f"Its similarity to the category as a whole is {choice.near_centroid:.2f}."
    return Proposal(
        kind=Kind.CATEGORY,
        key=(memory_id, choice.category_id),
        confidence=choice.confidence,
        reason=reason,
        evidence={
            "neighbours": [[one.memory_id, one.similarity] for one in choice.neighbours],
            "centroid": choice.near_centroid,
            "elsewhere": elsewhere,
        },
        project_id=project_id,
        subject_id=memory_id,
        target_id=choice.category_id,
    )


def _likeness(kind: Kind, project: Project | None) -> Iterator[Proposal]:
    serving = _serving()
    memories = Memory.objects.filter(state__in=STATES).order_by("id")
    if project:
        memories = memories.filter(project=project)
    for ids in _blocks(list(memories.values_list("id", flat=True))):
        yield from likeness_proposals(ids, serving.id, {kind})


def _serving() -> ServingModel:
    serving = serving_model()
    if serving is None:
        raise NothingEmbeddedError
    return serving


def _embedder_at_hand() -> Embedder | None:
    """The model that serves, where it can be loaded: names are compared by spelling without it."""
    serving = serving_model()
    try:
        return load_embedder(serving.source) if serving else None
    except EmbedderUnavailableError:
        return None


# --- writing it down -------------------------------------------------------------------------------------------------


def _written(proposals: Iterable[Proposal], limit: int | None, found: set[str]) -> Tally:
    """Write proposals down, of new ones the surest where there is a limit. `found` gets the fingerprints of all."""
    tally = Tally()
    kept: list[Proposal] = []
    for block in _blocks(proposals):
        found.update(one.fingerprint for one in block)
        known = _states(block)
        tally.decided += sum(state != Suggestion.State.OPEN for state in known.values())
        again = [one for one in block if known.get(one.fingerprint) == Suggestion.State.OPEN]
        new = [one for one in block if one.fingerprint not in known]
        _write(again, tally)
        if limit is None:
            _write(new, tally)
        else:
            # The same may come up twice, from either side of a pair.
            kept = list({one.fingerprint: one for one in (*kept, *new)}.values())
            kept = sorted(kept, key=lambda one: (-one.confidence, one.fingerprint))[:limit]
    _write(kept, tally)
    return tally


def _leave_out(kind: Kind, project: Project | None, found: Collection[str], begun: datetime) -> int:
    """Take away what was open before a run, and what the run did not propose again: the texts are others by now."""
    # What another run has made meanwhile it may have seen more for; what a person has had in hand stays with people.
    rows = Suggestion.objects.filter(kind=kind, state=Suggestion.State.OPEN, made_at__lt=begun, decided_at=None)
    if kind in (Kind.CATEGORY, Kind.CONCEPT):
        # Of a memory that somebody is at, the others are still to be decided, though it has one now.
        accepted = Suggestion.objects.filter(kind=kind, state=Suggestion.State.ACCEPTED)
        rows = rows.exclude(subject_id__in=accepted.values("subject_id"))
    if project:
        rows = rows.filter(project=project)
    gone = [pk for pk, known in rows.values_list("pk", "fingerprint").iterator(_BLOCK) if known not in found]
    for block in _blocks(gone):
        Suggestion.objects.filter(pk__in=block, state=Suggestion.State.OPEN).delete()
    return len(gone)


def _states(proposals: Sequence[Proposal]) -> dict[str, str]:
    rows = Suggestion.objects.filter(fingerprint__in=[one.fingerprint for one in proposals])
    return dict(rows.values_list("fingerprint", "state"))


@transaction.atomic
def _write(proposals: Sequence[Proposal], tally: Tally) -> None:
    # Two runs that write the same ones wait for each other in one order, never in a ring.
    rows = sorted({one.fingerprint: one for one in proposals}.values(), key=lambda one: one.fingerprint)
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _WRITE,
            [
                [one.kind.value for one in rows],
                [one.project_id for one in rows],
                [one.fingerprint for one in rows],
                [one.subject_id for one in rows],
                [one.target_id for one in rows],
                [json.dumps(one.proposal, ensure_ascii=False) for one in rows],
                [one.confidence for one in rows],
                [one.reason for one in rows],
                [json.dumps(one.evidence, ensure_ascii=False) for one in rows],
            ],
        )
        made = [is_new for (is_new,) in cursor.fetchall()]
    tally.new += sum(made)
    tally.known += len(made) - sum(made)


def _accept_allowed(kind: Kind, project: Project | None, viewer: Viewer) -> int:
    """Accept what projects allow. What a person has had in hand before, and taken back, is left to people."""
    field = "category_from" if kind is Kind.CATEGORY else "concept_from"
    policies = SuggestionPolicy.objects.filter(**{f"{field}__isnull": False})
    if project:
        policies = policies.filter(project=project)
    accepted = 0
    for project_id, least in policies.values_list("project_id", field):
        waiting = Suggestion.objects.filter(
            kind=kind, project_id=project_id, state=Suggestion.State.OPEN, confidence__gte=least, decided_at=None
        )
        for pk in waiting.order_by("-confidence", "id").values_list("id", flat=True):
            try:
                suggestion_accept(suggestion_id=pk, viewer=viewer, automatic=True)
            except REFUSALS:
                # Somebody was faster, or what it is about has changed: the next run takes it away.
                continue
            accepted += 1
    return accepted


def _blocks(items: Iterable[Item]) -> Iterator[list[Item]]:
    them = iter(items)
    while block := list(islice(them, _BLOCK)):
        yield block


ALL_KINDS = tuple(Kind)

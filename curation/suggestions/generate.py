"""Generates and stores suggestions, each proposal once, even with concurrent runs.

A run updates open suggestions, leaves decided suggestions unchanged, and deletes open suggestions that no longer apply.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from django.conf import settings
from django.utils import timezone

from access.viewer import Viewer
from curation.suggestions.classifier import CategoryChoice, Classifier, members_of
from curation.suggestions.duplicate_memories import memory_pair_proposals
from curation.suggestions.duplicate_names import concept_duplicate_proposals, entity_proposals, tag_proposals
from curation.suggestions.key_concepts import concept_proposals
from curation.suggestions.marked import marked_proposals
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.obsolete import withdraw_obsolete
from curation.suggestions.proposals import NAME_KINDS, STATES, Kind, Proposal, write_proposals
from curation.suggestions.services import REFUSALS, suggestion_accept
from memories.embedding.models import Embedder, EmbedderUnavailableError, load_embedder
from memories.embedding.query import ServingModel, serving_model
from memories.invented_team import sample_projects
from memories.models import Memory, Project
from web.command_line import command

Item = TypeVar("Item")

_BLOCK = 500
# Categories that are suggested for a memory at most, and the minimum confidence of each.
_MAX_CATEGORIES = 3
MIN_CONFIDENCE = 0.25
# With fewer memories in categories, a project gets suggestions from the memories of all projects.
_FEW_MEMBERS = 10


class NothingEmbeddedError(Exception):
    """Suggestions of this kind need embeddings, and there are none. The message has the remedy."""

    def __init__(self, *, compared_names: bool = False) -> None:
        remedy = f"run `{command('worker --once')}` first"
        if settings.WITHOUT_EMBEDDINGS:
            remedy = "WITHOUT_EMBEDDINGS=1 turns embeddings off"
        text = "No memory has been embedded yet"
        if compared_names:
            text = "Names of tags, entities and concepts were compared; memories were not, since none is embedded yet"
        super().__init__(f"{text}: {remedy}.")


@dataclass(slots=True)
class KindCounts:
    """The numbers of suggestions of one kind in a run."""

    new: int = 0
    known: int = 0
    """Open already, and updated."""
    decided: int = 0
    """Accepted or rejected before, and not proposed again."""
    withdrawn: int = 0
    """Open before, and no longer proposed."""
    accepted: int = 0
    """Accepted automatically by a policy."""


def suggest(
    *,
    kinds: Collection[Kind],
    viewer: Viewer,
    project: Project | None = None,
    limit: int | None = None,
    report: Callable[[Kind, KindCounts], None] = lambda kind, counts: None,
) -> dict[Kind, KindCounts]:
    """Generate suggestions of the kinds, for one project or for all.

    `limit` is the maximum of new suggestions of each kind, by confidence.
    """
    by_kind: dict[Kind, KindCounts] = {}
    withdraw_obsolete()
    for kind in kinds:
        begun, found = timezone.now(), set[str]()
        try:
            by_kind[kind] = _store(_proposals(kind, project), limit, found)
        except NothingEmbeddedError:
            raise NothingEmbeddedError(compared_names=not by_kind.keys().isdisjoint(NAME_KINDS)) from None
        by_kind[kind].withdrawn = _delete_unconfirmed(kind, project, found, begun)
        if kind in (Kind.CATEGORY, Kind.CONCEPT):
            by_kind[kind].accepted = _accept_by_policy(kind, project, viewer)
        report(kind, by_kind[kind])
    return by_kind


# --- proposals -------------------------------------------------------------------------------------------------------


def _proposals(kind: Kind, project: Project | None) -> Iterator[Proposal]:
    if kind is Kind.MARKED:
        return marked_proposals(project_id=project.pk if project else None)
    projects = [project] if project else list(Project.objects.order_by("id"))
    if kind is Kind.CATEGORY:
        return (one for each in projects for one in category_proposals(each))
    if kind is Kind.CONCEPT:
        return (one for each in projects for one in concept_proposals(each))
    if kind is Kind.ENTITY_DUPLICATE:
        serving = serving_model()
        return entity_proposals(serving.id if serving else None)
    if kind is Kind.CONCEPT_DUPLICATE:
        return concept_duplicate_proposals(_available_embedder())
    if kind is Kind.TAG_DUPLICATE:
        return tag_proposals()
    return _pair_proposals(kind, project)


def category_proposals(project: Project) -> Iterator[Proposal]:
    """Categories for uncategorised memories of a project, from its own memories or, if it has few, from all."""
    serving = _serving()
    memories = Memory.objects.filter(project=project, state__in=STATES, category_ids=[]).order_by("id")
    pending = list(memories.values_list("id", flat=True))
    members = members_of(project.pk) if pending else {}
    # Suggestions from other projects are visible only to viewers of all projects.
    elsewhere = bool(pending) and len(members) < _FEW_MEMBERS
    others = pending
    if elsewhere:
        members = members_of(None, without=frozenset() if project.pk in (sample := sample_projects()) else sample)
        others = list(Memory.objects.filter(state__in=STATES, category_ids=[]).values_list("id", flat=True))
    # A single category is the nearest one to everything.
    if len({category for own in members.values() for category in own}) < 2:
        return
    classifier = Classifier(serving, members, others=others)
    for ids in _blocks(pending):
        for memory_id, choices in classifier.choices(ids, _MAX_CATEGORIES).items():
            sure = [choice for choice in choices if choice.confidence >= MIN_CONFIDENCE]
            yield from (_category(project.pk, memory_id, choice, elsewhere) for choice in sure)


def _category(project_id: int, memory_id: int, choice: CategoryChoice, elsewhere: bool) -> Proposal:
    if choice.neighbours:
        reason = (
            f"{len(choice.neighbours)} of the {choice.neighbours_in_all} closest memories with a category"
            f" {'is' if len(choice.neighbours) == 1 else 'are'} in it, "
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


def _pair_proposals(kind: Kind, project: Project | None) -> Iterator[Proposal]:
    serving = _serving()
    memories = Memory.objects.filter(state__in=STATES, **({"project": project} if project else {})).order_by("id")
    for ids in _blocks(list(memories.values_list("id", flat=True))):
        yield from memory_pair_proposals(ids, serving.id, {kind})


def _serving() -> ServingModel:
    serving = serving_model()
    if serving is None:
        raise NothingEmbeddedError
    return serving


def _available_embedder() -> Embedder | None:
    """The serving model if it can be loaded. Without it, names are compared by spelling only."""
    serving = serving_model()
    try:
        return load_embedder(serving.source) if serving else None
    except EmbedderUnavailableError:
        return None


# --- storing ---------------------------------------------------------------------------------------------------------


def _store(proposals: Iterable[Proposal], limit: int | None, found: set[str]) -> KindCounts:
    """Store proposals, at most `limit` new proposals. Adds the fingerprints of all to `found`."""
    counts = KindCounts()
    best: list[Proposal] = []
    for block in _blocks(proposals):
        found.update(one.fingerprint for one in block)
        known = _states(block)
        counts.decided += sum(state != Suggestion.State.OPEN for state in known.values())
        again = [one for one in block if known.get(one.fingerprint) == Suggestion.State.OPEN]
        new = [one for one in block if one.fingerprint not in known]
        _write(again, counts)
        if limit is None:
            _write(new, counts)
        else:
            # A pair may come up twice, once from either side.
            best = list({one.fingerprint: one for one in (*best, *new)}.values())
            best = sorted(best, key=lambda one: (-one.confidence, one.fingerprint))[:limit]
    _write(best, counts)
    return counts


def _delete_unconfirmed(kind: Kind, project: Project | None, found: Collection[str], begun: datetime) -> int:
    """Delete suggestions that were open before a run and that it did not propose again. Returns their number."""
    # Suggestions of a concurrent run, and those that a person reopened, remain.
    rows = Suggestion.objects.filter(kind=kind, state=Suggestion.State.OPEN, made_at__lt=begun, decided_at=None)
    if kind in (Kind.CATEGORY, Kind.CONCEPT):
        # Where one suggestion for a memory was accepted, the others remain to be decided.
        accepted = Suggestion.objects.filter(kind=kind, state=Suggestion.State.ACCEPTED)
        rows = rows.exclude(subject_id__in=accepted.values("subject_id"))
    if project:
        rows = rows.filter(project=project)
    withdrawn = [pk for pk, known in rows.values_list("pk", "fingerprint").iterator(_BLOCK) if known not in found]
    for block in _blocks(withdrawn):
        Suggestion.objects.filter(pk__in=block, state=Suggestion.State.OPEN).delete()
    return len(withdrawn)


def _states(proposals: Sequence[Proposal]) -> dict[str, str]:
    rows = Suggestion.objects.filter(fingerprint__in=[one.fingerprint for one in proposals])
    return dict(rows.values_list("fingerprint", "state"))


def _write(proposals: Sequence[Proposal], counts: KindCounts) -> None:
    inserted = write_proposals(proposals)
    counts.new += sum(inserted)
    counts.known += len(inserted) - sum(inserted)


def _accept_by_policy(kind: Kind, project: Project | None, viewer: Viewer) -> int:
    """Accept suggestions as policies allow, except reopened suggestions. Returns their number."""
    field = "category_from" if kind is Kind.CATEGORY else "concept_from"
    policies = SuggestionPolicy.objects.filter(**{f"{field}__isnull": False})
    if project:
        policies = policies.filter(project=project)
    accepted = 0
    for project_id, min_confidence in policies.values_list("project_id", field):
        pending = Suggestion.objects.filter(
            kind=kind,
            project_id=project_id,
            state=Suggestion.State.OPEN,
            confidence__gte=min_confidence,
            decided_at=None,
        )
        for pk in pending.order_by("-confidence", "id").values_list("id", flat=True):
            try:
                suggestion_accept(suggestion_id=pk, viewer=viewer, automatic=True)
            except REFUSALS:
                # Decided or outdated meanwhile; the next run deletes it.
                continue
            accepted += 1
    return accepted


def _blocks(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while block := list(islice(iterator, _BLOCK)):
        yield block


# Names first: they are compared in seconds, and without embeddings.
ALL_KINDS = (*NAME_KINDS, *(kind for kind in Kind if kind not in NAME_KINDS))

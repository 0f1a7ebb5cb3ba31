"""Deciding about suggestions: accept, reject, undo; each audited, and what accepting does in the same transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from access.audit import audit
from access.viewer import Viewer
from categories.models import Category, Concept, ConceptLink, MadeBy
from categories.services import ConceptKey, Vocabulary, concepts_ensure, vocabulary_lock_shared
from curation.models import Curation
from curation.queries import TermNotFoundError
from curation.schemas import Merge
from curation.services import BusyError, MayNotCurateError, curation_apply, curation_undo
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import suggestions_matching, suggestions_visible
from curation.undo import UndoRefusedError
from curation.working_copy import CurationRefusedError
from memories.models import Memory, Project
from memories.services import (
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    memory_classify,
    memory_restore,
    memory_supersede,
)
from memories.snapshot import Ref
from web.errors import Refusal

Applied = dict[str, Any]
"""What was done, as the suggestion keeps it."""

SWAPPABLE = (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE, Kind.MEMORY_DUPLICATE)
"""Of two that are the same, either may be kept."""


CURATION_REFUSALS = (CurationRefusedError, TermNotFoundError, UndoRefusedError, MayNotCurateError, BusyError)


class SuggestionRefusedError(Refusal):
    """A decision that cannot be taken: it was taken already, or its subject has changed."""

    status = 409
    code = "refused"
    suggestion = "Read its current state: GET /api/suggestions"


def apply(row: Suggestion, viewer: Viewer, *, swap: bool, automatic: bool) -> Applied:
    return _APPLY[Kind(row.kind)](row, viewer, swap, automatic)


def take_back(row: Suggestion, viewer: Viewer) -> None:
    _TAKE_BACK[Kind(row.kind)](row, viewer)


def _made_by(viewer: Viewer, automatic: bool) -> MadeBy:
    """A person who accepts makes the link their own; a key or a policy passes on what a model said."""
    return MadeBy.HUMAN if viewer.user_id is not None and not automatic else MadeBy.MODEL


def _ref(row: Suggestion, target_id: int, viewer: Viewer, automatic: bool) -> Ref:
    made_by = _made_by(viewer, automatic)
    return Ref(target_id, made_by.value, 1.0 if made_by is MadeBy.HUMAN else row.confidence)


def _subject(row: Suggestion) -> int:
    if row.subject_id is None:
        raise SuggestionRefusedError("Its subject does not exist.")
    return row.subject_id


def _target(row: Suggestion) -> int:
    if row.target_id is None:
        raise SuggestionRefusedError("Its target does not exist.")
    return row.target_id


def _links_of(memory_id: int, column: str) -> list[int]:
    return Memory.objects.values_list(column, flat=True).filter(pk=memory_id).first() or []


def _apply_category(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    vocabulary_lock_shared()
    category = Category.objects.filter(pk=_target(row)).first()
    if category is None:
        raise SuggestionRefusedError("The category no longer exists.")
    ref = _ref(row, category.pk, viewer, automatic)
    before = _links_of(_subject(row), "category_ids")
    memory_classify(memory_id=_subject(row), categories=[ref], viewer=viewer, reason=_why(row))
    return {"linked": category.pk not in before}


def _take_back_category(row: Suggestion, viewer: Viewer) -> None:
    if (row.applied or {}).get("linked") and row.target_id is not None:
        vocabulary_lock_shared()
        if not Category.objects.filter(pk=row.target_id).exists():
            raise SuggestionRefusedError("The category has since been merged into another: undo that first.")
        memory_classify(
            memory_id=_subject(row), without_categories=[row.target_id], viewer=viewer, reason="A suggestion undone."
        )


def _apply_concept(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    vocabulary_lock_shared()
    name = str(row.proposal["concept"])
    if row.target_id is not None:
        if not Concept.objects.filter(pk=row.target_id).exists():
            raise SuggestionRefusedError("The concept no longer exists.")
        concept_id, made = row.target_id, 0
    else:
        vocabulary = Vocabulary(viewer)
        key = ConceptKey(name, str(row.proposal.get("concept_type", "")))
        concepts_ensure(concepts=[key], vocabulary=vocabulary)
        concept_id, made = vocabulary.concepts[name], vocabulary.made.get("concepts", 0)
    before = _links_of(_subject(row), "concept_ids")
    ref = _ref(row, concept_id, viewer, automatic)
    memory_classify(memory_id=_subject(row), concepts=[ref], viewer=viewer, reason=_why(row))
    return {"concept": concept_id, "linked": concept_id not in before, "made": bool(made)}


def _take_back_concept(row: Suggestion, viewer: Viewer) -> None:
    applied = row.applied or {}
    concept_id = int(applied.get("concept", 0))
    if applied.get("linked"):
        vocabulary_lock_shared()
        if not Concept.objects.filter(pk=concept_id).exists():
            raise SuggestionRefusedError("The concept has since been merged into another: undo that first.")
        memory_classify(
            memory_id=_subject(row), without_concepts=[concept_id], viewer=viewer, reason="A suggestion undone."
        )
    # What was made for this memory alone goes with it, unless somebody has said something of it since.
    if applied.get("made") and not ConceptLink.objects.filter(concept_id=concept_id).exists():
        made = Concept.objects.filter(pk=concept_id, description="", aliases=[], broader_ids=[], narrower_ids=[])
        made.filter(related_ids=[]).delete()


_CURATED = {Kind.ENTITY_DUPLICATE: "entity", Kind.CONCEPT_DUPLICATE: "concept", Kind.TAG_DUPLICATE: "tag"}


def _apply_merge(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    kind = _CURATED[Kind(row.kind)]
    names = (row.proposal["from"], row.proposal["into"])
    # A tag is its name; the others are named by id, since several may have one name.
    gone, kept = names if kind == "tag" else (f"#{row.subject_id}", f"#{row.target_id}")
    if swap:
        gone, kept = kept, gone
    try:
        done = curation_apply(asked=Merge(kind=kind, source=gone, target=kept), viewer=viewer)
    except TermNotFoundError as error:
        raise SuggestionRefusedError("One of the two no longer exists.") from error
    except CURATION_REFUSALS as error:
        raise SuggestionRefusedError(str(error)) from error
    return {"curation": done.curation.pk}


def _take_back_merge(row: Suggestion, viewer: Viewer) -> None:
    curation_id = (row.applied or {})["curation"]
    if Curation.objects.filter(pk=curation_id, undone_at__isnull=False).exists():
        # In the log of curations already: nothing is left to take back.
        return
    try:
        curation_undo(curation_id=curation_id, viewer=viewer)
    except CURATION_REFUSALS as error:
        raise SuggestionRefusedError(str(error)) from error


def _apply_superseded(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    gone, kept = _subject(row), _target(row)
    if swap:
        gone, kept = kept, gone
    state = Memory.objects.filter(pk=gone).values_list("state", flat=True).first()
    if state not in (Memory.State.ACTIVE, Memory.State.PROPOSED):
        raise SuggestionRefusedError(f"#{gone} is {state or 'deleted'} now.")
    memory_supersede(memory_id=gone, by_id=kept, viewer=viewer, reason=_why(row))
    return {"memory": gone, "by": kept, "state": state}


def _take_back_superseded(row: Suggestion, viewer: Viewer) -> None:
    applied = row.applied or {}
    memory = Memory.objects.filter(pk=applied["memory"]).only("state", "superseded_by_id").first()
    if memory is None or memory.state != Memory.State.SUPERSEDED or memory.superseded_by_id != applied["by"]:
        raise SuggestionRefusedError(f"#{applied['memory']} has been changed since: undo that first.")
    memory_restore(memory_id=applied["memory"], viewer=viewer, reason="A suggestion undone.")


def _why(row: Suggestion) -> str:
    return f"Suggestion {row.pk}: {row.reason}"[:1_000]


_APPLY: dict[Kind, Callable[[Suggestion, Viewer, bool, bool], Applied]] = {
    Kind.CATEGORY: _apply_category,
    Kind.CONCEPT: _apply_concept,
    Kind.ENTITY_DUPLICATE: _apply_merge,
    Kind.CONCEPT_DUPLICATE: _apply_merge,
    Kind.TAG_DUPLICATE: _apply_merge,
    Kind.MEMORY_DUPLICATE: _apply_superseded,
    Kind.SUPERSEDED: _apply_superseded,
}
_TAKE_BACK: dict[Kind, Callable[[Suggestion, Viewer], None]] = {
    Kind.CATEGORY: _take_back_category,
    Kind.CONCEPT: _take_back_concept,
    Kind.ENTITY_DUPLICATE: _take_back_merge,
    Kind.CONCEPT_DUPLICATE: _take_back_merge,
    Kind.TAG_DUPLICATE: _take_back_merge,
    Kind.MEMORY_DUPLICATE: _take_back_superseded,
    Kind.SUPERSEDED: _take_back_superseded,
}


State = Suggestion.State
# So many at a time: each is a change of its own, with its line in the audit trail.
MOST_AT_ONCE = 500


class SuggestionNotFoundError(Refusal):
    """There is no such suggestion, or none that the viewer may see: the answer is the same."""

    status = 404
    code = "not_found"
    suggestion = "List them: GET /api/suggestions"

    def __init__(self, suggestion_id: int) -> None:
        self.suggestion_id = suggestion_id
        super().__init__(f"There is no suggestion {suggestion_id} that you can see.")


class CountChangedError(Exception):
    """There are not as many any more as somebody was shown. Nothing was done."""

    def __init__(self, shown: int, now: int) -> None:
        self.now = now
        super().__init__(
            f"There were {shown:,} suggestions when the page was shown; now there are {now:,}. Nothing was accepted."
        )


REFUSALS = (SuggestionNotFoundError, SuggestionRefusedError, NotAllowedError, MemoryNotFoundError, ChangeRefusedError)


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of accepting many."""

    accepted: int
    refused: tuple[str, ...]

    @property
    def said(self) -> str:
        """In a sentence."""
        told = f"{self.accepted:,} accepted."
        return f"{told} Not accepted: {' '.join(self.refused[:3])}" if self.refused else told


@transaction.atomic
def suggestion_accept(*, suggestion_id: int, viewer: Viewer, swap: bool = False, automatic: bool = False) -> Suggestion:
    """Do what is proposed. `swap`: of two that are the same, keep the other one."""
    row = _locked(suggestion_id, viewer)
    if row.state != State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is already {row.state}.")
    if swap and row.kind not in SWAPPABLE:
        raise SuggestionRefusedError("Only for duplicates can the other one be kept.")
    row.applied = apply(row, viewer, swap=swap, automatic=automatic)
    note = f"Automatic, at a confidence of {row.confidence:.2f}." if automatic else ""
    return _decide(row, State.ACCEPTED, "suggestion_accept", viewer, note, automatic)


@transaction.atomic
def suggestion_reject(*, suggestion_id: int, viewer: Viewer, reason: str = "") -> Suggestion:
    """Say no. It is remembered: the same is never proposed again."""
    row = _locked(suggestion_id, viewer)
    if row.state != State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is already {row.state}.")
    return _decide(row, State.REJECTED, "suggestion_reject", viewer, reason)


@transaction.atomic
def suggestion_undo(*, suggestion_id: int, viewer: Viewer) -> Suggestion:
    """Take a decision back: the suggestion is open again, and what accepting it did is undone."""
    row = _locked(suggestion_id, viewer)
    if row.state == State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is open: there is nothing to undo.")
    if row.state == State.ACCEPTED:
        take_back(row, viewer)
    row.applied = None
    return _decide(row, State.OPEN, "suggestion_undo", viewer, "")


def suggestions_accept(*, query: ReviewQuery, shown: int, viewer: Viewer) -> Decided:
    """Accept all open ones of a kind from a confidence on, if they are as many as somebody was shown.

    Each is a change of its own: what is refused stays open, with the reason told.
    """
    if not query.kind:
        raise SuggestionRefusedError("Name a kind.")
    matching = suggestions_matching(viewer, query.with_(state=State.OPEN.value))
    ids = list(matching.values_list("id", flat=True)[: MOST_AT_ONCE + 1])
    if len(ids) > MOST_AT_ONCE:
        raise SuggestionRefusedError(f"At most {MOST_AT_ONCE:,} can be accepted at a time: choose a higher confidence.")
    if len(ids) != shown:
        raise CountChangedError(shown, len(ids))
    refused: dict[str, None] = {}
    accepted = 0
    for pk in ids:
        try:
            suggestion_accept(suggestion_id=pk, viewer=viewer)
        except REFUSALS as error:
            refused[str(error)] = None
        else:
            accepted += 1
    return Decided(accepted, tuple(refused))


def _locked(suggestion_id: int, viewer: Viewer) -> Suggestion:
    """The suggestion, which the viewer may decide, locked until the end of the transaction."""
    if not suggestions_visible(viewer, Suggestion.objects.filter(pk=suggestion_id)).exists():
        raise SuggestionNotFoundError(suggestion_id)
    row = Suggestion.objects.select_for_update().filter(pk=suggestion_id).first()
    if row is None:
        raise SuggestionNotFoundError(suggestion_id)
    if not may_decide(row, viewer):
        raise NotAllowedError("Deciding this suggestion needs the scope curate in its project.")
    return row


def may_decide(row: Suggestion, viewer: Viewer) -> bool:
    """Whether the viewer is a curator of what it is about; names belong to no project, and curators of any may ask."""
    if "curate" not in viewer.scopes:
        return False
    allowed = viewer.writable_project_ids
    return allowed is None or (bool(allowed) if row.project_id is None else row.project_id in allowed)


def _decide(
    row: Suggestion, state: Suggestion.State, verb: str, viewer: Viewer, note: str, automatic: bool = False
) -> Suggestion:
    before = {"state": row.state}
    row.state = state
    # Kept where it is open again: whoever took it back has had it in hand.
    row.decided_at = timezone.now()
    row.decided_by_id = None if state == State.OPEN else viewer.user_id
    row.is_automatic = automatic
    row.save(update_fields=["state", "decided_at", "decided_by", "is_automatic", "applied"])
    after: dict[str, Any] = {"state": state.value, "kind": row.kind, "confidence": row.confidence}
    if automatic:
        after["made_by"] = MadeBy.MODEL.value
    audit(viewer, verb, row, before=before, after=after, note=note)
    return row


LEAST = 0.5


@transaction.atomic
def policy_set(
    *, project: Project, category_from: float | None, concept_from: float | None, viewer: Viewer
) -> SuggestionPolicy:
    """Say from which confidence on suggestions are accepted at once; None says never."""
    if "curate" not in viewer.scopes or not viewer.may_write(project.pk):
        raise NotAllowedError(f"Only curators of {project.slug!r} can change its policy.")
    for field, least in (("category_from", category_from), ("concept_from", concept_from)):
        if least is not None and not LEAST <= least <= 1:
            raise ChangeRefusedError(field, f"must be a confidence from {LEAST} to 1, or empty for never")
    policy, made = SuggestionPolicy.objects.get_or_create(project=project)
    # By its id alone, which is the only way a distributed Postgres locks a row.
    policy = SuggestionPolicy.objects.select_for_update().get(pk=policy.pk)
    before = _told(policy)
    policy.category_from, policy.concept_from = category_from, concept_from
    if made or _told(policy) != before:
        policy.save(update_fields=["category_from", "concept_from"])
        audit(viewer, "suggestion_policy_set", policy, before=None if made else before, after=_told(policy))
    return policy


def _told(policy: SuggestionPolicy) -> dict[str, object]:
    """What the audit trail keeps of a policy."""
    return {
        "project": policy.project_id,
        "category_from": policy.category_from,
        "concept_from": policy.concept_from,
    }

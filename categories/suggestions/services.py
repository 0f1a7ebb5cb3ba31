"""Deciding about suggestions: accept, reject, undo; each audited, and what accepting does in the same transaction."""

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from access.audit import audit
from access.viewer import Viewer
from categories.models import MadeBy
from categories.suggestions.applying import SWAPPABLE, SuggestionRefused, apply, take_back
from categories.suggestions.models import Suggestion
from categories.suggestions.queries import suggestions_matching, suggestions_visible
from categories.suggestions.requests import ReviewQuery
from memories.services import ChangeRefused, MemoryNotFound, NotAllowed

State = Suggestion.State
# So many at a time: each is a change of its own, with its line in the audit trail.
MOST_AT_ONCE = 500


class SuggestionNotFound(LookupError):  # noqa: N818 - it reads as what happened
    """There is no such suggestion, or none that the viewer may see: the answer is the same."""

    def __init__(self, suggestion_id: int) -> None:
        self.suggestion_id = suggestion_id
        super().__init__(f"There is no suggestion {suggestion_id} that you may see.")


class CountChanged(Exception):  # noqa: N818
    """There are not as many any more as somebody was shown. Nothing was done."""

    def __init__(self, shown: int, now: int) -> None:
        self.now = now
        super().__init__(f"There were {shown:,} when you were asked, and now there are {now:,}. Nothing was accepted.")


REFUSALS = (SuggestionNotFound, SuggestionRefused, NotAllowed, MemoryNotFound, ChangeRefused)


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
        raise SuggestionRefused(f"Suggestion {row.pk} was {row.state} already.")
    if swap and row.kind not in SWAPPABLE:
        raise SuggestionRefused("Only of two that are the same can the other one be kept.")
    row.applied = apply(row, viewer, swap=swap, automatic=automatic)
    note = f"By what the project allows, at a confidence of {row.confidence:.2f}." if automatic else ""
    return _decide(row, State.ACCEPTED, "suggestion_accept", viewer, note, automatic)


@transaction.atomic
def suggestion_reject(*, suggestion_id: int, viewer: Viewer, reason: str = "") -> Suggestion:
    """Say no. It is remembered: the same is never proposed again."""
    row = _locked(suggestion_id, viewer)
    if row.state != State.OPEN:
        raise SuggestionRefused(f"Suggestion {row.pk} was {row.state} already.")
    return _decide(row, State.REJECTED, "suggestion_reject", viewer, reason)


@transaction.atomic
def suggestion_undo(*, suggestion_id: int, viewer: Viewer) -> Suggestion:
    """Take a decision back: the suggestion is open again, and what accepting it did is undone."""
    row = _locked(suggestion_id, viewer)
    if row.state == State.OPEN:
        raise SuggestionRefused(f"Suggestion {row.pk} is open: there is nothing to undo.")
    if row.state == State.ACCEPTED:
        take_back(row, viewer)
    row.applied = None
    return _decide(row, State.OPEN, "suggestion_undo", viewer, "")


def suggestions_accept(*, query: ReviewQuery, shown: int, viewer: Viewer) -> Decided:
    """Accept all open ones of a kind from a confidence on, if they are as many as somebody was shown.

    Each is a change of its own: what is refused stays open, with the reason told.
    """
    if not query.kind:
        raise SuggestionRefused("Say of which kind.")
    matching = suggestions_matching(viewer, query.but(state=State.OPEN.value))
    ids = list(matching.values_list("id", flat=True)[: MOST_AT_ONCE + 1])
    if len(ids) > MOST_AT_ONCE:
        raise SuggestionRefused(f"Accept at most {MOST_AT_ONCE:,} at a time: ask for a higher confidence.")
    if len(ids) != shown:
        raise CountChanged(shown, len(ids))
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
        raise SuggestionNotFound(suggestion_id)
    row = Suggestion.objects.select_for_update().filter(pk=suggestion_id).first()
    if row is None:
        raise SuggestionNotFound(suggestion_id)
    if not may_decide(row, viewer):
        raise NotAllowed("You may see this suggestion and not decide it: that needs the scope curate in its project.")
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

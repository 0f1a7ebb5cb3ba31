"""Accept, reject and undo suggestions. Each decision is audited and applied in one transaction."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from access.viewer import Viewer, audit
from categories.kinds import VOCABULARIES
from categories.models import Concept, ConceptLink, MadeBy
from categories.queries import tags_now
from categories.services import Vocabulary, vocabulary_lock_shared
from curation.models import Curation
from curation.queries import TermNotFoundError
from curation.schemas import Merge
from curation.services import CURATION_REFUSALS, curation_apply, curation_undo
from curation.suggestions.models import Suggestion, SuggestionPolicy
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import NAME_KINDS, STATES, Kind
from curation.suggestions.queries import contradicted, suggestions_matching, turned_round, visible_suggestions
from memories.marks import judge_harmless
from memories.models import Memory, Project
from memories.refusals import ChangeRefusedError, MemoryNotFoundError, NotAllowedError
from memories.resolve import RecordNames, names_ensure
from memories.services import memory_archive, memory_classify, memory_restore
from memories.snapshot import Ref
from memories.supersession import memory_supersede
from web.errors import Refusal

AppliedChange = dict[str, Any]
"""The effects of accepting a suggestion, stored for its undo."""

SWAPPABLE = (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE, Kind.MEMORY_DUPLICATE)
"""Kinds about two duplicates, of which either may remain."""


class SuggestionRefusedError(Refusal):
    """The decision was made already, or its rows have changed. The message is for people."""

    status = 409
    code = "refused"
    suggestion = "Read its current state: GET /api/suggestions"


def _subject(row: Suggestion) -> int:
    if row.subject_id is None:
        raise SuggestionRefusedError("Its subject does not exist.")
    return row.subject_id


def _target(row: Suggestion) -> int:
    if row.target_id is None:
        raise SuggestionRefusedError("Its target does not exist.")
    return row.target_id


def _apply_link(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> AppliedChange:
    """Link the memory to the category or the concept; a new concept is created."""
    vocabulary_lock_shared()
    vocabulary, memory_id = VOCABULARIES[row.kind], _subject(row)
    made = 0
    if row.kind == Kind.CONCEPT and row.target_id is None:
        name = str(row.proposal["concept"])
        project_id = Memory.objects.values_list("project_id", flat=True).get(pk=memory_id)
        created = Vocabulary(viewer, project_id=project_id)
        concept_type = str(row.proposal.get("concept_type", ""))
        names_ensure(RecordNames(frozenset(), frozenset(), {name: concept_type}, frozenset()), created)
        term_id, made = created.concept_of(name, project_id), created.made.get("concepts", 0)
    elif not vocabulary.model._default_manager.filter(pk=_target(row)).exists():
        raise SuggestionRefusedError(f"The {row.kind} no longer exists.")
    else:
        term_id = _target(row)
    before = Memory.objects.values_list(vocabulary.memory_column, flat=True).filter(pk=memory_id).first() or []
    made_by, weight = MadeBy.MODEL, row.confidence
    if viewer.user_id is not None and not automatic:
        # A link that a person accepts is theirs, not the model's.
        made_by, weight = MadeBy.HUMAN, 1.0
    links: dict[str, Any] = {vocabulary.plural: [Ref(term_id, made_by.value, weight)]}
    memory_classify(memory_id=memory_id, viewer=viewer, reason=_why(row), **links)
    return {"term": term_id, "linked": term_id not in before, "made": bool(made)}


def _revert_link(row: Suggestion, viewer: Viewer) -> None:
    applied = row.applied or {}
    vocabulary, term_id = VOCABULARIES[row.kind], int(applied.get("term", 0))
    if applied.get("linked"):
        vocabulary_lock_shared()
        if not vocabulary.model._default_manager.filter(pk=term_id).exists():
            raise SuggestionRefusedError(f"The {row.kind} has since been merged into another: undo that first.")
        removed: dict[str, Any] = {f"without_{vocabulary.plural}": [term_id]}
        memory_classify(memory_id=_subject(row), viewer=viewer, reason="A suggestion undone.", **removed)
    # A concept created for this memory is deleted, unless somebody uses or has edited it since.
    if applied.get("made") and not ConceptLink.objects.filter(concept_id=term_id).exists():
        made = Concept.objects.filter(pk=term_id, description="", aliases=[], broader_ids=[], narrower_ids=[])
        made.filter(related_ids=[]).delete()


_MERGED_KINDS = {Kind.ENTITY_DUPLICATE: "entity", Kind.CONCEPT_DUPLICATE: "concept", Kind.TAG_DUPLICATE: "tag"}


def _apply_merge(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> AppliedChange:
    kind = _MERGED_KINDS[Kind(row.kind)]
    names = (row.proposal["from"], row.proposal["into"])
    # Other names than those of tags may be ambiguous.
    source, target = names if kind == "tag" else (f"#{row.subject_id}", f"#{row.target_id}")
    if swap:
        source, target = target, source
    if kind == "tag" and source != target:
        now = tags_now(names, viewer.project_ids)
        if now.get(source, source) == now.get(target, target):
            # Other merges made them one already.
            return {"turned": swap}
        if source in now:
            # It would end the tag that has the name, of which the suggestion says nothing.
            raise SuggestionRefusedError(f"“{source}” is another name of “{now[source]}” now.")
    try:
        # The other suggestions about these names stay: accepted after this one, they merge what it has left.
        merge = Merge(kind=kind, source=source, target=target)
        done = curation_apply(operation=merge, viewer=viewer, settles=False)
    except TermNotFoundError as error:
        raise SuggestionRefusedError("One of the two no longer exists.") from error
    except CURATION_REFUSALS as error:
        raise SuggestionRefusedError(str(error)) from error
    return {"curation": done.curation.pk, "turned": swap}


def _revert_merge(row: Suggestion, viewer: Viewer) -> None:
    curation_id = (row.applied or {}).get("curation")
    if curation_id is None or Curation.objects.filter(pk=curation_id, undone_at__isnull=False).exists():
        # Nothing was merged, or that was undone in the log of curations already.
        return
    try:
        curation_undo(curation_id=curation_id, viewer=viewer)
    except CURATION_REFUSALS as error:
        raise SuggestionRefusedError(str(error)) from error


def _apply_superseded(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> AppliedChange:
    source, target = _subject(row), _target(row)
    if swap:
        source, target = target, source
    state = Memory.objects.filter(pk=source).values_list("state", flat=True).first()
    if state not in STATES:
        raise SuggestionRefusedError(f"#{source} is {state or 'deleted'} now.")
    memory_supersede(memory_id=source, by_id=target, viewer=viewer, reason=_why(row))
    return {"memory": source, "by": target, "state": state}


def _revert_superseded(row: Suggestion, viewer: Viewer) -> None:
    applied = row.applied or {}
    memory = Memory.objects.filter(pk=applied["memory"]).only("state", "superseded_by_id").first()
    if memory is None or memory.state != Memory.State.SUPERSEDED or memory.superseded_by_id != applied["by"]:
        raise SuggestionRefusedError(f"#{applied['memory']} has been changed since: undo that first.")
    memory_restore(memory_id=applied["memory"], viewer=viewer, reason="A suggestion undone.", despite_successor=True)


def _apply_archive(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> AppliedChange:
    memory_id = _subject(row)
    state = Memory.objects.filter(pk=memory_id).values_list("state", flat=True).first()
    if state not in STATES:
        raise SuggestionRefusedError(f"#{memory_id} is {state or 'deleted'} now.")
    memory_archive(memory_id=memory_id, viewer=viewer, reason=_why(row))
    return {"memory": memory_id}


def _revert_archive(row: Suggestion, viewer: Viewer) -> None:
    memory_id = (row.applied or {})["memory"]
    state = Memory.objects.filter(pk=memory_id).values_list("state", flat=True).first()
    if state != Memory.State.ARCHIVED:
        raise SuggestionRefusedError(f"#{memory_id} has been changed since: undo that first.")
    memory_restore(memory_id=memory_id, viewer=viewer, reason="A suggestion undone.")


def _why(row: Suggestion) -> str:
    return f"Suggestion {row.pk}: {row.reason}"[:1_000]


_ACTIONS: dict[
    Kind, tuple[Callable[[Suggestion, Viewer, bool, bool], AppliedChange], Callable[[Suggestion, Viewer], None]]
] = {
    **dict.fromkeys((Kind.CATEGORY, Kind.CONCEPT), (_apply_link, _revert_link)),
    **dict.fromkeys(_MERGED_KINDS, (_apply_merge, _revert_merge)),
    **dict.fromkeys((Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED), (_apply_superseded, _revert_superseded)),
    Kind.MARKED: (_apply_archive, _revert_archive),
}
"""How each kind is applied (suggestion, viewer, swap, automatic), and how that is reverted."""


State = Suggestion.State
# Suggestions that are accepted at once: each is a change of its own, with its audit event.
MAX_AT_ONCE = 500


class SuggestionNotFoundError(Refusal):
    """The suggestion does not exist or the viewer may not see it: both give the same error."""

    status = 404
    code = "not_found"
    suggestion = "List them: GET /api/suggestions"

    def __init__(self, suggestion_id: int) -> None:
        self.suggestion_id = suggestion_id
        super().__init__(f"There is no suggestion {suggestion_id} that you can see.")


class CountChangedError(Exception):
    """The number of matching suggestions differs from the number shown. Nothing was decided."""

    def __init__(self, shown: int, now: int) -> None:
        self.now = now
        super().__init__(
            f"There were {shown:,} suggestions when the page was shown; now there are {now:,}. Nothing was decided."
        )


REFUSALS = (SuggestionNotFoundError, SuggestionRefusedError, NotAllowedError, MemoryNotFoundError, ChangeRefusedError)


@dataclass(frozen=True, slots=True)
class BulkDecision:
    """The result of one decision about many suggestions. `verb` is what was done with `decided` of them."""

    decided: int
    refused: tuple[str, ...]
    together: datetime
    """What they have in common as `decided_together`."""
    verb: str

    @property
    def message(self) -> str:
        text = f"{self.decided:,} {self.verb}."
        return f"{text} Not {self.verb}: {' '.join(self.refused[:3])}" if self.refused else text


@transaction.atomic
def suggestion_accept(
    *,
    suggestion_id: int,
    viewer: Viewer,
    swap: bool = False,
    turned: bool | None = None,
    automatic: bool = False,
    together: datetime | None = None,
) -> Suggestion:
    """Apply a suggestion. With `swap`, the other of two duplicates remains.

    `turned` is the direction in which a suggestion about names was shown; None takes that of now. `together` is when
    deciding began of several at once.
    """
    row = _locked(suggestion_id, viewer)
    if row.state != State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is already {row.state}.")
    if swap and row.kind not in SWAPPABLE:
        raise SuggestionRefusedError("Only for duplicates can the other one be kept.")
    if turned and row.kind not in NAME_KINDS:
        raise SuggestionRefusedError("Only suggestions about two names are ever turned: leave that out.")
    if turned is None:
        turned = row.pk in turned_round([row], viewer)
    apply, _ = _ACTIONS[Kind(row.kind)]
    row.applied = apply(row, viewer, swap != turned, automatic)
    note = f"Automatic, at a confidence of {row.confidence:.2f}." if automatic else ""
    return _decide(row, State.ACCEPTED, "suggestion_accept", viewer, note, automatic=automatic, together=together)


@transaction.atomic
def suggestion_reject(
    *, suggestion_id: int, viewer: Viewer, reason: str = "", together: datetime | None = None
) -> Suggestion:
    """Reject a suggestion, which is then never proposed again. `together` is as in `suggestion_accept`."""
    row = _locked(suggestion_id, viewer)
    if row.state != State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is already {row.state}.")
    row = _decide(row, State.REJECTED, "suggestion_reject", viewer, reason, together=together)
    if row.kind == Kind.MARKED:
        judge_harmless(memory_id=_subject(row), viewer=viewer, reason=reason)
    return row


@transaction.atomic
def suggestion_undo(*, suggestion_id: int, viewer: Viewer) -> Suggestion:
    """Undo a decision with its effects. The suggestion is open again."""
    row = _locked(suggestion_id, viewer)
    if row.state == State.OPEN:
        raise SuggestionRefusedError(f"Suggestion {row.pk} is open: there is nothing to undo.")
    if row.state == State.ACCEPTED:
        _, revert = _ACTIONS[Kind(row.kind)]
        revert(row, viewer)
    was_judged = row.kind == Kind.MARKED and row.state == State.REJECTED
    row.applied = None
    row = _decide(row, State.OPEN, "suggestion_undo", viewer, "")
    if was_judged:
        judge_harmless(memory_id=_subject(row), viewer=viewer, is_harmless=False)
    return row


def suggestions_decide(
    *, query: ReviewQuery, shown: int, viewer: Viewer, without: Collection[int] = (), reject: bool = False
) -> BulkDecision:
    """Accept or reject the open suggestions of a query but some, if their number is the one shown; of more than
    `MAX_AT_ONCE` the surest.

    Each is a change of its own: refused suggestions stay open, and the result has the reasons.
    """
    if not query.kind:
        raise SuggestionRefusedError("Name a kind.")
    matching = suggestions_matching(viewer, query.with_(state=State.OPEN.value))
    ids = list(matching.values_list("id", flat=True)[:MAX_AT_ONCE])
    if len(ids) != shown:
        raise CountChangedError(shown, len(ids))
    ids = [pk for pk in ids if pk not in without]
    refused: dict[str, None] = {}
    rows = Suggestion.objects.in_bulk(ids)
    # The directions that the page shows, which accepting the first of them may change for the others.
    turned = turned_round(rows.values(), viewer)
    surer = {} if reject else contradicted(rows.values(), viewer, turned)
    decided, together = 0, timezone.now()
    for pk in ids:
        if pk in surer:
            refused[f"{_pair(rows[pk])}, since {_pair(surer[pk])} comes first."] = None
            continue
        try:
            if reject:
                suggestion_reject(suggestion_id=pk, viewer=viewer, together=together)
            else:
                suggestion_accept(suggestion_id=pk, viewer=viewer, turned=pk in turned, together=together)
        except REFUSALS as error:
            refused[str(error)] = None
        else:
            decided += 1
    return BulkDecision(decided, tuple(refused), together, "rejected" if reject else "accepted")


def _pair(row: Suggestion) -> str:
    return f"“{row.proposal['from']}” and “{row.proposal['into']}”"


def suggestions_undo(*, together: datetime, viewer: Viewer) -> BulkDecision:
    """Undo what the viewer has decided together, the last first. Refused ones stay, with reasons."""
    if viewer.user_id is None:
        raise SuggestionRefusedError("Only persons can undo what they have decided together.")
    rows = visible_suggestions(viewer, Suggestion.objects.exclude(state=State.OPEN))
    rows = rows.filter(decided_together=together, decided_by_id=viewer.user_id)
    refused: dict[str, None] = {}
    undone = 0
    for pk in list(rows.order_by("-decided_at", "-id").values_list("id", flat=True)[:MAX_AT_ONCE]):
        try:
            suggestion_undo(suggestion_id=pk, viewer=viewer)
        except REFUSALS as error:
            refused[str(error)] = None
        else:
            undone += 1
    return BulkDecision(undone, tuple(refused), together, "undone")


def _locked(suggestion_id: int, viewer: Viewer) -> Suggestion:
    """A suggestion that the viewer may decide, locked until the transaction ends."""
    if not visible_suggestions(viewer, Suggestion.objects.filter(pk=suggestion_id)).exists():
        raise SuggestionNotFoundError(suggestion_id)
    row = Suggestion.objects.select_for_update().filter(pk=suggestion_id).first()
    if row is None:
        raise SuggestionNotFoundError(suggestion_id)
    if not may_decide(row, viewer):
        raise NotAllowedError("Deciding this suggestion needs the scope curate in its project.")
    return row


def may_decide(row: Suggestion, viewer: Viewer) -> bool:
    """Whether the viewer is a curator of the suggestion's project, or of any project for names."""
    allowed = viewer.curated_project_ids
    return allowed is None or (bool(allowed) if row.project_id is None else row.project_id in allowed)


def _decide(
    row: Suggestion,
    state: Suggestion.State,
    verb: str,
    viewer: Viewer,
    note: str,
    *,
    automatic: bool = False,
    together: datetime | None = None,
) -> Suggestion:
    before = {"state": row.state}
    row.state, row.decided_together = state, together
    # Set for reopened suggestions too, which are then left to people.
    row.decided_at = timezone.now()
    row.decided_by_id = None if state == State.OPEN else viewer.user_id
    row.is_automatic = automatic
    row.save(update_fields=["state", "decided_at", "decided_by", "decided_together", "is_automatic", "applied"])
    after: dict[str, Any] = {"state": state.value, "kind": row.kind, "confidence": row.confidence}
    if automatic:
        after["made_by"] = MadeBy.MODEL.value
    audit(viewer, verb, row, before=before, after=after, note=note)
    return row


MIN_POLICY_CONFIDENCE = 0.5


@transaction.atomic
def policy_set(
    *, project: Project, category_from: float | None, concept_from: float | None, viewer: Viewer
) -> SuggestionPolicy:
    """Set the confidences from which suggestions are accepted automatically; None for never."""
    if not viewer.may_curate(project.pk):
        raise NotAllowedError(f"Only curators of {project.slug!r} can change its policy.")
    for field, confidence in (("category_from", category_from), ("concept_from", concept_from)):
        if confidence is not None and not MIN_POLICY_CONFIDENCE <= confidence <= 1:
            raise ChangeRefusedError(
                field, f"must be a confidence from {MIN_POLICY_CONFIDENCE} to 1, or empty for never"
            )
    policy, made = SuggestionPolicy.objects.get_or_create(project=project)
    # A distributed Postgres locks rows only by their id.
    policy = SuggestionPolicy.objects.select_for_update().get(pk=policy.pk)
    before = _audit_fields(policy)
    policy.category_from, policy.concept_from = category_from, concept_from
    if made or _audit_fields(policy) != before:
        policy.save(update_fields=["category_from", "concept_from"])
        audit(viewer, "suggestion_policy_set", policy, before=None if made else before, after=_audit_fields(policy))
    return policy


def _audit_fields(policy: SuggestionPolicy) -> dict[str, object]:
    """The values of a policy for the audit trail."""
    return {
        "project": policy.project_id,
        "category_from": policy.category_from,
        "concept_from": policy.concept_from,
    }

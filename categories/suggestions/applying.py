"""What accepting a suggestion does, and how that is undone: each by the services whose business it is."""

from collections.abc import Callable
from typing import Any

from access.viewer import Viewer
from categories.curation.desk import CurationRefused
from categories.curation.reading import TermNotFound
from categories.curation.requests import Merge
from categories.curation.services import Busy, MayNotCurate, curation_apply, curation_undo
from categories.curation.undoing import UndoRefused
from categories.models import Category, Concept, ConceptLink, Curation, MadeBy
from categories.services import ConceptKey, Vocabulary, concepts_ensure, vocabulary_share
from categories.suggestions.models import Suggestion
from categories.suggestions.proposals import Kind
from memories.images import Ref
from memories.models import Memory
from memories.services import memory_classify, memory_restore, memory_supersede

Applied = dict[str, Any]
"""What was done, as the suggestion keeps it."""

SWAPPABLE = (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE, Kind.MEMORY_DUPLICATE)
"""Of two that are the same, either may be kept."""


CURATION_REFUSALS = (CurationRefused, TermNotFound, UndoRefused, MayNotCurate, Busy)


class SuggestionRefused(ValueError):  # noqa: N818 - it reads as what happened
    """A decision that cannot be taken: it was taken already, or what it is about has changed. A sentence for people."""


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
        raise SuggestionRefused("It is about nothing that there is.")
    return row.subject_id


def _target(row: Suggestion) -> int:
    if row.target_id is None:
        raise SuggestionRefused("It proposes nothing that there is.")
    return row.target_id


def _links_of(memory_id: int, column: str) -> list[int]:
    return Memory.objects.values_list(column, flat=True).filter(pk=memory_id).first() or []


def _apply_category(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    vocabulary_share()
    category = Category.objects.filter(pk=_target(row)).first()
    if category is None:
        raise SuggestionRefused("The category is not there any more.")
    ref = _ref(row, category.pk, viewer, automatic)
    before = _links_of(_subject(row), "category_ids")
    memory_classify(memory_id=_subject(row), categories=[ref], viewer=viewer, reason=_why(row))
    return {"linked": category.pk not in before}


def _take_back_category(row: Suggestion, viewer: Viewer) -> None:
    if (row.applied or {}).get("linked") and row.target_id is not None:
        vocabulary_share()
        if not Category.objects.filter(pk=row.target_id).exists():
            raise SuggestionRefused("The category has been merged into another one since: undo that first.")
        memory_classify(
            memory_id=_subject(row), without_categories=[row.target_id], viewer=viewer, reason="A suggestion undone."
        )


def _apply_concept(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    vocabulary_share()
    name = str(row.proposal["concept"])
    if row.target_id is not None:
        if not Concept.objects.filter(pk=row.target_id).exists():
            raise SuggestionRefused("The concept is not there any more.")
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
        vocabulary_share()
        if not Concept.objects.filter(pk=concept_id).exists():
            raise SuggestionRefused("The concept has been merged into another one since: undo that first.")
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
    except TermNotFound as error:
        raise SuggestionRefused("One of the two is not there any more.") from error
    except CURATION_REFUSALS as error:
        raise SuggestionRefused(str(error)) from error
    return {"curation": done.curation.pk}


def _take_back_merge(row: Suggestion, viewer: Viewer) -> None:
    curation_id = (row.applied or {})["curation"]
    if Curation.objects.filter(pk=curation_id, undone_at__isnull=False).exists():
        # In the log of curations already: nothing is left to take back.
        return
    try:
        curation_undo(curation_id=curation_id, viewer=viewer)
    except CURATION_REFUSALS as error:
        raise SuggestionRefused(str(error)) from error


def _apply_superseded(row: Suggestion, viewer: Viewer, swap: bool, automatic: bool) -> Applied:
    gone, kept = _subject(row), _target(row)
    if swap:
        gone, kept = kept, gone
    state = Memory.objects.filter(pk=gone).values_list("state", flat=True).first()
    if state not in (Memory.State.ACTIVE, Memory.State.PROPOSED):
        raise SuggestionRefused(f"#{gone} is {state or 'not there'} by now.")
    memory_supersede(memory_id=gone, by_id=kept, viewer=viewer, reason=_why(row))
    return {"memory": gone, "by": kept, "state": state}


def _take_back_superseded(row: Suggestion, viewer: Viewer) -> None:
    applied = row.applied or {}
    memory = Memory.objects.filter(pk=applied["memory"]).only("state", "superseded_by_id").first()
    if memory is None or memory.state != Memory.State.SUPERSEDED or memory.superseded_by_id != applied["by"]:
        raise SuggestionRefused(f"#{applied['memory']} has been changed since: undo that on its own page first.")
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

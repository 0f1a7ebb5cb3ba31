"""Withdraws open suggestions that no longer apply: their rows are gone, or their change was made by hand. Opens those
again whose change is undone.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db.models import Q
from django.utils import timezone

from access.viewer import Viewer, audit
from categories.kinds import VOCABULARIES
from categories.texts import known_terms
from curation.suggestions.models import Suggestion
from curation.suggestions.proposals import NAME_KINDS, Kind
from curation.suggestions.queries import FROM_TAG, GROUPED_KINDS, INTO_TAG, names_among
from web.sql import fetch, fetch_column

# Open suggestions that are looked at together.
_MANY = 5_000

_PRESENT = {
    "memory": "SELECT id FROM memories_memory WHERE id = ANY(%s) AND state IN ('active', 'proposed')",
    **{name: f"SELECT id FROM {vocabulary.table} WHERE id = ANY(%s)" for name, vocabulary in VOCABULARIES.items()},
}


class _Open(NamedTuple):
    """An open suggestion."""

    id: int
    kind: Kind
    subject_id: int | None
    target_id: int | None
    old_tag: str | None
    new_tag: str | None

    @property
    def of_memories(self) -> tuple[int | None, ...]:
        """The memories that it is about."""
        match self.kind:
            case Kind.CATEGORY | Kind.CONCEPT | Kind.MARKED:
                return (self.subject_id,)
            case Kind.MEMORY_DUPLICATE | Kind.SUPERSEDED:
                return (self.subject_id, self.target_id)
        return ()

    @property
    def of_terms(self) -> tuple[str, tuple[int | None, ...]]:
        """The kind of the terms that it is about, and the terms."""
        match self.kind:
            case Kind.CATEGORY:
                return "category", (self.target_id,)
            case Kind.CONCEPT if self.target_id is not None:
                return "concept", (self.target_id,)
            case Kind.ENTITY_DUPLICATE:
                return "entity", (self.subject_id, self.target_id)
            case Kind.CONCEPT_DUPLICATE:
                return "concept", (self.subject_id, self.target_id)
        return "", ()


def withdraw_obsolete() -> int:
    """Delete open suggestions whose rows are gone or whose change was made by hand. Returns their number."""
    withdrawn = after = 0
    while block := _read_open(Q(pk__gt=after), _MANY):
        after = block[-1].id
        withdrawn += _withdraw_obsolete_of(block)
    return withdrawn


def withdraw_settled(terms: Iterable[str]) -> int:
    """The same for the suggestions that name one of some terms, each given as `kind:id` or `tag:name`."""
    named: dict[str, set[int | str]] = {kind: set() for kind in (*VOCABULARIES, "tag")}
    for kind, _, ref in (term.partition(":") for term in terms):
        if kind in named:
            named[kind].add(ref if kind == "tag" else int(ref))
    if not any(named.values()):
        return 0
    duplicates = {Kind.CONCEPT_DUPLICATE: "concept", Kind.ENTITY_DUPLICATE: "entity", Kind.TAG_DUPLICATE: "tag"}
    # By the index suggestion_queue_idx.
    found = names_among({kind: named[of] for kind, of in duplicates.items()}, both=False)
    for kind in GROUPED_KINDS:
        found |= Q(kind=kind, target_id__in=named[kind])
    rows = _read_open(found)
    return sum(_withdraw_obsolete_of(rows[begin : begin + _MANY]) for begin in range(0, len(rows), _MANY))


def _read_open(condition: Q, most: int | None = None) -> list[_Open]:
    rows = Suggestion.objects.alias(from_tag=FROM_TAG, into_tag=INTO_TAG).filter(condition, state=Suggestion.State.OPEN)
    columns = ("id", "kind", "subject_id", "target_id", FROM_TAG, INTO_TAG)
    return [_Open(*row) for row in rows.order_by("id").values_list(*columns)[:most]]


def accepted_as(curation_id: int) -> list[Suggestion]:
    """The suggestions whose change was a curation, locked until the transaction ends. Uses suggestion_queue_idx."""
    accepted = Suggestion.objects.filter(kind__in=NAME_KINDS, state=Suggestion.State.ACCEPTED)
    return list(accepted.filter(applied__curation=curation_id).select_for_update().order_by("pk"))


def reopen(accepted: Iterable[Suggestion], viewer: Viewer) -> None:
    """Open suggestions again whose change was undone: their question is as open as before."""
    for row in accepted:
        before = {"state": row.state}
        row.state, row.decided_at, row.decided_by_id = Suggestion.State.OPEN, timezone.now(), None
        row.decided_together = row.applied = None
        row.save(update_fields=["state", "decided_at", "decided_by", "decided_together", "applied"])
        audit(viewer, "suggestion_undo", row, before=before, after={"state": row.state.value, "kind": row.kind})


def _withdraw_obsolete_of(block: Sequence[_Open]) -> int:
    # Looked up by ids: a cluster does not compare these rows with memories in one statement.
    needed: dict[str, set[int | None]] = {name: set() for name in _PRESENT}
    for one in block:
        needed["memory"].update(one.of_memories)
        kind, terms = one.of_terms
        needed.setdefault(kind, set()).update(terms)
    there = {name: set(fetch_column(statement, [list(needed[name])])) for name, statement in _PRESENT.items()}
    linked: dict[str, set[tuple[int, int]]] = {}
    for name in ("category", "concept"):
        vocabulary = VOCABULARIES[name]
        linked[name] = set(
            fetch(
                f"SELECT memory_id, {vocabulary.link_column} FROM {vocabulary.link_table} WHERE memory_id = ANY(%s)",
                [[one.subject_id for one in block if one.kind == name]],
            )
        )
    tags = known_terms("tag", {tag for one in block for tag in (one.old_tag, one.new_tag) if tag is not None}, None)

    def is_obsolete(one: _Open) -> bool:
        kind, terms = one.of_terms
        if not there["memory"].issuperset(one.of_memories) or (kind and not there[kind].issuperset(terms)):
            return True
        if one.kind == Kind.TAG_DUPLICATE:
            return not {one.old_tag, one.new_tag} <= tags
        return one.kind in (Kind.CATEGORY, Kind.CONCEPT) and (one.subject_id, one.target_id) in linked[one.kind]

    obsolete = [one.id for one in block if is_obsolete(one)]
    return Suggestion.objects.filter(pk__in=obsolete, state="open").delete()[0] if obsolete else 0

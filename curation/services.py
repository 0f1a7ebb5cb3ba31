"""Plan, apply and undo operations. Each is atomic, audited, exclusive, and recorded so that it can be undone."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from access.limits import Buckets
from access.models import AuditEvent
from access.viewer import Viewer, audit
from categories.kinds import VOCABULARIES
from categories.models import MadeBy
from categories.services import VocabularyBusyError, vocabulary_lock
from curation.checks import structure_problems
from curation.column_edits import dated_edits
from curation.facet_columns import refresh_columns, refresh_search_terms
from curation.journal import Journal
from curation.models import Curation
from curation.plan import Plan, PreparedOperation, prepare
from curation.queries import (
    OTHERS_USE_IT,
    TermNotFoundError,
    projects_of,
    used_by_others,
    visible_curation,
    visible_curations,
)
from curation.schemas import Create, Operation, Rename, Split, scope_of
from curation.suggestions.obsolete import accepted_as, reopen, withdraw_settled
from curation.undo import UndoRefusedError, revert
from curation.working_copy import ColumnEdit, CurationRefusedError, StateChange, TermRef
from memories.changes import Kind, changes_record_left, changes_record_many, kind_of_values
from memories.link_targets import dangling_links, names_of_memories, set_targets
from memories.models import Memory
from memories.storage import corpus_bump, outbox_stamp
from web.errors import Refusal
from web.secrets import mask_json, mask_note, mask_query, texts_to_store

# The new names that a curator of some projects may try, previews included.
_NAMES_AN_HOUR = 240
_names_tried = Buckets(seconds=3600)
# The longest wait for other writers; an import may take minutes.
_LOCK_SECONDS = 5


class PlanChangedError(Refusal):
    """The plan differs from the preview. `plan` is the current plan."""

    status = 409
    code = "plan_changed"
    message = "Something has changed since the preview: check it again."
    suggestion = "Call it again with dry_run, and send the token of that plan."

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__()


class CurationBusyError(Refusal):
    """Another writer held the lock for too long."""

    status = 503
    code = "busy"
    message = "Memories are being written, perhaps by an import. Try again later."
    suggestion = "Try again in a moment."
    headers = {"Retry-After": "5"}


class TooManyNamesTriedError(Refusal):
    """A curator of some projects has tried too many new names: each shows whether it is taken by terms of others."""

    status = 429
    code = "too_many_names_tried"
    suggestion = "Wait, or ask a curator of all projects."

    def __init__(self, wait: float) -> None:
        self.headers = {"Retry-After": str(math.ceil(wait))}
        super().__init__(f"You have tried {_NAMES_AN_HOUR} new names of terms in an hour.")


class CurationForbiddenError(Refusal):
    """The viewer lacks the scope of the operation."""

    status = 403
    code = "forbidden"
    message = "Only curators can change the vocabulary."
    suggestion = "Use a key with the scope curate."


CURATION_REFUSALS = (
    CurationRefusedError,
    TermNotFoundError,
    UndoRefusedError,
    CurationForbiddenError,
    CurationBusyError,
)


@dataclass(frozen=True, slots=True)
class MadeRow:
    """A category, concept, entity or relationship that an operation created."""

    kind: str
    id: int


@dataclass(frozen=True, slots=True)
class Applied:
    """An applied plan, with its record."""

    curation: Curation
    plan: Plan
    made: tuple[MadeRow, ...]


def curation_plan(*, operation: Operation, viewer: Viewer) -> Plan:
    """The plan of an operation; a refusal is part of it. Raises TermNotFoundError."""
    _require_scope(operation.verb, viewer)
    _limit_names(operation, viewer)
    with transaction.atomic():
        try:
            operation = _without_secrets(operation)
            return prepare(operation, viewer).plan
        except CurationRefusedError as error:
            kind = getattr(operation, "kind", "category" if operation.verb == "move" else "memory")
            return Plan(operation.verb, kind, "", refusals=(str(error),), field=error.field)


def curation_apply(*, operation: Operation, viewer: Viewer, settles: bool = True) -> Applied:
    """Apply an operation. Raises CurationRefusedError, TermNotFoundError or, for an old token, PlanChangedError.

    Open suggestions that the change settles are withdrawn, unless `settles` is false.
    """
    _require_scope(operation.verb, viewer)
    _limit_names(operation, viewer)
    operation = _without_secrets(operation)
    with exclude_writers():
        prepared = prepare(operation, viewer)
        if operation.token and operation.token != prepared.plan.token:
            raise PlanChangedError(prepared.plan)
        applied = _write(operation, prepared, viewer)
    if settles:
        # Afterwards: whoever decides one of them holds its row, and waits for the lock on the vocabulary.
        withdraw_settled(applied.curation.terms)
    return applied


@transaction.atomic
def curation_undo(*, curation_id: int, viewer: Viewer) -> Curation:
    """Restore everything that a curation changed. Raises UndoRefusedError if later changes prevent it."""
    if not viewer.scopes & {"curate", "write"}:
        raise CurationForbiddenError
    # Before the lock on the vocabulary, in the order of those who decide about a suggestion.
    accepted = accepted_as(curation_id)
    with exclude_writers():
        curation = visible_curation(curation_id, viewer)
        _require_scope(curation.verb, viewer)
        _refuse_undo(curation, viewer)
        known = set(structure_problems())
        affected = revert(curation)
        for kind, ids in affected.relinked.items():
            refresh_columns(kind, ids)
        if problems := [problem for problem in structure_problems() if problem not in known]:
            raise UndoRefusedError(f"A later change depends on it: {problems[0]}")
        refresh_search_terms(affected.term_ids)
        curation.undone_at, curation.undone_by_id = timezone.now(), viewer.user_id
        curation.save(update_fields=["undone_at", "undone_by"])
        event = audit(viewer, "curation_undo", curation, after={"title": curation.title})
        _record_moves(event, affected.edits, "after")
        changes_record_many(event, Kind.EDITED, sorted({edit.memory_id for edit in affected.edits}))
        changes_record_many(event, Kind.RETAGGED, sorted(affected.memory_ids()))
        changes_record_many(event, Kind.RESTORED, sorted(affected.restored))
        outbox_stamp()
        corpus_bump()
        reopen(accepted, viewer)
        return curation


# The arguments that give texts, besides those that name terms.
_NEW_TEXTS = (
    *("name", "type", "description", "aliases", "add", "how", "fact", "reason"),
    *("add_tags", "set_category", "add_categories", "add_concepts", "add_entities"),
    *("set_type", "set_authors", "add_authors"),
)


def _without_secrets(operation: Operation) -> Operation:
    """The operation without secrets in its new texts. Raises CurationRefusedError if they are refused.

    A query stays, since it must choose the same memories.
    """

    def refused(field: str, reason: str) -> CurationRefusedError:
        return CurationRefusedError(f"{field}: {reason}.", field)

    given = {name: getattr(operation, name) for name in _NEW_TEXTS if name in operation.model_fields_set}
    masked = texts_to_store(given, refused)
    return operation if masked == given else operation.model_copy(update=masked)


def _logged_arguments(operation: Operation) -> dict[str, Any]:
    """The arguments in the log, in which no query holds a secret."""
    arguments = operation.arguments()
    if "query" in arguments:
        arguments["query"] = mask_query(arguments["query"])
    return mask_json(arguments) or {}


def _limit_names(operation: Operation, viewer: Viewer) -> None:
    """Count the new names that a curator of some projects tries. Those of tags show nothing."""
    if viewer.curated_project_ids is None or not isinstance(operation, Create | Rename | Split):
        return
    if operation.kind == "tag":
        return
    allowance = _names_tried.take((viewer.user_id, viewer.api_key_id), _NAMES_AN_HOUR)
    if allowance.wait:
        raise TooManyNamesTriedError(allowance.wait)


def _require_scope(verb: str, viewer: Viewer) -> None:
    """Writers, who may change and delete memories one by one, may do so with many; all else is for curators."""
    if scope_of(verb) not in viewer.scopes:
        raise CurationForbiddenError


@contextmanager
def exclude_writers() -> Iterator[None]:
    """A transaction that excludes other curations and writers of memories. Raises CurationBusyError."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
                vocabulary_lock(seconds=_LOCK_SECONDS)
                # Terms are deleted before the rows that refer to them are updated.
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
                # For sorting the pending lists of GIN indexes.
                cursor.execute("SET LOCAL work_mem = '64MB'")
            yield
    except VocabularyBusyError as error:
        raise CurationBusyError from error
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise CurationBusyError from error
        raise


def _write(operation: Operation, prepared: PreparedOperation, viewer: Viewer) -> Applied:
    plan, edits = prepared.plan, dated_edits(prepared.working_copy.column_edits, viewer)
    curation = Curation.objects.create(
        verb=plan.verb,
        kind=plan.kind,
        title=mask_note(plan.title),
        arguments=_logged_arguments(operation),
        merged={str(source_id): target_id for source_id, target_id in prepared.working_copy.merged.items()},
        project_ids=sorted({*projects_of(prepared.memory_ids), *_projects_after(edits)}),
        memories=plan.memories,
        door=viewer.door,
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
    )
    made_by = MadeBy.IMPORT if viewer.user_id is None else MadeBy.HUMAN
    journal = Journal(curation.pk, made_by.value)
    journal.write(prepared.changes, prepared.relinks)
    for kind in VOCABULARIES:
        moved = prepared.memory_ids if kind == prepared.kind else journal.relinked.get(kind, ())
        refresh_columns(kind, moved)
    journal.move_tags(prepared.relinks)
    for change in prepared.working_copy.state_changes:
        journal.set_state(change)
    if edits:
        journal.set_columns(edits)
        left = [edit.memory_id for edit in edits if "project_id" in edit.after]
        set_targets(dangling_links(left, names_of_memories(left)), viewer)
    curation.terms = sorted(_changed_terms(prepared, journal))
    curation.save(update_fields=["terms"])
    refresh_search_terms(journal.term_ids(prepared.changes))
    after = {"title": curation.title, "memories": plan.memories, "arguments": curation.arguments}
    event = audit(viewer, f"curation_{plan.verb}", curation, after=after)
    _record_moves(event, edits, "before")
    _record_changes(event, prepared)
    outbox_stamp()
    corpus_bump()
    made = [
        MadeRow(table, pk) for (table, _), pk in journal.new_ids.items() if table in (*VOCABULARIES, "relationship")
    ]
    return Applied(curation, plan, tuple(made))


def _projects_after(edits: Iterable[ColumnEdit]) -> set[int]:
    return {edit.after["project_id"] for edit in edits if "project_id" in edit.after}


def _record_moves(event: AuditEvent, edits: Iterable[ColumnEdit], side: str) -> None:
    """Record for the projects that memories left that these are there no longer."""
    left: dict[int, list[int]] = {}
    for edit in edits:
        if project_id := getattr(edit, side).get("project_id"):
            left.setdefault(project_id, []).append(edit.memory_id)
    changes_record_left(event, left)


def _record_changes(event: AuditEvent, prepared: PreparedOperation) -> None:
    """Record the changed memories by kind: those that got another state, and those whose tags or links changed."""
    by_state: dict[Kind, set[int]] = {}
    for change in prepared.working_copy.state_changes:
        by_state.setdefault(_kind_of_state(change), set()).update(change.memory_ids)
    for kind, ids in by_state.items():
        changes_record_many(event, kind, sorted(ids))
    edited = {edit.memory_id for edit in prepared.working_copy.column_edits}.difference(*by_state.values())
    changes_record_many(event, Kind.EDITED, sorted(edited))
    others = set(prepared.memory_ids).difference(edited, *by_state.values())
    changes_record_many(event, Kind.MERGED if prepared.plan.verb == "merge" else Kind.RETAGGED, sorted(others))


def _kind_of_state(change: StateChange) -> Kind:
    # Memories come back from a state that searches do not show.
    before = Memory.State.ARCHIVED if change.restores else None
    return kind_of_values(before, change.state, ())


def _changed_terms(prepared: PreparedOperation, journal: Journal) -> Iterator[str]:
    """The terms whose later change prevents an undo, as `kind:id`. The undo checks retagged memories themselves."""
    for kind, ref in prepared.working_copy.touched:
        yield f"{kind}:{ref}"
    for change in prepared.changes:
        if change.table in VOCABULARIES:
            yield f"{change.table}:{journal.new_ids.get((change.table, change.id), change.id)}"
    if prepared.kind == "tag":
        for relink in prepared.relinks:
            yield from (f"tag:{ref}" for ref in (*relink.sources, relink.target) if ref)


def _refuse_undo(curation: Curation, viewer: Viewer) -> None:
    if curation.undone_at is not None:
        raise UndoRefusedError(f"It was already undone on {curation.undone_at:%Y-%m-%d %H:%M} UTC.")
    if curation.arguments.get("purged"):
        raise UndoRefusedError("It held secrets, which were purged: it cannot be undone.")
    by_writers = scope_of(curation.verb) == "write"
    allowed = viewer.writable_project_ids if by_writers else viewer.curated_project_ids
    refs: dict[str, list[TermRef]] = {}
    for kind, _, ref in (key.partition(":") for key in curation.terms):
        refs.setdefault(kind, []).append(ref if kind == "tag" else int(ref))
    if (allowed is not None and not set(curation.project_ids) <= allowed) or any(
        used_by_others(kind, of_kind, viewer) for kind, of_kind in refs.items() if kind != "tag"
    ):
        raise UndoRefusedError(OTHERS_USE_IT)
    later = Curation.objects.filter(pk__gt=curation.pk, undone_at=None, terms__overlap=curation.terms).order_by("-pk")
    for other in later:
        if _is_apart(curation, other):
            continue
        is_known = visible_curations(viewer).filter(pk=other.pk).exists()
        known = f"#{other.pk} ({other.title})" if is_known else "a later change by another user"
        raise UndoRefusedError(f"Part of it was changed again by {known}: undo that first.")


def _is_apart(curation: Curation, later: Curation) -> bool:
    """Whether two merges of tags into the same one changed no memory in common: then either can be undone."""
    target = curation.arguments.get("target")
    if {curation.kind, later.kind} != {"tag"} or {curation.verb, later.verb} != {"merge"}:
        return False
    if later.arguments.get("target") != target or set(curation.terms) & set(later.terms) != {f"tag:{target}"}:
        return False
    ids = {pk for own in curation.changes.values_list("memory_ids", flat=True) for pk in own or ()}
    return not later.changes.filter(memory_ids__overlap=sorted(ids)).exists()

"""The verbs of curation, for every door: plan, apply, undo. One at a time, atomic, audited, kept to be undone."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import OperationalError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from access.audit import audit
from access.viewer import Viewer
from categories.models import MadeBy, Relationship
from categories.searched_terms import ENTITIES, RELATIONSHIPS, terms_refresh
from categories.services import VOCABULARY_LOCK
from curation.checks import structure_problems
from curation.facet_columns import columns_refresh, tags_read, tags_write
from curation.journal import Journal
from curation.models import Curation
from curation.plan import Plan, Prepared, prepare
from curation.queries import (
    OTHERS_USE_IT,
    TermNotFoundError,
    are_used_by_others,
    curation_seen,
    linked_ids,
    projects_of,
)
from curation.schemas import Asked
from curation.tables import LINKS
from curation.undo import UndoRefusedError, replay
from curation.working_copy import CurationRefusedError, Ref, Relink
from memories.storage import corpus_bump, outbox_stamp
from web.errors import Refusal

# How long a curator waits for writers before it is told; an import may take minutes.
_WAIT = "5s"


class PlanChangedError(Refusal):
    """The plan that was previewed is out of date. `plan` is the one that would be carried out now."""

    status = 409
    code = "plan_changed"
    message = "Something has changed since the preview: check it again."
    suggestion = "Call it again with dry_run, and send the token of that plan."

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__()


class BusyError(Refusal):
    """Another transaction has been writing for longer than the wait."""

    status = 503
    code = "busy"
    message = "Memories are being written, perhaps by an import. Try again later."
    suggestion = "Try again in a moment."
    headers = {"Retry-After": "5"}


class MayNotCurateError(Refusal):
    """The viewer lacks the scope."""

    status = 403
    code = "forbidden"
    message = "Only curators can change the vocabulary."
    suggestion = "Use a key with the scope curate."


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done, and as which curation it is kept."""

    curation: Curation
    plan: Plan


def curation_plan(*, asked: Asked, viewer: Viewer) -> Plan:
    """What a verb would do, and what stands against it. Raises TermNotFoundError."""
    _refuse_others(viewer)
    with transaction.atomic():
        try:
            return prepare(asked, viewer).plan
        except CurationRefusedError as error:
            kind = getattr(asked, "kind", "category" if asked.verb == "move" else "memory")
            return Plan(asked.verb, kind, "", refusals=(str(error),), field=error.field)


def curation_apply(*, asked: Asked, viewer: Viewer) -> Applied:
    """Do it. Raises CurationRefusedError, TermNotFoundError; PlanChangedError where the token is of another plan."""
    _refuse_others(viewer)
    with _alone():
        prepared = prepare(asked, viewer)
        if asked.token and asked.token != prepared.plan.token:
            raise PlanChangedError(prepared.plan)
        return Applied(_write(asked, prepared, viewer), prepared.plan)


def curation_undo(*, curation_id: int, viewer: Viewer) -> Curation:
    """Put everything back as it was. Raises UndoRefusedError where later changes stand in the way."""
    _refuse_others(viewer)
    with _alone():
        curation = curation_seen(curation_id, viewer)
        if curation is None:
            raise TermNotFoundError("curation", f"#{curation_id}")
        _refuse_undo(curation, viewer)
        known = set(structure_problems())
        touched = replay(curation)
        for kind, ids in touched.relinked.items():
            columns_refresh(kind, ids)
        if problems := [problem for problem in structure_problems() if problem not in known]:
            raise UndoRefusedError(f"A later change depends on it: {problems[0]}")
        _terms_follow(touched.entity_ids)
        curation.undone_at, curation.undone_by_id = timezone.now(), viewer.user_id
        curation.save(update_fields=["undone_at", "undone_by"])
        audit(viewer, "curation_undo", curation, after={"title": curation.title})
        outbox_stamp()
        corpus_bump()
        return curation


def _refuse_others(viewer: Viewer) -> None:
    if "curate" not in viewer.scopes:
        raise MayNotCurateError


@contextmanager
def _alone() -> Iterator[None]:
    """One curation at a time, and no memory written meanwhile; or BusyError."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_WAIT}'")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [VOCABULARY_LOCK])
                # A term goes before what hangs on it is led elsewhere.
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
                # Entries of GIN indexes gather beside them, and are sorted in with so much memory.
                cursor.execute("SET LOCAL work_mem = '64MB'")
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise BusyError from error
        raise


def _write(asked: Asked, prepared: Prepared, viewer: Viewer) -> Curation:
    plan, desk = prepared.plan, prepared.desk
    curation = Curation.objects.create(
        verb=plan.verb,
        kind=plan.kind,
        title=plan.title,
        arguments=asked.arguments(),
        merged={str(gone): kept for gone, kept in desk.merged.items()},
        project_ids=projects_of(prepared.memory_ids),
        memories=plan.memories,
        door=viewer.door,
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
    )
    made_by = MadeBy.IMPORT if viewer.user_id is None else MadeBy.HUMAN
    journal = Journal(curation.pk, made_by.value)
    journal.write(prepared.changes, prepared.relinks)
    for kind in LINKS:
        moved = prepared.memory_ids if kind == prepared.kind else journal.relinked.get(kind, ())
        columns_refresh(kind, moved)
    _tags_follow(prepared.relinks, journal)
    curation.terms = sorted(_terms_of(prepared, journal))
    curation.save(update_fields=["terms"])
    _terms_follow(journal.entity_ids(prepared.changes))
    after = {"title": plan.title, "memories": plan.memories, "arguments": curation.arguments}
    audit(viewer, f"curation_{plan.verb}", curation, after=after)
    outbox_stamp()
    corpus_bump()
    return curation


def _terms_of(prepared: Prepared, journal: Journal) -> Iterator[str]:
    """What a later change of would stand in the way of an undo. Retagged memories tell for themselves."""
    for kind, ref in prepared.desk.touched:
        yield f"{kind}:{ref}"
    for change in prepared.changes:
        if change.table in LINKS:
            yield f"{change.table}:{journal.made_ids.get((change.table, change.id), change.id)}"
    if prepared.kind == "tag":
        for relink in prepared.relinks:
            yield from (f"tag:{ref}" for ref in (*relink.sources, relink.target) if ref)


def _tags_follow(relinks: Sequence[Relink], journal: Journal) -> None:
    """Work out what tags memories have after all of it, and write each of them once."""
    steps = [relink for relink in relinks if relink.kind == "tag"]
    if not steps:
        return
    chosen = [set(linked_ids("tag", step.sources) if step.memory_ids is None else step.memory_ids) for step in steps]
    before = tags_read(set().union(*chosen))
    after = {
        memory_id: tags_after(tags, [step for step, ids in zip(steps, chosen, strict=True) if memory_id in ids])
        for memory_id, tags in before.items()
    }
    changed = sorted(memory_id for memory_id, tags in after.items() if tags != before[memory_id])
    tags_write((memory_id, after[memory_id]) for memory_id in changed)
    journal.tags_note([(one, before[one]) for one in changed], [(one, after[one]) for one in changed])


def tags_after(tags: Sequence[str], steps: Iterable[Relink]) -> list[str]:
    """A memory's tags once steps were taken: a new tag stands where the old one stood, else at the end. Pure."""
    result = list(tags)
    for step in steps:
        target = None if step.target is None else str(step.target)
        if not step.sources and target is not None and target not in result:
            result.append(target)
        for source in step.sources:
            if target is not None and source in result and target not in result:
                result[result.index(str(source))] = target
            result = [tag for tag in result if tag != source]
    return result


def _terms_follow(entity_ids: Collection[int]) -> None:
    """The terms that entities, and the relationships they are in, are found by."""
    ids = list(entity_ids)
    facts = Relationship.objects.filter(Q(source_id__in=ids) | Q(target_id__in=ids)).values_list("pk", flat=True)
    for searched, of in ((ENTITIES, ids), (RELATIONSHIPS, list(facts) if ids else [])):
        while terms_refresh(searched, of):
            pass


def _refuse_undo(curation: Curation, viewer: Viewer) -> None:
    if curation.undone_at is not None:
        raise UndoRefusedError(f"It was already undone on {curation.undone_at:%Y-%m-%d %H:%M} UTC.")
    writable = viewer.writable_project_ids
    refs: dict[str, list[Ref]] = {}
    for kind, _, ref in (key.partition(":") for key in curation.terms):
        refs.setdefault(kind, []).append(ref if kind == "tag" else int(ref))
    if (writable is not None and not set(curation.project_ids) <= writable) or any(
        are_used_by_others(kind, of_kind, viewer) for kind, of_kind in refs.items()
    ):
        raise UndoRefusedError(OTHERS_USE_IT)
    later = Curation.objects.filter(pk__gt=curation.pk, undone_at=None, terms__overlap=curation.terms).order_by("-pk")
    for other in later:
        is_known = curation_seen(other.pk, viewer) is not None
        known = f"#{other.pk} ({other.title})" if is_known else "a later change by another user"
        raise UndoRefusedError(f"Part of it was changed again by {known}: undo that first.")

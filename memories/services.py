"""Writes to memories: atomic and audited, the same for every interface."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import MadeBy
from categories.services import Vocabulary, vocabulary_lock_shared
from memories.history import value_before, values_at
from memories.link_targets import targets_resolve
from memories.models import Memory, Project, Session
from memories.projects import refuse_secret_slug
from memories.queries import visible_to
from memories.records import MAX_LIST, SUPERSEDED_BY_REL, SUPERSEDES_REL, MemoryChanges, MemoryRecord, derived_title
from memories.refusals import (
    ID_TAKEN,
    SAME_TEXT,
    AlreadyExistsError,
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    NoVersionError,
)
from memories.resolve import (
    PLAIN_FIELDS,
    SessionUse,
    category_refs,
    concept_refs,
    entity_refs,
    named_links,
    names_ensure,
    names_of,
    projects_make,
    record_as_json,
    record_snapshot,
    sessions_ensure,
    source_of,
    with_text_links,
    without_text_links,
)
from memories.secrets import mask_record, policy_of
from memories.snapshot import LINK_TABLES, MemorySnapshot, NamedLink, Ref, content_hash_of, insert_block
from memories.storage import (
    changed_fields,
    corpus_bump,
    links_settle,
    memory_audit,
    memory_ids_draw,
    memory_text,
    one_revision,
    snapshot_as_json,
    snapshot_restored,
    snapshots_insert,
)
from memories.supersession import (
    changed_successor,
    lock_writable,
    memory_supersede,
    refuse_apart,
    refuse_beside_successor,
    refuse_cycle,
    store_change,
    supersede_all,
    take_supersession,
    without_successor,
)
from memories.terms import memory_terms
from memories.trust import DERIVED, trust_after, trust_of, trust_of_record
from web.sql import execute

DEFAULT_PROJECT = "default"
_LISTED_PROJECTS = 20


@one_revision()
def memory_create(*, record: MemoryRecord, viewer: Viewer) -> Memory:
    """Store a new memory. Raises AlreadyExistsError if the project has its id or, without an id, its text.

    Memories that it supersedes get that state.
    """
    vocabulary = Vocabulary(viewer)
    vocabulary_lock_shared()
    project = _project_for(record, viewer, vocabulary)
    record, marks = mask_record(record, policy_of(project))
    record, superseded = take_supersession(record, project.pk, viewer)
    title, now = record.title or derived_title(record.content), timezone.now()
    content_hash = content_hash_of(title, record.content)
    _refuse_repeat(project, record, content_hash)
    vocabulary.project_id, vocabulary.most_new = project.pk, _most_new(viewer)
    names_ensure(names_of([record]), vocabulary)
    snapshot = record_snapshot(
        record=record,
        memory_id=memory_ids_draw(1)[0],
        project_id=project.pk,
        session_id=_session_id(project, record.session, SessionUse(record.agent, record.dated or now), vocabulary),
        vocabulary=vocabulary,
        made_by=_made_by(viewer),
        now=now,
        raw=record_as_json(record),
        record_hash="",
        title=title,
        trust=trust_of_record(record, viewer, _trusts_of_sources(record, project)),
    )
    terms = memory_terms(memory_text(snapshot, project.language))
    snapshots_insert(insert_block([snapshot], [terms], [content_hash], vocabulary.lineages))
    links_settle([snapshot], viewer)
    memory_audit(viewer, "create", None, snapshot)
    corpus_bump()
    supersede_all(superseded, snapshot.id, viewer)
    memory = Memory.objects.get(pk=snapshot.id)
    memory.masked_secrets = marks
    return memory


@one_revision()
def memory_upsert(
    *, record: MemoryRecord, viewer: Viewer, reason: str = "", if_version: str = ""
) -> tuple[Memory, bool]:
    """Store a memory, or replace the one of the project with its `id`, as an import does. Returns whether it is new.

    The date, the state and the successor of a memory that is replaced stay, unless the record gives them. A record that
    changes nothing leaves no trace. Raises NoVersionError if a version is given and there is no memory.
    """
    if not record.id:
        raise ChangeRefusedError("external_id", "is missing; it says which memory is meant")
    vocabulary = Vocabulary(viewer)
    vocabulary_lock_shared()
    project = _project_for(record, viewer, vocabulary)
    record = record.model_copy(update={"project": project.slug})
    _lock_identity(project, record.id)
    known = Memory.objects.filter(project=project, external_id=record.id).order_by("id").values_list("id", flat=True)
    memory_id = known.first()
    if memory_id is None:
        if if_version:
            raise NoVersionError(record.id)
        return memory_create(record=record, viewer=viewer), True
    changes = _replacement(record)
    return (
        memory_update(memory_id=memory_id, changes=changes, viewer=viewer, reason=reason, if_version=if_version),
        False,
    )


def _replacement(record: MemoryRecord) -> MemoryChanges:
    """A record as changes: every field but those that describe the identity and, unless given, the state."""
    values = {name: getattr(record, name) for name in MemoryRecord.model_fields if name not in {"id", "project"}}
    values |= {"source": source_of(record), "created_at": record.dated}
    for name in ("created_at", "updated_at", "state", "superseded_by"):
        if not values[name]:
            del values[name]
    return MemoryChanges.model_construct(_fields_set=set(values), **values)


def _project_for(record: MemoryRecord, viewer: Viewer, vocabulary: Vocabulary) -> Project:
    """The project of a record, or the default one; made if the viewer may make projects."""
    if "write" not in viewer.scopes:
        raise NotAllowedError("You can read but not write: writing needs the scope write.")
    slug = record.project
    if not slug and viewer.writable_project_ids is not None:
        choices = list(Project.objects.filter(pk__in=viewer.writable_project_ids))
        if len(choices) == 1:
            return choices[0]
        raise NotAllowedError(f"Name its project. {_writable_text(choices)}")
    slug = slug or DEFAULT_PROJECT
    project = Project.objects.filter(slug=slug).first()
    if project is None and viewer.may_write(None):
        refuse_secret_slug(slug)
        projects_make([slug], vocabulary)
        project = Project.objects.get(slug=slug)
    if project is None or not viewer.may_write(project.pk):
        # The same message for a missing project: it must not reveal which projects exist.
        choices = list(Project.objects.filter(pk__in=viewer.writable_project_ids or ()))
        raise NotAllowedError(f"You cannot write to a project {slug!r}. {_writable_text(choices)}")
    return project


def _writable_text(projects: Sequence[Project]) -> str:
    if not projects:
        return "There is no project that you can write to."
    names = ", ".join(project.slug for project in projects[:_LISTED_PROJECTS])
    return f"You can write to: {names}{', …' if len(projects) > _LISTED_PROJECTS else ''}."


def _refuse_repeat(project: Project, record: MemoryRecord, content_hash: str) -> None:
    """Raise AlreadyExistsError for a duplicate. A lock makes concurrent requests with the same memory wait for each
    other.
    """
    _lock_identity(project, record.id or content_hash)
    same = Memory.objects.filter(project=project).order_by("id")
    if record.id:
        known = same.filter(external_id=record.id).values_list("id", flat=True).first()
        code, message = ID_TAKEN, f"{project.slug} already has a memory with the id {record.id!r}: #{known}."
    else:
        same = same.exclude(state=Memory.State.DELETED)
        known = same.filter(content_hash=content_hash).values_list("id", flat=True).first()
        code, message = SAME_TEXT, f"{project.slug} already has a memory with this title and text: #{known}."
        message += " Give it an id to keep both."
    if known is not None:
        raise AlreadyExistsError(known, message, code)


def _lock_identity(project: Project, key: str) -> None:
    """Let transactions that look for the same memory, by its id or by the hash of its text, wait for each other."""
    execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", [key, project.pk])


def _session_id(project: Project, session: str, use: SessionUse, vocabulary: Vocabulary) -> int | None:
    if not session:
        return None
    return sessions_ensure({(project.pk, session): use}, vocabulary)[project.pk, session]


def _most_new(viewer: Viewer) -> int | None:
    """The number of names that a memory may add; commands have access to the database anyway."""
    return None if viewer.door == AuditEvent.Door.COMMAND else settings.MAX_NEW_NAMES


def _made_by(viewer: Viewer) -> MadeBy:
    """Links made by a person are theirs; those of a record sent with a key or a command are imported."""
    return MadeBy.HUMAN if viewer.user_id is not None else MadeBy.IMPORT


@one_revision()
def memory_update(
    *, memory_id: int, changes: MemoryChanges, viewer: Viewer, reason: str = "", if_version: str = ""
) -> Memory:
    """Change the fields that are set in `changes`. Memories that it supersedes get that state.

    Every change of a memory takes `if_version`, and raises VersionConflictError for another version than that.
    """
    before = lock_writable(memory_id, viewer, if_version)
    project = _project_after(before, changes, viewer)
    changes, marks = mask_record(changes, policy_of(project))
    changes, superseded = take_supersession(changes, project.pk, viewer)
    vocabulary = Vocabulary(viewer, project_id=project.pk, most_new=_most_new(viewer))
    names = names_of([changes])
    names_ensure(replace(names, tags={*names.tags, *changes.add_tags, *changes.remove_tags}), vocabulary)
    there = before if project.pk == before.project_id else _in_project(before, project, vocabulary)
    after = _apply_changes(there, changes, project, vocabulary, viewer)
    if there is not before:
        _refuse_move(before, after, project)
    after = replace(after, trust=trust_after(before, after, changes, viewer))
    if changed_fields(before, after):
        given = "updated_at" in changes.model_fields_set and changes.updated_at
        after = replace(after, updated_at=given or timezone.now())
    if after.state != before.state:
        after = replace(after, state_reason=reason)
    memory = store_change(before, after, "update", viewer, reason)
    supersede_all(superseded, memory_id, viewer, reason)
    memory.masked_secrets = marks
    return memory


def _trusts_of_sources(record: MemoryRecord, project: Project) -> list[int]:
    """The trusts of the memories that a record says it was made from."""
    names = {(project.pk, link.target) for link in record.links if link.rel.replace("-", "_") in DERIVED}
    found = Memory.objects.filter(pk__in=targets_resolve(names).values()) if names else ()
    return [trust_of(memory) for memory in found]


# An update stores the source as given; a new memory without one gets the host of its URL.
_PLAIN = {**PLAIN_FIELDS, "source": "source"}


def _project_after(before: MemorySnapshot, changes: MemoryChanges, viewer: Viewer) -> Project:
    """The project of a memory after changes. Raises ChangeRefusedError for one that the viewer cannot write to."""
    own = Project.objects.get(pk=before.project_id)
    if "project" not in changes.model_fields_set or changes.project == own.slug:
        return own
    return writable_project(changes.project, viewer)


def writable_project(slug: str, viewer: Viewer) -> Project:
    """The project that a memory is moved to. A move makes none: a name that is written wrong would.

    Raises ChangeRefusedError, the same for a project that is missing, since it must not reveal which there are.
    """
    project = Project.objects.filter(slug=slug).first() if slug else None
    if project is not None and viewer.may_write(project.pk):
        return project
    choices = Project.objects.order_by("slug")
    if viewer.writable_project_ids is not None:
        choices = choices.filter(pk__in=viewer.writable_project_ids)
    reason = f"there is no project {slug!r} that you can write to" if slug else "is empty; a memory is in a project"
    raise ChangeRefusedError("project", f"{reason}. {_writable_text(list(choices[: _LISTED_PROJECTS + 1]))}")


def _in_project(before: MemorySnapshot, project: Project, vocabulary: Vocabulary) -> MemorySnapshot:
    """A memory in another project, and in the session of the same name there."""
    session = Session.objects.filter(pk=before.session_id or 0).first()
    use = SessionUse(before.agent, before.created_at)
    session_id = _session_id(project, session.external_id, use, vocabulary) if session else None
    return replace(before, project_id=project.pk, session_id=session_id)


def _refuse_move(before: MemorySnapshot, after: MemorySnapshot, project: Project) -> None:
    """Refuse to take a memory away from the one that replaced it or that it replaced, or to where its id is taken."""
    if after.external_id == before.external_id:
        _refuse_taken_id(project, after.external_id, before.id)
    refuse_apart({before.id: after.superseded_by_id}, project)


def _apply_changes(
    before: MemorySnapshot, changes: MemoryChanges, project: Project, vocabulary: Vocabulary, viewer: Viewer
) -> MemorySnapshot:
    """The memory with the given fields changed. Raises ChangeRefusedError and AlreadyExistsError."""
    values = _changed_columns(before, changes, project, vocabulary)
    values |= _changed_links(before, changes, vocabulary, _made_by(viewer))
    values |= _changed_state(before, changes, values)
    after = replace(before, **values)
    _refuse_disorder(after.valid_from, after.valid_to)
    return after


def _changed_columns(
    before: MemorySnapshot, changes: MemoryChanges, project: Project, vocabulary: Vocabulary
) -> dict[str, Any]:
    given = changes.model_fields_set
    values: dict[str, Any] = {_PLAIN[name]: getattr(changes, name) for name in given & _PLAIN.keys()}
    if given & {"tags", "add_tags", "remove_tags"}:
        values["tags"] = _changed_tags(before, changes, vocabulary)
    # A title that came from the text follows it; one that somebody wrote stays.
    if "title" in given or ("content" in given and before.title == derived_title(before.content)):
        values["title"] = changes.title or derived_title(values.get("content", before.content))
    if "id" in given and changes.id != before.external_id:
        _refuse_taken_id(project, changes.id, before.id)
        values["external_id"] = changes.id
    if "created_at" in given:
        if changes.created_at is None:
            raise ChangeRefusedError("created_at", "cannot be empty; every memory has a date")
        values["created_at"] = changes.created_at
    if "session" in given:
        use = SessionUse(*(values.get(name, getattr(before, name)) for name in ("agent", "created_at")))
        values["session_id"] = _session_id(project, changes.session, use, vocabulary)
    return values


def _changed_tags(before: MemorySnapshot, changes: MemoryChanges, vocabulary: Vocabulary) -> tuple[str, ...]:
    """The tags that are given, or those of the memory with some more and without others."""
    if "tags" in changes.model_fields_set:
        if changes.add_tags or changes.remove_tags:
            raise ChangeRefusedError("tags", "replaces all tags: give it alone, or add_tags and remove_tags without it")
        return vocabulary.tags_of(changes.tags, before.project_id)
    added = vocabulary.tags_of(changes.add_tags, before.project_id)
    gone = {tag.casefold() for tag in vocabulary.tags_of(changes.remove_tags, before.project_id)}
    if both := [tag for tag in added if tag.casefold() in gone]:
        raise ChangeRefusedError("remove_tags", f"{both[0]!r} is also in add_tags; give it in one of the two")
    tags: dict[str, str] = {}
    for tag in (*before.tags, *added):
        # A tag that the memory has in another spelling is there already.
        if (key := tag.casefold()) not in gone:
            tags.setdefault(key, tag)
    if len(tags) > MAX_LIST:
        raise ChangeRefusedError("add_tags", f"the memory would have {len(tags):,} tags; up to {MAX_LIST:,} may be")
    return tuple(tags.values())


def _changed_links(
    before: MemorySnapshot, changes: MemoryChanges, vocabulary: Vocabulary, made_by: MadeBy
) -> dict[str, Any]:
    given = changes.model_fields_set
    values: dict[str, Any] = {}
    if "categories" in given:
        values["categories"] = _keep_makers(
            before.categories, category_refs(changes.categories, vocabulary, made_by, before.project_id)
        )
    if "concepts" in given:
        weighted = {
            vocabulary.concept_of(concept.name, before.project_id)
            for concept in changes.concepts
            if concept.weight is not None
        }
        concepts = concept_refs(changes, vocabulary, made_by, before.project_id)
        values["concepts"] = _keep_makers(before.concepts, concepts, weighted)
    if "entities" in given:
        values["entities"] = _keep_makers(before.entities, entity_refs(changes, vocabulary, made_by, before.project_id))
    if "links" in given or ("content" in given and changes.content != before.content):
        values["links"] = _changed_named_links(before, changes)
    return values


def _changed_named_links(before: MemorySnapshot, changes: MemoryChanges) -> tuple[NamedLink, ...]:
    """The links that are given, or were, and those in the text."""
    content = changes.content if "content" in changes.model_fields_set else before.content
    if "links" not in changes.model_fields_set:
        return with_text_links(without_text_links(before.links, before.content), content)
    successor = tuple(link for link in before.links if link.rel == SUPERSEDED_BY_REL)
    links = named_links(changes.model_copy(update={"superseded_by": "", "content": content}))
    return (*links, *(link for link in successor if link not in links))


def _changed_state(before: MemorySnapshot, changes: MemoryChanges, values: dict[str, Any]) -> dict[str, Any]:
    """The state and the successor. `values` are the changes to the other fields."""
    given = changes.model_fields_set
    state: dict[str, Any] = {}
    if "state" in given and changes.state is not None:
        state["state"] = changes.state
        if changes.state in ("active", "proposed") and "superseded_by" not in given:
            state |= without_successor(before, values)
    if "superseded_by" in given:
        state |= changed_successor(before, changes, values | state)
    return state


def _keep_makers(
    before: Sequence[Ref], wanted: Sequence[Ref], weighted: "set[int] | frozenset[int]" = frozenset()
) -> tuple[Ref, ...]:
    """The wanted links; existing ones keep their maker, and their weight unless it is given."""
    known = {ref.id: ref for ref in before}
    return tuple(
        replace(known[ref.id], weight=ref.weight if ref.id in weighted else known[ref.id].weight)
        if ref.id in known
        else ref
        for ref in wanted
    )


def _refuse_taken_id(project: Project, external_id: str, memory_id: int) -> None:
    if not external_id:
        return
    _lock_identity(project, external_id)
    taken = (
        Memory.objects.filter(project=project, external_id=external_id)
        .exclude(pk=memory_id)
        .values_list("id", flat=True)
    )
    if (known := taken.first()) is not None:
        message = f"{project.slug} already has a memory with the id {external_id!r}: #{known}."
        raise AlreadyExistsError(known, message, ID_TAKEN)


def _refuse_disorder(valid_from: datetime | None, valid_to: datetime | None) -> None:
    if valid_from and valid_to and valid_to < valid_from:
        raise ChangeRefusedError(
            "valid_to", "is before valid_from; a memory is valid from the earlier to the later of them"
        )


@transaction.atomic
def memory_link(*, memory_id: int, target_id: int, rel: str, viewer: Viewer, reason: str = "") -> Memory:
    """Link a memory to another of its project. `supersedes` and `superseded-by` also change the state."""
    if rel == SUPERSEDES_REL:
        memory_supersede(memory_id=target_id, by_id=memory_id, viewer=viewer, reason=reason)
        return Memory.objects.get(pk=memory_id)
    if rel == SUPERSEDED_BY_REL:
        return memory_supersede(memory_id=memory_id, by_id=target_id, viewer=viewer, reason=reason)
    before = lock_writable(memory_id, viewer)
    target = visible_to(viewer).filter(pk=target_id).only("project_id").first()
    if target is None:
        raise MemoryNotFoundError(target_id)
    if target_id == memory_id:
        raise ChangeRefusedError("target", f"#{memory_id} cannot be linked to itself")
    if target.project_id != before.project_id:
        raise ChangeRefusedError("target", f"#{target_id} is in another project than #{memory_id}")
    link = NamedLink(rel, f"#{target_id}")
    if link in before.links:
        return Memory.objects.get(pk=memory_id)
    after = replace(before, links=(*before.links, link), updated_at=timezone.now())
    return store_change(before, after, "relate", viewer, reason)


@transaction.atomic
def memory_classify(
    *,
    memory_id: int,
    viewer: Viewer,
    categories: Sequence[Ref] = (),
    concepts: Sequence[Ref] = (),
    without_categories: Collection[int] = (),
    without_concepts: Collection[int] = (),
    reason: str = "",
) -> Memory:
    """Add and remove links to existing categories and concepts."""
    before = lock_writable(memory_id, viewer)
    after = replace(
        before,
        categories=_merge_refs(before.categories, categories, without_categories),
        concepts=_merge_refs(before.concepts, concepts, without_concepts),
    )
    if after != before:
        after = replace(after, updated_at=timezone.now())
    return store_change(before, after, "classify", viewer, reason)


def _merge_refs(before: Sequence[Ref], more: Sequence[Ref], gone: Collection[int]) -> tuple[Ref, ...]:
    """Existing links keep their maker."""
    known = {ref.id for ref in before}
    kept = [*before, *(ref for ref in more if ref.id not in known)]
    return tuple(sorted((ref for ref in kept if ref.id not in gone), key=lambda ref: ref.id))


@transaction.atomic
def memory_delete(*, memory_id: int, viewer: Viewer, reason: str, if_version: str = "") -> Memory:
    """Hide a memory. It is stored with the reason, and can be restored."""
    return _state_set(memory_id, Memory.State.DELETED, "delete", viewer, reason, if_version)


@transaction.atomic
def memory_archive(*, memory_id: int, viewer: Viewer, reason: str = "") -> Memory:
    """Archive a memory."""
    return _state_set(memory_id, Memory.State.ARCHIVED, "archive", viewer, reason)


def _state_set(
    memory_id: int, state: Memory.State, verb: str, viewer: Viewer, reason: str, if_version: str = ""
) -> Memory:
    before = lock_writable(memory_id, viewer, if_version)
    if before.state == state.value:
        return Memory.objects.get(pk=memory_id)
    after = replace(before, state=state.value, state_reason=reason, updated_at=timezone.now())
    return store_change(before, after, verb, viewer, reason)


@transaction.atomic
def memory_restore(
    *, memory_id: int, viewer: Viewer, reason: str = "", if_version: str = "", despite_successor: bool = False
) -> Memory:
    """Restore a deleted memory to its previous state, and an archived or superseded one to active.

    A memory that was proposed when it was superseded is proposed again. Raises SuccessorError.
    """
    before = lock_writable(memory_id, viewer, if_version)
    if before.state not in (Memory.State.DELETED, Memory.State.ARCHIVED, Memory.State.SUPERSEDED):
        return Memory.objects.get(pk=memory_id)
    state = Memory.State.ACTIVE.value
    values: dict[str, Any] = {}
    if before.state == Memory.State.DELETED:
        state = _state_before(memory_id, Memory.State.DELETED, viewer)
    elif before.state == Memory.State.SUPERSEDED:
        if not despite_successor:
            refuse_beside_successor(before)
        values = without_successor(before, {})
        if _state_before(memory_id, Memory.State.SUPERSEDED, viewer) == Memory.State.PROPOSED:
            state = Memory.State.PROPOSED.value
    after = replace(before, state=state, state_reason=reason, updated_at=timezone.now(), **values)
    return store_change(before, after, "restore", viewer, reason)


@transaction.atomic
def memory_version_restore(
    *,
    memory_id: int,
    event_id: str,
    viewer: Viewer,
    reason: str = "",
    if_version: str = "",
    despite_successor: bool = False,
) -> Memory:
    """Give a memory all the values that it had after an event of its history. The history goes on from there.

    Raises EventNotFoundError, SuccessorError, and a refusal where a value can no longer be had.
    """
    before = lock_writable(memory_id, viewer, if_version)
    memory = Memory.objects.select_related("batch").defer("content", "terms", "raw").get(pk=memory_id)
    values = values_at(memory, event_id, snapshot_as_json(before, LINK_TABLES), viewer)
    after = snapshot_restored(before, values)
    if after == before:
        return Memory.objects.get(pk=memory_id)
    project = memory.project
    if after.project_id != before.project_id:
        project = _project_restored(after.project_id, viewer)
        refuse_apart({memory_id: after.superseded_by_id}, project)
    revived = before.state == Memory.State.SUPERSEDED and after.state in (Memory.State.ACTIVE, Memory.State.PROPOSED)
    if revived and not despite_successor:
        refuse_beside_successor(before)
    if (after.external_id, project) != (before.external_id, memory.project):
        _refuse_taken_id(project, after.external_id, memory_id)
    if after.superseded_by_id != before.superseded_by_id and after.superseded_by_id is not None:
        if not Memory.objects.filter(pk=after.superseded_by_id, project_id=project.pk).exists():
            raise ChangeRefusedError("superseded_by", f"#{after.superseded_by_id}, which replaced it then, is gone")
        refuse_cycle(memory_id, after.superseded_by_id)
    if after.session_id is not None and not Session.objects.filter(pk=after.session_id).exists():
        # It went with the import that had made it.
        after = replace(after, session_id=None)
    after = replace(after, updated_at=timezone.now())
    return store_change(before, after, "restore_version", viewer, reason or "Restored as it was at that time.")


def _project_restored(project_id: int, viewer: Viewer) -> Project:
    project = Project.objects.filter(pk=project_id).first()
    if project is None or not viewer.may_write(project_id):
        raise ChangeRefusedError("project", "it was in a project then that you cannot write to, or that is gone")
    return project


def _state_before(memory_id: int, now: Memory.State, viewer: Viewer) -> str:
    """The state before the last event that set the current one."""
    state = value_before(memory_id, "state", now.value, viewer)
    return state if state in Memory.State.values else Memory.State.ACTIVE.value

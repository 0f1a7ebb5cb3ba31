"""Records into the tables, in blocks: validated, matched with what is there, analysed, and copied in.

Everything here happens inside one transaction that the caller opens; nothing is written if anything goes wrong.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import connection
from django.utils import timezone
from pydantic import ValidationError

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import MadeBy
from categories.services import (
    CategoryDetails,
    ConceptDetails,
    EntityDetails,
    EntityKey,
    RelationshipDetails,
    Vocabulary,
    category_describe,
    concept_describe,
    entity_describe,
    relationship_describe,
)
from memories.building import names_ensure, projects_make, record_image, sessions_ensure
from memories.importers.analysers import Analysers, analysers
from memories.importers.base import Found, Reading, Refusal
from memories.models import Memory, Project
from memories.records import (
    STORABLE,
    SUPERSEDED_BY_REL,
    VOCABULARY_RECORDS,
    CategoryRecord,
    ConceptRecord,
    EntityRecord,
    MemoryRecord,
    ProjectRecord,
    RelationshipRecord,
    VocabularyRecord,
    derived_title,
    is_vocabulary,
    parse_vocabulary,
    reasons,
    unstorable,
)
from memories.services import DEFAULT_PROJECT
from memories.storage import (
    MemoryImage,
    content_hash_of,
    image_as_json,
    image_changes,
    images_insert,
    images_read,
    images_update,
    memory_ids_draw,
    memory_text,
    targets_resolve,
)
from search.analysis import languages

BLOCK = 1_000
# Blocks whose terms are being worked out while the next are read and the last are written.
AHEAD = 3
# Two imports wait for each other, so that neither misses what the other brings.
IMPORT_LOCK = 0x6D6E656D6F
_PENDING_LIST = "32MB"
# The planner is told how full the tables are at so many new rows, and again at each sixteen times as many.
_ANALYZE_FROM = 5_000
_WRITTEN_TABLES = (
    "memories_memory, memories_memorylink, memories_session, categories_category, categories_categorylink,"
    " categories_concept, categories_conceptlink, categories_entity, categories_entitylink"
)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What an import may do. `project` takes the records that name none."""

    project: str = ""
    overwrite: bool = False


@dataclass(slots=True)
class Tally:
    """What has become of the records so far: `read` is the sum of the four after it."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0
    valid: int = 0
    """The records that could be read, whatever became of them."""
    vocabulary: int = 0
    made: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def read(self) -> int:
        return self.created + self.updated + self.unchanged + self.refused


@dataclass(frozen=True, slots=True)
class Incoming:
    """A valid record with what it is known by. `raw` is its canonical JSON text."""

    location: str
    record: MemoryRecord
    raw: str
    record_hash: str
    title: str
    content_hash: str
    volatile: frozenset[str]


@dataclass(frozen=True, slots=True)
class KnownProject:
    id: int
    language: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A block whose new memories wait for their terms."""

    images: list[MemoryImage]
    terms: "Future[list[str]]"


@dataclass(slots=True)
class ImportRun:
    """One import on its way: its choices, what it has matched, and what has come of it."""

    viewer: Viewer
    batch_id: int
    options: WriteOptions
    refuse: Callable[[str, str], None]
    now: datetime
    vocabulary: Vocabulary
    projects: dict[str, KnownProject] = field(default_factory=dict)
    sessions: dict[tuple[int, str], int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    """Hash of (project, id) -> hash of the record, for those met earlier in this import."""
    used: set[int] = field(default_factory=set)
    """The projects that memories of this import are in."""
    analyze_at: int = _ANALYZE_FROM
    deferred: list[tuple[str, VocabularyRecord]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def refused(self, location: str, reason: str) -> None:
        self.tally.refused += 1
        self.refuse(location, reason)


def records_write(
    *,
    reading: Reading,
    viewer: Viewer,
    batch_id: int,
    options: WriteOptions,
    refuse: Callable[[str, str], None],
    progress: Callable[[Tally, float | None], None],
) -> Tally:
    """Bring in all records of a source. Call it in a transaction, and bump the corpus afterwards."""
    run = ImportRun(viewer, batch_id, options, refuse, timezone.now(), Vocabulary(viewer, batch_id))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        # Entries of GIN indexes gather, and are sorted in at once.
        cursor.execute(f"SET LOCAL gin_pending_list_limit = '{_PENDING_LIST}'")
    waiting: deque[_Waiting] = deque()
    with analysers() as pool:
        for block in _blocks(reading.records):
            if images := _block_match(run, block):
                waiting.append(_Waiting(images, _analyse(run, images, pool)))
            while len(waiting) > AHEAD or (waiting and waiting[0].terms.done()):
                _block_insert(run, waiting.popleft())
            progress(run.tally, reading.fraction())
        while waiting:
            _block_insert(run, waiting.popleft())
            progress(run.tally, reading.fraction())
    _deferred_write(run)
    # Also for the checks of foreign keys at commit, which are planned once: for empty tables they take any index.
    if run.tally.created + run.tally.updated >= _ANALYZE_FROM // 10:
        _analyze()
    run.tally.made = dict(run.vocabulary.made)
    return run.tally


def _blocks(records: Iterator[Found | Refusal]) -> Iterator[list[Found | Refusal]]:
    while block := list(islice(records, BLOCK)):
        yield block


def _analyse(run: ImportRun, images: list[MemoryImage], pool: Analysers) -> "Future[list[str]]":
    language = {project.id: project.language for project in run.projects.values()}
    return pool.submit([memory_text(image, language[image.project_id]) for image in images])


def _block_insert(run: ImportRun, block: _Waiting) -> None:
    images_insert(block.images, block.terms.result(), run.vocabulary.lineages, run.viewer)
    run.tally.created += len(block.images)
    if run.tally.created >= run.analyze_at:
        run.analyze_at *= 16
        _analyze()


def _analyze() -> None:
    """Let the planner know how much there is, this transaction's own rows included."""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {_WRITTEN_TABLES}")


def _block_match(run: ImportRun, block: list[Found | Refusal]) -> list[MemoryImage]:
    """What of a block is new, as it will be stored. Changed ones are updated here, the others only counted."""
    incoming: list[Incoming] = []
    for item in block:
        if isinstance(item, Refusal):
            run.refused(item.location, item.reason)
        elif is_vocabulary(item.data):
            _vocabulary_take(run, item)
        elif valid := _validated(run, item):
            incoming.append(valid)
    run.tally.valid += len(incoming)
    _projects_ensure(run, {_project_of(run, one.record) for one in incoming})
    incoming = [one for one in incoming if _may_write(run, one)]
    incoming = [one for one in incoming if _is_first(run, one)]
    new, changed = _compared(run, incoming)
    _names_ensure(run, [*new, *(one for one, _ in changed)])
    _changed_update(run, changed)
    ids = memory_ids_draw(len(new)) if new else []
    return [_image(run, one, memory_id) for one, memory_id in zip(new, ids, strict=True)]


def _validated(run: ImportRun, found: Found) -> Incoming | None:
    # The text of most records is most of the record: it is kept once, in its own column.
    text_key = next((name for name in ("content", "text", "body") if isinstance(found.data.get(name), str)), "")
    text = found.data.get(text_key, "")
    try:
        raw = _CANONICAL({name: value for name, value in found.data.items() if name != text_key})
        raw_bytes, text_bytes = raw.encode(), text.encode()
    except (ValueError, RecursionError):
        run.refused(found.location, _unstorable(found.data) or "cannot be kept as JSON")
        return None
    if ("\0" in text or "\\u0000" in raw) and (reason := _unstorable(found.data)):
        run.refused(found.location, reason)
        return None
    try:
        record = MemoryRecord.model_validate(found.data, context=STORABLE)
    except ValidationError as error:
        run.refused(found.location, "; ".join(reasons(error)))
        return None
    title = record.title or derived_title(record.content)
    known_by = raw_bytes
    if found.volatile:
        lasting = {name: value for name, value in found.data.items() if name not in found.volatile | {text_key}}
        known_by = _CANONICAL(lasting).encode()
    return Incoming(
        found.location,
        record,
        raw,
        hashlib.sha256(known_by + b"\0" + text_bytes).hexdigest()[:32],
        title,
        content_hash_of(title, record.content),
        found.volatile,
    )


def _unstorable(data: dict[str, Any]) -> str:
    try:
        return unstorable(data)
    except RecursionError:
        return "is nested too deeply"


def _project_of(run: ImportRun, record: MemoryRecord) -> str:
    return record.project or run.options.project or DEFAULT_PROJECT


def _projects_ensure(run: ImportRun, slugs: Iterable[str]) -> None:
    missing = sorted(slug for slug in slugs if slug not in run.projects)
    if not missing:
        return
    if run.viewer.may_write(None):
        projects_make(missing, run.vocabulary)
    for slug, project_id, language in Project.objects.filter(slug__in=missing).values_list("slug", "id", "language"):
        run.projects[slug] = KnownProject(project_id, language)


def _may_write(run: ImportRun, one: Incoming) -> bool:
    slug = _project_of(run, one.record)
    project = run.projects.get(slug)
    if project is not None and run.viewer.may_write(project.id):
        return True
    run.refused(one.location, f"project: you may not write into {slug!r}")
    return False


def _key_of(run: ImportRun, one: Incoming) -> tuple[int, bool, str]:
    """What makes a memory the same as another: its id within its project, else its text."""
    project_id = run.projects[_project_of(run, one.record)].id
    return (project_id, bool(one.record.id), one.record.id or one.content_hash)


def _is_first(run: ImportRun, one: Incoming) -> bool:
    key, record_hash = hash(_key_of(run, one)), hash(one.record_hash)
    if (earlier := run.seen.get(key)) is None:
        run.seen[key] = record_hash
        run.used.add(run.projects[_project_of(run, one.record)].id)
        return True
    if earlier == record_hash:
        run.tally.unchanged += 1
    elif one.record.id:
        run.refused(one.location, f"id: {one.record.id!r} stands earlier in this import with other content")
    else:
        run.refused(one.location, "stands earlier in this import with the same text; give each an id to keep both")
    return False


def _compared(run: ImportRun, incoming: list[Incoming]) -> tuple[list[Incoming], list[tuple[Incoming, int]]]:
    """The new ones, and the changed ones with the id of the memory that each changes."""
    stored = _stored(run, incoming)
    new: list[Incoming] = []
    changed: list[tuple[Incoming, int]] = []
    for one in incoming:
        known = stored.get(_key_of(run, one))
        if known is None:
            new.append(one)
        elif known[1] == one.record_hash:
            run.tally.unchanged += 1
        else:
            changed.append((one, known[0]))
    if changed and not run.options.overwrite:
        edited = _edited_since_import([memory_id for _, memory_id in changed])
        for one, memory_id in changed:
            if memory_id in edited:
                run.refused(
                    one.location,
                    f"#{memory_id} was edited since it was imported, {edited[memory_id]}; "
                    "--overwrite takes the record of the file instead",
                )
        changed = [(one, memory_id) for one, memory_id in changed if memory_id not in edited]
    return new, changed


def _stored(run: ImportRun, incoming: list[Incoming]) -> dict[tuple[int, bool, str], tuple[int, str]]:
    """What is stored under the same keys: id and record hash. The oldest counts where several are the same."""
    stored: dict[tuple[int, bool, str], tuple[int, str]] = {}
    for column, named in (("external_id", True), ("content_hash", False)):
        keys = [key for key in (_key_of(run, one) for one in incoming) if key[1] is named]
        if not keys:
            continue
        # Through memory_external_idx and memory_content_hash_idx.
        rows = (
            Memory.objects.filter(**{f"{column}__in": [key[2] for key in keys]})
            .filter(project_id__in={key[0] for key in keys})
            .order_by("-id")
            .values_list("project_id", column, "id", "record_hash")
        )
        for project_id, name, memory_id, record_hash in rows:
            stored[project_id, named, name] = (memory_id, record_hash)
    return stored


def _edited_since_import(memory_ids: Sequence[int]) -> dict[int, str]:
    """The memories that were changed by another way than an import after the last import of them, and by which."""
    with connection.cursor() as cursor:
        # Through auditevent_subject_idx.
        cursor.execute(
            "SELECT DISTINCT ON (subject_id) subject_id, door, at FROM access_auditevent edit"
            " WHERE subject_type = 'memory' AND subject_id = ANY(%s) AND batch_id IS NULL AND id > coalesce(("
            "SELECT max(id) FROM access_auditevent import WHERE import.subject_type = 'memory'"
            " AND import.subject_id = edit.subject_id AND import.batch_id IS NOT NULL), 0)"
            " ORDER BY subject_id, id DESC",
            [list(memory_ids)],
        )
        return {
            memory_id: f"by {_DOORS.get(door, door)} on {at:%Y-%m-%d %H:%M} UTC"
            for memory_id, door, at in cursor.fetchall()
        }


_DOORS = {"page": "the page", "api": "the API", "mcp": "an agent", "admin": "the admin", "command": "a command"}


def _names_ensure(run: ImportRun, incoming: list[Incoming]) -> None:
    """Make or match all that the records of a block name."""
    names_ensure([one.record for one in incoming], run.vocabulary)
    sessions: dict[tuple[int, str], str] = {}
    for one in incoming:
        if one.record.session:
            key = (run.projects[_project_of(run, one.record)].id, one.record.session)
            if key not in run.sessions:
                sessions.setdefault(key, one.record.agent)
    if sessions:
        run.sessions.update(sessions_ensure(sessions, run.vocabulary))


def _image(run: ImportRun, one: Incoming, memory_id: int) -> MemoryImage:
    record = one.record
    project_id = run.projects[_project_of(run, record)].id
    return record_image(
        record=record,
        memory_id=memory_id,
        project_id=project_id,
        session_id=run.sessions[project_id, record.session] if record.session else None,
        vocabulary=run.vocabulary,
        made_by=MadeBy.IMPORT,
        now=run.now,
        raw=one.raw,
        record_hash=one.record_hash,
        title=one.title,
    )


def _changed_update(run: ImportRun, changed: list[tuple[Incoming, int]]) -> None:
    before = images_read(memory_id for _, memory_id in changed)
    changes: list[tuple[MemoryImage, MemoryImage]] = []
    for one, memory_id in changed:
        old = before[memory_id]
        new = _image(run, one, memory_id)
        names_same_successor = {link for link in old.links if link.rel == SUPERSEDED_BY_REL} == {
            link for link in new.links if link.rel == SUPERSEDED_BY_REL
        }
        given = one.record.created_at or one.record.happened_at
        new = replace(
            new,
            batch_id=old.batch_id,
            state=one.record.state or (old.state if names_same_successor else Memory.State.ACTIVE.value),
            state_reason=old.state_reason,
            superseded_by_id=old.superseded_by_id if names_same_successor else None,
            created_at=old.created_at if "created_at" in one.volatile else given or old.created_at,
            updated_at=one.record.updated_at or run.now,
            external_id=old.external_id or new.external_id,
        )
        changes.append((old, new))
    changes = images_update(changes)
    events = []
    for old, new in changes:
        names = image_changes(old, new)
        events.append(
            AuditEvent(
                user_id=run.viewer.user_id,
                api_key_id=run.viewer.api_key_id,
                door=run.viewer.door,
                verb="import",
                subject_type="memory",
                subject_id=new.id,
                before=image_as_json(old, names),
                after=image_as_json(new, names),
                batch_id=run.batch_id,
            )
        )
    AuditEvent.objects.bulk_create(events, batch_size=500)
    run.tally.updated += len(changes)


def _vocabulary_take(run: ImportRun, found: Found) -> None:
    """Make or add to what a vocabulary record describes; what it relates to others waits for the end of the source."""
    try:
        record = parse_vocabulary(found.data)
    except ValidationError as error:
        kind = found.data["record"]
        model = VOCABULARY_RECORDS.get(kind, MemoryRecord) if isinstance(kind, str) else MemoryRecord
        run.refused(found.location, "; ".join(reasons(error, model)))
        return
    run.tally.vocabulary += 1
    match record:
        case ProjectRecord():
            _project_describe(run, found.location, record)
        case CategoryRecord():
            category_describe(
                details=CategoryDetails(record.path, record.name, record.description, record.aliases),
                vocabulary=run.vocabulary,
            )
            if record.related:
                run.deferred.append((found.location, record))
        case ConceptRecord():
            concept_describe(
                details=ConceptDetails(
                    record.name, record.type, record.description, record.aliases, weight=record.weight
                ),
                vocabulary=run.vocabulary,
            )
            if record.broader or record.narrower or record.related:
                run.deferred.append((found.location, record))
        case EntityRecord():
            entity_describe(
                details=EntityDetails(record.type, record.name, record.description, record.aliases),
                vocabulary=run.vocabulary,
            )
        case RelationshipRecord():
            run.deferred.append((found.location, record))


def _project_describe(run: ImportRun, location: str, record: ProjectRecord) -> None:
    if record.language and record.language not in languages():
        run.tally.vocabulary -= 1
        run.refused(location, f"language: {record.language!r} is not known: write one of {', '.join(languages())}")
        return
    _projects_ensure(run, [record.slug])
    project = Project.objects.filter(slug=record.slug).first()
    if project is None or not run.viewer.may_write(project.pk):
        run.tally.vocabulary -= 1
        run.refused(location, f"project: you may not write into {record.slug!r}")
        return
    before = {"name": project.name, "description": project.description, "language": project.language}
    if project.name == project.slug and record.name:
        project.name = record.name
    project.description = project.description or record.description
    if record.language and record.language != project.language:
        # Its memories are stemmed in the language it had when they came.
        if project.pk in run.used or project.memories.exists():
            run.tally.notes.append(
                (location, f"language: {record.slug} has memories already and stays {project.language}")
            )
        else:
            project.language = record.language
    after = {"name": project.name, "description": project.description, "language": project.language}
    if before != after:
        project.save(update_fields=list(after))
        if project.batch_id != run.batch_id:
            AuditEvent.objects.create(
                user_id=run.viewer.user_id,
                api_key_id=run.viewer.api_key_id,
                door=run.viewer.door,
                verb="describe",
                subject_type="project",
                subject_id=project.pk,
                before={name: value for name, value in before.items() if after[name] != value},
                after={name: value for name, value in after.items() if before[name] != value},
                batch_id=run.batch_id,
            )
    run.projects[record.slug] = KnownProject(project.pk, project.language)


def _deferred_write(run: ImportRun) -> None:
    """What the vocabulary says of others, now that all of it is known."""
    for location, record in run.deferred:
        match record:
            case CategoryRecord():
                category_describe(
                    details=CategoryDetails(record.path, related=record.related), vocabulary=run.vocabulary
                )
            case ConceptRecord():
                concept_describe(
                    details=ConceptDetails(
                        record.name, broader=record.broader, narrower=record.narrower, related=record.related
                    ),
                    vocabulary=run.vocabulary,
                )
            case RelationshipRecord():
                _relationship_write(run, location, record)


def _relationship_write(run: ImportRun, location: str, record: RelationshipRecord) -> None:
    found = _evidence(run, record)
    for name in record.evidence:
        if name not in found:
            run.tally.notes.append((location, f"evidence: {name!r} is not a memory that was found; left out"))
    source: EntityKey = (record.source.type, record.source.name)
    target: EntityKey = (record.target.type, record.target.name)
    relationship_describe(
        details=RelationshipDetails(
            source,
            record.type,
            target,
            record.fact,
            record.confidence,
            record.valid_from,
            record.valid_to,
            tuple(sorted({memory_id for ids in found.values() for memory_id in ids})),
        ),
        vocabulary=run.vocabulary,
    )


def _evidence(run: ImportRun, record: RelationshipRecord) -> dict[str, list[int]]:
    """The memories that bear a relationship out: in the project it names, else in those of this import."""
    if record.project:
        _projects_ensure(run, [record.project])
    projects = [run.projects[record.project]] if record.project in run.projects else run.projects.values()
    resolved = targets_resolve((project.id, name) for project in projects for name in record.evidence)
    found: dict[str, list[int]] = {}
    for (_, name), memory_id in resolved.items():
        found.setdefault(name, []).append(memory_id)
    return found

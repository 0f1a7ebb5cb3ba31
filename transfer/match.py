"""The memories that the records of an import are: which are new, which are changed, and which were edited here."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Max, Q

from access.models import AuditEvent
from access.viewer import Viewer, may_write_everything
from categories.services import TooManyNewNamesError, Vocabulary
from curation.models import CurationChange
from memories.history import value_changes
from memories.models import Memory, Project
from memories.queries import visible_to
from memories.records import MemoryRecord, slug_name
from memories.resolve import names_ensure, names_of
from memories.snapshot import array_literal
from memories.storage import snapshots_read
from transfer.blocks import Block, Incoming
from transfer.formats.base import RefusedRecord, SourceRecord
from transfer.formats.note_files import NOTE_FILE, NoteFile, note_file_in, with_file_as_it_is, with_note_file
from transfer.record_hashes import RecordHashes
from transfer.state import ImportObserver, ImportRun, projects_ensure
from transfer.vocabulary import vocabulary_record_write
from web.sql import execute

# Records that are counted in one statement.
_COUNTED = 1_000
# Notes that must be as they were for their folder to be known under another name.
_ALIKE = 5
# The fields of a line of an export, besides its record, that every importer may set.
_STORED_BY_ALL = frozenset({"state_reason", "record_hash", "raw"})
# The project id, whether the record has an id, and the id or the hash of its text.
Key = tuple[int, bool, str]


@dataclass(slots=True)
class Matched:
    """The new memories of a block, and the changed ones with the ids of their memories."""

    new: list[Incoming] = field(default_factory=list)
    changed: list[tuple[Incoming, int]] = field(default_factory=list)
    renamed: set[int] = field(default_factory=set)
    """Memories whose records have another id than before."""


class Matcher:
    """Finds the memories of records. Others than new and changed ones are only counted."""

    def __init__(self, run: ImportRun) -> None:
        self._run = run
        # Hash of (project, id) -> hash of the record, for records earlier in this import.
        self._earlier = RecordHashes()

    def match(self, block: Block) -> Matched:
        run = self._run
        incoming: list[Incoming] = []
        for item in block.items:
            match item:
                case Incoming():
                    incoming.append(_with_rights(run, item))
                case RefusedRecord():
                    run.keep_file(item.file)
                    run.refused(item.location, item.reason)
                case SourceRecord() if not run.is_copy:
                    vocabulary_record_write(run, item)
        run.tally.valid += len(incoming)
        projects_ensure(run, {project_of(run, one.record) for one in incoming})
        keyed = [(_key_of(run, one), one) for one in incoming if _may_write(run, one)]
        matched = _compared(run, [(key, one) for key, one in keyed if self._is_first(key, one)])
        if run.most_new is not None:
            matched.new = [one for one in matched.new if names_are_few(run, one)]
            matched.changed = [pair for pair in matched.changed if names_are_few(run, pair[0])]
        return matched

    def _is_first(self, key: Key, one: Incoming) -> bool:
        run, key_hash, record_hash = self._run, hash(key), hash(one.record_hash)
        if (earlier := self._earlier.get(key_hash)) is None:
            self._earlier.add(key_hash, record_hash)
            run.used.add(key[0])
            return True
        if one.found.file:
            run.keep_file(one.found.file.complete(one.record.content), one.record.project)
        if earlier == record_hash:
            run.tally.unchanged += 1
        elif one.record.id:
            run.refused(one.location, f"id: {one.record.id!r} is earlier in this import with other content")
        else:
            run.refused(one.location, "is earlier in this import with the same text; give each an id to keep both")
        return False


def _with_rights(run: ImportRun, one: Incoming) -> Incoming:
    """A record with what its importer may decide: only those who may change everything number memories and makers."""
    if one.stored is None or may_write_everything(run.viewer):
        return one
    stored = {name: value for name, value in one.stored.items() if name in _STORED_BY_ALL}
    return one._replace(found=replace(one.found, stored=stored))


def names_are_few(run: ImportRun, one: Incoming) -> bool:
    """Whether a record adds no more names to the vocabulary than one memory may. It is refused otherwise."""
    names = names_of([one.record])
    at_most = len(names.tags) + len(names.concepts) + len(names.entities)
    at_most += sum(path.count("/") + 1 for path in names.paths)
    if at_most <= (run.most_new or 0):
        return True
    project_id = run.projects[project_of(run, one.record)].id
    own = Vocabulary(run.viewer, run.batch_id, most_new=run.most_new, project_id=project_id)
    try:
        with transaction.atomic():
            names_ensure(names, own)
    except TooManyNewNamesError as error:
        run.refused(one.location, f"names: {error}")
        return False
    for kind, count in own.made.items():
        run.vocabulary.count(kind, count)
    return True


def project_of(run: ImportRun, record: MemoryRecord) -> str:
    return run.options.project_of(record.project)


def _may_write(run: ImportRun, one: Incoming) -> bool:
    slug = project_of(run, one.record)
    project = run.projects.get(slug)
    if project is not None and run.viewer.may_write(project.id):
        return True
    run.refused(one.location, f"project: you cannot write to {slug!r}")
    return False


def _key_of(run: ImportRun, one: Incoming) -> Key:
    """The identity of a memory: its id within its project, else its text."""
    project_id = run.projects[project_of(run, one.record)].id
    return (project_id, bool(one.record.id), one.record.id or one.content_hash)


def _compared(run: ImportRun, incoming: list[tuple[Key, Incoming]]) -> Matched:
    stored, matched = _stored([key for key, _ in incoming]), Matched()
    same = {key: stored[key] for key, one in incoming if key in stored and stored[key][1] == one.record_hash}
    stored |= _moved_away(run, [one for one in incoming if one[0] not in stored], same)
    if run.observer:
        renamed = _renamed(run.observer, [one for one in incoming if one[0] not in stored])
        matched.renamed = {memory_id for memory_id, _ in renamed.values()}
        stored |= renamed
    for key, one in incoming:
        if key not in stored and one.found.file and (gone := run.renames.find(key[0], one.record.content)):
            run.note(one.location, f"was {gone.external_id!r} before: its memory #{gone.id} has the new name")
            matched.renamed.add(gone.id)
            stored[key] = (gone.id, gone.record_hash)
    files: dict[int, NoteFile] = {}
    unchanged: list[int] = []
    for key, one in incoming:
        known = stored.get(key)
        if known is None:
            matched.new.append(one)
            continue
        run.numbers.remember(one.stored, known[0])
        if one.found.file and known[0] in run.archived_as_gone and _may_change(run, known[0]):
            run.note(one.location, f"is there again: its memory #{known[0]} is no longer archived")
            run.returned.add(known[0])
        if one.stored is None and known[1] == one.record_hash:
            # A memory that is restored is changed by that.
            run.tally.updated += known[0] in run.returned
            run.tally.unchanged += known[0] not in run.returned
            settled(run, [(one, known[0])])
            unchanged.append(known[0])
            files |= {known[0]: one.found.file} if one.found.file and _may_change(run, known[0]) else {}
        elif not _may_change(run, known[0]):
            run.refused(one.location, f"#{known[0]} was moved to a project that you cannot write to")
        else:
            matched.changed.append((one, known[0]))
    _note_files_refresh(files)
    _take_own_writes(run, matched)
    if not run.observer and not run.options.overwrite:
        _refuse_other_vaults(run, matched, unchanged)
    if matched.changed and not run.options.overwrite:
        # A copy from an export has no hash to compare; whether it differs from its memory shows when that is read.
        edited = edited_here([memory_id for one, memory_id in matched.changed if one.stored is None])
        digests = dict(Memory.objects.filter(pk__in=edited).values_list("pk", "raw__note_file__digest"))
        for one, memory_id in matched.changed:
            if memory_id not in edited:
                continue
            if one.found.file and one.found.file.digest and digests.get(memory_id) == one.found.file.digest:
                # The note is as it was; it is only read in another way now.
                run.tally.unchanged += 1
                settled(run, [(one, memory_id)])
            else:
                refuse_edited(run, one, memory_id, edited[memory_id])
        matched.changed = [(one, memory_id) for one, memory_id in matched.changed if memory_id not in edited]
    return matched


def _may_change(run: ImportRun, memory_id: int) -> bool:
    """Whether the viewer may change a memory, which may have been moved away."""
    project_id = run.is_elsewhere.get(memory_id)
    return project_id is None or run.viewer.may_write(project_id)


def _take_own_writes(run: ImportRun, matched: Matched) -> None:
    """Take the notes that this program has written out of the changed ones: they have the fields of their memories."""
    files = {memory_id: one.found.file for one, memory_id in matched.changed if one.found.file} if run.observer else {}
    rows = (
        Memory.objects.filter(pk__in=files, raw__note_file__has_key="pending").values_list("pk", "raw") if files else ()
    )
    written = {pk: note for pk, raw in rows if (note := note_file_in(raw)) and _is_own(files[pk], note)}
    for one, memory_id in matched.changed:
        if (file := files.get(memory_id)) and (known := written.get(memory_id)):
            raw = json.loads(one.raw) | {NOTE_FILE: file.read_again(known).as_json()}
            execute(
                "UPDATE memories_memory SET raw = %s::jsonb, record_hash = %s WHERE id = %s",
                [json.dumps(raw, ensure_ascii=False), one.record_hash, memory_id],
            )
            run.tally.unchanged += 1
            settled(run, [(one, memory_id)])
    matched.changed = [(one, memory_id) for one, memory_id in matched.changed if memory_id not in written]


def _refuse_other_vaults(run: ImportRun, matched: Matched, unchanged: Sequence[int]) -> None:
    """Refuse notes that would overwrite those of another vault, which has notes at the same places.

    A vault that has another name now is known by its notes: more of them are as they were than are not.
    """
    files = {pk: one.found.file.vault for one, pk in matched.changed if one.found.file and one.found.file.vault}
    rows = Memory.objects.filter(pk__in=[*files, *unchanged]).values_list("pk", "raw__note_file__vault")
    vaults = {pk: vault for pk, vault in rows if vault} if files else {}
    kept = Counter(vaults[pk] for pk in unchanged if pk in vaults)
    other = {pk for pk, vault in files.items() if vaults.get(pk, vault) != vault}
    lost = Counter(vaults[pk] for pk in other)
    for one, memory_id in matched.changed:
        if memory_id in other and lost[vaults[memory_id]] > kept[vaults[memory_id]]:
            vault = vaults[memory_id]
            reason = f"the vault {vault!r} has another note of this name here, #{memory_id}: use a project of its own"
            run.refused(one.location, reason)
        else:
            other.discard(memory_id)
    matched.changed = [(one, memory_id) for one, memory_id in matched.changed if memory_id not in other]


def _is_own(file: NoteFile | None, known: NoteFile) -> bool:
    return file is not None and known.pending.get("digest") == file.digest


def edited_here(memory_ids: Sequence[int]) -> dict[int, str]:
    """Memories that were edited since their last import, but for those of notes that have these edits."""
    edited = edited_since_import(memory_ids)
    for memory in snapshots_read(edited).values():
        note = note_file_in(json.loads(memory.raw or "{}"))
        if note and not note.edited_fields(memory):
            del edited[memory.id]
    return edited


def _note_files_refresh(same: Mapping[int, NoteFile]) -> None:
    """Store the files of notes that are the same records as before, if their bytes differ, or were not stored yet."""
    digests = Memory.objects.filter(pk__in=same).values_list("pk", "raw__note_file__digest")
    stale = [memory_id for memory_id, digest in digests if digest != same[memory_id].digest]
    edited = edited_since_import(stale) if stale else {}
    made: dict[int, str] = {}
    for memory in snapshots_read(stale).values():
        known = note_file_in(json.loads(memory.raw or "{}"))
        if known:
            made[memory.id] = with_file_as_it_is(memory, same[memory.id].read_again(known)).raw or ""
        elif memory.id not in edited:
            made[memory.id] = with_note_file(memory, same[memory.id]).raw or ""
    if made:
        execute(
            "UPDATE memories_memory memory SET raw = made.raw::jsonb"
            " FROM unnest(%s::bigint[], %s::text[]) AS made (id, raw) WHERE memory.id = made.id",
            [list(made), list(made.values())],
        )


def _renamed(observer: ImportObserver, unknown: Sequence[tuple[Key, Incoming]]) -> dict[Key, tuple[int, str]]:
    """Memories by the key of a record that has another id now: at the same place of its source, and as old."""
    known = {memory_id: (key, one) for key, one in unknown if (memory_id := observer.memory_at(one.location))}
    found: dict[Key, tuple[int, str]] = {}
    rows = Memory.objects.filter(pk__in=known).values_list("pk", "project_id", "created_at", "record_hash")
    for memory_id, project_id, created_at, record_hash in rows:
        key, one = known[memory_id]
        if project_id == key[0] and created_at == one.record.created_at and "created_at" not in one.found.volatile:
            found[key] = (memory_id, record_hash)
    return found


class _Candidate(NamedTuple):
    """A memory that may be that of a record, which is not where the record belongs."""

    id: int
    project_id: int
    batch_id: int | None
    record_hash: str
    is_same: bool
    """Whether it was made of the same record, or the same file, as it is now."""


def _moved_away(
    run: ImportRun, unknown: Sequence[tuple[Key, Incoming]], stored: Mapping[Key, tuple[int, str]]
) -> dict[Key, tuple[int, str]]:
    """Memories by the keys of records, from whose projects they were moved here to others that the viewer sees.

    They came from the same source, whatever it was called then. So do notes that name no project, where the folder has
    another name now: they would come twice, into a project of that name.
    """
    if not unknown:
        return {}
    candidates = _candidates(run, unknown)
    at_places = _known_at_places(run.observer, unknown) if run.observer else {}
    sources = _sources(run, candidates, stored) if candidates else frozenset()
    keys = dict(unknown)
    renamed = _renamed_source(candidates, len(unknown) + len(stored))
    found: dict[Key, tuple[int, str]] = {}
    for key, memories in candidates.items():
        for one in memories:
            is_known = at_places.get(one.id) == key or one.batch_id in sources
            if not is_known or one.project_id == key[0]:
                continue
            is_of_its_folder = one.batch_id == renamed and _is_of_its_folder(run, keys[key])
            if is_of_its_folder or _was_in(one.id, key[0], run.viewer):
                # The name of the folder is in the record: of a note that is as it was, it is the only difference.
                found[key] = (one.id, keys[key].record_hash if is_of_its_folder and one.is_same else one.record_hash)
                run.is_elsewhere[one.id] = one.project_id
                if is_of_its_folder:
                    run.stays_there.add(one.id)
    return found


def _renamed_source(candidates: Mapping[Key, Sequence[_Candidate]], count: int) -> int | None:
    """The earlier import that most of `count` records come from, as they are. A few notes are alike in any vaults."""
    same = Counter(one.batch_id for memories in candidates.values() for one in memories if one.is_same and one.batch_id)
    batch_id, most = next(iter(same.most_common(1)), (None, 0))
    return batch_id if most >= _ALIKE and 2 * most > count else None


def _is_of_its_folder(run: ImportRun, one: Incoming) -> bool:
    """Whether a note goes into a project only because its folder is called so."""
    file = one.found.file
    return (
        file is not None
        and not run.observer
        and one.record.project == slug_name(file.vault)
        and not run.options.project
    )


def _was_in(memory_id: int, project_id: int, viewer: Viewer) -> bool:
    return any(was == project_id for was, _ in value_changes(memory_id, "project_id", viewer))


def _candidates(run: ImportRun, unknown: Sequence[tuple[Key, Incoming]]) -> dict[Key, list[_Candidate]]:
    """The memories in any project that have the names of records, or their texts if they have no names."""
    named = {key[2]: (key, one) for key, one in unknown}
    by_place = _known_at_places(run.observer, unknown) if run.observer else {}
    # memory_external_idx and memory_content_hash_idx begin with the project.
    memories = visible_to(run.viewer).filter(
        Q(pk__in=by_place)
        | Q(
            Q(external_id__in=named) | Q(external_id="", content_hash__in=named),
            project_id__in=list(Project.objects.values_list("pk", flat=True)),
        )
    )
    keys = dict(unknown)
    found: dict[Key, list[_Candidate]] = {}
    columns = ("pk", "project_id", "batch_id", "record_hash", "external_id", "content_hash", "raw__note_file__digest")
    for pk, project_id, batch_id, record_hash, external_id, content_hash, digest in memories.values_list(*columns):
        key = by_place.get(pk) or named[external_id or content_hash][0]
        file = keys[key].found.file
        is_same = record_hash == keys[key].record_hash or bool(file and digest and digest == file.digest)
        found.setdefault(key, []).append(_Candidate(pk, project_id, batch_id, record_hash, is_same))
    return found


def _sources(
    run: ImportRun, candidates: Mapping[Key, Sequence[_Candidate]], stored: Mapping[Key, tuple[int, str]]
) -> frozenset[int | None]:
    """The earlier imports of this source: those of its name, and those most of whose records are these.

    Two vaults may have notes at the same places; their texts tell them apart.
    """
    total, same = Counter[int | None](), Counter[int | None]()
    for memories in candidates.values():
        total.update(one.batch_id for one in memories)
        same.update(one.batch_id for one in memories if one.is_same)
    batches = dict(Memory.objects.filter(pk__in=[pk for pk, _ in stored.values()]).values_list("pk", "batch_id"))
    same.update(batches[pk] for pk, _ in stored.values() if pk in batches)
    total.update(batches.values())
    return frozenset(run.earlier_batches) | {batch for batch in same if batch and 2 * same[batch] >= total[batch]}


def count_known(records: Iterable[Incoming], viewer: Viewer) -> Counter[str]:
    """How many records the viewer has as they are, by project: as the same record or file. Each counts once."""
    named = {one.record.id or one.content_hash: one for one in records}
    names, known = list(named), Counter[str]()
    for start in range(0, len(names), _COUNTED):
        some = names[start : start + _COUNTED]
        memories = visible_to(viewer).filter(
            Q(external_id__in=some) | Q(external_id="", content_hash__in=some),
            project_id__in=list(Project.objects.values_list("pk", flat=True)),
        )
        columns = ("external_id", "content_hash", "record_hash", "raw__note_file__digest", "project__slug")
        there = {
            name: slug
            for external_id, content_hash, record_hash, digest, slug in memories.values_list(*columns)
            if (one := named.get(name := external_id or content_hash))
            and (record_hash == one.record_hash or bool(one.found.file and digest == one.found.file.digest))
        }
        known.update(there.values())
    return known


def _known_at_places(observer: ImportObserver, unknown: Sequence[tuple[Key, Incoming]]) -> dict[int, Key]:
    at_places = ((observer.memory_at(one.location), key) for key, one in unknown)
    return {memory_id: key for memory_id, key in at_places if memory_id}


def refuse_edited(run: ImportRun, one: Incoming, memory_id: int, edit: str) -> None:
    if run.observer:
        run.observer.conflicting(one.found, memory_id, edit)
        run.tally.conflicts += 1
        return
    is_command = run.viewer.door == AuditEvent.Door.COMMAND
    advice = "--overwrite takes the record of the file instead" if is_command else "it stays as it is here"
    run.refused(one.location, f"#{memory_id} was edited since it was imported, {edit}; {advice}")


def _stored(wanted: Sequence[Key]) -> dict[Key, tuple[int, str]]:
    """The id and record hash stored under each key; the oldest if there are several."""
    stored: dict[Key, tuple[int, str]] = {}
    for column, named in (("external_id", True), ("content_hash", False)):
        keys = [key for key in wanted if key[1] is named]
        if not keys:
            continue
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT project_id, {column}, id, record_hash FROM memories_memory"
                f" WHERE project_id = ANY(%s) AND {column} = ANY(%s::text[]) ORDER BY id DESC",
                [list({key[0] for key in keys}), array_literal([key[2] for key in keys])],
            )
            for project_id, name, memory_id, record_hash in cursor.fetchall():
                stored[project_id, named, name] = (memory_id, record_hash)
    return stored


def edited_since_import(memory_ids: Sequence[int]) -> dict[int, str]:
    """Memories edited after their last import, and a description of the edit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (subject_id) subject_id, door, at FROM access_auditevent edit"
            " WHERE subject_type = 'memory' AND subject_id = ANY(%s) AND batch_id IS NULL AND id > coalesce(("
            "SELECT max(id) FROM access_auditevent import WHERE import.subject_type = 'memory'"
            # Other events of batches, such as of notes that are gone, replace no edits.
            " AND import.subject_id = edit.subject_id AND import.verb = 'import'), 0)"
            " ORDER BY subject_id, id DESC",
            [list(memory_ids)],
        )
        edits = {memory_id: (door, at) for memory_id, door, at in cursor.fetchall()}
    edits = _edited_together(memory_ids) | edits
    return {pk: f"by {_DOORS.get(door, door)} on {at:%Y-%m-%d %H:%M} UTC" for pk, (door, at) in edits.items()}


def _edited_together(memory_ids: Sequence[int]) -> dict[int, tuple[str, datetime]]:
    """Memories whose types, projects, dates, authors or validity were changed with others since their last import."""
    # curationchange_memory_gin.
    changes = CurationChange.objects.filter(
        action=CurationChange.Action.COLUMNS, memory_ids__overlap=list(memory_ids), curation__undone_at=None
    ).order_by("pk")
    rows = list(changes.values_list("memory_ids", "curation__door", "curation__at"))
    if not rows:
        return {}
    imports = AuditEvent.objects.filter(subject_type="memory", subject_id__in=memory_ids, verb="import")
    imported = dict(imports.order_by("subject_id").values_list("subject_id").annotate(Max("at")))
    asked = set(memory_ids)
    found = ((pk, door, at) for ids, door, at in rows for pk in asked.intersection(ids or ()))
    return {pk: (door, at) for pk, door, at in found if pk not in imported or imported[pk] < at}


_DOORS = {"page": "the page", "api": "the API", "mcp": "an agent", "admin": "the admin", "command": "a command"}


def settled(run: ImportRun, memories: Iterable[tuple[Incoming, int]]) -> None:
    if run.observer:
        for one, memory_id in memories:
            run.observer.settled(one.location, memory_id)

"""The vocabulary records of a source: stored when read, and related to each other at the end."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from access.audit import audit
from categories.details import (
    CategoryDetails,
    ConceptDetails,
    EntityDetails,
    RelationshipDetails,
    category_merge_details,
    concept_merge_details,
    entity_merge_details,
    relationship_merge_details,
)
from categories.models import FormerPath, LocalText, TagAlias
from categories.paths import slug_of
from categories.queries import ids_by_path
from categories.services import (
    ConceptKey,
    EntityKey,
    categories_ensure,
    concepts_ensure,
    entities_ensure,
    tags_ensure,
)
from memories.importers.base import SourceRecord
from memories.importers.run import ImportRun, KnownProject, projects_ensure
from memories.models import Project, Session
from memories.records import MemoryRecord
from memories.resolve import sessions_ensure
from memories.services import DEFAULT_PROJECT
from memories.storage import targets_resolve
from memories.vocabulary_records import (
    VOCABULARY_RECORDS,
    CategoryRecord,
    ConceptRecord,
    EntityRecord,
    ProjectRecord,
    RelationshipRecord,
    SessionRecord,
    TagRecord,
    TermRecord,
    parse_vocabulary,
)
from text.analysis import languages
from web.validation import reasons

_SESSIONS_AT_ONCE = 1_000


def vocabulary_record_write(run: ImportRun, found: SourceRecord) -> None:
    """Store a vocabulary record. Its relations to others are deferred to the end of the source."""
    try:
        record = parse_vocabulary(found.data)
    except ValidationError as error:
        kind = found.data["record"]
        model = VOCABULARY_RECORDS.get(kind, MemoryRecord) if isinstance(kind, str) else MemoryRecord
        run.refused(found.location, "; ".join(reasons(error, model)))
        return
    run.tally.vocabulary += 1
    if isinstance(record, TermRecord) and record.projects:
        run.deferred.append((found.location, record))
        return
    match record:
        case ProjectRecord():
            _project_enrich(run, found.location, record)
        case SessionRecord():
            run.deferred.append((found.location, record))
        case CategoryRecord():
            category_merge_details(
                details=CategoryDetails(record.path, record.name, record.description, record.aliases),
                vocabulary=run.vocabulary,
            )
            if record.former_paths:
                _former_paths_make(run, record)
            if record.related:
                run.deferred.append((found.location, record))
        case ConceptRecord():
            concept_merge_details(
                details=ConceptDetails(
                    record.name, record.type, record.description, record.aliases, weight=record.weight
                ),
                vocabulary=run.vocabulary,
            )
            if record.broader or record.narrower or record.related:
                run.deferred.append((found.location, record))
        case TagRecord():
            _tag_aliases_make(run, record)
        case EntityRecord():
            entity_merge_details(
                details=EntityDetails(record.type, record.name, record.description, record.aliases),
                vocabulary=run.vocabulary,
            )
        case RelationshipRecord():
            run.deferred.append((found.location, record))


def _former_paths_make(run: ImportRun, record: CategoryRecord) -> None:
    """Let former paths lead to a category, unless they lead somewhere already."""
    paths = [slug_of(path) for path in record.former_paths]
    known = ids_by_path([record.path, *paths])
    category_id = run.vocabulary.categories[slug_of(record.path)][-1]
    FormerPath.objects.bulk_create(
        [FormerPath(path=path, category_id=category_id) for path in paths if path not in known], ignore_conflicts=True
    )


def _tag_aliases_make(run: ImportRun, record: TagRecord) -> None:
    """Let aliases lead to a tag, unless they lead somewhere already. An alias of an alias leads to its tag."""
    tags_ensure(tags=[record.name, *record.aliases], vocabulary=run.vocabulary)
    tag = run.vocabulary.tags.get(record.name, record.name)
    new = [alias for alias in record.aliases if run.vocabulary.tags.get(alias, alias) == alias != tag]
    TagAlias.objects.bulk_create([TagAlias(alias=alias, tag=tag) for alias in new], ignore_conflicts=True)
    run.vocabulary.tags.update(dict.fromkeys(new, tag))


def _local_texts_make(run: ImportRun, location: str, record: TermRecord) -> None:
    """Give a term the texts that hold in the projects of the record, unless it has them."""
    projects_ensure(run, record.projects)
    projects = [run.projects[slug] for slug in record.projects if slug in run.projects]
    if len(projects) < len(record.projects) or not all(run.viewer.may_write(project.id) for project in projects):
        run.tally.vocabulary -= 1
        run.refused(location, "projects: you cannot write to all of them")
        return
    vocabulary, kind = run.vocabulary, record.kind
    term_id, tag, texts = 0, "", [(LocalText.Role.ALIAS, alias) for alias in getattr(record, "aliases", ())]
    match record:
        case CategoryRecord():
            categories_ensure(paths=[record.path], vocabulary=vocabulary)
            term_id = vocabulary.categories[slug_of(record.path)][-1]
            texts += [(LocalText.Role.PATH, slug_of(path)) for path in record.former_paths]
        case ConceptRecord():
            concepts_ensure(concepts=[ConceptKey(record.name, record.type)], vocabulary=vocabulary)
            term_id = vocabulary.concepts[record.name]
        case EntityRecord():
            entities_ensure(entities=[(record.type, record.name)], vocabulary=vocabulary)
            term_id = vocabulary.entities[record.type, record.name]
        case TagRecord():
            tag = record.name
    if description := getattr(record, "description", ""):
        texts.append((LocalText.Role.DESCRIPTION, description))
    ids = sorted(project.id for project in projects)
    for role, text in texts:
        LocalText.objects.get_or_create(
            kind=kind, term_id=term_id or None, tag=tag, role=role, text=text, project_ids=ids
        )


# The fields of a project that a record may fill in.
_ENRICHED = ("name", "description", "language")


def _project_to_enrich(run: ImportRun, record: ProjectRecord) -> Project | str:
    """The project that a record describes, or the reason why it is refused."""
    if record.language and record.language not in languages():
        return f"language: {record.language!r} is not known: write one of {', '.join(languages())}"
    projects_ensure(run, [record.slug])
    project = Project.objects.filter(slug=record.slug).first()
    if project is None or not run.viewer.may_write(project.pk):
        return f"project: you cannot write to {record.slug!r}"
    return project


def _project_enrich(run: ImportRun, location: str, record: ProjectRecord) -> None:
    project = _project_to_enrich(run, record)
    if isinstance(project, str):
        run.tally.vocabulary -= 1
        run.refused(location, project)
        return
    before = {name: getattr(project, name) for name in _ENRICHED}
    if project.name == project.slug and record.name:
        project.name = record.name
    project.description = project.description or record.description
    language = record.language or project.language
    # Existing memories are stemmed in the old language.
    if language != project.language and (project.pk in run.used or project.memories.exists()):
        run.note(location, f"language: {record.slug} has memories already and stays {project.language}")
    else:
        project.language = language
    changed = {name: value for name in _ENRICHED if (value := getattr(project, name)) != before[name]}
    if changed:
        project.save(update_fields=list(changed))
    if changed and project.batch_id != run.batch_id:
        old = {name: before[name] for name in changed}
        audit(run.viewer, "project_enrich", project, before=old, after=changed, batch_id=run.batch_id)
    run.projects[record.slug] = KnownProject(project.pk, project.language)


def deferred_write(run: ImportRun) -> None:
    """Store the deferred relations, now that all vocabulary is known."""
    _sessions_enrich(run, [(location, one) for location, one in run.deferred if isinstance(one, SessionRecord)])
    for location, record in run.deferred:
        match record:
            case TermRecord() if record.projects:
                _local_texts_make(run, location, record)
            case CategoryRecord():
                category_merge_details(
                    details=CategoryDetails(record.path, related=record.related), vocabulary=run.vocabulary
                )
            case ConceptRecord():
                concept_merge_details(
                    details=ConceptDetails(
                        record.name, broader=record.broader, narrower=record.narrower, related=record.related
                    ),
                    vocabulary=run.vocabulary,
                )
            case RelationshipRecord():
                _relationship_write(run, location, record)


# The fields of a session that a record may fill in.
_SESSION_FIELDS = ("agent", "title", "started_at", "ended_at")


def _sessions_enrich(run: ImportRun, records: Sequence[tuple[str, SessionRecord]]) -> None:
    """Make or match sessions, and fill in what is empty."""
    slugs = {record.project or run.options.project or DEFAULT_PROJECT for _, record in records}
    projects_ensure(run, slugs)
    wanted: dict[tuple[int, str], SessionRecord] = {}
    for location, record in records:
        slug = record.project or run.options.project or DEFAULT_PROJECT
        project = run.projects.get(slug)
        if project is None or not run.viewer.may_write(project.id):
            run.tally.vocabulary -= 1
            run.refused(location, f"project: you cannot write to {slug!r}")
        else:
            wanted[project.id, record.id] = record
    keys = list(wanted)
    for start in range(0, len(keys), _SESSIONS_AT_ONCE):
        block = [(key, wanted[key]) for key in keys[start : start + _SESSIONS_AT_ONCE]]
        ids = sessions_ensure({key: record.agent for key, record in block}, run.vocabulary)
        sessions = Session.objects.in_bulk([ids[key] for key, _ in block])
        changed = [sessions[ids[key]] for key, record in block if _session_fill(run, sessions[ids[key]], record)]
        Session.objects.bulk_update(changed, _SESSION_FIELDS)


def _session_fill(run: ImportRun, session: Session, record: SessionRecord) -> bool:
    """Set the empty fields of a session from its record. Returns whether there are any."""
    values: dict[str, Any] = {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name in _SESSION_FIELDS
        if (value := getattr(record, name)) and not getattr(session, name)
    }
    if values and session.batch_id != run.batch_id:
        before = {name: getattr(session, name) for name in values}
        after = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
        audit(run.viewer, "session_enrich", session, before=before, after=after, batch_id=run.batch_id)
    for name, value in values.items():
        setattr(session, name, value)
    return bool(values)


def _relationship_write(run: ImportRun, location: str, record: RelationshipRecord) -> None:
    found = _evidence(run, record)
    for name in record.evidence:
        if name not in found:
            run.note(location, f"evidence: {name!r} is not a memory that was found; left out")
    source: EntityKey = (record.source.type, record.source.name)
    target: EntityKey = (record.target.type, record.target.name)
    relationship_merge_details(
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
    """The memories that support a relationship, in its project or else in those of this import, by name."""
    if record.project:
        projects_ensure(run, [record.project])
    projects = [run.projects[record.project]] if record.project in run.projects else run.projects.values()
    resolved = targets_resolve((project.id, name) for project in projects for name in record.evidence)
    found: dict[str, list[int]] = {}
    for (_, name), memory_id in resolved.items():
        found.setdefault(name, []).append(memory_id)
    return found

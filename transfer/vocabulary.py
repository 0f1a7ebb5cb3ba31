"""The vocabulary records of a source: stored when read, and related to each other at the end."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from pydantic import ValidationError

from access.viewer import audit
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
from categories.models import Category, Concept, Entity, FormerPath, LocalText, TagAlias
from categories.paths import slug_of
from categories.queries import ids_by_path
from categories.services import ConceptKey, EntityKey, categories_ensure, concepts_ensure, entities_ensure, tags_ensure
from memories.link_targets import number_named, targets_resolve
from memories.models import Project, Session
from memories.records import MemoryRecord
from memories.resolve import SessionUse, sessions_ensure
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
from transfer.formats.base import SourceRecord
from transfer.state import ImportRun, KnownProject, projects_ensure
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
    is_local = isinstance(record, TermRecord) and bool(record.projects)
    is_shared = isinstance(record, TermRecord | RelationshipRecord) and not is_local
    if is_shared and run.viewer.curated_project_ids is not None:
        # Their names come with the memories that have them.
        run.note(found.location, "left out: only curators of all projects write texts and relations for all projects")
        return
    if isinstance(record, ProjectRecord) and run.options.is_only_project:
        run.note(found.location, f"left out: everything goes into {run.options.project}")
        return
    run.tally.vocabulary += 1
    if is_local:
        run.deferred.append((found.location, record))
        return
    held = _text_projects(run, record) if isinstance(record, TermRecord) else {}
    match record:
        case ProjectRecord():
            _project_enrich(run, found.location, record)
        case SessionRecord():
            run.deferred.append((found.location, record))
        case CategoryRecord():
            category_merge_details(
                details=CategoryDetails(
                    record.path, record.name, record.description, record.aliases, text_projects=held
                ),
                vocabulary=run.vocabulary,
            )
            if record.former_paths:
                _former_paths_make(run, record, held)
            if record.related:
                run.deferred.append((found.location, record))
        case ConceptRecord():
            concept_merge_details(
                details=ConceptDetails(
                    *(record.name, record.type, record.description, record.aliases),
                    weight=record.weight,
                    text_projects=held,
                ),
                vocabulary=run.vocabulary,
            )
            if record.broader or record.narrower or record.related:
                run.deferred.append((found.location, record))
        case TagRecord():
            _tag_aliases_make(run, record, held)
        case EntityRecord():
            entity_merge_details(
                details=EntityDetails(record.type, record.name, record.description, record.aliases, text_projects=held),
                vocabulary=run.vocabulary,
            )
        case RelationshipRecord():
            run.deferred.append((found.location, record))


def _text_projects(run: ImportRun, record: TermRecord) -> dict[str, list[int]]:
    """The projects of the texts of a term that are not public. A text of projects that are not there is of none."""
    projects_ensure(run, {slug for slugs in record.text_projects.values() for slug in slugs})
    return {
        text: sorted(run.projects[slug].id for slug in slugs if slug in run.projects)
        for text, slugs in record.text_projects.items()
    }


def _former_paths_make(run: ImportRun, record: CategoryRecord, held: Mapping[str, list[int]]) -> None:
    """Let former paths lead to a category, unless they lead somewhere already."""
    paths = [slug_of(path) for path in record.former_paths]
    known = ids_by_path([record.path, *paths])
    category_id = run.vocabulary.categories[slug_of(record.path)][-1]
    FormerPath.objects.bulk_create(
        [
            FormerPath(path=path, category_id=category_id, project_ids=held.get(path))
            for path in paths
            if path not in known
        ],
        ignore_conflicts=True,
    )


def _tag_aliases_make(run: ImportRun, record: TagRecord, held: Mapping[str, list[int]]) -> None:
    """Let aliases lead to a tag, unless they lead somewhere already. An alias of an alias leads to its tag."""
    tags_ensure(tags=[record.name, *record.aliases], vocabulary=run.vocabulary)
    tag = run.vocabulary.tags.get(record.name, record.name)
    new = [alias for alias in record.aliases if run.vocabulary.tags.get(alias, alias) == alias != tag]
    rows = [TagAlias(alias=alias, tag=tag, project_ids=held.get(alias)) for alias in new]
    TagAlias.objects.bulk_create(rows, ignore_conflicts=True)
    run.vocabulary.tags.update(dict.fromkeys(new, tag))


def _local_texts_make(run: ImportRun, location: str, record: TermRecord) -> None:
    """Give a term the texts that hold in the projects of the record, unless it has them."""
    projects_ensure(run, record.projects)
    projects = [run.projects[slug] for slug in record.projects if slug in run.projects]
    if len(projects) < len(record.projects) or not all(run.viewer.may_curate(project.id) for project in projects):
        run.tally.vocabulary -= 1
        run.refused(location, "projects: you cannot curate all of them")
        return
    vocabulary, kind = run.vocabulary, record.kind
    if run.most_new is not None and not _is_known(run, record):
        # The same whether others have it or nobody: a line makes no names that no memory has.
        run.tally.vocabulary -= 1
        run.refused(location, f"{kind}: no memory that you see has it; its names come with the memories that have them")
        return
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


def _is_known(run: ImportRun, record: TermRecord) -> bool:
    """Whether the importer sees a memory of a term, by its own name. Nothing is made."""
    match record:
        case CategoryRecord():
            rows: QuerySet[Any] = Category.objects.filter(path=slug_of(record.path))
        case ConceptRecord():
            rows = Concept.objects.filter(name__iexact=record.name)
        case EntityRecord():
            rows = Entity.objects.filter(name__iexact=record.name, entity_type=record.type)
        case TagRecord():
            return bool(run.vocabulary.known(record.kind, [record.name]))
    return bool(run.vocabulary.known(record.kind, list(rows.values_list("pk", flat=True))))


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
    if not run.viewer.may_curate(project.pk):
        return "project: only its curators describe it"
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
    """Store the deferred relations, now that all vocabulary and all memories are known."""
    supported = (record for _, record in run.deferred if isinstance(record, RelationshipRecord))
    numbers = {number for record in supported for name in record.evidence if (number := number_named(name))}
    copies = run.numbers.memories(numbers)
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
                _relationship_write(run, location, record, copies)


# The fields of a session that a record may fill in.
_SESSION_FIELDS = ("agent", "title", "started_at", "ended_at")


def _sessions_enrich(run: ImportRun, records: Sequence[tuple[str, SessionRecord]]) -> None:
    """Make or match sessions, and fill in what is empty."""
    slugs = {run.options.project_of(record.project) for _, record in records}
    projects_ensure(run, slugs)
    wanted: dict[tuple[int, str], SessionRecord] = {}
    for location, record in records:
        slug = run.options.project_of(record.project)
        project = run.projects.get(slug)
        if project is None or not run.viewer.may_write(project.id):
            run.tally.vocabulary -= 1
            run.refused(location, f"project: you cannot write to {slug!r}")
        else:
            wanted[project.id, record.id] = record
    keys = list(wanted)
    for start in range(0, len(keys), _SESSIONS_AT_ONCE):
        block = [(key, wanted[key]) for key in keys[start : start + _SESSIONS_AT_ONCE]]
        ids = sessions_ensure({key: SessionUse(record.agent, None) for key, record in block}, run.vocabulary)
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


def _relationship_write(run: ImportRun, location: str, record: RelationshipRecord, copies: Mapping[int, int]) -> None:
    found = _evidence(run, record, copies)
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


def _evidence(run: ImportRun, record: RelationshipRecord, copies: Mapping[int, int]) -> dict[str, list[int]]:
    """The memories that support a relationship, in its project or else in those of this import, by name.

    Numbers in an export are those of its own memories: another memory may have the number here.
    """
    if record.project:
        projects_ensure(run, [record.project])
    projects = [run.projects[record.project]] if record.project in run.projects else run.projects.values()
    found: dict[str, list[int]] = {}
    names = set(record.evidence)
    if run.numbers:
        numbered = {name: number for name in names if (number := number_named(name))}
        found = {name: [copies[number]] for name, number in numbered.items() if number in copies}
        names -= numbered.keys()
    for (_, name), memory_id in targets_resolve((project.id, name) for project in projects for name in names).items():
        found.setdefault(name, []).append(memory_id)
    return found

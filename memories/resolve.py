"""Resolve a record to the memory to store: make or match its names, fill in defaults."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple

from categories.models import MadeBy
from categories.paths import parse_path
from categories.services import (
    ConceptKey,
    EntityKey,
    Vocabulary,
    categories_ensure,
    concepts_ensure,
    entities_ensure,
    local_names_match,
    tags_ensure,
)
from categories.texts import known_terms
from memories.models import Memory, Session
from memories.records import DEFAULT_REL, EMBEDS_REL, MAX_LIST, SUPERSEDED_BY_REL, MemoryRecord
from memories.snapshot import MemorySnapshot, NamedLink, Ref
from text.wiki_links import NamedText, name_key, named_texts, names_of_file
from web.sql import execute, fetch

# Record fields whose stored value is computed: resolved names, defaults, checked ids.
_COMPUTED = {
    *("id", "project", "title", "tags", "categories", "concepts", "entities", "links"),
    *("created_at", "updated_at", "state", "superseded_by", "supersedes", "session", "source", "trust"),
}
# Record fields that are stored unchanged, and their columns.
PLAIN_FIELDS = {
    name: {"type": "memory_type", "source_url": "source_uri"}.get(name, name)
    for name in MemoryRecord.model_fields
    if name not in _COMPUTED
}
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>[^/?#:@\[\]]+)")


@dataclass(frozen=True, slots=True)
class RecordNames:
    """The names in records, each once."""

    tags: Set[str]
    paths: Set[str]
    """Category paths."""
    concepts: Mapping[str, str]
    """Name -> type, as the last record gives it."""
    entities: Set[EntityKey]


def names_of(records: Sequence[MemoryRecord]) -> RecordNames:
    """Collect the names without the database, so that an import collects those of one block while it stores another."""
    return RecordNames(
        tags=set().union(*[record.tags for record in records]),
        paths=set().union(*[record.categories for record in records]),
        concepts={concept.name: concept.type for record in records for concept in record.concepts},
        entities={(entity.type, entity.name) for record in records for entity in record.entities},
    )


def names_ensure(names: RecordNames, vocabulary: Vocabulary) -> None:
    """Make or match the categories, concepts and entities of records, and resolve their tags.

    All records belong to the project of the vocabulary, if it has one.
    """
    local_names_match(
        tags=names.tags, paths=names.paths, concepts=names.concepts, entities=names.entities, vocabulary=vocabulary
    )
    names = _without_local(names, vocabulary)
    tags_ensure(tags=names.tags, vocabulary=vocabulary)
    categories_ensure(paths=names.paths, vocabulary=vocabulary)
    concepts_ensure(concepts=starmap(ConceptKey, names.concepts.items()), vocabulary=vocabulary)
    entities_ensure(entities=names.entities, vocabulary=vocabulary)
    if vocabulary.most_new is not None:
        vocabulary.refuse_many(_new_names(names, vocabulary))


def _new_names(names: RecordNames, vocabulary: Vocabulary) -> int:
    """The number of names that no memory has, as far as the writer sees; 0 if there are too few names to matter.

    For viewers of some projects, existing names that only others use count too: a lower number would reveal them.
    """
    refs: dict[str, set[Any]] = {
        "tag": {vocabulary.tags.get(tag, tag) for tag in names.tags},
        "category": {pk for path in names.paths if (one := parse_path(path)) for pk in vocabulary.categories[one.path]},
        "concept": {vocabulary.concepts[name] for name in names.concepts},
        "entity": {vocabulary.entities[key] for key in names.entities},
    }
    if sum(map(len, refs.values())) <= (vocabulary.most_new or 0):
        return 0
    if vocabulary.viewer.project_ids is None:
        return sum(vocabulary.made.values()) + len(refs["tag"] - known_terms("tag", refs["tag"], None))
    return sum(len(own - vocabulary.known(kind, own)) for kind, own in refs.items())


def _without_local(names: RecordNames, vocabulary: Vocabulary) -> RecordNames:
    """The names that the project has for no other term: a local name must not make a term."""
    local = {(kind, name) for kind, project_id, name in vocabulary.local if project_id == vocabulary.project_id}
    if not local:
        return names
    return RecordNames(
        tags={tag for tag in names.tags if ("tag", tag) not in local},
        paths={path for path in names.paths if (one := parse_path(path)) and ("category", one.path) not in local},
        concepts={name: kind for name, kind in names.concepts.items() if ("concept", name) not in local},
        entities={key for key in names.entities if ("entity", key) not in local},
    )


def projects_make(slugs: Iterable[str], vocabulary: Vocabulary) -> None:
    """Make missing projects."""
    made_rows = fetch(
        "INSERT INTO memories_project (slug, name, description, language, batch_id, created_at)"
        " SELECT slug, slug, '', 'english', %s, now() FROM unnest(%s::text[]) AS made (slug)"
        " ON CONFLICT (slug) DO NOTHING RETURNING id",
        [vocabulary.batch_id, sorted(slugs)],
    )
    vocabulary.count("projects", len(made_rows))


class SessionUse(NamedTuple):
    """The agent of a session, and the date of the earliest memory that is stored in it; None for no memory."""

    agent: str
    first_at: datetime | None


def sessions_ensure(
    sessions: Mapping[tuple[int, str], SessionUse], vocabulary: Vocabulary
) -> dict[tuple[int, str], int]:
    """Make or match sessions by (project id, external id). Returns their ids."""
    keys = sorted(sessions)
    made_rows = fetch(
        "INSERT INTO memories_session (project_id, external_id, agent, first_at, title, batch_id)"
        " SELECT project_id, external_id, agent, first_at, '', %s"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[])"
        " AS made (project_id, external_id, agent, first_at)"
        " ON CONFLICT (project_id, external_id) DO NOTHING RETURNING id",
        [
            vocabulary.batch_id,
            [project_id for project_id, _ in keys],
            [external_id for _, external_id in keys],
            [sessions[key].agent for key in keys],
            [sessions[key].first_at for key in keys],
        ],
    )
    vocabulary.count("sessions", len(made_rows))
    rows = Session.objects.filter(external_id__in={key[1] for key in keys}, project_id__in={key[0] for key in keys})
    ids, earlier = {}, []
    for project_id, external_id, pk, first_at in rows.values_list("project_id", "external_id", "pk", "first_at"):
        ids[project_id, external_id] = pk
        use = sessions.get((project_id, external_id))
        if use and use.first_at and (first_at is None or use.first_at < first_at):
            earlier.append((pk, use.first_at))
    if earlier:
        execute(
            "UPDATE memories_session SET first_at = least(first_at, made.at)"
            " FROM unnest(%s::bigint[], %s::timestamptz[]) AS made (session_id, at) WHERE id = made.session_id",
            [[pk for pk, _ in earlier], [at for _, at in earlier]],
        )
    return ids


def record_as_json(record: MemoryRecord) -> str:
    """A record as JSON text, without its content, which has its own column."""
    return json.dumps(
        record.model_dump(mode="json", exclude_unset=True, exclude={"content"}), ensure_ascii=False, sort_keys=True
    )


def record_snapshot(
    *,
    record: MemoryRecord,
    memory_id: int,
    project_id: int,
    session_id: int | None,
    vocabulary: Vocabulary,
    made_by: MadeBy,
    now: datetime,
    raw: str,
    record_hash: str,
    title: str,
    trust: int,
) -> MemorySnapshot:
    """A new memory as it will be stored. The vocabulary must contain all names of the record."""
    created_at = record.dated or now
    return MemorySnapshot(
        **{column: getattr(record, name) for name, column in PLAIN_FIELDS.items()},
        id=memory_id,
        project_id=project_id,
        title=title,
        tags=vocabulary.tags_of(record.tags, project_id),
        state=record.state or Memory.State.ACTIVE.value,
        state_reason="",
        session_id=session_id,
        source=source_of(record),
        external_id=record.id,
        created_at=created_at,
        updated_at=record.updated_at or now,
        superseded_by_id=None,
        record_hash=record_hash,
        raw=raw,
        batch_id=vocabulary.batch_id,
        categories=category_refs(record.categories, vocabulary, made_by, project_id),
        concepts=concept_refs(record, vocabulary, made_by, project_id),
        entities=entity_refs(record, vocabulary, made_by, project_id),
        links=named_links(record),
        trust=trust,
    )


@lru_cache(maxsize=65_536)
def _ref(target_id: int, made_by: str, weight: float = 1.0) -> Ref:
    """Cached: many memories have the same links."""
    return Ref(target_id, made_by, weight)


def category_refs(paths: Sequence[str], vocabulary: Vocabulary, made_by: MadeBy, project_id: int) -> tuple[Ref, ...]:
    ids = {vocabulary.category_of(parsed.path, project_id) for path in paths if (parsed := parse_path(path))}
    maker = made_by.value
    return tuple([_ref(category_id, maker) for category_id in sorted(ids)])


def concept_refs(record: MemoryRecord, vocabulary: Vocabulary, made_by: MadeBy, project_id: int) -> tuple[Ref, ...]:
    weights: dict[int, float] = {}
    for concept in record.concepts:
        concept_id = vocabulary.concept_of(concept.name, project_id)
        weight = 1.0 if concept.weight is None else concept.weight
        weights[concept_id] = max(weight, weights.get(concept_id, 0.0))
    maker = made_by.value
    return tuple([_ref(concept_id, maker, weight) for concept_id, weight in sorted(weights.items())])


def entity_refs(record: MemoryRecord, vocabulary: Vocabulary, made_by: MadeBy, project_id: int) -> tuple[Ref, ...]:
    ids = {vocabulary.entity_of((entity.type, entity.name), project_id) for entity in record.entities}
    maker = made_by.value
    return tuple([_ref(entity_id, maker) for entity_id in sorted(ids)])


def named_links(record: MemoryRecord) -> tuple[NamedLink, ...]:
    """The links of a record and its text, each once, with its successor, which is found if it is stored later."""
    links = [NamedLink(link.rel, link.target, link.url) for link in record.links]
    if record.superseded_by:
        links.append(NamedLink(SUPERSEDED_BY_REL, record.superseded_by))
    first: dict[tuple[str, str], NamedLink] = {}
    for link in links:
        first.setdefault((link.rel, link.target), link)
    return with_text_links(tuple(first.values()), record.content)


def with_text_links(links: tuple[NamedLink, ...], content: str) -> tuple[NamedLink, ...]:
    """Links, and those to what a text names, unless there is one to that already."""
    named = named_texts(content)
    if not named:
        return links
    known = {name_key(link.target) for link in links}
    added = [one for one in named if name_key(one.name) not in known]
    return (*links, *(_text_link(one) for one in added[:MAX_LIST]))


def _text_link(named: NamedText) -> NamedLink:
    return NamedLink(EMBEDS_REL if named.is_embedded else DEFAULT_REL, named.name)


def without_text_links(links: Iterable[NamedLink], content: str) -> tuple[NamedLink, ...]:
    """Links but for those to what a text names, by that name or by the path of its file."""
    known = {name_key(one.name) for one in named_texts(content)}
    return tuple(
        link
        for link in links
        if link.rel not in (DEFAULT_REL, EMBEDS_REL) or known.isdisjoint(map(name_key, names_of_file(link.target)))
    )


def source_of(record: MemoryRecord) -> str:
    """The source of a new memory: as given, or the host of its URL."""
    match = _HOST.match(record.source_url)
    return record.source or (match["host"].lower()[:200] if match else "")

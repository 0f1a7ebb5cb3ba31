"""The vocabulary records of a file: projects, sessions, categories, concepts, entities, relationships."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, get_args

from pydantic import Field, ValidationError

from memories.records import (
    DEFAULT_ENTITY_TYPE,
    Aliases,
    BaseRecord,
    CategoryPaths,
    ConceptNames,
    EntityName,
    EntityType,
    Fraction,
    Line200,
    Line300,
    Line500,
    RequiredCategoryPath,
    RequiredLine200,
    RequiredLine300,
    RequiredLine500,
    RequiredSlug100,
    RequiredTag,
    Slug100,
    Tags,
    Text,
    Timestamp,
)
from web.validation import refuse, shown

Slugs = Annotated[tuple[RequiredSlug100, ...], Field(max_length=1_000)]


class ProjectRecord(BaseRecord):
    kind: ClassVar[str] = "project"
    slug: RequiredSlug100
    name: Line200 = ""
    description: Text = ""
    language: Slug100 = ""


class SessionRecord(BaseRecord):
    """A session that memories of a project name."""

    kind: ClassVar[str] = "session"
    id: RequiredLine200
    project: Slug100 = ""
    agent: Line200 = ""
    title: Line500 = ""
    started_at: Timestamp = None
    ended_at: Timestamp = None


class TermRecord(BaseRecord):
    """A term. With projects, its aliases, former paths and description are local texts, which hold in these alone.

    `text_projects` are those of single texts of the term, by the text; an empty one stands for the description. Other
    texts are public.
    """

    kind: ClassVar[str]
    projects: Slugs = ()
    text_projects: Annotated[dict[str, tuple[RequiredSlug100, ...]], Field(max_length=2_000)] = {}


class CategoryRecord(TermRecord):
    kind: ClassVar[str] = "category"
    path: RequiredCategoryPath
    name: Line300 = ""
    description: Text = ""
    aliases: Aliases = ()
    related: CategoryPaths = ()
    former_paths: CategoryPaths = ()


class TagRecord(TermRecord):
    """Other names of a tag, which resolve to it."""

    kind: ClassVar[str] = "tag"
    name: RequiredTag
    aliases: Tags = ()


class ConceptRecord(TermRecord):
    kind: ClassVar[str] = "concept"
    name: RequiredLine300
    type: Slug100 = ""
    aliases: Aliases = ()
    description: Text = ""
    broader: ConceptNames = ()
    narrower: ConceptNames = ()
    related: ConceptNames = ()
    weight: Fraction = None


class EntityRecord(TermRecord):
    kind: ClassVar[str] = "entity"
    name: RequiredLine500
    type: EntityType = DEFAULT_ENTITY_TYPE
    aliases: Aliases = ()
    description: Text = ""


class RelationshipRecord(BaseRecord):
    """A fact between two entities."""

    kind: ClassVar[str] = "relationship"
    source: EntityName
    type: RequiredSlug100
    target: EntityName
    fact: Text = ""
    confidence: Fraction = None
    valid_from: Timestamp = None
    valid_to: Timestamp = None
    evidence: Aliases = ()
    project: Slug100 = ""


VocabularyRecord = (
    ProjectRecord | SessionRecord | CategoryRecord | TagRecord | ConceptRecord | EntityRecord | RelationshipRecord
)
VOCABULARY_RECORDS: dict[str, type[VocabularyRecord]] = {model.kind: model for model in get_args(VocabularyRecord)}


def is_vocabulary(data: Mapping[str, object]) -> bool:
    """Whether a line is a vocabulary record: it names its kind of record, and has no text of a memory."""
    return "record" in data and data["record"] != "memory" and not {"content", "text", "body"} & data.keys()


def parse_vocabulary(data: Mapping[str, object]) -> VocabularyRecord:
    """The vocabulary record of a line; raises ValidationError."""
    kind = data["record"]
    model = VOCABULARY_RECORDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(["memory", *VOCABULARY_RECORDS])
        raise ValidationError.from_exception_data(
            "record",
            [{"type": refuse(f"{shown(kind)} is not known: write one of {known}"), "loc": ("record",), "input": kind}],
        )
    return model.model_validate(data)

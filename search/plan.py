"""From a query to a plan: names to ids, words to terms, dates to instants, and what to tell the visitor about them."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import TypeVar

from django.conf import settings

from access.viewer import Viewer
from categories.models import Category, Concept, Entity
from categories.names import Names, names_at
from categories.queries import (
    CategoryNode,
    Term,
    category_nodes,
    concept_terms,
    entity_terms,
    resolve_categories,
    resolve_concepts,
    resolve_entities,
    similar_names,
    tags_now,
)
from categories.revision import DataRevision, data_revision_with
from memories.embedding.query import EmbedderNotReady, query_vector
from memories.records import normalise_tag, slug_name
from search.engines.base import (
    Engine,
    EngineQuery,
    EngineTimeoutError,
    FacetRequest,
    Filter,
    LanguageText,
    Value,
    VectorQuery,
)
from search.facets import DEFAULT_STATES, FACET, FACETS, STATES, Kind
from search.query import Mode, SearchQuery
from search.result import SearchWarning
from text.query_syntax import parse_text, plain_text_of

# By hand: every answer begins with it, and to put it together from a queryset takes longer than to read it.
_PROJECTS = "SELECT id, slug, name, language FROM memories_project ORDER BY slug"


@dataclass(frozen=True, slots=True)
class ProjectRow:
    id: int
    slug: str
    name: str
    language: str


@dataclass(slots=True)
class ResolvedQuery:
    """A plan, and what was learnt on the way to it."""

    plan: EngineQuery
    now: datetime
    zone: tzinfo
    projects: dict[int, ProjectRow]
    moment: DataRevision
    names: Names
    warnings: list[SearchWarning] = field(default_factory=list)
    # Chosen names that mean nothing, by facet.
    unknown: list[tuple[str, str]] = field(default_factory=list)
    # What each chosen name of a vocabulary means, for labels: (facet, value) -> label.
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    chosen_categories: list[CategoryNode] = field(default_factory=list)
    # What was ticked: the states that stand by default are not.
    asked: set[tuple[str, str]] = field(default_factory=set)
    # The URL values that stand for an engine's value, as chosen: (facet, engine value) -> URL value.
    spelled: dict[tuple[str, Value], str] = field(default_factory=dict)
    # What the text says, without its signs and without what it leaves out.
    said: str = ""
    # Why a query that looks by meaning has to do without.
    without_meaning: str = ""


def resolve_query(engine: Engine, query: SearchQuery, viewer: Viewer, now: datetime) -> ResolvedQuery:
    """Resolve a query for a viewer: one statement for the projects and the revision that names are kept under, and a
    few for each vocabulary chosen from.
    """
    zone = query.zone(viewer.timezone)
    moment, rows = data_revision_with(_PROJECTS)
    projects = {row[0]: ProjectRow(*row) for row in rows if viewer.may_see(row[0])}
    project_ids = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    planned = ResolvedQuery(
        EngineQuery(project_ids=project_ids),
        now,
        zone,
        projects,
        moment,
        names_at(moment),
        said=plain_text_of(query.text),
    )
    start, end = query.period(zone, now)
    if start and end and start >= end:
        planned.warnings.append(
            SearchWarning(
                f"The dates end before they start: from {query.date_from} to {query.date_to}. Nothing can match.", "to"
            )
        )
    if query.since and (query.date_from or query.date_to):
        planned.warnings.append(SearchWarning("from and to were given, so since was left out.", "since"))
    planned.plan = EngineQuery(
        project_ids=project_ids,
        texts=_texts(query, planned),
        meaning=_meaning(query, planned),
        filters=tuple(_filters(engine, query, planned)),
        start=start,
        end=end,
        subcategories=query.subcategories,
    )
    return planned


def _texts(query: SearchQuery, planned: ResolvedQuery) -> tuple[LanguageText, ...]:
    """The words analysed once for each language among the projects that the viewer sees.

    Of all of them, and not of the chosen ones: the project facet counts those that are not chosen too.
    """
    if not query.text:
        return ()
    by_language: dict[str, list[int]] = {}
    for project in planned.projects.values():
        by_language.setdefault(project.language, []).append(project.id)
    languages = sorted(by_language, key=lambda name: -len(by_language[name])) or ["english"]
    one = len(languages) == 1
    texts = tuple(
        LanguageText(name, None if one else tuple(by_language[name]), parse_text(query.text, name))
        for name in languages
    )
    words = texts[0].words
    if words.is_empty and not query.mode.looks_by_meaning:
        planned.warnings.append(SearchWarning("There is no word to look for in the text.", "q"))
    for flag in words.flags:
        planned.warnings.append(
            SearchWarning(f'“{flag}” was read as a command-line flag. To leave a word out, write -"{flag[1:]}".', "q")
        )
    for short in words.short_prefixes:
        planned.warnings.append(
            SearchWarning(f"“{short}” was read without its *: at least two letters are needed before it.", "q")
        )
    return texts


def _meaning(query: SearchQuery, planned: ResolvedQuery) -> VectorQuery | None:
    """What the text means, where the query looks by meaning and the model is there; if it is not, why is told."""
    if not query.mode.looks_by_meaning or not planned.said:
        return None
    try:
        found = query_vector(planned.said)
    except EmbedderNotReady as error:
        planned.without_meaning = error.reason
        if query.mode == Mode.SEMANTIC:
            reason = f"{error.reason[:1].upper()}{error.reason[1:]}"
            planned.warnings.append(SearchWarning(f"{reason}. These were found by words instead.", "mode"))
        return None
    least = found.min_similarity if query.min_similarity is None else query.min_similarity
    return VectorQuery(
        model_id=found.model_id,
        vector=found.vector.tobytes(),
        min_similarity=least,
        limit=settings.SEARCH_SEMANTIC_LIMIT,
        semantic_only=query.mode == Mode.SEMANTIC,
    )


def _filters(engine: Engine, query: SearchQuery, planned: ResolvedQuery) -> Iterable[Filter]:
    for spec in FACETS:
        chosen = query.selection(spec.key)
        include, exclude = chosen.include, chosen.exclude
        if spec.key == "state" and not chosen.restricts:
            include = DEFAULT_STATES
        elif not chosen.restricts:
            continue
        meanings = _meanings(engine, spec.key, (*include, *exclude), planned)
        for name in (*include, *exclude):
            if not meanings.get(name):
                planned.unknown.append((spec.key, name))
            for value in meanings.get(name, ()):
                planned.spelled[spec.key, value] = name
        planned.asked |= {(spec.key, name) for name in chosen.include}
        yield Filter(
            key=spec.key,
            include=tuple(meanings.get(name, ()) for name in include),
            # Leaving out what does not exist leaves out nothing.
            exclude=tuple(meanings[name] for name in exclude if meanings.get(name)),
            no_value=chosen.no_value,
            any_value=chosen.any_value,
            require_all=chosen.require_all,
        )


def _meanings(engine: Engine, key: str, names: tuple[str, ...], planned: ResolvedQuery) -> dict[str, tuple[Value, ...]]:
    """What each chosen name stands for in the engines."""
    match FACET[key].kind:
        case Kind.PROJECT:
            by_slug = {project.slug: project for project in planned.projects.values()}
            found = {name: by_slug.get(name.lower()) for name in names}
            return {name: (project.id,) for name, project in found.items() if project}
        case Kind.TREE:
            nodes = _open_to(engine, planned, key, resolve_categories(names))
            for name, meant in nodes.items():
                planned.labels[key, name] = " or ".join(" / ".join(node.names) for node in meant)
                planned.chosen_categories.extend(meant)
            return {name: tuple(node.id for node in meant) for name, meant in nodes.items()}
        case Kind.IDS:
            resolve = resolve_concepts if key == "concept" else resolve_entities
            terms = _open_to(engine, planned, key, resolve(names))
            for name, these in terms.items():
                planned.labels[key, name] = these[0].label
            return {name: tuple(term.id for term in these) for name, these in terms.items()}
    if key == "state":
        return {name: (name.lower(),) for name in names if name.lower() in STATES}
    if key == "tag":
        return resolve_tags(names)
    return {name: (stored_as(key, name),) for name in names}


def resolve_tags(names: Collection[str]) -> dict[str, tuple[Value, ...]]:
    """The tag that each name means: one that was merged or renamed means what it is called now."""
    tags = {name: normalise_tag(name) for name in names}
    now = tags_now(tags.values())
    return {name: (now.get(tag, tag),) for name, tag in tags.items()}


def stored_as(key: str, name: str) -> str:
    """A plain value as the services store it."""
    if key == "tag":
        return normalise_tag(name)
    return slug_name(name) if key == "type" else name


_Named = TypeVar("_Named", CategoryNode, Term)


def _open_to(
    engine: Engine, planned: ResolvedQuery, key: str, meanings: dict[str, tuple[_Named, ...]]
) -> dict[str, tuple[_Named, ...]]:
    """What names mean to the viewer. Of what none of their memories has, not even the name is told."""
    seen = visible_ids(engine, planned.plan.project_ids, key, [one.id for meant in meanings.values() for one in meant])
    kept = {name: tuple(one for one in meant if one.id in seen) for name, meant in meanings.items()}
    return {name: meant for name, meant in kept.items() if meant}


def visible_ids(engine: Engine, project_ids: tuple[int, ...] | None, key: str, ids: Iterable[int]) -> set[int]:
    """Those of the ids that some memory in the projects has, in any state."""
    asked = sorted(set(ids))
    if project_ids is None:
        return set(asked)
    return {int(pk) for pk in engine.values_present(EngineQuery(project_ids=project_ids), key, asked)}


def explain_unknown(planned: ResolvedQuery, engine: Engine, suspects: Iterable[tuple[str, str]]) -> list[SearchWarning]:
    """A warning for each chosen name that matches nothing, with what may have been meant.

    Suggestions are values that the viewer's own memories have: a number or a name never tells of anything else.
    """
    visible = EngineQuery(project_ids=planned.plan.project_ids)
    warnings = []
    for key, name in suspects:
        try:
            near = _near_names(planned, engine, visible, key, name)
        except EngineTimeoutError:
            near = []
        label = FACET[key].label.lower()
        warnings.append(SearchWarning(f"No {label} is called “{name}”.", key, tuple(near)))
    return warnings


def _near_names(planned: ResolvedQuery, engine: Engine, visible: EngineQuery, key: str, name: str) -> list[str]:
    kind = FACET[key].kind
    if kind == Kind.PROJECT:
        return difflib.get_close_matches(name.lower(), [p.slug for p in planned.projects.values()], 3, 0.5)
    if key == "state":
        return difflib.get_close_matches(name.lower(), STATES, 3, 0.5)
    if kind in {Kind.TREE, Kind.IDS}:
        model = Category if kind == Kind.TREE else Concept if key == "concept" else Entity
        ids = similar_names(model, name)
        request = FacetRequest(key, only=tuple(ids))
        counted = engine.counts(visible, [request], zone=planned.zone, now=planned.now, days=False).facets[key]
        seen = {value.value for value in counted.values if value.count}
        return _values_of(key, [pk for pk in ids if pk in seen][:3])
    request = FacetRequest(key, limit=2_000)
    counted = engine.counts(visible, [request], zone=planned.zone, now=planned.now, days=False).facets[key]
    by_fold = {str(value.value).casefold(): str(value.value) for value in counted.values}
    return [by_fold[near] for near in difflib.get_close_matches(name.casefold(), list(by_fold), 3, 0.6)]


def _values_of(key: str, ids: list[int]) -> list[str]:
    if key == "category":
        nodes = category_nodes(ids)
        return [nodes[pk].path for pk in ids if pk in nodes]
    terms = concept_terms(ids) if key == "concept" else entity_terms(ids)
    return [terms[pk].value for pk in ids if pk in terms]

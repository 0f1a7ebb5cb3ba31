"""Resolves a query for a viewer: names to ids, words to terms, dates to instants, text to a vector."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import TypeVar

from django.conf import settings

from access.viewer import Viewer
from categories.models import Category, Concept, Entity
from categories.names import DataRevision, Names, data_revision_with, names_at
from categories.paths import clean_name, stored_forms
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
from categories.texts import as_projects
from memories.embedding.query import EmbedderNotReadyError, query_vector
from memories.embedding.vectors import EmbeddedShare, memory_progress
from memories.import_names import batches_followed, followed_label, import_labels
from memories.records import normalise_tag, slug_name, tag_spellings
from search.area import Area, parse_area
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
from search.engines.stored_columns import layout_now, recalls_now
from search.facets import FACET, FACETS, STATES, FacetKind, FacetSpec
from search.query import FacetScope, Mode, SearchQuery, recalled_from
from search.result import REFUSED, SearchWarning
from text.formatting import legible, listed, start_of
from text.query_syntax import TextQuery, parse_text, plain_text_of, read_exclusions
from web.errors import Refusal

# Modes that find memories by the names of what they carry.
_BY_NAME = {Mode.HYBRID, Mode.KEYWORD, Mode.FACETED, Mode.UNIFIED}
_MAX_NAME_LENGTH = 500
# Similar names to look up. Of viewers of some projects more, since most may be names of others.
_SIMILAR, _SIMILAR_OF_ALL = 10, 2_000
# The values of a list with commas for which similar names are looked up.
_MAX_PARTS = 5
# The digits of the number of an import.
_MAX_DIGITS = 18

# Plain SQL: every answer begins with this statement, and building it from a queryset takes longer than running it.
_PROJECTS = "SELECT id, slug, name, language FROM memories_project ORDER BY slug"


@dataclass(frozen=True, slots=True)
class ProjectRow:
    id: int
    slug: str
    name: str
    language: str


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A query as the engines take it, and what answers say about its names."""

    plan: EngineQuery
    now: datetime
    zone: tzinfo
    projects: Mapping[int, ProjectRow]
    """The projects that the viewer sees, by id."""
    revision: DataRevision
    names: Names
    warnings: tuple[SearchWarning, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    """Chosen names that match nothing: (facet, name)."""
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Display names of chosen values: (facet, name) to label."""
    chosen_categories: tuple[CategoryNode, ...] = ()
    selected: frozenset[tuple[str, str]] = frozenset()
    """The ticked values: (facet, name). The default states are not among them."""
    url_values: Mapping[tuple[str, Value], str] = field(default_factory=dict)
    """The chosen name of each engine value: (facet, engine value) to name."""
    plain_text: str = ""
    """The text without operators and without excluded words."""
    without_meaning: str = ""
    """Why a query that searches by meaning is answered by words alone."""
    viewer: Viewer = field(default_factory=Viewer)

    def import_labels(self, ids: Iterable[int]) -> dict[int, str]:
        """The names of imports by number, as the viewer may see them."""
        return import_labels(ids, self.viewer, self.zone, self.revision)


@dataclass(frozen=True, slots=True)
class _ChosenNames:
    """The values of the names chosen in one facet, with their labels and, for categories, their nodes."""

    values: Mapping[str, tuple[Value, ...]]
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[CategoryNode, ...] = ()


class UnknownExclusionError(Refusal):
    """Something is excluded that has no such name: leaving the exclusion out would find more than was asked for."""

    code = "unknown_name"
    title = "Nothing was searched for"
    suggestion = "Correct the name, or leave the exclusion out."

    def __init__(self, warnings: Sequence[SearchWarning]) -> None:
        self.did_you_mean = tuple(name for warning in warnings for name in warning.did_you_mean)
        super().__init__(" ".join(f"-{warning.parameter}: {warning.message}" for warning in warnings))


def resolve_query(
    engine: Engine, query: SearchQuery, viewer: Viewer, now: datetime, *, lenient: bool = False
) -> ResolvedQuery:
    """Resolve a query: one statement for projects and data revision, and a few for each vocabulary with choices.

    Nothing matches a query of which something could not be read. Raises UnknownExclusionError for the exclusion of an
    unknown name; if `lenient`, nothing matches then, which a warning explains.
    """
    zone = query.zone(viewer.timezone)
    revision, rows = data_revision_with(_PROJECTS)
    projects = {row[0]: ProjectRow(*row) for row in rows if viewer.may_see(row[0])}
    project_ids = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    plain_text = plain_text_of(query.text)
    texts = _texts(query, projects)
    meaning, without_meaning = build_vector_query(query, plain_text)
    names = names_at(revision)
    selections = {spec.key: query.selection(spec.key) for spec in FACETS}
    chosen = {
        key: _resolve_names(engine, project_ids, projects, FACET[key], (*selection.include, *selection.exclude))
        for key, selection in selections.items()
        if selection.restricts and FACET[key].kind != FacetKind.IMPORT
    }
    if (imports := selections["import"]).restricts:
        asked = (*imports.include, *imports.exclude)
        chosen["import"] = _resolve_imports(engine, asked, viewer, zone, revision)
    unknown = [
        (key, name) for key, found in chosen.items() for name in selections[key].include if not found.values.get(name)
    ]
    not_excluded = [
        (key, name) for key, found in chosen.items() for name in selections[key].exclude if not found.values.get(name)
    ]
    start, end = query.period(zone, now)
    plan = EngineQuery(
        project_ids=project_ids,
        is_refused=bool(query.refused or not_excluded),
        texts=texts,
        named=_named(engine, query, texts, names, project_ids),
        meaning=meaning,
        filters=tuple(_filters(query, chosen)),
        start=start,
        end=end,
        updated_from=start_of(query.updated_since, zone, now),
        as_of=query.then(zone),
        area=_area(query),
        recalled_from=recalled_from(query.recalled_since, zone, now),
        not_recalled_from=recalled_from(query.not_recalled_since, zone, now),
        recalls=recalls_now() if query.depends_on_recalls else 0,
        subcategories=query.subcategories,
        counts_results=query.facet_scope == FacetScope.RESULTS,
    )
    resolved = ResolvedQuery(
        plan=plan,
        now=now,
        zone=zone,
        projects=projects,
        revision=revision,
        names=names,
        warnings=(
            *_refused_warnings(query, not_excluded),
            *_date_warnings(query, zone, start, end),
            *_area_warnings(plan),
            *(_text_warnings(query, texts[0].words, is_named=bool(plan.named)) if texts else ()),
            *_meaning_warnings(plan, revision, without_meaning),
        ),
        unknown=(*unknown, *not_excluded),
        labels={(key, name): label for key, found in chosen.items() for name, label in found.labels.items()},
        chosen_categories=tuple(node for found in chosen.values() for node in found.nodes),
        selected=frozenset((key, name) for key, selection in selections.items() for name in selection.include),
        url_values={
            (key, value): name
            for key, found in chosen.items()
            for name in (*selections[key].include, *selections[key].exclude)
            for value in found.values.get(name, ())
        },
        plain_text=plain_text,
        without_meaning=without_meaning,
        viewer=viewer,
    )
    if not_excluded and not lenient:
        raise UnknownExclusionError(explain_unknown(resolved, engine, not_excluded))
    return resolved


def _refused_warnings(query: SearchQuery, not_excluded: Sequence[tuple[str, str]]) -> Iterable[SearchWarning]:
    """The parts of a query that cannot be read or resolved, so that nothing matches."""
    if refused := [*query.refused, *((f"-{key}", name) for key, name in not_excluded)]:
        asked = listed([legible(f"{key}={value}") for key, value in refused[:_MAX_PARTS]])
        yield SearchWarning(f"Nothing matches, because this is not understood: {asked}.", REFUSED)


def _area(query: SearchQuery) -> Area | None:
    """The area of a query on the map in use; without corners, so that nothing is inside, if it is of an earlier map."""
    if not query.area:
        return None
    area, layout = parse_area(query.area), layout_now()
    if layout is None or layout[0] != area.layout_id:
        return replace(area, corners=())
    return replace(area, revision=layout[1])


def _area_warnings(plan: EngineQuery) -> Iterable[SearchWarning]:
    if plan.area is not None and not plan.area.corners:
        text = "The area belongs to a map of meaning that has been drawn again since. Nothing can match: mark it again."
        yield SearchWarning(text, "area")


def _date_warnings(
    query: SearchQuery, zone: tzinfo, start: datetime | None, end: datetime | None
) -> Iterable[SearchWarning]:
    if start and end and start >= end:
        dates = listed([f"{key} {value}" for key, value in query.parameters() if key in {"from", "to", "since"}])
        if start == end and query.date_from <= query.date_to and not query.since:
            yield SearchWarning(f"Clocks in {zone} skipped this time: {dates}. Nothing can match.", "to")
        else:
            yield SearchWarning(f"The date range ends before it starts: {dates}. Nothing can match.", "to")


def _texts(query: SearchQuery, projects: Mapping[int, ProjectRow]) -> tuple[LanguageText, ...]:
    """The words analysed once for each language of the visible projects.

    All of them, not the chosen ones alone: the project facet also counts the projects that are not chosen.
    """
    if not query.text:
        return ()
    by_language: dict[str, list[int]] = {}
    for project in projects.values():
        by_language.setdefault(project.language, []).append(project.id)
    languages = sorted(by_language, key=lambda name: -len(by_language[name])) or ["english"]
    is_only = len(languages) == 1
    return tuple(
        LanguageText(name, None if is_only else tuple(by_language[name]), parse_text(query.text, name))
        for name in languages
    )


def named_candidates(names: Names, text: str, project_ids: tuple[int, ...] | None) -> dict[str, tuple[Value, ...]]:
    """The terms whose name or alias is the whole text, by facet. Whether any memory carries them is not checked."""
    name, tag = clean_name(text), normalise_tag(text)
    if not name or len(name) > _MAX_NAME_LENGTH:
        return {}
    found = names.named(name, tag, as_projects(project_ids))
    found = {**found, "tag": tuple(dict.fromkeys((*tag_spellings(text), *found.get("tag", ()))))}
    return {spec.key: found[spec.key] for spec in FACETS if spec.key in found}


def _named(
    engine: Engine,
    query: SearchQuery,
    texts: Sequence[LanguageText],
    names: Names,
    project_ids: tuple[int, ...] | None,
) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    """The terms that the text names and a visible memory carries, by facet. A text with quotes or signed words names
    nothing.
    """
    signed = any(text.words.required or text.words.excluded for text in texts)
    if query.mode not in _BY_NAME or '"' in query.text or signed or not texts:
        return ()
    named = tuple(named_candidates(names, query.text, project_ids).items())
    carried = engine.any_match([EngineQuery(project_ids=project_ids, named=(one,)) for one in named])
    present = [one for one, is_carried in zip(named, carried, strict=True) if is_carried]
    visible = ((key, _carried(engine, project_ids, key, values)) for key, values in present)
    return tuple((key, values) for key, values in visible if values)


def _text_warnings(query: SearchQuery, words: TextQuery, *, is_named: bool) -> Iterable[SearchWarning]:
    if words.is_empty and not query.mode.looks_by_meaning and not is_named:
        yield SearchWarning("The text has no word to search for.", "q")
    if words.left_out:
        count = sum(len(group.words) for group in words.groups)
        yield SearchWarning(
            f"The text has {count + words.left_out:,} different words. The {count} that it repeats most, or that are"
            " the longest, were searched for; meaning takes in the whole text.",
            "q",
        )
    for flag in words.flags:
        message = f'“{flag}” was read as a command-line flag. To exclude a word, write -"{flag[1:]}".'
        yield SearchWarning(message, "q")
    if words.excluded:
        excluded, as_words = read_exclusions(query.text)
        named = listed([f"“{part}”" for part in excluded], "or")
        yield SearchWarning(
            f"Memories with {named} are left out, because a “-” before a word excludes it.", "q", (as_words,)
        )
    for short in words.short_prefixes:
        yield SearchWarning(f"The * after “{short}” is ignored: a prefix needs at least two letters.", "q")


def build_vector_query(query: SearchQuery, plain_text: str) -> tuple[VectorQuery | None, str]:
    """The vector of the text and "", or None and the reason why a query by meaning has none."""
    if not query.mode.looks_by_meaning or not plain_text:
        return None, ""
    try:
        found = query_vector(plain_text)
    except EmbedderNotReadyError as error:
        return None, error.reason
    least = found.min_similarity if query.min_similarity is None else query.min_similarity
    vector_query = VectorQuery(
        model_id=found.model_id,
        vector=found.vector.tobytes(),
        min_similarity=least,
        limit=settings.SEARCH_SEMANTIC_LIMIT,
        semantic_only=query.mode == Mode.SEMANTIC,
    )
    return vector_query, ""


def _meaning_warnings(plan: EngineQuery, revision: DataRevision, without_meaning: str) -> Iterable[SearchWarning]:
    if without_meaning:
        yield not_ready_warning(without_meaning)
    elif plan.meaning is not None:
        yield from share_warnings(revision, plan)


def _filters(query: SearchQuery, chosen: Mapping[str, _ChosenNames]) -> Iterable[Filter]:
    for spec in FACETS:
        selection = query.selection(spec.key)
        if spec.key not in chosen:
            if spec.key == "state":
                yield Filter("state", include=tuple((state,) for state in query.default_states))
            continue
        values = chosen[spec.key].values
        yield Filter(
            key=spec.key,
            include=tuple(values.get(name, ()) for name in selection.include),
            exclude=tuple(values[name] for name in selection.exclude if values.get(name)),
            no_value=selection.no_value,
            any_value=selection.any_value,
            require_all=selection.require_all,
        )


def _resolve_names(
    engine: Engine,
    project_ids: tuple[int, ...] | None,
    projects: Mapping[int, ProjectRow],
    spec: FacetSpec,
    names: tuple[str, ...],
) -> _ChosenNames:
    """The engine values of each chosen name."""
    match spec.kind:
        case FacetKind.PROJECT:
            by_slug = {project.slug: project for project in projects.values()}
            found = {name: by_slug.get(name.lower()) for name in names}
            return _ChosenNames({name: (project.id,) for name, project in found.items() if project})
        case FacetKind.TREE:
            nodes = _visible_terms(engine, project_ids, spec.key, resolve_categories(names, as_projects(project_ids)))
            return _ChosenNames(
                {name: tuple(node.id for node in these) for name, these in nodes.items()},
                {name: " or ".join(" / ".join(node.names) for node in these) for name, these in nodes.items()},
                tuple(node for these in nodes.values() for node in these),
            )
        case FacetKind.IDS:
            resolve = resolve_concepts if spec.key == "concept" else resolve_entities
            terms = _visible_terms(engine, project_ids, spec.key, resolve(names, as_projects(project_ids)))
            return _ChosenNames(
                {name: tuple(term.id for term in these) for name, these in terms.items()},
                {name: these[0].label for name, these in terms.items()},
            )
    if spec.key == "state":
        return _ChosenNames({name: (name.lower(),) for name in names if name.lower() in STATES})
    if spec.key == "tag":
        return _ChosenNames(resolve_tags(engine, names, project_ids))
    forms = {
        name: tuple(map(slug_name, stored_forms(name))) if spec.key == "type" else stored_forms(name) for name in names
    }
    return _ChosenNames(_stored(engine, project_ids, spec.key, forms))


def _resolve_imports(
    engine: Engine, names: Collection[str], viewer: Viewer, zone: tzinfo, revision: DataRevision
) -> _ChosenNames:
    """The imports of each name: that of a number, or all of a followed source, which some visible memory has."""
    project_ids = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    values: dict[str, tuple[Value, ...]] = {}
    labels: dict[str, str] = {}
    for name in names:
        begin, _, number = name.lower().rpartition(":")
        if begin not in ("", "followed") or not number.isdecimal() or len(number) > _MAX_DIGITS:
            continue
        ids = batches_followed(int(number)) if begin else (int(number),)
        own = import_labels(ids, viewer, zone, revision)
        bringing = EngineQuery(project_ids=project_ids, filters=(Filter("import", include=(tuple(sorted(own)),)),))
        if own and (project_ids is None or engine.any_match([bringing])[0]):
            values[name] = tuple(sorted(own))
            labels[name] = followed_label(int(number), viewer) if begin else own[int(number)]
    return _ChosenNames(values, labels)


def resolve_tags(
    engine: Engine, names: Collection[str], project_ids: tuple[int, ...] | None
) -> dict[str, tuple[Value, ...]]:
    """The stored tags of each name; a merged or renamed tag resolves to its present name."""
    tags = {name: tag_spellings(name) for name in names}
    now = tags_now({tag for forms in tags.values() for tag in forms}, as_projects(project_ids))
    return _stored(engine, project_ids, "tag", {name: [now.get(tag, tag) for tag in own] for name, own in tags.items()})


def _stored(
    engine: Engine, project_ids: tuple[int, ...] | None, key: str, forms: Mapping[str, Sequence[str]]
) -> dict[str, tuple[Value, ...]]:
    """The forms of each name that a visible memory has; the first one if there are none."""
    several = {form for own in forms.values() if len(own) > 1 for form in own}
    present = engine.values_present(EngineQuery(project_ids=project_ids), key, sorted(several)) if several else set()
    return {
        name: tuple(dict.fromkeys(form for form in own if form in present)) or tuple(own[:1])
        for name, own in forms.items()
    }


_Named = TypeVar("_Named", CategoryNode, Term)


def _visible_terms(
    engine: Engine, project_ids: tuple[int, ...] | None, key: str, found: Mapping[str, tuple[_Named, ...]]
) -> dict[str, tuple[_Named, ...]]:
    """Terms by name, without those that no memory of the viewer has: their names must not show either."""
    visible = visible_ids(engine, project_ids, key, [term.id for terms in found.values() for term in terms])
    remaining = {name: tuple(term for term in terms if term.id in visible) for name, terms in found.items()}
    return {name: terms for name, terms in remaining.items() if terms}


def _carried(
    engine: Engine, project_ids: tuple[int, ...] | None, key: str, values: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The values that some memory in the projects has, given that it has one of them."""
    if project_ids is None or len(values) == 1:
        return values
    present = engine.values_present(EngineQuery(project_ids=project_ids), key, values)
    return tuple(value for value in values if value in present)


def visible_ids(engine: Engine, project_ids: tuple[int, ...] | None, key: str, ids: Iterable[int]) -> set[int]:
    """The ids that some memory in the projects has, in any state."""
    wanted = sorted(set(ids))
    if project_ids is None:
        return set(wanted)
    return {int(pk) for pk in engine.values_present(EngineQuery(project_ids=project_ids), key, wanted)}


def children_of(engine: Engine, resolved: ResolvedQuery, name: str, warnings: list[SearchWarning]) -> tuple[int, ...]:
    """The children of the visible categories of a name. Adds a warning if there is no such category."""
    nodes = resolve_categories([name], as_projects(resolved.plan.project_ids)).get(name, ())
    parents = visible_ids(engine, resolved.plan.project_ids, "category", [node.id for node in nodes])
    if not parents:
        warnings.append(SearchWarning(f"No category is named “{name}”.", "parent"))
    return tuple(child.id for below in resolved.names.children(parents).values() for child in below)


def explain_unknown(
    resolved: ResolvedQuery, engine: Engine, suspects: Iterable[tuple[str, str]]
) -> list[SearchWarning]:
    """A warning for each chosen name that matches nothing, with similar names.

    Suggestions are values of the viewer's own memories, so that they reveal nothing else.
    """
    visible = EngineQuery(project_ids=resolved.plan.project_ids)
    warnings = []
    for key, name in suspects:
        # Names may contain commas, so a comma separates no values; somebody may have meant it to.
        parts = [part.strip() for part in name.split(",") if part.strip()][:_MAX_PARTS]
        try:
            if len(parts) > 1:
                near = [one for part in parts for one in _near_names(resolved, engine, visible, key, part)[:1]]
            else:
                near = _near_names(resolved, engine, visible, key, name)
        except EngineTimeoutError:
            near = []
        label = FACET[key].label.lower()
        advice = " For several, give each one on its own, not with a comma." if len(parts) > 1 else ""
        warnings.append(SearchWarning(f"No {label} is named “{name}”.{advice}", key, tuple(dict.fromkeys(near))))
    return warnings


def _near_names(resolved: ResolvedQuery, engine: Engine, visible: EngineQuery, key: str, name: str) -> list[str]:
    kind = FACET[key].kind
    if kind == FacetKind.IMPORT:
        return []
    if kind == FacetKind.PROJECT:
        return difflib.get_close_matches(name.lower(), [p.slug for p in resolved.projects.values()], 3, 0.5)
    if key == "state":
        return difflib.get_close_matches(name.lower(), STATES, 3, 0.5)
    if kind in {FacetKind.TREE, FacetKind.IDS}:
        model = Category if kind == FacetKind.TREE else Concept if key == "concept" else Entity
        ids = similar_names(model, name, _SIMILAR if visible.project_ids is None else _SIMILAR_OF_ALL)
        request = FacetRequest(key, only=tuple(ids))
        counted = engine.counts(visible, [request], zone=resolved.zone, now=resolved.now, days=False).facets[key]
        found = {value.value for value in counted.values if value.count}
        return _values_of(key, [pk for pk in ids if pk in found][:3])
    request = FacetRequest(key, limit=2_000)
    counted = engine.counts(visible, [request], zone=resolved.zone, now=resolved.now, days=False).facets[key]
    by_fold = {str(value.value).casefold(): str(value.value) for value in counted.values}
    return [by_fold[near] for near in difflib.get_close_matches(name.casefold(), list(by_fold), 3, 0.6)]


def _values_of(key: str, ids: list[int]) -> list[str]:
    if key == "category":
        nodes = category_nodes(ids)
        return [nodes[pk].path for pk in ids if pk in nodes]
    terms = concept_terms(ids) if key == "concept" else entity_terms(ids)
    return [terms[pk].value for pk in ids if pk in terms]


def not_ready_warning(reason: str) -> SearchWarning:
    """The warning of an answer by words alone. `reason` is that of `EmbedderNotReadyError`."""
    return SearchWarning(f"Search by meaning is not ready: {reason}. Found by words alone.", "mode")


def memory_share(revision: DataRevision, plan: EngineQuery) -> EmbeddedShare:
    """The share of the memories of the searched projects that have a vector; it counts no other project."""
    return memory_progress(revision).share(_searched_projects(plan))


def share_warnings(revision: DataRevision, plan: EngineQuery) -> Iterator[SearchWarning]:
    """A warning if not all memories of the searched projects have a vector."""
    share = memory_share(revision, plan)
    if share.is_complete:
        return
    if not share.embedded:
        yield SearchWarning("No memory has a vector so far. Found by words alone.", "mode")
        return
    yield SearchWarning(f"{share.text} of the memories have a vector so far; more may appear.", "mode")


def _searched_projects(plan: EngineQuery) -> frozenset[int] | None:
    """The projects that the plan may find memories of; None stands for all."""
    visible = None if plan.project_ids is None else frozenset(plan.project_ids)
    chosen = plan.filter("project")
    if chosen is None or not chosen.include:
        return visible
    wanted = frozenset(int(value) for values in chosen.include for value in values)
    return wanted if visible is None else wanted & visible

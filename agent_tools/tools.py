"""The tools of agents: each builds a query, runs it, and renders flat rows. Independent of transports."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from access.keys import ScopeMissingError
from access.viewer import Viewer
from agent_tools.outputs import Shape
from agent_tools.rendering import (
    CellValue,
    OneLine,
    OutputOptions,
    date_cell,
    encode,
    render_rows,
    unified_head,
    unified_row,
)
from agent_tools.workflow import WORKFLOW as WORKFLOW
from categories.local_texts import as_projects, known_terms
from categories.queries import CategoryNode, Term, category_nodes, concept_terms, entity_terms
from explorer.categories.visible_tree import CategoryNotFoundError
from explorer.explore.timeline_api import cut_title, index_row
from explorer.graph.node_page import relationship_detail
from explorer.graph.path_page import PathEndError
from explorer.graph.queries import NameUnknownError
from explorer.memory.batch_api import Batch, batch_of
from memories.history import EventNotFoundError, HistoryEvent, memory_history, rivals_of, superseded_by
from memories.models import Memory, Project
from memories.queries import MemoryDetail, memory_version
from memories.recalls import recalled
from memories.records import SUPERSEDES_REL, MemoryChanges, MemoryId, MemoryRecord, Slug100, StrictMemoryRecord
from memories.refusals import (
    AlreadyExistsError,
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    NoVersionError,
    SuccessorError,
    VersionConflictError,
)
from memories.services import memory_create, memory_link, memory_update, memory_upsert
from search.facets import FACET, FACETS, Facet
from search.near_duplicates import near_duplicates
from search.query import ALIASES, FacetScope, SearchQuery, Sort
from search.result import Hit, HitDetail, SearchResult, SearchWarning
from search.run import run
from search.timeline import TimelineRequest, timeline
from search.unified.service import best_known, unified
from text.formatting import legible, number
from web.errors import ApiError, close_to
from web.params import Pair, Params, QueryError, unknown_parameter
from web.responses import error_of, error_of_input
from web.validation import Problem, field_names

Arguments = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


def read_model(model: type[Model], arguments: Arguments) -> Model:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        raise error_of_input(error, model, below=0) from error


def split_output_options(arguments: Arguments) -> tuple[OutputOptions, Arguments]:
    """Split the output options from the other arguments."""
    own = {key: value for key, value in arguments.items() if key in OutputOptions.model_fields}
    return read_model(OutputOptions, own), {
        key: value for key, value in arguments.items() if key not in OutputOptions.model_fields
    }


def pairs_of_arguments(arguments: Arguments) -> list[tuple[str, str]]:
    """Arguments as the pairs of a query string, so that they mean the same for every interface."""
    pairs: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for key, value in arguments.items():
        for item in items_of(value):
            if isinstance(item, bool):
                pairs.append((key, "1" if item else "0"))
            elif isinstance(item, str | int | float):
                pairs.append((key, str(item)))
            else:
                problems.append(Problem(legible(key), "is not a text, a number, a boolean or a list of these"))
    if problems:
        raise QueryError(problems)
    return pairs


def items_of(value: Any) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        # Some clients send lists as strings.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            yield value
            return
    yield from value if isinstance(value, list) else [value]


INDEX_SIZE = 20
# The number of values listed for a facet; a note tells if there are more.
FACET_VALUES = 10
COUNTED_VALUES = 50
# Characters of a value before and after a change.
_VALUE_LENGTH = 200
_NAMED_SHOWN = 5
FACETS_ARGUMENT = "facets"
# The facets that may be counted: by their names, and the dates.
DATES = "date"
COUNTABLE = {
    **{name: spec.key for spec in FACETS for name in (spec.key, spec.api_name)},
    DATES: DATES,
    "date_buckets": DATES,
}
# The facets of `retrieve_memory`, as its specification names them.
_COUNTED_FACETS = ("type", "tag", DATES)
_SWITCHES = {"0", "1", "true", "false", "yes", "no", "on", "off"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `properties` are the arguments of its schema; it also accepts the other names of its `inputs`.

    `output` is the shape of its replies as data.
    """

    name: str
    description: str
    run: Callable[[Arguments, Viewer], str]
    output: Shape
    properties: Mapping[str, Any]
    inputs: tuple[type[BaseModel], ...] = ()
    required: tuple[str, ...] = ()
    scope: str = "read"
    destructive: bool = False
    idempotent: bool = True
    # Whether an empty value is one, which clears a field; elsewhere it is as if it were not given.
    clears: bool = False

    def given(self, arguments: Arguments) -> Arguments:
        """The arguments that say something: clients send null, or something empty, for what they leave out."""
        read = {key: _without_fraction(value) for key, value in arguments.items() if value is not None}
        return read if self.clears else {key: value for key, value in read.items() if value not in ("", [])}

    @property
    def title(self) -> str:
        """The name as people read it."""
        return self.name.strip("_").replace("_", " ").capitalize()

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        if not (self.further or SearchQuery in self.inputs):
            # Closed only if it lists all that it takes: some clients send nothing that a closed schema does not have.
            schema["additionalProperties"] = False
        return schema

    @property
    def further(self) -> list[str]:
        """The arguments that it takes and its schema leaves out."""
        names = [name for model in self.inputs for name in _shown_names(model)]
        # Such as `limit`, which stands for `page_size`.
        listed = {*self.properties, *(SearchQuery.aliases.get(name, name) for name in self.properties)}
        return [name for name in dict.fromkeys(names) if name not in listed]

    @property
    def usage(self) -> str:
        """The arguments, as an error lists them."""
        names = [*self.properties, *self.further]
        return f"{self.name} takes: {', '.join(names)}." if names else f"{self.name} takes no arguments."

    def check_names(self, given: Iterable[str]) -> None:
        """Raise QueryError, naming every argument that the tool does not accept."""
        accepted = {*self.properties, *(name for model in self.inputs for name in names_of(model))}
        # Spellings in camel case are only for programs that send them.
        known = [name for name in accepted if name in self.properties or name.islower()]
        unknown = [unknown_parameter(name, known) for name in given if name not in accepted]
        if unknown:
            raise QueryError([replace(problem, suggestion=self.usage) for problem in unknown])

    @property
    def reads_only(self) -> bool:
        return self.scope == "read"


# The parameters of a search that filter; others sort, page and count.
_FILTERS = (
    *(spec.key for spec in FACETS),
    *("from", "to", "since", "updated_since", "recalled_since", "as_of", "has", "no", "match_all"),
)


def _shown_names(model: type[BaseModel]) -> Iterable[str]:
    """The arguments that a model adds to a tool, each by one name."""
    if model is SearchQuery:
        return _FILTERS
    if issubclass(model, Params):
        return [parameter["name"] for parameter in model.openapi_parameters()]
    names = [field.alias or name for name, field in model.model_fields.items()]
    # The id of a record is the one in the system it came from, and that of a tool the number of a memory.
    return ["external_id" if name == "id" and issubclass(model, MemoryRecord) else name for name in names]


def _without_fraction(value: Any) -> Any:
    """A value with whole numbers as such: JSON does not distinguish 10.0 from 10."""
    if isinstance(value, list):
        return [_without_fraction(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ToolRefusedError(Exception):
    """A call that fails. The message tells the model what is wrong, and what to do next."""


def call(tool: Tool, arguments: Arguments, viewer: Viewer) -> str:
    """Run a tool. Every error becomes a ToolRefusedError."""
    try:
        # The workflow needs no scope: it reveals no data.
        if tool.scope not in viewer.scopes and tool.run is not important:
            raise ScopeMissingError(
                f"{tool.name} needs the scope {tool.scope}; yours: {', '.join(sorted(viewer.scopes)) or 'none'}."
            )
        tool.check_names(arguments)
        return tool.run(_with_plain_ids(tool, tool.given(arguments), viewer), viewer)
    except Exception as error:
        raise ToolRefusedError(_explained(error, tool)) from error


# The ids of what is no memory, as unified results have them.
_KIND_AND_ID = re.compile(r"(memory|entity|concept|category|relationship):(\d{1,18})")
_TERMS: dict[str, Callable[[Collection[int]], Mapping[int, CategoryNode | Term]]] = {
    "category": category_nodes,
    "concept": concept_terms,
    "entity": entity_terms,
}
_OF_MEMORIES = {"id", "ids", "anchor", "target", "evidence"}
_OF_TERMS = {"to", "term", "other", "target", "parent", "sources"}
_BEHIND = 5


def _with_plain_ids(tool: Tool, arguments: Arguments, viewer: Viewer) -> Arguments:
    """The arguments with the ids of results as each of them takes it: in a filter or a record, the term; where memories
    are read, the newest memories that carry the term or support the fact.
    """

    def plain(key: str, item: Any) -> list[Any]:
        found = _KIND_AND_ID.fullmatch(item.strip()) if isinstance(item, str) else None
        if found is None:
            return [item]
        kind, number_of = found[1], int(found[2])
        name = ALIASES.get(key, key).lstrip("-")
        if kind == name and kind in _TERMS:
            term = _term_of(kind, number_of, viewer)
            is_of_record = kind == "entity" and tool.scope == "write"
            return [{"name": term.label, "type": term.type} if is_of_record else term.value]
        if kind == name or (name in _OF_TERMS and tool.scope == "curate") or (name == "to" and kind in FACET):
            return [str(number_of)]
        if name not in _OF_MEMORIES or (kind != "memory" and not tool.reads_only):
            return [item]
        return [number_of] if kind == "memory" else _memories_behind(kind, number_of, viewer)

    changed: Arguments = {}
    for key, value in arguments.items():
        items = list(items_of(value))
        if any(isinstance(item, str) and _KIND_AND_ID.fullmatch(item.strip()) for item in items):
            found = [one for item in items for one in plain(key, item)]
            changed[key] = found if isinstance(value, list) or key == "ids" else found[0]
    return {**arguments, **changed}


def _term_of(kind: str, number_of: int, viewer: Viewer) -> Term:
    """The term of an id. Its number alone may be the name of another one."""
    found = _TERMS[kind](known_terms(kind, [number_of], as_projects(viewer.project_ids))).get(number_of)
    if found is None:
        raise ApiError(404, "not_found", f"There is no {kind}:{number_of} that you can see.")
    return Term(found.id, found.path, found.path) if isinstance(found, CategoryNode) else found


def _memories_behind(kind: str, number_of: int, viewer: Viewer) -> list[int]:
    """The best evidence of a fact, or the newest memories that carry a term."""
    if kind == "relationship":
        detail = relationship_detail(number_of, viewer)
        ids = [hit.id for hit in detail.evidence[:_BEHIND]] if detail else []
    else:
        carrying: dict[str, Any] = {kind: (str(number_of),), "page_size": _BEHIND}
        hits = run(SearchQuery(**carrying), viewer, include_facets=False, detail=HitDetail.INDEX).hits
        ids = [hit.id for hit in hits]
    if not ids:
        raise ApiError(404, "not_found", f"No memory that you can see stands behind {kind}:{number_of}.")
    return ids


def _explained(error: Exception, tool: Tool) -> str:
    failure = error_of(error)
    suggestion = failure.suggestion
    match error:
        case MemoryNotFoundError():
            suggestion = "Take ids from search; do not guess them."
        case CategoryNotFoundError():
            suggestion = "Try using list_categories to see available categories."
        case NameUnknownError():
            suggestion = f"Look for it: list_values(facet={error.kind.key}, search=…)."
        case PathEndError(cause=NameUnknownError()):
            suggestion = "Look for it: list_values(facet=entity, search=…)."
        case EventNotFoundError():
            suggestion = "The events are in history(id=…)."
        case AlreadyExistsError():
            suggestion = f"Change the existing memory: update_memory(id={error.memory_id}, …)."
        case SuccessorError():
            suggestion = (
                f"Work with #{error.successor_id}. If the user wants #{error.memory_id} back all the same, call"
                " restore again with despite_successor=true."
            )
        case VersionConflictError():
            suggestion = (
                f"Read it again with get_observations(ids=[{error.memory_id}]), put your change to what is there now,"
                f" and send if_match={error.version}."
            )
        case NoVersionError():
            suggestion = "Leave out if_match to store it as a new memory."
        case ScopeMissingError() | NotAllowedError():
            suggestion = "Tell the user that this key lacks permission; another key may have it."
        case ApiError() | ChangeRefusedError():
            suggestion = tool.usage
    near = f" Did you mean {' or '.join(failure.did_you_mean)}?" if failure.did_you_mean else ""
    detail = failure.detail if failure.detail.endswith(".") else f"{failure.detail}."
    return f"{detail}{near} {suggestion}".strip()


def names_of(model: type[BaseModel]) -> frozenset[str]:
    """Every name under which a field of a request may be given."""
    if issubclass(model, Params):
        return model.names()
    return frozenset((*field_names(model), *(field.alias for field in model.model_fields.values() if field.alias)))


# --- reading arguments -------------------------------------------------------------------------------------------


def _query(arguments: Arguments, size: int) -> SearchQuery:
    pairs = pairs_of_arguments(arguments)
    if not {"limit", "page_size"} & {key for key, _ in pairs}:
        pairs.append(("page_size", str(size)))
    return count_results(SearchQuery.from_pairs(pairs), pairs)


def count_results(query: SearchQuery, pairs: Iterable[Pair]) -> SearchQuery:
    """With facets that count the results, unless the pairs say otherwise: what each choice would give is for a page."""
    return query if "facet_scope" in dict(pairs) else query.replace(facet_scope=FacetScope.RESULTS)


def _split_facets(arguments: Arguments, usual: Iterable[str]) -> tuple[Sequence[str], Arguments]:
    """The facets to count, and the arguments with a switch in place of their list. Raises QueryError."""
    rest = {key: value for key, value in arguments.items() if key != FACETS_ARGUMENT}
    name = next((key for key in rest if ALIASES.get(key, key) == "include_facets"), "include_facets")
    # Both take a list, since programs may send one where the schema has a switch.
    given = arguments.get(FACETS_ARGUMENT) or arguments.get(name)
    named = [str(item).strip() for item in items_of(given)]
    if len(named) <= 1 and {one.lower() for one in named} <= _SWITCHES:
        return tuple(usual), rest
    if wrong := [one for one in named if one not in COUNTABLE]:
        where = FACETS_ARGUMENT if arguments.get(FACETS_ARGUMENT) else name
        what = f"{legible(wrong[0], 60)!r} is neither true, false nor a facet"
        keys = list(dict.fromkeys(COUNTABLE.values()))
        near = close_to(wrong[0], COUNTABLE)
        raise QueryError([Problem(where, what, f"write true, or a list of {', '.join(keys)}", near)])
    return [COUNTABLE[one] for one in named], {**rest, name: True}


# --- tools -------------------------------------------------------------------------------------------------------


def important(arguments: Arguments, viewer: Viewer) -> str:
    return WORKFLOW


def search(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    facets, rest = _split_facets(rest, (*FACET, DATES))
    query = _query(rest, INDEX_SIZE)
    if query.is_unified:
        found = unified(query, viewer, facet_limit=FACET_VALUES)
        recalled(viewer, [hit.id for hit in found.answer.hits])
        head = _page(found.answer, facets) | unified_head(found)
        return render_rows(head, "results", [unified_row(hit) for hit in found.hits], options, _next_page(query))
    result = run(query, viewer, facet_limit=FACET_VALUES, detail=HitDetail.INDEX)
    recalled(viewer, [hit.id for hit in result.hits])
    head = _known_line(result, viewer) | _page(result, facets)
    return render_rows(head, "memories", index_rows(result.hits, query.order), options, _next_page(query))


def timeline_of(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    request, query = TimelineRequest.with_query(pairs_of_arguments(rest))
    found = timeline(request, query, viewer)
    head: dict[str, Any] = {"earlier": found.earlier, "later": found.later}
    head |= warning_lines(found.warnings)
    hits = (*found.before, *filter(None, (found.anchor,)), *found.after)
    rows: list[dict[str, Any]] = [{"at": at, **row} for at, row in enumerate(index_rows(hits), -len(found.before))]
    # The nearest first, so that truncation drops the furthest.
    rows.sort(key=lambda row: (abs(row["at"]), row["at"]))
    return render_rows(
        head, "memories", rows, options, lambda n: "raise it, or ask for less depth", lambda row: row["at"]
    )


def get_observations(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    if "ids" in rest:
        rest["ids"] = list(items_of(rest["ids"]))
    batch = read_model(Batch, rest)
    found, missing, left_out = batch_of(batch, viewer)
    head: dict[str, Any] = {"total": len(found)}
    if missing:
        head["missing"] = f"{_ids(missing)}: no such memory that you can see{' in the project' * bool(batch.project)}"
    if left_out:
        head["past_limit"] = _ids(left_out)
    rows = [_whole(detail) for detail in found]
    ids = [detail.memory.pk for detail in found]
    return render_rows(head, "memories", rows, options, lambda n: f"then ask for ids={ids[n:]}")


def retrieve_memory(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    facets, rest = _split_facets(rest, _COUNTED_FACETS)
    query = _query(rest, 10)
    if query.is_unified:
        wrong = "unified finds more than memories, and retrieve_memory returns memories alone"
        raise QueryError([Problem("mode", wrong, 'call search(mode="unified", …), or leave mode out here')])
    result = run(query, viewer, facet_limit=COUNTED_VALUES, detail=HitDetail.INDEX)
    found, _, _ = batch_of(Batch(ids=[hit.id for hit in result.hits]), viewer) if result.hits else ([], [], [])
    rows = [_whole(detail) for detail in found]
    head = _known_line(result, viewer) | _page(result, facets)
    return render_rows(head, "memories", rows, options, _next_page(query))


def store_memory(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    version = read_model(VersionRef, {"if_match": given.pop("if_match", "")}).if_match
    record = read_model(StrictMemoryRecord, given)
    if record.id:
        memory, is_new = memory_upsert(record=record, viewer=viewer, if_version=version)
    elif version:
        raise QueryError([Problem("if_match", "goes with external_id", "or call update_memory(id=…, if_match=…)")])
    else:
        memory, is_new = memory_create(record=record, viewer=viewer), True
    near = near_duplicates(memory, viewer)
    alike = [
        f"#{one.id} {cut_title(one.title)} ({one.project}, {one.state}): {one.similarity:.2f} by {one.by}"
        for one in near.memories
    ]
    more: dict[str, Any] = {"near_duplicates": alike} if alike else {}
    if near.reason:
        more["near_duplicates_note"] = f"not looked for by meaning: {near.reason}"
    done = "stored" if is_new else "replaced the memory with this external_id"
    return written(memory, done, **_first_of_project(memory, viewer), **_supersedes(memory, viewer), **more)


def _first_of_project(memory: Memory, viewer: Viewer) -> dict[str, str]:
    """A note if the project has no other memory: its name may be a mistake, since storing makes the project."""
    if Memory.objects.filter(project_id=memory.project_id).exclude(pk=memory.pk).exists():
        return {}
    others = Project.objects.exclude(pk=memory.project_id)
    if viewer.project_ids is not None:
        others = others.filter(pk__in=viewer.project_ids)
    slug = memory.project.slug
    near = close_to(slug, others.values_list("slug", flat=True)) if "read" in viewer.scopes else ()
    meant = f"; if you meant {' or '.join(near)}, store it there and delete this one" if near else ""
    return {"project_note": f"this is the first memory of {slug}{meant}"}


def _supersedes(memory: Memory, viewer: Viewer) -> dict[str, list[str]]:
    """The memories that it replaces, with what replaced them before."""
    replaced = superseded_by(memory.pk, viewer)
    lines = [
        f"#{one.memory.id} {cut_title(one.memory.title)}"
        + (f" (until now superseded by #{one.instead_of})" if one.instead_of else "")
        for one in replaced[:_NAMED_SHOWN]
    ]
    if len(replaced) > _NAMED_SHOWN:
        lines.append(f"and {len(replaced) - _NAMED_SHOWN} more")
    rivals = [
        f"#{one.id} {cut_title(one.title)} superseded the same memory and is still {one.state}; if this replaces it"
        f" too: {call_text('relate', id=memory.pk, target=one.id, rel=SUPERSEDES_REL)}"
        for one in rivals_of(replaced, viewer)
    ]
    return ({"supersedes": lines} if lines else {}) | ({"also_active": rivals} if rivals else {})


def update_memory(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    named = read_model(MemoryRef, {key: given.pop(key) for key in MemoryRef.model_fields if key in given})
    if not given:
        raise QueryError(
            [Problem("", "nothing to change is given", "name the fields to change, such as tags or content")]
        )
    changes = read_model(MemoryChanges, given)
    before = _last_event(named.id, viewer)
    memory = memory_update(
        memory_id=named.id, changes=changes, viewer=viewer, reason=named.reason, if_version=named.if_match
    )
    last = _last_event(named.id, viewer)
    older = _supersedes(memory, viewer) if changes.supersedes or changes.links else {}
    if last is None or before is None:
        return written(memory, "updated")
    return written(memory, "updated", changed=changes_text(last) if last.id != before.id else "nothing", **older)


def relate(arguments: Arguments, viewer: Viewer) -> str:
    link = read_model(MemoryLinkRequest, arguments)
    memory = memory_link(memory_id=link.id, target_id=link.target, rel=link.rel, viewer=viewer)
    return written(
        memory, f"{link.rel} #{link.target}", **_supersedes(memory, viewer) if link.rel == SUPERSEDES_REL else {}
    )


# --- from results to rows ----------------------------------------------------------------------------------------


class VersionRef(BaseModel):
    """The version that a memory must have to be changed; any if it is empty."""

    if_match: Annotated[str, Field(max_length=100)] = ""


class MemoryRef(VersionRef):
    """The memory to change, and the reason."""

    id: MemoryId
    reason: Annotated[str, Field(max_length=1_000)] = ""


class MemoryLinkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: MemoryId
    target: MemoryId
    rel: Slug100 = "relates-to"


def index_rows(hits: Iterable[Hit], order: Sort = Sort.NEWEST) -> list[dict[str, CellValue]]:
    """Rows of an index, with the date that orders them. The state has a column only if some memory is not active."""
    listed = list(hits)
    rows = [index_cells(hit, order) for hit in listed]
    if all(hit.state == Memory.State.ACTIVE for hit in listed):
        return rows
    return [row | {"state": hit.state} for row, hit in zip(rows, listed, strict=True)]


def index_cells(hit: Hit, order: Sort = Sort.NEWEST) -> dict[str, CellValue]:
    row = index_row(hit)
    date = {"updated": date_cell(hit.updated_at)} if order is Sort.UPDATED else {"date": date_cell(row.created_at)}
    return {
        "id": row.id,
        "title": row.title,
        **date,
        "type": row.memory_type,
        "project": row.project,
    }


def _whole(detail: MemoryDetail) -> dict[str, CellValue]:
    """A whole memory."""
    memory = detail.memory
    return {
        "id": memory.pk,
        "title": memory.title,
        "date": f"{memory.created_at:%Y-%m-%dT%H:%M}",
        "type": memory.memory_type,
        "project": memory.project.slug,
        "state": memory.state,
        "version": memory_version(memory),
        "superseded_by": detail.superseded_by.id if detail.superseded_by else None,
        "tags": list(memory.tags),
        "categories": [node.path for node in detail.categories],
        "concepts": [term.label for term in detail.concepts],
        "entities": [term.value for term in detail.entities],
        "authors": list(memory.authors),
        "agent": memory.agent,
        "source": memory.source_uri or memory.source,
        "links": [f"{x.rel} {f'#{x.memory.id}' if x.memory else x.target}" for x in detail.links],
        "summary": memory.summary,
        "content": memory.content,
    }


def joined(values: Iterable[str]) -> str:
    return ", ".join(values)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _known_line(result: SearchResult, viewer: Viewer) -> dict[str, str]:
    """The fact or term that fits the text best, and the call that finds more of its kind."""
    hit = best_known(result, viewer)
    if hit is None:
        return {}
    row = unified_row(hit)
    what = " – ".join(dict.fromkeys(filter(None, (str(row["title"]), str(row["text"])))))
    more = call_text("search", **asked_of(result.query) | {"mode": "unified"})
    return {"known": f"{row['id']} {what}; {row['see']}; more: {more}"}


def _page(result: SearchResult, facets: Collection[str]) -> dict[str, Any]:
    """The head of a page: its place, the filters applied, warnings and facets."""
    head: dict[str, Any] = {
        "page": result.page,
        "page_size": result.page_size,
        "total": result.total,
        "has_more": result.has_more,
        **filters_line(result.query),
    }
    if result.named:
        head["named"] = [
            f"{term.count} {'carries' if term.count == 1 else 'carry'} {term.text}: {term.facet}={term.value}"
            for term in result.named[:_NAMED_SHOWN]
        ]
    head |= hidden_line(result)
    head |= warning_lines(result.warnings)
    if result.relaxations:
        head["relaxations"] = OneLine({f"without {one.label}": one.count for one in result.relaxations})
    return head | (_counts(result, facets) if result.facets is not None else {})


def hidden_line(result: SearchResult) -> dict[str, Any]:
    """How many memories match in the states that a search leaves out, if any."""
    if not result.hidden:
        return {}
    more = number(result.hidden, at_least=result.hidden_at_least)
    match = "matches" if more == "1" else "match"
    return {"hidden": f'{more} more {match} in other states: state=["archived", "superseded"] to see'}


def warning_lines(warnings: Iterable[SearchWarning]) -> dict[str, Any]:
    messages = [" ".join(filter(None, (warning.message, _did_you_mean(warning)))) for warning in warnings]
    return {"warnings": messages} if messages else {}


def _did_you_mean(warning: SearchWarning) -> str:
    # With its filter's name, since a bare value would be searched as text.
    of = f"{warning.parameter}=" if warning.parameter in FACET else ""
    return f"Did you mean {' or '.join(of + name for name in warning.did_you_mean)}?" if warning.did_you_mean else ""


def _counts(result: SearchResult, wanted: Collection[str]) -> dict[str, Any]:
    """The facets that have values, the largest values first, and how to get what is not listed."""
    if not result.total and result.query.facet_scope is FacetScope.RESULTS:
        return {"facets": {}}
    counts: dict[str, OneLine] = {}
    notes: list[str] = []
    cut: list[Facet] = []
    for facet in result.facets or ():
        if facet.key not in wanted or not (facet.values or facet.unavailable):
            continue
        if facet.unavailable:
            notes.append(f"{facet.spec.api_name}: {facet.unavailable}")
            continue
        ranked = sorted(facet.values, key=lambda v: (-v.count, v.label))
        counts[facet.spec.api_name] = OneLine({v.value: v.count for v in ranked if v.count or v.selected or v.excluded})
        if facet.has_more:
            cut.append(facet)
    if result.date_buckets is not None and DATES in wanted:
        counts["date_buckets"] = OneLine(result.date_buckets.by_name())
    if cut:
        largest = ", ".join(f"{len(facet.values)} largest of {facet.distinct:,} {facet.spec.api_name}" for facet in cut)
        notes.append(f"{largest}; the rest: {call_text('list_values', facet=cut[0].key, **asked_of(result.query))}")
    head = {"facets": counts} | ({"facet_notes": notes} if notes else {})
    return scope_line(result.query, wanted) | head


def scope_line(query: SearchQuery, keys: Iterable[str]) -> dict[str, str]:
    """A note on the counts of facets with a selection; elsewhere both ways count the same."""
    if not any(key in FACET and query.selection(key).restricts for key in keys):
        return {}
    if query.facet_scope is FacetScope.RESULTS:
        return {"facet_scope": "results (choices: what each value would give in place of those selected)"}
    return {"facet_scope": "choices (results: the memories that match)"}


def asked_of(query: SearchQuery) -> dict[str, Any]:
    """The text and the filters of a query, as arguments of a tool."""
    paging = {"sort", "page", "page_size", "offset", "include_facets", "facet_scope", "bucket"}
    asked = {key: value for key, value in query.applied().items() if key not in paging}
    return ({"query": asked.pop("q")} if "q" in asked else {}) | asked


def call_text(name: str, **arguments: Any) -> str:
    """A call of a tool as text, to be made as it is."""
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in arguments.items())})"


def filters_line(query: SearchQuery) -> dict[str, Any]:
    """The query as it was understood."""
    applied = {key: value for key, value in query.applied().items() if key != "facet_scope"}
    return {"filters": OneLine(applied)} if applied else {}


def _next_page(query: SearchQuery) -> Callable[[int], str]:
    def advice(count: int) -> str:
        if not count:
            return "raise it, or ask for a smaller limit"
        in_place = " in place of page" if query.page > 1 else ""
        return f"raise it, or continue with offset={query.begin + count}{in_place}"

    return advice


def written(memory: Memory, done: str, **more: Any) -> str:
    """The reply to a write: the memory, where it is, and what differs from before."""
    row = {"id": memory.pk, "done": done, "title": memory.title, "project": memory.project.slug, "state": memory.state}
    row["version"] = memory_version(memory)
    return encode({**row, **more}, "toon")


def changes_text(event: HistoryEvent) -> str:
    """The fields that an event changed, with their values before and after, each cut."""
    changes = [one for one in event.changes if one.field != "updated_at"]
    return "; ".join(f"{one.field}: {_value(one.before)} → {_value(one.after)}" for one in changes)


def _value(value: Any) -> str:
    text = " ".join((joined(map(str, value)) if isinstance(value, list) else str(value or "")).split()) or "nothing"
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"


def _last_event(memory_id: int, viewer: Viewer) -> HistoryEvent | None:
    """The last event of a memory, for a viewer who may read it."""
    found = memory_history(viewer, memory_id, limit=1) if "read" in viewer.scopes else None
    return found.events[0] if found and found.events else None

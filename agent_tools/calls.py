"""A call of a tool: what a tool is, how its arguments are read, and how an error is explained to the model."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from access.keys import ScopeMissingError
from access.viewer import Viewer
from agent_tools.cautions import with_caution
from agent_tools.rendering import DATES, OutputOptions
from categories.kinds import VOCABULARIES, VocabularyRow
from categories.texts import as_projects, known_terms
from explorer.categories.visible_tree import CategoryNotFoundError
from explorer.graph.neighbourhood import relationship_detail
from explorer.graph.path_page import PathEndError
from explorer.graph.queries import NameUnknownError
from memories.records import MemoryRecord
from memories.refusals import (
    AlreadyExistsError,
    ChangeRefusedError,
    EventNotFoundError,
    MemoryNotFoundError,
    NotAllowedError,
    NoVersionError,
    SuccessorError,
    VersionConflictError,
)
from search.facets import FACET, FACETS
from search.query import ALIASES, FacetScope, SearchQuery
from search.result import HitDetail
from search.run import run
from text.formatting import legible
from web.errors import ApiError, close_to
from web.params import Pair, Params, QueryError, unknown_parameter
from web.responses import error_of, error_of_input
from web.validation import Problem, field_names


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


# The ids of what is no memory, as unified results have them.
_KIND_AND_ID = re.compile(r"(memory|entity|concept|category|relationship):(\d{1,18})")
_OF_MEMORIES = {"id", "ids", "anchor", "target", "evidence"}
_OF_TERMS = {"to", "term", "other", "target", "parent", "sources"}
_BEHIND = 5


def replace_ids_of_results(arguments: dict[str, Any], viewer: Viewer, scope: str) -> dict[str, Any]:
    """The arguments with the ids of results as each of them takes it: in a filter or a record, the term; where memories
    are read, the newest memories that carry the term or support the fact.
    """

    def plain(key: str, item: Any) -> list[Any]:
        found = _KIND_AND_ID.fullmatch(item.strip()) if isinstance(item, str) else None
        if found is None:
            return [item]
        kind, number_of = found[1], int(found[2])
        name = ALIASES.get(key, key).lstrip("-")
        if kind == name and kind in VOCABULARIES:
            term = _term_of(kind, number_of, viewer)
            is_of_record = kind == "entity" and scope == "write"
            return [{"name": term.label, "type": term.type} if is_of_record else term.value]
        if kind == name or (name in _OF_TERMS and scope == "curate") or (name == "to" and kind in FACET):
            return [str(number_of)]
        if name not in _OF_MEMORIES or (kind != "memory" and scope not in ("", "read")):
            return [item]
        return [number_of] if kind == "memory" else _memories_behind(kind, number_of, viewer)

    changed: dict[str, Any] = {}
    for key, value in arguments.items():
        items = list(items_of(value))
        if any(isinstance(item, str) and _KIND_AND_ID.fullmatch(item.strip()) for item in items):
            found = [one for item in items for one in plain(key, item)]
            changed[key] = found if isinstance(value, list) or key == "ids" else found[0]
    return {**arguments, **changed}


def _term_of(kind: str, number_of: int, viewer: Viewer) -> VocabularyRow:
    """The term of an id. Its number alone may be the name of another one."""
    found = VOCABULARIES[kind].terms(known_terms(kind, [number_of], as_projects(viewer.project_ids))).get(number_of)
    if found is None:
        raise ApiError(404, "not_found", f"There is no {kind}:{number_of} that you can see.")
    return found


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


Arguments = dict[str, Any]
Shape = dict[str, dict[str, Any]]
"""The fields of a reply as data, each with its schema."""
FACETS_ARGUMENT = "facets"
# The facets that may be counted: by their names, and the dates.
COUNTABLE = {
    **{name: spec.key for spec in FACETS for name in (spec.key, spec.api_name)},
    DATES: DATES,
    "date_buckets": DATES,
}
_SWITCHES = {"0", "1", "true", "false", "yes", "no", "on", "off"}
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


def wrong_argument(name: str, what: str, suggestion: str) -> QueryError:
    """The error of one argument."""
    return QueryError([Problem(name, what, suggestion)])


def with_size(pairs: list[Pair], size: int) -> list[Pair]:
    """The pairs with a size of pages, unless they have one."""
    return pairs if {"limit", "page_size"} & {key for key, _ in pairs} else [*pairs, ("page_size", str(size))]


def query_of(arguments: Arguments, size: int) -> SearchQuery:
    pairs = with_size(pairs_of_arguments(arguments), size)
    return count_results(SearchQuery.from_pairs(pairs), pairs)


def count_results(query: SearchQuery, pairs: Iterable[Pair]) -> SearchQuery:
    """With facets that count the results, unless the pairs say otherwise: what each choice would give is for a page."""
    return query if "facet_scope" in dict(pairs) else query.replace(facet_scope=FacetScope.RESULTS)


def split_facets(arguments: Arguments, usual: Iterable[str]) -> tuple[Sequence[str], Arguments]:
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


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `properties` are the arguments of its schema; it also accepts the other names of its `inputs`.

    `output` is the shape of its replies as data. `scope` is empty for a tool that reveals nothing.
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
        return self.scope in ("", "read")


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
        if tool.scope and tool.scope not in viewer.scopes:
            raise ScopeMissingError(
                f"{tool.name} needs the scope {tool.scope}; yours: {', '.join(sorted(viewer.scopes)) or 'none'}."
            )
        tool.check_names(arguments)
        return with_caution(tool.run(replace_ids_of_results(tool.given(arguments), viewer, tool.scope), viewer))
    except Exception as error:
        raise ToolRefusedError(_explained(error, tool)) from error


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

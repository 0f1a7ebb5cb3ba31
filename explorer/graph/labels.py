"""Parameters, links, notices and evidence shared by the graph pages. No database and no request."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from django.urls import reverse
from pydantic import BeforeValidator, Field

from categories.queries import Term
from explorer.explore.page import Notice, did_you_mean_text
from explorer.graph.queries import KINDS, NodeKind
from explorer.links import Link, explore_url, node_url, relationship_url
from search.query import SearchQuery
from search.result import SearchWarning
from search.unified.rows import StoredRelationship
from text.formatting import day_text
from web.params import MAX_PAGE, MAX_VALUES, Params, Required, Text, Value, sorted_values

# The value of `rel` for links by a shared memory; other links are named by their type.
SAME_MEMORY = "same-memory"
MOST_STEPS = 8

Names = Annotated[tuple[Annotated[Text, Field(max_length=200)], ...], BeforeValidator(sorted_values)]
_END = Required("write type:name, a name or an id")


class TableSort(StrEnum):
    """A column of the table, ascending; with a minus descending."""

    NAME = "name"
    TYPE = "type"
    LINKS = "links"
    MEMORIES = "memories"
    FIRST = "first"
    LAST = "last"
    NAME_DOWN = "-name"
    TYPE_DOWN = "-type"
    LINKS_DOWN = "-links"
    MEMORIES_DOWN = "-memories"
    FIRST_DOWN = "-first"
    LAST_DOWN = "-last"

    @property
    def column(self) -> str:
        return self.value.removeprefix("-")

    @property
    def is_down(self) -> bool:
        return self.value.startswith("-")


class TableRequest(Params):
    """Which entities or concepts a table lists, and their order."""

    search: Text = Field("", max_length=200, description="A part of a name or of an alias.")
    type: Names = Field((), max_length=MAX_VALUES, description="A type; repeat it for any of several.")
    sort: TableSort = Field(TableSort.MEMORIES_DOWN, description="A column; with a minus in descending order.")
    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(50, ge=1, le=200)


class AroundRequest(Params):
    """Which part of a neighbourhood is shown."""

    depth: int = Field(1, ge=1, le=2, description="2: also the neighbours of the strongest neighbours.")
    rel: Names = Field(
        (),
        max_length=MAX_VALUES,
        description=f"A type of relationship, or `{SAME_MEMORY}`: linked because a memory mentions both.",
    )
    least: int = Field(0, ge=0, le=1_000_000, alias="min", description="Minimum number of supporting memories.")


class PathRequest(Params):
    """The two ends of a path and its greatest length. The page of the first end has a form for the others."""

    begin: Annotated[Value, _END] = Field("", alias="from", description="`type:name`, name, alias or id of an entity.")
    end: Annotated[Value, _END] = Field("", alias="to", description="`type:name`, name, alias or id of another one.")
    steps: int = Field(6, ge=1, le=MOST_STEPS, description="Maximum number of links.")
    together: bool = Field(False, description="Whether entities mentioned in the same memory are linked too.")


def table_url(kind: NodeKind, params: TableRequest | None = None) -> str:
    return _with(reverse(f"graph:{kind.plural}"), params)


def path_url(start: Term, params: PathRequest) -> str:
    """The page of an entity, with the path from there."""
    return f"{_with(node_url('entity', start.id, start.value), params.replace(begin=''))}#path"


def term_url(kind: NodeKind, term: Term, params: AroundRequest | None = None) -> str:
    return _with(node_url(kind.key, term.id, term.value), params)


def _with(address: str, params: Params | None) -> str:
    query = params.querystring() if params else ""
    return f"{address}?{query}" if query else address


def both_url(kind: NodeKind, one: Term, other: Term) -> str:
    """The explore page filtered by the memories that name both."""
    query = SearchQuery().with_(**{kind.key: tuple(sorted((one.value, other.value))), f"{kind.key}_all": True})
    return explore_url(query)


def graph_tabs(kind: NodeKind | None) -> tuple[Link, ...]:
    """The tabs of the graph pages."""
    return tuple(Link(one.plural.capitalize(), table_url(one), current=one is kind) for one in KINDS.values())


def warning_notices(warnings: Iterable[SearchWarning]) -> tuple[Notice, ...]:
    return tuple(Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean)) for warning in warnings)


def toggled(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The selection with a name added, or removed if it was selected."""
    return tuple(one for one in chosen if one != name) if name in chosen else tuple(sorted((*chosen, name)))


def names_or_name(count: int) -> str:
    return "mentions" if count == 1 else "mention"


def relationship_notes(record: StoredRelationship) -> tuple[str, ...]:
    """Confidence and validity dates, in words."""
    sure = "" if record.confidence is None else f"{record.confidence:.0%} confidence"
    since = f"since {day_text(record.valid_from.date())}" if record.valid_from else ""
    until = f"until {day_text(record.valid_to.date())}" if record.valid_to else ""
    return tuple(part for part in (sure, since, until) if part)


def evidence_link(record: StoredRelationship) -> Link:
    count = len(record.evidence)
    label = f"{count:,} supporting {'memory' if count == 1 else 'memories'}" if count else "no supporting memory"
    return Link(label, relationship_url(record.id), f"{record.title}: {label}")

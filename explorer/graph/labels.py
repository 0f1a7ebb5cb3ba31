"""Links, notices and evidence shared by the graph pages. No database and no request."""

from collections.abc import Iterable

from django.urls import reverse

from categories.queries import Term
from explorer.explore.page import Notice, did_you_mean_text
from explorer.graph.params import AroundRequest, PathRequest, TableRequest
from explorer.graph.queries import KINDS, NodeKind
from explorer.links import Link, explore_url, node_url, relationship_url
from search.query import SearchQuery
from search.result import SearchWarning
from search.unified.rows import StoredRelationship
from text.formatting import day_text
from web.params import Params


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


def graph_tabs(kind: NodeKind) -> tuple[Link, ...]:
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

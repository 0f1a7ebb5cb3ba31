"""What several pages of the graph say in the same way: where links lead, notices, evidence. No database, no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from django.urls import reverse

from categories.queries import Term
from explorer.graph.params import AroundRequest, PathRequest, TableRequest
from explorer.graph.queries import KINDS, Kind
from explorer.links import Link, explore_url, memory_url, node_url, relationship_url
from explorer.page import Notice, meant
from search.query import SearchQuery
from search.result import Hit, SearchWarning
from search.unified.rows import RelationshipRecord
from text.formatting import day_label, day_text, type_family
from web.params import Params


def table_url(kind: Kind, asked: TableRequest | None = None) -> str:
    return _with(reverse(f"graph:{kind.many}"), asked)


def path_url(asked: PathRequest) -> str:
    return _with(reverse("graph:path"), asked)


def term_url(kind: Kind, term: Term, asked: AroundRequest | None = None) -> str:
    return _with(node_url(kind.key, term.id, term.value), asked)


def _with(address: str, asked: Params | None) -> str:
    query = asked.querystring() if asked else ""
    return f"{address}?{query}" if query else address


def both_url(kind: Kind, one: Term, other: Term) -> str:
    """The memories that name both."""
    query = SearchQuery().with_(**{kind.key: tuple(sorted((one.value, other.value))), f"{kind.key}_all": True})
    return explore_url(query)


def graph_tabs(kind: Kind | None) -> tuple[Link, ...]:
    """The pages beside each other. None is that of chains."""
    tables = (Link(one.many.capitalize(), table_url(one), current=one is kind) for one in KINDS.values())
    return (*tables, Link("Find a path", reverse("graph:path"), current=kind is None))


def warning_notices(warnings: Iterable[SearchWarning]) -> tuple[Notice, ...]:
    return tuple(Notice(warning.message, suggestion=meant(warning)) for warning in warnings)


def toggled(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Chosen as well, or no longer."""
    return tuple(one for one in chosen if one != name) if name in chosen else tuple(sorted((*chosen, name)))


def verb_text(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def names_or_name(count: int) -> str:
    return "mentions" if count == 1 else "mention"


@dataclass(frozen=True, slots=True)
class Sample:
    title: str
    url: str
    type: str
    family: str
    project: str
    date: str
    date_iso: str
    snippet: str
    state: str


def sample_of(hit: Hit, zone: tzinfo, query: SearchQuery | None = None) -> Sample:
    return Sample(
        title=hit.title_text.strip() or f"Memory {hit.id}",
        url=memory_url(hit.id, query),
        type=hit.memory_type,
        family=type_family(hit.memory_type),
        project=hit.project,
        date=day_label(hit.created_at, zone),
        date_iso=hit.created_at.isoformat(),
        snippet=hit.snippet_text,
        state="" if hit.state == "active" else hit.state,
    )


def relationship_notes(record: RelationshipRecord) -> tuple[str, ...]:
    """How sure it is, and from when until when it holds."""
    sure = "" if record.confidence is None else f"{record.confidence:.0%} confidence"
    since = f"since {day_text(record.valid_from.date())}" if record.valid_from else ""
    until = f"until {day_text(record.valid_to.date())}" if record.valid_to else ""
    return tuple(part for part in (sure, since, until) if part)


def evidence_link(record: RelationshipRecord) -> Link:
    count = len(record.evidence)
    label = f"{count:,} supporting {'memory' if count == 1 else 'memories'}" if count else "no supporting memory"
    return Link(label, relationship_url(record.id), f"{record.title}: {label}")

"""Results as cards, with their links, the reasons for them, and similar results grouped; and as a table. Pure."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import NamedTuple

from explorer.links import (
    Link,
    category_url,
    explore_url,
    memory_url,
    narrowed,
    narrowed_url,
    node_url,
    relationship_url,
    toggle_url,
)
from explorer.page_query import Column, PageQuery
from search.hits import Reason, explain
from search.query import Mode, SearchQuery, Sort
from search.result import Hit, SearchResult
from search.unified.legs import ResultKind
from search.unified.rows import EntityRef, Linked, UnifiedHit
from search.unified.service import UnifiedResult
from text.formatting import day_label, moment_label, number, plural, type_family
from text.highlight import MarkedText, plain_parts, plain_title
from text.steering import marks_text

_TAGS_SHOWN = 5
_AUTHORS_SHOWN = 2


class HitCard(NamedTuple):
    """A hit. `similar` are near-duplicates grouped under it."""

    id: int
    url: str
    title: tuple[MarkedText, ...]
    snippet: tuple[MarkedText, ...]
    type: str
    family: str
    type_url: str
    project: Link
    path: Link | None
    path_names: tuple[str, ...]
    date: str
    date_title: str
    date_iso: str
    people: tuple[Link, ...]
    more_people: int
    tags: tuple[Link, ...]
    more_tags: int
    state: str
    pinned: bool
    has_why: bool
    why: tuple[Reason, ...]
    """The reasons for the hit. On the explore page they are missing until the reader opens them."""
    similar_to: Link | None = None
    """The near-duplicate that leads its group, if it is on another page."""
    similar: tuple["HitCard", ...] = ()
    recalled: str = ""
    """How often it was recalled, in a search by recalls."""
    mark: str = ""
    """Why its text may steer a model that reads it."""


def build_cards(
    query: SearchQuery, result: SearchResult, zone: tzinfo, opened: Container[str] | None = None
) -> tuple[HitCard, ...]:
    """Cards for the hits of a page; near-duplicates are grouped under the first of them.

    `opened` are the ids of the parts that the reader has open; None includes all parts.
    """
    cards: dict[int, HitCard] = {}
    folded: dict[int, list[HitCard]] = {}
    for hit in result.hits:
        card = build_card(query, hit, result, zone, opened)
        leader = hit.why.similar_to
        if leader in cards:
            folded.setdefault(leader, []).append(card._replace(similar_to=None))
        else:
            cards[hit.id] = card
    return tuple(card._replace(similar=tuple(folded[pk])) if pk in folded else card for pk, card in cards.items())


def build_card(
    query: SearchQuery,
    hit: Hit,
    result: SearchResult,
    zone: tzinfo,
    opened: Container[str] | None,
) -> HitCard:
    """A card without similar ones."""
    category = hit.categories[0] if hit.categories else None
    people = [("author", name) for name in hit.authors] or ([("agent", hit.agent)] if hit.agent else [])
    # The date by which they are ordered.
    by_change = query.order is Sort.UPDATED
    moment = hit.updated_at if by_change else hit.created_at
    title = plain_parts(hit.title) if hit.title_text.strip() else (MarkedText(f"Memory {hit.id}", marked=False),)
    return HitCard(
        id=hit.id,
        url=memory_url(hit.id, query),
        title=title,
        snippet=hit.snippet,
        type=hit.memory_type,
        family=type_family(hit.memory_type),
        type_url=narrowed_url(query, "type", hit.memory_type),
        project=Link(
            hit.project_name or hit.project,
            narrowed_url(query, "project", hit.project),
            f"Filter by project {hit.project_name or hit.project}",
        ),
        path=Link(" / ".join(category.names), narrowed_url(query, "category", category.path)) if category else None,
        path_names=category.names if category else (),
        date=f"changed {moment_label(moment, zone)}" if by_change else day_label(moment, zone),
        date_title=moment_label(moment, zone),
        date_iso=moment.isoformat(),
        people=tuple(
            Link(name, narrowed_url(query, key, name), f"Filter by {key} {name}")
            for key, name in people[:_AUTHORS_SHOWN]
        ),
        more_people=max(0, len(people) - _AUTHORS_SHOWN),
        tags=tuple(_tag(query, tag) for tag in hit.tags[:_TAGS_SHOWN]),
        more_tags=max(0, len(hit.tags) - _TAGS_SHOWN),
        state="" if hit.state == "active" else hit.state,
        pinned=hit.pinned,
        has_why=bool(query.text),
        why=explain(hit, query, result.min_similarity) if opened is None or f"why-{hit.id}" in opened else (),
        similar_to=Link(f"#{like}", memory_url(like, query)) if (like := hit.why.similar_to) is not None else None,
        recalled=_recalled(hit) if query.depends_on_recalls else "",
        mark=marks_text(hit.marks),
    )


def _recalled(hit: Hit) -> str:
    return f"recalled {plural(hit.recalls, 'time')}" if hit.recalls else "never recalled"


def _tag(query: SearchQuery, tag: str) -> Link:
    chosen = tag in query.tag
    name = f"Remove filter: tag {tag}" if chosen else f"Filter by tag {tag}"
    return Link(tag, toggle_url(query, "tag", tag), name, current=chosen)


@dataclass(frozen=True, slots=True)
class RelatedLink:
    """A link to a record related to a result, with the reason."""

    kind: str
    label: str
    reason: str
    url: str
    swaps: bool
    """Whether the link only changes the results of the page."""


@dataclass(frozen=True, slots=True)
class ResultCard:
    """A result of unified search: a memory, a term, or a relationship from `source` to `target`."""

    kind: str
    id: int
    name: str
    """For the accessible names of its controls."""
    url: str
    page_url: str
    """Its own page; `url` leads to its memories."""
    title: tuple[MarkedText, ...]
    snippet: tuple[MarkedText, ...]
    type: str
    origin: str
    confidence: str
    why: str
    memory: HitCard | None
    source: Link | None
    verb: str
    target: Link | None
    mentions: tuple[RelatedLink, ...]
    folded: tuple[RelatedLink, ...]


def build_result_cards(
    query: SearchQuery, result: UnifiedResult, zone: tzinfo, opened: Container[str] | None = None
) -> tuple[ResultCard, ...]:
    answer = result.answer
    return tuple(
        _card(query, hit, build_card(query, hit.memory, answer, zone, opened) if hit.memory else None)
        for hit in result.hits
    )


@dataclass(frozen=True, slots=True)
class KnownLink:
    """A fact or a term that a search for memories found besides, with its page, and the search for more of its kind."""

    kind: str
    title: str
    text: str
    url: str
    more_url: str


def build_known(query: SearchQuery, hit: UnifiedHit) -> KnownLink:
    more = query.with_(mode=Mode.UNIFIED, sort=None)
    kind = "fact" if hit.relationship else hit.kind.value
    return KnownLink(kind, hit.title_text, hit.content_text, _page_url(hit), explore_url(more))


def found_by_kind(result: UnifiedResult) -> str:
    """The numbers of results by kind, in words. They add up to the number of results."""
    return ", ".join(
        plural(count, kind.value, kind.plural) for kind in ResultKind if (count := result.found_by_kind.get(kind, 0))
    )


def _card(query: SearchQuery, hit: UnifiedHit, memory: HitCard | None) -> ResultCard:
    relationship = hit.relationship
    sure = relationship.confidence if relationship else None
    return ResultCard(
        kind=hit.kind.value,
        id=hit.id,
        name=f"#{hit.id}" if memory else hit.title_text,
        url=_url(query, hit.linked),
        page_url=_page_url(hit),
        title=hit.title,
        snippet=hit.content,
        type=_type(hit),
        origin=hit.source,
        confidence="" if sure is None else f"{sure:.0%} confidence",
        why=hit.why,
        memory=memory,
        source=_end(query, relationship.source) if relationship else None,
        verb=relationship.type.replace("_", " ") if relationship else "",
        target=_end(query, relationship.target) if relationship else None,
        mentions=_mentions(query, hit.evidence or hit.related),
        folded=_mentions(query, hit.folded),
    )


def _type(hit: UnifiedHit) -> str:
    """The type of an entity or concept, and the path of a category below another one."""
    if hit.term is None:
        return ""
    return hit.term.value if hit.kind == ResultKind.CATEGORY and "/" in hit.term.value else hit.term.type


def _mentions(query: SearchQuery, items: Iterable[Linked]) -> tuple[RelatedLink, ...]:
    return tuple(
        RelatedLink(
            item.kind.value, plain_title(item.title), item.reason, _url(query, item), item.kind != ResultKind.MEMORY
        )
        for item in items
    )


def _end(query: SearchQuery, ref: EntityRef) -> Link:
    return Link(ref.name, _filtered(query, "entity", (ref.value,)), f"Memories that mention {ref.name}, {ref.type}")


def _page_url(hit: UnifiedHit) -> str:
    if hit.term and hit.kind == ResultKind.CATEGORY:
        return category_url(hit.term.value)
    if hit.term:
        return node_url(hit.kind.value, hit.id, hit.term.value)
    return relationship_url(hit.id) if hit.relationship else ""


def _url(query: SearchQuery, item: Linked) -> str:
    return memory_url(item.id, query) if item.kind == ResultKind.MEMORY else _filtered(query, item.facet, item.values)


def _filtered(query: SearchQuery, key: str, values: tuple[str, ...]) -> str:
    """The memories that carry all given values of a facet, under the filters of the query."""
    found = query.with_(text="", mode=Mode.HYBRID, sort=None, min_similarity=None)
    for value in values:
        found = narrowed(found, key, value)
    return explore_url(found.with_(entity_all=found.entity_all or (key == "entity" and len(found.entity) > 1)))


_VALUES_SHOWN = 2

COLUMN_LABELS = {
    Column.TYPE: "Type",
    Column.PROJECT: "Project",
    Column.CATEGORY: "Category",
    Column.TAG: "Tags",
    Column.AUTHOR: "Authors",
    Column.AGENT: "Agent",
    Column.SOURCE: "Source",
    Column.STATE: "State",
    Column.IMPORTANCE: "Importance",
    Column.CREATED: "Created",
    Column.UPDATED: "Updated",
    Column.RECALLED: "Recalled",
    Column.NUMBER: "Number",
}
# The orders of a column: the first one that a click on its heading gives, then the other, if there is one.
_ORDERS: dict[str, tuple[Sort, ...]] = {
    "title": (Sort.TITLE,),
    Column.CREATED: (Sort.NEWEST, Sort.OLDEST),
    Column.UPDATED: (Sort.UPDATED,),
    Column.RECALLED: (Sort.RECALLED,),
}
_ASCENDING = frozenset({Sort.TITLE, Sort.OLDEST})


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a column. `sort_url` is empty if it cannot order the results; `sorted` is for `aria-sort`."""

    key: str
    label: str
    sort_url: str = ""
    sorted: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: values that filter by themselves, or a text. `more` values are not shown."""

    key: str
    text: str = ""
    links: tuple[Link, ...] = ()
    more: int = 0
    family: str = ""
    """The family of a type, for its colour."""
    date_iso: str = ""
    date_title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A result. `alike` results are near-duplicates of the one before them."""

    card: HitCard
    cells: tuple[Cell, ...]
    alike: bool = False


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    value: str
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ResultsTable:
    title: Heading
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    choices: tuple[ColumnChoice, ...]
    is_chosen: bool
    """Whether somebody chose the columns; the usual ones may give way where there is little room."""


def build_table(query: PageQuery, result: SearchResult, cards: Iterable[HitCard], zone: tzinfo) -> ResultsTable:
    """The table of a page of results. Near-duplicates follow the result that they are grouped under."""
    hits = {hit.id: hit for hit in result.hits}
    shown = [(card, alike) for first in cards for card, alike in ((first, False), *((c, True) for c in first.similar))]
    return ResultsTable(
        title=_heading(query, "title", "Title"),
        headings=tuple(_heading(query, column, COLUMN_LABELS[column]) for column in query.columns),
        rows=tuple(
            Row(card, tuple(_cell(column, query, hits[card.id], card, zone) for column in query.columns), alike)
            for card, alike in shown
        ),
        choices=tuple(ColumnChoice(c.value, COLUMN_LABELS[c], c in query.columns) for c in Column),
        is_chosen=bool(query.column),
    )


def _heading(query: SearchQuery, key: str, label: str) -> Heading:
    orders = _ORDERS.get(key, ())
    if not orders:
        return Heading(key, label)
    current = query.order if query.order in orders else None
    following = orders[(orders.index(current) + 1) % len(orders)] if current else orders[0]
    # A second click on a heading of one order returns to the order that suits the query.
    target = None if following is current else following
    if not query.text and target is Sort.NEWEST:
        target = None
    is_sorted = "" if current is None else "ascending" if current in _ASCENDING else "descending"
    return Heading(key, label, explore_url(query.with_(sort=target)), is_sorted)


def _cell(column: Column, query: SearchQuery, hit: Hit, card: HitCard, zone: tzinfo) -> Cell:
    match column:
        case Column.TYPE:
            link = Link(hit.memory_type, card.type_url, f"Filter by type {hit.memory_type}")
            return Cell(column, links=(link,), family=type_family(hit.memory_type))
        case Column.PROJECT:
            return Cell(column, links=(card.project,))
        case Column.CATEGORY:
            # The last name, since a path is long; the name of the link has all of it.
            return _values(column, query, [(c.path, c.names[-1], " / ".join(c.names)) for c in hit.categories], most=1)
        case Column.TAG:
            return Cell(column, links=card.tags[:_VALUES_SHOWN], more=max(0, len(hit.tags) - _VALUES_SHOWN))
        case Column.AUTHOR:
            return _values(column, query, [(name, name, name) for name in hit.authors])
        case Column.AGENT | Column.SOURCE | Column.STATE:
            value: str = getattr(hit, column.value)
            return _values(column, query, [(value, value, value)] if value else [])
        case Column.IMPORTANCE:
            return Cell(column, "" if hit.importance is None else f"{hit.importance:.2f}")
        case Column.CREATED | Column.UPDATED:
            return _date(column, hit.created_at if column is Column.CREATED else hit.updated_at, zone)
        case Column.RECALLED:
            return Cell(column, number(hit.recalls) if hit.recalls else "never")
        case Column.NUMBER:
            return Cell(column, f"#{hit.id}")


def _values(
    column: Column, query: SearchQuery, values: list[tuple[str, str, str]], *, most: int = _VALUES_SHOWN
) -> Cell:
    """A cell of values, each with its label and its whole name."""
    shown = tuple(
        Link(label, narrowed_url(query, column.value, value), f"Filter by {column.value} {name}")
        for value, label, name in values[:most]
    )
    return Cell(column, links=shown, more=max(0, len(values) - most))


def _date(column: Column, moment: datetime, zone: tzinfo) -> Cell:
    return Cell(column, day_label(moment, zone), date_iso=moment.isoformat(), date_title=moment_label(moment, zone))

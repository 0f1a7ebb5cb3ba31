"""Results of three kinds as the explore page shows them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from search.cards import HitCard, build_card
from search.labels import plural
from search.legs import ResultKind
from search.links import Link, explore_url, memory_url, node_url, relationship_url
from search.query import Mode, SearchQuery
from search.snippets import Segment
from search.unified import UnifiedResult
from search.unified_rows import EntityRef, Linked, UnifiedHit


@dataclass(frozen=True, slots=True)
class Mention:
    """Another record beside a result: what it is, where it leads, and why it is there."""

    kind: str
    label: str
    reason: str
    url: str
    # Whether the link leads to other results on the same page.
    swaps: bool


@dataclass(frozen=True, slots=True)
class ResultCard:
    """One result. A memory is drawn as everywhere; of a relationship, `source` and `target` are its ends."""

    kind: str
    id: int
    # What it is called in the names of its controls.
    name: str
    url: str
    # Its own page, beside the memories that it leads to.
    page_url: str
    title: tuple[Segment, ...]
    snippet: tuple[Segment, ...]
    type: str
    origin: str
    confidence: str
    why: str
    memory: HitCard | None
    source: Link | None
    verb: str
    target: Link | None
    mentions: tuple[Mention, ...]
    folded: tuple[Mention, ...]


def build_result_cards(query: SearchQuery, together: UnifiedResult, zone: tzinfo) -> tuple[ResultCard, ...]:
    answer = together.answer
    return tuple(
        _card(query, hit, build_card(query, hit.memory, answer, zone) if hit.memory else None) for hit in together.hits
    )


def others_found(together: UnifiedResult) -> str:
    """How many there are beside the memories."""
    entities, relationships = (together.totals[kind] for kind in (ResultKind.ENTITY, ResultKind.RELATIONSHIP))
    return (
        f"{plural(entities.count, 'entity', 'entities', at_least=entities.at_least)}, "
        f"{plural(relationships.count, 'relationship', at_least=relationships.at_least)}"
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
        type=hit.entity.type if hit.entity else "",
        origin=hit.source,
        confidence="" if sure is None else f"{sure:.0%} sure",
        why=hit.why,
        memory=memory,
        source=_end(query, relationship.source) if relationship else None,
        verb=relationship.type.replace("_", " ") if relationship else "",
        target=_end(query, relationship.target) if relationship else None,
        # The evidence of a relationship is what it is related to.
        mentions=_mentions(query, hit.evidence or hit.related),
        folded=_mentions(query, hit.folded),
    )


def _mentions(query: SearchQuery, items: Iterable[Linked]) -> tuple[Mention, ...]:
    return tuple(
        Mention(item.kind.value, item.title, item.reason, _url(query, item), item.kind != ResultKind.MEMORY)
        for item in items
    )


def _end(query: SearchQuery, ref: EntityRef) -> Link:
    return Link(ref.name, _filtered(query, (ref.value,)), f"Memories that name {ref.name}, {ref.type}")


def _page_url(hit: UnifiedHit) -> str:
    if hit.entity:
        return node_url("entity", hit.id, hit.entity.value)
    return relationship_url(hit.id) if hit.relationship else ""


def _url(query: SearchQuery, item: Linked) -> str:
    return memory_url(item.id, query) if item.kind == ResultKind.MEMORY else _filtered(query, item.values)


def _filtered(query: SearchQuery, values: tuple[str, ...]) -> str:
    """The memories that name all of some entities, within the filters of the query."""
    narrowed = query.but(text="", mode=Mode.HYBRID, sort=None, min_similarity=None)
    for value in values:
        narrowed = narrowed if value in narrowed.entity else narrowed.toggle("entity", value)
    return explore_url(narrowed.but(entity_all=narrowed.entity_all or len(narrowed.entity) > 1))

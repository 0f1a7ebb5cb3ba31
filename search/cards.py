"""The results as a page shows them: labels, links, why each is there, and what is folded under what. Pure."""

from dataclasses import dataclass, replace
from datetime import tzinfo

from search.explain import Reason, explain
from search.labels import day_label, moment_label, type_family
from search.links import Link, explore_url, memory_url
from search.query import SearchQuery
from search.result import Hit, SearchResult
from search.snippets import Segment

_TAGS_SHOWN = 5
_AUTHORS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class HitCard:
    """One result. `similar` are further hits that say nearly the same, folded under it."""

    id: int
    url: str
    title: tuple[Segment, ...]
    snippet: tuple[Segment, ...]
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
    why: tuple[Reason, ...]
    # Where it is not drawn under it: the memory that says nearly the same.
    similar_to: Link | None = None
    similar: tuple["HitCard", ...] = ()


def build_cards(query: SearchQuery, result: SearchResult, zone: tzinfo) -> tuple[HitCard, ...]:
    """The hits of a page in their order; one that is like a hit before it is folded under that one."""
    cards: dict[int, HitCard] = {}
    folded: dict[int, list[HitCard]] = {}
    for hit in result.hits:
        card = build_card(query, hit, result, zone)
        leader = hit.why.similar_to
        if leader in cards:
            folded.setdefault(leader, []).append(replace(card, similar_to=None))
        else:
            cards[hit.id] = card
    return tuple(replace(card, similar=tuple(folded.get(pk, ()))) for pk, card in cards.items())


def build_card(query: SearchQuery, hit: Hit, result: SearchResult, zone: tzinfo) -> HitCard:
    """One hit, with nothing folded under it."""
    category = hit.categories[0] if hit.categories else None
    people = [("author", name) for name in hit.authors] or ([("agent", hit.agent)] if hit.agent else [])
    title = hit.title if hit.title_text.strip() else (Segment(f"Memory {hit.id}", marked=False),)
    return HitCard(
        id=hit.id,
        url=memory_url(hit.id, query),
        title=title,
        snippet=hit.snippet,
        type=hit.memory_type,
        family=type_family(hit.memory_type),
        type_url=explore_url(_with(query, "type", hit.memory_type)),
        project=Link(
            hit.project, explore_url(_with(query, "project", hit.project)), f"Filter by project {hit.project}"
        ),
        path=Link(" / ".join(category.names), explore_url(_with(query, "category", category.path)))
        if category
        else None,
        path_names=category.names if category else (),
        date=day_label(hit.created_at, zone),
        date_title=moment_label(hit.created_at, zone),
        date_iso=hit.created_at.isoformat(),
        people=tuple(
            Link(name, explore_url(_with(query, key, name)), f"Filter by {key} {name}")
            for key, name in people[:_AUTHORS_SHOWN]
        ),
        more_people=max(0, len(people) - _AUTHORS_SHOWN),
        tags=tuple(_tag(query, tag) for tag in hit.tags[:_TAGS_SHOWN]),
        more_tags=max(0, len(hit.tags) - _TAGS_SHOWN),
        state="" if hit.state == "active" else hit.state,
        pinned=hit.pinned,
        why=explain(hit, query, result.least_similarity),
        similar_to=Link(f"#{like}", memory_url(like, query)) if (like := hit.why.similar_to) is not None else None,
    )


def _with(query: SearchQuery, key: str, value: str) -> SearchQuery:
    """A query narrowed to one value more, or as it is where that is ticked already."""
    return query.but() if value in query.selection(key).include else query.toggle(key, value)


def _tag(query: SearchQuery, tag: str) -> Link:
    chosen = tag in query.tag
    name = f"Remove filter: tag {tag}" if chosen else f"Filter by tag {tag}"
    return Link(tag, explore_url(query.toggle("tag", tag)), name, current=chosen)

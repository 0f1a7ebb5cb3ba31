"""The page that says why a memory is among the results, or is not: labels, links and the form to ask again. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from search.chips import Chip, build_chips
from search.context import Notice
from search.links import Link, explore_url, memory_url
from search.query import SearchQuery
from search.sidebar import Pair, form_pairs
from search.why_not import Check, WhyNot


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """What the page may read. `memory` is None until one was asked about."""

    text: str
    pairs: tuple[Pair, ...]
    back_url: str
    notices: tuple[Notice, ...]
    chips: tuple[Chip, ...]
    memory: Link | None = None
    sentence: str = ""
    matches: bool = False
    page: Link | None = None
    checks: tuple[Check, ...] = ()
    # Whether to say that of some checks one is enough.
    has_either: bool = False


def build_verdict(query: SearchQuery, found: WhyNot | None, notices: Iterable[Notice]) -> VerdictContext:
    """Everything that the page says of a query and one memory."""
    text, pairs = query.text, form_pairs(query)
    if found is None:
        return VerdictContext(text, pairs, explore_url(query), tuple(notices), build_chips(query, {}))
    page = None
    if found.page is not None:
        there = query.model_copy(update={"page": found.page})
        page = Link(f"Go to page {found.page:,}", f"{explore_url(there)}#hit-{found.id}")
    return VerdictContext(
        text,
        pairs,
        explore_url(query),
        (*notices, *(Notice(note) for note in found.notes)),
        build_chips(query, found.labels),
        memory=Link(found.title, memory_url(found.id, query), f"#{found.id}"),
        sentence=found.verdict,
        matches=found.matches,
        page=page,
        checks=found.checks,
        has_either=sum(check.either for check in found.checks) > 1,
    )

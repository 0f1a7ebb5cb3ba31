"""The tasks of curators, for the first page of curation: each with an example and where it is done."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.urls import reverse

from access.viewer import Viewer, may_write_everything
from categories.kinds import VOCABULARIES
from curation.suggestions.background import is_searching
from curation.suggestions.pages import groups_url, review_url
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import (
    GROUPED_KINDS,
    ShownSuggestion,
    counts_by_kind,
    proposals_of,
    suggestions_matching,
    with_names,
)
from explorer.categories.browser import BrowseRequest, browse
from explorer.links import Link, explore_url, retag_url, values_url
from search.query import SearchQuery
from search.result import HitDetail, SearchResult
from search.run import run
from text.formatting import listed, memories, plural

# Names first: one answer changes all memories that have them.
_PAIRS = (
    (Kind.TAG_DUPLICATE, "pair of tags", "pairs of tags", "that may mean the same"),
    (Kind.ENTITY_DUPLICATE, "pair of entities", "pairs of entities", "that may be the same"),
    (Kind.CONCEPT_DUPLICATE, "pair of concepts", "pairs of concepts", "that may mean the same"),
)
_MEMORIES = (
    (Kind.MEMORY_DUPLICATE, "memory", "memories", "that may be there twice"),
    (Kind.SUPERSEDED, "memory", "memories", "possibly outdated"),
)
_KINDS = ("tag", *VOCABULARIES)
# Pairs of names that are listed, and those of a kind among which they are chosen.
_ALIKE, _ALIKE_OF_A_KIND = 12, 8


@dataclass(frozen=True, slots=True)
class Task:
    """`count` of what `title` says. `link` is where it is done."""

    count: int
    title: str
    text: str
    link: Link


@dataclass(frozen=True, slots=True)
class Overview:
    waiting: int
    """The number of open suggestions."""
    tasks: Sequence[Task]
    vocabulary: Sequence[Link]
    """The number of names of each kind, linked to the page of all of them."""
    memories: int
    alike: Sequence[ShownSuggestion]
    """The names that look most alike, those with most memories first."""
    may_look: bool
    """Whether the viewer may start to look for suggestions."""
    is_looking: bool
    """Whether they are being looked for."""

    @property
    def names(self) -> str:
        return listed([link.label for link in self.vocabulary])


def build_overview(viewer: Viewer) -> Overview:
    corpus = run(SearchQuery(), viewer, include_facets=True, facet_limit=1, detail=HitDetail.NONE)
    open_counts = counts_by_kind(viewer, ReviewQuery())
    alike = _surest_pairs(viewer, open_counts)
    tasks = (*_pairs(alike, open_counts), *_proposals(viewer, open_counts), *_categories(viewer), *_lacking(corpus))
    return Overview(
        waiting=sum(open_counts.values()),
        tasks=(*tasks, *_repeated(viewer, open_counts)),
        vocabulary=[
            Link(plural(facet.distinct, kind, _plural(kind)), values_url(kind, SearchQuery(), {"sort": "name"}))
            for kind in _KINDS
            for facet in corpus.facets or ()
            if facet.key == kind
        ],
        memories=corpus.total,
        alike=sorted(alike, key=lambda one: -(one.counts or (0, 0))[0])[:_ALIKE],
        may_look=may_write_everything(viewer),
        is_looking=is_searching(),
    )


def _surest_pairs(viewer: Viewer, counts: dict[str, int]) -> list[ShownSuggestion]:
    """The surest pairs of names of each kind."""
    queries = [ReviewQuery(kind=kind.value) for kind, *_ in _PAIRS if counts.get(kind.value)]
    return with_names(
        [row for query in queries for row in suggestions_matching(viewer, query)[:_ALIKE_OF_A_KIND]], viewer
    )


def _plural(kind: str) -> str:
    return VOCABULARIES[kind].plural if kind in VOCABULARIES else "tags"


def _pairs(pairs: Sequence[ShownSuggestion], counts: dict[str, int]) -> Iterator[Task]:
    for kind, one, many, end in _PAIRS:
        if count := counts.get(kind.value, 0):
            surest = next((pair.proposal for pair in pairs if pair.row.kind == kind), "")
            yield Task(
                count,
                f"{one if count == 1 else many} {end}",
                f"The most confident: {surest}",
                Link("Compare", review_url(ReviewQuery(kind=kind.value)), f"Compare the {many}"),
            )


def _proposals(viewer: Viewer, counts: dict[str, int]) -> Iterator[Task]:
    """Suggestions of terms for memories, by the term: one answer is for all of its memories."""
    for kind in GROUPED_KINDS:
        if not (count := counts.get(kind.value, 0)):
            continue
        query = ReviewQuery(kind=kind.value)
        (first, *_), total = proposals_of(viewer, query, 1, 0)
        many = "categories" if kind == Kind.CATEGORY else "concepts"
        yield Task(
            total,
            f"{kind.value if total == 1 else many} proposed for memories",
            f"{plural(count, 'suggestion')}, grouped. The first: {first.named.label} for {memories(first.count)}",
            Link("Answer", groups_url(query), f"Answer the proposals of {many}"),
        )


def _categories(viewer: Viewer) -> Iterator[Task]:
    indicators = browse("", BrowseRequest(), SearchQuery(), viewer).indicators
    if indicators and indicators.single:
        yield Task(
            indicators.single,
            f"{'category' if indicators.single == 1 else 'categories'} with a single memory",
            f"Merge {'it' if indicators.single == 1 else 'them'} into the category above, or into a similar one.",
            Link("Merge", f"{reverse('explorer:categories')}?show=single", "Merge the categories with a single memory"),
        )


def _lacking(corpus: SearchResult) -> Iterator[Task]:
    without = next((facet.no_value for facet in corpus.facets or () if facet.key == "category"), 0)
    if without:
        query = SearchQuery().toggle_presence("no", "category")
        yield Task(
            without,
            f"{'memory' if without == 1 else 'memories'} without a category",
            "It is in no part of the tree, and a search by category misses it."
            if without == 1
            else "They are in no part of the tree, and a search by category misses them.",
            Link("Categorise", retag_url(query), "Categorise the memories without a category"),
        )
    newest = SearchQuery().toggle_presence("no", "tag")
    untagged = next((facet.no_value for facet in corpus.facets or () if facet.key == "tag"), 0)
    if untagged:
        yield Task(
            untagged,
            f"{'memory' if untagged == 1 else 'memories'} without a tag",
            "A search by tags misses it." if untagged == 1 else "A search by tags misses them. The newest come first.",
            Link("Tag", explore_url(newest), "Tag the memories without a tag"),
        )


def _repeated(viewer: Viewer, counts: dict[str, int]) -> Iterator[Task]:
    for kind, one, many, end in _MEMORIES:
        if count := counts.get(kind.value, 0):
            yield Task(
                count,
                f"{one if count == 1 else many} {end}",
                f"The most confident: {_first(viewer, kind)}",
                Link("Compare", review_url(ReviewQuery(kind=kind.value)), f"Compare the {many} {end}"),
            )


def _first(viewer: Viewer, kind: Kind) -> str:
    rows = with_names(suggestions_matching(viewer, ReviewQuery(kind=kind.value))[:1], viewer)
    return rows[0].proposal if rows else ""

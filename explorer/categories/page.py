"""The category browser. No database and no request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from urllib.parse import urlencode

from django.urls import reverse

from access.viewer import Viewer
from categories.vocabulary_cache import CachedCategory
from explorer.categories.browser import MOST_ROWS, Branch, BrowserView
from explorer.categories.visible_tree import CategoryChild
from explorer.explore.cards import HitCard, build_cards
from explorer.explore.histogram_plot import Plot, build_plot
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, ChipPart, build_chips
from explorer.explore.sparkline import Sparkline, build_sparklines
from explorer.links import Link, explore_url, matrix_url, merge_url, values_url
from search.facet_counts import MIN_SUPPORT, log_likelihood
from search.facets import DATE_KEY, Facet, FacetValue
from search.query import SearchQuery
from search.result import SearchResult
from text.formatting import memories, number, plural

# A distinctive value has at least this many memories, and is this many times as frequent as overall.
_MIN_FACTOR = 1.2
_SHOWN = 8
# As many as one merge takes.
_MERGED_AT_ONCE = 100
_TOP_TAGS = 14
_DISTINCTIVE = (("tag", "Tags"), ("concept", "Concepts"), ("entity", "Entities"))
_SHOWS = {
    "single": ("with one memory", "No subcategories and one memory: a reason to merge."),
    "large": ("with very many memories", "So many memories are filed there directly that splitting may help."),
    "empty": ("without memories", "No memory that a search shows is there or in a subcategory."),
}


@dataclass(frozen=True, slots=True)
class CategoryTable:
    title: str
    note: str
    rows: Sequence[CategoryChild]
    sparks: Mapping[int | str, Sparkline]
    more: int = 0
    """The number of further subcategories."""
    over_time: str = ""
    """The numbers of the small charts; empty without charts."""
    merge_up: Link | None = None
    """For curators: the page that merges those listed into the categories above them."""

    def share(self, row: CategoryChild) -> int:
        """The length of the bar of a row in percent. No bars if every count is 1."""
        peak = max(one.numbers.memories for one in self.rows)
        return round(100 * row.numbers.memories / peak) if peak > 1 else 0


@dataclass(frozen=True, slots=True)
class Lifted:
    """A value of a facet that is more frequent in the category than overall."""

    value: FacetValue
    everywhere: int
    factor: float
    evidence: float


@dataclass(frozen=True, slots=True)
class LabelledNumber:
    label: str
    value: int
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class BrowserPage:
    """The page: the template reads `found` and `result` itself, and here what has to be put together.

    `result` are the memories of the node.
    """

    found: BrowserView
    result: SearchResult | None
    viewer: Viewer
    now: datetime
    problems: Sequence[Notice] = ()

    @property
    def node(self) -> CachedCategory | None:
        return self.found.node.node if self.found.node else None

    def url(self, path: str = "", **own: str) -> str:
        """A category, or the top level, under the query."""
        return category_url(path, self.found.query, own)

    @property
    def here(self) -> str:
        return self.url(self.node.path if self.node else "")

    @property
    def tree(self) -> Sequence[Branch]:
        """The branches to draw: under a search by name, its results."""
        found = self.found
        return [Branch(child) for child in found.listed] if found.request.part else found.branches

    def children_url(self, path: str = "") -> str:
        """All children of a category."""
        return values_url("category", self.found.query, {"parent": path} if path else {})

    @property
    def sample_url(self) -> str:
        """The categories of the sample, if they are left out here."""
        return category_url("", SearchQuery(project=self.found.sample)) if self.found.sample else ""

    @property
    def tree_note(self) -> str:
        found = self.found
        if not found.request.part:
            return ""
        if not found.listed_total:
            return f"No category has “{found.request.part}” in its name."
        if found.listed_total > len(found.listed):
            return f"The {len(found.listed)} largest of {number(found.listed_total)}."
        return plural(found.listed_total, "category", "categories")

    @property
    def chips(self) -> list[Chip]:
        """Chips for all filters, and for the words, since these pages have no search box."""
        query, here = self.found.query, self.node.path if self.node else ""
        labels = self.result.labels if self.result else {}
        chips = list(build_chips(query, labels, lambda other: category_url(here, other)))
        if query.text:
            part = ChipPart(query.text, category_url(here, query.with_(text="")), f"Remove the words {query.text}")
            chips.insert(0, Chip("chip-q", "words", (part,)))
        return chips

    @property
    def clear_url(self) -> str:
        return category_url(self.node.path if self.node else "")

    @property
    def notices(self) -> tuple[Notice, ...]:
        warnings = dict.fromkeys((*self.found.warnings, *(self.result.warnings if self.result else ())))
        shown = (Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean)) for warning in warnings)
        return (*self.problems, *shown)

    # --- the top level ------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> str:
        known = self.found.indicators
        if known is None:
            return ""
        listed = plural(known.categories, "category", "categories")
        if self.found.sample:
            # Those of the sample cover some of the memories too.
            return listed
        return f"{listed} cover {number(known.memories - known.uncategorised)} of {memories(known.memories)}"

    @property
    def indicators(self) -> list[LabelledNumber]:
        known = self.found.indicators
        if known is None:
            return []
        nothing = explore_url(SearchQuery().toggle_presence("no", "category")) if known.uncategorised else ""
        sorts = (
            ("single", "With one memory", known.single),
            ("large", "Very large", known.large),
            ("empty", "Empty", known.empty),
        )
        return [
            LabelledNumber("Uncategorised", known.uncategorised, nothing, "memories in no category"),
            *(
                LabelledNumber(label, count, self.url(show=show) if count else "", f"categories {_SHOWS[show][0]}")
                for show, label, count in sorts
            ),
        ]

    @property
    def table(self) -> CategoryTable | None:
        found = self.found
        rows = found.listed if found.request.show else found.children
        paths = {row.node.id: row.node.path for row in rows}
        sparks = build_sparklines(found.trends, found.query, lambda pk: found.query.only("category", paths[int(pk)]))
        if show := found.request.show:
            title, note = _SHOWS[show]
            cut = f" The first {MOST_ROWS} are shown." if found.listed_total > MOST_ROWS else ""
            merge_up = _merge_up(found) if show == "single" else None
            return CategoryTable(f"{number(found.listed_total)} {title}", note + cut, rows, sparks, merge_up=merge_up)
        if not found.children:
            return None
        parent = {"parent": self.node.path} if self.node else {}
        over_time = matrix_url(found.query, {"rows": "category", "columns": DATE_KEY, **parent})
        return CategoryTable(
            title=plural(found.children_total, "subcategory", "subcategories") if self.node else "Top level",
            note="",
            rows=rows,
            sparks=sparks,
            more=found.children_total - len(found.children),
            over_time=over_time if found.trends.periods else "",
        )

    def curate_url(self, pk: int, back: str) -> str:
        """The page that curates a category, from which a change returns."""
        return f"{reverse('curation:term', args=['category', str(pk)])}?{urlencode({'next': back})}"

    # --- a category ---------------------------------------------------------------------------------------------------

    @cached_property
    def query(self) -> SearchQuery:
        """The memories of the category."""
        return self.found.query.only("category", self.node.path if self.node else "")

    @property
    def may_curate(self) -> bool:
        return "curate" in self.viewer.scopes

    @property
    def facts(self) -> list[LabelledNumber]:
        found, query = self.found, self.query
        count, own = found.numbers.memories, found.own
        facts = [
            LabelledNumber(
                "Memories", count, explore_url(query) if count else "", "including subcategories, each counted once"
            ),
            LabelledNumber("Directly in it", own, explore_url(query.with_(subcategories=False)) if own else ""),
            LabelledNumber("Subcategories", found.children_total),
        ]
        if not found.is_narrowed:
            facts += [
                LabelledNumber("Chunks", found.numbers.chunks, "", "passages for search by meaning"),
                LabelledNumber("Concepts", found.numbers.concepts, "", "distinct, including subcategories"),
            ]
        return facts

    @cached_property
    def plot(self) -> Plot | None:
        histogram = self.result.histogram if self.result else None
        if not histogram or not histogram.bars:
            return None
        return build_plot(self.query, histogram, None, self.viewer.timezone, self.now)

    @cached_property
    def hits(self) -> Sequence[HitCard]:
        return build_cards(self.query, self.result, self.viewer.timezone) if self.result else ()

    def value_url(self, key: str, value: str) -> str:
        """The memories of the category with a value."""
        return explore_url(self.query.toggle(key, value))

    @property
    def facets(self) -> dict[str, Facet]:
        """The facets whose counts are over the memories of the page, by key."""
        facets = self.result.facets if self.result else ()
        return {facet.key: facet for facet in facets or () if _counts_here(self.query, facet.key)}

    @property
    def tags(self) -> list[FacetValue]:
        values = self.facets["tag"].values if "tag" in self.facets else ()
        return sorted(values, key=lambda value: (-value.count, value.label))[:_TOP_TAGS]

    @cached_property
    def distinctive(self) -> list[tuple[str, str, list[Lifted]]]:
        """By facet: values that are more frequent here than overall, those with the strongest evidence first."""
        facets = self.facets
        by_facet = [(key, title, list(self._more_common(facets[key]))) for key, title in _DISTINCTIVE if key in facets]
        for _, _, rows in by_facet:
            rows.sort(key=lambda one: (-one.evidence, one.value.label))
        return [(key, title, rows[:_SHOWN]) for key, title, rows in by_facet if rows]

    def _more_common(self, facet: Facet) -> Iterator[Lifted]:
        node, result = self.node, self.result
        if node is None or result is None or not result.total or not result.corpus.total:
            return
        total, corpus = result.total, result.corpus
        # A value that is the category by another name would always be first and says nothing.
        own_names = {name.casefold() for name in (node.name, node.path.rpartition("/")[2], *node.aliases)}
        for value in facet.values:
            everywhere = max(value.count, corpus.count(facet.key, value) or 0)
            is_the_category = value.label.casefold() in own_names or value.count == everywhere == total
            factor = _factor(value.count, everywhere, total, corpus.total)
            if value.count >= MIN_SUPPORT and factor >= _MIN_FACTOR and not is_the_category:
                elsewhere = everywhere - value.count
                evidence = log_likelihood(value.count, total, elsewhere, max(elsewhere, corpus.total - total))
                yield Lifted(value, everywhere, factor, evidence)


def category_url(path: str, query: SearchQuery | None = None, own: dict[str, str] | None = None) -> str:
    """The URL of a category, or of the top level, under a query."""
    address = reverse("explorer:category", args=[path]) if path else reverse("explorer:categories")
    parameters = "&".join(part for part in (query.querystring() if query else "", urlencode(own or {})) if part)
    return f"{address}?{parameters}" if parameters else address


def _merge_up(found: BrowserView) -> Link | None:
    """The page that merges the first of those listed into the categories above them."""
    below = [child.node for child in found.listed if child.node.parent_id is not None][:_MERGED_AT_ONCE]
    if not below:
        return None
    here = category_url("", found.query, {"show": "single"})
    # As that page sends it; it lists them first, to untick what is wrong.
    asked = [*(("term", f"#{node.id}") for node in below), ("target", "parents"), ("do", "add"), ("next", here)]
    count = plural(len(below), "category", "categories")
    return Link(f"Merge {count} into those above…", f"{merge_url('category')}?{urlencode(asked)}")


def _counts_here(query: SearchQuery, key: str) -> bool:
    """Whether the counts of a facet are over the memories of the page.

    If any of several values may match, a facet counts its values without its own selection.
    """
    chosen = query.selection(key)
    return not chosen.restricts or chosen.require_all


def _factor(here: int, everywhere: int, total: int, corpus: int) -> float:
    """How many times as frequent a value is here as overall.

    One memory is added to what was found and to what was expected, so that a few memories do not give a huge factor.
    """
    return (here + 1) / (everywhere * total / corpus + 1)

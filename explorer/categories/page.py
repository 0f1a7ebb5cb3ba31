"""BrowserContext: all data for the templates of the category browser. No database and no request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse

from access.viewer import Viewer
from categories.vocabulary_cache import CachedCategory
from explorer.categories.browser import MOST_ROWS, Branch, BrowserView, Indicators
from explorer.categories.visible_tree import CategoryChild, CategoryDescription, CategoryNotFoundError
from explorer.explore.cards import HitCard, build_cards
from explorer.explore.histogram_plot import Plot, build_plot
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, ChipPart, build_chips
from explorer.explore.sparkline import Sparkline, build_sparklines
from explorer.links import Link, explore_url, matrix_url, merge_url, values_url
from search.facet_counts import MIN_SUPPORT, log_likelihood
from search.facets import DATE_KEY, Facet, FacetValue
from search.query import SearchQuery
from search.result import CorpusCounts, SearchResult
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
class TreeRow:
    """A node of the tree. If `children_url` is set, unfolding the node loads its children."""

    id: str
    label: str
    url: str
    count: str
    name: str
    is_here: bool = False
    is_open: bool = False
    is_branch: bool = False
    children: tuple["TreeRow", ...] = ()
    children_url: str = ""
    more: Link | None = None


@dataclass(frozen=True, slots=True)
class CategoryTableRow:
    """A category of a table. `share` is the length of its bar in percent."""

    label: str
    url: str
    above: str
    memories: str
    own: str
    chunks: str
    concepts: str
    share: int
    spark: Sparkline | None
    curate_url: str
    """Its page of curation, which returns to a list of categories to tidy; empty in other tables."""


@dataclass(frozen=True, slots=True)
class CategoryTable:
    title: str
    note: str
    rows: tuple[CategoryTableRow, ...]
    in_full: bool
    """Whether to show chunks and concepts, which are not counted under a query."""
    more: Link | None = None
    over_time: Link | None = None
    """The numbers of the small charts; None without charts."""
    merge_up: Link | None = None
    """For curators: the page that merges those listed into the categories above them."""


@dataclass(frozen=True, slots=True)
class Distinctive:
    """Values of a facet that are more frequent in the category than overall."""

    title: str
    rows: tuple["Lifted", ...]


@dataclass(frozen=True, slots=True)
class Lifted:
    label: str
    url: str
    count: str
    lift: str
    title: str
    share: int


@dataclass(frozen=True, slots=True)
class LabelledNumber:
    label: str
    value: str
    url: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class NodePage:
    """The page of one category."""

    id: int
    path: str
    name: str
    description: str
    aliases: tuple[str, ...]
    related: tuple[Link, ...]
    facts: tuple[LabelledNumber, ...]
    explore_url: str
    explore_label: str
    curate_url: str
    """Empty for viewers who may not curate."""
    plot: Plot | None
    tags: tuple[Link, ...]
    distinctive: tuple[Distinctive, ...]
    hits: tuple[HitCard, ...]


@dataclass(frozen=True, slots=True)
class BrowserContext:
    title: str
    here: str
    crumbs: tuple[Link, ...]
    part: str
    hidden: tuple[tuple[str, str], ...]
    tree: tuple[TreeRow, ...]
    tree_more: Link | None
    tree_note: str
    chips: tuple[Chip, ...]
    clear_url: str
    notices: tuple[Notice, ...]
    node: NodePage | None
    summary: str
    indicators: tuple[LabelledNumber, ...]
    table: CategoryTable | None


def category_url(path: str, query: SearchQuery | None = None, own: dict[str, str] | None = None) -> str:
    """The URL of a category, or of the top level, under a query."""
    address = reverse("explorer:category", args=[path]) if path else reverse("explorer:categories")
    parameters = "&".join(part for part in (query.querystring() if query else "", urlencode(own or {})) if part)
    return f"{address}?{parameters}" if parameters else address


@dataclass(frozen=True, slots=True)
class LostCategory:
    """The page for an unknown category."""

    message: str
    near: tuple[Link, ...]
    asked: str
    """The last part of its path, to search for."""
    browse_url: str


def build_lost(error: CategoryNotFoundError) -> LostCategory:
    near = tuple(Link(path, category_url(path)) for path in error.did_you_mean)
    message = f"{error}. It does not exist, or you cannot see it."
    return LostCategory(message, near, error.name.rpartition("/")[2], category_url(""))


def build_browser(
    found: BrowserView,
    result: SearchResult | None,
    viewer: Viewer,
    now: datetime,
    notices: Iterable[Notice] = (),
) -> BrowserContext:
    query = found.query
    node = found.node.node if found.node else None
    here = node.path if node else ""
    searched = bool(found.request.part)
    warnings = dict.fromkeys((*found.warnings, *(result.warnings if result else ())))
    return BrowserContext(
        title=" / ".join(found.node.names) if found.node else "Categories",
        here=category_url(here, query),
        crumbs=tuple(_crumbs(found)),
        part=found.request.part,
        hidden=tuple(query.parameters()),
        tree=tuple(_search_hit(child, query) for child in found.listed)
        if searched
        else tuple(_branch(branch, query) for branch in found.branches),
        tree_more=None if searched else _all_children(found.branches_left_out, "", query),
        tree_note=_tree_note(found) if searched else "",
        chips=tuple(_chips(query, result, here)),
        clear_url=category_url(here),
        notices=(
            *notices,
            *(Notice(warning.message, suggestion=did_you_mean_text(warning.did_you_mean)) for warning in warnings),
        ),
        node=_node(found, found.node, result, viewer, now) if found.node and result else None,
        summary=_summary(found.indicators) if found.indicators else "",
        indicators=tuple(_indicators(found.indicators, query)) if found.indicators else (),
        table=_table(found),
    )


def _chips(query: SearchQuery, result: SearchResult | None, here: str) -> Iterator[Chip]:
    """Chips for all filters, and for the words, since these pages have no search box."""
    if query.text:
        removed = category_url(here, query.with_(text=""))
        yield Chip("chip-q", "words", (ChipPart(query.text, removed, f"Remove the words {query.text}"),))
    yield from build_chips(query, result.labels if result else {}, lambda other: category_url(here, other))


# --- the tree ----------------------------------------------------------------------------------------------------


def _branch(branch: Branch, query: SearchQuery) -> TreeRow:
    child = branch.child
    node = child.node
    shown = bool(branch.children)
    level = category_url("", query, {"below": node.path})
    return TreeRow(
        id=f"node-{node.id}",
        label=node.name,
        url=category_url(node.path, query),
        count=number(child.numbers.memories),
        name=f"{node.name}, {memories(child.numbers.memories)}",
        is_here=branch.is_here,
        is_open=branch.is_open and shown,
        is_branch=child.has_children,
        children=tuple(_branch(one, query) for one in branch.children),
        children_url="" if shown or not child.has_children else level,
        more=_all_children(branch.left_out, node.path, query),
    )


def _search_hit(child: CategoryChild, query: SearchQuery) -> TreeRow:
    """A result of the search by name, labelled with its path."""
    path = child.node.path
    count = child.numbers.memories
    return TreeRow(
        f"node-{child.node.id}", path, category_url(path, query), number(count), f"{path}, {memories(count)}"
    )


def _all_children(left_out: int, path: str, query: SearchQuery) -> Link | None:
    if not left_out:
        return None
    listing = {"parent": path} if path else {}
    return Link(f"{number(left_out)} more", values_url("category", query, listing))


def _tree_note(found: BrowserView) -> str:
    if not found.listed_total:
        return f"No category has “{found.request.part}” in its name."
    if found.listed_total > len(found.listed):
        return f"The {len(found.listed)} largest of {number(found.listed_total)}."
    return plural(found.listed_total, "category", "categories")


def _crumbs(found: BrowserView) -> Iterator[Link]:
    yield Link("Categories", category_url("", found.query), current=not found.lineage)
    for node in found.lineage:
        yield Link(node.name, category_url(node.path, found.query), current=node is found.lineage[-1])


# --- the page ----------------------------------------------------------------------------------------------------


def _summary(indicators: Indicators) -> str:
    filed = indicators.memories - indicators.uncategorised
    return (
        f"{plural(indicators.categories, 'category', 'categories')} cover {number(filed)} of"
        f" {memories(indicators.memories)}"
    )


def _indicators(indicators: Indicators, query: SearchQuery) -> Iterator[LabelledNumber]:
    nothing = explore_url(SearchQuery().toggle_presence("no", "category")) if indicators.uncategorised else ""
    yield LabelledNumber("Uncategorised", number(indicators.uncategorised), nothing, "memories in no category")
    for show, label, count in (
        ("single", "With one memory", indicators.single),
        ("large", "Very large", indicators.large),
        ("empty", "Empty", indicators.empty),
    ):
        url = category_url("", query, {"show": show}) if count else ""
        yield LabelledNumber(label, number(count), url, f"categories {_SHOWS[show][0]}")


def _table(found: BrowserView) -> CategoryTable | None:
    query = found.query
    in_full = not found.is_narrowed
    if show := found.request.show:
        title, note = _SHOWS[show]
        cut = f" The first {MOST_ROWS} are shown." if found.listed_total > MOST_ROWS else ""
        rows = tuple(_rows(found, found.listed, with_path=True))
        merge_up = _merge_up(found) if show == "single" else None
        return CategoryTable(f"{number(found.listed_total)} {title}", note + cut, rows, in_full, merge_up=merge_up)
    if not found.children:
        return None
    left_out = found.children_total - len(found.children)
    return CategoryTable(
        title=plural(found.children_total, "subcategory", "subcategories") if found.node else "Top level",
        note="",
        rows=tuple(_rows(found, found.children, with_path=False)),
        in_full=in_full,
        more=_all_children(left_out, found.node.node.path if found.node else "", query),
        over_time=_over_time(found),
    )


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


def _over_time(found: BrowserView) -> Link | None:
    if not found.trends.periods:
        return None
    parent = {"parent": found.node.node.path} if found.node else {}
    request = {"rows": "category", "columns": DATE_KEY, **parent}
    return Link("Categories by time, in numbers", matrix_url(found.query, request))


def _rows(found: BrowserView, children: Sequence[CategoryChild], *, with_path: bool) -> Iterator[CategoryTableRow]:
    query = found.query
    paths = {child.node.id: child.node.path for child in children}
    sparks = build_sparklines(found.trends, query, lambda pk: query.only("category", paths[int(pk)]))
    peak = max((child.numbers.memories for child in children), default=0)
    here = category_url("", query, {"show": found.request.show}) if found.request.show else ""
    for child in children:
        node, numbers = child.node, child.numbers
        yield CategoryTableRow(
            label=node.name,
            url=category_url(node.path, query),
            above=node.path.rpartition("/")[0] if with_path else "",
            memories=number(numbers.memories),
            own=number(child.own),
            chunks=number(numbers.chunks),
            concepts=number(numbers.concepts),
            # No bars if every count is 1.
            share=round(100 * numbers.memories / peak) if peak > 1 else 0,
            spark=sparks.get(node.id),
            curate_url=_curate_url(node.id, here) if here else "",
        )


def _curate_url(pk: int, next_url: str) -> str:
    """The page that curates a category, from which a change returns to another page."""
    return f"{reverse('curation:term', args=['category', str(pk)])}?{urlencode({'next': next_url})}"


def _node(
    found: BrowserView, described: CategoryDescription, result: SearchResult, viewer: Viewer, now: datetime
) -> NodePage:
    node = described.node
    query = found.query.only("category", node.path)
    facets = {facet.key: facet for facet in result.facets or ()}
    histogram = result.histogram
    return NodePage(
        id=node.id,
        path=node.path,
        name=node.name,
        description=node.description,
        aliases=node.aliases,
        related=tuple(Link(one.name, category_url(one.path, found.query), one.path) for one in found.related),
        facts=tuple(_facts(found, query)),
        explore_url=explore_url(query),
        explore_label=memories(result.total, at_least=result.at_least),
        # A category that was moved or merged away is found by its old path.
        curate_url=_curate_url(node.id, category_url(node.path, found.query)) if "curate" in viewer.scopes else "",
        plot=build_plot(query, histogram, None, viewer.timezone, now) if histogram and histogram.bars else None,
        tags=tuple(_tags(query, facets["tag"])) if "tag" in facets and _counts_here(query, "tag") else (),
        distinctive=tuple(_distinctive(query, node, facets, result.total, result.corpus)),
        hits=build_cards(query, result, viewer.timezone),
    )


def _facts(found: BrowserView, query: SearchQuery) -> Iterator[LabelledNumber]:
    count, own = found.numbers.memories, found.own
    yield LabelledNumber(
        "Memories", number(count), explore_url(query) if count else "", "including subcategories, each counted once"
    )
    yield LabelledNumber("Directly in it", number(own), explore_url(query.with_(subcategories=False)) if own else "")
    yield LabelledNumber("Subcategories", number(found.children_total))
    if not found.is_narrowed:
        yield LabelledNumber("Chunks", number(found.numbers.chunks), "", "passages for search by meaning")
        yield LabelledNumber("Concepts", number(found.numbers.concepts), "", "distinct, including subcategories")


def _counts_here(query: SearchQuery, key: str) -> bool:
    """Whether the counts of a facet are over the memories of the page.

    If any of several values may match, a facet counts its values without its own selection.
    """
    chosen = query.selection(key)
    return not chosen.restricts or chosen.require_all


def _tags(query: SearchQuery, facet: Facet) -> Iterator[Link]:
    for value in sorted(facet.values, key=lambda value: (-value.count, value.label))[:_TOP_TAGS]:
        yield Link(
            value.label, explore_url(query.toggle("tag", value.value)), f"Tag {value.label}", number(value.count)
        )


def _distinctive(
    query: SearchQuery, node: CachedCategory, facets: dict[str, Facet], total: int, corpus: CorpusCounts
) -> Iterator[Distinctive]:
    """Values that are more frequent here than overall, those with the strongest evidence first.

    A value that is the category by another name would always be first and says nothing.
    """
    own_names = {name.casefold() for name in (node.name, node.path.rpartition("/")[2], *node.aliases)}
    for key, title in _DISTINCTIVE:
        if not total or not corpus.total or key not in facets or not _counts_here(query, key):
            continue
        found = []
        for value in facets[key].values:
            everywhere = max(value.count, corpus.count(key, value) or 0)
            is_the_category = value.label.casefold() in own_names or value.count == everywhere == total
            factor = _factor(value.count, everywhere, total, corpus.total)
            if value.count >= MIN_SUPPORT and factor >= _MIN_FACTOR and not is_the_category:
                elsewhere = everywhere - value.count
                evidence = log_likelihood(value.count, total, elsewhere, max(elsewhere, corpus.total - total))
                found.append((evidence, _lifted(query, key, value, everywhere, factor, total)))
        if found:
            found.sort(key=lambda one: (-one[0], one[1].label))
            yield Distinctive(title, tuple(row for _, row in found[:_SHOWN]))


def _factor(here: int, everywhere: int, total: int, corpus: int) -> float:
    """How many times as frequent a value is here as overall.

    One memory is added to what was found and to what was expected, so that a few memories do not give a huge factor.
    """
    return (here + 1) / (everywhere * total / corpus + 1)


def _lifted(query: SearchQuery, key: str, value: FacetValue, everywhere: int, factor: float, total: int) -> Lifted:
    share = f"{value.count:,} of {everywhere:,} are here"
    return Lifted(
        label=value.label,
        url=explore_url(query.toggle(key, value.value)),
        count="" if value.count == everywhere else number(value.count),
        lift=share if value.count == everywhere else f"×{factor:.1f}",
        title=f"{value.type or key} {value.label}: {share}",
        share=round(100 * value.count / total),
    )

"""The map of meaning. No database and no request."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import shorten

from explorer.links import Link, explore_url, retag_url
from explorer.page_query import Colour, Look, PageQuery, View
from search.area import parse_area
from search.facets import FACET, FacetValue
from search.meaning_map import Group, Region
from search.result import Hit, SearchResult
from text.formatting import memories, number

_LABELS = {Colour.YEAR: "Year"}
_LOOKS = {Look.AUTO: "Auto", Look.POINTS: "Points", Look.DENSITY: "Density"}
# The values that most memories of an area have in common: at most two, each of at least a fifth of them.
_COMMON, _LEAST_COMMON = 2, 0.2
_SNIPPET = 140
_COMMON_KEYS = ("concept", "tag", "entity")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the bar that shows how the memories of an area divide into colours, in percent."""

    number: int
    label: str
    count: int
    url: str
    x: float
    width: float


@dataclass(frozen=True)
class MapPage:
    """The map: the template reads its regions and groups, and here what has to be put together."""

    query: PageQuery
    result: SearchResult
    groups: Sequence[Group]
    regions: Sequence[Region]
    layout_id: int
    """The number of the map in use."""
    missing: str
    """Why there is no map; empty if there is one."""
    without_regions: str
    """Why no region is named, if that failed."""
    may_write: bool
    has_table: bool

    @property
    def name(self) -> str:
        shown = memories(self.result.total, at_least=self.result.at_least)
        return f"Map of {shown}. The list view shows the same memories."

    @cached_property
    def _search(self) -> str:
        """The query of tiles and places: of matches in the area and outside of it."""
        around = self.query.with_(area="", sort=None, page_size=25)
        return PageQuery(**around.search.model_dump(), colour=self.query.colour).querystring()

    def search_url(self, path: str) -> str:
        return f"{path}?{self._search}"

    @property
    def area(self) -> str:
        """The area, if it is one of the map in use."""
        area = parse_area(self.query.area) if self.query.area else None
        return self.query.area if area and area.layout_id == self.layout_id else ""

    @property
    def legend(self) -> list[Link]:
        """Links that select the values of the colours."""
        return [_group_link(self.query, group) for group in self.groups]

    @property
    def colours(self) -> list[tuple[str, str, bool]]:
        """Their values, labels, and whether they are selected. The default is empty, to keep it out of the URL."""
        return [
            ("" if colour is Colour.TYPE else colour.value, _label_of(colour), colour is self.query.colour)
            for colour in Colour
        ]

    @property
    def looks(self) -> list[Link]:
        query = self.query
        return [
            Link(label, explore_url(query.replace(look=look)), look.value, current=look is query.look)
            for look, label in _LOOKS.items()
        ]

    def size(self, region: Region) -> str:
        """The class of the letters of a region."""
        largest = max(one.count for one in self.regions)
        return "large" if region.count * 2 > largest else "small" if region.count * 8 < largest else ""

    def facet_name(self, region: Region) -> str:
        return FACET[region.key].label if region.key else "Words"

    def region_url(self, region: Region) -> str:
        """The memories with the value of a region; those in it, if words of their texts are its name."""
        if not region.key:
            return self.around_url(region)
        chosen = self.query.with_(area="")
        is_chosen = region.value in self.query.selection(region.key).include
        return explore_url(chosen if is_chosen else chosen.toggle(region.key, region.value))

    def around_url(self, region: Region) -> str:
        """The memories around the middle of a region."""
        return explore_url(self.query.with_(area=region.area))

    # --- the card of the area -----------------------------------------------------------------------------------------

    @property
    def has_inside(self) -> bool:
        return bool(self.query.area and self.result.total)

    @property
    def clear_url(self) -> str:
        return explore_url(self.query.with_(area=""))

    @property
    def list_url(self) -> str:
        return explore_url(self.query.replace(view=View.LIST, colour=Colour.TYPE, look=Look.AUTO).with_())

    @property
    def retag_url(self) -> str:
        return retag_url(self.query.search) if self.may_write and not self.result.at_least else ""

    @property
    def common(self) -> tuple[Link, ...]:
        return _common(self.query, self.result)

    @cached_property
    def mix(self) -> tuple[Stretch, ...]:
        return _mix(self.query, self.result, self.groups)

    @property
    def mix_name(self) -> str:
        return ", ".join(f"{part.label} {number(part.count)}" for part in self.mix)


def _label_of(colour: Colour) -> str:
    return _LABELS.get(colour) or FACET[colour].label


def _group_link(query: PageQuery, group: Group) -> Link:
    if query.colour is Colour.YEAR:
        chosen = query.between(f"{group.value}-01-01", f"{group.value}-12-31")
        return Link(group.label, explore_url(chosen), f"Only {group.label}")
    selected = group.value in query.selection(query.colour).include
    name = f"Remove filter: {query.colour} {group.label}" if selected else f"Filter by {query.colour} {group.label}"
    return Link(group.label, explore_url(query.toggle(query.colour, group.value)), name, current=selected)


def _common(query: PageQuery, result: SearchResult) -> tuple[Link, ...]:
    """The values that most memories of the area have, and few others: their share, weighed by how typical they are."""
    found: list[tuple[float, Link]] = []
    for facet in result.facets or ():
        if facet.key not in _COMMON_KEYS or facet.at_least:
            continue
        for value in facet.values:
            share = value.count / result.total
            everywhere = (result.corpus.count(facet.key, value) or result.corpus.total) / max(1, result.corpus.total)
            if share < _LEAST_COMMON or value.selected or value.excluded or value.count > result.total:
                continue
            chosen = query.with_().toggle(facet.key, value.canonical or value.value)
            link = Link(value.label, explore_url(chosen), f"{value.label}: {number(value.count)}", f"{share:.0%}")
            found.append((share * min(share / everywhere, 50.0), link))
    found.sort(key=lambda one: (-one[0], one[1].label))
    names: dict[str, Link] = {}
    for _, link in found:
        names.setdefault(link.label.casefold(), link)
    return tuple(names.values())[:_COMMON]


def _mix(query: PageQuery, result: SearchResult, groups: Sequence[Group]) -> tuple[Stretch, ...]:
    """How the memories divide into colours; none for a facet of which a memory may have several values."""
    if query.colour is Colour.YEAR or not FACET[query.colour].exclusive or query.selection(query.colour).restricts:
        return ()
    facet = next((facet for facet in result.facets or () if facet.key == query.colour), None)
    if facet is None or facet.unavailable:
        return ()
    counts: dict[str, FacetValue] = {value.value: value for value in facet.values}
    parts = [
        (n, group.label, counts[group.value].count, group.value)
        for n, group in enumerate(groups, 1)
        if group.value in counts
    ]
    rest = result.total - sum(count for _, _, count, _ in parts)
    if rest > 0:
        parts.append((0, "other", rest, ""))
    stretches, x = [], 0.0
    for n, label, count, value in parts:
        if not count:
            continue
        width = 100 * count / result.total
        url = explore_url(query.toggle(query.colour, value)) if value else ""
        stretches.append(Stretch(n, label, count, url, x, max(width - 0.4, 0.4)))
        x += width
    return tuple(stretches)


def first_words(hit: Hit) -> str:
    return shorten("".join(part.text for part in hit.snippet), _SNIPPET, placeholder="…")

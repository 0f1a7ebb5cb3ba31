"""MapContext: all data for the template of the map of meaning. No database and no request."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from textwrap import shorten

from django.urls import reverse

from explorer.explore.histogram_plot import Option
from explorer.links import Link, explore_url, memory_url, retag_url
from explorer.page_query import Colour, Look, PageQuery, View
from search.area import parse_area
from search.facets import FACET, FacetValue
from search.meaning_map import Group, Region
from search.result import Hit, SearchResult
from text.formatting import day_label, memories, number, plural, type_family
from text.highlight import plain_title

_LABELS = {Colour.YEAR: "Year"}
_LOOKS = {Look.AUTO: "Auto", Look.POINTS: "Points", Look.DENSITY: "Density"}
# The values that most memories of an area have in common: at most two, each of at least a fifth of them.
_COMMON, _LEAST_COMMON = 2, 0.2
_SNIPPET = 140
_COMMON_KEYS = ("concept", "tag", "entity")


@dataclass(frozen=True, slots=True)
class Place:
    """A region on the map: a link that selects its value."""

    link: Link
    x: int
    y: int
    count: int
    size: str
    """The class of its letters."""


@dataclass(frozen=True, slots=True)
class RegionRow:
    """A region in the table, with a link to the memories around its middle."""

    link: Link
    kind: str
    area: Link


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the bar that shows how the memories of an area divide into colours, in percent."""

    number: int
    label: str
    count: str
    url: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Inside:
    """The card of the area."""

    heading: str
    common: tuple[Link, ...]
    mix: tuple[Stretch, ...]
    mix_name: str
    explore_url: str
    retag_url: str
    clear_url: str


@dataclass(frozen=True, slots=True)
class MapContext:
    """The map."""

    name: str
    missing: str
    """Why there is no map; empty if there is one."""
    without_regions: str
    """Why no region is named, if that failed."""
    tiles_url: str
    """The address of the tiles: of matches in the area and outside of it, without the number of a tile."""
    at_url: str
    layout_id: int
    area: str
    look: str
    groups: tuple[Link, ...]
    """The legend: links that select the values."""
    other: bool
    colours: tuple[Option, ...]
    looks: tuple[Link, ...]
    places: tuple[Place, ...]
    rows: tuple[RegionRow, ...]
    has_table: bool
    inside: Inside | None


def build_map(
    query: PageQuery,
    result: SearchResult,
    groups: Sequence[Group],
    regions: Sequence[Region],
    *,
    layout_id: int,
    missing: str = "",
    without_regions: str = "",
    may_write: bool = False,
    has_table: bool = False,
) -> MapContext:
    """The context of the map. `layout_id` is the number of the map in use."""
    around = query.with_(area="", sort=None, page_size=25)
    search = PageQuery(**around.search.model_dump(), colour=query.colour).querystring()
    area = parse_area(query.area) if query.area else None
    return MapContext(
        name=f"Map of {memories(result.total, at_least=result.at_least)}. The list view shows the same memories.",
        missing=missing,
        without_regions=without_regions,
        tiles_url=f"{reverse('explorer:map_tile')}?{search}",
        at_url=f"{reverse('explorer:map_at')}?{search}",
        layout_id=layout_id,
        area=query.area if area and area.layout_id == layout_id else "",
        look=query.look.value,
        groups=tuple(_group_link(query, group) for group in groups),
        other=bool(groups),
        colours=tuple(Option(_colour_value(c), _LABELS.get(c) or FACET[c].label, c is query.colour) for c in Colour),
        looks=tuple(
            Link(label, explore_url(query.replace(look=look)), look.value, current=look is query.look)
            for look, label in _LOOKS.items()
        ),
        places=_places(query, regions),
        rows=tuple(_row(query, region) for region in regions) if has_table else (),
        has_table=has_table,
        inside=_inside(query, result, groups, may_write) if query.area and result.total else None,
    )


def _colour_value(colour: Colour) -> str:
    """The default has an empty value, to keep it out of the URL."""
    return "" if colour is Colour.TYPE else colour.value


def _group_link(query: PageQuery, group: Group) -> Link:
    if query.colour is Colour.YEAR:
        chosen = query.between(f"{group.value}-01-01", f"{group.value}-12-31")
        return Link(group.label, explore_url(chosen), f"Only {group.label}")
    selected = group.value in query.selection(query.colour).include
    name = f"Remove filter: {query.colour} {group.label}" if selected else f"Filter by {query.colour} {group.label}"
    return Link(group.label, explore_url(query.toggle(query.colour, group.value)), name, current=selected)


def _places(query: PageQuery, regions: Sequence[Region]) -> tuple[Place, ...]:
    largest = max((region.count for region in regions), default=0)
    return tuple(
        Place(_region_link(query, region), region.x, region.y, region.count, _size(region.count, largest))
        for region in regions
    )


def _size(count: int, largest: int) -> str:
    return "large" if count * 2 > largest else "small" if count * 8 < largest else ""


def _region_link(query: PageQuery, region: Region) -> Link:
    chosen = query.with_(area="")
    if region.value not in query.selection(region.key).include:
        chosen = chosen.toggle(region.key, region.value)
    label = FACET[region.key].label.lower()
    name = f"{label} {region.label}: {memories(region.count)}"
    return Link(region.label, explore_url(chosen), name, number(region.count))


def _row(query: PageQuery, region: Region) -> RegionRow:
    inside = Link(
        number(region.inside or 0), explore_url(query.with_(area=region.area)), f"The memories around {region.label}"
    )
    return RegionRow(_region_link(query, region), FACET[region.key].label, inside)


def _inside(query: PageQuery, result: SearchResult, groups: Sequence[Group], may_write: bool) -> Inside:
    exact = not result.at_least
    listed = query.replace(view=View.LIST, colour=Colour.TYPE, look=Look.AUTO)
    return Inside(
        heading=f"{memories(result.total, at_least=result.at_least)} in here",
        common=_common(query, result),
        mix=(mix := _mix(query, result, groups)),
        mix_name=", ".join(f"{part.label} {part.count}" for part in mix),
        explore_url=explore_url(listed.with_()),
        retag_url=retag_url(query.search) if may_write and exact else "",
        clear_url=explore_url(query.with_(area="")),
    )


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
        stretches.append(Stretch(n, label, number(count), url, f"{x:.2f}%", f"{max(width - 0.4, 0.4):.2f}%"))
        x += width
    return tuple(stretches)


@dataclass(frozen=True, slots=True)
class PointCard:
    """The memory at a place; `more` says how many others have the same place."""

    url: str
    title: str
    type: str
    family: str
    project: str
    date: str
    date_iso: str
    snippet: str
    more: str


def build_point(query: PageQuery, hits: Sequence[Hit], zone: tzinfo) -> PointCard:
    """The card of the first of the memories at a place."""
    hit, others = hits[0], len(hits) - 1
    return PointCard(
        url=memory_url(hit.id, query.search),
        title=plain_title(hit.title_text) or f"Memory {hit.id}",
        type=hit.memory_type,
        family=type_family(hit.memory_type),
        project=hit.project_name or hit.project,
        date=day_label(hit.created_at, zone),
        date_iso=hit.created_at.isoformat(),
        snippet=shorten("".join(part.text for part in hit.snippet), _SNIPPET, placeholder="…"),
        more=f"and {plural(others, 'other')} at the same place" if others else "",
    )

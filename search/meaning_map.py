"""The map of meaning under a query: the places of its matches in the colours of a facet, and the names of regions."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from access.viewer import Viewer
from memories.models import MapPlace, Memory
from search.area import MOST, Area, Tile, area_text
from search.baseline_counts import corpus_plan, corpus_view
from search.engines import snapshot, with_engine
from search.engines.base import (
    COARSE_BITS,
    Engine,
    EngineQuery,
    EngineTimeoutError,
    FacetRequest,
    Filter,
    Ids,
    MapTile,
    Value,
)
from search.engines.stored_columns import layout_now, read_places
from search.facet_counts import value_terms
from search.facets import DEFAULT_STATES, FACET, FacetKind
from search.hits import load_hits
from search.plan import ResolvedQuery, resolve_query
from search.query import SearchQuery
from search.ranking import Ranked
from search.region_words import name_places
from search.result import Hit, SearchWarning
from text.formatting import instant
from web.cache import RevisionCache
from web.errors import Refusal
from web.timing import Stopwatch, Timings

# The colouring of points by the year in which memories were created; others are by a facet.
YEAR = "year"
# Colours that differ enough; all other values share one more.
GROUPS = 6
# A tile with more matches is given as a grid.
MAX_POINTS = 60_000

# Memories at one place that are shown, and that are considered: the same text may come again and again.
_AT_ONE_PLACE, _CONSIDERED = 50, 1_000

# Names of regions: the facets, with the weight of each; values to look at in each, and the type of those that are not.
_NAMED_BY = {"concept": 1.0, "category": 0.8, "tag": 0.7, "entity": 0.3}
_CANDIDATES, _PERSON = 250, "person"
_REGIONS = 120
_SIDE = 1 << COARSE_BITS
# A value names a region if at least this share of its memories is there, and a few of them.
_MIN_SHARE, _MIN_MEMORIES = 0.3, 4
# The radius of a region, and the least distance of two names, in squares of the coarse grid.
_RADIUS, _APART = 4, 1.5
_CORNERS = 12
# Elsewhere words of the texts are names: the least number of memories near each other, the most names, and the memories
# that are read for each one, and for comparison.
_CROWD, _MOST_BY_WORDS, _READ_AT_EACH, _READ_ELSEWHERE = 12, 40, 40, 300
_KEPT_VIEWS, _KEPT_SECONDS = 16, 600

T = TypeVar("T")


class MapTooSlowError(Refusal):
    """The map could not be counted within the time limit."""

    status = 503
    code = "too_slow"
    title = "The map took too long"
    message = "Counting the memories on the map took too long."
    suggestion = "Add a filter: a narrower search is faster."


@dataclass(frozen=True, slots=True)
class Group:
    """A value that has a colour of its own."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class MapField:
    """The matches in a tile. `groups` are numbered from 1; all other matches have the number 0."""

    layout_id: int
    groups: tuple[Group, ...]
    tile: MapTile
    total: int
    """All matches of the query, with and without a place, in this tile or another."""
    timings: Timings
    warnings: tuple[SearchWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """A place with a name: where most memories with a value of a facet are. `count` are the matches with the value,
    wherever they are; `inside` are the matches of any value in `area`. One that is named by words of its texts has no
    facet and no value, and `count` are those inside.
    """

    key: str
    value: str
    label: str
    x: int
    y: int
    count: int
    area: str
    inside: int | None = None


@dataclass(frozen=True, slots=True)
class _RegionName:
    """A region before its name is looked up: the value of an engine, and its middle. Words are a name already."""

    key: str
    value: Value
    x: int
    y: int


_regions = RevisionCache[tuple[object, ...], tuple[_RegionName, ...]](_KEPT_VIEWS, seconds=_KEPT_SECONDS)


def map_field(query: SearchQuery, viewer: Viewer, colour: str, tile: Tile) -> MapField | None:
    """The matches of a query in a tile, coloured by a facet or by year; None before a map is drawn.

    Raises MapTooSlowError.
    """

    def ask(engine: Engine) -> MapField | None:
        watch = Stopwatch(engine.waited_ms)
        with snapshot(), watch.stage("search"):
            layout = layout_now()
            if layout is None:
                return None
            resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
            groups = _groups(engine, resolved, colour)
            plans = [plan for _, plan in groups]
            found = engine.map_tile(resolved.plan, layout, tile, plans, limit=MAX_POINTS)
            total = engine.match([resolved.plan])[0].total
        named = tuple(group for group, _ in groups)
        return MapField(layout[0], named, found, total, watch.timings, resolved.warnings)

    return with_engine(_within_limits(ask), viewer)


def _within_limits(ask: Callable[[Engine], T]) -> Callable[[Engine], T]:
    """Raise MapTooSlowError if the engine runs out of its time limit."""

    def asked(engine: Engine) -> T:
        try:
            return ask(engine)
        except EngineTimeoutError as error:
            raise MapTooSlowError from error

    return asked


def map_groups(query: SearchQuery, viewer: Viewer, colour: str) -> tuple[Group, ...]:
    """The values that have a colour of their own. They are the largest of all memories that the viewer sees, so that a
    value keeps its colour under every query.
    """

    def ask(engine: Engine) -> tuple[Group, ...]:
        with snapshot():
            resolved = resolve_query(engine, query.without_filters(), viewer, datetime.now(UTC))
            return tuple(group for group, _ in _groups(engine, resolved, colour))

    return with_engine(ask, viewer, wait_for_index=False)


def _groups(engine: Engine, resolved: ResolvedQuery, colour: str) -> list[tuple[Group, EngineQuery]]:
    """The groups of a colouring, each with the plan that its memories match."""
    projects = resolved.plan.project_ids
    try:
        view = corpus_view(engine, projects, resolved.zone)
    except EngineTimeoutError:
        return []
    if colour == YEAR:
        years = sorted({date.fromordinal(day).year for day in view.counted.days.days.tolist()}, reverse=True)
        return [(Group(str(year), str(year)), _in_year(resolved, year)) for year in years[:GROUPS]]
    spec = FACET[colour]
    values = [found.value for found in view.answer(FacetRequest(colour)).values if found.count]
    if spec.kind == FacetKind.TREE:
        # The outermost of nested categories would hide the others.
        nodes = resolved.names.category_nodes([int(value) for value in values])
        values = [value for value in values if value in nodes and len(nodes[int(value)].names) == 1]
    values = values[:GROUPS]
    terms = value_terms(spec, values, resolved)
    return [
        (Group(terms[value].value, terms[value].label), EngineQuery(filters=(Filter(colour, ((value,),)),)))
        for value in values
        if value in terms
    ]


def _in_year(resolved: ResolvedQuery, year: int) -> EngineQuery:
    first, last = f"{year:04}-01-01", f"{year:04}-12-31"
    return EngineQuery(start=instant(first, resolved.zone, end=False), end=instant(last, resolved.zone, end=True))


def map_layout() -> int | None:
    """The number of the map in use; None before one is drawn."""
    layout = layout_now()
    return layout[0] if layout else None


def hits_at(query: SearchQuery, viewer: Viewer, x: int, y: int) -> tuple[Hit, ...]:
    """The matches of a query with this place, the newest number first."""

    def ask(engine: Engine) -> tuple[Hit, ...]:
        with snapshot():
            layout = layout_now()
            if layout is None:
                return ()
            # mapplace_cell_idx
            here = MapPlace.objects.filter(layout=layout[0], cell=(x >> 8) << 8 | y >> 8, x=x, y=y)
            if viewer.project_ids is not None:
                here = here.filter(memory__project_id__in=viewer.project_ids)
            ids = list(here.order_by("-memory_id").values_list("memory_id", flat=True)[:_CONSIDERED])
            resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
            passing = engine.filter_ids(resolved.plan, ids)
            shown = [pk for pk in ids if pk in passing][:_AT_ONE_PLACE]
            return load_hits([Ranked(pk) for pk in shown], resolved, viewer)

    return with_engine(ask, viewer, wait_for_index=False)


# --- regions -------------------------------------------------------------------------------------------------------


def map_regions(query: SearchQuery, viewer: Viewer, *, count_areas: bool = False) -> tuple[Region, ...]:
    """The regions in which a query has matches, the largest first. Their places are the same under every query.

    With `count_areas`, the matches inside each region are counted too. Raises MapTooSlowError.
    """

    def ask(engine: Engine) -> tuple[Region, ...]:
        with snapshot():
            layout = layout_now()
            if layout is None:
                return ()
            resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
            named = _named_regions(engine, resolved, layout)
            regions = _counted_regions(engine, resolved, layout, named)
            if not count_areas:
                return regions
            areas = [_area(layout, region.x, region.y) for region in regions]
            counts = engine.match([replace(resolved.plan, area=area) for area in areas])
            pairs = zip(regions, counts, strict=True)
            return tuple(replace(region, inside=found.total) for region, found in pairs)

    return with_engine(_within_limits(ask), viewer, wait_for_index=False)


def _named_regions(engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int]) -> tuple[_RegionName, ...]:
    """The regions of all memories that the viewer sees, cached for minutes: few new memories change no name."""
    projects = resolved.plan.project_ids
    key = (*resolved.revision.database, layout[0], projects)
    if not resolved.revision.is_shared:
        return _find_regions(engine, resolved, layout)
    return _regions.get_or_make(key, lambda: _find_regions(engine, resolved, layout))


def _find_regions(engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int]) -> tuple[_RegionName, ...]:
    plan = corpus_plan(resolved.plan.project_ids)
    requests = [FacetRequest(key, limit=_CANDIDATES) for key in _NAMED_BY]
    counted = engine.counts(plan, requests, zone=resolved.zone, now=resolved.now, days=False)
    found: list[tuple[float, _RegionName]] = []
    for key, weight in _NAMED_BY.items():
        values = [value.value for value in counted.facets[key].values]
        if key == "entity":
            # People write about everything: their names do not say what a region is about.
            terms = value_terms(FACET[key], values, resolved)
            values = [value for value in values if value in terms and terms[value].type != _PERSON]
        for value, squares in engine.map_cells(plan, layout, key, values).items():
            if placed := _region_of(squares):
                size, x, y = placed
                found.append((size * weight, _RegionName(key, value, x, y)))
    # By size; ties by facet and value, so that every process names alike.
    found.sort(key=lambda one: (-one[0], one[1].key, str(one[1].value)))
    kept: list[_RegionName] = []
    least = _APART * (MOST + 1) / _SIDE
    for _, region in found:
        if len(kept) < _REGIONS and all(math.hypot(region.x - k.x, region.y - k.y) >= least for k in kept):
            kept.append(region)
    return (*kept, *_regions_by_words(engine, resolved, layout, kept))


def _regions_by_words(
    engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int], named: Sequence[_RegionName]
) -> Iterator[_RegionName]:
    """Regions where many memories are and no name is, named by the words of their texts."""
    projects = list(resolved.projects)
    cells = engine.map_cells(corpus_plan(resolved.plan.project_ids), layout, "project", projects)
    unit = (MOST + 1) / _SIDE
    crowds = _find_crowds(cells.values(), [(one.x / unit, one.y / unit) for one in named])
    if not crowds:
        return
    places = read_places(*layout)
    ids, xs, ys = places.ids, places.xs.astype(np.int64), places.ys.astype(np.int64)
    if resolved.plan.project_ids is not None:
        # Memories of other projects must not decide which ones are read.
        own = Memory.objects.filter(project_id__in=projects, state__in=DEFAULT_STATES).values_list("pk", flat=True)
        is_own = np.isin(ids, np.fromiter(own.iterator(), np.int64))
        ids, xs, ys = ids[is_own], xs[is_own], ys[is_own]
    near = [ids[np.hypot(xs - x, ys - y) <= _RADIUS * unit] for x, y in crowds]
    names = name_places([_some(one, _READ_AT_EACH) for one in near], _some(ids, _READ_ELSEWHERE), projects)
    for (x, y), name in zip(crowds, names, strict=True):
        if name:
            yield _RegionName("", name, x, y)


def _find_crowds(cells: Iterable[npt.NDArray[np.int64]], named: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """The middles of the densest surroundings that have no name yet, the densest first."""
    grid = np.zeros((_SIDE, _SIDE))
    for squares in cells:
        grid += squares.reshape(_SIDE, _SIDE)
    columns, rows = np.ogrid[:_SIDE, :_SIDE]
    for x, y in named:
        grid[(columns + 0.5 - x) ** 2 + (rows + 0.5 - y) ** 2 <= _RADIUS**2] = 0
    found: list[tuple[int, int]] = []
    while len(found) < _MOST_BY_WORDS:
        column, row = divmod(int(_smooth(grid).argmax()), _SIDE)
        is_near = (columns - column) ** 2 + (rows - row) ** 2 <= _RADIUS**2
        near = grid * is_near
        if near.sum() < _CROWD:
            break
        found.append(_middle(near))
        grid[is_near] = 0
    return found


def _some(ids: Ids, most: int) -> list[int]:
    """Some ids, evenly spread over all."""
    return [int(pk) for pk in ids[:: max(1, -(-len(ids) // most))]]


def _smooth(grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    smooth = grid
    for axis in (0, 1):
        for _ in range(2):
            smooth = np.roll(smooth, 1, axis) + 2 * smooth + np.roll(smooth, -1, axis)
    return smooth


def _middle(near: npt.NDArray[np.float64]) -> tuple[int, int]:
    """The mean place of the memories in some squares."""
    unit = (MOST + 1) / _SIDE
    positions = np.ogrid[:_SIDE, :_SIDE]
    x, y = (float((near * (position + 0.5)).sum() / near.sum() * unit) for position in positions)
    return int(x), int(y)


def _region_of(squares: npt.NDArray[np.int64]) -> tuple[float, int, int] | None:
    """The weight and the middle of the densest surroundings of a value; None if its memories are all over the map."""
    grid = squares.reshape(_SIDE, _SIDE).astype(np.float64)
    column, row = divmod(int(_smooth(grid).argmax()), _SIDE)
    columns, rows = np.ogrid[:_SIDE, :_SIDE]
    near = grid * ((columns - column) ** 2 + (rows - row) ** 2 <= _RADIUS**2)
    inside, total = float(near.sum()), float(grid.sum())
    if inside < _MIN_MEMORIES or inside < _MIN_SHARE * total:
        return None
    return inside * math.sqrt(inside / total), *_middle(near)


def _counted_regions(
    engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int], named: Sequence[_RegionName]
) -> tuple[Region, ...]:
    """The regions with their names and the matches that have their values; those without a match are left out."""
    regions = [
        *_regions_of_values(engine, resolved, layout, named),
        *_regions_of_words(engine, resolved, layout, named),
    ]
    return tuple(sorted(regions, key=lambda region: -region.count))


def _regions_of_words(
    engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int], named: Sequence[_RegionName]
) -> Iterator[Region]:
    words = [one for one in named if not one.key]
    areas = [_area(layout, one.x, one.y) for one in words]
    counts = engine.match([replace(resolved.plan, area=area) for area in areas]) if areas else []
    for one, area, found in zip(words, areas, counts, strict=True):
        if found.total:
            yield Region("", "", str(one.value), one.x, one.y, found.total, area_text(area))


def _regions_of_values(
    engine: Engine, resolved: ResolvedQuery, layout: tuple[int, int], named: Sequence[_RegionName]
) -> Iterator[Region]:
    plan = replace(resolved.plan, counts_results=True)
    values = {key: tuple(one.value for one in named if one.key == key) for key in _NAMED_BY}
    requests = [FacetRequest(key, only=only) for key, only in values.items() if only]
    if not requests:
        return
    counted = engine.counts(plan, requests, zone=resolved.zone, now=resolved.now, days=False).facets
    counts = {(key, value.value): value.count for key, found in counted.items() for value in found.values}
    terms = {key: value_terms(FACET[key], only, resolved) for key, only in values.items()}
    seen = set[str]()
    for one in (one for one in named if one.key):
        count, term = counts.get((one.key, one.value), 0), terms[one.key].get(one.value)
        if count and term:
            label = term.label.rpartition(" / ")[2] if one.key == "category" else term.label
            if label.casefold() in seen:
                continue
            seen.add(label.casefold())
            area = area_text(_area(layout, one.x, one.y))
            yield Region(one.key, term.value, label, one.x, one.y, count, area)


def _area(layout: tuple[int, int], x: int, y: int) -> Area:
    """The surroundings of a point, as a polygon that is nearly a circle."""
    radius = _RADIUS * (MOST + 1) / _SIDE * 0.75
    turns = [2 * math.pi * n / _CORNERS for n in range(_CORNERS)]
    corners = tuple((_on_map(x + radius * math.cos(turn)), _on_map(y + radius * math.sin(turn))) for turn in turns)
    return Area(layout[0], corners, layout[1])


def _on_map(coordinate: float) -> int:
    return min(max(round(coordinate), 0), MOST)

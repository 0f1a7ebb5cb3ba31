"""The map of meaning as JSON: the places of matches, tile by tile, and the regions with their names."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.explore.timeline_api import QueryWarning, query_warning
from explorer.operations import read_operation
from explorer.page_query import Colour
from search.area import MAX_ZOOM, Tile
from search.meaning_map import MapField, Region, map_field, map_regions
from search.query import ExtraParams
from web.errors import Refusal
from web.params import pairs_of
from web.timing import Timings, timed, took_ms
from web.validation import Problem

router = Router()


class NoMapError(Refusal):
    """No map has been drawn yet."""

    status = 404
    code = "no_map"
    suggestion = "the worker draws it as soon as every memory is embedded, and there are a dozen of them"


class MapRequest(ExtraParams):
    """A tile of the map, and its colours."""

    z: int = Field(0, ge=0, le=MAX_ZOOM, description="Zoom: with each, a tile is divided into four.")
    x: int = Field(0, ge=0, lt=1 << MAX_ZOOM, description="Column of the tile.")
    y: int = Field(0, ge=0, lt=1 << MAX_ZOOM, description="Row of the tile.")
    colour: Colour = Field(Colour.TYPE, description="The facet, or `year`, whose largest values are the groups.")

    @property
    def tile(self) -> Tile:
        return Tile(self.z, self.x, self.y)

    def conflicts(self) -> Iterator[Problem]:
        return self.tile.problems()


class RegionsRequest(ExtraParams):
    """Regions take the parameters of a search alone."""


class GroupReply(BaseModel):
    """A value with a colour of its own."""

    value: str
    label: str


class MapReply(BaseModel):
    """The matches in a tile, as points or as a grid."""

    map: int = Field(description="The number of the map, with which an `area` begins.")
    total: int = Field(description="All matches of the query, on the map or not.")
    in_tile: int = Field(description="The matches with a place in the tile.")
    groups: list[GroupReply] = Field(description="The groups of `points` and `grid`, numbered from 1; 0 is any other.")
    points: list[tuple[int, int, int]] | None = Field(
        description="[x, y, group] of each match, coordinates from 0 to 65,535; null if there are more than 60,000."
    )
    grid: list[tuple[int, int, int, int]] | None = Field(
        description="[column, row, group, matches] in a grid of 256 by 256 over the tile; null if there are points."
    )
    filters: dict[str, Any]
    warnings: list[QueryWarning]
    took_ms: float


class RegionReply(BaseModel):
    """A place with a name."""

    facet: str = Field(description="Empty for a place that is named by words of its texts.")
    value: str
    label: str
    x: int
    y: int
    count: int = Field(description="The matches with this value, wherever they are; without one those in `area`.")
    area: str = Field(description="The surroundings of the place, as the parameter `area`.")
    in_area: int = Field(description="The matches in `area`.")


class RegionsReply(BaseModel):
    """The regions in which the query has matches, the largest first."""

    regions: list[RegionReply]
    filters: dict[str, Any]


@read_operation(router, "/map", "map", MapReply, 404, parameters=MapRequest.openapi_with_query())
@timed
def meaning_map(request: ApiRequest, response: HttpResponse) -> tuple[Timings, MapReply]:
    """The matches in a tile of the map of meaning."""
    viewer = allowed(request, "read")
    asked, query = MapRequest.with_query(pairs_of(request.GET))
    found = map_field(query, viewer, asked.colour, asked.tile)
    if found is None:
        raise NoMapError("No map has been drawn yet.")
    return found.timings, _reply(found, query.applied())


def _reply(found: MapField, applied: dict[str, Any]) -> MapReply:
    rows = found.tile
    columns = [rows.xs.tolist(), rows.ys.tolist(), rows.groups.tolist()]
    return MapReply(
        map=found.layout_id,
        total=found.total,
        in_tile=rows.total,
        groups=[GroupReply(value=group.value, label=group.label) for group in found.groups],
        points=None if rows.is_grid else list(zip(*columns, strict=True)),
        grid=list(zip(*columns, rows.counts.tolist(), strict=True)) if rows.is_grid else None,
        filters=applied,
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=took_ms(found.timings),
    )


@read_operation(router, "/map/regions", "map_regions", RegionsReply, parameters=RegionsRequest.openapi_with_query())
def regions(request: ApiRequest) -> RegionsReply:
    """The regions of the map of meaning, named by what most memories there have in common."""
    viewer = allowed(request, "read")
    _, query = RegionsRequest.with_query(pairs_of(request.GET))
    return RegionsReply(
        regions=[_region(one) for one in map_regions(query, viewer, count_areas=True)], filters=query.applied()
    )


def _region(one: Region) -> RegionReply:
    return RegionReply(
        facet=one.key,
        value=one.value,
        label=one.label,
        x=one.x,
        y=one.y,
        count=one.count,
        area=one.area,
        in_area=one.inside or 0,
    )

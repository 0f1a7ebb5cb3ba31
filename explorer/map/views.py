"""The map of meaning as a page: its document, its tiles, and the memory at a place."""

from collections.abc import Container, Iterator

import numpy as np
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe
from pydantic import Field

from access.viewer import Viewer
from explorer.http import PageRequest, page_viewer, private, read_query, read_with_query, request_pairs
from explorer.links import explore_url, memory_url
from explorer.map.page import MapPage, first_words
from explorer.page_query import PageQuery, View
from search.area import MAX_ZOOM, MOST, Tile
from search.meaning_map import (
    MapField,
    MapTooSlowError,
    Region,
    hits_at,
    map_field,
    map_groups,
    map_layout,
    map_regions,
)
from search.result import SearchResult
from web.params import Params, QueryError
from web.timing import server_timing
from web.validation import Problem

# The id of the table of regions, which is left out of a fragment until it is opened.
_TABLE = "regions"


class TileRequest(Params):
    """A tile of the map."""

    z: int = Field(0, ge=0, le=MAX_ZOOM, description="The zoom: with each the tiles are half as large.")
    x: int = Field(0, ge=0, lt=1 << MAX_ZOOM, description="The column, from 0 to 2 to the power of the zoom.")
    y: int = Field(0, ge=0, lt=1 << MAX_ZOOM, description="The row.")

    @property
    def tile(self) -> Tile:
        return Tile(self.z, self.x, self.y)

    def conflicts(self) -> Iterator[Problem]:
        return self.tile.problems()


class PointRequest(Params):
    """A place on the map."""

    x: int = Field(0, ge=0, le=MOST)
    y: int = Field(0, ge=0, le=MOST)


_NOT_DRAWN = (
    "The map is drawn as soon as every memory is embedded, and there are a dozen of them. Status shows how far that is."
)


@require_safe
def open_map(request: HttpRequest) -> HttpResponse:
    """The address of the map in menus; the map itself is a view of the explore page."""
    query, _ = read_query(request_pairs(request))
    return private(HttpResponseRedirect(explore_url(query.replace(view=View.MAP))))


def map_of(query: PageQuery, result: SearchResult, viewer: Viewer, opened: Container[str]) -> MapPage:
    """The map for the result of a query. `opened` are the ids of the parts that the reader has open."""
    layout, has_table = map_layout(), _TABLE in opened
    regions: tuple[Region, ...] = ()
    without_regions = ""
    try:
        if layout:
            regions = map_regions(query.replace(area=""), viewer, count_areas=has_table)
    except MapTooSlowError as error:
        without_regions = error.explanation
    return MapPage(
        query,
        result,
        map_groups(query, viewer, query.colour),
        regions,
        layout or 0,
        missing="" if layout else _NOT_DRAWN,
        without_regions=without_regions,
        may_write="write" in viewer.scopes,
        has_table=has_table,
    )


@require_safe
@login_required
def tile(request: PageRequest) -> HttpResponse:
    """A tile of the map in a compact form, for the script of the page; `GET /api/map` has the same as JSON."""
    asked, query, problems = read_with_query(TileRequest, request_pairs(request))
    if problems:
        return private(HttpResponse(str(QueryError(problems)), status=422, content_type="text/plain"))
    found = map_field(query, page_viewer(request), query.colour, asked.tile)
    if found is None:
        raise Http404("no map has been drawn yet")
    response = HttpResponse(_packed(found), content_type="application/octet-stream")
    response["Server-Timing"] = server_timing(found.timings)
    return private(response)


def _packed(found: MapField) -> bytes:
    """Six numbers of 32 bits: 1 for a grid, the number of rows, that of matches in the tile, that of all matches, the
    number of the map, 0. Then the columns, each of all rows: x as the difference to the row before, y, both of 16
    bits, the count of 32 bits if it is a grid, and the group of 8 bits. Rows are ordered by group and x, so that they
    compress well.
    """
    rows = found.tile
    order = np.lexsort((rows.ys, rows.xs, rows.groups))
    xs = rows.xs[order].astype(np.uint16)
    head = [int(rows.is_grid), len(xs), rows.total, found.total, found.layout_id, 0]
    columns = [np.array(head, "<u4"), np.diff(xs, prepend=np.uint16(0)).astype("<u2"), rows.ys[order].astype("<u2")]
    if rows.is_grid:
        columns.append(rows.counts[order].astype("<u4"))
    columns.append(rows.groups[order].astype(np.uint8))
    return b"".join(column.tobytes() for column in columns)


@require_safe
@login_required
def at(request: PageRequest) -> HttpResponse:
    """The card of the memory at a place."""
    asked, query, problems = read_with_query(PointRequest, request_pairs(request))
    if problems:
        return private(HttpResponse(str(QueryError(problems)), status=422, content_type="text/plain"))
    viewer = page_viewer(request)
    hits = hits_at(query, viewer, asked.x, asked.y)
    if not hits:
        raise Http404("no memory that you can see has this place")
    hit = hits[0]
    context = {
        "hit": hit,
        "others": len(hits) - 1,
        "address": memory_url(hit.id, query.search),
        "snippet": first_words(hit),
        "zone": viewer.timezone,
    }
    return private(render(request, "explorer/_point.html", context))

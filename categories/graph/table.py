"""The tables of entities and of concepts: filtered, sorted, cut to a page."""

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from access.viewer import Viewer
from categories.graph.asking import TableRequest
from categories.graph.kinds import Kind
from categories.graph.network import Ints
from categories.graph.reads import Look, look_at
from categories.graph.whole import Whole, ids_named_like, whole_of
from categories.queries import Term
from search.engines import answered
from search.engines.base import Engine
from search.result import SearchWarning
from search.snapshots import snapshot
from search.stopwatch import Stopwatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TableRow:
    """An entity or a concept: how many others it is linked with, and the memories that name it."""

    term: Term
    links: int
    memories: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Table:
    """A page of a table. `types` counts what the search leaves, whatever types are asked for."""

    kind: Kind
    asked: TableRequest
    rows: tuple[TableRow, ...]
    total: int
    # With nothing asked for.
    every: int
    types: tuple[tuple[str, int], ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.asked.page_size))


def table_of(kind: Kind, asked: TableRequest, viewer: Viewer) -> Table:
    """Two statements where all of it is kept, besides one for a search; four more where it is not."""
    return answered(lambda engine: _table(kind, asked, viewer, engine), viewer)


def _table(kind: Kind, asked: TableRequest, viewer: Viewer, engine: Engine) -> Table:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("graph"):
        look = look_at(kind, engine, viewer)
        whole = whole_of(look)
        left = np.ones(len(whole.nodes), bool)
        if asked.search:
            left = np.isin(whole.nodes, ids_named_like(kind, asked.search))
        types = _types(whole, left)
        if asked.type:
            left &= np.isin(whole.type_places, [n for n, name in enumerate(whole.types) if name in asked.type])
        ordered = _ordered(whole, np.flatnonzero(left), asked)
        begin = (asked.page - 1) * asked.page_size
        shown = ordered[begin : begin + asked.page_size]
        rows = _rows(look, whole, shown)
    return Table(
        kind=kind,
        asked=asked,
        rows=rows,
        total=len(ordered),
        every=len(whole.nodes),
        types=types,
        warnings=tuple(_warnings(asked, types, len(ordered))),
        timings=watch.timings,
    )


def _types(whole: Whole, left: npt.NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    """The types that are left with how many of each, the most first."""
    counts = np.bincount(whole.type_places[left], minlength=len(whole.types)).tolist()
    found = [(name, count) for name, count in zip(whole.types, counts, strict=True) if count]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _ordered(whole: Whole, left: Ints, asked: TableRequest) -> Ints:
    """By the column asked for; what is the same there by name, and what has nothing there last."""
    column = {
        "name": whole.places,
        "type": whole.type_places,
        "links": whole.linked.degrees,
        "memories": whole.memories,
        "first": whole.first,
        "last": whole.last,
    }[asked.sort.column][left].astype(np.float64)
    order = np.lexsort((whole.places[left], -column if asked.sort.is_down else column))
    return left[order]


def _rows(look: Look, whole: Whole, shown: Ints) -> tuple[TableRow, ...]:
    ids = whole.nodes[shown].tolist()
    terms = look.terms(ids)
    degrees = whole.linked.degrees
    return tuple(
        TableRow(
            terms[pk],
            int(degrees[at]),
            int(whole.memories[at]),
            _moment(float(whole.first[at])),
            _moment(float(whole.last[at])),
        )
        for pk, at in zip(ids, shown.tolist(), strict=True)
        if pk in terms
    )


def _moment(seconds: float) -> datetime | None:
    """None where there is none, and for a date that only SQL by hand can make."""
    try:
        return None if np.isnan(seconds) else _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _warnings(asked: TableRequest, types: tuple[tuple[str, int], ...], total: int) -> list[SearchWarning]:
    known = {name for name, _ in types}
    found = []
    for name in asked.type:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 3)
            found.append(SearchWarning(f"Nothing here is of the type “{name}”.", "type", tuple(near)))
    pages = max(1, -(-total // asked.page_size))
    if asked.page > pages:
        found.append(SearchWarning(f"Page {asked.page:,} is past the last page, {pages:,}.", "page"))
    return found

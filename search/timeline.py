"""The memories before and after an anchor, among those that pass the filters of a query.

The entry is `timeline(request, query, viewer)`. Without an id, the anchor is the best hit for the text of the query,
which does not restrict its neighbours.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from access.viewer import Viewer
from memories.queries import visible_to
from memories.services import MemoryNotFound
from search.engines import with_engine
from search.engines.base import Engine, EngineQuery
from search.hits import load_hits
from search.plan import explain_unknown, resolve_query
from search.query import ALIASES, Mode, Problem, QueryError, SearchQuery, Sort
from search.ranking import Ranked
from search.result import Hit, HitDetail, SearchWarning
from search.run import engine_notices, run
from search.snapshots import snapshot
from web.timing import Stopwatch

DEFAULT_DEPTH = 3
MAX_DEPTH = 100
# Parameters of a search that do not apply to a timeline.
OF_A_SEARCH = {"sort", "page", "page_size", "offset", "include_facets", "bucket"}
_ID = re.compile(r"#?([0-9]{1,18})")
# The resolution of timestamps.
_TICK = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """The anchor and the numbers of neighbours. Without an anchor it is the best hit for the text of the query."""

    anchor: int | None = None
    before: int = DEFAULT_DEPTH
    after: int = DEFAULT_DEPTH

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]]) -> tuple[Self, SearchQuery]:
        """The timeline's own parameters and the query beside them. Raises QueryError, naming all that is wrong."""
        problems: list[Problem] = []
        given: dict[str, str] = {}
        rest: list[tuple[str, str]] = []
        for key, value in pairs:
            if key in {"anchor", "depth_before", "depth_after"}:
                if given.setdefault(key, value.strip()) != value.strip():
                    problems.append(Problem(key, "is given twice with different values", "give it once"))
            elif ALIASES.get(key, key) in OF_A_SEARCH:
                problems.append(
                    Problem(
                        key, "does nothing in a timeline", "leave it out; depth_before and depth_after set its length"
                    )
                )
            else:
                rest.append((key, value))
        query, unread = SearchQuery.read(rest)
        problems.extend(unread)
        anchor = _read_anchor(given.get("anchor", ""), problems)
        depths = [_read_depth(key, given.get(key, ""), problems) for key in ("depth_before", "depth_after")]
        if not problems and (anchor is None) == (not query.text):
            wrong = "neither is given" if anchor is None else "both are given"
            advice = "write anchor=ID of a memory, or query=words to stand at the best hit"
            problems.append(Problem("anchor", f"a timeline stands at an anchor or at a query: {wrong}", advice))
        if problems:
            raise QueryError(problems)
        return cls(anchor, *depths), query


def _read_anchor(text: str, problems: list[Problem]) -> int | None:
    if not text:
        return None
    if match := _ID.fullmatch(text):
        return int(match[1])
    problems.append(Problem("anchor", f"'{text[:40]!a}' is not the id of a memory", "write a number such as 123"))
    return None


def _read_depth(key: str, text: str, problems: list[Problem]) -> int:
    if not text:
        return DEFAULT_DEPTH
    if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) <= MAX_DEPTH:
        return int(text)
    problems.append(Problem(key, f"'{text[:40]!a}' is not allowed", f"write a number from 0 to {MAX_DEPTH}"))
    return DEFAULT_DEPTH


@dataclass(frozen=True, slots=True)
class Timeline:
    """The anchor and its neighbours, oldest first. `earlier` and `later` count the memories beyond them."""

    query: SearchQuery
    anchor: Hit | None
    before: tuple[Hit, ...] = ()
    after: tuple[Hit, ...] = ()
    earlier: int = 0
    later: int = 0
    warnings: tuple[SearchWarning, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def took_ms(self) -> float:
        return round(sum(self.timings.values()), 2)


def timeline(request: TimelineRequest, query: SearchQuery, viewer: Viewer) -> Timeline:
    """The neighbours of a memory. Raises MemoryNotFound if the anchor is not visible."""
    if request.anchor is not None:
        return with_engine(lambda engine: _timeline(engine, request, query, viewer, request.anchor or 0), viewer)
    result = run(query.but(page_size=1, include_facets=False), viewer, detail=HitDetail.INDEX)
    if not result.hits:
        nothing = SearchWarning("Nothing was found to stand at.", "query")
        return Timeline(query, None, warnings=(nothing, *result.warnings), timings=result.timings)
    anchor = result.hits[0].id
    found = with_engine(lambda engine: _timeline(engine, request, query, viewer, anchor), viewer)
    return replace(found, timings={**result.timings, **found.timings})


def _timeline(engine: Engine, request: TimelineRequest, query: SearchQuery, viewer: Viewer, anchor: int) -> Timeline:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("timeline"):
        at = visible_to(viewer).filter(pk=anchor).values_list("created_at", flat=True).first()
        if at is None:
            raise MemoryNotFound(anchor)
        # The text only finds the anchor; it does not restrict the neighbours.
        resolved = resolve_query(engine, query.but(text="", mode=Mode.FACETED), viewer, datetime.now(UTC))
        warnings = [*resolved.warnings, *explain_unknown(resolved, engine, resolved.unknown)]
        newer, has_anchor, total = _place(engine, resolved.plan, at, anchor)
        older = total - newer - has_anchor
        shown_after, shown_before = min(request.after, newer), min(request.before, older)
        found = [
            *_hits(engine, resolved.plan, newer - shown_after, shown_after),
            *_hits(engine, resolved.plan, newer + has_anchor, shown_before),
        ]
        rows = {hit.id: hit for hit in load_hits([Ranked(pk) for pk, _ in found], resolved, viewer, HitDetail.INDEX)}
        # The anchor may be in any state.
        alone = replace(resolved, plan=resolved.plan.without_filter("state"))
        (here,) = load_hits([Ranked(anchor)], alone, viewer, HitDetail.INDEX)
        warnings += engine_notices(engine, viewer)
    return Timeline(
        query=query,
        anchor=here,
        before=tuple(rows[pk] for pk, _ in reversed(found[shown_after:]) if pk in rows and pk != anchor),
        after=tuple(rows[pk] for pk, _ in reversed(found[:shown_after]) if pk in rows and pk != anchor),
        earlier=older - shown_before,
        later=newer - shown_after,
        warnings=tuple(warnings),
        timings=watch.timings,
    )


def _place(engine: Engine, plan: EngineQuery, at: datetime, anchor: int) -> tuple[int, int, int]:
    """(memories of the plan after the anchor, whether it is one of them, their total).

    Memories with the same time, as imports create them, are ordered by id, like the newest order of every engine.
    """
    after = at if at == _LAST else at + _TICK
    start, end = max(plan.start or at, at), min(plan.end or after, after)
    instant = replace(plan, start=start, end=max(start, end))
    later = replace(plan, start=max(plan.start or after, after))
    newer, same, total = engine.totals([later, instant, plan])

    def id_at(n: int) -> int:
        return engine.hits(instant, Sort.NEWEST, limit=1, offset=n)[0][0]

    place = bisect_left(range(same), -anchor, key=lambda n: -id_at(n))
    return newer + place, int(place < same and id_at(place) == anchor), total


def _hits(engine: Engine, plan: EngineQuery, offset: int, limit: int) -> list[tuple[int, float | None]]:
    return engine.hits(plan, Sort.NEWEST, limit=limit, offset=offset) if limit else []

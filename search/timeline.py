"""The memories before and after an anchor, among those that pass the filters of a query.

The entry is `timeline(request, query, viewer)`. The anchor is a memory, given by its id or by a time, or the best hit
for the text of the query, which does not restrict its neighbours.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from access.viewer import Viewer
from memories.queries import visible_to
from memories.recalls import record_list
from memories.records import MemoryId
from memories.refusals import MemoryNotFoundError
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineQuery
from search.hits import load_hits
from search.plan import explain_unknown, resolve_query
from search.query import ExtraParams, Mode, SearchQuery, Sort
from search.ranking import Ranked
from search.result import Hit, HitDetail, SearchWarning
from search.run import engine_notices, run
from text.formatting import check_date, instant, legible
from web.timing import Stopwatch
from web.validation import Problem

# The resolution of timestamps.
_TICK = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)


def _anchor(value: object) -> int | str:
    """The id of a memory, or the canonical form of a time. Raises ValueError."""
    if isinstance(value, str) and not value.strip().lstrip("#").isdecimal():
        try:
            return check_date(value.strip())
        except ValueError:
            raise ValueError(
                "is not the id of a memory, such as 123, nor a time, such as 2026-03-01 or 2026-03-01T14:00Z"
            ) from None
    return _MEMORY_ID.validate_python(value)


_MEMORY_ID: TypeAdapter[int] = TypeAdapter(MemoryId)
Anchor = Annotated[int | str | None, BeforeValidator(_anchor), WithJsonSchema({"type": ["integer", "string"]})]


class TimelineRequest(ExtraParams):
    """The anchor of a timeline and its length. Without an anchor, the best hit of the query's words is the anchor."""

    # A timeline is in order of time, and as long as its depths.
    ineffective = frozenset({"sort", "page", "page_size", "offset", "include_facets", "facet_scope", "bucket"})
    ineffective_message = "does nothing in a timeline"
    ineffective_suggestion = "leave it out; depth_before and depth_after set its length"

    anchor: Anchor = Field(
        None,
        description="The id of the memory in the middle, or an ISO 8601 time: the last memory until then. Or give `q`.",
    )
    before: int = Field(3, alias="depth_before", ge=0, le=100, description="Number of memories before it.")
    after: int = Field(3, alias="depth_after", ge=0, le=100, description="Number of memories after it.")

    def conflicts_with(self, query: SearchQuery) -> Iterator[Problem]:
        if (self.anchor is None) == (not query.text):
            wrong = "neither is given" if self.anchor is None else "both are given"
            advice = "write anchor=ID of a memory, or query=words to use the best hit"
            yield Problem("anchor", f"a timeline needs either an anchor or a query: {wrong}", advice)


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


def timeline(request: TimelineRequest, query: SearchQuery, viewer: Viewer) -> Timeline:
    """The neighbours of a memory. Raises MemoryNotFoundError if the anchor is not visible."""
    if isinstance(request.anchor, int):
        chosen = _Chosen(request.anchor)
    elif request.anchor is not None:
        moment = request.anchor
        chosen = with_engine(lambda engine: _memory_at(engine, moment, query, viewer), viewer)
    else:
        chosen = _best_hit(query, viewer)
    anchor = chosen.memory_id
    if anchor is None:
        nothing = SearchWarning("No memory was found for the anchor.", "query")
        return Timeline(query, None, warnings=(nothing, *chosen.warnings), timings=chosen.timings)
    found = with_engine(lambda engine: _timeline(engine, request, query, viewer, anchor), viewer)
    warnings = dict.fromkeys((*chosen.warnings, *found.warnings))
    shown = [hit.id for hit in (*found.before, *filter(None, (found.anchor,)), *found.after)]
    record_list(viewer, shown, urlencode([*request.parameters(), *query.parameters()]))
    return replace(found, warnings=tuple(warnings), timings={**chosen.timings, **found.timings})


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The anchor, None if there is none, and what is to be said about the choice."""

    memory_id: int | None
    warnings: tuple[SearchWarning, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)


def _best_hit(query: SearchQuery, viewer: Viewer) -> _Chosen:
    result = run(query.with_(page_size=1, include_facets=False), viewer, detail=HitDetail.INDEX)
    if not result.hits:
        return _Chosen(None, result.warnings, result.timings)
    # The other warnings are about filters, which choose the neighbours too.
    warnings = [warning for warning in result.warnings if warning.parameter == "mode"]
    best = result.hits[0]
    if best.why.keyword_rank is None and best.why.similarity is not None:
        warnings += with_engine(lambda engine: _notice_of_meaning(engine, query, best, viewer), viewer)
    return _Chosen(best.id, tuple(warnings), result.timings)


def _notice_of_meaning(engine: Engine, query: SearchQuery, best: Hit, viewer: Viewer) -> list[SearchWarning]:
    """A warning if the best hit has neither the words of the query nor a term of that name."""
    with snapshot():
        plan = resolve_query(engine, query, viewer, datetime.now(UTC)).plan
        without_meaning = replace(plan, meaning=None)
        if engine.filter_ids(without_meaning, [best.id]):
            return []
        are_contained = engine.any_match([without_meaning])[0]
    if are_contained and query.mode == Mode.SEMANTIC:
        # It was asked for by meaning, whatever its words.
        return []
    which = "The anchor does not contain" if are_contained else "No memory contains"
    near = f"this is the nearest in meaning ({best.why.similarity:.2f})"
    return [SearchWarning(f"{which} “{legible(query.text, 60)}”; {near}.", "query")]


def _memory_at(engine: Engine, moment: str, query: SearchQuery, viewer: Viewer) -> _Chosen:
    """The last memory until a time among those that pass the filters, else the first one after it."""
    with snapshot():
        plan = resolve_query(engine, query, viewer, datetime.now(UTC)).plan
        until = instant(moment, query.zone(viewer.timezone), end=True)
        ends = [end for end in (plan.end, until) if end is not None]
        before = replace(plan, end=min(ends, default=None))
        if before.start is None or before.end is None or before.start < before.end:
            for memory_id, _ in engine.hits(before, Sort.NEWEST, limit=1, offset=0):
                return _Chosen(memory_id)
        for memory_id, _ in engine.hits(plan, Sort.OLDEST, limit=1, offset=0):
            text = f"No memory is as old as {moment}: this is the first one after it."
            return _Chosen(memory_id, (SearchWarning(text, "anchor"),))
    return _Chosen(None)


def _timeline(engine: Engine, request: TimelineRequest, query: SearchQuery, viewer: Viewer, anchor: int) -> Timeline:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("timeline"):
        at = visible_to(viewer).filter(pk=anchor).values_list("created_at", flat=True).first()
        if at is None:
            raise MemoryNotFoundError(anchor)
        # The words have found the anchor, if they were to; what stands around it need not have them.
        resolved = resolve_query(engine, query.with_(text="", mode=Mode.FACETED), viewer, datetime.now(UTC))
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
    newer, same, total = (found.total for found in engine.match([later, instant, plan]))

    def id_at(n: int) -> int:
        return engine.hits(instant, Sort.NEWEST, limit=1, offset=n)[0][0]

    place = bisect_left(range(same), -anchor, key=lambda n: -id_at(n))
    return newer + place, int(place < same and id_at(place) == anchor), total


def _hits(engine: Engine, plan: EngineQuery, offset: int, limit: int) -> list[tuple[int, float | None]]:
    return engine.hits(plan, Sort.NEWEST, limit=limit, offset=offset) if limit else []

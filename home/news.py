"""The memories that the home page says to read first: those that are new to the reader, and matter.

Bounded: the important memories of a project are the newest fifty, as are its decisions and the last changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from access.models import AuditEvent
from access.viewer import Viewer
from memories.models import ImportBatch, Memory
from memories.queries import visible_to
from search.query import SearchQuery, Sort
from search.result import HitDetail, SearchResult
from search.run import run
from web.sql import fetch_column

# Changes of what one believes come first.
READ_FIRST = "decision"
_NEWS = 5
# Those that replace others come first, but leave room for what is pinned.
_REPLACING = 3
_LOOKED_AT = 50

# By memory_important_idx, whose order the rows of a project are in.
_IMPORTANT = """
    SELECT found.id FROM memories_project project CROSS JOIN LATERAL (
        SELECT id, pinned, created_at FROM memories_memory
        WHERE project_id = project.id AND state = 'active' AND (pinned OR importance >= 0.8)
        ORDER BY pinned DESC, created_at DESC, id DESC LIMIT %(most)s
    ) found WHERE project.id = ANY(%(arrived)s) OR project.slug = ANY(%(changed)s)
    ORDER BY found.pinned DESC, found.created_at DESC, found.id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The memories that imports brought since a time, with their own first and last dates; and when they did so."""

    count: int = 0
    imports: int = 0
    first: datetime | None = None
    last: datetime | None = None
    since: datetime | None = None
    batch_ids: frozenset[int] = frozenset()
    project_ids: frozenset[int] = frozenset()


def arrivals_since(start: datetime, viewer: Viewer) -> Arrivals:
    """The memories of imports that were not undone. Their reports have the numbers, so that no memory is counted."""
    done = ImportBatch.objects.filter(state=ImportBatch.State.DONE, created__gt=0, finished_at__gte=start)
    arrived = [
        (pk, finished_at, int(project_id), number, datetime.fromisoformat(first), datetime.fromisoformat(last))
        for pk, finished_at, parts in done.values_list("pk", "finished_at", "report__arrived")
        for project_id, (number, first, last) in (parts or {}).items()
    ]
    seen = [part for part in arrived if viewer.may_see(part[2])]
    if not seen:
        return Arrivals()
    ids, finished, projects, numbers, firsts, lasts = zip(*seen, strict=True)
    batches = frozenset(ids)
    return Arrivals(sum(numbers), len(batches), min(firsts), max(lasts), min(finished), batches, frozenset(projects))


@dataclass(frozen=True, slots=True)
class News:
    """A memory to read first, why, and the older one that it replaces."""

    memory: Memory
    reason: str
    """`replaces`, `pinned`, `important`, `decision` or `changed`."""
    replaces: Memory | None = None


def read_first(viewer: Viewer, changed: SearchResult, start: datetime, arrivals: Arrivals) -> tuple[News, ...]:
    """Memories that came or changed since, by others: those that replace older ones, pinned and important ones,
    decisions, and then the last changes. Memories that an import brought are not listed for their arrival alone.
    """
    query = changed.query.with_(page_size=_LOOKED_AT)
    replaced = memories_by_id(viewer, memory_ids(query.with_(state=(Memory.State.SUPERSEDED.value,)), viewer))
    older = {memory.superseded_by_id: memory for memory in replaced if memory.superseded_by_id}
    decisions = SearchQuery(type=(READ_FIRST,), page_size=_LOOKED_AT, sort=Sort.NEWEST)
    last = memory_ids(query, viewer)
    first = list(older)[:_REPLACING]
    important = _important(viewer, changed, arrivals)
    ids = dict.fromkeys([*first, *important, *memory_ids(decisions, viewer), *older, *last])
    found = [memory for memory in memories_by_id(viewer, ids) if memory.state in ("active", "proposed")]
    # A memory that replaces another one may be older than the replacement.
    new = [one for one in found if one.updated_at >= start or one.batch_id in arrivals.batch_ids or one.pk in older]
    own = _written_only_by(viewer, [memory.pk for memory in new], start)
    named = _with_reasons((memory for memory in new if memory.pk not in own), older, frozenset(last), arrivals)
    return tuple(news for news, _ in zip(named, range(_NEWS), strict=False))


def _with_reasons(
    memories: Iterable[Memory], older: dict[int, Memory], last: frozenset[int], arrivals: Arrivals
) -> Iterator[News]:
    for memory in memories:
        if replaces := older.get(memory.pk):
            yield News(memory, "replaces", replaces)
        elif memory.pinned:
            yield News(memory, "pinned")
        elif (memory.importance or 0) >= 0.8:
            yield News(memory, "important")
        elif memory.memory_type == READ_FIRST:
            yield News(memory, "decision")
        elif memory.pk in last and memory.batch_id not in arrivals.batch_ids:
            yield News(memory, "changed")


def _important(viewer: Viewer, changed: SearchResult, arrivals: Arrivals) -> list[int]:
    """The newest pinned or important memories of the projects where most has changed, whoever may see them."""
    slugs = [value.value for facet in changed.facets or () if facet.key == "project" for value in facet.values]
    given = {"arrived": list(arrivals.project_ids), "changed": slugs, "most": _LOOKED_AT}
    return fetch_column(_IMPORTANT, given)


def _written_only_by(viewer: Viewer, ids: Sequence[int], start: datetime) -> set[int]:
    """Those of some memories that the viewer wrote or changed since, and nobody else."""
    if viewer.user_id is None and viewer.api_key_id is None:
        return set()
    events = AuditEvent.objects.filter(subject_type="memory", subject_id__in=ids, at__gte=start)
    by_viewer: set[int] = set()
    by_others: set[int] = set()
    for memory_id, user_id, key_id in events.values_list("subject_id", "user_id", "api_key_id"):
        is_own = user_id == viewer.user_id if viewer.api_key_id is None else key_id == viewer.api_key_id
        (by_viewer if is_own else by_others).add(memory_id)
    return by_viewer - by_others


def memory_ids(query: SearchQuery, viewer: Viewer) -> list[int]:
    return [hit.id for hit in run(query, viewer, include_facets=False, detail=HitDetail.INDEX).hits]


def memories_by_id(viewer: Viewer, ids: Iterable[int]) -> list[Memory]:
    """The memories that the viewer may open, in the order of their ids here, without their long texts."""
    wanted = list(ids)
    rows = visible_to(viewer).select_related("project").defer("content", "summary", "terms", "raw").in_bulk(wanted)
    return [rows[pk] for pk in wanted if pk in rows]

"""Results as the flat rows and the heads that tools render."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from access.viewer import Viewer
from agent_tools.calls import DATES
from agent_tools.rendering import CellValue, OneLine, date_cell, encode, unified_row
from agent_tools.workflow import WORKFLOW as WORKFLOW
from explorer.explore.timeline_api import index_row
from memories.history import HistoryEvent, memory_history
from memories.models import Memory
from memories.queries import MemoryDetail, memory_version
from search.facets import FACET, Facet
from search.query import FacetScope, SearchQuery, Sort
from search.result import Hit, SearchResult, SearchWarning
from search.unified.service import best_known
from text.formatting import number

# Characters of a value before and after a change.
_VALUE_LENGTH = 200
_NAMED_SHOWN = 5


def index_rows(hits: Iterable[Hit], order: Sort = Sort.NEWEST) -> list[dict[str, CellValue]]:
    """Rows of an index, with the date that orders them. The state has a column only if some memory is not active."""
    listed = list(hits)
    rows = [index_cells(hit, order) for hit in listed]
    if all(hit.state == Memory.State.ACTIVE for hit in listed):
        return rows
    return [row | {"state": hit.state} for row, hit in zip(rows, listed, strict=True)]


def index_cells(hit: Hit, order: Sort = Sort.NEWEST) -> dict[str, CellValue]:
    row = index_row(hit)
    date = {"updated": date_cell(hit.updated_at)} if order is Sort.UPDATED else {"date": date_cell(row.created_at)}
    return {
        "id": row.id,
        "title": row.title,
        **date,
        "type": row.memory_type,
        "project": row.project,
    }


def whole_memory(detail: MemoryDetail) -> dict[str, CellValue]:
    """A whole memory."""
    memory = detail.memory
    return {
        "id": memory.pk,
        "title": memory.title,
        "date": f"{memory.created_at:%Y-%m-%dT%H:%M}",
        "type": memory.memory_type,
        "project": memory.project.slug,
        "state": memory.state,
        "version": memory_version(memory),
        "superseded_by": detail.superseded_by.id if detail.superseded_by else None,
        "tags": list(memory.tags),
        "categories": [node.path for node in detail.categories],
        "concepts": [term.label for term in detail.concepts],
        "entities": [term.value for term in detail.entities],
        "authors": list(memory.authors),
        "agent": memory.agent,
        "source": memory.source_uri or memory.source,
        "links": [f"{x.rel} {f'#{x.memory.id}' if x.memory else x.target}" for x in detail.links],
        "summary": memory.summary,
        "content": memory.content,
    }


def joined(values: Iterable[str]) -> str:
    return ", ".join(values)


def ids_text(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def known_line(result: SearchResult, viewer: Viewer) -> dict[str, str]:
    """The fact or term that fits the text best, and the call that finds more of its kind."""
    hit = best_known(result, viewer)
    if hit is None:
        return {}
    row = unified_row(hit)
    what = " – ".join(dict.fromkeys(filter(None, (str(row["title"]), str(row["text"])))))
    more = call_text("search", **asked_of(result.query) | {"mode": "unified"})
    return {"known": f"{row['id']} {what}; {row['see']}; more: {more}"}


def page_head(result: SearchResult, facets: Collection[str]) -> dict[str, Any]:
    """The head of a page: its place, the filters applied, warnings and facets."""
    head: dict[str, Any] = {
        "page": result.page,
        "page_size": result.page_size,
        "total": result.total,
        "has_more": result.has_more,
        **filters_line(result.query),
    }
    if result.named:
        head["named"] = [
            f"{term.count} {'carries' if term.count == 1 else 'carry'} {term.text}: {term.facet}={term.value}"
            for term in result.named[:_NAMED_SHOWN]
        ]
    head |= hidden_line(result)
    head |= warning_lines(result.warnings)
    if result.relaxations:
        head["relaxations"] = OneLine({f"without {one.label}": one.count for one in result.relaxations})
    return head | (_counts(result, facets) if result.facets is not None else {})


def hidden_line(result: SearchResult) -> dict[str, Any]:
    """How many memories match in the states that a search leaves out, if any."""
    if not result.hidden:
        return {}
    more = number(result.hidden, at_least=result.hidden_at_least)
    match = "matches" if more == "1" else "match"
    return {"hidden": f'{more} more {match} in other states: state=["archived", "superseded"] to see'}


def warning_lines(warnings: Iterable[SearchWarning]) -> dict[str, Any]:
    messages = [" ".join(filter(None, (warning.message, _did_you_mean(warning)))) for warning in warnings]
    return {"warnings": messages} if messages else {}


def _did_you_mean(warning: SearchWarning) -> str:
    # With its filter's name, since a bare value would be searched as text.
    of = f"{warning.parameter}=" if warning.parameter in FACET else ""
    return f"Did you mean {' or '.join(of + name for name in warning.did_you_mean)}?" if warning.did_you_mean else ""


def _counts(result: SearchResult, wanted: Collection[str]) -> dict[str, Any]:
    """The facets that have values, the largest values first, and how to get what is not listed."""
    if not result.total and result.query.facet_scope is FacetScope.RESULTS:
        return {"facets": {}}
    counts: dict[str, OneLine] = {}
    notes: list[str] = []
    cut: list[Facet] = []
    for facet in result.facets or ():
        if facet.key not in wanted or not (facet.values or facet.unavailable):
            continue
        if facet.unavailable:
            notes.append(f"{facet.spec.api_name}: {facet.unavailable}")
            continue
        ranked = sorted(facet.values, key=lambda v: (-v.count, v.label))
        counts[facet.spec.api_name] = OneLine({v.value: v.count for v in ranked if v.count or v.selected or v.excluded})
        if facet.has_more:
            cut.append(facet)
    if result.date_buckets is not None and DATES in wanted:
        counts["date_buckets"] = OneLine(result.date_buckets.by_name())
    if cut:
        largest = ", ".join(f"{len(facet.values)} largest of {facet.distinct:,} {facet.spec.api_name}" for facet in cut)
        notes.append(f"{largest}; the rest: {call_text('list_values', facet=cut[0].key, **asked_of(result.query))}")
    head = {"facets": counts} | ({"facet_notes": notes} if notes else {})
    return scope_line(result.query, wanted) | head


def scope_line(query: SearchQuery, keys: Iterable[str]) -> dict[str, str]:
    """A note on the counts of facets with a selection; elsewhere both ways count the same."""
    if not any(key in FACET and query.selection(key).restricts for key in keys):
        return {}
    if query.facet_scope is FacetScope.RESULTS:
        return {"facet_scope": "results (choices: what each value would give in place of those selected)"}
    return {"facet_scope": "choices (results: the memories that match)"}


def asked_of(query: SearchQuery) -> dict[str, Any]:
    """The text and the filters of a query, as arguments of a tool."""
    paging = {"sort", "page", "page_size", "offset", "include_facets", "facet_scope", "bucket"}
    asked = {key: value for key, value in query.applied().items() if key not in paging}
    return ({"query": asked.pop("q")} if "q" in asked else {}) | asked


def call_text(name: str, **arguments: Any) -> str:
    """A call of a tool as text, to be made as it is."""
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in arguments.items())})"


def filters_line(query: SearchQuery) -> dict[str, Any]:
    """The query as it was understood."""
    applied = {key: value for key, value in query.applied().items() if key != "facet_scope"}
    return {"filters": OneLine(applied)} if applied else {}


def next_page(query: SearchQuery) -> Callable[[int], str]:
    def advice(count: int) -> str:
        if not count:
            return "raise it, or ask for a smaller limit"
        in_place = " in place of page" if query.page > 1 else ""
        return f"raise it, or continue with offset={query.begin + count}{in_place}"

    return advice


def written(memory: Memory, done: str, **more: Any) -> str:
    """The reply to a write: the memory, where it is, and what differs from before."""
    row = {"id": memory.pk, "done": done, "title": memory.title, "project": memory.project.slug, "state": memory.state}
    row["version"] = memory_version(memory)
    return encode({**row, **more}, "toon")


def changes_text(event: HistoryEvent) -> str:
    """The fields that an event changed, with their values before and after, each cut."""
    changes = [one for one in event.changes if one.field != "updated_at"]
    return "; ".join(f"{one.field}: {_value(one.before)} → {_value(one.after)}" for one in changes)


def _value(value: Any) -> str:
    text = " ".join((joined(map(str, value)) if isinstance(value, list) else str(value or "")).split()) or "nothing"
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"


def last_event(memory_id: int, viewer: Viewer) -> HistoryEvent | None:
    """The last event of a memory, for a viewer who may read it."""
    found = memory_history(viewer, memory_id, limit=1) if "read" in viewer.scopes else None
    return found.events[0] if found and found.events else None

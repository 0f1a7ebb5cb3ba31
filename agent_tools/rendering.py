"""Answers for a model: results as flat rows, rendered as TOON or JSON, truncated to a token budget at whole rows.

JSON has every field, and lists as lists. In TOON rows are flat (lists are joined into a cell), and columns without
anything are left out: only then is TOON smaller than JSON.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import Any, Literal, Self

import toon_format
from pydantic import BaseModel, ConfigDict, Field

from access.viewer import Viewer
from explorer.explore.timeline_api import index_row
from memories.history import HistoryEvent, memory_history
from memories.models import Memory
from memories.queries import MemoryDetail, memory_version
from memories.trust import trust_of
from search.facets import FACET, Facet
from search.plain_words import offer_filters
from search.query import FacetScope, SearchQuery, Sort
from search.result import Hit, SearchResult, SearchWarning
from search.unified.legs import ResultKind
from search.unified.rows import Linked, UnifiedHit
from search.unified.service import UnifiedResult, best_known
from text.formatting import estimated_tokens, memories, number

CellValue = str | int | float | bool | list[str] | None
TableRow = Mapping[str, CellValue]
# The key of the dates among the facets.
DATES = "date"


class OneLine(dict[str, Any]):
    """Counts by value, or other short fields, which TOON has on one line."""


MIN_TOKENS = 200
MAX_TOKENS = 100_000
# Enough for fifty hits or some whole memories, and below the limits of clients.
DEFAULT_TOKENS = 6_000
# The minimum length of a truncated text.
_SHORTEST = 200


class OutputOptions(BaseModel):
    """The options of the output, accepted by every reading tool."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["toon", "json"] = "toon"
    max_tokens: int = Field(DEFAULT_TOKENS, ge=MIN_TOKENS, le=MAX_TOKENS)


class Reply(str):
    """The text of a reply, with the same as data."""

    data: Mapping[str, Any]

    def __new__(cls, text: str, data: Mapping[str, Any]) -> Self:
        reply = super().__new__(cls, text)
        reply.data = data
        return reply


def encode(data: Mapping[str, Any], form: str) -> Reply:
    if form == "json":
        return Reply(json.dumps(data, ensure_ascii=False, separators=(",", ":")), data)
    lines = {key: _on_a_line(value) for key, value in data.items() if value not in ("", None, {})}
    return Reply(toon_format.encode(lines), data)


def _on_a_line(value: Any) -> Any:
    """A field of a head in TOON: counts on one line, and lists within it joined."""
    if isinstance(value, OneLine):
        return [f"{name}={_join_cell(inner)}" for name, inner in value.items()]
    if isinstance(value, Mapping):
        return {key: _on_a_line(_join_cell(inner)) for key, inner in value.items()}
    return value


def _join_cell(cell: Any) -> Any:
    return ", ".join(cell) if isinstance(cell, list) else cell


def _shaped(rows: Sequence[TableRow], options: OutputOptions) -> list[tuple[TableRow, TableRow]]:
    """Rows, each also as the form has it."""
    if options.format == "json":
        return [(row, row) for row in rows]
    flat = [{key: _join_cell(cell) for key, cell in row.items()} for row in rows]
    used = {key for row in flat for key, cell in row.items() if cell not in {"", None} and cell is not False}
    return [
        (row, {key: cell for key, cell in line.items() if key in used}) for row, line in zip(rows, flat, strict=True)
    ]


def _encode_table(
    head: Mapping[str, Any], tables: Mapping[str, Sequence[tuple[TableRow, TableRow]]], options: OutputOptions
) -> Reply:
    """A head and tables of shaped rows, with the rows themselves as data."""
    text = encode({**head, **{name: [dict(row) for _, row in table] for name, table in tables.items()}}, options.format)
    return Reply(text, {**head, **{name: [row for row, _ in table] for name, table in tables.items()}})


def render_rows(
    head: Mapping[str, Any],
    name: str,
    rows: Sequence[TableRow],
    options: OutputOptions,
    advice: Callable[[int], str],
    order: Callable[[TableRow], Any] | None = None,
) -> Reply:
    """Render the head and the first rows that fit the budget, with a note of what is left out.

    `advice` tells how to get the rest, given the number of rows options. `order` sorts the rows that fit.
    """

    shaped = _shaped(rows, options)

    def reply_of(included: Sequence[tuple[TableRow, TableRow]], left_out: str) -> Reply:
        notes = {**head, "left_out": left_out} if left_out else head
        ordered = sorted(included, key=lambda pair: order(pair[0])) if order else included
        return _encode_table(notes, {name: ordered}, options)

    def first(n: int) -> Reply:
        left = len(rows) - n
        return reply_of(shaped[:n], f"{left} of {len(rows)} {name}, for max_tokens={options.max_tokens}: {advice(n)}")

    n = _most_that_fit(len(rows), lambda n: first(n) if n < len(rows) else reply_of(shaped, ""), options)
    if n == len(rows):
        return reply_of(shaped, "")
    return first(n) if n else _first_row_cut(shaped, options, reply_of, advice, name)


def _most_that_fit(rows: int, reply_of: Callable[[int], Reply], options: OutputOptions) -> int:
    """The most rows with which a reply fits the budget: usually all, so that is tried first."""
    low, middle, high = 0, rows, rows
    while low < high:
        if estimated_tokens(reply_of(middle)) <= options.max_tokens:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def render_tables(
    head: Mapping[str, Any], tables: Mapping[str, Sequence[TableRow]], options: OutputOptions, advice: str
) -> Reply:
    """Render the head and several tables within the budget: the first table completely before the next."""
    rows = [(name, row) for name, table in tables.items() for row in _shaped(table, options)]

    def first(n: int) -> Reply:
        included = {name: [row for of, row in rows[:n] if of == name] for name in tables}
        left = [
            f"{len(table) - len(included[name])} of {len(table)} {name}"
            for name, table in tables.items()
            if len(included[name]) < len(table)
        ]
        notes = {"left_out": f"{', '.join(left)}, for max_tokens={options.max_tokens}: {advice}"} if left else {}
        return _encode_table({**head, **notes}, included, options)

    return first(_most_that_fit(len(rows), first, options))


def _first_row_cut(
    rows: Sequence[tuple[TableRow, TableRow]],
    options: OutputOptions,
    reply_of: Callable[[Sequence[tuple[TableRow, TableRow]], str], Reply],
    advice: Callable[[int], str],
    name: str,
) -> Reply:
    """Truncate the longest text of the first row, which alone exceeds the budget."""
    row, line = rows[0]
    texts = {key: cell for key, cell in row.items() if isinstance(cell, str)}
    key, text = max(texts.items(), key=lambda item: len(item[1]), default=("", ""))
    keep = len(text)
    while True:
        keep = max(_SHORTEST, keep * 3 // 4)
        left = f"{len(rows) - 1} of {len(rows)} {name}, and " if len(rows) > 1 else ""
        note = f"{left}{key} of the first after {keep:,} of {len(text):,} characters, "
        short = {key: text[:keep] + "…"}
        cut = reply_of(
            [({**row, **short}, {**line, **short})], f"{note}for max_tokens={options.max_tokens}: {advice(1)}"
        )
        if keep == _SHORTEST or estimated_tokens(cut) <= options.max_tokens:
            return cut


def date_cell(moment: datetime) -> str:
    """The day, with the time where it is not midnight."""
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%d}" if moment.time() == time() else f"{moment:%Y-%m-%dT%H:%M}"


# The number of supporting memories in a row.
_EVIDENCE = 5


def unified_head(found: UnifiedResult) -> dict[str, Any]:
    """The head of unified results: the number that the pages hold, and totals by kind before deduplication."""
    head: dict[str, Any] = {"total": found.found, "has_more": found.has_more}
    head["totals"] = OneLine({kind.plural: total.count for kind, total in found.totals.items()})
    if lower_bounds := [kind.plural for kind, total in found.totals.items() if total.at_least]:
        head["lower_bounds"] = lower_bounds
    return head


def unified_row(hit: UnifiedHit) -> dict[str, CellValue]:
    """A row of a result, with the same columns for each. `see` names the next call for what is no memory, and its id
    starts with its kind, so that it is not taken for the id of a memory.
    """
    memory, term, relationship = hit.memory, hit.term, hit.relationship
    row: dict[str, CellValue] = {"kind": hit.kind.value, "id": f"{hit.kind.value}:{hit.id}", "title": hit.title_text}
    row |= {"score": round(hit.score, 3), "text": "", "date": "", "type": "", "project": "", "see": ""}
    if memory:
        row |= {"id": memory.id, "date": date_cell(memory.created_at), "type": memory.memory_type}
        row["project"] = memory.project
    elif term:
        row |= {"text": term.description, "type": term.type}
        tool = "category_search" if hit.kind is ResultKind.CATEGORY else "about"
        row["see"] = f"{tool}({hit.kind.value}={json.dumps(term.value, ensure_ascii=False)}): {memories(term.memories)}"
    elif relationship:
        row |= {"text": relationship.fact, "type": relationship.type}
        more = len(relationship.evidence) - _EVIDENCE
        call = f"get_observations(ids={list(relationship.evidence[:_EVIDENCE])})" if relationship.evidence else ""
        row["see"] = f"{call} and {more} more" if more > 0 else call
    row["related"] = [_linked(item) for item in hit.related]
    row["same"] = [_linked(item) for item in hit.folded]
    return row


def _linked(item: Linked) -> str:
    where = f" #{item.id}" if item.kind == ResultKind.MEMORY else ""
    return f"{item.title}{where} ({item.reason})"


# Characters of a value before and after a change.
_VALUE_LENGTH = 200
_NAMED_SHOWN = 5


def index_rows(hits: Iterable[Hit], order: Sort = Sort.NEWEST) -> list[dict[str, CellValue]]:
    """Rows of an index, with the date that orders them. The state has a column only if some memory is not active, the
    trust only if the words of some are from outside.
    """
    listed = list(hits)
    rows = [index_cells(hit, order) for hit in listed]
    if any(hit.state != Memory.State.ACTIVE for hit in listed):
        rows = [row | {"state": hit.state} for row, hit in zip(rows, listed, strict=True)]
    if any(hit.trust is Memory.Trust.OUTSIDE for hit in listed):
        rows = [row | {"trust": hit.trust.name.lower()} for row, hit in zip(rows, listed, strict=True)]
    return rows


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
        "trust": trust_of(memory).name.lower(),
        "marked": list(detail.marks),
        "superseded_by": detail.superseded_by.id if detail.superseded_by else None,
        "tags": list(memory.tags),
        "categories": [node.path for node in detail.categories],
        "concepts": [term.label for term in detail.concepts],
        "entities": [term.value for term in detail.entities],
        "authors": list(memory.authors),
        "agent": memory.agent,
        "source": memory.source_uri or memory.source,
        "links": [f"{x.rel} {f'#{x.memory.id}' if x.memory else x.target}" for x in detail.links],
        "properties": [f"{name}: {', '.join(values)}" for name, values in detail.properties.items()],
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


def understood_lines(query: SearchQuery, viewer: Viewer) -> dict[str, Any]:
    """The calls that take people and times in the words of a query as filters, with what each finds."""
    offers = offer_filters(query, viewer)
    if not offers:
        return {}
    return {
        "understood": [
            f"{one.label} ({number(one.count, at_least=one.at_least)}): {call_text('search', **asked_of(one.query))}"
            for one in offers
        ]
    }


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
    if memory.masked_secrets:
        row["masked_secrets"] = f"{', '.join(memory.masked_secrets)}: secrets are not stored; say where they are kept"
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

"""Render answers for a model: rows as TOON or JSON, truncated to a token budget at whole rows.

JSON has every field, and lists as lists. In TOON rows are flat (lists are joined into a cell), and columns without
anything are left out: only then is TOON smaller than JSON.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import Any, Literal, Self

import toon_format
from pydantic import BaseModel, ConfigDict, Field

from search.unified.legs import ResultKind
from search.unified.rows import Linked, UnifiedHit
from search.unified.service import UnifiedResult
from text.formatting import estimated_tokens, memories

CellValue = str | int | float | bool | list[str] | None
TableRow = Mapping[str, CellValue]


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

    whole = reply_of(shaped, "")
    if not rows or estimated_tokens(whole) <= options.max_tokens:
        return whole
    low, high = 0, len(rows) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimated_tokens(first(middle)) <= options.max_tokens else (low, middle - 1)
    if low:
        return first(low)
    return _first_row_cut(shaped, options, reply_of, advice, name)


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

    low, high = 0, len(rows)
    while low < high:
        middle = (low + high + 1) // 2
        # Usually all rows fit, so try that first.
        middle = high if high == len(rows) else middle
        low, high = (middle, high) if estimated_tokens(first(middle)) <= options.max_tokens else (low, middle - 1)
    return first(low)


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

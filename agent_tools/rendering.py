"""Answers as text for a model: flat rows as TOON or JSON, cut to a budget at whole rows.

A row is flat (a list is joined into one cell) and every row has the same keys: only then is TOON smaller than JSON.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import toon_format
from pydantic import BaseModel, ConfigDict, Field

from search.unified.legs import ResultKind
from search.unified.rows import Linked, UnifiedHit
from search.unified.service import UnifiedResult

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]

MIN_TOKENS = 200
MAX_TOKENS = 100_000
# Enough for fifty hits or some whole memories, and below what clients warn about.
DEFAULT_TOKENS = 6_000
# A text that is cut short has at least this much of it.
_SHORTEST = 200

# Pieces of a text as tokenizers cut it: words, numbers, blanks, marks, letters of other scripts one by one.
_PIECES = re.compile(r"([A-Za-z]+)|([0-9]+)|([ \t]+)|(\s+)|([!-/:-@\[-`{-~]+)|(.)", re.DOTALL)
_WORD, _NUMBER, _MARKS = 7, 3, 2
# Short words and odd names take more than the lengths tell.
_MARGIN = 1.12


class Shown(BaseModel):
    """How an answer is to be shown: what every tool that reads takes beside its own arguments."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["toon", "json"] = "toon"
    max_tokens: int = Field(DEFAULT_TOKENS, ge=MIN_TOKENS, le=MAX_TOKENS)


def estimated_tokens(text: str) -> int:
    """About how many tokens a text is. Rather too many than too few, since a budget is not to be exceeded."""
    return math.ceil(_MARGIN * sum(_cost(*match.groups()) for match in _PIECES.finditer(text)))


def _cost(word: str, number: str, blank: str, line: str, marks: str, other: str) -> int:
    if word:
        return -(-len(word) // _WORD)
    if number:
        return -(-len(number) // _NUMBER)
    if marks:
        return -(-len(marks) // _MARKS)
    # One blank belongs to the word that it stands before.
    return 0 if blank == " " else 1


def encoded(data: Mapping[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return toon_format.encode(data)


def rendered(
    head: Mapping[str, Any],
    name: str,
    rows: Sequence[Row],
    shown: Shown,
    advice: Callable[[int], str],
    order: Callable[[Row], Any] | None = None,
) -> str:
    """The head and the rows that the budget leaves, the first of them, with what was left out said ahead of them.

    `advice` says how to get the rest, given how many rows are shown. `order` is that of the text, where it is not that
    in which rows are to be kept.
    """

    def text_of(kept: Sequence[Row], left_out: str) -> str:
        told = {**head, "left_out": left_out} if left_out else head
        ordered = sorted(kept, key=order) if order else kept
        return encoded({**told, name: [dict(row) for row in ordered]}, shown.format)

    def first(n: int) -> str:
        left = len(rows) - n
        return text_of(rows[:n], f"{left} of {len(rows)} {name}, for max_tokens={shown.max_tokens}: {advice(n)}")

    whole = text_of(rows, "")
    if not rows or estimated_tokens(whole) <= shown.max_tokens:
        return whole
    low, high = 0, len(rows) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimated_tokens(first(middle)) <= shown.max_tokens else (low, middle - 1)
    if low:
        return first(low)
    return _first_row_cut(rows, shown, text_of, advice, name)


def rendered_tables(head: Mapping[str, Any], tables: Mapping[str, Sequence[Row]], shown: Shown, advice: str) -> str:
    """The head and several tables, as far as the budget goes: the first table whole before any row of the next."""
    rows = [(name, row) for name, table in tables.items() for row in table]

    def first(n: int) -> str:
        kept = {name: [dict(row) for of, row in rows[:n] if of == name] for name in tables}
        left = [
            f"{len(table) - len(kept[name])} of {len(table)} {name}"
            for name, table in tables.items()
            if len(kept[name]) < len(table)
        ]
        told = {"left_out": f"{', '.join(left)}, for max_tokens={shown.max_tokens}: {advice}"} if left else {}
        return encoded({**head, **told, **kept}, shown.format)

    low, high = 0, len(rows)
    while low < high:
        middle = (low + high + 1) // 2
        # Mostly all of them fit: they are tried first.
        middle = high if high == len(rows) else middle
        low, high = (middle, high) if estimated_tokens(first(middle)) <= shown.max_tokens else (low, middle - 1)
    return first(low)


def _first_row_cut(
    rows: Sequence[Row],
    shown: Shown,
    text_of: Callable[[Sequence[Row], str], str],
    advice: Callable[[int], str],
    name: str,
) -> str:
    """Not even one row fits: its longest text is cut, so that there is something to read."""
    row = dict(rows[0])
    key = max(row, key=lambda k: len(str(row[k])))
    text = str(row[key])
    keep = len(text)
    while True:
        keep = max(_SHORTEST, keep * 3 // 4)
        left = f"{len(rows) - 1} of {len(rows)} {name}, and " if len(rows) > 1 else ""
        note = f"{left}{key} of the first after {keep:,} of {len(text):,} characters, "
        cut = text_of([{**row, key: text[:keep] + "…"}], f"{note}for max_tokens={shown.max_tokens}: {advice(1)}")
        if keep == _SHORTEST or estimated_tokens(cut) <= shown.max_tokens:
            return cut


def same_columns(rows: Sequence[Row]) -> list[dict[str, Cell]]:
    """The rows without the columns that are empty in all of them."""
    used = {key for row in rows for key, value in row.items() if value not in ("", None, False)}
    return [{key: value for key, value in row.items() if key in used} for row in rows]


# As many memories that bear out a fact as a row names.
_EVIDENCE = 5


def kinds_head(found: UnifiedResult) -> dict[str, Any]:
    """What the page of results is of: how many there are, by kind before anything is folded."""
    totals = {kind.plural: f"{total.count}{'+' * total.at_least}" for kind, total in found.totals.items()}
    return {"found": found.found, "has_more": found.has_more, "totals": totals}


def kinds_rows(hits: Sequence[UnifiedHit]) -> list[dict[str, Cell]]:
    """One row for each result, all with the same columns. Only memories have an id: `see` says how to go on."""
    return same_columns([_row(hit) for hit in hits])


def _row(hit: UnifiedHit) -> dict[str, Cell]:
    memory, entity, relationship = hit.memory, hit.entity, hit.relationship
    row: dict[str, Cell] = {"kind": hit.kind.value, "id": None, "title": hit.title_text, "text": "", "date": ""}
    row |= {"type": "", "project": "", "see": ""}
    if memory:
        row |= {"id": memory.id, "date": f"{memory.created_at:%Y-%m-%d}", "type": memory.memory_type}
        row["project"] = memory.project
    elif entity:
        row |= {"text": entity.description, "type": entity.type}
        row["see"] = f"search(entity={entity.value}): {entity.memories} memories"
    elif relationship:
        row |= {"text": relationship.fact, "type": relationship.type}
        more = len(relationship.evidence) - _EVIDENCE
        ids = ", ".join(f"#{pk}" for pk in relationship.evidence[:_EVIDENCE])
        row["see"] = f"{ids} and {more} more" if more > 0 else ids
    row["related"] = "; ".join(_linked(item) for item in hit.related)
    row["same"] = "; ".join(_linked(item) for item in hit.folded)
    return row


def _linked(item: Linked) -> str:
    where = f" #{item.id}" if item.kind == ResultKind.MEMORY else ""
    return f"{item.title}{where} ({item.reason})"

"""Results of three kinds as rows for agents: memories by their ids, entities and facts with what leads to memories."""

from collections.abc import Sequence
from typing import Any

from agent_tools.rendering import Cell, same_columns
from search.legs import ResultKind
from search.unified import UnifiedResult
from search.unified_rows import Linked, UnifiedHit

_PLURAL = {ResultKind.MEMORY: "memories", ResultKind.ENTITY: "entities", ResultKind.RELATIONSHIP: "relationships"}
# As many memories that bear out a fact as a row names.
_EVIDENCE = 5


def kinds_head(found: UnifiedResult) -> dict[str, Any]:
    """What the page of results is of: how many there are, by kind before anything is folded."""
    totals = {_PLURAL[kind]: f"{total.count}{'+' * total.at_least}" for kind, total in found.totals.items()}
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

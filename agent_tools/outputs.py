"""The shapes of replies as data: the output schema of each tool, for clients that read data in place of text."""

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
SWITCH: dict[str, Any] = {"type": "boolean"}
LIST: dict[str, Any] = {"type": "array", "items": TEXT}
_KINDS: dict[str, dict[str, Any]] = {
    "texts": TEXT,
    "numbers": NUMBER,
    "fractions": {"type": "number"},
    "switches": SWITCH,
    "lists": LIST,
    "maps": {"type": "object"},
}

Shape = dict[str, dict[str, Any]]


def _fields(**names: str) -> dict[str, dict[str, Any]]:
    """Fields by their kinds, each kind with the names that are of it."""
    return {name: _KINDS[kind] for kind, of_kind in names.items() for name in of_kind.split()}


def _rows(row: Shape) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": dict(row)}}


def schema_of(shape: Shape) -> dict[str, Any]:
    """The schema of an answer. Nothing is required, since a field without a value is left out."""
    return {"type": "object", "properties": dict(shape)}


_INDEX = _fields(numbers="id", texts="title date updated type project state")
_WHOLE = _INDEX | _fields(
    numbers="superseded_by",
    texts="version agent source summary content",
    lists="tags categories concepts entities authors links",
)
# Without the id, which is a number for a memory, and has its kind before it for anything else.
_UNIFIED = _fields(texts="kind title text date type project see", fractions="score", lists="related same")
_NOTES = _fields(texts="left_out", lists="warnings")
_PAGE = _NOTES | _fields(
    numbers="page page_size total",
    switches="has_more",
    texts="known hidden facet_scope",
    lists="named facet_notes lower_bounds",
    maps="filters relaxations facets totals",
)
_CATEGORY = _fields(numbers="id", texts="name path description", lists="hierarchy aliases related_categories")
_CONCEPT = _fields(
    numbers="id document_count chunk_count total_document_count",
    texts="name type",
    fractions="weight",
    lists="related_concepts",
)
_LISTED = _CATEGORY | _fields(
    numbers="depth document_count own_document_count chunk_count concept_count", texts="parent", lists="children"
)
_CATEGORY_NOTES = _NOTES | _fields(texts="message", maps="statistics")
_LINKS = _fields(numbers="shared_memories", lists="how")

MESSAGE: Shape = _fields(texts="text")
SEARCH: Shape = _PAGE | {"memories": _rows(_INDEX), "results": _rows(_UNIFIED)}
RETRIEVED: Shape = _PAGE | {"memories": _rows(_WHOLE)}
OBSERVATIONS: Shape = _NOTES | _fields(numbers="total", texts="missing past_limit") | {"memories": _rows(_WHOLE)}
TIMELINE: Shape = _NOTES | _fields(numbers="earlier later") | {"memories": _rows(_INDEX | _fields(numbers="at"))}
CATEGORIES: Shape = (
    _NOTES
    | _fields(
        numbers="total_categories returned_categories", switches="has_more", texts="message", maps="aggregate_stats"
    )
    | {"categories": _rows(_LISTED)}
)
CATEGORY: Shape = _CATEGORY_NOTES | {
    "category": schema_of(_CATEGORY),
    "has_more": SWITCH,
    "documents": _rows(_INDEX),
    "concepts": _rows(_CONCEPT),
    "child_categories": _rows(_fields(texts="path", numbers="document_count chunk_count")),
    "chunks": _rows(_fields(texts="id text source", lists="concepts", fractions="concept_density")),
}
CONCEPTS: Shape = _CATEGORY_NOTES | {"category": schema_of(_CATEGORY), "concepts": _rows(_CONCEPT)}
WRITTEN: Shape = _fields(
    numbers="id",
    texts="done title project state version changed project_note near_duplicates_note",
    lists="supersedes also_active near_duplicates",
)
# One memory, or all those of a deletion.
RESTORED: Shape = WRITTEN | _fields(numbers="memories")
VALUES: Shape = (
    _NOTES
    | _fields(texts="facet unavailable facet_scope", numbers="distinct memories_without page", switches="has_more")
    | {"values": _rows(_fields(texts="value label", numbers="count"))}
)
ABOUT: Shape = (
    _NOTES
    | _LINKS
    | _fields(
        numbers="id memories neighbours_total memories_about_both",
        texts="name type description first last unavailable from to reason",
        lists="aliases",
        maps="categories tags entities concepts",
    )
    | {
        "neighbours": _rows(_LINKS | _fields(texts="name")),
        "memories_newest": _rows(_INDEX),
        "steps": _rows(_LINKS | _fields(texts="from to fact", lists="evidence")),
        # How each is linked is a number of memories, or a list of relations.
        "linked_to_both": _rows(_fields(texts="name")),
    }
)
SIMILAR: Shape = (
    _NOTES
    | _fields(texts="reason pairs")
    | {
        "memories": _rows(
            _INDEX
            | _fields(
                fractions="similarity confidence", switches="duplicate", numbers="duplicate_of", texts="its_title"
            )
        )
    }
)
CHANGES: Shape = (
    _NOTES
    | _fields(texts="cursor", switches="has_more")
    | {"changes": _rows(_fields(texts="at kind title project by through reason", numbers="id"))}
)
HISTORY: Shape = (
    _NOTES
    | _fields(numbers="id", texts="next")
    | {"events": _rows(_fields(texts="event at kind by through reason changes"))}
)
FORGOTTEN: Shape = _fields(
    texts="done undo refused hidden next", numbers="memories would_delete", lists="examples", maps="filters"
)
VIEWS: Shape = _NOTES | _fields(numbers="total") | {"views": _rows(_fields(texts="name description memories search"))}
CURATED: Shape = _fields(texts="done effect made refused", numbers="memories", lists="changes")
RESULTS: Shape = _fields(texts="hidden", lists="warnings") | {"results": _rows(_fields(texts="id title url"))}
DOCUMENT: Shape = _fields(texts="id title text url", maps="metadata")

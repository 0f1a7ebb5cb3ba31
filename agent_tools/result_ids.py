"""The ids of results, such as entity:7, in the arguments of a call: each as the tool takes it."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from access.viewer import Viewer
from agent_tools.workflow import WORKFLOW as WORKFLOW
from categories.local_texts import as_projects, known_terms
from categories.queries import CategoryNode, Term, category_nodes, concept_terms, entity_terms
from explorer.graph.neighbourhood import relationship_detail
from search.facets import FACET
from search.query import ALIASES, SearchQuery
from search.result import HitDetail
from search.run import run
from web.errors import ApiError


def items_of(value: Any) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        # Some clients send lists as strings.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            yield value
            return
    yield from value if isinstance(value, list) else [value]


# The ids of what is no memory, as unified results have them.
_KIND_AND_ID = re.compile(r"(memory|entity|concept|category|relationship):(\d{1,18})")
_TERMS: dict[str, Callable[[Collection[int]], Mapping[int, CategoryNode | Term]]] = {
    "category": category_nodes,
    "concept": concept_terms,
    "entity": entity_terms,
}
_OF_MEMORIES = {"id", "ids", "anchor", "target", "evidence"}
_OF_TERMS = {"to", "term", "other", "target", "parent", "sources"}
_BEHIND = 5


def replace_ids_of_results(arguments: dict[str, Any], viewer: Viewer, scope: str) -> dict[str, Any]:
    """The arguments with the ids of results as each of them takes it: in a filter or a record, the term; where memories
    are read, the newest memories that carry the term or support the fact.
    """

    def plain(key: str, item: Any) -> list[Any]:
        found = _KIND_AND_ID.fullmatch(item.strip()) if isinstance(item, str) else None
        if found is None:
            return [item]
        kind, number_of = found[1], int(found[2])
        name = ALIASES.get(key, key).lstrip("-")
        if kind == name and kind in _TERMS:
            term = _term_of(kind, number_of, viewer)
            is_of_record = kind == "entity" and scope == "write"
            return [{"name": term.label, "type": term.type} if is_of_record else term.value]
        if kind == name or (name in _OF_TERMS and scope == "curate") or (name == "to" and kind in FACET):
            return [str(number_of)]
        if name not in _OF_MEMORIES or (kind != "memory" and scope not in ("", "read")):
            return [item]
        return [number_of] if kind == "memory" else _memories_behind(kind, number_of, viewer)

    changed: dict[str, Any] = {}
    for key, value in arguments.items():
        items = list(items_of(value))
        if any(isinstance(item, str) and _KIND_AND_ID.fullmatch(item.strip()) for item in items):
            found = [one for item in items for one in plain(key, item)]
            changed[key] = found if isinstance(value, list) or key == "ids" else found[0]
    return {**arguments, **changed}


def _term_of(kind: str, number_of: int, viewer: Viewer) -> Term:
    """The term of an id. Its number alone may be the name of another one."""
    found = _TERMS[kind](known_terms(kind, [number_of], as_projects(viewer.project_ids))).get(number_of)
    if found is None:
        raise ApiError(404, "not_found", f"There is no {kind}:{number_of} that you can see.")
    return Term(found.id, found.path, found.path) if isinstance(found, CategoryNode) else found


def _memories_behind(kind: str, number_of: int, viewer: Viewer) -> list[int]:
    """The best evidence of a fact, or the newest memories that carry a term."""
    if kind == "relationship":
        detail = relationship_detail(number_of, viewer)
        ids = [hit.id for hit in detail.evidence[:_BEHIND]] if detail else []
    else:
        carrying: dict[str, Any] = {kind: (str(number_of),), "page_size": _BEHIND}
        hits = run(SearchQuery(**carrying), viewer, include_facets=False, detail=HitDetail.INDEX).hits
        ids = [hit.id for hit in hits]
    if not ids:
        raise ApiError(404, "not_found", f"No memory that you can see stands behind {kind}:{number_of}.")
    return ids

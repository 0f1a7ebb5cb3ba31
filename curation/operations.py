"""Each operation on a working copy of the vocabulary: names are resolved, permissions checked, changes made.

Permissions come first: any other refusal could disclose terms of other projects.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from django.db.models import QuerySet

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.paths import PathError, parse_path
from categories.queries import tags_now
from curation import category_edits, term_edits, text_edits
from curation.queries import (
    OTHERS_USE_IT,
    broader_concepts,
    category_ids_of,
    find_term,
    linked_ids,
    matching_ids,
    memories_with,
    parse_query,
    projects_of,
    used_by_others,
    visible_relationships,
    working_copy_of,
)
from curation.schemas import Alias, Create, Edit, Forget, Merge, Move, Operation, Relate, Rename, Retag, Split
from curation.tables import fetch
from curation.term_edits import clean_tag
from curation.working_copy import CurationRefusedError, Relink, TableRow, TermRef, WorkingCopy
from memories.models import Memory
from memories.queries import visible_to
from memories.records import DEFAULT_ENTITY_TYPE, slug_name
from search.query import SearchQuery


def apply_operation(operation: Operation, viewer: Viewer) -> tuple[str, WorkingCopy]:
    """The kind of an operation, and the changed copy. Raises CurationRefusedError and TermNotFoundError."""
    return _OPERATIONS[type(operation)](operation, viewer)


def _own_term(kind: str, name: str, viewer: Viewer, field: str = "term") -> TermRef:
    """The term that a name refers to. Raises CurationRefusedError unless the viewer may write all its memories."""
    term = find_term(kind, name, viewer, field)
    if used_by_others(kind, [term], viewer):
        raise CurationRefusedError(OTHERS_USE_IT)
    return term


def _create(operation: Create, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind, ids = operation.kind, tuple(sorted(set(operation.memories)))
    _refuse_unwritable(ids, viewer)
    if viewer.writable_project_ids is not None and not ids:
        raise CurationRefusedError(
            "Name memories of yours to link to it: a term without any is for curators of all projects.", "memories"
        )
    others = {
        how: [int(_own_term(kind, name, viewer, how)) for name in getattr(operation, how)]
        for how in ("broader", "narrower", "related")
    }
    copy = working_copy_of(kind, [term for terms in others.values() for term in terms])
    if kind == "category":
        created = _create_category(operation, copy, viewer, others["related"])
    else:
        created = _create_term(operation, copy, viewer, others)
    if ids:
        copy.relinks.append(Relink(kind, (), created, ids))
    label = copy.table(kind)[created][VOCABULARIES[kind].label_column]
    copy.title = f"Created the {kind} {label}"
    return kind, copy


def _create_category(operation: Create, copy: WorkingCopy, viewer: Viewer, related: Iterable[int]) -> int:
    try:
        path = parse_path(operation.name)
    except PathError as error:
        raise CurationRefusedError(str(error), "name") from error
    if path is None:
        raise CurationRefusedError("A category needs a name.", "name")
    created = category_edits.category_create(copy, path, description=operation.description, aliases=[])
    _set_aliases(operation.kind, copy, created, operation.aliases, operation.aliases, viewer, "aliases")
    for other in dict.fromkeys(related):
        category_edits.categories_relate(copy, created, other, remove=False)
    return created


def _create_term(operation: Create, copy: WorkingCopy, viewer: Viewer, others: Mapping[str, Iterable[int]]) -> int:
    kind = operation.kind
    values: dict[str, Any] = {"description": operation.description, "aliases": [], f"{kind}_type": operation.type}
    if kind == "concept":
        values["weight"] = operation.weight
    else:
        values["entity_type"] = operation.type or DEFAULT_ENTITY_TYPE
    created = term_edits.term_create(copy, kind, operation.name, values)
    _refuse_name_taken(kind, operation.name, copy, created, "edit that one")
    _set_aliases(kind, copy, created, operation.aliases, operation.aliases, viewer, "aliases")
    above = broader_concepts() if any(others.values()) else {}
    for how, terms in others.items():
        for other in dict.fromkeys(terms):
            term_edits.concepts_relate(copy, created, how, other, remove=False, broader=above)
            if how != "related":
                low, high = (created, other) if how == "broader" else (other, created)
                above.setdefault(low, set()).add(high)
    return created


def _edit(operation: Edit, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind = operation.kind
    term = int(_own_term(kind, operation.term, viewer))
    copy = working_copy_of(kind, [term])
    values = operation.given()
    if kind == "entity" and "entity_type" in values:
        values["entity_type"] = values["entity_type"] or DEFAULT_ENTITY_TYPE
    term_edits.term_edit(copy, kind, term, values)
    if "entity_type" in values:
        row = copy.table(kind)[term]
        _refuse_name_taken(kind, row["name"], copy, term)
        _set_aliases(kind, copy, term, row["aliases"], (), viewer, "type")
    return kind, copy


def _refuse_unwritable(memory_ids: Collection[int], viewer: Viewer) -> None:
    """Refuse memories that the viewer may not link to a term."""
    writable = viewer.writable_project_ids
    if visible_to(viewer).filter(pk__in=memory_ids).count() != len(memory_ids) or (
        writable is not None and not set(projects_of(memory_ids)) <= writable
    ):
        raise CurationRefusedError("Some of these are not memories that you can change.", "memories")


def _set_aliases(
    kind: str,
    copy: WorkingCopy,
    term_id: int,
    aliases: Iterable[str],
    new: Collection[str],
    viewer: Viewer,
    field: str,
) -> None:
    """Set the aliases of a term in their stored form; the new ones must not be names of others."""
    row = copy.table(kind)[term_id]
    try:
        row["aliases"] = text_edits.clean_aliases(aliases, row["name"])
        if kind == "category":
            category_edits.refuse_alias_paths(copy, term_id, new)
        else:
            text_edits.refuse_taken_names(row["aliases"], _namesakes(kind, row))
    except text_edits.EditRefusedError as error:
        # The reason discloses a term that only memories of others may have.
        reason = str(error) if viewer.project_ids is None else "One of these names belongs to another term."
        raise CurationRefusedError(reason, field) from error


def _merge(operation: Merge, viewer: Viewer) -> tuple[str, WorkingCopy]:
    source = _own_term(operation.kind, operation.source, viewer, "source")
    target = _own_term(operation.kind, operation.target, viewer, "target")
    copy = working_copy_of(operation.kind, [source, target])
    match operation.kind:
        case "category":
            category_edits.category_merge(copy, int(source), int(target))
        case "concept":
            term_edits.concept_merge(copy, *_pair(source, target), broader_concepts())
        case "entity":
            term_edits.entity_merge(copy, *_pair(source, target))
        case "tag":
            term_edits.tag_merge(copy, str(source), str(target))
    return operation.kind, copy


def _pair(source: TermRef, target: TermRef) -> tuple[int, int]:
    if source == target:
        raise CurationRefusedError("These two are already the same.", "target")
    return int(source), int(target)


def _rename(operation: Rename, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(operation.kind, operation.term, viewer)
    refs = [term, clean_tag(operation.name)] if operation.kind == "tag" else [term]
    copy = working_copy_of(operation.kind, refs)
    match operation.kind:
        case "category":
            category_edits.category_rename(copy, int(term), operation.name)
        case "tag":
            _refuse_tag_in_use(str(refs[1]), copy, unless_of=str(term))
            term_edits.tag_rename(copy, str(term), str(refs[1]))
        case "concept" | "entity":
            _refuse_name_taken(operation.kind, operation.name, copy, int(term))
            term_edits.term_rename(copy, operation.kind, int(term), operation.name)
    return operation.kind, copy


def _move(operation: Move, viewer: Viewer) -> tuple[str, WorkingCopy]:
    category = _own_term("category", operation.category, viewer, "category")
    parent = find_term("category", operation.parent, viewer, "parent") if operation.parent.strip() else None
    copy = working_copy_of("category", ())
    category_edits.category_move(copy, int(category), None if parent is None else int(parent))
    return "category", copy


def _alias(operation: Alias, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(operation.kind, operation.term, viewer)
    if operation.kind == "tag":
        add = [clean_tag(name, "add") for name in dict.fromkeys(operation.add)]
        remove = [clean_tag(name, "remove") for name in dict.fromkeys(operation.remove)]
        copy = working_copy_of("tag", [str(term), *add, *remove])
        for tag in add:
            _refuse_tag_in_use(tag, copy, unless_of=str(term), field="add")
        term_edits.tag_aliases_set(copy, str(term), add, remove)
        return operation.kind, copy
    copy = working_copy_of(operation.kind, [term])
    row = copy.table(operation.kind)[int(term)]
    before = row["aliases"]
    remaining = _remaining_aliases(operation, copy, int(term))
    _set_aliases(operation.kind, copy, int(term), [*remaining, *operation.add], operation.add, viewer, "add")
    if not copy.changes():
        raise CurationRefusedError("It already has these names.", "add")
    label = row[VOCABULARIES[operation.kind].label_column]
    copy.title = f"Changed the aliases of the {operation.kind} {label}"
    copy.add_line("aliases", ", ".join(before), ", ".join(row["aliases"]))
    return operation.kind, copy


def _remaining_aliases(operation: Alias, copy: WorkingCopy, term_id: int) -> list[str]:
    """The aliases that are not removed. Former paths of a category can be removed like aliases."""
    aliases = {alias.lower(): alias for alias in copy.table(operation.kind)[term_id]["aliases"]}
    former = {row["path"]: row["id"] for row in copy.table("former_path").values() if row["category_id"] == term_id}
    for name in operation.remove:
        if name.lower() in aliases:
            del aliases[name.lower()]
        elif name.lower() in former:
            del copy.table("former_path")[former.pop(name.lower())]
            copy.add_line("path removed", name)
        else:
            raise CurationRefusedError(f"“{name}” is not one of its aliases.", "remove")
    return list(aliases.values())


def _split(operation: Split, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(operation.kind, operation.term, viewer)
    chosen = sorted(set(operation.memories)) or matching_ids(parse_query(operation.query), viewer)
    memory_ids = tuple(linked_ids(operation.kind, [term], chosen))
    if not memory_ids:
        raise CurationRefusedError("None of these memories has it directly: choose others.", "query")
    if len(memory_ids) == len(linked_ids(operation.kind, [term])):
        raise CurationRefusedError("All of its memories are among these: rename it instead.", "query")
    copy = working_copy_of(operation.kind, [term])
    match operation.kind:
        case "category":
            category_edits.category_split(copy, int(term), operation.name, memory_ids)
        case "tag":
            new = clean_tag(operation.name)
            copy = working_copy_of("tag", [str(term), new])
            _refuse_tag_in_use(new, copy)
            term_edits.tag_split(copy, str(term), new, memory_ids)
        case "concept" | "entity":
            _refuse_name_taken(operation.kind, operation.name, copy, int(term))
            term_edits.term_split(copy, operation.kind, int(term), operation.name, memory_ids)
    return operation.kind, copy


def _relate(operation: Relate, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = int(_own_term(operation.kind, operation.term, viewer))
    other = int(_own_term(operation.kind, operation.other, viewer, "other"))
    copy = working_copy_of(operation.kind, [term, other])
    match operation.kind:
        case "category":
            category_edits.categories_relate(copy, term, other, remove=operation.remove)
        case "concept":
            term_edits.concepts_relate(
                copy, term, operation.how, other, remove=operation.remove, broader=broader_concepts()
            )
        case "entity" if operation.remove:
            term_edits.relationship_remove(copy, term, operation.how, other)
        case "entity":
            _check_evidence(operation, term, other, viewer)
            term_edits.relationship_state(copy, term, operation.how, other, operation.stated())
    return operation.kind, copy


def _check_evidence(operation: Relate, source_id: int, target_id: int, viewer: Viewer) -> None:
    """Refuse evidence that the viewer cannot see, and a relationship that they could not see for lack of evidence."""
    evidence = set(operation.evidence)
    if visible_to(viewer).filter(pk__in=evidence).count() != len(evidence):
        raise CurationRefusedError("Some of these are not memories that you can see.", "evidence")
    if viewer.project_ids is None or evidence:
        return
    ends = {"source_id": source_id, "relationship_type": slug_name(operation.how), "target_id": target_id}
    if "evidence" in operation.model_fields_set or not visible_relationships(viewer).filter(**ends).exists():
        raise CurationRefusedError(
            "Name memories of yours that support it: a relationship without any is for curators of all projects.",
            "evidence",
        )


def _forget(operation: Forget, viewer: Viewer) -> tuple[str, WorkingCopy]:
    query = parse_query(operation.query)
    if not query.text and query == query.without_filters():
        # Such as a page size or a sort order alone.
        raise CurationRefusedError("The query would delete all memories: give a text or a filter.", "query")
    chosen = _writable_matches(query, viewer)
    there = Memory.objects.filter(pk__in=chosen).exclude(state=Memory.State.DELETED)
    ids = tuple(there.order_by("pk").values_list("pk", flat=True))
    if not ids:
        raise CurationRefusedError("All memories that match are deleted already.", "query")
    return "memory", WorkingCopy({}, title=f"Deleted all memories that match {query.querystring()}", forgotten=ids)


def _writable_matches(query: SearchQuery, viewer: Viewer) -> tuple[int, ...]:
    """The memories that match a query. Refuses if there are none, and if the viewer may not write one of them."""
    ids = tuple(matching_ids(query, viewer))
    if not ids:
        raise CurationRefusedError("No memory matches the query.", "query")
    if viewer.writable_project_ids is not None and not set(projects_of(ids)) <= viewer.writable_project_ids:
        raise CurationRefusedError(
            "You can read but not write some of these projects: narrow the query by project=….",
            "query",
        )
    return ids


def _retag(operation: Retag, viewer: Viewer) -> tuple[str, WorkingCopy]:
    query = parse_query(operation.query)
    ids = _writable_matches(query, viewer)
    copy = WorkingCopy({})
    for kind, sources, target in _retag_links(operation, viewer, ids):
        copy.relinks.append(Relink(kind, sources, target, ids))
    shown = query.querystring()
    copy.title = f"Retagged all memories that match {shown}" if shown else "Retagged all memories"
    return "memory", copy


def _retag_links(
    operation: Retag, viewer: Viewer, ids: tuple[int, ...]
) -> Iterable[tuple[str, tuple[TermRef, ...], TermRef | None]]:
    """The links to remove and to create: kind, sources, target."""
    added = [clean_tag(name, "add_tags") for name in dict.fromkeys(operation.add_tags)]
    removed = [clean_tag(name, "remove_tags") for name in dict.fromkeys(operation.remove_tags)]
    now = tags_now([*added, *removed])
    added, removed = ([now.get(tag, tag) for tag in tags] for tags in (added, removed))
    _refuse_both(added, removed, "tags")
    if removed:
        yield "tag", tuple(removed), None
    for tag in added:
        yield "tag", (), tag
    for vocabulary in VOCABULARIES.values():
        kind, add, remove = vocabulary.name, f"add_{vocabulary.plural}", f"remove_{vocabulary.plural}"
        targets = [find_term(kind, name, viewer, add) for name in getattr(operation, add)]
        sources = [find_term(kind, name, viewer, remove) for name in getattr(operation, remove)]
        _refuse_both(targets, sources, vocabulary.plural)
        if sources:
            yield kind, tuple(sources), None
        for target in targets:
            yield kind, (), target
    if operation.set_category:
        category = find_term("category", operation.set_category, viewer, "set_category")
        if others := category_ids_of(ids) - {int(category)}:
            yield "category", tuple(sorted(others)), None
        yield "category", (), category


def _refuse_both(added: Collection[TermRef], removed: Collection[TermRef], plural: str) -> None:
    if both := set(added) & set(removed):
        raise CurationRefusedError(f"“{sorted(both, key=str)[0]}” is both added and removed.", f"add_{plural}")


_OPERATIONS: dict[type[Operation], Callable[[Any, Viewer], tuple[str, WorkingCopy]]] = {
    Create: _create,
    Edit: _edit,
    Merge: _merge,
    Rename: _rename,
    Move: _move,
    Alias: _alias,
    Split: _split,
    Relate: _relate,
    Forget: _forget,
    Retag: _retag,
}


# --- names ------------------------------------------------------------------------------------------------------


def _namesakes(kind: str, row: TableRow) -> QuerySet[Any]:
    return text_edits.namesakes(kind, row["id"], row.get("entity_type", ""))


def _refuse_name_taken(kind: str, name: str, copy: WorkingCopy, term_id: int, instead: str = "merge the two") -> None:
    """Refuse a name that is the name or an alias of another row."""
    cleaned = term_edits.clean_term_name(kind, name)
    others = _namesakes(kind, copy.table(kind)[term_id])
    statement, parameters = others.values("name", "aliases").query.sql_with_params()
    if fetch(
        f"SELECT FROM ({statement}) other (name, aliases) WHERE lower(name) = lower(%s)"
        " OR EXISTS (SELECT 1 FROM unnest(aliases) alias WHERE lower(alias) = lower(%s)) LIMIT 1",
        [*parameters, cleaned, cleaned],
    ):
        raise CurationRefusedError(f"“{cleaned}” is the name of another {kind}: {instead} instead.", "name")


def _refuse_tag_in_use(tag: str, copy: WorkingCopy, *, unless_of: str = "", field: str = "name") -> None:
    owner = next((row["tag"] for row in copy.table("tag_alias").values() if row["alias"] == tag), "")
    if owner and owner != unless_of:
        raise CurationRefusedError(f"“{tag}” is already an alias of a tag.", field)
    if tag != unless_of and memories_with("tag", [tag]).exists():
        raise CurationRefusedError(f"“{tag}” is already a tag: merge the two instead.", field)

"""Each operation on a working copy of the vocabulary: names are resolved, permissions checked, changes made.

Permissions come first: any other refusal could disclose terms of other projects.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from django.db.models import QuerySet

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.paths import CategoryPath, PathError, parse_path
from categories.queries import category_nodes
from categories.texts import as_array, known_terms, projects_using, stored_alias_projects, stored_description_projects
from curation import edits, tag_edits, text_edits
from curation.memory_operations import forget, matching_ids, parse_query, retag
from curation.queries import (
    OTHERS_USE_IT,
    find_term,
    linked_ids,
    memories_with,
    projects_of,
    projects_with,
    used_by_others,
    visible_relationships,
    visible_terms,
)
from curation.schemas import Alias, Create, Edit, Forget, Merge, Move, Operation, Relate, Rename, Retag, Split
from curation.tables import broader_concepts, working_copy_of
from curation.tag_edits import clean_tag
from curation.working_copy import CurationRefusedError, Relink, TableRow, TermRef, WorkingCopy
from memories.queries import visible_to
from memories.records import DEFAULT_ENTITY_TYPE, slug_name
from text.formatting import listed, number
from web.sql import fetch

# Terms that the title of a merge of several names.
_NAMED = 5


def apply_operation(operation: Operation, viewer: Viewer) -> tuple[str, WorkingCopy]:
    """The kind of an operation, and the changed copy. Raises CurationRefusedError and TermNotFoundError."""
    kind, copy = _OPERATIONS[type(operation)](operation, viewer)
    text_projects_record(copy, projects_of(operation.memories) if isinstance(operation, Create) else ())
    return kind, copy


def _own_term(kind: str, name: str, viewer: Viewer, field: str = "term") -> TermRef:
    """The term that a name refers to. Raises CurationRefusedError unless the viewer may write all its memories.

    A tag has no row: a curator of some projects changes it in these alone, whoever else uses it.
    """
    term = find_term(kind, name, viewer, field)
    if kind != "tag" and used_by_others(kind, [term], viewer):
        raise CurationRefusedError(OTHERS_USE_IT)
    return term


def _copy_of(kind: str, refs: Iterable[TermRef], viewer: Viewer, subject: TermRef | None) -> WorkingCopy:
    """A working copy for a viewer, whose texts hold in those of their projects that use the subject."""
    copy = working_copy_of(kind, refs)
    copy.visible = viewer.project_ids
    copy.hide_texts(viewer.project_ids)
    copy.scope = None if subject is None else _scope(kind, subject, viewer)
    return copy


def _scope(kind: str, term: TermRef, viewer: Viewer) -> tuple[int, ...] | None:
    """The projects in which texts hold that the viewer gives to a term: all (None), or their own that use it."""
    if viewer.curated_project_ids is None:
        return None
    if own := projects_with(kind, term, viewer.curated_project_ids):
        return tuple(own)
    raise CurationRefusedError("You can read but not write the memories that have it.", "term")


def _own_memories(tag: str, viewer: Viewer) -> tuple[int, ...] | None:
    """The memories that an operation on a tag changes: all (None), or those that the viewer may write."""
    writable = viewer.curated_project_ids
    if writable is None:
        return None
    own = memories_with("tag", [tag]).filter(project_id__in=writable)
    return tuple(own.order_by("pk").values_list("pk", flat=True))


def _create(operation: Create, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind, ids = operation.kind, tuple(sorted(set(operation.memories)))
    _refuse_unwritable(ids, viewer)
    if viewer.curated_project_ids is not None and not ids:
        raise CurationRefusedError(
            "Name memories of yours to link to it: a term without any is for curators of all projects.", "memories"
        )
    others = {
        how: [int(_own_term(kind, name, viewer, how)) for name in getattr(operation, how)]
        for how in ("broader", "narrower", "related")
    }
    copy = _copy_of(kind, [term for terms in others.values() for term in terms], viewer, None)
    if viewer.curated_project_ids is not None:
        copy.scope = tuple(projects_of(ids))
    if kind == "category":
        created = edits.create_category(copy, _path_of(operation.name))
    else:
        name = edits.clean_term_name(kind, operation.name)
        weight = {"weight": operation.weight} if kind == "concept" else {}
        default = DEFAULT_ENTITY_TYPE if kind == "entity" else ""
        created = edits.add_term(copy, kind, name, **{f"{kind}_type": operation.type or default}, **weight)
        copy.add_line(f"new {kind}", "", name)
    copy.describe(kind, created, operation.description)
    _refuse_name_taken(kind, operation.name, copy, created, viewer, "edit that one")
    _set_aliases(kind, copy, created, operation.aliases, operation.aliases, viewer, "aliases")
    above = broader_concepts() if kind == "concept" and any(others.values()) else {}
    for how, terms in others.items():
        for other in dict.fromkeys(terms):
            edits.relate(copy, kind, created, how, other, broader=above)
            if how != "related":
                low, high = (created, other) if how == "broader" else (other, created)
                above.setdefault(low, set()).add(high)
    if ids:
        copy.relinks.append(Relink(kind, (), created, ids))
    copy.title = f"Created the {kind} {edits.label_of(kind, copy.table(kind)[created])}"
    return kind, copy


def _path_of(name: str) -> CategoryPath:
    try:
        path = parse_path(name)
    except PathError as error:
        raise CurationRefusedError(str(error), "name") from error
    if path is None:
        raise CurationRefusedError("A category needs a name.", "name")
    return path


def _edit(operation: Edit, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind = operation.kind
    values = operation.given()
    # A description by a curator of some projects is theirs alone: it needs no permission of others.
    find = find_term if values.keys() == {"description"} else _own_term
    term = int(find(kind, operation.term, viewer))
    copy = _copy_of(kind, [term], viewer, term)
    if kind == "entity" and "entity_type" in values:
        values["entity_type"] = values["entity_type"] or DEFAULT_ENTITY_TYPE
    edits.edit(copy, kind, term, values)
    if "entity_type" in values:
        row = copy.table(kind)[term]
        _refuse_name_taken(kind, row["name"], copy, term, viewer)
        _refuse_taken_aliases(kind, copy, term, copy.names_shown(kind, term), viewer, "type")
    return kind, copy


def _refuse_unwritable(memory_ids: Collection[int], viewer: Viewer) -> None:
    """Refuse memories that the viewer may not link to a term."""
    curated = viewer.curated_project_ids
    if visible_to(viewer).filter(pk__in=memory_ids).count() != len(memory_ids) or (
        curated is not None and not set(projects_of(memory_ids)) <= curated
    ):
        raise CurationRefusedError("Some of these are not memories that you can change.", "memories")


def _set_aliases(
    kind: str, copy: WorkingCopy, term_id: int, aliases: Iterable[str], new: Collection[str], viewer: Viewer, field: str
) -> None:
    """Set the aliases of a term in their stored form; the new ones must not be names of other visible terms.

    `aliases` are those that remain and the new ones. The new ones of an operation with a scope become local.
    """
    row = copy.table(kind)[term_id]
    try:
        if copy.scope is None:
            row["aliases"] = text_edits.clean_aliases(aliases, row["name"])
        else:
            row["aliases"] = [alias for alias in row["aliases"] if alias in aliases]
            copy.add_names(kind, term_id, text_edits.clean_aliases(new, row["name"]))
    except text_edits.EditRefusedError as error:
        raise CurationRefusedError(str(error), field) from error
    _refuse_taken_aliases(kind, copy, term_id, new if kind == "category" else row["aliases"], viewer, field)
    if copy.scope is not None:
        _refuse_taken_aliases(kind, copy, term_id, new, viewer, field)


def _refuse_taken_aliases(
    kind: str, copy: WorkingCopy, term_id: int, aliases: Collection[str], viewer: Viewer, field: str
) -> None:
    """Refuse aliases that are the name of another term that the viewer sees. Others may have any name."""

    def is_visible(other: int) -> bool:
        return bool(visible_terms(kind, [other], viewer))

    try:
        if kind == "category":
            edits.refuse_alias_paths(copy, term_id, aliases, is_visible)
        else:
            text_edits.refuse_taken_names([*aliases], _namesakes(kind, copy.table(kind)[term_id]), is_visible)
    except text_edits.EditRefusedError as error:
        raise CurationRefusedError(str(error), field) from error


def _merge(operation: Merge, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind, field = operation.kind, "sources" if operation.sources else "source"
    names = operation.sources or [operation.source]
    sources = list(dict.fromkeys(_own_term(kind, name, viewer, field) for name in names))
    targets = _targets(operation, sources, viewer)
    kept = list(dict.fromkeys(targets.values()))
    copy = _copy_of(kind, [*sources, *kept], viewer, sources[0])
    known: dict[int, str] = {}
    if kind == "category":
        known = {int(target): ", ".join(copy.names_shown(kind, int(target))) for target in kept}
        # The deeper ones first: a category takes along those below it.
        sources.sort(key=lambda ref: -copy.table("category")[int(ref)]["depth"])
    ending = [*map(str, sources)] if kind == "tag" else _labels_in(copy, kind, sources)
    broader = broader_concepts() if kind == "concept" else {}
    for source in sources:
        copy.scope, target = _scope(kind, source, viewer), targets[source]
        match kind:
            case "category":
                edits.merge_category(copy, int(source), int(target))
            case "concept":
                broader = edits.merge_concept(copy, int(source), int(target), broader)
            case "entity":
                edits.merge_entity(copy, int(source), int(target))
            case "tag":
                tag_edits.merge_tag(copy, str(source), str(target), _own_memories(str(source), viewer))
    if kind == "category":
        edits.add_merge_lines(copy, known)
    if len(sources) > 1:
        ends = listed([*ending[:_NAMED], *([f"{len(sources) - _NAMED} others"] if len(sources) > _NAMED else [])])
        stays = "those above them"
        if not operation.into_parents:
            (stays,) = [str(kept[0])] if kind == "tag" else _labels_in(copy, kind, kept)
        copy.title = f"Merged the {VOCABULARIES[kind].plural if kind in VOCABULARIES else 'tags'} {ends} into {stays}"
    return kind, copy


def _targets(operation: Merge, sources: Sequence[TermRef], viewer: Viewer) -> dict[TermRef, TermRef]:
    """The term that each of the sources of a merge goes into."""
    if not operation.into_parents:
        target = _own_term(operation.kind, operation.target, viewer, "target")
        if len(sources) > 1 and target in sources:
            raise CurationRefusedError(
                f"“{operation.target}” is also among those that end: take it out of them.", "target"
            )
        return dict.fromkeys(sources, target)
    nodes = category_nodes([int(source) for source in sources])
    if roots := [node.path for node in nodes.values() if node.parent_id is None]:
        raise CurationRefusedError(f"{listed(roots[:_NAMED])}: at the top level, with no category above.", "sources")
    targets: dict[TermRef, TermRef] = {pk: node.parent_id for pk, node in nodes.items() if node.parent_id is not None}
    if used_by_others("category", set(targets.values()), viewer):
        raise CurationRefusedError(OTHERS_USE_IT)
    return targets


def _labels_in(copy: WorkingCopy, kind: str, refs: Iterable[TermRef]) -> list[str]:
    """The names of terms of a copy; of categories their paths."""
    return [edits.label_of(kind, copy.table(kind)[int(ref)]) for ref in refs]


def _rename(operation: Rename, viewer: Viewer) -> tuple[str, WorkingCopy]:
    kind, term = operation.kind, _own_term(operation.kind, operation.term, viewer)
    if kind == "tag":
        new = clean_tag(operation.name)
        copy = _copy_of(kind, [term, new], viewer, term)
        _refuse_tag_in_use(new, copy, viewer, unless_of=str(term))
        tag_edits.rename_tag(copy, str(term), new, _own_memories(str(term), viewer))
    else:
        copy = _copy_of(kind, [term], viewer, term)
        _refuse_name_taken(kind, operation.name, copy, int(term), viewer)
        edits.rename(copy, kind, int(term), operation.name)
    return kind, copy


def _move(operation: Move, viewer: Viewer) -> tuple[str, WorkingCopy]:
    category = _own_term("category", operation.category, viewer, "category")
    parent = find_term("category", operation.parent, viewer, "parent") if operation.parent.strip() else None
    copy = _copy_of("category", (), viewer, category)
    edits.move_category(copy, int(category), None if parent is None else int(parent))
    return "category", copy


def _alias(operation: Alias, viewer: Viewer) -> tuple[str, WorkingCopy]:
    # Local names need no permission of others who use the term; public ones that are removed do.
    term = find_term(operation.kind, operation.term, viewer)
    if operation.kind == "tag":
        add = [clean_tag(name, "add") for name in dict.fromkeys(operation.add)]
        remove = [clean_tag(name, "remove") for name in dict.fromkeys(operation.remove)]
        copy = _copy_of("tag", [str(term), *add, *remove], viewer, term)
        for tag in add:
            _refuse_tag_in_use(tag, copy, viewer, unless_of=str(term), field="add")
        tag_edits.set_tag_aliases(copy, str(term), add, remove)
        return operation.kind, copy
    copy = _copy_of(operation.kind, [term], viewer, term)
    row = copy.table(operation.kind)[int(term)]
    before = copy.names_shown(operation.kind, int(term))
    remaining = _remaining_aliases(operation, copy, int(term), viewer)
    _set_aliases(operation.kind, copy, int(term), [*remaining, *operation.add], operation.add, viewer, "add")
    if not copy.changes():
        raise CurationRefusedError("It already has these names.", "add")
    label = row[VOCABULARIES[operation.kind].label_column]
    copy.title = f"Changed the aliases of the {operation.kind} {label}"
    copy.add_line("aliases", ", ".join(before), ", ".join(copy.names_shown(operation.kind, int(term))))
    return operation.kind, copy


def _remaining_aliases(operation: Alias, copy: WorkingCopy, term_id: int, viewer: Viewer) -> list[str]:
    """The public aliases that are not removed. Former paths of a category can be removed like aliases."""
    kind = operation.kind
    aliases = {alias.lower(): alias for alias in copy.table(kind)[term_id]["aliases"]}
    former = {row["path"]: row["id"] for row in copy.table("former_path").values() if row["category_id"] == term_id}
    own = [row for role in ("alias", "path") for row in copy.shown_local(kind, term_id, role)]
    local = {row["text"].lower(): row for row in own}
    for name in operation.remove:
        if name.lower() in local:
            row = local.pop(name.lower())
            copy.remove_local(row)
            if row["role"] == "path":
                copy.add_line("path removed", name)
            continue
        if name.lower() in {**aliases, **former} and used_by_others(kind, [term_id], viewer):
            raise CurationRefusedError(OTHERS_USE_IT)
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
    query = parse_query(operation.query)
    chosen = sorted(set(operation.memories)) or matching_ids(query, viewer, having=(operation.kind, term))
    memory_ids = tuple(linked_ids(operation.kind, [term], chosen))
    if not memory_ids:
        raise CurationRefusedError("None of these memories has it directly: choose others.", "query")
    _refuse_unwritable(memory_ids, viewer)
    own = _own_memories(str(term), viewer) if operation.kind == "tag" else None
    staying = len(linked_ids(operation.kind, [term], own)) - len(memory_ids)
    if not staying:
        raise CurationRefusedError("All of its memories are among these: rename it instead.", "query")
    kind = operation.kind
    if kind == "tag":
        new = clean_tag(operation.name)
        copy = _copy_of(kind, [str(term), new], viewer, term)
        _refuse_tag_in_use(new, copy, viewer, may_exist=new != term)
        tag_edits.split_tag(copy, str(term), new, memory_ids)
    else:
        copy = _copy_of(kind, [term], viewer, term)
        _refuse_name_taken(kind, operation.name, copy, int(term), viewer)
        edits.split(copy, kind, int(term), operation.name, memory_ids)
    copy.add_line("memories that keep it", number(len(memory_ids) + staying), number(staying))
    return operation.kind, copy


def _relate(operation: Relate, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = int(_own_term(operation.kind, operation.term, viewer))
    other = int(_own_term(operation.kind, operation.other, viewer, "other"))
    copy = _copy_of(operation.kind, [term, other], viewer, None)
    if operation.kind == "entity":
        if not operation.remove:
            _check_evidence(operation, term, other, viewer)
        edits.state_relationship(copy, term, operation.how, other, None if operation.remove else operation.stated())
    else:
        above = broader_concepts() if operation.kind == "concept" else {}
        edits.relate(copy, operation.kind, term, operation.how, other, remove=operation.remove, broader=above)
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


_OPERATIONS: dict[type[Operation], Callable[[Any, Viewer], tuple[str, WorkingCopy]]] = {
    Create: _create,
    Edit: _edit,
    Merge: _merge,
    Rename: _rename,
    Move: _move,
    Alias: _alias,
    Split: _split,
    Relate: _relate,
    Forget: forget,
    Retag: retag,
}


# --- names ------------------------------------------------------------------------------------------------------


def _namesakes(kind: str, row: TableRow) -> QuerySet[Any]:
    return text_edits.namesakes(kind, row["id"], row.get("entity_type", ""))


def _refuse_name_taken(
    kind: str, name: str, copy: WorkingCopy, term_id: int, viewer: Viewer, instead: str = "merge the two"
) -> None:
    """Refuse a name that is the name of another row, or the alias of one that the viewer sees."""
    if kind == "category":
        # Their paths identify them.
        return
    cleaned = edits.clean_term_name(kind, name)
    others = _namesakes(kind, copy.table(kind)[term_id])
    statement, parameters = others.values("id", "name", "aliases", "alias_projects").query.sql_with_params()
    rows = fetch(
        f"SELECT id, lower(name) = lower(%s) FROM ({statement}) other (id, name, aliases, alias_projects)"
        " WHERE lower(name) = lower(%s) OR aliases <> '{}' AND EXISTS (SELECT 1 FROM"
        " unnest(categories_readable(aliases, alias_projects, %s::bigint[])) alias WHERE lower(alias) = lower(%s))",
        [cleaned, *parameters, cleaned, as_array(viewer.project_ids), cleaned],
    )
    visible = visible_terms(kind, [pk for pk, _ in rows], viewer)
    if any(is_name or pk in visible for pk, is_name in rows):
        raise CurationRefusedError(f"“{cleaned}” is the name of another {kind}: {instead} instead.", "name")


def _refuse_tag_in_use(
    tag: str,
    copy: WorkingCopy,
    viewer: Viewer,
    *,
    unless_of: str = "",
    field: str = "name",
    may_exist: bool = False,
) -> None:
    """Refuse a name that the viewer sees as a tag, or as an alias of one. Other projects may use any name."""
    public = next((row["tag"] for row in copy.table("tag_alias").values() if row["alias"] == tag), "")
    owners = {public} if public else set()
    if viewer.project_ids is not None:
        owners = known_terms("tag", owners, viewer.project_ids)
    owners |= {
        row["tag"]
        for row in copy.table("local_text").values()
        if row["text"] == tag and (copy.visible is None or not copy.visible.isdisjoint(row["project_ids"]))
    }
    if owners - {unless_of}:
        raise CurationRefusedError(f"“{tag}” is already an alias of a tag.", field)
    if not may_exist and tag != unless_of and visible_to(viewer).filter(tags__contains=[tag]).exists():
        raise CurationRefusedError(f"“{tag}” is already a tag: merge the two instead.", field)


# --- the projects in which new texts hold -----------------------------------------------------------------------------

_NO_TEXTS: TableRow = {"aliases": [], "description": ""}


def text_projects_record(copy: WorkingCopy, linked_projects: Collection[int] = ()) -> None:
    """Set the projects in which the public texts hold that the operation wrote: those that use the term that the text
    comes from, since its members knew the name, or may know what is written of it.

    They are read before links move. New terms that get memories are used by `linked_projects`.
    """
    if copy.scope is not None:
        return
    for kind in VOCABULARIES:
        _record_terms(copy, kind, sorted(linked_projects) or None)
    _record_rows(copy, "former_path", "path", "category", "category_id")
    _record_rows(copy, "tag_alias", "alias", "tag", "tag")


def _record_terms(copy: WorkingCopy, kind: str, linked_projects: list[int] | None) -> None:
    originals = copy.originals(kind)
    changed = [
        row
        for row in copy.table(kind).values()
        if any(row[name] != originals.get(row["id"], _NO_TEXTS)[name] for name in _NO_TEXTS)
    ]
    if not changed:
        return
    sources = {row["id"]: [originals[pk] for pk in copy.merged if copy.kept(pk) == row["id"]] for row in changed}
    refs = {row["id"] for row in changed if row["id"] > 0} | {one["id"] for ones in sources.values() for one in ones}
    used: dict[int, list[int] | None] = {**projects_using(kind, refs)}
    for row in changed:
        before = originals.get(row["id"], _NO_TEXTS)
        own = used.get(row["id"]) if row["id"] > 0 else linked_projects
        origin = _origin(sources[row["id"]], used, own)
        row["alias_projects"] = stored_alias_projects(before, row["aliases"], origin)
        row["description_projects"] = stored_description_projects(before, row["description"], origin)


def _origin(
    sources: Iterable[TableRow], used: dict[int, list[int] | None], own: list[int] | None
) -> Callable[[str], list[int] | None]:
    """Gives the projects of a new text of a term: those of the merged term that had it, else those of the term."""

    def of_alias(source: TableRow, text: str) -> list[int] | None:
        stored: dict[str, list[str]] = source.get("alias_projects") or {}
        return [int(project) for project in stored[text]] if text in stored else None

    def origin(text: str) -> list[int] | None:
        for source in sources:
            # An alias of another type of entity is `type:name`.
            for name in (text, text.partition(":")[2]):
                if name and name in source["aliases"]:
                    return of_alias(source, name)
                if name and name == source["name"]:
                    return used.get(source["id"])
            if text == source["description"]:
                return source.get("description_projects")
        return own

    return origin


def _record_rows(copy: WorkingCopy, table: str, text: str, kind: str, reference: str) -> None:
    """Set the projects of new former paths or aliases of tags: those of the term that had the name before."""
    new = [row for row_id, row in copy.table(table).items() if row_id not in copy.originals(table)]
    if not new:
        return
    paths = {row["path"]: pk for pk, row in copy.originals("category").items()}

    def refs_of(row: TableRow) -> list[TermRef]:
        owner: TermRef = row[reference]
        return [row[text], owner] if kind == "tag" else [paths.get(row[text]) or owner]

    terms = {row["id"]: refs_of(row) for row in new}
    used: dict[Any, list[int]] = projects_using(kind, {ref for refs in terms.values() for ref in refs})
    for row in new:
        row["project_ids"] = next((used[ref] for ref in terms[row["id"]] if ref in used), None)

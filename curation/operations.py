"""Each operation on a working copy of the vocabulary: names are resolved, permissions checked, changes made.

Permissions come first: any other refusal could disclose terms of other projects.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.local_texts import as_array, known_terms
from categories.paths import CategoryPath, PathError, parse_path
from categories.queries import category_nodes, tags_now
from curation import category_edits, memory_edits, term_edits, text_edits
from curation.queries import (
    OTHERS_USE_IT,
    TermNotFoundError,
    broader_concepts,
    category_ids_of,
    find_term,
    linked_ids,
    matching_ids,
    memories_with,
    parse_query,
    projects_of,
    projects_with,
    used_by_others,
    visible_relationships,
    visible_terms,
    working_copy_of,
)
from curation.schemas import Alias, Create, Edit, Forget, Merge, Move, Operation, Relate, Rename, Retag, Split
from curation.tables import fetch
from curation.term_edits import clean_tag
from curation.text_projects import text_projects_record
from curation.working_copy import CurationRefusedError, Relink, StateChange, TableRow, TermRef, WorkingCopy
from memories.models import Memory
from memories.queries import visible_to
from memories.records import DEFAULT_ENTITY_TYPE, slug_name
from search.query import SearchQuery
from text.formatting import listed, number
from text.formatting import memories as memories_label

# Memories that one operation may change: some ten seconds, in which nobody else can write.
MOST_MEMORIES = 20_000
# Terms that the title of a merge of several names.
_NAMED = 5
_IN_TITLE = 6


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
    created = category_edits.category_create(copy, path)
    copy.describe("category", created, operation.description)
    _set_aliases(operation.kind, copy, created, operation.aliases, operation.aliases, viewer, "aliases")
    for other in dict.fromkeys(related):
        category_edits.categories_relate(copy, created, other, remove=False)
    return created


def _create_term(operation: Create, copy: WorkingCopy, viewer: Viewer, others: Mapping[str, Iterable[int]]) -> int:
    kind = operation.kind
    values: dict[str, Any] = {"description": "", "aliases": [], f"{kind}_type": operation.type}
    if kind == "concept":
        values["weight"] = operation.weight
    else:
        values["entity_type"] = operation.type or DEFAULT_ENTITY_TYPE
    created = term_edits.term_create(copy, kind, operation.name, values)
    copy.describe(kind, created, operation.description)
    _refuse_name_taken(kind, operation.name, copy, created, viewer, "edit that one")
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
    values = operation.given()
    # A description by a curator of some projects is theirs alone: it needs no permission of others.
    find = find_term if values.keys() == {"description"} else _own_term
    term = int(find(kind, operation.term, viewer))
    copy = _copy_of(kind, [term], viewer, term)
    if kind == "entity" and "entity_type" in values:
        values["entity_type"] = values["entity_type"] or DEFAULT_ENTITY_TYPE
    term_edits.term_edit(copy, kind, term, values)
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
            category_edits.refuse_alias_paths(copy, term_id, aliases, is_visible)
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
                category_edits.category_merge(copy, int(source), int(target))
            case "concept":
                broader = term_edits.concept_merge(copy, *_pair(source, target), broader)
            case "entity":
                term_edits.entity_merge(copy, *_pair(source, target))
            case "tag":
                term_edits.tag_merge(copy, str(source), str(target), _own_memories(str(source), viewer))
    if kind == "category":
        category_edits.add_merge_lines(copy, known)
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
    return [str(copy.table(kind)[int(ref)][VOCABULARIES[kind].label_column]) for ref in refs]


def _pair(source: TermRef, target: TermRef) -> tuple[int, int]:
    if source == target:
        raise CurationRefusedError("These two are already the same.", "target")
    return int(source), int(target)


def _rename(operation: Rename, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(operation.kind, operation.term, viewer)
    refs = [term, clean_tag(operation.name)] if operation.kind == "tag" else [term]
    copy = _copy_of(operation.kind, refs, viewer, term)
    match operation.kind:
        case "category":
            category_edits.category_rename(copy, int(term), operation.name)
        case "tag":
            _refuse_tag_in_use(str(refs[1]), copy, viewer, unless_of=str(term))
            term_edits.tag_rename(copy, str(term), str(refs[1]), _own_memories(str(term), viewer))
        case "concept" | "entity":
            _refuse_name_taken(operation.kind, operation.name, copy, int(term), viewer)
            term_edits.term_rename(copy, operation.kind, int(term), operation.name)
    return operation.kind, copy


def _move(operation: Move, viewer: Viewer) -> tuple[str, WorkingCopy]:
    category = _own_term("category", operation.category, viewer, "category")
    parent = find_term("category", operation.parent, viewer, "parent") if operation.parent.strip() else None
    copy = _copy_of("category", (), viewer, category)
    category_edits.category_move(copy, int(category), None if parent is None else int(parent))
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
        term_edits.tag_aliases_set(copy, str(term), add, remove)
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
    copy = _copy_of(operation.kind, [term], viewer, term)
    match operation.kind:
        case "category":
            category_edits.category_split(copy, int(term), operation.name, memory_ids)
        case "tag":
            new = clean_tag(operation.name)
            copy = _copy_of("tag", [str(term), new], viewer, term)
            _refuse_tag_in_use(new, copy, viewer, may_exist=new != term)
            term_edits.tag_split(copy, str(term), new, memory_ids)
        case "concept" | "entity":
            _refuse_name_taken(operation.kind, operation.name, copy, int(term), viewer)
            term_edits.term_split(copy, operation.kind, int(term), operation.name, memory_ids)
    copy.add_line("memories that keep it", number(len(memory_ids) + staying), number(staying))
    return operation.kind, copy


def _relate(operation: Relate, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = int(_own_term(operation.kind, operation.term, viewer))
    other = int(_own_term(operation.kind, operation.other, viewer, "other"))
    copy = _copy_of(operation.kind, [term, other], viewer, None)
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
    chosen, not_writable = _writable(_found(query, viewer), viewer)
    if not_writable:
        raise CurationRefusedError(
            "You can read but not write some of these projects: narrow the query by project=….", "query"
        )
    there = Memory.objects.filter(pk__in=chosen).exclude(state=Memory.State.DELETED)
    ids = tuple(there.order_by("pk").values_list("pk", flat=True))
    if not ids:
        raise CurationRefusedError("All memories that match are deleted already.", "query")
    copy = WorkingCopy({}, title=f"Deleted {memories_label(len(ids))} that match {query.querystring()}", chosen=chosen)
    copy.state_changes.append(StateChange(ids, Memory.State.DELETED.value, operation.reason))
    return "memory", copy


def _found(query: SearchQuery, viewer: Viewer) -> list[int]:
    """The memories that match a query. Refuses if there are none."""
    if found := matching_ids(query, viewer, MOST_MEMORIES):
        return found
    raise CurationRefusedError("No memory matches the query.", "query")


def _writable(memory_ids: Collection[int], viewer: Viewer) -> tuple[tuple[int, ...], int]:
    """Those of visible memories that the viewer may write, in order, and the number of the others."""
    if viewer.writable_project_ids is None:
        return tuple(sorted(memory_ids)), 0
    memories = Memory.objects.filter(pk__in=memory_ids, project_id__in=viewer.writable_project_ids)
    writable = tuple(memories.order_by("pk").values_list("pk", flat=True))
    return writable, len(memory_ids) - len(writable)


def _retag(operation: Retag, viewer: Viewer) -> tuple[str, WorkingCopy]:
    if operation.query is None:
        ids = set(operation.memories)
        found = list(visible_to(viewer).filter(pk__in=ids).values_list("pk", flat=True))
        if not found:
            raise CurationRefusedError("There are no such memories that you can see.", "memories")
    else:
        found = _found(parse_query(operation.query), viewer)
    chosen, not_writable = _writable(found, viewer)
    if not chosen:
        raise CurationRefusedError("You can read these memories, but change none of them.", "query")
    new = _new_categories(operation, viewer)
    copy = working_copy_of("category", ()) if new else WorkingCopy({})
    copy.chosen, copy.not_writable = chosen, not_writable
    if operation.merge_into is not None:
        memory_edits.memories_merge(copy, chosen, operation.merge_into, operation.reason)
        return "memory", copy
    by_path: dict[str, TermRef] = {}
    # Those above the others first: a category is made with those above it.
    for path in sorted(new.values(), key=lambda path: len(path.paths)):
        if path.path not in by_path:
            by_path[path.path] = category_edits.category_create(copy, path)
    made = {name: by_path[path.path] for name, path in new.items()}
    for kind, sources, target in _retag_links(operation, viewer, chosen, made):
        copy.relinks.append(Relink(kind, sources, target, chosen))
    if operation.set_state is not None:
        memory_edits.memories_set_state(copy, chosen, operation.set_state, operation.reason)
    copy.title = _removal_title(operation, copy.relinks, len(chosen)) or _retag_title(operation, chosen)
    return "memory", copy


def _new_categories(operation: Retag, viewer: Viewer) -> dict[str, CategoryPath]:
    """The paths by name of categories that are to be added and do not exist yet.

    Only for viewers of everything: for others a path may be taken by a category that they do not see.
    """
    paths: dict[str, CategoryPath] = {}
    for name in (*operation.add_categories, *([operation.set_category] if operation.set_category else [])):
        try:
            find_term("category", name, viewer, "add_categories")
        except TermNotFoundError:
            try:
                path = parse_path(name)
            except PathError as error:
                raise CurationRefusedError(str(error), "add_categories") from error
            if viewer.project_ids is not None or path is None or name.startswith("#"):
                raise
            paths[name] = path
    return paths


def _retag_title(operation: Retag, chosen: Collection[int]) -> str:
    """The number of the memories, and what they get (+) and lose (−)."""
    which = f"#{operation.memories[0]}" if len(operation.memories) == 1 else memories_label(len(chosen))
    verb = {"active": "Restored", "archived": "Archived"}.get(str(operation.set_state), "Retagged")
    fields = ["tags", *(vocabulary.plural for vocabulary in VOCABULARIES.values())]
    changes = [f"+{name}" for plural in fields for name in getattr(operation, f"add_{plural}")]
    changes += [f"only {operation.set_category}"] if operation.set_category else []
    changes += [f"−{name}" for plural in fields for name in getattr(operation, f"remove_{plural}")]
    more = [f"{number(len(changes) - _IN_TITLE)} more"] if len(changes) > _IN_TITLE else []
    return f"{verb} {which}" + (f": {', '.join([*changes[:_IN_TITLE], *more])}" if changes else "")


def _removal_title(operation: Retag, relinks: Collection[Relink], found: int) -> str:
    """The title of a change that only takes tags from all memories that have one of them; empty for any other."""
    tags = sorted(set(operation.remove_tags))
    asked = parse_query(operation.query or "").parameters()
    is_all = {(key, value) for key, value in asked if key != "state"} == {("tag", tag) for tag in tags}
    if not is_all or operation.set_state or [(link.kind, link.target) for link in relinks] != [("tag", None)]:
        return ""
    names = listed([*tags[:_NAMED], *([f"{len(tags) - _NAMED} others"] if len(tags) > _NAMED else [])])
    return f"Removed the {'tag' if len(tags) == 1 else 'tags'} {names} from {memories_label(found)}"


def _retag_links(
    operation: Retag, viewer: Viewer, ids: tuple[int, ...], made: Mapping[str, TermRef]
) -> Iterable[tuple[str, tuple[TermRef, ...], TermRef | None]]:
    """The links to remove and to create: kind, sources, target. `made` are categories that do not exist yet."""
    added = [clean_tag(name, "add_tags") for name in dict.fromkeys(operation.add_tags)]
    removed = [clean_tag(name, "remove_tags") for name in dict.fromkeys(operation.remove_tags)]
    now = tags_now([*added, *removed], viewer.project_ids)
    added, removed = ([now.get(tag, tag) for tag in tags] for tags in (added, removed))
    _refuse_both(added, removed, "tags")
    if removed:
        yield "tag", tuple(removed), None
    for tag in added:
        yield "tag", (), tag
    for vocabulary in VOCABULARIES.values():
        kind, add, remove = vocabulary.name, f"add_{vocabulary.plural}", f"remove_{vocabulary.plural}"
        names = getattr(operation, add)
        targets = [
            (made if kind == "category" else {}).get(name) or find_term(kind, name, viewer, add) for name in names
        ]
        sources = [find_term(kind, name, viewer, remove) for name in getattr(operation, remove)]
        _refuse_both(targets, sources, vocabulary.plural)
        if sources:
            yield kind, tuple(sources), None
        for target in targets:
            yield kind, (), target
    if operation.set_category:
        name = operation.set_category
        category = made.get(name) or find_term("category", name, viewer, "set_category")
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


def _refuse_name_taken(
    kind: str, name: str, copy: WorkingCopy, term_id: int, viewer: Viewer, instead: str = "merge the two"
) -> None:
    """Refuse a name that is the name of another row, or the alias of one that the viewer sees."""
    cleaned = term_edits.clean_term_name(kind, name)
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

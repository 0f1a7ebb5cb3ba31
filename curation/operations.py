"""What each verb comes to on a copy of the vocabulary: terms by name, what stands against it, what changes.

Whether a term is the viewer's to change is said before anything else: no other refusal may tell of what is not theirs.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from access.viewer import Viewer
from categories.models import Concept, Entity
from categories.queries import tags_now
from curation import category_edits, term_edits, text_edits
from curation.queries import (
    OTHERS_USE_IT,
    are_used_by_others,
    concepts_desk,
    entities_desk,
    filed_under,
    hierarchy,
    linked_ids,
    matching_ids,
    memories_of,
    projects_of,
    query_read,
    tags_desk,
    term_named,
    tree_desk,
)
from curation.schemas import Alias, Asked, Merge, Move, Relate, Rename, Retag, Split
from curation.term_edits import clean_tag
from curation.working_copy import CurationRefusedError, Ref, Relink, WorkingCopy
from memories.queries import visible_to


def apply_operation(asked: Asked, viewer: Viewer) -> tuple[str, WorkingCopy]:
    """The kind that a verb is about, and the copy after it. Raises CurationRefusedError and TermNotFoundError."""
    return _BUILDERS[type(asked)](asked, viewer)


def _own_term(kind: str, name: str, viewer: Viewer, field: str = "term") -> Ref:
    """The one term that a name means, whose every memory the viewer may write."""
    term = term_named(kind, name, viewer, field)
    if are_used_by_others(kind, [term], viewer):
        raise CurationRefusedError(OTHERS_USE_IT)
    return term


def _merge(asked: Merge, viewer: Viewer) -> tuple[str, WorkingCopy]:
    source = _own_term(asked.kind, asked.source, viewer, "source")
    target = _own_term(asked.kind, asked.target, viewer, "target")
    desk = _desk(asked.kind, [source, target])
    match asked.kind:
        case "category":
            category_edits.category_merge(desk, int(source), int(target))
        case "concept":
            term_edits.concept_merge(desk, *_pair(source, target), hierarchy())
        case "entity":
            term_edits.entity_merge(desk, *_pair(source, target))
        case "tag":
            term_edits.tag_merge(desk, str(source), str(target))
    return asked.kind, desk


def _pair(source: Ref, target: Ref) -> tuple[int, int]:
    if source == target:
        raise CurationRefusedError("These two are already the same.", "target")
    return int(source), int(target)


def _rename(asked: Rename, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(asked.kind, asked.term, viewer)
    match asked.kind:
        case "category":
            desk = tree_desk()
            category_edits.category_rename(desk, int(term), asked.name)
        case "tag":
            new = clean_tag(asked.name)
            desk = tags_desk([str(term), new])
            _refuse_tag_in_use(new, desk, unless_of=str(term))
            term_edits.tag_rename(desk, str(term), new)
        case "concept" | "entity":
            desk = _desk(asked.kind, [term])
            _refuse_name_taken(asked.kind, asked.name, desk, int(term))
            term_edits.term_rename(desk, asked.kind, int(term), asked.name)
    return asked.kind, desk


def _move(asked: Move, viewer: Viewer) -> tuple[str, WorkingCopy]:
    category = _own_term("category", asked.category, viewer, "category")
    parent = term_named("category", asked.parent, viewer, "parent") if asked.parent.strip() else None
    desk = tree_desk()
    category_edits.category_move(desk, int(category), None if parent is None else int(parent))
    return "category", desk


def _alias(asked: Alias, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(asked.kind, asked.term, viewer)
    if asked.kind == "tag":
        add, remove = ([clean_tag(name, side) for name in dict.fromkeys(names)] for side, names in _sides(asked))
        desk = tags_desk([str(term), *add, *remove])
        for tag in add:
            _refuse_tag_in_use(tag, desk, unless_of=str(term), field="add")
        term_edits.tag_aliases_set(desk, str(term), add, remove)
        return asked.kind, desk
    desk = _desk(asked.kind, [term])
    row = desk.table(asked.kind)[int(term)]
    kept = _without(asked, desk, int(term))
    try:
        row["aliases"] = text_edits.clean_aliases([*kept, *asked.add], row["name"])
        if asked.kind == "category":
            category_edits.refuse_paths(desk, int(term), asked.add)
        else:
            text_edits.refuse_taken(row["aliases"], _namesakes(asked.kind, row))
    except text_edits.EditRefusedError as error:
        # The reason names what has the name, which others' memories alone may be about.
        reason = str(error) if viewer.project_ids is None else "One of these names belongs to another term."
        raise CurationRefusedError(reason, "add") from error
    if not desk.changes():
        raise CurationRefusedError("It already has these names.", "add")
    desk.title = f"Changed the aliases of the {asked.kind} {row['path' if asked.kind == 'category' else 'name']}"
    desk.line("aliases", ", ".join(_was(desk, asked.kind, int(term))["aliases"]), ", ".join(row["aliases"]))
    return asked.kind, desk


def _sides(asked: Alias) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
    return ("add", asked.add), ("remove", asked.remove)


def _without(asked: Alias, desk: WorkingCopy, term_id: int) -> list[str]:
    """The aliases that stay. What is to go must be there: a former path of a category is an alias of a kind."""
    aliases = {alias.lower(): alias for alias in desk.table(asked.kind)[term_id]["aliases"]}
    former = {row["path"]: row["id"] for row in desk.table("former_path").values() if row["category_id"] == term_id}
    for name in asked.remove:
        if name.lower() in aliases:
            del aliases[name.lower()]
        elif name.lower() in former:
            del desk.table("former_path")[former.pop(name.lower())]
            desk.line("path removed", name)
        else:
            raise CurationRefusedError(f"“{name}” is not one of its aliases.", "remove")
    return list(aliases.values())


def _was(desk: WorkingCopy, table: str, row_id: int) -> dict[str, Any]:
    return desk.was(table, row_id) or {}


def _split(asked: Split, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = _own_term(asked.kind, asked.term, viewer)
    chosen = sorted(set(asked.memories)) or matching_ids(query_read(asked.query), viewer)
    memory_ids = tuple(linked_ids(asked.kind, [term], chosen))
    if not memory_ids:
        raise CurationRefusedError("None of these memories has it directly: choose others.", "query")
    if len(memory_ids) == len(linked_ids(asked.kind, [term])):
        raise CurationRefusedError("All of its memories are among these: rename it instead.", "query")
    desk = _desk(asked.kind, [term])
    match asked.kind:
        case "category":
            category_edits.category_split(desk, int(term), asked.name, memory_ids)
        case "tag":
            new = clean_tag(asked.name)
            desk = tags_desk([str(term), new])
            _refuse_tag_in_use(new, desk)
            term_edits.tag_split(desk, str(term), new, memory_ids)
        case "concept" | "entity":
            _refuse_name_taken(asked.kind, asked.name, desk, int(term))
            term_edits.term_split(desk, asked.kind, int(term), asked.name, memory_ids)
    return asked.kind, desk


def _relate(asked: Relate, viewer: Viewer) -> tuple[str, WorkingCopy]:
    term = int(_own_term(asked.kind, asked.term, viewer))
    other = int(_own_term(asked.kind, asked.other, viewer, "other"))
    desk = _desk(asked.kind, [term, other])
    match asked.kind:
        case "category":
            category_edits.categories_relate(desk, term, other, remove=asked.remove)
        case "concept":
            term_edits.concepts_relate(desk, term, asked.how, other, remove=asked.remove, broader=hierarchy())
        case "entity" if asked.remove:
            term_edits.relationship_remove(desk, term, asked.how, other)
        case "entity":
            evidence = set(asked.evidence)
            if visible_to(viewer).filter(pk__in=evidence).count() != len(evidence):
                raise CurationRefusedError("Some of these are not memories that you can see.", "evidence")
            term_edits.relationship_add(desk, term, asked.how, other, fact=asked.fact, evidence_ids=evidence)
    return asked.kind, desk


def _retag(asked: Retag, viewer: Viewer) -> tuple[str, WorkingCopy]:
    query = query_read(asked.query)
    ids = tuple(matching_ids(query, viewer))
    if not ids:
        raise CurationRefusedError("No memory matches the query.", "query")
    if viewer.writable_project_ids is not None and not set(projects_of(ids)) <= viewer.writable_project_ids:
        raise CurationRefusedError(
            "You can read but not write some of these projects: narrow the query by project=….",
            "query",
        )
    desk = WorkingCopy({})
    for kind, sources, target in _retagged(asked, viewer, ids):
        desk.relinks.append(Relink(kind, sources, target, ids))
    shown = query.querystring()
    desk.title = f"Retagged all memories that match {shown}" if shown else "Retagged all memories"
    return "memory", desk


def _retagged(asked: Retag, viewer: Viewer, ids: tuple[int, ...]) -> Iterable[tuple[str, tuple[Ref, ...], Ref | None]]:
    """The links to be made and removed: kind, what goes, what comes."""
    added = [clean_tag(name, "add_tags") for name in dict.fromkeys(asked.add_tags)]
    removed = [clean_tag(name, "remove_tags") for name in dict.fromkeys(asked.remove_tags)]
    now = tags_now([*added, *removed])
    added, removed = ([now.get(tag, tag) for tag in tags] for tags in (added, removed))
    _refuse_both(added, removed, "tags")
    if removed:
        yield "tag", tuple(removed), None
    for tag in added:
        yield "tag", (), tag
    for kind, plural, come, go in (
        ("category", "categories", asked.add_categories, asked.remove_categories),
        ("concept", "concepts", asked.add_concepts, asked.remove_concepts),
        ("entity", "entities", asked.add_entities, asked.remove_entities),
    ):
        adds = [term_named(kind, name, viewer, f"add_{plural}") for name in come]
        goes = [term_named(kind, name, viewer, f"remove_{plural}") for name in go]
        _refuse_both(adds, goes, plural)
        if goes:
            yield kind, tuple(goes), None
        for one in adds:
            yield kind, (), one
    if asked.set_category:
        target = term_named("category", asked.set_category, viewer, "set_category")
        if others := filed_under(ids) - {int(target)}:
            yield "category", tuple(sorted(others)), None
        yield "category", (), target


def _refuse_both(added: Collection[Ref], removed: Collection[Ref], plural: str) -> None:
    if both := set(added) & set(removed):
        raise CurationRefusedError(f"“{sorted(both, key=str)[0]}” is both added and removed.", f"add_{plural}")


_BUILDERS: dict[type[Asked], Callable[[Any, Viewer], tuple[str, WorkingCopy]]] = {
    Merge: _merge,
    Rename: _rename,
    Move: _move,
    Alias: _alias,
    Split: _split,
    Relate: _relate,
    Retag: _retag,
}


# --- what they share ------------------------------------------------------------------------------------------------


def _desk(kind: str, refs: list[Ref]) -> WorkingCopy:
    if kind == "category":
        return tree_desk()
    if kind == "tag":
        return tags_desk([str(ref) for ref in refs])
    return (concepts_desk if kind == "concept" else entities_desk)([int(ref) for ref in refs])


def _namesakes(kind: str, row: dict[str, Any]) -> QuerySet[Any]:
    """The others among which a name must be the only one: for an entity, those of its type."""
    if kind == "concept":
        return Concept.objects.exclude(pk=row["id"])
    return Entity.objects.filter(entity_type=row["entity_type"]).exclude(pk=row["id"])


def _refuse_name_taken(kind: str, name: str, desk: WorkingCopy, term_id: int) -> None:
    """A name that is another's, or another's alias, would lead to two places."""
    cleaned = term_edits.clean_term_name(kind, name)
    others = _namesakes(kind, desk.table(kind)[term_id])
    with connection.cursor() as cursor:
        statement, parameters = others.values("name", "aliases").query.sql_with_params()
        cursor.execute(
            f"SELECT EXISTS (SELECT 1 FROM ({statement}) other (name, aliases) WHERE lower(name) = lower(%s)"
            " OR EXISTS (SELECT 1 FROM unnest(aliases) alias WHERE lower(alias) = lower(%s)))",
            [*parameters, cleaned, cleaned],
        )
        if cursor.fetchone()[0]:
            raise CurationRefusedError(f"“{cleaned}” is the name of another {kind}: merge the two instead.", "name")


def _refuse_tag_in_use(tag: str, desk: WorkingCopy, *, unless_of: str = "", field: str = "name") -> None:
    owner = next((row["tag"] for row in desk.table("tag_alias").values() if row["alias"] == tag), "")
    if owner and owner != unless_of:
        raise CurationRefusedError(f"“{tag}” is already an alias of a tag.", field)
    if tag != unless_of and memories_of("tag", [tag]).exists():
        raise CurationRefusedError(f"“{tag}” is already a tag: merge the two instead.", field)

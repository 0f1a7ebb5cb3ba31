"""Operations on tags, concepts, entities and their relations. Pure: they change a working copy."""

from collections.abc import Iterable, Mapping
from typing import Any

from categories.kinds import VOCABULARIES
from categories.paths import clean_name
from curation.working_copy import CurationRefusedError, Relink, TableRow, WorkingCopy
from memories.records import MAX_TAG, normalise_tag, slug_name

_CONCEPT_RELATIONS = VOCABULARIES["concept"].relations
MAX_NAME = {"concept": 300, "entity": 500}


# --- concepts and entities ------------------------------------------------------------------------------------------


def term_rename(copy: WorkingCopy, kind: str, term_id: int, name: str) -> None:
    """Rename a concept or an entity. The old name becomes an alias."""
    row = copy.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if new == row["name"]:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    old = row["name"]
    row["name"] = new
    copy.add_names(kind, term_id, [old])
    copy.title = f"Renamed the {kind} {old} to {new}"
    copy.add_line("name", old, new, subject=(kind, term_id))


def term_create(copy: WorkingCopy, kind: str, name: str, values: Mapping[str, Any]) -> int:
    """Create a concept or an entity, without relations. Returns its negative id."""
    new = clean_term_name(kind, name)
    relations: TableRow = {column: [] for column in _CONCEPT_RELATIONS} if kind == "concept" else {}
    created = copy.add_row(kind, name=new, **values, **relations)
    copy.add_line(f"new {kind}", "", new)
    return created


def term_edit(copy: WorkingCopy, kind: str, term_id: int, values: Mapping[str, Any]) -> None:
    """Set columns of a category, a concept or an entity. An entity is still found under its previous type."""
    row = copy.table(kind)[term_id]
    label = row[VOCABULARIES[kind].label_column]
    shown = {column: row[column] for column in values}
    if "description" in values and (local := copy.shown_local(kind, term_id, "description")) and copy.scope is not None:
        shown["description"] = local[0]["text"]
    differing = {column: value for column, value in values.items() if shown[column] != value}
    if not differing:
        raise CurationRefusedError(f"{label} has these values already.", next(iter(values), ""))
    for column, value in differing.items():
        before = row[column]
        if column == "entity_type":
            copy.add_names(kind, term_id, _names_with_type(copy, row))
        if column == "description":
            before = copy.describe(kind, term_id, str(value))
        else:
            row[column] = value
        what = column.removeprefix(f"{kind}_")
        copy.add_line(what, *("" if one is None else str(one) for one in (before, value)), subject=(kind, term_id))
    copy.title = f"Edited the {kind} {label}"


def term_split(copy: WorkingCopy, kind: str, term_id: int, name: str, memory_ids: tuple[int, ...]) -> None:
    """Create a concept or an entity of the same type, and link these memories to it instead.

    Relationships of an entity move along if all their evidence is among these memories.
    """
    row = copy.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if new.lower() in {known.lower() for known in (row["name"], *row["aliases"])}:
        raise CurationRefusedError(f"“{new}” is already one of its names: choose another for the new one.", "name")
    values: TableRow = {"name": new, "aliases": [], "description": "", f"{kind}_type": row[f"{kind}_type"]}
    if kind == "concept":
        values |= {"weight": None, **{column: [] for column in _CONCEPT_RELATIONS}}
    created = copy.add_row(kind, **values)
    copy.relinks.append(Relink(kind, (term_id,), created, memory_ids))
    copy.title = f"Split {new} off the {kind} {row['name']}"
    copy.touched.add((kind, term_id))
    copy.add_line(f"new {kind}", "", new)
    if kind == "entity":
        _split_relationships(copy, term_id, created, set(memory_ids))


def _split_relationships(copy: WorkingCopy, entity_id: int, created: int, memory_ids: set[int]) -> None:
    entities = copy.table("entity")
    for row in copy.table("relationship").values():
        if not row["evidence_ids"] or not memory_ids.issuperset(row["evidence_ids"]):
            continue
        for side in ("source_id", "target_id"):
            if row[side] == entity_id:
                row[side] = created
        label = row["fact"] or row["relationship_type"]
        copy.add_line("relationship moves along", label, entities[created]["name"], subject=("relationship", row["id"]))


def clean_term_name(kind: str, name: str) -> str:
    """The stored form of a name of a concept or an entity. Raises CurationRefusedError."""
    cleaned = clean_name(name)
    if not cleaned:
        raise CurationRefusedError(f"{'An' if kind == 'entity' else 'A'} {kind} needs a name.", "name")
    if len(cleaned) > MAX_NAME[kind]:
        raise CurationRefusedError(f"A name has up to {MAX_NAME[kind]} characters; this has {len(cleaned):,}.", "name")
    return cleaned


def _names_with_type(copy: WorkingCopy, entity: TableRow) -> list[str]:
    """The public names of an entity with its type, which it loses: an alias has none, and `type:name` is to be found
    still. The local ones are added.
    """
    entity_type = entity["entity_type"]
    for row in [row for row in copy.local_rows("entity", entity["id"]) if ":" not in row["text"]]:
        copy.add_row("local_text", **{**row, "id": 0, "text": f"{entity_type}:{row['text']}"})
    return [f"{entity_type}:{name}" for name in (entity["name"], *entity["aliases"]) if ":" not in name]


def _merge_terms(copy: WorkingCopy, kind: str, source_id: int, target_id: int) -> tuple[TableRow, TableRow]:
    """Merge two concepts or two entities, without their relations. Returns both rows."""
    rows = copy.table(kind)
    source, target = rows[source_id], rows[target_id]
    if source_id == target_id:
        raise CurationRefusedError(f"{source['name']} cannot be merged into itself.", "target")
    # A public name of a term that ends by a curator of some projects becomes local.
    names = [source["name"], *source["aliases"]]
    source_type, target_type = source[f"{kind}_type"], target[f"{kind}_type"]
    source_name, target_name = source["name"], target["name"]
    before = ", ".join(copy.names_shown(kind, target_id))
    if kind == "entity" and source_type != target_type:
        source_name, target_name = f"{source_type}:{source_name}", f"{target_type}:{target_name}"
        names += _names_with_type(copy, source)
    copy.move_local(kind, source_id, target_id)
    copy.add_names(kind, target_id, names)
    if source["description"] and not target["description"]:
        copy.describe(kind, target_id, source["description"])
    copy.merged[source_id] = target_id
    copy.relinks.append(Relink(kind, (source_id,), target_id))
    copy.title = f"Merged the {kind} {source_name} into {target_name}"
    copy.add_line("merges into", source_name, target_name, subject=(kind, source_id))
    if before != (after := ", ".join(copy.names_shown(kind, target_id))):
        copy.add_line("other names", before, after, subject=(kind, target_id))
    del rows[source_id]
    return source, target


def concept_merge(
    copy: WorkingCopy, source_id: int, target_id: int, broader: Mapping[int, Iterable[int]]
) -> dict[int, set[int]]:
    """Merge a concept into another concept. `broader` has the ids of the directly broader concepts of every concept;
    returns those after the merge.
    """
    source, target = _merge_terms(copy, "concept", source_id, target_id)
    target["concept_type"] = target["concept_type"] or source["concept_type"]
    target["weight"] = source["weight"] if target["weight"] is None else target["weight"]
    for column in _CONCEPT_RELATIONS:
        target[column] = sorted({*target[column], *source[column]} - {source_id, target_id})
    copy.replace_merged("concept", _CONCEPT_RELATIONS)
    contracted = _contracted(broader, source_id, target_id)
    if _reaches(contracted, target_id, target_id):
        raise CurationRefusedError(
            f"A concept is between {source['name']} and {target['name']}, broader than one and narrower than the "
            "other: merged, it would be broader than itself. Remove one of the two relations first.",
            "target",
        )
    return contracted


def entity_merge(copy: WorkingCopy, source_id: int, target_id: int) -> None:
    """Merge an entity into another entity, with its relationships. Self-relationships end and repeats are combined."""
    source, target = _merge_terms(copy, "entity", source_id, target_id)
    rows = copy.table("relationship")
    known: dict[tuple[int, str, int], TableRow] = {}
    for row in sorted(rows.values(), key=lambda row: (source_id in (row["source_id"], row["target_id"]), row["id"])):
        ends = [target_id if row[side] == source_id else row[side] for side in ("source_id", "target_id")]
        moved = ends != [row["source_id"], row["target_id"]]
        if moved and ends[0] == ends[1]:
            copy.add_line("relationship removed", _fact(row, source, target), subject=("relationship", row["id"]))
            del rows[row["id"]]
            continue
        key = (ends[0], row["relationship_type"], ends[1])
        row["source_id"], row["target_id"] = ends
        if (same := known.get(key)) is None:
            known[key] = row
        else:
            _combine_relationships(same, row)
            copy.add_line("relationships merged", _fact(row, source, target), subject=("relationship", row["id"]))
            del rows[row["id"]]


def _fact(row: TableRow, source: TableRow, target: TableRow) -> str:
    return str(row["fact"] or f"{source['name']} {row['relationship_type']} {target['name']}")


def _combine_relationships(row: TableRow, repeated: TableRow) -> None:
    """Add the evidence of a repeated relationship, its values where there are none, and the higher confidence."""
    row["fact"] = row["fact"] or repeated["fact"]
    row["evidence_ids"] = sorted({*row["evidence_ids"], *repeated["evidence_ids"]})
    if repeated["confidence"] is not None:
        row["confidence"] = max(repeated["confidence"], row["confidence"] or 0)
    for column in ("valid_from", "valid_to"):
        row[column] = row[column] or repeated[column]


# --- relations ------------------------------------------------------------------------------------------------------


def concepts_relate(
    copy: WorkingCopy, first_id: int, how: str, other_id: int, *, remove: bool, broader: Mapping[int, Iterable[int]]
) -> None:
    """Add or remove the relation that the other concept is broader, narrower or related, with its inverse."""
    rows = copy.table("concept")
    first, other = rows[first_id], rows[other_id]
    if first_id == other_id:
        raise CurationRefusedError(f"{first['name']} cannot be related to itself.", "other")
    column = f"{how}_ids"
    inverse = _CONCEPT_RELATIONS[column]
    stated, inverse_stated = other_id in first[column], first_id in other[inverse]
    if remove and not (stated or inverse_stated):
        raise CurationRefusedError(f"{other['name']} is not {how} to {first['name']}.", "other")
    if not remove and stated and inverse_stated:
        raise CurationRefusedError(f"{other['name']} is already {how} to {first['name']}.", "other")
    if not remove:
        _refuse_cycle(first, how, other, broader)
    for row, name, related_id in ((first, column, other_id), (other, inverse, first_id)):
        row[name] = sorted(set(row[name]) - {related_id} if remove else {*row[name], related_id})
    sentence = f"{other['name']} is {'related to' if how == 'related' else f'{how} than'} {first['name']}"
    copy.title = f"{'Removed' if remove else 'Added'}: {sentence}"
    copy.add_line("relation", *((sentence, "") if remove else ("", sentence)), subject=("concept", first_id))


def _refuse_cycle(first: TableRow, how: str, other: TableRow, broader: Mapping[int, Iterable[int]]) -> None:
    if how == "related":
        return
    above, below = (other, first) if how == "broader" else (first, other)
    if _reaches(broader, above["id"], below["id"]):
        raise CurationRefusedError(
            f"{below['name']} is already broader than {above['name']}, directly or not: it cannot also be narrower.",
            "other",
        )


def _reaches(broader: Mapping[int, Iterable[int]], start: int, end: int) -> bool:
    """Whether `end` is directly or indirectly broader than `start`."""
    visited: set[int] = set()
    pending = list(broader.get(start, ()))
    while pending:
        current = pending.pop()
        if current == end:
            return True
        if current not in visited:
            visited.add(current)
            pending += broader.get(current, ())
    return False


def _contracted(broader: Mapping[int, Iterable[int]], source_id: int, target_id: int) -> dict[int, set[int]]:
    """The hierarchy with both concepts as the target, without relations between the two."""
    merged: dict[int, set[int]] = {}
    for concept_id, above in broader.items():
        own = target_id if concept_id == source_id else concept_id
        merged.setdefault(own, set()).update({target_id if up == source_id else up for up in above} - {own})
    return merged


def relationship_state(
    copy: WorkingCopy, source_id: int, relationship_type: str, target_id: int, stated: Mapping[str, Any]
) -> None:
    """Add a relationship between two entities, or set the columns that are given of an existing one."""
    entities, rows = copy.table("entity"), copy.table("relationship")
    kind = slug_name(relationship_type)
    source, target = entities[source_id]["name"], entities[target_id]["name"]
    if not kind or len(kind) > 100:
        raise CurationRefusedError("A relationship has a type of up to 100 characters, such as depends-on.", "how")
    if source_id == target_id:
        raise CurationRefusedError(f"{source} cannot be related to itself.", "other")
    existing = next((row for row in rows.values() if _key(row) == (source_id, kind, target_id)), None)
    if existing is not None:
        differing = {column: value for column, value in stated.items() if existing[column] != value}
        if not differing:
            raise CurationRefusedError(f"{source} {kind} {target}: already stated.", "other")
        for column, value in differing.items():
            what = column.removesuffix("_ids").replace("_", " ")
            before, after = _shown(existing[column]), _shown(value)
            copy.add_line(what, before, after, subject=("relationship", existing["id"]))
        existing.update(differing)
        _describe_relationship(copy, "Corrected", source_id, kind, target_id)
        return
    values = {**dict.fromkeys(("confidence", "valid_from", "valid_to")), "fact": "", "evidence_ids": [], **stated}
    copy.add_row("relationship", source_id=source_id, relationship_type=kind, target_id=target_id, **values)
    _describe_relationship(copy, "Stated", source_id, kind, target_id)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"#{one}" for one in value)
    return "" if value is None else str(value)


def relationship_remove(copy: WorkingCopy, source_id: int, relationship_type: str, target_id: int) -> None:
    """Remove a relationship between two entities."""
    rows = copy.table("relationship")
    kind = slug_name(relationship_type)
    stated = [row for row in rows.values() if _key(row) == (source_id, kind, target_id)]
    if not stated:
        names = [copy.table("entity")[entity_id]["name"] for entity_id in (source_id, target_id)]
        raise CurationRefusedError(f"{names[0]} {kind} {names[1]}: not stated.", "other")
    del rows[stated[0]["id"]]
    _describe_relationship(copy, "Removed", source_id, kind, target_id)


def _key(row: TableRow) -> tuple[int, str, int]:
    return row["source_id"], row["relationship_type"], row["target_id"]


def _describe_relationship(copy: WorkingCopy, verb: str, source_id: int, kind: str, target_id: int) -> None:
    entities = copy.table("entity")
    sentence = f"{entities[source_id]['name']} {kind} {entities[target_id]['name']}"
    copy.title = f"{verb}: {sentence}"
    copy.touched |= {("entity", source_id), ("entity", target_id)}
    if verb != "Corrected":
        copy.add_line("relationship", *(("", sentence) if verb == "Stated" else (sentence, "")))


# --- tags -----------------------------------------------------------------------------------------------------------


def tag_merge(copy: WorkingCopy, source: str, target: str, memory_ids: tuple[int, ...] | None = None) -> None:
    """Replace a tag by another tag on all memories, or on these. The tag becomes an alias."""
    if source == target:
        raise CurationRefusedError(f"{source} cannot be merged into itself.", "target")
    _replace_tag(copy, source, target, memory_ids)
    copy.title = f"Merged the tag {source} into {target}"
    copy.add_line("merges into", source, target, subject=("tag", source))


def tag_rename(copy: WorkingCopy, old: str, new: str, memory_ids: tuple[int, ...] | None = None) -> None:
    """Rename a tag to an unused name, on all memories or on these. The old name becomes an alias."""
    if old == new:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    _replace_tag(copy, old, new, memory_ids)
    copy.title = f"Renamed the tag {old} to {new}"
    copy.touched.add(("tag", new))
    copy.add_line("name", old, new, subject=("tag", old))
    copy.add_line("other names: what is stored with one gets the new name", "", old, subject=("tag", old))


def tag_split(copy: WorkingCopy, tag: str, name: str, memory_ids: tuple[int, ...]) -> None:
    """Replace a tag by another tag on these memories."""
    copy.relinks.append(Relink("tag", (tag,), name, memory_ids))
    copy.title = f"Split {name} off the tag {tag}"
    copy.touched |= {("tag", tag), ("tag", name)}
    copy.add_line("tag of these memories", tag, name)


def tag_aliases_set(copy: WorkingCopy, tag: str, add: Iterable[str], remove: Iterable[str]) -> None:
    """Add and remove aliases of a tag."""
    rows = copy.table("tag_alias")
    known = {row["alias"]: row for row in rows.values()}
    local = {row["text"]: row for row in copy.shown_local("tag", tag)}
    for alias in remove:
        if alias in local:
            copy.remove_local(local[alias])
        elif alias not in known or known[alias]["tag"] != tag:
            raise CurationRefusedError(f"“{alias}” is not an alias of {tag}.", "remove")
        elif copy.scope is not None:
            raise CurationRefusedError(
                f"“{alias}” is an alias in all projects: only a curator of all projects can remove it.", "remove"
            )
        else:
            del rows[known[alias]["id"]]
        copy.add_line("alias", alias, subject=("tag", tag))
    for alias in add:
        if alias == tag:
            raise CurationRefusedError(f"“{alias}” is the tag itself.", "add")
        if copy.scope is not None:
            copy.add_local("tag", tag, "alias", alias)
            copy.add_line("alias", "", alias, subject=("tag", tag))
            continue
        if alias in known:
            raise CurationRefusedError(f"“{alias}” is already an alias of {known[alias]['tag']}.", "add")
        # A tag that no memory has any more may still have aliases: they follow it.
        for row in rows.values():
            if row["tag"] == alias:
                row["tag"] = tag
        copy.add_row("tag_alias", alias=alias, tag=tag)
        copy.add_line("alias", "", alias, subject=("tag", tag))
    copy.title = f"Changed the aliases of the tag {tag}"
    copy.touched |= {("tag", tag)}


def clean_tag(text: str, field: str = "name") -> str:
    """The stored form of a tag. Raises CurationRefusedError."""
    tag = normalise_tag(text)
    if not tag:
        raise CurationRefusedError("A tag needs a name.", field)
    if len(tag) > MAX_TAG:
        raise CurationRefusedError(f"A tag has up to {MAX_TAG} characters; this has {len(tag):,}.", field)
    return tag


def _replace_tag(copy: WorkingCopy, old: str, new: str, memory_ids: tuple[int, ...] | None) -> None:
    """Move the memories and the aliases of a tag to another tag."""
    rows = copy.table("tag_alias")
    if copy.scope is not None:
        _replace_local_tag(copy, old, new)
        copy.relinks.append(Relink("tag", (old,), new, memory_ids))
        return
    for row in list(rows.values()):
        if row["alias"] in (old, new):
            del rows[row["id"]]
        elif row["tag"] == old:
            row["tag"] = new
    copy.add_row("tag_alias", alias=old, tag=new)
    copy.relinks.append(Relink("tag", (old,), new))


def _replace_local_tag(copy: WorkingCopy, old: str, new: str) -> None:
    """Let a tag and its aliases be names of another tag in the projects of the operation."""
    scope = set(copy.scope or ())
    for row in list(copy.table("local_text").values()):
        if scope.isdisjoint(row["project_ids"]):
            continue
        if row["text"] in (old, new) or row["tag"] == old:
            copy.remove_local(row)
        if row["tag"] == old and row["text"] != new:
            copy.add_local("tag", new, "alias", row["text"])
    for row in copy.table("tag_alias").values():
        if row["tag"] == old and row["alias"] != new:
            copy.add_local("tag", new, "alias", row["alias"])
    copy.add_local("tag", new, "alias", old)

"""Edits of categories, concepts and entities: names, merges, splits, relations. Pure: they change a working copy.

What is the same for all kinds is written once, by the columns that `VOCABULARIES` names. Categories are a tree of which
the copy has all: the old path of a category becomes a former path, which still resolves to it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from categories.kinds import VOCABULARIES
from categories.paths import MAX_DEPTH, MAX_NAME_LENGTH, MAX_PATH_LENGTH, CategoryPath, clean_name, slug, slug_path
from curation.working_copy import CurationRefusedError, Relink, TableRow, WorkingCopy
from memories.records import slug_name

_CONCEPT_RELATIONS = VOCABULARIES["concept"].relations
MAX_NAME = {"category": MAX_NAME_LENGTH, "concept": 300, "entity": 500}


# --- names ----------------------------------------------------------------------------------------------------------


def clean_term_name(kind: str, name: str) -> str:
    """The stored form of a name. Raises CurationRefusedError."""
    cleaned = clean_name(name)
    if not cleaned or (kind == "category" and not slug(cleaned)):
        raise CurationRefusedError(f"{'An' if kind == 'entity' else 'A'} {kind} needs a name.", "name")
    if kind == "category" and "/" in cleaned:
        raise CurationRefusedError("A category's name has no slash: move it to change its parent.", "name")
    if len(cleaned) > MAX_NAME[kind]:
        which = "A category's name" if kind == "category" else "A name"
        raise CurationRefusedError(f"{which} has up to {MAX_NAME[kind]} characters; this has {len(cleaned):,}.", "name")
    return cleaned


def label_of(kind: str, row: TableRow) -> str:
    """The name of a row; of a category its path."""
    return str(row[VOCABULARIES[kind].label_column])


def rename(copy: WorkingCopy, kind: str, term_id: int, name: str) -> None:
    """Rename a term. The old name becomes an alias."""
    row = copy.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if new == row["name"]:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    old, before = row["name"], label_of(kind, row)
    row["name"] = new
    copy.add_names(kind, term_id, [old])
    if kind == "category":
        row["path"] = _below(_parent_path(copy, row), slug(new))
        _rebuild_paths(copy)
        _add_path_lines(copy)
    copy.title = f"Renamed the {kind} {before} to {label_of(kind, row)}"
    if kind != "category" or label_of(kind, row) == before:
        copy.add_line("name", old, new, subject=(kind, term_id))


def edit(copy: WorkingCopy, kind: str, term_id: int, values: Mapping[str, Any]) -> None:
    """Set columns of a term. An entity is still found under its previous type."""
    row = copy.table(kind)[term_id]
    label = label_of(kind, row)
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


def _names_with_type(copy: WorkingCopy, entity: TableRow) -> list[str]:
    """The public names of an entity with its type, which it loses: an alias has none, and `type:name` is to be found
    still. The local ones are added.
    """
    entity_type = entity["entity_type"]
    for row in [row for row in copy.local_rows("entity", entity["id"]) if ":" not in row["text"]]:
        copy.add_row("local_text", **{**row, "id": 0, "text": f"{entity_type}:{row['text']}"})
    return [f"{entity_type}:{name}" for name in (entity["name"], *entity["aliases"]) if ":" not in name]


# --- new terms --------------------------------------------------------------------------------------------------------


def add_term(copy: WorkingCopy, kind: str, name: str, **values: Any) -> int:
    """Add a row of a vocabulary without texts and relations. Returns its negative id."""
    relations: TableRow = {column: [] for column in VOCABULARIES[kind].relations}
    return copy.add_row(kind, name=name, aliases=[], description="", **values, **relations)


def create_category(copy: WorkingCopy, path: CategoryPath) -> int:
    """Create a category with its missing parents. Returns its negative id."""
    rows = copy.table("category")
    # A path may lead through a former path.
    known: dict[str, int] = {}
    if copy.scope is None:
        known |= {row["path"]: row["category_id"] for row in copy.table("former_path").values()}
    known |= {row["path"]: row["id"] for row in rows.values()}
    if path.path in known:
        raise CurationRefusedError(f"The path {path.path} is taken: edit that category, or choose another.", "name")
    parent: int | None = None
    for depth, (step, name) in enumerate(zip(path.paths, path.names, strict=True), start=1):
        if step not in known:
            own_path = _below("" if parent is None else rows[parent]["path"], slug(name))
            known[step] = add_term(copy, "category", name, parent_id=parent, path=own_path, depth=depth)
            copy.add_line("new category", "", own_path)
        parent = known[step]
    _rebuild_paths(copy)
    return known[path.path]


def split(copy: WorkingCopy, kind: str, term_id: int, name: str, memory_ids: tuple[int, ...]) -> None:
    """Create a term beside another one, of its parent or its type, and link these memories to it instead.

    Relationships of an entity move along if all their evidence is among these memories.
    """
    row = copy.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if kind == "category":
        path = _below(_parent_path(copy, row), slug(new))
        created = add_term(copy, kind, new, parent_id=row["parent_id"], path=path, depth=row["depth"])
        _rebuild_paths(copy)
    else:
        if new.lower() in {known.lower() for known in (row["name"], *row["aliases"])}:
            raise CurationRefusedError(f"“{new}” is already one of its names: choose another for the new one.", "name")
        weight = {"weight": None} if kind == "concept" else {}
        created = add_term(copy, kind, new, **{f"{kind}_type": row[f"{kind}_type"]}, **weight)
    label = label_of(kind, copy.table(kind)[created])
    copy.relinks.append(Relink(kind, (term_id,), created, memory_ids))
    copy.title = f"Split {label} off the {kind} {label_of(kind, row)}"
    copy.touched.add((kind, term_id))
    copy.add_line(f"new {kind}", "", label)
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


# --- merges -----------------------------------------------------------------------------------------------------------


def _fold(copy: WorkingCopy, kind: str, source: TableRow, target: TableRow, names: Iterable[str]) -> None:
    """Give a term the memories, the names and, if it has none, the description of another one."""
    source_id, target_id = source["id"], target["id"]
    copy.merged[source_id] = target_id
    copy.relinks.append(Relink(kind, (source_id,), target_id))
    copy.move_local(kind, source_id, target_id)
    # A public name of a term that ends by a curator of some projects becomes local.
    copy.add_names(kind, target_id, names)
    if source["description"] and not target["description"]:
        copy.describe(kind, target_id, source["description"])


def merge_category(copy: WorkingCopy, source_id: int, target_id: int) -> None:
    """Merge a category into another category. Its children move too, or are merged into a child of the same name."""
    rows = copy.table("category")
    source, target = rows[source_id], rows[target_id]
    if source_id == target_id:
        raise CurationRefusedError(f"{source['path']} cannot be merged into itself.", "target")
    if source_id in _ancestors(copy, target_id):
        raise CurationRefusedError(
            f"{target['path']} is below {source['path']}: merge it the other way round, or move it out first.", "target"
        )
    copy.title = f"Merged the category {source['path']} into {target['path']}"
    paths = {category_id: row["path"] for category_id, row in rows.items()}
    known = set(copy.merged)
    _fold_category(copy, source, target)
    for merged_id in copy.merged.keys() - known:
        del rows[merged_id]
    copy.replace_merged("category", ["related_ids"])
    _rebuild_paths(copy, paths)


def _fold_category(copy: WorkingCopy, source: TableRow, target: TableRow) -> None:
    _fold(copy, "category", source, target, [source["name"], *source["aliases"]])
    # The relation between the two ends; `replace_merged` updates the relations of others.
    both = {source["id"], target["id"]}
    target["related_ids"] = sorted({*target["related_ids"], *source["related_ids"]} - both)
    target_children = {_step(row["path"]): row for row in _children(copy, target["id"])}
    for child in _children(copy, source["id"]):
        same = target_children.get(_step(child["path"]))
        if same is not None and same is not child:
            _fold_category(copy, child, same)
        else:
            child["parent_id"] = target["id"]


def add_merge_lines(copy: WorkingCopy, names: Mapping[int, str]) -> None:
    """Add the lines about everything that was merged; `names` are the other names before of what it was merged into."""
    rows, before = copy.table("category"), copy.originals("category")
    for merged_id in copy.merged:
        if merged_id in before:
            kept = rows[copy.kept(merged_id)]
            copy.add_line("merges into", before[merged_id]["path"], kept["path"], subject=("category", merged_id))
    for target_id in names:
        if target_id in rows and names[target_id] != (after := ", ".join(copy.names_shown("category", target_id))):
            copy.add_line("other names", names[target_id], after, subject=("category", target_id))
    _add_path_lines(copy)


def _merge_terms(copy: WorkingCopy, kind: str, source_id: int, target_id: int) -> tuple[TableRow, TableRow]:
    """Merge two concepts or two entities, without their relations. Returns both rows."""
    rows = copy.table(kind)
    source, target = rows[source_id], rows[target_id]
    if source_id == target_id:
        raise CurationRefusedError("These two are already the same.", "target")
    names = [source["name"], *source["aliases"]]
    source_type, target_type = source[f"{kind}_type"], target[f"{kind}_type"]
    source_name, target_name = source["name"], target["name"]
    before = ", ".join(copy.names_shown(kind, target_id))
    if kind == "entity" and source_type != target_type:
        source_name, target_name = f"{source_type}:{source_name}", f"{target_type}:{target_name}"
        names += _names_with_type(copy, source)
    _fold(copy, kind, source, target, names)
    copy.title = f"Merged the {kind} {source_name} into {target_name}"
    copy.add_line("merges into", source_name, target_name, subject=(kind, source_id))
    if before != (after := ", ".join(copy.names_shown(kind, target_id))):
        copy.add_line("other names", before, after, subject=(kind, target_id))
    del rows[source_id]
    return source, target


def merge_concept(
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


def _contracted(broader: Mapping[int, Iterable[int]], source_id: int, target_id: int) -> dict[int, set[int]]:
    """The hierarchy with both concepts as the target, without relations between the two."""
    merged: dict[int, set[int]] = {}
    for concept_id, above in broader.items():
        own = target_id if concept_id == source_id else concept_id
        merged.setdefault(own, set()).update({target_id if up == source_id else up for up in above} - {own})
    return merged


def merge_entity(copy: WorkingCopy, source_id: int, target_id: int) -> None:
    """Merge an entity into another entity, with its relationships. Self-relationships end and repeats are combined."""
    source, target = _merge_terms(copy, "entity", source_id, target_id)
    rows = copy.table("relationship")
    known: dict[tuple[int, str, int], TableRow] = {}
    for row in sorted(rows.values(), key=lambda row: (source_id in (row["source_id"], row["target_id"]), row["id"])):
        ends = [target_id if row[side] == source_id else row[side] for side in ("source_id", "target_id")]
        moved = ends != [row["source_id"], row["target_id"]]
        row["source_id"], row["target_id"] = ends
        what = "relationship removed" if moved and ends[0] == ends[1] else ""
        if not what and (same := known.setdefault(_key(row), row)) is not row:
            what = "relationships merged"
            _combine_relationships(same, row)
        if what:
            fact = row["fact"] or f"{source['name']} {row['relationship_type']} {target['name']}"
            copy.add_line(what, fact, subject=("relationship", row["id"]))
            del rows[row["id"]]


def _combine_relationships(row: TableRow, repeated: TableRow) -> None:
    """Add the evidence of a repeated relationship, its values where there are none, and the higher confidence."""
    row["fact"] = row["fact"] or repeated["fact"]
    row["evidence_ids"] = sorted({*row["evidence_ids"], *repeated["evidence_ids"]})
    if repeated["confidence"] is not None:
        row["confidence"] = max(repeated["confidence"], row["confidence"] or 0)
    for column in ("valid_from", "valid_to"):
        row[column] = row[column] or repeated[column]


# --- relations --------------------------------------------------------------------------------------------------------


def relate(
    copy: WorkingCopy,
    kind: str,
    first_id: int,
    how: str,
    other_id: int,
    *,
    remove: bool = False,
    broader: Mapping[int, Iterable[int]] | None = None,
) -> None:
    """Add or remove a relation of two categories or two concepts, with its inverse: the other is broader, narrower or
    related. `broader` has the ids of the directly broader concepts of every concept.
    """
    rows = copy.table(kind)
    first, other = rows[first_id], rows[other_id]
    one, two = label_of(kind, first), label_of(kind, other)
    if first_id == other_id:
        raise CurationRefusedError(f"{one} cannot be related to itself.", "other")
    column = f"{how}_ids"
    inverse = VOCABULARIES[kind].relations[column]
    both_ways = other_id in first[column], first_id in other[inverse]
    if remove != (any(both_ways) if remove else all(both_ways)):
        so = "not" if remove else "already"
        message = f"{one} and {two} are {so} related." if kind == "category" else f"{two} is {so} {how} to {one}."
        raise CurationRefusedError(message, "other")
    if not remove and how != "related":
        _refuse_cycle(first, how, other, broader or {})
    for row, name, related_id in ((first, column, other_id), (other, inverse, first_id)):
        row[name] = sorted(set(row[name]) - {related_id} if remove else {*row[name], related_id})
    if kind == "category":
        what, text = "related", f"{one} and {two}"
        copy.title = f"{'Unrelated' if remove else 'Related'} the categories {text}"
    else:
        what, text = "relation", f"{two} is {'related to' if how == 'related' else f'{how} than'} {one}"
        copy.title = f"{'Removed' if remove else 'Added'}: {text}"
    copy.add_line(what, *((text, "") if remove else ("", text)), subject=(kind, first_id))


def _refuse_cycle(first: TableRow, how: str, other: TableRow, broader: Mapping[int, Iterable[int]]) -> None:
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


def state_relationship(
    copy: WorkingCopy, source_id: int, relationship_type: str, target_id: int, stated: Mapping[str, Any] | None
) -> None:
    """Add a relationship between two entities, set the columns that are given of an existing one, or remove it where
    nothing is stated.
    """
    entities, rows = copy.table("entity"), copy.table("relationship")
    kind = slug_name(relationship_type)
    source, target = entities[source_id]["name"], entities[target_id]["name"]
    sentence = f"{source} {kind} {target}"
    existing = next((row for row in rows.values() if _key(row) == (source_id, kind, target_id)), None)
    if stated is None:
        if existing is None:
            raise CurationRefusedError(f"{sentence}: not stated.", "other")
        del rows[existing["id"]]
        verb = "Removed"
        copy.add_line("relationship", sentence)
    elif not kind or len(kind) > 100:
        raise CurationRefusedError("A relationship has a type of up to 100 characters, such as depends-on.", "how")
    elif source_id == target_id:
        raise CurationRefusedError(f"{source} cannot be related to itself.", "other")
    elif existing is not None:
        _correct(copy, existing, stated, sentence)
        verb = "Corrected"
    else:
        values = {**dict.fromkeys(("confidence", "valid_from", "valid_to")), "fact": "", "evidence_ids": [], **stated}
        copy.add_row("relationship", source_id=source_id, relationship_type=kind, target_id=target_id, **values)
        verb = "Stated"
        copy.add_line("relationship", "", sentence)
    copy.title = f"{verb}: {sentence}"
    copy.touched |= {("entity", source_id), ("entity", target_id)}


def _correct(copy: WorkingCopy, existing: TableRow, stated: Mapping[str, Any], sentence: str) -> None:
    differing = {column: value for column, value in stated.items() if existing[column] != value}
    if not differing:
        raise CurationRefusedError(f"{sentence}: already stated.", "other")
    for column, value in differing.items():
        what = column.removesuffix("_ids").replace("_", " ")
        copy.add_line(what, _as_text(existing[column]), _as_text(value), subject=("relationship", existing["id"]))
    existing.update(differing)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"#{one}" for one in value)
    return "" if value is None else str(value)


def _key(row: TableRow) -> tuple[int, str, int]:
    return row["source_id"], row["relationship_type"], row["target_id"]


# --- the tree of categories -------------------------------------------------------------------------------------------


def move_category(copy: WorkingCopy, category_id: int, parent_id: int | None) -> None:
    """Move a category with its descendants under another parent, or to the root."""
    rows = copy.table("category")
    row = rows[category_id]
    if parent_id == category_id:
        raise CurationRefusedError(f"{row['path']} cannot be moved under itself.", "parent")
    if parent_id is not None and category_id in _ancestors(copy, parent_id):
        raise CurationRefusedError(
            f"{rows[parent_id]['path']} is below {row['path']}: the tree would have a cycle.", "parent"
        )
    above = "" if parent_id is None else str(rows[parent_id]["path"])
    if parent_id == row["parent_id"]:
        raise CurationRefusedError(f"It is already under {above or 'the top level'}.", "parent")
    old_path = row["path"]
    row["parent_id"] = parent_id
    row["path"] = _below(above, _step(old_path))
    _rebuild_paths(copy)
    copy.title = f"Moved the category {old_path} to {row['path']}"
    if parent_id is not None:
        copy.touched.add(("category", parent_id))
    _add_path_lines(copy)


def refuse_alias_paths(
    copy: WorkingCopy, category_id: int, aliases: Iterable[str], is_visible: Callable[[int], bool]
) -> None:
    """Refuse aliases that are the path of another visible category: paths are looked up before aliases."""
    owners = {row["path"]: row["id"] for row in copy.table("category").values()}
    for alias in aliases:
        owner = owners.get(slug_path(alias), category_id)
        if owner != category_id and is_visible(owner):
            raise CurationRefusedError(f"“{alias}” is already the path of another category.", "add")


def _children(copy: WorkingCopy, category_id: int) -> list[TableRow]:
    """The children that are not merged, in the order of their paths."""
    rows = copy.table("category").values()
    children = [row for row in rows if row["parent_id"] == category_id and row["id"] not in copy.merged]
    return sorted(children, key=lambda row: str(row["path"]))


def _ancestors(copy: WorkingCopy, category_id: int) -> Iterator[int]:
    """The id of the category and those of its ancestors."""
    rows = copy.table("category")
    above: int | None = category_id
    for _ in range(len(rows)):
        if above is None or above not in rows:
            return
        yield above
        above = rows[above]["parent_id"]


def _parent_path(copy: WorkingCopy, row: TableRow) -> str:
    return str(copy.table("category")[row["parent_id"]]["path"]) if row["parent_id"] is not None else ""


def _below(path: str, step: str) -> str:
    return f"{path}/{step}" if path else step


def _step(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _rebuild_paths(copy: WorkingCopy, before: Mapping[int, str] | None = None) -> None:
    """Compute all paths and depths from the tree, refuse repeated paths, and store previous paths as former paths.

    `before` are the paths before this step, if others preceded it: each names the projects of its own texts.
    """
    rows = copy.table("category")
    below: dict[int | None, list[TableRow]] = {}
    for row in rows.values():
        below.setdefault(row["parent_id"], []).append(row)
    level: list[tuple[str, int, TableRow]] = [("", 1, row) for row in below.get(None, [])]
    taken: dict[str, TableRow] = {}
    while level:
        following: list[tuple[str, int, TableRow]] = []
        for parent_path, depth, row in level:
            row["path"], row["depth"] = _below(parent_path, _step(row["path"])), depth
            _refuse_path(row, taken)
            taken[row["path"]] = row
            following += [(row["path"], depth + 1, child) for child in below.get(row["id"], [])]
        level = following
    originals = {category_id: row["path"] for category_id, row in copy.originals("category").items()}
    _update_former_paths(copy, taken, originals if before is None else before)


def _refuse_path(row: TableRow, taken: dict[str, TableRow]) -> None:
    path = row["path"]
    if path in taken:
        raise CurationRefusedError(f"The category {path} already exists: merge the two instead.", "name")
    if row["depth"] > MAX_DEPTH:
        raise CurationRefusedError(f"{path} would be {row['depth']} levels deep; the most is {MAX_DEPTH}.", "parent")
    if len(path) > MAX_PATH_LENGTH:
        raise CurationRefusedError(
            f"“{path[:60]}…” would have {len(path):,} characters; a path has up to {MAX_PATH_LENGTH:,}.", "name"
        )


def _update_former_paths(copy: WorkingCopy, taken: dict[str, TableRow], before_paths: Mapping[int, str]) -> None:
    former = copy.table("former_path")
    known = {row["path"]: row for row in former.values()}
    for row in former.values():
        row["category_id"] = copy.kept(row["category_id"])
    # A memory of some projects may have made a category of a path that is a former path for others.
    new = {path for path, row in taken.items() if before_paths.get(row["id"]) != path}
    for row_id in [row_id for row_id, row in former.items() if row["path"] in new and copy.scope is None]:
        del former[row_id]
    for category_id, path in before_paths.items():
        owner = copy.kept(category_id)
        if path in taken:
            continue
        if copy.scope is not None:
            copy.add_local("category", owner, "path", path)
        elif path in known:
            known[path]["category_id"] = owner
        else:
            copy.add_row("former_path", path=path, category_id=owner)


def _add_path_lines(copy: WorkingCopy) -> None:
    for row in sorted(copy.table("category").values(), key=lambda row: str(row["path"])):
        before = copy.originals("category").get(row["id"])
        if before is not None and before["path"] != row["path"]:
            copy.add_line("moves to", before["path"], row["path"], subject=("category", row["id"]))

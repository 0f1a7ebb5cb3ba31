"""The verbs on the category tree. Pure: they work on a copy of the whole tree, and know nothing of the database.

A path that changes is kept as a former path, so that whatever names it goes on finding its category.
"""

from collections.abc import Iterable, Iterator

from categories.details import joined_aliases
from categories.paths import MAX_DEPTH, MAX_NAME_LENGTH, MAX_PATH_LENGTH, clean_name, slug, slug_path
from curation.working_copy import CurationRefusedError, Relink, Row, WorkingCopy, references_follow


def category_rename(desk: WorkingCopy, category_id: int, name: str) -> None:
    """Give a category another name; it stays where it is, and its old name is an alias."""
    row = desk.table("category")[category_id]
    new = clean_category_name(name)
    if new == row["name"]:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    old_path, old_name = row["path"], row["name"]
    row["aliases"] = joined_aliases(new, row["aliases"], [old_name])
    row["name"] = new
    row["path"] = _below(_parent_path(desk, row), slug(new))
    _paths_follow(desk)
    desk.title = f"Renamed the category {old_path} to {row['path']}"
    _lines_of_paths(desk)
    if row["path"] == old_path:
        desk.line("name", old_name, new, of=("category", category_id))


def category_move(desk: WorkingCopy, category_id: int, parent_id: int | None) -> None:
    """Hang a category, with all that is below it, under another parent, or at the root."""
    rows = desk.table("category")
    row = rows[category_id]
    if parent_id == category_id:
        raise CurationRefusedError(f"{row['path']} cannot be moved under itself.", "parent")
    if parent_id is not None and category_id in _ancestors(desk, parent_id):
        raise CurationRefusedError(
            f"{rows[parent_id]['path']} is below {row['path']}: the tree would have a cycle.", "parent"
        )
    if parent_id == row["parent_id"]:
        where = rows[parent_id]["path"] if parent_id is not None else "the top level"
        raise CurationRefusedError(f"It is already under {where}.", "parent")
    old_path = row["path"]
    row["parent_id"] = parent_id
    row["path"] = _below(rows[parent_id]["path"] if parent_id is not None else "", _step(old_path))
    _paths_follow(desk)
    desk.title = f"Moved the category {old_path} to {row['path']}"
    if parent_id is not None:
        desk.touched.add(("category", parent_id))
    _lines_of_paths(desk)


def category_merge(desk: WorkingCopy, source_id: int, target_id: int) -> None:
    """Merge a category into another one. Its children move there; where one of the same name is there, they merge."""
    rows = desk.table("category")
    source, target = rows[source_id], rows[target_id]
    if source_id == target_id:
        raise CurationRefusedError(f"{source['path']} cannot be merged into itself.", "target")
    if source_id in _ancestors(desk, target_id):
        raise CurationRefusedError(
            f"{target['path']} is below {source['path']}: merge it the other way round, or move it out first.", "target"
        )
    desk.title = f"Merged the category {source['path']} into {target['path']}"
    names = ", ".join(target["aliases"])
    _merge(desk, source_id, target_id)
    for gone in desk.merged:
        del rows[gone]
    references_follow(desk, "category", ["related_ids"])
    _paths_follow(desk)
    for gone, kept in desk.merged.items():
        before = desk.was("category", gone)
        if before is not None:
            desk.line("merges into", before["path"], rows[kept]["path"], of=("category", gone))
    if names != (after := ", ".join(target["aliases"])):
        desk.line("other names", names, after, of=("category", target_id))
    _lines_of_paths(desk)


def category_split(desk: WorkingCopy, category_id: int, name: str, memory_ids: tuple[int, ...]) -> None:
    """Make a category beside another one, and file some of its memories there instead."""
    rows = desk.table("category")
    row = rows[category_id]
    new = clean_category_name(name)
    path = _below(_parent_path(desk, row), slug(new))
    made = desk.make(
        "category",
        parent_id=row["parent_id"],
        name=new,
        path=path,
        depth=row["depth"],
        aliases=[],
        description="",
        related_ids=[],
    )
    _paths_follow(desk)
    desk.relinks.append(Relink("category", (category_id,), made, memory_ids))
    desk.title = f"Split {path} off the category {row['path']}"
    desk.touched.add(("category", category_id))
    desk.line("new category", "", path)


def categories_relate(desk: WorkingCopy, first_id: int, second_id: int, *, remove: bool) -> None:
    """Say of two categories that they are related, or no longer."""
    rows = desk.table("category")
    first, second = rows[first_id], rows[second_id]
    if first_id == second_id:
        raise CurationRefusedError(f"{first['path']} cannot be related to itself.", "other")
    are_related = second_id in first["related_ids"] or first_id in second["related_ids"]
    if remove and not are_related:
        raise CurationRefusedError(f"{first['path']} and {second['path']} are not related.", "other")
    if not remove and second_id in first["related_ids"] and first_id in second["related_ids"]:
        raise CurationRefusedError(f"{first['path']} and {second['path']} are already related.", "other")
    for one, other in ((first, second_id), (second, first_id)):
        one["related_ids"] = sorted(set(one["related_ids"]) - {other} if remove else {*one["related_ids"], other})
    pair = f"{first['path']} and {second['path']}"
    desk.title = f"{'Unrelated' if remove else 'Related'} the categories {pair}"
    desk.said("related", pair, ends=remove, of=("category", first_id))


def clean_category_name(name: str) -> str:
    """A name that a category can have."""
    cleaned = clean_name(name)
    if not cleaned or not slug(cleaned):
        raise CurationRefusedError("A category needs a name.", "name")
    if "/" in cleaned:
        raise CurationRefusedError("A category's name has no slash: move it to change its parent.", "name")
    if len(cleaned) > MAX_NAME_LENGTH:
        raise CurationRefusedError(
            f"A category's name has up to {MAX_NAME_LENGTH} characters; this has {len(cleaned):,}.", "name"
        )
    return cleaned


def _merge(desk: WorkingCopy, source_id: int, target_id: int) -> None:
    rows = desk.table("category")
    source, target = rows[source_id], rows[target_id]
    desk.merged[source_id] = target_id
    desk.relinks.append(Relink("category", (source_id,), target_id))
    target["aliases"] = joined_aliases(target["name"], target["aliases"], [source["name"], *source["aliases"]])
    target["description"] = target["description"] or source["description"]
    # Relations that the two had with each other end; `references_follow` sees to those of others.
    target["related_ids"] = sorted({*target["related_ids"], *source["related_ids"]} - {source_id, target_id})
    there = {_step(row["path"]): row["id"] for row in _children(desk, target_id)}
    for child in _children(desk, source_id):
        same = there.get(_step(child["path"]))
        if same is not None and same != child["id"]:
            _merge(desk, child["id"], same)
        else:
            child["parent_id"] = target_id


def _children(desk: WorkingCopy, category_id: int) -> list[Row]:
    """The children that stay, in the order of their paths."""
    rows = desk.table("category").values()
    children = [row for row in rows if row["parent_id"] == category_id and row["id"] not in desk.merged]
    return sorted(children, key=lambda row: str(row["path"]))


def _ancestors(desk: WorkingCopy, category_id: int) -> Iterator[int]:
    """The category and all above it."""
    rows = desk.table("category")
    above: int | None = category_id
    for _ in range(len(rows)):
        if above is None or above not in rows:
            return
        yield above
        above = rows[above]["parent_id"]


def _parent_path(desk: WorkingCopy, row: Row) -> str:
    return str(desk.table("category")[row["parent_id"]]["path"]) if row["parent_id"] is not None else ""


def _below(path: str, step: str) -> str:
    return f"{path}/{step}" if path else step


def _step(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _paths_follow(desk: WorkingCopy) -> None:
    """Every path says where its category hangs; what a path was before is kept; none stands twice."""
    rows = desk.table("category")
    below: dict[int | None, list[Row]] = {}
    for row in rows.values():
        below.setdefault(row["parent_id"], []).append(row)
    level: list[tuple[str, int, Row]] = [("", 1, row) for row in below.get(None, [])]
    taken: dict[str, Row] = {}
    while level:
        following: list[tuple[str, int, Row]] = []
        for parent_path, depth, row in level:
            row["path"], row["depth"] = _below(parent_path, _step(row["path"])), depth
            _refuse_path(row, taken)
            taken[row["path"]] = row
            following += [(row["path"], depth + 1, child) for child in below.get(row["id"], [])]
        level = following
    _former_paths_follow(desk, taken)


def _refuse_path(row: Row, taken: dict[str, Row]) -> None:
    path = row["path"]
    if path in taken:
        raise CurationRefusedError(f"The category {path} already exists: merge the two instead.", "name")
    if row["depth"] > MAX_DEPTH:
        raise CurationRefusedError(f"{path} would be {row['depth']} levels deep; the most is {MAX_DEPTH}.", "parent")
    if len(path) > MAX_PATH_LENGTH:
        raise CurationRefusedError(
            f"“{path[:60]}…” would have {len(path):,} characters; a path has up to {MAX_PATH_LENGTH:,}.", "name"
        )


def refuse_paths(desk: WorkingCopy, category_id: int, aliases: Iterable[str]) -> None:
    """An alias that is another category's path would never be reached: paths are looked up first."""
    owners = {row["path"]: row["id"] for row in desk.table("category").values()}
    for alias in aliases:
        if owners.get(slug_path(alias), category_id) != category_id:
            raise CurationRefusedError(f"“{alias}” is already the path of another category.", "add")


def _former_paths_follow(desk: WorkingCopy, taken: dict[str, Row]) -> None:
    former = desk.table("former_path")
    known = {row["path"]: row for row in former.values()}
    for row in former.values():
        row["category_id"] = _kept(desk, row["category_id"])
    for row_id in [row_id for row_id, row in former.items() if row["path"] in taken]:
        del former[row_id]
    for category_id, before in desk.originals("category").items():
        path, owner = before["path"], _kept(desk, category_id)
        if path in taken:
            continue
        if path in known:
            known[path]["category_id"] = owner
        else:
            desk.make("former_path", path=path, category_id=owner)


def _kept(desk: WorkingCopy, category_id: int) -> int:
    while category_id in desk.merged:
        category_id = desk.merged[category_id]
    return category_id


def _lines_of_paths(desk: WorkingCopy) -> None:
    for row in sorted(desk.table("category").values(), key=lambda row: str(row["path"])):
        before = desk.was("category", row["id"])
        if before is not None and before["path"] != row["path"]:
            desk.line("moves to", before["path"], row["path"], of=("category", row["id"]))

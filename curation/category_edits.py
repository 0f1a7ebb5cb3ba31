"""Operations on the category tree. Pure: they change a working copy of the whole tree.

The old path of a category becomes a former path, which still resolves to the category.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from categories.paths import (
    MAX_DEPTH,
    MAX_NAME_LENGTH,
    MAX_PATH_LENGTH,
    CategoryPath,
    clean_name,
    slug,
    slug_path,
)
from curation.working_copy import CurationRefusedError, Relink, TableRow, WorkingCopy


def category_rename(copy: WorkingCopy, category_id: int, name: str) -> None:
    """Rename a category. The old name becomes an alias."""
    row = copy.table("category")[category_id]
    new = clean_category_name(name)
    if new == row["name"]:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    old_path, old_name = row["path"], row["name"]
    row["name"] = new
    copy.add_names("category", category_id, [old_name])
    row["path"] = _below(_parent_path(copy, row), slug(new))
    _rebuild_paths(copy)
    copy.title = f"Renamed the category {old_path} to {row['path']}"
    _add_path_lines(copy)
    if row["path"] == old_path:
        copy.add_line("name", old_name, new, subject=("category", category_id))


def category_move(copy: WorkingCopy, category_id: int, parent_id: int | None) -> None:
    """Move a category with its descendants under another parent, or to the root."""
    rows = copy.table("category")
    row = rows[category_id]
    if parent_id == category_id:
        raise CurationRefusedError(f"{row['path']} cannot be moved under itself.", "parent")
    if parent_id is not None and category_id in _ancestors(copy, parent_id):
        raise CurationRefusedError(
            f"{rows[parent_id]['path']} is below {row['path']}: the tree would have a cycle.", "parent"
        )
    if parent_id == row["parent_id"]:
        where = rows[parent_id]["path"] if parent_id is not None else "the top level"
        raise CurationRefusedError(f"It is already under {where}.", "parent")
    old_path = row["path"]
    row["parent_id"] = parent_id
    row["path"] = _below(rows[parent_id]["path"] if parent_id is not None else "", _step(old_path))
    _rebuild_paths(copy)
    copy.title = f"Moved the category {old_path} to {row['path']}"
    if parent_id is not None:
        copy.touched.add(("category", parent_id))
    _add_path_lines(copy)


def category_merge(copy: WorkingCopy, source_id: int, target_id: int) -> None:
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
    _merge(copy, source_id, target_id)
    for merged_id in copy.merged.keys() - known:
        del rows[merged_id]
    copy.replace_merged("category", ["related_ids"])
    _rebuild_paths(copy, paths)


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


def category_create(copy: WorkingCopy, path: CategoryPath) -> int:
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
            row: TableRow = {"parent_id": parent, "name": name, "depth": depth, "related_ids": []}
            row |= {"description": "", "aliases": []}
            row["path"] = _below("" if parent is None else rows[parent]["path"], slug(name))
            known[step] = copy.add_row("category", **row)
            copy.add_line("new category", "", row["path"])
        parent = known[step]
    _rebuild_paths(copy)
    return known[path.path]


def category_split(copy: WorkingCopy, category_id: int, name: str, memory_ids: tuple[int, ...]) -> None:
    """Create a sibling of a category, and link these memories to it instead."""
    rows = copy.table("category")
    row = rows[category_id]
    new = clean_category_name(name)
    path = _below(_parent_path(copy, row), slug(new))
    created = copy.add_row(
        "category",
        parent_id=row["parent_id"],
        name=new,
        path=path,
        depth=row["depth"],
        aliases=[],
        description="",
        related_ids=[],
    )
    _rebuild_paths(copy)
    copy.relinks.append(Relink("category", (category_id,), created, memory_ids))
    copy.title = f"Split {path} off the category {row['path']}"
    copy.touched.add(("category", category_id))
    copy.add_line("new category", "", path)


def categories_relate(copy: WorkingCopy, first_id: int, second_id: int, *, remove: bool) -> None:
    """Add or remove the relation between two categories."""
    rows = copy.table("category")
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
    copy.title = f"{'Unrelated' if remove else 'Related'} the categories {pair}"
    copy.add_line("related", *((pair, "") if remove else ("", pair)), subject=("category", first_id))


def clean_category_name(name: str) -> str:
    """The stored form of a category's name. Raises CurationRefusedError."""
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


def _merge(copy: WorkingCopy, source_id: int, target_id: int) -> None:
    rows = copy.table("category")
    source, target = rows[source_id], rows[target_id]
    copy.merged[source_id] = target_id
    copy.relinks.append(Relink("category", (source_id,), target_id))
    copy.move_local("category", source_id, target_id)
    copy.add_names("category", target_id, [source["name"], *source["aliases"]])
    if source["description"] and not target["description"]:
        copy.describe("category", target_id, source["description"])
    # The relation between the two ends; `replace_merged` updates the relations of others.
    target["related_ids"] = sorted({*target["related_ids"], *source["related_ids"]} - {source_id, target_id})
    target_children = {_step(row["path"]): row["id"] for row in _children(copy, target_id)}
    for child in _children(copy, source_id):
        same = target_children.get(_step(child["path"]))
        if same is not None and same != child["id"]:
            _merge(copy, child["id"], same)
        else:
            child["parent_id"] = target_id


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


def refuse_alias_paths(
    copy: WorkingCopy, category_id: int, aliases: Iterable[str], is_visible: Callable[[int], bool]
) -> None:
    """Refuse aliases that are the path of another visible category: paths are looked up before aliases."""
    owners = {row["path"]: row["id"] for row in copy.table("category").values()}
    for alias in aliases:
        owner = owners.get(slug_path(alias), category_id)
        if owner != category_id and is_visible(owner):
            raise CurationRefusedError(f"“{alias}” is already the path of another category.", "add")


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

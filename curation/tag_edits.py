"""Edits of tags, which have no rows of their own: their aliases, and the memories that have them. Pure: they change a
working copy.
"""

from collections.abc import Iterable

from curation.working_copy import CurationRefusedError, Relink, WorkingCopy
from memories.records import MAX_TAG, normalise_tag


def merge_tag(copy: WorkingCopy, source: str, target: str, memory_ids: tuple[int, ...] | None = None) -> None:
    """Replace a tag by another tag on all memories, or on these. The tag becomes an alias."""
    if source == target:
        raise CurationRefusedError(f"{source} cannot be merged into itself.", "target")
    _replace_tag(copy, source, target, memory_ids)
    copy.title = f"Merged the tag {source} into {target}"
    copy.add_line("merges into", source, target, subject=("tag", source))


def rename_tag(copy: WorkingCopy, old: str, new: str, memory_ids: tuple[int, ...] | None = None) -> None:
    """Rename a tag to an unused name, on all memories or on these. The old name becomes an alias."""
    if old == new:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    _replace_tag(copy, old, new, memory_ids)
    copy.title = f"Renamed the tag {old} to {new}"
    copy.touched.add(("tag", new))
    copy.add_line("name", old, new, subject=("tag", old))
    copy.add_line("other names: what is stored with one gets the new name", "", old, subject=("tag", old))


def split_tag(copy: WorkingCopy, tag: str, name: str, memory_ids: tuple[int, ...]) -> None:
    """Replace a tag by another tag on these memories."""
    copy.relinks.append(Relink("tag", (tag,), name, memory_ids))
    copy.title = f"Split {name} off the tag {tag}"
    copy.touched |= {("tag", tag), ("tag", name)}
    copy.add_line("tag of these memories", tag, name)


def set_tag_aliases(copy: WorkingCopy, tag: str, add: Iterable[str], remove: Iterable[str]) -> None:
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

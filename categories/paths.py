"""Category paths as people write them, and the slug paths that identify them. Pure: does not use the database."""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

MAX_DEPTH = 12
MAX_NAME_LENGTH = 300
MAX_PATH_LENGTH = 1500

_WHITESPACE = re.compile(r"\s+")


class PathError(ValueError):
    """A category path that cannot be stored. The message gives the reason and the limit."""


@dataclass(frozen=True, slots=True)
class CategoryPath:
    """A path from the root: the names as written, and the slug path of each step; the last is the category's own."""

    names: tuple[str, ...]
    paths: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.paths[-1]

    def __str__(self) -> str:
        return "/".join(self.names)


def is_clean(name: str) -> bool:
    """Whether a name is printable ASCII without double spaces already, as almost all names are."""
    return name.isascii() and name.isprintable() and "  " not in name


def clean_name(name: str) -> str:
    """A name on one line: NFC, single spaces, printable characters only."""
    if is_clean(name):
        return name.strip()
    text = unicodedata.normalize("NFC", _WHITESPACE.sub(" ", name))
    return "".join(character for character in text if character.isprintable()).strip()


def slug(name: str) -> str:
    """The key that distinguishes names: it ignores case, width and spaces, but no other printable character (`C++`,
    `C#`).
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", clean_name(name)).casefold())
    # Compatibility forms such as the full-width solidus become a slash, the separator of paths.
    return _WHITESPACE.sub("-", clean_name(folded).replace("/", "-"))


@lru_cache(maxsize=65_536)
def parse_path(text: str) -> CategoryPath | None:
    """Parse a slash-separated path of names. Empty steps are dropped; None if nothing is left."""
    names: list[str] = []
    slugs: list[str] = []
    for part in text.split("/"):
        name = clean_name(part)
        if not name or not (step := slug(name)):
            continue
        if len(name) > MAX_NAME_LENGTH:
            raise PathError(f"{name[:40]!r}… has {len(name)} characters; a category's name has up to {MAX_NAME_LENGTH}")
        names.append(name)
        slugs.append(step)
    if not names:
        return None
    if len(names) > MAX_DEPTH:
        raise PathError(f"{text[:60]!r} is {len(names)} levels deep; a category has up to {MAX_DEPTH}")
    paths = tuple("/".join(slugs[: depth + 1]) for depth in range(len(slugs)))
    if len(paths[-1]) > MAX_PATH_LENGTH:
        raise PathError(f"{text[:60]!r}… has {len(paths[-1])} characters; a category path has up to {MAX_PATH_LENGTH}")
    return CategoryPath(tuple(names), paths)


def slug_path(text: str) -> str:
    """The slug path of a written path, or an empty string if it is invalid."""
    try:
        parsed = parse_path(text)
    except PathError:
        return ""
    return parsed.path if parsed else ""


def slug_of(text: str) -> str:
    """The slug path of a path that is known to be valid."""
    parsed = parse_path(text)
    if parsed is None:
        raise ValueError("a category without a name")
    return parsed.path

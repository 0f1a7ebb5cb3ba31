"""Names as people write them and as they are stored, and the slug paths that identify categories. Pure: does not use
the database.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product

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


# Characters that show nothing although Unicode counts them as letters, marks or symbols.
_BLANK = dict.fromkeys([0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0])
_JOINERS = {"\u200c", "\u200d"}
_REPEATED_JOINERS = re.compile("[\u200c\u200d]*([\u200c\u200d])")
# Joiners change how letters without case, marks and emoji before these look, and letters beside a virama, whose class
# this is. They change nothing elsewhere.
_JOINED_BEFORE, _JOINED_AFTER = {"Lo", "Mn", "Mc", "So", "Sk"}, {"Lo", "So", "Sm"}
_VIRAMA = 9
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Letters that lower case keeps apart and equality does not.
_FOLDED_ALIKE = re.compile(r"ss|fi|fl|σ(?!\w)")
_ALIKE = {"ss": ("ss", "ß"), "fi": ("fi", "ﬁ"), "fl": ("fl", "ﬂ"), "σ": ("σ", "ς")}
_MOST_SPELLINGS = 32


def is_clean(name: str) -> bool:
    """Whether a name is printable ASCII without double spaces already, as almost all names are."""
    return name.isascii() and name.isprintable() and "  " not in name


@lru_cache(maxsize=65_536)
def clean_name(name: str) -> str:
    """A name as it is stored and shown: on one line, NFC, single spaces, and nothing invisible but the joiners and
    selectors that change how their neighbours look.
    """
    if is_clean(name):
        return name.strip()
    text = " ".join(unicodedata.normalize("NFC", name).translate(_BLANK).split())
    text = "".join(character for character in text if character.isprintable() or character in _JOINERS)
    text = _REPEATED_JOINERS.sub(r"\1", text)
    text = "".join(character for at, character in enumerate(text) if _is_shown(text, at))
    return " ".join(unicodedata.normalize("NFC", text).split())


def _is_shown(text: str, at: int) -> bool:
    """Whether a character of a text is visible, or changes how its neighbours look."""
    around = text[:at][-1:], text[at + 1 : at + 2]
    before, after = (unicodedata.category(one) if one else "" for one in around)
    if text[at] in _JOINERS:
        has_virama = any(one and unicodedata.combining(one) == _VIRAMA for one in around)
        return before in _JOINED_BEFORE and (after in _JOINED_AFTER or has_virama)
    if _SELECTORS.match(text[at]):
        return before in {"Lo", "So", "Sm"} or text[at + 1 : at + 2] == "\u20e3"
    return True


def fold_name(name: str) -> str:
    """The key by which names are equal: without case and joiners. It is never shown."""
    folded = unicodedata.normalize("NFC", clean_name(name).casefold())
    return "".join(character for character in folded if character not in _JOINERS)


def stored_forms(name: str) -> tuple[str, ...]:
    """A name in its stored form, and as it may be stored since earlier: without joiners, or with what is invisible."""
    clean, as_written = clean_name(name), unicodedata.normalize("NFC", name)
    without = "".join(character for character in clean if character not in _JOINERS)
    return tuple(dict.fromkeys(one for one in (clean, without, as_written) if one))


@lru_cache(maxsize=65_536)
def spellings(name: str) -> tuple[str, ...]:
    """The stored forms of a name, and those of equal names that lower case keeps apart, which is all that the database
    ignores.
    """
    folded, (first, *forms) = fold_name(name), stored_forms(name) or ("",)
    parts = _FOLDED_ALIKE.split(folded)
    choices = (_ALIKE[found] for found in _FOLDED_ALIKE.findall(folded))
    alike = islice(product(*choices), _MOST_SPELLINGS)
    others = ("".join(a + b for a, b in zip(parts, (*choice, ""), strict=True)) for choice in alike)
    found = dict.fromkeys(one for one in (first, *forms, *others, *(form.casefold() for form in forms)) if one)
    # The database is asked for the lower case of each.
    return tuple(one for one in found if one == first or not first.isascii() or one != first.lower())


def slug(name: str) -> str:
    """The key that distinguishes names: it ignores case, width and spaces, but no other printable character (`C++`,
    `C#`).
    """
    folded = fold_name(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", clean_name(name)).casefold()))
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
            if part.strip():
                raise PathError(f"{ascii(part)[:40]} has no visible character; a category has a name")
            continue
        if step in {".", ".."}:
            raise PathError(f"{name!r} is no name of a category: in an address it stands for another place")
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

"""Links between texts by names: `[[Name]]`, `[[Name#part|shown]]` and `![[Name]]`. Those in code are none."""

import re
import unicodedata
from typing import NamedTuple

# No pattern may start again within what it has read, or a text of brackets alone would take hours.
_CODE = re.compile(r"^(?P<fence>```++|~~~++).*?(?:^(?P=fence)|\Z)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
WIKI_LINK = re.compile(
    r"(?P<embedded>!?)\[\[(?P<target>[^\[\]|#\n]{1,500})(?P<part>#[^\[\]|\n]{0,500})?(?:\|(?P<shown>[^\[\]\n]{0,500}))?\]\]"
)
# Tests of a shell, and lists of numbers.
_NO_NAME = re.compile(r"\s+[-!$\"'].*|[\s\d.+-]+(?:[,;][\s\d.+-]*)+", re.DOTALL)
_LEADING = re.compile(r"(?:\.{0,2}/)+")
NOTE_END = re.compile(r"\.(?:md|markdown|mdc)$", re.IGNORECASE)


class NamedText(NamedTuple):
    """Another text as a text names it."""

    name: str
    is_embedded: bool


def without_code(text: str) -> str:
    """A text of Markdown without the code in it, whose brackets are no links and whose signs are no tags."""
    return _CODE.sub(" ", text)


def link_name(target: str) -> str:
    """The name in a link: without what makes it a path from somewhere, and without the `\\` of a cell of a table."""
    name = target.strip().rstrip("\\").rstrip()
    return _LEADING.sub("", name, count=1) if name[:1] in "./" and _LEADING.match(name) else name


def name_key(name: str) -> str:
    """A name as it is compared: systems write its accents in two ways."""
    return unicodedata.normalize("NFC", link_name(name)).casefold()


def named_texts(text: str) -> list[NamedText]:
    """The names in the links of a text, each once: embedded, if it is anywhere."""
    if "[[" not in text:
        return []
    found: dict[str, NamedText] = {}
    for match in WIKI_LINK.finditer(without_code(text)):
        name = link_name(match["target"])
        if not name or _NO_NAME.fullmatch(match["target"]):
            continue
        key, is_embedded = name_key(name), bool(match["embedded"])
        known = found.setdefault(key, NamedText(name, is_embedded))
        if is_embedded and not known.is_embedded:
            found[key] = NamedText(known.name, True)
    return list(found.values())


def names_of_file(path: str) -> list[str]:
    """The names that a file has in links: the ends of its path, with and without the end of a note."""
    steps = path.split("/")
    ends = ["/".join(steps[at:]) for at in range(len(steps))]
    return list(dict.fromkeys([*ends, *(NOTE_END.sub("", end) for end in ends)]))

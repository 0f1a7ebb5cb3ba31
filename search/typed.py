"""Filters that are typed into the text of a search (`tag:clock -type:fix before:2024`), and a query as such a text.

Any parameter of a search may be typed as `name:value`, with its own rules for values. A name that is none, a value that
its parameter does not allow, and whatever is in quotes stay text.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Generic, TypeVar

from search.facets import FACET
from search.query import ALIASES, SearchQuery
from text.query_syntax import is_prose
from web.params import Pair
from web.validation import Problem

Query = TypeVar("Query", bound=SearchQuery)

# Parameters that are no part of what is searched for.
_NOT_TYPED = {"q", "page", "page_size", "offset", "include_facets"}
_PARAMETERS = {
    **{name: ALIASES.get(name, name) for name in SearchQuery.names() if name.replace("_", "").isalpha()},
    **{f"{spec.key}.all": f"{spec.key}.all" for spec in FACET.values() if spec.may_require_all},
    "is": "state",
}
TYPED_NAMES = {name: meant for name, meant in _PARAMETERS.items() if meant not in _NOT_TYPED and name.islower()}
# Parameters that leave out what the same ones without a sign keep.
_SIGNED = {name for name in SearchQuery.names() if name.startswith("-")}
# Names for dates, which also take a year or a month.
_DATES = ("before", "after", "on", "from", "to")
_PART = re.compile(r'(?<!\S)(-?)([a-z_]+(?:\.all)?):("(?:[^"\\]|\\[\s\S])*"|[^\s"]+)(?!\S)|"[^"]*"')
_ESCAPED = re.compile(r"\\([\s\S])")
_PLAIN = re.compile(r'[^\s"]+')
_PERIOD = re.compile(r"(\d{4})(?:-(\d\d))?")
# Typing one of these takes the place of the others.
_TOGETHER = ({"from", "to", "since"},)


@dataclass(frozen=True, slots=True)
class Typed:
    """A part of a text that is a filter: its place, and the parameters that it stands for."""

    start: int
    end: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Understood(Generic[Query]):
    """A query with its typed filters as parameters. `unread` are parts that look like filters, each with the reason."""

    query: Query
    typed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def understand(query: Query) -> Understood[Query]:
    """Move the filters that the text of a query spells out into its parameters.

    A typed date takes the place of the dates that the query has, and so does any parameter that has one value.
    """
    unread: list[tuple[str, str]] = []
    found = _effective(query.text, unread)
    if not found:
        return Understood(query, unread=tuple(unread))
    pairs = [pair for one in found for pair in one.pairs]
    keys = {key for key, _ in pairs}
    replaced = {"q", "page", "offset"} | {key for key in keys if _is_single(key)}
    for group in _TOGETHER:
        replaced |= group if keys & group else set()
    opposite = {(key[1:] if key.startswith("-") else f"-{key}", value) for key, value in pairs}
    asked = query.replace(refused=()).parameters()
    kept = [pair for pair in asked if pair[0] not in replaced and pair not in opposite]
    changed, problems = type(query).read([("q", _without(query.text, found)), *kept, *pairs])
    refused = (*(pair for pair in query.refused if pair[0] not in replaced), *changed.refused)
    changed = changed.replace(refused=tuple(dict.fromkeys(refused)))
    return Understood(changed, tuple(query.text[one.start : one.end] for one in found), problems, tuple(unread))


def as_text(query: SearchQuery) -> str:
    """The text that `understand` reads as this query. Text that is no filter in the query is put into quotes."""
    text = query.text
    for one in reversed(_effective(text, [])):
        quoted = text[one.start : one.end].replace('"', "")
        text = f'{text[: one.start]}"{quoted}"{text[one.end :]}'
    tokens = [_token(key, value) for key, value in query.parameters() if key in _WRITTEN]
    parts = [text] if text else []
    # Behind prose, and behind a quotation mark without its other half, nothing is a filter.
    after = " ".join([*parts, *tokens])
    return after if len(_effective(after, [])) == len(tokens) else " ".join([*tokens, *parts])


_WRITTEN = {*TYPED_NAMES.values(), *_SIGNED}


def _token(key: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        value = f'"{escaped}"'
    return f"{key}:{value}"


def _effective(text: str, unread: list[tuple[str, str]]) -> list[Typed]:
    """The filters in a text. In prose, such as a pasted error, only those before everything else are filters."""
    found = list(_typed(text, unread))
    if found and is_prose(_without(text, found)):
        leading: list[Typed] = []
        for one in found:
            if text[leading[-1].end if leading else 0 : one.start].strip():
                break
            leading.append(one)
        return leading
    return found


def _typed(text: str, unread: list[tuple[str, str]]) -> Iterator[Typed]:
    for match in _PART.finditer(text):
        sign, name, written = match[1], match[2], match[3]
        if name is None or not (name in TYPED_NAMES or name in _DATES):
            continue
        value = _ESCAPED.sub(r"\1", written[1:-1]) if written.startswith('"') else written
        pairs = _pairs_of(sign, name, value.strip())
        problems = SearchQuery.read(pairs)[1] if pairs else ()
        if not pairs or problems:
            missing = "it cannot be excluded" if sign else "write a year, a month or a day"
            unread.append((match[0], str(problems[0]) if problems else missing))
            continue
        yield Typed(match.start(), match.end(), tuple(pairs))


def _pairs_of(sign: str, name: str, value: str) -> list[Pair]:
    if sign:
        key = TYPED_NAMES.get(name, "")
        return [(f"-{key}", value)] if f"-{key}" in _SIGNED else []
    if name not in _DATES:
        return [(TYPED_NAMES[name], value)]
    first, last = _period(value)
    match name:
        case "before":
            return [("to", day)] if (day := _moved(first, -1)) else []
        case "after":
            return [("from", day)] if (day := _moved(last, 1)) else []
        case "on":
            return [("from", first), ("to", last)]
    return [(name, first if name == "from" else last)]


def _period(value: str) -> tuple[str, str]:
    """The first and the last day of a year or a month; of anything else, the same twice."""
    found = _PERIOD.fullmatch(value)
    year, month = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if year < 1 or month > 12 or (found and found[2] == "00"):
        return value, value
    first = date(year, month or 1, 1)
    return first.isoformat(), date(year, month or 12, monthrange(year, month or 12)[1]).isoformat()


def _moved(day: str, by: int) -> str:
    """The day before or after another; empty for anything that is no day, or has none."""
    try:
        return (date.fromisoformat(day) + timedelta(days=by)).isoformat()
    except (ValueError, OverflowError):
        return ""


def _without(text: str, found: list[Typed]) -> str:
    """The text without some of its parts, and without a space next to each."""
    for one in reversed(found):
        text = f"{text[: one.start].rstrip()} {text[one.end :].lstrip()}".strip()
    return text


def _is_single(key: str) -> bool:
    return not (key.removeprefix("-") in FACET or key in {"has", "no"})

"""Reads the arguments of claude-mem's clients leniently, since these send whatever a model has written.

Comma-separated lists are several values, any offset is possible, numbers out of bounds are brought into them, and
unknown names are ignored. A filter that cannot be read is still an error: ignoring it would answer another question.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from access.viewer import Viewer
from search.listings import facet_page
from search.query import ALIASES, SORT_ALIASES, SearchQuery, Sort
from search.result import FacetListing
from web.params import Pair

# The names of its parameters that are none of ours, with ours.
_NAMES = {
    "concepts": "concept",
    "filePath": "entity",
    "files": "entity",
    "platformSource": "agent",
    "platform_source": "agent",
    "projects": "project",
}
_LISTS = {"type", "concept", "entity", "project", "tag"}
# It keeps sessions and prompts in tables of their own; here they are memories of such a type, if there are any.
_TYPES_OF_KIND = {"sessions": ("session", "session-summary", "summary"), "prompts": ("prompt", "user-prompt")}
_KINDS = {"observations", *_TYPES_OF_KIND}
_DEFAULT_LIMIT, _MOST = 20, 100
_MILLISECONDS = re.compile(r"[0-9]{12,14}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A search or timeline as a client asked for it, and remarks for the model.

    `values` are the arguments that are none of a search, such as `anchor`.
    """

    query: SearchQuery
    notes: tuple[str, ...]
    values: dict[str, str]


def read_arguments(pairs: Iterable[Pair], viewer: Viewer) -> Asked:
    """Read the arguments of a search or a timeline. Raises QueryError for a filter that cannot be read."""
    ours, others = _sorted_out(pairs)
    ours["type"], notes = _types(ours["type"])
    for name in ("from", "to"):
        ours[name] = [_iso(value) for value in ours[name]]
    if (order := ours.pop("sort", [])) and SORT_ALIASES.get(order[0], order[0]) in set(Sort):
        ours["sort"] = order[:1]
    elif order:
        notes.append(f"orderBy={order[0][:40]} is unknown and was ignored; write date_desc, date_asc or relevance.")
    if platform := ours.pop("agent", []):
        ours["agent"] = [name for one in platform for name in _agents(one, viewer)]
    limit = whole_number(others.get("limit"), _DEFAULT_LIMIT, 1, _MOST)
    if _is_number(others.get("limit")) and limit != int(others["limit"]):
        notes.append(f"limit is {limit}: from 1 to {_MOST} are possible; use offset for the rest.")
    query = SearchQuery.from_pairs([(name, value) for name, values in ours.items() for value in values])
    offset = whole_number(others.get("offset"), 0, 0, 1_000_000)
    return Asked(query.with_(page_size=limit).starting_at(offset), tuple(notes), others)


def _sorted_out(pairs: Iterable[Pair]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The arguments of a search by our names, each with its values, and all others as they were given."""
    ours: dict[str, list[str]] = defaultdict(list)
    others: dict[str, str] = {}
    for given, raw in pairs:
        name = _NAMES.get(given, ALIASES.get(given, given))
        value = raw.strip()
        if not value:
            continue
        if given in {"limit", "offset"} or name not in SearchQuery.names():
            others[given] = value
        elif name in _LISTS:
            ours[name] += [item.strip() for item in value.split(",") if item.strip()]
        else:
            ours[name].append(value)
    return ours, others


def _types(given: Collection[str]) -> tuple[list[str], list[str]]:
    """The types of memory for the given types and kinds of record, and remarks on kinds that are not kept apart."""
    types = [name for one in given for name in (_TYPES_OF_KIND.get(one, ()) if one in _KINDS else (one,))]
    apart = sorted(_TYPES_OF_KIND.keys() & set(given))
    return types, [
        f"Mnemoscope keeps no {kind} of their own: memories of the type {', '.join(_TYPES_OF_KIND[kind])}."
        for kind in apart
    ]


def whole_number(value: object, default: int, least: int, most: int) -> int:
    """A number within its bounds; the default for anything else."""
    return min(max(int(str(value)), least), most) if _is_number(value) else default


def _is_number(value: object) -> bool:
    return bool(re.fullmatch(r"-?[0-9]{1,9}", str(value)))


def _iso(value: str) -> str:
    """A date; its clients also send milliseconds since 1970."""
    if _MILLISECONDS.fullmatch(value):
        return datetime.fromtimestamp(int(value) / 1000, UTC).isoformat()
    return value


def _agents(platform: str, viewer: Viewer) -> list[str]:
    """The agents of a platform, such as claude-code of claude; if there are none, the name, which finds nothing."""
    listing = facet_page(SearchQuery(), "agent", FacetListing(search=platform[:200]), viewer)
    return [value.value for value in listing.facet.values if value.value] or [platform]

"""Parameters as they are spelt by whoever asks, and what is said of those that cannot be read."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.datastructures import MultiValueDict

from text.formatting import legible

_COUNT = re.compile(r"[0-9]{1,9}")

# The spellings that other systems and earlier specifications use, accepted for the canonical name.
ALIASES: dict[str, str] = {
    "query": "q",
    "text": "q",
    "tags": "tag",
    "memory_type": "type",
    "memory_types": "type",
    "obs_type": "type",
    "types": "type",
    "projects": "project",
    "categories": "category",
    "concepts": "concept",
    "entities": "entity",
    "authors": "author",
    "agents": "agent",
    "sources": "source",
    "states": "state",
    "start_date": "from",
    "date_from": "from",
    "dateStart": "from",
    "end_date": "to",
    "date_to": "to",
    "dateEnd": "to",
    "orderBy": "sort",
    "order_by": "sort",
    "limit": "page_size",
    "match_all": "tag.all",
    "includeChildren": "subcategories",
    "include_children": "subcategories",
    "includeFacets": "include_facets",
    "timezone": "tz",
    "minSimilarity": "min_similarity",
}
SORT_ALIASES = {"date_desc": "newest", "date_asc": "oldest", "created_at": "newest", "date": "newest"}


@dataclass(frozen=True, slots=True)
class Problem:
    """What was wrong with one parameter, what is allowed, and what may have been meant."""

    parameter: str
    message: str
    suggestion: str = ""
    did_you_mean: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.parameter}: {self.message}" if self.parameter else self.message


class QueryError(ValueError):
    """A query that cannot be read. `problems` names each parameter at fault."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def pairs_of(parameters: MultiValueDict[str, str]) -> list[tuple[str, str]]:
    """The pairs of a request's query string, as every door reads them."""
    return [(key, value) for key, values in parameters.lists() for value in values]


def gather(
    pairs: Iterable[tuple[str, str]], names: Collection[str], multiple: Collection[str]
) -> tuple[dict[str, Any], list[Problem]]:
    """Pairs to the raw values of the parameters named; what is unknown or given twice is a problem."""
    data: dict[str, Any] = {}
    problems: list[Problem] = []
    offset: str | None = None
    twice: set[str] = set()
    for given, raw in pairs:
        if given == "offset":
            offset = raw
            continue
        key = ALIASES.get(given, given)
        if key not in names:
            problems.append(_unknown(given, names))
        elif key in multiple:
            data.setdefault(key, []).append(raw)
        elif raw.strip() == "" and key != "q":
            continue
        else:
            value = SORT_ALIASES.get(raw, raw) if key == "sort" else raw.strip() if key == "q" else raw
            if data.setdefault(key, value) != value:
                twice.add(key)
    for key in sorted(twice):
        problems.append(Problem(key, "is given twice with different values", "give it once"))
        del data[key]
    if offset is not None:
        _apply_offset(offset, data, problems)
    return data, problems


def _apply_offset(offset: str, data: dict[str, Any], problems: list[Problem]) -> None:
    size = str(data.get("page_size", 25))
    if not (_COUNT.fullmatch(offset) and _COUNT.fullmatch(size) and int(size)):
        problems.append(
            Problem("offset", f"'{legible(offset, 40)}' is not a whole number", "write 0 or a multiple of limit")
        )
    elif int(offset) % int(size):
        problems.append(Problem("offset", f"{offset} is not a multiple of limit, {size}", "use page and page_size"))
    elif "page" in data:
        problems.append(Problem("offset", "is given together with page", "give one of the two"))
    else:
        data["page"] = int(offset) // int(size) + 1


def _unknown(given: str, names: Collection[str]) -> Problem:
    known = [*names, *ALIASES]
    return Problem(
        legible(given),
        "is not a parameter",
        f"the parameters are {', '.join(names)}",
        tuple(dict.fromkeys(difflib.get_close_matches(given[:60], known, 3, 0.7))),
    )


def problem_of(parameter: str, value: Any, detail: Mapping[str, Any], choices: Sequence[str]) -> Problem:
    """The error of a field in words: what was wrong, what is allowed. `choices` are those of one that has any."""
    given = str(value[0] if isinstance(value, list) and len(value) == 1 else value)
    told = legible(given, 80)
    context = detail.get("ctx", {})
    match detail["type"]:
        case "enum":
            return Problem(
                parameter,
                f"'{told}' is not one of the choices",
                f"write one of {', '.join(choices)}",
                tuple(difflib.get_close_matches(told, choices, 3)),
            )
        case "string_too_long":
            return Problem(parameter, f"is {len(given):,} characters long", f"write at most {context['max_length']:,}")
        case "too_long":
            return Problem(parameter, "has too many values", f"give at most {context['max_length']}")
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return Problem(parameter, f"'{told}' is not a whole number", "write a number such as 1")
        case "float_parsing" | "float_type" | "finite_number":
            return Problem(parameter, f"'{told}' is not a number", "write a number such as 0.35")
        case "greater_than_equal":
            return Problem(parameter, f"{told} is too small", f"write {context['ge']} or more")
        case "less_than_equal":
            return Problem(parameter, f"{told} is too large", f"write {context['le']:,} or less")
        case "bool_parsing" | "bool_type":
            return Problem(parameter, f"'{told}' is not a boolean", "write 1 or 0")
        case "value_error":
            message, _, suggestion = str(context["error"]).partition(": ")
            return Problem(parameter, f"'{told}' {message}", suggestion)
    return Problem(parameter, f"'{told}': {detail['msg']}")

"""What is asked of categories, as every door says it. Pure: pairs in, frozen requests out.

A limit outside of what is allowed is brought back into it, and the answer says so; anything else that cannot be read is
an error that names it.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from search.query import MAX_VALUE_LENGTH, Problem, QueryError
from search.result import SearchWarning
from text.formatting import legible

Pairs = Iterable[tuple[str, str]]

MOST_RESULTS = 100
MOST_LISTED = 200
DEFAULT_RESULTS = 10
DEFAULT_LISTED = 50
CATEGORY_SORTS = ("popularity", "name", "document_count", "chunk_count", "concept_count")
CONCEPT_SORTS = ("document_count", "name", "weight")
ALIASES = {
    "includeChildren": "include_children",
    "subcategories": "include_children",
    "includeChunks": "include_chunks",
    "includeHierarchy": "include_hierarchy",
    "sortBy": "sort_by",
    "orderBy": "sort_by",
    "sort": "sort_by",
}
_SWITCHES = {"1": True, "true": True, "0": False, "false": False, "": False}
_NUMBER = re.compile(r"-?[0-9]+")
_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class CategoryRequest:
    """Which category, and how much of it."""

    name: str
    include_children: bool = False
    include_chunks: bool = False
    limit: int = DEFAULT_RESULTS
    notices: tuple[SearchWarning, ...] = ()

    @classmethod
    def read(cls, pairs: Pairs, name: str | None = None) -> Self:
        """Raises QueryError. Without `name`, it is among the pairs."""
        given = _Given(pairs, ("category",) * (name is None) + ("include_children", "include_chunks", "limit"))
        read = cls(
            name=given.name("category") if name is None else name,
            include_children=given.switch("include_children"),
            include_chunks=given.switch("include_chunks"),
            limit=given.limit(DEFAULT_RESULTS, MOST_RESULTS),
            notices=tuple(given.notices),
        )
        given.check()
        return read


@dataclass(frozen=True, slots=True)
class CategoryListRequest:
    """Which categories, in what order."""

    sort_by: str = CATEGORY_SORTS[0]
    limit: int = DEFAULT_LISTED
    include_hierarchy: bool = False
    filter: str = ""
    notices: tuple[SearchWarning, ...] = ()

    @classmethod
    def read(cls, pairs: Pairs) -> Self:
        """Raises QueryError."""
        given = _Given(pairs, ("sort_by", "limit", "include_hierarchy", "filter"))
        read = cls(
            sort_by=given.choice("sort_by", CATEGORY_SORTS),
            limit=given.limit(DEFAULT_LISTED, MOST_LISTED),
            include_hierarchy=given.switch("include_hierarchy"),
            filter=given.text("filter"),
            notices=tuple(given.notices),
        )
        given.check()
        return read


@dataclass(frozen=True, slots=True)
class ConceptListRequest:
    """The concepts of which category, in what order."""

    name: str
    sort_by: str = CONCEPT_SORTS[0]
    limit: int = DEFAULT_LISTED
    include_children: bool = False
    notices: tuple[SearchWarning, ...] = ()

    @classmethod
    def read(cls, pairs: Pairs, name: str | None = None) -> Self:
        """Raises QueryError. Without `name`, it is among the pairs."""
        given = _Given(pairs, ("category",) * (name is None) + ("sort_by", "limit", "include_children"))
        read = cls(
            name=given.name("category") if name is None else name,
            sort_by=given.choice("sort_by", CONCEPT_SORTS),
            limit=given.limit(DEFAULT_LISTED, MOST_LISTED),
            include_children=given.switch("include_children"),
            notices=tuple(given.notices),
        )
        given.check()
        return read


class _Given:
    """The pairs of a request, and what was found wrong with them while they were read."""

    def __init__(self, pairs: Pairs, keys: Sequence[str]) -> None:
        self.notices: list[SearchWarning] = []
        self._problems: list[Problem] = []
        self._values: dict[str, str] = {}
        spelled = {alias: key for alias, key in ALIASES.items() if key in keys}
        for key, value in pairs:
            known = spelled.get(key, key)
            if known not in keys:
                near = tuple(difflib.get_close_matches(key[:60], keys, 1))
                told = f"the parameters are {', '.join(keys)}"
                self._problems.append(Problem(legible(key), "is not a parameter", told, near))
            elif self._values.setdefault(known, value.strip()) != value.strip():
                self._problems.append(Problem(known, "is given twice with different values", "give it once"))

    def text(self, key: str) -> str:
        text = self._values.get(key, "")
        if len(text) > MAX_VALUE_LENGTH:
            self._problems.append(
                Problem(key, f"is {len(text):,} characters long", f"write at most {MAX_VALUE_LENGTH:,}")
            )
        return text

    def name(self, key: str) -> str:
        text = self.text(key)
        if not text:
            self._problems.append(Problem(key, "is missing", "write the name, slug path, alias or id of a category"))
        return text

    def switch(self, key: str) -> bool:
        text = self._values.get(key, "").lower()
        if text not in _SWITCHES:
            self._problems.append(Problem(key, f"'{legible(text)}' is not a boolean", "write 1 or 0"))
        return _SWITCHES.get(text, False)

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of the choices, also as `documentCount` is written; the first where nothing is given."""
        text = self._values.get(key, "") or choices[0]
        written = _INNER_CAPITAL.sub("_", text[:60]).lower()
        if written not in choices:
            told = f"write one of {', '.join(choices)}"
            near = tuple(difflib.get_close_matches(written, choices, 1))
            self._problems.append(Problem(key, f"'{legible(text)}' is not one of the choices", told, near))
        return written

    def limit(self, default: int, most: int) -> int:
        text = self._values.get("limit", "")
        if not text:
            return default
        if not (text.isascii() and _NUMBER.fullmatch(text)):
            told = f"write a number from 1 to {most}"
            self._problems.append(Problem("limit", f"'{legible(text)}' is not a whole number", told))
            return default
        # A number of a thousand digits is too large in any case.
        asked = int(text[:12])
        allowed = min(max(asked, 1), most)
        if allowed != asked:
            told = f"limit {legible(text)} is out of bounds: {allowed} is used (1 to {most})."
            self.notices.append(SearchWarning(told, "limit"))
        return allowed

    def check(self) -> None:
        if self._problems:
            raise QueryError(self._problems)

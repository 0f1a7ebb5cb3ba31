"""The interface of a participant, and what the alternatives to our engines share.

Each alternative gets the best ordinary schema for its kind, and the same work to do.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from categories.paths import parse_path
from lab.bench.corpus import Record
from search.facets import DATE_KEY, DEFAULT_STATES, FACET
from search.query import SearchQuery
from text.analysis import STOPWORDS, analyse_token
from text.query_syntax import words_needed

FacetValues = dict[str, dict[str, int]]

# Facets with one value, and those with any number.
SINGLE = ("project", "type", "agent", "source", "state")
MULTIPLE = ("category", "tag", "concept", "entity", "author")
FACET_KEYS = (*SINGLE, *MULTIPLE, DATE_KEY)
EXCERPT = 260


class PeerUnavailableError(Exception):
    """A peer that cannot take part. The message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A total, the external ids of one page, and the largest values of each facet if they were asked for.

    Keys and values of facets are those of URLs. `incomplete` names the facets that a time limit cut off; `stages` are
    milliseconds, if the peer reports them.
    """

    total: int
    ids: tuple[str, ...]
    facets: FacetValues | None = None
    incomplete: str = ""
    stages: dict[str, float] = field(default_factory=dict)


class Peer(ABC):
    """A participant, made in a folder of its own. A constructor raises PeerUnavailableError if it cannot take part.

    `name` is its key in the report, `about` a line for readers, `differs` what it leaves out or does otherwise.
    """

    name: str
    about: str
    differs: str = ""

    @abstractmethod
    def load(self, corpus: Path) -> None:
        """Load every record of a corpus file until it can be found."""

    @abstractmethod
    def open(self) -> None:
        """Prepare to answer from what was loaded, now or in an earlier run."""

    def turn(self) -> AbstractContextManager[None]:
        """The context in which the peer answers. Entering and leaving it is not measured."""
        return nullcontext()

    @abstractmethod
    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        """Answer one query: search alone, or with every facet and the histogram."""

    @abstractmethod
    def size_bytes(self) -> int:
        """The size on disk."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words that a query asks for, for peers without our rule: a phrase, or at least `need` of some words."""

    phrase: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    need: int = 0


def words_of(text: str) -> Words:
    """The words as they are written, one for each stem, without stopwords outside a phrase."""
    if text.startswith('"'):
        return Words(phrase=tuple(text.strip('"').split()))
    by_stem = {stem(word): word for word in reversed(text.split()) if word not in STOPWORDS["english"]}
    words = tuple(reversed(by_stem.values()))
    return Words(words=words, need=words_needed(len(words)))


def stem(word: str) -> str:
    """The index term of a plain word."""
    return analyse_token(word, "english").terms[0][0]


def columns_of(number: int, record: Record) -> dict[str, Any]:
    """The columns of a memory with one value each, by name."""
    return {
        "id": number,
        "external_id": record["id"],
        "title": record["title"],
        "content": record["content"],
        **{key: record.get(key, "") for key in SINGLE},
        "created_at": int(datetime.fromisoformat(record["created_at"]).timestamp()),
        "month": record["created_at"][:7],
    }


def values_of(record: Record) -> dict[str, list[str]]:
    """The values of the facets in MULTIPLE, as URLs name them; categories include their ancestors."""
    paths = [path for names in record["categories"] if (path := parse_path(names))]
    return {
        "category": list(dict.fromkeys(ancestor for path in paths for ancestor in path.paths)),
        "tag": record["tags"],
        "concept": record["concepts"],
        "entity": [f"{entity['type']}:{entity['name']}" for entity in record["entities"]],
        "author": record["authors"],
    }


def selected_values(query: SearchQuery) -> dict[str, Sequence[str]]:
    """The values that a memory must have one of, by facet."""
    return {"state": DEFAULT_STATES, **{key: selection.include for key, selection in query.selections().items()}}


def period_of(query: SearchQuery) -> tuple[int | None, int | None]:
    """The first second of the period of a query, and the second after its last."""
    start, end = (int(at.timestamp()) if at else None for at in query.period(UTC, datetime.now(UTC)))
    return start, end


def facet_limit(key: str) -> int:
    # A tree is cut to its upper levels after counting, so it needs more values than it shows; months are all counted.
    return {DATE_KEY: 1_000, "category": 24}.get(key) or FACET[key].limit


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True, slots=True)
class Sql:
    """A part of a statement, with its parameters."""

    text: str
    values: tuple[object, ...] = ()


def sql_conditions(query: SearchQuery, multiple: Callable[[str, Sequence[str]], Sql]) -> dict[str, Sql]:
    """Conditions by facet, so that a facet can be counted without its own. `multiple` writes those of MULTIPLE."""
    conditions: dict[str, Sql] = {}
    for key, values in selected_values(query).items():
        single = Sql(f"m.{key} IN ({sql_marks(values)})", tuple(values))
        conditions[key] = single if key in SINGLE else multiple(key, values)
    bounds = [(sign, second) for sign, second in zip((">=", "<"), period_of(query), strict=True) if second is not None]
    if bounds:
        text = " AND ".join(f"m.created_at {sign} ?" for sign, _ in bounds)
        conditions[DATE_KEY] = Sql(text, tuple(second for _, second in bounds))
    return conditions


def sql_marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def sql_source(tables: str, conditions: Iterable[Sql]) -> Sql:
    """FROM and WHERE."""
    parts = list(conditions)
    text = " AND ".join(part.text for part in parts) or "true"
    return Sql(f"FROM {tables} WHERE {text}", tuple(value for part in parts for value in part.values))

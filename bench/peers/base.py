"""What a participant is asked and what it answers. A peer is given the best ordinary schema and the same work to do."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.corpus import Record
from categories.paths import parse_path
from search.query import SearchQuery
from text.analysis import STOPWORDS, analyse_token
from text.query_syntax import words_needed

FacetValues = dict[str, dict[str, int]]

# Facets with one value, and those with any number.
SINGLE = ("project", "type", "agent", "source", "state")
MULTIPLE = ("category", "tag", "concept", "entity", "author")
EXCERPT = 260
# A tree is cut to its upper levels later; until then there must be enough of it.
CATEGORY_LIMIT = 24


class PeerUnavailableError(Exception):
    """The peer cannot take part here. The message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A total, the ids of one page as the records name them, and where asked the largest values of each facet.

    Keys and values of facets are those of URLs. `incomplete` says what is missing, where a time limit cut it off;
    `stages` how many milliseconds went where, for who says so.
    """

    total: int
    ids: tuple[str, ...]
    facets: FacetValues | None = None
    incomplete: str = ""
    stages: dict[str, float] = field(default_factory=dict)


class Peer(Protocol):
    """`name` is the key of its figures, `about` a line for people, `differs` what it does not do or does otherwise.

    It is made in a folder of its own, and raises PeerUnavailableError there where it cannot take part.
    """

    name: str
    about: str
    differs: str

    def load(self, corpus: Path) -> None:
        """Take in every record of a corpus file, until it can be found."""

    def open(self) -> None:
        """Make ready to answer from what was loaded, now or in an earlier run."""

    def turn(self) -> AbstractContextManager[None]:
        """What must be so while it is asked; entering and leaving is not measured."""

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        """Answer one query: search alone, or with every facet and the histogram."""

    def size_bytes(self) -> int:
        """What it takes on disk."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the text of a query asks for, for who has no such rule: a phrase, or enough of some words."""

    phrase: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    need: int = 0

    @property
    def any(self) -> bool:
        return bool(self.phrase or self.words)


def words_of(text: str) -> Words:
    """The words as they were written. Of those with one stem there is one; what says nothing alone is left out."""
    if text.startswith('"'):
        return Words(phrase=tuple(text.strip('"').split()))
    kept = {stem(word): word for word in reversed(text.split()) if word not in STOPWORDS["english"]}
    words = tuple(reversed(kept.values()))
    return Words(words=words, need=words_needed(len(words)))


def stem(word: str) -> str:
    """The term of a plain word."""
    return analyse_token(word, "english").terms[0][0]


def values_of(record: Record) -> dict[str, list[str]]:
    """The values of the facets that may have several, as URLs name them; categories with all that is above them."""
    categories: dict[str, None] = {}
    for names in record["categories"]:
        if path := parse_path(names):
            categories |= dict.fromkeys(path.paths)
    return {
        "category": list(categories),
        "tag": record["tags"],
        "concept": record["concepts"],
        "entity": [f"{entity['type']}:{entity['name']}" for entity in record["entities"]],
        "author": record["authors"],
    }


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

"""What a participant is asked and what it answers. A peer is given the best ordinary schema and the same work to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from bench.corpus import Record
from search.query import SearchQuery

FacetValues = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A total, the ids of one page as the records name them, and where asked the largest values of each facet.

    Keys and values of facets are those of URLs. `incomplete` says what is missing, where a time limit cut it off.
    """

    total: int
    ids: tuple[str, ...]
    facets: FacetValues | None = None
    incomplete: str = ""


class Peer(Protocol):
    """`name` is the key of its figures, `about` a line for people, `differs` what it does not do or does otherwise."""

    name: str
    about: str
    differs: str

    def load(self, records: Iterable[Record]) -> None:
        """Take in every record, until it can be found."""

    def answer(self, query: SearchQuery, facets: bool) -> Answer:
        """Answer one query: search alone, or with every facet and the histogram."""

    def size_bytes(self) -> int:
        """What it takes on disk."""

    def close(self) -> None:
        """Let go of everything."""

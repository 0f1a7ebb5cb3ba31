"""Corpora of any size that look like what teams pile up: seeded, streamed, the same for the same seed and size.

Memories come in the order of their dates, in the format that `import_memories` reads.
"""

import gzip
import io
import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Generic, NotRequired, TypedDict, TypeVar, cast

from bench.vocabulary import NamedWords, Vocabulary, cumulative, invented_words, zipf

FIRST_DAY = date(2018, 7, 1)
DAYS = 2_922
DEPTH = 5

TYPES = {
    "note": 22, "fix": 18, "decision": 11, "observation": 10, "feature": 9, "task": 7, "document": 6, "question": 4,
    "incident": 3, "refactor": 3, "review": 2, "meeting": 2, "idea": 1.5, "warning": 1, "retrospective": 0.5,
}  # fmt: skip
STATES = {"active": 93.0, "proposed": 2, "archived": 3, "superseded": 2}
AGENTS = {"": 30.0, "claude": 34, "codex": 14, "cursor": 9, "copilot": 6, "aider": 4, "gemini": 2, "goose": 1}
SOURCES = {"git": 40.0, "session": 25, "issues": 14, "chat": 9, "wiki": 7, "mail": 3, "pager": 2}
_PROJECT_WEIGHTS = (44, 25, 14, 9, 5, 3)

# Maximum number of each a memory carries: 0, 1, 2, …
_CATEGORIES = (0, 55, 32, 13)
_TAGS = (0, 25, 35, 25, 15)
_CONCEPTS = (30, 35, 22, 13)
_ENTITIES = (25, 24, 20, 15, 10, 6)
_AUTHORS = (12, 72, 16)

# Quiet weekends, quieter nights.
_WEEKDAYS = (1.1, 1.2, 1.2, 1.15, 0.9, 0.22, 0.23)
_HOURS = cumulative((1, 1, 1, 1, 1, 2, 4, 9, 22, 34, 38, 34, 22, 28, 36, 37, 34, 26, 16, 10, 8, 6, 4, 2))
_RELEASE_EVERY = 42
_INCIDENTS = 40

# Words in a text: log-normal, with a median of 25 and some of several hundred.
_MEDIAN_WORDS = 25
_SPREAD_WORDS = 0.85
_MOST_WORDS = 900

T = TypeVar("T")


class EntityRecord(TypedDict):
    name: str
    type: str


class LinkRecord(TypedDict):
    rel: str
    target: str


class Record(TypedDict):
    """A memory in the import format."""

    id: str
    title: str
    content: str
    project: str
    type: str
    tags: list[str]
    categories: list[str]
    concepts: list[str]
    entities: list[EntityRecord]
    authors: list[str]
    created_at: str
    source: str
    state: str
    agent: NotRequired[str]
    importance: NotRequired[float]
    links: NotRequired[list[LinkRecord]]


@dataclass(frozen=True, slots=True)
class Node:
    """A category: its path by name, the project most of its memories are from, and what they tend to carry."""

    path: str
    depth: int
    project: str
    tags: tuple[str, ...]
    concepts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Choices(Generic[T]):
    """Values and how likely each is."""

    values: Sequence[T]
    weights: Sequence[float]

    def draw(self, draw: random.Random, count: int) -> list[T]:
        return draw.choices(self.values, cum_weights=self.weights, k=count)

    def one(self, draw: random.Random) -> T:
        return draw.choices(self.values, cum_weights=self.weights)[0]


def _weighted(weights: dict[str, float]) -> _Choices[str]:
    return _Choices(list(weights), cumulative(list(weights.values())))


def _counts(weights: Sequence[float]) -> _Choices[int]:
    return _Choices(range(len(weights)), cumulative(weights))


def _ranked(values: Sequence[T], exponent: float) -> _Choices[T]:
    return _Choices(values, zipf(len(values), exponent))


class Corpus:
    """A corpus of `size` memories. What is drawn from is made once and grows far slower than the corpus itself."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.size = size
        self.seed = seed
        draw = self._draw("vocabulary")
        growth = size / 21_000
        taken: set[str] = set()
        self.vocabulary = Vocabulary(size, draw, taken)
        # Names are words of their own, so that they do not blur how frequent the words of the texts are.
        names = invented_words(draw, taken)
        pool = [next(names) for _ in range(1_500)]
        self.projects = _Choices(pool[: len(_PROJECT_WEIGHTS)], cumulative(_PROJECT_WEIGHTS))
        self.tags = _ranked(_joined(pool, draw, _scaled(2_000, growth, 0.3), "-"), 1.0)
        self.concepts = _ranked(_joined(pool, draw, _scaled(300, growth, 0.25), " "), 0.9)
        authors = _joined(pool, draw, _scaled(60, growth, 0.35), " ")
        self.authors = _ranked([name.title() for name in authors], 1.0)
        self.entities = _ranked(_entities(pool, draw, _scaled(3_500, growth, 0.75)), 0.9)
        self._plant_tree(draw, next_names=names, count=min(5_000, _scaled(2_000, growth, 0.41)))
        self._types, self._agents = _weighted(TYPES), _weighted(AGENTS)
        self._sources, self._states = _weighted(SOURCES), _weighted(STATES)

    def _draw(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{self.size}/{purpose}")

    def _plant_tree(self, draw: random.Random, next_names: Iterator[str], count: int) -> None:
        """Twelve roots and five levels. On each level a few parents have most of the children, and some none."""
        widths = [min(12, count)]
        widths += [max(1, round((count - widths[0]) * share)) for share in (0.06, 0.22, 0.34, 0.38)]
        levels: list[list[Node]] = []
        parents: set[str] = set()
        for depth, width in enumerate(widths, 1):
            level = []
            above = _ranked(levels[-1], 0.6) if levels else None
            for _ in range(width):
                parent = above.one(draw) if above else None
                name = next(next_names).capitalize()
                if parent is not None:
                    parents.add(parent.path)
                level.append(
                    Node(
                        path=f"{parent.path}/{name}" if parent else name,
                        depth=depth,
                        project=parent.project if parent else self.projects.one(draw),
                        tags=tuple(self.tags.draw(draw, 6)),
                        concepts=tuple(self.concepts.draw(draw, 4)),
                    )
                )
            draw.shuffle(level)
            levels.append(level)
        self.categories = [node for level in levels for node in level]
        leaves = [node for node in self.categories if node.path not in parents]
        draw.shuffle(leaves)
        self.parents = [node for node in self.categories if node.path in parents]
        self._leaves, self._inner = _ranked(leaves, 0.9), _ranked(self.parents or leaves, 0.9)

    def named_words(self) -> NamedWords:
        """The words that a query log may ask for, by how many memories hold them."""
        draw = self._draw("lengths")
        lengths = sorted(_length(draw) + (0 if _titled_by_content(draw) else 6) for _ in range(4_000))
        return self.vocabulary.named(self.size, lengths[::20])

    def records(self) -> Iterator[Record]:
        """The memories, oldest first. Nothing of one is kept when the next is made."""
        draw = self._draw("records")
        number = 0
        for day, share, incident in self._days():
            due = round(share * self.size) - number
            hours = draw.choices(range(24), cum_weights=_HOURS, k=due)
            for second in sorted(hour * 3_600 + draw.randrange(3_600) for hour in hours):
                moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=second)
                number += 1
                yield self._record(draw, number, moment, incident)

    def _days(self) -> Iterator[tuple[date, float, bool]]:
        """Each day, the share of memories up to its end, and whether something broke that day."""
        draw = self._draw("days")
        incidents = set(draw.sample(range(DAYS - 1), _INCIDENTS))
        weights = []
        for n in range(DAYS):
            day = FIRST_DAY + timedelta(days=n)
            weight = (1 + 2.5 * n / DAYS) * _WEEKDAYS[day.weekday()] * draw.uniform(0.6, 1.4)
            # Work piles up before a release, and is written down on the day of it.
            weight *= {_RELEASE_EVERY - 2: 1.5, _RELEASE_EVERY - 1: 1.8, 0: 4.0}.get(n % _RELEASE_EVERY, 1.0)
            weight *= 8.0 if n in incidents else 3.0 if n - 1 in incidents else 1.0
            weights.append(weight * (0.2 if (day.month, day.day) >= (12, 24) else 1.0))
        shares = cumulative(weights)
        for n, share in enumerate(shares):
            yield FIRST_DAY + timedelta(days=n), share / shares[-1], n in incidents

    def _record(self, draw: random.Random, number: int, moment: datetime, incident: bool) -> Record:
        nodes = self._nodes(draw)
        home = nodes[0]
        entities = _distinct(self.entities.draw(draw, _ENTITY_COUNTS.one(draw)))
        words = self.vocabulary.draw_text(draw, _length(draw))
        if _titled_by_content(draw):
            title = " ".join(words[: draw.randint(4, 9)])
        else:
            title = " ".join(self.vocabulary.draw_text(draw, 6))
        content = _sentences(draw, words)
        if entities and draw.random() < 0.4:
            content += f" See `{entities[0][0]}`."
        record: Record = {
            "id": _id(number),
            "title": title.capitalize(),
            "content": content,
            "project": home.project if draw.random() < 0.7 else self.projects.one(draw),
            "type": "incident" if incident and draw.random() < 0.3 else self._types.one(draw),
            "tags": self._own_or_any(draw, home.tags, self.tags, _TAG_COUNTS.one(draw)),
            "categories": [node.path for node in nodes],
            "concepts": self._own_or_any(draw, home.concepts, self.concepts, _CONCEPT_COUNTS.one(draw)),
            "entities": [{"name": name, "type": kind} for name, kind in entities],
            "authors": _distinct(self.authors.draw(draw, _AUTHOR_COUNTS.one(draw))),
            "created_at": moment.isoformat(),
            "source": self._sources.one(draw),
            "state": self._states.one(draw),
        }
        if agent := self._agents.one(draw):
            record["agent"] = agent
        if draw.random() < 0.6:
            record["importance"] = round(draw.betavariate(2, 3), 2)
        if number > 1 and draw.random() < 0.15:
            # Mostly to what was written not long before.
            back = min(number - 1, int(draw.expovariate(1 / 200)) + 1)
            record["links"] = [{"rel": "relates-to", "target": _id(number - back)}]
        return record

    def _nodes(self, draw: random.Random) -> list[Node]:
        """Leaves mostly, and some parents."""
        count = _CATEGORY_COUNTS.one(draw)
        return _distinct((self._inner if draw.random() < 0.15 else self._leaves).one(draw) for _ in range(count))

    @staticmethod
    def _own_or_any(draw: random.Random, own: Sequence[str], every: _Choices[str], count: int) -> list[str]:
        return _distinct(draw.choice(own) if draw.random() < 0.5 else every.one(draw) for _ in range(count))


_CATEGORY_COUNTS = _counts(_CATEGORIES)
_TAG_COUNTS = _counts(_TAGS)
_CONCEPT_COUNTS = _counts(_CONCEPTS)
_ENTITY_COUNTS = _counts(_ENTITIES)
_AUTHOR_COUNTS = _counts(_AUTHORS)


def write_records(records: Iterable[Record], path: Path) -> None:
    """One JSON object a line, gzipped without a date or a name, so that equal records make equal bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as lines,
    ):
        lines.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def read_records(path: Path) -> Iterator[Record]:
    """What `write_records` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield cast(Record, json.loads(line))


def _scaled(at_21_000: int, growth: float, exponent: float) -> int:
    return max(12, round(at_21_000 * math.pow(growth, exponent)))


def _id(number: int) -> str:
    return f"bench-{number:08d}"


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _length(draw: random.Random) -> int:
    return min(_MOST_WORDS, max(4, round(draw.lognormvariate(math.log(_MEDIAN_WORDS), _SPREAD_WORDS))))


def _titled_by_content(draw: random.Random) -> bool:
    return draw.random() < 0.5


def _sentences(draw: random.Random, words: Sequence[str]) -> str:
    """Words as sentences of six to eighteen, a few sentences to a paragraph."""
    parts: list[str] = []
    at, count = 0, 0
    while at < len(words):
        end = min(len(words), at + draw.randint(6, 18))
        if count:
            parts.append("\n\n" if count % 5 == 0 else " ")
        parts.append(" ".join(words[at:end]).capitalize() + ".")
        at, count = end, count + 1
    return "".join(parts)


def _joined(pool: Sequence[str], draw: random.Random, count: int, joint: str) -> list[str]:
    """Distinct names of one or two words."""
    names: dict[str, None] = {}
    while len(names) < count:
        first, second = draw.choice(pool), draw.choice(pool)
        names[first if draw.random() < 0.4 else f"{first}{joint}{second}"] = None
    return list(names)


def _entities(pool: Sequence[str], draw: random.Random, count: int) -> list[tuple[str, str]]:
    """Names as code and teams have them, each with its type."""
    names: dict[tuple[str, str], None] = {}
    while len(names) < count:
        a, b, c = draw.choice(pool), draw.choice(pool), draw.choice(pool)
        names[
            draw.choice(
                (
                    (f"{a}.{b}_{c}", "function"),
                    (f"{a}.{b}", "module"),
                    (f"{a.title()}{b.title()}", "class"),
                    (f"{a.title()} {b.title()}", "person"),
                    (f"{a}-{b}-service", "service"),
                    (f"{a}-{b}", "package"),
                    (f"{a}_{b}", "table"),
                    (f"CVE-{draw.randint(2018, 2026)}-{draw.randint(1_000, 49_999)}", "vulnerability"),
                )
            )
        ] = None
    return list(names)

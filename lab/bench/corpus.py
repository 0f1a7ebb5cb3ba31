"""Generated corpora of any size, distributed as the memories of teams are. The same seed and size make the same corpus.

Memories are streamed in the order of their dates, in the format that `import_memories` reads.
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
from typing import Any, Generic, TypeVar

from lab.bench.vocabulary import NamedWords, Vocabulary, cumulative, invented_words, zipf

FIRST_DAY = date(2018, 7, 1)
DAYS = 2_922
DEPTH = 5

# A memory in the import format.
Record = dict[str, Any]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Weighted(Generic[T]):
    """Values with their cumulative weights."""

    values: Sequence[T]
    weights: Sequence[float]

    def draw(self, rng: random.Random, count: int) -> list[T]:
        return rng.choices(self.values, cum_weights=self.weights, k=count)

    def choose(self, rng: random.Random) -> T:
        return rng.choices(self.values, cum_weights=self.weights)[0]


def _weighted(weights: dict[str, float]) -> _Weighted[str]:
    return _Weighted(list(weights), cumulative(list(weights.values())))


def _counts(weights: Sequence[float]) -> _Weighted[int]:
    return _Weighted(range(len(weights)), cumulative(weights))


def _ranked(values: Sequence[T], exponent: float) -> _Weighted[T]:
    return _Weighted(values, zipf(len(values), exponent))


_TYPES = _weighted(
    {
        "note": 22, "fix": 18, "decision": 11, "observation": 10, "feature": 9, "task": 7, "document": 6,
        "question": 4, "incident": 3, "refactor": 3, "review": 2, "meeting": 2, "idea": 1.5, "warning": 1,
        "retrospective": 0.5,
    }
)  # fmt: skip
_STATES = _weighted({"active": 93.0, "proposed": 2, "archived": 3, "superseded": 2})
_AGENTS = _weighted(
    {"": 30.0, "claude": 34, "codex": 14, "cursor": 9, "copilot": 6, "aider": 4, "gemini": 2, "goose": 1}
)
_SOURCES = _weighted({"git": 40.0, "session": 25, "issues": 14, "chat": 9, "wiki": 7, "mail": 3, "pager": 2})
_PROJECT_WEIGHTS = (44, 25, 14, 9, 5, 3)

# Numbers of each that a memory has, by weights of 0, 1, 2, …
_CATEGORY_COUNTS = _counts((0, 55, 32, 13))
_TAG_COUNTS = _counts((0, 25, 35, 25, 15))
_CONCEPT_COUNTS = _counts((30, 35, 22, 13))
_ENTITY_COUNTS = _counts((25, 24, 20, 15, 10, 6))
_AUTHOR_COUNTS = _counts((12, 72, 16))

# Quiet weekends, quieter nights.
_WEEKDAYS = (1.1, 1.2, 1.2, 1.15, 0.9, 0.22, 0.23)
_HOURS = cumulative((1, 1, 1, 1, 1, 2, 4, 9, 22, 34, 38, 34, 22, 28, 36, 37, 34, 26, 16, 10, 8, 6, 4, 2))
_RELEASE_EVERY = 42
_INCIDENTS = 40

# Words in a text: log-normal, with a median of 25 and some of several hundred.
_MEDIAN_WORDS = 25
_SPREAD_WORDS = 0.85
_MAX_WORDS = 900


@dataclass(frozen=True, slots=True)
class Node:
    """A category: its path of names, and the project, tags and concepts that most of its memories have."""

    path: str
    depth: int
    project: str
    tags: tuple[str, ...]
    concepts: tuple[str, ...]


class Corpus:
    """A corpus of `size` memories. The names that memories draw from are made once, and grow slower than the corpus."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.size = size
        self.seed = seed
        rng = self._rng("vocabulary")
        growth = size / 21_000
        taken: set[str] = set()
        self.vocabulary = Vocabulary(size, rng, taken)
        # Names share no words with the texts, whose frequencies must stay as resolved.
        names = invented_words(rng, taken)
        pool = [next(names) for _ in range(1_500)]
        self.projects = _Weighted(pool[: len(_PROJECT_WEIGHTS)], cumulative(_PROJECT_WEIGHTS))
        self.tags = _ranked(_joined(pool, rng, _scaled(2_000, growth, 0.3), "-"), 1.0)
        self.concepts = _ranked(_joined(pool, rng, _scaled(300, growth, 0.25), " "), 0.9)
        authors = _joined(pool, rng, _scaled(60, growth, 0.35), " ")
        self.authors = _ranked([name.title() for name in authors], 1.0)
        self.entities = _ranked(_entities(pool, rng, _scaled(3_500, growth, 0.75)), 0.9)
        self._plant_tree(rng, next_names=names, count=min(5_000, _scaled(2_000, growth, 0.41)))

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{self.size}/{purpose}")

    def _plant_tree(self, rng: random.Random, next_names: Iterator[str], count: int) -> None:
        """Create twelve roots and five levels. On each level a few parents have most of the children."""
        widths = [min(12, count)]
        widths += [max(1, round((count - widths[0]) * share)) for share in (0.06, 0.22, 0.34, 0.38)]
        levels: list[list[Node]] = []
        parents: set[str] = set()
        for depth, width in enumerate(widths, 1):
            level = []
            above = _ranked(levels[-1], 0.6) if levels else None
            for _ in range(width):
                parent = above.choose(rng) if above else None
                level.append(self._node(rng, next(next_names).capitalize(), depth, parent))
                if parent is not None:
                    parents.add(parent.path)
            rng.shuffle(level)
            levels.append(level)
        self.categories = [node for level in levels for node in level]
        leaves = [node for node in self.categories if node.path not in parents]
        rng.shuffle(leaves)
        self.parents = [node for node in self.categories if node.path in parents]
        self._leaves, self._inner = _ranked(leaves, 0.9), _ranked(self.parents or leaves, 0.9)

    def _node(self, rng: random.Random, name: str, depth: int, parent: Node | None) -> Node:
        return Node(
            path=f"{parent.path}/{name}" if parent else name,
            depth=depth,
            project=parent.project if parent else self.projects.choose(rng),
            tags=tuple(self.tags.draw(rng, 6)),
            concepts=tuple(self.concepts.draw(rng, 4)),
        )

    def named_words(self) -> NamedWords:
        """The words that a query log may ask for, by how many memories contain them."""
        rng = self._rng("lengths")
        lengths = sorted(_length(rng) + (0 if _titled_by_content(rng) else 6) for _ in range(4_000))
        return self.vocabulary.named(self.size, lengths[::20])

    def records(self) -> Iterator[Record]:
        """The memories, oldest first, in constant memory."""
        rng = self._rng("records")
        number = 0
        for day, share, incident in self._days():
            due = round(share * self.size) - number
            hours = rng.choices(range(24), cum_weights=_HOURS, k=due)
            for second in sorted(hour * 3_600 + rng.randrange(3_600) for hour in hours):
                moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=second)
                number += 1
                yield self._record(rng, number, moment, incident)

    def _days(self) -> Iterator[tuple[date, float, bool]]:
        """Each day, the share of memories up to its end, and whether it has an incident."""
        rng = self._rng("days")
        incidents = set(rng.sample(range(DAYS - 1), _INCIDENTS))
        weights = []
        for n in range(DAYS):
            day = FIRST_DAY + timedelta(days=n)
            weight = (1 + 2.5 * n / DAYS) * _WEEKDAYS[day.weekday()] * rng.uniform(0.6, 1.4)
            # More memories before a release, and most on the day itself.
            weight *= {_RELEASE_EVERY - 2: 1.5, _RELEASE_EVERY - 1: 1.8, 0: 4.0}.get(n % _RELEASE_EVERY, 1.0)
            weight *= 8.0 if n in incidents else 3.0 if n - 1 in incidents else 1.0
            weights.append(weight * (0.2 if (day.month, day.day) >= (12, 24) else 1.0))
        shares = cumulative(weights)
        for n, share in enumerate(shares):
            yield FIRST_DAY + timedelta(days=n), share / shares[-1], n in incidents

    def _record(self, rng: random.Random, number: int, moment: datetime, incident: bool) -> Record:
        nodes = self._nodes(rng)
        home = nodes[0]
        entities = _distinct(self.entities.draw(rng, _ENTITY_COUNTS.choose(rng)))
        words = self.vocabulary.draw_text(rng, _length(rng))
        if _titled_by_content(rng):
            title = " ".join(words[: rng.randint(4, 9)])
        else:
            title = " ".join(self.vocabulary.draw_text(rng, 6))
        content = _sentences(rng, words)
        if entities and rng.random() < 0.4:
            content += f" See `{entities[0][0]}`."
        record: Record = {
            "id": _id(number),
            "title": title.capitalize(),
            "content": content,
            "project": home.project if rng.random() < 0.7 else self.projects.choose(rng),
            "type": "incident" if incident and rng.random() < 0.3 else _TYPES.choose(rng),
            "tags": self._own_or_any(rng, home.tags, self.tags, _TAG_COUNTS.choose(rng)),
            "categories": [node.path for node in nodes],
            "concepts": self._own_or_any(rng, home.concepts, self.concepts, _CONCEPT_COUNTS.choose(rng)),
            "entities": [{"name": name, "type": kind} for name, kind in entities],
            "authors": _distinct(self.authors.draw(rng, _AUTHOR_COUNTS.choose(rng))),
            "created_at": moment.isoformat(),
            "source": _SOURCES.choose(rng),
            "state": _STATES.choose(rng),
        }
        if agent := _AGENTS.choose(rng):
            record["agent"] = agent
        if rng.random() < 0.6:
            record["importance"] = round(rng.betavariate(2, 3), 2)
        if number > 1 and rng.random() < 0.15:
            # Most links go to recent memories.
            back = min(number - 1, int(rng.expovariate(1 / 200)) + 1)
            record["links"] = [{"rel": "relates-to", "target": _id(number - back)}]
        return record

    def _nodes(self, rng: random.Random) -> list[Node]:
        """The categories of one memory: mostly leaves, and some parents."""
        count = _CATEGORY_COUNTS.choose(rng)
        return _distinct((self._inner if rng.random() < 0.15 else self._leaves).choose(rng) for _ in range(count))

    @staticmethod
    def _own_or_any(rng: random.Random, own: Sequence[str], every: _Weighted[str], count: int) -> list[str]:
        return _distinct(rng.choice(own) if rng.random() < 0.5 else every.choose(rng) for _ in range(count))


def write_records(records: Iterable[Record], path: Path) -> None:
    """Write gzipped JSON lines, without a date or a name, so that equal records make equal bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as lines,
    ):
        lines.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def read_records(path: Path) -> Iterator[Record]:
    """Read a file that `write_records` has written."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _scaled(at_21_000: int, growth: float, exponent: float) -> int:
    return max(12, round(at_21_000 * math.pow(growth, exponent)))


def _id(number: int) -> str:
    return f"bench-{number:08d}"


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _length(rng: random.Random) -> int:
    return min(_MAX_WORDS, max(4, round(rng.lognormvariate(math.log(_MEDIAN_WORDS), _SPREAD_WORDS))))


def _titled_by_content(rng: random.Random) -> bool:
    return rng.random() < 0.5


def _sentences(rng: random.Random, words: Sequence[str]) -> str:
    """Sentences of six to eighteen words, in paragraphs of five."""
    parts: list[str] = []
    at, count = 0, 0
    while at < len(words):
        end = min(len(words), at + rng.randint(6, 18))
        if count:
            parts.append("\n\n" if count % 5 == 0 else " ")
        parts.append(" ".join(words[at:end]).capitalize() + ".")
        at, count = end, count + 1
    return "".join(parts)


def _joined(pool: Sequence[str], rng: random.Random, count: int, joint: str) -> list[str]:
    """Distinct names of one or two words."""
    names: dict[str, None] = {}
    while len(names) < count:
        first, second = rng.choice(pool), rng.choice(pool)
        names[first if rng.random() < 0.4 else f"{first}{joint}{second}"] = None
    return list(names)


def _entities(pool: Sequence[str], rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Names as in code and teams, each with its type."""
    names: dict[tuple[str, str], None] = {}
    while len(names) < count:
        a, b, c = rng.choice(pool), rng.choice(pool), rng.choice(pool)
        names[
            rng.choice(
                (
                    (f"{a}.{b}_{c}", "function"),
                    (f"{a}.{b}", "module"),
                    (f"{a.title()}{b.title()}", "class"),
                    (f"{a.title()} {b.title()}", "person"),
                    (f"{a}-{b}-service", "service"),
                    (f"{a}-{b}", "package"),
                    (f"{a}_{b}", "table"),
                    (f"CVE-{rng.randint(2018, 2026)}-{rng.randint(1_000, 49_999)}", "vulnerability"),
                )
            )
        ] = None
    return list(names)

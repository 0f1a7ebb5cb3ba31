"""The queries that are measured, by kind: seeded, each one only once, and drawn from what the generator can name."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from bench.corpus import FIRST_DAY, Corpus, Record
from bench.vocabulary import NamedWords, question
from categories.paths import parse_path
from search.query import SearchQuery

Pairs = list[tuple[str, str]]

KINDS = {
    "no_filter": "no filter",
    "after_change": "after a change",
    "one_filter": "one filter",
    "three_filters": "three filters",
    "common_word": "common word",
    "middling_word": "middling word",
    "rare_word": "rare word",
    "two_words": "two words",
    "word_and_filter": "word and filter",
    "phrase": "phrase",
    "category": "category, descendants",
    "deep_page": "deep page",
    "question": "plain question",
}
# What is asked without words: every participant must give the same totals and counts there.
FILTER_ONLY = frozenset({"no_filter", "after_change", "one_filter", "three_filters", "category"})
# What a visitor meets only now and then is measured apart, and is no part of the mixed log.
APART = frozenset({"after_change"})
WARM_UP_PER_KIND = 2
SAMPLED_RECORDS = 600


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One query of the log."""

    kind: str
    query: SearchQuery


@dataclass(frozen=True, slots=True)
class QueryLog:
    """All kinds in one shuffled order, and a few queries beside them to warm up with."""

    entries: tuple[LogEntry, ...]
    warm_up: tuple[LogEntry, ...]


def build_query_log(corpus: Corpus, sample: Sequence[Record], per_kind: int, seed: int) -> QueryLog:
    """As many distinct queries of each kind as wanted, or as there are."""
    draw = random.Random(f"{seed}/{corpus.size}/queries")
    maker = _Maker(corpus, sample, draw)
    seen: set[str] = set()
    entries: list[LogEntry] = []
    warm_up: list[LogEntry] = []
    for kind in KINDS:
        made: list[LogEntry] = []
        # Chance repeats itself: it is given some more tries than it should need.
        for pairs in itertools.islice(maker.queries(kind), per_kind * 10 + 50):
            query = SearchQuery.from_pairs(pairs)
            if query.querystring() in seen:
                continue
            seen.add(query.querystring())
            made.append(LogEntry(kind, query))
            if len(made) == per_kind + WARM_UP_PER_KIND:
                break
        warm_up += made[:WARM_UP_PER_KIND]
        entries += made[WARM_UP_PER_KIND:]
    draw.shuffle(entries)
    return QueryLog(tuple(entries), tuple(warm_up))


class _Maker:
    def __init__(self, corpus: Corpus, sample: Sequence[Record], draw: random.Random) -> None:
        self.corpus = corpus
        self.draw = draw
        # What the default states hide would be found by nobody.
        self.sample = [record for record in sample if record["state"] in {"active", "proposed"}]
        named = corpus.named_words()
        # A corpus of a few hundred memories has no word of some bands: the next band stands in.
        rare = named.rare or tuple(corpus.vocabulary.content[40:200])
        self.words = NamedWords(named.common or rare, named.middling or rare, rare, named.phrases)
        self.makers: dict[str, Callable[[], Pairs]] = {
            "one_filter": lambda: self.filters(1),
            "three_filters": lambda: self.filters(3),
            "rare_word": lambda: [("q", draw.choice(self.words.rare))],
            "two_words": self.two_words,
            "word_and_filter": lambda: [("q", self.frequent_word()), *self.filters(1)],
            "category": lambda: [("category", self.inner_category())],
            "deep_page": self.deep_page,
            "question": self.question,
        }

    def queries(self, kind: str) -> Iterator[Pairs]:
        draw = self.draw
        match kind:
            case "no_filter":
                # With nothing asked, only the page and the order can differ.
                for page in itertools.count(1):
                    yield [("page", str(page))]
                    yield [("sort", "oldest"), ("page", str(page))]
            case "after_change":
                yield from ([("page_size", "20"), ("page", str(page))] for page in itertools.count(1))
            case "common_word":
                yield from ([("q", word)] for word in draw.sample(self.words.common, len(self.words.common)))
            case "middling_word":
                yield from ([("q", word)] for word in draw.sample(self.words.middling, len(self.words.middling)))
            case "phrase":
                yield from ([("q", f'"{words}"')] for words in draw.sample(self.words.phrases, len(self.words.phrases)))
            case _:
                while True:
                    yield self.makers[kind]()

    def filters(self, count: int) -> Pairs:
        """Facts of one memory, so that something is found, and frequent values are asked for frequently."""
        facts = self.facts(self.draw.choice(self.sample))
        pairs: Pairs = []
        for key in self.draw.sample(sorted(facts), min(count, len(facts))):
            pairs += facts[key]
        return pairs

    def facts(self, record: Record) -> dict[str, Pairs]:
        draw = self.draw
        day = date.fromisoformat(record["created_at"][:10])
        # From a fortnight to half a year around the day.
        before, after = (timedelta(days=draw.randrange(7, 90)) for _ in range(2))
        facts: dict[str, Pairs] = {
            "project": [("project", record["project"])],
            "type": [("type", record["type"])],
            "tag": [("tag", draw.choice(record["tags"]))],
            "category": [("category", _slug_path(draw.choice(record["categories"])))],
            "source": [("source", record["source"])],
            "date": [("from", max(FIRST_DAY, day - before).isoformat()), ("to", (day + after).isoformat())],
        }
        if record["concepts"]:
            facts["concept"] = [("concept", draw.choice(record["concepts"]))]
        if record["entities"]:
            entity = draw.choice(record["entities"])
            facts["entity"] = [("entity", f"{entity['type']}:{entity['name']}")]
        if record["authors"]:
            facts["author"] = [("author", draw.choice(record["authors"]))]
        if "agent" in record:
            facts["agent"] = [("agent", record["agent"])]
        return facts

    def frequent_word(self) -> str:
        return self.draw.choice(self.words.common if self.draw.random() < 0.5 else self.words.middling)

    def two_words(self) -> Pairs:
        return [("q", f"{self.draw.choice(self.words.common)} {self.frequent_word()}")]

    def inner_category(self) -> str:
        """The upper levels are what people open, and what has the most below it."""
        parents = [node for node in self.corpus.parents if node.depth <= 3]
        weights = [2.0 ** (3 - node.depth) for node in parents]
        return _slug_path(self.draw.choices(parents, weights)[0].path)

    def deep_page(self) -> Pairs:
        """Somewhere past the first pages of a large set, but within it."""
        common = self.draw.random() < 0.5
        within = self.corpus.size * (0.09 if common else 0.9) / 25
        page = ("page", str(self.draw.randint(max(2, int(within * 0.2)), max(3, int(within)))))
        return [("q", self.draw.choice(self.words.common)), page] if common else [page]

    def question(self) -> Pairs:
        words = [self.draw.choice(self.words.common), *self.draw.sample(self.words.middling, 2)]
        if self.draw.random() < 0.5:
            words.append(self.draw.choice(self.words.rare))
        self.draw.shuffle(words)
        return [("q", question(self.draw, words))]


def _slug_path(names: str) -> str:
    path = parse_path(names)
    if path is None:
        raise ValueError(f"{names!r} is no category")
    return path.path

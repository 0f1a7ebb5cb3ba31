"""The log of queries that is measured: mixed, seeded, and drawn from the corpus."""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from categories.paths import parse_path
from lab.bench.corpus import FIRST_DAY, Corpus, Record
from lab.bench.vocabulary import FUNCTION_WORDS, NamedWords, question
from search.query import Mode, SearchQuery

Pairs = list[tuple[str, str]]

LOG_SIZE = 500
KINDS = {
    "no_filter": "no filter",
    "one_filter": "one filter",
    "two_filters": "two filters",
    "three_filters": "three filters",
    "four_filters": "four filters",
    "category": "category, descendants",
    "common_word": "common word",
    "middling_word": "middling word",
    "rare_word": "rare word",
    "phrase": "phrase",
    "two_words": "two words",
    "more_words": "three to five words",
    "word_and_filter": "word and filter",
    "deep_page": "deep page",
    "question": "plain question",
}
# Queries of each kind among five hundred.
SHARES = {
    "no_filter": 30, "one_filter": 45, "two_filters": 40, "three_filters": 35, "four_filters": 30, "category": 25,
    "common_word": 30, "middling_word": 45, "rare_word": 35, "phrase": 40, "two_words": 30, "more_words": 30,
    "word_and_filter": 35, "deep_page": 25, "question": 25,
}  # fmt: skip
# Queries without words, for which every participant must give the same totals, counts and pages.
FILTER_ONLY = frozenset({"no_filter", "one_filter", "two_filters", "three_filters", "four_filters", "category"})
# First pages of queries with words alone.
KEYWORDS = frozenset({"common_word", "middling_word", "rare_word", "phrase", "two_words", "more_words", "question"})
# Outside the log: first pages after a change, when nothing is cached.
AFTER_CHANGE = "after_change"
_AFTER_CHANGES = 10
SAMPLED_RECORDS = 2_000
_DEEP_PAGES = (10, 40)
_RUN_OF_WORDS = re.compile(r"(?<![\w.`-])[a-z]+(?: [a-z]+)+\b")
_FUNCTION_WORDS = frozenset(FUNCTION_WORDS)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One query of the log."""

    kind: str
    query: SearchQuery


@dataclass(frozen=True, slots=True)
class QueryLog:
    """All kinds in one shuffled order, queries to warm up with, and those for after a change."""

    entries: tuple[LogEntry, ...]
    warm_up: tuple[SearchQuery, ...]
    after_change: tuple[SearchQuery, ...]


def build_query_log(corpus: Corpus, sample: Sequence[Record], size: int, seed: int) -> QueryLog:
    """A log of `size` queries, distinct if the corpus has enough words."""
    rng = random.Random(f"{seed}/{corpus.size}/queries")
    maker = _Maker(corpus, sample, rng)
    seen: set[str] = set()
    entries: list[LogEntry] = []
    for kind, count in _counts(size).items():
        entries += [LogEntry(kind, query) for query in _distinct(maker.queries(kind), count, seen)]
    rng.shuffle(entries)
    filtered = [("q", maker.words.common[0]), ("type", "note"), ("page_size", "24")]
    first_pages = [[("page_size", "20"), ("page", str(n + 1))] for n in range(_AFTER_CHANGES)]
    warm_up = [[("page_size", "24")], filtered]
    return QueryLog(tuple(entries), *(tuple(map(SearchQuery.from_pairs, pairs)) for pairs in (warm_up, first_pages)))


def _counts(size: int) -> dict[str, int]:
    """The shares scaled to the size of the log: largest remainders rounded up, and at least one query of each kind."""
    exact = {kind: share * size / LOG_SIZE for kind, share in SHARES.items()}
    counts = {kind: max(1, int(wanted)) for kind, wanted in exact.items()}
    by_remainder = sorted(exact, key=lambda kind: counts[kind] - exact[kind])
    for kind in itertools.islice(itertools.cycle(by_remainder), max(0, size - sum(counts.values()))):
        counts[kind] += 1
    return counts


def _distinct(drawn: Iterator[Pairs], count: int, seen: set[str]) -> Iterator[SearchQuery]:
    # Random draws repeat themselves, so they get more tries than needed. A tiny corpus repeats queries in the end.
    repeats: list[SearchQuery] = []
    for pairs in itertools.islice(drawn, count * 20 + 100):
        # Keyword search is all that the other participants have.
        query = SearchQuery.from_pairs([*pairs, ("mode", Mode.KEYWORD)])
        key = query.querystring()
        if key in seen:
            repeats.append(query)
            continue
        seen.add(key)
        yield query
        count -= 1
        if not count:
            return
    yield from itertools.islice(itertools.cycle(repeats), count)


class _Maker:
    """Draws queries of every kind."""

    def __init__(self, corpus: Corpus, sample: Sequence[Record], rng: random.Random) -> None:
        self.corpus = corpus
        self.rng = rng
        # Memories that the default states hide are never found.
        self.sample = [record for record in sample if record["state"] in {"active", "proposed"}]
        named = corpus.named_words()
        # A corpus of a few hundred memories lacks words of some frequencies; rarer words replace them.
        rare = named.rare or tuple(corpus.vocabulary.content[40:200])
        self.words = NamedWords(named.common or rare, named.middling or rare, rare, named.phrases)
        self.makers: dict[str, Callable[[], Pairs]] = {
            "one_filter": lambda: self.filters(1),
            "two_filters": lambda: self.filters(2),
            "three_filters": lambda: self.filters(3),
            "four_filters": lambda: self.filters(4),
            "category": lambda: [("category", self.inner_category())],
            "phrase": self.phrase,
            "two_words": self.two_words,
            "more_words": self.more_words,
            "word_and_filter": lambda: [("q", self.frequent_word()), *self.filters(1)],
            "deep_page": self.deep_page,
            "question": self.question,
        }

    def queries(self, kind: str) -> Iterator[Pairs]:
        """Queries of a kind, more than needed and not all distinct."""
        match kind:
            case "no_filter":
                # Without filters and words only the page and the order differ.
                for page in itertools.count(1):
                    yield [("page", str(page))]
                    yield [("sort", "oldest"), ("page", str(page))]
                    yield [("page_size", "50"), ("page", str(page))]
            case "common_word" | "middling_word" | "rare_word":
                # Few words are common: after each of them by relevance, each by date.
                words = getattr(self.words, kind.removesuffix("_word"))
                for more in ([], [("sort", "newest")], [("sort", "oldest")]):
                    yield from ([("q", word), *more] for word in self.rng.sample(words, len(words)))
            case _:
                while True:
                    yield self.makers[kind]()

    def filters(self, count: int) -> Pairs:
        """Filters from one memory, so that something is found, and frequent values are frequent in the log."""
        facts = self.facts(self.rng.choice(self.sample))
        pairs: Pairs = []
        for key in self.rng.sample(sorted(facts), count):
            pairs += facts[key]
        return pairs

    def facts(self, record: Record) -> dict[str, Pairs]:
        rng = self.rng
        day = date.fromisoformat(record["created_at"][:10])
        # From a fortnight to half a year around the day.
        before, after = (timedelta(days=rng.randrange(7, 90)) for _ in range(2))
        facts: dict[str, Pairs] = {
            "project": [("project", record["project"])],
            "type": [("type", record["type"])],
            "tag": [("tag", rng.choice(record["tags"]))],
            "category": [("category", _slug_path(rng.choice(record["categories"])))],
            "source": [("source", record["source"])],
            "date": [("from", max(FIRST_DAY, day - before).isoformat()), ("to", (day + after).isoformat())],
        }
        if record["concepts"]:
            facts["concept"] = [("concept", rng.choice(record["concepts"]))]
        if record["entities"]:
            entity = rng.choice(record["entities"])
            facts["entity"] = [("entity", f"{entity['type']}:{entity['name']}")]
        if record["authors"]:
            facts["author"] = [("author", rng.choice(record["authors"]))]
        if "agent" in record:
            facts["agent"] = [("agent", record["agent"])]
        return facts

    def frequent_word(self) -> str:
        return self.rng.choice(self.words.common if self.rng.random() < 0.5 else self.words.middling)

    def two_words(self) -> Pairs:
        """A common word with another that is frequent enough for some memories to have both."""
        return [("q", f"{self.rng.choice(self.words.common)} {self.frequent_word()}")]

    def more_words(self) -> Pairs:
        """Three to five words of one memory, in any order."""
        while True:
            record = self.rng.choice(self.sample)
            words = list(dict.fromkeys(word for run in _runs(record) for word in run if word not in _FUNCTION_WORDS))
            if len(words) >= 3:
                count = self.rng.randint(3, min(5, len(words)))
                return [("q", " ".join(self.rng.sample(words, count)))]

    def phrase(self) -> Pairs:
        """Two or three consecutive words: a set phrase, or words of one memory."""
        if self.words.phrases and self.rng.random() < 0.5:
            return [("q", f'"{self.rng.choice(self.words.phrases)}"')]
        while True:
            runs = [run for run in _runs(self.rng.choice(self.sample)) if len(run) >= 2]
            if runs:
                run = self.rng.choice(runs)
                count = self.rng.randint(2, min(3, len(run)))
                at = self.rng.randrange(len(run) - count + 1)
                words = run[at : at + count]
                # Nobody searches for a phrase of stopwords only.
                if not _FUNCTION_WORDS.issuperset(words):
                    return [("q", f'"{" ".join(words)}"')]

    def inner_category(self) -> str:
        """A category of the upper levels, which people open most and which have the most descendants."""
        parents = [node for node in self.corpus.parents if node.depth <= 3]
        weights = [2.0 ** (3 - node.depth) for node in parents]
        return _slug_path(self.rng.choices(parents, weights)[0].path)

    def deep_page(self) -> Pairs:
        """Pages 10 to 40 of all memories, or of those with a common word; fewer in a small corpus."""
        common = self.rng.random() < 0.5
        last = int(self.corpus.size * (0.09 if common else 0.9) / 25)
        first = min(_DEEP_PAGES[0], max(2, last // 2))
        page = ("page", str(self.rng.randint(first, max(first, min(_DEEP_PAGES[1], last)))))
        if common:
            return [("q", self.rng.choice(self.words.common)), page]
        return [page, *([("sort", "oldest")] if self.rng.random() < 0.5 else [])]

    def question(self) -> Pairs:
        words = [self.rng.choice(self.words.common), *self.rng.sample(self.words.middling, 2)]
        if self.rng.random() < 0.5:
            words.append(self.rng.choice(self.words.rare))
        self.rng.shuffle(words)
        return [("q", question(self.rng, words))]


def _slug_path(names: str) -> str:
    path = parse_path(names)
    if path is None:
        raise ValueError(f"{names!r} is not a category")
    return path.path


def _runs(record: Record) -> Iterator[list[str]]:
    """Runs of lower-case words with only a space between them."""
    return (found.group().split() for found in _RUN_OF_WORDS.finditer(record["content"]))

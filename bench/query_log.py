"""The log of queries that is measured: mixed, seeded, and drawn from what the generator can name."""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from bench.corpus import FIRST_DAY, Corpus, Record
from bench.vocabulary import FUNCTION_WORDS, NamedWords, question
from categories.paths import parse_path
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
# Maximum number of each there are among five hundred.
SHARES = {
    "no_filter": 30, "one_filter": 45, "two_filters": 40, "three_filters": 35, "four_filters": 30, "category": 25,
    "common_word": 30, "middling_word": 45, "rare_word": 35, "phrase": 40, "two_words": 30, "more_words": 30,
    "word_and_filter": 35, "deep_page": 25, "question": 25,
}  # fmt: skip
# What is asked without words: every participant must give the same totals, counts and pages there.
FILTER_ONLY = frozenset({"no_filter", "one_filter", "two_filters", "three_filters", "four_filters", "category"})
# Words and nothing else, on the first page.
KEYWORDS = frozenset({"common_word", "middling_word", "rare_word", "phrase", "two_words", "more_words", "question"})
# Beside the log: first pages just after something was changed, when nothing is kept.
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
    """All kinds in one shuffled order; beside it a few queries to warm up with, and those for after a change."""

    entries: tuple[LogEntry, ...]
    warm_up: tuple[LogEntry, ...]
    after_change: tuple[LogEntry, ...]


def build_query_log(corpus: Corpus, sample: Sequence[Record], size: int, seed: int) -> QueryLog:
    """A log of `size` queries, distinct as long as the corpus has the words for it."""
    draw = random.Random(f"{seed}/{corpus.size}/queries")
    maker = _Maker(corpus, sample, draw)
    seen: set[str] = set()
    entries: list[LogEntry] = []
    for kind, count in _counts(size).items():
        entries += [LogEntry(kind, query) for query in _distinct(maker.queries(kind), count, seen)]
    draw.shuffle(entries)
    filtered = [("q", maker.words.common[0]), ("type", "note"), ("page_size", "24")]
    warm_up = [LogEntry("warm_up", SearchQuery.from_pairs(pairs)) for pairs in ([("page_size", "24")], filtered)]
    after = (SearchQuery.from_pairs([("page_size", "20"), ("page", str(n + 1))]) for n in range(_AFTER_CHANGES))
    return QueryLog(tuple(entries), tuple(warm_up), tuple(LogEntry(AFTER_CHANGE, query) for query in after))


def _counts(size: int) -> dict[str, int]:
    """The shares scaled to a log of another size, with the largest remainders rounded up, and one of each kind."""
    exact = {kind: share * size / LOG_SIZE for kind, share in SHARES.items()}
    counts = {kind: max(1, int(wanted)) for kind, wanted in exact.items()}
    by_remainder = sorted(exact, key=lambda kind: counts[kind] - exact[kind])
    for kind in itertools.islice(itertools.cycle(by_remainder), max(0, size - sum(counts.values()))):
        counts[kind] += 1
    return counts


def _distinct(drawn: Iterator[Pairs], count: int, seen: set[str]) -> Iterator[SearchQuery]:
    # Chance repeats itself: it is given more tries than it should need. What a tiny corpus cannot give, it repeats.
    repeats: list[SearchQuery] = []
    for pairs in itertools.islice(drawn, count * 20 + 100):
        # Nothing is embedded here, and no other participant looks by meaning.
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
        """More of a kind than there can be need for, not all of them distinct."""
        match kind:
            case "no_filter":
                # With nothing asked, only the page and the order can differ.
                for page in itertools.count(1):
                    yield [("page", str(page))]
                    yield [("sort", "oldest"), ("page", str(page))]
                    yield [("page_size", "50"), ("page", str(page))]
            case "common_word" | "middling_word" | "rare_word":
                # Few words are common: once each of them was asked for, the newest memories with it are.
                words = getattr(self.words, kind.removesuffix("_word"))
                for more in ([], [("sort", "newest")], [("sort", "oldest")]):
                    yield from ([("q", word), *more] for word in self.draw.sample(words, len(words)))
            case _:
                while True:
                    yield self.makers[kind]()

    def filters(self, count: int) -> Pairs:
        """Facts of one memory, so that something is found, and frequent values are asked for frequently."""
        facts = self.facts(self.draw.choice(self.sample))
        pairs: Pairs = []
        for key in self.draw.sample(sorted(facts), count):
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
        """A common word with one that is frequent enough for some memories to have both."""
        return [("q", f"{self.draw.choice(self.words.common)} {self.frequent_word()}")]

    def more_words(self) -> Pairs:
        """Three to five words of one memory, as somebody remembers them."""
        while True:
            record = self.draw.choice(self.sample)
            words = list(dict.fromkeys(word for run in _runs(record) for word in run if word not in _FUNCTION_WORDS))
            if len(words) >= 3:
                count = self.draw.randint(3, min(5, len(words)))
                return [("q", " ".join(self.draw.sample(words, count)))]

    def phrase(self) -> Pairs:
        """Two or three words that stand in a row: a set phrase, or what one memory says."""
        if self.words.phrases and self.draw.random() < 0.5:
            return [("q", f'"{self.draw.choice(self.words.phrases)}"')]
        while True:
            runs = [run for run in _runs(self.draw.choice(self.sample)) if len(run) >= 2]
            if runs:
                run = self.draw.choice(runs)
                count = self.draw.randint(2, min(3, len(run)))
                at = self.draw.randrange(len(run) - count + 1)
                words = run[at : at + count]
                # Only of stopwords nobody makes a phrase.
                if not _FUNCTION_WORDS.issuperset(words):
                    return [("q", f'"{" ".join(words)}"')]

    def inner_category(self) -> str:
        """The upper levels are what people open, and what has the most below it."""
        parents = [node for node in self.corpus.parents if node.depth <= 3]
        weights = [2.0 ** (3 - node.depth) for node in parents]
        return _slug_path(self.draw.choices(parents, weights)[0].path)

    def deep_page(self) -> Pairs:
        """Pages 10 to 40 of all memories, or of those with a common word; in a small corpus as far as there are any."""
        common = self.draw.random() < 0.5
        last = int(self.corpus.size * (0.09 if common else 0.9) / 25)
        first = min(_DEEP_PAGES[0], max(2, last // 2))
        page = ("page", str(self.draw.randint(first, max(first, min(_DEEP_PAGES[1], last)))))
        if common:
            return [("q", self.draw.choice(self.words.common)), page]
        return [page, *([("sort", "oldest")] if self.draw.random() < 0.5 else [])]

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


def _runs(record: Record) -> Iterator[list[str]]:
    """The words that stand in a row in a text, with nothing but a blank between them, all in small letters."""
    return (found.group().split() for found in _RUN_OF_WORDS.finditer(record["content"]))

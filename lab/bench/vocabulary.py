"""Invented words with the frequencies of real ones, so that a query log can choose common, middling and rare words.

It knows ranks, probabilities and the expected number of memories of a word, and nothing of records.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Frequent words that are in every index, and that nobody searches for.
_FUNCTION_WORDS = (
    "the of to and in is for that on with it as be are this by from not or an at was when if we which can has but all"
    " were will so there been do its more they their no into than only then would these should after out them where up"
    " any other because does some have before our those about what over just how each between both while through during"
    " under very too most own same further once"
)
FUNCTION_WORDS = tuple(_FUNCTION_WORDS.split())
_QUESTION_WORDS = ("how do we", "what is the", "why does the", "where is the", "when was the", "which is our")

_ONSETS = (*"bdfghklmnprstvwz", "br", "dr", "gr", "kr", "pl", "st", "tr")
_VOWELS = "aeiou"
# Endings that no English stemmer removes, so that a word is its own stem.
_ENDINGS = {"a": "kpbgmnd", "o": "kpbgmd", "u": "kpbgm", "e": "kpb", "i": "kpb"}
_CODAS = tuple(v + c for v, consonants in _ENDINGS.items() for c in consonants)
_SUFFIXES = ("s", "ing", "ed")
_NOT_INFLECTED = frozenset(FUNCTION_WORDS)

# Zipf-Mandelbrot for content words: the shift flattens the head, so that none is in half of all texts.
_EXPONENT = 1.12
_SHIFT = 12.0
_CONTENT_SHARE = 0.62

COMMON_SHARE = (0.10, 0.30)
MIDDLING_SHARE = (0.007, 0.014)
RARE_MEMORIES = (18.0, 36.0)
_NAMED = 400


def invented_words(rng: random.Random, taken: set[str]) -> Iterator[str]:
    """Distinct pronounceable words, short ones first, as the frequent words of a language are."""
    for n in itertools.count():
        syllables = 1 if n < 300 else rng.choice((1, 2)) if n < 5_000 else 2
        while True:
            body = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables))
            word = body + rng.choice(_ONSETS) + rng.choice(_CODAS)
            if word not in taken:
                break
            syllables = 2 if len(taken) < 1_000_000 else 3
        taken.add(word)
        yield word


def cumulative(weights: Sequence[float]) -> list[float]:
    return list(itertools.accumulate(weights))


def zipf(count: int, exponent: float = 1.0, shift: float = 0.0) -> list[float]:
    """Cumulative weights of ranks 1 to `count`, as `random.choices` takes them."""
    return cumulative([(rank + shift) ** -exponent for rank in range(1, count + 1)])


@dataclass(frozen=True, slots=True)
class NamedWords:
    """Words by how many memories contain them, for the query log. Words of `phrases` are in no other group."""

    common: tuple[str, ...]
    middling: tuple[str, ...]
    rare: tuple[str, ...]
    phrases: tuple[str, ...]


class Vocabulary:
    """The words of a corpus: function words, then content words, the most frequent first."""

    def __init__(self, size: int, rng: random.Random, taken: set[str]) -> None:
        # Heaps' law: a larger text has more distinct words, at a falling rate.
        count = int(5 * (22 * max(size, 100)) ** 0.62)
        taken.update(FUNCTION_WORDS)
        words = invented_words(rng, taken)
        self.content = [next(words) for _ in range(count)]
        weights = [(rank + _SHIFT) ** -_EXPONENT for rank in range(1, count + 1)]
        scale = _CONTENT_SHARE / sum(weights)
        # The probability of each content word at any position of a text.
        self.shares = [weight * scale for weight in weights]
        function_weights = [1 / rank for rank in range(1, len(FUNCTION_WORDS) + 1)]
        scale = (1 - _CONTENT_SHARE) / sum(function_weights)
        self._words = [*FUNCTION_WORDS, *self.content]
        self._cumulative = cumulative([*(weight * scale for weight in function_weights), *self.shares])
        # Pairs of words of similar frequency are set phrases.
        low, high = min(60, count // 4), min(1_200, count // 2)
        partners = rng.sample(range(low, high), min(240, (high - low) // 4 * 2))
        self._in_phrases = frozenset(partners)
        pairs = zip(partners[::2], partners[1::2], strict=True)
        self.phrases = tuple(f"{self.content[first]} {self.content[second]}" for first, second in pairs)
        self._phrase_weights = zipf(len(self.phrases), 0.7)

    def draw_text(self, rng: random.Random, count: int) -> list[str]:
        """Consecutive words, about one in eight of them inflected, with a set phrase in half of the texts."""
        words = rng.choices(self._words, cum_weights=self._cumulative, k=count)
        for place in range(rng.randrange(8), count, 8):
            if words[place] not in _NOT_INFLECTED:
                words[place] += rng.choice(_SUFFIXES)
        if count > 5 and rng.random() < 0.5:
            words[rng.randrange(1, count)] = rng.choices(self.phrases, cum_weights=self._phrase_weights)[0]
        return words

    def named(self, size: int, lengths: Sequence[int]) -> NamedWords:
        """Choose words by the expected share of memories that contain them, given the lengths of memories in words."""
        common, middling, rare = [], [], []
        expected = float(size)
        for rank, (word, share) in enumerate(zip(self.content, self.shares, strict=True)):
            if rank in self._in_phrases:
                continue
            # The expectation falls with the rank, so every eighth word of the tail is enough.
            if rank < 400 or rank % 8 == 0:
                expected = size * sum(1 - (1 - share) ** n for n in lengths) / len(lengths)
            if expected < RARE_MEMORIES[0] / 2:
                break
            if COMMON_SHARE[0] * 1.05 * size <= expected <= COMMON_SHARE[1] * 0.95 * size:
                common.append(word)
            if MIDDLING_SHARE[0] * size <= expected <= MIDDLING_SHARE[1] * size:
                middling.append(word)
            if RARE_MEMORIES[0] <= expected <= RARE_MEMORIES[1]:
                rare.append(word)
        return NamedWords(tuple(common), tuple(middling), tuple(_spread(rare, _NAMED)), self.phrases)


def question(rng: random.Random, words: Sequence[str]) -> str:
    """A question of five to eight words around three or four content words."""
    opening = rng.choice(_QUESTION_WORDS)
    if len(words) == 3:
        return f"{opening} {words[0]} {words[1]} {rng.choice(('for', 'with', 'after'))} {words[2]}"
    return f"{opening} {words[0]} {words[1]} {words[2]} {words[3]}"


def _spread(words: list[str], most: int) -> list[str]:
    return words if len(words) <= most else words[:: len(words) // most][:most]

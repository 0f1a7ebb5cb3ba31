"""The key phrases of a text, by YAKE, in the form that tells the same phrase from another one. Pure.

A phrase is known by the stems of its words. What type of concept it would be is told from how it is spelt:

- `identifier`: what texts have as code, a path, a flag, a dotted or an underscored name, `camelCase`;
- `technology`: what is written with capitals within a sentence, an acronym, a name with digits;
- `thematic`: plain words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from yake_rust import Yake

from search.analysis import STOPWORDS, TOKEN, analyse_token, fold

IDENTIFIER, TECHNOLOGY, THEMATIC = "identifier", "technology", "thematic"

# Of each text so many phrases are looked at, and so much of it is read.
MOST_PHRASES = 12
_READ = 20_000
_MOST_WORDS = 3
_LONGEST = 60
_SHORTEST = 3

# YAKE's own stop words are those of a two-letter code; a language that it has none for is read with the English ones.
_CODES = {
    "arabic": "ar", "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr", "german": "de",
    "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "italian": "it", "lithuanian": "lt",
    "norwegian": "no", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es", "swedish": "sv",
    "turkish": "tr",
}  # fmt: skip
_IDENTIFIER = re.compile(r"[_/:\\()<>=$@#]|\.(?=\w)|^-|^[a-z]+[A-Z][a-z]")
_QUOTED = re.compile(r"`([^`\n]+)`")
_URL = re.compile(r"https?://\S+|www\.\S+")
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"[`*>|]+|^#{1,6}\s|\[([^\]]*)\]\([^)]*\)", re.MULTILINE)
# Words that a phrase may neither begin nor end with: what was done, and not to what.
_WORDS_DONE = """
    add added adding adds allow allowed allows avoid breaking change changed changes check create created default do
    ensure example faster fix fixed fixes handle handling improve improved issue latest longer made make makes
    multiple new now patch propose proposed proposes provide provided raise raised raises raising remove removed
    removes rename slower support supported supports throw throwing throws times update updated updates use used
    uses using via wa way
"""
_DONE = frozenset(_WORDS_DONE.split())


@dataclass(frozen=True, slots=True)
class Phrase:
    """A key phrase: what it is known by, how it is written, and its place among those of its text, 0 the first."""

    key: str
    text: str
    rank: int
    is_quoted: bool = False
    """Whether the text has it as code, between backticks."""
    is_name: bool = False
    """Whether the text has it with a capital within a sentence."""


def key_phrases(title: str, content: str, language: str) -> list[Phrase]:
    """The key phrases of a text, the most telling first, each once whatever its forms."""
    text = f"{title}.\n\n{_plain(content[:_READ])}" if title else _plain(content[:_READ])
    quoted = {code.removesuffix("()") for code in _QUOTED.findall(f"{title}\n{content[:_READ]}")}
    found: dict[str, Phrase] = {}
    for spelt, _ in _extractor(_CODES.get(language, "en")).get_n_best(text, n=3 * MOST_PHRASES):
        phrase = " ".join(spelt.split())
        key = phrase_key(phrase, language)
        if key and key not in found and _says_something(phrase, key) and _stands_whole(phrase, text):
            found[key] = Phrase(key, phrase, len(found), phrase in quoted, _is_name(phrase, text))
        if len(found) == MOST_PHRASES:
            break
    return list(found.values())


def phrase_key(phrase: str, language: str) -> str:
    """What a phrase is known by: the stems of its words, whatever their case and endings."""
    return " ".join(stem for token in TOKEN.finditer(phrase) for stem in _stem(token.group(), language))


def concept_type(phrase: str, is_quoted: bool = False, is_name: bool = False) -> str:
    """What type of concept a phrase would be, by its spelling, and whether texts have it as code or as a name."""
    words = phrase.split()
    if is_quoted or (len(words) == 1 and _IDENTIFIER.search(phrase)):
        return IDENTIFIER
    if any(word[1:] != word[1:].lower() or any(c.isdigit() for c in word) for word in words):
        return TECHNOLOGY
    # One capital alone may only be that of a sentence.
    if is_name or (all(word[:1].isupper() for word in words) and len(words) > 1):
        return TECHNOLOGY
    return THEMATIC


def spans(text: str, language: str, most_words: int) -> Iterator[tuple[str, int, int]]:
    """Every run of words of a text, up to so many, as the key it would be known by, and where it stands."""
    tokens = [(one.start(), one.end(), _stem(one.group(), language)) for one in TOKEN.finditer(text[:_READ])]
    for at in range(len(tokens)):
        stems: list[str] = []
        for _, end, more in tokens[at : at + most_words]:
            stems += more
            yield " ".join(stems), tokens[at][0], end


def _stem(token: str, language: str) -> list[str]:
    """What symbols hold together stands for itself; a hyphen may as well be a space."""
    raw = analyse_token(token, language)
    return [raw.whole] if raw.whole and not raw.hyphenated else list(raw.parts)


@lru_cache(maxsize=16)
def _extractor(code: str) -> Yake:
    return Yake(language=code, ngrams=_MOST_WORDS, remove_duplicates=False)


def _plain(text: str) -> str:
    """Markdown without its marks, its blocks of code and its addresses."""
    return _MARKUP.sub(r" \1 ", _URL.sub(" ", _FENCED.sub(" ", text)))


def _stands_whole(phrase: str, text: str) -> bool:
    """Whether a text has a phrase by itself: YAKE parts names at underscores, and `PyBytes_Decode` is no `PyBytes`."""
    words = r"\W+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", text) is not None


def _is_name(phrase: str, text: str) -> bool:
    """Whether a text has a phrase with a capital where no sentence begins."""
    return phrase[:1].isupper() and re.search(rf"[a-z,;] {re.escape(phrase)}\b", text) is not None


def _says_something(phrase: str, key: str) -> bool:
    words = fold(phrase).split()
    if not _SHORTEST <= len(phrase) <= _LONGEST or not any(c.isalpha() for c in phrase):
        return False
    if words[0] in _DONE or words[-1] in _DONE or any(word in STOPWORDS["english"] for word in words):
        return False
    return not all(stem.isdigit() for stem in key.split())

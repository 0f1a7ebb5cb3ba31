"""Marks texts that may steer a language model which reads them: orders to it, hidden characters, long opaque blobs.

Rules, not a model: they find what people write when they address a model in a text, in eighteen languages, also when it
is spelt to be overlooked. A text without a mark is not thereby safe, and one with a mark may be harmless: somebody who
reads it decides. Each rule has a weight, and a text is marked from a sum of `_ENOUGH`. No database.
"""

import base64
import binascii
import html
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import re2

RULES = 1
"""Raised with every change to the rules: stored memories are then looked through again."""


class Mark(StrEnum):
    """Why a text is marked."""

    ORDERS = "orders"
    HIDDEN = "hidden"
    OPAQUE = "opaque"


WORDS_OF = {
    Mark.ORDERS: "gives orders to a model",
    Mark.HIDDEN: "hides characters",
    Mark.OPAQUE: "carries a long opaque blob",
}


def marks_text(marks: Iterable[str]) -> str:
    """Why something is marked, such as “gives orders to a model and hides characters”."""
    return " and ".join(WORDS_OF[Mark(mark)] for mark in marks)


_ENOUGH = 4
# Characters of a part of a text, in which rules count together, and those that it shares with the next part.
_PART, _OVERLAP = 900, 300
_MOST_PHRASES = 5
# Bytes that the automaton of the rules may take; few texts need more than a tenth.
_MEMORY = 64 * 2**20


def marks_of(texts: Iterable[str]) -> tuple[Mark, ...]:
    """The marks of the fields of a memory, or of any texts that a model reads together."""
    # A lone surrogate, which nothing can encode, hides nothing.
    whole = "\n".join(filter(None, texts)).encode(errors="replace").decode()
    found = set()
    if not whole.isascii() and _hides(whole):
        found.add(Mark.HIDDEN)
    blobs = list(_blobs(whole)) if any(len(word) >= _SHORT_BLOB for word in whole.split()) else []
    if any(len(blob) >= _LONG_BLOB for blob in blobs):
        found.add(Mark.OPAQUE)
    if _orders(whole) or any(_orders(text) for blob in blobs if (text := _decode_base64(blob))):
        found.add(Mark.ORDERS)
    return tuple(mark for mark in Mark if mark in found)


def phrases_of(text: str) -> list[str]:
    """The first phrases of a text for which it is marked, in lower case and with one space between words."""
    rules = _rules()
    plain = next((part for part in _windows_of(_as_words(text)) if _weight(part) >= _ENOUGH), "")
    found = [re.search(rules.patterns[number], plain) for number in rules.find_matching(plain)]
    turns = [_TURNS.search(text.lower())]
    return [match.group().strip(" .,:;!?/") for match in (*found, *turns) if match][:_MOST_PHRASES]


# --- hidden characters ------------------------------------------------------------------------------------------------

# Characters that nobody sees. Joiners (200C, 200D) and the marks of direction (200E, 200F) have their place in scripts
# that need them; a few zero-width spaces come with text that was copied from web pages.
_TAGS = re.compile("[\U000e0000-\U000e007f]+")
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{1,6}\U000e007f")
_OVERRIDE = re.compile("[\u202d\u202e]")
_UNSEEN = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
# An encoded message is a run of them; a word that is cut by them has letters on both sides.
_RUN = re.compile(
    "[\u200b-\u200f\u2060-\u2064\u206a-\u206f\ufeff\u180e\u3164]{4,}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,}"
)
_CUT_WORD = re.compile("(?:[A-Za-z][\u200b\u2060-\u2064\ufeff\u00ad\u034f\u180e]){2,}[A-Za-z]")


def _hides(text: str) -> bool:
    text = _FLAG.sub("", text)
    return any(rule.search(text) for rule in (_TAGS, _OVERRIDE, _RUN, _CUT_WORD))


# --- opaque blobs -----------------------------------------------------------------------------------------------------

_BLOB = re2.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}|(?:[A-Za-z0-9+/]{60,76}\r?\n){3,}[A-Za-z0-9+/]*={0,2}")
_SHORT_BLOB, _LONG_BLOB = 40, 300
# A path, an address or a ruled line has not all three.
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])", re.DOTALL)


def _blobs(text: str) -> Iterator[str]:
    """The runs of base64, base64url or hexadecimal digits in a text."""
    for found in _BLOB.finditer(text):
        blob = found.group()
        if _MIXED.match(blob) or (len(blob) >= _LONG_BLOB and re.fullmatch("[0-9a-fA-F]+", blob)):
            yield blob


def _decode_base64(blob: str) -> str:
    """The text that a blob encodes; empty if it is none."""
    plain = re.sub(r"\s", "", blob).replace("-", "+").replace("_", "/").rstrip("=")
    plain = plain[: len(plain) - 1 if len(plain) % 4 == 1 else len(plain)]
    try:
        text = base64.b64decode(plain + "=" * (-len(plain) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if text.isprintable() or "\n" in text else ""


# --- orders -----------------------------------------------------------------------------------------------------------

# Characters between a verb and its object, in other languages than English.
_NEAR = 70
# Characters in which its signs count together: a sentence or two.
_SENTENCES = 240
_RULES_FILE = Path(__file__).with_name("steering_rules.toml")

# Signs of where a turn of a conversation begins, as models are trained on them.
_TURN_SIGNS = (
    "<|",
    "inst]",
    "sys>>",
    "<system",
    "</system",
    "<assistant",
    "</assistant",
    "[system",
    "[admin",
    "[developer",
)
_TURNS = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id)\|?>|\[/?inst\]|<</?sys>>"
    r"|</?(?:system|system[-_ ](?:reminder|prompt|message|instructions?|override)|assistant[-_ ]instructions?)>"
    r"|\[(?:system(?: (?:message|override|note|notice|update))?|admin override|developer mode)\]"
)
_ESCAPED = re.compile(r"%([2-7][0-9a-fA-F])|\\u00([2-7][0-9a-fA-F])")
# Signs that no pattern has are spaces, and those that some have do not belong to words.
_SIGNS = str.maketrans(
    dict.fromkeys('_-#*`~^=+&\\"()[]{}<>|%$\t\r\n\f\v\u00a0«»„“”‘–—·•…、。「」『』“”（）【】《》', " ")
)
_PUNCTUATION = str.maketrans(dict.fromkeys(".,:;!?/'", " ") | {"@": " @ ", "!": " ! "})
_LATIN_MARKS = re.compile("[\u0300-\u036f]")
# Cyrillic and Greek letters that look like Latin ones, in words that have both.
_LOOKALIKES = str.maketrans("аеорсухіїјѕһԁԛԝвнкмтιοαενρτυκηωѵɡɑ", "aeopcyxiijshdqwbhkmtioaevptukhwvga")
_MIXED_LETTERS = re.compile(
    "[a-z][\u0370-\u03ff\u0400-\u052f\u0250-\u02af]|[\u0370-\u03ff\u0400-\u052f\u0250-\u02af][a-z]"
)
_LETTERS = re.compile(r"\w+")
# Words whose letters are apart or replaced by digits, as those write who wish to be overlooked.
_SPACED = re2.compile(r"\b[a-z](?:[ .,][a-z]){4,}\b")
_BETWEEN = re.compile("[ .,]")
_DIGITS = str.maketrans("013457", "oieast")
_DIGIT_IN_WORD = re2.compile(r"\b[013457]?[a-z]+(?:[013457]{1,2}[a-z]+)+[013457]?\b|\b[013457][a-z]{3,}\b")
_MANY_DIGITS = 2


def _orders(text: str) -> bool:
    if _has_turn(text.lower()):
        return True
    plain = _as_words(text)
    return any(_weight(part) >= _ENOUGH for spelling in (plain, *_spellings(plain)) for part in _windows_of(spelling))


def _windows_of(plain: str) -> Iterator[str]:
    """The parts of a text in each of which rules count together."""
    for begin in range(0, max(1, len(plain) - _OVERLAP), _PART - _OVERLAP):
        yield plain[begin : begin + _PART]


def _has_turn(lowered: str) -> bool:
    return any(sign in lowered for sign in _TURN_SIGNS) and _TURNS.search(lowered) is not None


def _spellings(plain: str) -> Iterator[str]:
    """A text as it may be meant, where words are spelt with digits or with their letters apart."""
    if len(_DIGIT_IN_WORD.findall(plain)) >= _MANY_DIGITS:
        yield plain.translate(_DIGITS)
    if _SPACED.search(plain):
        yield _SPACED.sub(lambda found: _BETWEEN.sub("", found.group()), plain)


def _as_words(text: str) -> str:
    """A text as the rules read it: lower case, without accents and lookalikes, its words apart by one space."""
    if "&#" in text:
        text = html.unescape(text)
    if "%20" in text or "\\u00" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
    text = text.lower()
    if not text.isascii():
        text = "".join(chr(ord(one) - 0xE0000) if 0xE0020 <= ord(one) <= 0xE007E else one for one in text)
        text = unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)).lower()
        text = unicodedata.normalize("NFC", _LATIN_MARKS.sub("", text)).replace("’", "'")
        # Not in one pattern, which would start again at each letter of a long word.
        if _MIXED_LETTERS.search(text):
            text = _LETTERS.sub(_without_lookalikes, text)
    return " ".join(text.translate(_SIGNS).split()).replace("// ", "")


def _without_lookalikes(found: "re.Match[str]") -> str:
    word = found.group()
    return word.translate(_LOOKALIKES) if _MIXED_LETTERS.search(word) else word


def _weight(plain: str) -> int:
    rules = _rules()
    weight = sum(rules.weights[number] for number in rules.find_matching(plain))
    numbers: list[int] | None = rules.of_languages.Match(plain) if weight < _ENOUGH else None
    if not numbers:
        return weight
    words = set(plain.translate(_PUNCTUATION).split())
    languages = [rules.languages[number] for number in numbers]
    return weight + max([0, *(one.weight(plain) for one in languages if one.is_of(plain, words))])


@dataclass(frozen=True, slots=True)
class _Language:
    """The words of a language in which people address a model."""

    common: frozenset[str]
    disregard: tuple[str, ...]
    instructions: tuple[str, ...]
    send: tuple[str, ...]
    secrets: tuple[str, ...]
    single: tuple[tuple[str, ...], ...]
    """`hush`, `model`, `always` and `answer`."""

    @property
    def any_word(self) -> str:
        """A pattern for texts that have a word of its lists."""
        words = (*self.disregard, *self.send, *(word for words in self.single for word in words))
        return "|".join(map(re2.escape, words))

    def is_of(self, plain: str, words: set[str]) -> bool:
        """Whether a text may be of this language: it has two common words of it, or another script than Latin."""
        if not self.common:
            return not plain.isascii()
        return len(self.common & words) >= 2

    def weight(self, plain: str) -> int:
        return max(self._weight_of(plain[at : at + _SENTENCES]) for at in range(0, len(plain), _SENTENCES // 2))

    def _weight_of(self, plain: str) -> int:
        weight = 6 if _near(plain, self.disregard, self.instructions) else 0
        weight += 2 * _near(plain, self.send, self.secrets)
        return weight + 2 * sum(any(word in plain for word in words) for words in self.single)


def _near(plain: str, words: Iterable[str], others: Iterable[str]) -> bool:
    """Whether one of the words has one of the others near it."""
    for word in words:
        at = plain.find(word)
        while at >= 0:
            around = plain[max(0, at - _NEAR) : at + len(word) + _NEAR]
            if any(other in around for other in others):
                return True
            at = plain.find(word, at + len(word))
    return False


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of the file: patterns, each with its weight, and languages."""

    patterns: tuple[str, ...]
    weights: tuple[int, ...]
    together: Any
    """All patterns as one automaton."""
    languages: tuple[_Language, ...]
    of_languages: Any
    """The words of each language as one automaton."""

    def find_matching(self, plain: str) -> list[int]:
        """The numbers of the patterns that a text has."""
        return sorted(self.together.Match(plain) or ())


@cache
def _rules() -> _Rules:
    read = tomllib.loads(_RULES_FILE.read_text())
    words = {name: pattern.replace("\n", "") for name, pattern in read["words"].items()}
    patterns = tuple(_with_words(rule["pattern"], words) for rule in read["rule"])
    languages = tuple(_language(one) for one in read["language"])
    return _Rules(
        patterns=patterns,
        weights=tuple(rule["weight"] for rule in read["rule"]),
        together=_automaton(patterns),
        languages=languages,
        of_languages=_automaton(language.any_word for language in languages),
    )


def _automaton(patterns: Iterable[str]) -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    automaton = re2.Set.SearchSet(options)
    for pattern in patterns:
        automaton.Add(pattern)
    automaton.Compile()
    return automaton


def _with_words(pattern: str, words: Mapping[str, str]) -> str:
    for name, word in words.items():
        pattern = pattern.replace(f"{{{name}}}", word)
    return pattern.replace("\n", "")


def _language(one: Mapping[str, Sequence[str]]) -> _Language:
    lists = {name: tuple(_plain_word(word) for word in one.get(name, ())) for name in _LISTS}
    return _Language(
        common=frozenset(one.get("common", ())),
        disregard=lists["disregard"],
        instructions=lists["instructions"],
        send=lists["send"],
        secrets=lists["secrets"],
        single=tuple(lists[name] for name in ("hush", "model", "always", "answer")),
    )


_LISTS = ("disregard", "instructions", "send", "secrets", "hush", "model", "always", "answer")


def _plain_word(word: str) -> str:
    return _as_words(word) + (" " if word.endswith(" ") else "")

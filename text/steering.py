"""Marks texts that may steer a language model which reads them: orders to it, hidden characters, long opaque blobs.

Rules, not a model: they find what people write when they address a model in a text, in sixteen languages, also when it
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


_ENOUGH = 2
# The longest part of a text that is looked through at once, with what its neighbours share.
_PART, _OVERLAP = 20_000, 400
_MOST_PHRASES = 5


def marks_of(texts: Iterable[str]) -> tuple[Mark, ...]:
    """The marks of the fields of a memory, or of any texts that a model reads together."""
    whole = "\n".join(filter(None, texts))
    found = set()
    if not whole.isascii() and _hides(whole):
        found.add(Mark.HIDDEN)
    blobs = list(_blobs(whole)) if any(len(word) >= _SHORT_BLOB for word in whole.split()) else []
    if any(len(blob) >= _LONG_BLOB for blob in blobs):
        found.add(Mark.OPAQUE)
    if _orders(whole) or any(_orders(text) for blob in blobs if (text := _decoded(blob))):
        found.add(Mark.ORDERS)
    return tuple(mark for mark in Mark if mark in found)


def phrases_of(text: str) -> list[str]:
    """The first phrases of a text for which it is marked, in lower case and with one space between words."""
    plain = _as_words(text[:_PART])
    words = plain.translate(_PUNCTUATION).split()
    found = [match for pattern, _ in _rules().possible(set(words)) if (match := pattern.search(plain))]
    turns = [match for match in [_TURNS.search(text.lower())] if match]
    return [match.group().strip(" .,:;!?/") for match in (*found, *turns)][:_MOST_PHRASES]


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

_BLOB = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}|(?:[A-Za-z0-9+/]{60,76}\r?\n){3,}[A-Za-z0-9+/]*={0,2}")
_SHORT_BLOB, _LONG_BLOB = 40, 300
# A path, an address or a ruled line has not all three.
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])", re.DOTALL)


def _blobs(text: str) -> Iterator[str]:
    """The runs of base64, base64url or hexadecimal digits in a text."""
    for found in _BLOB.finditer(text):
        blob = found.group()
        if _MIXED.match(blob) or (len(blob) >= _LONG_BLOB and re.fullmatch("[0-9a-fA-F]+", blob)):
            yield blob


def _decoded(blob: str) -> str:
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
_TURN_WEIGHT = 2
_ESCAPED = re.compile(r"%([2-7][0-9a-fA-F])|\\u00([2-7][0-9a-fA-F])")
# Signs that no pattern has are spaces, and those that some have do not belong to words.
_SIGNS = str.maketrans(
    dict.fromkeys('_-#*`~^=+&\\"()[]{}<>|%$\t\r\n\f\v\u00a0«»„“”‘–—·•…、。「」『』“”（）【】《》', " ")
)
_PUNCTUATION = str.maketrans(dict.fromkeys(".,:;!?/'", " ") | {"@": " @ ", "!": " ! "})
_LATIN_MARKS = re.compile("[\u0300-\u036f]")
# Cyrillic and Greek letters that look like Latin ones, in words that have both.
_LOOKALIKES = str.maketrans("аеорсухіїјѕһԁԛԝвнкмтιοαενρτυκηωѵɡɑ", "aeopcyxiijshdqwbhkmtioaevptukhwvga")
_MIXED_WORD = re.compile(
    r"\w*(?:[a-z][\u0370-\u03ff\u0400-\u052f\u0250-\u02af]|[\u0370-\u03ff\u0400-\u052f\u0250-\u02af][a-z])\w*"
)
# Words whose letters are apart or replaced by digits, as those write who wish to be overlooked.
_SPACED = re.compile(r"\b[a-z](?:[ .,][a-z]){4,}\b")
_BETWEEN = re.compile("[ .,]")
_DIGITS = str.maketrans("013457", "oieast")
_DIGIT_IN_WORD = re.compile("[013457]?[a-z]+(?:[013457]{1,2}[a-z]+)*[013457]?")
_MANY_DIGITS = 2


def _orders(text: str) -> bool:
    step = _PART - _OVERLAP
    return any(_orders_in(text[at : at + _PART]) for at in range(0, max(1, len(text) - _OVERLAP), step))


def _orders_in(text: str) -> bool:
    plain = _as_words(text)
    words = plain.translate(_PUNCTUATION).split()
    turn = _TURN_WEIGHT if _has_turn(text.lower()) else 0
    if turn + _weight(plain, words, turn) >= _ENOUGH:
        return True
    return any(turn + _weight(other, other.split(), turn) >= _ENOUGH for other in _spellings(plain, words))


def _has_turn(lowered: str) -> bool:
    return any(sign in lowered for sign in _TURN_SIGNS) and _TURNS.search(lowered) is not None


def _spellings(plain: str, words: Sequence[str]) -> Iterator[str]:
    """A text as it may be meant, where words are spelt with digits or with their letters apart."""
    if len([1 for word in words if not word.isalpha() and _DIGIT_IN_WORD.fullmatch(word)]) >= _MANY_DIGITS:
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
        if not text.isascii():
            text = _MIXED_WORD.sub(lambda found: found.group().translate(_LOOKALIKES), text)
    return " ".join(text.translate(_SIGNS).split()).replace("// ", "")


def _weight(plain: str, words: Iterable[str], least: int) -> int:
    rules = _rules()
    weight, own = 0, set(words)
    languages = [one for one in rules.languages if one.is_of(plain, own)]
    possible = rules.possible(own)
    if not languages and least + sum(its_weight for _, its_weight in possible) < _ENOUGH:
        return 0
    for pattern, its_weight in possible:
        if pattern.search(plain):
            weight += its_weight
            if weight >= _ENOUGH:
                return weight
    return max([weight, *(weight + one.weight(plain) for one in languages)])


@dataclass(frozen=True, slots=True)
class _Language:
    """The words of a language in which people address a model."""

    common: frozenset[str]
    disregard: tuple[str, ...]
    instructions: tuple[str, ...]
    send: tuple[str, ...]
    secrets: tuple[str, ...]
    single: tuple[tuple[str, ...], ...]
    """`hush`, `model` and `always`."""

    def is_of(self, plain: str, words: set[str]) -> bool:
        """Whether a text may be of this language: it has two common words of it, or another script than Latin."""
        if not self.common:
            return not plain.isascii()
        return len(self.common & words) >= 2

    def weight(self, plain: str) -> int:
        weight = 3 if _near(plain, self.disregard, self.instructions) else 0
        weight += _near(plain, self.send, self.secrets)
        return weight + sum(any(word in plain for word in words) for words in self.single)


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
    """The rules of the file. Each group of stems has a bit: a rule is possible where all its bits are set."""

    patterns: tuple[tuple[int, re.Pattern[str], int], ...]
    """(bits, pattern, weight), the heaviest first."""
    bits: Mapping[str, int]
    """By the beginning of a word."""
    languages: tuple[_Language, ...]

    def possible(self, words: set[str]) -> list[tuple[re.Pattern[str], int]]:
        """The rules that may apply to a text of these words; none if they weigh too little together."""
        found = 0
        for head in ({word[:5] for word in words} | {word[:4] for word in words}) & self.bits.keys():
            found |= self.bits[head]
        return [(pattern, weight) for bits, pattern, weight in self.patterns if bits & found == bits]


@cache
def _rules() -> _Rules:
    read = tomllib.loads(_RULES_FILE.read_text())
    words = {name: re.sub(r"\n\s*", "", pattern) for name, pattern in read["words"].items()}
    known: dict[str, int] = {}
    patterns, bit = [], 1
    for rule in sorted(read["rule"], key=lambda rule: -rule["weight"]):
        bits = 0
        for group in rule["stems"]:
            for stem in group.split():
                known[stem[:5]] = known.get(stem[:5], 0) | bit
            bits, bit = bits | bit, bit << 1
        patterns.append((bits, _compile_pattern(rule["pattern"], words), rule["weight"]))
    return _Rules(tuple(patterns), known, tuple(_language(one) for one in read["language"]))


def _compile_pattern(pattern: str, words: Mapping[str, str]) -> re.Pattern[str]:
    for name, word in words.items():
        pattern = pattern.replace(f"{{{name}}}", word)
    return re.compile(re.sub(r"\n(?=\S)|\n(?= )", "", pattern))


def _language(one: Mapping[str, Sequence[str]]) -> _Language:
    lists = {name: tuple(_plain_word(word) for word in one.get(name, ())) for name in _LISTS}
    return _Language(
        common=frozenset(one.get("common", ())),
        disregard=lists["disregard"],
        instructions=lists["instructions"],
        send=lists["send"],
        secrets=lists["secrets"],
        single=(lists["hush"], lists["model"], lists["always"]),
    )


_LISTS = ("disregard", "instructions", "send", "secrets", "hush", "model", "always")


def _plain_word(word: str) -> str:
    return _as_words(word) + (" " if word.endswith(" ") else "")

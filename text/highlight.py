"""Snippets, highlights and titles: Markdown as plain text, matched spans, and the best excerpt."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from text.analysis import TOKEN, Pattern, analyse_token, fold

_KNOWN_TOKENS = 4_000
TITLE_LENGTH = 120

# A picture, which is no text.
_PICTURE = re.compile(
    r"!\[\[[^\[\]|\n]{1,500}\.(?:avif|bmp|gif|heic|jpe?g|mov|mp[34]|png|svg|webm|webp)(?:\|[^\[\]\n]*)?\]\]",
    re.IGNORECASE,
)


def _cells(row: re.Match[str]) -> str:
    """The cells of a row of a table; nothing of the line below its head."""
    return row[0].replace("|", " ") if row[0].strip(" \t\n|:-") else ""


# Substrings, a pattern and its replacement: patterns run only if one of the substrings occurs, which is fast to check.
# Every pattern starts with a literal character, which makes searches many times as fast; those for the beginning of a
# line start with the preceding line break.
_MARKDOWN: list[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (("```", "~~~"), re.compile(r"```[^\n]*\n?|~~~[^\n]*\n?"), " "),
    (("%%",), re.compile(r"%%(?<!\d%%)(?:[^%]|%(?!%))*+%%"), ""),
    (("![[",), _PICTURE, ""),
    (("[[",), re.compile(r"!?\[\[(?:[^\[\]|\n]{1,500}\|)?([^\[\]|#\n]{1,500})(?:#[^\[\]|\n]*)?\]\]"), r"\1"),
    (("](",), re.compile(r"!?\[([^\]]*)\]\((?:[^()\s]|\([^()]*\))*(?:\s+\"[^\"]*\")?\)"), r"\1"),
    (("",), re.compile(r"\n\s{0,3}(?:>[^\S\n]?|(?:#{1,6}|[-*+]|\d+[.)])(?:[^\S\n]+|(?=\n)))"), "\n"),
    (("[!", "[ ]", "[x]", "[X]"), re.compile(r"\n(?:\[![^\[\]\n]{1,60}\][+-]?|\[[ xX]\](?=\s))"), "\n"),
    (("|",), re.compile(r"\n[^\S\n]{0,3}\|[^\n]*"), _cells),
    (("==",), re.compile(r"==(?<![\w=]==)(?=[^\s=])([^=\n]+)(?<=[^\s=])==(?![\w=])"), r"\1"),
    (("**", "`", "~~"), re.compile(r"\*\*|`+|~~"), ""),
    (("*",), re.compile(r"\*(?:(?<![\w*]\*)(?=\S)|(?<=\S\*)(?![\w*]))"), ""),
]


def plain_text(markdown: str) -> str:
    """Markdown as plain text on a single line, for snippets."""
    text = f"\n{markdown}"
    for marks, pattern, replacement in _MARKDOWN:
        for mark in marks:
            if mark in text:
                text = pattern.sub(replacement, text)
                break
    return " ".join(text.split())


class MarkedText(NamedTuple):
    """A part of a snippet. `marked` is True if it matched."""

    text: str
    marked: bool


# A term or prefix, and whether it is a prefix.
_Searched = tuple[str, bool]


class _Matcher:
    """Finds the terms of patterns in the texts of a page. Tokens are cached: they recur, and most do not match."""

    def __init__(self, patterns: tuple[Pattern, ...], language: str) -> None:
        self.wanted = {pattern: _wanted(pattern) for pattern in patterns}
        self._language = language
        self._exact = {term for searched in self.wanted.values() for term, is_prefix in searched if not is_prefix}
        self._prefixes = {term for searched in self.wanted.values() for term, is_prefix in searched if is_prefix}
        self._begins = tuple(self._prefixes)
        # Tokens seen so far, with and without a match.
        self._hot: set[str] = set()
        self._cold: set[str] = set()

    def hot(self, tokens: list[str]) -> set[str]:
        """The raw tokens of a text that contain a searched term."""
        found = set(tokens)
        found -= self._cold
        if new := found - self._hot:
            searched = {token for token in new if self._matches(token)}
            if len(self._cold) >= _KNOWN_TOKENS:
                self._cold.clear()
            self._hot |= searched
            self._cold |= new - searched
            found -= new - searched
        return found

    def _matches(self, token: str) -> bool:
        # Called for every new token of every hit.
        for term, _ in analyse_token(token, self._language).terms:
            if term in self._exact or term.startswith(self._begins):
                return True
        return False

    def read(self, token: str) -> tuple[list[tuple[_Searched, int]], int]:
        """The searched terms in a raw token with their relative positions, and the token's number of positions."""
        raw = analyse_token(token, self._language)
        searched = [((term, False), offset) for term, offset in raw.terms if term in self._exact]
        begun = ((prefix, term, offset) for term, offset in raw.terms for prefix in self._prefixes)
        searched += [((prefix, True), offset) for prefix, term, offset in begun if term.startswith(prefix)]
        return searched, raw.width if raw.terms else 0


@lru_cache(maxsize=16)
def _matcher(patterns: tuple[Pattern, ...], language: str) -> _Matcher:
    return _Matcher(patterns, language)


def matched_spans(text: str, patterns: tuple[Pattern, ...], language: str) -> list[tuple[int, int]]:
    """The character spans of a text that match the patterns, in order, merged where they touch.

    Ignores fields: callers pass only patterns that may match in the text.
    """
    if not patterns or not text:
        return []
    matcher = _matcher(patterns, language)
    tokens = TOKEN.findall(text)
    # Most texts contain few of the words, and need no positions.
    hot = matcher.hot(tokens)
    if not hot:
        return []
    if not any(pattern.gaps for pattern in patterns):
        return _joined(_occurrences(text, tokens, hot))
    places: dict[_Searched, dict[int, tuple[int, int]]] = {}
    position = 0
    for token, span in _placed(text, tokens):
        hits, width = matcher.read(token)
        for searched, offset in hits:
            places.setdefault(searched, {})[position + offset] = span
        position += width
    spans: set[tuple[int, int]] = set()
    for pattern, (first, *rest) in matcher.wanted.items():
        for start, span in places.get(first, {}).items():
            found = [span]
            at = start
            for searched, gap in zip(rest, pattern.gaps, strict=True):
                at += gap
                if (following := places.get(searched, {}).get(at)) is None:
                    break
                found.append(following)
            else:
                spans.update(found)
    return _joined(spans)


def _occurrences(text: str, tokens: list[str], wanted: set[str]) -> set[tuple[int, int]]:
    spans: set[tuple[int, int]] = set()
    for token in wanted:
        # Where no longer token contains it, which is usual, there is no need to look for the tokens between.
        if not token.isalnum() or text.count(token) != tokens.count(token):
            return {span for token, span in _placed(text, tokens) if token in wanted}
        end = 0
        while (begin := text.find(token, end)) >= 0:
            end = begin + len(token)
            spans.add((begin, end))
    return spans


def _placed(text: str, tokens: list[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """The span of each token. Faster than matching the tokens again, since only non-letters are between them."""
    end = 0
    for token in tokens:
        begin = text.index(token, end)
        end = begin + len(token)
        yield token, (begin, end)


def _joined(spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, merged where they touch."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _wanted(pattern: Pattern) -> list[_Searched]:
    """The terms of a pattern, and whether each is a prefix."""
    last = len(pattern.terms) - 1
    return [(term, pattern.prefix and place == last) for place, term in enumerate(pattern.terms)]


def segments(text: str, spans: list[tuple[int, int]]) -> tuple[MarkedText, ...]:
    cuts: list[MarkedText] = []
    at = 0
    for start, end in spans:
        if start > at:
            cuts.append(MarkedText(text[at:start], False))
        cuts.append(MarkedText(text[start:end], True))
        at = end
    if at < len(text):
        cuts.append(MarkedText(text[at:], False))
    return tuple(cuts)


def snippet(text: str, spans: list[tuple[int, int]], length: int = 260) -> tuple[MarkedText, ...]:
    """An excerpt of about `length` characters around the densest matches, with matches marked."""
    if len(text) <= length:
        return segments(text, spans)
    begin = max(0, spans[_densest(text, spans, length * 4 // 5)][0] - length // 5) if spans else 0
    begin = _word_start(text, begin)
    end = _word_end(text, min(len(text), begin + length))
    inside = [(max(s, begin) - begin, min(e, end) - begin) for s, e in spans if s < end and e > begin]
    cut = segments(text[begin:end], inside)
    lead = (MarkedText("… ", False),) if begin else ()
    tail = (MarkedText(" …", False),) if end < len(text) else ()
    return (*lead, *cut, *tail)


def _densest(text: str, spans: list[tuple[int, int]], length: int) -> int:
    """The index of the span that starts the stretch of `length` characters with the most distinct words."""
    words = [fold(text[start:end]) for start, end in spans]
    best, most = 0, -1
    last = 0
    for first, (start, _) in enumerate(spans):
        while last < len(spans) and spans[last][1] <= start + length:
            last += 1
        if (distinct := len(set(words[first:last]))) > most:
            best, most = first, distinct
    return best


def _word_start(text: str, at: int) -> int:
    while 0 < at < len(text) and not text[at - 1].isspace() and at < len(text) - 1:
        at += 1
        if text[at - 1].isspace():
            return at
    return at


def _word_end(text: str, at: int) -> int:
    while at < len(text) and not text[at].isspace():
        at += 1
    return at


# Code, emphasis and links, each with its text. Only pairs count: "*args and **kwargs" is left alone.
_INLINE = re.compile(
    r"(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|(?<![\w*])(?P<stars>\*{1,3})(?=[^\s*])(?P<emphasis>.+?)(?<=[^\s*])(?P=stars)(?![\w*])"
    r"|!?\[\[(?:[^\[\]|]+\|)?(?P<wiki>[^\[\]|]+)\]\]"
    r"|(?<![\w=])==(?P<mark>[^\s=](?:[^=]*[^\s=])?)==(?![\w=])"
    r"|(?P<hidden>)%%(?<!\d%%)[^%]*+%%"
    r"|\A(?:>\s*)?(?P<callout>)\[![^\[\]]{1,60}\][+-]?\s*(?=\S)"
    r"|!?\[(?P<link>[^\]]+)\]\((?:[^()\s]|\([^()]*\))*\)"
)
_MARKS = re.compile(r"[`*\[=%]")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<text>\S.*)$", re.MULTILINE)
# Titles are a line; a longer text would take long to search for pairs.
_LONGEST = 1_000


def first_heading(text: str) -> str:
    """The text of the first heading in a text of Markdown; empty if there is none."""
    heading = _HEADING.search(text)
    return heading_text(heading["text"]) if heading else ""


def heading_text(line: str) -> str:
    """The text of a heading without the `#` that may close it: those of `C#` belong to the text."""
    text = line.strip()
    rest = text.rstrip("#")
    return rest.rstrip() if rest[-1:] in ("", " ", "\t") else text


def plain_title(title: str) -> str:
    """A title without the marks of inline Markdown."""
    return "".join(title[start:end] for start, end in _shown(title))


def plain_parts(parts: tuple[MarkedText, ...]) -> tuple[MarkedText, ...]:
    """A highlighted title without the marks of inline Markdown."""
    title = "".join(part.text for part in parts)
    if not _MARKS.search(title):
        return parts
    shown, kept, at = list(_shown(title)), [], 0
    for part in parts:
        text = "".join(_overlaps(title, shown, at, at + len(part.text)))
        at += len(part.text)
        if text:
            kept.append(MarkedText(text, part.marked))
    return tuple(kept)


def _overlaps(title: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> Iterator[str]:
    for first, last in spans:
        yield title[max(first, start) : min(last, end)] if max(first, start) < min(last, end) else ""


def _shown(title: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    end = len(title) if end is None else end
    if not start and (end > _LONGEST or not _MARKS.search(title)):
        yield start, end
        return
    at = start
    for match in _INLINE.finditer(title, start, end):
        yield at, match.start()
        inside = match.span(match.lastgroup or 0)
        if match["code"]:
            yield inside
        else:
            yield from _shown(title, *inside)
        at = match.end()
    yield at, end


def title_or_number(title: str, memory_id: int) -> str:
    """The title of a memory for lists and headings."""
    return plain_title(title) or f"Memory {memory_id}"


def cut_title(title: str) -> str:
    """A title as an index shows it."""
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1].rstrip() + "…"

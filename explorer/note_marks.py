"""Marks of notes that are not those of Markdown: callouts, task boxes, `==marked==` words and hidden `%%comments%%`."""

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_CALLOUT = re.compile(r"\[!(?P<kind>[^\[\]\n]{1,60})\][+-]?[ \t]*(?P<title>[^\n]*)(?:\n|\Z)")
_TASK = re.compile(r"\[(?P<done>[ xX])\][ \t]+(?=\S)")
_WORD = re.compile(r"[\w=]")
# Characters that are no letters of a kind of callout, such as those around highlighted words.
_NO_LETTERS = re.compile(r"[^\w -]+")


def add_note_marks(markdown: MarkdownIt) -> None:
    markdown.block.ruler.before("fence", "hidden_comment", _hidden_block, {"alt": ["paragraph"]})
    markdown.inline.ruler.before("emphasis", "hidden_comment", _hidden_text)
    markdown.inline.ruler.before("emphasis", "marked_text", _marked_text)
    markdown.core.ruler.before("inline", "callouts", _callouts)
    markdown.core.ruler.before("inline", "task_boxes", _task_boxes)
    markdown.core.ruler.push("empty_paragraphs", _empty_paragraphs)


def _text_of_line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _hidden_block(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """A comment of several lines. One that does not end is text."""
    first = _text_of_line(state, begin)
    if not first.startswith("%%") or "%%" in first[2:] or state.is_code_block(begin):
        return False
    last = next((number for number in range(begin + 1, end) if "%%" in _text_of_line(state, number)), None)
    if last is None or not _text_of_line(state, last).rstrip().endswith("%%"):
        return False
    if not silent:
        state.line = last + 1
    return True


def _hidden_text(state: StateInline, silent: bool) -> bool:
    end = state.src.find("%%", state.pos + 2) if state.src.startswith("%%", state.pos) else -1
    # A percentage is no comment.
    if not state.pos + 2 < end < state.posMax or state.src[state.pos - 1 : state.pos].isdigit():
        return False
    state.pos = end + 2
    return True


def _marked_text(state: StateInline, silent: bool) -> bool:
    begin = state.pos + 2
    end = state.src.find("==", begin) if state.src.startswith("==", state.pos) else -1
    inner = state.src[begin:end]
    # `a==b` is a comparison, and `package==1.0` a version.
    around = state.src[state.pos - 1 : state.pos] + state.src[end + 2 : end + 3]
    if not begin < end < state.posMax or inner != inner.strip(" \t\n=") or _WORD.search(around):
        return False
    if not silent:
        most = state.posMax
        state.push("mark_open", "mark", 1)
        state.pos, state.posMax = begin, end
        state.md.inline.tokenize(state)
        state.posMax = most
        state.push("mark_close", "mark", -1)
    state.pos = end + 2
    return True


def _callouts(state: StateCore) -> None:
    """Give quotes that begin with `[!kind] Title` a title, which else is the kind."""
    found: list[Token] = []
    for place, token in enumerate(state.tokens):
        found.append(token)
        if token.type != "inline" or not _is_first_in(state.tokens, place, "blockquote_open"):
            continue
        match = _CALLOUT.match(token.content)
        if match is None:
            continue
        state.tokens[place - 2].attrSet("class", "callout")
        state.tokens[place - 1].attrSet("class", "callout-title")
        kind = _NO_LETTERS.sub("", match["kind"].partition("|")[0]).strip()
        rest = token.content[match.end() :]
        token.content = match["title"].strip() or kind[:1].upper() + kind[1:]
        if rest:
            found += [Token("paragraph_close", "p", -1, block=True), Token("paragraph_open", "p", 1, block=True)]
            found.append(
                Token("inline", "", 0, content=rest, children=[], block=True, level=token.level, map=token.map)
            )
    state.tokens = found


def _task_boxes(state: StateCore) -> None:
    for place, token in enumerate(state.tokens):
        if token.type != "inline" or not _is_first_in(state.tokens, place, "list_item_open"):
            continue
        if match := _TASK.match(token.content):
            state.tokens[place - 2].attrSet("class", "task")
            token.content = f"{'☐' if match['done'] == ' ' else '☑'} {token.content[match.end() :]}"


def _is_first_in(tokens: Sequence[Token], place: int, kind: str) -> bool:
    """Whether a text is the first paragraph of a block."""
    return place > 1 and tokens[place - 1].type == "paragraph_open" and tokens[place - 2].type == kind


def _empty_paragraphs(state: StateCore) -> None:
    """Leave out paragraphs of which nothing is shown."""
    tokens, at, found = state.tokens, 0, []
    while at < len(tokens):
        is_paragraph = tokens[at].type == "paragraph_open" and at + 1 < len(tokens)
        children = (tokens[at + 1].children or []) if is_paragraph else []
        if is_paragraph and not any(
            child.type != "softbreak" and (child.content.strip() or child.tag) for child in children
        ):
            at += 3
            continue
        found.append(tokens[at])
        at += 1
    state.tokens = found

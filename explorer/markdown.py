"""Renders Markdown of memories, which is untrusted: raw HTML is escaped, and an allow-list filters the output."""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from explorer.note_marks import add_note_marks
from text.highlight import plain_title
from text.wiki_links import WIKI_LINK, name_key

_TAGS = {
    *("p", "br", "hr", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "s", "mark", "a"),
    "div",
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
    "div": {"class", "tabindex"},
    "blockquote": {"class"},
    "p": {"class"},
    "li": {"class"},
}
# The values that attributes of elements may have.
_OWN_VALUES = {
    "div": {("class", "wide"), ("class", "embed"), ("tabindex", "0")},
    "blockquote": {("class", "callout")},
    "p": {("class", "callout-title")},
    "li": {("class", "task")},
}
# A longer text would take seconds to render, and is shown verbatim.
_LONGEST_MARKDOWN = 100_000
_SCHEMES = {"http", "https", "mailto"}
# Around highlighted words while their text is rendered: two characters that no text should have.
_BEGIN, _END = "\ufdd0", "\ufdd1"
_NO_MARKS = dict.fromkeys(map(ord, (_BEGIN, _END)))
_ENCODED = re.compile("|".join(quote(mark) for mark in (_BEGIN, _END)), re.IGNORECASE)
_WORD = re.compile(r"\w+://\S*|\w+")
_TAG = re.compile(r'<(?:"[^"]*"|[^>"])*>')


_PICTURE = re.compile(r".+\.(?:avif|bmp|gif|heic|jpe?g|mov|mp[34]|ogg|pdf|png|svg|wav|webm|webp)", re.IGNORECASE)
# Notes that one text shows in place; further ones are links.
MOST_EMBEDDED = 20


@dataclass(frozen=True, slots=True)
class EmbeddedNote:
    """A memory whose text is shown in that of another one. `about` follows its title, such as its state."""

    url: str
    title: str
    text: str
    about: str = ""
    is_cut: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    """The pages of the memories that its own text names."""


def render_markdown(
    text: str,
    title: str = "",
    *,
    highest: int = 2,
    notes: Mapping[str, str] | None = None,
    embedded: Mapping[str, EmbeddedNote] | None = None,
) -> SafeString:
    """HTML that cannot run scripts, load resources, or imitate the page. A first heading like `title` is left out; the
    highest of the others is of the level `highest`.

    `notes` are the pages of other memories by the names, as `name_key` has them, that links between notes may have;
    `embedded` are those of them that `![[Note]]`, in a paragraph of its own, shows in place.
    """
    if len(text) > _LONGEST_MARKDOWN:
        return format_html("<pre><code>{}</code></pre>", text)
    env: dict[str, Any] = {"highest": highest, "notes": notes or {}, "names_pictures": notes is not None}
    tokens = _MARKDOWN.parse(text, env)
    for token in tokens if notes else ():
        _link_notes(token.children or (), env["notes"])
    if title and _opens_with(title, tokens):
        del tokens[:3]
    env["highest_heading"] = min((int(t.tag[1]) for t in tokens if t.type == "heading_open"), default=1)
    tokens = _with_embedded(tokens, embedded, env["notes"]) if embedded else tokens
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, env)
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener nofollow",
        allowed_classes=None,
        attribute_filter=partial(_only_own_attributes, frozenset((notes or {}).values())),
    )
    return mark_safe(clean)  # noqa: S308 - the allow-list above is what makes it safe


def render_marked(pieces: Iterable[tuple[str, bool]], *, highest: int = 2) -> SafeString:
    """The same of a text in parts, of which some are highlighted, word by word."""
    parts = ((part.translate(_NO_MARKS), is_marked) for part, is_marked in pieces)
    text = "".join(_WORD.sub(_put_marks, part) if is_marked else part for part, is_marked in parts)
    html = _ENCODED.sub("", render_markdown(text, highest=highest))
    # Elements of our own, balanced within texts; in attributes there is nothing to highlight.
    html = _TAG.sub(lambda tag: tag[0].translate(_NO_MARKS), html).replace(_BEGIN, "<mark>").replace(_END, "</mark>")
    return mark_safe(html)  # noqa: S308 - as above


def _put_marks(word: re.Match[str]) -> str:
    """A word between the marks; an address as it is."""
    return word[0] if "://" in word[0] else f"{_BEGIN}{word[0]}{_END}"


def _opens_with(title: str, tokens: Sequence[Token]) -> bool:
    """Whether the first three of several tokens are a heading with this text."""
    return len(tokens) > 3 and tokens[0].type == "heading_open" and plain_title(tokens[1].content) == title


def _link_notes(tokens: Iterable[Token], notes: Mapping[str, str]) -> None:
    """Give relative links to the files of other notes the addresses of their memories."""
    for token in tokens:
        if token.type != "link_open" or not token.attrs.get("href"):
            continue
        target = urlsplit(str(token.attrs["href"]))
        path = name_key(unquote(target.path))
        if not target.scheme and not target.netloc and path.endswith((".md", ".markdown")):
            url = notes.get(posixpath.normpath(path).lstrip("./")) or notes.get(posixpath.basename(path))
            token.attrs["href"] = url or token.attrs["href"]


def embedded_names(text: str) -> list[str]:
    """The names of the notes that a text shows in place, if they are known: at most `MOST_EMBEDDED`."""
    names = (match["target"] for match in WIKI_LINK.finditer(text) if match[0][0] == "!")
    return list(dict.fromkeys(map(name_key, names)))[:MOST_EMBEDDED]


def _with_embedded(
    tokens: Sequence[Token], embedded: Mapping[str, EmbeddedNote], notes: Mapping[str, str]
) -> list[Token]:
    """The tokens of a text, with those of other notes in place of the paragraphs that name them."""
    found: list[Token] = []
    left, room = 0, MOST_EMBEDDED
    for place, token in enumerate(tokens):
        if left:
            left -= 1
            continue
        parts = _embedded_parts(tokens[place + 1].content, embedded, room) if token.type == "paragraph_open" else []
        for note, text in parts:
            found += _tokens_of_note(note, text, {**notes, **note.notes})
        if parts:
            # A paragraph is three tokens.
            left, room = 2, room - len(parts)
        else:
            found.append(token)
    return found


def _embedded_parts(paragraph: str, embedded: Mapping[str, EmbeddedNote], most: int) -> list[tuple[EmbeddedNote, str]]:
    """The notes that a paragraph consists of, with the parts that it names; none if it has anything else, or more."""
    lines = paragraph.splitlines()
    if len(lines) > most:
        return []
    found: list[tuple[EmbeddedNote, str]] = []
    for line in lines:
        match = WIKI_LINK.fullmatch(line.strip())
        note = embedded.get(name_key(match["target"])) if match and match[0][0] == "!" else None
        text = note_part(note.text, match["part"] or "") if match and note else None
        if note is None or text is None:
            return []
        found.append((note, text))
    return found


def _tokens_of_note(note: EmbeddedNote, text: str, notes: Mapping[str, str]) -> list[Token]:
    tokens = _MARKDOWN.parse(text, {"notes": notes, "names_pictures": True})
    if _opens_with(note.title, tokens):
        del tokens[:3]
    for token in tokens:
        _link_notes(token.children or (), notes)
        if token.type.startswith("heading_"):
            # Below the headings of the text that it is in.
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    link = f'<a href="{_escaped(note.url)}">{_escaped(note.title)}</a>'
    about = f" {_escaped(note.about)}" if note.about else ""
    begin = Token("html_block", "", 0, content=f'<div class="embed"><p>{link}{about}</p>\n')
    more = f'<p><a href="{_escaped(note.url)}">The rest of it</a></p>' if note.is_cut else ""
    return [begin, *tokens, Token("html_block", "", 0, content=f"{more}</div>\n")]


def note_part(text: str, part: str) -> str | None:
    """The section of a text below a heading (`#Heading`), or a block by its id (`#^id`). None if there is none."""
    wanted = name_key(part.rpartition("#")[2])
    if not wanted:
        return text
    if wanted.startswith("^"):
        blocks = re.split(r"\n[ \t]*\n", text)
        own = re.compile(rf"(?:^|\s){re.escape(wanted)}\s*$", re.IGNORECASE)
        return next((own.sub("", block) for block in blocks if own.search(block) and own.sub("", block).strip()), None)
    headings = [
        (token.map[0], int(token.tag[1]), name_key(plain_title(inline.content)))
        for token, inline in pairwise(_MARKDOWN.parse(text))
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    for at, (begin, level, name) in enumerate(headings):
        if name == wanted:
            ends = (line for line, other, _ in headings[at + 1 :] if other <= level)
            lines = text.splitlines()
            return "\n".join(lines[begin : next(ends, len(lines))])
    return None


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[Note]]`, `[[Note#part|shown]]` and `![[Note]]` as links, if the note is known; a picture by its name."""
    match = WIKI_LINK.match(state.src, state.pos) if state.src[state.pos] in "[!" else None
    url = state.env.get("notes", {}).get(name_key(match["target"])) if match else None
    if match and url is None and match[0][0] == "!" and _PICTURE.fullmatch(match["target"].strip()):
        if not state.env.get("names_pictures"):
            return False
        if not silent:
            state.push("text", "", 0).content = f"({match['target'].strip()}, a file that is not stored here)"
        state.pos = match.end()
        return True
    if match is None or url is None:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": url}
        state.push("text", "", 0).content = (match["shown"] or match["target"] + (match["part"] or "")).strip(" \\")
        state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


def _only_own_attributes(own: Collection[str], tag: str, attribute: str, value: str) -> str | None:
    if tag in _OWN_VALUES:
        return value if (attribute, value) in _OWN_VALUES[tag] else None
    if attribute == "align":
        return value if value in {"left", "center", "right"} else None
    if attribute == "href" and value not in own and not urlsplit(value).scheme:
        # A relative link refers to a file next to the source, never to this site.
        return None
    return value


def _heading(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Shift headings so that the highest one is below those of the page."""
    level = min(6, int(tokens[index].tag[1]) - env["highest_heading"] + env["highest"])
    return f"<h{level}>" if tokens[index].nesting == 1 else f"</h{level}>\n"


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Images become links: loading them would reveal the reader to another host."""
    token = tokens[index]
    name = token.content or "image"
    attributes = Token("a", "a", 1, attrs={"href": str(token.attrs.get("src", ""))})
    return f"<a{self.renderAttrs(attributes)}>{_escaped(name)}</a>"


def _table(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Wrap tables so that they scroll, also by keyboard."""
    return '<div class="wide" tabindex="0"><table>\n' if tokens[index].nesting == 1 else "</table></div>\n"


def _cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    side = str(token.attrs.get("style", "")).partition(":")[2]
    return f'<{token.tag} align="{side}">' if side else f"<{token.tag}>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    rules = {
        "heading_open": _heading,
        "heading_close": _heading,
        "image": _image,
        "table_open": _table,
        "table_close": _table,
        "th_open": _cell,
        "td_open": _cell,
    }
    for name, rule in rules.items():
        markdown.add_render_rule(name, rule)
    markdown.inline.ruler.before("link", "wiki_link", _wiki_link)
    add_note_marks(markdown)
    return markdown


_MARKDOWN = _markdown()

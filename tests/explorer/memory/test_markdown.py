"""Markdown to HTML: allowed and removed content."""

import re

import pytest

from explorer.markdown import render_markdown, render_marked
from text.wiki_links import name_key

ATTACKS = [
    pytest.param("<script>alert(1)</script>", id="script"),
    pytest.param('<img src=x onerror="alert(1)">', id="image with a handler"),
    pytest.param("<svg/onload=alert(1)>", id="svg"),
    pytest.param("<iframe src=javascript:alert(1)></iframe>", id="frame"),
    pytest.param("[x](javascript:alert(1))", id="script address"),
    pytest.param("[x](JaVaScRiPt:alert(1))", id="script address in mixed case"),
    pytest.param("[x](java\tscript:alert(1))", id="script address with a tab"),
    pytest.param("[x](&#106;avascript:alert(1))", id="script address in entities"),
    pytest.param("[x](data:text/html;base64,PHNjcmlwdD4=)", id="data address"),
    pytest.param("[x](vbscript:msgbox(1))", id="vbscript"),
    pytest.param("![x](javascript:alert(1))", id="image of a script address"),
    pytest.param("<javascript:alert(1)>", id="autolink"),
    pytest.param('[x](https://a.example/"onmouseover="alert(1))', id="attribute broken out of"),
    pytest.param('![" onerror="alert(1)](https://a.example/x.png)', id="alt text broken out of"),
    pytest.param("```html\n<script>alert(1)</script>\n```", id="code"),
    pytest.param('```"><script>alert(1)</script>\nx\n```', id="language of code"),
    pytest.param('<div hx-get="/admin/" hx-trigger="load">x</div>', id="htmx"),
    pytest.param('<a href="/sign-out/" data-swap>x</a>', id="our own attributes"),
    pytest.param("<style>body{display:none}</style>", id="style"),
    pytest.param('<p style="position:fixed;inset:0">x</p>', id="style attribute"),
    pytest.param("<form action=https://evil.example><input name=q></form>", id="form"),
    pytest.param("<base href=https://evil.example>", id="base"),
    pytest.param("<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>", id="mutation"),
    pytest.param("| a |\n|---|\n| <script>alert(1)</script> |", id="table"),
    pytest.param("<!--><script>alert(1)</script>-->", id="comment"),
]
TAG = re.compile(r"<(/?)([a-z0-9]+)([^>]*)>")
SAFE = [
    "p",
    "br",
    "hr",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "pre",
    "code",
    "em",
    "strong",
    "s",
    "a",
    "div",
    "ul",
    "ol",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_comes_out_that_could_run_or_load(text):
    html = render_markdown(text)
    for _, name, attributes in TAG.findall(html):
        assert name in SAFE
        assert not re.search(r"\b(on\w+|style|src|srcset|id|name|hx-\w+|data-\w+|action)\s*=", attributes)
        for address in re.findall(r'href="([^"]*)"', attributes):
            assert re.match(r"(https?://|mailto:)", address)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        pytest.param(
            "a **b** *c* ~~d~~ `e`", "<p>a <strong>b</strong> <em>c</em> <s>d</s> <code>e</code></p>", id="inline"
        ),
        pytest.param("# Top\n## Below", "<h2>Top</h2>\n<h3>Below</h3>", id="headings start below that of the page"),
        pytest.param("### One\n##### Three", "<h2>One</h2>\n<h4>Three</h4>", id="wherever the text starts"),
        pytest.param("# One\n###### Six", "<h2>One</h2>\n<h6>Six</h6>", id="headings end at six"),
        pytest.param("```python\nx < 1\n```", "<pre><code>x &lt; 1\n</code></pre>", id="fenced code"),
        pytest.param(
            "[a](https://a.example/?x=1&y=2)",
            '<p><a href="https://a.example/?x=1&amp;y=2" rel="noopener nofollow">a</a></p>',
            id="link",
        ),
        pytest.param(
            "![a chart](https://a.example/c.png)",
            '<p><a href="https://a.example/c.png" rel="noopener nofollow">a chart</a></p>',
            id="image becomes a link",
        ),
        pytest.param("[a](../other.md)", '<p><a rel="noopener nofollow">a</a></p>', id="relative link leads nowhere"),
        pytest.param("1 < 2 & 3", "<p>1 &lt; 2 &amp; 3</p>", id="text"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_markdown_comes_through(text, html):
    assert render_markdown(text).strip() == html


def test_first_heading_that_repeats_the_title_is_left_out():
    assert (
        render_markdown("# A `title`\n\ntext\n\n# A `title`", "A title")
        == "<p>text</p>\n<h2>A <code>title</code></h2>\n"
    )
    assert render_markdown("# Title", "Title").strip() == "<h2>Title</h2>"
    assert render_markdown("# Title: more\n\ntext", "Title") == "<h2>Title: more</h2>\n<p>text</p>\n"


@pytest.mark.parametrize(
    ("pieces", "html"),
    [
        pytest.param(
            [("a **b", True), ("c** d", False)],
            "<p><mark>a</mark> <strong><mark>b</mark>c</strong> d</p>\n",
            id="across",
        ),
        pytest.param(
            [("```\nx = 1\n```", True)], "<pre><code><mark>x</mark> = <mark>1</mark>\n</code></pre>\n", id="code"
        ),
        pytest.param([("# Title", True)], "<h4><mark>Title</mark></h4>\n", id="heading"),
        pytest.param(
            [("[a](https://x.example/b)", True)],
            '<p><a href="https://x.example/b" rel="noopener nofollow"><mark>a</mark></a></p>\n',
            id="link",
        ),
        pytest.param([("<script>alert(1)</script>", True)], None, id="script"),
        pytest.param([("a\ufdd0b", False)], "<p>ab</p>\n", id="a mark of its own"),
    ],
)
def test_marked_words_are_highlighted_within_rendered_markdown(pieces, html):
    found = render_marked(pieces, highest=4)
    assert "<script" not in found
    assert found.count("<mark>") == found.count("</mark>")
    if html is not None:
        assert found == html


NOTES = {name_key(name): "/memories/5/" for name in ("Green Tea", "drinks/Green Tea", "Green Tea.md")}
LINK = '<a href="/memories/5/" rel="noopener nofollow">{}</a>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("See [[green tea]].", f"<p>See {LINK.format('green tea')}.</p>"),
        ("[[Green Tea|the tea]]", f"<p>{LINK.format('the tea')}</p>"),
        ("![[Green Tea#Brewing]]", f"<p>{LINK.format('Green Tea#Brewing')}</p>"),
        ("[[drinks/Green Tea]]", f"<p>{LINK.format('drinks/Green Tea')}</p>"),
        ("[tea](../drinks/Green%20Tea.md#x)", f"<p>{LINK.format('tea')}</p>"),
        ("[[Green Tea|<b>]]", f"<p>{LINK.format('&lt;b&gt;')}</p>"),
        ("[[Nowhere]] and `[[Green Tea]]`", "<p>[[Nowhere]] and <code>[[Green Tea]]</code></p>"),
        ("[x](/other/) [y](other.md)", '<p><a rel="noopener nofollow">x</a> <a rel="noopener nofollow">y</a></p>'),
    ],
)
def test_links_between_notes_lead_to_their_memories(text, html):
    assert render_markdown(text, notes=NOTES).strip() == html
    assert "/memories/5/" not in render_markdown(text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        pytest.param(
            "> [!tip] Use *it*\n> Body.",
            '<blockquote class="callout">\n<p class="callout-title">Use <em>it</em></p>\n<p>Body.</p>\n</blockquote>',
            id="callout",
        ),
        pytest.param(
            "> [!warning]-\n> Body.",
            '<blockquote class="callout">\n<p class="callout-title">Warning</p>\n<p>Body.</p>\n</blockquote>',
            id="callout without a title",
        ),
        pytest.param(
            "> [!note|wide]\n>\n> - a",
            '<blockquote class="callout">\n<p class="callout-title">Note</p>\n<ul>\n<li>a</li>\n</ul>\n</blockquote>',
            id="callout with a list",
        ),
        pytest.param("> [x] no", "<blockquote>\n<p>[x] no</p>\n</blockquote>", id="quote"),
        pytest.param("> a\n> [!tip] b", "<blockquote>\n<p>a\n[!tip] b</p>\n</blockquote>", id="not at the beginning"),
        pytest.param(
            '> [!"><script>alert(1)</script>] T',
            '<blockquote class="callout">\n<p class="callout-title">T</p>\n</blockquote>',
            id="script",
        ),
        pytest.param("==a *b*== c", "<p><mark>a <em>b</em></mark> c</p>", id="marked"),
        pytest.param("a==b and c==d", "<p>a==b and c==d</p>", id="comparison"),
        pytest.param("a == b == c ==== d", "<p>a == b == c ==== d</p>", id="operators"),
        pytest.param("`==a==` \\==a==", "<p><code>==a==</code> ==a==</p>", id="code"),
        pytest.param("==<b>==", "<p><mark>&lt;b&gt;</mark></p>", id="escaped"),
        pytest.param("a %%b%% c", "<p>a  c</p>", id="comment"),
        pytest.param("%%b%%", "", id="nothing else"),
        pytest.param("a\n\n%%\nb\n\nc\n%%\n\nd", "<p>a</p>\n<p>d</p>", id="comment of several lines"),
        pytest.param("%%\nb", "<p>%%\nb</p>", id="comment that does not end"),
        pytest.param("5%% and 6%%, `%%a%%`", "<p>5%% and 6%%, <code>%%a%%</code></p>", id="percentages"),
        pytest.param("```\n%%a%%\n- [ ] b\n```", "<pre><code>%%a%%\n- [ ] b\n</code></pre>", id="block of code"),
        pytest.param(
            "- [ ] a\n- [x] ==b==\n- [-] c",
            '<ul>\n<li class="task">☐ a</li>\n<li class="task">☑ <mark>b</mark></li>\n<li>[-] c</li>\n</ul>',
            id="boxes",
        ),
        pytest.param("1. [X] a\n\n   b", '<ol>\n<li class="task">\n<p>☑ a</p>\n<p>b</p>\n</li>\n</ol>', id="numbered"),
        pytest.param("[ ] a", "<p>[ ] a</p>", id="no list"),
    ],
)
def test_marks_of_notes(text, html):
    assert render_markdown(text).strip() == html
    assert render_marked([(text, False)]).strip() == html


@pytest.mark.parametrize("mark", ["==", "%%", "> [!a] ", "- [ ] ", "[!", "==a", "%%a"])
def test_many_marks_are_rendered_soon(mark):
    assert render_markdown(mark * 10_000)

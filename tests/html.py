"""The HTML of a page as tests compare it: without the line breaks of its template that nobody sees."""

import re

from django.http import HttpResponse

_BREAK = re.compile(r"[ \t]*\n\s*|[ \t]{2,}")


def html_of(response: HttpResponse) -> str:
    """The text of a response as if each template were one line.

    A break between tags, or just inside an element, is dropped. One beside a word is a space. Quotes are written as
    Django writes them, wherever they stand.
    """
    text = response.text.strip().replace("&#34;", "&quot;").replace("&#39;", "&#x27;")

    def joined(found: re.Match[str]) -> str:
        start, after = found.start(), text[found.end() : found.end() + 2]
        if text[start - 1] != ">":
            return "" if after[0] == ">" or after == "</" else " "
        closes = text.startswith("</", text.rfind("<", 0, start))
        return " " if closes and after[0] != "<" else ""

    return _BREAK.sub(joined, text)

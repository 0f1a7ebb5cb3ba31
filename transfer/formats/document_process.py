"""A program that reads PDF and HTML documents for an import, in a process whose memory is limited.

Documents may be hostile: a process of its own can be killed when it takes too long, and its failure ends no import.
It reads lines of JSON with a path and a kind, and answers each with a line for every page, and a last line with the
document's title, authors and the like, or with the error. It imports nothing of this project.
"""

import codecs
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

_MEMORY = 2 * 1024**3
# Characters of a document; what follows is left out.
MAX_TEXT = 20_000_000
# The encoding that a page declares, in its first bytes.
_DECLARED = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE
)
# `---` lines with what the converter found in the head of a page.
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_HYPHEN = re.compile(r"(?<=[a-z\u00df-\u00f6\u00f8-\u00ff])-\n(?=[a-z\u00df-\u00f6\u00f8-\u00ff])")
_LIGATURES = re.compile("[\ufb00-\ufb06]")
_PUBLISHED = ("article-published_time", "article:published_time", "date", "dc.date", "dc-date", "dcterms.created")
_MODIFIED = ("article-modified_time", "article:modified_time", "last-modified", "dcterms.modified")

Answer = dict[str, Any]


def pdf_pages(path: str, most: int | None) -> Iterator[Answer]:
    """The text of each page, of up to `most` of them, and a last answer with the document's information."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            yield {"error": "is encrypted: save it without its password"}
            return
        count = len(reader.pages)
    except (PyPdfError, DependencyError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        yield {"error": f"is a damaged PDF ({error})"[:300]}
        return
    size, unreadable = 0, []
    for number in range(count if most is None else min(count, most)):
        text = ""
        try:
            text = reader.pages[number].extract_text()
        except MemoryError:
            raise
        except Exception:  # damaged pages raise whatever the parser meets
            unreadable.append(number + 1)
        text = _mended(text)[:MAX_TEXT]
        size += len(text)
        yield {"page": text}
        if size > MAX_TEXT:
            yield {"pages": count, "is_cut": True, **_pdf_information(reader)}
            return
    yield {"pages": count, "unreadable": unreadable[:100], **_pdf_information(reader)}


def _pdf_information(reader: Any) -> Answer:
    found: Answer = {}
    with suppress(Exception):
        information = reader.metadata or {}
        names = (("title", "/Title"), ("author", "/Author"), ("description", "/Subject"), ("keywords", "/Keywords"))
        for name, key in names:
            with suppress(Exception):
                found[name] = _plain(str(information.get(key) or ""))
        for name, attribute in (("created", "creation_date"), ("modified", "modification_date")):
            with suppress(Exception):
                moment = getattr(information, attribute)
                found[name] = moment.isoformat() if isinstance(moment, datetime) else ""
    return found


def _mended(text: str) -> str:
    """The text of a page without the marks of its layout: words divided at the ends of lines, ligatures, spaces."""
    text = _LIGATURES.sub(lambda match: unicodedata.normalize("NFKC", match[0]), _plain(text).replace("\u00ad", ""))
    lines = (line.strip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", _HYPHEN.sub("", "\n".join(lines))).strip()


def _plain(text: str) -> str:
    """A text that can be stored: without NUL characters and halves of characters."""
    return text.replace("\0", "").encode("utf-8", "ignore").decode()


def html_page(path: str) -> Iterator[Answer]:
    """An HTML document as one page of Markdown, and its head."""
    from html_to_markdown import ConversionOptions, convert

    text = _plain(_decoded(Path(path).read_bytes()))
    result = convert(text, ConversionOptions(inline_data_media="drop_element"))
    head = result.metadata.document
    tags = {name.lower(): value for name, value in head.meta_tags.items()} | {
        f"og:{name}": value for name, value in head.open_graph.items()
    }
    content = _FRONT_MATTER.sub("", _plain(result.content or ""), count=1).strip()
    yield {"page": content[:MAX_TEXT]}
    yield {
        "is_cut": len(content) > MAX_TEXT,
        "is_deep": any(str(warning.kind) == "depth_limit_exceeded" for warning in result.warnings),
        "title": _plain(head.title or ""),
        "author": _plain(head.author or ""),
        "description": _plain(head.description or ""),
        "keywords": _plain(", ".join(head.keywords or ())),
        "created": next((tags[name] for name in _PUBLISHED if tags.get(name)), ""),
        "modified": next((tags[name] for name in _MODIFIED if tags.get(name)), ""),
        "url": head.canonical_url or "",
    }


def _decoded(data: bytes) -> str:
    """The text of a page: by its byte order mark, as UTF-8, or in the encoding that it declares."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    encoding = "windows-1252"
    if match := _DECLARED.search(data[:4096]):
        with suppress(LookupError):
            encoding = codecs.lookup(match[1].decode()).name
    # Browsers read Latin-1 as its superset, too.
    return data.decode("windows-1252" if encoding in ("iso8859-1", "ascii", "utf-8") else encoding, "replace")


def answers(kind: str, path: str, most: int | None) -> Iterator[Answer]:
    try:
        yield from pdf_pages(path, most) if kind == "pdf" else html_page(path)
    except MemoryError:
        yield {"error": f"takes more than {_MEMORY // 1024**3} GB of memory to read"}
    except Exception as error:  # the last guard: the next document shall be read
        yield {"error": f"cannot be read ({type(error).__name__}: {error})"[:300]}


def main() -> None:
    # Without the module, or where the system ignores it, only the time is limited.
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    # Objects of a document may refer to each other in long chains.
    sys.setrecursionlimit(5_000)
    for line in sys.stdin:
        wanted = json.loads(line)
        for answer in answers(wanted["kind"], wanted["path"], wanted["most"]):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

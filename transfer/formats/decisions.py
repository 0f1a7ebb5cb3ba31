"""The status, the date and the predecessors of a decision record, by its text.

MADR and adr-tools write these below the title, not in front matter. Does not use the database.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memories.dates import AmbiguousDateError, date_value
from transfer.formats.languages import DATE_LABELS, STATUS_HEADINGS
from transfer.formats.states import read_status
from web.validation import shown

_SECTION = re.compile(
    rf"^#{{1,6}}[ \t]+(?:{STATUS_HEADINGS})[ \t#:]*\n(?P<text>(?:(?!#{{1,6}}[ \t]).*(?:\n|\Z))*)",
    re.IGNORECASE | re.MULTILINE,
)
# `* Status: accepted`, `**Status:** Accepted`, `| Status | Accepted |`.
_LINE = r"^[ \t]*(?:[-*+>|][ \t]*)?(?:\*\*|__)?{}(?:\*\*|__)?[ \t]*[:|](?:\*\*|__)?[ \t]*(?P<text>[^|\n]*[^|\s])"
_STATUS = re.compile(_LINE.format(f"(?:{STATUS_HEADINGS})"), re.IGNORECASE | re.MULTILINE)
_DATE = re.compile(_LINE.format(f"(?:{DATE_LABELS})"), re.IGNORECASE | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_MARKS = re.compile(r"^[-*+>][ \t]+|[*_`]+")
_START = 4_000


def decision_fields(text: str, data: Mapping[str, Any], notes: list[str], order: str = "") -> dict[str, Any]:
    """The fields that the text of a decision record gives, but those that `data` has."""
    text = _COMMENT.sub("", text[:_START])
    found: dict[str, Any] = {}
    older: list[str] = []
    unknown = ""
    for line in _status_lines(text):
        status = read_status(line)
        if status.predecessor:
            older.append(status.predecessor)
        if status.state:
            found["state"] = "superseded" if found.get("state") == "superseded" else status.state
            found |= {"superseded_by": status.successor} if status.successor else {}
        elif not status.predecessor:
            unknown = unknown or line
    if unknown and not found and not older and "state" not in data:
        notes.append(f"Status: {shown(unknown[:80])} is no known state; it is left out")
    if older:
        found["supersedes"] = older
    if (match := _DATE.search(text)) and not data.get("created_at"):
        try:
            found["created_at"] = date_value(match["text"].strip(" *_`"), order)
        except AmbiguousDateError as error:
            notes.append(f"Date: {error}; it is left out. Say which, as the order of dates")
        except ValueError:
            if "|" not in match[0]:
                notes.append(f"Date: {shown(match['text'][:80])} is not a date; it is left out")
    return {name: value for name, value in found.items() if not data.get(name)}


def _status_lines(text: str) -> Iterator[str]:
    section = _SECTION.search(text)
    lines = section["text"].split("\n") if section else [match["text"] for match in _STATUS.finditer(text)][:1]
    for line in lines:
        if line := _MARKS.sub("", line.strip()).strip():
            yield line

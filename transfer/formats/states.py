"""The states of memories by the words of decision records, Obsidian and Notion. Does not use the database."""

import re
from typing import NamedTuple

from text.analysis import fold
from transfer.formats.languages import REPLACED_BY, STATE_OF_WORD

# Word -> state.
STATE_WORDS = {
    "accepted": "active",
    "proposed": "proposed",
    "superseded": "superseded",
    "deprecated": "archived",
    "rejected": "archived",
    "draft": "proposed",
    "archived": "archived",
    "done": "active",
    **dict.fromkeys(
        (
            *("active", "adopted", "agreed", "approved", "complete", "completed", "current", "decided", "effective"),
            *("enacted", "evergreen", "final", "finished", "implemented", "in effect", "in force", "in progress"),
            *("in use", "live", "published", "ratified", "resolved", "stable", "valid", "confirmed", "ongoing"),
        ),
        "active",
    ),
    **dict.fromkeys(
        (
            *("backlog", "candidate", "idea", "in discussion", "in review", "new", "not started", "on hold", "open"),
            *("pending", "planned", "proposal", "review", "rfc", "suggested", "tentative", "to do", "todo"),
            *("under discussion", "under review", "wip", "work in progress", "deferred", "postponed", "paused"),
        ),
        "proposed",
    ),
    **dict.fromkeys(
        (
            *("abandoned", "archive", "canceled", "cancelled", "closed", "declined", "discontinued", "dropped"),
            *("expired", "inactive", "invalid", "obsolete", "outdated", "retired", "revoked", "withdrawn", "wontfix"),
            *("won t do", "wont do", "dead", "stale", "no longer valid", "removed", "sunset"),
        ),
        "archived",
    ),
    **dict.fromkeys(("superceded", "superseeded", "replaced", "obsoleted", "supplanted"), "superseded"),
    **dict.fromkeys(("deleted", "trash", "trashed"), "deleted"),
    **STATE_OF_WORD,
}
_WORD = re.compile(r"[^\W\d_]+")
_STRUCK = re.compile(r"~~.*?~~")
_SUCCESSOR = re.compile(
    rf"\b(?:(?:super[sc]e+ded|replaced|obsoleted|supplanted)\s+(?:by|with)|{REPLACED_BY})\b[:\s]*(?P<by>\S.*)",
    re.IGNORECASE,
)
_PREDECESSOR = re.compile(r"\b(?:super[sc]e+des|replaces|obsoletes)\b[:\s]*(?P<older>\S.*)", re.IGNORECASE)
_NOT_YET = re.compile(r"\b(?:not|never|to be|will be|be)\s*$", re.IGNORECASE)
_MAY_FOLLOW = re.compile(r"\s*(?:$|[^\w\s]|\d|(?:and|as|at|by|for|in|on|since|until|with)\b)", re.IGNORECASE)
_LONGEST_WORDS, _LONGEST = 3, 1_000


class Status(NamedTuple):
    """The state of a memory by a text about it, and the memories that this names. Each may be empty."""

    state: str = ""
    successor: str = ""
    predecessor: str = ""


def read_status(text: str) -> Status:
    """The state that a short text begins with, and the memory that it names as its successor or predecessor."""
    text = _STRUCK.sub("", text[:_LONGEST]).strip()
    if "|" in text:
        # The choices of a template.
        return Status()
    older, newer = _PREDECESSOR.search(text), _SUCCESSOR.search(text)
    predecessor = older["older"].strip(" .*_") if older else ""
    if newer and not _NOT_YET.search(text[: newer.start()]):
        return Status("superseded", newer["by"].strip(" .*_"), predecessor)
    words = list(_WORD.finditer(text.replace("_", " ")))[: _LONGEST_WORDS + 1]
    for length in range(min(_LONGEST_WORDS, len(words)), 0, -1):
        state = STATE_WORDS.get(" ".join(fold(word[0]) for word in words[:length]))
        # Words of a sentence that only begins so, such as "open source", are no state.
        if state and _MAY_FOLLOW.match(text[words[length - 1].end() :]):
            return Status(state, "", predecessor)
    return Status(predecessor=predecessor)

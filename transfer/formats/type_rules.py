"""Which type a note has by its folder, a tag or a heading, unless it names its type itself."""

import re
from collections.abc import Iterable, Mapping, Sequence

from text.analysis import fold
from transfer.formats.languages import DECISION_HEADINGS, TYPE_WORDS

_TYPES = {
    "decision": ("decision", "decisions", "adr", "adrs", "decision log", "decision records", "architecture decisions"),
    "meeting": ("meeting", "meetings", "meeting notes", "minutes"),
    "person": ("person", "people", "contacts"),
    "journal": ("journal", "journals", "daily", "dailies", "daily note", "daily notes", "diary"),
    "idea": ("idea", "ideas"),
    "incident": ("incident", "incidents", "postmortem", "postmortems", "post mortems"),
    "task": ("task", "tasks"),
    "learning": ("learning", "learnings", "lesson", "lessons", "lessons learned", "til"),
    "reference": ("reference", "references", "literature", "literature notes"),
    "how-to": ("how to", "howto", "how tos", "howtos", "runbook", "runbooks"),
}
_BY_NAME = {name: kind for kind, names in _TYPES.items() for name in names}
_BY_NAME |= {word: kind for kind, words in TYPE_WORDS.items() for word in words.split()}
# Headings that templates have, and those of which another one must be there.
_HEADINGS: dict[str, tuple[str, frozenset[str]]] = {
    "decision outcome": ("decision", frozenset()),
    "considered options": ("decision", frozenset()),
    "decision": ("decision", frozenset({"context", "status", "consequences"})),
    "attendees": ("meeting", frozenset()),
    **{heading: ("decision", frozenset(others)) for heading, others in DECISION_HEADINGS.items()},
}
_NUMBERING = re.compile(r"^[\W\d_]+(?=[^\W\d_])")
_BETWEEN = re.compile(r"[\s_-]+")


def type_by_rule(
    folders: str, tags: Iterable[str], headings: Sequence[str], rules: Mapping[str, str]
) -> tuple[str, str]:
    """The type of a note, and the rule that gives it: `Folder/`, `#tag` or `## Heading`. Both may be empty.

    `rules` are those that somebody chose; an empty type is none.
    """
    chosen = {_rule_key(rule): kind for rule, kind in rules.items()}
    for rule, kind in _rules_of(folders, list(tags), headings):
        key = _rule_key(rule)
        if key in chosen:
            if chosen[key]:
                return chosen[key], rule
        elif kind:
            return kind, rule
    return "", ""


def _rules_of(folders: str, tags: list[str], headings: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The rules that may concern a note, and the type that each gives by itself; the innermost folder first."""
    steps = folders.split("/") if folders else []
    for last in range(len(steps), 0, -1):
        yield f"{'/'.join(steps[:last])}/", ""
        yield f"{steps[last - 1]}/", _BY_NAME.get(_plain_word(steps[last - 1]), "")
    for tag in tags:
        yield f"#{tag}", _BY_NAME.get(_plain_word(tag), "") or (tag[5:] if tag.casefold().startswith("type/") else "")
    names = {heading.strip().casefold() for heading in headings}
    for heading in headings:
        kind, others = _HEADINGS.get(heading.strip().casefold(), ("", frozenset()))
        yield f"## {heading.strip()}", kind if not others or others & names else ""


def _plain_word(name: str) -> str:
    """A name without a number before it, and with spaces alone between its words."""
    return fold(_BETWEEN.sub(" ", _NUMBERING.sub("", name)).strip())


def _rule_key(rule: str) -> str:
    return " ".join(rule.split()).casefold()

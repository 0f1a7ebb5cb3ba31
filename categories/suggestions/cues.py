"""What in a text says that something took the place of something else. Pure, and for English alone.

A cue speaks of the thing that the text is about, which need not be the other memory: what is found by one is a question
to a person, and is worded so.
"""

import re
from dataclasses import dataclass

_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s)|$)", re.MULTILINE)
_CUES = tuple(
    (what, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))
    for what, words in (
        ("takes back", r"revert(?:s|ed|ing)?|roll(?:s|ed|ing)? back|back(?:s|ed)? out|undo(?:es|ne)?"),
        ("replaces", r"supersed(?:e|es|ed|ing)|replac(?:e|es|ed|ing)|obsoletes?|in favou?r of"),
        ("says no longer", r"no longer|not any ?more|any longer|used to be|until now"),
        (
            "says instead",
            r"instead of|rather than|now uses?|switch(?:ed|es)? (?:from|back|to)|moved? (?:from|away)",
        ),
        ("drops", r"deprecat(?:e|es|ed)|remov(?:e|es|ed)|drop(?:s|ped)?|abandon(?:s|ed)?"),
    )
)
# What was said of the other memory outright, by a link of a record.
REPLACING_RELS = frozenset({"supersedes", "replaces", "obsoletes", "reverts"})
REPLACED_RELS = frozenset({"superseded-by", "superseded_by", "replaced-by", "replaced_by", "obsoleted-by"})
# In order of the above: how much a cue counts.
_STRENGTHS = {"takes back": 0.25, "replaces": 0.25, "says no longer": 0.2, "says instead": 0.15, "drops": 0.1}


@dataclass(frozen=True, slots=True)
class Cue:
    """A word that says so, and the sentence that it stands in."""

    what: str
    word: str
    sentence: str
    strength: float


def find_cue(text: str) -> Cue | None:
    """The strongest cue of a text; of equals the first."""
    for what, pattern in _CUES:
        if match := pattern.search(text):
            sentences = _SENTENCE.finditer(text)
            sentence = next((one.group() for one in sentences if one.start() <= match.start() < one.end()), "")
            return Cue(what, match.group(), " ".join(sentence.split())[:300], _STRENGTHS[what])
    return None

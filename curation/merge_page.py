"""The page that merges several terms of a kind: which they are, how many memories each has, and which one is kept."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from curation.forms import INTO_PARENTS, term_name
from curation.pages import plural_of
from curation.queries import TermNotFoundError, counts_of, find_term, not_found_message
from curation.schemas import MOST_TERMS
from curation.working_copy import CurationRefusedError, TermRef
from explorer.explore.page import Notice
from text.formatting import number


@dataclass(frozen=True, slots=True)
class MergePage:
    """Several terms, and the form that merges them into one."""

    kind: str
    many: str
    terms: tuple[tuple[TermRef, str, str, str, int], ...]
    """Each with the value that names it in the form, its label, its type, and its number of memories."""
    kept: str
    """The value of the one that is kept."""
    notices: tuple[Notice, ...]
    into_parents: str
    """The value for the categories above them, instead of one that is kept; empty for other kinds."""
    keeps_parents: bool
    other: str
    """The name of a term to keep that is not among them."""
    next_url: str
    back_url: str


def merge_url(kind: str, terms: Iterable[str] = (), next_url: str = "") -> str:
    """The page that merges terms of a kind, named as operations name them."""
    asked = [*(("term", term) for term in terms), *([("next", next_url)] if next_url else [])]
    page = reverse("curation:merge", args=[kind])
    return f"{page}?{urlencode(asked)}" if asked else page


# The terms that end, and the one that is kept.
_MOST_NAMES = MOST_TERMS + 1
# Each is looked for by a search of its own.
_MOST_SIMILAR = 3


def found_terms(kind: str, names: Iterable[str], viewer: Viewer) -> tuple[dict[TermRef, str], list[Notice]]:
    """The terms of names with the names by which operations find them, and a notice for each that is not found.

    Of more names than a merge takes, the others are left out with a notice.
    """
    found: dict[TermRef, str] = {}
    notices = []
    named = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if len(named) > _MOST_NAMES:
        limit = (
            f"{number(len(named))} names are more than can be merged at once: at most {MOST_TERMS} into one that is"
            f" kept. Only the first {_MOST_NAMES} are listed: merge these, then the others."
        )
        notices.append(Notice(limit, is_error=True))
    missed = 0
    for name in named[:_MOST_NAMES]:
        try:
            ref = find_term(kind, name, viewer)
            found[ref] = term_name(kind, ref)
        except TermNotFoundError as missing:
            missed += 1
            message = not_found_message(missing, viewer) if missed <= _MOST_SIMILAR else str(missing)
            notices.append(Notice(message, is_error=True))
        except CurationRefusedError as refused:
            notices.append(Notice(str(refused), is_error=True))
    return found, notices


def merge_page(
    kind: str,
    terms: Mapping[TermRef, str],
    viewer: Viewer,
    *,
    kept: str = "",
    other: str = "",
    notices: Iterable[Notice] = (),
    next_url: str = "",
) -> MergePage:
    """The page that merges terms. The one that is kept unless another is chosen is that of most memories."""
    counts = counts_of(kind, terms, viewer)
    shown = {ref: (str(ref), "") for ref in terms} if kind == "tag" else _names_to_merge(kind, terms)
    ordered = sorted(shown, key=lambda ref: (-counts[ref], len(shown[ref][0]), shown[ref]))
    keeps_parents = kind == "category" and kept == INTO_PARENTS
    if not keeps_parents:
        kept = kept if kept in terms.values() else next((terms[ref] for ref in ordered), "")
    return MergePage(
        kind=kind,
        many=plural_of(kind),
        terms=tuple((ref, terms[ref], *shown[ref], counts[ref]) for ref in ordered),
        kept=kept,
        notices=(*notices, *_doubts({note for _, note in shown.values()} - {""})),
        into_parents=INTO_PARENTS if kind == "category" else "",
        keeps_parents=keeps_parents,
        other=other,
        next_url=next_url,
        back_url=next_url or reverse("curation:log"),
    )


def _doubts(types: Set[str]) -> Iterator[Notice]:
    """A warning where the terms are of several types."""
    if len(types) > 1:
        yield Notice(f"Their types differ: {', '.join(sorted(types))}. They may not be the same thing.")


def _names_to_merge(kind: str, refs: Iterable[TermRef]) -> dict[TermRef, tuple[str, str]]:
    """The names and the types of terms that have a row; of categories their whole paths."""
    terms = VOCABULARIES[kind].terms([int(ref) for ref in refs])
    return {pk: (" / ".join(term.names) or term.label, term.type) for pk, term in terms.items()}

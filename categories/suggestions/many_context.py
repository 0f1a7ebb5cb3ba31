"""ManyContext: all that the page where many suggestions are accepted at once may read. No database and no request."""

from collections.abc import Sequence
from dataclasses import dataclass

from categories.suggestions.context import QueueRow, queue_row, review_url
from categories.suggestions.queries import ShownSuggestion
from categories.suggestions.requests import ReviewQuery, kind_labels
from search.labels import number, plural


@dataclass(frozen=True, slots=True)
class ManyContext:
    """What accepting many would do, before it does."""

    kind: str
    count: int
    shown: str
    least: str
    sample: tuple[QueueRow, ...]
    is_too_many: bool
    most: str
    querystring: str
    back_url: str
    notices: tuple[str, ...]


def build_many(
    query: ReviewQuery, count: int, most: int, sample: Sequence[ShownSuggestion], notices: Sequence[str] = ()
) -> ManyContext:
    return ManyContext(
        kind=kind_labels()[query.kind],
        count=count,
        shown=plural(count, "suggestion"),
        least=f"{query.confidence:.0%}",
        sample=tuple(queue_row(one, query) for one in sample),
        is_too_many=count > most,
        most=number(most),
        querystring=query.querystring(),
        back_url=review_url(query),
        notices=tuple(notices),
    )

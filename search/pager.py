"""The row of page numbers under a list. Pure: numbers in, links out."""

from collections.abc import Callable
from dataclasses import dataclass

from search.labels import number

_AROUND = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A place in the row of pages; one without a URL is a gap."""

    label: str
    url: str = ""
    current: bool = False


@dataclass(frozen=True, slots=True)
class PageSize:
    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Pager:
    pages: tuple[Page, ...]
    previous_url: str
    next_url: str
    span: str
    sizes: tuple[PageSize, ...] = ()


def build_pager(
    page: int,
    pages: int,
    page_size: int,
    total: int,
    at: Callable[[int], str],
    sizes: tuple[PageSize, ...] = (),
    *,
    at_least: bool = False,
) -> Pager:
    """The first page, the last, those around the one shown, and gaps between. With `at_least` there may be more than
    the total.
    """
    near = {1, pages, *range(page - _AROUND, page + _AROUND + 1)} & set(range(1, pages + 1))
    row: list[Page] = []
    before = 0
    for place in sorted(near):
        if place == before + 2:
            # A gap of one page is that page.
            row.append(Page(f"{before + 1:,}", at(before + 1)))
        elif place > before + 1:
            row.append(Page("…"))
        row.append(Page(f"{place:,}", at(place), place == page))
        before = place
    first, last = (page - 1) * page_size + 1, min(total, page * page_size)
    return Pager(
        pages=tuple(row),
        previous_url=at(page - 1) if 1 < page <= pages else "",
        next_url=at(page + 1) if page < pages else "",
        span=f"{first:,}–{last:,} of {number(total, at_least=at_least)}" if first <= last else "",
        sizes=sizes,
    )

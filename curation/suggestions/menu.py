"""The number of open suggestions, for the menu of every page."""

from collections.abc import Callable
from functools import cache

from django.http import HttpRequest
from django.urls import reverse

from access.viewer import viewer_of_user
from curation.suggestions.params import ReviewQuery
from curation.suggestions.queries import counts_by_kind
from web.cache import RevisionCache

# Pages are many, and suggestions are decided one by one: the number may be this old, except after a decision.
_SECONDS = 30
# More are shown as this many and a plus, for which the menu has room.
_MOST = 999
_cache = RevisionCache[tuple[object, ...], int](1_000, seconds=_SECONDS)


def open_questions(request: HttpRequest) -> dict[str, Callable[[], str]]:
    """Context processor: how many suggestions wait that the person may see, empty for none.

    Lazy: pages without a menu do not ask.
    """
    return {"open_questions": cache(lambda: _shown(request))}


def _shown(request: HttpRequest) -> str:
    viewer = viewer_of_user(request.user)
    key = (viewer.project_ids, viewer.scopes)
    # Where suggestions are decided, the number is that of now.
    if request.path.startswith(reverse("suggestions:review")):
        count = _cache.put(key, sum(counts_by_kind(viewer, ReviewQuery()).values()))
    else:
        count = _cache.get_or_make(key, lambda: sum(counts_by_kind(viewer, ReviewQuery()).values()))
    return "" if not count else f"{_MOST}+" if count > _MOST else str(count)

"""The ids of a whole match set, for what is done with all of it at once."""

from django.utils import timezone

from access.viewer import Viewer
from memories.queries import visible_to
from search.engines import with_engine
from search.engines.base import Engine
from search.plan import resolve_query
from search.query import SearchQuery

_BLOCK = 5_000


def found_ids(query: SearchQuery, viewer: Viewer) -> list[int]:
    """The ids of all memories that match, in ascending order. As many as the total of the search says."""

    def ask(engine: Engine) -> list[int]:
        plan = resolve_query(engine, query, viewer, timezone.now()).plan
        visible = visible_to(viewer).order_by("pk").values_list("pk", flat=True)
        found: list[int] = []
        last = 0
        # Blocks by id, since a page far into an order costs more than one at its beginning.
        while ids := list(visible.filter(pk__gt=last)[:_BLOCK]):
            found += sorted(engine.filter_ids(plan, ids))
            last = ids[-1]
        return found

    return with_engine(ask, viewer)

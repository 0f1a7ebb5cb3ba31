"""How many memories there are of each value with nothing asked: the second number of `141 / 12,208`.

Kept in the process while the corpus' revision stands; a change anywhere starts it afresh.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock

from access.viewer import Viewer
from memories.models import Corpus
from search.engines.base import EngineTimeoutError, FacetRequest, Filter, Plan, Value
from search.facets import DEFAULT_STATES, FacetValue
from search.run import engine_in_use

_KEPT_VIEWS = 64


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """The corpus as one viewer sees it, in the default states."""

    total: int
    counts: dict[tuple[str, Value], int]

    def count(self, key: str, value: FacetValue) -> int | None:
        """How many memories have a value; None where it could not be counted."""
        return 0 if value.ref is None else self.counts.get((key, value.ref))


@dataclass(slots=True)
class _Known:
    """What has been counted of one view of the corpus so far."""

    total: int
    counts: dict[tuple[str, Value], int] = field(default_factory=dict)


_View = tuple[int, tuple[int, ...] | None]
_cache: OrderedDict[_View, _Known] = OrderedDict()
_lock = Lock()


def corpus_revision() -> int:
    """The number that rises with every change."""
    return Corpus.objects.values_list("revision", flat=True).get(pk=1)


def corpus_counts(shown: dict[str, tuple[FacetValue, ...]], viewer: Viewer) -> CorpusCounts:
    """The corpus' counts of the values shown, by facet. At most one statement for all that is not yet known."""
    engine = engine_in_use()
    projects = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    plan = Plan(project_ids=projects, filters=(Filter("state", include=tuple((state,) for state in DEFAULT_STATES)),))
    view = (corpus_revision(), projects)
    with _lock:
        known = _cache.get(view)
    if known is None:
        known = _Known(engine.summary(plan, no_values=False).total)
    missing = {
        key: tuple(v.ref for v in values if v.ref is not None and (key, v.ref) not in known.counts)
        for key, values in shown.items()
    }
    requests = [FacetRequest(key, only=refs) for key, refs in missing.items() if refs]
    if requests:
        try:
            counted = engine.counts(plan, requests, zone=UTC, now=datetime.now(UTC), days=False)
        except EngineTimeoutError:
            return CorpusCounts(known.total, dict(known.counts))
        found: dict[tuple[str, Value], int] = {}
        for request in requests:
            found |= {(request.key, value): 0 for value in request.only or ()}
            found |= {(request.key, v.value): v.count for v in counted.facets[request.key].values}
        with _lock:
            known.counts.update(found)
    with _lock:
        _cache[view] = known
        _cache.move_to_end(view)
        while len(_cache) > _KEPT_VIEWS:
            _cache.popitem(last=False)
        return CorpusCounts(known.total, dict(known.counts))

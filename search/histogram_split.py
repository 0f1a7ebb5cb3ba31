"""The bars of a histogram by the values of a facet."""

from search.engines.base import Engine, FacetValues, Spans
from search.facets import FACET, FACETS, Facet
from search.histogram import Histogram, bar_edges
from search.plan import ResolvedQuery
from search.result import HistogramSplit
from text.analysis import fold

# Facets with at most one value per memory: only their parts add up to the bar.
SPLIT_KEYS = tuple(spec.key for spec in FACETS if spec.exclusive)
_MOST = 5


def split_histogram(engine: Engine, resolved: ResolvedQuery, histogram: Histogram, facet: Facet) -> HistogramSplit:
    """Count the bars by the largest values of a facet in the results. Raises EngineTimeoutError."""
    chosen = FACET[facet.key]
    candidates = [value for value in facet.values if value.ref is not None and not value.excluded]
    edges = bar_edges(histogram.bars, resolved.zone)
    refs = tuple(value.ref for value in candidates if value.ref is not None)
    table = engine.cross(resolved.plan, FacetValues(chosen.key, refs), Spans(edges)).tolist()
    counted = [(value, tuple(row)) for value, row in zip(candidates, table, strict=True) if any(row)]
    counted.sort(key=lambda one: (-sum(one[1]), fold(one[0].label)))
    shown = counted[:_MOST]
    rest = (bar.count - sum(row[n] for _, row in shown) for n, bar in enumerate(histogram.bars))
    return HistogramSplit(
        facet.key, tuple(value for value, _ in shown), tuple(row for _, row in shown), tuple(max(0, n) for n in rest)
    )

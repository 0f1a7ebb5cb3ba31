"""What else there would be: what the default states hide, and at zero hits what each filter's removal would give."""

from collections.abc import Iterator
from dataclasses import replace

from access.viewer import Viewer
from search.did_you_mean import name_warnings, spelling_warnings
from search.engines.base import Engine, EngineQuery, Filter
from search.facets import DATE_KEY, DEFAULT_STATES, FACET, FacetKind
from search.plan import ResolvedQuery, explain_unknown, stored_as
from search.query import SearchQuery
from search.result import FilterRelaxation, SearchWarning


def count_alternatives(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, total: int
) -> tuple[int, bool, tuple[FilterRelaxation, ...]]:
    """What the default states hide, and whether that is a lower bound; and where nothing matched, what each filter's
    removal would give.
    """
    plan = resolved.plan
    asks_state = query.selection("state").restricts
    hidden_states = replace(plan.filter("state") or Filter("state"), include=(("archived",), ("superseded",)))
    plans = [] if asks_state else [plan.with_filter(hidden_states)]
    removals = list(_removals(query, resolved)) if total == 0 else []
    totals = engine.totals([*plans, *(changed for *_, changed in removals)])
    hidden = 0 if asks_state else totals.pop(0)
    relaxations = tuple(
        FilterRelaxation(key, value, label, count, changed, engine.near(wider).capped)
        for (key, value, label, changed, wider), count in zip(removals, totals, strict=True)
    )
    return hidden, bool(hidden) and engine.near(plans[0]).capped, relaxations


def _removals(query: SearchQuery, resolved: ResolvedQuery) -> Iterator[tuple[str, str, str, SearchQuery, EngineQuery]]:
    """Each thing that narrows, with the query and the plan without it."""
    plan = resolved.plan
    if query.text:
        yield "q", query.text, f"the words “{query.text}”", query.but(text=""), replace(plan, texts=(), meaning=None)
    if query.has_dates:
        changed = replace(plan, start=None, end=None)
        yield DATE_KEY, "", "the dates", query.without(DATE_KEY), changed
    for key, chosen in query.selections().items():
        spec, filter_ = FACET[key], plan.filter(key) or Filter(key)
        name = spec.label.lower()
        excluded = [value for value in chosen.exclude if (key, value) not in resolved.unknown]
        for n, value in enumerate(chosen.include):
            label = f"{name} {resolved.labels.get((key, value), value)}"
            less = replace(filter_, include=filter_.include[:n] + filter_.include[n + 1 :])
            yield key, value, label, query.toggle(key, value), _narrowed(plan, less)
        for n, value in enumerate(excluded):
            label = f"not {name} {resolved.labels.get((key, value), value)}"
            less = replace(filter_, exclude=filter_.exclude[:n] + filter_.exclude[n + 1 :])
            yield key, value, label, query.toggle_exclusion(key, value), _narrowed(plan, less)
        if chosen.no_value:
            less = replace(filter_, no_value=False)
            yield key, "", f"no {name}", query.toggle_presence("no", key), _narrowed(plan, less)
        if chosen.any_value:
            less = replace(filter_, any_value=False)
            yield key, "", f"has {name}", query.toggle_presence("has", key), _narrowed(plan, less)


def _narrowed(plan: EngineQuery, changed: Filter) -> EngineQuery:
    """A plan with one filter changed; with no state left to choose, the default states stand again."""
    if changed.key == "state" and not (changed.includes or changed.exclude or changed.any_value):
        changed = replace(changed, include=tuple((state,) for state in DEFAULT_STATES))
    return plan.with_filter(changed)


def match_warnings(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, total: int, viewer: Viewer
) -> list[SearchWarning]:
    """Warnings about names and words that nothing has, and about a page past the end."""
    suspects = list(resolved.unknown)
    if total == 0:
        # A plain text value is unknown only if no visible memory has it: worth asking when nothing was found.
        plain = [
            (key, value)
            for key, chosen in query.selections().items()
            if FACET[key].kind in {FacetKind.SCALAR, FacetKind.TEXTS} and key != "state"
            for value in chosen.include
        ]
        visible = EngineQuery(project_ids=resolved.plan.project_ids)
        plans = [visible.with_filter(Filter(key, include=((stored_as(key, value),),))) for key, value in plain]
        suspects += [pair for pair, count in zip(plain, engine.totals(plans), strict=True) if count == 0]
    warnings = explain_unknown(resolved, engine, suspects)
    named = name_warnings(engine, query, resolved, total) if query.text else []
    warnings += named
    if total == 0 and query.text and not named:
        warnings += spelling_warnings(engine, query, resolved, viewer)
    pages = max(1, -(-total // query.page_size))
    if query.page > pages:
        warnings.append(SearchWarning(f"Page {query.page:,} is past the last page, {pages:,}.", "page"))
    return warnings

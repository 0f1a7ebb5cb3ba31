"""Words that no memory has and that are a name all the same: of an author, an entity, a category."""

from collections.abc import Iterator
from dataclasses import replace

from categories.queries import resolve_categories, resolve_concepts, resolve_entities
from search.engines.base import Engine, EngineTimeoutError, Filter, Plan, Value
from search.facets import FACET, Kind
from search.labels import memories
from search.planning import Planned
from search.query import SearchQuery
from search.result import SearchWarning

# Tags are among the words that are looked for, and the rest have names that are words.
_KEYS = ("project", "category", "concept", "entity", "author", "agent")
# What people ask in a sentence is no name.
_MOST_WORDS = 6
_TOLD = 3


def name_warnings(engine: Engine, query: SearchQuery, planned: Planned) -> list[SearchWarning]:
    """The filters that would find what the words do not, by which most is found first.

    Only what is found under the other filters is told, so that a name never tells of what the viewer may not see.
    """
    said = query.text.strip().strip('"').strip()
    # A number would be an id.
    if not said or said.isdigit() or len(said.split()) > _MOST_WORDS or not _has_no_words(engine, planned.plan):
        return []
    without_text = replace(planned.plan, texts=(), meaning=None)
    meant = [one for one in _meant(said, planned) if not query.selection(one[0]).restricts]
    plans = [without_text.with_filter(Filter(key, include=(values,))) for key, _, values in meant]
    try:
        counts = engine.totals(plans)
    except EngineTimeoutError:
        return []
    found = sorted((count, key, name) for (key, name, _), count in zip(meant, counts, strict=True) if count)
    return [SearchWarning(_message(said, key, count), key, (name,)) for count, key, name in reversed(found[-_TOLD:])]


def _message(said: str, key: str, count: int) -> str:
    label = FACET[key].label.lower()
    one = f"{'an' if label[0] in 'ae' else 'a'} {label} with {memories(count)}"
    return f"“{said}” is in no text here, but is the name of {one}: filter by it instead."


def _has_no_words(engine: Engine, plan: Plan) -> bool:
    """Whether nothing of the match set was found by words."""
    if not plan.texts or plan.texts[0].words.is_empty:
        return False
    return engine.summary(replace(plan, meaning=None), no_values=False).total == 0


def _meant(said: str, planned: Planned) -> Iterator[tuple[str, str, tuple[Value, ...]]]:
    """The facets that something is called so in, what a query calls it, and what an engine does."""
    for key in _KEYS:
        values: tuple[Value, ...]
        name = said
        match FACET[key].kind:
            case Kind.PROJECT:
                found = [one for one in planned.projects.values() if said.lower() in (one.slug, one.name.lower())]
                values = tuple(one.id for one in found)
                name = found[0].slug if found else said
            case Kind.TREE:
                values = tuple(node.id for node in resolve_categories([said]).get(said, ()))
            case Kind.IDS:
                resolve = resolve_concepts if key == "concept" else resolve_entities
                values = tuple(term.id for term in resolve([said]).get(said, ()))
            case _:
                yield from ((key, one, (one,)) for one in dict.fromkeys((said, said.title())))
                continue
        if values:
            yield key, name, values

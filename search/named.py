"""Words that nothing has and that are a name all the same: of an author, an entity, a category.

Tags are among the words that are looked for; types, sources and states have names that are words.
"""

from collections.abc import Iterator
from dataclasses import replace

from categories.queries import ids_named
from search.engines.base import Engine, Filter, Value
from search.facets import FACET
from search.labels import memories
from search.planning import Planned
from search.query import SearchQuery
from search.result import SearchWarning

# What people ask in a sentence is no name.
_MOST_WORDS = 6
_TOLD = 3


def name_warnings(engine: Engine, query: SearchQuery, planned: Planned, total: int) -> list[SearchWarning]:
    """The filters that would find what the words do not, by which most is found first. `total` is of all that matches.

    Only what is found under the other filters is told, so that a name never tells of what the viewer may not see.
    """
    said = query.text.strip().strip('"').strip()
    if not said or len(said.split()) > _MOST_WORDS or not _has_no_words(engine, planned, total):
        return []
    without_text = replace(planned.plan, texts=(), meaning=None)
    meant = [one for one in _meant(said, planned) if not query.selection(one[0]).restricts]
    counts = engine.totals([without_text.with_filter(Filter(key, include=(values,))) for key, _, values in meant])
    found = sorted((count, key, name) for (key, name, _), count in zip(meant, counts, strict=True) if count)
    return [
        SearchWarning(
            f"Nothing here has the words “{said}”, but {memories(count)} {'has' if count == 1 else 'have'} the "
            f"{FACET[key].label.lower()} of that name.",
            key,
            (name,),
        )
        for count, key, name in reversed(found[-_TOLD:])
    ]


def _has_no_words(engine: Engine, planned: Planned, total: int) -> bool:
    """Whether nothing of the match set was found by words."""
    plan = planned.plan
    if not plan.texts or plan.texts[0].words.is_empty:
        return False
    if total and plan.meaning is not None:
        total = engine.summary(replace(plan, meaning=None), no_values=False).total
    return total == 0


def _meant(said: str, planned: Planned) -> Iterator[tuple[str, str, tuple[Value, ...]]]:
    """What is called so: its facet, how a query says it, and how an engine does."""
    for project in planned.projects.values():
        if said.lower() in (project.slug, project.name.lower()):
            yield "project", project.slug, (project.id,)
    named = ids_named(said)
    for pk, node in planned.names.category_nodes(named.get("category", ())).items():
        yield "category", node.path, (pk,)
    for pk, concept in planned.names.concept_terms(named.get("concept", ())).items():
        yield "concept", concept.value, (pk,)
    for pk, entity in planned.names.entity_terms(named.get("entity", ())).items():
        yield "entity", entity.value, (pk,)
    # As people write names, where they did not trouble to.
    for name in dict.fromkeys((said, said.title())):
        yield "author", name, (name,)
        yield "agent", name, (name,)
